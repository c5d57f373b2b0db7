"""The paper's 18 datasets: what each is, where upstream keeps it, and how its columns are read.

The files lie in two public repositories with the same content; a file's git blob id decides whether it is the
right one, wherever it came from.
"""

from dataclasses import dataclass, field

from prerank.datasets.download import GitBlob
from prerank.io import DataError
from prerank.io.formats import Arff, Csv, Format
from prerank_paper.datasets.selection import LastColumns, NamedColumns, Selection

REPOSITORIES = (
    "Vekteur/latent-recalibration/7087036a55affb8cfc46eee45138023a02626d55/data",
    "Vekteur/multi-output-conformal-regression/3f8638c67fcfadd1878dec4854be7a593965b441/data",
)
"""Repository, commit and folder, in the order they are asked."""

MEPS_AGREEMENT = (
    "the data use agreement of the Medical Expenditure Panel Survey (AHRQ, public-use files): statistical use only, "
    "no attempt to identify anyone; https://meps.ahrq.gov/data_stats/data_use.jsp"
)


@dataclass(frozen=True)
class Copy:
    """A file of a public repository, as `owner/repository/commit/path`, and its blob id."""

    address: str
    blob: GitBlob


@dataclass(frozen=True)
class Dataset:
    """One row of the catalogue. Rows, features and targets are those of the paper, after cleaning.

    Parameters
    ----------
    name : str
        What `load` knows it by.
    n_rows : int
        Number of rows.
    n_features : int
        Number of features L.
    n_targets : int
        Number of targets D.
    path : str
        Where the file is upstream, below the folder of data.
    blob : str
        Git blob id of the file.
    targets : LastColumns or NamedColumns
        Which columns are targets.
    licence : str
        Terms of use.
    summary : str
        What it is about.
    drop : tuple of str, default ()
        Columns that are left out.
    keep : tuple of str, default ()
        The only columns that are read, if any are named.
    alphabetical : bool, default False
        Whether features are sorted by name.
    header : bool, default True
        Whether the first line of a CSV file has names.
    agreement : str, optional
        What a user has to accept.
    n_rows_inferred : bool, default False
        Whether the paper does not give the number of rows.
    other_copies : tuple of Copy, default ()
        Further places of the file.
    """

    name: str
    n_rows: int
    n_features: int
    n_targets: int
    path: str
    blob: str
    targets: LastColumns | NamedColumns
    licence: str
    summary: str
    drop: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    alphabetical: bool = False
    header: bool = True
    agreement: str | None = None
    n_rows_inferred: bool = False
    other_copies: tuple[Copy, ...] = field(default=())

    @property
    def copies(self) -> tuple[Copy, ...]:
        """Every place that may serve the file, best first."""
        usual = tuple(Copy(f"{repository}/{self.path}", GitBlob(self.blob)) for repository in REPOSITORIES)
        return usual + self.other_copies

    @property
    def file_name(self) -> str:
        """The name of the file upstream, without its folder."""
        return self.path.rsplit("/", 1)[-1]

    @property
    def format(self) -> Format:
        """How the file is read."""
        return Arff() if self.path.endswith(".arff") else Csv(header=self.header)

    @property
    def selection(self) -> Selection:
        """Which of its columns are what."""
        return Selection(self.targets, self.drop, self.keep, self.alphabetical)


_SCM20D_ELSEWHERE = Copy(  # the same values, cell by cell, with other bytes
    "Zhendong-Wang/Probabilistic-Conformal-Prediction/e6f505beaf07f208cb496f85ac91fd37482677c6/data/scm20d.arff",
    GitBlob("915d077523f89eab7336bfee8680aeb1d63cd134"),
)

# fmt: off
_MEPS = {"targets": NamedColumns(("K6SUM42", "UTILIZATION_reg")), "alphabetical": True, "agreement": MEPS_AGREEMENT,
         "licence": "MEPS data use agreement"}

PAPER_DATASETS: tuple[Dataset, ...] = (
    #       name          rows     L    D   file under data/           git blob id
    Dataset("households", 7_207,   14,  4,  "camehl/households.csv",   "6e61e6f2a2dc161ffa041f63dbcc44fc651e39ea",
            NamedColumns(("inc", "food", "house", "utili")), "public domain (US BLS)",
            "income and spending of US households", drop=("newid", "inc.a"), alphabetical=True),
    Dataset("air",        10_000,  15,  6,  "cevid/air.csv",           "92637bcebb6d8b574af830b8b854ed9c450306c3",
            LastColumns(6), "public domain (US EPA)", "daily maxima of six air pollutants in the US"),
    Dataset("births1",    10_000,  23,  2,  "cevid/births1.csv",       "eb1b5f3bcbc7bfa9605ce1eb54e2abdd611e095b",
            LastColumns(2), "public domain (US CDC)", "duration of a pregnancy and weight at birth"),
    Dataset("births2",    10_000,  24,  4,  "cevid/births2.csv",       "8ea65af543f523f48af58b0cc4db355e3cc176f8",
            LastColumns(4), "public domain (US CDC)", "weight and health of newborns, three targets discrete"),
    Dataset("wage",       10_000,  78,  2,  "cevid/wage.csv",          "e77b550a314096fab87e9ab8de9726b2aa294dca",
            LastColumns(2), "public domain (US ACS)", "log wage and sex, the second target is 0/1"),
    Dataset("scm20d",     8_966,   60,  16, "mulan/scm20d.arff",       "60026c060b244c596af2e298f39410fe90d89719",
            LastColumns(16), "GPL (Mulan)", "16 product prices, mean over the next 20 days",
            other_copies=(_SCM20D_ELSEWHERE,)),
    Dataset("scm1d",      9_803,   279, 16, "mulan/scm1d.arff",        "949342bac49be5f52c4a3b03068ff7e13b9b8e82",
            LastColumns(16), "GPL (Mulan)", "16 product prices of the next day"),
    Dataset("wq",         1_060,   16,  14, "mulan/wq.arff",           "2dbc3ee32d87a1618721b86a1ef9857516cbb970",
            LastColumns(14), "GPL (Mulan)", "abundance of 14 river species, on a few levels"),
    Dataset("scpf",       1_137,   8,   3,  "mulan/scpf.arff",         "c862c5abeb491add747276a58cb862d4d1b33094",
            LastColumns(3), "GPL (Mulan)", "views, votes and comments on reported street issues"),
    Dataset("meps21",     15_656,  138, 2,  "feldman/meps_21.csv",     "f1665fecd050bf0ade16ecb0a288f49ec00b2046",
            summary="distress score and use of medical care, panel 21", **_MEPS),  # type: ignore[arg-type]
    Dataset("meps19",     15_785,  138, 2,  "feldman/meps_19.csv",     "47af4a556e90ecced6f5ec1193e022c98140be75",
            summary="distress score and use of medical care, panel 19", **_MEPS),  # type: ignore[arg-type]
    Dataset("meps20",     17_541,  138, 2,  "feldman/meps_20.csv",     "289b4ecc8cb74147130c418bfb7fbfbde7f146af",
            summary="distress score and use of medical care, panel 20", **_MEPS),  # type: ignore[arg-type]
    Dataset("house",      21_613,  17,  2,  "feldman/house.csv",       "2abd61d2f7a5c8cbb5f793fa30d52cb8f7a8ecd1",
            NamedColumns(("lat", "price")), "CC BY 4.0", "latitude and price of houses sold in King County",
            alphabetical=True),
    Dataset("bio",        45_730,  8,   2,  "feldman/bio.csv",         "b8c0d364107343affe0247d497b01cecd7f38319",
            NamedColumns(("F7", "F9")), "CC BY 4.0 (UCI)", "properties of protein structures", alphabetical=True),
    Dataset("blogdata",   52_397,  269, 2,  "feldman/blog_data.csv",   "bbc62f7a09551aa4e429523aec2b3d50d4850d9a",
            NamedColumns(("60", "280")), "CC BY 4.0 (UCI)", "length of a blog post and comments it will get",
            header=False),
    Dataset("calcofi",    814_247, 1,   2,  "del_barrio/calcofi.csv",  "27edf224f3684049a7f1171e3508e2e6f7e2a0e7",
            LastColumns(2), "CC BY 4.0 (CalCOFI)", "salinity and temperature of the sea at a depth",
            keep=("Depthm", "Salnty", "T_degC")),
    Dataset("ansur2",     1_986,   1,   2,  "del_barrio/ansur2.csv",   "e18641731cf3aadf3d90a7d7326d8f690c05201d",
            LastColumns(2), "public domain", "foot length and tibial height at a stature"),
    Dataset("taxi",       61_286,  4,   2,  "wang/taxi.csv",           "d32b1b93e4b1322b26a7654f252dd0f619e3f847",
            LastColumns(2), "public domain (NYC TLC)", "where a taxi trip ends", n_rows_inferred=True),
)
# fmt: on

_BY_NAME = {dataset.name: dataset for dataset in PAPER_DATASETS}


def dataset(name: str) -> Dataset:
    """The catalogue's row of a name.

    Parameters
    ----------
    name : str
        Name of one of the paper's datasets.

    Returns
    -------
    Dataset
        What it is and where it comes from.

    Raises
    ------
    DataError
        If the paper has no such dataset.

    Examples
    --------
    >>> dataset("wq").n_targets
    14
    """
    try:
        return _BY_NAME[name]
    except KeyError:
        raise DataError(f"The paper has no dataset {name!r}; its datasets are {', '.join(_BY_NAME)}.") from None
