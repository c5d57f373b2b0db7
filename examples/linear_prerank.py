"""A linear pre-rank: is the slope over the targets forecast well?"""

from dataclasses import dataclass

import torch

from prerank import Ensemble, PreRankPenalty, check
from prerank.preranks import LinearProjection, View
from prerank.training import FitOptions, Run, TrainingSet, fit, tune


@dataclass(frozen=True)
class Slope:
    """The slope of a straight line through the targets, in the order in which they stand."""

    name: str = "slope"

    def given(self, view: View) -> LinearProjection:
        place = torch.arange(view.n_targets, dtype=view.dtype, device=view.device)
        centred = place - place.mean()
        return LinearProjection((centred / centred.square().sum())[None, :, None], ("slope",))


def main(device: str = "cpu") -> None:
    torch.manual_seed(0)
    rising = torch.tensor([-0.5, 0.0, 0.5])
    y, members = torch.randn(500, 3), torch.randn(500, 20, 3)
    print(check(y + rising, Ensemble(members), [Slope()]).table["p-value"])

    x = torch.randn(400, 2, device=device)
    targets = x @ torch.ones(2, 3, device=device) + torch.randn(400, 3, device=device)
    data = TrainingSet(x[:300], targets[:300], x[300:], targets[300:])
    penalty, options = PreRankPenalty(Slope()), FitOptions(max_epochs=3, hidden=(16,))
    print(fit([Run(0, penalty, 1.0)], data, options).best_score)
    print(tune(penalty, data, strengths=(0.0, 1.0), options=options).table)


if __name__ == "__main__":
    main()
