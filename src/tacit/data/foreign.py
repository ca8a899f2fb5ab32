"""Files of other programs: Excel workbooks, and data sets of Stata, SPSS and SAS.

Every cell is taken as it is in the file, as a Python object: a whole column never gets another type because of
one cell. pandas would convert columns as a whole, take labels of values only if no two are equal, and refuse a file
for one impossible date. So the packages that it uses are called directly, and what a file's header says of a column
(the labels of values, that numbers are dates) is applied cell by cell.

A row of a workbook in which no cell is filled is no row, as an empty line of a CSV file is none.
"""

import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.data.cells import Cells, LabelledNumber
from tacit.errors import InvalidArgument, MissingPackage, os_error_reason

# The functions of pyreadstat.
_READERS = {
    ".dta": "read_dta",
    ".sav": "read_sav",
    ".sas7bdat": "read_sas7bdat",
    ".xpt": "read_xport",
}
# Formats of columns that are dates: the first day of the program's calendar, and how many units a day has.
_SAS_DATES = r"((DD|MM|YY)(MM|DD)(YY|DD)[BCDNPS]?|DATE|WEEKDAT[EX]|(IS|E|B)8601DA)[0-9.]*"
_SAS_TIMES = r"(DATETIME|DATEAMPM|MDYAMPM|(IS|E|B)8601DT|B8601DN)[0-9.]*"
_SAS = {_SAS_DATES: ("1960-01-01", 1), _SAS_TIMES: ("1960-01-01", 86_400)}
_CALENDARS = {
    ".dta": {"%-?t?d.*": ("1960-01-01", 1), "%-?t[cC].*": ("1960-01-01", 86_400_000)},
    ".sav": {r"([AEJS]?DATE|DATETIME|YMDHMS)[0-9.]*": ("1582-10-14", 86_400)},
    ".sas7bdat": _SAS,
    ".xpt": _SAS,
}
_LONGEST_CALENDAR = 4_000_000  # days, beyond which no year has four digits


def header(path: Path) -> list[str]:
    """The names of a file's columns: in a workbook, those in the first row of the first sheet."""
    if path.suffix.lower() == ".xlsx":
        with _open_sheet(path) as (names, _):
            return names
    _, about = _read(path, metadataonly=True)
    return [str(name) for name in about.column_names]


def chunks(path: Path, names: Sequence[str], rows: int) -> Iterator[dict[str, Cells]]:
    """The cells of some columns, so many rows at a time; the first chunk has none."""
    yield {name: _as_cells([]) for name in names}
    yield from (_sheet_chunks if path.suffix.lower() == ".xlsx" else _set_chunks)(path, names, rows)


def _as_cells(values: Sequence[object] | NDArray[np.generic]) -> Cells:
    return Cells(np.fromiter(values, object, len(values)))


def _sheet_chunks(path: Path, names: Sequence[str], size: int) -> Iterator[dict[str, Cells]]:
    with _open_sheet(path) as (known, rows):
        places = [known.index(name) for name in names]
        filled = (row for row in rows if any(cell not in (None, "") for cell in row))
        while some := _quietly(path, lambda: list(islice(filled, size))):
            yield {
                name: _as_cells([row[place] if place < len(row) else None for row in some])
                for name, place in zip(names, places, strict=True)
            }


@contextmanager
def _open_sheet(path: Path) -> Iterator[tuple[list[str], Iterator[tuple[object, ...]]]]:
    """The names in the first row of a workbook's first sheet, and the rows after it."""
    openpyxl = _package("openpyxl", path)
    book = _quietly(path, lambda: openpyxl.load_workbook(path, read_only=True, data_only=True))
    try:
        sheet = _quietly(path, lambda: book.worksheets[0])
        _quietly(
            path, sheet.reset_dimensions
        )  # some programs write wrong ones, which would hide cells
        rows = sheet.iter_rows(values_only=True)
        first = _quietly(path, lambda: next(rows, ()))
        yield ["" if cell is None else str(cell).strip() for cell in first], rows
    finally:
        book.close()


def _set_chunks(path: Path, names: Sequence[str], size: int) -> Iterator[dict[str, Cells]]:
    columns, about = _read(
        path, usecols=[*names], disable_datetime_conversion=True, output_format="dict"
    )
    read = {name: _cell_reader(path, name, about) for name in names}
    whole = {
        name: [read[name](cell) for cell in np.asarray(columns[name]).tolist()] for name in names
    }
    for start in range(0, len(whole[names[0]]), size):
        yield {name: _as_cells(cells[start : start + size]) for name, cells in whole.items()}


def _cell_reader(path: Path, name: str, about: Any) -> Callable[[object], object]:
    """How the cells of a column are read, by the header: dates by its format, others by the labels of values."""
    form = str(about.original_variable_types.get(name) or "")
    for pattern, (first, units) in _CALENDARS[path.suffix.lower()].items():
        if re.fullmatch(pattern, form):
            return lambda cell: _as_date(cell, np.datetime64(first, "s"), units)
    labels: Mapping[object, str] = about.variable_value_labels.get(name, {})
    return lambda cell: _with_label(cell, labels.get(cell))


def _with_label(cell: object, label: str | None) -> object:
    numeric = label is not None and isinstance(cell, int | float)
    return LabelledNumber(cell, str(label)) if numeric else cell  # type: ignore[arg-type]  # checked


def _as_date(cell: object, first: np.datetime64, units: int) -> object:
    if not isinstance(cell, int | float) or not abs(cell / units) < _LONGEST_CALENDAR:
        return None
    return first + np.timedelta64(round(cell / units * 86_400), "s")


def _read(path: Path, **settings: Any) -> tuple[Any, Any]:
    pyreadstat = _package("pyreadstat", path)
    read = getattr(pyreadstat, _READERS[path.suffix.lower()])
    columns, about = _quietly(path, lambda: read(str(path), **settings))
    return columns, about


def _package(name: str, path: Path) -> ModuleType:
    import importlib

    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        raise MissingPackage(name, f"Reading {path}") from None


def _quietly(path: Path, read: Callable[[], Any]) -> Any:
    """What a package reads. Its warnings and errors may show cells, so none of them is passed on."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return read()
    except Exception as error:  # noqa: BLE001 packages raise what they like on a damaged file
        reason = os_error_reason(error) or "it is damaged, or of another kind"
        raise InvalidArgument(f"{path} cannot be read: {reason}.") from None
