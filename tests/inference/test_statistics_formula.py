"""Linear regressions by formula from one noisy sum: sums, posterior, coverage, refusals, and the command line."""

import jax
import numpy as np
import pytest
import yaml

import tacit
from tacit.cli.main import main
from tacit.errors import InvalidArgument
from tacit.inference.formula_statistics import SliceChains, design_draws
from tacit.models.glm_statistics import linear_statistics

SCHEMA = tacit.Schema(
    {
        "age": tacit.Number(18, 98),
        "bmi": tacit.Number(10, 60),
        "ward": tacit.Category(["A", "B", "C"]),
        "sex": tacit.Binary(),
        "y": tacit.Number(0, 200),
    }
)
BUDGET = tacit.Budget(2, 1e-5)


def table(size, seed=0):
    rng = np.random.default_rng(seed)
    made = {
        "age": rng.uniform(18, 98, size),
        "bmi": rng.uniform(10, 60, size),
        "ward": rng.choice(["A", "B", "C"], size),
        "sex": rng.integers(0, 2, size),
    }
    mean = 90 + 0.4 * (made["age"] - 58) + 5.0 * (made["ward"] == "B") - 9 * made["sex"]
    return made | {"y": np.clip(mean + 12 * rng.standard_normal(size), 0, 200)}


def sums_of(formula, **given):
    model = tacit.glm(formula, schema=SCHEMA, **given)
    return linear_statistics(tacit.plan(model, budget=BUDGET, method=tacit.Statistics()).model)


@pytest.fixture(scope="module")
def plan():
    model = tacit.glm("y ~ age + ward + sex", schema=SCHEMA)
    return tacit.plan(model, budget=BUDGET, method=tacit.Statistics())


@pytest.mark.parametrize(
    "formula",
    [
        "y ~ age + bmi + ward + sex",
        "y ~ C(ward, Sum) + poly(age, 3)",
        pytest.param("y ~ bs(age, df=5) + age:ward + sex:ward", marks=pytest.mark.slow),
    ],
)
def test_statistics_are_products_within_their_bound(formula):
    sums, rows = sums_of(formula), table(200)
    rows["ward"] = np.searchsorted(["A", "B", "C"], rows["ward"])
    rows = {name: np.asarray(rows[name], np.float32) for name in sums.function.columns}
    every = np.asarray(jax.vmap(lambda row: sums.statistic(row, ()))(rows))
    assert every.shape == (200, sums.statistic_size)
    assert np.linalg.norm(every, axis=1).max() <= sums.statistic_norm_bound(2) * (1 + 1e-6)
    design = np.column_stack(
        [np.ones(200), *(t.read(rows) / t.block.max_norm for t in sums.function.terms)]
    )
    whole = np.append(every.sum(axis=0), 0.0)[sums.places[:-1, :-1]]
    np.testing.assert_allclose(whole, design.T @ design, atol=1e-2)


@pytest.mark.slow
def test_exact_sums_give_the_exact_posterior(plan):
    rows = table(3000)
    found = tacit.fit_without_privacy(plan, rows, method=tacit.Statistics())
    exact = tacit.fit_without_privacy(plan, rows)  # Newton's method on all rows
    for name, mean in exact.mean().items():
        sd = exact.sd()[name]
        np.testing.assert_allclose(found.mean()[name], mean, atol=0.2 * np.max(sd), err_msg=name)
        np.testing.assert_allclose(found.sd()[name], sd, rtol=0.15, err_msg=name)


@pytest.mark.slow
def test_intervals_cover_although_noise_is_large():
    """Sums of the design with noise that is a multiple of what rows vary by."""
    sums, held, scale = sums_of("y ~ age + bmi"), [], 20.0
    for i in range(40):
        rng = np.random.default_rng([5, i])
        x = np.column_stack([np.ones(600), rng.uniform(-1, 1, (600, 2))])
        weights, spread = 0.4 * rng.standard_normal(3), rng.uniform(0.1, 0.4)
        v = np.column_stack([x, x @ weights + spread * rng.standard_normal(600)])
        released = (v.T @ v)[np.triu_indices(4)]
        noisy = released + scale * rng.standard_normal(len(released))
        drawn, _ = design_draws(sums, noisy, scale, jax.random.key(i), SliceChains(2, 40, 150, 10))
        low, high = np.quantile(drawn, [0.05, 0.95], axis=0)
        held.append((low <= weights) & (weights <= high))
    assert 0.8 < np.mean(held) < 0.98  # of 120 intervals that should hold 90%


def test_a_private_fit_has_names_units_and_chains(plan, tmp_path):
    post = tacit.fit(plan, table(4000), seed=1)
    assert post.chains == 4
    assert post.intervals == "noise included"
    assert list(post.draws) == ["Intercept", "age", "ward", "sex", "sigma"]
    low, high = post.in_units().interval()["sex"]
    assert low < -9 < high
    assert max(np.max(each) for each in post.r_hats().values()) < 1.05
    post.save(tmp_path / "post.nc")
    again = tacit.Posterior.load(tmp_path / "post.nc")
    assert again == post
    assert again.chains == 4
    assert again.predict({name: value[:2] for name, value in table(2).items()}).shape == (2,)
    assert "sigma HalfNormal(50)" in plan.details()


def test_what_statistics_cannot_fit_is_refused():
    method = tacit.Statistics()
    wrong = {
        "y ~ 0 + ward": {},
        "y ~ age + (1|ward)": {},
        "y ~ age": {"priors": {"age": ("studentt", 3, 0, 10)}},
        "sex ~ age": {},
    }
    for formula, given in wrong.items():
        with pytest.raises(InvalidArgument, match=r"tacit\.Statistics"):
            tacit.plan(tacit.glm(formula, schema=SCHEMA, **given), budget=BUDGET, method=method)
    laplace, model = tacit.Statistics(noise="laplace"), tacit.glm("y ~ age", schema=SCHEMA)
    with pytest.raises(InvalidArgument, match="gaussian"):
        tacit.plan(model, budget=BUDGET, method=laplace)
    fixed = tacit.Budget(2, 1e-5, adjacency="replace")
    with pytest.raises(InvalidArgument, match="leave out size"):
        tacit.plan(model, budget=fixed, method=tacit.Statistics(size=500))


@pytest.mark.slow
def test_the_command_line_fits_by_statistics(tmp_path, capsys):
    rows = table(500)
    lines = [",".join(rows), *(",".join(map(str, row)) for row in zip(*rows.values(), strict=True))]
    (tmp_path / "data.csv").write_text("\n".join(lines))
    SCHEMA.to_yaml(tmp_path / "schema.yaml")
    words = ["fit", str(tmp_path / "data.csv"), "--schema", str(tmp_path / "schema.yaml")]
    words += ["--epsilon", "2", "--delta", "1e-5", "--formula", "y ~ age + sex"]
    words += ["--method", "statistics", "--set", "num_draws=200", "--out", str(tmp_path / "run")]
    assert main([*words, "--seed", "1"]) == 0
    assert "age, per 1" in capsys.readouterr().out
    settings = yaml.safe_load((tmp_path / "run" / "settings.yaml").read_text())
    assert settings["method"] == "statistics"
