"""Weighted rows, and predictors that are missing: likelihoods, draws and widths against others."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats
from single_rows import row_log_likelihood, simulate_row

import tacit
from tacit.api.rows import model_rows
from tacit.errors import InvalidArgument
from tacit.inference.score_contributions import ScoreQuery, contribution_of_scores
from tacit.inference.scoring_rounds import LATE_SHARES
from tacit.models.front_ends import adapt_model

SCHEMA = tacit.Schema(
    {
        "x": tacit.Number(-3, 3),
        "z": tacit.Number(-1, 1),
        "dose": tacit.Number(0, 10, centre=5, spread=2),
        "filled": tacit.Number(0, 10, missing=5),
        "smoker": tacit.Binary(yes="yes", no="no"),
        "ward": tacit.Category(["a", "b"]),
        "w": tacit.Number(0, 4),
        "signed": tacit.Number(-1, 1),
        "y": tacit.Binary(),
        "level": tacit.Number(-5, 5),
    }
)


def logistic_rows(size, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, size)
    return x, (rng.random(size) < 1 / (1 + np.exp(-0.3 - 0.8 * x))).astype(int), rng


def test_a_row_of_weight_two_counts_as_two_rows():
    x, y, rng = logistic_rows(300)
    w = rng.integers(0, 4, 300)
    some = tacit.fit_without_privacy("weighted(y, w) ~ x", {"x": x, "y": y, "w": w}, schema=SCHEMA)
    repeated = {"x": np.repeat(x, w), "y": np.repeat(y, w)}
    other = tacit.fit_without_privacy("y ~ x", repeated, schema=SCHEMA)
    for name in ("Intercept", "x"):
        ours, theirs = some.draws[name], other.draws[name]
        assert abs(ours.mean() - theirs.mean()) < 0.02 * theirs.std()
        assert ours.std() == pytest.approx(theirs.std(), rel=0.02)
    assert "Rows are weighted by w." in str(some.summary())


@pytest.mark.parametrize("kind", ["survey", pytest.param("discount", marks=pytest.mark.slow)])
def test_intervals_of_weighted_rows(kind):
    """Those of scores that vary as weights do, by the sandwich; never narrower than the weighted likelihood's."""
    x, y, rng = logistic_rows(3000)
    w = rng.choice([0.5, 1.0, 3.0], 3000) if kind == "survey" else np.full(3000, 0.3)
    table = {"x": x, "y": y, "w": w}
    plan = tacit.plan("weighted(y, w) ~ x", SCHEMA, budget=tacit.Budget(1, 1e-6))
    post = tacit.fit_without_privacy(plan, table, method=plan.method, seed=1)
    exact = tacit.fit_without_privacy(plan, table)
    assert post.converged
    columns = np.stack([np.ones_like(x), x], axis=1)
    at = 1 / (1 + np.exp(-columns @ [exact.mean()["Intercept"], exact.mean()["x"]]))
    slope, square = (
        np.einsum("n,ni,nj->ij", weight * at * (1 - at), columns, columns) for weight in (w, w**2)
    )
    inverse = np.linalg.inv(slope)
    expected = inverse @ (square if kind == "survey" else slope) @ inverse
    for i, name in enumerate(("Intercept", "x")):
        assert post.draws[name].std() == pytest.approx(np.sqrt(expected[i, i]), rel=0.12)
        assert abs(post.mean()[name] - exact.mean()[name]) < 0.5 * exact.draws[name].std()


def missing_model(formula, family=None):
    return adapt_model(tacit.glm(formula, family=family, schema=SCHEMA), SCHEMA)


def log_likelihoods(model, vector, rows):
    """Of each row."""
    one = jax.vmap(lambda row: row_log_likelihood(model, vector, row, model.constants))
    return jax.jit(one)({name: jnp.asarray(values) for name, values in rows.items()})


TABLE = {
    "x": [0.5, np.nan, -1.0, np.nan],
    "z": [0.2, -0.4, 1.0, 0.9],
    "dose": [4.0, 5.0, None, 7.0],
    "smoker": ["yes", None, "no", "yes"],
    "y": [1, 0, 1, 1],
    "level": [0.3, 1.2, -2.0, 2.2],
}


@pytest.mark.parametrize(
    "formula", ["level ~ mi(x, 0.5 * z, 0.8) + z", "level ~ mi(x, 0.5 * z, 0.8)*z"]
)
def test_a_missing_number_is_integrated_out(formula):
    model = missing_model(formula)
    rows = SCHEMA.encode(TABLE, model.columns, keep_missing=model.may_be_missing).columns
    product = 0.9 if formula.endswith("*z") else 0.0
    given = {"Intercept": 0.2, "x": 1.5, "z": -0.4, "sigma": 0.6}
    vector = model.unconstrain(given | ({"x:z": product} if product else {}))
    for i, found in enumerate(log_likelihoods(model, vector, rows)):
        x, z, level = (TABLE[name][i] for name in ("x", "z", "level"))

        def density(x, z=z, level=level):
            x = np.clip(x, -3, 3) / 3
            return stats.norm(0.2 + 1.5 * x - 0.4 * z + product * x * z, 0.6).pdf(level)

        if np.isnan(x):
            prior = stats.norm(0.5 * z, 0.8)
            chance, _ = integrate.quad(lambda x: density(x) * prior.pdf(x), -8, 8, limit=200)  # noqa: B023
        else:
            chance = density(x)
        assert found == pytest.approx(np.log(chance), abs=2e-3)


def test_a_missing_binary_column_is_summed_out_and_rows_are_kept():
    formula = "y ~ mi(smoker, 0.3) + mi(dose)"
    model = missing_model(formula)
    table = {name: TABLE[name] for name in model.columns}
    assert np.asarray(model_rows(model, SCHEMA, table)._host_fields().present).sum() == 4
    vector = model.unconstrain({"Intercept": -0.3, "smoker": 1.2, "dose": 0.7})
    rows = SCHEMA.encode(TABLE, model.columns, keep_missing=model.may_be_missing).columns

    found = log_likelihoods(model, vector, rows)

    def chance(smokes, dose):
        return 1 / (1 + np.exp(0.3 - 1.2 * smokes - 0.7 * (dose - 5) / 2))

    assert found[1] == pytest.approx(
        np.log(1 - (0.7 * chance(0, 5) + 0.3 * chance(1, 5))), abs=1e-4
    )
    # Values are moved to the bounds, as values of the column are.
    average, _ = integrate.quad(
        lambda d: chance(0, np.clip(d, 0, 10)) * stats.norm(5, 2).pdf(d), -10, 20, limit=200
    )
    assert found[2] == pytest.approx(np.log(average), abs=1e-3)
    text = "Where smoker is missing, it is yes with probability 0.3."
    assert text in str(tacit.glm(formula, schema=SCHEMA))
    plan = tacit.plan("y ~ mi(smoker, 0.3) + z", SCHEMA, budget=tacit.Budget(1, 1e-6))
    assert "but for missing smoker" in str(plan)


def test_outcomes_of_rows_without_a_predictor_are_drawn_like_their_own():
    """Scores of drawn outcomes have mean zero and their own variance, where x is missing."""
    model = missing_model("level ~ mi(x, 0.5 * z, 0.8) + z")
    given = {"Intercept": 0.2, "x": 1.5, "z": -0.4, "sigma": 0.6}
    vector, size = model.unconstrain(given), 3000
    rng = np.random.default_rng(4)
    z = rng.uniform(-1, 1, size)
    x = rng.normal(0.5 * z, 0.8)
    level = 0.2 + 1.5 * np.clip(x, -3, 3) / 3 - 0.4 * z + 0.6 * rng.normal(size=size)
    table = {"x": np.full(size, np.nan), "z": z, "level": level}
    rows = SCHEMA.encode(table, model.columns, keep_missing=model.may_be_missing).columns

    @jax.jit
    @jax.vmap
    def scores(key, row):
        drawn = simulate_row(model, key, vector, row, model.constants)
        score = jax.grad(partial(row_log_likelihood, model))
        return score(vector, row, model.constants, drawn), score(vector, row, model.constants)

    for found in scores(jax.random.split(jax.random.key(0), size), rows):
        each = np.asarray(found, np.float64)
        assert (np.abs(each.mean(axis=0)) < 4.5 * each.std(axis=0) / np.sqrt(size)).all()


@pytest.mark.parametrize(
    ("formula", "says"),
    [
        ("y ~ mi(x)", "needs the distribution of x where it is missing"),
        ("y ~ mi(x, 0)", r"mi\(x, mean, sd\)"),
        ("y ~ mi(smoker)", r"mi\(smoker, probability\)"),
        ("y ~ mi(smoker, 1.2)", "must lie between 0 and 1"),
        ("y ~ mi(x, 4, 1)", "must lie between -3 and 3"),
        ("y ~ mi(x, 0, z)", "must be above zero"),
        ("y ~ mi(x, x, 1)", "from x itself"),
        ("y ~ mi(x * 2, 0, 1)", "must be of a column"),
        ("y ~ mi(ward, 0.5)", "must be of a Number or a Binary column"),
        ("y ~ mi(filled, 5, 1)", "is never missing"),
        ("y ~ mi(x, 0, 1) + mi(x, 0, 2):z", "in two ways"),
        ("y ~ mi(x, 0.1 * dose, 1) + mi(dose)", "cannot depend on dose"),
        ("weighted(y, w) ~ mi(x, 0, 1)", "use one of them"),
        ("weighted(y, signed) ~ x", "declare bounds from 0 or more"),
        ("weighted(y) ~ x", "must be weighted"),
        ("weighted(y, x) ~ x", "declare bounds from 0"),
    ],
)
def test_what_does_not_fit_is_refused(formula, says):
    with pytest.raises(InvalidArgument, match=says) as refused:
        tacit.glm(formula, schema=SCHEMA)
    assert str(refused.value).endswith(".")


@pytest.mark.parametrize("formula", ["weighted(level, w) ~ z", "level ~ mi(x, 0, 1)"])
def test_statistics_do_not_suffice_for_weights_and_missing_predictors(formula):
    with pytest.raises(InvalidArgument, match=r"without weighted\(...\) and mi\(...\)"):
        tacit.plan(
            tacit.glm(formula, schema=SCHEMA),
            budget=tacit.Budget(1, 1e-6),
            method=tacit.Statistics(),
        )


def test_no_weight_makes_a_unit_add_more():
    """Slopes are divided by the weight before they are bounded, whatever the weight."""
    rng, size = np.random.default_rng(0), 3
    clip = np.sqrt(size)
    query = ScoreQuery(
        np.zeros(size), np.eye(size), clip, clip, 2 * size, 1.5 * size, 0.0,
        np.sqrt(LATE_SHARES), None,
    )  # fmt: skip
    scores = 10.0 ** rng.uniform(-4, 4, (300, 1, 1)) * rng.normal(size=(300, 5, size))
    weights = np.append(0.0, 10.0 ** rng.uniform(-12, 6, 299))
    found = jax.vmap(partial(contribution_of_scores, query))(scores, weights)
    assert np.linalg.norm(found, axis=1).max() <= 1 + 1e-5
