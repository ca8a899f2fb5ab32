"""A process whose JAX computes in 64 bits gets the same results, and keeps its setting."""

import threading

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import tacit
from tacit._precision import in_32_bits, to_32_bits
from tacit.errors import BoundaryError

SIZE, BUDGET = 400, tacit.Budget(20, 1e-6)
LEVELS = ("a", "b", "c")
SCHEMA = tacit.Schema(
    {
        "x": tacit.Number(-1, 1),
        "count": tacit.Count(30),
        "sick": tacit.Binary(),
        "ward": tacit.Category(LEVELS),
    }
)
RATE = 1.0, 0.7  # the intercept and the slope of the logarithm of the rate


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, SIZE)
    return {
        "x": x,
        "count": rng.poisson(np.exp(RATE[0] + RATE[1] * x)),
        "sick": rng.integers(0, 2, SIZE),
        "ward": rng.choice(LEVELS, SIZE),
    }


def in_64_bits(run):
    """What a function returns where the whole process has the 64-bit mode on."""
    jax.config.update("jax_enable_x64", True)
    try:
        found = run()
        assert jnp.zeros(1).dtype == jnp.float64
    finally:
        jax.config.update("jax_enable_x64", False)
    return found


def same_in_both(run):
    """Checks that arrays, by name, are the same in both modes, and returns them."""
    precise = in_64_bits(run)  # first, so that no trace of the other run serves it
    for name, values in run().items():
        assert precise[name].dtype == values.dtype
        np.testing.assert_array_equal(precise[name], values, err_msg=name)
    return precise


def test_a_poisson_regression_and_its_predictions(table):
    new = {"x": np.array([-1.0, 0.0, 1.0])}
    truth = np.exp(RATE[0] + RATE[1] * new["x"])

    def run():
        model = tacit.glm("count ~ x", family="poisson", schema=SCHEMA)
        post = tacit.fit(model, table, budget=BUDGET, seed=1)
        drawn = post.predict(new, kind="draws", seed=2)
        return {**post.draws, "mean": post.predict(new), "drawn": drawn}

    found = same_in_both(run)
    np.testing.assert_allclose(found["mean"], truth, rtol=0.2)
    # Poisson draws have the variance of their mean.
    np.testing.assert_allclose(found["drawn"].var(axis=0), truth, rtol=0.25)


def test_a_numpyro_model_with_a_constant_that_was_made_in_64_bits(table):
    def by_ward(x, ward, offset, sick=None):
        spread = numpyro.sample("spread", dist.HalfNormal(1.0))
        slope = numpyro.sample("slope", dist.Normal(0, 1))
        with numpyro.plate("wards", len(LEVELS)):
            effect = numpyro.sample("effect", dist.Normal(0, spread))
        with numpyro.plate("rows", len(x)):
            # Unlike jnp.add, lax.add refuses arrays of unlike types.
            logits = jax.lax.add(effect, offset)[ward] + slope * x
            numpyro.sample("outcome", dist.Bernoulli(logits=logits), obs=sick)

    def run():
        model = tacit.models.NumPyro(by_ward, constants={"offset": jnp.array([0.0, 0.5, 1.0])})
        return tacit.fit(model, table, schema=SCHEMA, budget=BUDGET, seed=1).draws

    same_in_both(run)


def test_a_variational_fit_of_a_plain_model_with_constants(table):
    def log_prior(params, scale):
        return -(jax.lax.mul(params["slope"], scale) ** 2) / 2

    def log_likelihood(params, row, scale):
        return -jnp.logaddexp(0.0, (1 - 2 * row["sick"]) * params["slope"] * row["x"] * scale)

    def run():
        parameters = {"slope": tacit.models.Parameter()}
        model = tacit.Model(
            parameters=parameters,
            log_prior=log_prior,
            log_likelihood=log_likelihood,
            constants=jnp.asarray(2.0),
        )
        rows = tacit.Rows({name: jnp.asarray(table[name]) for name in ("x", "sick")})
        method = tacit.Variational(num_steps=20)
        return tacit.fit(model, rows, method=method, budget=BUDGET, seed=1).draws

    same_in_both(run)


def test_a_federated_fit(table):
    half = SIZE // 2
    sites = {
        "north": {name: values[:half] for name, values in table.items()},
        "south": {name: values[half:] for name, values in table.items()},
    }

    def run():
        model = tacit.glm("sick ~ x", schema=SCHEMA)
        return tacit.fit_federated(model, sites, budget=BUDGET, run="both", seed=1).draws

    same_in_both(run)


def test_a_model_that_holds_an_array_is_refused_in_the_same_words():
    def refusal():
        held = jnp.arange(40.0)

        def model(x, sick=None):
            slope = numpyro.sample("slope", dist.Normal(held.mean(), 1))
            with numpyro.plate("rows", len(x)):
                numpyro.sample("outcome", dist.Bernoulli(logits=slope * x), obs=sick)

        with pytest.raises(BoundaryError) as error:
            tacit.plan(model, SCHEMA, budget=BUDGET)
        return str(error.value)

    assert in_64_bits(refusal) == refusal()


def test_only_the_thread_of_a_call_is_switched_and_only_meanwhile():
    seen = {}

    @in_32_bits
    def call():
        other = threading.Thread(target=lambda: seen.update(other=jnp.zeros(1).dtype))
        other.start()
        other.join()
        seen["own"] = jnp.zeros(1).dtype
        with jax.enable_x64(True):
            seen["inside"] = jnp.zeros(1).dtype
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        in_64_bits(call)
    assert seen == {"other": jnp.float64, "own": jnp.float32, "inside": jnp.float64}
    with jax.enable_x64(True), pytest.raises(ZeroDivisionError):
        call()
    assert seen["own"] == jnp.float32
    assert jnp.zeros(1).dtype == jnp.float32


def test_arrays_of_64_bits_are_narrowed_wherever_they_are_and_nothing_else_changes():
    held = in_64_bits(lambda: {"z": (jnp.arange(3), "text"), "a": dist.Normal(jnp.ones(2), 1.0)})
    narrow = to_32_bits(held)
    assert (narrow["z"][0].dtype, narrow["z"][1]) == (jnp.int32, "text")
    assert narrow["a"].loc.dtype == jnp.float32
    same = {"z": np.ones(2), "a": jax.random.key(0)}
    assert to_32_bits(same) is same
