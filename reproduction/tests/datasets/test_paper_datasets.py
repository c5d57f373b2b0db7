"""The paper's datasets come out as the manifest says, from raw files and from cleaned ones alike."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from prerank.datasets.download import verify
from prerank.io import IntegrityError
from prerank_paper.datasets import dataset, load, split
from prerank_paper.datasets.catalogue import PAPER_DATASETS
from prerank_paper.datasets.loading import read_raw
from prerank_paper.datasets.mirror import raw_file
from prerank_paper.datasets.splitting import PAPER_SPLIT

RAW = ("households", "air", "births1", "births2", "wage", "wq", "scpf", "house", "bio", "ansur2")
CLEANED = (*RAW, "scm20d", "meps21", "blogdata", "calcofi", "taxi")
SPLIT_NAMES = ("train", "val", "calib", "test")


@pytest.fixture(scope="module")
def manifest(real_data: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((real_data / "manifest.json").read_text())
    return loaded


def test_the_catalogue_has_eighteen_datasets_with_names_and_blobs_of_their_own() -> None:
    assert len(PAPER_DATASETS) == 18
    for field in ("name", "blob", "path"):
        assert len({getattr(entry, field) for entry in PAPER_DATASETS}) == 18
    assert all(len(entry.blob) == 40 and int(entry.blob, 16) for entry in PAPER_DATASETS)


def test_calcofi_in_the_papers_size_has_406440_training_rows() -> None:
    assert PAPER_SPLIT.sizes(dataset("calcofi").n_rows) == (406_440, 162_166, 2_048, 243_593)
    assert PAPER_SPLIT.sizes(dataset("wq").n_rows).train == 424


@pytest.mark.parametrize("name", RAW)
def test_raw_files_clean_to_the_cleaned_files(name: str, real_data: Path) -> None:
    chosen = dataset(name)
    raw = raw_file(real_data, chosen)
    assert raw is not None
    verify(raw, chosen.copies[0].blob)
    cleaned = read_raw(raw, chosen)
    expected = pq.read_table(real_data / f"{name}.parquet")
    found = [f"x:{column}" for column in cleaned.features.column_names]
    found += [f"y:{column}" for column in cleaned.targets.column_names]
    assert found == expected.column_names
    for table, prefix in ((cleaned.features, "x:"), (cleaned.targets, "y:")):
        for column in table.column_names:
            np.testing.assert_array_equal(table[column].to_numpy(), expected[prefix + column].to_numpy(), strict=False)


@pytest.mark.parametrize("name", CLEANED)
def test_sizes_are_those_of_the_manifest(
    name: str, real_data: Path, manifest: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRERANK_DATA", str(real_data))
    entry = manifest["datasets"][name]
    table = load(name, accept_licence=True, download=False)
    assert (table.n_cases, table.n_features, table.n_targets) == tuple(
        entry[key] for key in ("n_rows", "n_features", "n_targets")
    )
    assert list(table.y_names) == entry["targets"]
    assert table.x.dtype == table.y.dtype == np.float32
    assert split(table, seed=0).sizes == tuple(entry["split_sizes"][part] for part in SPLIT_NAMES)
    assert table.card.status == entry["status"]


def test_sizes_in_the_catalogue_are_those_of_the_paper(manifest: dict[str, Any]) -> None:
    for chosen in PAPER_DATASETS:
        known = manifest["datasets"].get(chosen.name)
        paper = known or manifest["missing"][chosen.name]["expected"]
        rows, sizes = (
            (known["n_rows_in_paper"], known["split_sizes_in_paper"])
            if known
            else (paper["n_rows"], paper["split_sizes"])
        )
        assert (chosen.n_rows, chosen.n_features, chosen.n_targets) == (rows, paper["n_features"], paper["n_targets"])
        assert PAPER_SPLIT.sizes(chosen.n_rows) == tuple(sizes[part] for part in SPLIT_NAMES)


@pytest.mark.parametrize(("name", "word"), [("taxi", "substitute"), ("calcofi", "reconstructed"), ("meps21", "rec")])
def test_cards_say_where_rows_are_not_the_papers(
    name: str, word: str, real_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRERANK_DATA", str(real_data))
    card = load(name, accept_licence=True, download=False).card
    assert card.status.startswith(word)
    assert not card.is_exact
    assert card.rows_in_paper == dataset(name).n_rows


def test_raw_files_alone_load_too(real_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRERANK_DATA", str(real_data))
    from_cleaned = load("wq")
    monkeypatch.setenv("PRERANK_DATA", str(real_data / "raw"))
    from_raw = load("wq")
    assert from_raw.card.origin == "PRERANK_DATA, upstream's file"
    assert from_raw.card.notes == ()
    np.testing.assert_array_equal(from_raw.x, from_cleaned.x)
    np.testing.assert_array_equal(from_raw.y, from_cleaned.y)


def test_a_cleaned_file_that_differs_from_its_manifest_is_refused(
    real_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "manifest.json").write_text((real_data / "manifest.json").read_text())
    (tmp_path / "wq.parquet").write_bytes((real_data / "wq.parquet").read_bytes()[:-1] + b"!")
    monkeypatch.setenv("PRERANK_DATA", str(tmp_path))
    with pytest.raises(IntegrityError, match="Sha256"):
        load("wq", download=False)


def test_the_page_lists_every_dataset_with_its_sizes_and_whether_it_was_run() -> None:
    root = Path(__file__).parents[3]
    rows = re.findall(
        r"^\| (\w+) \| (?:about )?([\d,]+) \| (\d+) \| (\d+) \| (.+) \|$", (root / "docs/datasets.md").read_text(), re.M
    )
    listed = {name: tuple(int(value.replace(",", "")) for value in sizes) for name, *sizes, _ in rows}
    assert listed == {item.name: (item.n_rows, item.n_features, item.n_targets) for item in PAPER_DATASETS}
    run = set(pq.read_table(root / "results/benchmark/records.parquet", columns=["dataset"])["dataset"].to_pylist())
    assert {name for name, *_, what in rows if not what.startswith("not run")} == run
