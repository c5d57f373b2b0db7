"""Data: the paper's datasets by name, your own files, and tables whose true law is known.

>>> table = load("bimodal")
>>> parts = split(table, seed=0)
>>> parts.train.x.shape, parts.test.y.shape
((800, 2), (400, 2))
"""

from prerank_paper.datasets.builtin import Diabetes
from prerank_paper.datasets.catalogue import Dataset, dataset
from prerank_paper.datasets.loading import fetch, load, load_file
from prerank_paper.datasets.splitting import Part, Split, SplitProtocol, split
from prerank.datasets.standardise import Standardiser
from prerank.datasets.synthetic import Bimodal, ClaytonDependent, Heteroscedastic
from prerank.datasets.table import Card, Table

__all__ = [
    "Bimodal",
    "Card",
    "ClaytonDependent",
    "Dataset",
    "Diabetes",
    "Heteroscedastic",
    "Part",
    "Split",
    "SplitProtocol",
    "Standardiser",
    "Table",
    "dataset",
    "fetch",
    "load",
    "load_file",
    "split",
]
