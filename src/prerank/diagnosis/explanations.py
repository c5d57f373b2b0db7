"""What the words of a reading mean for the rank histogram of any number."""

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


def words_of(reading: str) -> list[str]:
    """The words that one projection's reading is made of.

    >>> words_of("biased low, heavy upper tail"), words_of("no clear shape")
    (['biased low', 'heavy upper tail'], ['no clear shape'])
    """
    return [reading] if reading in SHAPES else [word for word in reading.split(", ") if word in SHAPES]


def meanings(readings: Iterable[tuple[str, str]]) -> list[tuple[str, ShapeMeaning, list[str]]]:
    """For each word among (pre-rank, reading of a projection): its shape, and the pre-ranks that have it."""
    found: dict[str, list[str]] = {}
    for prerank, reading in readings:
        for word in words_of(reading):
            names = found.setdefault(word, [])
            if prerank not in names:
                names.append(prerank)
    return [(word, SHAPES[word], found[word]) for word in SHAPES if word in found]
