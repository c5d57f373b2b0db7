"""NetCDF files and Zarr stores opened as xarray datasets: small ones loaded, large ones left on the disk."""

import io
import json
import os
import re
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from prerank._reading import require_regular
from prerank.io.errors import DataError

NETCDF = (".nc", ".nc4", ".cdf", ".netcdf", ".h5netcdf")
LARGE = 1 << 28  # bytes of a dataset from which it is read in chunks
_CHUNK = 1 << 26  # bytes of a chunk of a file that has none
_CALENDAR_UNITS = re.compile(r"(month|year)s? since (\d{1,4})(?:-(\d{1,2}))?(?:-\d{1,2})?([ t][\d:.]*)?z?")
_ZARR_METADATA = ("zarr.json", ".zmetadata", ".zgroup", ".zarray")


def is_zarr(path: Path) -> bool:
    """Whether a path means a Zarr store: by its suffix, or a folder that holds the metadata of one."""
    return path.suffix.lower() == ".zarr" or any((path / name).is_file() for name in _ZARR_METADATA[:3])


def opened(path: Path, case: Sequence[str] = ()) -> Any:
    """The dataset of a path. From `LARGE` on its variables are Dask arrays, read when and where they are needed.

    A Zarr store has chunks; a NetCDF file is cut along its cases, dimensions of which are named `case` or as usual.
    """
    try:
        import xarray
    except ImportError:
        raise DataError(f"{path.name} needs xarray; install it with: pip install xarray netCDF4 zarr dask") from None
    zarr = is_zarr(path)
    require_regular(path, DataError)
    if not (path.is_dir() if zarr else path.is_file()):
        raise DataError(f"{path} cannot be read: no such {'store' if zarr else 'file'}")
    if zarr:
        _refuse_pickles(path)
    try:
        with warnings.catch_warnings():  # about parts of the format that others may not read
            warnings.simplefilter("ignore")
            dataset = _decoded(xarray, path, zarr)
            if dataset.nbytes >= LARGE and _dask_is_there():
                return _decoded(xarray, path, zarr, chunks={}) if zarr else _cut(dataset, case)
            with dataset:
                return dataset.load()
    except Exception as error:  # a damaged file makes its parser fail in any way
        kind = "Zarr" if zarr else "NetCDF"
        raise DataError(f"{path} cannot be read as {kind}, it may be damaged: {_reason(error, kind)}") from error


def opened_as_stored(path: Path) -> Any:
    """The dataset of a path with times as the numbers that stand in it, so that they are written as they were."""
    import xarray

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with _plain(xarray, path, is_zarr(path), decode_times=False, decode_timedelta=False) as dataset:
                return dataset.load()
    except Exception as error:  # as above; the file may have changed since it was read
        raise DataError(f"{path} cannot be read again: {_reason(error, 'NetCDF')}") from error


def _decoded(xarray: Any, path: Path, zarr: bool, **options: Any) -> Any:
    """The dataset with dates in the place of numbers, also where they are counted in months or years."""
    try:
        return _plain(xarray, path, zarr, **options)
    except ValueError as error:
        if "decode" not in str(error):
            raise
        dataset = _plain(xarray, path, zarr, decode_times=False, **options)
    for name, variable in dataset.variables.items():
        found = _CALENDAR_UNITS.fullmatch(str(variable.attrs.get("units", "")).strip().lower())
        if found is None:
            continue
        months = np.floor(np.asarray(variable.values, dtype=float) * (1 if found[1] == "month" else 12))
        first = np.datetime64(f"{int(found[2]):04d}-{int(found[3] or 1):02d}", "M")
        attrs = {key: value for key, value in variable.attrs.items() if key not in ("units", "calendar")}
        dates = (first + months.astype(np.int64)).astype("datetime64[ns]")
        dataset = dataset.assign_coords({name: (variable.dims, dates, attrs)})
    return xarray.decode_cf(dataset)


def _plain(xarray: Any, path: Path, zarr: bool, **options: Any) -> Any:
    return xarray.open_dataset(path, engine="zarr", **options) if zarr else _netcdf(xarray, path, **options)


def _netcdf(xarray: Any, path: Path, **options: Any) -> Any:
    with path.open("rb") as file:
        classic = file.read(4) in (b"CDF\1", b"CDF\2")
    if not classic:
        return xarray.open_dataset(path, **options)
    # SciPy reads the classic format; a small file from memory, since it would keep a damaged one mapped
    source: Any = io.BytesIO(path.read_bytes()) if path.stat().st_size < LARGE else path
    return xarray.open_dataset(source, engine="scipy", **options)


def _cut(dataset: Any, case: Sequence[str]) -> Any:
    from prerank.arrays.labels import NAMES as USUAL_NAMES  # torch loads slowly

    largest = max(dataset.data_vars.values(), key=lambda variable: variable.nbytes)
    along = [dim for dim in largest.dims if dim in (case or USUAL_NAMES["case"])] or list(largest.dims)
    each = largest.nbytes // largest.sizes[along[0]]
    return dataset.chunk({along[0]: max(1, _CHUNK // max(1, each))})


def _dask_is_there() -> bool:
    try:
        import dask.array  # noqa: F401
    except ImportError:
        return False
    return True


def _reason(error: Exception, kind: str) -> str:
    text = str(error).strip().partition("\n")[0]
    if any(words in text for words in ("xarray's IO backends", "no match", "unrecognized engine")):
        package = "zarr" if kind == "Zarr" else "netCDF4 or h5netcdf"
        return f"xarray finds no reader for it ({kind} needs the package {package})"
    return text or type(error).__name__


def _refuse_pickles(path: Path) -> None:
    """Refuse a store with an array that would be unpickled when it is read: a pickle can run any program."""
    for file in _files_of(path):
        try:
            found = _codecs(json.loads(file.read_bytes()))
        except (OSError, ValueError, RecursionError) as error:
            raise DataError(f"{path} cannot be read as Zarr, it may be damaged: {file.name}: {error}") from error
        if any(codec.rpartition(".")[2] == "pickle" for codec in found):
            raise DataError(
                f"{path} holds pickled objects ({file.parent.name}), which are never read; store numbers and text"
            )


def _files_of(store: Path) -> Iterator[Path]:
    """The files with metadata of a store, links followed; a store with a pipe or a device among its files is refused."""
    left, seen = [store], set()
    while left:
        folder = left.pop()
        about = folder.stat()
        if (about.st_dev, about.st_ino) in seen:  # a link that leads back
            continue
        seen.add((about.st_dev, about.st_ino))
        for entry in os.scandir(folder):
            if entry.is_dir():
                left.append(Path(entry.path))
                continue
            if not entry.is_file():
                require_regular(entry.path, DataError)
            if entry.name in _ZARR_METADATA:
                yield Path(entry.path)


def _codecs(metadata: Any) -> list[str]:
    """The names of all codecs in the metadata of a store, wherever they stand."""
    if isinstance(metadata, list):
        return [name for item in metadata for name in _codecs(item)]
    if not isinstance(metadata, dict):
        return []
    own = [metadata[key] for key in ("id", "name") if isinstance(metadata.get(key), str)]
    return own + [name for item in metadata.values() for name in _codecs(item)]
