"""Bad input gets an error with the numbers in it, before anything is trained."""

import pytest
import torch

from prerank.preranks import Dependency, Location, Scale
from prerank.training import Bar, EnergyScore, PreRankPenalty, Run, fit


def test_rows_with_nan_are_counted(tiny, small):
    data = tiny()
    broken = data.y.clone()
    broken[[3, 7], 0] = torch.nan
    broken[7, 1] = torch.inf
    with pytest.raises(ValueError, match=r"y has NaN or infinite values in 2 of 96 rows; drop or fill them first"):
        fit([Run()], data._replace(y=broken), small())


def test_too_few_rows_and_tables_that_do_not_match_are_told_with_their_sizes(tiny, small):
    data = tiny()
    with pytest.raises(ValueError, match=r"1 training and 40 validation rows: at least 2 and 1 are needed"):
        fit([Run()], data._replace(x=data.x[:1], y=data.y[:1]), small())
    with pytest.raises(ValueError, match=r"96 training and 0 validation rows"):
        fit([Run()], data._replace(x_validation=data.x[:0], y_validation=data.y[:0]), small())
    with pytest.raises(ValueError, match=r"differ in rows: 96 and 95 to train on, 40 and 40 to validate"):
        fit([Run()], data._replace(y=data.y[1:]), small())
    with pytest.raises(ValueError, match=r"use y\[:, None\] for one target"):
        fit([Run()], data._replace(y=data.y[:, 0], y_validation=data.y_validation[:, 0]), small())
    with pytest.raises(ValueError, match=r"differ in columns.*'x': \(96, 2\).*'x_validation': \(40, 1\)"):
        fit([Run()], data._replace(x_validation=data.x_validation[:, :1]), small())
    with pytest.raises(TypeError, match=r"one floating point type, got .*float32.*float64"):
        fit([Run()], data._replace(x=data.x.float()), small())


def test_seeds_without_data_or_with_data_of_other_sizes_are_told(tiny, small):
    with pytest.raises(ValueError, match=r"no data for the seeds \[2\]; there are data for \[0, 1\]"):
        fit([Run(0), Run(2)], {0: tiny(), 1: tiny()}, small())
    with pytest.raises(ValueError, match=r"data of different seeds have different shapes"):
        fit([Run(0), Run(1)], {0: tiny(), 1: tiny(rows=90)}, small())
    with pytest.raises(ValueError, match=r"no run to train"):
        fit([], tiny(), small())


def test_weights_must_be_weights(tiny, small):
    data = tiny()
    with pytest.raises(ValueError, match=r"weights have shape \(10,\) for 96 training rows"):
        fit([Run()], data._replace(weights=torch.ones(10)), small())
    weights = torch.ones(96, dtype=torch.float64)
    weights[:3] = torch.tensor([-1.0, torch.nan, torch.inf])
    with pytest.raises(ValueError, match=r"3 of 96 are not"):
        fit([Run()], data._replace(weights=weights), small())
    with pytest.raises(ValueError, match=r"not all zero"):
        fit([Run()], data._replace(weights=torch.zeros(96)), small())


def test_a_run_must_make_sense():
    penalty = PreRankPenalty(Location())
    with pytest.raises(ValueError, match=r"strength=-1: .*zero or more"):
        Run(0, penalty, -1)
    for strength in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match=f"strength={strength}"):
            Run(0, penalty, strength)
    with pytest.raises(ValueError, match=r"strength=2.0 without a penalty"):
        Run(0, None, 2.0)
    with pytest.raises(TypeError, match=r"Location\(name='location'\) is not a penalty; pass PreRankPenalty"):
        Run(0, Location(), 1.0)


def test_preranks_that_are_constant_for_these_targets_are_refused(tiny, small):
    with pytest.raises(ValueError, match=r"Scale\(\) is constant \(zero\) for D=1 target"):
        fit([Run(0, PreRankPenalty(Scale()), 1.0)], tiny(1), small())
    for n_targets in (1, 2):
        with pytest.raises(ValueError, match=rf"Dependency\(lag=1\) is constant for D={n_targets} targets"):
            fit([Run(0, PreRankPenalty(Dependency()), 1.0)], tiny(n_targets), small())


def test_too_few_draws_are_refused(tiny, small):
    with pytest.raises(ValueError, match=r"5 draws are too few for 3 components with at least 2 each; ask for 6"):
        fit([Run(0, PreRankPenalty(Scale(), n_draws=5), 1.0)], tiny(), small())
    with pytest.raises(ValueError, match=r"n_draws=7.*even"):
        EnergyScore(7)


def test_a_bar_leaves_the_screen_when_a_fit_is_interrupted(tiny, small):
    class Interrupted(Bar):
        def advance(self, epoch, n_active, best_score):
            raise KeyboardInterrupt

    bar = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        fit([Run()], tiny(), small(), bar)
    assert bar.bar.finished is False
    assert not bar.bar.live.is_started
    fit([Run()], tiny(), small(), Bar())
