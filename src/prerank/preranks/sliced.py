"""Directions at random: linear pre-ranks that know nothing of the forecast."""

from dataclasses import dataclass

from prerank.forecasts import Forecast
from prerank.preranks.projection import LinearProjection
from prerank.preranks.table1 import PreRank
from prerank.preranks.view import View, view_of
from prerank.randomness import key, normal


@dataclass(frozen=True)
class Sliced(PreRank):
    r"""Random directions, $\rho_k(y) = u_k^\top y$ with $u_k$ uniform on the sphere: K projections.

    Large means far along the direction. The directions depend on `seed` and the number of targets alone, so they are
    the same for all cases. If every linear function is calibrated, so is the joint law; a few at random see most errors
    a little, where `Marginal` and `Location` look along fixed ones and `PCA` along those of the forecast. Blind to
    errors at right angles to them, and to dependence beyond what these sums show. Targets need comparable units.
    Linear, so closed form for mixtures. It can be trained with.

    Parameters
    ----------
    n_directions : int, default 5
        The number K of directions.
    seed : int, default 0
        Seed of the directions.
    name : str, default 'sliced'
        What results call it.

    See Also
    --------
    PCA : directions of the forecast
    ReferenceDistance : distances from random points

    References
    ----------
    Cramér and Wold (1936), Some theorems on distribution functions, Journal of the London Mathematical Society.

    Examples
    --------
    >>> import torch
    >>> from prerank import Ensemble
    >>> directions = Sliced(2).given(Ensemble(torch.zeros(1, 10, 3))).directions
    >>> directions.shape, directions.square().sum(-2)
    (torch.Size([1, 3, 2]), tensor([[1., 1.]]))
    """

    n_directions: int = 5
    seed: int = 0
    name: str = "sliced"

    def __post_init__(self) -> None:
        if self.n_directions < 1:
            raise ValueError(f"Sliced(n_directions={self.n_directions}): at least one direction is needed")

    def given(self, view: View | Forecast) -> LinearProjection:
        view = view_of(view)
        if view.n_targets == 1:
            raise ValueError("Sliced() has one direction for D=1 target, up to its sign; use Marginal()")
        drawn = normal(key(self.seed, "directions"), (self.n_directions, view.n_targets)).T
        directions = (drawn / drawn.square().sum(0).sqrt())[None].to(view.device, view.dtype)
        return LinearProjection(directions, tuple(f"direction {k + 1}" for k in range(self.n_directions)))
