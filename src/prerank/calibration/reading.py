"""A reading aid: what the shape of a PIT histogram says, in words."""

from typing import NamedTuple

import torch
from torch import Tensor


class Shape(NamedTuple):
    """Standard scores (standard normal under calibration) of the PITs' mean, spread, and the two outer twentieths."""

    bias: float
    dispersion: float
    lower_tail: float
    upper_tail: float


def shape(pit: Tensor, case_weights: Tensor | None = None) -> Shape:
    """How PITs (N,) depart from uniform: scores of their mean, their spread, and their mass in the outer twentieths."""
    z = pit.detach().double().flatten()
    weights = torch.full_like(z, 1.0 / len(z)) if case_weights is None else (case_weights / case_weights.sum()).to(z)
    root = 1.0 / weights.square().sum().sqrt()  # sqrt(N) for equal weights
    x = 2 * z - 1
    # the first two Legendre polynomials, scaled to unit variance under uniformity, are uncorrelated there
    bias = (weights * x).sum() * 3**0.5 * root
    dispersion = (weights * (1.5 * x.square() - 0.5)).sum() * 5**0.5 * root
    tail, width = 0.05, (0.05 * 0.95) ** 0.5
    lower = ((weights * (z < tail)).sum() - tail) / width * root
    upper = ((weights * (z > 1 - tail)).sum() - tail) / width * root
    return Shape(float(bias), float(dispersion), float(lower), float(upper))


def read(pit: Tensor, p_value: float, level: float = 0.05, case_weights: Tensor | None = None) -> str:
    """Words for the PITs (N,) of one projection: biased, under- or over-dispersed, heavy in a tail, or flat.

    "Biased low" means that the forecast's projection is too low: observations come out above it. The words follow the
    largest standard scores; where the test does not reject (`p_value` > `level`) the answer is "flat".

    >>> z = torch.linspace(0.0005, 0.9995, 1000)
    >>> read(z, 0.9), read(z**2, 0.001), read(0.5 + 0.3 * (z - 0.5), 0.001)
    ('flat', 'biased high', 'over-dispersed')
    """
    if p_value > level:
        return "flat"
    seen = shape(pit, case_weights)
    words = []
    if abs(seen.bias) > 2.5:
        words.append("biased low" if seen.bias > 0 else "biased high")
    if seen.dispersion < -2.5 and abs(seen.dispersion) > 0.3 * abs(seen.bias):
        words.append("over-dispersed")
    elif seen.dispersion > 2.5 and abs(seen.dispersion) > 0.3 * abs(seen.bias):
        heavier, lighter = max(seen.lower_tail, seen.upper_tail), min(seen.lower_tail, seen.upper_tail)
        if heavier > 2.5 and lighter < 1.0 and abs(seen.dispersion) > abs(seen.bias):
            words.append("heavy upper tail" if seen.upper_tail > seen.lower_tail else "heavy lower tail")
        elif lighter > 0 or not words:
            words.append("under-dispersed")
    if not words:
        if max(seen.lower_tail, seen.upper_tail) > 2.5:
            words.append("heavy upper tail" if seen.upper_tail > seen.lower_tail else "heavy lower tail")
        else:
            words.append("not flat, no simple shape")
    return ", ".join(words)
