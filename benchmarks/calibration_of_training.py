"""Does training see a true forecast as calibrated? The PCE that the training PITs give the law the data came from.

    python benchmarks/calibration_of_training.py                # about 10 minutes on one core
    python benchmarks/calibration_of_training.py --cases 4000   # quick, noisier

A penalty that is not near zero for the truth pulls every model away from it. The training PIT (closed form, or a smooth
rank among S = 100 weighted draws) is computed for many cases, each with a mixture of its own, and its PCE must stay below
half of what a batch of 256 exactly uniform PITs shows by chance. The published soft draws are printed for comparison.
"""

import argparse
from collections.abc import Iterable
from pathlib import Path

import pandas as pd
import torch

from prerank.calibration import pce, pce_null
from prerank.forecasts import GaussianMixture
from prerank.preranks import Marginal, PreRank, paper_preranks
from prerank.training import PreRankPenalty

DRAWS = 100
CHUNK = 500
LAWS = {
    "even": ((0.2, 0.2, 0.2, 0.2, 0.2), 1.5),
    "uneven": ((0.96, 0.01, 0.01, 0.01, 0.01), 1.5),
    "uneven, far apart": ((0.96, 0.01, 0.01, 0.01, 0.01), 6.0),
}


def limit() -> float:
    """Half of the PCE that a batch of 256 exactly uniform PITs has on average."""
    return pce_null(256).mean / 2


def mixtures(n_cases: int, n_targets: int, weights: Iterable[float], distance: float, seed: int = 0) -> GaussianMixture:
    """A mixture of its own for every case: components at distances of the given size, with random factors."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.tensor(tuple(weights)).log().expand(n_cases, -1)
    shape = (*logits.shape, n_targets)
    factor = 0.5 * torch.randn(*shape, n_targets, generator=generator).tril(-1)
    diagonal = 0.3 + torch.rand(*shape, generator=generator)
    return GaussianMixture(
        logits, distance * torch.randn(*shape, generator=generator), factor + torch.diag_embed(diagonal)
    )


def training_pce(prerank: PreRank, law: GaussianMixture, y: torch.Tensor, n_draws: int = DRAWS) -> float:
    """PCE (mean over projections) of the PITs that training computes, over all cases."""
    penalty = PreRankPenalty(prerank, n_draws=n_draws)
    parts = []
    with torch.no_grad():
        for step, start in enumerate(range(0, len(y), CHUNK)):
            cases = slice(start, min(start + CHUNK, len(y)))
            parts += penalty.pits(y[cases], law.select(cases), step=step)
    return float(pce(torch.cat(parts).clamp(0.0, 1.0)).mean())


def published_training_pce(n_cases: int, n_targets: int = 2, n_draws: int = DRAWS) -> float:
    """The same for the published soft draws: the marginal PCE of a perfect mixture of five equal N(0, I)."""
    from prerank_paper.published import SoftDraws, published_pit, with_gumbel

    factor = torch.eye(n_targets).expand(n_cases, 5, n_targets, n_targets)
    law = GaussianMixture(torch.zeros(n_cases, 5), torch.zeros(n_cases, 5, n_targets), factor)
    y = law.ensemble(1, seed=1).members[:, 0]
    parts = []
    for step, start in enumerate(range(0, n_cases, CHUNK)):
        cases = slice(start, min(start + CHUNK, n_cases))
        shape = (cases.stop - cases.start, n_draws, 5, n_targets + 1)
        noise = with_gumbel(torch.randn(*shape, generator=torch.Generator().manual_seed(step)))
        some = law.select(cases)
        parts.append(published_pit(y[cases], some, Marginal(), SoftDraws.of(some, {"ranked": noise})))
    return float(pce(torch.cat(parts).clamp(0.0, 1.0)).mean())


def table(n_cases: int, dimensions: Iterable[int] = (2, 4, 6, 16), laws: Iterable[str] = tuple(LAWS)) -> pd.DataFrame:
    rows = []
    for n_targets in dimensions:
        for name in laws:
            law = mixtures(n_cases, n_targets, *LAWS[name])
            y = law.ensemble(1, seed=1, stream="truth").members[:, 0]
            for prerank in paper_preranks(n_targets):
                value = training_pce(prerank, law, y)
                rows.append({"targets": n_targets, "weights": name, "prerank": prerank.name, "pce": value})
    return pd.DataFrame(rows)


def main(n_cases: int, out: Path | None) -> None:
    found = table(n_cases)
    wide = found.pivot_table(index=["targets", "weights"], columns="prerank", values="pce", sort=False)
    print(f"PCE of the training PITs of true forecasts, S = {DRAWS}, {n_cases} cases")
    print(wide.to_string(float_format="{:.4f}".format, na_rep="-"))
    print(f"limit {limit():.4f}; exactly uniform PITs of as many cases have {pce_null(n_cases).mean:.4f}")
    worst = found.loc[found.pce.idxmax()]
    above = found[found.pce >= limit()]
    print(
        f"largest {worst.pce:.4f} ({worst.prerank}, D = {worst.targets}, {worst.weights}); above the limit: {len(above)}"
    )
    print(f"published soft draws, five equal N(0, I), marginal: {published_training_pce(n_cases):.4f}")
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        found.to_csv(out / "calibration_of_training.csv", index=False, float_format="%.5f")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--out", type=Path, help="folder for calibration_of_training.csv")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    main(chosen.cases, chosen.out)
