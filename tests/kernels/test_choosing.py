"""One table, one chooser: who gets a kernel, and that everything in the table is there and is used."""

import ast
import pydoc
import sys
from pathlib import Path

import pytest
import torch

from prerank._kernels import Kernel, choosing, kernel_for, register, rows, without
from prerank.forecasts import Ensemble
from prerank.preranks import PCA, paper_preranks
from prerank.training import FitOptions, PreRankPenalty, Run, TrainingSet, fit

ROOT = Path(__file__).parents[2]
TABLE = tuple(kernel for kernel in rows() if kernel.fused.startswith("prerank."))  # others may have brought theirs
ROW = Kernel("a kernel", "nothing", "some.fused", "some.plain", most={"targets": 3}, fewest={"points": 2})
HERE = torch.zeros(1)
ONE_STEP = FitOptions(n_components=2, hidden=(4,), batch_size=8, max_steps=1)


def asked(kernel: Kernel, tensor: torch.Tensor, *others: torch.Tensor | None, **more: object) -> bool:
    """Whether the kernel is chosen at its limits, but for what is said."""
    sizes = dict(kernel.fewest) | dict(kernel.most)
    return kernel_for(kernel, tensor, *others, **(sizes | more)) is not None


def some_data(n_targets: int) -> TrainingSet:
    numbers = torch.randn(2, 16, n_targets, generator=torch.Generator().manual_seed(0))
    return TrainingSet(*numbers, *numbers)


@pytest.fixture
def interpreted(monkeypatch):
    """As if Triton were installed and its interpreter on: tensors of a CPU can have kernels."""
    monkeypatch.setattr(choosing, "_INTERPRETED", True)
    monkeypatch.setattr(choosing, "_has_triton", lambda oldest: True)
    monkeypatch.setattr(choosing, "_function", lambda name: name)
    monkeypatch.delenv("PRERANK_KERNELS", raising=False)
    choosing._switched_off.cache_clear()
    yield
    choosing._switched_off.cache_clear()


@pytest.mark.skipif(choosing._INTERPRETED, reason="Triton interprets its kernels on this CPU")
@pytest.mark.parametrize("kernel", TABLE, ids=lambda kernel: kernel.name)
def test_a_cpu_gets_no_kernel(kernel):
    assert not asked(kernel, HERE)


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("kernel", TABLE, ids=lambda kernel: kernel.name)
def test_a_kernel_is_used_within_its_limits_and_not_beyond(kernel):
    assert asked(kernel, HERE)
    for name, limit in kernel.most.items():
        assert not asked(kernel, HERE, **{name: limit + 1})
    for name, limit in kernel.fewest.items():
        assert not asked(kernel, HERE, **{name: limit - 1})


@pytest.mark.usefixtures("interpreted")
def test_all_tensors_are_of_the_kernels_type_and_device():
    assert asked(ROW, HERE, HERE, None)
    assert not asked(ROW, HERE.double())
    assert not asked(ROW, HERE, HERE.double())
    assert not asked(ROW, HERE, HERE.half())


def test_a_device_that_is_not_the_kernels_gets_the_plain_code(monkeypatch):
    monkeypatch.setattr(choosing, "_has_triton", lambda oldest: True)
    monkeypatch.setattr(choosing, "_INTERPRETED", False)
    assert not asked(ROW, torch.empty(1, device="meta"))


@pytest.mark.usefixtures("interpreted")
def test_a_gradient_that_a_kernel_does_not_have_is_left_to_the_plain_code():
    learnt = torch.zeros(1, requires_grad=True)
    assert asked(ROW, learnt)
    assert asked(ROW, HERE, fixed=(HERE, None))
    assert not asked(ROW, HERE, fixed=(HERE, learnt))
    with torch.no_grad():
        assert asked(ROW, HERE, fixed=(learnt,))


@pytest.mark.usefixtures("interpreted")
def test_a_caller_says_the_sizes_that_are_limited_and_no_others():
    with pytest.raises(TypeError, match=r"'a kernel' has limits on points, targets, but was asked with targets"):
        kernel_for(ROW, HERE, targets=1)
    with pytest.raises(TypeError, match=r"limits on points, targets, but was asked with draws, points, targets"):
        kernel_for(ROW, HERE, targets=1, points=2, draws=3)


@pytest.mark.usefixtures("interpreted")
def test_kernels_can_be_switched_off_one_by_one():
    first, second, third = TABLE[:3]
    with without([first]):
        assert [asked(kernel, HERE) for kernel in (first, second, third)] == [False, True, True]
        with without([second]):
            assert [asked(kernel, HERE) for kernel in (first, second, third)] == [False, False, True]
        assert asked(second, HERE)
    assert asked(first, HERE)
    with without(rows()):
        assert not any(asked(kernel, HERE) for kernel in TABLE)


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize(("said", "used"), [("0", False), ("1", True)])
def test_the_environment_switches_all_kernels_off(monkeypatch, said, used):
    monkeypatch.setenv("PRERANK_KERNELS", said)
    assert {asked(kernel, HERE) for kernel in TABLE} == {used}


@pytest.mark.usefixtures("interpreted")
def test_the_environment_is_not_guessed_at(monkeypatch):
    monkeypatch.setenv("PRERANK_KERNELS", "off")
    with pytest.raises(ValueError, match=r"PRERANK_KERNELS is 'off'; set it to 0 .* or to 1"):
        asked(ROW, HERE)


@pytest.mark.parametrize(("installed", "used"), [("3.2.1", False), ("3.3.0", True), ("4.0.0+git", True), ("new", True)])
def test_an_old_triton_is_left_alone(monkeypatch, installed, used):
    monkeypatch.setattr(choosing, "find_spec", lambda name: name)
    monkeypatch.setattr(choosing, "version", lambda name: installed)
    assert choosing._has_triton.__wrapped__((3, 3)) == used


def test_a_name_stands_for_one_kernel():
    known = TABLE[0]
    assert register(known) is known
    with pytest.raises(
        ValueError, match=f"'{known.name}' is that of the kernel {known.fused}; give yours another name"
    ):
        register(Kernel(known.name, "something else", "some.fused", "some.plain"))
    assert all(kernel in rows() for kernel in TABLE)
    assert len({kernel.name for kernel in rows()}) == len(rows())


@pytest.mark.parametrize("kernel", TABLE, ids=lambda kernel: kernel.name)
def test_the_table_names_code_that_is_there(kernel):
    assert pydoc.locate(kernel.plain) is not None
    # the fused code is read and not imported: it would ask for Triton
    file, _, function = kernel.fused.rpartition(".")
    tree = ast.parse((ROOT / "src" / f"{file.replace('.', '/')}.py").read_text(encoding="utf-8"))
    assert function in [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]


@pytest.mark.usefixtures("interpreted")
def test_training_asks_for_every_kernel_of_the_table(monkeypatch):
    used = set()
    monkeypatch.setattr(choosing, "_function", used.add)  # which returns None: the plain code goes on
    runs = [Run(0, PreRankPenalty(item, n_draws=16), 1.0) for item in paper_preranks(3)]
    fit([Run(0), *runs], some_data(3), ONE_STEP)
    numbers = torch.randn(8, 21, 3, generator=torch.Generator().manual_seed(0))
    PreRankPenalty(PCA())(numbers[:, 0], Ensemble(numbers[:, 1:].requires_grad_()))  # a mixture has a closed form there
    assert used == {kernel.fused for kernel in TABLE}


@pytest.mark.skipif(torch.cuda.is_available() or choosing._INTERPRETED, reason="kernels are used here")
def test_training_on_a_cpu_imports_no_kernel():
    fit([Run(0, PreRankPenalty(paper_preranks(2)), 1.0)], some_data(2), ONE_STEP)
    assert not [name for name in sys.modules if name.startswith("prerank.") and name.endswith("_kernel")]
