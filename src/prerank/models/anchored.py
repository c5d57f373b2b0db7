r"""A mixture network that starts at the linear-Gaussian reference and departs from it as far as the rows support.

Component c has mean $a + B^\top x + m_c(x)$ and factor $\mathrm{diag}(s_c(x)) R_c(x)$; s and the diagonal of R have a floor.
B, a and the constant part of R are parameters of their own, beside those of the perceptron that gives the rest.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.distributions import Distribution
from torch.nn.functional import softplus

from prerank.forecasts import GaussianMixture
from prerank.models.network import MixtureNetwork, lower_triangular, perceptron
from prerank.models.reference import LinearGaussian


class ScaledMixture(GaussianMixture):
    r"""Component c of a case has factor $\mathrm{diag}(s_c) R_c$, with one R for all cases.

    `logits` (..., N, C), `loc` and `scale` (..., N, C, D), `root` (..., C, D, D), lower triangular. The likelihood of a
    batch solves with C matrices and not with N times C, which are made only where they are asked for.

    >>> parts = torch.zeros(4, 2), torch.zeros(4, 2, 3), torch.ones(4, 2, 3), torch.eye(3).expand(2, 3, 3)
    >>> ScaledMixture(*parts).log_prob(torch.zeros(4, 3))
    tensor([-2.7568, -2.7568, -2.7568, -2.7568])
    """

    def __init__(self, logits: Tensor, loc: Tensor, scale: Tensor, root: Tensor) -> None:
        self.logits, self.loc, self.scale, self.root = logits, loc, scale, root
        Distribution.__init__(self, logits.shape[:-1], loc.shape[-1:], validate_args=False)

    @property
    def scale_tril(self) -> Tensor:  # type: ignore[override]
        return self.scale[..., None] * self.root[..., None, :, :, :]

    def log_prob(self, value: Tensor) -> Tensor:
        """Log density of `value` (..., N, D), one for each case."""
        if value.ndim > len(self.batch_shape) + 1 or value.shape[-1:] != self.event_shape:
            return super().log_prob(value)
        standardised = (value[..., None, :] - self.loc) / self.scale
        whitened = torch.linalg.solve_triangular(self.root, standardised.movedim(-3, -1), upper=False)
        log_det = self.scale.log().sum(-1) + self.root.diagonal(dim1=-2, dim2=-1).log().sum(-1)[..., None, :]
        constant = self.log_weights - log_det - 0.5 * self.n_targets * math.log(2 * math.pi)
        return torch.logsumexp(constant - 0.5 * whitened.square().sum(-2).mT, -1)


N_OWN = 3
"""Tensors after those of the perceptron: slopes (E, L, D), levels (E, 1, D), constant parts of the factors (E, C, ...)."""


def n_outputs(n_targets: int, n_components: int, common: bool) -> int:
    """Numbers that the perceptron gives: logits, means, scales and, unless `common`, what is below the diagonal of R."""
    below = 0 if common else n_targets * (n_targets - 1) // 2
    return n_components * (1 + 2 * n_targets + below)


def anchored_weights(
    references: Sequence[LinearGaussian],
    n_components: int,
    hidden: Sequence[int],
    seeds: Sequence[int],
    common: bool,
    floor: float,
    dtype: torch.dtype,
    device: torch.device,
) -> list[Tensor]:
    """Weights of E models before their first step: the forecast is nearly the reference of each.

    The last layer gives small means, by which the components differ, in units of the reference's spread, and nothing
    else: a factor of many targets with random numbers in it would be a bad place to start from.
    """
    n_features, n_targets = references[0].slope.shape
    network = MixtureNetwork(n_features, n_targets, n_components, hidden, seeds, dtype=dtype, device=device)
    perceptron_weights = [part.detach() for pair in zip(network.weight, network.bias, strict=True) for part in pair]
    factors = torch.stack([reference.scale_tril for reference in references])
    spread = factors.square().sum(-1).sqrt()
    means = slice(n_components, n_components * (1 + n_targets))
    scale = torch.zeros(len(seeds), 1, n_outputs(n_targets, n_components, common), dtype=dtype, device=device)
    scale[..., means] = spread.repeat(1, n_components)[:, None].to(scale)
    perceptron_weights[-2:] = [part[..., : scale.shape[-1]] * scale for part in perceptron_weights[-2:]]
    rows, columns = torch.tril_indices(n_targets, n_targets)
    above = (factors.diagonal(dim1=-2, dim2=-1) - floor).clamp_min(1e-6)
    raw = factors.clone()
    raw.diagonal(dim1=-2, dim2=-1).copy_(above + torch.log(-torch.expm1(-above)))  # softplus of it is what is above
    own = [
        torch.stack([reference.slope for reference in references]),
        torch.stack([reference.level for reference in references])[:, None],
        raw[:, rows, columns][:, None].expand(-1, n_components, -1).clone(),
    ]
    return [*perceptron_weights, *(part.to(dtype=dtype, device=device) for part in own)]


def anchored_output(weights: Sequence[Tensor], x: Tensor) -> Tensor:
    """What the perceptron gives for x (E, N, L) or (N, L)."""
    return perceptron(x, weights[:-N_OWN:2], weights[1:-N_OWN:2])


def anchored_mixture(
    output: Tensor, weights: Sequence[Tensor], x: Tensor, n_targets: int, n_components: int, floor: float
) -> GaussianMixture:
    """Forecasts from the perceptron's output (E, N, ...) and the model's own tensors."""
    slope, level, constant = weights[-N_OWN:]
    sizes = [n_components, n_components * n_targets, n_components * n_targets]
    logits, means, scales, below = output.split([*sizes, output.shape[-1] - sum(sizes)], -1)
    lead = output.shape[:-1]
    loc = (x @ slope + level)[..., None, :] + means.reshape(*lead, n_components, n_targets)
    unit = math.log(math.expm1(1.0 - floor))  # the scale is one where the perceptron gives zero
    scale = softplus(scales.reshape(*lead, n_components, n_targets) + unit) + floor
    if not below.shape[-1]:
        return ScaledMixture(logits, loc, scale, lower_triangular(constant, n_targets, floor))
    rows, columns = torch.tril_indices(n_targets, n_targets, -1, device=output.device)
    places = rows * (rows + 1) // 2 + columns
    varying = below.new_zeros(*lead, n_components, constant.shape[-1])
    varying = varying.index_copy(-1, places, below.reshape(*lead, n_components, len(places)))
    factors = scale[..., None] * lower_triangular(constant[:, None] + varying, n_targets, floor)
    return GaussianMixture(logits, loc, factors, validate_args=False)
