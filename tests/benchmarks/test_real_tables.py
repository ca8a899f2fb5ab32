"""The benchmark of real tables scores what it says, on small tables that are made up here."""

import csv
import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import tacit

FOLDER = Path(__file__).parents[2] / "benchmarks"
BUDGET = tacit.Budget(1, 1e-5)


@pytest.fixture(scope="module")
def benchmark():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(FOLDER)
        import real_tables

        yield real_tables
    for name in ("real_tables", "baselines"):
        sys.modules.pop(name)


def write(path, columns):
    path.parent.mkdir(exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as opened:
        writer = csv.writer(opened)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))


@pytest.fixture(scope="module")
def folder(benchmark, tmp_path_factory):
    made, rng = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    low, high = np.transpose(benchmark.REGRESSION["airfoil"])
    values = rng.uniform(low[:, None], high[:, None], (6, 250))
    write(made / "regression" / "airfoil.csv", dict(zip([*"abcde", "y"], values, strict=True)))
    whole = {
        name: rng.integers(1, 90, 200)
        for name in ("age", "education-num", "hours-per-week", "capital-gain", "capital-loss")
    }
    whole |= {name: rng.choice([*each, "else"], 200) for name, each in benchmark.LEVELS.items()}
    whole["marital-status"] = whole.pop("marital")
    whole["sex"] = rng.choice(["Male", "Female"], 200)
    whole["income"] = rng.choice([">50K", "<=50K"], 200)
    write(made / "adult.csv", whole)
    return made


def problem(benchmark, folder, name):
    return benchmark.Problem(benchmark.sources(folder)[name])


@pytest.mark.parametrize("columns", [10, 28, 54])
def test_adult_has_as_many_coefficients_as_its_name_says(benchmark, folder, columns):
    made = problem(benchmark, folder, f"Adult, {columns} columns, 1,000")
    assert made.design(made.table).shape == (160, columns)
    assert np.linalg.norm(made.design(made.table), axis=1).max() <= made.longest


def test_predictions_are_those_of_the_posterior(benchmark, folder, monkeypatch):
    made = problem(benchmark, folder, "Adult, 10 columns, 1,000")
    post = tacit.fit_without_privacy(made.model, made.table)
    monkeypatch.setattr(benchmark, "DRAWS", post.num_draws)
    chance, truth = post.predict(made.held_out), made.held_out["income"] == ">50K"
    accuracy, density = made.score(*made.coefficients(post))
    assert accuracy == np.mean((chance > 0.5) == truth)
    assert density == pytest.approx(np.mean(np.log(np.where(truth, chance, 1 - chance))), abs=1e-4)


def test_densities_are_those_of_the_families(benchmark):
    at, scale, y = np.array([[-1.0, 0.3], [0.0, 2.0]]), np.array([0.7, 2.5]), np.array([[3.0], [0]])
    mean = np.exp(at)
    expected = {
        "gaussian": stats.norm.logpdf(y, at, scale),
        "poisson": stats.poisson.logpmf(y, mean),
        "negativebinomial": stats.nbinom.logpmf(y, scale, scale / (scale + mean)),
    }
    for family, value in expected.items():
        assert np.allclose(benchmark._PREDICT[family](at, y, scale)[1], value), family


def test_baselines_find_the_coefficients_of_many_rows_and_have_noise_for_few(benchmark):
    rng, truth = np.random.default_rng(0), np.array([0.2, -0.5, 0.1])
    x = np.column_stack([np.ones(200_000), rng.uniform(-1, 1, (200_000, 2))])
    y = x @ truth + rng.uniform(-0.2, 0.2, len(x))
    sign = (rng.random(len(x)) < 1 / (1 + np.exp(-x @ truth))).astype(float)
    baselines = benchmark.baselines

    def fits(size):
        part = x[:size], y[:size], BUDGET, rng
        yield baselines.adassp(*part, radius=np.sqrt(3))
        yield baselines.ssp(*part, radius=1.2, ridge=0.0)
        (found,) = baselines.descent(
            x[:size], sign[:size], BUDGET, rng, steps=100, clip=2.0, rates=[4.0]
        ).T
        yield found

    for few, many in zip(fits(100), fits(len(x)), strict=True):
        assert np.abs(many - truth).max() < 0.04
        assert np.abs(few - truth).max() > 0.1


def test_a_row_changes_what_baselines_release_by_what_their_noise_hides(benchmark):
    baselines, rng = benchmark.baselines, np.random.default_rng(1)
    x, y = np.vstack([rng.uniform(-1, 1, (20, 3)), [9, -9, 9]]), np.r_[rng.uniform(-1, 1, 20), -1]
    for radius in (0.5, 4.0):
        one, other = (
            baselines._sums(x[:n], y[:n], radius, 2.0, np.random.default_rng(3)) for n in (20, 21)
        )
        assert np.linalg.norm(np.triu(one[1] - other[1])) <= radius**2
        assert 0 < np.linalg.norm(one[2] - other[2]) <= radius
    one, other = (
        baselines.descent(
            x[:n], y[:n] > 0, BUDGET, np.random.default_rng(3), steps=1, clip=0.3, rates=[n]
        )
        for n in (20, 21)
    )
    assert np.linalg.norm(one - other) == pytest.approx(0.3, rel=1e-4)


@pytest.mark.slow
def test_a_run_has_all_lines_and_writes_them(benchmark, folder, tmp_path):
    written, plain = tmp_path / "table.md", tmp_path / "table.json"
    given = ["--data", str(folder), "--tables", "airfoil", "--repeats", "2"]
    lines = benchmark.main([*given, "--markdown", str(written), "--json", str(plain)])
    first, *others = lines
    assert (first.rows, first.coefficients) == (200, 7)
    assert 0 <= first.held <= 1
    assert first.width >= first.narrowest > 0
    assert [each.method for each in others] == ["default", "exact", "Variational", "AdaSSP", "SSP"]
    assert all(math.isfinite(each.error) and each.error > 0 for each in others)
    assert min(others, key=lambda each: each.error).error > 0.9 * others[1].error
    found = json.loads(plain.read_text())
    assert len(found["agreement"][0]["by_number"]["held"]) == 7
    assert len([line for line in written.read_text().splitlines() if line[:2] == "| "]) == 6 + 4


def test_a_refused_fit_is_counted_and_not_scored(benchmark, folder, monkeypatch):
    made = problem(benchmark, folder, "Airfoil, linear")

    def refuse(*_, **__):
        raise tacit.BudgetError("too few rows")

    monkeypatch.setattr(tacit, "fit", refuse)
    fits = benchmark.fitted(None, made.table, 3, 0)
    assert fits[0] == []
    assert fits[2] == ["too few rows"] * 3
    assert math.isnan(benchmark.prediction("t", "default", made, []).error)


@pytest.mark.parametrize("wrong", [["--repeats", "0"], ["--tables", "nothing"], ["--seed", "-1"]])
def test_wrong_options_are_refused(benchmark, wrong):
    with pytest.raises(SystemExit):
        benchmark.main(wrong)
