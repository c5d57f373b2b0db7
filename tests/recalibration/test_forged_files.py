"""A file with a right digest may still hold what no fit has made: it gets one sentence, and names no path."""

import json

import numpy as np
import pytest
import torch

from prerank import Location, Marginal, Recalibrator
from prerank._serialization import Format
from prerank.recalibration.affine import FittedAffine
from prerank.recalibration.dressing import FittedDressing
from prerank.recalibration.error_law import FittedErrorLaw
from prerank.recalibration.guard import Verdict
from prerank.recalibration.persistence import _FORMAT, write
from prerank.recalibration.tilt import FittedTilt
from prerank.regression import CalibratedRegressorCV, MixtureRegressor

TWO = torch.ones(2, dtype=torch.float64)
AFFINE = FittedAffine(0 * TWO, 2 * TWO, 0.1, 0.25, 0.0625, 3)
DRESSING = FittedDressing(0 * TWO, TWO, torch.eye(2).double())
TILT = FittedTilt(
    (Marginal(), Location()),
    (("marginal", 2), ("location", 1)),
    torch.zeros(4, 3).double(),
    0.1,
    0.1,
    0.1,
    Verdict(0.5, 1.0, 0.1, 0.1),
    False,
    0.01,
    torch.ones(3, 20).double(),
    torch.ones(3, 20).double(),
    100,
    200,
    0,
)
EYE = torch.eye(2).double()
LAW = FittedErrorLaw(
    *(TWO, 0 * TWO, TWO, TWO, 0 * TWO, 0 * EYE, TWO, 0 * TWO, TWO, EYE, 5.0, 0.1),
    *(
        None,
        0,
        "equal",
        0.5,
        "groups",
        0.0,
        0 * torch.ones(4).double(),
        torch.ones(4, 2).double(),
        torch.ones(4).double(),
    ),
    *(TWO, torch.ones(3, 2).double(), torch.ones(3, 2).double(), 0.01, 1.0, 0.1, 0.05),
)
KNOWN = {"n_cases": 9, "n_targets": 2, "n_features": 0, "n_folds": 5, "seed": 0, "tied": [0.0, 0.0]}
NAN = torch.full((2,), torch.nan).double()


def forge(path, step, change=None, **known):
    """A file of one step whose tensors and header are changed before its digest is made."""
    write(path, (step,), {**KNOWN, **known})
    tensors, about = _FORMAT.read(path)
    for name in ("format", "version"):
        about.pop(name)
    if change is not None:
        change(tensors, about)
    _FORMAT.write(path, tensors, about)
    return path


def no_tensor(name):
    return lambda tensors, _: tensors.pop(f"0.{name}")


def tensor(name, value):
    return lambda tensors, _: tensors.__setitem__(f"0.{name}", value)


def field(name, value):
    return lambda _, about: about["steps"][0]["fields"].__setitem__(name, value)


def head(name, value):
    return lambda _, about: about.__setitem__(name, value)


def without(name):
    return lambda _, about: about.pop(name)


FORGED = {
    "shift of NaN": (AFFINE, tensor("shift", NAN), "shift has values that are no numbers"),
    "infinite scale": (AFFINE, tensor("scale", TWO / 0), "scale has values that are no numbers"),
    "negative scale": (AFFINE, tensor("scale", -TWO), "scale is not positive"),
    "scale of other targets": (AFFINE, tensor("scale", torch.ones(3)), r"scale is not of shape \(2,\)"),
    "shift of whole numbers": (AFFINE, tensor("shift", torch.ones(2, dtype=torch.int64)), "shift has values"),
    "no shift": (AFFINE, lambda tensors, _: tensors.pop("0.shift"), "TypeError"),
    "a ridge of text": (AFFINE, field("ridge", "strong"), "ridge='strong'"),
    "a reason of its own": (AFFINE, field("why", "\x1b[31m"), "why is no reason"),
    "a seed with a fraction": (AFFINE, field("seed", 0.5), "seed=0.5: a whole number"),
    "a field too many": (AFFINE, field("code", "import os"), "TypeError"),
    "zero kernel": (DRESSING, tensor("kernel_tril", torch.zeros(2, 2).double()), "diagonal that is not positive"),
    "full kernel": (DRESSING, tensor("kernel_tril", torch.ones(2, 2).double()), "entries above its diagonal"),
    "negative spread": (DRESSING, tensor("scale", -TWO), "scale is not positive"),
    "all kernels wide": (DRESSING, field("tail_share", 1.0), "tail_share is not below 1"),
    "no width": (DRESSING, field("tail_factor", 0.0), "tail_factor=0.0: a finite number above 0"),
    "coefficients of NaN": (TILT, tensor("theta", torch.full((4, 3), torch.nan)), "theta has values"),
    "coefficients of others": (TILT, tensor("theta", torch.zeros(4, 7).double()), "theta is not of shape"),
    "an enormous pool": (TILT, field("pool", 10**12), "pool=1000000000000: a whole number"),
    "a pool of text": (TILT, field("pool", "many"), "pool='many'"),
    "no effective share": (TILT, field("verdict", {"tuple": [0.0, 1.0, 0.0, 0.0]}), "effective_share=0.0"),
    "a short verdict": (TILT, field("verdict", {"tuple": [1.0]}), "TypeError"),
    "centre alone": (TILT, tensor("centre", TWO), "theta is not of shape|centre and spread go together"),
    "groups of none": (TILT, field("groups", None), "TypeError"),
    "preranks of text": (TILT, field("preranks", "all"), "preranks are none"),
    "an unknown prerank": (TILT, field("preranks", {"tuple": [{"prerank": "Evil", "fields": {}}]}), "Evil"),
    "a tuple of nothing": (TILT, field("preranks", {"wrong": 1}), "KeyError"),
    "a law of other targets": (LAW, tensor("scatter", torch.eye(3).double()), r"scatter is not of shape \(2, 2\)"),
    "a scatter of no law": (LAW, tensor("scatter", -EYE), "scatter is not positive definite"),
    "a lopsided scatter": (LAW, tensor("scatter", EYE + EYE.roll(1).triu()), "scatter is not symmetric"),
    "errors of no size": (LAW, tensor("unit", 0 * TWO), "unit is not positive"),
    "no freedom": (LAW, field("freedom", 0.0), "freedom=0.0"),
    "a shape of its own": (LAW, field("shape", "round"), "shape is none"),
    "groups of no shape": (LAW, field("shape", "t"), "groups go with their shape"),
    "groups of no size": (LAW, tensor("group_sizes", torch.zeros(4).double()), "group_sizes are not positive"),
    "too few centres": (LAW, tensor("group_centres", torch.ones(3, 2).double()), "group_centres is not of shape"),
    "bumps without a width": (LAW, no_tensor("bump_width"), "bumps have a width, centres and heights"),
    "bumps of no width": (LAW, tensor("bump_width", 0 * TWO), "bump_width is not positive"),
    "bumps elsewhere": (LAW, tensor("bump_centres", torch.ones(3, 3).double()), "bump_centres is not of shape"),
    "a pattern of its own": (LAW, field("pattern", "plaid"), "pattern is none"),
    "members that were not": (LAW, field("n_members", 3), "members are others"),
    "a move the other way": (LAW, tensor("moves", -torch.ones(2, 2).double()), "moves have a scale"),
    "an unknown step": (AFFINE, lambda _, about: about["steps"][0].update(step="os.system"), "KeyError"),
    "steps that are none": (AFFINE, head("steps", 3), "TypeError"),
    "no steps": (AFFINE, without("steps"), "KeyError"),
    "no number of cases": (AFFINE, without("n_cases"), "KeyError: 'n_cases'"),
    "no cases": (AFFINE, head("n_cases", 0), "n_cases=0: a whole number"),
    "targets by text": (AFFINE, head("n_targets", "two"), "n_targets='two'"),
    "one fold": (AFFINE, head("n_folds", 1), "n_folds=1"),
    "ties of NaN": (AFFINE, head("tied", [2.0, 0.0]), "tied=2.0"),
    "ties of others": (AFFINE, head("tied", [0.0]), "tied is for other targets"),
    "a negative number of features": (AFFINE, head("n_features", -1), "n_features=-1"),
}


@pytest.mark.parametrize("name", FORGED)
def test_contents_that_do_not_fit_together_are_refused(name, tmp_path):
    step, change, message = FORGED[name]
    path = forge(tmp_path / "file", step, change)
    with pytest.raises(ValueError, match=r"is no Recalibrator that a release has saved: .*; fit it anew") as caught:
        Recalibrator.load(path)
    assert caught.match(message)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("step", [AFFINE, DRESSING, LAW, TILT])
def test_what_a_fit_has_made_is_read(step, tmp_path):
    assert type(Recalibrator.load(forge(tmp_path / "file", step)).steps_[0]) is type(step)


def raw(path, text, kind="Recalibrator"):
    """A file whose header is any text, with its digest."""
    from safetensors.torch import save

    from prerank._serialization import _digest

    tensors = {"0.shift": TWO}
    path.write_bytes(save(tensors, metadata={"prerank": f"{_digest(text, tensors)} {text}"}))
    return path


@pytest.mark.parametrize("kind", [Recalibrator, MixtureRegressor, CalibratedRegressorCV])
@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        "no JSON",
        "[]",
        "3",
        "null",
        "{}",
        '{"format": "prerank Recalibrator"}',
        '{"format": NaN, "version": 1}',
    ],
    ids=["nested", "text", "list", "number", "null", "empty", "no version", "NaN"],
)
def test_headers_that_are_none_are_refused(kind, text, tmp_path):
    with pytest.raises(ValueError, match=r"that a release has saved|not a saved"):
        kind.load(raw(tmp_path / "file", text))


@pytest.mark.parametrize("kind", ["MixtureRegressor", "CalibratedRegressorCV"])
def test_an_estimator_without_contents_is_refused(kind, tmp_path):
    version = {"MixtureRegressor": 3, "CalibratedRegressorCV": 1}[kind]
    text = json.dumps({"format": f"prerank {kind}", "version": version})
    with pytest.raises(ValueError, match=f"is no {kind} that a release has saved"):
        {"MixtureRegressor": MixtureRegressor, "CalibratedRegressorCV": CalibratedRegressorCV}[kind].load(
            raw(tmp_path / "file", text)
        )


def test_names_of_parts_are_no_paths(tmp_path):
    inside = tmp_path / "deep" / "folder"
    inside.mkdir(parents=True)
    victim = tmp_path / "victim"
    parts = {str(victim): torch.zeros(3, dtype=torch.uint8)}
    keys = ("names", "n_models_", "n_features_in_", "n_targets_", "target_names_", "_one_axis")
    Format("CalibratedRegressorCV", 1, (1,)).write(inside / "file", parts, {**dict.fromkeys(keys), "n_models": 1})
    with pytest.raises(ValueError, match="it holds 1 part that are not those of 1 model"):
        CalibratedRegressorCV.load(inside / "file")
    assert not victim.exists()


def test_a_seed_of_numpy_is_kept(tmp_path):
    y = torch.randn(40, 2, generator=torch.Generator().manual_seed(0))
    members = torch.randn(40, 5, 2, generator=torch.Generator().manual_seed(1))
    from prerank.recalibration import Affine

    fitted = Recalibrator(steps=[Affine()], seed=np.int64(3), n_folds=np.int32(4)).fit(members, y)
    fitted.save(tmp_path / "file")
    again = Recalibrator.load(tmp_path / "file")
    assert (again.seed, again.n_folds, again.fitted_on_.n_members) == (3, 4, 5)
