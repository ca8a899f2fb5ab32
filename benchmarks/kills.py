"""Kills processes of a distributed fit at random events, resumes it, and compares the posterior.

    python benchmarks/kills.py --kills 100
    python benchmarks/kills.py --quick

The mean of a column of four files is fitted in one, two or three processes, by variational inference on samples. At a random event (see
`killing.STAGES`) the first process, another one, or the one that started them gets SIGKILL. The fit is then
resumed by the command line, in a random number of processes, and may be killed again, until it is finished.
Its posterior must be that of a fit that was never killed, bit for bit, nothing but it may be left in the
folder, and the ledger must hold one charge for each fit. Prints the kills by stage and by who was killed, and
ends with an error if anything differs.
"""

import argparse
import importlib
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

ROWS, FILES, STEPS, SEED = 2000, 4, 60, 5
MOST = 6  # kills of one fit
WHO = ("the only process", "the first of several", "another", "the starter")
MODEL = """
import tacit

model = tacit.Model(
    parameters={"m": tacit.models.Parameter()},
    log_prior=lambda p: -0.5 * p["m"] ** 2,
    log_likelihood=lambda p, row: -0.5 * (row["y"] - p["m"]) ** 2,
)
"""
# For short programs that run a few times. The processes that are compared share them.
FLAGS = "--xla_cpu_use_fusion_emitters=false --xla_backend_optimization_level=0"


def main(arguments=None):
    """Kills, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=1e9, help="end after about so long")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="three kills")
    given = parser.parse_args(arguments)
    until, kills, fits = time.monotonic() + given.seconds, Counter(), 0
    with tempfile.TemporaryDirectory() as name:
        bench = Bench(Path(name), random.Random(given.seed))  # noqa: S311
        bench.undisturbed()
        while kills.total() < (3 if given.quick else given.kills) and time.monotonic() < until:
            fits += 1
            bench.killed(f"run{fits}", kills)
            bench.compare(f"run{fits}", 1 + fits)
            print(
                f"{kills.total()} kills, {fits} fits, {time.process_time():.0f} s", file=sys.stderr
            )
    show(kills, fits)
    return kills, fits


class Bench:
    """A folder with files, a schema, a ledger and the runs of fits."""

    def __init__(self, folder, chance):
        self.folder, self.chance, self.attempts = folder, chance, 0
        os.environ |= {
            "XLA_FLAGS": FLAGS,
            "JAX_COMPILATION_CACHE_DIR": str(folder / "compiled"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        }
        prepare(folder)

    def attempt(self, arguments, shot=None):
        """Runs a command; how it ended, what it said, and what its processes noted."""
        import killing

        self.attempts += 1
        here = killing.Range(self.folder / f"attempt{self.attempts}", shot)
        code, said = killing.run([*arguments, "--quiet"], self.folder, here)
        return code, said, here

    def undisturbed(self):
        """Fits without a kill, to count events; imports what the fit has imported."""
        code, said, here = self.attempt([*self.fit("whole"), "--workers", "1"])
        if code:
            raise SystemExit(f"The fit failed: {said}")
        seen = here.seen("0")
        self.counts = seen["counts"]
        for each in seen["modules"]:
            with suppress(Exception):
                importlib.import_module(each)

    def killed(self, run, kills):
        """One fit, killed again and again; adds the kills by stage and by who was killed."""
        for number in range(2 * MOST):  # on a busy machine processes can lose each other unkilled
            begun = self.begun(run)
            workers = self.chance.choice([1, 2, 2, 2, 3, 3])
            stage, shot, who = self.aimed(kills, workers, begun=begun)
            command = ["resume", run] if begun else self.fit(run)
            code, said, here = self.attempt(
                [*command, "--workers", str(workers)], shot if number < MOST else None
            )
            kills.update([(stage, who)] if here.fired else [])
            print(f"  {code} {shot if here.fired else None} {said.strip()}", file=sys.stderr)
            if not here.fired and code and "was lost" not in said:
                raise SystemExit(f"The fit failed: {said}")
            if said.count("\n") > 1:
                raise SystemExit(f"More than one sentence was said: {said}")
            if self.is_finished(run):
                return
        raise SystemExit(f"{run} was not finished without a kill.")

    def aimed(self, kills, workers, *, begun):
        """A random event of a stage with fewest kills, of those that the fit can still reach."""
        import killing

        stages = list(killing.STAGES)
        if begun:
            stages = stages[stages.index("while a state is written") :]
        by_stage = Counter()
        for (stage, _), number in kills.items():
            by_stage[stage] += number
        stage = min(stages, key=lambda each: (by_stage[each], self.chance.random()))
        name = self.chance.choice(list(killing.STAGES[stage]))
        calls = max(1, self.counts.get(name, 0) // 3)
        rank = self.chance.randrange(workers) if killing.EVENTS[name].anywhere else 0
        victims = [*map(str, range(workers)), killing.STARTER] if workers > 1 else ["0"]
        victim = self.chance.choice(victims)
        who = WHO[3 if victim == killing.STARTER else 0 if workers == 1 else 1 + (victim != "0")]
        return stage, killing.Shot(name, self.chance.randint(1, calls), rank, victim), who

    def begun(self, run):
        """Whether a run is to be resumed; what ended before its charge is removed, as the command says."""
        import tacit

        if not (self.folder / run).exists():
            return False
        if (self.folder / run / "unfinished" / "keys").exists():
            from tacit.privacy.checkpoint import read_notes

            ending = f"run {read_notes(self.folder / run)[0]}"
            charges = tacit.Ledger(self.folder / "ledger.db").charges
            if any(each.label.endswith(ending) for each in charges):
                return True
        code, said, _ = self.attempt(["resume", run, "--workers", "1"])
        if code != 2 or "remove the folder and fit again" not in said:
            raise SystemExit(f"A run that was not charged: {said}")
        shutil.rmtree(self.folder / run)
        return False

    def is_finished(self, run):
        """Whether the posterior is there and the keys are not."""
        from tacit.privacy.checkpoint import is_resumable

        folder = self.folder / run
        if not (folder / "posterior.nc").exists() or is_resumable(folder):
            return False
        code, said, _ = self.attempt(["resume", run, "--workers", "1"])  # removes what is left
        if code:
            raise SystemExit(f"A finished run: {said}")
        return True

    def compare(self, run, fits):
        """Raises unless all is as after a fit that was never killed."""
        import numpy as np

        import tacit

        whole, found = (
            tacit.Posterior.load(self.folder / name / "posterior.nc") for name in ("whole", run)
        )
        pairs = [(whole.draws[name], found.draws[name]) for name in whole.draws]
        pairs += [(whole.trace[name], found.trace[name]) for name in whole.trace]
        pairs += [(whole.unconstrained_covariance, found.unconstrained_covariance)]
        if not all(np.array_equal(*pair) for pair in pairs):
            raise SystemExit(f"The posterior of {run} differs.")
        usual = {"posterior.nc", "settings.yaml", "schema.yaml"}
        left = {path.name for path in (self.folder / run).iterdir()}
        reports = {path.name for path in (self.folder / "whole").iterdir()} - usual
        if left - reports != usual:
            raise SystemExit(f"{run} has {sorted(left)}.")
        charges = tacit.Ledger(self.folder / "ledger.db").charges
        costs = {each.epsilon for each in charges}
        if len(charges) != fits or len(costs) != 1 or len({each.label for each in charges}) != fits:
            raise SystemExit(f"{fits} fits have {len(charges)} charges of epsilon {costs}.")

    def fit(self, run):
        """The command that begins a fit."""
        files = [f"part{i}.parquet" for i in range(FILES)]
        more = ["--schema", "schema.yaml", "--model", "model.py", "--ledger", "ledger.db"]
        budget = ["--epsilon", "1", "--delta", "1e-6", "--seed", str(SEED), "--yes"]
        method = ["--method", "variational", "--set", f"num_steps={STEPS}"]
        return ["fit", *files, *more, *budget, *method, "--set", "sampling_rate=0.2", "--out", run]


def prepare(folder):
    """Writes the files, the schema and the ledger."""
    import numpy as np
    import pandas as pd

    import tacit

    table = pd.DataFrame({"y": np.random.default_rng(SEED).normal(0.5, 1, ROWS)})
    for i in range(FILES):
        table[i::FILES].to_parquet(folder / f"part{i}.parquet")
    tacit.Schema({"y": tacit.Number(-5, 5)}).to_yaml(folder / "schema.yaml")
    (folder / "model.py").write_text(MODEL)
    tacit.Ledger.new(folder / "ledger.db", total=tacit.Budget(1000, 1e-3))


def show(kills, fits):
    """Prints the table."""
    import killing

    print(f"| killed | {' | '.join(WHO)} | all |\n|---|{'---|' * (len(WHO) + 1)}")
    for stage in killing.STAGES:
        row = [kills[stage, who] for who in WHO]
        print(f"| {stage} | {' | '.join(map(str, [*row, sum(row)]))} |")
    every = [sum(kills[stage, who] for stage in killing.STAGES) for who in WHO]
    print(f"| all | {' | '.join(map(str, [*every, kills.total()]))} |")
    print(
        f"\n{kills.total()} kills of {fits} fits: all posteriors as undisturbed, one charge for each fit."
    )


if __name__ == "__main__":
    main()
