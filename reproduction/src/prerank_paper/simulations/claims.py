"""The paper's qualitative claims about its simulations, next to what the exact study finds.

A cell is a mistake seen through a pre-rank, with its rejection rates. It is *seen* if the rate reaches 0.8 at a modest
number of cases (800), *unseen* if at the largest number (10,000, the paper's) the rate stays within what a true
forecast could show (the 99 % quantile of a binomial with probability 0.05) and is below one half for certain (95 %, as
few repetitions may show little), and *seen late* in between. A claim that a mistake is detected is confirmed by seen,
refuted by unseen, and depends on N otherwise; a claim of insensitivity the other way round. One refuted cell refutes a
claim about all of them; a claim with "most" or "largely" in it is judged by the majority. "Typically less sensitive" is
judged by the rejection rate averaged over all N: confirmed if it is lower by more than two standard errors for more than
half of the mistakes.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from statistics import median

import pandas as pd
import torch
from scipy import stats

from prerank_paper.simulations.power import LEVEL
from prerank_paper.simulations.scenarios import (
    ANISOTROPY,
    COMPONENTS,
    FLIP,
    MEANS,
    RANGES,
    SCRAMBLE,
    STRUCTURE,
    VARIANCES,
    Form,
    Simulation,
)

ENOUGH, MODEST = 0.8, 800
_MOMENTS = (*MEANS, *VARIANCES, *RANGES)
_ONE, _TWO = "simulation-1", "simulation-2"
_PCA_ONE, _PCA_TWO = (SCRAMBLE, STRUCTURE), (FLIP, STRUCTURE)
_SPATIAL = (*RANGES, ANISOTROPY)


class Verdict(Enum):
    CONFIRMED = "confirmed"
    REFUTED = "refuted"
    DEPENDS = "depends on N"
    MIXED = "depends on the mistake"


@dataclass(frozen=True)
class Claim:
    """A pre-rank does (`detects`) or does not see these mistakes in a simulation; `most` where the paper hedges."""

    where: str
    text: str
    simulation: str
    prerank: str
    errors: tuple[str, ...]
    detects: bool = True
    most: bool = False


@dataclass(frozen=True)
class Reduced:
    """A pre-rank sees the first mistake less than the others: a mean rejection rate over all N below their median."""

    where: str
    text: str
    simulation: str
    prerank: str
    errors: tuple[str, ...]


@dataclass(frozen=True)
class Comparison:
    """One pre-rank typically sees these mistakes better than another: a higher mean rejection rate over all N."""

    where: str
    text: str
    simulation: str
    better: str
    worse: str
    errors: tuple[str, ...]


@dataclass(frozen=True)
class Uniqueness:
    """A pre-rank sees all of these mistakes at the largest N, and none of the others does."""

    where: str
    text: str
    simulation: str
    prerank: str
    others: tuple[str, ...]
    errors: tuple[str, ...]


AnyClaim = Claim | Reduced | Comparison | Uniqueness

_OTHERS = ("marginal", "location", "scale", "dependency", "HDR", "copula")

PAPER_CLAIMS: tuple[AnyClaim, ...] = (
    Claim("5.1.1", "Location sees mean, variance and correlation", _ONE, "location", _MOMENTS, most=True),
    Claim("5.1.1", "Location fails to detect PCA structure", _ONE, "location", (STRUCTURE,), detects=False),
    Claim("5.1.1", "Marginal detects mean and variance", _ONE, "marginal", (*MEANS, *VARIANCES)),
    Claim("5.1.1", "HDR detects mean and variance", _ONE, "HDR", (*MEANS, *VARIANCES)),
    Claim(
        "5.1.1",
        "Marginal is largely insensitive to the joint covariance structure",
        _ONE,
        "marginal",
        (*RANGES, *_PCA_ONE),
        detects=False,
        most=True,
    ),
    Claim(
        "5.1.1",
        "HDR is largely insensitive to the joint covariance structure",
        _ONE,
        "HDR",
        (*RANGES, *_PCA_ONE),
        detects=False,
        most=True,
    ),
    Claim(
        "5.1.1",
        "Dependency is insensitive to mean and variance",
        _ONE,
        "dependency",
        (*MEANS, *VARIANCES),
        detects=False,
    ),
    Claim("5.1.1", "Dependency responds strongly to PCA perturbations", _ONE, "dependency", _PCA_ONE),
    Claim("5.1.1", "Scale is highly sensitive to variance and PCA errors", _ONE, "scale", (*VARIANCES, *_PCA_ONE)),
    Claim("5.1.1", "Scale is insensitive to mean shifts", _ONE, "scale", MEANS, detects=False),
    Claim("5.1.1", "PCA consistently detects all forms", _ONE, "PCA", (*_MOMENTS, *_PCA_ONE)),
    Uniqueness(
        "App. C, caption",
        "Only PCA consistently reveals altered covariance structure",
        _ONE,
        "PCA",
        _OTHERS,
        (*RANGES, *_PCA_ONE),
    ),
    Claim("5.1.2", "Marginal responds to mean and variance", _TWO, "marginal", (*MEANS, *VARIANCES)),
    Claim("5.1.2", "Location responds to mean and variance", _TWO, "location", (*MEANS, *VARIANCES)),
    Claim(
        "5.1.2",
        "Marginal fails to detect spatial dependence or covariance geometry",
        _TWO,
        "marginal",
        (*_SPATIAL, *_PCA_TWO),
        detects=False,
    ),
    Claim(
        "5.1.2",
        "Location fails to detect spatial dependence or covariance geometry",
        _TWO,
        "location",
        (*_SPATIAL, *_PCA_TWO),
        detects=False,
    ),
    Claim("5.1.2", "Dependency sees spatial correlation and anisotropy", _TWO, "dependency", _SPATIAL),
    Claim(
        "5.1.2",
        "Dependency does not detect mean or variance",
        _TWO,
        "dependency",
        (*MEANS, *VARIANCES),
        detects=False,
    ),
    Claim("5.1.2", "PCA is sensitive across all scenarios", _TWO, "PCA", (*_MOMENTS, ANISOTROPY, *_PCA_TWO)),
    Claim("App. C", "Location fails to detect PCA structure", _TWO, "location", (STRUCTURE,), detects=False),
    Claim("App. C", "HDR captures most deviations", _TWO, "HDR", (*_MOMENTS, ANISOTROPY, *_PCA_TWO), most=True),
    Reduced("App. C", "HDR is less sensitive to anisotropy", _TWO, "HDR", (ANISOTROPY, *_MOMENTS, *_PCA_TWO)),
    Claim("App. C", "Dependency detects correlation, anisotropy and PCA", _TWO, "dependency", (*_SPATIAL, *_PCA_TWO)),
    Claim("App. C", "Scale is insensitive to mean bias", _TWO, "scale", MEANS, detects=False),
    Claim(
        "App. C",
        "Scale sees variance, correlation, anisotropy and PCA biases",
        _TWO,
        "scale",
        (*VARIANCES, *_SPATIAL, *_PCA_TWO),
    ),
    Uniqueness(
        "App. C, caption",
        "Only PCA consistently reveals altered covariance structure",
        _TWO,
        "PCA",
        _OTHERS,
        (*_SPATIAL, *_PCA_TWO),
    ),
    Comparison(
        "4",
        "Random directions are less sensitive than PCA",
        _ONE,
        "PCA",
        "random directions",
        (*_MOMENTS, *COMPONENTS),
    ),
    Comparison(
        "4",
        "Random directions are less sensitive than PCA",
        _TWO,
        "PCA",
        "random directions",
        (*_MOMENTS, ANISOTROPY, *COMPONENTS),
    ),
    Comparison(
        "4",
        "… with the principal directions of the known law",
        _ONE,
        "PCA, known law",
        "random directions",
        (*_MOMENTS, *COMPONENTS),
    ),
    Comparison(
        "4",
        "… with the principal directions of the known law",
        _TWO,
        "PCA, known law",
        "random directions",
        (*_MOMENTS, ANISOTROPY, *COMPONENTS),
    ),
)


def judge_claims(claims: Sequence[AnyClaim], power: pd.DataFrame) -> pd.DataFrame:
    """One row per claim: its verdict in the paper's form and with marginal variances kept, and the rates behind it.

    `power` holds the records of `run_power` for every simulation that the claims are about.
    """
    rows = []
    for claim in claims:
        records = power[power["simulation"] == claim.simulation]
        if records.empty:
            raise ValueError(f"no power records of {claim.simulation} for the claim {claim.text!r}")
        row = {"simulation": claim.simulation[-1], "section": claim.where, "claim": claim.text}
        for form in Form:
            cells = {error: _cell(records, error, form) for error in claim.errors}
            row[f"verdict ({form.value})"] = _verdict(claim, cells).value
            row[f"rates ({form.value})"] = _words(claim, cells)
        rows.append(row)
    return pd.DataFrame(rows)


def component_distortions(simulation: Simulation) -> pd.DataFrame:
    """How wrong the variance is along each of the forecast's components, by covariance mistake in the paper's form.

    Columns: what is wrong, the component (from 1, the leading one), and the absolute logarithm of the true variance along
    it over the forecast's. A variance that is wrong by one factor is left out: all components share it.
    """
    rows = []
    for scenario in simulation.scenarios:
        if scenario.form is not Form.PAPER or scenario.error not in (*RANGES, *COMPONENTS, ANISOTROPY):
            continue
        variances, directions = torch.linalg.eigh(scenario.covariance)
        true = (directions * (simulation.covariance @ directions)).sum(0)
        distortions = (true / variances).log().abs().flip(0)
        rows += [(scenario.error, place, float(value)) for place, value in enumerate(distortions, 1)]
    return pd.DataFrame(rows, columns=["error", "component", "distortion"])


def _cell(records: pd.DataFrame, error: str, form: Form) -> pd.DataFrame:
    """Records of a mistake in a form; mistakes that keep the variances anyway have one form only."""
    chosen = records[records["error"] == error]
    in_form = chosen[chosen["form"] == form.value]
    return in_form if len(in_form) else chosen


def sight(cell: pd.DataFrame) -> Verdict:
    """CONFIRMED: seen at a modest N; REFUTED: unseen at the largest; DEPENDS: seen late, or not for certain."""
    cell = cell.sort_values("n_cases")
    modest = cell[cell["n_cases"] <= MODEST]
    if len(modest) and modest["rejection_rate"].iloc[-1] >= ENOUGH:
        return Verdict.CONFIRMED
    rate, repetitions = float(cell["rejection_rate"].iloc[-1]), int(cell["repetitions"].iloc[-1])
    by_chance = stats.binom.ppf(0.99, repetitions, LEVEL) / repetitions
    at_most = stats.beta.ppf(0.95, rate * repetitions + 1, max(repetitions * (1 - rate), 1e-9))
    return Verdict.REFUTED if rate <= by_chance and at_most < 0.5 else Verdict.DEPENDS


_OPPOSITE = {
    Verdict.CONFIRMED: Verdict.REFUTED,
    Verdict.REFUTED: Verdict.CONFIRMED,
    Verdict.DEPENDS: Verdict.DEPENDS,
}


def _verdict(claim: AnyClaim, cells: dict[str, pd.DataFrame]) -> Verdict:
    if isinstance(claim, Comparison):
        signs = [_sign(cell, claim.better, claim.worse) for cell in cells.values()]
        if 2 * signs.count(1) > len(signs):
            return Verdict.CONFIRMED
        return Verdict.REFUTED if 2 * signs.count(-1) > len(signs) else Verdict.MIXED
    if isinstance(claim, Reduced):
        first, *others = [float(_of(cell, claim.prerank)["rejection_rate"].mean()) for cell in cells.values()]
        return Verdict.CONFIRMED if first < median(others) else Verdict.REFUTED
    if isinstance(claim, Uniqueness):
        if not _sees_all(claim.prerank, cells):
            return Verdict.REFUTED
        return Verdict.REFUTED if any(_sees_all(other, cells) for other in claim.others) else Verdict.CONFIRMED
    seen = [sight(_of(cell, claim.prerank)) for cell in cells.values()]
    verdicts = Counter(seen if claim.detects else [_OPPOSITE[verdict] for verdict in seen])
    if claim.most:
        verdict, count = verdicts.most_common(1)[0]
        return verdict if 2 * count > len(seen) else Verdict.DEPENDS
    return next(v for v in (Verdict.REFUTED, Verdict.DEPENDS, Verdict.CONFIRMED) if verdicts[v])


def _of(cell: pd.DataFrame, prerank: str) -> pd.DataFrame:
    return cell[cell["prerank"] == prerank].sort_values("n_cases")


def _sees_all(prerank: str, cells: dict[str, pd.DataFrame]) -> bool:
    return all(_of(cell, prerank)["rejection_rate"].iloc[-1] >= ENOUGH for cell in cells.values())


def _sign(cell: pd.DataFrame, better: str, worse: str) -> int:
    """1 where the mean rate over all N is higher by more than two standard errors, -1 where it is lower, 0 between."""
    first, second = _of(cell, better), _of(cell, worse)
    difference = first["rejection_rate"].mean() - second["rejection_rate"].mean()
    variance = (first["standard_error"] ** 2).sum() + (second["standard_error"] ** 2).sum()
    limit = 2 * float(variance) ** 0.5 / len(first)
    return 0 if abs(difference) <= limit else 1 if difference > 0 else -1


def _words(claim: AnyClaim, cells: dict[str, pd.DataFrame]) -> str:
    """The rates at the modest and at the largest N (once if equal), mistake by mistake."""
    if isinstance(claim, Comparison):
        means = {
            error: [_of(cell, name)["rejection_rate"].mean() for name in (claim.better, claim.worse)]
            for error, cell in cells.items()
        }
        return "; ".join(f"{error} {first:.2f} vs {second:.2f}" for error, (first, second) in means.items())
    if isinstance(claim, Uniqueness):
        able = [name for name in (claim.prerank, *claim.others) if _sees_all(name, cells)]
        return "all seen by " + (", ".join(able) if able else "none")
    words = []
    for error, cell in cells.items():
        rates = _of(cell, claim.prerank)
        modest = rates[rates["n_cases"] <= MODEST]["rejection_rate"].iloc[-1]
        shown = dict.fromkeys(f"{rate:.2f}" for rate in (modest, rates["rejection_rate"].iloc[-1]))
        words.append(f"{error} {' → '.join(shown)}")
    return "; ".join(words)


def claims_markdown(judged: pd.DataFrame) -> str:
    """The judged claims as a Markdown table, in the order of the claims."""
    lines = [
        "| sim. | section | the paper says | as the paper builds it | marginal variances kept | rates |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    paper, kept = Form.PAPER.value, Form.VARIANCES_KEPT.value
    for row in judged.to_dict("records"):
        rates = row[f"rates ({paper})"]
        if row[f"rates ({kept})"] != rates:
            rates += f"<br>kept: {row[f'rates ({kept})']}"
        verdicts = " | ".join(f"**{row[f'verdict ({form})']}**" for form in (paper, kept))
        lines.append(f"| {row['simulation']} | {row['section']} | {row['claim']} | {verdicts} | {rates} |")
    return "\n".join(lines) + "\n"
