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
from prerank.data.formats import Arff, Csv, Feather, Parquet
from prerank.data.loading import fetch, load, load_file
from prerank.data.pairs import PairCounts, pair_counts
from prerank.data.sources import GITHUB, Upstream
from prerank.data.split import (
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
    "Card",
    "ClaytonDependent",
    "ClaytonExponential",
    "Csv",
    "DataError",
    "Dataset",
    "Diabetes",
    "DownloadError",
    "Feather",
    "Heteroscedastic",
    "IntegrityError",
    "LicenceError",
    "NotLocalError",
    "PairCounts",
    "Parquet",
    "Part",
    "Policy",
    "Sizes",
    "Split",
    "SplitProtocol",
    "Standardiser",
    "StorageError",
    "Table",
    "Upstream",
    "dataset",
    "fetch",
    "keyed_order",
    "load",
    "load_file",
    "pair_counts",
    "published_order",
    "require_variation",
    "split",
]
