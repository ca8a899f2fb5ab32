"""How long a person waits for each command, in fresh processes; beside ``import jax, numpyro``.

    python benchmarks/cold_start.py              # best of three, in turn
    python benchmarks/cold_start.py --repeats 1
    python benchmarks/cold_start.py --nuts       # and NUTS by NumPyro, of the same table and model

The table is that of ``tacit example``: 20,000 visits of 6,000 patients. The first fit has no stored programs and
compiles its own; "again" finds them in the user's cache folder, as every later fit of the same formula and schema
does, whatever the rows. The ratio is to the best ``import jax, numpyro`` of the same run.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TACIT = ("-m", "tacit")
BUDGET = ("--epsilon", "1", "--delta", "1e-6", "--ledger", "registry.db")
FORMULA = ("--schema", "visits.yaml", "--formula", "readmitted ~ age + dose + ward")
FIT = (*TACIT, "fit", "visits.csv", *FORMULA, *BUDGET)
LEDGER = ("ledger", "new", "registry.db", "--epsilon", "99", "--delta", "1e-3", "--unit", "person")
EMPTY, IMPORTS, FIRST, NUTS = (
    "an empty program",
    "import jax, numpyro",
    "fit, first",
    "NumPyro, NUTS",
)
COMMANDS = {
    EMPTY: ("-c", ""),
    IMPORTS: ("-c", "import jax, numpyro"),
    "import tacit": ("-c", "import tacit"),
    "tacit --help": (*TACIT, "--help"),
    FIRST: (*FIT, "--out", "run-first"),
    "fit, again": (*FIT, "--out", "run-again"),
    "fit --dry-run": (*FIT, "--dry-run"),
    "predict": (*TACIT, "predict", "run", "new_patients.csv"),
    "report": (*TACIT, "report", "run"),
    "explain": (*TACIT, "explain", "run"),
    "ledger show": (*TACIT, "ledger", "show", "registry.db"),
    "demo": (*TACIT, "demo"),
    "fit: no such file": (*TACIT, "fit", "vists.csv", *FORMULA, *BUDGET),
    "fit: no such schema": (*TACIT, "fit", "visits.csv", "--schema", "v.yaml", "--formula", "y ~ x", *BUDGET),
    "fit: misspelt column": (*FIT, "--formula", "readmitted ~ agee"),
    "fit: misspelt family": (*FIT, "--family", "logitic"),
    "fit: too little remains": (*FIT, "--epsilon", "1000"),
    "fit: ledger of rows": (*FIT, "--ledger", "rows.db"),
}  # fmt: skip
# The model of the example: a person's rows count as they are, as NUTS has no unit of privacy.
NUTS_PROGRAM = """
import csv, numpy as np, jax, jax.numpy as jnp, numpyro, numpyro.distributions as dist
rows = [row for row in csv.DictReader(open("visits.csv")) if all(row.values())]
wards = sorted({row["ward"] for row in rows})
x = np.array([[(float(row["age"]) - 59) / 41, (float(row["dose"]) - 25) / 25,
    *(float(row["ward"] == ward) for ward in wards[1:])] for row in rows])
y = np.array([row["readmitted"] in ("1", "yes", "True") for row in rows], float)
def model():
    a = numpyro.sample("a", dist.Normal(0, 2.5))
    b = numpyro.sample("b", dist.Normal(0, 2.5).expand([x.shape[1]]).to_event(1))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Bernoulli(logits=a + jnp.asarray(x) @ b), obs=y)
chain = numpyro.infer.MCMC(numpyro.infer.NUTS(model), num_warmup=500, num_samples=1000, progress_bar=False)
chain.run(jax.random.key(0))
chain.print_summary()
"""


def seconds(arguments, folder):
    """Seconds on the clock, of a process of its own whose stored programs lie in the folder."""
    for name in ("run-first", "run-again", "tacit-demo"):
        shutil.rmtree(folder / name, ignore_errors=True)
    env = os.environ | {"TACIT_CACHE_DIR": str(folder / "programs")}
    began = time.perf_counter()
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=folder, env=env, check=False, capture_output=True)  # noqa: S603
    took = time.perf_counter() - began
    if done.returncode not in (0, 2, 3):
        sys.exit(f"{' '.join(arguments)}:\n{done.stderr.decode()}")
    return took


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--nuts", action="store_true", help="also NUTS of the same model")
    options = parser.parse_args()
    programs = COMMANDS | ({NUTS: ("-c", NUTS_PROGRAM)} if options.nuts else {})
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        seconds((*TACIT, "example"), folder)
        seconds((*TACIT, *LEDGER), folder)
        seconds((*TACIT, "ledger", "new", "rows.db", "--epsilon", "9", "--delta", "1e-5", "--unit", "row"), folder)  # fmt: skip
        seconds((*FIT, "--out", "run"), folder)
        found = {program: [] for program in programs}
        for _ in range(options.repeats):  # in turn, so that a busy machine slows all of them alike
            for program, arguments in programs.items():
                if program == FIRST:
                    shutil.rmtree(folder / "programs", ignore_errors=True)
                found[program].append(seconds(arguments, folder))
    imports = min(found[IMPORTS])
    print(f"{'':26} {'best, s':>8} {'ratio':>6}")
    for program, took in found.items():
        print(f"{program:26} {min(took):8.2f} {min(took) / imports:6.2f}")


if __name__ == "__main__":
    main()
