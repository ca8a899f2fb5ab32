"""What a table's cells are worth under a schema: counts and likely causes, for the screen of the data holder.

These are exact counts of private rows, and sentences may repeat what is in cells. They are not private. So they are
marked as such, `repr` shows none of them, and nothing here writes a file. No fit, plan or report uses them.
"""

import datetime as dt
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tacit._format import clean_text, text_table
from tacit.data.cells import (
    UNKNOWN,
    Cells,
    LabelledNumber,
    Texts,
    is_missing,
    label_text,
    normalised_text,
    parse_date,
    parse_number,
)
from tacit.data.columns import Binary, Category, Count, Date, Kind, Number
from tacit.data.csv import SEPARATORS
from tacit.data.people import People
from tacit.data.schema import columns_to_read, encoded_chunks, person_codes
from tacit.data.sources import Source

if TYPE_CHECKING:
    from tacit.data.schema import Schema

_MARK = "NOT PRIVATE: exact counts of rows, for the screen of somebody who may see them. Do not pass them on."
_CAUTION = (
    "A schema is public. Declare how a column is written, from knowledge of how the table was made; what only a "
    "few rows hold does not belong in it."
)
_MAX_SHOWN_WORDS = 4
_MAX_WORD_LENGTH = 30  # characters
_LIKENESS = 0.75  # of a word and a level, as difflib measures it
_MANY_OUTSIDE = 0.1  # share of cells outside the bounds from which something is probably wrong


class Cause(NamedTuple):
    """Why a cell is not read: the name of a sentence, and what it is about."""

    what: str
    detail: str = ""


@dataclass
class ColumnCheck:
    """How many cells of a column are what."""

    read: int = 0
    """Cells with a value; in a `Number`, `Count` or `Date` also outside the bounds."""
    outside: int = 0
    """Those of them that are moved to a bound."""
    unread: int = 0
    """Cells that hold something else than the schema says, such as text or an unknown level."""
    missing: int = 0
    """Empty cells, and those that say so."""
    causes: Counter[Cause] = field(default_factory=Counter)

    @property
    def total(self) -> int:
        """The number of cells."""
        return self.read + self.unread + self.missing


@dataclass(repr=False)
class TableCheck:
    """Counts of a table's cells, as `Schema.check` returns them. Not private.

    Print it. Its ``repr`` has no counts, so that a notebook does not keep them by itself.
    """

    columns: dict[str, ColumnCheck]
    """The counts of each column."""
    rows: int = 0
    """The number of rows."""
    complete: int = 0
    """The number of rows that no rule for missing values leaves out."""
    broken: int = 0
    """The number of lines of a text file that have another number of cells than the header."""
    unknown_people: int = 0
    """The number of rows without a person, if people are units."""
    people: int | None = None
    """The number of people."""
    complete_people: int | None = None
    """The number of people with a complete row."""
    capped_people: int | None = None
    """The number of people with more complete rows than are used of a person."""
    causes: tuple[str, ...] = ()
    """A sentence for each likely cause of cells that are not read."""

    def __repr__(self) -> str:
        return "<TableCheck, not private: print it to see the counts>"

    def __str__(self) -> str:
        lines = [
            (name, *(f"{n:,}" for n in (each.read, each.outside, each.unread, each.missing)))
            for name, each in self.columns.items()
        ]
        header = ("column", "read", "outside bounds", "not read", "missing")
        parts = [_MARK, text_table(lines, "lrrrr", header), self._totals()]
        if self.causes:
            parts += ["Likely causes:", *(f"- {each}" for each in self.causes), _CAUTION]
        return "\n".join(parts)

    def _totals(self) -> str:
        found = [f"{self.complete:,} of {self.rows:,} rows are complete."]
        if not self.complete:
            found.append("A fit of all columns would use no row.")
        if self.people is not None:
            found.append(f"{self.complete_people:,} of {self.people:,} people have a complete row.")
        if self.unknown_people:
            found.append(f"Rows without a person, which are left out: {self.unknown_people:,}.")
        if self.capped_people:
            found.append(f"People with more complete rows than are used: {self.capped_people:,}.")
        return " ".join(found)


def check_rows(source: Source, schema: "Schema", kinds: Mapping[str, Kind]) -> TableCheck:
    """Counts the cells of a table; see `Schema.check`."""
    found = TableCheck({name: ColumnCheck() for name in kinds})
    people, seen = People(), _PeopleSeen()
    for table, _, kept in encoded_chunks(source, columns_to_read(kinds, schema.person), kinds):
        found.rows += len(kept)
        known = np.ones(len(kept), np.bool_)
        if schema.person is not None:
            codes = person_codes(schema.person, table[schema.person], people)
            known = codes != b""
            found.unknown_people += int((~known).sum())
            seen.add(codes[known], codes[known & kept])
        found.complete += int((known & kept).sum())
        if source.sep is not None:
            found.broken += _count_absent(next(iter(table.values())))
        for name, kind in kinds.items():
            _count_cells(found.columns[name], kind, table[name])
    if schema.person is not None:
        found.people, found.complete_people, found.capped_people = seen.totals(schema.most_rows)
    found.causes = tuple(_sentences(found, kinds, source))
    return found


class _PeopleSeen:
    """The people of a table, and how many complete rows they have."""

    def __init__(self) -> None:
        self._everybody: list[NDArray[np.bytes_]] = []
        self._complete: list[NDArray[np.bytes_]] = []

    def add(self, everybody: NDArray[np.bytes_], complete: NDArray[np.bytes_]) -> None:
        self._everybody.append(np.unique(everybody))
        self._complete.append(complete)

    def totals(self, most_rows: int | None) -> tuple[int, int, int]:
        _, counts = np.unique(np.concatenate(self._complete), return_counts=True)
        capped = 0 if most_rows is None else int((counts > most_rows).sum())
        return len(np.unique(np.concatenate(self._everybody))), len(counts), capped


def _count_absent(cells: Cells) -> int:
    return 0 if cells.present is None else int((~cells.present).sum())


def _count_cells(found: ColumnCheck, kind: Kind, cells: Cells) -> None:
    if isinstance(kind, Binary | Category):
        codes = kind.read(cells)
        found.read += int((codes >= 0).sum())
        gaps: NDArray[np.bool_] = codes < 0
        not_missing: NDArray[np.bool_] = codes == UNKNOWN
    else:
        numbers = kind.read(cells)
        by_row = numbers.reshape(len(numbers), math.prod(kind.shape))
        gaps = np.asarray(np.isnan(by_row).any(axis=1))
        inside = by_row[~gaps]
        inside = np.rint(inside) if isinstance(kind, Count) else inside
        found.read += len(inside)
        found.outside += int(((inside < kind.low) | (inside > kind.high)).any(axis=1).sum())
        not_missing = gaps if cells.present is None else gaps & cells.present
    unread = 0
    for cell, count in _different_cells(cells, np.flatnonzero(not_missing)):
        if kind.shape or is_missing(cell):
            continue
        unread += count
        for cause in _causes(_shown_text(cell), kind):
            found.causes[cause] += count
    found.unread += unread
    found.missing += int(gaps.sum()) - unread


def _different_cells(cells: Cells, rows: NDArray[np.intp]) -> Iterator[tuple[object, int]]:
    """The cells of some rows, with how often they occur."""
    values = cells.values
    if not len(rows):
        return
    if isinstance(values, Texts):
        firsts, same = values.distinct(rows)
        yield from zip(values.cells(firsts), np.bincount(same).tolist(), strict=True)
    else:
        yield from ((cell, 1) for cell in values[rows].tolist())


def _shown_text(cell: object) -> str:
    if isinstance(cell, LabelledNumber):
        return cell.label
    text = label_text(cell)
    return f"a {type(cell).__name__}" if text is None else normalised_text(text)


def _causes(text: str, kind: Kind) -> set[Cause]:
    if isinstance(kind, Binary | Category):
        return {_label_cause(text, kind)}
    if _date_form(text) is not None:
        return {Cause("date", _date_form(text) or "")}
    if isinstance(kind, Date):
        digits = re.fullmatch(r"[0-9]{4}|[0-9]{8}", text)
        return {Cause("date in digits", str(len(text))) if digits else Cause("other")}
    return _number_causes(text, kind)


_DATE_TEXT = re.compile(r"([0-9]{1,2})([./-])([0-9]{1,2})\2([0-9]{4}|[0-9]{2})(?:[T ][0-9:.]+)?")


def _date_form(text: str) -> str | None:
    """The form that a date is written in, with ? where either number may be the month; empty if the year is first."""
    if not math.isnan(parse_date(text)):
        return ""
    found = _DATE_TEXT.fullmatch(text)
    if found is None or not (0 < int(found[1]) <= 31 and 0 < int(found[3]) <= 31):
        return None
    first, second = ("d", "m") if found[2] == "." or int(found[1]) > 12 else ("?", "?")
    if int(found[3]) > 12:
        first, second = "m", "d"
    return f"%{first}{found[2]}%{second}{found[2]}%{'Y' if len(found[4]) == 4 else 'y'}"


_NUMBER_TEXT = re.compile(
    r"([+-]?[0-9][0-9.,'’ \u00a0\u202f]*(?:[eE][+-]?[0-9]+)?)\s*([^0-9\s.,].{0,19})?"
)
_THOUSANDS = re.compile(
    r"[+-]?[1-9][0-9]{0,2}([,.'’ \u00a0\u202f])[0-9]{3}(\1[0-9]{3})*([.,][0-9]+)?"
)
_YES_NO = frozenset(["yes", "no", "y", "n"])
_GAPS = frozenset(
    ["-", "--", ".", "*", "n.a.", "n/a", "na", "none", "missing", "unknown", "unbekannt"]
)


def _number_causes(text: str, kind: Number | Count) -> set[Cause]:
    if text.casefold() in _YES_NO:
        return {Cause("yes or no")}
    if text.casefold() in _GAPS:
        return {Cause("gap", text)}
    if text[:1] in "<>≤≥":
        return {Cause("limit")}
    found = _NUMBER_TEXT.fullmatch(text)
    if found is None:
        return {Cause("other")}
    number, unit = found[1].strip(), found[2]
    causes = set() if unit in (None, kind.measured_in) else {Cause("unit", unit.strip())}
    if math.isnan(parse_number(number.replace(kind.decimal, "."))) or (
        kind.decimal == "," and "." in number
    ):
        swapped = {",": ".", ".": ","}[kind.decimal]
        if _THOUSANDS.fullmatch(number):
            causes.add(Cause("thousands"))
        elif re.fullmatch(rf"[+-]?[0-9]*[{swapped}][0-9]+([eE][+-]?[0-9]+)?", number):
            causes.add(Cause("decimal", swapped))
        else:
            return {Cause("other")}
    return causes or {Cause("other")}


def _label_cause(text: str, kind: Binary | Category) -> Cause:
    known = [] if isinstance(kind, Binary) and kind.yes is None else [*kind.labels]
    folded = {each.casefold(): each for each in known}
    if text.casefold() in folded:
        return Cause("case", folded[text.casefold()])
    near = get_close_matches(text.casefold(), folded, n=1, cutoff=_LIKENESS)
    if near:
        return Cause("near", f"{_quoted(text)}\0{folded[near[0]]}")
    if known and not math.isnan(parse_number(text)):
        return Cause("code", text)
    return Cause("word" if isinstance(kind, Binary) else "other", text)


def _sentences(found: TableCheck, kinds: Mapping[str, Kind], source: Source) -> Iterator[str]:
    if not found.rows:
        yield "The table has no rows."
        return
    if found.broken:
        words = SEPARATORS.get(source.sep or "", repr(source.sep))
        yield (
            f"{found.broken:,} of {found.rows:,} lines have another number of cells than the header, so that all "
            f"their cells are missing: are cells really separated by {words} (if not, declare sep), and do "
            "cells that contain one have quotes around them?"
        )
    for name, kind in kinds.items():
        column = found.columns[name]
        if column.missing - found.broken == column.total - found.broken > 0:
            yield f"All cells of {name} are missing."
        if column.outside > _MANY_OUTSIDE * max(column.read, 1):
            yield (
                f"{column.outside:,} of {column.total:,} cells of {name} lie outside {kind.describe()} and are "
                "moved to the nearest bound: are the bounds in the unit of the cells?"
            )
        yield from _column_sentences(name, kind, column)


def _column_sentences(name: str, kind: Kind, column: ColumnCheck) -> Iterator[str]:
    by_what: dict[str, Counter[str]] = {}
    for (what, detail), count in sorted(column.causes.items()):
        by_what.setdefault(what, Counter())[detail] += count
    by_what["date"] = _settle_order(by_what.get("date", Counter()))
    total = f"of {column.total:,} cells of {name}"
    for what, details in by_what.items():
        if what == "near":
            yield from _near_sentences(total, details)
            continue
        groups = (
            [(detail, count) for detail, count in details.most_common(_MAX_SHOWN_WORDS)]
            if what in ("unit", "date")
            else [("", details.total())]
        )
        for detail, count in groups:
            yield f"{count:,} {total} {_advice(what, detail, details, kind)}."


def _settle_order(forms: Counter[str]) -> Counter[str]:
    """Forms of dates, where those that leave open which number is the month count as the one that does not."""
    settled = Counter({form: count for form, count in forms.items() if "?" not in form})
    for form in forms.keys() - settled.keys():
        pattern = re.escape(form).replace(r"\?", "[dm]")
        same = [each for each in settled if re.fullmatch(pattern, each)]
        settled[same[0] if len(same) == 1 else form] += forms[form]
    return settled


def _near_sentences(total: str, details: Counter[str]) -> Iterator[str]:
    shown = details.most_common(2 * _MAX_SHOWN_WORDS)
    for detail, count in shown:
        word, level = detail.split("\0")
        yield f"{count:,} {total} are {word}, which resembles {_quoted(level)}: correct them, or declare aliases: {{{word}: {_quoted(level)}}}."
    rest = details.total() - sum(count for _, count in shown)
    if rest:
        yield f"{rest:,} {total} resemble a level in other ways."


def _advice(what: str, detail: str, details: Counter[str], kind: Kind) -> str:  # noqa: PLR0911, PLR0912, C901 a list of sentences
    words = _listed(word for word, _ in details.most_common(_MAX_SHOWN_WORDS))
    match what:
        case "unit":
            unit = clean_text(detail)
            bounds = "" if kind.measured_in is None else ", with bounds in that unit"
            return f"end in {unit}: declare measured_in: {unit}{bounds} to read them"
        case "decimal":
            mark = "comma" if "," in details else "point"
            sign = "," if "," in details else "."
            return f'have a decimal {mark}: declare decimal: "{sign}" to read them'
        case "thousands":
            return (
                "have separators of thousands, which are not read: write the numbers without them"
            )
        case "limit":
            return (
                "begin with < or >: they are not read; write a number that stands for such a limit"
            )
        case "yes or no":
            return "are yes or no: declare kind: binary to read them"
        case "gap":
            return f"are {words}, which counts as missing"
        case "date":
            return _date_advice(detail, kind)
        case "date in digits":
            form = "are numbers of eight digits: declare format: '%Y%m%d' if they are dates"
            return form if "8" in details else "are years alone: declare kind: number to read them"
        case "case":
            return "differ from a level in upper or lower case only: declare ignore_case: true to read them"
        case "code":
            return f"are numbers such as {words}: if they stand for levels, declare aliases: {{1: ...}}"
        case "word":
            numbers = [parse_number(word) for word in details]
            if not any(map(math.isnan, numbers)) and any(each % 1 > 0 for each in numbers):
                # a measurement, or gaps that were filled by a mean
                return f"are {words}: declare kind: number to read them"
            return f"are {words}: declare the labels that mean yes: and no: to read them"
    if isinstance(kind, Category):
        counted = "missing" if kind.other is None else _quoted(str(kind.other))
        return f"are no declared level and count as {counted}"
    wanted = {"date": "a date", "count": "a number"}.get(kind.kind, "a number")
    return f"hold text that is not {wanted}, and count as missing"


def _date_advice(form: str, kind: Kind) -> str:
    declare = "" if isinstance(kind, Date) else "kind: date, with low and high"
    if "?" in form:
        day_first, month_first = (
            form.replace("?", a, 1).replace("?", b, 1) for a, b in ("dm", "md")
        )
        either = f"format: '{day_first}', or '{month_first}' if the month is first"
        return f"are dates: declare {declare + ' and ' if declare else ''}{either}"
    shown = f"format: '{form}'" if form else ""
    example = f" such as {dt.date(2020, 3, 17).strftime(form)}" if form else ""
    return (
        f"are dates{example}: declare {' and '.join(filter(None, [declare, shown]))} to read them"
    )


def _quoted(text: str) -> str:
    clean = clean_text(text)
    return f"'{clean[:_MAX_WORD_LENGTH]}...'" if len(clean) > _MAX_WORD_LENGTH else f"'{clean}'"


def _listed(words: Iterable[str]) -> str:
    quoted = [_quoted(word) for word in words]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} or {quoted[-1]}"
