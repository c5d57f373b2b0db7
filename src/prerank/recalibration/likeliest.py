"""Maximum likelihood: a smooth loss written in torch, minimised by SciPy."""

from collections.abc import Callable

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor


def smallest(loss: Callable[[Tensor], Tensor], start: Tensor) -> Tensor:
    """Where a scalar loss is smallest, by L-BFGS from a start in double precision; of its shape and device."""

    def value_and_gradient(values: np.ndarray) -> tuple[float, np.ndarray]:
        parameters = torch.as_tensor(values.reshape(start.shape), device=start.device).requires_grad_()
        with torch.enable_grad():
            value = loss(parameters)
            (gradient,) = torch.autograd.grad(value, parameters)
        return float(value.detach()), gradient.cpu().numpy().ravel()

    found = minimize(
        value_and_gradient,
        start.cpu().numpy().ravel(),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 500, "maxcor": 20},
    )
    return torch.as_tensor(found.x.reshape(start.shape), device=start.device)
