"""What the README shows is what the repository has, and runs."""

import os
import re
import runpy
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tacit
from tacit.api.fit import fit_many
from tacit.api.rows import model_rows
from tacit.cli import demo
from tacit.cli.main import main

BUDGET = tacit.Budget(1, 1e-5)
ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
CODE = README.split("```python\n")[1].split("```")[0]
SHOWN = README.split("noise is random:\n\n```\n")[1].split("```")[0]


def _words(lines):
    """How lines begin, without the numbers that differ from run to run."""
    return [re.sub(r"\d+\.\d", "#", line.split("  ")[0]) for line in lines]


def test_code_prints_what_is_shown(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "block.py"
    script.write_text(CODE)
    runpy.run_path(str(script))
    printed = capsys.readouterr().out.splitlines()
    shown = SHOWN.splitlines()
    assert _words(printed) == _words(shown)
    assert printed[-1] == shown[-1]  # what was charged and what remains
    for mine, theirs in zip(printed[3:7], shown[3:7], strict=True):
        (mean, sd, *_), (other, other_sd, *_) = (
            [float(number) for number in re.findall(r"-?\d+\.\d+", line)] for line in (mine, theirs)
        )
        assert abs(mean - other) < 5 * (sd + other_sd)


def test_the_example_of_a_model_of_ones_own(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(ROOT / "examples" / "readmission.py"))
    out = capsys.readouterr().out
    assert "epsilon 1 at delta 1e-6 under add-remove" in out
    assert "ledger: epsilon 2" in out
    chances = [float(x) for x in re.findall(r"readmission: \[(.*) (.*)\]", out)[0]]
    assert chances == pytest.approx([0.09, 0.75], abs=0.05)  # as simulated


COMMANDS = README.split("<!-- five minutes -->\n```sh\n")[1].split("```")[0]


def check_five_minutes(folder, printed):
    """Refuses what was printed and written if it is not what was simulated and charged."""
    assert "2 of 3 left afterwards" in printed
    simulated = {"age, per 10 years": 0.24, "dose, per 10 mg": -0.4, "ward[geriatric]": 1.0}
    lines = {line.split("  ")[0]: line for line in printed.splitlines()}
    for name, truth in simulated.items():
        mean, sd = map(float, re.findall(r"-?\d+\.\d+", lines[name])[:2])
        assert abs(mean - truth) < 5 * sd
    page = (folder / "run" / "report.html").read_text()
    assert "readmitted ~ age + dose + ward" in page


def test_five_minutes_from_a_table_to_a_report(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for command in COMMANDS.splitlines():
        assert main(shlex.split(command)[1:]) == 0
    printed, complaints = capsys.readouterr()
    check_five_minutes(tmp_path, printed)
    assert not complaints


@pytest.mark.slow
@pytest.mark.processes
def test_five_minutes_in_a_shell(tmp_path):
    """The commands as they stand there."""
    (tmp_path / "tacit").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tacit "$@"\n')
    (tmp_path / "tacit").chmod(0o755)
    done = subprocess.run(
        ["/bin/bash", "-euo", "pipefail", "-c", COMMANDS],
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
    )
    check_five_minutes(tmp_path, done.stdout)
    assert not done.stderr


@pytest.mark.slow
def test_the_demonstration_is_close_to_the_answer_without_privacy():
    training, test = demo.load_tables()
    plan = demo.demo_plan(BUDGET)
    rows = model_rows(plan.model, plan.schema, training)
    fits = fit_many(plan.model, [rows] * 5, [BUDGET] * 5, seeds=list(range(5)))
    accuracies = [demo.accuracy(replace(fit, schema=plan.schema), test) for fit in fits]
    exact = tacit.fit_without_privacy(plan.model, training, schema=plan.schema)
    assert min(accuracies) > demo.accuracy(exact, test) - 0.02
    # Always saying no is right for two thirds of the women.
    assert np.mean(test["affair"] == 0) < min(accuracies) - 0.02
    for name, draws in exact.draws.items():
        for fit in fits:
            away = np.abs(fit.draws[name].mean(axis=0) - draws.mean(axis=0))
            assert np.all(away < 4 * fit.draws[name].std(axis=0))


def test_the_demonstration_shows_exact_and_private_side_by_side(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["demo"]) == 0
    printed, complaints = capsys.readouterr()
    assert not complaints
    assert max(map(len, printed.splitlines())) <= 100
    table = re.findall(r"-?\d\.\d\d \+- \d\.\d\d", printed)
    assert len(table) == 3 * 5
    exact, private, _ = re.findall(r"(\d\d\.\d)%", printed)[:3]
    assert abs(float(exact) - float(private)) < 2
    assert "at most 73.2% of the time" in printed.replace("\n", " ")
    assert {path.name for path in (tmp_path / "tacit-demo").iterdir()} >= {
        "forest.png",
        "report.html",
    }
