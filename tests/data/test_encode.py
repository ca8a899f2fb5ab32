"""What cells become, in every container, and that each row is encoded by itself."""

import datetime as dt
import math
import warnings
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tacit
from tacit import Binary, Category, Count, Date, Number, Rows, Schema
from tacit.errors import InvalidArgument

NAN = float("nan")


class Rude:
    """A cell that answers every question with an error."""

    def __eq__(self, other):
        raise RuntimeError("SECRET")

    def __hash__(self):
        raise RuntimeError("SECRET")

    def __float__(self):
        raise RuntimeError("SECRET")

    __len__ = __bool__ = __array__ = __iter__ = __repr__ = __str__ = __float__


class RudeNumber(float):
    """A number that will not be one."""

    def __float__(self):
        raise RuntimeError("zzz-cell")

    is_integer = __float__


ODD = [None, NAN, pd.NA, pd.NaT, Decimal("1.5"), Decimal("sNaN"), "abc", "", "1_0", b"x"]
ODD += [[1.0], (1, 2), {}, object(), 1j, np.ma.masked, dt.date(2020, 1, 1), np.array([1, 2])]
ODD += [float("inf"), -float("inf"), 10**400, -(10**5000), True, np.float32(0.3), np.int8(3), "3"]
ODD += [
    "0",
    "A",
    "other",
    3,
    3.0,
    3.5,
    np.str_("B"),
    "1e400",
    "nan",
    [0.5, None],
    np.ones(2),
    [[1]],
]
ODD += [
    "0,2 kg",
    "0,2",
    "0.2 kg",
    "2kg",
    "yes",
    "NO",
    "b",
    "bee",
    "17.03.2020",
    "2020-03-17",
    "17.03.20",
]
ODD += [dt.datetime(2020, 3, 17, 6, tzinfo=dt.UTC), np.datetime64("2020-03-17T06"), 17032020]


def one(kind, values):
    return Schema({"x": kind}).encode({"x": values}).columns["x"].tolist()


def objects(values):
    return np.fromiter(values, dtype=object, count=len(values))


def test_numbers_are_moved_to_the_bounds():
    assert one(Number(0, 4), [-1, 2.5, 9, float("inf"), -float("inf"), 10**400]) == [
        0,
        2.5,
        4,
        4,
        0,
        4,
    ]
    assert one(Number(0, 4, scaled=True), np.array([0, 1, 2, 4, 7])) == [-1, -0.5, 0, 1, 1]
    assert one(Number(0, 4), np.array([True, False])) == [1, 0]
    assert one(Number(0, 4), [True, "2.5", " 3 ", np.float16(1)]) == [1, 2.5, 3, 1]
    largest = np.float64(1e308) * np.ones(1, np.longdouble) * 10
    assert one(Number(0, 4), largest) == [4]


def test_numbers_with_their_unit_and_a_decimal_comma():
    pressure = Number(0, 300, measured_in="mmHg")
    cells = [
        "142 mmHg",
        "142mmHg",
        " 142.5\u00a0mmHg ",
        142,
        "mmHg",
        "142 kPa",
        "142 MMHG",
        "x mmHg",
    ]
    assert one(pressure, cells) == [142, 142, 142.5, 142]
    assert one(Number(0, 300), cells) == [142]
    comma = Number(0, 2000, decimal=",", measured_in="%")
    cells = ["71,5", "71,5 %", "1.234,5", "71.5", "72", "1,2,3", 71.5, "1,5e2%", ",5"]
    assert one(comma, cells) == [71.5, 71.5, 72, 71.5, 150, 0.5]
    assert one(Number(0, 9, decimal=",", shape=(2,)), objects([["1,5", 2], ["1.5", 2]])) == [
        [1.5, 2]
    ]
    assert one(Count(9, decimal=",", measured_in="beds"), ["2,0", "3 beds"]) == [2, 3]


def test_categories_in_other_spellings():
    wards = Category(["Medical", "surgical"], aliases={"medcial": "Medical", 3: "surgical"})
    cells = ["Medical", "medical", "medcial", "MEDCIAL", 3, "3.0", "surgical "]
    assert one(wards, cells) == [0, 0, 1, 1, 1]
    assert one(wards, pa.array(["medcial", "medical"])) == [0]
    folded = Category(["Medical", "STRASSE"], aliases={"medcial": "Medical"}, ignore_case=True)
    assert one(folded, ["mEDICAL", "MEDCIAL", "straße", "na"]) == [0, 0, 1]
    assert one(Category(["true", "false"], ignore_case=True), np.array([True, False])) == [0, 1]
    assert one(Category(["1E-05"], ignore_case=True), np.array([1e-5, 2.0])) == [0]


DATES = Date("2015-01-01", "2024-12-31")


def test_dates_are_days_or_years():
    cells = ["2020-03-17", "2020/3/17 12:00", "2020-03-17T06:00:00Z", "1999-01-01", "2030-01-01"]
    assert one(DATES, cells) == [18338, 18338.5, 18338.25, 16436, 20088]
    assert (dt.date(2020, 3, 17) - dt.date(1970, 1, 1)).days == 18338
    odd = [
        "17.03.2020",
        "2020-02-30",
        "2020-3",
        "2020",
        2020,
        18338,
        True,
        "now",
        b"x",
        None,
        pd.NaT,
    ]
    assert one(DATES, objects(odd)) == []
    years = Date("2015-01-01", "2024-12-31", measured_in="years")
    assert one(years, ["2015-01-01", "2020-07-02"]) == [2015, 2020.5]  # day 184 of 366
    assert one(Date("2015-01-01", "2024-12-31", missing="2020-03-17"), [None]) == [18338]


@pytest.mark.parametrize(
    ("form", "read", "not_read"),
    [
        ("%d.%m.%Y", ["17.03.2020", "17.3.2020", "2020-03-17"], ["03.17.2020", "17.03.20"]),
        ("%m/%d/%y", ["03/17/20", "3/17/20"], ["17/03/20", "03/17/2020"]),
        ("%Y%m%d", ["20200317", 20200317, 20200317.0], ["20201703"]),
        ("%d.%m.%Y %H:%M", ["17.03.2020 00:00"], ["17.03.2020"]),
    ],
)
def test_dates_in_a_declared_form(form, read, not_read):
    kind = Date("2015-01-01", "2024-12-31", format=form)
    assert one(kind, objects([*read, *not_read])) == [18338] * len(read)


def test_dates_of_every_container(tmp_path):
    days = [
        dt.datetime.fromisoformat("2020-03-17T12:00"),
        None,
        dt.datetime.fromisoformat("2031-01-01"),
    ]
    frame = pd.DataFrame({"x": days})
    zoned = frame["x"].dt.tz_localize("Europe/Berlin")
    arrow = pa.table({"x": days})
    pq.write_table(arrow, tmp_path / "t.parquet")
    tables = {
        "objects": {"x": days},
        "texts": {"x": [None if day is None else day.isoformat() for day in days]},
        "numpy": {"x": np.array(days, "M8[ms]")},
        "pandas": frame,
        "zoned": {"x": zoned},
        "pandas objects": frame.astype(object),
        "pandas categories": frame.astype("category"),
        "pandas of Arrow": arrow.to_pandas(types_mapper=pd.ArrowDtype),
        "polars": pl.DataFrame({"x": days}),
        "zoned polars": pl.DataFrame({"x": days}).with_columns(
            pl.col("x").dt.replace_time_zone("Europe/Berlin")
        ),
        "Arrow": arrow,
        "zoned Arrow": pa.table({"x": pa.array(zoned)}),
        "dictionary": pa.table({"x": pa.array(days).dictionary_encode()}),
        "Parquet": tmp_path / "t.parquet",
    }
    for name, table in tables.items():
        found = Schema({"x": DATES}).encode(table).columns["x"].tolist()
        assert found == [18338.5, 20088], name
    whole = [dt.date(2020, 3, 17), None]
    for table in ({"x": whole}, pl.DataFrame({"x": whole}), pa.table({"x": whole})):
        assert Schema({"x": DATES}).encode(table).columns["x"].tolist() == [18338]


def test_a_date_no_calendar_has_does_not_change_how_others_are_read():
    seconds = pa.array([1584403200, 2**62, None]).cast(pa.timestamp("s"))
    for column in (seconds, np.asarray(seconds), seconds.cast(pa.timestamp("s", "UTC"))):
        assert one(DATES, column)[0] == 18338


@pytest.mark.parametrize("column", [np.array([20200317]), np.array([True]), pl.Series([2020.5])])
def test_numbers_are_no_dates_without_a_form(column):
    with pytest.raises(InvalidArgument, match="type is that of numbers"):
        one(DATES, column)


WRONG_KINDS = [
    (lambda: Number(0, 1, decimal=";"), "decimal must be"),
    (lambda: Category(["a"], aliases={"b": "c"}), "got 'c', which is none"),
    (lambda: Category(["a", "b"], aliases={"a": "b"}), "new spellings"),
    (lambda: Category(["a"], aliases=3), "as in"),
    (lambda: Category(["a", "A"], ignore_case=True), "more than case"),
    (lambda: Category(["a"], ignore_case="yes"), "True or False"),
    (lambda: Binary(aliases={"x": "yes"}), "need the labels"),
    (lambda: Date("2020-01-01", "2019-01-01"), "before high"),
    (lambda: Date("2020-01-01", "2021-01-01", missing="2022-01-01"), "from low to high"),
    (lambda: Date("01.01.2020", "2021-01-01"), "low must be a date"),
    (lambda: Date(2020, 2021), "low must be a date"),
    (lambda: Date("2020-01-01 12:00", "2021-01-01"), "low must be a date"),
    (lambda: Date("2020-01-01", "2021-01-01", measured_in="months"), "measured_in"),
    (lambda: Date("2020-01-01", "2021-01-01", format="%d %B %Y"), "format must be"),
    (lambda: Date("2020-01-01", "2021-01-01", format="%d.%m"), "format must be"),
    (lambda: Schema({"x": Number(0, 1)}, sep=", "), "sep must be one character"),
    (lambda: Schema({"x": Number(0, 1)}, sep="."), "sep must be one character"),
]


@pytest.mark.parametrize(("make", "said"), WRONG_KINDS)
def test_spellings_that_cannot_be(make, said):
    with pytest.raises(InvalidArgument, match=said):
        make()


@pytest.mark.parametrize(
    "odd", [None, NAN, "abc", pd.NA, pd.NaT, Decimal(1), "1_0", [1], 1j, Rude(), RudeNumber()]
)
def test_what_is_not_a_number_is_missing(odd):
    assert one(Number(0, 4), objects([1, odd, 2])) == [1, 2]
    assert one(Number(0, 4, missing=3), objects([1, odd, 2])) == [1, 3, 2]
    assert one(Number(-4, 4, scaled=True, missing=2), objects([odd])) == [0.5]
    assert one(Count(9, missing=7), objects([odd])) == [7]
    assert one(Count(9), objects([odd])) == []
    assert one(Binary(yes="y", no="n"), objects([odd, "y"])) == [1]
    assert one(Category(["A"]), objects([odd, "A"])) == [0]


def test_counts_are_rounded():
    assert one(Count(30), [0.4, 0.6, 1.5, 2.5, 99, -3]) == [0, 1, 2, 2, 30, 0]
    assert one(Count(2, low=-2), np.array([2**64 - 1], np.uint64)) == [2]
    assert one(Count(2**31 - 1), np.array([2.0**40, NAN])) == [2**31 - 1]


def test_binary():
    assert one(Binary(), [True, 0, 1.0, "1", "false", 2, "yes", None]) == [1, 0, 1, 1, 0, 1]
    assert one(Binary(missing=1), np.array([0.0, 1.0, NAN, 0.5])) == [0, 1, 1, 1]
    assert one(Binary(), np.array([True, False])) == [1, 0]
    assert one(Binary(), ["Yes", "no", "Y", " n ", "tRUE", "False", "ja", "t"]) == [
        1,
        0,
        1,
        0,
        1,
        0,
    ]
    assert one(Binary(yes="y", no="n"), ["n", "y", "1", True, 0, "Y"]) == [0, 1]
    assert one(Binary(yes="y", no="n", ignore_case=True), ["N", "Y", "yes"]) == [0, 1]
    spelled = Binary(yes="dead", no="alive", aliases={"dec.": "dead", 9: "alive"})
    assert one(spelled, ["dec.", 9, 9.0, "alive", "Dead"]) == [1, 0, 0, 0]
    assert one(Binary(yes=2, no=1), np.array([1, 2, 0], np.uint8)) == [0, 1]


def test_categories_by_text():
    cells = [3, 3.0, "3", "03", "3.0", 3.5, True, "A", None]
    assert one(Category(["A", 3]), cells) == [1, 1, 1, 1, 0]
    assert one(Category(["A", "3"]), cells) == [1, 1, 1, 1, 0]
    other = Category(["A", 3], other="other")
    assert one(other, cells) == [1, 1, 1, 2, 1, 2, 2, 0]
    assert one(Category(["3.0", 3], other="other"), ["3", "3.0", "3.00", "3.5"]) == [1, 0, 1, 2]
    assert one(Category(["A", " B"], other="other"), [" A ", "B", " B", "NA", ""]) == [0, 2, 1]
    assert one(Category(["NA"], other="other", missing="other"), ["NA", "null"]) == [0, 1]
    assert one(Category(["A", 3], other="other", missing="other"), cells)[-1] == 2
    assert one(Category(["A", 3], other="other", missing="A"), cells)[-1] == 0
    assert one(Category(["A", 3], missing="A"), ["B", None, 3]) == [0, 0, 1]
    assert other.size == 3
    assert one(Category(["True", "1"]), np.array([True, False])) == [0]


@pytest.mark.parametrize("dtype", [np.int8, np.int64, np.uint8, np.uint64, np.float32, np.float64])
def test_numeric_columns_match_as_their_cells_do(dtype):
    kind = Category(["x", 7, "-1", 0, 10**17 + 1, "12"], other="rest", missing="x")
    cells = np.array([0, 7, 12, 13, 100], dtype)
    assert one(kind, cells) == one(kind, cells.tolist()) == [3, 1, 5, 6, 6]
    assert one(kind, np.array([10**17 + 1, 10**17, -1])) == [4, 6, 2]
    assert one(kind, np.array([1e17, NAN, np.inf])) == [6, 0, 6]


LEVELS = ["0.5", "-1.25", "1e5", "inf", "0.1", "0.50", 7, 0, "9223372036854775807", "1" + "0" * 20]


@pytest.mark.parametrize(
    "column",
    [
        np.array([0.5, -1.25, 1e5, np.inf, 0.1, -0.0, 7, 1e20, 2.0**63, np.nan, -np.inf]),
        np.array([0.5, -1.25, 1e5, np.inf, 0.1, 7, 1e20], np.float32),
        np.array([7, 0, 2**63 - 1, -(2**63)]),
        np.array([7, 0, 2**63 - 1, 2**64 - 1], np.uint64),
        np.array([7, 0, -1], np.int8),
    ],
)
def test_levels_of_any_text_match_numbers_in_columns_of_any_type(column):
    # Or one odd cell, by which a reader takes the column for text, would change how others are read.
    kind = Category(LEVELS, other="other", missing="0.50")
    assert one(kind, column) == one(kind, list(column))


def test_columns_of_arrays():
    kind = Number(0, 1, shape=(2,))
    assert one(kind, np.array([[0, 2], [NAN, 1]])) == [[0, 1]]
    cells = [[0, "1"], None, [0.5], [[1, 2]], np.array([1, 1]), (None, 1), 3, "ab", [Rude(), 1]]
    assert one(kind, cells) == [[0, 1], [1, 1]]
    filled = Number(0, 1, shape=(2,), missing=0.5)
    assert one(filled, cells)[1:6] == [[0.5, 0.5]] * 3 + [[1, 1], [0.5, 1]]
    masked = np.ma.masked_array([1.0, 0.0], mask=[True, False])
    assert one(filled, [masked]) == [[0.5, 0]]
    assert one(filled, np.ma.masked_array(np.zeros((1, 2)), mask=[[0, 1]])) == [[0, 0.5]]
    assert one(Number(0, 1, shape=(1, 2)), objects([[[1, 1]], [1, 1]])) == [[[1, 1]]]


TABLE = {
    "x": [1, 2, None, 9, 0],
    "n": [1, None, 3, 4, 5],
    "k": ["a", "3", "3", None, "q"],
    "b": [True, False, None, True, None],
    "v": [[0, 1], None, [0.5, 1], [1, None], [3, 4]],
    "p": [2**60, 2**60 + 1, None, 2**60, None],
}
SCHEMA = Schema(
    {
        "x": Number(0, 4, missing=3),
        "n": Count(4, missing=0),
        "k": Category(["a", 3], other="other", missing="a"),
        "b": Binary(missing=0),
        "v": Number(0, 1, shape=(2,), missing=0.25),
    },
    person="p",
    most_rows=2,
)
LISTS = pa.list_(pa.float32(), 2)


def arrow():
    columns = {name: pa.array(cells) for name, cells in TABLE.items()}
    columns |= {"k": columns["k"].dictionary_encode(), "v": pa.array(TABLE["v"], LISTS)}
    return pa.table(columns)


def nullable():
    kinds = {"x": "Float32", "n": "Int8", "k": "category", "b": "boolean", "p": "Int64"}
    return pd.DataFrame({name: objects(cells) for name, cells in TABLE.items()}).astype(kinds)


def in_polars(**changed):
    kinds = {"x": pl.Float64, "n": pl.Int16, "k": pl.Categorical, "b": pl.Boolean, "p": pl.Int64}
    return pl.DataFrame(TABLE, schema_overrides=kinds | {"v": pl.Array(pl.Float32, 2)} | changed)


def structured():
    masked = np.ma.zeros(
        5, dtype=[("x", "f8"), ("n", "i2"), ("k", "S1"), ("b", "?"), ("v", "f4", (2,)), ("p", "i8")]
    )
    for name, cells in TABLE.items():
        for place, cell in enumerate(cells):
            parts = [None, None] if name == "v" and cell is None else cell
            if name == "v":
                masked["v"][place] = [0 if part is None else part for part in parts]
                masked["v"][place] = np.ma.masked_array(
                    masked["v"].data[place], [part is None for part in parts]
                )
            elif cell is None:
                masked[name][place] = np.ma.masked
            else:
                masked[name][place] = cell
    return masked


CONTAINERS = {
    "lists": lambda: TABLE,
    "objects": lambda: {name: objects(cells) for name, cells in TABLE.items()},
    "masked": structured,
    "pandas objects": lambda: pd.DataFrame({n: objects(c) for n, c in TABLE.items()}),
    "pandas nullable": nullable,
    "pandas of Arrow": lambda: arrow().to_pandas(types_mapper=pd.ArrowDtype),
    "polars": in_polars,
    "polars text": lambda: in_polars(k=pl.String, v=pl.List(pl.Float64), x=pl.Decimal(10, 2)),
    "polars enum": lambda: in_polars(k=pl.Enum(["a", "3", "q"])),
    "Arrow": arrow,
    "batch": lambda: arrow().to_batches()[0],
    "chunks": lambda: pa.concat_tables([arrow()[:2], arrow()[2:]]),
    "series": lambda: {name: nullable()[name][::-1][::-1] for name in TABLE},
}


@pytest.mark.parametrize("container", CONTAINERS)
def test_every_container_says_the_same(container):
    encoded = SCHEMA.encode(CONTAINERS[container]())
    columns = {name: values.tolist() for name, values in encoded.columns.items()}
    assert columns == {
        "x": [1, 2, 3, 4, 0],
        "n": [1, 0, 3, 4, 4],
        "k": [0, 1, 1, 0, 2],
        "b": [1, 0, 0, 1, 0],
        "v": [[0, 1], [0.25, 0.25], [0.5, 1], [1, 0.25], [1, 1]],
    }
    assert encoded.most_rows == 2
    person = encoded.person
    assert (person == b"").tolist() == [False, False, True, False, True]
    assert person[0] == person[3] != person[1]


def test_text_columns_of_pandas():
    frame = pd.DataFrame({"x": ["1", "abc", None, "2"]}, dtype="str")
    assert one(Number(0, 4), frame["x"]) == [1, 2]
    assert one(Number(0, 4), frame["x"].astype("string")) == [1, 2]
    assert one(Number(0, 4), np.array(["1", "abc"])) == [1]
    assert one(Category([1, 2]), pd.Index(["1", "2", "x"])) == [0, 1]
    assert one(Number(0, 4), pd.Series([1.0, NAN]).astype("Sparse[float]")) == [1]


def test_one_odd_cell_does_not_change_how_others_are_read(tmp_path):
    """A reader of CSV turns a column into text because of one cell; nobody else may notice."""
    kinds = {"x": Number(0, 9), "k": Category(["1", "2"]), "b": Binary()}
    for odd in ("", "abc"):
        file = tmp_path / "table.csv"
        file.write_text(f"x,k,b\n1,1,True\n2.5,2,False\n{odd},{odd},{odd}\n")
        for frame in (pd.read_csv(file), pl.read_csv(file)):
            columns = Schema(kinds).encode(frame).columns
            assert columns["x"].tolist() == [1, 2.5]
            assert columns["k"].tolist() == [0, 1]
            assert columns["b"].tolist() == [1, 0]


def test_booleans_are_numbers_whether_or_not_a_reader_took_them_for_text(tmp_path):
    for odd in ("True", "perhaps"):
        (tmp_path / "t.csv").write_text(f"x\nTrue\nFalse\n{odd}\n")
        kind = Number(0, 1, missing=1)
        for table in (tmp_path / "t.csv", pd.read_csv(tmp_path / "t.csv")):
            assert Schema({"x": kind}).encode(table).columns["x"].tolist() == [1, 0, 1]


def test_people():
    ids = [
        7,
        "7",
        7.0,
        "07",
        None,
        NAN,
        pd.NA,
        pd.NaT,
        (1,),
        (1,),
        Decimal(2),
        [1],
        Rude(),
        True,
        1,
    ]
    schema = Schema({"x": Number(0, 99)}, person="who", most_rows=2)
    encoded = schema.encode({"x": range(len(ids)), "who": ids})
    codes = encoded.person
    alone = codes == b""
    assert alone.tolist() == [False] * 4 + [True] * 4 + [False] * 3 + [True] * 2 + [False] * 2
    assert codes[0] == codes[1] == codes[2] != codes[3]
    assert codes[8] == codes[9]
    assert len(set(codes[~alone])) == 6
    rows = Rows.from_encoded(*encoded)
    kept = rows._device_fields()[0]["x"][np.array(rows._device_fields()[1])]
    known = [i for i in range(len(ids)) if not alone[i]]
    assert sorted(np.asarray(kept).tolist()) == [i for i in known if i != 2]  # a third row


@pytest.mark.parametrize("dtype", [np.int64, "U5", object, bool])
def test_people_of_any_type_are_grouped_alike(dtype):
    ids = np.array([1, 0, 1, 1, 0]).astype(dtype)
    codes = (
        Schema({"x": Count(9)}, person="p", most_rows=1).encode({"x": range(5), "p": ids}).person
    )
    assert (codes[:, None] == codes).tolist() == (ids[:, None] == ids).tolist()


@pytest.mark.parametrize("dtype", [np.int64, np.uint64, object, "U20"])
def test_no_two_people_are_taken_for_one(dtype):
    """Neighbours among very large numbers, too, and as many as would meet in fewer bits."""
    large = np.arange(2**53 - 50_000, 2**53, dtype=np.int64)
    ids = np.concatenate([large + 2**60, large]).astype(dtype)
    schema = Schema({"x": Count(9)}, person="p", most_rows=1)
    codes = schema.encode({"x": np.zeros(len(ids)), "p": ids}).person
    assert len(np.unique(codes)) == len(ids)


def test_people_of_a_file_are_those_of_a_table(tmp_path):
    """Short and long, plain and not: read from text at once or one by one, a person has one code."""
    ids = [
        "7",
        "a-1",
        "p" * 15 + "1",
        "p" * 16 + "1",
        "ä1",
        "no digit",
        "",
        "nan",
        "1e+20",
        "x\x001",
    ]
    ids += ["p" * 15 + "2", "p" * 16 + "2", "7", "1 2", "p" * 15 + "1", "p" * 16 + "1"]
    schema = Schema({"x": Count(99)}, person="who", most_rows=2)
    path = tmp_path / "ids.csv"
    pd.DataFrame({"x": range(len(ids)), "who": ids}).to_csv(path, index=False)
    read = schema.encode(str(path)).person
    one_by_one = schema.encode({"x": range(len(ids)), "who": np.array(ids, object)}).person
    assert read.tolist() == one_by_one.tolist()
    assert len(set(read.tolist()) - {b""}) == len(set(ids) - {"", "nan", "1e+20"})


BIG = 2**53 + 2
ROUNDED = {
    "objects": [float(BIG), np.float64(BIG), 5, np.float32(2**24)],
    "text": [f"{BIG}.0", f"{BIG}.00 ", "5.0", "9.007199254740994e+15"],
    "larger text": [repr(float(BIG) * 10), "1e+17", "5", "inf"],
    "decimals": pa.array([BIG, BIG + 2, 5, 10 * BIG], pa.decimal128(20, 0)),
    "not UTF-8 in a file": ["M\ufffdller", "M\ufffdller", "5", "\ufffd"],
    "infinite": [np.inf, -np.inf, 5, np.inf],
}


@pytest.mark.parametrize("case", ROUNDED)
def test_an_identifier_that_may_be_several_is_nobodys(case):
    schema = Schema({"x": Count(9)}, person="p", most_rows=1)
    codes = schema.encode({"x": range(4), "p": ROUNDED[case]}).person
    assert (codes == b"").tolist() == [True, True, False, True]
    assert Rows.by_person({"x": range(4)}, ROUNDED[case], 2)._count == 1


def test_identifiers_that_are_exact_are_known():
    schema = Schema({"x": Count(9)}, person="p", most_rows=1)
    largest = float(2**53 - 1)
    for ids in (
        np.array([BIG, BIG + 1, BIG + 2, 5]),
        [BIG, BIG + 1, str(BIG + 2), "7e45"],
        pd.array([BIG, BIG + 1, None, 5], dtype="Int64"),
        pd.Series([largest, largest - 1, 0.5, -largest], dtype=object),
    ):
        codes = schema.encode({"x": range(4), "p": pd.Series(ids)}).person
        assert len(set(codes.tolist())) == 4


FLOATS = {
    "numpy": lambda ids: np.asarray(ids, np.float64),
    "single precision": lambda ids: np.asarray(ids, np.float32),
    "masked": lambda ids: np.ma.masked_invalid(np.asarray(ids, np.float64)),
    "pandas": lambda ids: pd.Series(ids, dtype=float),
    "pandas, nullable": lambda ids: pd.Series(ids, dtype="Float64"),
    "pandas, of Arrow": lambda ids: pd.Series(ids, dtype=pd.ArrowDtype(pa.float64())),
    "pandas, categories": lambda ids: pd.Series(ids, dtype=float).astype("category"),
    "polars": lambda ids: pl.Series(ids, dtype=pl.Float64),
    "arrow": lambda ids: pa.array(ids, pa.float64()),
    "arrow, dictionary": lambda ids: pa.array(ids, pa.float64()).dictionary_encode(),
    "arrow, half precision": lambda ids: pa.array([np.float16(0)] * len(ids), pa.float16()),
    "decimals with many digits": lambda ids: pa.array([0] * len(ids), pa.decimal128(20, 5)),
}


@pytest.mark.parametrize("container", FLOATS)
def test_identifiers_of_floats_are_refused_by_their_type(container, tmp_path):
    """Whatever they hold: with one record more, whose identifier is missing, they may have been whole numbers."""
    schema = Schema({"x": Count(9)}, person="p", most_rows=1)
    for ids in ([1.0, 2.0, None], [1.0, 2.0, 3.0], [None] * 3, []):
        some = [math.nan if cell is None else cell for cell in ids]
        column = FLOATS[container](some)
        table = {"x": np.zeros(len(ids)), "p": column}
        with pytest.raises(InvalidArgument, match="as text or as whole numbers") as caught:
            schema.check_header(table)
        assert str(caught.value).count(".") == 1
        for read in (schema.encode, lambda held: Rows.by_person({"x": held["x"]}, held["p"], 1)):
            with pytest.raises(InvalidArgument, match="as text or as whole numbers"):
                read(table)
    path = tmp_path / "ids.parquet"
    whole = column if isinstance(column, pa.Array) else pa.array(np.zeros(0))
    pq.write_table(pa.table({"x": np.zeros(0), "p": whole}), path)
    with pytest.raises(InvalidArgument, match="as text or as whole numbers"):
        schema.check(str(path))


def test_a_record_without_an_identifier_takes_nobody_along(tmp_path):
    """Neighbours are read alike in every container that keeps whole numbers, and else refused."""
    ids = [2**53 + 2 * i for i in range(5)]
    schema = Schema({"x": Count(9)}, person="p", most_rows=1)

    def known(table):
        return int((schema.encode(table).person != b"").sum())

    frame = pd.DataFrame({"x": 0, "p": [*ids, None]})
    assert frame["p"].dtype == np.float64
    with pytest.raises(InvalidArgument, match="floats"):
        known(frame)
    frame.assign(p=pd.array([*ids, None], "Int64")).to_csv(tmp_path / "ids.csv", index=False)
    more = {"x": [0] * 6, "p": [*ids, None]}
    for table in (more, pl.DataFrame(more), pa.table(more), str(tmp_path / "ids.csv")):
        assert known(table) == 5


@pytest.mark.parametrize("column", [np.array, list, lambda cells: pd.Series(cells, dtype=object)])
def test_a_rounded_label_is_no_level(column):
    kind = Category([2**53, 2**53 + 1, 7, "inf"], other="other")
    assert one(kind, column([2.0**53, 7.0, np.inf, 2.0**54])) == [4, 2, 3, 4]
    assert one(kind, [2**53, 2**53 + 1, f"{2**53}.0", str(2**53)]) == [0, 1, 4, 0]
    single = Category([2**24, 2**24 + 1, 7], other="other")
    assert one(single, np.array([2**24, 7], np.float32)) == [3, 2]
    assert one(single, [np.float32(2**24), 7]) == [3, 2]


@pytest.mark.parametrize(
    "ids",
    [
        [*np.array([0x7FF0000000000001, 0], np.uint64).view(np.float64)],  # NaN that signals
        [*np.array([0x7F800001, 0], np.uint32).view(np.float32)],
        [*(np.array([1e300, 1], np.longdouble) ** 10)],
    ],
)
def test_no_identifier_causes_a_warning(ids):
    schema = Schema({"x": Number(0, 1)}, person="p", most_rows=1)
    person = schema.encode({"x": [0.0, 1.0], "p": ids}).person
    assert len(set(person.tolist())) == 2


def test_rows_left_out_take_their_person_along():
    data = {"x": [1, None, 3], "y": [1, 2, 3], "p": ["a", "b", "c"]}
    encoded = Schema({"x": Number(0, 9), "y": Count(9)}, person="p", most_rows=1).encode(data)
    assert encoded.columns["y"].tolist() == [1, 3]
    assert len(encoded.person) == 2
    only = Schema({"x": Number(0, 9), "y": Count(9)}).encode(data, ["y"])
    assert only.columns["y"].tolist() == [1, 2, 3]
    assert (only.person, only.most_rows) == (None, None)


@pytest.mark.parametrize("container", [lambda d: d, pd.DataFrame, pl.DataFrame, pa.table])
def test_no_rows(container):
    no_rows = {name: np.zeros(0, np.int64) for name in TABLE}
    encoded = SCHEMA.encode(container(no_rows), ["x", "k", "b", "n"])
    assert [len(values) for values in encoded.columns.values()] == [0] * 4
    assert SCHEMA.encode({name: [] for name in TABLE} | {"v": np.zeros((0, 2))}).columns[
        "v"
    ].shape == (0, 2)


KINDS = st.sampled_from(
    [
        Number(0.1, 0.3),
        Number(-5, 5, scaled=True, missing=0.1),
        Number(-1, 1, shape=(2,)),
        Number(-1, 1, shape=(2,), missing=0),
        Count(3),
        Count(7, low=-2, missing=5),
        Binary(),
        Binary(yes="A", no=3, missing=0),
        Category(["A", "B", 3]),
        Category(["A", "B"], other="other"),
        Category(["A", 0], other="other", missing="other"),
        Number(0.1, 3, decimal=",", measured_in="kg"),
        Count(3, decimal=",", measured_in="kg", missing=1),
        Binary(yes="b", no="other", aliases={"bee": "b", 3: "other"}, ignore_case=True),
        Category(["b", "A"], aliases={"bee": "b"}, ignore_case=True),
        Date("2019-01-01", "2021-01-01", measured_in="years"),
        Date("2019-01-01", "2021-01-01", format="%d.%m.%y", missing="2020-01-01"),
        Date("2019-01-01", "2021-01-01", format="%d%m%Y"),
    ]
)
CELLS = st.one_of(
    st.sampled_from(ODD),
    st.floats(),
    st.integers(),
    st.text(max_size=3),
    st.lists(st.floats(), max_size=2),
)


def limits(kind):
    if isinstance(kind, Number):
        return (-1, 1) if kind.scaled else (kind.low, kind.high)
    if isinstance(kind, Count | Date):
        return kind.low, kind.high
    return 0, (1 if isinstance(kind, Binary) else kind.size - 1)


@settings(deadline=None, max_examples=300)
@given(KINDS, st.lists(CELLS, max_size=6), st.randoms())
def test_each_row_by_itself_and_within_bounds(kind, cells, random):
    schema = Schema({"x": kind}, person="p", most_rows=3)

    def encode(cells):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return schema.encode({"x": cells, "p": cells}).columns["x"]

    together = encode(cells)
    apart = [encode([cell]) for cell in cells]
    assert together.tolist() == [row for single in apart for row in single.tolist()]
    order = random.sample(range(len(cells)), len(cells))
    shuffled = encode([cells[place] for place in order])
    assert shuffled.tolist() == [row for place in order for row in apart[place].tolist()]
    low, high = limits(kind)
    assert together.dtype == kind.dtype
    assert together.shape[1:] == kind.shape
    assert ((together.astype(float) >= low) & (together.astype(float) <= high)).all()


@settings(deadline=None)
@given(
    st.lists(st.floats(width=32), max_size=5),
    # Without a form, a column of numbers cannot be dates, and is refused.
    KINDS.filter(lambda kind: not kind.shape and (kind.kind != "date" or kind.format)),
)
def test_float_columns_as_their_cells(cells, kind):
    assert one(kind, np.array(cells, np.float64)) == one(kind, cells)
    assert one(kind, pd.Series(cells, dtype="Float64")) == one(kind, cells)
    assert one(kind, pl.Series(cells, dtype=pl.Float64)) == one(kind, cells)


def test_the_table_is_not_changed():
    table = {
        "x": np.array([NAN, 5, -5]),
        "k": objects(["a", None, "z"]),
        "p": np.array([1, 0, 1]),
    }
    before = {name: values.copy() for name, values in table.items()}
    for values in table.values():
        values.flags.writeable = False
    kinds = {"x": Number(-5, 5), "k": Category(["a"], missing="a")}
    encoded = Schema(kinds, person="p", most_rows=1).encode(table)
    for name, values in before.items():
        np.testing.assert_array_equal(table[name], values)
    assert not any(np.shares_memory(encoded.columns[name], table[name]) for name in kinds)


BAD = {
    "datetime": ({"x": np.array(["2020-01-01"], "M8[D]")}, "of dates"),
    "timedelta": ({"x": pd.Series(pd.to_timedelta([1]))}, "timedelta64"),
    "dates": ({"x": pl.Series([dt.date(2020, 1, 1)])}, "of dates"),
    "Arrow dates": ({"x": pa.array([dt.date(2020, 1, 1)])}, "of dates"),
    "categories of dates": (
        {"x": pd.Series(pd.date_range("2020", periods=1)).astype("category")},
        "of dates",
    ),
    "periods": ({"x": pd.period_range("2020", periods=1, freq="D")}, "period"),
    "complex": ({"x": np.array([1j])}, "complex128"),
    "scalar": ({"x": 4321}, "for each row"),
    "text": ({"x": "4321"}, "for each row"),
    "matrix": ({"x": np.full((2, 3), 4321)}, r"single value .* shape \(3,\)"),
    "Arrow lists": ({"x": pa.array([[4321]], pa.list_(pa.int32(), 1))}, r"shape \(1,\)"),
    "near miss": ({"X1": [4321], "xs": [1]}, "no column x;"),
    "no table": ([4321], "got a list"),
    "lazy": (pl.LazyFrame({"x": [4321]}), "collected"),
    "twice": (pd.DataFrame([[4321, 1]], columns=["x", "x"]), "several columns"),
}


@pytest.mark.parametrize("case", BAD)
def test_faults_of_the_table_are_errors_without_cells(case):
    data, expected = BAD[case]
    with pytest.raises(InvalidArgument, match=expected) as caught:
        Schema({"x": Number(0, 1)}).encode(data)
    assert "4321" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert str(caught.value).endswith(".")


def test_lengths_and_persons():
    schema = Schema({"x": Number(0, 1)}, person="p", most_rows=1)
    with pytest.raises(InvalidArgument, match="same number of rows") as caught:
        schema.encode({"x": np.zeros(4321), "p": np.zeros(1234)})
    assert not set("1234") & set(str(caught.value))
    with pytest.raises(InvalidArgument, match="no column 'p'"):
        schema.encode({"x": [1]})
    with pytest.raises(InvalidArgument, match="one person"):
        schema.encode({"x": [1], "p": np.zeros((1, 2))})
    with pytest.raises(InvalidArgument, match="single values"):
        Schema({"x": Number(0, 1, shape=(2,))}).encode({"x": np.zeros(2)})


def test_gaps_that_are_left_to_the_model_stay_as_nan():
    schema = Schema({"bmi": Number(15, 50, scaled=True, missing="keep"), "ill": Binary()})
    table = {"bmi": ["15", "", "x", "70"], "ill": [1, 0, 1, None]}
    encoded = schema.encode(table)
    assert encoded.columns["bmi"].tolist() == pytest.approx([-1, NAN, NAN], nan_ok=True)
    assert encoded.left_out == 1
    assert schema.check(table).complete == 3
    assert Schema.from_text(schema.to_text()) == schema
    assert "left to the model" in str(schema)
    new, present = schema.encode_new({"bmi": [None, 50]}, ["bmi"])
    assert np.isnan(new["bmi"]).tolist() == [True, False]
    assert present.all()


def test_gaps_are_kept_for_models_that_can_use_them_alone():
    schema = Schema({"bmi": Number(15, 50, missing="keep"), "ill": Binary()})
    with pytest.raises(InvalidArgument, match=r"missing='keep', which leaves its gaps to a model"):
        tacit.glm("ill ~ bmi", schema=schema)
    with pytest.raises(InvalidArgument, match=r"which Normal cannot use"):
        tacit.conjugate.Normal("bmi").with_bounds_of(schema)
    with pytest.raises(InvalidArgument, match="needs a Number"):
        Count(9, missing="keep")
    level = Schema({"rule": Category(["keep", "sell"], missing="keep"), "ill": Binary()})
    assert "left to the model" not in str(level)
    tacit.glm("ill ~ rule", schema=level)
