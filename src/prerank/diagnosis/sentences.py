"""What a check found in plain sentences, one for each pre-rank that fails, in the words of the data."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from prerank.calibration.evidence import LEVEL
from prerank.diagnosis.explanations import words_of
from prerank.diagnosis.field_sentences import FIELD_SENTENCES
from prerank.diagnosis.target_words import TargetWords, listed, named
from prerank.preranks import Contrast, Dependency, Marginal, PreRank, SquaredDifference

if TYPE_CHECKING:
    import pandas as pd

_UNCLEAR = ", neither by a bias nor by a wrong spread alone: look at the histogram"
OF_ONE_NUMBER = {
    "biased high": "{each} {are} forecast too high",
    "biased low": "{each} {are} forecast too low",
    "under-dispersed": "{each} {are} forecast too narrowly",
    "over-dispersed": "{each} {are} forecast too widely",
    "heavy upper tail": "unusually high values of {each} are missed",
    "heavy lower tail": "unusually low values of {each} are missed",
    "no clear shape": "{each} {are} miscalibrated" + _UNCLEAR,
    "together": "{name} fails for all its numbers together, for none by itself; the largest error is that of {each}",
}
"""Sentences about a number of which nothing else is known: for each word of a reading, and where no single number fails."""

_APART = {
    "biased high": "{them} are forecast too far apart",
    "biased low": "{them} are forecast too close together",
    "under-dispersed": "the forecast is too sure of how far {them} lie apart",
    "over-dispersed": "the forecast is not sure enough of how far {them} lie apart",
    "heavy upper tail": "cases with {them} unusually far apart are missed",
    "heavy lower tail": "cases with {them} unusually close together are missed",
    "no clear shape": "how far {them} lie apart is miscalibrated" + _UNCLEAR,
}

_TOO = re.compile(r"(?P<head>.*) forecast (?P<words>too \w+(?: and too \w+)*)(?P<tail>[^:]*)")

SENTENCES: dict[str, dict[str, str]] = {
    "Marginal": OF_ONE_NUMBER
    | {"together": "{targets} are miscalibrated together, none of them by itself; the largest error is that of {each}"},
    "Location": {
        word: text.replace("{each}", "the mean of {targets}").replace("{are}", "is")
        for word, text in OF_ONE_NUMBER.items()
        if word != "together"
    },
    "Scale": {word: text.format(them="{targets}") for word, text in _APART.items()},
    "Dependency": {
        "biased high": "{targets} are forecast too alike {apart}",
        "biased low": "{targets} are forecast too little alike {apart}",
        "under-dispersed": "the forecast is too sure of how alike {targets} are {apart}",
        "over-dispersed": "the forecast is not sure enough of how alike {targets} are {apart}",
        "heavy upper tail": "cases with {targets} unusually alike {apart} are missed",
        "heavy lower tail": "cases with {targets} unusually unlike {apart} are missed",
        "no clear shape": "how alike {targets} are {apart} is miscalibrated" + _UNCLEAR,
    },
    "PCA": {
        "biased high": "{targets} are forecast too high along {each}",
        "biased low": "{targets} are forecast too low along {each}",
        "under-dispersed": "{targets} are forecast too narrowly along {each}",
        "over-dispersed": "{targets} are forecast too widely along {each}",
        "heavy upper tail": "unusually high values of {targets} along {each} are missed",
        "heavy lower tail": "unusually low values of {targets} along {each} are missed",
        "no clear shape": "{targets} are miscalibrated along {each}" + _UNCLEAR,
        "together": "{targets} are miscalibrated along their components together, along none by itself; the largest error "
        "is along {each}",
    },
    "HDR": {
        "biased high": "scenarios are over-confident: outcomes fall too often where the forecast has low density",
        "biased low": "scenarios are under-confident: outcomes fall too often where the forecast has high density",
        "under-dispersed": "outcomes fall too often at the centre of the forecast, and too often far from it",
        "over-dispersed": "outcomes fall too rarely at the centre of the forecast, and too rarely far from it",
        "heavy upper tail": "outcomes fall too often at the very centre of the forecast",
        "heavy lower tail": "outcomes fall too often far from the forecast",
        "no clear shape": "the density at outcomes is miscalibrated" + _UNCLEAR,
    },
    "Copula": {
        "biased high": "{targets} are forecast too high together, too alike or too narrowly: too few scenarios lie below "
        "the outcome in all of them",
        "biased low": "{targets} are forecast too low together, too little alike or too widely: too many scenarios lie "
        "below the outcome in all of them",
        "under-dispersed": "{targets} are low together, and high together, more often than forecast",
        "over-dispersed": "{targets} are low together, and high together, less often than forecast",
        "heavy upper tail": "cases with {targets} all high are missed",
        "heavy lower tail": "outcomes with hardly a scenario below them in all of {targets} are too frequent",
        "no clear shape": "how often {targets} are low together is miscalibrated" + _UNCLEAR,
    },
    "Contrast": {
        "biased high": "{first} is forecast too high against {second}",
        "biased low": "{first} is forecast too low against {second}",
        "under-dispersed": "the difference of {first} and {second} is forecast too narrowly",
        "over-dispersed": "the difference of {first} and {second} is forecast too widely",
        "heavy upper tail": "unusually high values of {first} against {second} are missed",
        "heavy lower tail": "unusually low values of {first} against {second} are missed",
        "no clear shape": "the difference of {first} and {second} is miscalibrated" + _UNCLEAR,
    },
    "SquaredDifference": {word: text.format(them="{first} and {second}") for word, text in _APART.items()},
}
"""What each word of a reading says, by class of pre-rank. A pre-rank with an attribute `words` brings its own."""


_NOUNS = {"PCA": "principal component"}


class Voice(NamedTuple):
    """How a pre-rank's failures are said: a sentence for each word of a reading, and what may stand in them."""

    words: Mapping[str, str]
    fields: Mapping[str, str]
    targets: TargetWords
    by_target: bool  # whether its projections are the targets, one by one
    noun: str | None = None  # of its numbered projections


_UNKNOWN = Voice(OF_ONE_NUMBER, {}, TargetWords("target", ()), False)


def voices_of(preranks: Sequence[PreRank], targets: TargetWords) -> dict[str, Voice]:
    """How each pre-rank, by its name, speaks of these targets."""
    return {item.name: _voice(item, targets) for item in preranks}


def _voice(prerank: PreRank, targets: TargetWords) -> Voice:
    own: Mapping[str, str] | None = getattr(prerank, "words", None)
    words = OF_ONE_NUMBER | (
        (SENTENCES | FIELD_SENTENCES).get(type(prerank).__name__, {}) if own is None else dict(own)
    )
    fields = {"targets": targets.all}
    if isinstance(prerank, Dependency):
        fields["apart"] = "from one to the next" if prerank.lag == 1 else f"{prerank.lag} apart"
    if isinstance(prerank, Contrast | SquaredDifference):
        fields |= {"first": targets.one(prerank.i), "second": targets.one(prerank.j)}
    return Voice(words, fields, targets, isinstance(prerank, Marginal), _NOUNS.get(type(prerank).__name__))


def failures_in_words(
    table: "pd.DataFrame", projections: "pd.DataFrame", voices: Mapping[str, Voice]
) -> dict[str, str]:
    """A sentence for each pre-rank that fails by its adjusted p-value, in the order of the table; of others nothing."""
    return {
        str(name): _sentence(str(name), str(row["reading"]), projections.loc[[name]], voices.get(str(name), _UNKNOWN))
        for name, row in zip(table.index, table.to_dict("records"), strict=True)
        if row["adjusted p-value"] <= LEVEL
    }


def _sentence(prerank: str, reading: str, projections: "pd.DataFrame", voice: Voice) -> str:
    names = [str(name) for _, name in projections.index]
    rows = projections.to_dict("records")
    failed = [k for k, row in enumerate(rows) if row["adjusted p-value"] <= LEVEL]
    readings: dict[str, list[int]] = {}
    if len(names) == 1:
        readings[reading] = [0]
    elif failed:
        for place in failed:
            readings.setdefault(str(rows[place]["reading"]), []).append(place)
    else:
        sizes = [row["PCE"] / max(row["expected PCE"], 1e-300) for row in rows]
        readings["together"] = [sizes.index(max(sizes))]
    clauses = []
    for words, places in readings.items():
        fields = {"name": prerank, "each": _each(prerank, names, places, voice), "are": _verb(places), **voice.fields}
        chosen = [word for word in words_of(words) or [words] if word in voice.words]
        fields["such"] = "them" if len(places) > 1 else fields["each"]
        first, *more = [voice.words[word] for word in chosen]
        # what follows a sentence about the targets speaks of them, unless it can be said of the same subject in one go
        same = first.partition(" forecast too ")[0]
        more = [text if text.partition(" forecast too ")[0] == same else _them(text) for text in more]
        clauses.append(_of_one([_filled(text, fields) for text in (first, *more)]))
    text = _of_several(clauses)
    named = {name.split()[0] for name in (prerank, *names, *voice.targets.names) if name.split()}
    first = text.split()[0].rstrip(",;:")
    return (text if first in named else text[:1].upper() + text[1:]) + ("" if text.endswith((".", "!", "?")) else ".")


def _them(text: str) -> str:
    if text.startswith("{targets} are"):
        return "they" + text.removeprefix("{targets}").replace("{targets}", "them")
    for words, instead in (
        ("the mean of {targets}", "it"),
        ("{targets} lie", "they lie"),
        ("{targets} are", "they are"),
        ("{targets}", "them"),
        ("{each}", "{such}"),
    ):
        text = text.replace(words, instead)
    return text


def _verb(places: Sequence[int]) -> str:
    return "are" if len(places) > 1 else "is"


def _each(prerank: str, names: Sequence[str], places: Sequence[int], voice: Voice) -> str:
    """The projections at these places by their names; a single one is called like its pre-rank."""
    if voice.by_target and len(voice.targets.names) == len(names):
        return voice.targets.some(places)
    if len(names) == 1:
        return prerank
    common = names[0].rpartition(" ")[0]
    if common and all(name.rpartition(" ")[0] == common for name in names):  # component 1, component 2, ...
        return TargetWords(voice.noun or common, tuple(name.rpartition(" ")[2] for name in names)).some(places)
    return listed([names[place] for place in places])


def _filled(text: str, fields: Mapping[str, str]) -> str:
    """A sentence with its fields filled; braces around other words stay as they are."""
    return re.sub(r"{(\w+)}", lambda found: fields.get(found[1], found[0]), text)


def _of_one(sentences: Sequence[str]) -> str:
    """Several sentences about the same number as one.

    >>> _of_one(["Oslo is forecast too low by night", "Oslo is forecast too widely by night", "high values are missed"])
    'Oslo is forecast too low and too widely by night, and high values are missed'
    """
    said = [sentences[0]]
    for sentence in sentences[1:]:
        before, after = _TOO.fullmatch(said[-1]), _TOO.fullmatch(sentence)
        if before and after and (before["head"], before["tail"]) == (after["head"], after["tail"]):
            said[-1] = f"{before['head']} forecast {before['words']} and {after['words']}{before['tail']}"
        else:
            said.append(sentence)
    return ", and ".join(said)


def _of_several(clauses: Sequence[str]) -> str:
    """Clauses about several numbers as one sentence; a subject that they share is named once.

    >>> _of_several(["Oslo is forecast too low along 1", "Oslo is forecast too widely along 2", "Voss is forecast too high"])
    'Oslo is forecast too low along 1, too widely along 2; Voss is forecast too high'
    """
    said, head = [clauses[0]], clauses[0].partition(" forecast too ")[0]
    for clause in clauses[1:]:
        own, mark, rest = clause.partition(" forecast too ")
        if mark and own == head and ", and " not in said[-1]:
            said[-1] += f", too {rest}"
        else:
            said.append(clause)
            head = own
    return "; ".join(said)


def of_groups(found: Iterable[tuple[str, Mapping[str, str]]], n_groups: int, most: int = 8) -> list[str]:
    """Sentences of groups that fail, each once with the groups that it is about, the most frequent first."""
    groups: dict[str, list[str]] = {}
    for name, said in found:
        for sentence in said.values():
            main = sentence.partition(", and ")[0].removesuffix(
                "."
            )  # a tail beside it is told by the group's own check
            groups.setdefault(main, []).append(name)
    order = sorted(groups, key=lambda sentence: -len(groups[sentence]))
    lines = [f"{sentence}: {_where(groups[sentence], n_groups)}." for sentence in order[:most]]
    return [*lines, f"And {len(order) - most} other failures, see the groups."] if len(order) > most else lines


def _where(names: Sequence[str], n_groups: int) -> str:
    names = [named("group", name) for name in names]
    if len(names) == n_groups:
        every = "both" if n_groups == 2 else f"all {n_groups}"
        return f"in {every} groups" if n_groups > 1 else f"in {names[0]}"
    return f"in {listed(names)}" if len(names) <= 4 else f"in {', '.join(names[:3])} and {len(names) - 3} other groups"
