"""Models by formula, from end to end: fits, groups, people, names, files and refusals."""

import numpy as np
import pytest
from formulas import SCHEMA, glm, table
from numpyro import distributions as dist
from scipy.special import expit

import tacit
from tacit.errors import InvalidArgument

N = 6000
BRIEF = tacit.Variational(num_steps=5)  # where a fit is not what is looked at
RNG = np.random.default_rng(3)
DATA = table(N, seed=2)
STEPS = {"age": 1.0, "dose": -0.6, "sex": 0.5}
WARDS = {"a": 0.0, "b": 0.8, "c": -0.8, "other": 0.4}


def linear():
    return (
        STEPS["age"] * (DATA["age"] - 50) / 30
        + STEPS["dose"] * (DATA["dose"] - 3) / 2
        + STEPS["sex"] * (DATA["sex"] == "f")
        + np.array([WARDS[ward] for ward in DATA["ward"]])
    )


DATA["yes"] = (RNG.random(N) < expit(linear() - 0.3)).astype(int)
DATA["money"] = 450 + 80 * linear() + RNG.normal(0, 60, N)


def test_a_private_fit_recovers_coefficients_predicts_and_survives_a_file(tmp_path):
    model = glm("yes ~ age + dose + ward + sex", "bernoulli")
    plan = tacit.plan(model, budget=tacit.Budget(8, 1e-5))
    data = {name: DATA[name] for name in ("age", "dose", "ward", "sex", "yes")}  # and no others
    post = tacit.fit(plan, data, seed=4)
    mean = {name: draws.mean(axis=0) for name, draws in post.model_draws.items()}
    # Four standard errors of the data, of about 0.06, and the noise of a generous budget.
    for name, step in STEPS.items():
        assert abs(mean[name] - step) < 0.3
    assert np.abs(mean["ward"] - [0.8, -0.8, 0.4]).max() < 0.4
    names = [line.name for line in post.summary().lines]
    assert names == ["Intercept", "age", "dose", "ward[b]", "ward[c]", "ward[other]", "sex"]
    chances = post.predict({name: data[name][:500] for name in ("age", "dose", "ward", "sex")})
    assert np.abs(chances - expit(linear() - 0.3)[:500]).mean() < 0.05
    post.save(tmp_path / "post.nc")
    again = tacit.Posterior.load(tmp_path / "post.nc", plan=plan)
    assert [line.name for line in again.summary().lines] == names
    assert again == post
    tree = post.to_datatree()["posterior"]
    assert tree["ward"].sel(ward_dim_0="other").shape == (1, post.num_draws)


@pytest.mark.slow
def test_gaussian_parameters_and_predictions_are_in_the_outcomes_unit():
    model = glm("money ~ age + dose + ward + sex", "gaussian")
    post = tacit.fit_without_privacy(model, DATA)
    mean = post.mean()
    assert abs(mean["age"] - 80) < 10
    assert abs(mean["Intercept"] - 450) < 12
    assert abs(np.log(mean["sigma"] / 60)) < 0.15
    assert post.in_units().mean()["age"] == pytest.approx(mean["age"] / 30)
    assert np.abs(post.predict(DATA) - (450 + 80 * linear())).mean() < 12


@pytest.mark.slow
def test_group_effects_are_shrunk_and_named():
    model = glm("money ~ age + (age | ward) + (1 | ward:site)", "gaussian")
    shift = np.array([WARDS[ward] for ward in DATA["ward"]])
    age = (DATA["age"] - 50) / 30
    money = 450 + 100 * shift + 50 * age * (1 + shift) + RNG.normal(0, 40, N)
    # Not by the mode: effects times their spread are far from normal.
    post = tacit.fit_without_privacy(model, {**DATA, "money": money}, method=tacit.Variational())
    names = [line.name for line in post.summary().lines]
    assert {"1|ward[other]", "age|ward[b]", "1|ward:site[a, x]", "1|ward_sd"} <= set(names)
    mean = post.mean()
    true = np.array(list(WARDS.values()))
    # A ward's own effect and those of its sites add up; which is which the data hardly say.
    shifts = mean["1|ward"] + mean["1|ward:site"].reshape(4, 2).mean(axis=1)
    for found, scale in ((shifts, 100), (mean["age|ward"], 50)):
        assert np.abs(found - found.mean() - scale * (true - true.mean())).max() < 15


@pytest.mark.slow
def test_effects_of_people_are_integrated_out():
    schema = tacit.Schema(
        {"age": tacit.Number(20, 80), "yes": tacit.Binary()}, person="patient", most_rows=4
    )
    people = 1500
    patient = np.repeat(np.arange(people), 4)
    rng = np.random.default_rng(1)
    age = rng.uniform(20, 80, 4 * people)
    effects = rng.normal(0, 1.5, people)[patient]
    yes = rng.random(4 * people) < expit(0.5 + (age - 50) / 30 + effects)
    model = tacit.glm("yes ~ age + (1 | patient)", family="bernoulli", schema=schema)
    data = {"age": age, "yes": yes.astype(int), "patient": patient}
    post = tacit.fit_without_privacy(model, data)
    assert list(post.draws) == ["Intercept", "age", "1|patient_sd"]
    mean = post.mean()
    # Without the effects the slope would come out near 0.72.
    assert abs(mean["age"] - 1.0) < 0.2
    assert abs(mean["1|patient_sd"] - 1.5) < 0.35


@pytest.mark.slow
def test_priors_are_replaced_by_name():
    tight = glm(
        "yes ~ age + C(ward) + (1 | site)",
        "bernoulli",
        priors={
            "age": ("normal", 3, 0.01),
            "ward": dist.Laplace(0, 1),
            "1|site_sd": ("gamma", 2, 1),
        },
    )
    post = tacit.fit_without_privacy(tight, {name: values[:200] for name, values in DATA.items()})
    assert abs(post.mean()["age"] - 3) < 0.3
    assert "Normal(3, 0.01)" in str(tight)
    assert "Gamma(2, 1)" in str(tight)


def test_a_model_has_its_schema_with_it():
    model = glm("yes ~ age", "bernoulli")
    other = tacit.Schema({"age": tacit.Number(0, 99), "yes": tacit.Binary()})
    with pytest.raises(InvalidArgument, match="another schema"):
        tacit.plan(model, other, budget=tacit.Budget(1, 1e-5))
    plan = tacit.plan(model, SCHEMA, budget=tacit.Budget(1, 1e-5), method=BRIEF)
    assert plan.schema == SCHEMA
    assert plan.model.columns == ("age", "yes")


def test_one_level_of_a_category_is_a_yes_or_no():
    model = glm("ward['b'] ~ age", "bernoulli")
    read = model.function.outcome.read({"ward": np.array([0, 1, 2, 3])})
    assert read.tolist() == [0, 1, 0, 0]


@pytest.mark.parametrize(
    ("formula", "family", "settings", "says"),
    [
        ("yes", "bernoulli", {}, "text such as"),
        (3, "bernoulli", {}, "text such as"),
        ("", "bernoulli", {}, "text such as"),
        ("yes ~", "bernoulli", {}, "cannot be read: it ends early"),
        ("~ age", "bernoulli", {}, "cannot be read"),
        ("yes ~ age +", "bernoulli", {}, "cannot be read"),
        ("yes ~ (age", "bernoulli", {}, "cannot be read: it ends early"),
        ("yes ~ age ~ dose", "bernoulli", {}, "more than one '~'"),
        ("yes ~ age $ dose", "bernoulli", {}, "unexpected character"),
        ("yes ~ `age", "bernoulli", {}, "cannot be read"),
        ("yes ~ age == 3", "bernoulli", {}, "cannot be read from '==' on"),
        ("yes ~ age if dose", "bernoulli", {}, "cannot be read from 'if' on"),
        ("yes ~ age ** 2", "bernoulli", {}, "write I\\(a\\*\\*2\\)"),
        ("yes ~ age ** 2 + dose", "bernoulli", {}, "would change nothing"),
        ("yes ~ aeg", "bernoulli", {}, "did you mean 'age'"),
        ("yse ~ age", "bernoulli", {}, "did you mean 'yes'"),
        ("yes ~ education", "bernoulli", {}, "did you mean 'education-num'"),
        ("yes ~ age + 3", "bernoulli", {}, "'3'"),
        ("yes ~ curve", "bernoulli", {}, "an array in each row"),
        ("yes ~ only", "bernoulli", {}, "single level"),
        ("yes ~ 0", "bernoulli", {}, "nothing to estimate"),
        ("yes ~ age + yes", "bernoulli", {}, "both sides"),
        ("yes ~ age + (1 | yes)", "bernoulli", {}, "both sides"),
        ("yes ~ scale(age)", "bernoulli", {}, "already standardised by their bounds"),
        ("yes ~ center(age)", "bernoulli", {}, "mean of the data"),
        ("yes ~ C(age)", "bernoulli", {}, "declared as a category"),
        ("yes ~ C(ward, Poly)", "bernoulli", {}, "not a known coding"),
        ("yes ~ C(ward, Treatment('z'))", "bernoulli", {}, "its levels are a, b, c, other"),
        ("yes ~ ward + C(ward)", "bernoulli", {}, "two forms"),
        ("yes ~ I(ward + 1)", "bernoulli", {}, "cannot be used in a calculation"),
        ("yes ~ np.log(visits)", "bernoulli", {}, "infinite or too large"),
        ("yes ~ I(age / visits)", "bernoulli", {}, "may divide by zero"),
        ("yes ~ np.exp(np.exp(age))", "bernoulli", {}, "infinite or too large"),
        ("yes ~ I(visits ** 0.5)", "bernoulli", {}, "whole exponent"),
        ("yes ~ I(age > 3)", "bernoulli", {}, "cannot compare"),
        ("yes ~ I(3)", "bernoulli", {}, "same for all rows"),
        ("yes ~ rank(age)", "bernoulli", {}, "cannot compute 'rank\\(age\\)'"),
        ("yes ~ bs(age)", "bernoulli", {}, "needs df"),
        ("yes ~ bs(age, df=2)", "bernoulli", {}, "whole number from 3 to 50"),
        ("yes ~ bs(age, df=dose)", "bernoulli", {}, "must be a number"),
        ("yes ~ bs(age, knots=c(10, 50))", "bernoulli", {}, "between the bounds, 20 and 80"),
        ("yes ~ bs(age, df=4, lower_bound=3)", "bernoulli", {}, "takes no other arguments"),
        ("yes ~ bs(ward, df=4)", "bernoulli", {}, "cannot be used in a calculation"),
        ("yes ~ poly(age)", "bernoulli", {}, "needs a degree"),
        ("yes ~ poly(age, 0)", "bernoulli", {}, "whole number from 1"),
        ("yes ~ (1 | age)", "bernoulli", {}, "declared as a category"),
        ("yes ~ (1 | wrd)", "bernoulli", {}, "did you mean 'ward'"),
        ("yes ~ offset(age, dose)", "bernoulli", {}, "of one column"),
        ("yes ~ age:offset(dose)", "bernoulli", {}, "of one column"),
        ("yes ~ age", "bernouli", {}, "family must be one of bernoulli"),
        ("yes ~ age", "bernoulli", {"link": "log"}, "must be one of logit, probit, cloglog"),
        ("ward ~ age", "bernoulli", {}, "ward\\['a'\\]"),
        ("ward['z'] ~ age", "bernoulli", {}, "no level 'z'"),
        ("ward['a'] ~ age", "categorical", {}, "needs the bernoulli family"),
        ("money ~ age", "bernoulli", {}, "declared as a number from 100 to 900"),
        ("money ~ age", "poisson", {}, "needs a Count"),
        ("below ~ age", "poisson", {}, "from -5"),
        ("yes ~ age", "gaussian", {}, "needs a Number"),
        ("age ~ dose", "categorical", {}, "needs a Category"),
        ("dose ~ age", "negativebinomial", {}, "needs a Count"),
        ("visits ~ age", "gamma", {}, "needs a Number"),
        ("np.log(money) ~ age", "gaussian", {}, "not a calculation"),
        ("np.log(money) ~ age", None, {}, "not a calculation"),
        ("count ~ age", "binomial", {}, r"p\(successes, trials\)"),
        ("p(count, age) ~ dose", "binomial", {}, "must be a Count"),
        ("p(age, trials) ~ dose", "binomial", {}, "successes"),
        ("yes ~ age", "bernoulli", {"priors": {"agee": ("normal", 0, 1)}}, "did you mean 'age'"),
        ("yes ~ age", "bernoulli", {"priors": {"age": ("norml", 0, 1)}}, "must be one of"),
        ("yes ~ age", "bernoulli", {"priors": {"age": ("normal", 0)}}, "location, scale"),
        ("yes ~ age", "bernoulli", {"priors": {"age": ("normal", 0, -1)}}, "out of range"),
        ("yes ~ age", "bernoulli", {"priors": {"age": ("halfnormal", 1)}}, "all real numbers"),
        ("yes ~ age", "bernoulli", {"priors": {"age": 3}}, "must be a tuple"),
        ("yes ~ age", "bernoulli", {"priors": [3]}, "must be a mapping"),
        (
            "money ~ age",
            "gaussian",
            {"priors": {"sigma": ("normal", 0, 1)}},
            "the positive numbers",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(formula, family, settings, says):
    with pytest.raises(InvalidArgument, match=says) as refused:
        glm(formula, family, **settings)
    text = str(refused.value)
    assert text.endswith(".")
    assert "\n" not in text


def test_outcomes_of_gamma_must_be_above_zero():
    schema = tacit.Schema({"age": tacit.Number(0, 9), "cost": tacit.Number(0, 100)})
    with pytest.raises(InvalidArgument, match="declare a lower bound above zero"):
        tacit.glm("cost ~ age", family="gamma", schema=schema)


def test_a_schema_is_needed():
    with pytest.raises(InvalidArgument, match="needs schema="):
        tacit.glm("yes ~ age", family="bernoulli", schema={"age": 3})


def test_labels_that_do_not_fit_are_refused_before_anything_is_paid():
    import numpyro

    def model(age, yes=None):
        b = numpyro.sample("b", dist.Normal(0, 1).expand([2]))
        with numpyro.plate("rows", age.shape[0]):
            numpyro.sample("yes", dist.Bernoulli(logits=b[0] + b[1] * age), obs=yes)

    for labels in ({"b": [["one"]]}, {"b": ["one", "two"]}, {"c": [["one", "two"]]}):
        described = tacit.models.NumPyro(model, labels=labels)
        with pytest.raises(InvalidArgument, match="labels must have"):
            tacit.plan(described, SCHEMA, budget=tacit.Budget(1, 1e-5))


def test_names_of_columns_that_parameters_have():
    schema = tacit.Schema({n: tacit.Number(0.1, 1) for n in ("sigma", "alpha", "x", "Intercept")})
    for outcome, family in (("sigma", "gaussian"), ("alpha", "gamma")):
        model = tacit.glm(f"{outcome} ~ x", family=family, schema=schema)
        plan = tacit.plan(model, budget=tacit.Budget(1, 1e-5), method=BRIEF)
        assert set(plan.model.names) == {"Intercept", "x", f"{outcome}_{outcome}"}
    with pytest.raises(InvalidArgument, match="rename the column"):
        tacit.glm("x ~ Intercept", schema=schema)
    tacit.glm("x ~ 0 + Intercept", schema=schema)
