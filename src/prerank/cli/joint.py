"""`prerank joint`: quantiles of single targets and past observations in, a joint forecast out."""

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from prerank._wording import counted, printable
from prerank.cli.fileoptions import (
    AsJson,
    Block,
    Case,
    DependenceName,
    Joint,
    Level,
    Model,
    Observation,
    Observations,
    Preranks,
    Replicates,
    Seed,
    Target,
    Value,
    block_of,
    naming_of,
    preranks_named,
    require_inputs,
)
from prerank.cli.outputs import require_outputs

_DRAWS = 100  # of every case, for a check

if TYPE_CHECKING:
    from prerank.cli.cases import Read
    from prerank.diagnosis import Comparison
    from prerank.io import Matched, Naming, Quantiles
    from prerank.recalibration import JointFromMargins
    from prerank.recalibration.joint_from_margins import Dependence


def joint(
    ctx: typer.Context,
    forecasts: Annotated[
        Path,
        typer.Argument(
            metavar="FORECASTS",
            help="The folder of a forecast hub, or a table with a row per case, target and level.",
        ),
    ],
    observations: Observations = None,
    out: Annotated[
        Path,
        typer.Option(metavar="FILE", help="Joint forecasts, independent draws; the suffix says the format."),
    ] = ...,  # type: ignore[assignment]  # an option that must be given
    apply: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Other quantiles to join.", show_default="the later cases of FORECASTS"),
    ] = None,
    dependence: Annotated[
        DependenceName,
        typer.Option(
            help="gaussian: correlations of past errors; empirical: ranks of past errors; schaake: ranks of past "
            "observations, the Schaake shuffle; independent: none."
        ),
    ] = DependenceName.gaussian,
    lower: Annotated[
        float | None,
        typer.Option(help="Least value of every target, such as 0 for counts.", show_default="as a hub says"),
    ] = None,
    upper: Annotated[
        float | None, typer.Option(help="Greatest value of every target.", show_default="as a hub says")
    ] = None,
    share: Annotated[
        float | None,
        typer.Option(help="Share of cases, the first ones, to learn from; the rest judges.", show_default="0.5"),
    ] = None,
    before: Annotated[
        str | None, typer.Option(help="Learn from cases before this block (or case), such as a date; the rest judges.")
    ] = None,
    draws: Annotated[int, typer.Option(min=2, help="Draws of every case.")] = _DRAWS,
    level: Level = "quantile",
    case: Case = None,
    target: Target = None,
    joint: Joint = None,
    model: Model = None,
    value: Value = None,
    observation: Observation = None,
    block: Block = None,
    prerank: Preranks = None,
    seed: Seed = 0,
    replicates: Replicates = 999,
    as_json: AsJson = False,
) -> None:
    """Make a joint forecast of quantiles: the margins are kept, the dependence is learnt from past observations.

    prerank joint quantiles.csv observed.csv --out joint.csv   (case, target, quantile, value)

    prerank joint hub --model TEAM --target "wk inc cases" --lower 0 --before 2026-02-07 --out joint.parquet

    prerank joint past.csv seen.csv --apply new.csv --dependence schaake --out joint.nc
    """
    require_outputs({"--out": out}, (forecasts, observations, apply))
    require_inputs(forecasts, observations, apply)
    from prerank.io import read_quantiles, write_forecasts  # torch and pandas load slowly
    from prerank.io.write import require_output

    require_output(out)
    if apply is not None and (share is not None or before is not None):
        raise ValueError(
            "--apply names the forecasts to join, so all of FORECASTS is learnt from; leave out --share, --before"
        )
    naming = naming_of(ctx.params)
    past = read_quantiles(forecasts, observations, naming, level=level)
    lower, upper = (own if said is None else said for said, own in ((lower, past.lower), (upper, past.upper)))
    task = _Task(dependence, lower, upper, draws, seed)
    found = _cases(past, block)
    preranks = preranks_named(prerank, found.found.y.shape[1])
    comparison: Comparison | None = None
    if apply is not None:
        new = read_quantiles(apply, None, naming, level=level, need_observations=False)
        fitted, said = task.fitted(found, past), "all cases"
        later = _cases(new, None).with_targets(found.names, "those of the past")
        written, kept = task.joined(fitted, later, new)
    else:
        earlier, later = found.split(share, before)
        fitted = task.fitted(earlier, past)
        said = f"{counted(earlier.n_cases, 'case')} ({earlier.span})"
        written, kept = task.joined(fitted, later, past)
        comparison = task.compared(earlier, later, written, past, preranks, replicates)
    dimension = later.found.y.columns.name
    write_forecasts(
        out,
        later.found._replace(members=written),
        replace(naming, target=(str(dimension),) if dimension else naming.target),
    )
    result = _Result(fitted.summary(), said, later.span, kept, comparison, written.shape, out, list(past.notes))
    typer.echo(result.document(seed) if as_json else printable(result.text()))


def _cases(found: "Quantiles", block: str | None) -> "Read":
    """Quantiles in the place of members, to be cut into earlier and later cases."""
    from prerank.cli.cases import Read
    from prerank.io import Matched

    members = Matched(found.y, found.values.transpose(0, 2, 1), found.columns, block=found.block)
    return Read.of(members, block_of(block, members))


def read_joined(
    forecasts: Path,
    observations: Path | None,
    naming: "Naming",
    dependence: DependenceName,
    level: str,
    block: str | None,
    seed: int,
) -> "Matched":
    """Draws from quantiles for a check: the dependence is learnt from the earlier half of each model's cases.

    The later half is returned, with notes on what was learnt and assumed; of independent targets nothing is learnt, and
    all cases are returned.
    """
    import numpy as np
    import pandas as pd

    from prerank.io import Matched, read_quantiles

    quantiles = read_quantiles(forecasts, observations, naming, level=level)
    task = _Task(dependence, quantiles.lower, quantiles.upper, _DRAWS, seed)
    found = _cases(quantiles, block)
    found, n_all = found.rows(found.known), found.n_cases
    models = found.found.columns.get("model", pd.Series("", found.found.y.index)).to_numpy()
    notes = list(quantiles.notes)
    if found.n_cases < n_all:
        notes.append(f"{n_all - found.n_cases} of {counted(n_all, 'case')} left out: an observation is missing")
    parts: list[tuple[Read, Any]] = []
    for name in dict.fromkeys(models):
        mine = found.rows(np.flatnonzero(models == name))
        draws = f"{_DRAWS} draws from the quantiles{f' of {name}' if len(set(models)) > 1 else ''}"
        if dependence is DependenceName.independent:
            earlier = later = mine
            notes.append(f"{draws}: targets are taken as independent, and what sees their dependence judges that")
        else:
            try:
                earlier, later = mine.split(None, None)
            except ValueError:
                raise ValueError(
                    f"{name or forecasts}: no case comes before those of {mine.span}, so how targets go together cannot be "
                    "learnt; say --dependence independent"
                ) from None
        fitted = task.fitted(earlier, quantiles)
        if earlier is not later:
            notes.append(
                f"{draws}: {fitted.summary()}, learnt from the cases of {earlier.span}; assumed is the same dependence in "
                f"the later ones ({later.span}), which are checked"
            )
        parts.append((later, task.joined(fitted, later, quantiles)[0]))
    return Matched(
        pd.concat([part.found.y for part, _ in parts]),
        np.concatenate([members for _, members in parts]),
        pd.concat([part.found.columns for part, _ in parts]),
        tuple(notes),
        found.block,
        "model" if len(parts) > 1 else None,
    )


class _Task(NamedTuple):
    """How to learn a dependence, draw and judge."""

    dependence: DependenceName
    lower: float | None
    upper: float | None
    draws: int
    seed: int

    def _margins(self, cases: "Read", source: "Quantiles") -> Any:
        from prerank.recalibration import QuantileMargins

        return QuantileMargins(cases.found.members, source.levels, self.lower, self.upper)

    def fitted(self, cases: "Read", source: "Quantiles") -> "JointFromMargins":
        """Learn from past cases, or nothing."""
        from prerank.recalibration import EmpiricalCopula, GaussianCopula, Independence, JointFromMargins

        known: dict[DependenceName, Dependence] = {
            DependenceName.gaussian: GaussianCopula(),
            DependenceName.empirical: EmpiricalCopula(),
            DependenceName.schaake: EmpiricalCopula(of_observations=True),
            DependenceName.independent: Independence(),
        }
        model = JointFromMargins(known[self.dependence], self.draws, self.seed)
        return model.fit(self._margins(cases, source), cases.found.y.to_numpy())

    def joined(self, model: "JointFromMargins", cases: "Read", source: "Quantiles") -> tuple[Any, float]:
        """Draws (N, M, D), and how far their quantiles are from the levels, in standard errors."""
        from prerank.recalibration import margins_kept

        margins = self._margins(cases, source)
        found = model.transform(margins)
        return found.members.cpu().numpy(), margins_kept(found, margins).largest

    def compared(
        self, earlier: "Read", later: "Read", joint: Any, source: "Quantiles", preranks: Any, replicates: int
    ) -> "Comparison | None":
        """Independent margins and the joint forecast, on later cases that were observed; None if none was."""
        import torch

        from prerank.diagnosis import compare
        from prerank.forecasts import Ensemble
        from prerank.scores import variogram_score

        known = later.known
        if not len(known):
            return None
        independent = self._replace(dependence=DependenceName.independent)
        apart, _ = independent.joined(independent.fitted(earlier, source), later, source)
        judged = later.rows(known)
        laws = Ensemble(torch.tensor(apart[known])), Ensemble(torch.tensor(joint[known]))
        found = compare(judged.found.y, *laws, preranks, blocks=judged.blocks, seed=self.seed, n_replicates=replicates)
        y = torch.tensor(judged.found.y.to_numpy())
        apart_score, joint_score = (float(variogram_score(y, law).mean()) for law in laws)
        return found._replace(names=("independent", "joint"), variogram=(apart_score, joint_score))


class _Result(NamedTuple):
    """What was learnt, judged and written."""

    summary: str
    learnt_from: str
    span: str
    kept: float
    comparison: "Comparison | None"
    shape: tuple[int, ...]
    out: Path
    notes: list[str]

    def _margins(self) -> str:
        return (
            f"Margins are kept: quantiles of the draws are at most {self.kept:.1f} standard errors from their levels."
        )

    def text(self) -> str:
        n_cases, n_draws, n_targets = self.shape
        sizes = f"{counted(n_cases, 'case')}, {counted(n_draws, 'draw')}, {counted(n_targets, 'target')}"
        learnt = f"Learnt from {self.learnt_from}: {self.summary}. Assumed is the same dependence in all cases."
        parts = [learnt, self._margins(), *self.notes, ""]
        if self.comparison is not None:
            parts += [f"Judged on the rest ({self.span}), against the same margins drawn independently:"]
            parts += [str(self.comparison), ""]
        return "\n".join([*parts, f"Written to {self.out}: {sizes}."])

    def document(self, seed: int) -> str:
        from prerank.cli.document import of_comparison

        n_cases, n_draws, n_targets = self.shape
        found = {
            "summary": self.summary,
            "learnt_from": self.learnt_from,
            "margins_kept_within_standard_errors": self.kept,
            **({} if self.comparison is None else of_comparison(self.comparison, seed)),
            "notes": self.notes,
            "written": {"file": str(self.out), "cases": n_cases, "draws": n_draws, "targets": n_targets},
            "seed": seed,
        }
        return json.dumps(found, indent=2, allow_nan=False)
