"""What each word of a reading says for the field's pre-ranks, by their classes."""

_UNCLEAR = ", neither by a bias nor by a wrong spread alone: look at the histogram"


def _of_number(what: str) -> dict[str, str]:
    """Sentences about a number that has a name."""
    return {
        "biased high": f"{what} is forecast too high",
        "biased low": f"{what} is forecast too low",
        "under-dispersed": f"{what} is forecast too narrowly",
        "over-dispersed": f"{what} is forecast too widely",
        "heavy upper tail": f"unusually high values of {what} are missed",
        "heavy lower tail": f"unusually low values of {what} are missed",
        "no clear shape": f"{what} is miscalibrated" + _UNCLEAR,
    }


def _of_centrality(measure: str) -> dict[str, str]:
    """Sentences about a number that is large at the centre of the forecast."""
    return {
        "biased high": f"outcomes fall too often at the edge of the scenarios by their {measure}: over-confident, or biased",
        "biased low": f"outcomes fall too often at the centre of the scenarios by their {measure}: under-confident",
        "under-dispersed": f"outcomes fall too often at the centre, and too often at the edge, by their {measure}",
        "over-dispersed": f"outcomes fall too rarely at the centre, and too rarely at the edge, by their {measure}",
        "heavy upper tail": f"outcomes fall too often at the very centre of the scenarios by their {measure}",
        "heavy lower tail": f"outcomes fall too often beyond the scenarios by their {measure}",
        "no clear shape": f"how central outcomes are by their {measure} is miscalibrated" + _UNCLEAR,
    }


def _of_distance(measure: str) -> dict[str, str]:
    """Sentences about a number that is large far from the forecast: those of the centre, mirrored."""
    mirror = {"biased high": "biased low", "heavy upper tail": "heavy lower tail"}
    mirror |= {low: high for high, low in mirror.items()}
    return {mirror.get(word, word): sentence for word, sentence in _of_centrality(measure).items()}


FIELD_SENTENCES: dict[str, dict[str, str]] = {
    "AverageRank": {
        "biased high": "{targets} are forecast too high together, by their ranks",
        "biased low": "{targets} are forecast too low together, by their ranks",
        "under-dispersed": "{targets} are high together, and low together, more often than forecast",
        "over-dispersed": "{targets} are high together, and low together, less often than forecast",
        "heavy upper tail": "cases with {targets} all unusually high are missed",
        "heavy lower tail": "cases with {targets} all unusually low are missed",
        "no clear shape": "the mean rank of {targets} is miscalibrated" + _UNCLEAR,
    },
    "BandDepth": _of_centrality("ranks"),
    "SpanningTree": _of_centrality("spanning tree"),
    "EnergyScore": _of_distance("mean distance"),
    "Mahalanobis": _of_distance("Mahalanobis distance"),
    "ReferenceDistance": {
        **_of_number("the distance of {targets} from the reference point"),
        "biased high": "outcomes lie closer to the reference point than forecast",
        "biased low": "outcomes lie farther from the reference point than forecast",
    },
    "Variogram": {
        "biased high": "{targets} are forecast too smooth: too alike from one to another",
        "biased low": "{targets} are forecast too rough: too little alike from one to another",
        "under-dispersed": "the forecast is too sure of how smooth {targets} are",
        "over-dispersed": "the forecast is not sure enough of how smooth {targets} are",
        "heavy upper tail": "cases with {targets} unusually smooth are missed",
        "heavy lower tail": "cases with {targets} unusually rough are missed",
        "no clear shape": "how smooth {targets} are is miscalibrated" + _UNCLEAR,
    },
    "Isotropy": {
        "biased high": "fields are more stretched along rows or columns than forecast",
        "biased low": "fields are forecast as too stretched along rows or columns",
        "under-dispersed": "the forecast is too sure of how stretched fields are",
        "over-dispersed": "the forecast is not sure enough of how stretched fields are",
        "heavy upper tail": "cases with unusually isotropic fields are missed",
        "heavy lower tail": "cases with unusually stretched fields are missed",
        "no clear shape": "how stretched fields are is miscalibrated" + _UNCLEAR,
    },
    "Exceedance": {
        **_of_number("the number of {targets} above the threshold"),
        "biased high": "too many of {targets} are forecast above the threshold",
        "biased low": "too few of {targets} are forecast above the threshold",
    },
    "Sliced": {
        "biased high": "{targets} are forecast too high along {each}",
        "biased low": "{targets} are forecast too low along {each}",
        "under-dispersed": "{targets} are forecast too narrowly along {each}",
        "over-dispersed": "{targets} are forecast too widely along {each}",
        "heavy upper tail": "unusually high values of {targets} along {each} are missed",
        "heavy lower tail": "unusually low values of {targets} along {each} are missed",
        "no clear shape": "{targets} are miscalibrated along {each}" + _UNCLEAR,
    },
    "Maximum": _of_number("the highest of {targets}"),
    "Minimum": _of_number("the lowest of {targets}"),
    "Range": {
        **_of_number("the distance between the highest and the lowest of {targets}"),
        "biased high": "the highest and the lowest of {targets} are forecast too far apart",
        "biased low": "the highest and the lowest of {targets} are forecast too close together",
    },
}
"""What each word of a reading says, by class of pre-rank, as in `prerank.diagnosis.sentences`."""
