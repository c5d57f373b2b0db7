"""How large a dataset is, known before it is loaded."""

from typing import NamedTuple

from prerank.io import DataError
from prerank_paper.datasets import dataset
from prerank_paper.datasets.builtin import BUILTIN
from prerank_paper.datasets.catalogue import PAPER_DATASETS
from prerank_paper.datasets.loading import extra_datasets


class DatasetSize(NamedTuple):
    """Rows and targets of a dataset."""

    n_rows: int
    n_targets: int


def dataset_size(name: str) -> DatasetSize:
    """How large a dataset is, without loading it if the catalogue knows."""
    if name in BUILTIN:
        table = BUILTIN[name].table()
        return DatasetSize(table.n_cases, table.n_targets)
    for entry in extra_datasets():
        if entry.name == name:
            return DatasetSize(entry.n_rows, entry.n_targets)
    try:
        known = dataset(name)
    except DataError:
        names = ", ".join([entry.name for entry in PAPER_DATASETS] + list(BUILTIN))
        raise DataError(f"There is no dataset {name!r}. Known are {names}.") from None
    return DatasetSize(known.n_rows, known.n_targets)
