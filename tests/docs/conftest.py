"""How the tests of the documentation compare what is printed with what a page shows."""

import re
from collections.abc import Callable

import pytest

NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")


def _assert_same_text(printed: str, shown: str, where: str) -> None:
    """The same words and, up to the rounding of another machine, the same numbers."""
    words, shown_words = (re.split(r"\s+", NUMBER.sub("#", text).strip()) for text in (printed, shown))
    assert words == shown_words, f"{where} prints\n{printed}"
    numbers, shown_numbers = ([float(number) for number in NUMBER.findall(text)] for text in (printed, shown))
    assert numbers == pytest.approx(shown_numbers, rel=0.02, abs=0.005), f"{where} prints\n{printed}"


@pytest.fixture(scope="session")
def assert_same_text() -> Callable[[str, str, str], None]:
    return _assert_same_text
