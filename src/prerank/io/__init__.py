"""Forecasts, observations and tables from files, and back."""

from prerank.io.errors import DataError, DownloadError, IntegrityError, StorageError
from prerank.io.hub import Quantiles, read_hub, read_hub_quantiles
from prerank.io.long_form import Matched, from_long
from prerank.io.quantile_tables import read_quantiles
from prerank.io.read import Naming, read_forecasts
from prerank.io.write import write_forecasts

__all__ = [
    "DataError",
    "DownloadError",
    "IntegrityError",
    "Matched",
    "Naming",
    "Quantiles",
    "StorageError",
    "from_long",
    "read_forecasts",
    "read_hub",
    "read_hub_quantiles",
    "read_quantiles",
    "write_forecasts",
]
