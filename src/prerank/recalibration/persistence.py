"""Fitted steps in one file: their tensors as safetensors, their other fields as JSON."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from prerank._parameters import require_number, require_whole, require_yes_or_no
from prerank._serialization import Format, decode, encode, refusing_forgery
from prerank.recalibration.affine import REASONS, FittedAffine
from prerank.recalibration.dressing import FittedDressing
from prerank.recalibration.error_law import PATTERNS, FittedErrorLaw
from prerank.recalibration.error_shape import SHAPES
from prerank.recalibration.guard import Verdict
from prerank.recalibration.steps import Fitted
from prerank.recalibration.tilt import FittedTilt

_FORMAT = Format("Recalibrator", 1, (1,))
_STEPS: dict[str, Any] = {kind.__name__: kind for kind in (FittedAffine, FittedDressing, FittedErrorLaw, FittedTilt)}


def write(path: Path | str, steps: tuple[Fitted, ...], about: Mapping[str, Any]) -> None:
    """Write steps and what else is known about them, whole."""
    tensors: dict[str, Tensor] = {}
    described = []
    for place, step in enumerate(steps):
        name = type(step).__name__
        if _STEPS.get(name) is not type(step):
            raise TypeError(f"the step {step!r} cannot be saved: a file holds {', '.join(_STEPS)}, never code")
        kept = [field.name for field in dataclasses.fields(step) if field.metadata.get("saved", True)]  # type: ignore[arg-type]
        fields = {key: getattr(step, key) for key in kept}
        # copies, because steps may share a tensor, and a file may not
        tensors |= {f"{place}.{key}": value.clone() for key, value in fields.items() if isinstance(value, Tensor)}
        rest = {key: encode(value, key) for key, value in fields.items() if not isinstance(value, Tensor)}
        described.append({"step": name, "fields": rest})
    _FORMAT.write(path, tensors, {**about, "steps": described})


class About(NamedTuple):
    """What a file says of the cases that were fitted on."""

    n_cases: int
    n_targets: int
    n_folds: int
    seed: int
    n_features: int
    n_members: int | None
    tied: list[float]
    target_names: tuple[str, ...] | None
    notes: tuple[str, ...]
    member_names: tuple[str, ...] | None = None


def read_steps(path: Path | str) -> tuple[tuple[Fitted, ...], About]:
    """What `write` wrote, its values checked: a file can be whole and still hold what no fit has made."""
    tensors, header = _FORMAT.read(path)
    with refusing_forgery(path, _FORMAT.kind):
        whole = {
            "n_cases": require_whole(header["n_cases"], "n_cases"),
            "n_targets": require_whole(header["n_targets"], "n_targets"),
            "n_folds": require_whole(header["n_folds"], "n_folds", at_least=2),
            "seed": require_whole(header["seed"], "seed", at_least=None),
            "n_features": require_whole(header.get("n_features", 0), "n_features", at_least=0),
        }
        members = header.get("n_members")
        tied = [require_number(share, "tied", 0, 1) for share in header.get("tied", [0.0] * whole["n_targets"])]
        names = header.get("target_names")
        _require(names is None or _are_names(names, whole["n_targets"]), "target_names are for other targets")
        called = header.get("member_names")
        _require(called is None or (members is not None and _are_names(called, members)), "member_names are others")
        notes = header.get("notes", [])
        _require(isinstance(notes, list) and all(isinstance(note, str) for note in notes), "notes are no text")
        about = About(
            **whole,
            n_members=None if members is None else require_whole(members, "n_members"),
            tied=tied,
            target_names=None if names is None else tuple(names),
            notes=tuple(notes),
            member_names=None if called is None else tuple(called),
        )
        _require(len(about.tied) == about.n_targets, "tied is for other targets")
        steps = []
        for place, item in enumerate(header["steps"]):
            fields = {key: decode(value) for key, value in item["fields"].items()}
            own = f"{place}."
            fields |= {key.removeprefix(own): value for key, value in tensors.items() if key.startswith(own)}
            if "verdict" in fields:
                fields["verdict"] = Verdict(*fields["verdict"])
            step = _STEPS[item["step"]](**fields)
            _CHECKS[type(step)](step, about)
            steps.append(step)
        return tuple(steps), about


def _are_names(names: Any, n_targets: int) -> bool:
    """Whether there is a text for each target or member, each its own."""
    return (
        isinstance(names, list)
        and len(names) == len({str(name) for name in names}) == n_targets
        and all(isinstance(name, str) for name in names)
    )


def _require(condition: bool, otherwise: str) -> None:
    if not condition:
        raise ValueError(otherwise)


def _require_tensor(value: Any, name: str, shape: tuple[int, ...]) -> None:
    _require(isinstance(value, Tensor) and tuple(value.shape) == shape, f"{name} is not of shape {shape}")
    _require(value.is_floating_point() and bool(value.isfinite().all()), f"{name} has values that are no numbers")


def _check_moving(step: FittedAffine | FittedDressing, about: About) -> None:
    for name in ("shift", "scale"):
        _require_tensor(getattr(step, name), name, (about.n_targets,))
    _require(bool((step.scale > 0).all()), "scale is not positive")
    for name in ("gain", "gain_error"):
        require_number(getattr(step, name), name)


def _check_affine(step: FittedAffine, about: About) -> None:
    _check_moving(step, about)
    if step.ridge is not None:
        require_number(step.ridge, "ridge", at_least=0)
    require_whole(step.seed, "seed", at_least=None)
    require_yes_or_no(step.discrete, "discrete")
    _require(step.why in REASONS, "why is no reason")


def _check_dressing(step: FittedDressing, about: About) -> None:
    _check_moving(step, about)
    _require_tensor(step.kernel_tril, "kernel_tril", (about.n_targets, about.n_targets))
    _require(not bool(step.kernel_tril.triu(1).any()), "kernel_tril has entries above its diagonal")
    _require(bool((step.kernel_tril.diagonal() > 0).all()), "kernel_tril has a diagonal that is not positive")
    require_number(step.score, "score")
    _require(require_number(step.tail_share, "tail_share", at_least=0) < 1, "tail_share is not below 1")
    require_number(step.tail_factor, "tail_factor", above=0)


def _check_tilt(step: FittedTilt, about: About) -> None:
    _require(all(hasattr(item, "given") for item in step.preranks), "preranks are none")
    _require(all(isinstance(name, str) for name, _ in step.groups), "groups have no names")
    width = sum(require_whole(count, "groups") for _, count in step.groups)
    lead = () if step.centre is None else (about.n_features,)
    _require_tensor(step.theta, "theta", (*lead, step.theta.shape[-2], width))
    for name in ("observed", "corrected"):
        _require_tensor(getattr(step, name), name, (width, getattr(step, name).shape[-1]))
    _require((step.centre is None) == (step.spread is None), "centre and spread go together")
    if step.centre is not None:
        for name in ("centre", "spread"):
            _require_tensor(getattr(step, name), name, lead)
    if step.ridge is not None:
        require_number(step.ridge, "ridge", at_least=0)
    for name, value in (
        *zip(Verdict._fields, step.verdict, strict=True),
        ("gain", step.gain),
        ("own_weight", step.own_weight),
    ):
        require_number(value, name)
    require_number(step.gain_error, "gain_error", at_least=0)
    require_number(step.verdict.effective_share, "effective_share", above=0)
    require_yes_or_no(step.refused, "refused")
    for name, most in (("n_reference", 100_000), ("pool", 1_000_000)):
        require_whole(getattr(step, name), name, at_most=most)
    require_whole(step.seed, "seed", at_least=None)


def _check_error_law(step: FittedErrorLaw, about: About) -> None:
    d, members = about.n_targets, step.n_members
    _require(members == (about.n_members if members is not None else None), "members are others than were fitted on")
    _require(require_whole(step.n_features, "n_features", at_least=0) == about.n_features, "features are others")
    width = d + d * (members or 0) + about.n_features
    for name in ("centre", "spread", "reach"):
        _require_tensor(getattr(step, name), name, (width,))
    for name in ("unit", "shift", "usual", "level"):
        _require_tensor(getattr(step, name), name, (d,))
    for name in ("unit", "spread", "usual"):
        _require(bool((getattr(step, name) > 0).all()), f"{name} is not positive")
    _require(bool((step.reach >= 0).all()), "reach is negative")
    _require_tensor(step.coefficients, "coefficients", (width, d))
    by_level = int(len(step.slopes) > 2 + about.n_features)
    _require_tensor(step.slopes, "slopes", (2 + about.n_features + by_level,))
    _require_tensor(step.scatter, "scatter", (d, d))
    _require(bool(torch.allclose(step.scatter, step.scatter.mT)), "scatter is not symmetric")
    _require(bool((torch.linalg.eigvalsh(step.scatter) > 0).all()), "scatter is not positive definite")
    if step.freedom is not None:
        require_number(step.freedom, "freedom", above=0)
    require_number(step.own_share, "own_share", 0, 1)
    _require(step.pattern in PATTERNS, "pattern is none")
    require_number(step.pattern_share, "pattern_share", 0, 1)
    _require(step.shape in SHAPES, "shape is none")
    require_number(step.shape_share, "shape_share", 0, 1)
    groups = (step.group_logits, step.group_centres, step.group_sizes)
    _require(all((step.shape == "groups") == (part is not None) for part in groups), "groups go with their shape")
    if step.group_logits is not None and step.group_sizes is not None:
        count = len(step.group_logits)
        for name, shape in (("group_logits", (count,)), ("group_centres", (count, d)), ("group_sizes", (count,))):
            _require_tensor(getattr(step, name), name, shape)
        _require(bool((step.group_sizes > 0).all()), "group_sizes are not positive")
    curve = (step.bump_width, step.bump_centres, step.bump_heights)
    _require(len({part is None for part in curve}) == 1, "bumps have a width, centres and heights, or none of them")
    if step.bump_heights is not None and step.bump_width is not None:
        smooth, count = d + about.n_features, len(step.bump_heights)
        for name, shape in (("bump_width", (smooth,)), ("bump_centres", (count, smooth)), ("bump_heights", (count, d))):
            _require_tensor(getattr(step, name), name, shape)
        _require(bool((step.bump_width > 0).all()), "bump_width is not positive")
    if step.p_value is not None:
        require_number(step.p_value, "p_value", 0, 1)
    for name in ("score", "gain", "gain_error"):
        require_number(getattr(step, name), name)
    require_yes_or_no(step.changed, "changed")
    if step.moves is not None:
        _require_tensor(step.moves, "moves", (2, d))
        _require(bool((step.moves[1] > 0).all()), "moves have a scale that is not positive")


_CHECKS: dict[type, Any] = {
    FittedAffine: _check_affine,
    FittedDressing: _check_dressing,
    FittedErrorLaw: _check_error_law,
    FittedTilt: _check_tilt,
}
