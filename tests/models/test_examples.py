"""Models of the kinds that NumPyro's documentation shows: those that qualify run as they are.

For each, what the rows add and the prior are also added up and compared with NumPyro's own
density of the model on the whole table, which knows nothing of rows.
"""

from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.infer.reparam import LocScaleReparam
from numpyro.infer.util import potential_energy
from single_rows import row_log_likelihood

import tacit
from tacit.errors import InvalidArgument
from tacit.models.front_ends import adapt_model

ROWS = 30
BUDGET = tacit.Budget(1, 1e-5)
FEW_STEPS = tacit.Variational(num_steps=5, sampling_rate=0.5)
X = tacit.Number(-3, 3, shape=(3,))
U = tacit.Number(-3, 3)


# Baseball: at bats and hits of players.


def fully_pooled(at_bats, hits=None):
    phi = numpyro.sample("phi", dist.Uniform(0, 1))
    with numpyro.plate("num_players", at_bats.shape[0]):
        return numpyro.sample("obs", dist.Binomial(at_bats, probs=phi), obs=hits)


def not_pooled(at_bats, hits=None):
    with numpyro.plate("num_players", at_bats.shape[0]):
        phi = numpyro.sample("phi", dist.Uniform(0, 1))
        return numpyro.sample("obs", dist.Binomial(at_bats, probs=phi), obs=hits)


def partially_pooled(at_bats, hits=None):
    m = numpyro.sample("m", dist.Uniform(0, 1))
    kappa = numpyro.sample("kappa", dist.Pareto(1, 1.5))
    with numpyro.plate("num_players", at_bats.shape[0]):
        phi = numpyro.sample("phi", dist.Beta(m * kappa, (1 - m) * kappa))
        return numpyro.sample("obs", dist.Binomial(at_bats, probs=phi), obs=hits)


def partially_pooled_with_logit(at_bats, hits=None):
    loc = numpyro.sample("loc", dist.Normal(-1, 1))
    scale = numpyro.sample("scale", dist.HalfCauchy(1))
    with numpyro.plate("num_players", at_bats.shape[0]):
        alpha = numpyro.sample("alpha", dist.Normal(loc, scale))
        return numpyro.sample("obs", dist.Binomial(at_bats, logits=alpha), obs=hits)


BASEBALL = {"at_bats": tacit.Count(60, low=30), "hits": tacit.Count(30)}


# Eight schools, a school a row.


def eight_schools(sigma, y=None):
    mu = numpyro.sample("mu", dist.Normal(0, 5))
    tau = numpyro.sample("tau", dist.HalfCauchy(5))
    with numpyro.plate("J", sigma.shape[0]):
        theta = numpyro.sample("theta", dist.Normal(mu, tau))
        numpyro.sample("obs", dist.Normal(theta, sigma), obs=y)


def eight_schools_marginal(sigma, y=None):
    mu = numpyro.sample("mu", dist.Normal(0, 5))
    tau = numpyro.sample("tau", dist.HalfCauchy(5))
    with numpyro.plate("J", sigma.shape[0]):
        numpyro.sample("obs", dist.Normal(mu, jnp.sqrt(tau**2 + sigma**2)), obs=y)


SCHOOLS = {"sigma": tacit.Number(5, 20), "y": tacit.Number(-50, 50)}


# Regressions.


def covtype(data, labels):
    dim = data.shape[1]
    coefs = numpyro.sample("coefs", dist.Normal(jnp.zeros(dim), jnp.ones(dim)))
    with numpyro.plate("N", data.shape[0]):
        return numpyro.sample("obs", dist.Bernoulli(logits=jnp.dot(data, coefs)), obs=labels)


def horseshoe(x, y):
    size = x.shape[1]
    local = numpyro.sample("lambdas", dist.HalfCauchy(jnp.ones(size)))
    tau = numpyro.sample("tau", dist.HalfCauchy(jnp.ones(1)))
    unscaled = numpyro.sample("unscaled_betas", dist.Normal(0.0, jnp.ones(size)))
    betas = numpyro.deterministic("betas", tau * local * unscaled)
    precision = numpyro.sample("prec_obs", dist.Gamma(3.0, 1.0))
    with numpyro.plate("N", x.shape[0]):
        numpyro.sample("Y", dist.Normal(jnp.dot(x, betas), 1 / jnp.sqrt(precision)), obs=y)


def robust(x, y=None):
    a = numpyro.sample("a", dist.Normal(0, 2))
    b = numpyro.sample("b", dist.Laplace(0, 1).expand([3]).to_event(1))
    scale = numpyro.sample("scale", dist.HalfNormal(1))
    freedom = numpyro.sample("nu", dist.Gamma(2, 0.1))
    with numpyro.plate("N", x.shape[0]):
        numpyro.sample("obs", dist.StudentT(freedom, a + x @ b, scale), obs=y)


def ordinal(u, grade=None):
    slope = numpyro.sample("slope", dist.Normal(0, 1))
    cuts = numpyro.sample(
        "cuts",
        dist.TransformedDistribution(
            dist.Normal(0, 1).expand([3]), dist.transforms.OrderedTransform()
        ),
    )
    with numpyro.plate("obs", u.shape[0]):
        numpyro.sample("grade", dist.OrderedLogistic(slope * u, cuts), obs=grade)


def ordinal_by_induced_dirichlet(u, grade=None):
    slope = numpyro.sample("slope", dist.Normal(0, 1))
    shares = numpyro.sample("shares", dist.Dirichlet(jnp.ones(4)))
    below = jnp.cumsum(shares)[:-1]
    cuts = numpyro.deterministic("cuts", jnp.log(below) - jnp.log1p(-below))
    with numpyro.plate("obs", u.shape[0]):
        numpyro.sample("grade", dist.OrderedLogistic(slope * u, cuts), obs=grade)


def zero_inflated(x, count=None):
    gate = numpyro.sample("gate", dist.Beta(2, 2))
    b = numpyro.sample("b", dist.Normal(0, 0.5).expand([3]).to_event(1))
    with numpyro.plate("N", x.shape[0]):
        numpyro.sample("count", dist.ZeroInflatedPoisson(gate, jnp.exp(x @ b)), obs=count)


def varying_slopes(u, group, y=None):
    """Intercepts and slopes of declared groups, correlated."""
    centre = numpyro.sample("centre", dist.Normal(0, 1).expand([2]).to_event(1))
    sd = numpyro.sample("sd", dist.HalfNormal(1).expand([2]).to_event(1))
    chol = numpyro.sample("chol", dist.LKJCholesky(2, concentration=2))
    with numpyro.plate("groups", 4):
        effects = numpyro.sample(
            "effects", dist.MultivariateNormal(centre, scale_tril=sd[:, None] * chol)
        )
    noise = numpyro.sample("noise", dist.HalfNormal(1))
    with numpyro.plate("N", u.shape[0]):
        line = effects[group, 0] + effects[group, 1] * u
        numpyro.sample("y", dist.Normal(line, noise), obs=y)


def varying_intercepts(group, y=None):
    mu = numpyro.sample("mu", dist.Normal(0, 1))
    sd = numpyro.sample("sd", dist.HalfNormal(1))
    with numpyro.plate("groups", 4):
        a = numpyro.sample("a", dist.Normal(mu, sd))
    with numpyro.plate("N", group.shape[0]):
        numpyro.sample("y", dist.Normal(a[group], 1.0), obs=y)


def crossed(u, group, y=None):
    """Plates within plates, over things that are not rows."""
    with numpyro.plate_stack("table", [2, 4]):
        cells = numpyro.sample("cells", dist.Normal(0, 1))
    with numpyro.plate("outer", 3, dim=-2), numpyro.plate("inner", 2, dim=-1):
        more = numpyro.sample("more", dist.Normal(0, 1))
    with numpyro.plate("N", u.shape[0]):
        numpyro.sample("y", dist.Normal(cells[0, group] * u + more.sum(), 1.0), obs=y)


def items(x, answers=None):
    """Several answers in a row: a plate over items within the plate over rows."""
    with numpyro.plate("items", 3, dim=-1):
        hard = numpyro.sample("hard", dist.Normal(0, 1))
        slope = numpyro.sample("slope", dist.LogNormal(0, 0.5))
        with numpyro.plate("N", x.shape[0], dim=-2):
            numpyro.sample("answers", dist.Normal(slope * x - hard, 1.0), obs=answers)


def events(x, answers=None):
    b = numpyro.sample("b", dist.Normal(0, 1).expand([3]).to_event(1))
    chol = numpyro.sample("chol", dist.LKJCholesky(3))
    with numpyro.plate("N", x.shape[0]):
        noise = dist.MultivariateNormal(x * b, scale_tril=chol)
        numpyro.sample("answers", noise, obs=answers)


def with_factor(u, y=None):
    mu = numpyro.sample("mu", dist.Normal(0, 1))
    numpyro.factor("soft", -0.1 * mu**4)
    with numpyro.plate("N", u.shape[0]):
        numpyro.factor("own", -0.5 * (y - mu * u) ** 2)


def masked_and_scaled(u, seen, y=None):
    mu = numpyro.sample("mu", dist.Normal(0, 1))
    with numpyro.plate("N", u.shape[0]), handlers.mask(mask=seen > 0), handlers.scale(scale=0.5):
        numpyro.sample("y", dist.Normal(mu * u, 1.0), obs=y)


def masked_distribution(u, seen, y=None):
    mu = numpyro.sample("mu", dist.Normal(0, 1))
    with numpyro.plate("N", u.shape[0]):
        numpyro.sample("y", dist.Normal(mu * u, 1.0).mask(seen > 0), obs=y)


def two_outcomes(u, y=None, grade=None):
    a = numpyro.sample("a", dist.Normal(0, 1))
    b = numpyro.sample("b", dist.Normal(0, 1))
    with numpyro.plate("first", u.shape[0]):
        numpyro.sample("y", dist.Normal(a * u, 1.0), obs=y)
    with numpyro.plate("second", u.shape[0]):
        numpyro.sample("grade", dist.Poisson(jnp.exp(b + 0.1 * u)), obs=grade)


def deterministic(u, y=None):
    log_scale = numpyro.sample("log_scale", dist.Normal(0, 1))
    scale = numpyro.deterministic("scale", jnp.exp(log_scale))
    with numpyro.plate("N", u.shape[0]):
        line = numpyro.deterministic("line", u * 2)
        numpyro.sample("y", dist.Normal(line, scale), obs=y)


def subsampling(u, y=None):
    mu = numpyro.sample("mu", dist.Normal(0, 1))
    with numpyro.plate("N", u.shape[0], subsample_size=7):
        some, of_y = numpyro.subsample(u, event_dim=0), numpyro.subsample(y, event_dim=0)
        numpyro.sample("y", dist.Normal(mu * some, 1.0), obs=of_y)


def subsampling_by_index(u, y=None):
    mu = numpyro.sample("mu", dist.Normal(0, 1))
    with numpyro.plate("N", u.shape[0], subsample_size=7) as index:
        numpyro.sample("y", dist.Normal(mu * u[index], 1.0), obs=y[index])


def hard_coded(u, y=None):
    mu = numpyro.sample("mu", dist.Normal(0, 1))
    with numpyro.plate("N", 30):
        numpyro.sample("y", dist.Normal(mu * u, 1.0), obs=y)


def whole(u, y=None):
    """What the two above come to."""
    mu = numpyro.sample("mu", dist.Normal(0, 1))
    with numpyro.plate("N", u.shape[0]):
        numpyro.sample("y", dist.Normal(mu * u, 1.0), obs=y)


def censored(u, seen, time=None):
    """Survival times, some of them only known to be longer."""
    b = numpyro.sample("b", dist.Normal(0, 1))
    shape = numpyro.sample("shape", dist.HalfNormal(1))
    with numpyro.plate("N", u.shape[0]):
        life = dist.Weibull(jnp.exp(b * u), 0.5 + shape)
        lasting = jnp.log1p(-life.cdf(time))
        numpyro.factor("time", jnp.where(seen > 0, life.log_prob(time), lasting))


def truncated(u, y=None):
    b = numpyro.sample("b", dist.TruncatedNormal(0.0, 1.0, low=0.0))
    with numpyro.plate("N", u.shape[0]):
        numpyro.sample("y", dist.TruncatedNormal(b * u, 1.0, low=-60.0, high=60.0), obs=y)


def softmax(x, grade=None):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([3, 4]).to_event(2))
    with numpyro.plate("N", x.shape[0]):
        numpyro.sample("grade", dist.Categorical(logits=x @ w), obs=grade)


def dirichlet_process(u):
    """A mixture with sticks broken, its components summed out by the distribution."""
    with numpyro.plate("sticks", 3):
        broken = numpyro.sample("broken", dist.Beta(1, 1.5))
    with numpyro.plate("components", 4):
        centre = numpyro.sample("centre", dist.Normal(0, 2))
    left = jnp.concatenate([jnp.ones(1), jnp.cumprod(1 - broken)])
    shares = left * jnp.concatenate([broken, jnp.ones(1)])
    with numpyro.plate("N", u.shape[0]):
        parts = dist.MixtureSameFamily(dist.Categorical(shares), dist.Normal(centre, 0.5))
        numpyro.sample("u", parts, obs=u)


@dataclass(frozen=True)
class Example:
    model: Any
    columns: dict[str, Any]
    names: str  # of what comes back
    same_as: Any = None  # what NumPyro's density is taken of, if not of the model
    given: dict[str, Any] = field(default_factory=dict)


Y, GRADE, GROUP = tacit.Number(-5, 5), tacit.Count(3), tacit.Category(list("abcd"))
UY = {"u": U, "y": Y}
SEEN = {"u": U, "seen": tacit.Binary(), "y": Y}
ANSWERS = {"x": X, "answers": tacit.Number(-5, 5, shape=(3,))}
EXAMPLES = {
    "baseball": Example(fully_pooled, BASEBALL, "phi"),
    "eight schools": Example(eight_schools_marginal, SCHOOLS, "mu tau"),
    "covtype": Example(covtype, {"data": X, "labels": tacit.Binary()}, "coefs"),
    "horseshoe": Example(horseshoe, {"x": X, "y": Y}, "lambdas tau unscaled_betas prec_obs betas"),
    "robust": Example(robust, {"x": X, "y": Y}, "a b scale nu"),
    "ordinal": Example(ordinal, {"u": U, "grade": GRADE}, "slope cuts"),
    "ordinal, Dirichlet": Example(
        ordinal_by_induced_dirichlet, {"u": U, "grade": GRADE}, "slope shares cuts"
    ),
    "zero-inflated": Example(zero_inflated, {"x": X, "count": tacit.Count(9)}, "gate b"),
    "correlated slopes": Example(
        varying_slopes, {"u": U, "group": GROUP, "y": Y}, "centre sd chol effects noise"
    ),
    "reparametrised": Example(
        handlers.reparam(varying_intercepts, config={"a": LocScaleReparam(0)}),
        {"group": GROUP, "y": Y},
        "mu sd a_decentered a",
    ),
    "half reparametrised": Example(
        handlers.reparam(varying_intercepts, config={"a": LocScaleReparam(0.5)}),
        {"group": GROUP, "y": Y},
        "mu sd a_decentered a",
    ),
    "plates in plates": Example(crossed, {"u": U, "group": GROUP, "y": Y}, "cells more"),
    "items": Example(items, ANSWERS, "hard slope"),
    "vectors": Example(events, ANSWERS, "b chol"),
    "factors": Example(with_factor, UY, "mu"),
    "mask and scale": Example(masked_and_scaled, SEEN, "mu"),
    "masked distribution": Example(masked_distribution, SEEN, "mu"),
    "two outcomes": Example(two_outcomes, UY | {"grade": GRADE}, "a b"),
    "deterministic": Example(deterministic, UY, "log_scale scale"),
    "subsample": Example(subsampling, UY, "mu", same_as=whole),
    "subsample by index": Example(subsampling_by_index, UY, "mu", same_as=whole),
    "hard-coded size": Example(hard_coded, UY, "mu", same_as=whole),
    "censored": Example(
        censored, {"u": U, "seen": tacit.Binary(), "time": tacit.Number(0.1, 2)}, "b shape"
    ),
    "truncated": Example(truncated, UY, "b"),
    "softmax": Example(softmax, {"x": X, "grade": GRADE}, "w"),
    "stick breaking": Example(dirichlet_process, {"u": U}, "broken centre"),
}


def table(columns):
    return dict(tacit.Schema(columns).dummy_rows(ROWS, seed=3))


def densities(model, columns, vector):
    """Of prior and all rows, one by one."""
    rows = {name: jnp.asarray(columns[name]) for name in model.columns}

    @jax.jit
    def total(vector, rows):
        terms = jax.vmap(lambda row: row_log_likelihood(model, vector, row, model.constants))(rows)
        return terms.sum() + model.log_prior(vector, model.constants)

    return float(total(vector, rows))


def of_numpyro(function, model, columns, vector):
    """The same by NumPyro, of the whole table at once."""

    @jax.jit
    def total(vector, columns):
        given = {
            name: vector[place.start : place.stop].reshape(place.shape)
            for name, place in model.source.slices.items()
        }
        return -potential_energy(function, (), columns, given)

    return float(total(vector, {name: jnp.asarray(each) for name, each in columns.items()}))


LONG = {"correlated slopes", "vectors", "truncated", "ordinal, Dirichlet", "stick breaking"}
LONG |= {"horseshoe", "softmax", "robust", "zero-inflated"}  # to compile


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] * (n in LONG)) for n in EXAMPLES]
)
def test_examples_mean_what_numpyro_means(name):
    example = EXAMPLES[name]
    data = table(example.columns)
    model = adapt_model(example.model, tacit.Schema(example.columns))
    vector = 0.3 * jax.random.normal(jax.random.key(1), (model.dimension,))
    expected = of_numpyro(example.same_as or example.model, model, data, vector)
    assert densities(model, data, vector) == pytest.approx(expected, rel=2e-4)


# One of each way to write a model; densities of the others take longer to compile.
FAST = {"eight schools", "factors", "mask and scale", "two outcomes", "subsample by index"}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in FAST else pytest.mark.slow) for n in EXAMPLES]
)
def test_examples_run(name):
    example = EXAMPLES[name]
    plan = tacit.plan(example.model, tacit.Schema(example.columns), budget=BUDGET, method=FEW_STEPS)
    post = tacit.fit(plan, table(example.columns))
    assert sorted(post.draws) == sorted(example.names.split())
    assert post.privacy.is_private
    for draws in post.draws.values():
        assert np.isfinite(draws).all()


@pytest.mark.parametrize(
    ("model", "columns", "site"),
    [
        (not_pooled, BASEBALL, "phi"),
        (partially_pooled, BASEBALL, "phi"),
        (partially_pooled_with_logit, BASEBALL, "alpha"),
        (eight_schools, SCHOOLS, "theta"),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_a_latent_for_each_row_is_refused_by_name(model, columns, site):
    with pytest.raises(InvalidArgument, match=rf"integrate=\['{site}'\]"):
        tacit.plan(model, tacit.Schema(columns), budget=BUDGET)


def without_plate(data, labels):
    """As NumPyro's covtype benchmark has it."""
    coefs = numpyro.sample("coefs", dist.Normal(jnp.zeros(3), jnp.ones(3)))
    numpyro.sample("obs", dist.Bernoulli(logits=jnp.dot(data, coefs)), obs=labels)


def test_a_regression_without_a_plate_is_told_to_have_one():
    with pytest.raises(InvalidArgument, match="no plate over rows"):
        tacit.plan(without_plate, tacit.Schema(EXAMPLES["covtype"].columns), budget=BUDGET)


@pytest.mark.slow
def test_eight_schools_integrated_is_its_marginal_form():
    """Within 0.005 a row, though made-up schools lie up to five standard deviations out."""
    schema, data = tacit.Schema(SCHOOLS), table(SCHOOLS)
    asked = tacit.models.NumPyro(function=eight_schools, integrate=["theta"])
    plan, marginal = (
        tacit.plan(each, schema, budget=BUDGET, method=FEW_STEPS)
        for each in (asked, eight_schools_marginal)
    )
    assert np.isfinite(tacit.fit(plan, data).mean()["tau"])
    for seed in range(5):
        vector = jax.random.normal(jax.random.key(seed), (2,))
        assert densities(plan.model, data, vector) == pytest.approx(
            densities(marginal.model, data, vector), rel=5e-4
        )


@pytest.mark.slow
def test_partial_pooling_with_logits_integrates():
    """Against an integral on a fine even grid of the logit."""
    asked = tacit.models.NumPyro(function=partially_pooled_with_logit, integrate=["alpha"])
    plan = tacit.plan(asked, tacit.Schema(BASEBALL), budget=BUDGET, method=FEW_STEPS)
    vector = jnp.array([-1.1, -0.7])
    params = plan.model.constrain(vector)
    alpha = np.linspace(-8, 8, 4001)
    for at_bats, hits in ((45, 12), (30, 0), (60, 25)):
        logs = dist.Normal(params["loc"], params["scale"]).log_prob(alpha)
        logs += dist.Binomial(at_bats, logits=alpha).log_prob(hits)
        exact = np.log(np.trapezoid(np.exp(np.asarray(logs, np.float64)), alpha))
        row = {"at_bats": np.int32(at_bats), "hits": np.int32(hits)}
        assert float(row_log_likelihood(plan.model, vector, row)) == pytest.approx(exact, abs=1e-3)
    assert np.isfinite(tacit.fit(plan, table(BASEBALL)).mean()["loc"])


@pytest.mark.slow
def test_a_beta_effect_has_its_own_marginal_distribution():
    """JAX has no quantiles of a beta to integrate by; NumPyro has the integral in closed form."""
    asked = tacit.models.NumPyro(function=partially_pooled, integrate=["phi"])
    with pytest.raises(InvalidArgument, match="Beta cannot be integrated out"):
        tacit.plan(asked, tacit.Schema(BASEBALL), budget=BUDGET)

    def marginal(at_bats, hits=None):
        m = numpyro.sample("m", dist.Uniform(0, 1))
        kappa = numpyro.sample("kappa", dist.Pareto(1, 1.5))
        with numpyro.plate("num_players", at_bats.shape[0]):
            fn = dist.BetaBinomial(m * kappa, (1 - m) * kappa, total_count=at_bats)
            numpyro.sample("obs", fn, obs=hits)

    plan = tacit.plan(marginal, tacit.Schema(BASEBALL), budget=BUDGET, method=FEW_STEPS)
    assert 0 < tacit.fit(plan, table(BASEBALL)).mean()["m"] < 1


def test_no_pooling_has_nothing_to_learn():
    asked = tacit.models.NumPyro(function=not_pooled, integrate=["phi"])
    with pytest.raises(InvalidArgument, match="no parameter outside the plate"):
        tacit.plan(asked, tacit.Schema(BASEBALL), budget=BUDGET)
