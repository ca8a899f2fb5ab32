"""Runs every check of the project and says which failed. CI runs exactly this.

Format and lint, types, layers, tests with doctests. Arguments go to pytest:
``python scripts/check.py -m slow`` runs the long tests instead of the usual ones.
"""

import subprocess
import sys
import sysconfig
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TOOLS = Path(sysconfig.get_path("scripts"))


def main() -> int:
    """Runs all checks, the quick ones first, and goes on after a failure."""
    checks = {
        "format": ["ruff", "format", "--check", "--quiet", "."],
        "lint": ["ruff", "check", "--quiet", "."],
        "types": ["mypy"],
        "layers": ["lint-imports", "--no-logo"],
        # In the order of collection: `tests/conftest.py` puts first what waits longest.
        "tests": [
            *("pytest", "--numprocesses=auto", "--dist=loadfile", "--no-loadscope-reorder"),
            *sys.argv[1:],
        ],
    }
    failed = []
    for name, (tool, *arguments) in checks.items():
        print(f"== {name}", flush=True)
        start = time.monotonic()
        if subprocess.run([TOOLS / tool, *arguments], cwd=ROOT, check=False).returncode:
            failed.append(name)
        print(f"== {name}: {time.monotonic() - start:.0f} s", flush=True)
    print(f"Failed: {', '.join(failed)}." if failed else "All checks passed.")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
