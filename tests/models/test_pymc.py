"""PyMC models: the same densities as PyMC's own, row by row, and what is refused."""

import gc
import subprocess
import sys
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest
from single_rows import row_log_likelihood

import tacit
from tacit.errors import BoundaryError, InvalidArgument, TacitError
from tacit.models.front_ends import adapt_model

pm = pytest.importorskip("pymc")
import pytensor  # noqa: E402
import pytensor.tensor as pt  # noqa: E402

SCHEMA = tacit.Schema(
    {
        "x": tacit.Number(-1, 1),
        "both": tacit.Number(-1, 1, shape=(2,)),
        "ward": tacit.Category(["A", "B"], other="other"),
        "sick": tacit.Binary(),
        "y": tacit.Number(-3, 3),
        "visits": tacit.Count(9),
    }
)
ROWS = SCHEMA.dummy_rows(6, seed=3)
BUDGET = tacit.Budget(2, 1e-5)
# A value that stands for somebody's: it must appear in no message.
HELD = np.linspace(0, 1, 40) + 0.8675309


def data(name, values=None):
    """A container; what it holds should make no difference."""
    values = np.zeros_like(ROWS[name]) if values is None else values
    return pm.Data(name, values, dims=("row", "part")[: np.ndim(values)])


def logistic(values=ROWS):
    with pm.Model(coords={"wards": ["A", "B", "other"]}) as model:
        x, ward = data("x", values["x"]), data("ward", values["ward"])
        slope = pm.Normal("slope", 0, 2)
        scale = pm.HalfNormal("scale", 1)
        share = pm.Uniform("share", -1, 3)
        effect = pm.Normal("effect", 0, scale, dims="wards")
        pm.Deterministic("twice", 2 * slope)
        logit = pm.Deterministic("logit", share + slope * x + effect[ward], dims="row")
        pm.Bernoulli("outcome", logit_p=logit, observed=data("sick", values["sick"]), dims="row")
    return model


def logistic_in_numpyro(x, ward, sick=None):
    slope = numpyro.sample("slope", dist.Normal(0, 2))
    scale = numpyro.sample("scale", dist.HalfNormal(1))
    share = numpyro.sample("share", dist.Uniform(-1, 3))
    with numpyro.plate("wards", 3):
        effect = numpyro.sample("effect", dist.Normal(0, scale))
    numpyro.deterministic("twice", 2 * slope)
    with numpyro.plate("rows", x.shape[0]):
        logit = share + slope * x + effect[ward]
        numpyro.sample("outcome", dist.Bernoulli(logits=logit), obs=sick)


@pytest.fixture(scope="module")
def adapted():
    return adapt_model(logistic(), SCHEMA)


@pytest.fixture(scope="module")
def in_numpyro():
    return adapt_model(logistic_in_numpyro, SCHEMA)


def table(count, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, count)
    ward = rng.choice(["A", "B", "C"], count)
    sick = rng.uniform(size=count) < 1 / (1 + np.exp(-0.5 - 2 * x - (ward == "A")))
    return {"x": x, "ward": ward, "sick": sick}


def test_densities_and_gradients_are_those_of_the_same_model_in_numpyro(adapted, in_numpyro):
    assert adapted.names == in_numpyro.names
    assert adapted.columns == ("x", "ward", "sick")

    @jax.jit
    def of(vector, row):
        return [
            jax.value_and_grad(f)(vector)
            for model in (adapted, in_numpyro)
            for f in (
                lambda v, m=model: m.log_prior(v, m.constants),
                lambda v, m=model: row_log_likelihood(m, v, row, m.constants),
            )
        ]

    for seed in range(8):
        vector = jnp.asarray(np.random.default_rng(seed).normal(size=6, scale=1.5), jnp.float32)
        row = {name: values[seed % 6] for name, values in ROWS.items()}
        prior, term, other_prior, other_term = of(vector, row)
        for ours, theirs in ((prior, other_prior), (term, other_term)):
            np.testing.assert_allclose(ours[0], theirs[0], rtol=2e-5, atol=2e-5)
            np.testing.assert_allclose(ours[1], theirs[1], rtol=2e-4, atol=2e-5)
        mine, others = adapted.constrain(vector), in_numpyro.constrain(vector)
        for name, value in mine.items():
            np.testing.assert_allclose(value, others[name], rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_a_seeded_fit_is_that_of_the_same_model_in_numpyro(adapted, in_numpyro):
    method = tacit.Variational(num_steps=300)
    fits = [
        tacit.fit(m, table(800), schema=SCHEMA, budget=BUDGET, method=method, seed=1)
        for m in (adapted, in_numpyro)
    ]
    for name, mean in fits[0].mean().items():
        np.testing.assert_allclose(mean, fits[1].mean()[name], atol=0.01)
    new = {"x": [-1.0, 0.0, 1.0], "ward": ["A", "B", "Z"]}
    ours, theirs = (fit.predict(new) for fit in fits)
    np.testing.assert_allclose(ours, theirs, atol=0.01)
    # Draws are other draws: a mean of 1,000 is within five of its standard errors.
    drawn = fits[0].predict(new, kind="draws")
    assert set(np.unique(drawn)) == {0, 1}
    np.testing.assert_allclose(drawn.mean(axis=0), ours, atol=5 * 0.5 / 1000**0.5)


@pytest.mark.slow
def test_the_default_fits_it_like_the_same_model_in_numpyro(adapted, in_numpyro):
    fits = [
        tacit.fit(m, table(2000), schema=SCHEMA, budget=tacit.Budget(20, 1e-5), seed=1)
        for m in (adapted, in_numpyro)
    ]
    assert all(fit.intervals == "noise included" for fit in fits)
    for name in ("slope", "share"):
        apart = fits[0].mean()[name] - fits[1].mean()[name]
        assert abs(apart) < 2 * fits[1].sd()[name]
        assert fits[0].sd()[name] == pytest.approx(fits[1].sd()[name], rel=0.4)


def test_the_logit_of_a_new_row_is_that_of_the_same_model_in_numpyro(adapted, in_numpyro):
    vector = jnp.linspace(-1, 1, 6)
    row = {name: values[0] for name, values in ROWS.items()}
    ours, theirs = (
        jax.jit(lambda m=m: m.predict(jax.random.key(0), m.constrain(vector), row))()["outcome"]
        for m in (adapted, in_numpyro)
    )
    np.testing.assert_allclose(ours.logit, theirs.logit, rtol=1e-5)
    np.testing.assert_allclose(ours.mean, theirs.mean, rtol=1e-5)


def test_a_private_fit_goes_through_the_gate_and_the_ledger(adapted, tmp_path):
    ledger = tacit.Ledger.new(tmp_path / "l.db", total=BUDGET)
    method = tacit.Variational(num_steps=50)
    plan = tacit.plan(adapted, SCHEMA, budget=BUDGET, method=method)
    posterior = tacit.fit(plan, table(200), ledger=ledger)
    assert posterior.privacy.is_private
    assert set(posterior.draws) == {"slope", "scale", "share", "effect", "twice"}
    assert posterior.labels == {"effect": (("A", "B", "other"),)}
    with pytest.raises(tacit.BudgetError):
        tacit.fit(plan, table(200), ledger=ledger)


def test_what_the_containers_hold_has_no_effect(adapted):
    other = {n: np.ones_like(v[:2]) if n != "x" else np.full(2, 1e9) for n, v in ROWS.items()}
    emptier = adapt_model(logistic(other), SCHEMA)
    vector = jnp.linspace(-1, 1, 6)
    row = {name: values[0] for name, values in ROWS.items()}
    assert float(emptier.log_prior(vector)) == float(adapted.log_prior(vector))
    assert float(row_log_likelihood(emptier, vector, row)) == float(
        row_log_likelihood(adapted, vector, row)
    )


def test_no_container_survives_in_the_adapted_model():
    def build():
        model = logistic()
        return adapt_model(model, SCHEMA), weakref.ref(model), weakref.ref(model["x"])

    adapted, *references = build()
    gc.collect()
    assert adapted.dimension == 6
    assert [each() for each in references] == [None, None]


def test_starting_values_are_mapped_back(adapted):
    values = {"slope": 1.5, "scale": 0.3, "share": 2.0, "effect": [0.1, -0.2, 0.3]}
    found = adapted.constrain(adapted.unconstrain(values))
    for name, value in values.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-5)
    with pytest.raises(InvalidArgument, match="support"):
        adapted.unconstrain({"share": 7.0})


# Other families, against the log density that PyMC itself computes, in float64.


def counts():
    slope = pm.Normal("slope", 0, 1, shape=2)
    size = pm.Exponential("size", 1)
    rate = pt.exp(slope[0] + slope[1] * data("x", ROWS["x"]))
    pm.NegativeBinomial("o", mu=rate, alpha=size, observed=data("visits", ROWS["visits"]))


def categories():
    both = data("both", ROWS["both"])
    slopes = pm.Normal("slopes", 0, 1, shape=(2, 3))
    observed = data("ward", ROWS["ward"])
    pm.Categorical("o", logit_p=pm.math.dot(both, slopes), observed=observed, dims="row")


def mixed():
    shares = pm.Dirichlet("shares", np.ones(2))
    centres = pm.Normal("centres", [-1, 1], 1, shape=2)
    pm.NormalMixture("o", shares, centres, 0.5, observed=data("y", ROWS["y"]), dims="row")


def by_knots():
    knots = pm.Data("knots", np.linspace(-1, 1, 20), dims="knot")
    weight = pm.Normal("weight", 0, 1, dims="knot")
    pm.Potential("smooth", -(pt.diff(weight) ** 2).sum())
    basis = pt.exp(-((data("x", ROWS["x"])[:, None] - knots) ** 2))
    pm.Normal("o", basis @ weight, 1, observed=data("y", ROWS["y"]), dims="row")
    pm.Bernoulli("p", logit_p=weight[0], observed=data("sick", ROWS["sick"]), dims="row")


def shared_scale():
    """PyTensor would fuse the vector prior and the likelihood, as they take the same logarithm."""
    scale = pm.HalfNormal("scale", 1)
    effect = pm.Normal("effect", 0, scale, shape=3)
    mean = effect[data("ward", ROWS["ward"])]
    pm.Normal("o", mean, scale, observed=data("y", ROWS["y"]), dims="row")


@pytest.mark.parametrize(
    "build",
    [
        shared_scale,
        *(pytest.param(f, marks=pytest.mark.slow) for f in (counts, categories, mixed, by_knots)),
    ],
    ids=lambda f: f.__name__,
)
def test_other_families_have_pymcs_own_density(build):
    with pm.Model() as model:
        build()
    constants = ["knots"] if build is by_knots else []
    adapted = adapt_model(tacit.models.PyMC(model, constants=constants), SCHEMA)
    vector = np.random.default_rng(0).normal(size=adapted.dimension, scale=0.5)
    theta = jnp.asarray(vector, jnp.float32)
    rows = {name: ROWS[name] for name in adapted.columns}
    found = adapted.log_prior(theta) + adapted.log_likelihood(theta, rows, jnp.ones(6, bool))
    point = {
        model.rvs_to_values[model[name]]: vector[p.start : p.stop].reshape(p.shape)
        for name, p in adapted.source.slices.items()
    }
    theirs = model.logp().eval(point, mode="FAST_COMPILE")
    np.testing.assert_allclose(float(found), theirs, rtol=1e-5, atol=1e-4)
    params, row = adapted.constrain(theta), {n: values[0] for n, values in rows.items()}
    predicted = adapted.predict(jax.random.key(0), params, row)["o"]
    assert predicted.draw.shape == ()
    if build is mixed:
        assert predicted.mean is None  # PyMC's own is not free of randomness
    elif build is categories:
        np.testing.assert_allclose(predicted.mean.sum(), 1, rtol=1e-5)
    else:
        assert predicted.mean.shape == ()


# What is refused: how it is built, what the message must name, and what it must say to do.


def normal(mean, **more):
    pm.Normal("o", mean, 1, observed=data("y"), **more)


def data_dependent_prior():
    normal(pm.Normal("slope", data("x").mean(), 1))


def data_dependent_support():
    normal(pm.Uniform("top", 0, 6 + data("x").max()))


def local_latent():
    x = data("x")
    normal(pm.Normal("b") * x + pm.Normal("shift", 0, 1, dims="row"))


def local_latent_of_fixed_size():
    normal(pm.Normal("b") * data("x") + pm.Normal("shift", 0, 1, shape=6))


def factor_of_rows():
    total = data("x").sum()
    b = pm.Normal("b")
    pm.Potential("total", -((total - b) ** 2))
    normal(b)


def observed_sum():
    b = pm.Normal("b")
    normal(b * data("x"))
    pm.Normal("total", b, 1, observed=data("visits").sum())


def batch_normalised():
    x = data("x")
    normal(pm.Normal("b") * (x - x.mean()) / (x.std() + 0.1))


def lagged():
    normal(pm.Normal("b") * pt.concatenate([[0.0], data("x")[:-1]]))


def coupled_to_one_row():
    x = data("x")
    normal(pm.Normal("b") * (x - x[0]))


def captured_array():
    normal(pm.Normal("b") * data("x") * pt.as_tensor(HELD).mean())


def captured_by_a_prior():
    normal(pm.Normal("b", HELD, 1).sum() * data("x"))


def captured_shared():
    normal(pm.Normal("b") * data("x") * pytensor.shared(HELD, name="held").mean())


def captured_by_a_custom_distribution():
    def logp(value, mean):
        return -((value - mean) ** 2) * pt.as_tensor(HELD).mean()

    pm.CustomDist("o", pm.Normal("b"), logp=logp, observed=data("y"), dims="row")


def captured_observations():
    b = pm.Normal("b")
    normal(b * data("x"))
    pm.Normal("other", b, 1, observed=HELD)


def code_of_its_own():
    class Doubled(pytensor.graph.op.Op):
        def make_node(self, x):
            return pytensor.graph.basic.Apply(self, [x], [x.type()])

        def perform(self, node, inputs, outputs):
            outputs[0][0] = 2 * inputs[0] + HELD.mean()

    normal(pm.Normal("b") * Doubled()(data("x")))


def container_not_over_rows():
    normal(pm.Normal("b") * data("x") * pm.Data("held", HELD).mean())


def counted_prior():
    normal(pm.Normal("b", 0, 1.0 * data("x").shape[0]))


def counted_rows():
    x = data("x")
    normal(pm.Normal("b") * x / x.shape[0])


def scaled_up():
    normal(pm.Normal("b") * data("x"), total_size=1000)


def discrete_latent():
    normal(pm.Bernoulli("which", 0.5) * data("x"))


def index_beyond():
    normal(pm.Normal("effect", 0, 1, shape=2)[data("ward")])


def unknown_column():
    normal(pm.Normal("b") * pm.Data("weight", np.zeros(6), dims="row"))


def observed_without_dims():
    pm.Normal("o", pm.Normal("b") * data("x"), 1, observed=pm.Data("y", np.zeros(6)))


def nothing_observed():
    data("x")
    pm.Normal("b")


def no_parameters():
    normal(data("x"))


def wrong_type():
    normal(pm.Normal("b", shape=3)[data("x", np.zeros(6, int))])


def wrong_shape():
    normal(pm.Normal("b") * pm.Data("both", np.zeros((6, 3)), dims=("row", "p"))[:, 0])


def without_jax():
    pm.Censored("o", pm.Normal.dist(pm.Normal("b"), 1), lower=0, upper=None, observed=data("y"))


REFUSED = {
    data_dependent_prior: (["'slope'", "depends on x"], "declared bounds"),
    data_dependent_support: (["support", "'top'", "depends on x"], "bounds"),
    local_latent: (["'shift'", "number for each row"], "integrate it out"),
    local_latent_of_fixed_size: (["fails on a single row"], "any number of rows"),
    factor_of_rows: (["'total'", "uses x"], "observed="),
    observed_sum: (["'total'", "computed from visits"], "into a column"),
    batch_normalised: (["all other rows"], "standardise by declared"),
    lagged: (["row before it"], "separate columns"),
    coupled_to_one_row: (["one and the same row"], "declared constant"),
    captured_array: (["'o'", "array from outside"], "constants"),
    captured_by_a_prior: (["'b'", "array from outside"], "constants"),
    captured_shared: (["'o'", "'held'"], "constants"),
    captured_by_a_custom_distribution: (["'o'", "array from outside"], "constants"),
    captured_observations: (["'other'", "private rows"], "pm.Data"),
    code_of_its_own: (["'o'", "custom code"], "PyTensor's functions"),
    container_not_over_rows: (["'held'"], "constants"),
    counted_prior: (["prior depends on the number of rows"], "declared number"),
    counted_rows: (["how many rows"], "declared numbers"),
    scaled_up: (["'o'", "total_size"], "leave it out"),
    discrete_latent: (["'which'", "discrete"], "pm.Mixture"),
    index_beyond: (["ward", "beyond"], "entry for every level"),
    unknown_column: (["'weight'", "not a column"], "schema"),
    observed_without_dims: (["'y'", "no dims"], "dims="),
    nothing_observed: (["Nothing is observed"], "observed="),
    no_parameters: (["no parameter"], ""),
    wrong_type: (["'x'", "whole numbers"], "floats"),
    wrong_shape: (["'both'", "(2,)"], "schema"),
    without_jax: (["JAX", "erfcx"], "NumPyro"),
}


@pytest.mark.parametrize("build", REFUSED, ids=lambda f: f.__name__)
def test_what_cannot_be_fitted_row_by_row_is_refused(build):
    with pm.Model() as model:
        build()
    with pytest.raises(TacitError) as caught:
        adapt_model(model, SCHEMA)
    named, remedy = REFUSED[build]
    message = str(caught.value)
    for words in (*named, remedy):
        assert words in message
    assert message.endswith(".")
    assert "0.8" not in message
    held = ("private rows", "could hold rows")
    assert isinstance(caught.value, BoundaryError) == any(words in message for words in held)


def test_settings_that_do_not_fit_the_model_are_refused():
    model = logistic()
    cases = [
        (tacit.models.PyMC(model, row_dim="visits"), "no dim 'visits'"),
        (tacit.models.PyMC(model, constants=["x"]), "'x' is over rows"),
        (tacit.models.PyMC(model, constants=["nope"]), "'nope'"),
        (tacit.models.PyMC(model, constants="x"), "list of names"),
        (tacit.models.PyMC(logistic), "takes a pm.Model"),
    ]
    for described, words in cases:
        with pytest.raises(InvalidArgument, match=words):
            adapt_model(described, SCHEMA)
    with pytest.raises(InvalidArgument, match="schema"):
        adapt_model(model, None)
    columns = {name: SCHEMA[name] for name in ("x", "sick")}
    with pytest.raises(InvalidArgument, match="is the person column"):
        adapt_model(model, tacit.Schema(columns, person="ward", most_rows=2))


@pytest.mark.filterwarnings("ignore")  # of what Bambi imports
def test_bambi_is_refused_with_the_reason_and_the_way_out():
    bambi = pytest.importorskip("bambi")
    table = pd.DataFrame({"x": np.linspace(-1, 1, 6), "sick": [0, 1, 0, 1, 1, 0]})
    made = bambi.Model("sick ~ x", table, family="bernoulli")
    made.build()
    for model in (made, made.backend.model, tacit.models.PyMC(made.backend.model)):
        with pytest.raises(InvalidArgument, match=r"centres predictors.*tacit\.glm"):
            tacit.plan(model, SCHEMA, budget=BUDGET)


IMPORTS = """
import sys, jax, tacit
tacit.fit, tacit.plan, tacit.models.PyMC
assert not {"pymc", "pytensor", "bambi"} & sys.modules.keys()
from tacit.models.pymc_graph import pytensor_to_jax
from tacit._precision import in_32_bits
jax.config.update("jax_enable_x64", %s)
in_32_bits(pytensor_to_jax)()  # as a fit imports it
assert "pytensor.link.jax.dispatch.basic" in sys.modules
assert jax.config.jax_enable_x64 is %s
"""


@pytest.mark.processes
@pytest.mark.slow
@pytest.mark.parametrize("precise", [False, True])
def test_importing_brings_no_pymc_and_its_jax_leaves_the_precision_alone(precise):
    """PyTensor turns on 64 bits in JAX for the whole process when its part for JAX is loaded."""
    subprocess.run([sys.executable, "-c", IMPORTS % (precise, precise)], check=True)


def test_the_precision_of_this_process_is_unchanged(adapted):
    assert not jax.config.jax_enable_x64
    assert adapted.constrain(jnp.zeros(6))["slope"].dtype == jnp.float32
