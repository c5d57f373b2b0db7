"""`check`: the one call a forecaster makes."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict, Unpack, overload

import torch
from torch import Tensor

from prerank._parallel import single_threaded
from prerank._wording import counted
from prerank.arrays import as_tensor
from prerank.arrays.labels import is_pandas, label_text
from prerank.calibration import PCETest, ProjectedPIT, hidden_error, pce_test
from prerank.calibration.checks import require_exponent, require_whole
from prerank.calibration.confidence import FEWEST_BLOCKS
from prerank.calibration.evidence import LEVEL, MOST_GROUPS
from prerank.diagnosis.data_warnings import about_data
from prerank.diagnosis.execution import Asked, Source, pits_and_test, prepare, source_of
from prerank.diagnosis.groups import GroupedCheck, crossed_labels, grouped
from prerank.diagnosis.reproduce import call_of
from prerank.diagnosis.result import Check, tables
from prerank.diagnosis.sentences import failures_in_words, voices_of
from prerank.diagnosis.target_words import TargetWords
from prerank.inputs import Cases
from prerank.inputs.lazy_members import LazyMembers
from prerank.preranks import PreRank


class _Options(TypedDict, total=False):
    """What `check` takes by name besides `by`, which says what it returns."""

    axes: Sequence[str] | Mapping[str, str] | None
    joint: str | Sequence[str] | None
    scale: Literal["auto", "pooled", "none"]
    case_weights: Any
    observation_weights: Any
    blocks: Any
    case_ids: Any
    n_draws: int
    n_replicates: int
    exponent: float
    seed: int


Preranks = Sequence[PreRank] | PreRank | None


@overload
def check(
    y: Any, forecast: Any, preranks: Preranks = None, *, by: None = None, **options: Unpack[_Options]
) -> Check: ...


@overload
def check(
    y: Any, forecast: Any, preranks: Preranks = None, *, by: Any, **options: Unpack[_Options]
) -> GroupedCheck: ...


@single_threaded()
def check(
    y: Any,
    forecast: Any,
    preranks: Sequence[PreRank] | PreRank | None = None,
    *,
    axes: Sequence[str] | Mapping[str, str] | None = None,
    joint: str | Sequence[str] | None = None,
    scale: Literal["auto", "pooled", "none"] = "auto",
    case_weights: Any = None,
    observation_weights: Any = None,
    blocks: Any = None,
    case_ids: Any = None,
    n_draws: int = 100,
    n_replicates: int = 999,
    exponent: float = 1,
    seed: int = 0,
    by: Any = None,
) -> Check | GroupedCheck:
    """Is the joint forecast calibrated, and if not, how?

    Labels: where both sides label their cases (an xarray coordinate, a pandas index other than the default `RangeIndex`,
    which means position), the forecast, and all that comes one per case, is put into the order of y; so are targets
    (coordinate, column names), and their labels become their names. What cannot be aligned is refused.

    Missing values (NaN, pandas NA, what a NumPy mask hides): a member with one is left out of its case, which is then
    ranked among those present; a case whose observation has one is dropped; both are counted in the notes. y and members
    of different precision are compared in the coarser one.

    A forecast that is an xarray array of Dask chunks is read a chunk of cases at a time, twice; if a `distributed.Client` is
    active its workers do the ranking. The result is that of the same numbers in memory. No result depends on how ties are
    broken.

    Parameters
    ----------
    y : array_like, shape (n_cases, n_targets)
        Observations: NumPy, torch, pandas or xarray.
    forecast : Ensemble, Distribution or array_like of shape (n_cases, n_members, n_targets)
        Members, an `Ensemble`, a `GaussianMixture` or a torch distribution.
    preranks : PreRank or sequence of PreRank, optional
        Those of the paper by default.
    axes : sequence or dict of str, optional
        What the axes of an array in another order are, such as ("member", "case", "target"). xarray dimensions called case,
        member and target, or as usual (time, realization, station, lat, lon), are recognised in any order, several of cases
        or targets together; others take a mapping {"day": "case", "run": "member", "place": "target"}, or a tuple of their
        names in the order (case, member, target). Dimensions of the same name in y and forecast mean the same.
    joint : str or sequence of str, optional
        The dimensions of xarray objects that are forecast together, ("lead", "station") say, in the order that the targets
        are to have; all others but that of the members are cases then.
    scale : {"auto", "pooled", "none"}, default "auto"
        "pooled" divides each target by the pooled spread of members and observations; "auto" does so when spreads differ
        more than tenfold, and says so.
    case_weights : array_like, shape (n_cases,), optional
        Weights of the cases; interval and corrected PCE stay empty then.
    observation_weights : array_like, shape (n_cases,), optional
        Those of the observations where members have weights, see `projected_pit`.
    blocks : array_like, shape (n_cases,), optional
        Labels of dependent cases (a date, say), which then stay together in every replicate, whether or not their members
        are linked: p-values, intervals (from 20 blocks on), corrected PCE and bands all follow.
    case_ids : array_like, shape (n_cases,), optional
        Identifiers, whole numbers or labels. Draws of a distribution, the replicates of the tests and the bootstrap are
        keyed by them and by `seed`; without them cases are named by their position, and then another order of the cases is
        another set of names.
    n_draws : int, default 100
        Draws of a distribution.
    n_replicates : int, default 999
        Replicates of the tests.
    exponent : float, default 1
        That of the PCE.
    seed : int, default 0
        Of everything random.
    by : array_like, shape (n_cases,), DataFrame or list of array_like, optional
        Labels of groups of cases, such as places or seasons: each is tested by itself, and p-values are adjusted for the
        groups too. A DataFrame, or a list of label arrays, crosses several labels. Everything before the tests, such as
        units, is that of all cases. This, and whatever else comes one per case, may also be named: a coordinate of xarray
        objects, or a level of a pandas index.

    Returns
    -------
    Check or GroupedCheck
        Prints its verdict and table; of groups where `by` is given.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(1)
    >>> truth = rng.normal(size=(300, 21, 3))
    >>> result = check(truth[:, 0], truth[:, 1:])
    >>> result.calibrated
    True
    >>> check(truth[:, 0], 0.6 * truth[:, 1:]).table.loc["location", "reading"]
    'under-dispersed'
    """
    call = call_of(check, locals())
    by, factors = crossed_labels(by)
    if scale not in ("auto", "pooled", "none"):
        raise ValueError(f'scale={scale!r}: say "auto", "pooled" or "none"')
    exponent, seed = require_exponent(exponent), require_whole(seed, "seed", at_least=None)
    n_draws, n_replicates = require_whole(n_draws, "n_draws"), require_whole(n_replicates, "n_replicates")
    asked = Asked(preranks, scale, n_draws, n_replicates, exponent, seed, call)
    cases = Cases.of(y, forecast, axes, joint=joint, lazy=True)
    if observation_weights is not None and isinstance(cases.forecast, LazyMembers):
        raise ValueError("observation_weights go with member weights, which a forecast of Dask chunks has not")
    cases = prepare(cases, asked).along(
        case_ids=case_ids,
        case_weights=case_weights,
        observation_weights=observation_weights,
        blocks=blocks,
        by=by,
    )
    source, notes = source_of(cases, asked), [*cases.notes, *about_data(cases)]
    if cases.groups is None:
        return check_of(source, asked, None, notes)
    names = cases.group_names
    if len(names) > MOST_GROUPS:
        raise ValueError(
            f"{len(names):,} groups: the nulls of single projections have 50,000 replicates, so with more than "
            f"{MOST_GROUPS:,} groups no adjusted p-value could reach {LEVEL}; take fewer, larger groups"
        )
    checks = {}
    for number, name in enumerate(names):
        try:
            checks[name] = check_of(source, asked, (cases.groups == number).nonzero()[:, 0], [], len(names))
        except ValueError as error:
            raise ValueError(f"group {label_text(name)}: {error}") from None
    return grouped(checks, notes, factors)


def check_of(source: Source, asked: Asked, rows: Tensor | None, notes: list[str], n_groups: int = 1) -> Check:
    """The check of some of the cases, one of `n_groups` groups, or of all."""
    labels, weights = source.cases.blocks, source.cases.weights
    if rows is not None:
        labels = None if labels is None else torch.unique(labels[rows], return_inverse=True)[1]
        weights = None if weights is None else weights[rows]
        if weights is not None and not bool(weights.sum() > 0):
            raise ValueError(
                f"all {len(weights)} case_weights are zero; give one of them a positive weight, or leave the group out"
            )
    pit, test = pits_and_test(source, rows, labels, weights, n_groups)
    if not pit.exact:
        notes.append(f"PITs: {pit.method}")
    if source.cases.observation_weights is not None:
        notes.append(f"PITs: {hidden_error(pit) or f'the observation has a weight of {pit.own_weight:.2g} on average'}")
    notes.extend(f"{group}: {note}" for group, note in pit.notes.items())
    n_blocks = None if labels is None else len((labels if weights is None else labels[weights > 0]).unique())
    if n_blocks is not None and n_blocks < FEWEST_BLOCKS:
        notes.append(
            f"{counted(n_blocks, 'block')}: tests by signs of fewer than {FEWEST_BLOCKS} blocks are approximate"
        )
    notes.extend(_monte_carlo(test, asked.n_replicates, n_blocks is not None))
    table, projections = tables(pit, test, labels, weights)
    words = TargetWords.of(source.cases.labels.targets, source.cases.names)
    voices = voices_of(source.preranks, words)
    return Check(
        table,
        projections,
        pit,
        test,
        tuple(notes),
        pit.n_cases,
        n_blocks,
        float(test.attainable),
        asked.n_replicates,
        None if weights is None else weights.cpu().double(),
        asked.seed,
        asked.call,
        failures_in_words(table, projections, voices),
    )


def _monte_carlo(test: PCETest, n_replicates: int, in_blocks: bool) -> list[str]:
    """Which p-values are simulated, how, and how precise they are."""
    ways = {
        "signs": f"random signs of whole {'blocks' if in_blocks else 'cases'}",
        "points": "random picks among the points of each case",
    }
    said = []
    for way, words in ways.items():
        names = [name for name, null in zip(test.groups, test.nulls, strict=True) if null == way]
        if names:
            said.append(f"{', '.join(names)} by {words}")
    if not said:
        return []
    error = (LEVEL * (1 - LEVEL) / n_replicates) ** 0.5
    return [
        f"p-values of {'; '.join(said)}: {n_replicates:,} replicates, standard error {error:.3f} at {LEVEL}"
        + ("" if "exact" not in test.nulls else "; the others are exact")
    ]


@single_threaded()
def check_pits(pit: Any, names: Sequence[str] | None = None) -> Check:
    """The same table for PITs computed elsewhere, one row per column.

    p-values are adjusted for the columns in steps, by random signs of whole cases, which keep whatever dependence the
    columns have; of fewer than thirty cases by Holm's method.

    Parameters
    ----------
    pit : array_like, shape (n_cases,) or (n_cases, n_columns)
        PITs; cases with a missing one are dropped.
    names : sequence of str, optional
        Names of the columns; those of a DataFrame by default.

    Returns
    -------
    Check
        Without what only a forecast knows, such as power.

    Examples
    --------
    >>> import numpy as np
    >>> check_pits(np.linspace(0.001, 0.999, 200)).calibrated
    True
    """
    if names is None and is_pandas(pit) and hasattr(pit, "columns"):
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
    pit = ProjectedPIT.of_values(values, labels, labels)
    test = pce_test(pit)
    table, projections = tables(pit, test, None, None)
    return Check(
        table,
        projections,
        pit,
        test,
        tuple(notes),
        len(values),
        attainable=float(test.attainable),
        sentences=failures_in_words(table, projections, {}),
    )
