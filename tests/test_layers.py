"""Importing is free of side effects and quick: nothing heavy is loaded that is not used."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.processes

HEAVY = (
    "numpy", "scipy", "dp_accounting", "matplotlib", "jax", "rich.table",
    "numpyro", "xarray", "arviz", "pandas", "sklearn",
)  # fmt: skip


def loaded_after(statement):
    code = f"import sys; {statement}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.split()


@pytest.mark.parametrize("statement", ["import tacit", "import tacit.interfaces.cli"])
def test_import_stays_light(statement):
    assert not set(HEAVY) & set(loaded_after(statement))


def test_accounting_does_not_load_pictures_or_models():
    assert not {"matplotlib", "jax"} & set(loaded_after("from tacit import Budget"))


def test_a_schema_loads_neither_models_nor_tables():
    heavy = {"jax", "scipy", "yaml", "pandas", "polars", "pyarrow", "tacit.privacy"}
    assert not heavy & set(loaded_after("from tacit import Schema"))


def test_public_names_resolve():
    import tacit

    for name in tacit.__all__:
        assert getattr(tacit, name) is not None
    assert dir(tacit) == sorted(tacit.__all__)
    with pytest.raises(AttributeError, match="posterior"):
        tacit.posterior  # noqa: B018
