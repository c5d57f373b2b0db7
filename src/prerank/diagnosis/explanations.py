"""What the words of a reading mean: for any projection, and for the numbers of the best-known pre-ranks."""

from collections.abc import Iterable
from typing import NamedTuple


class ShapeMeaning(NamedTuple):
    """A word of a reading: heights of a rank histogram that it names, and what it says."""

    heights: tuple[float, ...]
    sentence: str


SHAPES = {
    "flat": ShapeMeaning(
        (1.0,) * 10, "No evidence of an error: the observation's number stands at every rank equally often."
    ),
    "biased high": ShapeMeaning(
        (2.0, 1.6, 1.3, 1.1, 1.0, 0.8, 0.7, 0.6, 0.5, 0.4),
        "The observation's number is too often among the forecast's lowest: the forecast says too much.",
    ),
    "biased low": ShapeMeaning(
        (0.4, 0.5, 0.6, 0.7, 0.8, 1.0, 1.1, 1.3, 1.6, 2.0),
        "The observation's number is too often among the forecast's highest: the forecast says too little.",
    ),
    "under-dispersed": ShapeMeaning(
        (2.0, 1.2, 0.8, 0.6, 0.4, 0.4, 0.6, 0.8, 1.2, 2.0),
        "The observation's number lies too often at either end of the forecast's: the forecast is too sure of it.",
    ),
    "over-dispersed": ShapeMeaning(
        (0.3, 0.6, 1.0, 1.4, 1.7, 1.7, 1.4, 1.0, 0.6, 0.3),
        "The observation's number lies too often in the middle of the forecast's: the forecast is not sure enough of it.",
    ),
    "heavy upper tail": ShapeMeaning(
        (0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 1.9),
        "The observation's number is too often beyond the forecast's highest, and not beyond the lowest.",
    ),
    "heavy lower tail": ShapeMeaning(
        (1.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9),
        "The observation's number is too often beyond the forecast's lowest, and not beyond the highest.",
    ),
    "no clear shape": ShapeMeaning(
        (0.7, 1.3, 1.3, 0.7, 1.0, 1.0, 0.7, 1.3, 1.3, 0.7),
        "The ranks are not uniform, and neither bias, spread nor a tail explains it: look at the histogram.",
    ),
}
"""Every word that a reading can have."""

_ONE_NUMBER = {
    "biased high": "{0} forecast too high",
    "biased low": "{0} forecast too low",
    "under-dispersed": "{0} forecast too narrowly",
    "over-dispersed": "{0} forecast too widely",
    "heavy upper tail": "unusually high values of {0} missed",
    "heavy lower tail": "unusually low values of {0} missed",
}


def _said_of(what: str) -> dict[str, str]:
    return {word: sentence.format(what) for word, sentence in _ONE_NUMBER.items()}


def _outlying(high: str, low: str, what: str) -> dict[str, str]:
    """Words for a number that is `high` for observations far out, or `low` for those at the centre."""
    far = "observations too far from the centre of the forecast: over-confident, or biased"
    near = "observations too near to the centre of the forecast: too wide"
    return {
        "biased high": near if high == "outlying" else far,
        "biased low": far if high == "outlying" else near,
        "under-dispersed": f"{what} too constant in the forecast",
        "over-dispersed": f"{what} too variable in the forecast",
        "heavy upper tail": f"{high} observations too frequent",
        "heavy lower tail": f"{low} observations too frequent",
    }


FOR_PRERANK = {
    "marginal": _said_of("the target"),
    "location": _said_of("the mean of the targets"),
    "PCA": _said_of("the targets along the component"),
    "scale": {
        "biased high": "targets forecast too far apart",
        "biased low": "targets forecast too close together",
        "under-dispersed": "spread of the targets forecast as too constant",
        "over-dispersed": "spread of the targets forecast as too variable",
        "heavy upper tail": "unusually large spreads missed",
        "heavy lower tail": "unusually small spreads missed",
    },
    "dependency": {
        "biased high": "neighbouring targets forecast as too much alike: dependence too strong",
        "biased low": "neighbouring targets forecast as too little alike: dependence too weak",
        "under-dispersed": "likeness of neighbours forecast as too constant",
        "over-dispersed": "likeness of neighbours forecast as too variable",
        "heavy upper tail": "cases in which neighbours are unusually alike missed",
        "heavy lower tail": "cases in which neighbours are unusually unlike missed",
    },
    "contrast": {
        "biased high": "first target forecast too high against the second",
        "biased low": "first target forecast too low against the second",
        "under-dispersed": "difference of the two forecast too narrowly: correlation too strong, or spreads too small",
        "over-dispersed": "difference of the two forecast too widely: correlation too weak, or spreads too large",
        "heavy upper tail": "unusually high values of the first against the second missed",
        "heavy lower tail": "unusually low values of the first against the second missed",
    },
    "HDR": {
        "biased high": "observations too improbable under the forecast: over-confident",
        "biased low": "observations too probable under the forecast: too wide",
        "under-dispersed": "density at the observation too constant in the forecast",
        "over-dispersed": "density at the observation too variable in the forecast",
        "heavy upper tail": "outcomes near the centre of the forecast too frequent",
        "heavy lower tail": "outcomes remote from the forecast too frequent",
    },
    "copula": {
        "biased high": "targets low together too often: forecast too high, or dependence too weak at the low end",
        "biased low": "targets high together too often: forecast too low, or dependence too weak at the high end",
        "under-dispersed": "targets low together, and high together, too often: dependence too weak",
        "over-dispersed": "targets low together, and high together, too rarely: dependence too strong",
        "heavy upper tail": "cases with all targets high missed",
        "heavy lower tail": "cases with all targets low missed",
    },
    "average rank": {
        **_said_of("the targets together"),
        "under-dispersed": "targets high together, and low together, too often: dependence too weak, or too narrow",
        "over-dispersed": "targets high together, and low together, too rarely: dependence too strong, or too wide",
    },
    "band depth": _outlying("central", "outlying", "centrality"),
    "spanning tree": _outlying("central", "outlying", "centrality"),
    "energy score": _outlying("outlying", "central", "distance from the centre"),
    "Mahalanobis": _outlying("outlying", "central", "distance from the centre"),
    "reference distance": {
        "biased high": "observations too near to the reference points",
        "biased low": "observations too far from the reference points",
        "under-dispersed": "distance from the reference points forecast too narrowly: over-confident",
        "over-dispersed": "distance from the reference points forecast too widely",
        "heavy upper tail": "unusually large distances from the reference points missed",
        "heavy lower tail": "unusually small distances from the reference points missed",
    },
    "variogram": {
        "biased high": "forecast too smooth: dependence too strong",
        "biased low": "forecast too rough: dependence too weak",
        "under-dispersed": "smoothness forecast as too constant",
        "over-dispersed": "smoothness forecast as too variable",
        "heavy upper tail": "unusually smooth cases missed",
        "heavy lower tail": "unusually rough cases missed",
    },
    "isotropy": {
        "biased high": "fields more stretched along one direction than forecast",
        "biased low": "fields forecast as too stretched along one direction",
        "under-dispersed": "isotropy forecast as too constant",
        "over-dispersed": "isotropy forecast as too variable",
        "heavy upper tail": "unusually isotropic cases missed",
        "heavy lower tail": "unusually stretched cases missed",
    },
    "exceedance": {
        **_said_of("the number of targets above the threshold"),
        "biased high": "too many targets forecast above the threshold",
        "biased low": "too few targets forecast above the threshold",
    },
    "sliced": _said_of("the sum of the targets along the direction"),
    "maximum": _said_of("the highest target"),
    "minimum": _said_of("the lowest target"),
    "range": {
        **_said_of("the distance between the highest and the lowest target"),
        "biased high": "targets forecast too far apart",
        "biased low": "targets forecast too close together",
    },
}
"""What the words say of the targets, for pre-ranks by their usual names."""


def words_of(reading: str) -> list[str]:
    """The words that one projection's reading is made of.

    >>> words_of("biased low, heavy upper tail"), words_of("no clear shape")
    (['biased low', 'heavy upper tail'], ['no clear shape'])
    """
    return [reading] if reading in SHAPES else [word for word in reading.split(", ") if word in SHAPES]


def meanings(readings: Iterable[tuple[str, str]]) -> list[tuple[str, ShapeMeaning, list[str]]]:
    """For each word among (pre-rank, reading of a projection): its shape, and what it says for those pre-ranks."""
    found: dict[str, list[str]] = {}
    for prerank, reading in readings:
        for word in words_of(reading):
            lines = found.setdefault(word, [])
            said = FOR_PRERANK.get(prerank, {}).get(word)
            if said is not None and f"{prerank}: {said}" not in lines:
                lines.append(f"{prerank}: {said}")
    return [(word, SHAPES[word], found[word]) for word in SHAPES if word in found]
