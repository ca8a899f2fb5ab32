"""A new project to its end on this machine: TLS, keys, guards, warm nodes, a posterior and its report."""

import os
import subprocess

import pytest

pytest.importorskip("flwr")

from flower_processes import BIN, HANGS, free_port

import tacit
from tacit.cli.main import main
from tacit.federated.state import read_run_status

pytestmark = [pytest.mark.processes, pytest.mark.slow]


def test_a_new_project_runs_to_its_posterior_in_three_commands(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["federated", "new", "study"]) == 0
    monkeypatch.chdir(tmp_path / "study")
    assert main(["federated", "keys"]) == 0
    path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["/bin/sh", "trial.sh"],
        env={**os.environ, "PATH": path, "PORT": str(free_port()), "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        check=False,
        timeout=HANGS,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert "Round 20 of 20: all sites answered; the last round is done." in said
    post = tacit.Posterior.load("posterior.nc")
    assert post.answers == dict.fromkeys(("north", "south", "west"), (20, 20))
    assert post.privacy.epsilons["add-remove"] <= 1
    assert "Who learns what" in (tmp_path / "study" / "report.html").read_text("utf-8")
    assert read_run_status(tmp_path / "study" / "posterior.nc.run-1.state").done == 20
    for site in post.sites:
        assert (tmp_path / "study" / f"report-{site}.html").is_file()
        assert len(tacit.Ledger(f"sites/{site}/budget.db").charges) == 1
