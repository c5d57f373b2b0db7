"""A score of one's own: trained by, and stopped by, the Dawid-Sebastiani score."""

from dataclasses import dataclass

import torch
from torch import Tensor

from prerank import GaussianMixture
from prerank.training import FitOptions, Run, TrainingSet, fit


@dataclass(frozen=True)
class DawidSebastiani:
    """log det S + (y - m)' S^-1 (y - m) of the forecast's mean m and covariance S: one value per case."""

    def __call__(self, y: Tensor, forecast: GaussianMixture) -> Tensor:
        factor = torch.linalg.cholesky(forecast.covariance_matrix)
        white = torch.linalg.solve_triangular(factor, (y - forecast.mean)[..., None], upper=False)[..., 0]
        return 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1) + white.square().sum(-1)


def main(device: str = "cpu") -> None:
    torch.manual_seed(0)
    x = torch.randn(400, 2, device=device)
    targets = x @ torch.ones(2, 3, device=device) + torch.randn(400, 3, device=device)
    data = TrainingSet(x[:300], targets[:300], x[300:], targets[300:])
    options = FitOptions(max_epochs=3, hidden=(16,), score=DawidSebastiani(), monitor=DawidSebastiani())
    print(fit([Run(0)], data, options).best_score)


if __name__ == "__main__":
    main()
