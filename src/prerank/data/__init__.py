"""Data: the paper's datasets by name, your own files, and tables whose true law is known.

>>> table = load("bimodal")
>>> parts = split(table, seed=0)
>>> parts.train.x.shape, parts.test.y.shape
((800, 2), (400, 2))
"""

from prerank.data.builtin import BUILTIN, Diabetes
from prerank.data.catalogue import PAPER_DATASETS, Dataset, dataset
from prerank.data.clayton import ClaytonExponential
from prerank.data.download import Policy
from prerank.data.errors import (
    DataError,
    DownloadError,
    IntegrityError,
    LicenceError,
    NotLocalError,
    StorageError,
)
from prerank.data.forecastoutput import require_output, write_forecasts
from prerank.data.forecasts import Naming, read_forecasts
from prerank.data.formats import Arff, Csv, Feather, Parquet
from prerank.data.labelorder import coded_labels, n_before
from prerank.data.loading import extra_datasets, fetch, load, load_file
from prerank.data.lock import locked
from prerank.data.longform import Matched, from_long
from prerank.data.mirror import MirrorEntry
from prerank.data.pairs import PairCounts, pair_counts
from prerank.data.sources import (
    GITHUB,
    Cached,
    CleanedHere,
    Elsewhere,
    Location,
    RawHere,
    Upstream,
    cache_folder,
    locate,
)
from prerank.data.splitting import (
    PAPER_SEEDS,
    PAPER_SPLIT,
    Part,
    Sizes,
    Split,
    SplitProtocol,
    keyed_order,
    published_order,
    split,
)
from prerank.data.standardise import Standardiser
from prerank.data.synthetic import Bimodal, ClaytonDependent, Heteroscedastic
from prerank.data.table import Card, Table
from prerank.data.variation import require_variation

__all__ = [
    "BUILTIN",
    "GITHUB",
    "PAPER_DATASETS",
    "PAPER_SEEDS",
    "PAPER_SPLIT",
    "Arff",
    "Bimodal",
    "Cached",
    "Card",
    "ClaytonDependent",
    "ClaytonExponential",
    "CleanedHere",
    "Csv",
    "DataError",
    "Dataset",
    "Diabetes",
    "DownloadError",
    "Elsewhere",
    "Feather",
    "Heteroscedastic",
    "IntegrityError",
    "LicenceError",
    "Location",
    "Matched",
    "MirrorEntry",
    "Naming",
    "NotLocalError",
    "PairCounts",
    "Parquet",
    "Part",
    "Policy",
    "RawHere",
    "Sizes",
    "Split",
    "SplitProtocol",
    "Standardiser",
    "StorageError",
    "Table",
    "Upstream",
    "cache_folder",
    "coded_labels",
    "dataset",
    "extra_datasets",
    "fetch",
    "from_long",
    "keyed_order",
    "load",
    "load_file",
    "locate",
    "locked",
    "n_before",
    "pair_counts",
    "published_order",
    "read_forecasts",
    "require_output",
    "require_variation",
    "split",
    "write_forecasts",
]
