"""The examples of newcomers, as they stand: from a messy table to a report, in a notebook, and with models of their own."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


def run_example(name, folder):
    """What an example prints, in a process and a folder of its own."""
    done = subprocess.run(
        [sys.executable, EXAMPLES / name],
        cwd=folder,
        env=os.environ | {"MPLBACKEND": "agg"},
        text=True,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def intervals(text):
    """The mean and the 90% interval of each parameter, from the last of each in what was printed."""
    number = r"(-?[\d.]+)"
    lines = re.findall(
        rf"^(\S+(?:, per \d+ \w+)?) +{number} +{number} +{number} +{number}(?: |$)",
        text,
        re.MULTILINE,
    )
    return {name: tuple(map(float, (mean, low, high))) for name, mean, _, low, high in lines}


def holds(found, truth, *, times=2.0):
    """Whether an interval holds a number, with room for an unlucky run."""
    mean, low, high = found
    return mean - times * (mean - low) <= truth <= mean + times * (high - mean)


@pytest.mark.slow
def test_a_messy_table_becomes_a_report_without_a_stumble(tmp_path):
    printed = run_example("messy_table.py", tmp_path)
    first, second = printed.split("NOT PRIVATE")[1:]
    assert "0 of 8,000 rows are complete" in first
    assert "8,000 of 8,000 cells of SBP end in mmHg: declare measured_in: mmHg" in first
    assert "are 'medcial', which resembles 'medical'" in first
    assert "7,771 of 8,000 rows are complete" in second
    assert "Error" not in printed
    assert "2 of 3 left afterwards" in printed
    assert "Age, SBP and ward are clearly related to died." in printed
    found = intervals(printed)
    assert holds(found["age, per 10 years"], 0.4)
    assert holds(found["SBP, per 10 mmHg"], 0.15)
    assert holds(found["ward[geriatric]"], 1.0)
    assert abs(found["ward[surgical]"][0]) < 0.4
    young, old = (
        [float(cell) for cell in line.split(",")[-3:]]
        for line in re.findall(r"^[ab],.*$", printed, re.MULTILINE)
    )
    assert young[1] < young[0] < young[2] < old[1] < old[0] < old[2]
    assert (tmp_path / "run" / "report.html").stat().st_size > 10_000


@pytest.mark.slow
def test_a_notebook_shows_one_number_for_one_parameter(tmp_path):
    printed = run_example("notebook.py", tmp_path)
    found = intervals(printed.split("The method cannot tell")[0])
    assert holds(found["age, per 10 years"], 0.25)
    assert holds(found["dose, per 10 mg"], -0.4)
    age = f"{found['age, per 10 years'][0]:.3f}"
    assert f"mean of the draws of age: {age}" in printed
    assert (
        len(re.findall(rf"^age +{re.escape(age)}", printed, re.MULTILINE)) == 2
    )  # ArviZ and the file
    assert "P(dose < 0) = 1.000" in printed
    estimated = re.search(r"^coefficients\[age\] +([\d.]+)", printed, re.MULTILINE)[1]
    direct = re.search(r"coefficient\nage +([\d.]+)", printed)[1]
    assert float(estimated) == pytest.approx(float(direct), rel=0.02)
    assert "noise not included" in printed
    assert printed.count("no ledger: nothing limits how often these data are used") == 3
    for name in ("forest.png", "trace.png", "predictions.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_models_of_ones_own_find_what_was_simulated(tmp_path):
    pytest.importorskip("pymc")
    found = intervals(run_example("hierarchical.py", tmp_path))
    truths = {"slopes[age]": 0.7, "slopes[bmi]": 0.6, "mean": 27, "sd": 4}
    truths |= {"alpha": 1, "beta[0]": 1, "beta[1]": 2.5, "sigma": 1}
    missed = {
        name: (found[name], truth)
        for name, truth in truths.items()
        if not holds(found[name], truth)
    }
    assert not missed


@pytest.mark.slow
def test_a_whole_study_on_one_ledger(tmp_path):
    printed = run_example("study.py", tmp_path)
    steps = ["Explore", "Forecast", "Fit", "Check", "Compare", "Share", "Ledger"]
    parts = re.split(rf"^(?:\d\. )?({'|'.join(steps)})$", printed, flags=re.MULTILINE)
    assert parts[1::2] == steps
    study = dict(zip(steps, parts[2::2], strict=True))
    assert re.match(r"\s*rows: [\d,]+ \([\d,]+ to [\d,]+\)", study["Explore"])
    assert "dose (20 values from" in study["Forecast"]
    found = intervals(study["Fit"])
    assert holds(found["age, per 10 years"], 1 / 3)
    assert holds(found["ward[geriatric]"], 0.8)
    assert re.search(r"[\d,]+ \(±\d+\) rows\. Residuals", study["Check"])
    assert "full predicts best" in study["Compare"]
    assert re.search(r"[\d,]+ \(±\d+\) rows that were not fitted", study["Compare"])
    _, mean, _, low, high = re.search(
        r"ward\[geriatric\](.*?) +(\S+) +(\S+) +(\S+) +(\S+)\n", study["Share"]
    ).groups()
    assert holds((float(mean), float(low), float(high)), 0.8)
    # The forecast and the synthetic tables are free.
    charged = re.findall(r"^  epsilon (\S+): (\w+)", study["Ledger"], re.MULTILINE)
    assert charged == [
        ("0.5", "tables"),
        ("1", "readmitted"),
        ("0.5", "check"),
        ("1", "comparison"),
    ]
    assert "left: epsilon 1, delta 9.6e-5" in study["Ledger"]
