"""Interrupted and resumed equals uninterrupted, bit by bit; what is damaged or foreign is refused."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from prerank.preranks import PCA, Copula, Custom, Location
from prerank.training import PreRankPenalty, Run, fit

RUNS = [
    Run(0),
    Run(1, PreRankPenalty(Location()), 5.0),
    Run(0, PreRankPenalty(Copula(), n_draws=20), 5.0),
    Run(1, PreRankPenalty(PCA()), 20.0),
]


def assert_same_fit(one, other):
    assert all(torch.equal(first, second) for first, second in zip(one.weights, other.weights, strict=True))
    for what in ("best_score", "best_epoch", "diverged"):
        assert torch.equal(getattr(one, what), getattr(other, what))
    assert (one.epochs, one.steps) == (other.epochs, other.steps)


@pytest.fixture(scope="module")
def data(tiny):
    return {0: tiny(seed=0), 1: tiny(seed=1)}


@pytest.fixture(scope="module")
def options(small):
    return small(max_epochs=20, patience=2, learning_rate=2e-2)


@pytest.fixture(scope="module")
def uninterrupted(data, options):
    fleet = fit(RUNS, data, options)
    assert (fleet.best_epoch + options.patience < fleet.epochs - 1).any(), "somebody must have left on the way"
    return fleet


@pytest.mark.parametrize("stops", [(1,), (3,), (4, 5, 14), (17, 28), (31,)], ids=str)
def test_resumed_equals_uninterrupted_wherever_it_stopped(stops, uninterrupted, data, options, tmp_path):
    """Three steps make an epoch: stops in its middle, at its end, twice, and after models have left."""
    path = tmp_path / "fit.safetensors"
    for stop in stops:
        partial = fit(RUNS, data, replace(options, checkpoint=path, max_steps=stop))
        assert partial.steps == min(stop, uninterrupted.steps)
    assert_same_fit(fit(RUNS, data, replace(options, checkpoint=path)), uninterrupted)
    assert_same_fit(fit(RUNS, data, replace(options, checkpoint=path)), uninterrupted)  # a finished one stays as it is
    assert list(tmp_path.iterdir()) == [path]


def test_checkpoints_after_every_step_change_nothing(uninterrupted, data, options, tmp_path):
    path = tmp_path / "folder" / "fit.safetensors"
    assert_same_fit(fit(RUNS, data, replace(options, checkpoint=path, checkpoint_seconds=0.0)), uninterrupted)


SCRIPT = """
import sys
from pathlib import Path
import torch
from prerank.preranks import Custom, Location
from prerank.datasets import Heteroscedastic
from prerank.training import fit, FitOptions, PreRankPenalty, Run, TrainingSet

torch.set_num_threads(1)
table = Heteroscedastic(3).table(136, 0)
x, y = torch.from_numpy(table.x), torch.from_numpy(table.y)
data = TrainingSet(x[:96], y[:96], x[96:], y[96:])
largest = PreRankPenalty(Custom(lambda y: y.amax(-1), name="maximum"), n_draws=20)
runs = [Run(0), Run(1, largest, 5.0)]
path = Path(sys.argv[1]) if len(sys.argv) > 1 else None
fleet = fit(runs, data, FitOptions(
    n_components=3, hidden=(8, 8), batch_size=32, learning_rate=1e-3, max_epochs=40, patience=40,
    checkpoint=path, checkpoint_seconds=0.0,
))
print(fleet.steps, *[float(w.sum()).hex() for w in fleet.weights])
"""


@pytest.mark.slow
def test_a_fit_killed_half_way_loses_nothing(tmp_path):
    """SIGKILL while it writes a checkpoint after every step; a function among the pre-ranks does not hinder resuming."""
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT))
    path = tmp_path / "fit.safetensors"
    whole = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True).stdout
    running = subprocess.Popen([sys.executable, script, path], stdout=subprocess.PIPE, text=True)
    while not path.exists() and running.poll() is None:
        time.sleep(0.01)
    time.sleep(0.1)
    killed = running.poll() is None
    running.send_signal(signal.SIGKILL)
    running.wait()
    assert killed, "it ended before it could be killed: raise max_epochs"
    again = subprocess.run([sys.executable, script, path], capture_output=True, text=True, check=True).stdout
    assert again == whole
    assert whole.startswith("120 ")


def changed(path, offset, value):
    content = bytearray(path.read_bytes())
    content[offset] ^= value
    path.write_bytes(content)


def test_a_damaged_checkpoint_is_refused(data, options, tmp_path):
    path = tmp_path / "fit.safetensors"
    stopped = replace(options, checkpoint=path, max_steps=4)
    fit(RUNS, data, stopped)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match=r"cannot be read as a saved checkpoint .*delete it to start afresh"):
        fit(RUNS, data, stopped)
    path.write_bytes(b"")
    with pytest.raises(ValueError, match=r"cannot be read as a saved checkpoint"):
        fit(RUNS, data, stopped)
    path.write_bytes(content)
    changed(path, -64, 0x10)
    with pytest.raises(ValueError, match=r"damaged.* its contents do not match its digest; delete it to start afresh"):
        fit(RUNS, data, stopped)
    path.write_bytes(content)
    assert fit(RUNS, data, stopped).steps == 4


def test_a_foreign_checkpoint_is_refused(data, options, tmp_path, tiny):
    path = tmp_path / "fit.safetensors"
    stopped = replace(options, checkpoint=path, max_steps=4)
    fit(RUNS, data, stopped)
    moved = {seed: part._replace(y=part.y + 1.0) for seed, part in data.items()}
    others = [
        (RUNS[:2], data, stopped),
        ([*RUNS[:3], Run(1, PreRankPenalty(PCA()), 21.0)], data, stopped),
        (RUNS, moved, stopped),
        (RUNS, data, replace(stopped, learning_rate=1e-4)),
        (RUNS, data, replace(stopped, floor=1e-2)),
    ]
    for runs, sets, chosen in others:
        with pytest.raises(ValueError, match=r"belongs to another fit .*delete it, or give another path"):
            fit(runs, sets, chosen)
    from safetensors.torch import save_file

    save_file({"a": torch.zeros(1)}, path)
    with pytest.raises(ValueError, match=r"not a saved checkpoint; delete it to start afresh"):
        fit(RUNS, data, stopped)


@pytest.mark.parametrize("where", ["write_bytes", "replace", "fsync"])
def test_a_full_disk_leaves_the_previous_checkpoint_whole(where, uninterrupted, data, options, tmp_path, monkeypatch):
    path = tmp_path / "fit.safetensors"
    fit(RUNS, data, replace(options, checkpoint=path, max_steps=4))
    before = path.read_bytes()

    def full(*arguments, **more):
        if where == "write_bytes":
            arguments[0].write_text("half of it")
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path if where == "write_bytes" else os, where, full)
        with pytest.raises(OSError, match=r"No space left"):
            fit(RUNS, data, replace(options, checkpoint=path, max_steps=7))
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
    assert_same_fit(fit(RUNS, data, replace(options, checkpoint=path)), uninterrupted)


def test_functions_are_told_by_their_names_across_processes(tmp_path, data, options):
    """The address of a function is not part of what a checkpoint belongs to."""
    stopped = replace(options, checkpoint=tmp_path / "fit", max_steps=2)
    for _ in range(2):
        penalty = PreRankPenalty(Custom(lambda y: y.amax(-1), name="maximum"), n_draws=20)
        assert fit([Run(0, penalty, 1.0)], data, stopped).steps == 2
