"""The law of errors against laws that are known, what it does not depend on, and what it refuses."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import f as f_distribution
from scipy.stats import multivariate_t
from torch.distributions import MultivariateNormal
from torch.testing import assert_close

from prerank import Ensemble, GaussianMixture, Recalibrator, check
from prerank.recalibration import Affine, ErrorLaw, Tilt, members_about_mean
from prerank.recalibration.error_mean import Predictors, _Problem, robust_weights
from prerank.recalibration.error_scale import fit_sizes, size_basis
from prerank.recalibration.error_scatter import banded, log_density, patterns, t_scatters, with_own
from prerank.recalibration.error_shape import fit_groups
from prerank.recalibration.folds import Folds, folds_of
from prerank.recalibration.scale_nodes import scale_nodes

CPU = torch.device("cpu")


def seasons(n_cases=200, n_members=6, n_targets=3, seed=0, bias=1.0, narrow=0.5):
    """Members of a right law made narrower and moved; the observation is one of as many draws of the right one."""
    rng = np.random.default_rng(seed)
    signal = 3 * rng.normal(size=(n_cases, 1, n_targets))
    factor = np.linalg.cholesky(0.6 + 0.4 * np.eye(n_targets))
    noise = rng.normal(size=(n_cases, n_members + 1, n_targets)) @ factor.T
    members = torch.as_tensor(signal - bias + narrow * noise[:, 1:])
    return Ensemble(members), torch.as_tensor(signal[:, 0] + noise[:, 0]), torch.as_tensor(factor @ factor.T)


def fitted(forecast, y, step=ErrorLaw(always=True), **arguments):  # noqa: B008 - a value
    return Recalibrator(steps=[step]).fit(forecast, y, **arguments)


@pytest.mark.parametrize("freedom", [3.0, 5.0, 10.0, 30.0])
@pytest.mark.parametrize("n_targets", [1, 3, 24])
def test_gaussians_of_a_few_sizes_have_the_density_of_a_t(freedom, n_targets):
    nodes = scale_nodes(freedom, n_targets)
    assert len(nodes.factors) <= 24
    square = n_targets * f_distribution.ppf(np.linspace(0.002, 0.998, 500), n_targets, freedom)
    points = torch.zeros(500, n_targets, dtype=torch.float64)
    points[:, 0] = torch.as_tensor(square).sqrt()
    eye = torch.eye(n_targets, dtype=torch.float64)
    tril = torch.tensor(nodes.factors, dtype=torch.float64)[:, None, None] * eye
    logits = torch.tensor(nodes.log_weights, dtype=torch.float64)
    mixture = GaussianMixture(logits, torch.zeros(len(logits), n_targets, dtype=torch.float64), tril)
    exact = multivariate_t(np.zeros(n_targets), np.eye(n_targets), df=freedom).logpdf(points.numpy())
    found = mixture.expand((1,)).log_density(points[None])[0]
    assert float((found - torch.as_tensor(exact)).abs().max()) < 0.006
    assert_close(log_density(points, eye, freedom), torch.as_tensor(exact))


def test_a_gaussian_needs_no_second_size():
    assert scale_nodes(math.inf, 4) == ((0.0,), (1.0,))


def test_a_known_gaussian_error_is_found():
    """Mean and covariance within four standard errors of 2,000 cases, and little lost to the true law."""
    forecast, y, covariance = seasons(2000)
    step = fitted(forecast, y).steps_[0]
    fresh, observed, _ = seasons(500, seed=1)
    law = step.transform(fresh)
    size = (1 + 0.25 / 6) ** 0.5  # of an error of the members' mean
    assert float((step.unit * step.shift - 1).abs().max()) < 4 * size / 2000**0.5
    wanted = covariance * size**2
    assert float((law.covariance_matrix.mean(0) - wanted).abs().max()) < 4 * float(wanted.max()) * (2 / 2000) ** 0.5
    right = MultivariateNormal(fresh.mean + 1, wanted).log_prob(observed)
    loss = right - law.log_prob(observed)
    # what was learnt has about 3 + 6 + 3 x 3 parameters, of half an expected nat for each and 2,000 cases
    assert float(loss.mean()) < 0.01 + 4 * float(loss.std()) / 500**0.5


def test_the_members_spread_is_used_where_it_knows_the_error():
    rng = np.random.default_rng(1)
    size = np.exp(rng.normal(size=(600, 1, 1)))
    members = torch.as_tensor(size * rng.normal(size=(600, 20, 2)))
    y = torch.as_tensor(size[:, 0] * rng.normal(size=(600, 2)))
    told = fitted(Ensemble(members), y).steps_[0].slopes[1]
    mixed = fitted(Ensemble(members), y[rng.permutation(600)]).steps_[0].slopes[1]
    assert 0.75 < float(told) < 1.1
    assert abs(float(mixed)) < 0.15


def test_exchangeable_members_may_change_places_in_every_case():
    forecast, y, _ = seasons(80)
    order = torch.rand(80, 6, generator=torch.Generator().manual_seed(0)).argsort(1)
    mixed = Ensemble(forecast.members.gather(1, order[..., None].expand(-1, -1, 3)))
    first, second = (fitted(each, y).transform(each) for each in (forecast, mixed))
    assert_close(first.loc, second.loc)
    assert_close(first.covariance_matrix, second.covariance_matrix)


def test_named_members_have_slopes_of_their_own():
    """One of four members knows the truth: only where it has a name can it be believed."""
    rng = np.random.default_rng(2)
    truth = rng.normal(size=(300, 2))
    members = truth[:, None] + rng.normal(size=(300, 4, 2)) * np.array([0.05, 2, 2, 2])[:, None]
    y = torch.as_tensor(truth)
    left = {}
    for named in (False, True):
        law = fitted(Ensemble(members[:200]), y[:200], ErrorLaw(named_members=named, always=True)).transform(
            Ensemble(members[200:])
        )
        left[named] = float((law.mean - y[200:]).square().mean())
    assert left[True] < 0.2 * left[False]


def test_named_members_are_as_many_as_before():
    forecast, y, _ = seasons(40)
    step = fitted(forecast, y, ErrorLaw(named_members=True, always=True)).steps_[0]
    with pytest.raises(
        ValueError, match=r"the forecast has 5 members, and ErrorLaw\(named_members=True\) was fitted on 6"
    ):
        step.transform(Ensemble(forecast.members[:, :5]))


def test_units_and_origins_of_targets_do_not_matter():
    """In units that are all alike: what is chosen by the energy score depends on how targets compare."""
    forecast, y, _ = seasons(60)
    moved = fitted(Ensemble(100 + 8 * forecast.members), 100 + 8 * y).transform(Ensemble(100 + 8 * forecast.members))
    law = fitted(forecast, y).transform(forecast)
    assert_close(moved.loc, 100 + 8 * law.loc, rtol=1e-6, atol=1e-6)
    assert_close(moved.covariance_matrix, 64 * law.covariance_matrix, rtol=1e-5, atol=1e-6)


def test_a_feature_that_knows_the_error_moves_mean_and_size():
    rng = np.random.default_rng(3)
    feature = rng.uniform(-1.5, 1.5, size=(500, 1))
    members = rng.normal(size=(500, 8, 2))
    y = torch.as_tensor(2 * feature + np.exp(0.5 * feature) * rng.normal(size=(500, 2)))
    step = fitted(Ensemble(members), y, features=feature).steps_[0]
    law = step.transform(Ensemble(np.zeros((2, 8, 2))), torch.tensor([[-1.5], [1.5]]).double())
    assert_close(law.mean, torch.tensor([[-3.0], [3.0]]).double().expand(2, 2), rtol=0, atol=0.5)
    ratio = law.variance[1] / law.variance[0]
    assert bool(((ratio > 8) & (ratio < 50)).all())  # exp(4 x 0.5 x 1.5) is 20


def test_the_out_of_fold_law_is_that_of_a_fit_on_the_other_folds(held_out, monkeypatch):
    """The mean of a fold is what is learnt from the others alone, by hand: a shift shrunk by a pseudo-block."""
    monkeypatch.setattr("prerank.recalibration.error_fit.COUNTS", ())  # groups of errors have a mean of their own
    rng = np.random.default_rng(4)
    y = torch.as_tensor(rng.normal(size=(60, 1)))
    held = held_out(y, 3)
    found = ErrorLaw(always=True).fit(Ensemble(torch.zeros(60, 5, 1).double()), held).out_of_fold
    for f in range(3):
        inside = held.folds.fold == f
        own, fold = y[~inside], held.folds.fold[~inside]
        unit = own.std(correction=0)
        left = own / unit
        for _ in range(2):  # large errors are those that are left by a fit without the case's fold
            weights = robust_weights(left, torch.ones(40, dtype=torch.bool))
            without = torch.stack([weights * (fold != g) for g in range(3) if g != f])
            shifts = without @ (own / unit) / (without.sum(1, keepdim=True) + 1)
            left = own / unit - shifts[(fold != min(set(range(3)) - {f})).long()]
        expected = unit * (weights @ (own / unit)) / (weights.sum() + 1)
        assert_close(found.mean[inside], expected.expand(20, 1))


@pytest.mark.parametrize("n_folds", [2, 3])
def test_what_folds_choose_is_judged_by_an_outer_fold(held_out, n_folds):
    """Nothing of a fold's observations is in its law, whatever is chosen, features and gaps included."""
    forecast, y, _ = seasons(60)
    held = held_out(y, n_folds)
    fold = torch.arange(60) * n_folds // 60
    near = torch.stack(
        [((torch.arange(60) - 60 * f // n_folds + 2) % 60 < 60 // n_folds + 4) & (fold != f) for f in range(n_folds)]
    )
    held = held._replace(folds=Folds(fold, torch.arange(60), n_folds, near))
    wild = torch.where((fold == 0)[:, None], 50 - 7 * y**2, y)
    step = ErrorLaw(always=True)
    first, second = (step.fit(forecast, held._replace(y=each)).out_of_fold for each in (y, wild))
    inside = fold == 0
    assert_close(first.log_prob(y)[inside], second.log_prob(y)[inside])
    assert not torch.equal(first.log_prob(y)[~inside], second.log_prob(y)[~inside])
    # nor of cases that are too near
    wild = torch.where(near[0][:, None], 50 - 7 * y**2, y)
    second = step.fit(forecast, held._replace(y=wild)).out_of_fold
    assert_close(first.log_prob(y)[inside], second.log_prob(y)[inside])


def test_the_tilt_that_follows_learns_from_laws_without_the_fold():
    forecast, y, _ = seasons(50)
    seen = []

    class Look:
        def fit(self, current, held_out):
            seen.append((current, held_out))
            return Affine().fit(current, held_out)

    fitted_steps = Recalibrator(steps=[ErrorLaw(always=True), Look()]).fit(forecast, y).steps_
    current, held = seen[0]
    assert_close(current.loc, ErrorLaw(always=True).fit(forecast, held).out_of_fold.loc)
    assert fitted_steps[0].out_of_fold is None
    assert float((current.loc - fitted_steps[0].transform(forecast).loc).abs().max()) > 0


@pytest.mark.parametrize("n_targets", [1, 4, 40])
def test_fewer_cases_than_targets_have_a_law(n_targets):
    forecast, y, _ = seasons(20, n_targets=n_targets)
    law = fitted(forecast, y, ErrorLaw(ordered_targets=True, always=True)).transform(forecast)
    assert bool(law.log_prob(y).isfinite().all())


def test_what_never_varies_has_a_law():
    """Members that agree, a single member, and errors that are all the same."""
    y = torch.zeros(30, 2).double()
    for members in (torch.ones(30, 5, 2), torch.ones(30, 1, 2), torch.randn(30, 1, 2)):
        law = fitted(Ensemble(members.double()), y).transform(Ensemble(members.double()))
        assert bool(law.log_prob(y).isfinite().all())


def test_a_case_of_weight_zero_says_nothing():
    forecast, y, _ = seasons(60)
    weights = torch.ones(60)
    weights[::7] = 0
    wild = y.clone()
    wild[::7] += 1e3
    first, second = (fitted(forecast, each, case_weights=weights).transform(forecast) for each in (y, wild))
    assert_close(first.loc, second.loc)
    assert_close(first.scale_tril, second.scale_tril)


def test_single_precision_goes_in_and_comes_out():
    forecast, y, _ = seasons(40)
    law = fitted(Ensemble(forecast.members.float()), y.float()).transform(Ensemble(forecast.members.float()))
    assert law.loc.dtype == torch.float32


def test_a_saved_law_is_the_same(tmp_path):
    forecast, y, _ = seasons(50)
    feature = np.arange(50) % 3
    for step in (ErrorLaw(always=True), ErrorLaw(named_members=True, always=True)):
        recalibrator = fitted(forecast, y, step, features=feature)
        recalibrator.save(tmp_path / "law.safetensors")
        again = Recalibrator.load(tmp_path / "law.safetensors")
        first, second = (each.transform(forecast, feature) for each in (recalibrator, again))
        assert torch.equal(first.scale_tril, second.scale_tril)
        assert again.summary() == recalibrator.summary()


def test_a_distribution_has_a_law_of_its_own(standard, observed):
    forecast = standard(40)
    with pytest.raises(TypeError, match=r"ErrorLaw\(\) is for the members of an Ensemble.*use Affine\(\) instead"):
        fitted(forecast, observed(forecast, 1))


def test_options_are_checked():
    with pytest.raises((TypeError, ValueError), match="named_members"):
        ErrorLaw(named_members="yes")
    with pytest.raises((TypeError, ValueError), match="ordered_targets"):
        ErrorLaw(ordered_targets=2)


def test_the_scatter_of_a_t_is_found():
    """By maximum likelihood, whose standard errors are those of a normal times (nu + D + 2) / (nu + D), about."""
    rng = np.random.default_rng(5)
    wanted = np.array([[1.0, 0.5], [0.5, 2.0]])
    z = torch.as_tensor(multivariate_t(np.zeros(2), wanted, df=5, seed=rng).rvs(4000))
    found = t_scatters(z, torch.ones(1, 4000).double(), 5.0)[0]
    assert float((found - torch.as_tensor(wanted)).abs().max()) < 4 * 2 * (2 / 4000) ** 0.5 * 1.3
    plain = t_scatters(z, torch.ones(1, 4000).double(), math.inf)[0]
    assert_close(plain, (z.mT @ z + z.square().mean(0).diag()) / 4001)


def test_patterns_keep_the_diagonal_and_what_they_stand_for():
    place = torch.arange(6.0).double()
    markov = 0.7 ** (place[:, None] - place).abs() * torch.linspace(1, 2, 6).double().outer(
        torch.linspace(1, 2, 6).double()
    )
    assert_close(banded(markov[None], 1)[0], markov)  # an autoregression of order one is its own band
    equal = (0.3 + 0.7 * torch.eye(6)).double()
    found = dict(patterns(equal[None], True))
    assert_close(found["equal"][0], equal)
    assert list(found) == ["none", "equal", "band 1", "band 2", "band 3"]
    assert [name for name, _ in patterns(equal[None], False)] == ["none", "equal"]
    for _, pattern in patterns(markov[None], True):
        assert_close(pattern[0].diagonal(), markov.diagonal())


def test_own_scatters_are_the_members_correlations():
    generator = torch.Generator().manual_seed(0)
    members = torch.randn(3, 7, 2, generator=generator).double()
    deviations = members - members.mean(1, keepdim=True)
    deviations /= deviations.square().mean(1, keepdim=True).sqrt()
    own = with_own(torch.tensor([[4.0, 0.0], [0.0, 9.0]]).double(), deviations, 1.0)
    for case in range(3):
        r = np.corrcoef(members[case].numpy().T)[0, 1]
        assert_close(own[case], torch.tensor([[4.0, 6 * r], [6 * r, 9.0]]).double())


def test_sizes_are_the_optimum_of_their_likelihood():
    rng = np.random.default_rng(6)
    errors, spread = (
        torch.as_tensor(rng.standard_t(5, size=(80, 3))),
        torch.as_tensor(rng.uniform(0.5, 2, size=(80, 3))),
    )
    basis, weights = size_basis(spread, spread.mean(0), None), torch.as_tensor(rng.uniform(0.5, 2, size=80))
    found = fit_sizes(errors, basis, weights, 40)
    level, slopes = (part.clone().requires_grad_() for part in found)
    log_size = level + basis @ slopes
    density = torch.distributions.StudentT(6.0).log_prob(errors / log_size.exp()) - log_size
    pull = (level.square().sum() + slopes.square().sum()) / 80
    ((weights[:, None] * density).sum() / weights.sum() - pull).backward()
    assert float(torch.cat([level.grad, slopes.grad]).abs().max()) < 1e-4


@pytest.mark.parametrize("n_targets", [2, 30])
def test_the_regression_is_the_ridge_regression_by_its_dual(n_targets):
    """Also where there are more columns than cases, whose span is rotated."""
    generator = torch.Generator().manual_seed(n_targets)
    level = torch.randn(25, n_targets, generator=generator).double()
    errors = level.flip(1) + 0.1 * torch.randn(25, n_targets, generator=generator).double()
    predictors = Predictors.of([(level, torch.ones(n_targets).double())], torch.ones(25, dtype=torch.bool))
    folds = folds_of(25, 5, None, 0, CPU)
    used = torch.cat([torch.ones(1, 25), folds.without]).double()
    x = predictors.values
    for ridge in (10.0, 0.1):
        kernel = 1 + x @ x.mT / (ridge * 25)
        found = _Problem.of(errors, predictors, used, 25, False).solved((ridge, math.inf), folds.fold)
        assert_close(found.shift + x @ found.coefficients, kernel @ torch.linalg.solve(kernel + torch.eye(25), errors))
        for f in range(5):
            rest, inside = folds.fold != f, folds.fold == f
            dual = torch.linalg.solve(kernel[rest][:, rest] + torch.eye(20), errors[rest])
            assert_close(found.held_out[inside], kernel[inside][:, rest] @ dual)


def test_members_about_the_mean_have_uniform_ranks_of_targets_and_too_little_scale():
    """Under a Gaussian law: 6,000 observations among 5 members each, counts within four standard errors."""
    generator = torch.Generator().manual_seed(0)
    law = MultivariateNormal(torch.randn(6000, 2, generator=generator).double(), torch.eye(2).double())
    y = law.mean + torch.randn(6000, 2, generator=generator).double()
    members = members_about_mean(law, 5).members
    assert_close(members.mean(1), law.mean)
    counts = torch.bincount((members[..., 0] < y[:, None, 0]).sum(1), minlength=6)
    assert float((counts - 1000).abs().max()) < 4 * (6000 * 5 / 36) ** 0.5
    wanted = (5 - 1) / (5 + 1)  # mean square of a deviation, each
    assert abs(float((members - law.mean[:, None]).square().mean()) - wanted) < 4 * wanted * (2 / 48000) ** 0.5
    with pytest.raises(TypeError, match="members_about_mean takes a distribution"):
        members_about_mean(Ensemble(members), 5)


@pytest.mark.parametrize("seed", range(3))
def test_members_that_are_right_are_left_alone(seed):
    """Of calibrated ensembles one in a hundred is changed: none of three, with 200 cases and 10 members."""
    forecast, y, _ = seasons(200, 10, seed=seed, bias=0.0, narrow=1.0)
    recalibrator = Recalibrator(seed=seed).fit(forecast, y)
    assert not recalibrator.changed_
    assert recalibrator.transform(forecast) is forecast
    assert "nothing was changed" in recalibrator.summary()
    always = fitted(forecast, y, ErrorLaw(always=True))
    assert always.changed_
    followed = Recalibrator(steps=[ErrorLaw(), Tilt()], seed=seed).fit(forecast, y)
    assert len(followed.steps_) == 1  # members have no law to be tilted


def test_members_that_are_but_biased_are_moved(tmp_path):
    """Twenty members of the right law: what they know of the case is kept, and only a shift is taken away."""
    forecast, y, _ = seasons(300, 20, bias=0.5, narrow=1.0)
    recalibrator = Recalibrator().fit(forecast, y)
    later, observed, _ = seasons(300, 20, seed=1, bias=0.5, narrow=1.0)
    corrected = recalibrator.transform(later)
    assert isinstance(corrected, Ensemble)
    assert check(observed, corrected).calibrated
    assert "members shifted by" in recalibrator.summary()
    recalibrator.save(tmp_path / "moved.safetensors")
    again = Recalibrator.load(tmp_path / "moved.safetensors").transform(later)
    assert torch.equal(again.members, corrected.members)


@pytest.mark.slow
def test_members_that_are_wrong_get_a_law_that_is_right():
    """Members are too narrow, and their correlations are those of other targets."""
    forecast, y, _ = seasons(300, 10)
    later, observed, _ = seasons(200, 10, seed=1)
    forecast, later = (
        Ensemble(
            torch.stack([each.members[..., 0], -each.members[..., 1] + 2 * y0[:, None, 1], each.members[..., 2]], -1)
        )
        for each, y0 in ((forecast, forecast.mean + 1), (later, later.mean + 1))
    )
    recalibrator = Recalibrator().fit(forecast, y)
    assert recalibrator.steps_[0].p_value <= 0.05
    assert recalibrator.steps_[0].gain > 0
    assert check(observed, recalibrator.transform(later)).calibrated


@pytest.mark.parametrize("kind", ["members", "groups"])
def test_the_shape_of_members_or_of_groups_is_taken_where_it_is_no_t(kind):
    """Two humps: on sides that the members know, or on sides that only past errors show."""
    rng = np.random.default_rng(7)
    side, noise = np.sign(rng.normal(size=(400, 21, 1))), rng.normal(size=(400, 21, 2))
    angle = rng.uniform(0, np.pi, size=(400, 1))
    points = torch.as_tensor(3 * side * np.stack([np.cos(angle), np.sin(angle)], -1) + 0.3 * noise)
    y = points[:, 0] + 0.5
    if kind == "groups":
        points, y = torch.as_tensor(noise), torch.as_tensor(3 * side[:, 0] + 0.3 * noise[:, 0])
    step = fitted(Ensemble(points[:, 1:]), y).steps_[0]
    assert step.shape == kind
    law = step.transform(Ensemble(points[:, 1:]))
    plain = MultivariateNormal(y.mean(0), torch.as_tensor(np.cov(y.numpy().T)))
    assert float(law.log_prob(y).mean() - plain.log_prob(y).mean()) > 0.3


def test_groups_of_errors_are_found():
    """Two Gaussians of unequal size and weight: weights, centres and covariances within four standard errors."""
    rng = np.random.default_rng(9)
    first = rng.uniform(size=4000) < 0.3
    noise = rng.normal(size=(4000, 2)) @ np.linalg.cholesky(np.array([[1.0, 0.5], [0.5, 1.0]])).T
    z = torch.as_tensor(np.where(first[:, None], 0.5 * noise + [4.0, 2.0], noise - 1))
    found = fit_groups(z, torch.ones(4000).double(), 2)
    order = found.log_weights.argsort()
    assert_close(
        found.log_weights[order].exp(), torch.tensor([0.3, 0.7]).double(), rtol=0, atol=4 * (0.21 / 4000) ** 0.5
    )
    wanted = torch.tensor([[4.0, 2.0], [-1.0, -1.0]]).double()
    assert_close(found.centres[order], wanted, rtol=0, atol=4 / (0.7 * 4000) ** 0.5 + 2 * 4 / 1200)
    for place, size in zip(order.tolist(), (0.5, 1.0), strict=True):
        covariance = found.sizes[place] ** 2 * found.covariance
        expected = size**2 * torch.tensor([[1.0, 0.5], [0.5, 1.0]]).double()
        assert_close(covariance, expected, rtol=0, atol=size**2 * 4 * (2 / 1200) ** 0.5)
    assert_close(found.joint(z).logsumexp(1).exp().mean(), found.joint(z).exp().sum(1).mean())


def test_groups_are_a_density():
    """Their mass on a fine grid is one."""
    rng = np.random.default_rng(10)
    z = torch.as_tensor(np.exp(rng.normal(size=(200, 2))) - 1.6)
    found = fit_groups(z, torch.as_tensor(rng.uniform(0.5, 1.5, size=200)), 4)
    side = torch.linspace(-40, 40, 1601).double()
    grid = torch.cartesian_prod(side, side)
    assert_close(found.joint(grid).exp().sum() * 0.05**2, torch.ones(()).double(), rtol=0, atol=1e-3)


def test_skew_errors_are_corrected():
    """On later cases fewer pre-ranks are rejected than of members that were moved and stretched."""
    rng = np.random.default_rng(11)
    signal = rng.normal(size=(700, 1, 3))
    members = torch.as_tensor(signal + rng.normal(size=(700, 10, 3)))
    common = rng.normal(size=(700, 1)) + 0.7 * rng.normal(size=(700, 3))
    y = torch.as_tensor(signal[:, 0] + np.exp(0.8 * common) - 1.6)
    recalibrator = Recalibrator().fit(Ensemble(members[:500]), y[:500])
    assert recalibrator.steps_[0].shape == "groups"
    assert "groups of errors" in recalibrator.summary()
    plain = Recalibrator(steps=[Affine()]).fit(Ensemble(members[:500]), y[:500]).transform(Ensemble(members[500:]))
    law = recalibrator.transform(Ensemble(members[500:]))
    before, after = (check(y[500:], each).table["adjusted p-value"] for each in (plain, law))
    assert int((after <= 0.05).sum()) < int((before <= 0.05).sum())


def test_a_curved_mean_is_found_where_a_line_is_not_enough():
    """Errors that go with the cosine of the level: a tenth of their variance is left at most."""
    rng = np.random.default_rng(12)
    signal = rng.uniform(-3, 3, size=(400, 1, 2))
    members = torch.as_tensor(signal + 0.1 * rng.normal(size=(400, 8, 2)))
    error = 2 * np.cos(1.2 * signal[:, 0])
    y = torch.as_tensor(signal[:, 0] + error + 0.2 * rng.normal(size=(400, 2)))
    step = fitted(Ensemble(members[:300]), y[:300]).steps_[0]
    assert step.bump_heights is not None
    law = step.transform(Ensemble(members[300:]))
    left = (law.mean - y[300:]).square().mean()
    assert float(left) < 0.1 * float(torch.as_tensor(error).var())


def test_sizes_depend_on_the_level_where_that_is_beyond_doubt():
    rng = np.random.default_rng(13)
    signal = rng.normal(size=(400, 1, 1)) + np.zeros((1, 1, 2))
    members = torch.as_tensor(signal + rng.normal(size=(400, 8, 2)))
    noise = rng.normal(size=(400, 2))
    for slope, expected in ((0.0, 2), (0.6, 3)):
        y = torch.as_tensor(signal[:, 0] + np.exp(slope * signal[:, 0]) * noise)
        step = fitted(Ensemble(members), y).steps_[0]
        assert len(step.slopes) == expected
    law = step.transform(Ensemble(torch.tensor([-1.5, 1.5]).double()[:, None, None] + torch.zeros(2, 8, 2).double()))
    assert 3 < float((law.variance[1] / law.variance[0]).mean()) < 40  # exp(4 x .6 x 1.5) is 37 for the level itself


def test_groups_and_bumps_are_saved(tmp_path):
    rng = np.random.default_rng(8)
    level = rng.uniform(-3, 3, size=(300, 1, 2))
    side = np.sign(rng.normal(size=(300, 1)))
    y = torch.as_tensor(level[:, 0] + 2 * np.cos(2 * level[:, 0]) + 3 * side + 0.2 * rng.normal(size=(300, 2)))
    members = torch.as_tensor(level + 0.1 * rng.normal(size=(300, 6, 2)))
    recalibrator = fitted(Ensemble(members), y)
    step = recalibrator.steps_[0]
    assert step.shape == "groups"
    assert step.bump_heights is not None
    recalibrator.save(tmp_path / "law.safetensors")
    again = Recalibrator.load(tmp_path / "law.safetensors").transform(Ensemble(members))
    assert torch.equal(recalibrator.transform(Ensemble(members)).loc, again.loc)
