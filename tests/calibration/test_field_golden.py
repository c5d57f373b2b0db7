"""The field's pre-ranks have the values and ranks that R's packages and sbi gave them (tests/golden/README.md)."""

import numpy as np
import pytest
import torch

from prerank import Copula, Custom, Ensemble, check, projected_pit
from prerank.preranks import (
    AverageRank,
    BandDepth,
    EnergyScore,
    Exceedance,
    Isotropy,
    Mahalanobis,
    ReferenceDistance,
    SpanningTree,
    Variogram,
)

CLOSE = {"rtol": 1e-6, "atol": 1e-6}
CASES = ["case_gauss_d2", "case_gauss_d5", "case_gauss_d10", "case_ties_d5", "case_skew_d5", "case_long_d2"]
GRIDS = ["case_grid_4x4", "case_grid_5x3"]


class Case:
    """Observations, members and what others computed from them."""

    def __init__(self, arrays):
        self.arrays = arrays
        self.y = torch.from_numpy(arrays["obs"]).double()
        self.members = torch.from_numpy(arrays["ens"]).double()
        self.shape = tuple(self.y.shape[1:])
        self.y, self.members = self.y.flatten(1), self.members.flatten(2)
        self.points = torch.cat([self.y[:, None], self.members], 1)
        self.n_targets, self.n_points = self.points.shape[-1], self.points.shape[1]

    def __getitem__(self, name):
        return torch.from_numpy(np.asarray(self.arrays[name], dtype=float))

    def value(self, prerank, pool=None):
        return prerank.given(Ensemble(self.points if pool is None else pool))(self.points)[..., 0]

    def assert_ranks(self, prerank, prefix, name):
        """The ranks that ties allow are those of the package's values; its own differ where rounding broke a tie."""
        values, (lowest, highest) = self[f"{prefix}_{name}"], self[f"{prefix}rank_{name}"].T
        tolerance = 1e-9 * values.abs().amax(-1, keepdim=True)
        below = (values < values[:, :1] - tolerance).sum(-1)
        through = (values <= values[:, :1] + tolerance).sum(-1)
        pit = projected_pit(self.y, Ensemble(self.members), prerank)
        ranks = [(end[:, 0] * self.n_points).round().long() for end in (pit.lower, pit.upper)]
        defined = lowest > 0
        assert defined.double().mean() > 0.7
        assert torch.equal(ranks[0][defined], below[defined])
        assert torch.equal(ranks[1][defined], through[defined])
        assert ((ranks[0] < lowest) & (highest <= ranks[1]))[defined].all()


@pytest.fixture(params=CASES)
def case(request, golden):
    return Case(golden(f"{request.param}.npz"))


@pytest.fixture(params=GRIDS)
def grid(request, golden):
    return Case(golden(f"{request.param}.npz"))


@pytest.mark.parametrize(
    ("prerank", "name"),
    [
        (AverageRank(), "average_rank"),
        (BandDepth(), "band_depth"),
        (Exceedance(0.0), "fte_t1"),
        (Exceedance(0.75), "fte_t2"),
    ],
    ids=lambda value: str(value),
)
def test_ranks_depths_and_exceedances_are_those_of_multivcalibration(case, prerank, name):
    torch.testing.assert_close(case.value(prerank), case[f"mc_{name}"], **CLOSE)
    case.assert_ranks(prerank, "mc", name)


def test_the_multivariate_rank_is_the_copula_of_an_ensemble(case):
    torch.testing.assert_close(case.value(Copula()) * case.n_points, case["mc_multivariate_rank"], **CLOSE)
    case.assert_ranks(Copula(), "mc", "multivariate_rank")


def test_energy_scores_of_the_members_are_those_of_multivcalibration_and_others(case):
    """The package scores each vector by the members alone; the pre-rank is the same function of the pooled points."""
    found = case.value(EnergyScore(), pool=case.members)
    torch.testing.assert_close(found, case["mc_energy_score"], **CLOSE)
    torch.testing.assert_close(found[:, 0], case["sr_es_nrg"], **CLOSE)
    torch.testing.assert_close(found[:, 0], case["epp_es"], **CLOSE)


def test_weighted_energy_scores_are_those_of_scoringrules(case):
    pool = Ensemble(case.members, case["ens_w"])
    found = EnergyScore().given(pool)(case.points)[:, 0, 0]
    torch.testing.assert_close(found, case["sr_es_nrg_ensw"], **CLOSE)


def test_pooled_energy_scores_rank_by_the_mean_distance_to_the_others(case):
    """No point gains by a distance to itself: the ranks are those without it."""
    distance = torch.cdist(case.points, case.points).sum(-1) / (case.n_points - 1)
    pit = projected_pit(case.y, Ensemble(case.members), EnergyScore())
    below = (distance[:, 1:] < distance[:, :1] - 1e-9).sum(1)
    assert torch.equal((pit.lower[:, 0] * case.n_points).round().long(), below)


def test_lengths_of_spanning_trees_are_those_of_vegan(case):
    torch.testing.assert_close(case.value(SpanningTree()), case["mst_length"], **CLOSE)
    lowest, highest = case["mstrank"].T
    pit = projected_pit(case.y, Ensemble(case.members), SpanningTree())
    torch.testing.assert_close(pit.lower[:, 0] * case.n_points + 1, lowest)
    torch.testing.assert_close(pit.upper[:, 0] * case.n_points, highest)


def test_ranks_drawn_by_eppverification_lie_in_our_intervals(case):
    for prerank, name in ((Copula(), "mv"), (AverageRank(), "avg"), (SpanningTree(), "mst"), (BandDepth(), "bd")):
        pit = projected_pit(case.y, Ensemble(case.members), prerank)
        rank = case[f"epp_rank_{name}"]
        assert (pit.lower[:, 0] * case.n_points < rank - 0.5).all()
        assert (rank - 0.5 < pit.upper[:, 0] * case.n_points).all()


@pytest.mark.parametrize(
    ("name", "lags", "exponent", "standardised"),
    [
        ("h1", (1,), 2, True),
        ("h2", (2,), 2, True),
        ("h1h2", (1, 2), 2, True),
        ("h1_p1", (1,), 1, True),
        ("h1_p05", (1,), 0.5, True),
        ("h1_nostd", (1,), 2, False),
        ("w", None, 2, True),
        ("w_p1_nostd", None, 1, False),
    ],
)
def test_variograms_are_those_of_multivcalibration(case, name, lags, exponent, standardised):
    d = case.n_targets
    if f"mc_variogram_{name}" not in case.arrays:
        assert d == 2
        return
    distance = (torch.arange(d)[:, None] - torch.arange(d)).abs()
    # the package adds up all pairs at its lags: each counts equally
    weights = case["w"] if lags is None else torch.isin(distance, torch.tensor(lags)).double()
    if d == 2 and exponent == 2 and standardised:
        assert (case[f"mc_variogram_{name}"].diff(dim=-1).abs() < 1e-9).all()
        with pytest.raises(ValueError, match="is constant for D=2"):
            case.value(Variogram(weights=weights))
        return
    found = case.value(Variogram(weights=weights, exponent=exponent, standardised=standardised))
    expected = case[f"mc_variogram_{name}"]
    # the package adds up four times each pair; its variance has divisor D - 1
    factor = 8.0 * weights.triu(1).sum() * ((d - 1) / d if standardised else 1)
    defined = expected.isfinite()
    torch.testing.assert_close((factor * found)[defined], expected[defined], **CLOSE)
    assert (found[~defined] == 0).all()
    case.assert_ranks(
        Variogram(weights=weights, exponent=exponent, standardised=standardised), "mc", f"variogram_{name}"
    )


def test_inverse_distances_are_the_weights_without_others(case):
    if case.n_targets == 2:
        return
    torch.testing.assert_close(case.value(Variogram()), case.value(Variogram(weights=case["w"])))


def lag_of(name):
    """(rows, columns) of a name such as h1m1, where m is minus."""
    digits, sign = [], 1
    for letter in name.removeprefix("h"):
        if letter == "m":
            sign = -1
        else:
            digits.append(sign * int(letter))
            sign = 1
    return tuple(digits)


def grid_variograms(grid):
    return [name.removeprefix("mcgr_variogram_") for name in grid.arrays if name.startswith("mcgr_variogram_")]


@pytest.mark.parametrize(
    ("prerank", "name"),
    [
        (AverageRank(), "average_rank"),
        (BandDepth(), "band_depth"),
        (Exceedance(0.0), "fte_t1"),
    ],
    ids=lambda value: str(value),
)
def test_ranks_on_grids_are_those_of_multivcalibration(grid, prerank, name):
    torch.testing.assert_close(grid.value(prerank), grid[f"mcgr_{name}"], **CLOSE)
    grid.assert_ranks(prerank, "mcgr", name)


def test_energy_scores_on_grids_are_those_of_multivcalibration(grid):
    torch.testing.assert_close(grid.value(EnergyScore(), pool=grid.members), grid["mcgr_energy_score"], **CLOSE)


def test_variograms_of_grids_are_those_of_multivcalibration(grid):
    names = grid_variograms(grid)
    assert len(names) >= 8
    d = grid.n_targets
    for name in names:
        expected = grid[f"mcgr_variogram_{name}"]
        variance = 1.0 if name.endswith("nostd") else (d - 1) / d
        options = {"exponent": 1.0 if "_p1" in name else 2.0, "standardised": not name.endswith("nostd")}
        if name.startswith("w"):
            weights = grid["w4"].reshape(d, d)
            prerank = Variogram(weights=weights, **options)
            factor = 8.0 * weights.triu(1).sum() * variance
        else:
            lags = ((0, 1), (1, 0), (1, 1)) if name == "hmat" else (lag_of(name.split("_")[0]),)
            prerank = Variogram(lags=lags, shape=grid.shape, **options)
            factor = variance
        torch.testing.assert_close(grid.value(prerank) * factor, expected, msg=name, **CLOSE)
        grid.assert_ranks(prerank, "mcgr", f"variogram_{name}")


def test_weights_of_a_grid_are_inverse_distances(grid):
    weights = grid["w4"].reshape(grid.n_targets, grid.n_targets)
    torch.testing.assert_close(grid.value(Variogram(shape=grid.shape)), grid.value(Variogram(weights=weights)))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("h1", {}),
        ("h2", {"lags": (2,)}),
        ("h1h2", {"lags": (1, 2)}),
        ("h1_p1", {"exponent": 1.0}),
    ],
)
def test_isotropy_is_that_of_multivcalibration(grid, name, options):
    prerank = Isotropy(grid.shape, **options)
    torch.testing.assert_close(grid.value(prerank), grid[f"mcgr_isotropy_{name}"], **CLOSE)
    grid.assert_ranks(prerank, "mcgr", f"isotropy_{name}")


def test_sizes_of_vectors_rank_as_in_sbi(golden):
    for file in ("case_long_d2", "case_ties_d5"):
        case = Case(golden(f"{file}.npz"))
        squares = Custom(lambda y: y.square().sum(-1))
        from_zero = ReferenceDistance(torch.zeros(case.n_targets))
        for prerank in (squares, from_zero):
            pit = projected_pit(case.y, Ensemble(case.members), prerank)
            below = (pit.lower[:, 0] * case.n_points).round()
            torch.testing.assert_close(below, case["sbi_rank_sqnorm"], rtol=0, atol=0)


@pytest.mark.parametrize("name", ["l2", "l1", "l2_z", "l1_z"])
def test_coverage_from_reference_points_is_that_of_sbis_tarp(golden, name):
    """Its expected coverage is a cumulative histogram, of 20 bins, of shares of members closer to the reference."""
    case = Case(golden("case_long_d2.npz"))
    y, members, points = case.y, case.members, case["sbi_tarp_references"]
    if name.endswith("z"):
        low, high = y.amin(0), y.amax(0)
        y, members, points = ((part - low) / (high - low) for part in (y, members, points))
    pit = projected_pit(y, Ensemble(members), ReferenceDistance(points, norm=int(name[1])))
    closer = (pit.lower[:, 0] * case.n_points).round() / (case.n_points - 1)
    expected = case[f"sbi_tarp_{name}"][1]
    counts, _ = np.histogram(closer.numpy(), bins=len(expected) - 1)
    coverage = np.concatenate([[0], np.cumsum(counts) / counts.sum()])
    np.testing.assert_allclose(coverage, expected, atol=1e-6)


def test_mahalanobis_distances_from_the_members_are_those_in_the_dawid_sebastiani_score(case):
    """Squared distance plus log det: the members' covariance with divisor M, about their mean."""
    if "sr_dss_bias" not in case.arrays:
        return
    found = Mahalanobis().given(Ensemble(case.members))(case.points)[:, 0, 0]
    centred = case.members - case.members.mean(1, keepdim=True)
    covariance = centred.mT @ centred / case.members.shape[1]
    torch.testing.assert_close(found + torch.logdet(covariance), case["sr_dss_bias"], **CLOSE)


def test_check_takes_them_all(golden):
    case = Case(golden("case_gauss_d5.npz"))
    chosen = [AverageRank(), BandDepth(), EnergyScore(), Exceedance(0.75), Mahalanobis(), SpanningTree(), Variogram()]
    result = check(case.y, case.members, chosen)
    assert list(result.table.index) == [item.name for item in chosen]
