"""Forecasts: they read no data, and come true on tables drawn as they assume."""

import json
import warnings
from dataclasses import replace

import numpy as np
import pytest

import tacit
from tacit.api.simulate import SimulatedTables
from tacit.cli.main import main
from tacit.errors import BoundaryError, ForecastWarning, InvalidArgument
from tacit.inference.registry import default_method
from tacit.models.front_ends import adapt_model

SCHEMA = tacit.Schema({"x": tacit.Number(-1, 1), "z": tacit.Binary(), "y": tacit.Binary()})
FORMULA = "y ~ x + z"
BUDGETS = [tacit.Budget(each, 1e-5) for each in (0.1, 3.0)]


@pytest.fixture(scope="module")
def model():
    return tacit.glm(FORMULA, schema=SCHEMA)


SIZE = 1500
TRUTH = {"Intercept": -0.5, "x": 1.0, "z": 0.5}


@pytest.fixture(scope="module")
def forecast(model):
    scenario = tacit.Scenario(effects=TRUTH)
    return tacit.forecast(
        model, size=SIZE, budgets=BUDGETS, scenario=scenario, effect=1.0, repeats=6
    )


@pytest.fixture(scope="module")
def small(model):
    """A plan that cannot find anything."""
    return tacit.plan(model, budget=tacit.Budget(0.02, 1e-5), size=60)


def tables(model, size=1500, **scenario):
    adapted = adapt_model(model, SCHEMA)
    return SimulatedTables(
        model=adapted, schema=SCHEMA, scenario=tacit.Scenario(**scenario), size=size
    )


@pytest.mark.slow
def test_more_budget_narrows_intervals_down_to_those_without_privacy(forecast):
    little, much = forecast.at(0), forecast.at(1)
    for small, large in zip(little, much, strict=True):
        assert small.prior > small.width > large.width > 0.9 * large.without_privacy
        assert small.detectable > large.detectable
        assert small.chance <= large.chance


def test_a_fit_to_a_table_that_is_as_assumed_has_the_forecast_width(model, forecast):
    rng = np.random.default_rng(5)
    x, z = rng.uniform(-1, 1, SIZE), rng.integers(0, 2, SIZE)
    logit = TRUTH["Intercept"] + TRUTH["x"] * x + TRUTH["z"] * z
    y = (rng.random(SIZE) < 1 / (1 + np.exp(-logit))).astype(int)
    method = default_method(adapt_model(model, SCHEMA), SIZE, BUDGETS[1])
    plan = tacit.plan(model, budget=BUDGETS[1], method=method)
    found = tacit.fit(plan, {"x": x, "z": z, "y": y}, seed=1).summary()
    for line, said in zip(found.lines, forecast.at(1), strict=True):
        assert line.name == said.parameter
        assert 0.6 < (line.upper - line.lower) / said.width < 1.6


def test_effects_are_in_the_units_of_a_summary():
    """A column ten times as wide has a tenth of the coefficient, for the same model."""
    wide = SCHEMA.with_columns({"x": tacit.Number(-10, 10)})
    named = SCHEMA.with_columns({"x": tacit.Number(-10, 10, measured_in="metres")})
    for schema, step, unit in ((wide, 1, "per 1"), (named, 1, "per 1 metres")):
        adapted = adapt_model(tacit.glm("y ~ x + z", schema=schema), schema)
        scenario = tacit.Scenario(effects={"x": 0.1 * step})
        made = SimulatedTables(model=adapted, schema=schema, scenario=scenario, size=100)
        assert made.draw_parameters(2)[1][:, made.labels.index("x")] == pytest.approx([1, 1])
        assert made.factors[made.labels.index("x")] == pytest.approx(step / 10)
        assert made.units["x"] == unit


@pytest.mark.slow
def test_counts_vary_as_much_as_the_scenario_says():
    schema = tacit.Schema({"x": tacit.Number(-1, 1), "n": tacit.Count(200)})
    adapted = adapt_model(tacit.glm("n ~ x", schema=schema), schema)
    effects = {"x": 0.4}

    def drawn(outcome):
        scenario = tacit.Scenario(outcome=outcome, effects=effects)
        made = SimulatedTables(model=adapted, schema=schema, scenario=scenario, size=40_000)
        return np.asarray(made.draw_outcomes(1, made.draw_parameters(2)[0][0])["n"], float)

    plain, varied = drawn(3.0), drawn({"mean": 3.0, "sd": 4.5})
    assert plain.mean() == pytest.approx(3.0, rel=0.06)
    assert plain.std() == pytest.approx(np.sqrt(3.0 + (3 * 0.4) ** 2 / 3), rel=0.06)
    assert varied.mean() == pytest.approx(3.0, rel=0.1)
    assert varied.std() == pytest.approx(4.5, rel=0.1)


def test_what_is_said_follows_from_the_numbers(forecast):
    line = next(each for each in forecast.at(1) if each.parameter == "x")
    assert forecast.focus == "x"
    assert any(f"within ±{float(f'{line.width / 2:.2g}'):g}" in each for each in forecast.sentences)
    plain = json.loads(forecast.to_json())
    assert plain["budgets"][1]["parameters"][1]["width"] == line.width
    assert forecast.to_pandas().loc[("x", 3.0), "width"] == line.width
    text = str(forecast)
    assert "No data has been read and nothing charged." in text
    assert "contained the true value" in text


@pytest.mark.slow
def test_a_forecast_of_a_chain_says_how_many_draws_it_is_worth(model, forecast):
    chain = tacit.Barker(num_steps=400, ratio_bound=0.05)
    told = tacit.forecast(model, size=200, budgets=BUDGETS[1], method=chain, repeats=3)
    assert 1 < told.effective[0] < 200  # of 320 draws that follow one another
    assert f" {told.effective[0]:.2g} " in str(told).partition("effective draws")[2]
    assert json.loads(told.to_json())["budgets"][0]["effective_draws"] == told.effective[0]
    assert "effective draws" not in str(forecast)
    assert json.loads(forecast.to_json())["budgets"][0]["effective_draws"] is None


def test_a_hopeless_budget_is_called_so_and_a_good_one_is_not(small, forecast):
    assert "hopeless" in small.precision.warnings()[0]
    assert forecast.warnings(1) == ()


@pytest.mark.parametrize(("held", "included", "warned"), [(0.3, True, True), (0.3, False, False), (0.8, True, False)])  # fmt: skip
def test_intervals_that_seldom_hold_the_truth_are_warned_of(forecast, held, included, warned):
    lines = tuple(line._replace(coverage=held) for line in forecast.lines)
    told = replace(forecast, lines=lines, noise_included=(included, included))
    assert any("contained the true value" in each for each in told.warnings(1)) == warned
    assert forecast.noise_included == (True, True)


def test_columns_and_effects_are_as_the_scenario_says(model):
    made = tables(
        model,
        size=20_000,
        columns={"x": {"mean": 0.3, "sd": 0.1}, "z": 0.2},
        correlations={"x": {"z": 0.8}},
        effects={"x": 1.5},
        outcome=0.1,
    )
    vectors, truth = made.draw_parameters(3)
    assert truth[:, made.labels.index("x")] == pytest.approx(1.5, abs=1e-4)
    rows = made.rows(0, vectors[0])
    fields = {name: np.asarray(values)[:, 0] for name, values in rows._fields.items()}
    x, z = SCHEMA["x"], fields["z"]
    numbers = fields["x"].astype(float)
    assert numbers.mean() == pytest.approx(0.3, abs=0.01)
    assert numbers.std() == pytest.approx(0.1, abs=0.01)
    assert z.mean() == pytest.approx(0.2, abs=0.01)
    assert np.corrcoef(numbers, z)[0, 1] > 0.4
    assert fields["drawn y"].mean() == pytest.approx(0.1, abs=0.02)
    assert x.high == 1


def test_without_a_scenario_columns_are_uniform_and_levels_equally_frequent():
    schema = tacit.Schema(
        {"n": tacit.Count(3), "c": tacit.Category(["a", "b"], other="o"), "y": tacit.Number(0, 9)}
    )
    table = tacit.Scenario().draw_table(schema, ["n", "c", "y"], 30_000, np.random.default_rng(0))
    assert {*table["c"]} == {"a", "b", "o"}
    assert np.mean(table["c"] == "o") == pytest.approx(1 / 3, abs=0.02)
    assert np.quantile(table["y"], [0.25, 0.75]) == pytest.approx([2.25, 6.75], abs=0.2)
    assert {*table["n"]} == {0, 1, 2, 3}


BAD = {
    "a deviation of an outcome that is not a count": (
        {"outcome": {"mean": 0.3, "sd": 0.4}},
        "is for Poisson formulas",
    ),
    "half an outcome": ({"outcome": {"mean": 0.3}}, "must be a number"),
    "not a column": ({"columns": {"w": 0.5}}, "not a column of the model"),
    "not a chance": ({"columns": {"z": 1.5}}, "probability of yes"),
    "not a distribution": ({"columns": {"x": {"mean": 1}}}, "mean and sd"),
    "not a parameter": ({"effects": {"w": 1.0}}, "not a parameter"),
    "not a correlation": ({"correlations": {"x": {"z": 2.0}}}, "between -1 and 1"),
    "no people": ({"rows_per_person": 2}, "person column"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_scenario_that_does_not_fit_is_refused(model, case):
    scenario, message = BAD[case]
    with pytest.raises(InvalidArgument, match=message):
        tacit.forecast(
            model, size=100, budgets=BUDGETS[1], scenario=tacit.Scenario(**scenario), repeats=2
        )


WRONG = {
    "a number instead of a budget": ({"budgets": 1.0}, "tacit.Budget"),
    "no budget": ({"budgets": []}, "one epsilon or budget"),
    "the class of a method": ({"method": tacit.Scoring}, "or settings such as"),
    "a mapping instead of a scenario": ({"scenario": {"spread": 1}}, "tacit.Scenario"),
    "no size": ({"size": 0}, "size must be"),
    "one table": ({"repeats": 1}, "repeats must be"),
    "too many tables": ({"repeats": 10**6}, "repeats must be"),
    "no effect": ({"effect": 0.0}, "effect must not be zero"),
    "another parameter": ({"focus": "w"}, "focus must be one of"),
    "a single draw": ({"method": tacit.Statistics()}, "no forecast"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_arguments_are_refused_in_a_sentence(model, case):
    changes, message = WRONG[case]
    with pytest.raises(InvalidArgument, match=message):
        tacit.forecast(model, **({"size": 100, "budgets": BUDGETS[1]} | changes))


def test_a_model_that_cannot_draw_outcomes_is_refused():
    mute = tacit.Model(
        parameters={"m": tacit.models.Parameter()},
        log_prior=lambda p: -0.5 * p["m"] ** 2,
        log_likelihood=lambda p, row: -0.5 * (row["x"] - p["m"]) ** 2,
    )
    with pytest.raises(InvalidArgument, match="cannot draw"):
        tacit.forecast(mute, SCHEMA, size=100, budgets=BUDGETS[1])


def test_data_that_a_model_holds_are_refused():
    held = np.linspace(0, 1, 100)
    model = tacit.Model(
        parameters={"m": tacit.models.Parameter()},
        log_prior=lambda p: -0.5 * p["m"] ** 2,
        log_likelihood=lambda p, row: -0.5 * (row["x"] - p["m"]) ** 2,
        simulate=lambda _key, _p, row: {"x": row["x"] * 0 + held.mean()},
    )
    with pytest.raises(BoundaryError):
        tacit.forecast(model, SCHEMA, size=100, budgets=BUDGETS[1])
    with pytest.raises(BoundaryError):
        tacit.tune(model, SCHEMA, size=100, budget=BUDGETS[1])


def test_methods_that_read_columns_of_their_own_have_no_forecast():
    plan = tacit.plan(
        tacit.conjugate.Bernoulli("y"),
        SCHEMA,
        budget=BUDGETS[1],
        method=tacit.Statistics(),
        size=99,
    )
    assert plan.precision is None
    assert "tacit forecast" in plan.precision_line
    assert "Declared size: about 99 rows." in plan.details()


def test_the_statement_names_the_declared_size_as_public(small):
    table = {"x": np.zeros(40), "z": np.zeros(40, int), "y": np.zeros(40, int)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ForecastWarning)
        always = replace(small, method=replace(small.method, check_count=False))
        always = replace(always, mechanism=always.method.calibrate(small.model, small.budget))
        found = tacit.fit(always, table, seed=1)
    assert any("declared size" in each for each in found.privacy.public)
    assert set(found.expected) == {"Intercept", "x", "z"}


@pytest.mark.slow
def test_a_plan_with_a_large_size_looks_at_fewer_rows_in_each_step(model):
    large = tacit.plan(model, budget=BUDGETS[0], size=5_000_000)
    assert large.method.sampling_rate < tacit.Scoring().sampling_rate / 10
    assert large.precision is not None


def test_a_plan_with_a_size_has_settings_for_it_and_a_forecast(model, small):
    unknown = tacit.plan(model, budget=BUDGETS[0])
    assert "if there were about 20,000 rows" in unknown.precision_line
    assert unknown.warnings == ()
    assert "No size was declared" in " ".join(unknown.sentences())
    many = tacit.Scoring().for_size(model, 10**7, BUDGETS[0])
    assert many.sampling_rate < small.method.sampling_rate == unknown.method.sampling_rate == 1
    assert "Declared size: about 60 rows." in small.sentences()
    assert "hopeless" in small.warnings[0]


def test_a_coarse_forecast_agrees_with_fits_to_simulated_tables(model, forecast):
    """Within a factor of 1.5 if columns are as assumed; the other end of the range is wider."""
    scenario = tacit.Scenario(effects=TRUTH)
    plan = tacit.plan(model, budget=forecast.budgets[1], size=forecast.size, scenario=scenario)
    for line, fitted in zip(plan.precision.lines, forecast.at(1), strict=True):
        assert line.parameter == fitted.parameter
        assert 1 / 1.5 < fitted.width / line.spread < 1.5
        assert line.without_privacy <= line.spread <= line.concentrated <= line.prior
        assert line.prior == pytest.approx(fitted.prior, rel=0.1)


def test_a_plan_without_a_forecast_has_none(model):
    plan = tacit.plan(model, budget=BUDGETS[0], size=60, forecast=False)
    assert plan.precision is None
    assert plan.precision_line == ""
    assert not any("hopeless" in each for each in plan.warnings)


def test_a_fit_warns_before_anything_is_charged(small, tmp_path):
    ledger = tacit.Ledger.new(tmp_path / "ledger.db", total=BUDGETS[0], unit="row")
    table = {"x": np.zeros(60), "z": np.zeros(60, int), "y": np.zeros(60, int)}
    with warnings.catch_warnings():
        # A warning of this call, and of no line within Tacit.
        warnings.filterwarnings("error", category=ForecastWarning, module=__name__)
        with pytest.raises(ForecastWarning, match="hopeless"):
            tacit.fit(small, table, ledger=ledger)
    assert ledger.left == BUDGETS[0]


def test_rates_fall_with_the_size(model):
    adapted = adapt_model(model, SCHEMA)
    budget = tacit.Budget(1, 1e-5)
    chosen = [default_method(adapted, size, budget) for size in (200, 20_000, 10**6, 10**7)]
    rates = [each.sampling_rate for each in chosen]
    assert rates == sorted(rates, reverse=True)
    assert rates[0] == rates[1] == tacit.Scoring().sampling_rate
    assert rates[3] * 10**7 < 3 * rates[2] * 10**6
    assert all(
        each.batch_bound > 2 * each.sampling_rate * n
        for each, n in zip(chosen, (200, 20_000, 10**6, 10**7), strict=True)
    )


@pytest.mark.slow
def test_tune_finds_the_best_of_what_it_tries(model):
    good, bad = (tacit.Variational(num_steps=n, sampling_rate=1.0) for n in (300, 6))
    found = tacit.tune(model, size=400, budget=BUDGETS[1], methods=[bad, good], repeats=3)
    assert found.method == good
    assert [each.error for each in found.trials] == sorted(each.error for each in found.trials)
    assert "num_steps=6" in str(found)


QUICK = "--set num_steps=20 --set sampling_rate=1".split()


@pytest.fixture
def folder(tmp_path):
    SCHEMA.to_yaml(tmp_path / "schema.yaml")
    rows = "\n".join(f"{x},{z},{y}" for x, z, y in [(0.5, 1, 1), (-0.5, 0, 0)] * 20)
    (tmp_path / "data.csv").write_text(f"x,z,y\n{rows}\n")
    (tmp_path / "scenario.yaml").write_text("columns:\n  z: 0.3\neffects: {x: 1}\n")
    return tmp_path


def test_the_command_writes_a_page_and_json(folder, capsys):
    page = folder / "page.html"
    command = ["forecast", str(folder / "schema.yaml"), "--formula", FORMULA, "--size", "400"]
    command += ["--epsilon", "1,5", "--delta", "1e-5", "--repeats", "2", "--json"]
    command += ["--scenario", str(folder / "scenario.yaml"), "--out", str(page)]
    command += ["--method", "variational", *QUICK]
    assert main(command) == 0
    found = json.loads(capsys.readouterr().out)
    assert [each["epsilon"] for each in found["budgets"]] == [1, 5]
    assert "True values: x = 1." in found["assumptions"]
    html = page.read_text()
    assert "<script" not in html
    assert "No data was read" in html
    assert html.count('<polyline class="curve asked"') == 3
    assert html.count('<polyline class="curve reference"') == 3  # without privacy
    assert main([*command, "--epsilon", "1"]) == 0
    html = page.read_text()
    assert "<svg" not in html  # a chart of one budget would be a column of dots
    assert "no privacy" in html


def test_the_command_says_why_a_forecast_is_hopeless(folder, forecast, capsys, monkeypatch):
    lines = tuple(line._replace(coverage=0.3) for line in forecast.lines)
    told = replace(forecast, lines=lines)
    monkeypatch.setattr(tacit, "forecast", lambda *_, **__: told)
    command = ["forecast", str(folder / "schema.yaml"), "--formula", FORMULA, "--size", "400"]
    assert main([*command, "--epsilon", "1,5", "--delta", "1e-5"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("only 30% of the 90% intervals") == 2
    assert "spread below 1" in printed


def hopeless_command(folder):
    command = ["fit", str(folder / "data.csv"), "--schema", str(folder / "schema.yaml")]
    command += ["--formula", FORMULA, "--epsilon", "0.1", "--delta", "1e-5", "--size", "40"]
    command += ["--out", str(folder / "run"), "--seed", "1", *QUICK]
    return command


@pytest.mark.slow
def test_the_command_line_asks_before_it_spends_on_nothing(folder, capsys):
    assert main(hopeless_command(folder)) == 2
    told = capsys.readouterr()
    assert "Declared size: about 40 rows." in told.out
    assert "hopeless" in told.err
    assert "--yes" in told.err
    assert not (folder / "run").exists()


@pytest.mark.slow
def test_the_command_line_spends_on_nothing_if_told_to(folder):
    assert main([*hopeless_command(folder), "--yes"]) == 0
    assert "What was expected" in (folder / "run" / "report.html").read_text()


@pytest.mark.parametrize("text", ["0.3,x", "", "nan"])
def test_budgets_that_are_no_numbers_are_refused(folder, capsys, text):
    command = ["forecast", str(folder / "schema.yaml"), "--formula", FORMULA, "--size", "400"]
    assert main([*command, "--epsilon", text, "--delta", "1e-5"]) == 2
    assert "psilon" in capsys.readouterr().err


def test_a_scenario_that_is_not_there_is_not_called_unreadable_yaml(tmp_path):
    (tmp_path / "scenario.yaml").write_text("spread: 0.2\n")
    with pytest.raises(InvalidArgument, match=r"No such file .* Did you mean .*scenario\.yaml\?"):
        tacit.Scenario.from_yaml(tmp_path / "scenaro.yaml")
    (tmp_path / "other.yaml").write_text("{")
    with pytest.raises(InvalidArgument, match="not a readable YAML file"):
        tacit.Scenario.from_yaml(tmp_path / "other.yaml")
