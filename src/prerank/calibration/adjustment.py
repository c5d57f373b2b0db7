"""Several tests at once, whatever their dependence."""

import torch
from torch import Tensor

from prerank.arrays.conversion import accepts_arrays


@accepts_arrays("p_values")
def holm(p_values: Tensor) -> Tensor:
    """p-values adjusted for several tests by Holm's method (1979), valid under any dependence between them.

    Parameters
    ----------
    p_values : array_like, shape (..., n_tests)
        p-values.

    Returns
    -------
    Tensor or ndarray, shape (..., n_tests)
        Adjusted p-values.

    Examples
    --------
    >>> holm(torch.tensor([0.01, 0.04, 0.03]))
    tensor([0.0300, 0.0600, 0.0600])
    """
    ordered, order = p_values.sort(-1)
    factors = torch.arange(p_values.shape[-1], 0, -1, dtype=p_values.dtype, device=p_values.device)
    adjusted = (ordered * factors).cummax(-1).values.clamp_max(1.0)
    return torch.empty_like(p_values).scatter_(-1, order, adjusted)
