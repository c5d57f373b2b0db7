"""The mixture network: features -> `GaussianMixture`, for one model or a whole fleet of them."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from prerank._kernels import PERCEPTRON, UNPACKING, kernel_for
from prerank.forecasts import GaussianMixture
from prerank.randomness import key, uniform


class MixtureNetwork(nn.Module):
    """A perceptron whose output parametrises a Gaussian mixture; parameters carry a leading axis of models.

    Two hidden layers of 100 with ReLU and 5 components, as in the paper. The diagonal of a Cholesky factor is softplus
    plus `floor`, so that every output is a valid mixture and nothing needs repair. Initialised as torch does (uniform
    within one over the root of the fan-in), from the seeds alone: models of one seed start alike, whatever their
    fleet.

    Parameters
    ----------
    n_features : int
        Number of features L.
    n_targets : int
        Number of targets D.
    n_components : int, default 5
        Components of the mixture.
    hidden : sequence of int, default (100, 100)
        Width of each hidden layer.
    seeds : sequence of int, default (0,)
        One seed per model.
    floor : float, default 1e-3
        The smallest diagonal entry of a Cholesky factor.
    dtype : torch.dtype, optional
        Floating type of the parameters; torch's default if None.
    device : torch.device or str, optional
        Where the parameters are.

    Raises
    ------
    ValueError
        If there is no feature, target or component.

    Examples
    --------
    >>> network = MixtureNetwork(n_features=3, n_targets=2, seeds=[0, 1])
    >>> network(torch.zeros(7, 3)).batch_shape
    torch.Size([2, 7])
    """

    def __init__(
        self,
        n_features: int,
        n_targets: int,
        n_components: int = 5,
        hidden: Sequence[int] = (100, 100),
        seeds: Sequence[int] = (0,),
        floor: float = 1e-3,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__()
        for what, number in (("feature", n_features), ("target", n_targets), ("component", n_components)):
            if number < 1:
                raise ValueError(f"a mixture network needs at least one {what}, got {number}")
        self.n_features, self.n_targets, self.n_components = n_features, n_targets, n_components
        self.hidden, self.floor = tuple(hidden), floor
        widths = [n_features, *hidden, n_components * (1 + n_targets + n_targets * (n_targets + 1) // 2)]
        dtype = torch.get_default_dtype() if dtype is None else dtype
        self.weight, self.bias = nn.ParameterList(), nn.ParameterList()
        for layer, (inputs, outputs) in enumerate(pairwise(widths)):
            bound = 1.0 / math.sqrt(inputs)
            keys = torch.tensor([key(seed, "initialisation", layer) for seed in seeds])
            drawn = (2 * uniform(keys, (inputs + 1, outputs)) - 1) * bound
            drawn = drawn.to(device=device, dtype=dtype)
            self.weight.append(nn.Parameter(drawn[:, :-1].clone()))
            self.bias.append(nn.Parameter(drawn[:, -1:].clone()))

    def forward(self, x: Tensor) -> GaussianMixture:
        """Forecasts of features.

        Parameters
        ----------
        x : Tensor, shape (n_models, n_cases, n_features) or (n_cases, n_features)
            Features, of each model or common to all.

        Returns
        -------
        GaussianMixture
            Batch shape (n_models, n_cases).
        """
        return mixture_from(
            perceptron(x, list(self.weight), list(self.bias)), self.n_targets, self.n_components, self.floor
        )


def perceptron(x: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor]) -> Tensor:
    """Layers with ReLU between them: x (E, N, L) or (N, L), weights (E, in, out), biases (E, 1, out)."""
    if fused := kernel_for(PERCEPTRON, x, weights[0], axes=x.ndim):
        return fused(x, weights, biases)
    for layer, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        x = torch.relu(x) if layer else x
        x = x @ weight + bias
    return x


def mixture_from(output: Tensor, n_targets: int, n_components: int, floor: float) -> GaussianMixture:
    """Split the last layer's output into logits, means and Cholesky factors."""
    if fused := kernel_for(UNPACKING, output):
        logits, loc, scale_tril = fused(output, n_targets, n_components, floor)
        return GaussianMixture(logits, loc, scale_tril, validate_args=False)
    triangle = n_targets * (n_targets + 1) // 2
    logits, loc, raw = output.split([n_components, n_components * n_targets, n_components * triangle], -1)
    lead = output.shape[:-1]
    scale_tril = lower_triangular(raw.reshape(*lead, n_components, triangle), n_targets, floor)
    return GaussianMixture(logits, loc.reshape(*lead, n_components, n_targets), scale_tril, validate_args=False)


def lower_triangular(raw: Tensor, n_targets: int, floor: float) -> Tensor:
    """Lower triangular factors (..., D, D) from their rows (..., D (D + 1) / 2), the diagonal softplus(x) + floor."""
    return _Factors.apply(raw, n_targets, floor)


class _Factors(torch.autograd.Function):
    """`lower_triangular`, and the way back: only what is below the diagonal or on it has a gradient."""

    @staticmethod
    def forward(ctx: Any, raw: Tensor, n_targets: int, floor: float) -> Tensor:
        rows, columns = torch.tril_indices(n_targets, n_targets, device=raw.device)
        places = rows * n_targets + columns
        number = torch.arange(n_targets, device=raw.device)
        diagonal = number * (number + 3) // 2
        factors = raw.new_zeros(*raw.shape[:-1], n_targets**2).index_copy_(-1, places, raw)
        factors[..., :: n_targets + 1] = softplus(raw.index_select(-1, diagonal)) + floor
        ctx.save_for_backward(raw, places, diagonal)
        return factors.unflatten(-1, (n_targets, n_targets))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        raw, places, diagonal = ctx.saved_tensors
        for_raw = gradient.flatten(-2).index_select(-1, places)
        slope = raw.index_select(-1, diagonal).sigmoid()
        return for_raw.index_copy_(-1, diagonal, slope * for_raw.index_select(-1, diagonal)), None, None
