"""How long `prerank --help` takes, beside an interpreter that does nothing: `python benchmarks/startup.py`."""

import subprocess
import sys
import time
from statistics import median

EMPTY = ("python -c pass", "pass")
COMMANDS = {
    "import prerank": "import prerank",
    "prerank --version": "import sys; sys.argv = ['prerank', '--version']; from prerank.cli import main; main()",
    "prerank --help": "import sys; sys.argv = ['prerank', '--help']; from prerank.cli import main; main()",
    "prerank check --help": "import sys; sys.argv = ['prerank', 'check', '--help']; "
    "from prerank.cli import main; main()",
}


def seconds(code: str) -> float:
    """Wall time of an interpreter that runs the code."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def measure(n_repetitions: int = 11) -> dict[str, float]:
    """Medians in seconds, by what was run; in turn, so that a busy moment of the machine meets all of them."""
    cases = dict([EMPTY]) | COMMANDS
    times: dict[str, list[float]] = {name: [] for name in cases}
    for code in cases.values():
        seconds(code)  # files come from the disk once
    for _ in range(n_repetitions):
        for name, code in cases.items():
            times[name].append(seconds(code))
    return {name: median(values) for name, values in times.items()}


if __name__ == "__main__":
    found = measure()
    print(f"{'':26}{'median, ms':>12}{'ratio':>8}")
    for name, value in found.items():
        print(f"{name:26}{1000 * value:12.0f}{value / found[EMPTY[0]]:8.1f}")
