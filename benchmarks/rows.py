"""Does a row of `check` test what its name says: that every projection of its pre-rank is calibrated?

    PYTHONPATH=src python benchmarks/rows.py size family adjustment --device cuda --out results/rows
    PYTHONPATH=src python benchmarks/rows.py power --device cuda --out results/rows [--old TREE]

*Size*: worlds in which every projection of the row is exactly calibrated while the dependence between them is wrong in one
direction or another; rows with one projection beside them. *Family-wise*: worlds in which some rows are right and others
wrong; how often is a right row rejected after adjustment? *Adjustment*: how many data sets with an error are rejected
after the adjustment in steps, and after Holm's. *Power*: rows with something wrong in one projection, in a third
of them and in all, by the test of this tree and, with `--old`, by that of another tree on the same data.
Every argument is at its default and no seed of a test is varied. A finished cell is kept under `parts/`, so that the script
resumes; `--shard 1/4` does every fourth cell, so that processes can share the work. With `table` the tables are written
from what is there.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path

import pandas as pd
import torch
from scipy import stats
from torch import Tensor

from prerank import (
    PCA,
    Custom,
    Dependency,
    Ensemble,
    GaussianMixture,
    Location,
    Marginal,
    Scale,
    paper_preranks,
    pce_test,
    projected_pit,
)
from prerank.calibration import ProjectedPIT, holm
from prerank.randomness import torch_generator

LEVEL = 0.05
AT_ONCE = {"cpu": 2e6, "cuda": 5e7}  # numbers of the points of the repetitions that are computed together
DEPENDENCES = {  # of truth and forecast: equal correlations, or a name
    "independent / .95": (0.0, 0.95),
    ".95 / independent": (0.95, 0.0),
    ".8 / .3": (0.8, 0.3),
    "AR .9 / independent": ("AR", 0.0),
    "independent / AR .9": (0.0, "AR"),
    "t copula / normal": ("t", 0.5),
    ".5 / .4": (0.5, 0.4),
    ".5 / .3": (0.5, 0.3),
    "right": (0.5, 0.5),
    "right, 0": (0.0, 0.0),
    "right, .5": (0.5, 0.5),
    "right, .8": (0.8, 0.8),
    "right, .9": (0.9, 0.9),
}
WRONG_DEPENDENCES = tuple(DEPENDENCES)[:6]  # every target calibrated, their dependence not


@dataclass(frozen=True)
class Cell:
    """One row of the tables: what is tested, on how many cases, members (0: a law in closed form) and targets."""

    part: str
    row: str
    dependence: str
    n_cases: int
    n_members: int
    n_targets: int
    targets: str = "continuous"
    weights: str = "none"
    blocks: str = "none"
    wrong: str = "none"

    @property
    def name(self) -> str:
        return "; ".join(f"{name}={value}" for name, value in asdict(self).items())


# -- cells


def size_cells() -> Iterator[Cell]:
    """Dependences by numbers of cases, members and targets; case weights, blocks and targets on few values."""
    for dependence in WRONG_DEPENDENCES:
        for n_targets in (4, 10, 25):
            for n_cases in (5, 30, 100, 300, 1000):
                for n_members in (1, 2, 5, 20, 50, 0):
                    yield Cell("size", "marginal", dependence, n_cases, n_members, n_targets)
    for n_cases in (5, 30, 100, 300, 1000):
        for n_targets in (4, 10, 25):
            for dependence in ("components independent", "components with tail dependence", "dependent components"):
                yield Cell("size", "PCA of a law", dependence, n_cases, 0, n_targets)
        for n_members in (1, 2, 5, 20, 50, 0):
            yield Cell("size", "location", "right", n_cases, n_members, 4)
    turn = count()

    def next_dependence(kinds: tuple[str, ...] = WRONG_DEPENDENCES) -> str:
        return kinds[next(turn) % len(kinds)]

    for weights in ("even", "very uneven"):
        for n_cases in (5, 30, 100, 300, 1000):
            for n_members in (1, 2, 5, 20, 50, 0):
                yield Cell("size", "marginal", next_dependence(), n_cases, n_members, 4, weights=weights)
                yield Cell("size", "location", "right", n_cases, n_members, 4, weights=weights)
            next(turn)  # so that a number of members does not always meet the same dependence
    for n_blocks in (20, 50):
        for members in ("members linked", "members not linked", "a law"):
            blocks = f"{n_blocks} of 10, {members}"
            for n_members in (2, 5, 20) if members != "a law" else (0,):
                for dependence in WRONG_DEPENDENCES[:3]:
                    for n_targets in (4, 10):
                        yield Cell("size", "marginal", dependence, 10 * n_blocks, n_members, n_targets, blocks=blocks)
                yield Cell("size", "location", "right", 10 * n_blocks, n_members, 4, blocks=blocks)
    for targets_are in ("counts", "rounded", "half counts"):
        for n_cases in (5, 30, 100, 300, 1000):
            for n_members in (2, 5, 20, 50):
                yield Cell("size", "marginal", next_dependence(), n_cases, n_members, 4, targets_are)
                yield Cell("size", "location", "right", n_cases, n_members, 4, targets_are)
            next(turn)


def family_cells() -> Iterator[Cell]:
    for n_cases in (30, 60, 200):
        for n_members in (5, 20):
            for dependence in (".95 / independent", "independent / .95", ".8 / .3"):
                yield Cell("family", "marginal right, dependence wrong", dependence, n_cases, n_members, 4)
        for n_members in (5, 20, 0):
            for wrong in ("two of ten", "five of ten"):
                yield Cell("family", "ten rows of one target", "right, .9", n_cases, n_members, 10, wrong=wrong)
        yield Cell("family", "PCA right, components dependent", "dependent components", n_cases, 0, 4)


def power_cells() -> Iterator[Cell]:
    for n_cases in (50, 200):
        for n_members, n_targets in ((2, 10), (20, 4), (20, 10), (8, 24)):
            for wrong in ("bias in one", "bias in a third", "bias in all", "spread in one", "spread in all"):
                for dependence in ("right, 0", "right, .8"):
                    yield Cell("power", "marginal", dependence, n_cases, n_members, n_targets, wrong=wrong)
    for wrong in ("a tied one", "a continuous one", "all"):
        yield Cell("power", "marginal", "right, .5", 200, 20, 10, "half counts", wrong=wrong)
    for n_members in (5, 20):
        yield Cell("power", "marginal", "right, 0", 200, n_members, 10, "one Poisson", wrong="a tied one")
    for n_members, n_targets in ((2, 10), (20, 10), (8, 24)):  # errors that cancel in the mean curve
        for wrong in ("opposite bias in all", "opposite spread in all"):
            for dependence in ("right, 0", "right, .8"):
                yield Cell("power", "marginal", dependence, 200, n_members, n_targets, wrong=wrong)
    for wrong in ("bias in all", "spread in one", "spread in all"):
        for n_cases in (50, 200):
            yield Cell("power", "PCA of a law", "right, .5", n_cases, 0, 4, wrong=wrong)


def adjustment_cells() -> Iterator[Cell]:
    for n_cases in (60, 200):
        for dependence in ("right, .5", ".5 / .4", ".5 / .3"):
            for wrong in ("none", "bias in all", "spread in all") if dependence.startswith("right") else ("none",):
                yield Cell("adjustment", "all seven", dependence, n_cases, 20, 4, wrong=wrong)


CELLS = {"size": size_cells, "family": family_cells, "adjustment": adjustment_cells, "power": power_cells}


# -- data


def normals(kind: str | float, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Numbers (..., D) with standard normal margins: equally correlated, autoregressive, or with tail dependence."""
    options = {"generator": generator, "device": generator.device, "dtype": torch.float64}
    z = torch.randn(*shape, **options)
    if kind == "AR":
        place = torch.arange(shape[-1], dtype=torch.float64, device=z.device)
        return z @ torch.linalg.cholesky(0.9 ** (place[:, None] - place).abs()).mT
    if kind == "t":  # a t copula with two degrees of freedom, correlation one half
        common = torch.randn(*shape[:-1], 1, **options)
        z = 0.5**0.5 * common + 0.5**0.5 * z
        chi = -torch.rand(*shape[:-1], 1, **options).log()  # chi-square with two degrees of freedom, halved
        t = z / chi.sqrt()
        # the distribution function of t with two degrees of freedom is 1/2 + x / (2 sqrt(2 + x²))
        return torch.special.ndtri((0.5 + 0.5 * t / (2 + t.square()).sqrt()).clamp(1e-15, 1 - 1e-15))
    assert isinstance(kind, float)
    return kind**0.5 * torch.randn(*shape[:-1], 1, **options) + (1 - kind) ** 0.5 * z


def errors(cell: Cell) -> tuple[Tensor, Tensor]:
    """Bias and factor of the spread of the forecast of each target, (D,) each."""
    bias, factor = torch.zeros(cell.n_targets).double(), torch.ones(cell.n_targets).double()
    if cell.part == "family":
        bias[: {"two of ten": 2, "five of ten": 5}.get(cell.wrong, 0)] = 0.35 * (200 / cell.n_cases) ** 0.5
        return bias, factor
    size = (200 / cell.n_cases) ** 0.5
    some = {"one": 1, "a tied one": 1, "a third": cell.n_targets // 3, "all": cell.n_targets}
    count = some.get(cell.wrong.partition(" in ")[2] or cell.wrong, 0)
    first = cell.n_targets - count if cell.wrong == "a continuous one" else 0
    if cell.wrong == "a continuous one":
        first, count = cell.n_targets - 1, 1
    chosen = slice(first, first + count)
    if "spread" in cell.wrong:
        factor[chosen] = 1 - min(0.6, (0.3 if count > 1 else 0.45) * size)
    elif count:
        bias[chosen] = {1: 0.25}.get(count, 0.1 if count == cell.n_targets else 0.17) * size
    if cell.wrong.startswith("opposite"):  # every second target is too high, or too wide
        bias[1::2] *= -1
        factor[1::2] = 1 / factor[1::2]
    return bias, factor


def counted(x: Tensor, cell: Cell, forecast: bool) -> Tensor:
    """Targets on few values: Poisson counts with mean one, rounded to halves, or the first half of the targets counts."""
    if cell.targets == "rounded":
        return (2 * x).round() / 2
    n_counts = {"counts": x.shape[-1], "half counts": x.shape[-1] // 2, "one Poisson": 1}.get(cell.targets, 0)
    if not n_counts:
        return x
    mean = 1.0
    if cell.targets == "one Poisson":
        mean = 0.15 if forecast or cell.wrong == "none" else 0.285
    steps = torch.tensor(stats.poisson.cdf(range(12), mean), dtype=torch.float64, device=x.device)
    counts = torch.searchsorted(steps, torch.special.ndtr(x[..., :n_counts]).contiguous()).double()
    return torch.cat([counts, x[..., n_counts:]], -1)


def pits(cell: Cell, n_sets: int, start: int, device: torch.device) -> tuple[ProjectedPIT, Tensor | None]:
    """PITs of repetitions from number `start` on, sets on a leading axis, and the labels of blocks."""
    generator = torch_generator(0, "rows", cell.name, start, device=device)
    n_cases, n_members, n_targets = cell.n_cases, cell.n_members, cell.n_targets
    if "components" in cell.dependence:
        return _components(cell, n_sets, generator), None
    of_truth, of_forecast = DEPENDENCES[cell.dependence]
    shape = (n_sets * n_cases, n_targets)
    y = normals(of_truth, shape, generator)
    labels = None
    if cell.blocks != "none":
        y, labels = _in_blocks(y, cell, of_truth, generator, None)
    bias, factor = (value.to(device) for value in errors(cell))
    preranks = _rows(cell)
    if n_members == 0:
        correlation = of_forecast if isinstance(of_forecast, float) else 0.0
        covariance = (1 - correlation) * torch.eye(n_targets).double() + correlation
        if of_forecast == "AR":
            place = torch.arange(n_targets).double()
            covariance = 0.9 ** (place[:, None] - place).abs()
        if cell.row == "PCA of a law":  # distinct spreads, so that directions are what they are
            own = torch.linspace(1.0, 2.0, n_targets).double()
            covariance, y = covariance * own[:, None] * own, y * own.to(device)
        factors = torch.linalg.cholesky(covariance).to(device) * factor[:, None]
        law = GaussianMixture(
            torch.zeros(len(y), 1, dtype=torch.float64, device=device),
            bias.expand(len(y), 1, n_targets),
            factors.expand(len(y), 1, n_targets, n_targets),
        )
        return projected_pit(y, law, preranks, exchangeable=True).in_sets(n_sets), labels
    members = normals(of_forecast, (n_sets * n_cases, n_members, n_targets), generator)
    if "not linked" not in cell.blocks and cell.blocks != "none":
        members, _ = _in_blocks(members, cell, of_forecast, generator, n_members)
    members = bias + factor * members
    y, members = counted(y, cell, False), counted(members, cell, True)
    # of ranks that cannot tie no other points are needed, and p-values are the same without them
    points = cell.targets != "continuous" or cell.part != "size" or cell.weights != "none"
    return projected_pit(y, Ensemble(members), preranks, exchangeable=points).in_sets(n_sets), labels


def _in_blocks(
    x: Tensor, cell: Cell, kind: str | float, generator: torch.Generator, n_members: int | None
) -> tuple[Tensor, Tensor]:
    """Half of the variance is that of the block: numbers of a block that resemble each other, margins as before."""
    length = 10
    n_blocks = len(x) // length
    more = () if n_members is None else (n_members,)
    common = normals(kind, (n_blocks, *more, cell.n_targets), generator).repeat_interleave(length, 0)
    labels = torch.arange(cell.n_cases // length, device=x.device).repeat_interleave(length)
    return 0.7**0.5 * common + 0.3**0.5 * x, labels


def _components(cell: Cell, n_sets: int, generator: torch.Generator) -> ProjectedPIT:
    """Principal components of a law that are exactly uniform one by one, and depend on each other."""
    n, d = n_sets * cell.n_cases, cell.n_targets
    kind = {"components with tail dependence": "t", "dependent components": 0.8}.get(cell.dependence, 0.0)
    spread = torch.linspace(2.0, 1.0, d, dtype=torch.float64, device=generator.device)
    y = spread * normals(kind, (n, d), generator)
    law = GaussianMixture(
        torch.zeros(n, 1, dtype=torch.float64, device=y.device),
        torch.zeros(n, 1, d, dtype=torch.float64, device=y.device),
        torch.diag(spread).expand(n, 1, d, d),
    )
    preranks = [PCA()] if cell.part != "family" else paper_preranks(d)
    return projected_pit(y, law, preranks, exchangeable=True).in_sets(n_sets)


def _rows(cell: Cell) -> list:
    if cell.row == "ten rows of one target":
        return [Custom(lambda y, d=d: y[..., d], name=f"target {d + 1}") for d in range(cell.n_targets)]
    if cell.row == "marginal right, dependence wrong":
        return [Marginal(), Location(), Scale(), Dependency(), PCA()]
    if cell.row == "all seven":
        return list(paper_preranks(cell.n_targets))
    return {"marginal": [Marginal()], "location": [Location()], "PCA of a law": [PCA()]}[cell.row]


def case_weights(cell: Cell, start: int, device: torch.device) -> Tensor | None:
    generator = torch_generator(0, "rows, weights", cell.name, start)
    if cell.weights == "even":
        return 0.5 + torch.rand(cell.n_cases, generator=generator).double().to(device)
    if cell.weights == "very uneven":
        return (1.5 * torch.randn(cell.n_cases, generator=generator).double()).exp().to(device)
    return None


# -- what is found


def rate(cell: Cell, repetitions: int, device: torch.device) -> dict[str, float]:
    """Share of repetitions in which the row, or a right row after adjustment, is rejected."""
    per_set = cell.n_cases * (cell.n_members + 1) * cell.n_targets
    size = max(1, min(repetitions, 50 if cell.weights != "none" else repetitions, int(AT_ONCE[device.type] / per_set)))
    size = max(1, min(size, int(AT_ONCE[device.type] * 2 / (min(cell.n_cases, 1024) * cell.n_targets * 100))))
    rejected, attainable, by_holm = [], [], []
    for start in range(0, repetitions, size):
        pit, labels = pits(cell, min(size, repetitions - start), start, device)
        test = pce_test(pit, blocks=labels, case_weights=case_weights(cell, start, device))
        if cell.part == "family":
            adjusted = test.adjusted_p_value
            if cell.row == "ten rows of one target":
                right = slice({"two of ten": 2, "five of ten": 5}[cell.wrong], None)
            else:
                place = test.groups.index("marginal" if cell.row.startswith("marginal") else "PCA")
                right = slice(place, place + 1)
            values = adjusted[:, right].amin(-1)
        elif cell.part == "adjustment":
            values = test.adjusted_p_value.amin(-1)
            by_holm.append((holm(test.p_value).amin(-1) <= LEVEL * (1 + 1e-9)).cpu())
        else:
            values = test.p_value[:, 0]
        rejected.append((values <= LEVEL * (1 + 1e-9)).cpu())
        if hasattr(test, "nulls"):
            attainable.append(test.attainable.cpu() / len(test.groups))
    smallest = float(torch.cat(attainable).median()) if attainable else math.nan
    found = {"rejected": float(torch.cat(rejected).double().mean()), "attainable": smallest}
    return found | ({"by Holm": float(torch.cat(by_holm).double().mean())} if by_holm else {})


def kept(cell: Cell, repetitions: int, device: torch.device, folder: Path) -> dict[str, float]:
    """`rate`, read back if this cell is done."""
    part = folder / f"{cell.part}.{abs(hash_of(cell)):016x}.json"
    if part.exists():
        return json.loads(part.read_text())["found"]  # type: ignore[no-any-return]
    found = rate(cell, repetitions, device)
    part.parent.mkdir(parents=True, exist_ok=True)
    unfinished = part.with_suffix(f".{os.getpid()}")
    unfinished.write_text(json.dumps({"cell": asdict(cell), "found": found, "repetitions": repetitions}))
    unfinished.rename(part)
    return found


def hash_of(cell: Cell) -> int:
    from prerank.randomness import key

    return key(0, cell.name)


# -- tables


def frame(folder: Path) -> pd.DataFrame:
    """All finished cells of a folder."""
    found = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    return pd.DataFrame([{**one["cell"], **one["found"], "repetitions": one["repetitions"]} for one in found])


def summary(table: pd.DataFrame, repetitions: int) -> str:
    """The sentences: cells above the binomial bound, and the mean where 5 % can be reached."""
    bound = float(stats.binom.ppf(1 - LEVEL / len(table), repetitions, LEVEL)) / repetitions
    above = table[table["rejected"] > bound + 1e-9]
    full = table[table["attainable"] < 0.02]
    names = "; ".join(
        f"{row.row}, {row.dependence}, N = {row.n_cases}, {row.n_members or 'law'}, D = {row.n_targets}, "
        f"weights {row.weights}, blocks {row.blocks}: {100 * row.rejected:.1f} %"
        for row in above.itertuples()
    )
    return (
        f"{len(table)} cells of {repetitions} repetitions, from {100 * table['rejected'].min():.1f} % to "
        f"{100 * table['rejected'].max():.1f} %; the binomial bound at 0.05 over the number of cells is "
        f"{100 * bound:.1f} %, {len(above)} above{': ' + names if len(above) else ''}. Mean over the {len(full)} cells in "
        f"which 5 % can be reached: {100 * full['rejected'].mean():.2f} %."
    )


def _pivot(table: pd.DataFrame, index: list[str], columns: str, value: str = "rejected") -> str:
    wide = table.pivot_table(index=index, columns=columns, values=value, sort=False, aggfunc="mean") * 100
    lines = [
        f"| {' | '.join([*index, *map(str, wide.columns)])} |",
        "| --- " * len(index) + "|" + " ---: |" * wide.shape[1],
    ]
    for name, row in wide.iterrows():
        labels = name if isinstance(name, tuple) else (name,)
        cells = ["" if math.isnan(x) else f"{x:.1f}" for x in row]
        lines.append(f"| {' | '.join([*map(str, labels), *cells])} |")
    return "\n".join(lines)


def write_tables(out: Path) -> None:
    new = frame(out / "parts")
    size, family, power, adjustment = (new[new["part"] == part] for part in ("size", "family", "power", "adjustment"))
    size = size.replace({"n_members": {0: "law"}})
    order = [str(m) for m in (1, 2, 5, 20, 50, "law")]
    size = size.assign(n_members=pd.Categorical(size["n_members"].astype(str), order, ordered=True)).sort_values(
        ["row", "targets", "weights", "blocks", "dependence", "n_cases", "n_targets", "n_members"], kind="stable"
    )
    out.mkdir(parents=True, exist_ok=True)
    plain = size[(size["targets"] == "continuous") & (size["weights"] == "none") & (size["blocks"] == "none")]
    kinds = {
        "Continuous targets, by cases, targets and members": (plain, ["row", "dependence", "n_cases", "n_targets"]),
        "Targets on few values": (size[size["targets"] != "continuous"], ["row", "targets", "dependence", "n_cases"]),
        "Case weights": (size[size["weights"] != "none"], ["row", "weights", "n_cases", "n_targets"]),
        "Dependent cases, in blocks": (size[size["blocks"] != "none"], ["row", "blocks", "dependence", "n_targets"]),
    }
    lines = ["# Rows of `check`: size, family-wise error and power", ""]
    lines += [
        "Made by `benchmarks/rows.py`. Share of repetitions rejected at 5 %, in percent, defaults throughout.",
        "",
    ]
    if len(size):
        lines += [
            "## Size where every projection is calibrated",
            "",
            summary(size, int(size["repetitions"].iloc[0])),
            "",
        ]
        for title, (part, index) in kinds.items():
            lines += [f"### {title}", "", _pivot(part.astype({"n_members": str}), index, "n_members"), ""]
        size.to_csv(out / "size.csv", index=False)
    if len(family):
        lines += ["## Family-wise: a right row is rejected after adjustment, among wrong ones", ""]
        limit = stats.binom.ppf(1 - LEVEL / len(family), int(family["repetitions"].iloc[0]), LEVEL)
        worst = 100 * family["rejected"].max()
        lines += [
            f"{len(family)} worlds, at most {worst:.1f} %; the bound is "
            f"{100 * limit / family['repetitions'].iloc[0]:.1f} %.",
            "",
            _pivot(family, ["row", "dependence", "wrong", "n_cases"], "n_members"),
            "",
        ]
        family.to_csv(out / "family.csv", index=False)
    if len(adjustment):
        lines += ["## Adjusted in steps with the same signs, or by Holm's method: data sets with any row rejected", ""]
        for value, title in (("rejected", "In steps"), ("by Holm", "By Holm's method")):
            lines += [f"### {title}", "", _pivot(adjustment, ["dependence", "wrong"], "n_cases", value), ""]
        adjustment.to_csv(out / "adjustment.csv", index=False)
    if len(power):
        old = frame(out / "parts-old")
        keys = list(asdict(Cell("", "", "", 0, 0, 0)))
        if len(old):
            power = power.merge(old[[*keys, "rejected"]], on=keys, suffixes=("", " before"))
            power["gain"] = power["rejected"] - power["rejected before"]
            lost = power.sort_values("gain").iloc[0]
            lines += [
                "## Power beside the mean PCE with a null by exchange",
                "",
                f"{len(power)} cells. Median gain {100 * power['gain'].median():.1f} points, smallest "
                f"{100 * power['gain'].min():.1f} ({lost['wrong']}, N = {lost['n_cases']}, M = {lost['n_members']}, D = "
                f"{lost['n_targets']}, {lost['dependence']}), largest {100 * power['gain'].max():.1f}.",
                "",
            ]
            for value, title in (("rejected", "By signs"), ("rejected before", "By exchange, mean alone")):
                own = _pivot(
                    power, ["row", "targets", "wrong", "dependence", "n_cases", "n_targets"], "n_members", value
                )
                lines += [f"### {title}", "", own, ""]
        power.to_csv(out / "power.csv", index=False)
    (out / "rows.md").write_text("\n".join(lines) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="+", choices=[*CELLS, "table"])
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--repetitions", type=int, default=None, help="1,000 for size and family, 400 for the others")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument(
        "--old", type=Path, default=None, help="another tree, whose test is asked on the same data (power)"
    )
    parser.add_argument("--shard", default="0/1", help="which of how many shares of the cells, such as 1/4")
    parser.add_argument("--seconds", type=float, default=math.inf, help="stop before a new cell after so many seconds")
    parser.add_argument("--folder", default="parts", help=argparse.SUPPRESS)
    parser.add_argument("--every", type=int, default=1, help="only every so many-th cell, for a look")
    options = parser.parse_args()
    begin = time.perf_counter()
    first, shares = map(int, options.shard.split("/"))
    torch.set_num_threads(1)
    older = None
    if options.old is not None and "power" in options.parts:
        own = [arg for arg in sys.argv[1:] if arg not in ({*CELLS, "table"} - {"power"} | {"--old", str(options.old)})]
        path = {**os.environ, "PYTHONPATH": str(options.old / "src")}
        older = subprocess.Popen([sys.executable, __file__, *own, "--folder", "parts-old"], env=path)
    done = 0
    for part in options.parts:
        cells = [] if part == "table" else list(CELLS[part]())[:: options.every][first::shares]
        for cell in cells:
            if time.perf_counter() - begin > options.seconds:
                print("out of time: run again to go on", flush=True)
                break
            repetitions = options.repetitions or (1000 if part in ("size", "family") else 400)
            found = kept(cell, repetitions, torch.device(options.device), options.out / options.folder)
            done += 1
            print(f"{time.perf_counter() - begin:6.1f} s  {100 * found['rejected']:5.1f} %  {cell.name}", flush=True)
    if older is not None:
        older.wait()
    if "table" in options.parts:
        write_tables(options.out)


if __name__ == "__main__":
    main()
