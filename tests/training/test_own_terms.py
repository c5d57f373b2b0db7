"""A penalty and a score of one's own: known by what they offer, trained and tuned with like the library's."""

import sys
from dataclasses import dataclass, replace

import pytest
import torch

from prerank.calibration import pce, projected_pit
from prerank.forecasts import GaussianMixture
from prerank.preranks import Custom, Location, Marginal, Scale, needs_of, paper_preranks
from prerank.scores import energy_score
from prerank.training import (
    Architecture,
    EnergyScore,
    FitOptions,
    NegativeLogLikelihood,
    PreRankPenalty,
    Run,
    SharedNumbers,
    Stream,
    declares_capture,
    fit,
    tune,
)
from prerank.training.cuda_graph import is_capturable
from prerank.training.grouping import grouped
from prerank.training.loss import Loss, StepNoise
from prerank.training.protocols import draws_of, parts_of, streams_of

fit_module = sys.modules["prerank.training.loop"]
GPU = torch.device("cuda")  # its name alone: none is needed


@dataclass(frozen=True)
class Bias:
    """The smallest penalty there is: the squared mean error of the weighted cases."""

    name: str = "bias"

    def __call__(self, y, forecast, case_weights):
        error = ((y - forecast.mean) * case_weights[..., None]).sum(-2) / case_weights.sum(-1, keepdim=True)
        return error.square().mean(-1)


@dataclass(frozen=True)
class SquaredError:
    """The smallest score there is."""

    def __call__(self, y, forecast):
        return (y - forecast.mean).square().sum(-1)


@dataclass(frozen=True)
class Noisy:
    """A penalty with random numbers of its own, which notes what it was given."""

    seen: list
    shared: bool = False
    name: str = "noisy"

    def __hash__(self):
        return hash(self.name)

    def streams(self, sizes, n_cases):
        return {"mine": Stream((n_cases, sizes.n_targets), torch.exp, self.shared)}

    def __call__(self, y, forecast, *, case_weights, noise):
        self.seen.append(noise["mine"])
        numbers = self.seen[-1].of_models() if self.shared else self.seen[-1]
        return ((y - forecast.mean) * numbers).square().mean((-2, -1))


def same_models(one, other):
    return all(torch.equal(a, b) for a, b in zip(one.weights, other.weights, strict=True))


def test_a_penalty_of_ones_own_trains_beside_others_as_it_does_alone(tiny, small):
    data = {0: tiny(seed=0), 1: tiny(seed=1)}
    runs = [Run(0, Bias(), 5.0), Run(1, PreRankPenalty(Scale(), n_draws=20), 1.0), Run(1), Run(1, Bias(), 0.5)]
    fleet = fit(runs, data, small())
    for place in (0, 3):
        alone = fit([runs[place]], data, small())
        for together, own in zip(fleet.weights, alone.weights, strict=True):
            torch.testing.assert_close(together[[place]], own, rtol=0, atol=1e-9)
    without = fit([Run(0)], data, small())
    assert not torch.equal(fleet.weights[0][0], without.weights[0][0])


def test_a_penalty_of_ones_own_lowers_what_it_penalises(tiny, small):
    """With a score that teaches nothing, so that the model without the penalty stays where it starts."""

    @dataclass(frozen=True)
    class Nothing:
        def __call__(self, y, forecast):
            return 0 * forecast.log_prob(y)

    data = tiny()._replace(y=tiny().y + 2.0, y_validation=tiny().y_validation + 2.0)
    options = small(score=Nothing(), monitor=SquaredError(), max_epochs=40, patience=40)
    fleet = fit([Run(0), Run(0, Bias(), 1.0)], data, options)
    y = data.y.expand(2, -1, -1)
    without, penalised = Bias()(y, fleet.forecast(data.x), torch.ones(2, 96).double()).tolist()
    assert penalised < 0.1 * without


def test_cases_that_fill_up_a_minibatch_weigh_nothing_for_a_penalty_of_ones_own(tiny, small):
    """40 rows in batches of 32: the second has 8 rows and 24 to fill it up."""
    seen = []

    @dataclass(frozen=True)
    class Watching(Bias):
        def __call__(self, y, forecast, case_weights):
            seen.append(case_weights.sum(-1).tolist())
            return super().__call__(y, forecast, case_weights)

    fit([Run(0, Watching(), 1.0), Run(1, Watching(), 1.0)], tiny(rows=40), small(max_epochs=1))
    assert seen == [[32.0, 32.0], [8.0, 8.0]]


def test_a_score_of_ones_own_is_minimised_and_stops(tiny, small):
    options = small(score=SquaredError(), monitor=SquaredError(), max_epochs=10)
    data = tiny()
    fleet, short = fit([Run(0)], data, options), fit([Run(0)], data, replace(options, max_epochs=1))
    assert float(fleet.best_score) < float(short.best_score)
    error = (data.y_validation - fleet.forecast(data.x_validation).mean).square().sum(-1).mean()
    assert float(fleet.best_score) == pytest.approx(float(error))


def test_the_library_s_score_written_by_a_user_trains_the_same_model(tiny, small):
    @dataclass(frozen=True)
    class Mine:
        def __call__(self, y, forecast):
            return -forecast.log_prob(y)

    runs = [Run(0), Run(1, PreRankPenalty(Scale(), n_draws=20), 3.0)]
    assert same_models(fit(runs, tiny(), small(score=Mine(), monitor=Mine())), fit(runs, tiny(), small()))


def test_a_score_that_draws_is_given_its_numbers_and_one_that_does_not_is_given_none(tiny, small):
    seen = []

    @dataclass(frozen=True)
    class Drawing:
        n_draws: int = 7

        def __call__(self, y, forecast, noise):
            seen.append(noise)
            return -forecast.log_prob(y) + 0 * noise.sum((-2, -1))

    fit([Run(0), Run(5), Run(0)], tiny(), small(score=Drawing(), max_epochs=1))
    assert [numbers.shape for numbers in seen] == [(3, 32, 7, 3)] * 3
    assert torch.equal(seen[0][0], seen[0][2])  # models of one seed share them
    assert not torch.equal(seen[0][0], seen[0][1])
    assert not torch.equal(seen[0][0], seen[1][0])
    assert (draws_of(Drawing()), draws_of(SquaredError()), draws_of(EnergyScore(20))) == (7, 0, 20)


def test_a_penalty_is_given_the_numbers_of_its_streams_transformed_copied_or_shared(tiny, small):
    copied, shared = Noisy([]), Noisy([], shared=True, name="shared")
    runs = [Run(seed, penalty, 1.0) for penalty in (copied, shared) for seed in (0, 5, 0)]
    fit(runs, tiny(), small(max_epochs=1))
    assert all((numbers > 0).all() for numbers in copied.seen)  # through exp
    assert [numbers.shape for numbers in copied.seen] == [(3, 32, 3)] * 3
    for mine, theirs in zip(copied.seen, shared.seen, strict=True):
        assert isinstance(theirs, SharedNumbers)
        assert theirs.values.shape == (2, 32, 3)  # one set for each seed
        assert torch.equal(theirs.of_models(), mine)  # the stream's name decides, not the penalty
    assert not torch.equal(copied.seen[0], copied.seen[1])


def test_models_of_one_seed_share_their_numbers():
    numbers = SharedNumbers(torch.arange(6.0).reshape(2, 3), torch.tensor([1, 0, 1]))
    assert numbers.shape == (2, 3)
    assert numbers.of_models().tolist() == [[3.0, 4.0, 5.0], [0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]


def test_what_a_penalty_does_not_offer_has_a_default():
    sizes = Architecture(1, 3, 2)
    assert parts_of(Bias()) == [Bias()]
    assert streams_of(Bias(), sizes, 8) == {}
    both = PreRankPenalty((Location(), Scale()), n_draws=20)
    assert parts_of(both) == [PreRankPenalty(Location(), n_draws=20), PreRankPenalty(Scale(), n_draws=20)]


BOTH = PreRankPenalty((Location(), Scale()), n_draws=12)
MIXED = [
    Run(1),
    Run(0, BOTH, 1.0),
    Run(1, BOTH, 2.0),
    Run(1, PreRankPenalty(Scale(), n_draws=12), 1.0),
    Run(0, Bias(), 1.0),
]


def groups_of(runs, by_parts):
    return grouped(runs, torch.tensor([run.seed for run in runs]), Architecture(1, 3, 2), 8, by_parts)


def test_a_cpu_takes_a_penalty_whole_and_a_gpu_all_models_with_the_same_part():
    whole, by_parts = groups_of(MIXED, False), groups_of(MIXED, True)
    scale = PreRankPenalty(Scale(), n_draws=12)
    assert [(group.penalty, group.models.tolist()) for group in whole.groups] == [
        (BOTH, [1, 2]), (scale, [3]), (Bias(), [4]),
    ]  # fmt: skip
    assert [(group.penalty, group.models.tolist(), group.shares) for group in by_parts.groups] == [
        (PreRankPenalty(Location(), n_draws=12), [1, 2], [0.5]), (scale, [1, 2, 3], [0.5, 1.0]), (Bias(), [4], [1.0]),
    ]  # fmt: skip
    assert whole.sizes == by_parts.sizes == [1, 2, 1, 1]


def test_the_models_of_a_group_are_a_view_where_they_stand_together():
    apart = [MIXED[1], Run(0, PreRankPenalty(Location(), n_draws=12), 1.0), MIXED[3]]
    numbers = torch.arange(3)
    parts = {group.penalty.name: group.part(numbers) for group in groups_of(apart, True).groups}
    assert {name: part.tolist() for name, part in parts.items()} == {"location": [0, 1], "scale": [0, 2]}
    shares = {name: part.data_ptr() == numbers.data_ptr() for name, part in parts.items()}
    assert shares == {"location": True, "scale": False}


def test_penalties_are_the_same_whole_and_by_their_parts():
    generator = torch.Generator().manual_seed(0)
    loc, y = (torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in ((5, 8, 2, 3), (5, 8, 3)))
    law = GaussianMixture(torch.zeros(5, 8, 2).double(), loc, torch.eye(3).double().expand(5, 8, 2, 3, 3))
    noise = StepNoise([0, 1], ("score", "ranked"), torch.float64, torch.device("cpu"))
    seeds, strength, step = torch.tensor([run.seed for run in MIXED]), torch.ones(5).double(), torch.tensor(3)
    found = [
        Loss(SquaredError(), groups_of(MIXED, by_parts), strength, seeds, noise).penalties(
            y, law, torch.ones(5, 8), step
        )
        for by_parts in (False, True)
    ]
    torch.testing.assert_close(*found, rtol=0, atol=1e-12)
    assert found[0][0] == 0  # nobody penalises the first model
    assert (found[0][1:] > 0).all()


class TestTuning:
    def test_a_penalty_without_preranks_is_judged_by_those_of_the_paper(self, tiny, small):
        data = tiny(dtype=torch.float32)
        tuned = tune(Bias(), data, strengths=(1.0, 10.0), options=small())
        assert tuned.table.strength.tolist() == [0.0, 1.0, 10.0]
        laws, y = tuned.fleet.forecast(data.x_validation, [2]), data.y_validation
        law = GaussianMixture(laws.logits[0], laws.loc[0], laws.scale_tril[0])
        errors = [float(pce(projected_pit(y, law, item)).mean()) for item in paper_preranks(3)]
        assert tuned.table.pce[2] == pytest.approx(sum(errors) / 7)
        assert tuned.table.score[2] == pytest.approx(float(energy_score(y, law.ensemble(100)).mean()))

    def test_preranks_of_ones_choice_judge_any_penalty(self, tiny, small):
        data = tiny(dtype=torch.float32)
        by_location = tune(Bias(), data, strengths=(1.0,), options=small(), preranks=Location())
        same = tune(PreRankPenalty(Marginal()), data, strengths=(1.0,), options=small(), preranks=[Location()])
        own = tune(PreRankPenalty(Marginal()), data, strengths=(1.0,), options=small())
        # strength 0 is the same model in all three, so its PCE tells who judged it
        assert by_location.table.pce[0] == same.table.pce[0] != own.table.pce[0]

    def test_preranks_that_a_penalty_of_ones_own_names_judge_it(self, tiny, small):
        @dataclass(frozen=True)
        class Named(Bias):
            preranks: object = (Location(),)

        data = tiny(dtype=torch.float32)
        named = tune(Named(), data, strengths=(1.0,), options=small())
        chosen = tune(Bias(), data, strengths=(1.0,), options=small(), preranks=Location())
        single = tune(Named(preranks=Location()), data, strengths=(1.0,), options=small())
        assert named.table.equals(chosen.table)
        assert single.table.equals(chosen.table)

    def test_a_score_of_ones_own_stops_the_models_of_a_tuning(self, tiny, small):
        tuned = tune(Bias(), tiny(), strengths=(1.0,), options=small(score=SquaredError(), monitor=SquaredError()))
        assert len(tuned.table) == 2


@dataclass(frozen=True)
class Declared(Bias):
    capturable = True

    def __call__(self, y, forecast, case_weights):
        return super().__call__(y, forecast, case_weights)


@dataclass(frozen=True)
class Careless(Declared):
    """It brings code of its own and declares nothing."""

    def __call__(self, y, forecast, case_weights):
        return super().__call__(y, forecast, case_weights) * float(case_weights.sum() > 0)


@dataclass(frozen=True)
class Renamed(Declared):
    """It brings no code, so what was declared still holds."""

    name: str = "renamed"


@dataclass(frozen=True)
class OwnScale(Scale):
    def given(self, view):
        return super().given(view)


class TestCapture:
    @pytest.mark.parametrize(
        ("term", "declared"),
        [
            (NegativeLogLikelihood(), True),
            (EnergyScore(), False),
            (SquaredError(), False),
            (Bias(), False),
            (Declared(), True),
            (Renamed(), True),
            (Careless(), False),
            *((PreRankPenalty(item), True) for item in paper_preranks(2) + paper_preranks(3)),
            (PreRankPenalty(Custom(lambda y: y.amax(-1), name="maximum")), False),
            (PreRankPenalty((Location(), Custom(lambda y: y.amax(-1)))), False),
            (PreRankPenalty(OwnScale()), False),
        ],
        ids=lambda value: None if isinstance(value, bool) else f"{type(value).__name__} {getattr(value, 'name', '')}",
    )
    def test_only_what_declares_it_is_captured(self, term, declared):
        assert declares_capture(term) == declared
        assert is_capturable(GPU, NegativeLogLikelihood(), term) == declared
        assert not is_capturable(torch.device("cpu"), NegativeLogLikelihood(), term)

    def test_one_term_without_the_declaration_keeps_the_whole_step_from_being_captured(self):
        terms = [NegativeLogLikelihood(), PreRankPenalty(Location()), Declared()]
        assert is_capturable(GPU, *terms)
        assert not is_capturable(GPU, *terms, Bias())
        assert not is_capturable(GPU, EnergyScore(), *terms[1:])

    def test_fit_asks_the_score_and_every_penalty_in_the_fleet_and_for_validation_the_monitor(
        self, tiny, small, monkeypatch
    ):
        asked = []
        monkeypatch.setattr(fit_module, "is_capturable", lambda device, *terms: bool(asked.append(terms)))
        options = small(score=SquaredError(), max_epochs=1)
        fit([Run(0), Run(0, Declared(), 1.0), Run(0, Bias(), 1.0)], tiny(), options)
        assert asked[:2] == [(SquaredError(), Declared(), Bias()), (NegativeLogLikelihood(),)]

    def test_what_is_captured_is_undone_before_it_starts(self, tiny, small, monkeypatch):
        """The loop hands every tensor that a step changes to the capture, so that warming up leaves no trace.

        Where there is no GPU, a stand-in warms up as the real one does and then calls the function.
        """

        class Rehearsed:
            def __init__(self, function, state, warm_ups):
                self.function, self.state, self.left = function, state, warm_ups

            def __call__(self, *inputs):
                before = [tensor.clone() for tensor in self.state]
                for _ in range(self.left):
                    self.function(*inputs)
                for tensor, value in zip(self.state, before, strict=True):
                    tensor.copy_(value)
                self.left = 0
                self.function(*inputs)

        runs, options = [Run(0), Run(1, PreRankPenalty(Scale(), n_draws=20), 3.0)], small(max_epochs=6, patience=2)
        plain = fit(runs, tiny(), options)
        monkeypatch.setattr(fit_module, "Captured", Rehearsed)
        monkeypatch.setattr(fit_module, "is_capturable", lambda device, *terms: True)
        rehearsed = fit(runs, tiny(), options)
        for one, other in zip(plain.weights, rehearsed.weights, strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=1e-12)
        assert torch.equal(plain.best_epoch, rehearsed.best_epoch)


class TestRefusals:
    def test_what_is_no_penalty_is_refused_before_anything_is_trained(self):
        class Unhashable(Bias):
            __hash__ = None

        class Blind(Bias):
            def __call__(self, y, forecast):
                return y.mean((-2, -1))

        for penalty, message in (
            (PreRankPenalty, r"PreRankPenalty is a class; pass a value, such as PreRankPenalty\(Location\(\)\)"),
            (Bias(name=None), r"has no name; a penalty has a `name`"),
            (Unhashable(), r"the penalty 'bias' cannot be hashed.*make it a frozen dataclass"),
            (Blind(), r"'bias' takes no case_weights.*write __call__\(self, y, forecast, case_weights\)"),
        ):
            with pytest.raises(TypeError, match=message):
                Run(0, penalty, 1.0)

    def test_what_is_no_score_is_refused_before_anything_is_trained(self):
        with pytest.raises(TypeError, match=r"score=EnergyScore is a class; pass a value, such as EnergyScore\(\)"):
            FitOptions(score=EnergyScore)
        with pytest.raises(TypeError, match=r"monitor='nll' is not a score; pass NegativeLogLikelihood\(\)"):
            FitOptions(monitor="nll")

    def test_values_of_the_wrong_shape_are_told_with_the_right_one(self, tiny, small):
        @dataclass(frozen=True)
        class OneForAll(Bias):
            def __call__(self, y, forecast, case_weights):
                return super().__call__(y, forecast, case_weights).mean()

        @dataclass(frozen=True)
        class MeanError(SquaredError):
            def __call__(self, y, forecast):
                return super().__call__(y, forecast).mean(-1)

        runs = [Run(0, OneForAll(), 1.0), Run(1, OneForAll(), 1.0)]
        with pytest.raises(
            ValueError, match=r"'bias' gave shape \(\); fit needs one value for each model, shape \(2,\)"
        ):
            fit(runs, tiny(), small())
        message = r"score MeanError gave shape \(2,\); fit needs one value for each model and case, shape \(2, 32\)"
        with pytest.raises(ValueError, match=message):
            fit([Run(0), Run(1)], tiny(), small(score=MeanError()))
        with pytest.raises(ValueError, match=r"score MeanError gave shape \(1,\).*shape \(1, 40\)"):
            fit([Run(0)], tiny(), small(monitor=MeanError()))

    def test_streams_that_fit_uses_itself_are_refused(self, tiny, small):
        class Clashing(Bias):
            def streams(self, sizes, n_cases):
                return {"validation": Stream((n_cases,))}

        message = r"'bias' has a stream called 'validation', whose random numbers fit uses itself.*another name"
        with pytest.raises(ValueError, match=message):
            fit([Run(0, Clashing(), 1.0)], tiny(), small())


def test_a_prerank_of_ones_own_is_probed_before_the_first_step(tiny, small):
    """Its numbers are drawn for it although nobody knows its class."""

    @dataclass(frozen=True)
    class Range:
        name: str = "range"

        def given(self, view):
            return Custom(lambda y: y.amax(-1) - y.amin(-1), name=self.name).given(view)

    assert needs_of(Range(), 3) == (False, False, False)
    penalty = PreRankPenalty(Range(), n_draws=20)
    assert list(penalty.streams(Architecture(1, 3), 8)) == ["ranked"]
    assert not fit([Run(0, penalty, 5.0)], tiny(), small()).diverged.any()
    assert len(tune(penalty, tiny(), strengths=(1.0,), options=small()).table) == 2
