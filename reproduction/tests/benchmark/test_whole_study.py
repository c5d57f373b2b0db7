"""The script that runs the whole study: what it kills, what it compares, what it brings back, and that it can be resumed."""

import json
import os
import sys
import time
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2]


@pytest.fixture
def script(benchmark_script, monkeypatch):
    monkeypatch.syspath_prepend(FOLDER / "benchmarks")
    return benchmark_script


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="reads which processes there are from /proc")
def test_a_command_is_cut_off_with_everything_that_it_started(script, tmp_path):
    watching = script("watching")
    program = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "print(child.pid, flush=True); time.sleep(600)"
    )
    log = tmp_path / "logs" / "it.log"

    def begun():
        return log.exists() and log.read_text().endswith("\n")

    taken = watching.watched([sys.executable, "-c", program], 600, log, until=begun)
    assert (taken.cut_off, taken.returncode) == (True, -9)
    child = Path(f"/proc/{int(log.read_text())}/stat")
    deadline = time.monotonic() + 60
    while child.exists() and child.read_text().rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() < deadline, "its child is still there"
        time.sleep(0.01)
    ended = watching.watched([sys.executable, "-c", "raise SystemExit(3)"], 600, log)
    assert (ended.cut_off, ended.returncode) == (False, 3)
    assert watching.watched([sys.executable, "-c", program], 0.0, log).cut_off


def test_lines_of_the_device_are_read_and_others_passed_over(script):
    watching = script("watching")
    lines = ["utilization.gpu [%], memory.used [MiB]", "97, 5123", "", "[N/A], 12", "3"]
    assert [watching.parsed(line) for line in lines] == [None, (97.0, 5123.0), None, None, None]


@pytest.mark.parametrize("works", [True, False])
def test_processes_share_a_gpu_where_the_service_works_and_it_ends_with_them(script, tmp_path, monkeypatch, works):
    """What it is asked to do, by a program that stands for it, and one that stands for the attempt to use the GPU."""
    watching, asked = script("watching"), []

    def run(command, env, input=None, **more):
        asked.append((Path(command[0]).name, input))
        assert env["CUDA_MPS_PIPE_DIRECTORY"] == str(tmp_path / "pipe")
        return type("Ended", (), {"returncode": 0 if command[0] == watching.MPS or works else 1})

    monkeypatch.delenv("CUDA_MPS_PIPE_DIRECTORY", raising=False)
    monkeypatch.setattr(watching.subprocess, "run", run)
    monkeypatch.setattr(watching.shutil, "which", lambda name: name)
    with watching.shared_gpu(tmp_path, True) as shared:
        assert shared == works
        assert os.environ.get("CUDA_MPS_PIPE_DIRECTORY") == (str(tmp_path / "pipe") if works else None)
    assert "CUDA_MPS_PIPE_DIRECTORY" not in os.environ
    service = watching.MPS
    assert asked == [(service, None), (Path(sys.executable).name, None), (service, "quit\n")]
    asked.clear()
    with watching.shared_gpu(tmp_path, False) as shared:
        assert not shared
    monkeypatch.setattr(watching.shutil, "which", lambda name: None)
    with watching.shared_gpu(tmp_path, True) as shared:
        assert not shared
    assert asked == []


def test_results_are_compared_number_by_number(script, make, kept, tmp_path):
    files = script("study_files")
    made = make(["house"], seeds=(0,), strengths=(10.0,), trainings=("exact",))
    kept(made, tmp_path / "first")
    kept(made, tmp_path / "second")
    same = files.compared(tmp_path / "first", tmp_path / "second")
    assert same["different"] == 0
    assert same["only_one_has"] == 0
    assert same["rows"] == len(made.models) + len(made.records) + len(made.curves)
    records = made.records.copy()
    records.loc[[3, 5], "value"] += [1e-9, -0.25]
    older = made._replace(records=records, curves=made.curves[made.curves["penalty"] == "none"])
    kept(older, tmp_path / "third")
    found = files.compared(tmp_path / "third", tmp_path / "first")
    assert found["different"] == 2
    assert found["worst"] == pytest.approx(0.25)
    assert found["only_one_has"] == (made.curves["penalty"] != "none").sum()
    assert files.compared(tmp_path / "first", tmp_path / "nowhere")["rows"] == 0


def test_what_is_brought_back_is_in_small_pieces_with_checkpoints_last(script, tmp_path, monkeypatch):
    files = script("study_files")
    work = tmp_path / "work"
    contents = {
        "whole_study.json": b"{}",
        "grid/fleets/a.exact/fleet.json": b"{}",
        "grid/checkpoints/small.safetensors": bytes(range(256)) * 8,
        "grid/checkpoints/large.safetensors": bytes(range(256)) * 4000,
        "grid/.lock": b"",
        "cache/exact/triton/kernel.cubin": b"compiled",
    }
    for name, content in contents.items():
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_bytes(content)
    monkeypatch.setattr(files, "PART_BYTES", 500)
    monkeypatch.setattr(files, "ALL_BYTES", 100_000)
    pieces = files.pack(work, tmp_path / "out")
    assert len(pieces) > 1
    assert all(piece.stat().st_size <= 500 for piece in pieces)
    files.unpack(tmp_path / "out", tmp_path / "back")
    back = {str(path.relative_to(tmp_path / "back")) for path in (tmp_path / "back").rglob("*") if path.is_file()}
    assert back == {name for name in contents if not name.endswith(("large.safetensors", ".lock", ".cubin"))}
    assert (tmp_path / "back" / "grid/checkpoints/small.safetensors").read_bytes() == bytes(range(256)) * 8


def test_a_part_is_gone_on_with_and_a_finished_one_is_not_run_again(script, tmp_path, monkeypatch):
    study = script("whole_study")
    calls = []

    def pretended(command, seconds, log, env, until=None):
        calls.append((json.loads(command[-1]), env["TRITON_CACHE_DIR"]))
        code = 0 if len(calls) > 1 else None
        return script("watching").Taken(code, 5.0, code is None, 0.5, 1.0, 3.0, 2.0, 1.5, 4)

    monkeypatch.setattr(study, "watched", pretended)
    given = ["exact", "--work", str(tmp_path / "work"), "--out", str(tmp_path / "out"), "--device", "cpu"]
    monkeypatch.setattr(sys, "argv", ["whole_study.py", *given])
    for _ in range(3):
        assert study.main() == 0
    record = json.loads((tmp_path / "out" / "whole_study.json").read_text())
    assert len(calls) == 2
    assert record["exact"]["finished"]
    assert [call["cut_off"] for call in record["exact"]["calls"]] == [True, False]
    job = calls[0][0]
    assert (job["processes"], job["protocols"], job["initialisations"]) == (4, ["exact"], 3)
    assert calls[0][1].startswith(str(tmp_path / "work" / "cache" / "exact"))
    assert "10 s in 2 calls, GPU busy 50 %" in study.told(record)


def test_the_other_protocol_is_added_to_the_exact_one(script, tmp_path, monkeypatch):
    study = script("whole_study")
    monkeypatch.setattr(sys, "argv", ["whole_study.py", "published", "--work", str(tmp_path), "--out", str(tmp_path)])
    with pytest.raises(SystemExit, match="the exact protocol comes first"):
        study.main()


def test_parts_of_five_datasets_and_of_the_ablation_are_jobs_of_their_own(script, tmp_path, monkeypatch):
    study, jobs = script("whole_study"), {}

    def pretended(command, seconds, log, env, until=None):
        job = json.loads(command[-1])
        jobs[Path(job["out"]).name] = job
        return script("watching").Taken(0, 5.0, False, None, None, None, 2.0, 1.5, 4)

    monkeypatch.setattr(study, "watched", pretended)
    given = ["beside", "turn", "ablation", "--processes", "8", "--work", str(tmp_path), "--out", str(tmp_path / "out")]
    monkeypatch.setattr(sys, "argv", ["whole_study.py", *given])
    assert study.main() == 0
    assert jobs["beside"]["datasets"] == jobs["turn"]["datasets"] == list(study.FIVE)
    assert (jobs["beside"]["processes"], jobs["turn"]["processes"]) == (5, 1)
    assert (jobs["ablation"]["ablation"], jobs["ablation"]["datasets"]) == (True, None)
    record = json.loads((tmp_path / "out" / "whole_study.json").read_text())
    assert all(record[name]["finished"] for name in ("beside", "turn", "ablation"))
    assert record["turn"]["compared"]["beside each other"]["rows"] == 0  # nothing was really run
