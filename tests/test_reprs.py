"""What a user sees in a terminal: values say what they are, a check says its verdict."""

import numpy as np
import pytest
import torch

from builders import standard_mixture
from prerank import Ensemble, Location, Marginal, check, projected_pit


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (standard_mixture(200, n_components=5), "GaussianMixture(200 cases, 5 components, 3 targets)"),
        (standard_mixture(4, 200, n_components=5), "GaussianMixture(4 models, 200 cases, 5 components, 3 targets)"),
        (standard_mixture(n_components=1), "GaussianMixture(1 component, 3 targets)"),
        (Ensemble(torch.zeros(200, 50, 3)), "Ensemble(200 cases, 50 members, 3 targets)"),
        (Ensemble(torch.zeros(2, 4, 1, 50, 3)), "Ensemble(2 × 4 models, 1 case, 50 members, 3 targets)"),
        (Ensemble(torch.zeros(7, 2, 1), torch.ones(7, 2)), "Ensemble(7 cases, 2 weighted members, 1 target)"),
        (
            Ensemble(torch.zeros(7, 2, 3), reference=standard_mixture(7, n_components=5)),
            "Ensemble(7 cases, 2 members, 3 targets, reference=GaussianMixture(7 cases, 5 components, 3 targets))",
        ),
        (
            projected_pit(torch.zeros(20, 3), standard_mixture(20, n_components=5), [Marginal(), Location()]),
            "ProjectedPIT(20 cases, 4 projections: marginal (3), location)",
        ),
    ],
)
def test_a_value_says_its_sizes(value, text):
    assert repr(value) == str(value) == text


@pytest.mark.parametrize(
    ("spread", "verdict"), [(1.0, "No evidence against calibration"), (0.5, "Miscalibrated (adjusted p-value ")]
)
def test_a_check_shows_its_table_and_verdict(spread, verdict):
    points = np.random.default_rng(2).normal(size=(300, 21, 2))
    result = check(points[:, 0], spread * points[:, 1:], [Marginal(), Location()])
    assert repr(result) == str(result)
    said, (head, marginal, location, *_) = (part.splitlines() for part in repr(result).split("\n\n")[:2])
    assert head.split() == ["pre-rank", "PCE", "expected", "95", "%", "interval", "p", "adjusted", "p", "reading"]
    assert marginal.startswith("marginal ")
    assert location.startswith("location ")
    assert said[0].startswith(verdict)
    assert len(said) == 1 + len(result.sentences)
    assert verdict in result._repr_html_()
