"""`check`: the one call a forecaster makes."""

import io
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from torch import Tensor

from prerank.calibration import (
    PCETest,
    PreRank,
    ProjectedPIT,
    centred_levels,
    corrected_pce,
    pce,
    pce_interval,
    pce_null,
    pce_test,
    read,
    reliability_curve,
)
from prerank.calibration.inputs import listed_preranks, require_power, require_whole
from prerank.calibration.preranks import HDR
from prerank.diagnosis.options import block_labels, case_identifiers, chosen_preranks, projection_names, weight_per_case
from prerank.diagnosis.preparation import pit_with_missing_members, prepare
from prerank.diagnosis.suspicions import few_values, quantiles
from prerank.forecast import as_tensor
from prerank.reporting.diagnosis import diagnosis_figure
from prerank.reporting.style import save_figure
from prerank.reporting.tables import p_text, render

_NEARLY_BLIND = 0.20
_LEVEL = 0.05
_BINS = np.linspace(0.0, 1.0, 11)


@dataclass(frozen=True, eq=False)
class Check:
    """The outcome of `check`: prints a table, converts to a DataFrame, plots.

    `table` has one row per pre-rank: the PCE (mean over its projections), the level that chance alone gives, the
    PCE corrected for chance, a 95 % interval, the p-value, the p-value corrected over all pre-ranks, and a reading.
    """

    table: pd.DataFrame
    pit: ProjectedPIT
    test: PCETest | None
    notes: tuple[str, ...]
    n_cases: int
    case_weights: Tensor | None = None

    @property
    def p_value(self) -> float:
        """p-value of the whole: the smallest corrected one."""
        return float(self.table["corrected p-value"].min())

    @property
    def calibrated(self) -> bool:
        """Whether no pre-rank speaks against calibration at the 5 % level, corrected for looking at all of them."""
        return self.p_value > _LEVEL

    @property
    def verdict(self) -> str:
        """One sentence."""
        if self.calibrated:
            smallest = f"smallest corrected p-value {p_text(self.p_value)}, {self.n_cases} cases"
            return f"No evidence against calibration ({smallest})."
        against = self.table[self.table["corrected p-value"] <= _LEVEL]
        said = "; ".join(f"{name}: {row['reading']}" for name, row in against.iterrows())
        return f"Not calibrated (corrected p-value {p_text(self.p_value)}, {self.n_cases} cases). {said}."

    def to_frame(self) -> pd.DataFrame:
        """The table as a DataFrame (a copy)."""
        return self.table.copy()

    columns: ClassVar[tuple[str, ...]] = ("pre-rank", "PCE", "chance", "95 % interval", "p", "corrected p", "reading")

    def rows(self) -> list[list[str]]:
        """The table as text, for a terminal."""
        return [
            [
                str(name),
                f"{row['PCE']:.4f}",
                f"{row['null level']:.4f}",
                "–" if np.isnan(row["low"]) else f"{row['low']:.3f}–{row['high']:.3f}",
                p_text(row["p-value"]),
                p_text(row["corrected p-value"]),
                str(row["reading"]),
            ]
            for name, row in self.table.iterrows()
        ]

    def __str__(self) -> str:
        stream = io.StringIO()
        render(self.columns, self.rows(), stream, [*self.notes, self.verdict])
        return stream.getvalue().rstrip("\n")

    def _repr_html_(self) -> str:
        return self.table.to_html(float_format=lambda value: f"{value:.4f}")

    def plot(self, path: Path | str | None = None) -> Figure:
        """A figure with the PIT histogram and the reliability curve of every pre-rank; written to `path` if given."""
        levels = centred_levels()
        panels = []
        for group in dict.fromkeys(self.pit.groups):
            columns = [k for k, name in enumerate(self.pit.groups) if name == group]
            values = self.pit.values[:, columns].detach().cpu().double()
            row = self.table.loc[group].to_dict()
            panels.append(
                {
                    "title": group,
                    "heights": _heights(values, self.case_weights),
                    "edges": _BINS,
                    "names": [self.pit.names[k] for k in columns],
                    "levels": levels.numpy(),
                    "frequency": reliability_curve(
                        values, levels=levels, case_weights=self.case_weights
                    ).frequency.numpy(),
                    "band": float(row["band"]) * np.sqrt(levels.numpy() * (1 - levels.numpy()) / self.n_cases),
                    "caption": (
                        f"PCE {row['PCE']:.3f} (chance {row['null level']:.3f})",
                        f"corrected p {p_text(row['corrected p-value'])}",
                    ),
                    "reading": str(row["reading"]),
                    "rejected": bool(row["corrected p-value"] <= _LEVEL),
                }
            )
        figure = diagnosis_figure(panels, self.n_cases)
        if path is not None:
            target = Path(path)
            suffix = target.suffix.lstrip(".")
            save_figure(figure, target.with_suffix("") if suffix else target, (suffix,) if suffix else ("png", "svg"))
        return figure


def check(
    y: Any,
    forecast: Any,
    preranks: Sequence[PreRank] | PreRank | None = None,
    *,
    axes: Sequence[str] | Mapping[str, str] | None = None,
    scale: Literal["auto", "pooled", "none"] = "auto",
    case_weights: Any = None,
    observation_weights: Any = None,
    blocks: Any = None,
    case_ids: Any = None,
    n_draws: int = 100,
    n_replicates: int = 999,
    power: float = 1,
    seed: int = 0,
) -> Check:
    """Is the joint forecast calibrated, and if not, how?

    `y` (N, D) are observations, `forecast` members (N, M, D), an `Ensemble`, a `GaussianMixture` or a torch
    distribution; NumPy, torch, pandas or xarray. `axes` says what the axes of an array in another order are, such as
    ("member", "case", "target"). xarray dimensions called case, member and target are recognised in any order; others
    take a mapping {"time": "case", "number": "member", "station": "target"}, or a tuple of their names in the order
    (case, member, target). Dimensions of the same name in y and forecast mean the same. `preranks` are those of the paper
    unless said otherwise.

    Labels: where both sides label their cases (an xarray coordinate, a pandas index other than the default `RangeIndex`,
    which means position), the forecast, and all that comes one per case, is put into the order of y; so are targets
    (coordinate, column names), and their labels become their names. What cannot be aligned is refused.

    Missing values (NaN, pandas NA, what a NumPy mask hides): a member with one is left out of its case, which is then
    ranked among those present; a case whose observation has one is dropped; both are counted in the notes. y and members
    of different precision are compared in the coarser one. `scale="pooled"` divides each target by the pooled spread of
    members and observations; "auto" does so when spreads differ more than tenfold, and says so.

    `case_weights` (N,) weigh the cases (interval and corrected PCE stay empty then). `blocks` (N,) labels dependent
    cases (a date, say), which are then exchanged with the same member. `observation_weights` (N,) belong to weighted
    members, see `projected_pit`. `case_ids` (N,) name the cases, by whole numbers or labels: draws for a case depend on
    its name instead of its position.

    >>> import numpy as np
    >>> rng = np.random.default_rng(1)
    >>> truth = rng.normal(size=(300, 21, 3))
    >>> result = check(truth[:, 0], truth[:, 1:])
    >>> result.calibrated
    True
    >>> check(truth[:, 0], 0.6 * truth[:, 1:]).table.loc["location", "reading"]
    'under-dispersed'
    """
    if scale not in ("auto", "pooled", "none"):
        raise ValueError(f'scale={scale!r}: say "auto", "pooled" or "none"')
    power, seed = require_power(power), require_whole(seed, "seed", at_least=None)
    n_draws, n_replicates = require_whole(n_draws, "n_draws"), require_whole(n_replicates, "n_replicates")
    density = preranks is None or any(isinstance(item, HDR) for item in listed_preranks(preranks))
    prepared = prepare(y, forecast, axes, scale, density)
    chosen = chosen_preranks(preranks, prepared.y.shape[-1])
    weights = weight_per_case(case_weights, "case_weights", prepared)
    own = weight_per_case(observation_weights, "observation_weights", prepared)
    labels = block_labels(blocks, prepared)
    ids = case_identifiers(case_ids, prepared)
    ranked = prepared if ids is None else replace(prepared, cases=ids)
    pit = pit_with_missing_members(chosen, ranked, seed, own, n_draws)
    pit = _with_target_names(pit, projection_names(chosen, prepared.names))
    test = pce_test(pit, power=power, n_replicates=n_replicates, seed=seed, blocks=labels, case_weights=weights)
    notes = [*prepared.notes, *quantiles(prepared), *few_values(prepared)]
    if not pit.exact:
        notes.append(f"PITs: {pit.method}")
    notes.extend(f"{group}: {note}" for group, note in pit.notes.items())
    shown = None if weights is None else weights.cpu().double()
    return Check(_table(pit, test, weights), pit, test, tuple(notes), len(prepared.y), shown)


def check_pits(pit: Any, names: Sequence[str] | None = None) -> Check:
    """The same table for PITs computed elsewhere: (N,) or (N, K), one row per column.

    The columns' dependence is unknown, so p-values are corrected by Holm's method, which holds under any.

    >>> check_pits(np.linspace(0.001, 0.999, 200)).calibrated
    True
    """
    if names is None and isinstance(pit, pd.DataFrame):
        names = [str(name) for name in pit.columns]
    values = as_tensor(pit, "pit")
    values = values[:, None] if values.ndim == 1 else values
    if values.ndim != 2:
        raise ValueError(f"pit has shape {tuple(values.shape)}; give (N,) or (N, K)")
    missing = values.isnan().any(-1)
    notes = [f"{int(missing.sum())} of {len(values)} cases dropped: a PIT is missing"] if missing.any() else []
    values = values[~missing]
    if len(values) == 0:
        raise ValueError("there are no PITs: at least one case is needed")
    labels = tuple(names) if names is not None else tuple(f"pit {k + 1}" for k in range(values.shape[1]))
    if len(labels) != values.shape[1] or len(set(labels)) != len(labels):
        raise ValueError(f"{len(labels)} names for {values.shape[1]} columns of PITs; each needs a name of its own")
    n_cases = len(values)
    statistic = pce(values.double())
    null = pce_null(n_cases)
    p_values = torch.as_tensor(np.atleast_1d(null.p_value(statistic.numpy())))
    zeros = torch.zeros(values.shape[1])
    result = ProjectedPIT(values, labels, labels, "given", True, zeros)
    band = [float(pce_test(values[:, k : k + 1]).band_width[0]) for k in range(values.shape[1])]
    test = PCETest(
        labels,
        statistic,
        torch.full_like(statistic, null.mean),
        p_values,
        holm(p_values),
        p_values,
        torch.tensor(band),
        torch.empty(0, values.shape[1]),
    )
    return Check(_table(result, test, None), result, None, tuple(notes), n_cases)


def _with_target_names(pit: ProjectedPIT, known: Mapping[str, Sequence[str]]) -> ProjectedPIT:
    """The same PITs with other names for the projections of some pre-ranks."""
    renamed, seen = [], Counter[str]()
    for group, name in zip(pit.groups, pit.names, strict=True):
        renamed.append(known[group][seen[group]] if group in known else name)
        seen[group] += 1
    return replace(pit, names=tuple(renamed))


def _table(pit: ProjectedPIT, test: PCETest, case_weights: Tensor | None) -> pd.DataFrame:
    rows = []
    for g, group in enumerate(test.groups):
        columns = [k for k, name in enumerate(pit.groups) if name == group]
        values = pit.values[:, columns].double()
        low, high, corrected_value = float("nan"), float("nan"), float("nan")
        if case_weights is None:  # neither is defined for weighted cases: better none than a wrong one
            null = test.replicates[:, g] if len(columns) > 1 else None
            _, low, high = pce_interval(values, null=null)
            corrected_value = float(corrected_pce(values).mean()) if len(values) > 1 else float("nan")
        tied = float(pit.tied[columns].mean())
        p_value, corrected = float(test.p_value[g]), float(test.corrected_p_value[g])
        rows.append(
            {
                "pre-rank": group,
                "PCE": float(test.statistic[g]),
                "null level": float(test.null_level[g]),
                "corrected PCE": corrected_value,
                "low": low,
                "high": high,
                "p-value": p_value,
                "corrected p-value": corrected,
                "max p-value": float(test.maximum_p_value[g]),
                "tied": tied,
                "projections": len(columns),
                "band": float(test.band_width[g]),
                "reading": _reading(values, [pit.names[k] for k in columns], corrected, tied, case_weights),
            }
        )
    return pd.DataFrame(rows).set_index("pre-rank")


def _reading(values: Tensor, names: list[str], p_value: float, tied: float, case_weights: Tensor | None) -> str:
    worst = int(pce(values, case_weights=case_weights).argmax())
    words = read(values[:, worst], p_value, case_weights=case_weights)
    if words != "flat" and len(names) > 1:
        words = f"{names[worst]}: {words}"
    if tied > _NEARLY_BLIND:
        words += f" (nearly blind here: {100 * tied:.0f} % ties)"
    return words


def _heights(values: Tensor, case_weights: Tensor | None) -> np.ndarray:
    """Histogram densities (K, bins) of PITs (N, K)."""
    weights = None if case_weights is None else case_weights.numpy()
    return np.stack([np.histogram(column, _BINS, weights=weights, density=True)[0] for column in values.numpy().T])


def holm(p_values: Tensor) -> Tensor:
    """p-values (n,) corrected for having looked n times, valid under any dependence (Holm 1979)."""
    order = p_values.argsort()
    count = len(p_values)
    factors = torch.arange(count, 0, -1, dtype=p_values.dtype)
    adjusted = (p_values[order] * factors).cummax(0).values.clamp_max(1.0)
    return torch.empty_like(p_values).scatter_(0, order, adjusted)
