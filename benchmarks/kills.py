"""Kills processes of a distributed fit at random times, resumes it, and compares the posterior.

    python benchmarks/kills.py --kills 100

Each time a random process of two or three, or the one that started them, gets SIGKILL. The fit is then
resumed, and may be killed again, until it is finished. Its posterior must be that of a fit that was never
killed, bit for bit, and the ledger must hold one charge for each fit. Prints how many kills there were in
which stage, and ends with an error if anything differs.
"""

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd

import tacit
from tacit.interfaces.workers import WORKER

ROWS, FILES, SEED = 2000, 4, 5
MOST = 8  # kills of one fit


def main() -> None:
    """Runs the fits."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=None, help="end after about so long")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    chance, until = random.Random(given.seed), time.monotonic() + (given.seconds or 1e9)  # noqa: S311
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _prepare(folder)
        begun = time.monotonic()
        _run(folder, "whole", 1)
        usual, fits, kills = time.monotonic() - begun, 1, Counter[str]()
        while kills.total() < given.kills and time.monotonic() < until:
            fits += 1
            kills += _killed_fit(folder, f"run{fits}", chance, usual, given.kills - kills.total())
            _compare(folder, f"run{fits}", fits)
            print(
                f"{kills.total()} kills, {fits - 1} fits, all as undisturbed: {dict(kills)}",
                flush=True,
            )


def _prepare(folder: Path) -> None:
    generator = np.random.default_rng(SEED)
    age = generator.uniform(20, 90, ROWS)
    sick = generator.uniform(size=ROWS) < 1 / (1 + np.exp(2 - 0.03 * age))
    table = pd.DataFrame({"age": age, "sick": sick.astype(int)})
    for i in range(FILES):
        table[i::FILES].to_parquet(folder / f"part{i}.parquet")
    schema = tacit.Schema({"age": tacit.Number(20, 90), "sick": tacit.Binary()})
    schema.to_yaml(folder / "schema.yaml")
    tacit.Ledger.new(folder / "ledger.db", total=tacit.Budget(1000, 1e-3))


def _command(folder: Path, run: str, workers: int) -> list[str]:
    if (folder / run / "unfinished" / "keys").exists():
        return ["resume", run, "--quiet", "--workers", str(workers)]
    shutil.rmtree(folder / run, ignore_errors=True)
    files = [f"part{i}.parquet" for i in range(FILES)]
    fit = [
        "fit",
        *files,
        "--schema",
        "schema.yaml",
        "--formula",
        "sick ~ age",
        "--ledger",
        "ledger.db",
    ]
    budget = ["--epsilon", "1", "--delta", "1e-6", "--seed", str(SEED), "--set", "num_steps=200"]
    return [*fit, *budget, "--out", run, "--quiet", "--workers", str(workers)]


def _start(folder: Path, run: str, workers: int) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "tacit", *_command(folder, run, workers)]
    return subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True)  # noqa: S603


def _run(folder: Path, run: str, workers: int) -> None:
    process = _start(folder, run, workers)
    said = process.communicate()[1]
    if process.returncode:
        raise SystemExit(f"The fit failed: {said}")


def _killed_fit(
    folder: Path, run: str, chance: random.Random, usual: float, most: int
) -> Counter[str]:
    """One fit, killed again and again until an attempt is quick enough; where it was at each kill."""
    kills = Counter[str]()
    while True:
        workers = chance.choice([2, 3])
        process = _start(folder, run, workers)
        ends = kills.total() == min(most, MOST)
        wait = 1e9 if ends else chance.uniform(0, 1.5 * usual)
        try:
            said = process.communicate(timeout=wait)[1]
            if process.returncode == 0:
                return kills
            if "has no charge for the run" not in said:
                raise SystemExit(f"The fit failed: {said}")
            shutil.rmtree(folder / run)  # it was killed before its charge, so that it begins anew
            continue
        except subprocess.TimeoutExpired:
            pass
        stage = _stage(folder, run)
        victims = [process.pid, *_workers(process.pid)]
        os.kill(chance.choice(victims), signal.SIGKILL)
        kills[stage] += 1
        process.communicate()  # until all have ended; workers hold the same standard error
        if _finished(folder, run):  # by workers whose starter was killed
            return kills


def _stage(folder: Path, run: str) -> str:
    kept = folder / run / "unfinished"
    if (folder / run / "posterior.nc").exists():
        return "after"
    return "steps" if (kept / "state").exists() else "before the steps"


def _workers(parent: int) -> list[int]:
    """The processes that a process has started."""
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        try:
            ours = int((each / "stat").read_text().rsplit(")", 1)[1].split()[1]) == parent
            if ours and WORKER.encode() in (each / "environ").read_bytes():
                found.append(int(each.name))
        except (OSError, ValueError):
            continue
    return found


def _finished(folder: Path, run: str) -> bool:
    kept = folder / run / "unfinished" / "keys"
    return (folder / run / "posterior.nc").exists() and not kept.exists()


def _compare(folder: Path, run: str, fits: int) -> None:
    whole, found = (tacit.Posterior.load(folder / name / "posterior.nc") for name in ("whole", run))
    if any(not np.array_equal(whole.draws[name], found.draws[name]) for name in whole.draws):
        raise SystemExit(f"The posterior of {run} differs.")
    spent = 1000 - tacit.Ledger(folder / "ledger.db").left.epsilon
    if round(spent, 6) != fits:
        raise SystemExit(f"{fits} fits of epsilon 1 were charged {spent}.")


if __name__ == "__main__":
    main()
