"""What commands import: a refusal does not wait for JAX, nor a report for pandas."""

import shlex
import subprocess
import sys

import pytest

import tacit
from tacit.models.families import FAMILIES
from tacit.models.interpretation import FAMILY_NAMES

pytestmark = pytest.mark.processes

SLOW_TO_IMPORT = {
    "jax",
    "numpyro",
    "pandas",
    "xarray",
    "scipy",
    "matplotlib",
    "pyarrow",
    "formulae",
}
FIT = "fit visits.csv -s visits.yaml -f 'readmitted ~ age + dose + ward' --epsilon 1"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("commands")
    total = tacit.Budget(3, 1e-5)
    tacit.Ledger.new(made / "people.db", total=total, unit="person")
    tacit.Ledger.new(made / "rows.db", total=total, unit="row")
    (made / "full").mkdir()
    (made / "full" / "something").write_text("")
    run(made, "example")
    # The quickest fit there is: what is imported afterwards does not depend on how it went.
    quick = "--method variational --set num_steps=2 --set sampling_rate=1 --no-forecast --quiet"
    run(made, f"{FIT} --ledger people.db {quick} --out run")
    return made


def run(folder, typed):
    """The code with which a command ends, what it prints to standard error, and what it imports."""
    code = (
        "import sys\n"
        f"sys.argv = ['tacit', *{shlex.split(typed)!r}]\n"
        "from tacit.cli.main import main\n"
        "try:\n    ended = main()\nexcept SystemExit as end:\n    ended = end.code\n"
        "print('\\n', ended or 0, *{name.split('.')[0] for name in sys.modules})"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True
    )
    ended, *names = done.stdout.split("\n")[-2].split()
    return int(ended), done.stderr, set(names) & SLOW_TO_IMPORT


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (f"{FIT} --ledger nowhere.db", "no ledger at nowhere.db"),
        (f"{FIT} --ledger rows.db", "protects a row"),
        (f"{FIT} --ledger people.db --epsilon 50", "is left of"),
        (f"{FIT} --ledger people.db --family logitic", "family must be one of"),
        (f"{FIT} --ledger people.db --out full", "is not empty"),
        (f"{FIT} --ledger people.db --epsilon -1", "epsilon must be"),
        ("fit vists.csv -s visits.yaml -f 'readmitted ~ age' --epsilon 1", "vists.csv"),
        ("fit new_patients.csv -s visits.yaml -f 'readmitted ~ age' --epsilon 1", "no column"),
        ("fit visits.csv -s visits.yaml -f 'readmitted ~ age +' --epsilon 1", "cannot be read"),
        ("check run vists.csv --epsilon -1", "epsilon must be"),
        ("compare vists.csv -s visits.yaml -f 'y ~ x' --epsilon -1", "epsilon must be"),
        ("score run visits.csv --epsilon 1 --ledger nowhere.db", "no ledger at nowhere.db"),
        ("fit visits.csv -s vists.yaml -f 'readmitted ~ age' --epsilon 1", "cannot be read"),
    ],
)
def test_refusals_that_need_no_model_import_nothing_slow(folder, typed, said):
    ended, error, imported = run(folder, typed)
    assert ended in {2, 3}
    assert said in error
    assert not imported


@pytest.mark.parametrize(
    ("typed", "allowed"),
    [
        ("predict run new_patients.csv", {"scipy"}),
        ("report run", {"scipy"}),
        ("explain run", {"scipy"}),
        ("ledger show people.db", set()),
    ],
)
def test_commands_that_compute_little_import_little(folder, typed, allowed):
    ended, error, imported = run(folder, typed)
    assert ended == 0, error
    assert imported <= allowed


def test_a_fit_imports_no_tables(folder):
    _, error, imported = run(folder, f"{FIT} --dry-run --method variational")
    assert not error
    assert imported <= {"jax", "numpyro", "scipy"}


def test_families_are_known_without_importing_them():
    assert set(FAMILY_NAMES) == set(FAMILIES)
