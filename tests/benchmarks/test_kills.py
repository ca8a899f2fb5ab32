"""The benchmark of kills runs; it ends with an error if a posterior or a charge differs."""

import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "kills.py"


@pytest.mark.slow
@pytest.mark.processes
def test_killed_fits_end_as_undisturbed_ones():
    command = [sys.executable, str(BENCHMARK), "--quick", "--seed", "3"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "all posteriors as undisturbed" in done.stdout
