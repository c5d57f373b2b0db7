"""A nonlinear pre-rank that learns from the forecast: how far out is the most unusual target?"""

from dataclasses import dataclass

import torch

from prerank import Ensemble, PreRankPenalty, check
from prerank.preranks import PointwiseProjection, View
from prerank.training import FitOptions, Run, TrainingSet, fit, tune


@dataclass(frozen=True)
class MostUnusual:
    """The largest deviation of a target from the forecast's mean, in the forecast's standard deviations."""

    name: str = "most unusual"

    def given(self, view: View) -> PointwiseProjection:
        draws = view.draws("most unusual", 500)
        mean, spread = draws.mean[..., None, :], draws.members.std(-2, keepdim=True)

        def deviation(points: torch.Tensor) -> torch.Tensor:
            return ((points - mean) / spread).abs().amax(-1, keepdim=True)

        return PointwiseProjection(deviation, ("deviation",), f"mean and spread of {draws.n_members} draws")


def main(device: str = "cpu") -> None:
    torch.manual_seed(0)
    y, members = torch.randn(500, 3), torch.randn(500, 20, 3)
    print(check(1.3 * y, Ensemble(members), [MostUnusual()]).table["p-value"])

    x = torch.randn(400, 2, device=device)
    targets = x @ torch.ones(2, 3, device=device) + torch.randn(400, 3, device=device)
    data = TrainingSet(x[:300], targets[:300], x[300:], targets[300:])
    penalty, options = PreRankPenalty(MostUnusual()), FitOptions(max_epochs=3, hidden=(16,))
    print(fit([Run(0, penalty, 1.0)], data, options).best_score)
    print(tune(penalty, data, strengths=(0.0, 1.0), options=options).table)


if __name__ == "__main__":
    main()
