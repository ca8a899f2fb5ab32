"""Rows out of files: what each kind of file says, what is wrong with it, and what a bad line does."""

import datetime as dt
import gzip
import os
import sys
import tempfile
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import csv, feather, parquet

from tacit import Binary, Budget, Category, Count, Ledger, Model, Number, Rows, Schema, fit
from tacit.data import sources, store
from tacit.errors import InvalidArgument, MissingPackage
from tacit.models import Parameter

SCHEMA = Schema(
    {
        "age": Number(18, 100),
        "ward": Category(["A", "B", 3], other="other", missing="other"),
        "visits": Count(30, missing=7),
        "readmitted": Binary(),
    },
    person="patient",
    most_rows=2,
)
TABLE = {
    "patient": ["1", "2", "1", None, "1", "3"],
    "age": [30.5, 17.0, 200.0, 50.0, None, 64.0],
    "ward": ["A", "B", "Z", None, "3", "3"],
    "visits": [1, None, 99, 4, 5, 6],
    "readmitted": [True, False, True, True, False, None],
    "note": ["x", "y, z", "", None, 'a "quote"', "é"],
}


def arrow():
    return pa.table(TABLE)


def as_text(table):
    frame = pd.DataFrame(table, dtype=object)
    return frame.to_csv(index=False, lineterminator="\r\n")


WAYS = {
    "data.csv": lambda path: path.write_text(as_text(TABLE), newline=""),
    "data.tsv": lambda path: pd.DataFrame(TABLE, dtype=object).to_csv(path, index=False, sep="\t"),
    "data.csv.gz": lambda path: path.write_bytes(gzip.compress(as_text(TABLE).encode("utf-8-sig"))),
    "data.parquet": lambda path: parquet.write_table(arrow(), path, row_group_size=2),
    "data.feather": lambda path: feather.write_feather(arrow(), path),
    "polars.parquet": lambda path: pl.DataFrame(TABLE).write_parquet(path),
    "floats.csv": lambda path: pl.DataFrame(
        TABLE | {"patient": ["1.0", "2.0", "1.0", None, "1.0", "3.0"]}
    ).write_csv(path, null_value="NA"),
}


def same(one, two):
    assert one.columns.keys() == two.columns.keys()
    for name, values in one.columns.items():
        assert values.dtype == two.columns[name].dtype
        np.testing.assert_array_equal(values, two.columns[name])
    if one.person is not None:
        for codes in (one.person, two.person):
            assert len(codes) == len(one.columns[next(iter(one.columns))])
        apart = one.person[:, None] == one.person
        np.testing.assert_array_equal(apart, two.person[:, None] == two.person)


@pytest.mark.parametrize("name", WAYS)
def test_files_say_what_tables_say(tmp_path, name):
    WAYS[name](tmp_path / name)
    expected = SCHEMA.encode(TABLE)
    assert expected.columns["age"].tolist() == [30.5, 18, 100, 50]
    for path in (tmp_path / name, str(tmp_path / name)):
        same(SCHEMA.encode(path), expected)
    same(SCHEMA.encode(pl.DataFrame(TABLE)), expected)
    same(SCHEMA.encode(pd.DataFrame(TABLE)), expected)
    columns, present = SCHEMA.encode_new(tmp_path / name, ["age", "ward"])
    assert present.tolist() == [True, True, True, True, False, True]
    assert columns["ward"].tolist() == [0, 1, 3, 3, 2, 2]


def test_arrays_on_disk(tmp_path):
    records = np.zeros(5, dtype=[("x", "f8"), ("k", "U3"), ("p", "i8")])
    records["x"], records["k"], records["p"] = [1, np.nan, 3, 4, 9], ["a", "b", "a", "", "c"], 7
    np.save(tmp_path / "data.npy", records)
    schema = Schema({"x": Number(0, 4), "k": Category(["a", "b"])}, person="p", most_rows=9)
    same(schema.encode(tmp_path / "data.npy"), schema.encode(records))
    mapped = np.memmap(tmp_path / "x.bin", "f4", "w+", shape=(5,))
    mapped[:] = [0, 1, 2, 3, 9]
    assert Schema({"x": Number(0, 4)}).encode({"x": mapped}).columns["x"].tolist() == [
        0,
        1,
        2,
        3,
        4,
    ]
    assert sources.open_source({"x": mapped}).mapped
    assert not sources.open_source({"x": np.zeros(3)}).mapped


CSV = b"age,ward,visits,readmitted,patient\n"
GOOD = [b"30,A,1,1,a", b'40,"B",2,0,b', b"50,3,3,1,a", b"60, Z ,4,0,c"]
BAD_LINES = [
    b'"',
    b'30,"A,1,1,a',
    b"1,2",
    b"30,A,1,1,a,b,c",
    b",,,,",
    b"\xff\xfe\x00,\x80,1,1,\xc3",
    b"30,\xe2\x82",
    b"x" * 2_000_000,
    b'30,"' + b"x" * 200_000 + b'",1,1,a',
    b"1e999,-1,nan,inf,?",
    b"30,A\r,1,1,a",
    b"\x00\x00",
    b"30,A,1,1,\xe2\x80\xa8",
    b"'30','A',1,1,a",
]
PLAIN = Schema(dict(SCHEMA.items))


def encoded(folder, lines, schema=SCHEMA):
    path = folder / "data.csv"
    path.write_bytes(CSV + b"\n".join(lines) + b"\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return schema.encode(path), schema.encode_new(path, schema.names)


def others_are_as_they_were(folder, bad, place):
    _, (clean, there) = encoded(folder, GOOD)
    fitted, (columns, present) = encoded(folder, [*GOOD[:place], bad, *GOOD[place:]])
    more = len(present) - len(there)
    assert more in (0, 1)  # an empty line is no row
    for name, values in columns.items():
        rest = np.delete(values, range(place, place + more))
        np.testing.assert_array_equal(rest, clean[name])
    assert np.delete(present, range(place, place + more)).all()
    assert len(fitted.columns["age"]) in (len(GOOD), len(GOOD) + 1)
    assert np.isfinite(fitted.columns["age"]).all()


@pytest.mark.parametrize("bad", range(len(BAD_LINES)))
@pytest.mark.parametrize("place", [0, 2, 4])
def test_a_bad_line_changes_only_its_own_row(tmp_path, bad, place):
    others_are_as_they_were(tmp_path, BAD_LINES[bad], place)


@settings(
    deadline=None,
    max_examples=150,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    st.one_of(
        st.binary(max_size=40),
        st.text('"\r,\t; A1é\0', max_size=30).map(lambda text: text.encode()),
    ).filter(lambda line: b"\n" not in line),
    st.integers(0, len(GOOD)),
)
def test_any_bytes_in_a_line_change_only_its_own_row(tmp_path, line, place):
    others_are_as_they_were(tmp_path, line, place)


def test_lines_are_the_same_wherever_a_block_of_reading_ends(tmp_path, monkeypatch):
    lines = [*GOOD, *BAD_LINES[:7], *GOOD] * 3
    expected, _ = encoded(tmp_path, lines)
    for block in (1, 2, 3, 7, 50):
        monkeypatch.setattr("tacit.data.csv._BLOCK_BYTES", block)
        same(encoded(tmp_path, lines)[0], expected)
    monkeypatch.setattr("tacit.data.csv._MAX_LINE_BYTES", 60)
    long = [*GOOD, b"1," * 40, *GOOD]
    for block in (1, 2, 50, 1000):
        monkeypatch.setattr("tacit.data.csv._BLOCK_BYTES", block)
        assert len(encoded(tmp_path, long, PLAIN)[0].columns["age"]) == 8


def test_a_line_that_is_not_square_has_its_cells_missing(tmp_path):
    schema = Schema({"x": Number(0, 9, missing=5)})
    (tmp_path / "data.csv").write_text("x,y\n1,2\n1\n\n1,2,3\n  \n4,5")
    assert schema.encode(tmp_path / "data.csv").columns["x"].tolist() == [1, 5, 5, 4]


@pytest.mark.parametrize("write", ["polars", "pandas", "pyarrow"])
def test_a_missing_cell_of_the_only_column_is_a_row(tmp_path, write):
    """Else the number of rows, where that is public, would tell of it."""
    path, table = tmp_path / "data.csv", pa.table({"x": [1, None, 2, None]})
    if write == "polars":
        pl.from_arrow(table).write_csv(path)
    elif write == "pandas":
        table.to_pandas().to_csv(path, index=False)
    else:
        csv.write_csv(table, path)
    encoded = Schema({"x": Number(0, 9)}).encode(path)
    assert (encoded.columns["x"].tolist(), encoded.left_out) == ([1, 2], 2)
    assert Schema({"x": Number(0, 9, missing=5)}).encode(path).columns["x"].tolist() == [1, 5, 2, 5]


def test_no_rows(tmp_path):
    for text in ("age,ward,visits,readmitted,patient", CSV.decode(), CSV.decode() + "\n\n"):
        (tmp_path / "data.csv").write_text(text)
        columns = SCHEMA.encode(tmp_path / "data.csv").columns
        assert [(len(values), values.dtype.kind) for values in columns.values()] == [
            (0, "f"),
            (0, "i"),
            (0, "i"),
            (0, "i"),
        ]
    parquet.write_table(arrow()[:0], tmp_path / "data.parquet")
    assert len(SCHEMA.encode(tmp_path / "data.parquet").columns["age"]) == 0


def test_text_of_any_bytes_in_a_parquet_file(tmp_path):
    raw = pa.array([b"A", b"\xff\xfe", None, b"B"], pa.binary())
    text = pa.StringArray.from_buffers(4, raw.buffers()[1], raw.buffers()[2], raw.buffers()[0])
    schema = Schema({"k": Category(["A", "B"], other="other", missing="A")})
    for column in (text, raw, text.dictionary_encode()):
        parquet.write_table(pa.table({"k": column}), tmp_path / "data.parquet")
        assert schema.encode(tmp_path / "data.parquet").columns["k"].tolist() == [0, 2, 0, 1]


def test_arrays_of_any_bytes_are_missing(tmp_path):
    raw = pa.array([b"1", b"\xff\xfe", b"3"], pa.binary())
    text = pa.StringArray.from_buffers(3, raw.buffers()[1], raw.buffers()[2], raw.buffers()[0])
    arrays = pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), text)
    parquet.write_table(pa.table({"x": arrays}), tmp_path / "data.parquet")
    schema = Schema({"x": Number(0, 9, shape=(1,), missing=5)})
    assert schema.encode(tmp_path / "data.parquet").columns["x"].tolist() == [[1], [5], [3]]


def damaged(path):
    parquet.write_table(pa.table({"age": np.arange(1e5) + 4321.5}), path, compression="zstd")
    whole = bytearray(path.read_bytes())
    whole[1000:60000] = b"\x55" * 59000
    path.write_bytes(whole)


FAULTS = {
    "nothing.csv": (lambda _: None, "There is no data file"),
    "nothing.parquet": (lambda _: None, "There is no data file"),
    "folder.csv": (lambda path: path.mkdir(), "is a folder"),
    "empty.csv": (lambda path: path.touch(), "names the columns"),
    "blank.csv": (lambda path: path.write_text("\nage\n4321\n"), "names the columns"),
    "binary.csv": (lambda path: path.write_bytes(b"\x89PNG\x0d\x0a\x1a\x0a\xff"), "UTF-8"),
    "nul.csv": (lambda path: path.write_bytes(b"age\0\n"), "UTF-8"),
    "wide.csv": (lambda path: path.write_text("age\n4321\n", encoding="utf-16"), "UTF-8"),
    "old.csv": (
        lambda path: path.write_bytes(b"age,dose\r4321,Smith\r8,9\r"),
        "carriage return",
    ),
    "bare.csv": (lambda path: path.write_text("4321,Smith\n8,9\n"), "no column age"),
    "twice.csv": (
        lambda path: path.write_text("age,b,age\n4321,1,1\n"),
        "several columns named 'age'",
    ),
    "broken.csv.gz": (lambda path: path.write_text("age\n4321\n"), "damaged"),
    "short.csv.gz": (
        lambda path: path.write_bytes(
            gzip.compress(b"age\n" + os.urandom(10000).hex().encode())[:99]
        ),
        "damaged",
    ),
    "table.xls": (lambda path: path.write_text("4321"), "unknown file extension"),
    "text.xlsx": (lambda path: path.write_text("4321"), "damaged"),
    "text.sav": (lambda path: path.write_text("4321"), "damaged"),
    "text.dta": (lambda path: path.write_text("4321"), "damaged"),
    "text.sas7bdat": (lambda path: path.write_text("4321"), "damaged"),
    "text.xpt": (lambda path: path.write_text("4321"), "damaged"),
    "table": (lambda path: path.write_text("age\n4321"), "unknown file extension"),
    "text.parquet": (lambda path: path.write_text("age\n4321\n"), "Parquet"),
    "text.feather": (lambda path: path.write_text("age\n4321\n"), "Arrow"),
    "empty.parquet": (lambda path: path.touch(), "Parquet"),
    "pages.parquet": (damaged, "damaged"),
    "dates.parquet": (
        lambda path: parquet.write_table(pa.table({"age": pa.array([4321], pa.date32())}), path),
        "of dates",
    ),
    "text.npy": (lambda path: path.write_text("4321"), "NumPy"),
    "objects.npy": (lambda path: np.save(path, np.array([{}], object)), "NumPy"),
    "matrix.npy": (lambda path: np.save(path, np.full((3, 2), 4321)), "structured"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults_of_files_are_one_sentence_without_a_cell(tmp_path, name):
    make, expected = FAULTS[name]
    make(tmp_path / name)
    with pytest.raises(InvalidArgument, match=expected) as refused:
        Schema({"age": Number(0, 1)}).encode(tmp_path / name)
    said = str(refused.value)
    assert said.endswith(".")
    assert "4321" not in said
    assert "Smith" not in said
    assert refused.value.__cause__ is None


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(tmp_path):
    (tmp_path / "data.csv").write_text("age\n1\n")
    (tmp_path / "data.csv").chmod(0)
    with pytest.raises(InvalidArgument, match="Permission denied"):
        Schema({"age": Number(0, 1)}).encode(tmp_path / "data.csv")


def test_a_header_with_a_wanted_column_is_named_and_another_is_not(tmp_path):
    (tmp_path / "data.csv").write_text("age,dozze\n")
    with pytest.raises(InvalidArgument, match="did you mean 'dozze'"):
        Schema({"age": Number(0, 1), "dose": Number(0, 1)}).encode(tmp_path / "data.csv")
    with pytest.raises(InvalidArgument, match="no column dose") as refused:
        Schema({"dose": Number(0, 1)}).encode(tmp_path / "data.csv")
    assert "dozze" not in str(refused.value)


MOMENT = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
ZONED = pa.timestamp("us", "UTC")
UNUSABLE = {
    "struct": pa.array([{"Smith": 4321}]),
    "map": pa.array([[("Smith", 4321)]], pa.map_(pa.string(), pa.int32())),
    "list": pa.array([[4321, 1]]),
    "list of lists": pa.array([[[4321, 1]]]),
    "list of structs": pa.array([[{"Smith": 4321}]]),
    "list of zoned dates": pa.array([[MOMENT]], pa.list_(ZONED)),
    "fixed list": pa.array([[4321, 1]], pa.list_(pa.int32(), 2)),
    "zoned date": pa.array([MOMENT], ZONED),
    "dictionary of zoned dates": pa.array([MOMENT], ZONED).dictionary_encode(),
    "duration": pa.array([4321], pa.duration("s")),
    "fixed binary": pa.array([b"4321"], pa.binary(4)),
}


@pytest.mark.parametrize("kind", [Number(0, 9), Category(["a"], other="b"), Binary(), Count(9)])
@pytest.mark.parametrize("name", UNUSABLE)
def test_a_type_of_which_every_cell_would_be_missing_is_refused(tmp_path, name, kind):
    table = pa.table({"x": UNUSABLE[name], "y": pa.array([1])})
    parquet.write_table(table, tmp_path / "data.parquet")
    feather.write_feather(table, tmp_path / "data.feather")
    tables = [tmp_path / "data.parquet", tmp_path / "data.feather", table]
    if name != "dictionary of zoned dates":
        tables.append(table.to_pandas(types_mapper=pd.ArrowDtype))
    if name != "fixed binary":
        tables.append(pl.from_arrow(table))
    for each in tables:
        with pytest.raises(InvalidArgument, match="'x' must h") as refused:
            Schema({"x": kind, "y": Count(9)}).check_header(each)
        assert "Smith" not in str(refused.value)


@pytest.mark.parametrize("name", ["struct", "list", "list of lists", "map", "zoned date"])
def test_and_so_is_one_that_names_nobody(name):
    table = pa.table({"x": UNUSABLE[name], "y": pa.array([1])})
    with pytest.raises(InvalidArgument, match="'x' must"):
        Schema({"y": Count(9)}, person="x", most_rows=2).encode(table)


def test_lists_must_be_as_deep_as_arrays():
    deep = pa.table({"x": pa.array([[[1, 2]]], pa.list_(pa.list_(pa.int32())))})
    with pytest.raises(InvalidArgument, match="found lists"):
        Schema({"x": Number(0, 9, shape=(2,))}).encode(deep)
    assert Schema({"x": Number(0, 9, shape=(1, 2))}).encode(deep).columns["x"].tolist() == [
        [[1, 2]]
    ]


def test_nothing_is_charged_for_such_a_table(tmp_path):
    parquet.write_table(pa.table({"x": UNUSABLE["struct"]}), tmp_path / "data.parquet")
    ledger = Ledger.new(tmp_path / "l.db", total=Budget(1, 1e-6))
    model = Model(
        parameters={"m": Parameter(())},
        log_prior=lambda p: -(p["m"] ** 2),
        log_likelihood=lambda p, row: -((row["x"] - p["m"]) ** 2),
    )
    with pytest.raises(InvalidArgument, match="struct"):
        fit(
            model,
            tmp_path / "data.parquet",
            schema=Schema({"x": Number(0, 9)}),
            budget=Budget(1, 1e-6),
            ledger=ledger,
        )
    assert ledger.charges == []


def test_bytes_are_identifiers_as_they_are(tmp_path):
    raw = [b"\xff\x01", b"\xfe\x01", b"\xff\x01", None]
    for kind in (pa.binary(), pa.large_binary(), pa.binary(2)):
        table = pa.table({"x": [1, 2, 3, 4], "p": pa.array(raw, kind)})
        codes = Schema({"x": Count(9)}, person="p", most_rows=2).encode(table).person
        assert codes[0] == codes[2] != codes[1]
        assert codes[3] == b""


def test_pyarrow_is_asked_for_by_name(tmp_path, monkeypatch):
    parquet.write_table(arrow(), tmp_path / "data.parquet")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.delitem(sys.modules, "tacit.data.arrow", raising=False)
    with pytest.raises(MissingPackage, match=r"tacit-bayes\[parquet\]"):
        SCHEMA.encode(tmp_path / "data.parquet")


def large(path, rows=3000):
    generator = np.random.default_rng(5)
    table = {
        "age": np.where(generator.uniform(size=rows) < 0.1, np.nan, generator.normal(60, 30, rows)),
        "ward": generator.choice(["A", "B", "3", "Z", ""], rows),
        "visits": generator.integers(-5, 50, rows),
        "readmitted": generator.integers(0, 3, rows),
        "patient": generator.integers(0, rows // 3, rows) + 2**60,
    }
    parquet.write_table(pa.table(table), path)
    return table


@pytest.fixture
def on_disk(tmp_path, monkeypatch):
    """Everything that comes from a disk goes to one, and the temporary folder is watched."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setattr(store, "_MAX_BYTES_IN_MEMORY", 1000)
    monkeypatch.setattr(sources, "_ROWS_PER_CHUNK", 64)
    return folder


@pytest.mark.parametrize("schema", [SCHEMA, PLAIN])
def test_rows_on_disk_are_those_in_memory(tmp_path, on_disk, schema):
    table = large(tmp_path / "data.parquet")
    here, there = schema.encode(table), schema.encode(tmp_path / "data.parquet")
    same(here, there)
    assert all(store.is_memmap(values) for values in there.columns.values())
    assert not any(store.is_memmap(values) for values in here.columns.values())
    copied, kept = Rows.from_encoded(*here), Rows.from_encoded(*there)
    assert kept.on_disk
    assert not copied.on_disk
    (fields, present), (others, them) = copied._host_fields(), kept._host_fields()
    for name, values in fields.items():
        np.testing.assert_array_equal(values, others[name])
    np.testing.assert_array_equal(present, them)
    assert not list(on_disk.iterdir())  # the files have no names


def test_jax_uses_rows_on_disk_in_place(tmp_path, on_disk):
    large(tmp_path / "data.parquet")
    rows = Rows.from_encoded(*PLAIN.encode(tmp_path / "data.parquet"))
    held = rows._host_fields()[0]
    for name, array in rows._device_fields()[0].items():
        assert array.unsafe_buffer_pointer() == held[name].ctypes.data


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_nothing_stays_on_disk_after_an_error(tmp_path, on_disk, monkeypatch, error):
    large(tmp_path / "data.parquet")
    encode, calls = Count.encode, []

    def stopped(self, cells):
        calls.append(list(on_disk.iterdir()))
        if len(calls) > 20:
            raise error
        return encode(self, cells)

    monkeypatch.setattr(Count, "encode", stopped)
    with pytest.raises(error):
        PLAIN.encode(tmp_path / "data.parquet")
    assert not any(calls)
    assert not list(on_disk.iterdir())


def test_a_full_disk_is_one_sentence(tmp_path, on_disk, monkeypatch):
    large(tmp_path / "data.parquet")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    with pytest.raises(InvalidArgument, match="TMPDIR"):
        PLAIN.encode(tmp_path / "data.parquet")


def test_only_the_columns_asked_for_are_read(tmp_path):
    parquet.write_table(
        pa.table({"x": [1.0, 2.0], "when": pa.array([1, 2], pa.date32())}), tmp_path / "d.parquet"
    )
    schema = Schema({"x": Number(0, 9)})
    assert schema.encode(tmp_path / "d.parquet").columns["x"].tolist() == [1, 2]
