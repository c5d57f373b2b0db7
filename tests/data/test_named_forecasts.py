"""Real forecasts by name: from a folder, the cache or a server, verified each time; nothing is fetched from elsewhere."""

import hashlib
import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from prerank.datasets import load_forecast, named_forecasts
from prerank.datasets.download import Policy, Upstream
from prerank.datasets.named_forecasts import NAMED_FORECASTS, Numbers
from prerank.io import DataError, DownloadError, IntegrityError
from web_server import Server, serve

REAL = Path(os.environ.get("PRERANK_REAL", "")) / "files"
HAS_REAL = pytest.mark.skipif(not REAL.is_dir(), reason="PRERANK_REAL names no folder with files")


def prices(y: np.ndarray, members: np.ndarray) -> pd.DataFrame:
    """A table as upstream's: an hour in each row, a column for each model, and means, which are no members."""
    names = ["DNN 1", "DNN 2", "DNN 3", "DNN 4", "LEAR 56", "LEAR 84", "LEAR 1092", "LEAR 1456"]
    hours = pd.date_range("2016-01-04", periods=y.size, freq="h")
    table = pd.DataFrame(members.transpose(0, 2, 1).reshape(-1, 8), hours, names)
    return table.assign(**{"DNN Ensemble": 0.0, "LEAR Ensemble": 0.0, "Real price": y.ravel()})


@pytest.fixture
def small(monkeypatch, tmp_path):
    """`prices_de` with ten days of other numbers, and where its file would come from."""
    monkeypatch.setenv("PRERANK_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("PRERANK_DATA", raising=False)
    rng = np.random.default_rng(0)
    y, members = rng.normal(size=(10, 24)), rng.normal(size=(10, 8, 24))
    known = NAMED_FORECASTS["prices_de"]
    digest = Numbers(hashlib.sha256(y.tobytes() + members.tobytes()).hexdigest(), known.naming)
    file = replace(known.files[0], digest=digest)
    monkeypatch.setattr(
        named_forecasts, "NAMED_FORECASTS", {**NAMED_FORECASTS, "prices_de": replace(known, files=(file,))}
    )
    return file, y, members


def asked(server: Server) -> Upstream:
    policy = Policy(timeout_s=2.0, attempts=1, backoff_s=0.01, schemes=frozenset({"http"}))
    return Upstream(server.base, policy)


def test_a_forecast_is_fetched_once_verified_and_read_in_upstreams_layout(server: Server, small) -> None:
    file, y, members = small
    server.url(f"/{file.address}", serve(prices(y, members).to_csv().encode()))
    for _ in range(2):
        found = load_forecast("prices_de", upstream=asked(server))
        np.testing.assert_array_equal(found.y.to_numpy(), y)
        np.testing.assert_array_equal(found.members, members)
    assert server.asked[f"/{file.address}"] == 1
    assert any("Apache-2.0" in note and "Lago" in note for note in found.notes)
    np.testing.assert_array_equal(load_forecast("prices_de", download=False).y.to_numpy(), y)


def test_other_numbers_are_refused_and_not_kept(server: Server, small, tmp_path) -> None:
    file, y, members = small
    for body in (prices(y + 1e-9, members).to_csv().encode(), b"no table"):
        server.url(f"/{file.address}", serve(body))
        with pytest.raises(IntegrityError, match=r"served another file than expected.*set PRERANK_DATA"):
            load_forecast("prices_de", upstream=asked(server))
        assert not any((tmp_path / "cache").rglob("*.csv"))
    server.answers.clear()
    with pytest.raises(DownloadError, match="404"):
        load_forecast("prices_de", upstream=asked(server))
    with pytest.raises(DataError, match="neither in PRERANK_DATA nor in the cache"):
        load_forecast("prices_de", download=False)


def test_a_local_folder_comes_first_and_is_verified(small, tmp_path, monkeypatch) -> None:
    file, y, members = small
    monkeypatch.setenv("PRERANK_DATA", str(tmp_path))
    (tmp_path / "forecasts").mkdir()
    prices(y, members).to_csv(tmp_path / "forecasts" / file.name)
    np.testing.assert_array_equal(load_forecast("prices_de", download=False).members, members)
    prices(y, members[::-1]).to_csv(tmp_path / file.name)
    with pytest.raises(IntegrityError, match="is not the expected file"):
        load_forecast("prices_de", download=False)


@pytest.mark.parametrize("name", sorted(NAMED_FORECASTS))
def test_every_address_names_a_commit_and_a_licence(name: str) -> None:
    known = NAMED_FORECASTS[name]
    for file in known.files:
        owner, repository, commit, *path = file.address.split("/")
        assert owner
        assert repository
        assert path
        assert len(bytes.fromhex(commit)) == 20
        assert len(bytes.fromhex(file.digest.expected)) == 32
    assert known.licence
    assert known.reference


@HAS_REAL
@pytest.mark.parametrize(("name", "shape"), [("mjo", (510, 4, 45)), ("sst", (52, 10, 10))])
def test_published_hindcasts_are_the_expected_files(name: str, shape: tuple[int, ...], monkeypatch) -> None:
    monkeypatch.setenv("PRERANK_DATA", str(REAL / "netcdf"))
    found = load_forecast(name, download=False)
    assert found.members.shape[1:] == shape[1:]
    assert int(found.y.notna().all(axis=1).sum()) == shape[0]


@HAS_REAL
@pytest.mark.slow
@pytest.mark.parametrize("name", ["prices_de", "prices_np"])
def test_digests_are_those_of_the_published_prices(name: str, tmp_path, monkeypatch) -> None:
    arrays = REAL.parent / f"{name}.npz"
    if not arrays.is_file():
        pytest.skip(f"PRERANK_REAL has no {arrays.name}")
    with np.load(arrays) as kept:
        table = prices(kept["obs"], kept["ensemble"])
    table.to_csv(tmp_path / NAMED_FORECASTS[name].files[0].name)
    monkeypatch.setenv("PRERANK_DATA", str(tmp_path))
    assert load_forecast(name, download=False).members.shape == (728, 8, 24)


def test_the_cache_is_a_folder_that_may_be_removed(small, server, tmp_path) -> None:
    file, y, members = small
    server.url(f"/{file.address}", serve(prices(y, members).to_csv().encode()))
    for _ in range(2):
        load_forecast("prices_de", upstream=asked(server))
        shutil.rmtree(tmp_path / "cache")
    assert server.asked[f"/{file.address}"] == 2
