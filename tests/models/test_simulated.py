"""A model of made-up tables is the model itself, but for where its outcomes come from."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
from numpyro import distributions as dist
from single_rows import row_log_likelihood, simulate_row

import tacit
from tacit.models.base import add_simulated_outcomes, fit_simulated_outcomes
from tacit.models.front_ends import adapt_model

SCHEMA = tacit.Schema(
    {"x": tacit.Number(-2, 2), "kind": tacit.Category(["a", "b", "c"]), "y": tacit.Binary()}
)


def by_function(x, kind, y=None):
    b = numpyro.sample("b", dist.Normal(0, 1))
    u = numpyro.sample("u", dist.Normal(0, 1).expand([3]).to_event(1))
    with numpyro.plate("rows", len(x)):
        numpyro.sample("seen", dist.Bernoulli(logits=b * x + u[kind]), obs=y)


MODELS = {
    "a function whose outcome has another name than its column": lambda: adapt_model(
        by_function, SCHEMA
    ),
    "a formula": lambda: adapt_model(tacit.glm("y ~ x + kind", schema=SCHEMA), SCHEMA),
    "a formula of one level": lambda: adapt_model(
        tacit.glm("kind['b'] ~ x", family="bernoulli", schema=SCHEMA), SCHEMA
    ),
}


@pytest.mark.parametrize("kind", MODELS)
def test_drawn_outcomes_have_the_density_of_a_table_that_holds_them(kind):
    model = MODELS[kind]()
    simulated = fit_simulated_outcomes(model)
    vector = jnp.linspace(-1, 1, model.dimension)
    columns = SCHEMA.dummy_rows(50, names=model.columns)
    for i in range(50):
        row = {name: values[i] for name, values in columns.items()}
        drawn = simulate_row(model, jax.random.key(i), vector, row)
        made = add_simulated_outcomes(row, drawn)
        assert row_log_likelihood(simulated, vector, made) == pytest.approx(
            float(row_log_likelihood(model, vector, row, None, drawn))
        )
        # Another outcome stands in for the drawn one, as methods ask for.
        assert row_log_likelihood(simulated, vector, made, None, drawn) == pytest.approx(
            float(row_log_likelihood(simulated, vector, made))
        )


def test_the_outcome_column_of_a_made_up_row_does_not_matter():
    model = MODELS["a formula"]()
    simulated, vector = fit_simulated_outcomes(model), jnp.ones(model.dimension)
    row = {name: values[0] for name, values in SCHEMA.dummy_rows(1, names=model.columns).items()}
    drawn = simulate_row(model, jax.random.key(0), vector, row)
    found = [
        float(
            row_log_likelihood(
                simulated, vector, add_simulated_outcomes({**row, "y": np.int32(y)}, drawn)
            )
        )
        for y in (0, 1)
    ]
    assert found[0] == found[1]
