"""Models by formula: the same as an independent calculation, and nothing from data."""

import numpy as np
import pytest
from formulae import design_matrices
from formulas import SCHEMA, glm, table
from jax import numpy as jnp
from scipy import stats
from scipy.optimize import minimize
from scipy.special import expit, log_softmax, ndtr
from single_rows import row_log_likelihood

import tacit
from tacit.models.front_ends import adapt_model


def design(model, data):
    """The model's own design matrix of rows, without the intercept, and labels of its columns."""
    encoded = SCHEMA.encode({**data, "money": np.full(len(data["age"]), 500.0)}, model.columns)
    columns = {name: jnp.asarray(values) for name, values in encoded.columns.items()}
    terms = model.function.terms
    labels = [
        f"{term.name}[{label}]" if label else term.name
        for term in terms
        for label in term.block.labels or ("",)
    ]
    return np.concatenate([np.asarray(term.read(columns)) for term in terms], axis=1), labels


@pytest.mark.parametrize(
    "right",
    [
        "ward + site",
        "0 + ward + site",
        "ward * site",
        "ward:site",
        "0 + ward:site",
        "age + ward:age",
        "age:ward",
        "ward + ward:age",
        "age * ward * site",
        "(age + dose + ward) ** 2",
        "age / ward",
        "age:dose + visits",
        "sex + age:sex",
        "C(ward, Sum) * age",
        "C(ward, Treatment('b')) * age",
    ],
)
def test_the_design_matrix_is_the_one_of_formulae(right):
    """Where a design does not depend on data, formulae's own on standardised columns agrees."""
    import pandas as pd

    data = table(60)
    middles = {"age": (50, 30), "dose": (3, 2), "visits": (5, 5)}
    frame = pd.DataFrame(
        {
            **{name: (data[name] - m) / h for name, (m, h) in middles.items()},
            "sex": (data["sex"] == "f").astype(int),
            "ward": pd.Categorical(data["ward"], ["a", "b", "c", "other"], ordered=True),
            "site": pd.Categorical(data["site"], ["x", "y"], ordered=True),
            "money": 0.0,
        }
    )
    theirs = np.asarray(design_matrices(f"money ~ {right}", frame).common)
    ours, labels = design(glm(f"money ~ {right}"), data)
    if not right.startswith("0"):
        ours = np.column_stack([np.ones(len(ours)), ours])
    assert ours.shape == theirs.shape
    assert len(set(labels)) == len(labels)
    far = np.abs(ours.T[:, None] - theirs.T[None]).max(axis=2)
    assert ((far < 1e-5).sum(axis=0) == 1).all()  # each column of theirs is one of ours
    assert ((far < 1e-5).sum(axis=1) == 1).all()


def test_splines_lie_over_the_bounds_and_not_over_the_data():
    import pandas as pd

    data = table(200)
    low = {**data, "age": np.clip(data["age"], 20, 40)}  # bounds and knots must not follow
    model = glm("money ~ bs(age, df=6)")
    knots = [35.0, 50.0, 65.0]  # noqa: F841 - formulae finds it by its name
    bounds = "lower_bound=20, upper_bound=80"
    for each in (data, low):
        frame = pd.DataFrame({"age": each["age"], "money": 0.0})
        theirs = design_matrices(f"money ~ 0 + bs(age, knots=knots, {bounds})", frame)
        assert np.allclose(design(model, each)[0], np.asarray(theirs.common), atol=1e-5)
    named = glm("money ~ bs(age, knots=c(35, 50, 65))")
    assert np.array_equal(design(named, data)[0], design(model, data)[0])
    whole, _ = design(glm("money ~ 0 + bs(age, df=7, intercept=True)"), data)
    assert np.allclose(whole.sum(axis=1), 1, atol=1e-5)  # at both bounds, too


def test_polynomials_are_orthogonal_over_the_bounds():
    ages = np.linspace(20, 80, 20001)
    found, labels = design(glm("money ~ poly(age, 4)"), {"age": ages})
    products = found.T @ found / len(ages)
    assert np.abs(products - np.diag(np.diag(products))).max() < 1e-3
    assert np.abs(found).max() <= 1 + 1e-5
    assert labels[0] == "poly(age, 4)[1]"


@pytest.mark.parametrize(
    ("written", "calculated"),
    [
        ("I(age ** 2)", lambda d: d["age"] ** 2),
        ("np.log(dose)", lambda d: np.log(d["dose"])),
        ("{dose / (visits + 1)}", None),
        ("np.sqrt(visits)", lambda d: np.sqrt(d["visits"])),
        ("I((age - 50) ** 2)", lambda d: (d["age"] - 50.0) ** 2),
        ("np.exp(-dose)", lambda d: np.exp(-d["dose"])),
        ("log1p(visits) ", lambda d: np.log1p(d["visits"])),
    ],
)
def test_calculations_are_in_the_columns_own_unit_and_standardised_by_bounds(written, calculated):
    data = table(300)
    ours = design(glm(f"money ~ {written}"), data)[0][:, 0]
    assert np.abs(ours).max() <= 1 + 1e-5
    expected = data["dose"] / (data["visits"] + 1) if calculated is None else calculated(data)
    slope, intercept = np.polyfit(expected, ours, 1)
    assert slope > 0
    assert np.allclose(ours, intercept + slope * expected, atol=1e-4)


# Outcomes, with log-likelihoods that share no code with the model's.
N = 1500
DATA = table(N, seed=5)
X = np.column_stack(
    [
        np.ones(N),
        (DATA["age"] - 50) / 30,
        (DATA["dose"] - 3) / 2,
        *(DATA["ward"] == level for level in ("b", "c", "other")),
        DATA["sex"] == "f",
    ]
)
RIGHT = "age + dose + C(ward) + sex"
SLOPES = np.array([0.8, -0.5, 0.6, -0.4, 0.3, 0.5])
RNG = np.random.default_rng(8)


def eta(intercept, scale=1.0):
    return X @ np.concatenate([[intercept], SLOPES * scale])


def simulated():
    """By family: formula, settings, columns, log-likelihood of (coefficients, extra), start."""
    trials = RNG.integers(0, 13, N)
    y = RNG.random(N) < expit(eta(-0.3))
    probit = RNG.random(N) < ndtr(eta(-0.2, 0.7))
    cloglog = RNG.random(N) < 1 - np.exp(-np.exp(eta(-0.6, 0.7)))
    money = 500 + 80 * eta(-0.3) + RNG.normal(0, 60, N)
    cured = RNG.binomial(trials, expit(eta(-0.3)))
    count = np.minimum(RNG.poisson(np.exp(eta(0.5, 0.7))), 30)
    means = np.exp(eta(0.5, 0.5))
    spread = np.minimum(RNG.negative_binomial(3, 3 / (3 + means)), 30)
    waiting = np.clip(RNG.gamma(4, np.exp(eta(1.5, 0.5)) / 4), 0.1, 60)

    def gamma(b, alpha):
        return stats.gamma.logpdf(waiting, alpha, scale=np.exp(X @ b) / alpha)

    return {
        "bernoulli": ("yes", {}, {"yes": y}, lambda b, _: stats.bernoulli.logpmf(y, expit(X @ b))),
        "bernoulli probit": (
            "yes",
            {"link": "probit"},
            {"yes": probit},
            lambda b, _: stats.bernoulli.logpmf(probit, ndtr(X @ b)),
        ),
        "bernoulli cloglog": (
            "yes",
            {"link": "cloglog"},
            {"yes": cloglog},
            lambda b, _: stats.bernoulli.logpmf(cloglog, 1 - np.exp(-np.exp(X @ b))),
        ),
        "binomial": (
            "p(count, trials)",
            {},
            {"count": cured, "trials": trials},
            lambda b, _: stats.binom.logpmf(cured, trials, expit(X @ b)),
        ),
        "gaussian": (
            "money",
            {},
            {"money": money},
            lambda b, s: stats.norm.logpdf(money, 500 + 100 * (X @ b), 100 * s),
        ),
        "gaussian scaled": (
            "scaled",
            {},
            {"scaled": money},
            lambda b, s: stats.norm.logpdf(money, 500 + 100 * (X @ b), 100 * s),
        ),
        "poisson": (
            "count",
            {},
            {"count": count},
            lambda b, _: stats.poisson.logpmf(count, np.exp(X @ b)),
        ),
        "negativebinomial": (
            "count",
            {},
            {"count": spread},
            lambda b, a: stats.nbinom.logpmf(spread, a, a / (a + np.exp(X @ b))),
        ),
        "gamma": ("waiting", {}, {"waiting": waiting}, gamma),
    }


def most_likely(log_likelihood):
    """Coefficients and the further parameter that make the outcomes most likely."""

    def loss(v):
        with np.errstate(all="ignore"):
            value = -np.sum(log_likelihood(v[:-1], np.exp(v[-1]))) + 1e-3 * v[-1] ** 2
        return value if np.isfinite(value) else 1e10

    return minimize(loss, np.zeros(X.shape[1] + 1), method="BFGS", options={"gtol": 1e-3}).x


def most_likely_by_model(model, data):
    """The posterior mode of the model that is fitted, from rows encoded as a fit has them."""
    import jax

    adapted = adapt_model(model, SCHEMA)
    encoded = SCHEMA.encode(data, adapted.columns).columns
    rows = {name: jnp.asarray(values) for name, values in encoded.items()}

    @jax.jit
    @jax.value_and_grad
    def loss(vector):
        terms = jax.vmap(lambda row: row_log_likelihood(adapted, vector, row, adapted.constants))(
            rows
        )
        return -terms.sum() - adapted.log_prior(vector, adapted.constants)

    found = minimize(
        lambda v: [np.asarray(each, float) for each in loss(jnp.asarray(v, jnp.float32))],
        np.zeros(adapted.dimension),
        jac=True,
        method="L-BFGS-B",
    )
    return adapted.constrain(jnp.asarray(found.x, jnp.float32)), adapted


def flat(params, names):
    return np.concatenate([np.ravel(params[name]) for name in names])


NAMES = ["Intercept", "age", "dose", "ward", "sex"]
CASES = simulated()


SLOW = {"bernoulli probit", "bernoulli cloglog", "gaussian scaled", "negativebinomial"}


@pytest.mark.parametrize(
    "case", [pytest.param(n, marks=[pytest.mark.slow] * (n in SLOW)) for n in CASES]
)
def test_each_family_finds_what_maximum_likelihood_finds(case):
    left, settings, columns, log_likelihood = CASES[case]
    family = case.split()[0]
    model = glm(f"{left} ~ {RIGHT}", family, **settings)
    params, _ = most_likely_by_model(model, {**DATA, **columns})
    expected = most_likely(log_likelihood)
    found = flat(params, NAMES)
    if family == "gaussian":  # in the outcome's own unit
        found = (found - 500 * np.eye(len(found))[0]) / 100
    # A prior of sd 2 and more moves an estimate of standard error 0.1 by less than this.
    assert np.abs(found - expected[:-1]).max() < 0.03
    if extra := {"gaussian": "sigma", "negativebinomial": "alpha", "gamma": "alpha"}.get(family):
        unit = 100 if family == "gaussian" else 1
        assert abs(np.log(params[extra] / unit) - expected[-1]) < 0.05


def test_categorical_outcomes_are_measured_from_the_first_level():
    slopes = np.array([[0.2, -0.3, 0.1], [0.8, -0.5, 0.0], [0.5, 0.4, -0.6]])
    x = X[:, :3]
    logits = np.column_stack([np.zeros(N), x @ slopes])
    chosen = np.array([RNG.choice(4, p=np.exp(row)) for row in log_softmax(logits, axis=1)])
    data = {**DATA, "ward": np.array(["a", "b", "c", "zzz"])[chosen]}

    def loss(v):
        scores = np.column_stack([np.zeros(N), x @ v.reshape(3, 3)])
        return -log_softmax(scores, axis=1)[np.arange(N), chosen].sum()

    expected = minimize(loss, np.zeros(9), method="BFGS", options={"gtol": 1e-3}).x.reshape(3, 3)
    model = glm("ward ~ age + dose", "categorical")
    params, _ = most_likely_by_model(model, data)
    found = np.stack([params[name] for name in ("Intercept", "age", "dose")])
    assert np.abs(found - expected).max() < 0.03
    assert model.function.labels["age"] == (("b", "c", "other"),)


def test_offsets_count_in_full():
    rates = np.exp(eta(-1.0, 0.5)) * DATA["dose"]
    data = {**DATA, "count": np.minimum(np.random.default_rng(1).poisson(rates), 30)}
    params, _ = most_likely_by_model(glm(f"count ~ {RIGHT} + offset(log(dose))", "poisson"), data)

    def log_likelihood(b, _):
        return stats.poisson.logpmf(data["count"], DATA["dose"] * np.exp(X @ b))

    assert np.abs(flat(params, NAMES) - most_likely(log_likelihood)[:-1]).max() < 0.03


@pytest.mark.parametrize("low", [0.1, 0.3, 17.9, 1e-3])
def test_roots_are_numbers_at_the_bounds(low):
    # A scaled value comes back to its own unit with rounding, which may fall below the bound.
    schema = tacit.Schema({"x": tacit.Number(low, 100, scaled=True), "y": tacit.Number(0, 1)})
    model = tacit.glm(f"y ~ np.sqrt(x - {low})", schema=schema)
    ends = model.function.terms[0].read({"x": np.array([-1, 1], np.float32)})
    assert np.allclose(ends[:, 0], [-1, 1], atol=1e-2)
