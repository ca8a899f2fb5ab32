"""The contents of a report, independent of HTML or Markdown.

Everything is taken from a posterior, which holds released and public values only, and from settings, which
are public. Reports read no data.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from tacit.data import description
from tacit.data.schema import Schema
from tacit.errors import InvalidArgument
from tacit.models.reading import Units
from tacit.results import eventdata
from tacit.results.costs import CostContents, Spending
from tacit.results.drawings import Bar
from tacit.results.forest import LEVEL, bars_of
from tacit.results.sites import SitePart, who_learns
from tacit.results.summary import Summary
from tacit.results.units import notes as reading_notes
from tacit.results.wording import ABOUT_INTERVALS, UNITS, beside, random_numbers, spoken

# More could not be told apart in a drawing, or would not be read in a table.
_MOST_DRAWN, _MOST_LINES = 60, 200
# Settings that are shown elsewhere than in the list of settings.
_ELSEWHERE = ("title", "notes", "method")


@dataclass(frozen=True, kw_only=True)
class Contents(CostContents):
    """A posterior, its statement and its settings, as sentences and tables."""

    schema: Schema | None
    units: Units = field(default_factory=dict)
    site: SitePart | None = None  # if the report is for the board of one site

    @property
    def title(self) -> str:
        """The question that was asked, or else what was fitted, in one line."""
        reading = self.posterior.reading
        said = self.settings.get("title") or (None if reading is None else reading.question)
        title = str(said) if said else f"Posterior of {_listed(list(self.posterior.draws))}"
        return title if self.site is None else f"{title}: the part of {self.site.name}"

    @property
    def learns(self) -> list[Sequence[str]]:
        """What others learn of each site of a federated fit; empty for other fits."""
        return who_learns(self.statement) if self.posterior.sites else []

    @property
    def sites(self) -> list[Sequence[str]]:
        """The cost of a federated fit at each site; empty if the report is for one of them."""
        return super().sites if self.site is None else []

    @property
    def spending(self) -> Spending | None:
        """The parts of the ledger's budget, if there is a ledger."""
        return super().spending if self.site is None else self.site.spending

    @property
    def notes(self) -> list[tuple[str, str]]:
        """Who asked, why, and by which approval, as far as it was noted."""
        said = self.settings.get("notes") or {}
        if not isinstance(said, Mapping):
            raise InvalidArgument("The setting notes must map names to text.")
        return [(str(name).replace("_", " "), spoken(text)) for name, text in said.items()]

    @property
    def answer(self) -> str:
        """What was fitted, and its privacy cost, in one sentence."""
        reading, formula = self.posterior.reading, self.settings.get("formula")
        what = f"A model with {_listed(list(self.posterior.draws))}"
        if formula:
            family = self.settings.get("family")
            what = f"The model {formula} ({family})" if family else f"The model {formula}"
        if reading is not None:
            what = f"A {reading.kind}"
        if not self.statement.is_private:
            return f"{what} was fitted without protecting anyone: the result must not be released."
        return (
            f"{what} was fitted to private data. What the result can tell about any one "
            f"{self.statement.unit} is limited: "
            f"{self.statement.cost_line(self.statement.adjacency)}."
        )

    @cached_property
    def summary(self) -> Summary:
        """The table of parameters, of limited length."""
        return replace(self._whole, lines=self._whole.lines[:_MOST_LINES])

    @cached_property
    def _whole(self) -> Summary:
        return self.posterior.summary(LEVEL, units=self.units)

    @cached_property
    def bars(self) -> list[Bar]:
        """The bars of the forest plot."""
        return bars_of(self.posterior, _MOST_DRAWN, units=self.units)

    @property
    def reading(self) -> list[str]:
        """How to read the numbers, and that scaling them for the fit makes no difference."""
        reading = self.posterior.reading
        if reading is None:
            return []
        steps = dict.fromkeys(s for each in reading.parameters.values() for s in each.steps)
        scaled = ", ".join(f"{s.name} by {s.own:.6g} ({s.why})" for s in steps)
        note = f"For the fit, numbers were divided by a public scale: {scaled}."
        told = [f"{note} Everything here is converted back."] if scaled else []
        return [*reading_notes(reading), *told]

    @property
    def left_out(self) -> list[str]:
        """What is not shown, and where to find it."""
        count = sum(math.prod(mean.shape) for mean in self.posterior.mean().values())
        notes = []
        if count > _MOST_DRAWN:
            notes.append(f"The drawing shows the first {_MOST_DRAWN} of {count} numbers.")
        if count > _MOST_LINES:
            notes.append(
                f"The table shows the first {_MOST_LINES} of {count} numbers; "
                "summary().to_pandas() has them all."
            )
        return notes

    def interval(self, level: float) -> str:
        """The name of an interval, with a note on the privacy noise."""
        return beside(f"{level:.0%} interval", self.posterior.intervals)

    @property
    def about_intervals(self) -> str:
        """Whether intervals account for the privacy noise."""
        return ABOUT_INTERVALS[self.posterior.intervals]

    @property
    def course(self) -> list[str]:
        """How the fit went: how a chain mixes, and notes of the method."""
        mixing = [self._mixing()] if self.posterior.chain else []
        return [*mixing, *self.posterior.course]

    @property
    def method(self) -> list[str]:
        """The method and its random numbers, in words."""
        return [" ".join([*self.posterior.fitted_by[:2], random_numbers(self.statement)])]

    @property
    def technical(self) -> tuple[str, list[str]]:
        """The method and its random numbers, as experts write them, with a title."""
        method = self.settings.get("method")
        said = [] if method is None else [f"Method: {spoken(method)}"]
        noise = f"Noise and sampling: {self.statement.randomness}"
        steps = self.posterior.fitted_by[2:]
        return "Method and random numbers in technical terms", [*said, *steps, noise]

    @property
    def rows(self) -> list[list[Any]]:
        """The lines of the table; the first cell is the name and what one unit is."""
        lines = self.summary.lines
        cells = self.summary.cells()
        return [[(a.name, a.unit), *row[1:]] for a, row in zip(lines, cells, strict=True)]

    @property
    def expected(self) -> list[list[str]]:
        """Half widths of intervals as they were forecast and as they came out, if there was a forecast."""
        forecast, usual = self.posterior.expected, self.posterior.summary(LEVEL).lines
        found = []
        for line, other in zip(self._whole.lines, usual, strict=True):
            if line.name in forecast:  # which is in the usual units
                shown, width = line.upper - line.lower, other.upper - other.lower
                said = forecast[line.name] * (shown / width if width else 1.0)
                found.append([line.label, f"{said / 2:.2g}", f"{shown / 2:.2g}"])
        return found

    @property
    def _chains(self) -> str:
        many = self.posterior.chains
        return "The chain has" if many == 1 else f"{many} chains have together"

    def _mixing(self) -> str:
        sizes = [line.effective for line in self.summary.lines if math.isfinite(line.effective)]
        ratios = [line.r_hat for line in self.summary.lines if math.isfinite(line.r_hat)]
        if not sizes or not ratios:
            return f"{self._chains} {self.posterior.num_draws} draws."
        return (
            f"{self._chains} {self.posterior.num_draws} draws, worth {min(sizes):.0f} independent ones "
            f"or more for each number (ess). R-hat is at most {max(ratios):.2f}, where 1 is best."
        )

    @property
    def facts(self) -> list[tuple[str, tuple[str, ...]]]:
        """What the guarantee covers, assumes and leaves out."""
        said, before = self.statement, () if self.schema is None else self.schema.released
        found = [
            ("Unit of privacy", (UNITS.get(said.unit, f"One {said.unit}."),)),
            ("Treated as public", said.public),
            ("Assumes", said.assumptions),
            ("Released before, at an additional cost", tuple(map(str, before))),
            ("Not protected", said.not_protected),
        ]
        return [(name, each) for name, each in found if each]

    @property
    def schema_table(self) -> tuple[Sequence[str], list[Sequence[str]], tuple[str, ...]]:
        """Header and lines of the schema, and notes on it."""
        assert self.schema is not None
        header, *lines = description.cells(dict(self.schema.items), whole=True)
        return header, list(lines), self.schema.notes

    @property
    def repeat(self) -> list[tuple[str, str]]:
        """All settings that are known, and the versions of the software."""
        formula = (
            {} if self.posterior.reading is None else {"formula": self.posterior.reading.formula}
        )
        known = {**formula, **self.settings}
        said = [
            (name.replace("_", " "), spoken(value))
            for name, value in known.items()
            if name not in _ELSEWHERE
        ]
        versions = ", ".join(f"{name} {each}" for name, each in self.statement.versions.items())
        return [*said, ("computed with", versions)]

    @property
    def event(self) -> str:
        """What was done to the data, as JSON."""
        event = self.statement.event
        return "null" if event is None else json.dumps(eventdata.to_data(event), indent=2)


def _listed(names: Sequence[str]) -> str:
    shown = list(names[:3]) if len(names) <= 4 else [*names[:3], f"{len(names) - 3} more"]
    shown = list(names) if len(names) == 4 else shown
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
