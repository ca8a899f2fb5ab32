"""Whose rows are one unit, where people are named in arrays."""

import datetime as dt
import enum
import warnings
from decimal import Decimal
from fractions import Fraction
from unittest.mock import MagicMock

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from tacit import Number, Schema
from tacit.errors import InvalidArgument
from tacit.privacy import rows as rows_module
from tacit.privacy.rows import Rows

BIRTH = dt.date(1970, 1, 1)
BIG = 2**60


class Ward(enum.Enum):
    NORTH = 1
    SOUTH = 2


def gap():
    """Not a number, and never the same object."""
    return float("nan")


def held(ids, most_rows=9):
    """The rows of each unit."""
    rows = Rows.by_person({"x": np.arange(len(ids))}, ids, most_rows)
    fields, present = rows._host_fields()
    return sorted(fields["x"][i][present[i]].tolist() for i in range(len(present)))


@pytest.mark.parametrize(
    ("ids", "units"),
    [
        ([7, 7.0, "7", np.float32(7)], [[0, 1, 2, 3]]),
        (["a", np.nan, "a", np.nan, "a", np.nan, "a"], [[0, 2, 4, 6]]),
        (["a", None, "a", None], [[0, 2]]),
        ([BIRTH, pd.NaT, BIRTH, pd.NaT, BIRTH], [[0, 2, 4]]),
        (["a", "", " ", "NA", "a ", "?"], [[0, 4]]),
        ([1, "one", None, (2, 3), (2, 3), [4]], [[0], [1], [3, 4]]),
        ([np.nan, None, "", pd.NA], []),
        (
            [7, Decimal(7), "7", Decimal("7.00"), Fraction(14, 2), Decimal("7.5"), 7.5],
            [[0, 1, 2, 3, 4], [5, 6]],
        ),
        ([BIG, Decimal(BIG), Decimal(BIG + 1), Decimal("NaN"), Decimal("sNaN")], [[0, 1], [2]]),
        ([Decimal("1e999999"), Fraction(10**400), Decimal("1e999999")], [[0, 2], [1]]),
        ([("A", gap()), ("A", gap()), ("A", 1), ("A", "1.0"), ("A", None)], [[2, 3]]),
        ([("A", (1, gap())), ("A", (1, 2)), ("A", (1, 2.0)), ("A", 1, 2)], [[1, 2], [3]]),
        (
            [frozenset([gap()]), frozenset([gap()]), frozenset([1, 2]), frozenset([2, 1.0])],
            [[2, 3]],
        ),
        ([object(), object(), Ward.NORTH, Ward.SOUTH, Ward.NORTH], [[2, 4], [3]]),
    ],
)
@pytest.mark.parametrize("of", [list, lambda ids: pd.Series(ids, dtype=object)])
def test_a_person_is_one_unit_and_nobody_is_none(ids, units, of):
    assert held(of(ids)) == units


@pytest.mark.parametrize(
    "ids",
    [
        np.array([3, None, 3, np.nan], object),
        np.array(["3", "", "3", " "]),
        np.array([b"3", b"", b"3", b""]),
        pd.array([3, None, 3, None], dtype="Int64"),
        pd.Categorical(["b", None, "b", None]),
    ],
)
def test_arrays_of_any_kind_say_who_is_unknown(ids):
    assert held(pd.Series(ids) if not isinstance(ids, np.ndarray) else ids) == [[0, 2]]


DECIMALS = [Decimal("1.000000000000000001"), Decimal("1.000000000000000002")]


@pytest.mark.parametrize(
    "ids",
    [
        pa.array(DECIMALS, pa.decimal128(38, 18)),
        pd.Series(DECIMALS, dtype=pd.ArrowDtype(pa.decimal128(38, 18))),
        pl.Series(DECIMALS, dtype=pl.Decimal(38, 18)),
    ],
)
def test_decimals_that_would_be_rounded_name_nobody(ids):
    with pytest.raises(InvalidArgument, match="as text or as whole numbers") as refused:
        held(ids)
    assert "00000" not in str(refused.value)
    with pytest.raises(InvalidArgument, match="as text or as whole numbers"):
        Schema({"x": Number(0, 9)}, person="p", most_rows=2).check({"x": [1, 2], "p": ids})


@pytest.mark.parametrize(
    "ids",
    [
        pa.array(map(Decimal, [7, 8, 7]), pa.decimal128(38, 0)),
        pl.Series([Decimal("7.5"), Decimal(8), Decimal("7.5")], dtype=pl.Decimal(12, 2)),
        pl.Series([2**100, 2**100 + 1, 2**100], dtype=pl.Int128),
    ],
)
def test_long_numbers_that_are_exact_name_people(ids):
    assert held(ids) == [[0, 2], [1]]


def test_no_cell_of_an_array_causes_a_warning():
    signals = np.array([0x7FF0000000000001, 0], np.uint64).view(np.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Rows({"x": signals})._count == 2


def test_people_are_those_of_a_schema():
    ids = [7, "7.0", "07", None, 2**60, 2**60 + 1, True, "True"]
    assert held(ids) == [[0, 1], [2], [4], [5], [6, 7]]


@pytest.mark.parametrize("ids", [np.zeros((3, 2)), np.zeros(2), 5])
def test_what_names_no_person_is_refused(ids):
    with pytest.raises(InvalidArgument, match="person"):
        Rows.by_person({"x": np.zeros(3)}, ids, 1)


def test_rows_that_memory_has_no_room_for_are_refused(monkeypatch):
    columns, codes = {"x": np.zeros(3, np.float32)}, np.array([b"1", b"2", b"3"])
    monkeypatch.setattr(rows_module, "allocate", MagicMock(side_effect=MemoryError))
    with pytest.raises(InvalidArgument, match="not enough memory"):
        Rows.from_encoded(columns, codes, 5)


@pytest.mark.parametrize("most", [10**9, 1e400, 10**400])
def test_more_rows_of_a_person_than_there_is_room_for_are_refused(most):
    with pytest.raises(InvalidArgument, match="most_rows must be"):
        Rows.by_person({"x": np.zeros(3)}, [1, 2, 3], most)
    with pytest.raises(InvalidArgument, match="most_rows must be"):
        Schema({"x": Number(0, 1)}, person="p", most_rows=most)
