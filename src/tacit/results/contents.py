"""The contents of a report, independent of HTML or Markdown.

Everything is taken from a posterior, which holds released and public values only, and from settings, which
are public. Reports read no data.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit._format import in_digits, less, printed
from tacit.accounting import ADJACENCIES, Adjacency, Budget, Curve
from tacit.data import description
from tacit.data.schema import Schema
from tacit.errors import InvalidArgument
from tacit.results import eventdata
from tacit.results.drawings import Bar
from tacit.results.statement import PrivacyStatement
from tacit.results.summary import Summary, coordinates
from tacit.results.wording import ABOUT_INTERVALS, COMPARED, CONVERGED, UNITS, beside, spoken

if TYPE_CHECKING:
    from tacit.results.posterior import Posterior

LEVEL, HALF = 0.9, 0.5
# More could not be told apart in a drawing, or would not be read in a table.
_MOST_DRAWN, _MOST_LINES = 60, 200
# Deltas between those of a statement, for a smooth curve.
_BETWEEN = tuple(10.0 ** (exponent + 0.5) for exponent in range(-12, -1))


@dataclass(frozen=True, kw_only=True)
class Spending:
    """The parts of a ledger's budget, in epsilon; ``earlier`` is None if it is not known."""

    left: Budget
    run: float
    earlier: float | None
    total: Budget | None

    @property
    def parts(self) -> list[tuple[str, str, float]]:
        """The parts that are known: style, name and size of each."""
        found = [
            ("earlier", "earlier runs", self.earlier),
            ("run", "this run", self.run),
            ("left", "left", self.left.epsilon),
        ]
        return [(kind, name, size) for kind, name, size in found if size is not None]


@dataclass(frozen=True, kw_only=True)
class Contents:
    """A posterior, its statement and its settings, as sentences and tables."""

    posterior: "Posterior"
    settings: Mapping[str, Any]
    schema: Schema | None

    @property
    def statement(self) -> PrivacyStatement:
        """The privacy statement."""
        return self.posterior.privacy

    @property
    def title(self) -> str:
        """What was fitted, in one line."""
        said = self.settings.get("title") or self.settings.get("formula")
        return str(said) if said else f"Posterior of {_listed(list(self.posterior.draws))}"

    @property
    def answer(self) -> str:
        """What was fitted, and its privacy cost, in one sentence."""
        formula, family = self.settings.get("formula"), self.settings.get("family")
        model = str(formula) if formula else f"A model with {_listed(list(self.posterior.draws))}"
        model = "This model" if formula and self.title == formula else model
        what = f"{model} ({family})" if family else model
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
        whole = self.posterior.summary(LEVEL)
        return replace(whole, lines=whole.lines[:_MOST_LINES])

    @cached_property
    def bars(self) -> list[Bar]:
        """The bars of the forest plot."""
        means, found = self.posterior.mean(), self.posterior.quantiles(_tails(LEVEL, HALF))
        bars: list[Bar] = []
        for name, mean in means.items():
            for label, where in coordinates(name, mean.shape, self.posterior.labels.get(name)):
                if len(bars) == _MOST_DRAWN:
                    return bars
                bars.append(Bar(label, float(mean[where]), *_at(found[name], where)))
        return bars

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
        """How the fit went: whether it converged, how a chain mixes, and notes of the method."""
        mixing = [self._mixing()] if self.posterior.chain else []
        first = [] if self.posterior.converged else [CONVERGED[self.posterior.converged]]
        return [*first, *mixing, *self.posterior.course]

    @property
    def expected(self) -> list[list[str]]:
        """Half widths of intervals as they were forecast and as they came out, if there was a forecast."""
        forecast = self.posterior.expected
        return [
            [line.name, f"{forecast[line.name] / 2:.2g}", f"{(line.upper - line.lower) / 2:.2g}"]
            for line in self.posterior.summary(LEVEL).lines
            if line.name in forecast
        ]

    def _mixing(self) -> str:
        sizes = [line.effective for line in self.summary.lines if math.isfinite(line.effective)]
        ratios = [line.r_hat for line in self.summary.lines if math.isfinite(line.r_hat)]
        if not sizes or not ratios:
            return f"The chain has {self.posterior.num_draws} draws."
        return (
            f"The chain has {self.posterior.num_draws} draws, worth {min(sizes):.0f} independent ones "
            f"or more for each number (ess). R-hat is at most {max(ratios):.2f}, where 1 is best."
        )

    @property
    def epsilon_words(self) -> str:
        """What epsilon means, in terms of odds."""
        unit, spent = self.statement.unit, self.statement.epsilons[self.statement.adjacency]
        known = spent is not None and math.isfinite(spent)
        factor = f", here {math.exp(min(spent or 0.0, 700.0)):.3g}" if known else ""
        return (
            f"Epsilon and delta limit how much the result may depend on any one {unit}. "
            "No outcome is more than exp(epsilon) times as likely because of it, except for outcomes of "
            f"total probability delta. So whatever anyone believes about one {unit}, and whatever else "
            f"they know, the odds change by at most about that factor{factor}."
        )

    @property
    def costs(self) -> list[tuple[str, str]]:
        """The cost under each adjacency, and what it means for a person."""
        return [(self.statement.epsilon_line(a), self._meaning(a)) for a in ADJACENCIES]

    def _meaning(self, adjacency: Adjacency) -> str:
        epsilon, delta = self.statement.epsilons[adjacency], self.statement.delta
        compared = f"Compares {COMPARED[adjacency].format(unit=self.statement.unit)}."
        if epsilon is None or math.isinf(epsilon):
            return f"{compared} No limit is known."
        return f"{compared} {Budget(epsilon, delta, adjacency).explain()}"

    @property
    def sites(self) -> list[Sequence[str]]:
        """The cost of a federated fit at each site."""
        return [
            (name, in_digits(one.delta), *(printed(one.epsilons[a]) for a in ADJACENCIES), one.unit)
            for name, one in self.posterior.sites.items()
        ]

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
            ("Noise and sampling", (said.randomness,)),
        ]
        return [(name, each) for name, each in found if each]

    @cached_property
    def curves(self) -> dict[Adjacency, Curve]:
        """Curves of epsilon over delta, where they are known."""
        found = {}
        for adjacency in ADJACENCIES:
            written = self.statement.written_curves[adjacency]
            between = self.statement.curve(adjacency, _BETWEEN)
            if written is not None and between is not None:
                points = sorted([*zip(*written, strict=True), *zip(*between, strict=True)])
                if any(math.isfinite(epsilon) for _, epsilon in points):
                    found[adjacency] = Curve(*map(tuple, zip(*points, strict=True)))
        return found

    @property
    def marked(self) -> dict[Adjacency, tuple[float, float]]:
        """The points of the curves at the statement's delta."""
        return {
            a: (self.statement.delta, epsilon)
            for a in self.curves
            if (epsilon := self.statement.epsilons[a]) is not None and math.isfinite(epsilon)
        }

    @property
    def spending(self) -> Spending | None:
        """The parts of the ledger's budget, as it recorded them; None without a ledger."""
        said, total = self.statement, _total(self.settings.get("ledger_total"))
        before, left, run = said.budget_before, said.budget_left, said.epsilons[said.adjacency]
        if left is None or run is None:
            return None
        if before is None:
            return Spending(left=left, run=run, earlier=None, total=total)
        run = less(before.epsilon, left.epsilon)
        earlier = None if total is None else less(total.epsilon, before.epsilon)
        return Spending(left=left, run=run, earlier=earlier, total=total)

    @property
    def budget_words(self) -> str:
        """The remaining budget, in words."""
        if self.statement.event is None:
            return "The fit was made without privacy: no budget applies."
        spending = self.spending
        if spending is None:
            return (
                "No durable ledger was charged. Nothing prevents the same data from being used again, "
                "and the costs of all uses add up."
            )
        left = str(spending.left) if spending.total is None else spending.left.amounts
        total = "" if spending.total is None else f" of {spending.total}"
        return (
            f"After this run the ledger of these data had {left} left{total}. Every further fit to "
            "the same data is charged to it, and refused once it is used up."
        )

    @property
    def schema_table(self) -> tuple[Sequence[str], list[Sequence[str]], tuple[str, ...]]:
        """Header and lines of the schema, and notes on it."""
        assert self.schema is not None
        header, *lines = description.cells(dict(self.schema.items))
        return header, list(lines), self.schema.notes

    @property
    def repeat(self) -> list[tuple[str, str]]:
        """All settings that are known, and the versions of the software."""
        said = [(name.replace("_", " "), spoken(value)) for name, value in self.settings.items()]
        versions = ", ".join(f"{name} {each}" for name, each in self.statement.versions.items())
        return [*said, ("computed with", versions)]

    @property
    def event(self) -> str:
        """What was done to the data, as JSON."""
        event = self.statement.event
        return "null" if event is None else json.dumps(eventdata.to_data(event), indent=2)


def _tails(*levels: float) -> list[float]:
    below = [(1 - level) / 2 for level in levels]
    return [*below, *(1 - tail for tail in reversed(below))]


def _at(found: np.ndarray[Any, Any], where: tuple[int, ...]) -> list[float]:
    return [float(quantile[where]) for quantile in found]


def _listed(names: Sequence[str]) -> str:
    shown = list(names[:3]) if len(names) <= 4 else [*names[:3], f"{len(names) - 3} more"]
    shown = list(names) if len(names) == 4 else shown
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def _total(said: Any) -> Budget | None:
    if said is None or isinstance(said, Budget):
        return said
    try:
        return Budget(**said)
    except TypeError:
        raise InvalidArgument(
            "The setting ledger_total must be a Budget, or a mapping of epsilon, delta and "
            f"adjacency; got {type(said).__name__}."
        ) from None
