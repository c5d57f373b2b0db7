"""`load` looks in PRERANK_DATA, then in the cache, then upstream, and uses nothing it has not verified."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from prerank.datasets.download import GitBlob, Policy, cache_folder
from prerank.io import DataError, DownloadError, IntegrityError
from prerank_paper.datasets import LicenceError, NotLocalError, catalogue, fetch, load
from prerank_paper.datasets.builtin import BUILTIN
from prerank_paper.datasets.catalogue import Copy
from prerank_paper.datasets.sources import Upstream
from web_server import Server, serve

CSV = b"stature,foot,tibia\n" + b"".join(b"%d,%d,%d\n" % (1500 + i, 240 + i % 30, 400 + i * 7 % 50) for i in range(60))
POLICY = Policy(timeout_s=2.0, attempts=2, backoff_s=0.01, schemes=frozenset({"http"}))


def blob(body: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(body) + body).hexdigest()


@pytest.fixture(autouse=True)
def small_ansur2(monkeypatch: pytest.MonkeyPatch) -> catalogue.Dataset:
    """The catalogue's ansur2, pointed at a small file of the same make."""
    small = replace(catalogue.dataset("ansur2"), blob=blob(CSV), n_rows=60)
    monkeypatch.setitem(catalogue._BY_NAME, "ansur2", small)
    return small


@pytest.fixture
def upstream(server: Server) -> Upstream:
    return Upstream(server.base, POLICY)


def path_of(dataset: catalogue.Dataset, repository: int = 0) -> str:
    return "/" + dataset.copies[repository].address


def test_upstream_then_cache(server: Server, upstream: Upstream, small_ansur2: catalogue.Dataset) -> None:
    server.answers[path_of(small_ansur2)] = serve(CSV)
    table = load("ansur2", upstream=upstream)
    assert (table.n_cases, table.x_names, table.y_names) == (60, ("stature",), ("foot", "tibia"))
    assert table.card.origin == "upstream, now in the cache"
    again = load("ansur2", upstream=upstream)
    assert again.card.origin == "cache"
    assert sum(server.asked.values()) == 1
    np.testing.assert_array_equal(table.y, again.y)
    assert load("ansur2", download=False).card.origin == "cache"


def test_the_second_repository_serves_when_the_first_is_gone(
    server: Server, upstream: Upstream, small_ansur2: catalogue.Dataset
) -> None:
    server.answers[path_of(small_ansur2, 1)] = serve(CSV)
    assert fetch("ansur2", upstream=upstream).read_bytes() == CSV


def test_another_copy_with_its_own_blob_id_serves_last(
    server: Server, upstream: Upstream, small_ansur2: catalogue.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = CSV.replace(b"\n", b"\r\n")
    copied = replace(small_ansur2, other_copies=(Copy("else/where", GitBlob(blob(other))),))
    monkeypatch.setitem(catalogue._BY_NAME, "ansur2", copied)
    server.answers["/else/where"] = serve(other)
    assert load("ansur2", upstream=upstream).n_cases == 60
    assert load("ansur2", download=False).card.origin == "cache"


def test_a_rotten_cache_is_removed_and_fetched_again(
    server: Server, upstream: Upstream, small_ansur2: catalogue.Dataset
) -> None:
    server.answers[path_of(small_ansur2)] = serve(CSV)
    path = fetch("ansur2", upstream=upstream)
    path.write_bytes(CSV + b"1,2,3\n")
    assert load("ansur2", upstream=upstream).n_cases == 60
    path.write_bytes(CSV + b"1,2,3\n")
    assert fetch("ansur2", upstream=upstream).read_bytes() == CSV
    path.write_bytes(CSV + b"1,2,3\n")
    with pytest.raises(NotLocalError, match="prerank-paper datasets fetch ansur2"):
        load("ansur2", download=False)
    assert not path.exists()


def test_a_wrong_file_upstream_is_never_used(
    server: Server, upstream: Upstream, small_ansur2: catalogue.Dataset
) -> None:
    for repository in (0, 1):
        server.answers[path_of(small_ansur2, repository)] = serve(CSV + b"1,2,3\n")
    with pytest.raises(IntegrityError, match=r"put ansur2\.csv in a folder and set PRERANK_DATA"):
        load("ansur2", upstream=upstream)
    assert list((cache_folder() / "datasets").iterdir()) == []


def test_a_missing_file_upstream_says_what_to_do(upstream: Upstream) -> None:
    with pytest.raises(DownloadError, match=r"'ansur2' could not be downloaded.*HTTP 404.*set PRERANK_DATA"):
        load("ansur2", upstream=upstream)


def test_the_data_folder_comes_first_and_is_verified_but_never_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "raw").mkdir()
    raw = tmp_path / "raw" / "ansur2.csv"
    raw.write_bytes(CSV)
    monkeypatch.setenv("PRERANK_DATA", str(tmp_path))
    assert load("ansur2", download=False).card.origin == "PRERANK_DATA, upstream's file"
    raw.write_bytes(CSV + b"1,2,3\n")
    with pytest.raises(IntegrityError, match="GitBlob"):
        load("ansur2", download=False)
    assert raw.exists()


def manifest(folder: Path, **changes: object) -> None:
    table = pa.table({"x:a": range(30), "y:u": [i / 3 for i in range(30)], "y:v": range(30)})
    pq.write_table(table, folder / "ansur2.parquet")
    digest = hashlib.sha256((folder / "ansur2.parquet").read_bytes()).hexdigest()
    entry = {"file": "ansur2.parquet", "sha256": digest, "n_rows": 30, "n_features": 1, "n_targets": 2}
    names = {"ansur2": {**entry, "status": "substitute", **changes}, "more": entry}
    (folder / "manifest.json").write_text(json.dumps({"datasets": names}))


def test_a_manifest_describes_cleaned_files_and_extras(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest(tmp_path)
    monkeypatch.setenv("PRERANK_DATA", str(tmp_path))
    table = load("ansur2", download=False)
    assert (table.n_cases, table.y_names, table.card.status) == (30, ("u", "v"), "substitute")
    assert load("more").n_cases == 30


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_rows": 31}, r"\(30, 1, 2\); its manifest says \(31, 1, 2\)"),
        ({"sha256": "0" * 64}, "is not the expected file"),
        ({"file": "../ansur2.parquet"}, "not the name of a file in the same folder"),
        ({"n_rows": "many"}, "is not a manifest of datasets"),
    ],
)
def test_a_manifest_that_does_not_fit_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, object], message: str
) -> None:
    manifest(tmp_path, **changes)
    monkeypatch.setenv("PRERANK_DATA", str(tmp_path))
    with pytest.raises(DataError, match=message):
        load("ansur2", download=False)


def test_a_data_folder_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRERANK_DATA", str(tmp_path / "none"))
    with pytest.raises(DataError, match="which is not a folder"):
        load("ansur2")


@pytest.mark.parametrize("name", ["meps19", "meps20", "meps21"])
def test_meps_asks_for_its_agreement_before_anything_is_asked_of_the_net(
    name: str, server: Server, upstream: Upstream
) -> None:
    for call in (load, fetch):
        with pytest.raises(LicenceError, match=r"Medical Expenditure.*accept_licence=True.*--accept-licence"):
            call(name, upstream=upstream)  # type: ignore[operator]
    assert not server.asked
    with pytest.raises(DownloadError):
        fetch(name, accept_licence=True, upstream=upstream)
    assert server.asked


def test_names_that_are_unknown_or_built_in() -> None:
    with pytest.raises(DataError, match=r"no dataset 'nope'.*households.*bimodal"):
        load("nope")
    with pytest.raises(DataError, match="built in"):
        fetch("diabetes")


@pytest.mark.parametrize("name", list(BUILTIN))
def test_built_in_tables_need_nothing(name: str) -> None:
    table = load(name, download=False)
    assert table.x.dtype == np.float32
    assert np.isfinite(table.x).all()
    assert np.isfinite(table.y).all()
    np.testing.assert_array_equal(table.y, load(name).y)


def test_the_cache_folder_follows_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache_folder() == tmp_path / "cache"
    monkeypatch.delenv("PRERANK_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "prerank"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    for platform, expected in (("darwin", "Library/Caches/prerank"), ("linux", ".cache/prerank")):
        monkeypatch.setattr("sys.platform", platform)
        assert cache_folder() == tmp_path / expected
