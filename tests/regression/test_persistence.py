"""A saved model comes back to the last bit; anything else is refused."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import save_file
from sklearn.exceptions import NotFittedError

from prerank import HDR, PCA, Contrast, Copula, Custom, Dependency, Location, Marginal, Scale
from prerank import _serialization as saving
from prerank.preranks import SquaredDifference
from prerank.regression import MixtureRegressor, persistence

Table = tuple[np.ndarray, np.ndarray]
Small = Callable[..., MixtureRegressor]


@pytest.fixture(scope="module")
def fitted(table: Table, small: Small) -> MixtureRegressor:
    names = pd.DataFrame(table[0], columns=["north", "süd"])
    return small(preranks=[PCA(n_components=1), Location()], strengths=(0, 1.0)).fit(names, table[1])


@pytest.fixture
def file(fitted: MixtureRegressor, tmp_path: Path) -> Path:
    fitted.save(tmp_path / "model.safetensors")
    return tmp_path / "model.safetensors"


def test_everything_comes_back(fitted: MixtureRegressor, file: Path, table: Table) -> None:
    loaded = MixtureRegressor.load(file)
    assert loaded.get_params() == fitted.get_params()
    assert set(vars(loaded)) == set(vars(fitted))
    x = pd.DataFrame(table[0], columns=["north", "süd"])
    assert (loaded.predict(x) == fitted.predict(x)).all()
    assert (loaded.sample(x, 20) == fitted.sample(x, 20)).all()
    assert loaded.score(x, table[1]) == fitted.score(x, table[1])
    assert loaded.architecture_ == fitted.architecture_
    assert (loaded.strength_, loaded.seed_, loaded.best_epoch_) == (fitted.strength_, fitted.seed_, fitted.best_epoch_)
    pd.testing.assert_frame_equal(loaded.tuning_, fitted.tuning_)
    assert list(loaded.feature_names_in_) == ["north", "süd"]


def test_saving_what_was_loaded_gives_the_same_bytes(file: Path, tmp_path: Path) -> None:
    MixtureRegressor.load(file).save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == file.read_bytes()


def test_a_model_of_one_flat_target_comes_back_flat(table: Table, small: Small, tmp_path: Path) -> None:
    model = small(random_state=np.random.RandomState(3)).fit(table[0], table[1][:, 0])
    model.save(tmp_path / "folder" / "flat")
    loaded = MixtureRegressor.load(tmp_path / "folder" / "flat")
    assert (loaded.predict(table[0]) == model.predict(table[0])).all()
    assert loaded.predict(table[0]).shape == (300,)
    assert loaded.random_state == model.seed_
    assert loaded.tuning_ is None


@pytest.mark.parametrize(
    "value",
    [
        Marginal(),
        Location(name="mine"),
        Scale(),
        Dependency(lag=2),
        PCA(3, attached=True),
        HDR(),
        Copula(500),
        Contrast(2, 0),
        SquaredDifference(),
        [Marginal(), (HDR(), PCA())],
        (0, 0.1, np.float64(0.2), np.int64(3)),
        None,
        "auto",
        True,
        torch.device("cuda:1"),
    ],
    ids=str,
)
def test_every_parameter_comes_back_as_it_was(value: Any) -> None:
    back = saving.decode(saving.encode(value, "parameter"))
    assert back == value
    assert type(back) is type(value)


def test_code_is_not_saved(table: Table, small: Small, tmp_path: Path) -> None:
    model = small(preranks=Custom(lambda y: y.amax(-1), name="maximum"), strength=1.0).fit(*table)
    with pytest.raises(TypeError, match=r"preranks=Custom.*cannot be saved.*never code"):
        model.save(tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_a_lookalike_is_not_saved() -> None:
    class Location:  # the name of one of ours, and code of its own
        name = "location"

    with pytest.raises(TypeError, match="cannot be saved"):
        saving.encode(Location(), "preranks")


def test_an_unfitted_model_is_not_saved(tmp_path: Path) -> None:
    with pytest.raises(NotFittedError):
        MixtureRegressor().save(tmp_path / "model")


def test_a_truncated_file_is_refused(file: Path) -> None:
    whole = file.read_bytes()
    for length in (0, 5, 100, len(whole) // 2, len(whole) - 1):
        file.write_bytes(whole[:length])
        with pytest.raises(ValueError, match="truncated or something else"):
            MixtureRegressor.load(file)


def test_a_flipped_bit_is_noticed_wherever_it_is(file: Path) -> None:
    whole = file.read_bytes()
    for position in np.linspace(0, len(whole) - 1, 60).astype(int):
        damaged = bytearray(whole)
        damaged[position] ^= 1
        file.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"damaged|truncated|not a saved"):
            MixtureRegressor.load(file)


def test_foreign_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("not a model at all, but long enough to have a header\n" * 20)
    with pytest.raises(ValueError, match="cannot be read as a saved MixtureRegressor"):
        MixtureRegressor.load(path)
    save_file({"weight": torch.zeros(3)}, path)
    with pytest.raises(ValueError, match="not a saved MixtureRegressor"):
        MixtureRegressor.load(path)
    with pytest.raises(ValueError, match="is a folder"):
        MixtureRegressor.load(tmp_path)
    with pytest.raises(FileNotFoundError):
        MixtureRegressor.load(tmp_path / "missing")


def test_a_later_format_is_refused(tmp_path: Path) -> None:
    replace(persistence._FORMAT, version=4).write(tmp_path / "file", {"a": torch.zeros(1)}, {})
    with pytest.raises(ValueError, match=r"format version 4, this release reads 1, 2, 3"):
        MixtureRegressor.load(tmp_path / "file")


def test_a_model_saved_by_0_1_0_is_read_and_saved_anew(tmp_path: Path) -> None:
    """There its pre-ranks were called `prerank`; its forecasts are what they were."""
    model = MixtureRegressor.load(Path(__file__).parent / "saved_by_0.1.0.safetensors")
    assert model.preranks == [PCA(n_components=1), Location()]
    assert model.strength_ == 0.0
    assert model.tuning_.strength.tolist() == [0.0, 1.0]
    x = np.array([[0.0, 0.0], [1.0, -2.0]])
    expected = [[0.009380219152744451, 0.2653496809978293], [1.042126423453956, 0.12689823033232125]]
    # sums of a few terms of order one in double precision
    np.testing.assert_allclose(model.predict(x), expected, rtol=0, atol=1e-12)
    model.save(tmp_path / "model")
    again = MixtureRegressor.load(tmp_path / "model")
    assert again.get_params() == model.get_params()
    assert (again.predict(x) == model.predict(x)).all()


def test_the_name_of_before_is_refused(small: Small) -> None:
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'prerank'"):
        small(prerank=Location())


def test_a_write_that_fails_leaves_the_old_file_whole(
    file: Path, fitted: MixtureRegressor, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = file.read_bytes()

    def full_disk(descriptor: int) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match="no space left"):
        fitted.save(file)
    assert file.read_bytes() == before
    assert list(file.parent.iterdir()) == [file]


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_a_saved_model_has_the_permissions_that_the_umask_allows(
    fitted: MixtureRegressor, tmp_path: Path, mask: int
) -> None:
    before = os.umask(mask)
    try:
        fitted.save(tmp_path / "model")
    finally:
        os.umask(before)
    assert (tmp_path / "model").stat().st_mode & 0o777 == 0o666 & ~mask


def test_what_is_no_file_is_not_replaced_by_a_model(fitted: MixtureRegressor, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="is a device or a pipe, not a file"):
        fitted.save(tmp_path / "pipe")
    assert (tmp_path / "pipe").is_fifo()
    with pytest.raises(ValueError, match="is a folder; give the name of a file"):
        fitted.save(tmp_path)
    assert list(tmp_path.iterdir()) == [tmp_path / "pipe"]
