"""The paper's datasets by name, and your own files: cleaned, and split as in the paper.

>>> table = load("bimodal")
>>> parts = split(table, seed=0)
>>> parts.train.x.shape, parts.test.y.shape
((800, 2), (400, 2))
"""

from prerank_paper.datasets.builtin import Diabetes
from prerank_paper.datasets.catalogue import Dataset, dataset
from prerank_paper.datasets.errors import LicenceError, NotLocalError
from prerank_paper.datasets.loading import fetch, load, load_file
from prerank_paper.datasets.splitting import Part, Split, SplitProtocol, split

__all__ = [
    "Dataset",
    "Diabetes",
    "LicenceError",
    "NotLocalError",
    "Part",
    "Split",
    "SplitProtocol",
    "dataset",
    "fetch",
    "load",
    "load_file",
    "split",
]
