"""Effects on the outcome's scale, and one number for each parameter wherever it is shown."""

import jax
import numpy as np
import pytest

import tacit
from tacit.results import effects, predictive

ROWS = 400


@pytest.fixture(scope="module")
def schema():
    return tacit.Schema(
        {
            "age": tacit.Number(18, 98, measured_in="years"),
            "dose": tacit.Number(0, 50, measured_in="mg"),
            "ward": tacit.Category(["medical", "surgical", "geriatric"]),
            "site": tacit.Category(["a", "b", "c"]),
            "ill": tacit.Binary(),
            "visits": tacit.Count(30),
            "pressure": tacit.Number(80, 220),
            "share": tacit.Number(0, 1),
            "stay": tacit.Number(0.5, 60),
        }
    )


@pytest.fixture(scope="module")
def table(schema):
    rng = np.random.default_rng(1)
    found = {
        "age": rng.uniform(18, 98, ROWS),
        "dose": rng.uniform(0, 50, ROWS),
        "ward": rng.choice(["medical", "surgical", "geriatric"], ROWS),
        "site": rng.choice(["a", "b", "c"], ROWS),
    }
    risk = 1 / (1 + np.exp(-(found["age"] - 58) / 20))
    return found | {"ill": (rng.random(ROWS) < risk).astype(int)}


@pytest.fixture(scope="module")
def post(schema, table, tmp_path_factory):
    model = tacit.glm("ill ~ age + dose + ward + (1|site)", schema=schema)
    path = tmp_path_factory.mktemp("effects") / "posterior.nc"
    tacit.fit_without_privacy(model, table).save(path)
    return tacit.Posterior.load(path)


def test_one_name_has_one_number(post):
    az = pytest.importorskip("arviz")
    shown = {line.name: line.mean for line in post.summary().lines}
    tree = az.summary(post.to_datatree(), kind="stats", round_to="none")
    for name, mean in shown.items():
        assert float(tree.loc[name, "mean"]) == pytest.approx(mean, rel=1e-4)
    assert float(post.draws["age"].mean()) == pytest.approx(shown["age"])
    assert float(post.mean()["age"]) == pytest.approx(shown["age"])
    assert float(post.in_units().draws["age"].mean()) == pytest.approx(shown["age"])
    # The model's own unit is half of 18 to 98; the summary's is ten years.
    assert float(np.mean(post.model_draws["age"])) == pytest.approx(4 * shown["age"], rel=1e-5)


FORMULAS = [
    ("ill ~ age * ward + (age|site)", None, None),
    ("ill ~ bs(age, df=5) + poly(dose, 2)", None, "probit"),
    ("ill ~ np.sqrt(dose) + I(age**2)", None, "cloglog"),
    ("p(visits, 30) ~ age", None, None),
    ("visits ~ age + offset(np.log(stay))", None, None),
    ("visits ~ age", "negativebinomial", None),
    ("visits ~ age", "zero_inflated_poisson", None),
    ("pressure ~ age + C(ward, Sum)", None, None),
    ("stay ~ age", "gamma", None),
    ("stay ~ age", "weibull", None),
    ("share ~ dose", "beta", None),
    ("ward ~ age + (1|site)", "categorical", None),
    ("ward ~ age", "ordinal", "logit"),
    ("ward ~ age", "ordinal", "probit"),
]


@pytest.mark.parametrize(("formula", "family", "link"), FORMULAS)
def test_means_in_numpy_agree_with_those_of_the_model(schema, formula, family, link):
    """Draws from the prior, and rows over the bounds: the same means as the NumPyro model has."""
    made = tacit.glm(formula, family=family, link=link, schema=schema)
    model = tacit.models.front_ends.adapt_model(made, schema)
    spec = predictive.formula_recipe(model)
    means = effects.FormulaMeans.build(spec, schema)
    names = means.spec.predictors
    columns = schema.dummy_rows(4, names)
    vectors = np.random.default_rng(0).normal(0, 0.3, (3, model.dimension))
    draws = jax.vmap(model.constrain)(vectors.astype(np.float32))
    ours = means.means({name: np.asarray(each) for name, each in draws.items()}, columns)
    rows = {n: np.broadcast_to(v, (4, *np.shape(v))) for n, v in model.dummy_row.items()} | columns
    rows = {name: rows[name] for name in model.columns}

    def mean(params, row):
        (found,) = model.predict(jax.random.key(0), params, row, model.constants).values()
        return found.mean

    theirs = jax.vmap(lambda p: jax.vmap(lambda r: mean(p, r))(rows))(draws)
    assert np.allclose(ours, theirs, rtol=2e-4, atol=1e-5)


def test_predictions_are_at_declared_values(post):
    found = post.predictions({"age": [30, 60], "ward": "all"})
    assert len(found) == 6
    assert list(found.columns[-3:]) == ["mean", "5%", "95%"]
    assert ((found["5%"] < found["mean"]) & (found["mean"] < found["95%"])).all()
    rows = {name: found[name].tolist() for name in ("age", "dose", "ward", "site")}
    # The JAX model, with other code and in single precision.
    draws = predictive.predict_outcomes(post, rows, "probit", 0)["ill"]
    assert np.allclose(draws, found["mean"], atol=0.02)
    with pytest.raises(tacit.errors.InvalidArgument, match="outside the declared bounds"):
        post.predictions({"age": 120})
    with pytest.raises(tacit.errors.InvalidArgument, match="not a level"):
        post.predictions({"ward": "dental"})


def test_comparisons_and_slopes_agree_with_predictions(post):
    ends = post.predictions({"age": [58, 68]})["mean"].to_numpy()
    step = post.comparisons("age")
    assert step["mean"].item() == pytest.approx(ends[1] - ends[0], abs=1e-9)
    assert post.comparisons("ward")["ward"].tolist() == [
        "surgical against medical",
        "geriatric against medical",
    ]
    same = post.comparisons("ward", by="ratio", values=("medical", "medical"))
    assert same["mean"].item() == pytest.approx(1.0)
    near = post.predictions({"age": [57.5, 58.5]})["mean"].to_numpy()
    assert post.slopes("age")["mean"].item() == pytest.approx(near[1] - near[0], rel=1e-3)
    with pytest.raises(tacit.errors.InvalidArgument, match="no slope"):
        post.slopes("ward")


def test_probabilities_of_statements(post):
    age = post.draws["age"]
    assert post.probability("age > 0") == np.mean(age > 0)
    second = post.draws["ward"][:, 1]
    assert post.probability("ward[geriatric] > ward[surgical]") == np.mean(
        second > post.draws["ward"][:, 0]
    )
    assert post.probability("not (exp(age) < 1.2) and 0 < age") == np.mean(
        (np.exp(age) >= 1.2) & (age > 0)
    )
    for wrong in ("__import__('os')", "age", "unknown > 0", "age.real > 0", "1 < 2", "age >"):
        with pytest.raises(tacit.errors.InvalidArgument):
            post.probability(wrong)
