"""`check` of a forecast that does not fit in memory, read from a Zarr store in chunks.

    PYTHONPATH=src python benchmarks/larger_than_memory.py --cases 4000000 --store /path/to/large.zarr --out results/large
    PYTHONPATH=src python benchmarks/larger_than_memory.py --cases 400000 --compare --out results/large

Members (cases, 50, 10) in single precision are synthesised in chunks, eight gigabytes for four million cases: targets with
correlation 0.5, and a forecast that is right (or, with --spread 0.9, too narrow). Each measurement runs in a process of its
own, and memory is the peak of that process, with Python, torch and the observations. --compare takes the store into memory
too and compares all numbers, and does the same through a Dask cluster of two processes. --throughput CASES checks some of
the cases with each pre-rank alone, and makes the marginal rank histogram of all targets with xskillscore.
"""

import argparse
import json
import multiprocessing
import platform
import resource
import time
from pathlib import Path
from typing import Any

import numpy as np

N_MEMBERS, N_TARGETS = 50, 10
CHUNK = 25_000  # cases: 50 MB


def synthesise(store: Path, n_cases: int, spread: float) -> None:
    """Write the store, chunk by chunk, unless it is there."""
    import xarray as xr
    import zarr

    if (store / "complete").exists():
        return
    group = zarr.open_group(str(store), mode="w")
    shapes = {"forecast": (n_cases, N_MEMBERS, N_TARGETS), "observation": (n_cases, N_TARGETS)}
    names = {"forecast": ("case", "member", "target"), "observation": ("case", "target")}
    arrays = {
        name: group.create_array(
            name,
            shape=shape,
            chunks=(min(CHUNK, n_cases), *shape[1:]),
            dtype="float32",
            compressors=None,
            dimension_names=names[name],
        )
        for name, shape in shapes.items()
    }
    for start in range(0, n_cases, CHUNK):
        rng = np.random.default_rng([7, start])
        size = min(CHUNK, n_cases - start)
        common = rng.standard_normal((size, N_MEMBERS + 1, 1), dtype=np.float32)
        points = (common + rng.standard_normal((size, N_MEMBERS + 1, N_TARGETS), dtype=np.float32)) / np.float32(2**0.5)
        arrays["observation"][start : start + size] = points[:, 0]
        arrays["forecast"][start : start + size] = np.float32(spread) * points[:, 1:]
    with xr.open_zarr(store, consolidated=False) as dataset:
        assert dataset["forecast"].sizes["case"] == n_cases
    (store / "complete").touch()


def peak() -> float:
    """Largest resident size of this process and of the processes that it waited for, in megabytes."""
    own, children = (resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return max(own, children) * 1024 / 1e6


def checked(store: Path, n_cases: int | None, options: argparse.Namespace, how: str) -> dict[str, Any]:
    """One check of the store, or of its first cases: in chunks, in memory, or in chunks by two processes."""
    import torch
    import xarray as xr

    from prerank import check
    from prerank.preranks import paper_preranks

    torch.set_num_threads(options.threads)
    dataset = xr.open_zarr(store, consolidated=False).isel(case=slice(n_cases))
    y = dataset["observation"].load()
    members = dataset["forecast"]
    wanted = [item for item in paper_preranks(N_TARGETS) if not options.prerank or item.name in options.prerank]
    if how == "memory":
        members = members.load()
    begin, begin_cpu = time.perf_counter(), time.process_time()
    if how == "cluster":
        from distributed import Client, LocalCluster

        with (
            LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
            Client(cluster),
        ):
            result = check(y, members, wanted, n_replicates=options.replicates)
    else:
        result = check(y, members, wanted, n_replicates=options.replicates)
    seconds, cpu = time.perf_counter() - begin, time.process_time() - begin_cpu
    return {
        "how": how,
        "cases": len(y),
        "members": N_MEMBERS,
        "targets": N_TARGETS,
        "preranks": [item.name for item in wanted],
        "replicates": options.replicates,
        "threads": options.threads,
        "seconds": round(seconds, 1),
        "cpu_seconds": round(cpu, 1),  # of this process; the machine may have had other work
        "cases_per_cpu_second": None if how == "cluster" else round(len(y) / cpu),
        "peak_megabytes": round(peak()),
        "data_megabytes": round(len(y) * N_MEMBERS * N_TARGETS * 4 / 1e6),
        "verdict": result.verdict,
        "table": json.loads(result.table.reset_index().to_json(orient="records", double_precision=15)),
        "numbers": {name: column.tolist() for name, column in result.table.select_dtypes("number").items()},
        "projections": {name: column.tolist() for name, column in result.projections.select_dtypes("number").items()},
    }


def throughput(store: Path, n_cases: int | None, options: argparse.Namespace, how: str) -> list[dict[str, Any]]:
    """Cases per second of one processor for each pre-rank alone, and for xskillscore's marginal rank histogram."""
    import torch
    import xarray as xr

    from prerank import Marginal, check
    from prerank.calibration import projected_pit
    from prerank.forecasts import Ensemble
    from prerank.preranks import paper_preranks

    torch.set_num_threads(options.threads)
    dataset = xr.open_zarr(store, consolidated=False).isel(case=slice(n_cases))
    y, members = dataset["observation"].load(), dataset["forecast"]
    n = len(y)
    loaded = torch.from_numpy(members.values)
    observed = torch.from_numpy(y.values)
    check(y[:100], members[:100], n_replicates=19)  # the first call of an operation loads it

    def rate(work: Any) -> int:
        begin = time.process_time()
        work()
        return round(n / (time.process_time() - begin))

    rows: list[dict[str, Any]] = []
    for prerank in paper_preranks(N_TARGETS):
        rows.append(
            {
                "what": prerank.name,
                "cases": n,
                "ranked_per_cpu_second": rate(
                    lambda prerank=prerank: projected_pit(observed, Ensemble(loaded), prerank, exchangeable=True)
                ),
                "checked_per_cpu_second": rate(
                    lambda prerank=prerank: check(y, members, prerank, n_replicates=options.replicates)
                ),
            }
        )
        print(rows[-1], flush=True)
    everything = rate(lambda: check(y, members, n_replicates=options.replicates))
    rows.append({"what": "all of these", "cases": n, "checked_per_cpu_second": everything})
    import xskillscore

    own = rate(lambda: projected_pit(observed, Ensemble(loaded), Marginal()))
    rows.append({"what": "marginal ranks of the observation alone", "cases": n, "ranked_per_cpu_second": own})
    whole = members.load()
    other = rate(lambda: xskillscore.rank_histogram(y, whole, member_dim="member", dim="case"))
    rows.append({"what": "xskillscore.rank_histogram", "cases": n, "ranked_per_cpu_second": other})
    print(*rows[-3:], sep="\n", flush=True)
    return rows


def _process(target: Any, connection: Any, *arguments: Any) -> None:
    connection.send(target(*arguments))


def alone(target: Any, *arguments: Any) -> Any:
    """The result of a function that runs in a fresh process: a forked one would inherit the peak."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_process, args=(target, there, *arguments))
    process.start()
    there.close()
    result = here.recv()
    process.join()
    return result


def differences(first: dict[str, Any], second: dict[str, Any]) -> dict[str, float]:
    """Largest difference of p-values, and of all other numbers, between two results; of numbers above one by their size."""
    found = {"p_values": 0.0, "other_numbers": 0.0}
    for part in ("numbers", "projections"):
        for name, column in first[part].items():
            kind = "p_values" if name.endswith("p-value") else "other_numbers"
            one, other = np.array(column, dtype=float), np.array(second[part][name], dtype=float)
            gap = np.abs(one - other) / np.maximum(1.0, np.abs(one))
            found[kind] = max(found[kind], float(np.nanmax(gap)))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=400_000)
    parser.add_argument("--spread", type=float, default=1.0)
    parser.add_argument("--store", type=Path, default=Path("build/large.zarr"))
    parser.add_argument("--replicates", type=int, default=999)
    parser.add_argument("--prerank", action="append", help="a pre-rank of the paper, repeatable; all without it")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--compare", action="store_true", help="also in memory, and by a cluster of two processes")
    parser.add_argument(
        "--throughput", type=int, default=0, metavar="CASES", help="of each pre-rank, with so many cases"
    )
    parser.add_argument("--no-check", action="store_true", help="only what else is asked for")
    parser.add_argument("--out", type=Path, help="folder of the records")
    options = parser.parse_args()
    begin = time.perf_counter()
    synthesise(options.store, options.cases, options.spread)
    print(f"store ready after {time.perf_counter() - begin:.0f} s", flush=True)
    record: dict[str, Any] = {"machine": f"{platform.machine()}, {options.threads} thread(s)"}
    ways = [] if options.no_check else ["chunks", *(["memory", "cluster"] if options.compare else [])]
    runs = []
    for how in ways:
        runs.append(alone(checked, options.store, options.cases, options, how))
        shown = {key: runs[-1][key] for key in ("how", "cases", "seconds", "cpu_seconds", "peak_megabytes", "verdict")}
        print(shown, flush=True)
    for other in runs[1:]:
        record[f"chunks_and_{other['how']}"] = differences(runs[0], other)
        print(other["how"], record[f"chunks_and_{other['how']}"], flush=True)
    record["runs"] = [{k: v for k, v in run.items() if k not in ("numbers", "projections")} for run in runs]
    if options.throughput:
        record["throughput"] = alone(throughput, options.store, options.throughput, options, "chunks")
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        kind = "throughput" if options.no_check else f"{options.cases}"
        (options.out / f"{kind}.json").write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
