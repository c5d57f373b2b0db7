"""A penalty of one's own: forecasts whose spread does not match their error are penalised."""

from dataclasses import dataclass

import torch
from torch import Tensor

from prerank import GaussianMixture
from prerank.training import FitOptions, Run, TrainingSet, fit, tune


@dataclass(frozen=True)
class SpreadSkill:
    """The squared logarithm of mean squared error over mean variance, averaged over targets: one value per model."""

    name: str = "spread-skill"

    def __call__(self, y: Tensor, forecast: GaussianMixture, case_weights: Tensor | None = None) -> Tensor:
        weights = torch.ones_like(y[..., 0]) if case_weights is None else case_weights
        share = (weights / weights.sum(-1, keepdim=True))[..., None]
        error = (share * (y - forecast.mean).square()).sum(-2)
        return (error / (share * forecast.variance).sum(-2)).log().square().mean(-1)


def main(device: str = "cpu") -> None:
    torch.manual_seed(0)
    x = torch.randn(400, 2, device=device)
    targets = x @ torch.ones(2, 3, device=device) + torch.randn(400, 3, device=device)
    data = TrainingSet(x[:300], targets[:300], x[300:], targets[300:])
    options = FitOptions(max_epochs=3, hidden=(16,))
    print(fit([Run(0, SpreadSkill(), 1.0)], data, options).best_score)
    print(tune(SpreadSkill(), data, strengths=(0.0, 1.0), options=options).table)


if __name__ == "__main__":
    main()
