"""Write docs/benchmark.md from its text and the records: `python docs/_build/benchmark_page.py`, from the root.

Two pages of the report on the same records are written beside them, and the digests of all of its pages and tables.

`benchmark.md.in` is the page with fields instead of numbers, such as {before[births2.scale]:.3f}; what they may name is
what `numbers` returns. The text around them is judged anew when the records change; the numbers follow by themselves.
"""

import hashlib
import json
import re
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd

from prerank_paper.datasets.catalogue import PAPER_DATASETS
from prerank_paper.report.agreement import AT_SELECTED, candidates, compare, shares
from prerank_paper.report.effects import calibration_changes, counts, degradation_table, LEVEL
from prerank_paper.report.findings import computing_table, model_minutes, overstated, price, rejection_table
from prerank_paper.report.paper_values import paper_minutes, paper_table
from prerank_paper.benchmark.plan import PRERANKS
from prerank_paper.benchmark.records import read_results, Results
from prerank_paper.report.write import at_selected_strengths, write_report
from prerank_paper.report.spread import against_spread, baseline_networks
from prerank_paper.report.strengths import all_along, strength_table, tightness_table, trend_table
from prerank_paper.report.summaries import at_tuned_strength, baseline, CELL, datasets_run, EXACT_PROTOCOL, is_exact, paper_cells, penalised, Protocol, PROTOCOLS, PUBLISHED_PROTOCOL, summarise, Tuned
from prerank_paper.ablations import TRUE_OWN, TRUE_RAW, TRUE_RELATIVE

ROOT = Path(__file__).parents[2]
RECORDS = ROOT / "results" / "benchmark"
DIGESTS, KEPT = RECORDS / "report.sha256", ("summary.md", "agreement.md")
TEXT, PAGE = ROOT / "docs" / "_build" / "benchmark.md.in", ROOT / "docs" / "benchmark.md"
EXACTLY, PUBLISHED = Protocol("exact", "exact"), Protocol("as published", "exact")  # trainings, evaluated exactly
_METRICS = {"pce": "PCE", "energy_score": "energy score", "nll": "NLL"}


def by_cell(cells: pd.DataFrame, column: str = "value", names: Sequence[str] = ("dataset", "prerank")) -> dict[str, Any]:
    """A column by names such as "births2.scale"."""
    return {".".join(map(str, name)): value for *name, value in cells[[*names, column]].itertuples(index=False)}


def count_names(table: pd.DataFrame) -> dict[str, Any]:
    return {key.replace(", p ≤ 5 %", "_clearly"): value for key, value in table.items()}


def cells_of(results: Results, tuned: Tuned) -> dict[str, Any]:
    """PCEs of cells by how they were trained, evaluated exactly; and baselines as published."""
    plain = summarise(baseline(results, EXACT_PROTOCOL))
    chosen = {
        "before": plain,
        "after": summarise(penalised(results, EXACTLY)),
        "published": summarise(penalised(results, PUBLISHED)),
        "tuned": summarise(at_tuned_strength(results, EXACTLY, tuned[EXACT_PROTOCOL])),
    }
    found: dict[str, Any] = {name: by_cell(cells) for name, cells in chosen.items()}
    found |= {f"{name}_p": by_cell(cells, "p_value") for name, cells in chosen.items()}
    found["expected"] = dict(plain.groupby("dataset")["expected_pce"].mean())
    found["as_published"] = by_cell(summarise(baseline(results, PUBLISHED_PROTOCOL)))
    found["as_published_expected"] = by_cell(summarise(baseline(results, PUBLISHED_PROTOCOL)), "expected_pce")
    for name, cells in (("after", "exact"), ("published", "as published")):
        changed = calibration_changes(results, cells)
        found[f"change_{name}"] = SimpleNamespace(**count_names(counts(changed)))
        for dataset, own in changed.groupby("dataset"):
            found.setdefault(f"{name}_in", {})[dataset] = SimpleNamespace(**count_names(counts(own)))
        found.setdefault("corrected", {}).update({"before": changed["before"].median(), name: changed["after"].median()})
    at_tuned = calibration_changes(results, "exact", tuned[EXACT_PROTOCOL])
    found["change_tuned"] = SimpleNamespace(**count_names(counts(at_tuned)))
    found["corrected"]["tuned"] = at_tuned["after"].median()
    found["tuned_change_p"] = by_cell(at_tuned, "p_value")
    for name, changed in (("after", calibration_changes(results, "exact")),):
        found[f"{name}_change_p"] = by_cell(changed, "p_value")
    found["rejected_in"] = {
        f"{name}.{dataset}": int((own["p_value"] <= LEVEL).sum())
        for name in ("before", "after")
        for dataset, own in chosen[name].groupby("dataset")
    }
    return found


def verdicts_of(results: Results, tuned: Tuned) -> dict[str, Any]:
    """Counts of tests, of both evaluations by one rule, and of scores that got worse."""
    table = rejection_table(results, tuned).set_index("models")
    short = ["baseline", "exact10", "exact_tuned", "published10", "published_tuned"]
    found: dict[str, Any] = {f"tests_{name}": table.iloc[place] for place, name in enumerate(short)}
    both = overstated(results)
    found["both"] = SimpleNamespace(
        cells=len(both),
        called=int(both["called_miscalibrated"].sum()),
        above=int(both["above_null"].sum()),
        exact=both["exact"].median(),
        exact_null=both["exact_null"].median(),
        published=both["published"].median(),
        published_null=both["published_null"].median(),
        excess=(both["exact"] - both["exact_null"]).median(),
        published_excess=(both["published"] - both["published_null"]).median(),
    )
    for row in degradation_table(results, tuned).to_dict("records"):
        name = "_".join(("exact" if row["trained"] == "exactly" else "published", row["strength"], row["score"].split()[0]))
        found[f"worse_{name}"] = SimpleNamespace(**count_names(row))
    for protocol in PROTOCOLS:
        name = "exact" if protocol is EXACT_PROTOCOL else "published"
        found[f"cost_{name}10"] = price(results, protocol).median(numeric_only=True)
        found[f"cost_{name}_tuned"] = price(results, protocol, tuned[protocol]).median(numeric_only=True)
    house = baseline(results, EXACT_PROTOCOL, "nll").query("dataset == 'house'")["value"]
    found["house"] = SimpleNamespace(middle=house.median(), worst=house.max())
    return found


def claims_of(results: Results) -> dict[str, Any]:
    """More strength, and the spread over datasets and seeds: by "exact", "published" and "crossed" (judged exactly)."""
    along = all_along(results)
    steps, trends, spreads = strength_table(along), trend_table(along), tightness_table(results)
    found: dict[str, Any] = {"at": {}, "trend": {}, "tighter": {}}
    names = {("exactly", "exactly"): "exact", ("as published", "as published"): "published"}
    for row in steps.to_dict("records"):
        name = names.get((row["trained"], row["evaluated"]), "crossed")
        found["at"][f"{name}.{row['strength']:g}"] = row
    for row in trends.to_dict("records"):
        found["trend"][names.get((row["trained"], row["evaluated"]), "crossed")] = row
    for way, own in spreads.groupby(["trained", "evaluated"]):
        found["tighter"][names.get(way, "crossed")] = SimpleNamespace(
            preranks=len(own),
            datasets=int((own["after"] < own["before"]).sum()),
            seeds=int((own["seeds after"] < own["seeds before"]).sum()),
            before=own["before"].median(),
            after=own["after"].median(),
            seeds_before=own["seeds before"].median(),
            seeds_after=own["seeds after"].median(),
        )
    return found


def agreement_of(results: Results, cells: dict[str, pd.DataFrame]) -> dict[str, Any]:
    """How the as-published cells compare with the paper's."""
    selected = at_selected_strengths(results)
    compared = compare(results, cells | selected)
    counted = shares(compared)
    counted = counted[counted["data"] == "exact"].set_index("table")
    rows = []
    for table, words in (
        ("pce_baseline", "baseline PCE"),
        *((f"{name}_regularised", f"regularised {words}, strength 10") for name, words in _METRICS.items()),
        *(
            (f"{name}_regularised{AT_SELECTED}", f"regularised {words}, the paper's selected strengths")
            for name, words in _METRICS.items()
        ),
    ):
        row = counted.loc[table]
        rows.append(
            f"| {words} | {row['cells']} | {row['agree']} ({100 * row['share']:.0f} %) | "
            f"{100 * row['median deviation']:.1f} % |"
        )
    nll = compared[(compared["table"] == f"nll_regularised{AT_SELECTED}") & compared["exact_data"]]
    error = 2 * np.hypot(nll["standard_error"], nll["standard_error_paper"])
    ratio = {}
    for name in ("marginal", "pca"):
        printed = paper_table(f"pce_{name}_all").set_index(CELL)["value"]
        exact_data = compared.loc[compared["exact_data"], "dataset"].unique()
        for what, ours in (("ours", cells[f"pce_{name}_all"]), ("baseline", cells["pce_baseline"])):
            own = ours[ours["dataset"].isin(exact_data)].set_index(CELL)["value"]
            ratio.setdefault(what, []).append((printed / own).dropna())
    made_with = candidates(results)
    made_with["name"] = made_with["our penalty"].str.replace(" + ", "_") + made_with["strength"].map("_{:g}".format)
    return {
        "agreement": "\n".join(rows),
        "agree": {table: row for table, row in counted.iterrows()},
        "nll_cells": len(nll),
        "nll_wide": int((error > 1).sum()),
        "nll": {f"{r['dataset']}.{r['prerank']}": r for _, r in nll.assign(two_errors=error).iterrows()},
        "regularised": {
            f"{r['table'].split('_regularised')[0]}{'@' if AT_SELECTED in r['table'] else ''}.{r['dataset']}.{r['prerank']}": r
            for _, r in compared[compared["table"].str.contains("_regularised")].iterrows()
        },
        "paper": {f"{r['table']}.{r['dataset']}.{r['prerank']}": r["value_paper"] for _, r in compared.iterrows()},
        "all_over_ours": pd.concat(ratio["ours"]).median(),
        "all_over_baseline": pd.concat(ratio["baseline"]).median(),
        "made_with": {f"{r['table']}.{r['name']}": r for r in made_with.to_dict("records")},
        "selected": counted.loc["selected_lambda"],
    }


def computing_of(results: Results) -> dict[str, Any]:
    """What was run, and what it took."""
    ran, fleets = datasets_run(results), results.fleets
    table = computing_table(results)
    names = sorted(ran.index, key=lambda name: (ran["n_targets"][name], ran["n_train"][name]))
    by_fleet = table.set_index(["dataset", "training"])
    rows = [
        f"| {name} | {ran['n_targets'][name]} | {ran['n_train'][name]:,} | "
        + " | ".join(
            f"{by_fleet.loc[(name, training), 'steps']:,} | {by_fleet.loc[(name, training), 'seconds']:.0f}"
            for training in ("exact", "as published")
        )
        + " |"
        for name in names
    ]
    authors = paper_minutes().query("n_draws == 100").groupby("dataset")["minutes"].mean()
    by_draws = ["training", "n_draws"]
    spent = model_minutes(results).pivot_table(index=[*by_draws, "dataset"], columns="prerank", values="minutes")
    over_pca = spent[["HDR", "copula"]].div(spent["PCA"], axis=0)
    missing = [item.name for item in PAPER_DATASETS if item.name not in ran.index]
    exact = table[table["training"] == "exact"].set_index("dataset")
    return {
        "n_datasets": len(ran),
        "n_paper": sum(is_exact(status) for status in ran["dataset_status"]),
        "n_fleets": len(fleets),
        "n_models": len(results.models),
        "n_baselines": int((results.models.query("penalty == 'none'")["initialisation"] == 0).sum()),
        "n_initialisations": results.models["initialisation"].nunique(),
        "missing": ", ".join(missing),
        "fleet_rows": "\n".join(rows),
        "peak_low": fleets["peak_bytes"].min() / 1e9,
        "peak_high": fleets["peak_bytes"].max() / 1e9,
        "rows": {f"{name}": ran.loc[name] for name in ran.index},
        "per_model": exact["seconds per model"],
        "authors": authors,
        "minutes": by_cell(paper_minutes().query("n_draws == 100"), "minutes"),
        **{f"ratio_{name}": int(round(exact["authors' ratio"][name], -2)) for name in authors.index if name in exact.index},
        "step": by_cell(
            results.timings.assign(n_targets=results.timings["dataset"].map(ran["n_targets"])),
            "ms_per_step",
            ("training", "n_targets", "prerank", "n_draws"),
        ),
        "cheaper": by_cell((over_pca > 1).groupby(level=by_draws).sum().stack().reset_index(name="value"), names=(*by_draws, "prerank")),
        "dearer": by_cell(over_pca.groupby(level=by_draws).median().stack().reset_index(name="value"), names=(*by_draws, "prerank")),
        "models_in": fleets.set_index(["dataset", "training"])["n_models"].unstack(),
        "diverged": int(results.models["diverged"].sum()) or "none",
        "n_preranks": len(PRERANKS),
    }


def further_of(results: Results) -> dict[str, Any]:
    """Initialisations, and records beside the grid: steps of the evaluation taken alone, another order of targets."""
    evaluated = pd.read_csv(ROOT / "results" / "ablation" / "evaluation.csv.gz")
    cells = evaluated[evaluated["targets"] == "as given"].groupby(["dataset", "prerank", "draws", "rank", "cases"])["value"].mean()
    steps = cells["households"]
    ways = {
        "true draws, rank, all rows": ("true", "rank", "whole"),
        "per 256": ("true", "rank", "per 256"),
        "per 256, sigmoid": ("true", "sigmoid", "per 256"),
        "soft draws, rank, all rows": ("soft", "rank", "whole"),
        "as published": ("soft", "sigmoid", "per 256"),
    }
    lines = [f"| pre-rank | {' | '.join(ways)} |", f"| --- |{' ---: |' * len(ways)}"]
    for prerank in PRERANKS:
        values = " | ".join(f"{steps[(prerank, *way)]:.3f}" for way in ways.values())
        lines.append(f"| {prerank} | {values} |")
    spread = against_spread(results)
    networks = baseline_networks(results).query("dataset == 'births1' and prerank == 'HDR'")
    plain = results.models.query("dataset == 'births1' and penalty == 'none'")
    scored = networks.merge(plain, on=["seed", "initialisation"])
    other = evaluated.query("targets == 'by name' and prerank == 'dependency' and draws == 'soft'")
    other = other.query("rank == 'sigmoid' and cases == 'per 256'")["value"]
    return {
        "ablation_table": "\n".join(lines),
        "alone": _alone(cells),
        "births1": SimpleNamespace(
            networks=len(networks),
            low=networks["value"].min(),
            high=networks["value"].max(),
            means=", ".join(f"{mean:.3f}" for mean in networks.groupby("initialisation")["value"].mean()),
            correlation=f"{np.corrcoef(scored['value'], scored['best_score'])[0, 1]:.2f}".replace("-", "−"),
        ),
        "spread": SimpleNamespace(
            datasets=spread["dataset"].nunique(),
            initialisations=int(spread["initialisations"].min()),
            cells=len(spread),
            share=int(spread["within 20 %"].sum()),
            two=int(spread["within 2 deviations"].sum()),
        ),
        "wq_alphabetical": other.mean(),
        "wq_alphabetical_error": other.sem(),
        "wq_all": paper_table("pce_pca_all").set_index(CELL)["value"]["wq", "dependency"],
    }


def ways_of() -> dict[str, Any]:
    """Ways to train between the protocols: what each step does to the exact PCE of the penalised pre-rank."""
    found = pd.read_csv(ROOT / "results" / "ablation" / "training.csv").query("prerank != 'none'")
    wide = found.pivot_table(index=["dataset", "prerank"], columns="trained", values="exact PCE", sort=False)
    pca = wide.xs("PCA", level="prerank")
    linear = wide[wide.index.get_level_values("prerank").isin(("marginal", "location"))]
    closed = pd.concat([linear["exact"] - linear[TRUE_RELATIVE], pca["exact"] - pca[TRUE_OWN]])
    gained = wide[TRUE_RAW] - wide["as published"]
    return {
        "ways": SimpleNamespace(
            table=(ROOT / "results" / "ablation" / "training.md").read_text(encoding="utf-8").strip(),
            cells=len(gained),
            draws=gained.abs().median(),
            lower=int((gained < 0).sum()),
            exceptions=list(gained.index[gained > 0]),
            temperature=(wide[TRUE_RELATIVE] - wide[TRUE_RAW]).abs().median(),
            closed=closed.abs().median(),
            directions=(pca[TRUE_OWN] - pca[TRUE_RELATIVE]).abs().median(),
            pce=by_cell(found, "exact PCE", ("dataset", "prerank", "trained")),
        )
    }


def whole_of(record: dict[str, Any]) -> dict[str, Any]:
    """What the commands that ran each protocol took, all processes together (`reproduction/benchmarks/whole_study.py`)."""
    n_models = {"exact": record["exact"]["models_in_all"]}
    n_models["published"] = record["published"]["models_in_all"] - n_models["exact"]
    found = {}
    for name, models in n_models.items():
        calls = record[name]["calls"]
        seconds = sum(call["seconds"] for call in calls)
        found[name] = SimpleNamespace(
            seconds=seconds,
            calls=len(calls),
            first=calls[0]["seconds"],
            beside=calls[0]["beside"],
            per_model=seconds / models,
            busy=100 * sum(call["gpu_busy"] * call["seconds"] for call in calls) / seconds,
            gpu_gb=max(call["gpu_gb"] for call in calls),
            host_gb=max(call["host_pss_gb"] for call in calls),
        )
    return {"whole": SimpleNamespace(**found, processor=record["machine"]["processor"], cores=record["machine"]["cores"])}


def five_of(results: Results, record: dict[str, Any]) -> dict[str, Any]:
    """Five datasets side by side and in turn, with the code before, and interrupted (`reproduction/benchmarks/whole_study.py`)."""
    targets, parts = datasets_run(results)["n_targets"], ("old", "turn", "beside")
    names = sorted((name.partition(".")[0] for name in record["turn"]["fleets"]), key=lambda name: targets[name])
    rows = [
        f"| {name} | {targets[name]} | " + " | ".join(f"{record[part]['fleets'][f'{name}.exact']:.0f}" for part in parts) + " |"
        for name in names
    ]
    kept = record["turn"]["compared"] | record["kills"]["compared"]
    identical = ("beside each other", "killed and resumed", "one of two died")
    if any(kept[words]["different"] or kept[words]["only_one_has"] for words in identical):
        raise ValueError("the page says that these records are identical")
    found = {part: SimpleNamespace(seconds=sum(call["seconds"] for call in record[part]["calls"])) for part in parts}
    found["turn"].rows = kept["beside each other"]["rows"]
    found["kills"] = SimpleNamespace(rows=kept["killed and resumed"]["rows"])
    return {"five": SimpleNamespace(**found, pce=record["turn"]["compared"]["the grid"]["pce"]), "five_rows": "\n".join(rows)}


def _alone(cells: pd.Series) -> SimpleNamespace:
    """What each step of the published evaluation adds to the exact one by itself, over datasets and pre-ranks."""
    wide = cells.unstack(["draws", "rank", "cases"])
    exact = wide["true", "rank", "whole"]
    soft, sigmoid, batches = (
        wide[way] - exact for way in (("soft", "rank", "whole"), ("true", "sigmoid", "whole"), ("true", "rank", "per 256"))
    )
    return SimpleNamespace(
        cells=len(wide),
        datasets=wide.index.get_level_values("dataset").nunique(),
        soft=soft.median(),
        sigmoid=sigmoid.median(),
        batches=batches.median(),
        most=int((soft > np.maximum(sigmoid, batches)).sum()),
        less=int((soft < 0).sum()),
        sigmoid_most=sigmoid.max(),
        sigmoid_where=" of ".join(reversed(sigmoid.idxmax())),
        sigmoid_above=int((sigmoid > 0.01).sum()),
    )


def numbers(results: Results) -> dict[str, Any]:
    """Everything that the page may name."""
    published = paper_cells(results, PUBLISHED_PROTOCOL)
    exact = paper_cells(results, EXACT_PROTOCOL)
    tuned = {EXACT_PROTOCOL: exact["selected_lambda"], PUBLISHED_PROTOCOL: published["selected_lambda"]}
    record = json.loads((RECORDS / "whole_study.json").read_text(encoding="utf-8"))
    return (
        cells_of(results, tuned)
        | verdicts_of(results, tuned)
        | claims_of(results)
        | agreement_of(results, published)
        | computing_of(results)
        | further_of(results)
        | ways_of()
        | whole_of(record)
        | five_of(results, record)
    )


def page(found: dict[str, Any]) -> str:
    """The page with the `numbers` of results."""
    text = TEXT.read_text(encoding="utf-8").format(**found)
    return re.sub(r"(?<=\d)%", " %", text)


def digests(folder: Path, files: Sequence[Path]) -> str:
    """SHA-256 of the pages and tables of a report, a line each, as `sha256sum` writes them."""
    texts = sorted(path.relative_to(folder).as_posix() for path in files if path.suffix in (".md", ".csv", ".tex"))
    return "".join(f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()}  {name}\n" for name in texts)


def main() -> None:
    results = read_results(RECORDS)
    PAGE.write_text(page(numbers(results)), encoding="utf-8")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        DIGESTS.write_text(digests(folder, write_report(results, folder)), encoding="utf-8")
        for kept in KEPT:
            shutil.copy(folder / kept, RECORDS / kept)
    for path in (PAGE, DIGESTS, *(RECORDS / kept for kept in KEPT)):
        print(f"{path.relative_to(ROOT)} written")


if __name__ == "__main__":
    main()
