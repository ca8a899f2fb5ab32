"""Tables as people have them: what is declared about their writing, files of other programs, and checks of rows."""

import datetime as dt
import gzip
import sys
import warnings

import numpy as np
import openpyxl
import pandas as pd
import polars as pl
import pyarrow as pa
import pyreadstat
import pytest
from pyarrow import parquet

import tacit
from tacit import Binary, Category, Count, Date, Number, Schema
from tacit.api.rows import model_rows, read_files
from tacit.cli.main import main
from tacit.data import sources
from tacit.data.arrow import write_shards
from tacit.errors import InvalidArgument, MissingPackage
from tacit.federated.deploy import short_digest
from tacit.models.jax_model import Model, Parameter

MESSY = Schema(
    {
        "SBP": Number(60, 250, measured_in="mmHg"),
        "weight": Number(30, 200, decimal=","),
        "falls": Count(9, measured_in="times", decimal=","),
        "smoker": Binary(yes="ja", no="nein", aliases={"j": "ja"}, ignore_case=True),
        "ward": Category(["medical", "surgical"], aliases={"medcial": "medical"}, ignore_case=True),
        "admitted": Date("2015-01-01", "2024-12-31", format="%d.%m.%Y", missing="2020-01-01"),
        "died": Binary(),
    },
    person="patient",
    most_rows=3,
    sep=";",
)
LINES = [
    "patient;SBP;weight;falls;smoker;ward;admitted;died",
    'P1;142 mmHg;71,5;2 times;Ja;Medical;"17.03.2020";no',
    "P1;9999mmHg;1e2;2,0;NEIN;medcial;;YES",
    "P2;150;80;0;j;surgical;2020-03-17;0",
]
READ = {
    "SBP": [142, 250, 150],
    "weight": [71.5, 100, 80],
    "falls": [2, 2, 0],
    "smoker": [1, 0, 1],
    "ward": [0, 0, 1],
    "admitted": [18338, 18262, 18338],
    "died": [0, 1, 0],
}


def columns_of(table, schema=MESSY):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return {name: cells.tolist() for name, cells in schema.encode(table).columns.items()}


@pytest.fixture(scope="module")
def messy(tmp_path_factory):
    """A table with semicolons, decimal commas, units, words, dates, misspellings and a byte order mark."""
    path = tmp_path_factory.mktemp("messy") / "visits.csv"
    path.write_bytes("\r\n".join(LINES).encode("utf-8-sig"))
    return path


def texts():
    header, *rows = [line.replace('"', "").split(";") for line in LINES]
    return pd.DataFrame(rows, columns=header, dtype=str)


def test_a_file_and_every_container_of_its_texts_are_read_alike(messy, tmp_path):
    frame = texts()
    zipped = tmp_path / "visits.csv.gz"
    zipped.write_bytes(gzip.compress(messy.read_bytes()))
    frame.to_parquet(tmp_path / "visits.parquet")
    frame.to_feather(tmp_path / "visits.feather")
    frame.to_excel(tmp_path / "visits.xlsx", index=False)
    tables = [
        messy,
        zipped,
        *(tmp_path / f"visits.{end}" for end in ("parquet", "feather", "xlsx")),
    ]
    tables += [frame, frame.astype(object), pl.DataFrame(frame), pa.Table.from_pandas(frame)]
    for table in [*tables, frame.to_dict("list")]:
        assert columns_of(table) == READ
        MESSY.check_header(table)


DATES = Date("2015-01-01", "2024-12-31")
MODEL = Model(
    parameters={"m": Parameter()},
    log_prior=lambda p: -(p["m"] ** 2),
    log_likelihood=lambda p, row: -((row["SBP"] - p["m"]) ** 2),
)


def test_shards_and_sites_read_by_the_same_rules(messy, tmp_path):
    texts().to_parquet(tmp_path / "visits.parquet")
    shards = write_shards([tmp_path / "visits.parquet"], 2, tmp_path / "shards", "patient")
    dealt = read_files(MODEL.unit_model, MESSY, shards)._parts.values()
    site = model_rows(MODEL.unit_model, MESSY, messy)
    for name in READ:
        of_shards = np.concatenate([part._fields[name] for part in dealt])
        np.testing.assert_array_equal(
            np.sort(of_shards, 0), np.sort(np.asarray(site._fields[name]), 0)
        )
        assert sorted(of_shards.ravel())[-3:] == sorted([*READ[name], *[0] * 6])[-3:]


def test_what_is_declared_is_written_down():
    again = Schema.from_text(MESSY.to_text())
    assert again == MESSY
    assert hash(again) == hash(MESSY)
    assert eval(repr(MESSY)) == MESSY  # noqa: S307
    assert MESSY.with_columns({"died": Binary(missing=0)}).sep == ";"
    assert "low: 2015-01-01, high: 2024-12-31" in MESSY.to_text()
    assert "aliases: {medcial: medical}" in MESSY.to_text()


OTHER_WRITING = {
    "unit": {"SBP": Number(60, 250, measured_in="kPa")},
    "decimal": {"weight": Number(30, 200)},
    "case": {"ward": Category(["medical", "surgical"], aliases={"medcial": "medical"})},
    "aliases": {"ward": Category(["medical", "surgical"], ignore_case=True)},
    "words": {"smoker": Binary()},
    "form": {"admitted": Date("2015-01-01", "2024-12-31", missing="2020-01-01")},
    "date": {"admitted": Date("2015-01-02", "2024-12-31", format="%d.%m.%Y", missing="2020-01-01")},
}


@pytest.mark.parametrize("name", OTHER_WRITING)
def test_sites_and_saved_runs_notice_another_writing(name):
    other = MESSY.with_columns(OTHER_WRITING[name])
    assert other != MESSY
    assert repr(other) != repr(MESSY)  # which runs are bound to
    assert short_digest(other.to_text()) != short_digest(MESSY.to_text())  # which sites agree on
    assert Schema.from_text(other.to_text()) == other


@pytest.mark.parametrize(
    ("line", "sep"),
    [
        ("a,b,c", ","),
        ("a;b;c", ";"),
        ("a\tb", "\t"),
        ("a|b|c", "|"),
        ('"a;b;c;d",b', ","),
        ("weight (kg, nude);b;c", ";"),
        ("a", ","),
    ],
)
def test_a_separator_is_seen_in_the_header_and_not_in_rows(tmp_path, line, sep):
    path = tmp_path / "data.csv"
    for rows in ("", "1;2;3;4\n" * 5, "1|2\t3,4,5\n"):
        path.write_text(f"{line}\n{rows}")
        assert sources.open_source(path).sep == sep


def test_a_declared_separator_wins(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("a;x,b\n1;2,25\n")
    schema = Schema({"b": Number(0, 9)})
    assert columns_of(path, schema) == {"b": [9]}
    with pytest.raises(InvalidArgument, match="taken to be separated by semicolons"):
        columns_of(path, Schema({"b": Number(0, 9)}, sep=";"))
    assert columns_of(path, Schema({"x,b": Number(0, 9, decimal=",")}, sep=";")) == {"x,b": [2.25]}


VISITS = pd.DataFrame(
    {
        "patient": [7, 7, 8],
        "age": [71.5, np.nan, 30.0],
        "sex": [1, 2, 9],
        "seen": [dt.date(2020, 3, 17), None, dt.date(2021, 1, 1)],
        "moment": pd.to_datetime(["2020-03-17 12:00", None, "2021-01-01 00:00"]),
        "ward": ["medical", "", "é"],
    }
)
LABELS = {"sex": {1: "male", 2: "female"}}
FOREIGN = {
    "visits.xlsx": lambda path: VISITS.to_excel(path, index=False),
    "visits.sav": lambda path: pyreadstat.write_sav(VISITS, path, variable_value_labels=LABELS),
    "visits.dta": lambda path: pyreadstat.write_dta(VISITS, path, variable_value_labels=LABELS),
    "visits.xpt": lambda path: pyreadstat.write_xport(VISITS, path),
}
FOREIGN_SCHEMA = Schema(
    {
        "age": Number(0, 100, missing=50),
        "sex": Category([1, "female", "male"], other="other", aliases={2: "female"}),
        "seen": Date("2015-01-01", "2024-12-31", missing="2016-01-01"),
        "moment": Date("2015-01-01", "2024-12-31", missing="2016-01-01"),
        "ward": Category(["medical", "é"], other="other", missing="other"),
    },
    person="patient",
    most_rows=2,
)


@pytest.mark.parametrize("name", FOREIGN)
def test_files_of_other_programs(tmp_path, name):
    path = tmp_path / name
    FOREIGN[name](path)
    FOREIGN_SCHEMA.check_header(path)
    labelled = name.endswith((".sav", ".dta"))  # where 1 is male, and both are levels
    found = columns_of(path, FOREIGN_SCHEMA)
    assert found == {
        "age": [71.5, 50, 30],
        "sex": [2 if labelled else 0, 1, 3],
        "seen": [18338, 16801, 18628],
        "moment": [18338.5, 16801, 18628],
        "ward": [0, 2, 1],
    }
    people = FOREIGN_SCHEMA.encode(path).person
    assert people[0] == people[1] != people[2]
    # The same column as a number is its code, and not its label.
    assert columns_of(path, Schema({"sex": Number(0, 9)})) == {"sex": [1, 2, 9]}
    assert Schema.draft(path).names == tuple(VISITS)


@pytest.mark.parametrize("ending", ["sav", "dta", "xpt"])
def test_a_date_that_no_calendar_has_takes_no_other_along(tmp_path, ending):
    """For such a cell, the package that reads these files refuses the whole file."""
    path, form = tmp_path / f"t.{ending}", {"sav": "DATE11", "dta": "%td", "xpt": "DATE"}[ending]
    first = {"sav": 13803782400.0}.get(ending, 21991.0)
    write = {"sav": "write_sav", "dta": "write_dta", "xpt": "write_xport"}[ending]
    frame = pd.DataFrame({"seen": [first, 5e70, -1e30]})
    getattr(pyreadstat, write)(frame, path, variable_format={"seen": form})
    with pytest.raises((OverflowError, ValueError)):
        getattr(pyreadstat, write.replace("write", "read"))(path)
    assert columns_of(path, Schema({"seen": Date("2015-01-01", "2024-12-31")})) == {"seen": [18338]}


def test_rows_of_a_workbook_are_read_each_by_itself(tmp_path):
    path = tmp_path / "book.xlsx"
    book = openpyxl.Workbook()
    sheet = book.active
    for row in [
        ("x", "k"),
        (1, "a"),
        (None, None),
        ("2,5", "a", "beyond"),
        ("?", 7),
        (True,),
        (3.5, "b"),
    ]:
        sheet.append(row)
    sheet["A9"], sheet["A9"].number_format = 1e12, "yyyy-mm-dd"  # a warning of the package shows it
    book.create_sheet("second").append(("x", "other"))
    book.save(path)
    schema = Schema(
        {"x": Number(0, 9, missing=0), "k": Category(["a", "b"], other="c", missing="c")}
    )
    assert columns_of(path, schema) == {"x": [1, 0, 0, 1, 3.5, 0], "k": [0, 0, 2, 2, 1, 2]}
    assert columns_of(path, Schema({"x": Number(0, 9, decimal=",")})) == {"x": [1, 2.5, 1, 3.5]}


@pytest.mark.parametrize(("package", "file"), [("openpyxl", "t.xlsx"), ("pyreadstat", "t.sav")])
def test_what_reads_a_file_is_asked_for_by_name(tmp_path, monkeypatch, package, file):
    (tmp_path / file).write_text("x")
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(
        MissingPackage, match=rf"needs the package {package}.*tacit-bayes\[tables\]"
    ):
        MESSY.encode(tmp_path / file)


PLAIN = Schema(
    {
        "SBP": Number(60, 250),
        "weight": Number(30, 200),
        "falls": Count(9),
        "smoker": Binary(),
        "ward": Category(["medical", "surgical"], other="other"),
        "admitted": Date("2015-01-01", "2024-12-31"),
        "died": Binary(),
    },
    person="patient",
    most_rows=1,
)


def test_a_yes_or_no_with_fractions_is_called_a_number(tmp_path):
    (tmp_path / "table.csv").write_text("limited\n1\n0\n0.1442925\n0.5\n0.1442925\n")
    check = Schema({"limited": Binary()}).check(tmp_path / "table.csv")
    assert check.causes == (
        "3 of 5 cells of limited are '0.1442925' or '0.5': declare kind: number to read them.",
    )


def test_numbers_in_a_yes_or_no_are_called_numbers_if_any_has_a_fraction(tmp_path):
    (tmp_path / "table.csv").write_text("diseases\n13.7\n12\n9.5\n")
    check = Schema({"diseases": Binary()}).check(tmp_path / "table.csv")
    assert [cause.partition(": ")[2] for cause in check.causes] == [
        "declare kind: number to read them."
    ]
    (tmp_path / "table.csv").write_text("diseases\n2\n3\n2\n")
    check = Schema({"diseases": Binary()}).check(tmp_path / "table.csv")
    assert "declare the labels" in check.causes[0]


def test_a_check_counts_cells_and_says_why_some_are_not_read(messy):
    check = PLAIN.check(messy)
    counts = {n: (c.read, c.outside, c.unread, c.missing) for n, c in check.columns.items()}
    assert counts == {
        "SBP": (1, 0, 2, 0),
        "weight": (2, 0, 1, 0),
        "falls": (1, 0, 2, 0),
        "smoker": (0, 0, 3, 0),
        "ward": (1, 0, 2, 0),
        "admitted": (1, 0, 1, 1),
        "died": (3, 0, 0, 0),
    }
    assert (check.rows, check.complete, check.people, check.complete_people) == (3, 0, 2, 0)
    assert check.causes == (
        "2 of 3 cells of SBP end in mmHg: declare measured_in: mmHg to read them.",
        '1 of 3 cells of weight have a decimal comma: declare decimal: "," to read them.',
        '1 of 3 cells of falls have a decimal comma: declare decimal: "," to read them.',
        "1 of 3 cells of falls end in times: declare measured_in: times to read them.",
        "3 of 3 cells of smoker are 'Ja', 'NEIN' or 'j': declare the labels that mean yes: and no: to read them.",
        "1 of 3 cells of ward differ from a level in upper or lower case only: declare ignore_case: true to read them.",
        "1 of 3 cells of ward are 'medcial', which resembles 'medical': correct them, or declare aliases: {'medcial': 'medical'}.",
        "1 of 3 cells of admitted are dates such as 17.03.2020: declare format: '%d.%m.%Y' to read them.",
    )
    assert "0 of 3 rows are complete. A fit of all columns would use no row." in str(check)


def test_what_the_check_advises_is_read(messy):
    """Every cause above is one of the settings of the schema that reads all of it."""
    check = MESSY.check(messy)
    assert [cause for cause in check.causes if "outside" not in cause] == []
    assert all(column.read + column.missing == 3 for column in check.columns.values())
    assert (check.rows, check.complete, check.complete_people, check.capped_people) == (3, 3, 2, 0)
    assert check.columns["SBP"].outside == 1
    rows = MESSY.encode(messy)
    assert len(rows.columns["SBP"]) == check.complete


def test_a_check_is_marked_and_leaves_no_trace(messy, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    check = PLAIN.check(messy)
    assert str(check).startswith("NOT PRIVATE")
    assert "3" not in repr(check)  # which a notebook would keep
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("kind", "cells", "said"),
    [
        (Number(0, 9), ["17.03.2020"], "declare kind: date, with low and high and format: '%d.%m.%Y'"),
        (Number(0, 9), ["2020-03-17"], "declare kind: date, with low and high to read them"),
        (Number(0, 9), ["yes", "N"], "2 of 2 cells of x are yes or no: declare kind: binary"),
        (Number(0, 9), ["<5"], "begin with < or >"),
        (Number(0, 9), ["1,234.5", "1 234"], "2 of 2 cells of x have separators of thousands"),
        (Number(0, 9, decimal=","), ["1.25"], 'a decimal point: declare decimal: "."'),
        (Number(0, 9, measured_in="mmHg"), ["5 kPa"], "measured_in: kPa, with bounds in that unit"),
        (Number(0, 9), ["71,5 %"], "end in %"),
        (Number(0, 9), ["-", "-"], "2 of 2 cells of x are '-', which counts as missing"),
        (Number(0, 9), ["see note"], "hold text that is not a number"),
        (Number(0, 9), [20, 30, 5], "2 of 3 cells of x lie outside 0 to 9"),
        (Number(0, 9), [None, ""], "All cells of x are missing."),
        (Date("2015-01-01", "2024-12-31"), ["3/4/2020"], "'%d/%m/%Y', or '%m/%d/%Y' if the month is first"),
        (Date("2015-01-01", "2024-12-31"), ["3/4/2020", "3/17/2020"], "2 of 2 cells of x are dates such as 03/17/2020"),
        (Date("2015-01-01", "2024-12-31"), ["20200317"], "'%Y%m%d' if they are dates"),
        (Date("2015-01-01", "2024-12-31"), ["2020"], "years alone: declare kind: number"),
        (Date("2015-01-01", "2024-12-31"), ["soon"], "not a date"),
        (Category(["male", "female"]), [1, 2], "numbers such as '1' or '2'"),
        (Category(["A"]), ["hospice"], "no declared level and count as missing"),
        (Category(["A"], other="else"), ["hospice"], "no declared level and count as 'else'"),
        (Binary(yes="yes", no="no"), ["Yes"], "ignore_case: true"),
        (Binary(), ["ja\x1b[31m", "ja" * 99], "'ja\ufffd[31m'"),
        (Number(0, 9), [], "The table has no rows."),
    ],
)  # fmt: skip
def test_likely_causes(kind, cells, said):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check = Schema({"x": kind}).check({"x": cells})
    assert len(check.causes) >= 1
    assert said in "\n".join(check.causes)
    assert "ja" * 20 not in str(check)


def test_lines_and_people_that_do_not_count_are_counted(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("who,x\n1,71,5\n,1\n1,2\n1,3\n2,NA\n")
    check = Schema({"x": Number(0, 9)}, person="who", most_rows=1).check(path)
    assert (check.rows, check.broken, check.unknown_people) == (5, 1, 2)
    assert (check.people, check.complete_people, check.capped_people) == (2, 1, 1)
    assert "1 of 5 lines have another number of cells than the header" in check.causes[0]
    assert "People with more complete rows than are used: 1." in str(check)
    assert "Rows without a person, which are left out: 2." in str(check)


def test_arrays_and_types_are_checked_as_they_are_encoded():
    check = Schema({"v": Number(0, 1, shape=(2,))}).check(
        {"v": np.array([[0, 1], [0, 5], [np.nan, 1.0]])}
    )
    column = check.columns["v"]
    assert (column.read, column.outside, column.unread, column.missing) == (2, 1, 0, 1)
    with pytest.raises(InvalidArgument, match="type is that of dates"):
        Schema({"x": Number(0, 1)}).check({"x": np.array(["2020-01-01"], "M8[D]")})


DRAFTED = """\
tacit.Schema(
    {
        'seen': tacit.Date(low=..., high=...),
        'age': tacit.Number(low=..., high=...),
        'visits': ...,
        'ward': tacit.Category(levels=[...]),
        'died': tacit.Binary(),
    },
    # person='the column that identifies people', most_rows=..., if they can have several rows
)
# To fill in, from knowledge of the field and not from the rows:
# - the public facts about seen (low, high), age (low, high), ward (levels)
# - what visits is: tacit.Number(low, high), Count(high), Binary(), Category(levels) or Date(low, high); or leave it out"""


def test_a_draft_of_a_frame_uses_names_and_types_alone():
    frame = pd.DataFrame(
        {
            "seen": pd.to_datetime(["1941-05-12"]),
            "age": [41.5],
            "visits": [4321],
            "ward": pd.Categorical(["Smith"]),
            "died": [True],
        }
    )
    for table in (
        frame,
        frame[:0],
        pl.DataFrame(frame),
        pa.Table.from_pandas(frame),
    ):
        drafted = Schema.draft(table)
        assert str(drafted) == repr(drafted) == DRAFTED
        text = drafted.to_text()
        assert not any(cell in text + str(drafted) for cell in ("1941", "41.5", "4321", "Smith"))
        with pytest.raises(InvalidArgument, match="column 'seen' is not filled in yet"):
            Schema.from_text(text)
    assert drafted.to_fill_in["visits"] == ("kind",)
    with pytest.raises(InvalidArgument, match="not filled in yet: seen, age, visits, ward"):
        drafted.schema()
    assert Schema.draft(frame[["died"]]).schema() == Schema({"died": Binary()})
    with pytest.raises(InvalidArgument, match="must be a number"):
        eval("tacit.Number(low=..., high=...)")  # noqa: S307 as pasted


def answers(*said):
    left = list(said)

    def ask(_):
        if not left:
            raise KeyboardInterrupt
        return left.pop(0)

    return ask


def test_an_interrupted_draft_goes_on_where_it_was(messy, tmp_path):
    drafted, path = Schema.draft(messy), tmp_path / "visits.yaml"
    with pytest.raises(KeyboardInterrupt):
        drafted.ask(
            answers("yes", "person", "8", "number", "60", "250", "", "mmHg", "skip", "count")
        )
    assert "secret" not in drafted.to_text()
    drafted.to_yaml(path)
    with pytest.raises(InvalidArgument, match="column 'falls' is not filled in yet"):
        Schema.from_yaml(path)
    again = Schema.draft(messy)
    again.resume(path)
    assert again.columns == {"SBP": Number(60, 250, measured_in="mmHg", decimal=",")}
    assert again.skipped == {"weight"}
    assert (again.person, again.most_rows) == ("patient", 8)
    found = again.ask(answers("yes", *["skip"] * 4, "binary", "", ""))
    assert found.names == ("SBP", "died")
    path.write_text("columns: {other: {kind: TO FILL IN}}")
    with pytest.raises(InvalidArgument, match="declares 'other', but the header"):
        Schema.draft(messy).resume(path)


def test_one_can_go_back_also_to_another_column(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("age,ward\n")
    back = [
        *(
            "<",
            "count",
            "<",
            "number",
            "x",
            "<",
            "<",
            "number",
            "18",
            "<",
            "19",
            "100",
            "",
            "years",
        ),
        *("category", "<", "<", "months", "category", "A, B", "", ""),
    ]
    assert Schema.draft(path).ask(answers(*back)) == Schema(
        {"age": Number(19, 100, measured_in="months"), "ward": Category(["A", "B"])}
    )


def test_a_date_is_asked_for(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("seen\n")
    said = [
        "date",
        "1.1.2015",
        "",
        "2015-01-01",
        "2024-12-31",
        "D.M.",
        "DD.MM.YY",
        "years",
        "2030-01-01",
        "",
    ]
    assert Schema.draft(path).ask(answers(*said)) == Schema(
        {"seen": Date("2015-01-01", "2024-12-31", format="%d.%m.%y", measured_in="years")}
    )


WARDS = ["medical", "surgical", "medcial", "Surgical"]


def write_visits(path, rows=200):
    """A table of made-up visits, as a colleague might send it."""
    rng = np.random.default_rng(1)
    lines = ["patient;SBP;weight;smoker;ward;admitted;died"]
    for i in range(rows):
        weight = f"{rng.normal(75, 12):.1f}".replace(".", ",")
        day = f"{rng.integers(1, 28)}.{rng.integers(1, 13):02d}.{rng.integers(2015, 2024)}"
        cells = (f"P{i}", f"{rng.normal(140, 15):.0f} mmHg", weight, rng.choice(["yes", "NO"]))
        lines.append(";".join([*cells, rng.choice(WARDS), day, rng.choice(["y", "n"])]))
    path.write_bytes("\r\n".join(lines).encode("utf-8-sig"))


def dates_are_shown_as_dates(post):
    """A date is a number of years in the formula, and a date wherever people read or pass it."""
    assert "admitted, per 1 year" in str(post.summary())
    assert "admitted 2017-12-31" in str(post.summary())
    found = post.predictions({"admitted": ["2012-01-01", "2020-06-01"]})
    assert found["admitted"].tolist() == [dt.date(2012, 1, 1), dt.date(2020, 6, 1)]
    slope, years = post.slopes("admitted")["mean"].item(), post.comparisons("admitted")
    assert years["admitted"].tolist() == ["2018-12-31 against 2017-12-31"]
    assert years["mean"].item() == pytest.approx(slope, rel=0.2)
    days = post.comparisons("admitted", values=("2018-01-01", dt.date(2018, 7, 2)))["mean"].item()
    assert days == pytest.approx(slope * 182 / 365, rel=0.1)
    with pytest.raises(InvalidArgument, match="not a date; pass 'admitted' as '2010-01-01'"):
        post.predictions({"admitted": "soon"})
    with pytest.raises(InvalidArgument, match="outside the declared bounds"):
        post.predictions({"admitted": "1999-01-01"})


def test_from_a_messy_table_to_predictions(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_visits(tmp_path / "visits.csv")
    said = ["yes", "skip", "number", "60", "250", "", "", "skip", "skip", "category"]

    def prompt(*_, **__):
        if not said:
            raise KeyboardInterrupt
        return said.pop(0)

    monkeypatch.setattr("typer.prompt", prompt)
    draft = ["schema", "draft", "visits.csv", "--out", "visits.yaml"]
    assert main(draft) == 130
    assert "The same command goes on" in capsys.readouterr().out
    said += [
        "no",
        "category",
        "medical, surgical",
        "",
        "",
        "date",
        "2010-01-01",
        "2025-12-31",
        "DD.MM.YYYY",
    ]
    said += ["years", "", "binary", "", ""]
    assert main(draft) == 0
    check = ["schema", "check", "visits.yaml", "visits.csv"]
    capsys.readouterr()
    assert main(check) == 0
    assert "Cells are separated by semicolons, by its header." in capsys.readouterr().out
    before = sorted(tmp_path.iterdir())
    assert main([*check, "--rows"]) == 0
    out = capsys.readouterr().out
    assert "NOT PRIVATE" in out
    assert "200 of 200 cells of SBP end in mmHg: declare measured_in: mmHg to read them." in out
    assert "0 of 200 rows are complete." in out
    assert sorted(tmp_path.iterdir()) == before
    text = (tmp_path / "visits.yaml").read_text()
    text = text.replace("high: 250", "high: 250, measured_in: mmHg")
    text = text.replace(
        "surgical]", "surgical]\n    ignore_case: true\n    aliases: {medcial: medical}"
    )
    (tmp_path / "visits.yaml").write_text(text)
    assert main([*check, "--rows"]) == 0
    assert "200 of 200 rows are complete." in capsys.readouterr().out
    fit = "fit visits.csv --schema visits.yaml --epsilon 5 --delta 1e-5 --out run --quiet"
    fit = [*fit.split(), "--formula", "died ~ SBP + admitted + ward", "--method", "variational"]
    assert main([*fit, "--set", "num_steps=3", "--set", "sampling_rate=1", "--no-forecast"]) == 0
    assert tacit.Schema.from_yaml("run/schema.yaml") == tacit.Schema.from_yaml("visits.yaml")
    (tmp_path / "new.csv").write_text("SBP;admitted;ward\n150 mmHg;1.2.2020;medcial\n;1.2.2020;x\n")
    capsys.readouterr()
    assert main("predict run new.csv".split()) == 0
    header, first, second = capsys.readouterr().out.splitlines()
    assert header == "SBP,admitted,ward,mean"
    assert first.startswith("150 mmHg,1.2.2020,medcial,0.")
    assert second == ",1.2.2020,x,NA"
    dates_are_shown_as_dates(tacit.Posterior.load("run/posterior.nc"))


def test_a_date_can_be_simulated_but_is_no_outcome():
    schema = Schema({"seen": DATES, "died": Binary(), "y": Number(0, 1)})
    drawn = tacit.Scenario().draw_table(schema, ["seen"], 50, np.random.default_rng(0))
    days = schema.encode_new(drawn, ["seen"])[0]["seen"]
    assert ((days >= DATES.low) & (days <= DATES.high)).all()
    assert days.std() > 500
    with pytest.raises(InvalidArgument, match="'seen' is declared as a date"):
        tacit.glm("seen ~ y", schema=schema)


def test_parquet_of_a_frame_with_dates_can_be_drafted(tmp_path):
    parquet.write_table(pa.table({"seen": pa.array([dt.date(2020, 1, 1)])}), tmp_path / "t.parquet")
    assert "seen: {kind: date, low: TO FILL IN" in Schema.draft(tmp_path / "t.parquet").to_text()
