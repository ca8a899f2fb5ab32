"""Exploring as a user does it: one charge, what it shows, what it refuses, and the page and the command."""

import json
import re

import numpy as np
import pandas as pd
import pytest

import tacit
from tacit.accounting import PLD
from tacit.api.look import Estimate
from tacit.cli.main import main
from tacit.errors import BudgetError, Interrupted, InvalidArgument
from tacit.inference import method as method_module
from tacit.inference import tables as tables_module
from tacit.privacy.mechanisms import NoisySums

RNG = np.random.default_rng(0)
ROWS = 3000
WARD = RNG.choice(["a", "b", "c"], ROWS, p=[0.6, 0.39, 0.01])
TABLE = pd.DataFrame(
    {
        "age": RNG.normal(40 + 10 * (WARD == "b"), 12, ROWS),
        "ward": WARD,
        "ill": RNG.uniform(size=ROWS) < 0.2 + 0.3 * (WARD == "b"),
        "who": np.sort(RNG.integers(0, 1500, ROWS)),
    }
)
COLUMNS = {
    "age": tacit.Number(0, 100, measured_in="years"),
    "ward": tacit.Category(["a", "b", "c"]),
    "ill": tacit.Binary(),
}
SCHEMA = tacit.Schema(COLUMNS)
PEOPLE = tacit.Schema(COLUMNS, person="who", most_rows=4)
TABLES = ["age", ("ward", "ill"), ("ward", "age")]


@pytest.fixture(scope="module")
def look():
    return tacit.explore(TABLE, schema=SCHEMA, tables=TABLES, epsilon=1)


@pytest.fixture
def ledger(tmp_path):
    return tacit.Ledger.new(tmp_path / "l.db", total=tacit.Budget(1, 1e-5), unit="row")


def test_a_look_is_near_the_table(look):
    frame = look["ward", "ill"]
    exact = pd.crosstab(TABLE["ward"], TABLE["ill"]).to_numpy().ravel()
    shown = frame[(frame["ward"] != "missing") & (frame["ill"] != "missing")]
    assert np.abs(shown["count"].to_numpy() - exact).max() < 60
    assert list(frame.columns[-3:]) == ["share", "share_lower", "share_upper"]
    assert look["ill", "ward"]["count"].sum() == pytest.approx(look.total.value, abs=0.1)
    assert look.total.lower < ROWS < look.total.upper
    assert look.mean("age").value == pytest.approx(TABLE["age"].mean(), abs=0.5)
    by_ward = look.mean("age", by="ward")
    assert by_ward["value"][:2].to_numpy() == pytest.approx([40, 50], abs=2)
    assert look.mean("ill", by="ward")["value"][1] == pytest.approx(0.5, abs=0.06)
    medians = look.quantiles("age", [0.5], by="ward")
    assert medians["value"][:2].to_numpy() == pytest.approx([40, 50], abs=3)
    assert abs(look.size - ROWS) < 30


def test_people_count_once():
    """And with count="rows" as often as they have rows, with more noise."""
    first = TABLE[TABLE.groupby("who").cumcount() < 4]
    looks = {
        count: tacit.explore(TABLE, schema=PEOPLE, tables=["ward"], count=count, epsilon=2)
        for count in ("people", "rows")
    }
    people = TABLE["who"].nunique()
    exact = {"people": people, "rows": len(first)}
    for count, found in looks.items():
        assert found.counted == count
        assert found.privacy.unit == "person"
        assert found.total.value == pytest.approx(exact[count], abs=60)
        assert found.size == pytest.approx(people, abs=60)
        assert found.rows_per_person.value == pytest.approx(len(first) / people, abs=0.3)
    weights = 1 / first.groupby("who")["who"].transform("size")
    shares = looks["people"]["ward"]["share"][:3]
    assert shares.to_numpy() == pytest.approx(
        weights.groupby(first["ward"]).sum() / people, abs=0.04
    )
    half = [found["ward"].eval("upper - lower")[0] for found in looks.values()]
    assert half[1] > 3 * half[0]


def test_a_table_one_has_a_column_for_each_group():
    found = tacit.explore(TABLE, schema=SCHEMA, by="ward", epsilon=3)
    one = found.table_one()
    assert list(one.columns) == ["all", "ward: a", "ward: b", "ward: c", "ward: missing"]
    assert [*one.index] == [
        ("rows", ""),
        *(("age (years)", each) for each in ("mean", "median", "missing")),
        *(("ill", each) for each in ("0", "1", "missing")),
    ]
    ill = one.loc[("ill", "1")]
    for group, column in (("a", "ward: a"), ("b", "ward: b")):
        share = 100 * TABLE["ill"][TABLE["ward"] == group].mean()
        assert float(ill[column].partition("%")[0]) == pytest.approx(share, abs=4)
    alone = found.table_one(by="ill") if ("age", "ill") in found.release.parts else None
    assert alone is None
    with pytest.raises(InvalidArgument, match="pass by='ill' to explore"):
        tacit.explore(TABLE, schema=SCHEMA, tables=["age", "ill"], epsilon=1).table_one("ill")


def test_widths_before_the_charge_are_those_of_the_look(look):
    plan = tacit.Look.plan(SCHEMA, tables=TABLES, epsilon=1, size=ROWS)
    widths = {each.number: each.half_width for each in plan.widths}
    large = look["ward", "ill"].query("lower > 100").eval("upper - lower") / 2
    assert large.mean() == pytest.approx(widths["each count of ward by ill"], rel=0.1)
    total = (look.total.upper - look.total.lower) / 2
    assert total == pytest.approx(widths["number of rows"], rel=0.01)
    mean = (look.mean("age").upper - look.mean("age").lower) / 2
    assert mean == pytest.approx(
        widths["mean of age"], rel=0.2
    )  # but for the noise of its denominator
    assert "No data has been read" in str(plan)
    assert plan.to_dict()["size"] == ROWS
    assert plan.cost.epsilon <= 1


def test_a_look_survives_json(look, tmp_path):
    look.report(tmp_path / "page")
    for path in (tmp_path / "page", tmp_path / "page" / "look.json"):
        again = tacit.Look.load(path)
        assert str(again) == str(look)
        assert again.to_json() == look.to_json()
        assert again.privacy == look.privacy
    found = json.loads(look.to_json())
    assert found["total"]["lower"] < ROWS < found["total"]["upper"]
    for wrong in ({"release": {}}, {**found, "sites": []}):
        (tmp_path / "other.json").write_text(json.dumps(wrong))
        with pytest.raises(InvalidArgument, match="not the file of a look"):
            tacit.Look.load(tmp_path / "other.json")


def test_the_page_loads_nothing_and_shows_all_tables(look):
    page = look.to_html()
    assert "<script" not in page
    assert not re.search(r"(src|href)=\"?http", page)
    for words in ("Table 1", "ward by ill", "Made with Tacit", look.total.as_count()):
        assert words in page
    assert "90% interval" in str(look)
    assert "no ledger: nothing limits how often these data are used" in str(look)


def test_a_plot_has_a_chart_for_each_table(look, tmp_path):
    pytest.importorskip("matplotlib")
    figure = look.plot(tmp_path / "look.png")
    assert len([axes for axes in figure.axes if axes.patches]) == len(TABLES)
    assert (tmp_path / "look.png").stat().st_size > 1000


def test_a_scenario_is_what_was_released(look):
    scenario = look.scenario()
    ages = [float(each) for each in scenario.columns["age"]]
    assert np.median(ages) == pytest.approx(TABLE["age"].median(), abs=2)
    assert np.std(ages) == pytest.approx(TABLE["age"].std(), abs=4)
    assert scenario.columns["ward"]["b"] == pytest.approx(0.39, abs=0.03)
    assert scenario.columns["ill"] == pytest.approx(TABLE["ill"].mean(), abs=0.03)
    pairs = tacit.explore(TABLE, schema=SCHEMA, tables=[("age", "ill")], epsilon=5).scenario()
    assert pairs.correlations["age"]["ill"] > 0.05


@pytest.mark.slow
def test_a_scenario_feeds_a_forecast(look):
    scenario = look.scenario()
    forecast = tacit.forecast(
        "ill ~ age + ward", SCHEMA, size=look.size, epsilon=1, scenario=scenario, repeats=2
    )
    assert "age" in str(forecast)


def test_the_ledger_is_charged_before_rows_are_asked(ledger, monkeypatch):
    """For exactly what the gate executes."""
    seen, original = [], tables_module.TableRelease.run

    def run(release, gate):
        seen.append((gate.mechanism, [each.epsilon for each in ledger.charges]))
        return original(release, gate)

    monkeypatch.setattr(tables_module.TableRelease, "run", run)
    look = tacit.explore(
        TABLE, schema=SCHEMA, tables=TABLES, epsilon=0.4, ledger=ledger, label="first"
    )
    ((mechanism, charged),) = seen
    assert isinstance(mechanism, NoisySums)
    assert mechanism.noise_std == look.estimates.noise_std
    exact = PLD().epsilon(mechanism.event, 1e-6)
    assert charged == pytest.approx([exact], rel=1e-3)
    assert 0.39 < exact <= 0.4
    assert ledger.charges[0].label == "tables of age; ward by ill; ward by age; first"
    assert look.privacy.budget_left.epsilon == pytest.approx(0.6, abs=1e-3)
    with pytest.raises(BudgetError):
        tacit.explore(TABLE, schema=SCHEMA, epsilon=0.7, ledger=ledger)
    assert len(ledger.charges) == len(seen) == 1


def test_ctrl_c_leaves_the_charge(ledger, monkeypatch):
    def run(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(method_module, "run", run)
    with pytest.raises(Interrupted, match="counts as spent") as error:
        tacit.explore(TABLE, schema=SCHEMA, tables=["ill"], epsilon=0.4, ledger=ledger)
    assert len(ledger.charges) == 1
    assert "epsilon 0.4" in str(error.value)


def test_a_seed_makes_it_reproducible_and_not_private():
    found = [
        tacit.explore(TABLE, schema=SCHEMA, tables=["ill"], epsilon=1, seed=s) for s in (1, 1, 2)
    ]
    released = [each.estimates.released for each in found]
    assert (released[0] == released[1]).all()
    assert (released[0] != released[2]).all()
    assert not found[0].privacy.is_private
    assert "not private" in found[0].to_html()


HOSTILE = pd.DataFrame(
    {
        "age": ["nan", "inf", "-inf", "1e400", "abc", "", "-3", "250"] * 40,
        "ward": ["a", "zzz", "", "a\x00", "A", "b", "missing", "c"] * 40,
        "ill": ["0", "1", "2", "", "yes", "-1", "1e9", "nan"] * 40,
    }
)


def test_cells_that_cannot_be_read_are_counted_as_missing():
    found = tacit.explore(HOSTILE, schema=SCHEMA, tables=["age", ("ward", "ill")], epsilon=20)
    assert found.total.value == pytest.approx(320, abs=5)
    ages = found["age"]["count"].to_numpy()
    assert ages.sum() == pytest.approx(320, abs=5)
    encoded = SCHEMA.encode(HOSTILE, ["age", "ward"], keep_missing=True).columns
    assert ages[-1] == pytest.approx(np.isnan(encoded["age"]).sum(), abs=8)
    wards = found["ward"]["count"].to_numpy()
    assert wards[-1] == pytest.approx((encoded["ward"] < 0).sum(), abs=8)
    assert np.isfinite(wards).all()


def test_no_rows_at_all():
    found = tacit.explore(TABLE[:0], schema=SCHEMA, by="ward", epsilon=0.1)
    assert found.total.upper < 1000
    assert np.isfinite(found.mean("age")).all()
    assert found.to_html()
    assert found.scenario().columns


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"tables": ["agee"]}, "did you mean 'age'"),
        ({"tables": "age"}, r"tables must be a list"),
        ({"tables": []}, "one or more tables"),
        ({"tables": [("age", "age")]}, "several different"),
        ({"tables": [()]}, "several different"),
        ({"by": "sex"}, "by must be a column"),
        ({"bins": {"age": 1}}, "from 2 to 200"),
        ({"bins": {"age": [50, 40]}}, "increasing edges"),
        ({"bins": {"age": [np.nan]}}, "increasing edges"),
        ({"bins": {"ward": 3}}, "takes no bins"),
        ({"bins": {"sex": 3}}, "not a column of the tables"),
        ({"bins": [40]}, "bins must be a mapping"),
        ({"bins": {"age": 200}, "tables": [("age", "ward", "ill")]}, "fewer or smaller tables"),
        ({"count": "people"}, "name a person column"),
        ({"count": "units"}, "count must be"),
        ({"epsilon": None}, "epsilon"),
        ({"epsilon": -1}, "epsilon"),
        ({"budget": tacit.Budget(1, 1e-6)}, "epsilon"),
        ({"seed": -1}, "seed"),
        ({"schema": None}, "Pass schema="),
        ({"schema": "nowhere.yaml"}, "nowhere.yaml"),
        ({"data": TABLE.drop(columns="ill")}, "ill"),
        ({"data": "nowhere.csv"}, "nowhere.csv"),
    ],
)
def test_refusals_charge_nothing(settings, words, ledger):
    given = {"data": TABLE, "schema": SCHEMA, "epsilon": 0.5, "ledger": ledger, **settings}
    with pytest.raises((InvalidArgument, BudgetError), match=words):
        tacit.explore(given.pop("data"), **given)
    assert not ledger.charges


def test_questions_that_were_not_asked_are_refused(look):
    for ask, words in (
        (lambda: look["sex"], "was not requested"),
        (lambda: look["age", "ill"], "No table of age, ill"),
        (lambda: look.mean("ward"), "has levels"),
        (lambda: look.quantiles("ward"), "has levels"),
        (lambda: look.quantiles("age", [1.5]), "between 0 and 1"),
        (lambda: look.mean("age", by="ill"), "No table of age, ill"),
        (lambda: look.rows_per_person, "one row"),
    ):
        with pytest.raises(InvalidArgument, match=words):
            ask()


def test_estimates_have_the_digits_that_their_intervals_allow():
    assert str(Estimate(56.123, 55.18, 57.04)) == "56.1 (55.2 to 57.0)"
    assert str(Estimate(0.01234, 0.0121, 0.0125)) == "0.01234 (0.01210 to 0.01250)"
    assert Estimate(1234.5, 1200, 1270).as_count() == "1,234 (1,200 to 1,270)"
    assert Estimate(0.1234, 0.1, 0.15).as_percent() == "12% (10 to 15%)"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    TABLE.to_csv("t.csv", index=False)
    PEOPLE.to_yaml("s.yaml")
    assert main("ledger new l.db --epsilon 1 --delta 1e-5 --unit person".split()) == 0
    return tmp_path


EXPLORE = ["explore", "t.csv", "--schema", "s.yaml", "--epsilon", "0.3", "--ledger", "l.db"]


def test_the_command_prints_charges_and_writes_a_page(folder, capsys):
    assert main([*EXPLORE, "--dry-run", "--size", "1500"]) == 0
    said = capsys.readouterr().out
    assert "each count of ward" in said
    assert not (folder / "look").exists()
    assert not tacit.Ledger("l.db").charges
    assert main([*EXPLORE, "--by", "ward", "--bins", "age=30,60", "--note", "first"]) == 0
    said = capsys.readouterr().out
    assert "30 to 60" in said
    assert "epsilon 0.7, delta" in said
    (charge,) = tacit.Ledger("l.db").charges
    assert charge.label == "tables of age by ward; ward; ill by ward; in look; first"
    assert {each.name for each in (folder / "look").iterdir()} == {"look.html", "look.json"}
    assert main([*EXPLORE, "--json", "--table", "ward,ill", "--out", "two"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["tables"][0]["columns"] == ["ward", "ill"]
    assert main([*EXPLORE, "--json", "--dry-run"]) == 0
    assert json.loads(capsys.readouterr().out)["unit"] == "person"


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--table", "wrad"], "ward"),
        (["--bins", "age=x"], "--bins takes"),
        (["--out", "."], "not empty"),
        (["--epsilon", "3"], "left"),
        (["--adjacency", "replace"], "add-remove"),
    ],
)
def test_the_command_refuses_before_the_charge(folder, capsys, more, words):
    assert main([*EXPLORE, *more]) != 0
    assert words in capsys.readouterr().err
    assert not tacit.Ledger("l.db").charges
    assert not (folder / "look").exists()
