"""The same fit again is neither planned nor compiled anew."""

from dataclasses import replace

import jax
import numpy as np
import numpyro
import pytest
from numpyro import distributions as dist

import tacit
from tacit._compile import stored_jit
from tacit.api import plan

SCHEMA = tacit.Schema({"age": tacit.Number(20, 80), "ill": tacit.Binary()})
BUDGET = tacit.Budget(1, 1e-5)
METHOD = tacit.Scoring(num_steps=8, sampling_rate=1.0, check_count=False)
TABLE = {"age": np.linspace(20, 80, 40), "ill": np.arange(40) % 2}


@pytest.fixture
def work():
    """Names of what JAX did since it was last asked: traces and compilations."""
    seen = []

    def listen(event, _, **more):
        if event.startswith("/jax/core/compile/"):
            seen.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)

    def since():
        found = list(seen)
        seen.clear()
        return found

    yield since
    jax.monitoring.unregister_event_duration_listener(listen)


def fitted(model, table=TABLE, **more):
    asked = {"budget": BUDGET, "method": METHOD, "seed": 1, **more}
    return tacit.fit(model, table, **asked)


def test_the_same_model_again_neither_plans_nor_compiles(work, monkeypatch):
    model = tacit.glm("ill ~ age", schema=SCHEMA)
    first = fitted(model)
    assert work()
    planned = []
    monkeypatch.setattr(plan, "plan", lambda *_, **__: planned.append(1))
    # The schema, the budget and the method are other objects that say the same.
    again = fitted(
        model,
        schema=tacit.Schema.from_text(SCHEMA.to_text()),
        budget=tacit.Budget(1, 1e-5),
        method=replace(METHOD),
    )
    assert work() == []
    assert not planned
    assert again == first
    other = {"age": TABLE["age"], "ill": 1 - TABLE["ill"]}
    assert fitted(model, other) != first  # rows are read anew
    assert work() == []


def test_tables_of_all_lengths_share_a_program(work):
    model = tacit.glm("ill ~ age", schema=SCHEMA)
    made = tacit.plan(model, budget=BUDGET, method=METHOD)
    tables = [{name: np.tile(cells, n) for name, cells in TABLE.items()} for n in (1, 2, 60)]
    (first,) = made.fit(tables[:1], seed=1)
    assert work()
    again = made.fit(tables, seed=1)
    assert work() == []
    assert again[0] == first
    assert again[1] != again[2]
    with pytest.raises(tacit.TacitError, match="list of tables"):
        made.fit(TABLE)


def test_what_differs_is_planned_for(monkeypatch):
    model = tacit.glm("ill ~ age", schema=SCHEMA)
    seen = []
    monkeypatch.setattr(plan, "plan", lambda model, *_, **more: seen.append((model, more)))
    again = plan.cached_plan
    for budget, method, size in [
        (BUDGET, METHOD, None),
        (BUDGET, METHOD, None),
        (tacit.Budget(2, 1e-5), METHOD, None),
        (BUDGET, tacit.Scoring(num_steps=9), None),
        (BUDGET, METHOD, 100),
    ]:
        again(model, SCHEMA, budget, method, size)
    again(tacit.glm("ill ~ age", schema=SCHEMA), SCHEMA, BUDGET, METHOD, None)
    assert len(seen) == 5
    plan._cached_plan.cache_clear()


@pytest.mark.slow
def test_a_function_that_can_change_is_planned_every_time():
    prior = {"mean": 0.0}

    def model(age, ill=None):
        slope = numpyro.sample("slope", dist.Normal(prior["mean"], 0.01))
        with numpyro.plate("rows", age.shape[0]):
            numpyro.sample("ill", dist.Bernoulli(logits=slope), obs=ill)

    one = fitted(model, schema=SCHEMA).mean()["slope"]
    prior["mean"] = 5.0
    two = fitted(model, schema=SCHEMA).mean()["slope"]
    assert abs(one) < 1
    assert abs(two - 5) < 1


def test_settings_that_cannot_be_looked_up_are_planned_every_time():
    assert not plan._is_hashable([1])
    assert plan._is_hashable(METHOD)


def test_settings_that_methods_do_not_compare_count(monkeypatch):
    model = tacit.glm("ill ~ age", schema=SCHEMA)
    monkeypatch.setattr(plan, "plan", lambda *_, **more: more["method"])
    starts = [None, tacit.Scoring(num_steps=8), tacit.Variational(), {"age": 0.0}]
    for start in starts:
        method = tacit.Barker(num_steps=7, start=start)
        assert plan.cached_plan(model, SCHEMA, BUDGET, method, None).start is start


def test_a_stored_program_is_not_taken_for_arguments_of_other_types(tmp_path, monkeypatch):
    """Also if they differ in an argument that the program does not use."""
    monkeypatch.setenv("TACIT_CACHE_DIR", str(tmp_path / "programs"))

    def first(a, _):
        return a * 2

    for kind in (np.int32, np.float32, np.int32):
        found = stored_jit(first, "first")(np.ones(3, np.float32), np.ones(2, kind))
        assert np.array_equal(found, np.full(3, 2.0))
    assert len(list((tmp_path / "programs").iterdir())) == 2
