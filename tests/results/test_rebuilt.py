"""Predictions of a posterior from a file, without its plan."""

import numpy as np
import numpyro
import pytest
from numpyro import distributions as dist

import tacit
from tacit.errors import InvalidArgument
from tacit.models.front_ends import adapt_model
from tacit.models.interpretation import GLMSpec
from tacit.results.predictive import formula_recipe

SCHEMA = tacit.Schema(
    {
        "age": tacit.Number(20, 80, scaled=True),
        "dose": tacit.Number(0, 10, centre=4, spread=2),
        "ward": tacit.Category(["A", "B"], other="other"),
        "time": tacit.Count(12, low=1),
        "falls": tacit.Count(40),
        "diet": tacit.Category(["meat", "fish", "none"]),
    }
)
FORMULAS = {
    "counts": ("falls ~ age * ward + bs(dose, df=4) + offset(log(time))", {}),
    "levels": ("diet ~ age + (1|ward)", {"age": ("normal", 0, 0.5)}),
}


def table(count, seed=0):
    rng = np.random.default_rng(seed)
    return {
        "age": rng.uniform(20, 80, count),
        "dose": rng.uniform(0, 10, count),
        "ward": rng.choice(["A", "B", "C"], count),
        "time": rng.integers(1, 13, count),
        "falls": rng.poisson(3, count),
        "diet": rng.choice(["meat", "fish", "none"], count),
    }


@pytest.mark.parametrize("name", ["levels", pytest.param("counts", marks=pytest.mark.slow)])
def test_a_loaded_posterior_predicts_as_the_fitted_one(name, tmp_path):
    formula, priors = FORMULAS[name]
    model = tacit.glm(formula, schema=SCHEMA, priors=priors)
    post = tacit.fit_without_privacy(model, table(200))
    post.save(tmp_path / "post.nc")
    loaded = tacit.Posterior.load(tmp_path / "post.nc")
    assert loaded.model is None
    assert loaded.schema == SCHEMA
    new = {n: v for n, v in table(20, seed=1).items() if n not in ("falls", "diet")}
    for kind in ("mean", "draws"):
        np.testing.assert_array_equal(loaded.predict(new, kind=kind), post.predict(new, kind=kind))
    loaded.save(tmp_path / "again.nc")
    again = tacit.Posterior.load(tmp_path / "again.nc")
    np.testing.assert_array_equal(again.predict(new), post.predict(new))
    with pytest.raises(InvalidArgument, match="age"):
        loaded.predict({"ward": ["A"]})


def test_a_recipe_is_public_facts_only():
    recipe = formula_recipe(adapt_model(tacit.glm("falls ~ age + ward", schema=SCHEMA), SCHEMA))
    assert GLMSpec.from_json(recipe.to_json()) == recipe
    assert recipe.formula == "falls ~ age + ward"
    assert recipe.predictors == ("age", "ward")
    assert formula_recipe(None) is None


def test_a_model_that_is_code_needs_its_plan(tmp_path):
    def model(age, falls=None):
        rate = numpyro.sample("rate", dist.LogNormal(0, 1))
        with numpyro.plate("rows", age.shape[0]):
            numpyro.sample("falls", dist.Poisson(rate), obs=falls)

    post = tacit.fit_without_privacy(model, table(50), schema=SCHEMA)
    post.save(tmp_path / "post.nc")
    loaded = tacit.Posterior.load(tmp_path / "post.nc")
    with pytest.raises(InvalidArgument, match=r"is code, so pass its plan: Posterior\.load"):
        loaded.predict(table(3))
    plan = tacit.plan(model, SCHEMA, budget=tacit.Budget(1, 1e-5))
    found = tacit.Posterior.load(tmp_path / "post.nc", plan=plan).predict(table(3))
    np.testing.assert_array_equal(found, post.predict(table(3)))


def test_coefficients_of_a_conjugate_model_have_the_names_of_their_columns():
    model = tacit.conjugate.LinearRegression(
        outcome="falls", predictors=["age", "dose"], noise_sd=3
    )
    post = tacit.fit_without_privacy(model, table(100), schema=SCHEMA)
    shown = str(post.summary())
    assert "coefficients[age]" in shown
    assert "coefficients[dose]" in shown
    assert "coefficients[0]" not in shown
