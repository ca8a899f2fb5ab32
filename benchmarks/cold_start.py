"""How long commands take before they do anything, in fresh processes; beside an empty program.

    python benchmarks/cold_start.py

Prints the least and the median of several runs, and the median as a multiple of an empty program's.
The bars on a quiet machine: ``import tacit`` below .1 s, ``tacit --help`` below .3 s, ``tacit ledger
show`` below .6 s.
"""

import statistics
import subprocess
import sys
import tempfile
import time

REPEATS = 9
TACIT = ("-m", "tacit")
PROGRAMS = {
    "an empty program": ("-c", ""),
    "import tacit": ("-c", "import tacit"),
    "tacit --help": (*TACIT, "--help"),
    "tacit fit --help": (*TACIT, "fit", "--help"),
    "tacit ledger show": (*TACIT, "ledger", "show", "ledger.db"),
}
LEDGER = (*TACIT, "ledger", "new", "ledger.db", "--epsilon", "3", "--delta", "1e-5")


def seconds(arguments, folder):
    began = time.perf_counter()
    command = [sys.executable, *arguments]
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)  # noqa: S603 (our own)
    return time.perf_counter() - began


def main():
    with tempfile.TemporaryDirectory() as folder:
        seconds(LEDGER, folder)
        # In turn, so that a busy machine slows all of them alike.
        rounds = [
            {name: seconds(arguments, folder) for name, arguments in PROGRAMS.items()}
            for _ in range(REPEATS)
        ]
    empty = statistics.median(each["an empty program"] for each in rounds)
    print(f"{'':20} {'least, s':>9} {'median, s':>10} {'ratio':>6}")
    for name in PROGRAMS:
        found = [each[name] for each in rounds]
        middle = statistics.median(found)
        print(f"{name:20} {min(found):9.3f} {middle:10.3f} {middle / empty:6.1f}")


if __name__ == "__main__":
    main()
