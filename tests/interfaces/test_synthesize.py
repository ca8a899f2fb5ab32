import json

import numpy as np
import pandas as pd
import pytest

import tacit
from tacit.cli.main import main
from tacit.errors import BudgetError, InvalidArgument

SCHEMA = tacit.Schema(
    {
        "ward": tacit.Category(["a", "b", "c"]),
        "visits": tacit.Count(19),
        "ill": tacit.Binary(),
        "age": tacit.Number(20, 80),
    }
)
SETTINGS = {
    "tables": [("ward", "ill"), ("visits", "ill"), ("age", "ill")],
    "bins": {"visits": [5, 10, 15], "age": [40, 60]},
    "complete": True,
    "sets": 40,
}


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    rows = 2000
    ward, age = rng.integers(0, 3, rows), rng.uniform(20, 80, rows)
    eta = -3 + 0.05 * age + 1.0 * (ward == 1)
    ill = (rng.random(rows) < 1 / (1 + np.exp(-eta))).astype(int)
    visits = np.minimum(rng.poisson(4, rows), 19)
    names = np.array(["a", "b", "c"])[ward]
    return pd.DataFrame({"ward": names, "visits": visits, "ill": ill, "age": age})


@pytest.fixture(scope="module")
def synthetic(table):
    return tacit.synthesize(table, schema=SCHEMA, epsilon=3, seed=1, **SETTINGS)


def test_the_charge_is_that_of_the_release(table, tmp_path, monkeypatch):
    monkeypatch.setattr("tacit.api.synthesize.draw_tables", lambda look, **_: look)
    ledger = tacit.Ledger.new(tmp_path / "ledger.json", tacit.Budget(2, 1e-5), unit="row")
    budget = tacit.Budget(1, 1e-6)
    look = tacit.synthesize(table, schema=SCHEMA, budget=budget, ledger=ledger, **SETTINGS)
    plan = tacit.Look.plan(SCHEMA, tables=SETTINGS["tables"], bins=SETTINGS["bins"], budget=budget)
    assert look.privacy.event == plan.mechanism.event
    assert [each.event for each in ledger.charges] == [str(plan.mechanism.event)]
    assert look.release == plan.release


def test_a_plan_takes_the_path_of_a_schema_file(tmp_path):
    SCHEMA.to_yaml(tmp_path / "schema.yaml")
    plan = tacit.Synthetic.plan(SCHEMA, epsilon=1, **SETTINGS)
    assert str(tacit.Synthetic.plan(tmp_path / "schema.yaml", epsilon=1, **SETTINGS)) == str(plan)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"sets": 1}, "sets"),
        ({"complete": ["sex"]}, "complete"),
        ({"size": 0}, "size"),
        ({"bins": {"age": 40, "visits": 19}, "tables": [("age", "visits")]}, "too much|cells"),
    ],
)  # fmt: skip
def test_wrong_settings_are_refused_before_the_charge(table, tmp_path, settings, said):
    ledger = tacit.Ledger.new(tmp_path / "ledger.json", tacit.Budget(2, 1e-5), unit="row")
    with pytest.raises(InvalidArgument, match=said):
        tacit.synthesize(table, schema=SCHEMA, epsilon=1, ledger=ledger, **SETTINGS | settings)
    assert not ledger.charges


def test_more_than_is_left_is_refused(table, tmp_path):
    ledger = tacit.Ledger.new(tmp_path / "ledger.json", tacit.Budget(0.5, 1e-5), unit="row")
    with pytest.raises(BudgetError):
        tacit.synthesize(table, schema=SCHEMA, epsilon=1, ledger=ledger, **SETTINGS)


def test_rows_of_people_are_no_units(table):
    schema = tacit.Schema(dict(SCHEMA.items), person="id", most_rows=3)
    data = table.assign(id=np.arange(len(table)) // 2)
    look = tacit.explore(data, schema=schema, tables=["ward"], count="rows", epsilon=1, seed=0)
    with pytest.raises(InvalidArgument, match="people"):
        look.synthesize()


def test_two_way_counts_are_within_the_error_of_the_release(synthetic, table):
    for pair in synthetic.look.tables:
        frame = synthetic.look[pair]
        counts = synthetic.counts(pair)
        spread = np.sqrt(
            synthetic.look.estimates.count_spread(tuple(sorted(pair))) ** 2 + frame["count"]
        )
        off = (counts.mean(axis=0) - frame["count"]) / spread
        assert np.abs(off).max() < 4
        assert np.sqrt(np.mean(off**2)) < 1.5
    assert synthetic.counts(("ill",)).sum(axis=1) == pytest.approx(synthetic.look.size)


def test_cells_are_those_of_the_schema(synthetic, table, tmp_path):
    one = synthetic.tables[3]
    assert list(one) == list(synthetic.schema.names)
    assert one["visits"].dtype == np.int64
    assert one["visits"].between(0, 19).all()
    assert one["age"].between(20, 80).all()
    assert not one.isna().any().any()
    synthetic.write(tmp_path)
    schema = tacit.Schema.from_yaml(tmp_path / "schema.yaml")
    read, ours = (schema.encode(each).columns for each in (tmp_path / "table_004.csv", one))
    assert all(np.array_equal(read[name], ours[name]) for name in schema.names)
    # within bins, numbers follow the finer bins of the release
    assert np.mean([each["visits"].mean() for each in synthetic.tables]) == pytest.approx(
        table["visits"].mean(), abs=0.4
    )


def test_fits_of_tables_combine_to_the_fit_of_the_data(synthetic, table):
    found = synthetic.fit("ill ~ age + ward").frame()
    exact = tacit.fit_without_privacy("ill ~ age + ward", table, schema=SCHEMA).summary()
    for line in exact.lines[1:]:
        ours = found.loc[line.label]
        assert abs(ours["estimate"] - line.mean) < 4 * ours["sd"]
        assert ours["sd"] > 0.5 * line.sd
    assert found.loc["ward[b], against a", "lower"] > 0


def test_an_analysis_may_return_names(synthetic):
    found = synthetic.apply(
        lambda one: {"mean age": (one["age"].mean(), one["age"].var() / len(one))}
    )
    assert found.names == ("mean age",)
    assert found.lower[0] < 50 < found.upper[0]
    with pytest.raises(InvalidArgument, match="must return"):
        synthetic.apply(len)


def test_a_saved_look_makes_the_same_tables(synthetic, tmp_path):
    synthetic.report(tmp_path)
    page = (tmp_path / "synthetic.html").read_text()
    assert "is not private" in page or "not private" in page
    told = json.loads((tmp_path / "synthetic.json").read_text())
    assert told["sets"] == 40
    assert told["kept"] == [["ward", "ill"], ["visits", "ill"], ["age", "ill"]]
    again = tacit.Look.load(tmp_path).synthesize(sets=40, complete=True)
    assert all(a.equals(b) for a, b in zip(again.tables, synthetic.tables, strict=True))


def test_the_command(table, tmp_path, capsys):
    data, schema, out = tmp_path / "data.csv", tmp_path / "schema.yaml", tmp_path / "out"
    table.to_csv(data, index=False)
    SCHEMA.to_yaml(schema)
    asked = ["synthesize", data, "--schema", schema, "--epsilon", "3", "--table", "ward,ill", "--table", "visits,ill",
             "--table", "age,ill", "--bins", "visits=5,10,15", "--bins", "age=40,60", "--complete", "--sets", "3",
             "--seed", "1", "--out", out, "--json"]  # fmt: skip
    assert main([*map(str, asked), "--dry-run"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["parameters"] == 15
    assert not out.exists()
    assert main([*map(str, asked)]) == 0
    assert json.loads(capsys.readouterr().out)["sets"] == 3
    assert {each.name for each in out.iterdir()} == {
        "look.html", "look.json", "synthetic.html", "synthetic.json", "tables",
    }  # fmt: skip
    assert len(list((out / "tables").glob("*.csv"))) == 3
