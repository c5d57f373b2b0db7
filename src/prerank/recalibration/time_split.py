"""Earlier cases to learn from and later ones to judge by."""

import re
from datetime import timedelta
from typing import Any, NamedTuple

import numpy as np

from prerank._wording import counted
from prerank.arrays.labels import label_text

_DAY_FIRST = re.compile(r"\d{1,2}[./-]\d{1,2}[./-]\d{4}\b.*")


class TimeSplit(NamedTuple):
    """Positions of the earlier and of the later cases, as `split_by_time` returns them.

    Attributes
    ----------
    earlier : ndarray of int, shape (n_earlier,)
        Cases to fit on, in the order of time.
    later : ndarray of int, shape (n_later,)
        Cases to judge by, in the order of time.
    """

    earlier: np.ndarray
    later: np.ndarray


def split_by_time(times: Any, *, share: float | None = None, before: Any = None) -> TimeSplit:
    """Split cases into earlier and later ones; those of one time stay together.

    Times are numbers, dates, text ("day 9" comes before "day 31") or whatever else has an order, one for each case. Cases of
    the same time keep their order. What is judged by later cases was not fitted on what came after them.

    Parameters
    ----------
    times : array_like, shape (n_cases,)
        When each case was, such as the date of its forecast.
    share : float, optional
        Share of the cases that are earlier, as nearly as whole times allow; a half if nothing is said.
    before : object, optional
        A time of the same kind; what comes before it is earlier.

    Returns
    -------
    TimeSplit
        Positions of the earlier and of the later cases.

    Raises
    ------
    ValueError
        If one of the parts would be empty, a time is missing, or text begins with the day of a date.

    Examples
    --------
    >>> split_by_time(["day 9", "day 31", "day 1", "day 40"], before="day 31")
    TimeSplit(earlier=array([2, 0]), later=array([1, 3]))
    """
    from prerank.io.label_order import n_before  # pandas loads slowly

    if share is not None and before is not None:
        raise ValueError("share and before both say which cases are earlier; give one of them")
    if share is not None and not 0 < share < 1:
        raise ValueError(f"share={share:g}: a share of the cases between 0 and 1, such as 0.5")
    numbers, names = in_order_of_time(times)
    if before is not None:
        early = numbers < n_before(names, before)
        if not early.any() or early.all():
            raise ValueError(
                f"before {label_text(before)}: {'all' if early.all() else 'none'} of {counted(len(numbers), 'case')} "
                f"({span_of(names)}) come before it; some must, to fit on, and others must not, to judge by"
            )
    else:
        early = _first(0.5 if share is None else share, numbers)
    order = np.argsort(numbers, kind="stable")
    return TimeSplit(order[early[order]], order[~early[order]])


def in_order_of_time(times: Any) -> tuple[np.ndarray, Any]:
    """Whole numbers 0, 1, ... in the place of times (N,), and the times that there are; what has no order is refused."""
    import pandas as pd  # which loads slowly

    from prerank.io.label_order import coded_labels

    column = times.reset_index(drop=True) if isinstance(times, pd.Series) else pd.Series(times).infer_objects()
    absent = column.isna().to_numpy()
    if absent.any():
        raise ValueError(
            f"{int(absent.sum()):,} of {counted(len(column), 'case')} have no label, the first is case "
            f"{int(absent.argmax())}, so earlier cases cannot be told from later ones; give every case one"
        )
    numbers, names = coded_labels(column)
    refuse_day_first(names)
    return numbers, names


def as_dates(names: Any, step: Any, what: str) -> Any:
    """Distinct times as dates, from which a time step can be taken."""
    import pandas as pd  # which loads slowly

    if not isinstance(step, timedelta | np.timedelta64 | pd.DateOffset):
        raise TypeError(f"{what}={step!r}: give a number of times, or a timedelta for times that are dates")
    if pd.api.types.is_numeric_dtype(names):
        raise TypeError(f"{what}={step!r} is for times that are dates, and these are numbers; give a number of times")
    try:
        return pd.DatetimeIndex(names)
    except (TypeError, ValueError):
        raise TypeError(
            f"{what}={step!r} is for times that are dates, such as 2024-01-31, and the first of these is "
            f"{label_text(names[0])}; give a number of times"
        ) from None


def span_of(names: Any) -> str:
    """The first and the last of labels that are in their order."""
    first, last = (label_text(names[place]) for place in (0, -1))
    return first if first == last else f"{first} to {last}"


def _first(share: float, numbers: np.ndarray) -> np.ndarray:
    """Which cases belong to a share of the first ones, whole numbers together."""
    sizes = np.bincount(numbers)
    if len(sizes) == len(numbers):
        early = numbers < round(share * len(numbers))
    else:
        upto = np.abs(np.cumsum(sizes) - share * len(numbers)).argmin()
        early = numbers <= min(int(upto), len(sizes) - 2)
    if not early.any() or early.all():
        raise ValueError(
            f"a share of {share:g} of {counted(len(numbers), 'case')} leaves none to "
            f"{'judge by' if early.all() else 'fit on'}; give another share, or more cases"
        )
    return early


def refuse_day_first(labels: Any) -> None:
    """Refuse text such as 31.01.2024, whose order is not that of the days."""
    if labels.inferred_type == "string" and all(_DAY_FIRST.fullmatch(str(label)) for label in labels):
        raise ValueError(
            f"the labels are dates that begin with the day or the month, such as {labels[0]}, so as text they are not in "
            "the order of time, and earlier cases cannot be told from later ones; write them as 2024-01-31"
        )
