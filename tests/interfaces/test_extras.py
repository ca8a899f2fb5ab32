"""Tacit works with exactly what it installs: without extras, and with all of them but one."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tacit.cli import main
from tacit.errors import DISTRIBUTION, PACKAGE_EXTRAS, MissingPackage

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = sorted(set(PROJECT["optional-dependencies"]) - {"docs", "test"})


def run(job, extras, folder):
    """Runs a job in a process in which only what these extras bring can be imported."""
    worker = Path(__file__).with_name("without_extras.py")
    command = [sys.executable, "-W", "error", str(worker), job, *extras]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.processes
def test_the_bare_package_does_all_but_what_extras_are_for(tmp_path):
    done = run("everything", [], tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.processes
@pytest.mark.parametrize(
    "missing",
    [pytest.param(n, marks=[] if n == "parquet" else pytest.mark.slow) for n in EXTRAS],
)
def test_one_missing_extra_is_named_with_what_installs_it(missing, tmp_path):
    # Others bring all of plots, too.
    without = {missing, "demo", "pymc"} if missing == "plots" else {missing}
    done = run(
        f"no_{missing.replace('-', '_')}",
        [each for each in EXTRAS if each not in without],
        tmp_path,
    )
    assert done.returncode == 0, done.stderr
    said = done.stderr.strip().splitlines()
    assert said
    for line in said:
        assert f"is not installed: pip install '{DISTRIBUTION}[{missing}]'." in line
    assert not list(tmp_path.glob("run*"))


def test_every_extra_and_its_packages_are_known_to_messages():
    assert PROJECT["name"] == DISTRIBUTION
    assert set(PACKAGE_EXTRAS.values()) == set(EXTRAS)
    for package, extra in PACKAGE_EXTRAS.items():
        brought = " ".join(PROJECT["optional-dependencies"][extra])
        # PyMC brings PyTensor.
        names = {"dp_accounting": "dp-accounting", "pytensor": "pymc", "sklearn": "scikit-learn"}
        name = names.get(package, package)
        assert name in brought


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("pyarrow.parquet", "pip install 'tacit-bayes[parquet]'."),
        ("jinja2", "The package jinja2 is not installed."),
    ],
)
def test_an_import_that_nobody_expected_to_fail_names_the_package(name, said, capsys):
    assert main._report_error(ModuleNotFoundError("private words", name=name)) == 1
    err = capsys.readouterr().err
    assert said in err
    assert "private words" not in err


def test_the_sentence():
    error = MissingPackage("arviz", "This plot")
    assert str(error) == (
        "This plot needs the package arviz, which is not installed: pip install 'tacit-bayes[plots]'."
    )
    assert isinstance(error, ImportError)
