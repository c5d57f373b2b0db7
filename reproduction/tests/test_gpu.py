"""What a GPU must show, and Triton's interpreter can where there is none: fused kernels do what the plain code does."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from builders import small_options, tiny_training_set
from prerank._kernels import rows, without
from prerank.preranks import paper_preranks
from prerank.training import PreRankPenalty, Run, TrainingSet, fit
from prerank_paper.published import PublishedPenalty

ROOT = Path(__file__).parents[2]
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


@needs_gpu
@pytest.mark.parametrize("n_targets", [1, 2, 4, 16])
def test_fused_kernels_agree_with_double_precision(benchmark_script, n_targets):
    kernels = benchmark_script("kernels")
    for part in (kernels.of_mixtures, kernels.of_ranks, kernels.of_training):
        for what, name, error in part(n_targets):
            assert error < kernels.LIMIT, f"{what}, {name}"


@needs_gpu
def test_a_fleet_on_a_gpu_equals_its_models_alone(benchmark_script):
    for found in benchmark_script("fleet").compare("cuda"):
        assert found.parameters <= 1e-4, found
        assert found.score <= 1e-5, found


@needs_gpu
def test_a_fleet_on_a_gpu_trains_without_kernels():
    data = TrainingSet(*(part.cuda() for part in tiny_training_set(3, dtype=torch.float32)[:4]))
    kinds = (PreRankPenalty, PublishedPenalty)
    runs = [Run(0), *(Run(0, kind(item), 1.0) for item in paper_preranks(3) for kind in kinds)]
    options = small_options(learning_rate=1e-4)
    with without(rows()):
        plain = fit(runs, data, options)
    fused = fit(runs, data, options)
    assert not plain.diverged.any()
    # 12 steps of 1e-4 at most: where a gradient is nothing but rounding, its sign may differ
    for a, b in zip(plain.weights, fused.weights, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=2 * plain.steps * 1e-4)
    torch.testing.assert_close(plain.best_score, fused.best_score, rtol=0.01, atol=0)


@pytest.mark.slow
@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU: its own kernels are tested above")
def test_fused_kernels_agree_in_the_interpreter():
    command = [sys.executable, str(ROOT / "reproduction" / "benchmarks" / "kernels.py"), "--dimensions", "2"]
    without = os.environ | {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    found = subprocess.run(command, env=without, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout + found.stderr


@pytest.mark.slow
@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
def test_kernels_compile_for_a_gpu_that_is_not_there():
    command = [sys.executable, str(ROOT / "reproduction" / "benchmarks" / "compile_kernels.py"), "--targets", "3"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout + found.stderr
    *kernels, total = found.stdout.splitlines()
    assert total.startswith(f"D = 3   {len(kernels)} kernels")
    assert {line.split()[3].partition(".")[0] for line in kernels} >= {
        "adam_kernel",
        "jointcdf_kernel",
        "softcdf_kernel",
    }
