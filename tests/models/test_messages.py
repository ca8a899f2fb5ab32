"""What a user reads when something is wrong: one sentence that says what to do, and no row."""

import re
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer.autoguide import AutoDiagonalNormal

import tacit
from tacit.errors import TacitError

SENTINEL = 0.8675309
SCHEMA = tacit.Schema(
    {
        "x": tacit.Number(-1, 1),
        "y": tacit.Number(-5, 5),
        "z": tacit.Number(0, 1, shape=(3,)),
        "ward": tacit.Category(["A", "B", "C"], other="other"),
        "visits": tacit.Count(12),
    }
)
PEOPLE = tacit.Schema(
    {"x": tacit.Number(-1, 1), "y": tacit.Number(-5, 5)}, person="patient", most_rows=3
)
BUDGET = tacit.Budget(1, 1e-5)
DATA = {
    "x": np.full(20, SENTINEL),
    "y": np.full(20, SENTINEL),
    "z": np.full((20, 3), SENTINEL),
    "ward": ["A"] * 20,
    "visits": [3] * 20,
}


def good(x, y=None):
    slope = numpyro.sample("slope", dist.Normal(0, 1))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Normal(slope * x, 1.0), obs=y)


def no_plate(x, y=None):
    slope = numpyro.sample("slope", dist.Normal(0, 1))
    numpyro.sample("y", dist.Normal(slope * x, 1.0), obs=y)


def plates_of_other_things(x, y=None):
    with numpyro.plate("wards", 4), numpyro.plate("beds", 2):
        slope = numpyro.sample("slope", dist.Normal(0, 1))
    numpyro.sample("y", dist.Normal(slope[0, 0] * x, 1.0), obs=y)


def flat_prior(x, y=None):
    slope = numpyro.sample("slope", dist.ImproperUniform(dist.constraints.real, (), ()))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Normal(slope * x, 1.0), obs=y)


def flat_outcome(x, y=None):
    numpyro.sample("slope", dist.Normal(0, 1))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.ImproperUniform(dist.constraints.real, (), ()), obs=y)


def nothing_observed(x):
    slope = numpyro.sample("slope", dist.Normal(0, 1))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.deterministic("line", slope * x)


def wrong_shapes(x, z, y=None):
    slope = numpyro.sample("slope", dist.Normal(0, 1).expand([4]).to_event(1))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Normal(z @ slope, 1.0), obs=y)


def wider_than_the_plate(z, y=None):
    slope = numpyro.sample("slope", dist.Normal(0, 1))
    with numpyro.plate("rows", z.shape[0]):
        numpyro.sample("y", dist.Normal(slope * z, 1.0), obs=y)


def unknown_column(x, dose, y=None):
    good(x + dose, y)


def no_column(a=1.0, b=2.0):
    good(jnp.ones(3) * a, jnp.ones(3) * b)


def half_of_the_rows(x, y=None):
    slope = numpyro.sample("slope", dist.Normal(0, 1))
    with numpyro.plate("pairs", x.shape[0] // 2):
        numpyro.sample("y", dist.Normal(slope * x[1::2], 1.0), obs=y[1::2])


def beyond_levels(ward, y=None):
    with numpyro.plate("wards", 3):
        shift = numpyro.sample("shift", dist.Normal(0, 1))
    with numpyro.plate("rows", ward.shape[0]):
        numpyro.sample("y", dist.Normal(shift[ward], 1.0), obs=y)


def beyond_counts(visits, y=None):
    shift = numpyro.sample("shift", dist.Normal(0, 1).expand([12]).to_event(1))
    with numpyro.plate("rows", visits.shape[0]):
        numpyro.sample("y", dist.Normal(shift[visits], 1.0), obs=y)


def beyond_correlated(ward, y=None):
    chol = numpyro.sample("chol", dist.LKJCholesky(2))
    with numpyro.plate("wards", 3):
        shift = numpyro.sample("shift", dist.MultivariateNormal(jnp.zeros(2), scale_tril=chol))
    with numpyro.plate("rows", ward.shape[0]):
        numpyro.sample("y", dist.Normal(shift[ward, 0], 1.0), obs=y)


def person_without_plate(x, patient, y=None):
    good(x + 0 * patient, y)


def level_in_another_plate(x, patient, y=None):
    with numpyro.plate("people", 7):
        level = numpyro.sample("level", dist.Normal(0, 1))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Normal(level[patient], 1.0), obs=y)


def discrete_and_shared(x, y=None):
    which = numpyro.sample("which", dist.Bernoulli(0.5))
    slope = numpyro.sample("slope", dist.Normal(0, 1))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Normal(slope * x * which, 1.0), obs=y)


def plan(model, schema=SCHEMA, **given):
    return tacit.plan(model, schema, **({"budget": BUDGET} | given))


def fit(model, data=DATA, **given):
    quick = tacit.Variational(num_steps=3)
    return tacit.fit(model, data, **({"schema": SCHEMA, "budget": BUDGET, "method": quick} | given))


# What goes wrong, what the message names, and what it says to do.
WRONG = {
    "no plate": (lambda: plan(no_plate), "no plate over rows", "numpyro.plate"),
    "no plate over rows": (lambda: plan(plates_of_other_things), "'wards', 'beds'", "row_plate="),
    "no such plate": (
        lambda: plan(tacit.models.NumPyro(function=good, row_plate="row")),
        "'row'",
        "row_plate=",
    ),
    "flat prior": (lambda: plan(flat_prior), "needs a proper prior", "tacit.Variational()"),
    "flat outcome": (lambda: plan(flat_outcome), "cannot draw", "proper distribution"),
    "nothing observed": (lambda: plan(nothing_observed), "Nothing is observed", "obs="),
    "wrong shapes": (lambda: plan(wrong_shapes), "simulated", "shapes that the schema"),
    "wider than the plate": (
        lambda: plan(wider_than_the_plate),
        "(5, 3)",
        "shapes that the schema",
    ),
    "plate over some rows": (lambda: plan(half_of_the_rows), "single row", "any number of rows"),
    "unknown column": (lambda: plan(unknown_column), "'dose'", "declare it"),
    "no column": (lambda: plan(no_column), "none of the columns", "name its arguments"),
    "constant and column": (
        lambda: plan(tacit.models.NumPyro(function=good, constants={"x": 1.0})),
        "'x'",
        "rename",
    ),
    "column missing in data": (
        lambda: fit(good, {"xs": DATA["x"], "y": DATA["y"]}),
        "no column 'x'",
        "did you mean 'xs'",
    ),
    "column of another shape": (
        lambda: fit(good, DATA | {"x": DATA["z"]}),
        "'x'",
        "reshape the column",
    ),
    "columns of other lengths": (
        lambda: fit(good, DATA | {"x": DATA["x"][:5]}),
        "same number of rows",
        "a value for each row",
    ),
    "bounds the wrong way": (lambda: tacit.Number(3, 1), "low", "below high"),
    "bounds that are equal": (lambda: tacit.Count(0), "low", "below high"),
    "bounds that are not finite": (lambda: tacit.Number(0, np.inf), "high", "finite"),
    "bounds that are no numbers": (lambda: tacit.Number("a", 1), "low", "number"),
    "bounds of a count": (lambda: tacit.Count(2.5), "whole", "use a Number"),
    "missing schema": (lambda: fit(good, schema=None), "schema", "Pass schema="),
    "something else than a schema": (
        lambda: tacit.plan(good, {"x": tacit.Number(0, 1)}, budget=BUDGET),
        "plan needs",
        "tacit.Schema",
    ),
    "no model": (lambda: plan(3), "int", "NumPyro function"),
    "index beyond levels": (lambda: plan(beyond_levels), "ward", "every level"),
    "index beyond counts": (lambda: plan(beyond_counts), "visits", "every level"),
    "index beyond levels, correlated": (lambda: plan(beyond_correlated), "ward", "every level"),
    "person without plate": (
        lambda: plan(person_without_plate, PEOPLE),
        "no plate 'patient'",
        "person_plate=",
    ),
    "person in another plate": (
        lambda: plan(level_in_another_plate, PEOPLE),
        "only 'people', 'rows'",
        "person_plate=",
    ),
    "person and no number of rows": (
        lambda: tacit.Schema({"x": tacit.Number(0, 1)}, person="patient"),
        "most_rows",
        "Pass both",
    ),
    "discrete and shared": (lambda: plan(discrete_and_shared), "'which'", "write the sum"),
    "guide for a model": (
        lambda: tacit.Variational(guide=AutoDiagonalNormal(good)),
        "not a guide made for a model",
        "the class of a NumPyro",
    ),
    "class of a guide of ours": (
        lambda: tacit.Variational(guide=tacit.methods.MeanField),
        "guide must be",
        "MeanField()",
    ),
    "budget that is a number": (lambda: plan(good, budget=1.0), "budget", "tacit.Budget("),
    "no budget": (lambda: fit(good, budget=None), "budget", "Pass epsilon="),
    "negative budget": (lambda: tacit.Budget(-1, 1e-5), "epsilon", "positive"),
    "delta of one": (lambda: tacit.Budget(1, 1.0), "delta", "1"),
    "start of a stranger": (
        lambda: plan(good, method=tacit.Variational(start={"slop": 1.0})),
        "'slop'",
        "the parameters are slope",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_messages_say_what_to_do(what):
    attempt, named, remedy = WRONG[what]
    with pytest.raises(TacitError) as caught:
        attempt()
    message = str(caught.value)
    assert named in message
    assert remedy in message
    assert re.findall(r"[.!](?=\s|$)", message) == ["."], message
    assert message.endswith(".")
    assert "\n" not in message
    assert len(message) < 400
    error = caught.value
    while error is not None:
        assert "0.867" not in str(error)
        error = error.__cause__ or error.__context__


@pytest.mark.parametrize(
    ("formula", "said"),
    [
        ("y ~ s(x)", "use bs(x, df=4) instead"),
        ("y ~ s(ward, bs='re')", "use (1 | ward) instead"),
        ("y ~ te(x, y)", "use bs(x, df=4):bs(z, df=4) instead"),
        ("y ~ as.factor(ward)", "use C(ward) instead"),
        ("visits | trials(12) ~ x", "use p(successes, trials) before ~ instead"),
        ("y | weights(x) ~ x", "use weighted(outcome, weights) before ~ instead"),
        ("visits | rate(x) ~ x", "use offset(log(x)) after ~ instead"),
        ("x | mi() ~ y", "use mi(x, mean, sd) after ~ instead"),
        ("y ~ hsgp(x, m=10, c=2)", "use bs(x, df=4) instead"),
        ("y ~ x + (1 | gr(ward))", "Groups in 1|gr(ward) must be a column"),
        ("cbind(visits, x) ~ x", "use p(successes, trials) before ~ instead"),
        ("Surv(y, x) ~ x", "use censored(time, event) before ~ instead"),
        ("y ~ x^2", "use ** for powers instead"),
        ("y ~ x + (x || ward)", "use (x | group) instead"),
        ("y ~ .", "use the names of the columns instead"),
    ],
)
def test_words_of_brms_and_mgcv_get_those_that_are_used_here(formula, said):
    with pytest.raises(TacitError, match=re.escape(said)):
        tacit.glm(formula, schema=SCHEMA)


class Binomial:
    """A family of another package."""


@pytest.mark.parametrize(
    ("family", "said"),
    [
        ("logistic", 'use family="bernoulli" instead'),
        ("gaussian()", 'use family="gaussian" instead'),
        ("Poisson", 'use family="poisson" instead'),
        ("cumulative", 'use family="ordinal" instead'),
        ("probit", 'use family="bernoulli" with link="probit" instead'),
        (Binomial(), 'no family Binomial; use family="binomial" instead'),
    ],
)
def test_families_of_other_packages_get_their_name_here(family, said):
    with pytest.raises(TacitError, match=re.escape(said)):
        tacit.glm("y ~ x", schema=SCHEMA, family=family)


def test_columns_may_be_called_anything_in_backquotes():
    schema = tacit.Schema({"a^b || c": tacit.Number(0, 1), "y": tacit.Number(0, 1)})
    assert tacit.glm("y ~ `a^b || c`", schema=schema).columns == ("a^b || c", "y")


def test_a_model_that_forgets_the_gaps_that_are_left_to_it_is_refused():
    def forgets(x, y=None):
        slope = numpyro.sample("slope", dist.Normal(0, 1))
        with numpyro.plate("rows", x.shape[0]):  # NaN is multiplied before it is replaced
            mean = jnp.where(jnp.isnan(x), 0.0, slope * x)
            numpyro.sample("y", dist.Normal(mean, 1), obs=y)

    def remembers(x, y=None):
        slope = numpyro.sample("slope", dist.Normal(0, 1))
        with numpyro.plate("rows", x.shape[0]):
            mean = slope * jnp.where(jnp.isnan(x), 0.0, x)
            numpyro.sample("y", dist.Normal(mean, 1), obs=y)

    schema = SCHEMA.with_columns({"x": tacit.Number(-1, 1, missing="keep")})
    with pytest.raises(TacitError, match=r"NaN where 'x' is missing.*Use jnp\.isnan"):
        tacit.plan(forgets, schema, budget=BUDGET)
    plan = tacit.plan(remembers, schema, budget=BUDGET)
    assert "dropped, but for missing x" in str(plan)


# The page for users of brms and Bambi.
SIDE_BY_SIDE = (Path(__file__).parents[2] / "docs" / "start" / "brms_bambi.md").read_text("utf-8")


def cells(name):
    """The rows of a table of the page, as lists of the formulas of each cell."""
    table = SIDE_BY_SIDE.partition(f"<!-- {name} -->\n")[2].partition("\n\n")[0]
    rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in table.splitlines()[2:]]
    return [[re.findall("`([^`]*)`", cell.replace("\\|", "|")) for cell in row] for row in rows]


def page_schema():
    """The last schema of the page."""
    code = SIDE_BY_SIDE.rpartition("schema = ")[2].partition("```")[0]
    return eval(code, {"tacit": tacit})  # noqa: S307


@pytest.mark.parametrize("formula", [row[-1][0] for row in cells("formulas")])
def test_formulas_beside_those_of_brms_and_bambi_are_read(formula):
    assert formula.partition("~")[2].strip() in str(tacit.glm(formula, schema=page_schema()))


@pytest.mark.parametrize(
    "formula", [each for row in cells("refused") for each in row[0] if "~" in each]
)
def test_formulas_that_the_page_calls_refused_are_refused(formula):
    with pytest.raises(TacitError):
        tacit.glm(formula, schema=page_schema())


@pytest.mark.parametrize(
    ("family", "outcome"),
    [
        ("ordinal", "pain"),
        ("negativebinomial", "visits"),
        ("zero_inflated_poisson", "visits"),
        ("gamma", "cost"),
        ("lognormal", "months"),
        ("weibull", "months"),
        ("weibull_ph", "months"),
    ],
)
def test_families_of_the_page_take_the_outcomes_that_it_names(family, outcome):
    assert f'`"{family}"`' in SIDE_BY_SIDE
    assert tacit.glm(f"{outcome} ~ age", schema=page_schema(), family=family).family == family
