"""Importing is free of side effects and quick: nothing heavy is loaded that is not used."""

import subprocess
import sys

import pytest

import tacit

pytestmark = pytest.mark.processes

HEAVY = (
    "numpy", "scipy", "dp_accounting", "matplotlib", "jax", "rich.table",
    "numpyro", "xarray", "arviz", "pandas", "sklearn",
)  # fmt: skip


def loaded_after(statement):
    code = f"import sys; {statement}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.split()


@pytest.mark.parametrize("statement", ["import tacit", "import tacit.cli.main"])
def test_import_stays_light(statement):
    assert not set(HEAVY) & set(loaded_after(statement))


def test_accounting_does_not_load_pictures_or_models():
    assert not {"matplotlib", "jax"} & set(loaded_after("from tacit import Budget"))


def test_neither_a_fit_nor_its_accounting_needs_dp_accounting():
    used = "import tacit.api.fit, tacit.accounting.accountants, tacit.accounting.calibrate"
    assert not {"dp_accounting", "attr", "attrs"} & set(loaded_after(used))


def test_how_far_a_federated_run_is_needs_no_models():
    loaded = set(loaded_after("import tacit.cli.federated_status"))
    assert not {"jax", "pandas", "scipy", "cryptography"} & loaded


def test_a_schema_loads_neither_models_nor_tables():
    heavy = {"jax", "scipy", "pandas", "polars", "pyarrow", "tacit.privacy"}
    assert not heavy & set(loaded_after("from tacit import Schema"))


def test_a_formula_is_parsed_without_tables_or_arrays_of_jax():
    parsed = "from tacit.models.formula_parser import parse_formula; parse_formula('y ~ x*z')"
    heavy = {"formulae", "jax", "numpyro", "pandas", "scipy", "tacit.privacy"}
    assert not heavy & set(loaded_after(parsed))


PLAIN_FIT = """
import numpy as np, tacit
schema = tacit.Schema({"y": tacit.Binary(), "x": tacit.Number(-1, 1)})
table = {"y": np.arange(4000) % 2, "x": np.linspace(-1, 1, 4000)}
post = tacit.fit(tacit.glm("y ~ x", schema=schema), table, schema=schema, budget=tacit.Budget(5, 1e-5))
str(post.summary()), str(post.privacy)
"""


def test_a_plain_fit_loads_neither_federated_code_nor_pandas():
    loaded = loaded_after(f"exec({PLAIN_FIT!r})")
    assert "tacit.api.fit" in loaded
    assert "pandas" not in loaded
    assert not [name for name in loaded if name.startswith(("tacit.federated", "flwr"))]


@pytest.mark.parametrize(
    "package", [tacit, tacit.accounting, tacit.federated, tacit.methods, tacit.models], ids=str
)
def test_public_names_resolve(package):
    for name in package.__all__:
        assert getattr(package, name) is not None
    assert set(package.__all__) <= set(dir(package))
    with pytest.raises(AttributeError, match="posterior"):
        package.posterior  # noqa: B018


def test_the_front_page_can_be_learnt():
    assert len(tacit.__all__) <= 50
