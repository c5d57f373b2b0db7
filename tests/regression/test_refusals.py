"""Input that cannot be used gets the message we promised, with its numbers, before any training."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

from prerank import Dependency, Location, Scale
from prerank.regression import MixtureRegressor

Table = tuple[np.ndarray, np.ndarray]
Small = Callable[..., MixtureRegressor]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"strength": "automatic"}, r'strength=\'automatic\': a number of at least 0, or "auto"'),
        ({"strength": -1.0}, r"strength=-1.0"),
        ({"strength": float("nan")}, r"strength=nan"),
        ({"strength": 1.0}, r"strength=1.0 has nothing to weigh; give preranks"),
        ({"preranks": Location(), "strengths": (0, -2)}, r"strength=-2.0: a penalty's strength is zero or more"),
        ({"preranks": []}, "at least one pre-rank"),
        ({"preranks": Dependency()}, r"Dependency\(lag=1\) is constant for D=2 targets.*use Scale\(\) or Contrast\(\)"),
        ({"n_components": 0}, "n_components=0: a whole number of at least 1"),
        ({"max_epochs": 1.5}, "max_epochs=1.5: a whole number"),
        ({"batch_size": "all"}, "batch_size='all': a whole number"),
        ({"hidden": (8, 0)}, r"hidden=\(8, 0\): the widths"),
        ({"learning_rate": 0.0}, "learning_rate=0.0: a positive number"),
        ({"validation_fraction": 1.0}, "validation_fraction=1.0: a share between 0 and 1"),
        ({"random_state": "seed"}, "cannot be used to seed"),
        ({"tolerance": -1}, "tolerance=-1: by what share the energy score may rise"),
        ({"tolerance": float("nan")}, "tolerance=nan: by what share"),
        ({"tolerance": "much"}, "tolerance='much': by what share"),
        ({"strengths": ()}, r"strengths=\(\): the candidates to tune over"),
        ({"strengths": 5.0}, r"strengths=5.0: the candidates"),
        ({"strengths": "all"}, "strengths='all': the candidates"),
        ({"strength": True}, 'strength=True: a number of at least 0, or "auto"'),
        ({"hidden": 8}, "hidden=8: the widths of the hidden layers, such as"),
        ({"hidden": "8"}, "hidden='8': the widths"),
        ({"n_components": True}, "n_components=True: a whole number"),
        ({"n_restarts": -1}, "n_restarts=-1: a whole number of at least 0"),
        ({"tail_weight": 1.0}, "tail_weight=1.0: the weight of a wide component"),
        ({"floor": 0.0}, "floor=0.0: a positive number"),
        ({"learning_rate": float("inf")}, "learning_rate=inf: a positive number"),
        ({"anchored": None}, "anchored=None: True or False"),
        ({"anchored": False}, "common_correlations=True is a kind of anchored network"),
        ({"dequantise": "auto"}, "dequantise='auto': True or False"),
        ({"device": "cuda:99"}, r"device='cuda:99' cannot be used here .* can"),
        ({"device": "gpu"}, r"device='gpu' cannot be used here"),
    ],
)
def test_parameters(table: Table, small: Small, parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        small(**parameters).fit(*table)


@pytest.mark.parametrize("factor", [1e300, 1e120])
def test_numbers_whose_squares_overflow(table: Table, small: Small, factor: float) -> None:
    x, y = table
    with pytest.raises(ValueError, match=r"X has values as large as .*rescale it to below 1e100"):
        small().fit(factor * x, y)
    with pytest.raises(ValueError, match=r"y has values as large as .*rescale it to below 1e100"):
        small().fit(x, factor * y)


def test_spreads_that_cannot_be_divided_by(table: Table, small: Small) -> None:
    x, y = table
    with pytest.raises(ValueError, match=r"column 0 of X has a standard deviation of .* too small to divide by"):
        small().fit(1e-200 * x, y)
    with pytest.raises(ValueError, match=r"column 1 of y has a standard deviation of .* too small to divide by"):
        small().fit(x, y * [1.0, 1e-200])


def test_something_that_is_not_a_prerank(table: Table, small: Small) -> None:
    with pytest.raises(TypeError, match=r"'location' is not a pre-rank; pass a value such as Location\(\)"):
        small(preranks=["location"]).fit(*table)
    with pytest.raises(TypeError, match=r"Location is a class; pass Location\(\)"):
        small(preranks=Location).fit(*table)
    with pytest.raises(TypeError, match=r"'PCA' is not a pre-rank; pass a value"):
        small(preranks="PCA").fit(*table)


@pytest.mark.parametrize("prerank", [Scale(), Dependency()])
def test_preranks_that_are_constant_for_one_target(table: Table, small: Small, prerank: Any) -> None:
    with pytest.raises(ValueError, match=r"is constant.*D=1 target.*use Marginal\(\)"):
        small(preranks=prerank).fit(table[0], table[1][:, 0])


def test_gaps_in_the_data(table: Table, small: Small) -> None:
    x, y = table
    gap = y.copy()
    gap[3, 1] = np.nan
    with pytest.raises(ValueError, match="1 of 600 values of y are NaN or infinite"):
        small().fit(x, gap)
    with pytest.raises(ValueError, match="Input X contains infinity"):
        small().fit(np.where(x > 0.99, np.inf, x), y)


def test_a_constant_target_is_named(table: Table, small: Small) -> None:
    y = pd.DataFrame({"price": table[1][:, 0], "tax": 0.19})
    with pytest.raises(ValueError, match=r"'tax' is constant: 0.19 in all 240 training rows"):
        small().fit(table[0], y)


def test_too_few_rows(table: Table, small: Small) -> None:
    x, y = table
    with pytest.raises(ValueError, match=r"n_samples=2 rows split into 1 to train on and 1 to validate"):
        small().fit(x[:2], y[:2])
    with pytest.raises(ValueError, match=r"n_samples=2 rows of positive weight"):
        small().fit(x, y, np.arange(300) < 2)
    assert small().fit(x[:3], y[:3]).predict(x[:3]).shape == (3, 2)


def test_weights_that_are_none(table: Table, small: Small) -> None:
    with pytest.raises(ValueError, match="300 of 300 sample_weight are negative"):
        small().fit(*table, -np.ones(300))
    with pytest.raises(ValueError, match=r"sample_weight"):
        small().fit(*table, np.ones(299))


def test_a_model_that_was_not_fitted(table: Table, small: Small) -> None:
    for call in (small().predict, small().predict_distribution, small().sample):
        with pytest.raises(NotFittedError):
            call(table[0])


def test_other_targets_than_those_fitted(table: Table, small: Small) -> None:
    model = small().fit(*table)
    with pytest.raises(ValueError, match="y has 1 targets, but the model was fitted to 2"):
        model.score(table[0], table[1][:, 0])
    with pytest.raises(ValueError, match="n_draws=0"):
        model.sample(table[0], 0)
    with pytest.raises(ValueError, match="X has 1 features, but MixtureRegressor is expecting 2"):
        model.predict(table[0][:, :1])
