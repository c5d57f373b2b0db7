"""Real forecasts with their observations, by name: from a local folder, the cache, or their owners' repositories."""

import hashlib
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from prerank._progress import progress_bar, silent
from prerank.datasets import download as downloads
from prerank.datasets.download import GITHUB, Digest, Sha256, Upstream, cache_folder, data_folder, matches, verify
from prerank.io import Matched, Naming, read_forecasts
from prerank.io.errors import DataError


@dataclass(frozen=True)
class Numbers:
    """SHA-256 of the observations and members that a file holds, as double precision: whatever else is in the file."""

    expected: str
    naming: Naming

    def of(self, path: Path) -> str:
        """That of a file on disk, a table of commas whatever it is called; "" where it is none."""
        with tempfile.TemporaryDirectory() as folder:
            table = Path(folder) / "table.csv"
            shutil.copyfile(path, table)
            try:
                found = read_forecasts(table, None, self.naming)
            except DataError:
                return ""
        parts = (found.y.to_numpy(), np.asarray(found.members))
        return hashlib.sha256(b"".join(np.ascontiguousarray(part, "<f8").tobytes() for part in parts)).hexdigest()


@dataclass(frozen=True)
class File:
    """A file of a public repository: `owner/repository/commit/path`, and what it must hash to."""

    address: str
    digest: Digest

    @property
    def name(self) -> str:
        """Its name without folders."""
        return self.address.rpartition("/")[2]


@dataclass(frozen=True)
class NamedForecast:
    """A forecast and its observations in one file or two, how they are read, what they are, and on what terms."""

    files: tuple[File, ...]
    naming: Naming
    about: str
    licence: str
    reference: str


_PRICES = Naming(members=(r"/DNN \d/", r"/LEAR \d+/"), observation="Real price", joint=("hour",))
_EPF = "Lago, Marcjasz, De Schutter and Weron (2021), Applied Energy 293, 116983"


def _prices(commit: str, market: str, numbers: str, where: str) -> NamedForecast:
    path = f"jeslago/epftoolbox/{commit}/forecasts/Forecasts_{market}_DNN_LEAR_ensembles.csv"
    about = f"day-ahead electricity prices, {where}: 728 days, 24 hours, eight models (four networks, four LEAR)"
    return NamedForecast((File(path, Numbers(numbers, _PRICES)),), _PRICES, about, "Apache-2.0", _EPF)


def _climate(names: Mapping[str, str], naming: Naming, about: str, reference: str) -> NamedForecast:
    root = "pangeo-data/climpred-data/14ee1046dc9ec32753db85ad15ce8a2e428238d9"
    files = tuple(File(f"{root}/{name}", Sha256(expected)) for name, expected in names.items())
    return NamedForecast(files, naming, about, "MIT", reference)


NAMED_FORECASTS: Mapping[str, NamedForecast] = {
    "prices_de": _prices(
        "6404365fe3650f366f6aeb3616c623e8f8270b4a",
        "DE",
        "b50b78b274786d2c1266226d9908151f41656f76c4dbd84ed763285be7db91ed",
        "Germany",
    ),
    "prices_np": _prices(
        "27fabcc116bec161be3670b4ebac74baa4e03539",
        "NP",
        "5814bf63d61206053f8d9aa9191b37988a9625051ef81e7443f035ee6e9c7cb5",
        "Nord Pool",
    ),
    "mjo": _climate(
        {
            "GMAO-GEOS-V2p1.RMM1.nc": "4db895332672a30a3e06919753b2bcee098766f336f557f3546e6bfc2d5fdc83",
            "RMM1.observed.interannual.1974-06.2017-07.nc": (
                "8b72be4457491da07e21bcef5f8091fc3f9f4848c433465bc50d2225cbfdc74f"
            ),
        },
        Naming(),
        "index RMM1 of the Madden-Julian oscillation: 510 starts 1999-2015, 45 lead days, four members of GMAO-GEOS-V2p1",
        "climpred-data, with the SubX project's hindcasts",
    ),
    "sst": _climate(
        {
            "CESM-DP-LE.SST.global.nc": "22cf9ac007785909b372a5dc1a603d87c7ab6a1a2c26e63f1a0ed385c1c42290",
            "ERSSTv4.global.mean.nc": "093be8bd5e5e614ba4df458c7059117cd31c97076c42f6d7b40e367e41786bbe",
        },
        Naming(),
        "global mean sea surface temperature, yearly: starts 1954-2015 of CESM-DPLE, 10 lead years, ten members",
        "climpred-data, with CESM-DPLE hindcasts and ERSSTv4",
    ),
}
"""Which there are; the pages of the documentation say more of each."""


def load_forecast(name: str, *, download: bool = True, upstream: Upstream | None = None) -> Matched:
    """A real forecast with its observations, by name.

    Its files come from the folder in `PRERANK_DATA` (or its `raw` or `forecasts`), by the names that their owners gave them,
    else from the cache, else from their owners' repository. They are verified every time.

    Parameters
    ----------
    name : str
        One of `prices_de`, `prices_np`, `mjo`, `sst`; an unknown name is refused with the list of them.
    download : bool, default True
        Whether upstream may be asked.
    upstream : Upstream, optional
        Which server to ask, and how far to go; GitHub by default.

    Returns
    -------
    Matched
        Observations, members, kept columns; the notes say what it is, its licence and what to cite.

    Raises
    ------
    DataError
        If the name is unknown, a file is another one than expected, or there is none and it cannot be had.

    See Also
    --------
    prerank.io.read_forecasts : a file of your own

    Examples
    --------
    >>> load_forecast("prices")
    Traceback (most recent call last):
    ...
    prerank.io.errors.DataError: there is no forecast 'prices'; choose from prices_de, prices_np, mjo, sst
    """
    if name not in NAMED_FORECASTS:
        raise DataError(f"there is no forecast {name!r}; choose from {', '.join(NAMED_FORECASTS)}")
    known = NAMED_FORECASTS[name]
    paths = [_local(file) or _fetched(name, file, download, upstream or GITHUB) for file in known.files]
    found = read_forecasts(paths[0], paths[1] if len(paths) > 1 else None, known.naming)
    notes = (f"{name}: {known.about}", f"licence: {known.licence}; cite {known.reference}", *found.notes)
    return found._replace(notes=notes)


def _local(file: File) -> Path | None:
    """Upstream's file in PRERANK_DATA, verified."""
    folder = data_folder()
    for place in () if folder is None else (folder, folder / "raw", folder / "forecasts"):
        path = place / file.name
        if path.is_file():
            verify(path, file.digest)
            return path
    return None


def _fetched(name: str, file: File, may_ask: bool, upstream: Upstream) -> Path:
    stem, dot, suffix = file.name.rpartition(".")
    path = cache_folder() / "forecasts" / f"{stem}-{file.digest.expected[:12]}{dot}{suffix}"
    if matches(path, file.digest):
        return path
    cure = f"put {file.name} in a folder and set PRERANK_DATA to it"
    if not may_ask:
        raise DataError(f"{name!r} is neither in PRERANK_DATA nor in the cache; leave out download=False, or {cure}")
    with progress_bar(name, "bytes") as progress:
        try:
            address = f"{upstream.base}/{file.address}"
            return downloads.download([address], path, file.digest, upstream.policy, progress or silent)
        except DataError as error:
            raise type(error)(f"{error} If you have the file, {cure}.") from None
