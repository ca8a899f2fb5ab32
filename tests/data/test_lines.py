"""Lines of CSV files that are read all at once, against the same lines read one by one."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tacit.data import csv
from tacit.data.arrow import array_cells
from tacit.data.cells import (
    PADDING,
    Cells,
    NumberFormat,
    Texts,
    parse_number,
    read_dates,
    read_labels,
    read_numbers,
)
from tacit.data.people import People

TABLE = {"A": 0, " B": 1, "3": 2, "NA": 3, "\ufffd": 4, "a level of more than 24 bytes": 5}
NASTY = [
    *("1_000", " 5", "5 ", "nan", "inf", "-Infinity", "0x10", "٣", "3.0", "07", "7", "7.0", "-0", "+.5", "."),
    *("9007199254740993", "9007199254740992.5", "18446744073709551616", "1e5", "1e999", "1" * 30, "-"),
    *("0.1000000000000000055511151231257827", "2.2250738585072011e-308", "5-3", "1.2.3", "true", "FALSE"),
    *("A", " A", "B", " B", "3", "NA", "?", "null", "None", "\ufffd", "é", "a level of more than 24 bytes"),
    *("P-0017", "f" * 36, "x" * 90, "x" * 90, "", '"', '""', '"A"', '"A', 'A"', '"A,B"', '"a ""b"""', '"\r"'),
    *("1,5", "1,5kg", "-3 kg", "1.5 kg", "2020-03-17", "17.03.2020", "2020-03-17 12:30", "a", "Na", "1,5,5"),
    *("\0", "5\0", "\ufeff5", "\u2028", "\x85", "\r", "A\r"),
]  # fmt: skip
CELLS = st.one_of(
    st.sampled_from(NASTY).map(str.encode),
    st.integers(-(2**70), 2**70).map(lambda number: str(number).encode()),
    st.floats().map(lambda number: repr(number).encode()),
    st.decimals(allow_nan=False, places=12, min_value=-(10**9), max_value=10**9).map(
        lambda number: str(number).encode()
    ),
    st.binary(max_size=9).map(lambda raw: raw.replace(b"\n", b"")),
    st.text('",\r A1.-', max_size=9).map(str.encode),
)
QUIET = settings(
    deadline=None,
    max_examples=100,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def one_by_one(raw, separator, width):
    """The cells of a file without its header, line by line, as text or None."""
    pieces = raw.removesuffix(b"\n").split(b"\n")[1:]
    texts = [piece.rstrip(b"\r") for piece in pieces]
    kept = [text for text in texts if width == 1 or text.strip(b" \r")]
    rows = [csv._line_cells(text, separator, width) or [None] * width for text in kept]
    return [np.array([row[i] for row in rows] or [], object) for i in range(width)]


def agree(found, expected):
    for form in (NumberFormat(), NumberFormat(",", "kg"), NumberFormat(".", "5")):
        np.testing.assert_array_equal(
            read_numbers(found, (), form).view(np.uint64),
            read_numbers(expected, (), form).view(np.uint64),
        )
    for form in (None, "%d.%m.%Y"):
        np.testing.assert_array_equal(read_dates(found, form), read_dates(expected, form))
    folded = {"a": 7, "na": 8}
    np.testing.assert_array_equal(
        read_labels(found, TABLE, folded), read_labels(expected, TABLE, folded)
    )
    for table in (TABLE, {"": 0}, {}):
        np.testing.assert_array_equal(read_labels(found, table), read_labels(expected, table))
    np.testing.assert_array_equal(People().codes(found), People().codes(expected))


@QUIET
@given(
    st.lists(st.lists(CELLS, min_size=1, max_size=4), max_size=12),
    st.integers(1, 3),
    st.sampled_from([b"\n", b"\r\n"]),
    st.booleans(),
)
@example([[b'"'], [b"1", b'2"'], [b"", b""], []], 2, b"\n", True)
def test_lines_read_at_once_hold_what_they_hold_one_by_one(tmp_path, rows, width, eol, ended):
    header = b",".join([b"a", b"b", b"c"][:width])
    raw = eol.join([header, *(b",".join(row) for row in rows)]) + (eol if ended else b"")
    (tmp_path / "data.csv").write_bytes(raw)
    names = ["a", "b", "c"][:width]
    expected = one_by_one(raw, ",", width)
    chunks = list(csv.chunks(tmp_path / "data.csv", names))[1:]
    for name, column in zip(names, expected, strict=True):
        start = 0
        for chunk in chunks:
            end = start + len(chunk[name].values)
            agree(chunk[name], Cells(column[start:end]))
            start = end
        assert start == len(column)


@QUIET
@given(st.lists(st.none() | CELLS, max_size=20), st.integers(0, 5))
def test_text_of_arrow_holds_what_its_objects_hold(cells, start):
    whole = pa.array(cells, pa.binary())
    decoded = [cell if cell is None else _decoded(cell) for cell in cells]
    for column in (whole, whole.cast(pa.large_binary()), pa.chunked_array([whole[:3], whole[3:]])):
        expected = Cells(np.fromiter(decoded[start:], object, len(decoded[start:])))
        agree(array_cells("x", column[start:]), expected)


def _decoded(cell):
    try:
        return cell.decode()
    except UnicodeDecodeError:
        return cell


@QUIET
@given(st.integers(0, 10**19 - 1), st.integers(0, 22), st.booleans())
@example(9007199254740993, 0, False)  # in the middle between two floats
@example(5000000000000000277, 19, True)
def test_decimals_are_rounded_as_python_rounds_them(digits, places, minus):
    text = f"{digits:0{places + 1}d}"
    text = ("-" if minus else "") + text[: len(text) - places] + "." + text[len(text) - places :]
    cells = Texts(text.encode() + PADDING, np.array([0]), np.array([len(text)]))
    assert cells.numbers(parse_number).tolist() == [float(text)]


def test_most_decimals_need_no_second_look():
    texts = [f"{number:.{places}f}" for places in range(12) for number in (0.1, -73.25, 98765.4321)]
    starts = np.cumsum([0, *map(len, texts)])
    cells = Texts("".join(texts).encode() + PADDING, starts[:-1], np.diff(starts))
    read = cells.numbers(lambda _: pytest.fail("A plain decimal was read by itself."))
    assert read.tolist() == [float(text) for text in texts]
