"""Maximum likelihood: a smooth loss written in torch, minimised by SciPy."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from prerank._parallel import in_threads, single_threaded_blas


def smallest(prior: Callable[[Tensor], Tensor], terms: Sequence[Callable[[Tensor], Tensor]], start: Tensor) -> Tensor:
    """Where a sum of scalar losses is smallest, by L-BFGS from a start in double precision; of its shape and device.

    The losses are that of a prior, and `terms` of a few cases each, which are computed in threads.
    """

    def value_and_gradient(values: np.ndarray) -> tuple[float, np.ndarray]:
        given = torch.as_tensor(values.reshape(start.shape), device=start.device)

        def of(term: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
            parameters = given.clone().requires_grad_()
            with torch.enable_grad():
                value = term(parameters)
                (gradient,) = torch.autograd.grad(value, parameters)
            return value.detach(), gradient.clone()

        total, slope = of(prior)

        def add(_: Callable[[Tensor], Tensor], part: tuple[Tensor, Tensor]) -> None:
            total.add_(part[0])
            slope.add_(part[1])

        in_threads(of, terms, add, spread=start.device.type == "cpu")
        return float(total), slope.cpu().numpy().ravel()

    with single_threaded_blas():
        found = minimize(
            value_and_gradient,
            start.cpu().numpy().ravel(),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": 500, "maxcor": 20},
        )
    return torch.as_tensor(found.x.reshape(start.shape), device=start.device)
