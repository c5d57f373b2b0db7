"""The kernels of the published draws: they are there, and used; and the page of all kernels has the measured shares."""

import ast
import csv
import pydoc
from pathlib import Path

import pytest
import torch

from builders import small_options, tiny_training_set
from prerank._kernels import choosing, rows
from prerank.preranks import paper_preranks
from prerank.training import Run, fit
from prerank_paper.published import PublishedPenalty

ROOT = Path(__file__).parents[2]
OWN = [kernel for kernel in rows() if kernel.fused.startswith("prerank_paper.")]


@pytest.mark.parametrize("kernel", OWN, ids=lambda kernel: kernel.name)
def test_the_table_names_code_that_is_there(kernel):
    assert pydoc.locate(kernel.plain) is not None
    # the fused code is read and not imported: it would ask for Triton
    file, _, function = kernel.fused.rpartition(".")
    source = ROOT / "reproduction" / "src" / f"{file.replace('.', '/')}.py"
    tree = ast.parse(source.read_text(encoding="utf-8"))
    assert function in [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]


def test_training_as_published_asks_for_every_kernel_of_its_own(monkeypatch):
    """As if Triton were installed and its interpreter on: tensors of a CPU can have kernels."""
    used = set()
    monkeypatch.setattr(choosing, "_INTERPRETED", True)
    monkeypatch.setattr(choosing, "_has_triton", lambda oldest: True)
    monkeypatch.setattr(choosing, "_function", used.add)  # which returns None: the plain code goes on
    monkeypatch.setattr(choosing, "_switched_off", lambda: False)
    runs = [Run(0, PublishedPenalty(item, n_draws=16), 1.0) for item in paper_preranks(3)]
    fit([Run(0), *runs], tiny_training_set(dtype=torch.float32), small_options(max_steps=1))
    assert len(OWN) == 2
    assert used >= {kernel.fused for kernel in OWN}


def test_the_page_of_the_kernels_is_the_table_with_the_measured_shares():
    with (ROOT / "results" / "kernels" / "shares.csv").open(encoding="utf-8") as stream:
        measured = list(csv.DictReader(stream))
    page = (ROOT / "docs" / "benchmarks" / "training.md").read_text(encoding="utf-8")
    section = page.partition("\n### Kernels\n")[2].partition("\n## ")[0]
    listed = [line for line in section.splitlines() if line.startswith("| ")][2:]
    expected = []
    for kernel in rows():
        if not kernel.fused.startswith(("prerank.", "prerank_paper.")):
            continue
        limits = [f"{name} ≤ {most}" for name, most in kernel.most.items()]
        limits += [f"{name} ≥ {fewest}" for name, fewest in kernel.fewest.items()]
        found = [float(row["longer_percent"]) for row in measured if row["without"] == kernel.name]
        shares = " / ".join(f"{share:.0f}" if share >= 10 else f"{share:.1f}" for share in found)
        expected.append(f"| {kernel.name} | {kernel.computes} | {', '.join(limits) or '-'} | {shares or 'later'} |")
    assert sorted(listed) == sorted(expected)
