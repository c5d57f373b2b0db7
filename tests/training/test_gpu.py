"""What a GPU must show, and Triton's interpreter can where there is none: fused kernels do what the plain code does."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from prerank import gpu

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


@pytest.mark.slow
@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU: its own kernels are tested above")
def test_fused_kernels_agree_in_the_interpreter():
    command = [sys.executable, str(ROOT / "benchmarks" / "kernels.py"), "--dimensions", "2"]
    without = os.environ | {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    found = subprocess.run(command, env=without, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout + found.stderr


@pytest.mark.parametrize(("installed", "used"), [("3.2.1", False), ("3.3.0", True), ("4.0.0+git", True), ("new", True)])
def test_an_old_triton_is_left_alone(monkeypatch, installed, used):
    monkeypatch.setattr(gpu, "find_spec", lambda name: name)
    monkeypatch.setattr(gpu, "version", lambda name: installed)
    assert gpu._has_triton.__wrapped__() == used
