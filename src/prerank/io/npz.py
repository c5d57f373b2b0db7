"""Forecasts and observations as arrays of NPZ files."""

import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from prerank._reading import require_regular
from prerank.io.errors import DataError, by_option
from prerank.io.long_form import Matched, require_real
from prerank.io.memory import refuse_beyond_memory

_ROLES = ("case", "member", "target")


def read_npz(
    forecasts: Path,
    observations: Path | None = None,
    *,
    value: str = "members",
    observation: str = "observations",
    axes: Sequence[str] | None = None,
    keep: Sequence[str] = (),
    need_observations: bool = True,
) -> Matched:
    """Members (case, member, target) and observations (case, target), matched by position; without target for a single one.

    `axes` says what the axes of the members are where they stand in another order. An array `targets` of the forecasts'
    file names the targets. `keep` names arrays with one value per case. With `need_observations=False`
    observations that are not there are NaN.
    """
    own = _arrays(forecasts)
    other = own if observations is None else _arrays(observations)
    members = require_real(_array(own, value, forecasts, "value"), f"the array {value!r}")
    if need_observations or observations is not None or observation in other:
        y = require_real(
            _array(other, observation, observations or forecasts, "observation"),
            f"the array {observation!r}",
        )
    else:
        y = _unknown(members, axes)
    if y.ndim == 1 and members.ndim == 2 and axes is None:
        y, members = y[:, None], members[..., None]
    members = _in_order(members, y, axes)
    names = own.get("targets")
    if names is not None and names.shape != y.shape[1:]:
        raise DataError(f"the array 'targets' has shape {names.shape}; one name per target is {y.shape[1:]}")
    targets = None if names is None else pd.Index(names)
    found = [(name, _array(own if name in own else other, name, forecasts)) for name in keep]
    for name, labels in found:
        if labels.shape != (len(y),):
            raise DataError(f"the array {name!r} has shape {labels.shape}; one value per case is ({len(y)},)")
    return Matched(pd.DataFrame(y, columns=targets), members, pd.DataFrame(dict(found), index=range(len(y))))


def _unknown(members: np.ndarray, axes: Sequence[str] | None) -> np.ndarray:
    """NaN in the shape of the observations of these members, whose own shape is looked at later."""
    order = list(axes) if axes is not None and len(axes) == members.ndim else list(_ROLES[: members.ndim])
    return np.full([members.shape[place] for place, role in enumerate(order) if role != "member"], np.nan)


def _in_order(members: np.ndarray, y: np.ndarray, axes: Sequence[str] | None) -> np.ndarray:
    if y.ndim != 2 or members.ndim != 3:
        raise DataError(
            f"observations have shape {y.shape} and members {members.shape}; "
            "give (cases, targets) and (cases, members, targets)"
        )
    if axes is None:
        from prerank.arrays import as_observations
        from prerank.inputs import as_ensemble  # torch loads slowly

        as_ensemble(members, as_observations(y))  # refuses a shape that fits in no way, or in two
        return members
    if sorted(axes) != sorted(_ROLES):
        raise DataError(
            f"axes {','.join(axes)}: name each of {', '.join(_ROLES)} once, in the order of the array's axes"
        )
    return members.transpose([list(axes).index(role) for role in _ROLES])


def _arrays(path: Path) -> dict[str, np.ndarray]:
    require_regular(path, DataError)
    try:
        with path.open("rb") as stream:
            file = np.load(stream, allow_pickle=False)
            if isinstance(file, np.ndarray):
                raise DataError(f"{path} holds one array without a name; save members and observations with np.savez")
            refuse_beyond_memory(path, sum(part.file_size for part in file.zip.infolist()))
            return {name: _numbers(file[name], name, path) for name in file.files}
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error
    except MemoryError:
        raise DataError(
            f"{path} cannot be read: its arrays need more memory than there is; give a Zarr store"
        ) from None
    except (
        ValueError,
        EOFError,
        KeyError,
        zipfile.BadZipFile,
        zlib.error,
        NotImplementedError,
        RecursionError,
    ) as error:
        if isinstance(error, DataError):
            raise
        why = str(error)[:200] or "it ends early"
        raise DataError(f"{path} cannot be read as NPZ, it may be damaged: {why}; save it again") from error


def _numbers(found: object, name: str, path: Path) -> np.ndarray:
    if not isinstance(found, np.ndarray):  # bytes of a member that is no NPY file
        raise DataError(f"{path} holds {name!r}, which is no array; save arrays alone, with np.savez")
    return found


def _array(arrays: dict[str, np.ndarray], name: str, path: Path, option: str | None = None) -> np.ndarray:
    if name not in arrays:
        there = ", ".join(repr(known) for known in list(arrays)[:12]) or "none at all"
        advice = "name one of them" if option is None else f"name one {by_option(option)}"
        raise DataError(f"{path} has no array {name!r}, only {there}; {advice}")
    return arrays[name]
