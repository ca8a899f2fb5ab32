"""How many rows there are shows nowhere: what two fits say differs in what was released alone."""

import re

import numpy as np
import pytest

import tacit
from tacit import Budget, conjugate
from tacit.privacy.gate import compilation_cache_in

SIZES = (7919, 7907)  # numbers that no setting has
SCHEMA = tacit.Schema({"y": tacit.Binary()})
PEOPLE = tacit.Schema({"y": tacit.Binary()}, person="who", most_rows=2)
INTERVAL = {"low": {"probability": 0.01}, "high": {"probability": 0.99}}
METHODS = {
    "variational": tacit.Variational(num_steps=20),
    "langevin": tacit.Langevin(num_steps=20, size=8000),
    "barker": tacit.Barker(num_steps=20, start=tacit.Scoring(num_steps=8)),
    "hamiltonian": tacit.Hamiltonian(num_steps=20, start=tacit.Scoring(num_steps=8)),
    "one sample": tacit.OneSample(
        sampler=tacit.methods.GridSampler(**INTERVAL),
        claim=tacit.methods.BoundedLikelihood(bound=5.0),
    ),
    "statistics": tacit.Statistics(num_draws=20),
}


def fitted(method, size, schema):
    table = {"y": np.arange(size) % 2, "who": np.arange(size)}
    model, budget = conjugate.Bernoulli("y"), Budget(1, 1e-6)
    return tacit.fit(model, table, schema=schema, budget=budget, method=method, seed=1)


def said(statement):
    return {
        "text": str(statement),
        "in a notebook": statement._repr_html_(),
        "repr": repr(statement),
        "json": statement.to_json(),
        "registry": str(statement.to_registry()),
    }


CHAINS = {"langevin", "barker", "hamiltonian"}  # with the fit that guides them, the longest


@pytest.mark.parametrize(
    "method", [pytest.param(n, marks=[pytest.mark.slow] * (n in CHAINS)) for n in METHODS]
)
def test_statements_are_the_same_whatever_the_number(tmp_path, method):
    """And none of a result's words or settings has the number, with or without a comma.

    Nor does the name of a program that JAX stores, a digest of its shapes: all it needs is there
    after the first fit.
    """
    schema = PEOPLE if method in {"barker", "variational"} else SCHEMA
    several, stored = [], []
    for size in SIZES:
        with compilation_cache_in(tmp_path / "programs"):
            several.append(fitted(METHODS[method], size, schema))
        stored.append({path.name for path in (tmp_path / "programs").glob("*-cache")})
    assert stored[0] == stored[1]
    one, other = (said(posterior.privacy) for posterior in several)
    assert one == other
    for size, posterior in zip(SIZES, several, strict=True):
        posterior.report(tmp_path / f"report {size}")
        files = "".join(path.read_text() for path in (tmp_path / f"report {size}").iterdir())
        words = "".join(one.values()) + str(posterior.summary()) + repr(posterior) + files
        assert not re.search(rf"(?<![\d.])({size}|{size:,})(?!\d)", words)
