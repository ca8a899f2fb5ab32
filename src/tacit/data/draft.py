"""Drafts of schemas from the header of a table and a person's answers. No rows are read.

Bounds that were read from rows would be somebody's values. So a draft uses the names of the columns, and their types
where a table has them before its rows are read. Everything else is asked, or left to be filled in.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import yaml

from tacit.data import schema as schemas
from tacit.data import sources
from tacit.data.cells import parse_date, parse_number
from tacit.data.columns import DROP, Binary, Category, Count, Date, Kind, Number
from tacit.data.schema import TO_FILL_IN, Schema
from tacit.data.tables import TableLike
from tacit.errors import InvalidArgument

Ask = Callable[[str], str]
_T = TypeVar("_T")
BACK = "<"
"""The answer that goes back to the question before."""
_KINDS = ("number", "count", "binary", "category", "date", "person", "skip")
_MAX_TRIES = 5
_PREFACE = """\
# Drafted from the header of {file}; no row was read. If these names are somebody's data, that file has
# no header: add one, and delete this file.
# Declare what is public about each column, from knowledge of the field and not from the data:
#   {{kind: number, low: 18, high: 100, measured_in: years}}   values outside are moved to the bounds
#   {{kind: count, high: 30}}                                  whole numbers from 0
#   {{kind: binary}}                                           or with yes: and no:, the two labels
#   {{kind: category, levels: [A, B], other: other}}           anything else counts as other
#   {{kind: date, low: 2015-01-01, high: 2024-12-31}}          with format: "%d.%m.%Y" for 17.03.2020
# Cells such as 142 mmHg are read with measured_in: mmHg, and 71,5 with decimal: ",".
# Rows with a missing value are left out; with missing: 0 (or a level), that value is used instead.
# Delete the columns that no model needs. If a person can have several rows, add at the end
#   person: NAME OF THE COLUMN THAT IDENTIFIES THE PERSON
#   most_rows: LARGEST NUMBER OF ROWS TO USE PER PERSON
# Or let tacit schema draft ask about what is left: pass it the table, and this file with --out.
columns:
"""
_REQUIRED_FIELDS = {
    "number": ("low", "high"),
    "count": ("high",),
    "binary": (),
    "category": ("levels",),
    "date": ("low", "high"),
}


@dataclass(repr=False)
class Draft:
    """A schema that is not complete yet: what is known about the columns of a table, and what is not.

    Printed, it is Python to fill in.
    """

    where: str
    """What was drafted from, for messages."""
    names: tuple[str, ...]
    """The columns of the table."""
    likely: Mapping[str, str] = field(default_factory=dict)
    """The kinds of columns whose types leave no doubt."""
    sep: str | None = None
    """What separates the cells of a text file."""
    columns: dict[str, Kind] = field(default_factory=dict)
    """The columns that are declared."""
    skipped: set[str] = field(default_factory=set)
    """The columns that no model needs."""
    person: str | None = None
    most_rows: int | None = None

    @classmethod
    def of(cls, data: TableLike) -> "Draft":
        """A draft from a table's header and types; see `Schema.draft`."""
        source = sources.open_source(data)
        where = "the data" if source.path is None else f"{source.path}"
        names = tuple(str(name) for name in source.names if str(name).strip())
        # The names are not repeated, because they may be a row.
        if not names or not all(map(_can_be_name, names)):
            raise InvalidArgument(
                f"The header of {where}, in a text file its first line, must name the columns; a name may "
                "not be a number or a date."
            )
        if len(set(names)) < len(names):
            raise InvalidArgument(
                f"The header of {where} must name every column once; found repeats."
            )
        return cls(where, names, source.likely, source.sep)

    def resume(self, path: Path) -> None:
        """Takes up what a drafted file declares; what it marks is left to fill in, and what it lacks was skipped."""
        held = schemas.load_declarations(schemas.read_text(path), path)
        for name, declared in held["columns"].items():
            if name not in self.names:
                raise InvalidArgument(
                    f"{path} declares {name!r}, but the header of {self.where} lacks it."
                )
            if not schemas.is_to_fill_in(declared):
                self.columns[name] = schemas.parse_kind(f"{path}, column {name!r}", declared)
        if TO_FILL_IN not in map(str, (held.get("person"), held.get("most_rows"))):
            self.person, self.most_rows = held.get("person"), held.get("most_rows")
        self.skipped = {name for name in self.names if name not in held["columns"]} - {self.person}

    @property
    def to_fill_in(self) -> dict[str, tuple[str, ...]]:
        """What is not known yet about columns: their ``kind``, or settings of it."""
        known = {*self.columns, *self.skipped, self.person}
        return {
            name: _REQUIRED_FIELDS.get(self.likely.get(name, ""), ("kind",))
            for name in self.names
            if name not in known and _REQUIRED_FIELDS.get(self.likely.get(name, "")) != ()
        }

    def __str__(self) -> str:
        lines = [f"        {name!r}: {self._python(name)}," for name in self._kept_names]
        body = ["tacit.Schema(", "    {", *lines, "    },"]
        if self.person is not None:
            body += [f"    person={self.person!r},", f"    most_rows={self.most_rows},"]
        else:
            body.append(
                "    # person='the column that identifies people', most_rows=..., if they can have several rows"
            )
        return "\n".join([*body, ")", *(f"# {note}" for note in self._notes())])

    __repr__ = __str__

    def _notes(self) -> list[str]:
        """What is left to fill in, in words."""
        left = self.to_fill_in
        kinds = [name for name, fields in left.items() if "kind" in fields]
        facts = [f"{name} ({', '.join(f)})" for name, f in left.items() if "kind" not in f]
        if not left:
            return ["Nothing is left to fill in."]
        notes = ["To fill in, from knowledge of the field and not from the rows:"]
        if facts:
            notes.append(f"- the public facts about {', '.join(facts)}")
        if kinds:
            notes.append(
                f"- what {', '.join(kinds)} is: tacit.Number(low, high), Count(high), Binary(), Category(levels) "
                "or Date(low, high); or leave it out"
            )
        return notes

    @property
    def _kept_names(self) -> list[str]:
        return [name for name in self.names if name not in {*self.skipped, self.person}]

    def _python(self, name: str) -> str:
        if name in self.columns:
            return f"tacit.{self.columns[name]!r}"
        kind = self.likely.get(name, "")
        if not kind:
            return "..."
        gaps = {"levels": "levels=[...]"}
        fields = (gaps.get(each, f"{each}=...") for each in _REQUIRED_FIELDS[kind])
        return f"tacit.{kind.capitalize()}({', '.join(fields)})"

    def to_text(self) -> str:
        """The draft as YAML with places to fill in. `Schema.from_yaml` raises an error that names them."""
        lines = [_PREFACE.format(file=Path(self.where).name)]
        for name in self._kept_names:
            kind = self.likely.get(name, "")
            facts: dict[str, object] = dict.fromkeys(
                ["kind", *_REQUIRED_FIELDS.get(kind, ())], TO_FILL_IN
            )
            if kind:
                facts["kind"] = kind
            if name in self.columns:
                facts = schemas.declaration(self.columns[name])
            style: dict[str, Any] = {
                "default_flow_style": None,
                "sort_keys": False,
                "allow_unicode": True,
            }
            line = yaml.safe_dump({name: facts}, width=2**20, **style)
            lines += [f"  {each}\n" for each in line.splitlines()]
        if self.person is not None:
            lines.append(
                yaml.safe_dump(
                    {"person": self.person, "most_rows": self.most_rows}, sort_keys=False
                )
            )
        return "".join(lines)

    def to_yaml(self, path: str | Path) -> None:
        """Writes the draft to a YAML file.

        Args:
            path: The file.
        """
        Path(path).write_text(self.to_text(), encoding="utf-8")

    def schema(self) -> Schema:
        """The schema, if nothing is left to fill in.

        Returns:
            The schema.

        Raises:
            InvalidArgument: If something is left, or all columns were skipped.
        """
        if self.to_fill_in:
            raise InvalidArgument(
                f"These columns are not filled in yet: {', '.join(self.to_fill_in)}."
            )
        kinds = {name: self.columns.get(name, Binary()) for name in self._kept_names}
        if not kinds:
            raise InvalidArgument("All columns were skipped; a schema needs at least one.")
        return Schema(kinds, person=self.person, most_rows=self.most_rows)

    def ask(self, ask: Ask) -> Schema:
        """Fills in the rest by a person's answers.

        An error or an interruption leaves the answers about the columns before it in the draft.

        Args:
            ask: Takes a question and returns the answer; an empty answer stands for the default, and
                `BACK` for going back to the question before. An invalid answer is requested again; other
                answers about the column are kept.

        Returns:
            The schema.

        Raises:
            InvalidArgument: If all columns were skipped.
        """
        answers: list[str] = []
        before = dict(self.columns), set(self.skipped), self.person, self.most_rows
        while True:
            self.columns, self.skipped = dict(before[0]), set(before[1])
            self.person, self.most_rows = before[2], before[3]
            try:
                self._ask_columns(_Interview(ask, answers))
                return self.schema()
            except _GoBack:
                del answers[-1:]

    def _ask_columns(self, ask: "_Interview") -> None:
        left = [n for n in self.names if n not in {*self.columns, *self.skipped, self.person}]
        decimal = "."
        if left and self.sep == ";":
            # Where a comma does not separate cells, it usually is the decimal mark.
            comma = ask.choose(
                "Is the decimal mark of the numbers a comma? yes, no", ["yes", "no"], "yes"
            )
            decimal = "," if comma == "yes" else "."
        for name in left:
            kinds = [kind for kind in _KINDS if kind != "person" or self.person is None]
            question = f"{name}: what is it? {', '.join(kinds)}"
            kind = ask.choose(question, kinds, self.likely.get(name, ""))
            if kind == "person":
                asked = f"What is the largest number of rows to use per {name}?"
                most_rows = int(_ask_number(ask, asked, whole=True, low=1))
                self.person, self.most_rows = name, most_rows
            elif kind == "skip":
                self.skipped.add(name)
            else:
                self.columns[name] = _QUESTIONS[kind](name, ask, decimal)


def _can_be_name(text: str) -> bool:
    numbers = (parse_number(text), parse_number(text.replace(",", ".")), parse_date(text))
    return all(map(math.isnan, numbers))


class _GoBack(Exception):
    """Somebody wants to answer the question before again."""


class _Interview:
    """Questions and answers. Answers that were given before are repeated, until somebody has to be asked."""

    def __init__(self, ask: Ask, answers: list[str]) -> None:
        self._ask, self._answers, self._number, self._reason = ask, answers, 0, ""

    def __call__(self, question: str) -> str:
        """The answer to a question."""
        if self._number == len(self._answers):
            said = str(self._ask(f"{self._reason}{question}"))
            self._reason = ""
            if said.strip() == BACK:
                raise _GoBack
            self._answers.append(said)
        self._number += 1
        return self._answers[self._number - 1]

    def until_valid(self, answer: Callable[["_Interview"], _T]) -> _T:
        """What a function makes of answers. If it refuses them, they are requested again, with the reason."""
        start = self._number
        for tried in range(_MAX_TRIES):
            try:
                return answer(self)
            except InvalidArgument as error:
                if tried == _MAX_TRIES - 1:
                    raise
                self._reason, self._number = f"{error} ", start
                del self._answers[start:]
        raise AssertionError  # not reached

    def choose(self, question: str, options: Sequence[str], usual: str) -> str:
        """One of a few words."""
        hint = f" [{usual}]" if usual else ""

        def answer(ask: Ask) -> str:
            said = ask(f"{question}{hint}").strip().lower() or usual
            meant = [option for option in options if said and option.startswith(said)]
            if len(meant) != 1:
                raise InvalidArgument(f"Answer one of {', '.join(options)}.")
            return meant[0]

        return self.until_valid(answer)


def _ask_number(
    ask: _Interview,
    question: str,
    *,
    whole: bool = False,
    low: float | None = None,
    usual: str = "",
) -> float:
    def answer(ask: Ask) -> float:
        found = parse_number(ask(question).strip() or usual)
        if not abs(found) < float("inf") or (whole and found % 1) or (low and found < low):
            raise InvalidArgument(f"Answer {'a whole number' if whole else 'a number'}.")
        return found

    return ask.until_valid(answer)


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


def _ask_part(
    ask: _Interview, answer: Callable[[_Interview], _T], make: Callable[[_T], Kind]
) -> _T:
    """An answer with which the column can be made. If not, only this answer is requested again."""

    def checked(ask: _Interview) -> _T:
        found = answer(ask)
        make(found)
        return found

    return ask.until_valid(checked)


def _ask_number_column(name: str, ask: _Interview, decimal: str) -> Kind:
    def ends(ask: _Interview) -> tuple[float, float]:
        low = _ask_number(ask, f"{name}: lowest possible value, from knowledge of the field?")
        return low, _ask_number(ask, f"{name}: highest possible value?")

    ends_given = _ask_part(ask, ends, lambda pair: Number(*pair))
    kind = partial(Number, *ends_given, decimal=decimal)
    missing = _ask_part(ask, partial(_ask_missing, name=name), lambda rule: kind(missing=rule))
    return kind(missing=missing, measured_in=_ask_unit(ask, name))


def _ask_count_column(name: str, ask: _Interview, decimal: str) -> Kind:
    def ends(ask: _Interview) -> tuple[int, int]:
        low = _ask_number(ask, f"{name}: lowest possible number? [0]", whole=True, usual="0")
        return int(low), int(_ask_number(ask, f"{name}: highest possible number?", whole=True))

    low, high = _ask_part(ask, ends, lambda pair: Count(pair[1], low=pair[0]))
    kind = partial(Count, high, low=low, decimal=decimal)
    missing = _ask_part(ask, partial(_ask_missing, name=name), lambda rule: kind(missing=rule))
    return kind(missing=missing, measured_in=_ask_unit(ask, name))


def _ask_binary_column(name: str, ask: _Interview, _decimal: str) -> Kind:
    def labels(ask: Ask) -> tuple[str | None, str | None]:
        yes = ask(f"{name}: the label that means yes? [1, yes or true]").strip() or None
        no = None if yes is None else ask(f"{name}: the label that means no?").strip() or None
        return yes, no

    yes, no = _ask_part(ask, labels, lambda pair: Binary(yes=pair[0], no=pair[1]))
    kind = partial(Binary, yes=yes, no=no)
    return kind(
        missing=_ask_part(ask, partial(_ask_missing, name=name), lambda rule: kind(missing=rule))
    )


def _ask_category_column(name: str, ask: _Interview, _decimal: str) -> Kind:
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


def _ask_date_column(name: str, ask: _Interview, _decimal: str) -> Kind:
    def ends(ask: _Interview) -> tuple[str, str]:
        low = ask(f"{name}: first possible date, as 2015-01-01, from knowledge of the field?")
        return low.strip(), ask(f"{name}: last possible date?").strip()

    def written(ask: _Interview) -> str | None:
        said = ask(
            f"{name}: how are dates written, as DD.MM.YYYY? [year first, as 2020-03-17]"
        ).strip()
        for word, letter in (("YYYY", "%Y"), ("YY", "%y"), ("MM", "%m"), ("DD", "%d")):
            said = said.replace(word, letter)
        return said or None

    kind = partial(Date, *_ask_part(ask, ends, lambda pair: Date(*pair)))
    kind = partial(kind, format=_ask_part(ask, written, lambda form: kind(format=form)))
    unit = ask.choose(f"{name}: count in days or years?", ["days", "years"], "days")
    kind = partial(kind, measured_in=unit)
    question = f"{name}: if it is missing, leave the row out, or use which date? [leave out]"

    def missing(ask: _Interview) -> str:
        said = ask(question).strip()
        return DROP if said.lower() in {"", "leave out"} else said

    return kind(missing=_ask_part(ask, missing, lambda rule: kind(missing=rule)))


_QUESTIONS: dict[str, Callable[[str, _Interview, str], Kind]] = {
    "number": _ask_number_column,
    "count": _ask_count_column,
    "binary": _ask_binary_column,
    "category": _ask_category_column,
    "date": _ask_date_column,
}
