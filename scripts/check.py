"""Runs every check of the project and says which failed. CI runs exactly this.

Format and lint, types, layers, tests with doctests. The long tests, which are marked ``slow``, are left out;
``python scripts/check.py --all`` runs them too, after the others. Other arguments go to pytest:
``python scripts/check.py -m slow`` runs the long tests instead of the usual ones.

Most tests compile many small programs and run each of them briefly, so they compile with less
optimisation and compute on one thread in each process. Tests of the boundary do both as users do.
"""

import argparse
import os
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TOOLS = Path(sysconfig.get_path("scripts"))
BOUNDARY = ("tests/privacy", "tests/faults")
COMPILE_QUICKLY = "--xla_cpu_use_fusion_emitters=false --xla_backend_optimization_level=1"


def main() -> int:
    """Runs all checks, the quick ones first, and goes on after a failure."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--all", action="store_true", help="also the tests that are marked slow")
    given, others = parser.parse_known_args()
    # In the order of collection: `tests/conftest.py` puts first what waits longest.
    pytest = ["pytest", "--numprocesses=auto", "--dist=loadfile", "--no-loadscope-reorder", *others]
    boundary, rest = [*pytest, *BOUNDARY], [*pytest, *(f"--ignore={each}" for each in BOUNDARY)]
    checks = {
        "format": ["ruff", "format", "--check", "--quiet", "."],
        "lint": ["ruff", "check", "--quiet", "."],
        "types": ["mypy"],
        "layers": ["lint-imports", "--no-logo"],
        "tests of the boundary": boundary,
        "tests": rest,
    }
    if given.all:
        checks["slow tests of the boundary"] = [*boundary, "-m", "slow"]
        checks["slow tests"] = [*rest, "-m", "slow"]
    flags = f"{os.environ.get('XLA_FLAGS', '')} {COMPILE_QUICKLY}".strip()
    quick = {"XLA_FLAGS": flags, "NPROC": "1"}
    settings = {"tests": quick, "slow tests": quick}
    failed = []
    for name, (tool, *arguments) in checks.items():
        print(f"== {name}", flush=True)
        start = time.monotonic()
        command, env = [TOOLS / tool, *arguments], os.environ | settings.get(name, {})
        if subprocess.run(command, cwd=ROOT, env=env, check=False).returncode:
            failed.append(name)
        print(f"== {name}: {time.monotonic() - start:.0f} s", flush=True)
    print(f"Failed: {', '.join(failed)}." if failed else "All checks passed.")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
