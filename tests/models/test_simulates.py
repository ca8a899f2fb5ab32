"""Outcomes drawn from a model: at them, the score of the same parameters has mean zero."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax.extend.core import ClosedJaxpr, Jaxpr
from single_rows import row_log_likelihood, simulate_row
from zoo import ZOO

import tacit
from tacit.errors import InvalidArgument
from tacit.federated.targets import cavity_model
from tacit.models.checks import arbitrary_vector
from tacit.models.front_ends import adapt_model
from tacit.privacy.trace import is_per_unit

COLUMNS = {
    "x": tacit.Number(-1, 1),
    "both": tacit.Number(-1, 1, shape=(2,)),
    "ward": tacit.Category(["A", "B"], other="other"),
    "sick": tacit.Binary(),
    "y": tacit.Number(-3, 3),
    "size": tacit.Number(0.5, 5),
    "visits": tacit.Count(9),
    "trials": tacit.Count(12),
}
SCHEMA = tacit.Schema(COLUMNS)
PEOPLE = tacit.Schema(COLUMNS, person="who", most_rows=3)
DRAWS = 6000
ROWS = 3


def line(x):
    a = numpyro.sample("a", dist.Normal(0, 1))
    return a + numpyro.sample("b", dist.Normal(0, 1)) * x


def logistic(x, sick=None):
    eta = line(x)
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("sick", dist.Bernoulli(logits=eta), obs=sick)


def gaussian(x, y=None):
    noise = numpyro.sample("noise", dist.LogNormal(0, 0.5))
    eta = line(x)
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Normal(eta, noise), obs=y)


def poisson(x, visits=None):
    eta = line(x)
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("visits", dist.Poisson(jnp.exp(eta)), obs=visits)


def negative_binomial(x, visits=None):
    size = numpyro.sample("size_of", dist.LogNormal(0, 1))
    eta = line(x)
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("visits", dist.NegativeBinomial2(jnp.exp(eta), size), obs=visits)


def binomial(x, trials, visits=None):
    eta = line(x)
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("visits", dist.Binomial(trials, logits=eta), obs=visits)


def student(x, y=None):
    df = numpyro.sample("df", dist.LogNormal(1.5, 0.3))
    eta = line(x)
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.StudentT(df, eta, 0.7), obs=y)


def gamma(x, size=None):
    shape = numpyro.sample("shape", dist.LogNormal(0.5, 0.5))
    eta = line(x)
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("size", dist.Gamma(shape, shape * jnp.exp(eta)), obs=size)


def zero_inflated(x, visits=None):
    gate = numpyro.sample("gate", dist.Beta(2, 2))
    eta = line(x)
    with numpyro.plate("rows", x.shape[0]):
        rate = jnp.exp(eta)
        numpyro.sample("visits", dist.ZeroInflatedPoisson(gate, rate), obs=visits)


def categorical(x, ward=None):
    b = numpyro.sample("b", dist.Normal(0, 1).expand([2, 3]).to_event(2))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("ward", dist.Categorical(logits=b[0] + x[:, None] * b[1]), obs=ward)


def vectors(both):
    mean = numpyro.sample("mean", dist.Normal(0, 1).expand([2]).to_event(1))
    with numpyro.plate("rows", both.shape[0]):
        numpyro.sample("both", dist.Normal(mean, 0.5).to_event(1), obs=both)


def two_plates(both):
    mean = numpyro.sample("mean", dist.Normal(0, 1))
    rate = numpyro.sample("rate", dist.LogNormal(0, 0.5))
    with numpyro.plate("parts", 2, dim=-1), numpyro.plate("rows", both.shape[0], dim=-2):
        numpyro.sample("both", dist.StudentT(4.0, mean, rate), obs=both)


def transformed(x, size=None):
    noise = numpyro.sample("noise", dist.LogNormal(0, 0.5))
    eta = line(x)
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("log", dist.Normal(eta, noise), obs=jnp.log(size))


def masked(x, sick, y=None):
    noise = numpyro.sample("noise", dist.LogNormal(0, 0.5))
    eta = line(x)
    with numpyro.plate("rows", x.shape[0]), numpyro.handlers.mask(mask=sick == 1):
        numpyro.sample("y", dist.Normal(eta, noise), obs=y)


def several(x, sick=None, visits=None, y=None):
    """Three outcomes: one needs another as it was drawn, one as it is in the row."""
    c = numpyro.sample("c", dist.Normal(0, 1).expand([3]).to_event(1))
    eta = line(x)
    with numpyro.plate("rows", x.shape[0]):
        ill = numpyro.sample("sick", dist.Bernoulli(logits=eta), obs=sick)
        numpyro.sample("visits", dist.Poisson(jnp.exp(c[0] + c[1] * ill)), obs=visits)
        numpyro.sample("y", dist.Normal(c[2] * visits / 4, 1.0), obs=y)


def row_effects(x, visits=None):
    spread = numpyro.sample("spread", dist.LogNormal(-1, 0.3))
    eta = line(x)
    with numpyro.plate("rows", x.shape[0]):
        u = numpyro.sample("u", dist.Normal(0, spread))
        numpyro.sample("visits", dist.Poisson(jnp.exp(eta + u)), obs=visits)


def discrete_effects(y=None):
    share = numpyro.sample("share", dist.Beta(2, 2))
    centres = numpyro.sample("centres", dist.Normal(0, 1).expand([2]).to_event(1))
    with numpyro.plate("rows", y.shape[0]):
        which = numpyro.sample("which", dist.Bernoulli(share))
        numpyro.sample("y", dist.Normal(centres[which], 0.5), obs=y)


def person_effects(x, who, sick=None):
    spread = numpyro.sample("spread", dist.LogNormal(0, 0.3))
    with numpyro.plate("who", 50):
        u = numpyro.sample("u", dist.Normal(0, spread))
    eta = line(x)
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("sick", dist.Bernoulli(logits=eta + u[who]), obs=sick)


def classes_of_people(who, y=None):
    share = numpyro.sample("share", dist.Beta(2, 2))
    centres = numpyro.sample("centres", dist.Normal(0, 1).expand([2]).to_event(1))
    with numpyro.plate("who", 50):
        which = numpyro.sample("which", dist.Bernoulli(share))
    with numpyro.plate("rows", y.shape[0]):
        numpyro.sample("y", dist.Normal(centres[which[who]], 0.5), obs=y)


def both_effects(x, who, visits=None):
    spread = numpyro.sample("spread", dist.LogNormal(-1, 0.3).expand([2]).to_event(1))
    with numpyro.plate("who", 50):
        u = numpyro.sample("u", dist.Normal(0, spread[0]))
    eta = line(x)
    with numpyro.plate("rows", x.shape[0]):
        v = numpyro.sample("v", dist.Normal(0, spread[1]))
        numpyro.sample("visits", dist.Poisson(jnp.exp(eta + u[who] + v)), obs=visits)


def simulated(key, params, row, constants):
    draw = jax.random.normal(key) * constants["noise"]
    return {"y": params["a"] + params["b"] * row["x"] + draw}


PLAIN = tacit.Model(
    parameters={"a": tacit.models.Parameter(), "b": tacit.models.Parameter()},
    log_prior=lambda p, _: -(p["a"] ** 2) - p["b"] ** 2,
    log_likelihood=lambda p, row, c: (
        -((row["y"] - p["a"] - p["b"] * row["x"]) ** 2) / (2 * c["noise"] ** 2)
    ),
    constants={"noise": np.float32(0.6)},
    simulate=simulated,
)

MODELS = {
    each.__name__: each
    for each in (
        logistic, gaussian, poisson, negative_binomial, binomial, student, gamma, zero_inflated,
        categorical, vectors, two_plates, transformed, masked, several, discrete_effects,
    )
}  # fmt: skip
MODELS["row_effects"] = tacit.models.NumPyro(row_effects, integrate=["u"])
OF_PEOPLE = {
    "person_effects": person_effects,
    "classes_of_people": classes_of_people,
    "both_effects": tacit.models.NumPyro(both_effects, integrate=["v"], nodes=7),
    "logistic": logistic,
}


def adapted(model, schema=SCHEMA):
    return adapt_model(model, schema)


def some_rows(model, schema=SCHEMA, count=ROWS, seed=4):
    names = model.columns or ("x", "y")
    found = {**schema.dummy_rows(count, seed=seed), "trials": np.array([3, 12, 7])}
    return {name: jnp.asarray(found[name]) for name in names}


def scores(model, rows, draw, density, count=DRAWS):
    """Gradients of the log density at drawn outcomes, [draws, parameters]."""
    vector = arbitrary_vector(model.dimension)

    def score(key):
        outcomes = draw(key, vector)
        return jax.grad(lambda v: density(v, outcomes))(vector)

    keys = jax.random.split(jax.random.key(7), count)
    return np.asarray(
        jax.jit(lambda keys: jax.lax.map(score, keys, batch_size=min(count, 1000)))(keys)
    )


def refuse_bias(found, tolerance=4.5):
    assert np.isfinite(found).all()
    error = found.std(axis=0) / np.sqrt(len(found))
    assert (found.std(axis=0) > 0).any()
    np.testing.assert_array_less(np.abs(found.mean(axis=0)), tolerance * error + 1e-6)


def by_row(model, rows, i):
    row = {name: values[i] for name, values in rows.items()}
    return scores(
        model,
        rows,
        lambda key, v: simulate_row(model, key, v, row, model.constants),
        lambda v, drawn: row_log_likelihood(model, v, row, model.constants, drawn),
    )


# One of each thing that a model may do; of outcomes' families, those that draw in their own way.
FAST = {"logistic", "poisson", "gamma", "vectors", "two_plates", "masked", "discrete_effects"}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in FAST else pytest.mark.slow) for n in MODELS]
)
def test_the_score_at_drawn_outcomes_of_a_row_has_mean_zero(name):
    model = adapted(MODELS[name])
    assert model.simulate is not None
    rows = some_rows(model)
    if name == "masked":
        rows["sick"] = jnp.array([0, 1, 1])
        assert (by_row(model, rows, 0) == 0).all()
    refuse_bias(by_row(model, rows, 1))


SLOW = [pytest.param(n, marks=pytest.mark.slow) for n in ("person_effects", "both_effects")]


@pytest.mark.parametrize("name", ["classes_of_people", "logistic", *SLOW])
def test_the_score_at_drawn_outcomes_of_a_person_has_mean_zero(name):
    model = adapted(OF_PEOPLE[name], PEOPLE)
    rows = some_rows(model, PEOPLE)
    present = jnp.array([True, True, False])
    found = scores(
        model,
        rows,
        lambda key, v: model.simulate(key, v, rows, present, model.constants),
        lambda v, drawn: model.log_likelihood(v, rows, present, model.constants, drawn),
        400 if name == "both_effects" else DRAWS,
    )
    refuse_bias(found)


def test_a_wrong_draw_would_be_seen():
    model = adapted(poisson)
    rows = some_rows(model)
    row = {name: values[1] for name, values in rows.items()}
    found = scores(
        model,
        rows,
        lambda key, v: simulate_row(model, key, v + 0.15, row, model.constants),
        lambda v, drawn: row_log_likelihood(model, v, row, model.constants, drawn),
    )
    with pytest.raises(AssertionError):
        refuse_bias(found)


def test_outcomes_that_are_the_rows_own_give_its_density():
    for model in (adapted(several), PLAIN.unit_model):
        rows = some_rows(model)
        row, vector = (
            {name: values[0] for name, values in rows.items()},
            arbitrary_vector(model.dimension),
        )
        names = ("sick", "visits", "y") if model.source is not PLAIN else ("y",)
        axis = (lambda value: value[None]) if model.source is not PLAIN else (lambda value: value)
        own = {name: axis(row[name]) for name in names}
        with_own = row_log_likelihood(model, vector, row, model.constants, own)
        assert float(with_own) == float(row_log_likelihood(model, vector, row, model.constants))


def test_rows_of_a_person_share_her_effect_and_not_its_noise():
    model = adapted(classes_of_people, PEOPLE)
    vector = model.unconstrain({"centres": [-100.0, 100.0]})
    rows, present = some_rows(model, PEOPLE), jnp.ones(ROWS, bool)
    keys = jax.random.split(jax.random.key(0), 400)
    drawn = jax.vmap(lambda key: model.simulate(key, vector, rows, present))(keys)["y"]
    signs = np.sign(np.asarray(drawn).reshape(400, ROWS))
    assert (signs == signs[:, :1]).all()
    assert 0.4 < (signs[:, 0] > 0).mean() < 0.6
    noise = np.asarray(drawn).reshape(400, ROWS) - 100 * signs
    assert np.abs(np.corrcoef(noise.T) - np.eye(ROWS)).max() < 0.2


def test_what_cannot_be_drawn_is_known_beforehand():
    def factor(x, y=None):
        eta = line(x)
        with numpyro.plate("rows", x.shape[0]):
            numpyro.factor("y", -((y - eta) ** 2))

    def censored(x, sick, y=None):
        eta = line(x)
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("y", dist.RightCensoredDistribution(dist.Normal(eta, 1), sick), obs=y)

    def one_factor(x, sick=None, y=None):
        eta = line(x)
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("sick", dist.Bernoulli(logits=eta), obs=sick)
            numpyro.factor("more", -(y**2))

    for each in (factor, censored, one_factor):
        model = adapted(each)
        assert model.simulate is None


def test_models_that_wrap_models_draw_what_those_draw():
    model = adapted(logistic)
    tilted = cavity_model(model, jnp.ones(model.dimension), jnp.zeros(model.dimension))
    row = {name: values[0] for name, values in some_rows(model).items()}
    key, vector = jax.random.key(3), arbitrary_vector(model.dimension)
    assert tilted.simulate is not None
    drawn = simulate_row(tilted, key, vector, row, tilted.constants)
    assert drawn == simulate_row(model, key, vector, row, model.constants)
    assert float(row_log_likelihood(tilted, vector, row, tilted.constants, drawn)) == float(
        row_log_likelihood(model, vector, row, model.constants, drawn)
    )


@pytest.mark.parametrize(
    ("model", "row"),
    [
        (tacit.conjugate.Bernoulli("y"), {"y": np.int32(1)}),
        (tacit.conjugate.Categorical("y", levels=3), {"y": np.int32(1)}),
        (tacit.conjugate.Poisson("y", bounds=((0, 900),)), {"y": np.int32(1)}),
        (tacit.conjugate.Normal("y", bounds=((-90, 90),)), {"y": np.float32(1)}),
        (
            tacit.conjugate.LinearRegression("y", ("x",), bounds=((-1, 1), (-90, 90))),
            {"x": np.float32(0.5), "y": np.float32(1)},
        ),
    ],
    ids=lambda each: type(each).__name__,
)
def test_scores_of_what_a_conjugate_model_draws_have_mean_zero(model, row):
    model = model.unit_model
    assert model.simulate is not None
    vector = 0.3 * jnp.ones(model.dimension)

    def score(key):
        drawn = simulate_row(model, key, vector, row, model.constants)
        return jax.grad(partial(row_log_likelihood, model))(vector, row, model.constants, drawn)

    scores = np.asarray(jax.jit(jax.vmap(score))(jax.random.split(jax.random.key(0), 4000)))
    off = scores.mean(axis=0) / (scores.std(axis=0) / np.sqrt(len(scores)))
    assert (scores.std(axis=0) > 0.1).all()
    assert (np.abs(off) < 4).all()


def test_a_model_of_functions_draws_by_one_of_them():
    rows = some_rows(PLAIN.unit_model)
    refuse_bias(by_row(PLAIN.unit_model, rows, 0))
    mute = tacit.Model(
        parameters=PLAIN.parameters,
        log_prior=PLAIN.log_prior,
        log_likelihood=PLAIN.log_likelihood,
        constants=PLAIN.constants,
    )
    row = {name: values[0] for name, values in rows.items()}
    assert mute.unit_model.simulate is None
    for wrong, told in (
        ({"z": 1.0}, "not a column"),
        ({"y": jnp.zeros(2)}, "shape"),
        (1.0, "mapping"),
    ):
        model = tacit.Model(
            parameters=PLAIN.parameters,
            log_prior=PLAIN.log_prior,
            log_likelihood=PLAIN.log_likelihood,
            simulate=lambda key, params, row, wrong=wrong: wrong,  # noqa: ARG005
        )
        with pytest.raises(InvalidArgument, match=told):
            simulate_row(model.unit_model, jax.random.key(0), jnp.zeros(2), row)


def equations(jaxpr):
    for equation in jaxpr.eqns:
        yield equation
        for value in equation.params.values():
            for inner in value if isinstance(value, list | tuple) else [value]:
                if isinstance(inner, ClosedJaxpr):
                    yield from equations(inner.jaxpr)
                elif isinstance(inner, Jaxpr):
                    yield from equations(inner)


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in FAST else pytest.mark.slow) for n in (*MODELS, *ZOO)]
)
def test_draws_use_operations_that_act_on_each_unit_alone(name):
    if name in MODELS:
        schema, model = SCHEMA, adapted(MODELS[name])
    else:
        schema, model = ZOO[name].schema, adapted(ZOO[name].model, ZOO[name].schema)
    rows, present = some_rows(model, schema), jnp.ones(ROWS, bool)

    def draw(words, vector, rows):
        key = jax.random.fold_in(jax.random.key(0, impl="threefry2x32"), words)
        return model.simulate(key, vector, rows, present, model.constants)

    traced = jax.make_jaxpr(draw)(3, arbitrary_vector(model.dimension), rows)
    strange = {str(e.primitive) for e in equations(traced.jaxpr) if not is_per_unit(e)}
    # A fixed key is made outside.
    assert strange <= {"random_wrap"}


@pytest.fixture(scope="module")
def pm():
    return pytest.importorskip("pymc")


def container(pm, name):
    values = SCHEMA.dummy_rows(2)[name]
    return pm.Data(name, values, dims=("row", "part")[: np.ndim(values)])


def pymc_several(pm):
    with pm.Model(coords={"wards": ["A", "B", "other"]}) as model:
        x, ward = container(pm, "x"), container(pm, "ward")
        slope, spread = pm.Normal("slope", 0, 1), pm.HalfNormal("spread", 1)
        noise = pm.HalfNormal("noise", 1)
        effect = pm.Normal("effect", 0, spread, dims="wards")
        eta = slope * x + effect[ward]
        pm.Bernoulli("ill", logit_p=eta, observed=container(pm, "sick"), dims="row")
        pm.Poisson("number", pm.math.exp(eta), observed=container(pm, "visits"), dims="row")
        pm.Normal("level", eta, noise, observed=container(pm, "y"), dims="row")
    return model


def pymc_vectors(pm):
    with pm.Model(coords={"part": ["one", "two"]}) as model:
        mean = pm.Normal("mean", 0, 1, dims="part")
        pm.Normal("pair", mean, 0.5, observed=container(pm, "both"), dims=("row", "part"))
    return model


def pymc_outcome_that_depends_on_one(pm):
    """On another as it was drawn: PyMC knows its value as the column's."""
    with pm.Model() as model:
        slope = pm.Normal("slope", 0, 1)
        ill = pm.Bernoulli("ill", p=0.4, observed=container(pm, "sick"), dims="row")
        pm.Normal("level", slope * ill, 1, observed=container(pm, "y"), dims="row")
    return model


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(pymc_several, marks=pytest.mark.slow),
        pymc_vectors,
        pytest.param(pymc_outcome_that_depends_on_one, marks=pytest.mark.slow),
    ],
    ids=lambda f: f.__name__,
)
def test_a_model_of_pymc_draws_columns(pm, make):
    model = adapted(make(pm))
    assert model.simulate is not None
    rows, present = some_rows(model), jnp.array([True, True, False])
    refuse_bias(by_row(model, rows, 1))
    found = scores(
        model,
        rows,
        lambda key, v: model.simulate(key, v, rows, present, model.constants),
        lambda v, drawn: model.log_likelihood(v, rows, present, model.constants, drawn),
    )
    refuse_bias(found)
    drawn = model.simulate(jax.random.key(0), arbitrary_vector(model.dimension), rows, present)
    assert all(values.shape == rows[name].shape for name, values in drawn.items())


def test_a_model_of_pymc_whose_outcome_is_a_predictor_does_not_simulate(pm):
    with pm.Model() as model:
        slope, visits = pm.Normal("slope", 0, 1), container(pm, "visits")
        pm.Poisson("number", 2.0, observed=visits, dims="row")
        pm.Normal("level", slope * visits, 1, observed=container(pm, "y"), dims="row")
    assert adapted(model).simulate is None
    with pm.Model() as model:
        rate, visits = pm.HalfNormal("rate", 1), container(pm, "visits")
        pm.Poisson("number", rate, observed=visits, dims="row")
        pm.Poisson("again", 2 * rate, observed=visits, dims="row")
    assert adapted(model).simulate is None
