"""A forecast family of one's own: a multivariate Student distribution, checked, scored and trained with the penalty."""

import math

import torch
from torch import Tensor
from torch.distributions import Distribution

from prerank import Location, PreRankPenalty, Scale, check, projected_pit
from prerank.scores import energy_score, nll


class Student(Distribution):
    """Student distributions with a centre (N, D), a Cholesky factor (N, D, D) and degrees of freedom."""

    arg_constraints = {}  # noqa: RUF012 - torch's protocol
    has_rsample = True

    def __init__(self, centre: Tensor, factor: Tensor, freedom: float) -> None:
        self.centre, self.factor, self.freedom = centre, factor, freedom
        super().__init__(centre.shape[:-1], centre.shape[-1:], validate_args=False)

    def rsample(self, sample_shape: tuple[int, ...] = ()) -> Tensor:
        normal = torch.randn(*sample_shape, *self.centre.shape, dtype=self.centre.dtype, device=self.centre.device)
        chi_square = torch.distributions.Chi2(self.centre.new_full(self.centre.shape[:-1], self.freedom))
        stretch = (self.freedom / chi_square.sample(torch.Size(sample_shape))).sqrt()[..., None, None]
        return self.centre + (stretch * self.factor @ normal[..., None])[..., 0]

    def log_prob(self, value: Tensor) -> Tensor:
        d, nu = self.centre.shape[-1], self.freedom
        white = torch.linalg.solve_triangular(self.factor, (value - self.centre)[..., None], upper=False)[..., 0]
        constant = math.lgamma((nu + d) / 2) - math.lgamma(nu / 2) - 0.5 * d * math.log(nu * math.pi)
        log_det = self.factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        return constant - log_det - 0.5 * (nu + d) * (white.square().sum(-1) / nu).log1p()


def main(device: str = "cpu") -> None:
    torch.manual_seed(0)
    truth = Student(torch.zeros(400, 3, device=device), torch.eye(3, device=device).expand(400, 3, 3), freedom=5.0)
    y = truth.sample()
    print(check(y, truth).calibrated)
    print(projected_pit(y, truth, [Location()]).method)
    print(float(energy_score(y, truth).mean()), float(nll(y, truth).mean()))

    centre = torch.full((3,), 0.5, device=device, requires_grad=True)
    penalty, optimiser = PreRankPenalty((Location(), Scale())), torch.optim.Adam([centre], lr=0.05)
    for step in range(20):
        forecast = Student(centre.expand(400, 3), torch.eye(3, device=device).expand(400, 3, 3), freedom=5.0)
        loss = nll(y, forecast).mean() + 10.0 * penalty(y, forecast, step=step)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    print(float(centre.detach().abs().max()))


if __name__ == "__main__":
    main()
