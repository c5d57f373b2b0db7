"""Forecasts, observations and tables from files, and back."""

from typing import TYPE_CHECKING

from prerank._lazy import public_names

if TYPE_CHECKING:
    from prerank.io.errors import DataError, DownloadError, IntegrityError, StorageError
    from prerank.io.hub import Quantiles, read_hub, read_hub_quantiles
    from prerank.io.long_form import Matched, from_long
    from prerank.io.quantile_tables import read_quantiles
    from prerank.io.read import Naming, read_forecasts
    from prerank.io.write import write_forecasts

_HOMES = {
    "DataError": "errors",
    "DownloadError": "errors",
    "IntegrityError": "errors",
    "Matched": "long_form",
    "Naming": "read",
    "Quantiles": "hub",
    "StorageError": "errors",
    "from_long": "long_form",
    "read_forecasts": "read",
    "read_hub": "hub",
    "read_hub_quantiles": "hub",
    "read_quantiles": "quantile_tables",
    "write_forecasts": "write",
}
__all__ = list(_HOMES)
__getattr__, __dir__ = public_names("prerank.io", _HOMES)
