"""The peer that training steps are timed against computes the same, and the limit beside them is the documented one."""

import re
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]
PRERANKS = {
    2: ("none", "marginal", "location", "scale", "contrast", "PCA", "HDR", "copula"),
    4: ("dependency", "PCA", "HDR", "copula"),
}


@pytest.mark.parametrize(("n_targets", "prerank"), [(d, name) for d, names in PRERANKS.items() for name in names])
def test_the_peer_has_the_librarys_loss_and_gradients(benchmark_script, n_targets, prerank):
    """In double precision, for the same parameters, rows and random numbers."""
    peer = benchmark_script("vmap_peer")
    assert prerank in peer.preranks_of(n_targets)
    found = peer.difference(prerank, n_targets)
    assert found.loss < 1e-12
    assert found.gradient < 1e-9


def test_the_peer_takes_the_steps_of_adam(benchmark_script):
    peer = benchmark_script("vmap_peer")
    generator = torch.Generator().manual_seed(3)
    x, y = (torch.randn(2, 40, width, dtype=torch.float64, generator=generator) for width in (3, 2))
    training = peer.Training("marginal", x, y, [1.0, 10.0], n_draws=20, batch=16)
    leaves = {name: tensor.clone().requires_grad_() for name, tensor in training.parameters.items()}
    adam = torch.optim.Adam(leaves.values(), lr=1e-4)
    for number in range(3):
        rows = torch.arange(16).expand(2, -1) + number
        batch = (part[torch.arange(2)[:, None], rows][training.seed_of] for part in (x, y))
        gradients, _ = training.peer.gradients(leaves, *batch, {}, training.strength)
        for name, leaf in leaves.items():
            leaf.grad = gradients[name].detach()
        adam.step()
        training.step(rows)
    for name, leaf in leaves.items():
        torch.testing.assert_close(training.parameters[name], leaf.detach(), rtol=1e-10, atol=1e-12)


def test_the_hardware_limit_is_that_of_the_page(benchmark_script, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "reproduction" / "benchmarks")
    times = benchmark_script("step_times")
    page = (ROOT / "docs" / "benchmarks" / "training.md").read_text(encoding="utf-8")
    printed = dict(re.findall(r"^\| (\d+) \| [\d.]+ \| ([\d.]+) \|", page, re.MULTILINE))
    limits = {str(d): times.floor(times.all_of(times.grid(d)), d) for d in (2, 6, 16)}
    assert {d: f"{limit:.{3 if limit < 0.1 else 2}f}" for d, limit in limits.items()} == printed
    # a part needs no more than the whole, and draws of all components no less than chosen ones
    for d in (2, 16):
        whole = times.floor(times.all_of(times.grid(d)), d)
        assert all(times.floor(part, d) < whole for part in times.grid(d).values())
        assert times.floor(times.all_of(times.grid(d, "as published")), d) > whole


def test_measurements_are_kept_and_not_made_again(benchmark_script, monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(ROOT / "reproduction" / "benchmarks")
    times = benchmark_script("step_times")
    row = times.Row(2, "exact", "all", 180, "fleet", 1.17, 0.09, 0.2, "", "H200", "EPYC, 16 cores")
    times.Records(tmp_path / "steps.csv").add(row)
    again = times.Records(tmp_path / "steps.csv")
    assert again.rows == [row]
    assert again.has(2, "exact", "all", "fleet")
    assert not again.has(2, "exact", "all", "vmap")
    again.add(row._replace(code="vmap", ms=11.7))
    assert "13.0" in times.table(times.Records(tmp_path / "steps.csv").rows)
    assert "10.0" in times.table(times.Records(tmp_path / "steps.csv").rows)
