"""What to do next, from what a check found."""

from collections.abc import Sequence
from typing import NamedTuple

from prerank.calibration.testing import NEARLY_BLIND
from prerank.diagnosis.result import LEVEL, Check


class Advice(NamedTuple):
    """What to do, why, and the code for it where there is some."""

    title: str
    text: str
    code: str = ""


_RECALIBRATE = """from prerank import Recalibrator, check

recalibrator = Recalibrator().fit(forecast, y)  # cases that the forecast was not fitted on
corrected = recalibrator.transform(new_forecast)
print(check(new_y, corrected))  # judged on cases that neither has seen"""


def advice(checks: Sequence[Check], calibrated: bool | None, failing: int) -> list[Advice]:
    """Advice from one check, or from those of several groups, of which `failing` are miscalibrated."""
    found = []
    if calibrated is None:
        found.append(Advice("Take more cases.", "With so few, no forecast could have been rejected, however wrong."))
    elif calibrated:
        found.append(_what_may_remain(checks))
    else:
        where = (
            "" if len(checks) == 1 else f" {failing} of {len(checks)} groups fail; a correction may differ by group."
        )
        found.append(
            Advice(
                "Recalibrate.",
                f"A correction is learnt on held-out cases and judged on others.{where} A network of your own can be "
                "trained with PreRankPenalty instead.",
                _RECALIBRATE,
            )
        )
        if len(checks) == 1:
            found += _where_to_start(checks[0])
    blind = sorted(
        {
            str(name)
            for one in checks
            for name, row in one.table.iterrows()
            if row["power"] < NEARLY_BLIND and row["adjusted p-value"] > LEVEL
        }
    )
    if blind:
        found.append(
            Advice(
                "More cases, or another pre-rank.",
                f"{', '.join(blind)} could hardly have found an error here: few cases, or many ties. "
                "Do not take that for calibration.",
            )
        )
    if all(len(one.table) == 1 for one in checks):
        found.append(
            Advice(
                "Look along other pre-ranks.",
                f"Only {checks[0].table.index[0]} was looked at, and every pre-rank is blind to something. "
                "Without a choice, check takes all of the paper.",
            )
        )
    if all(one.n_blocks is None for one in checks):
        found.append(
            Advice(
                "Are cases dependent?",
                "p-values take cases to be independent given the forecast. Where days follow each other, or places share a "
                "day, name the blocks that belong together (blocks in Python, --block in the command line).",
            )
        )
    return found


def _what_may_remain(checks: Sequence[Check]) -> Advice:
    highs = [float(value) for one in checks for value in one.table["high"] if value == value]
    bound = f" A PCE of up to {max(highs):.3f} is still possible (upper end of the widest interval)." if highs else ""
    return Advice(
        "Nothing has to be corrected.",
        f"That is no proof of calibration.{bound} Four times as many cases halve what stays hidden.",
    )


def _where_to_start(result: Check) -> list[Advice]:
    """Whether the targets by themselves are wrong, or how they go together."""
    if "marginal" not in result.table.index or len(result.table) == 1:
        return []
    adjusted = result.table["adjusted p-value"]
    if float(adjusted["marginal"]) <= LEVEL:
        return [
            Advice(
                "Start with the single targets.",
                "Some are miscalibrated by themselves (marginal), and other pre-ranks may fail because of that alone.",
            )
        ]
    return [
        Advice(
            "Look at the dependence.",
            "No target by itself shows an error (marginal): what is wrong is how the targets go together, which no "
            "correction of single targets can mend.",
        )
    ]
