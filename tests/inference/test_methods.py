"""The registry of methods agrees with what people see of them."""

from pathlib import Path

import pytest

import tacit
from tacit.cli.main import main
from tacit.inference import registry
from tacit.inference.method import Method

DOCS = (Path(__file__).parents[2] / "docs/reference/methods.md").read_text(encoding="utf-8")


def is_method(value):
    return isinstance(value, type) and issubclass(value, Method)


def test_every_public_method_is_registered():
    public = {name for name in tacit.methods.__all__ if is_method(getattr(tacit.methods, name))}
    assert public == {each.name for each in registry.METHODS}


@pytest.mark.parametrize("entry", registry.METHODS, ids=lambda entry: entry.name)
def test_a_method_is_public_and_in_the_docs(entry):
    assert getattr(tacit.methods, entry.name) is entry.kind
    shown = tuple(f"| `{home}.{entry.name}(" for home in ("tacit", "tacit.methods"))
    rows = [line for line in DOCS.splitlines() if line.startswith(shown)]
    assert [row.split("|")[2].strip() for row in rows] == [entry.releases]


@pytest.mark.parametrize("command", ["fit", "audit"])
def test_help_lists_what_can_be_asked_for(command, capsys):
    main([command, "--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert "default, scoring, variational, barker, langevin, hamiltonian or statistics." in said
