"""Drafts of schemas from the header of a table and a person's answers. No rows are read.

Bounds that were read from rows would be somebody's values. So a draft uses the names of the columns, and of
Parquet and Arrow files also the types in the header. Everything else is asked.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import yaml

from tacit.data import sources
from tacit.data.cells import parse_number
from tacit.data.columns import DROP, Binary, Category, Count, Kind, Number
from tacit.data.schema import TO_FILL_IN, Schema
from tacit.errors import InvalidArgument

Ask = Callable[[str], str]
_T = TypeVar("_T")
_KINDS = ("number", "count", "binary", "category", "person", "skip")
_MAX_TRIES = 5
_PREFACE = """\
# Drafted from the header of {file}; no row was read. If these names are somebody's data, that file has
# no header: add one, and delete this file.
# Declare what is public about each column, from knowledge of the field and not from the data:
#   {{kind: number, low: 18, high: 100, measured_in: years}}   values outside are moved to the bounds
#   {{kind: count, high: 30}}                                  whole numbers from 0
#   {{kind: binary}}                                           or with yes: and no:, the two labels
#   {{kind: category, levels: [A, B], other: other}}           anything else counts as other
# Rows with a missing value are left out; with missing: 0 (or a level), that value is used instead.
# Delete the columns that no model needs. If a person can have several rows, add at the end
#   person: NAME OF THE COLUMN THAT IDENTIFIES THE PERSON
#   most_rows: LARGEST NUMBER OF ROWS TO USE PER PERSON
columns:
"""
_REQUIRED_FIELDS = {
    "number": ("low", "high"),
    "count": ("high",),
    "binary": (),
    "category": ("levels",),
}


def template(path: str | Path) -> str:
    """A template of a schema for the columns of a file.

    Args:
        path: The file.

    Returns:
        YAML with places to fill in. `Schema.from_yaml` raises an error that names them.
    """
    names, likely = _read_header(path)
    lines = [_PREFACE.format(file=Path(path).name)]
    for name in names:
        kind = likely.get(name, "")
        facts = dict.fromkeys(["kind", *_REQUIRED_FIELDS.get(kind, ())], TO_FILL_IN)
        if kind:
            facts["kind"] = kind
        line = yaml.safe_dump({name: facts}, default_flow_style=None, sort_keys=False, width=2**20)
        lines.append(f"  {line}")
    return "".join(lines)


def draft(path: str | Path, ask: Ask) -> Schema:
    """Makes a schema from a person's answers about each column of a file.

    Args:
        path: The file.
        ask: Takes a question and returns the answer; an empty answer stands for the default. An invalid
            answer is asked for again; other answers about the column are kept.

    Returns:
        The schema.

    Raises:
        InvalidArgument: If the header cannot be used, or all columns were skipped.
    """
    names, likely = _read_header(path)
    columns: dict[str, Kind] = {}
    person: str | None = None
    most_rows: int | None = None
    for name in names:
        kinds = [kind for kind in _KINDS if kind != "person" or person is None]
        kind = _ask_kind(ask, name, kinds, likely.get(name, ""))
        if kind == "person":
            question = f"What is the largest number of rows to use per {name}?"
            person, most_rows = name, int(_ask_number(ask, question, whole=True, low=1))
        elif kind != "skip":
            columns[name] = _QUESTIONS[kind](name, ask)
    if not columns:
        raise InvalidArgument("All columns were skipped; a schema needs at least one.")
    return Schema(columns, person=person, most_rows=most_rows)


def _read_header(path: str | Path) -> tuple[list[str], Mapping[str, str]]:
    source = sources.open_source(path)
    names = [str(name) for name in source.names if str(name).strip()]
    # The names are not repeated, because they may be a row.
    if not names or not all(math.isnan(parse_number(name)) for name in names):
        raise InvalidArgument(
            f"The header of {path}, in a CSV file its first line, must name the columns; a name may "
            "not be a number."
        )
    if len(set(names)) < len(names):
        raise InvalidArgument(f"The header of {path} must name every column once; found repeats.")
    return names, source.likely


def _ask_kind(ask: Ask, name: str, kinds: Sequence[str], usual: str) -> str:
    hint = f" [{usual}]" if usual else ""

    def answer(ask: Ask) -> str:
        said = ask(f"{name}: what is it? {', '.join(kinds)}{hint}").strip().lower() or usual
        if said not in kinds:
            raise InvalidArgument(f"Answer one of {', '.join(kinds)}.")
        return said

    return _ask_again(ask, answer)


def _ask_again(ask: Ask, answer: Callable[[Ask], _T]) -> _T:
    """An answer. An invalid one is asked for again, with the reason."""
    reason = ""

    def asked(question: str) -> str:
        nonlocal reason
        said, reason = ask(f"{reason}{question}"), ""
        return str(said)

    for tried in range(_MAX_TRIES):
        try:
            return answer(asked)
        except InvalidArgument as error:
            if tried == _MAX_TRIES - 1:
                raise
            reason = f"{error} "
    raise AssertionError  # not reached


def _ask_number(
    ask: Ask, question: str, *, whole: bool = False, low: float | None = None, usual: str = ""
) -> float:
    def answer(ask: Ask) -> float:
        found = parse_number(ask(question).strip() or usual)
        if not abs(found) < float("inf") or (whole and found % 1) or (low and found < low):
            raise InvalidArgument(f"Answer {'a whole number' if whole else 'a number'}.")
        return found

    return _ask_again(ask, answer)


def _ask_missing(ask: Ask, name: str) -> Any:
    said = ask(
        f"{name}: if it is missing, leave the row out, or use which value? [leave out]"
    ).strip()
    if said.lower() in {"", DROP, "leave out"}:
        return DROP
    found = parse_number(said)
    return said if math.isnan(found) else found


def _ask_unit(ask: Ask, name: str) -> str | None:
    return ask(f"{name}: unit of measurement? [none]").strip() or None


def _ask_part(ask: Ask, answer: Callable[[Ask], _T], make: Callable[[_T], Kind]) -> _T:
    """An answer with which the column can be made. If not, only this answer is asked for again."""

    def checked(ask: Ask) -> _T:
        found = answer(ask)
        make(found)
        return found

    return _ask_again(ask, checked)


def _ask_number_column(name: str, ask: Ask) -> Kind:
    def ends(ask: Ask) -> tuple[float, float]:
        low = _ask_number(ask, f"{name}: lowest possible value, from knowledge of the field?")
        return low, _ask_number(ask, f"{name}: highest possible value?")

    kind = partial(Number, *_ask_part(ask, ends, lambda pair: Number(*pair)))
    missing = _ask_part(ask, partial(_ask_missing, name=name), lambda rule: kind(missing=rule))
    return kind(missing=missing, measured_in=_ask_unit(ask, name))


def _ask_count_column(name: str, ask: Ask) -> Kind:
    def ends(ask: Ask) -> tuple[int, int]:
        low = _ask_number(ask, f"{name}: lowest possible number? [0]", whole=True, usual="0")
        return int(low), int(_ask_number(ask, f"{name}: highest possible number?", whole=True))

    low, high = _ask_part(ask, ends, lambda pair: Count(pair[1], low=pair[0]))
    kind = partial(Count, high, low=low)
    missing = _ask_part(ask, partial(_ask_missing, name=name), lambda rule: kind(missing=rule))
    return kind(missing=missing, measured_in=_ask_unit(ask, name))


def _ask_binary_column(name: str, ask: Ask) -> Kind:
    def labels(ask: Ask) -> tuple[str | None, str | None]:
        yes = ask(f"{name}: the label that means yes? [1 or true]").strip() or None
        no = None if yes is None else ask(f"{name}: the label that means no?").strip() or None
        return yes, no

    yes, no = _ask_part(ask, labels, lambda pair: Binary(yes=pair[0], no=pair[1]))
    kind = partial(Binary, yes=yes, no=no)
    return kind(
        missing=_ask_part(ask, partial(_ask_missing, name=name), lambda rule: kind(missing=rule))
    )


def _ask_category_column(name: str, ask: Ask) -> Kind:
    def levels(ask: Ask) -> list[str]:
        said = ask(f"{name}: its levels, separated by commas?")
        return [level.strip() for level in said.split(",") if level.strip()]

    def other(ask: Ask) -> str | None:
        said = ask(f"{name}: a name for all other values? [none: they count as missing]")
        return said.strip() or None

    def missing(ask: Ask) -> str:
        said = ask(f"{name}: if it is missing, leave the row out, or use which level? [leave out]")
        return DROP if said.strip().lower() in {"", "leave out"} else said.strip()

    kind = partial(Category, _ask_part(ask, levels, Category))
    kind = partial(kind, other=_ask_part(ask, other, lambda named: kind(other=named)))
    return kind(missing=_ask_part(ask, missing, lambda rule: kind(missing=rule)))


_QUESTIONS: dict[str, Callable[[str, Ask], Kind]] = {
    "number": _ask_number_column,
    "count": _ask_count_column,
    "binary": _ask_binary_column,
    "category": _ask_category_column,
}
