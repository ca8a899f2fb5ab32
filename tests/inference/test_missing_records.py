"""Records with a missing cell: where the number of units is public, they must not change it."""

from functools import cache

import jax.numpy as jnp
import numpy as np
import pytest

from tacit import Barker, Budget, Ledger, Model, Number, OneSample, Schema, fit
from tacit.methods import BoundedLikelihood, GridSampler, LipschitzLikelihood
from tacit.models import Parameter
from tacit.privacy.gate import open_gate
from tacit.privacy.noise import Randomness
from tacit.privacy.one_draw import exact as grid_module
from tacit.privacy.one_draw.chain import ChainDraws
from tacit.privacy.rows import Rows

BUDGET = Budget(1, 1e-6, "replace")
VALUES = [0.2, -0.4, 0.9, 0.1, -0.7, 0.3, 0.8, -0.2]
MISSING = [None, np.nan, "no number"]
ROWS = Schema({"x": Number(-1, 1)})
PEOPLE = Schema({"x": Number(-1, 1)}, person="who", most_rows=2)


@cache
def mean():
    """A normal mean; a record's log-likelihood falls far below zero, whatever it says."""
    return Model(
        parameters={"mean": Parameter(())},
        log_prior=lambda p: -0.5 * p["mean"] ** 2,
        log_likelihood=lambda p, row: -0.5 * (row["x"] - p["mean"]) ** 2 - 3.0 * p["mean"] ** 2,
    ).unit_model


def table(values, schema):
    """Values a row each, or two rows of each person."""
    return {"x": values, "who": np.arange(len(values)) // (1 if schema is ROWS else 2)}


def probabilities(monkeypatch, claim, values, schema):
    """The exact log probabilities of a draw's points, from the terms that it is made with."""
    seen = []

    def spy(bits, terms, count):
        seen.append(sum(c * n.astype(np.float64) for c, n in terms))
        return np.zeros(count, np.int64)

    sampler = GridSampler(low={"mean": -4.0}, high={"mean": 4.0}, points=9)
    method = OneSample(sampler=sampler, claim=claim)
    with monkeypatch.context() as patch:
        patch.setattr(grid_module, "exact_categorical", spy)
        fit(mean(), table(values, schema), schema=schema, budget=BUDGET, method=method)
    return seen[0] - np.logaddexp.reduce(seen[0])


@pytest.mark.parametrize("missing", MISSING)
@pytest.mark.parametrize(
    ("claim", "schema"),
    [
        (LipschitzLikelihood(slope=5.0, radius=1.0), ROWS),
        (BoundedLikelihood(bound=2.0), ROWS),
        (BoundedLikelihood(bound=2.0), PEOPLE),
    ],
)
def test_a_missing_cell_moves_a_draw_by_epsilon_at_most(monkeypatch, claim, schema, missing):
    one = probabilities(monkeypatch, claim, VALUES, schema)
    gone = [missing] if schema is ROWS else [missing, missing]
    other = probabilities(monkeypatch, claim, [*VALUES[: -len(gone)], *gone], schema)
    assert 0.01 < np.abs(one - other).max() <= BUDGET.epsilon


AMPLE, SIZE = Budget(1e4, 1e-3, "replace"), 80
RECORDS, PAIRS = VALUES * 10, VALUES * 20
BATCHES = {
    "one record": (ROWS, [*RECORDS[:-1], None]),
    "all records": (ROWS, [None] * SIZE),
    "nobody": (ROWS, RECORDS),
    "one record of a person": (PEOPLE, [*PAIRS[:-1], None]),
    "a person": (PEOPLE, [*PAIRS[:-2], "?", None]),
    "all people": (PEOPLE, [None] * SIZE * 2),
}


@pytest.mark.parametrize("case", BATCHES)
def test_a_missing_cell_decides_no_error_of_a_public_size(tmp_path, case):
    schema, values = BATCHES[case]
    ledger = Ledger.new(tmp_path / "l.db", total=AMPLE, unit=schema.unit)
    method = Barker(batch_size=30, size=SIZE, num_steps=5, burn_in=0.0)
    post = fit(
        mean(),
        table(values, schema),
        schema=schema,
        budget=AMPLE,
        method=method,
        ledger=ledger,
    )
    assert np.isfinite(post.draws["mean"]).all()
    assert "how many units" in str(post.privacy)


def test_who_has_no_identifier_is_nobody():
    """A row that belongs to nobody is no unit, missing cells or not."""
    who = [1, 1, 2, None, None, 3]
    encoded = PEOPLE.encode({"x": [0.1, 0.2, None, None, 0.3, 0.4], "who": who})
    rows = Rows.from_encoded(*encoded)
    assert sorted(rows._host_fields()[1].tolist()) == [[True, False], [True, True]]
    assert rows._units == 3


def test_a_batch_takes_records_left_out_as_often_as_others(monkeypatch):
    """And what they hold is nothing: half of the units are left out, so half of a batch is."""
    from tacit.privacy.gate import BlockRunner

    seen = []
    real = BlockRunner._batches

    def spy(*given):
        seen.append(real(*given))
        return seen[-1]

    monkeypatch.setattr(BlockRunner, "_batches", spy)
    values = [*RECORDS, *[None] * SIZE]
    method = Barker(batch_size=30, size=2 * SIZE, num_steps=200, burn_in=0.0)
    fit(mean(), {"x": values}, schema=ROWS, budget=AMPLE, method=method, seed=1)
    present = np.concatenate([each.present for each in seen])
    indices = np.concatenate([each.indices for each in seen])
    assert present.mean() == pytest.approx(0.5, abs=0.02)
    assert indices.min() >= 0
    assert indices.max() == SIZE - 1


@pytest.mark.slow
def test_a_chain_takes_a_record_left_out_for_one_of_zeros():
    plan = ChainDraws(
        claim=LipschitzLikelihood(slope=5.0, radius=1.0),
        dimension=1,
        power=1.0,
        warm_up=50,
        length=20,
        resolution=0.01,
    )

    def density(vector, rows, present, _):
        terms = -0.5 * (rows["x"] - vector[0]) ** 2 - 3.0 * vector[0] ** 2 + vector[0]
        return jnp.where(present, terms, 0.0).sum()

    def end(rows):
        gate = open_gate(rows, plan, Randomness(5))
        return gate.draw(lambda v, _: -0.5 * (v**2).sum(), density, None)

    few = np.asarray(VALUES, np.float32)
    left_out = end(Rows.from_encoded({"x": few}, left_out=40))
    zeros = end(Rows({"x": np.append(few, np.zeros(40, np.float32))}))
    np.testing.assert_allclose(left_out, zeros, atol=0.011)
    assert np.abs(left_out - end(Rows({"x": few}))).max() > 0.02
