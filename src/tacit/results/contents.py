"""The contents of a report, independent of HTML or Markdown.

Everything is taken from a posterior, which holds released and public values only, and from settings, which
are public. Reports read no data.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from tacit._format import format_epsilon, format_number, subtract_decimals
from tacit.accounting import ADJACENCIES, Adjacency, Budget, Curve, events
from tacit.data import schema as schema_module
from tacit.data.schema import Schema
from tacit.errors import InvalidArgument
from tacit.inference.result import Intervals
from tacit.models.interpretation import IncrementSizes
from tacit.results.drawings import INTERVAL_LEVEL, Bar, forest_bars
from tacit.results.statement import NO_LEDGER, PrivacyStatement
from tacit.results.summary import (
    Summary,
    check_units,
    interpretation_notes,
    reference_note,
    with_noise_note,
)

if TYPE_CHECKING:
    from tacit.results.posterior import Posterior


ADJACENCY_COMPARISONS: dict[Adjacency, str] = {
    "add-remove": "the same data with and without one {unit}",
    "replace": "the same data with one {unit} exchanged for any other",
}
SITE_COLUMNS = ("site", "delta", *(f"epsilon, {a}" for a in ADJACENCIES), "unit", "answers used")
WEAKEST_SITE_NOTE = (
    "Several sites took part. The rest of this report is about the site with the weakest guarantee."
)
UNIT_SENTENCES = {
    "row": "One row. A person with several rows is protected less: the costs of their rows add up.",
    "person": "One person, with all their rows.",
    "data set": "Everything that one site holds.",
}
INTERVAL_SENTENCES = {
    Intervals.INCLUDED: "The intervals include the noise that protects people.",
    Intervals.LEFT_OUT: (
        "The intervals do not include the noise that protects people, so they are too narrow. The noise "
        "also moves their centres; the fewer the people, the more."
    ),
    Intervals.SAMPLED: (
        "The intervals are those of the draws. People are protected by the randomness of the sampler "
        "itself; no noise was added to the draws."
    ),
    Intervals.NO_NOISE: "The fit was made without noise.",
    Intervals.UNKNOWN: "It is not known whether the intervals include the noise that protects people.",
}
# Deltas between those of a statement, for a smooth curve.
_INTERMEDIATE_DELTAS = tuple(10.0 ** (exponent + 0.5) for exponent in range(-12, -1))


@dataclass(frozen=True, kw_only=True)
class BudgetParts:
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


LEARNS_COLUMNS = ("", "the server", "the other sites", "readers of the result")
_NOTHING = "nothing"
# What the server learns of the answers of a site, and of its number of rows, by who adds the noise.
_SERVER_LEARNS = {
    "site": (
        "each of them; each has noise that protects people by itself",
        "as much as its noisy answers tell",
    ),
    "split": ("only their sum, which has the noise; single answers are masked", _NOTHING),
    "server": (
        "each of them, without noise; the server is trusted",
        "as much as its answers tell",
    ),
}
_UNPROTECTED = ("each of them, without protection", "as much as its answers tell")
_UNKNOWN = ("as the guarantee assumes", "as much as it learns of its answers")


def who_learns(statement: PrivacyStatement) -> list[Sequence[str]]:
    """What the server, the other sites and readers of the result learn, a line for each kind of thing.

    Args:
        statement: The privacy statement of a site, whose assumptions say who adds the noise.

    Returns:
        The lines below the header `LEARNS_COLUMNS`.
    """
    answers, count = _server_learns(statement)
    return [
        ("rows of a site", _NOTHING, _NOTHING, _NOTHING),
        (
            "answers of a site in each round",
            answers,
            "what follows from the questions; of two sites, each may learn what the other answered",
            "what follows from all of them",
        ),
        (
            "where the fit was in each round",
            "everything",
            "everything: it is the question that they are asked",
            "everything: it is in the file of the result",
        ),
        ("how many rows a site has", count, _NOTHING, _NOTHING),
        (
            "which sites answered",
            "in each round",
            "which sites take part in each round, if answers are masked; otherwise nothing",
            "in how many rounds",
        ),
        ("errors at a site", "their kind, and a sentence without values", _NOTHING, _NOTHING),
        ("budget that a site has left", _NOTHING, _NOTHING, _NOTHING),
        ("model, bounds, levels, budget, method, names of sites", *["everything"] * 3),
    ]


def _server_learns(statement: PrivacyStatement) -> tuple[str, str]:
    """What the server learns of answers and of the number of rows, by who adds the noise."""
    from tacit.federated.agreement import BY_NOISE, NO_GUARANTEE

    said = set(statement.assumptions)
    if statement.event is None or NO_GUARANTEE in said:
        return _UNPROTECTED
    known = (_SERVER_LEARNS[noise] for noise, sentences in BY_NOISE.items() if sentences[0] in said)
    return next(known, _UNKNOWN)


@dataclass(frozen=True, kw_only=True)
class SiteContribution:
    """The part of one site in a federated fit, for its own board.

    Args:
        name: The name of the site.
        run: The name of the run, by the site's own study.
        used: The number of its answers that the fit used, if that is known.
        asked: The number of answers that the fit requested.
        given: The number of answers that left the site, by its own journal.
        paid: The number of answers that it paid for.
        charged: What the run was charged, by its own ledger.
        left: What its ledger has left.
        total: The total of its ledger.
    """

    name: str
    run: str
    used: int | None
    asked: int | None
    given: int
    paid: int
    charged: float
    left: Budget
    total: Budget

    @property
    def spending(self) -> BudgetParts:
        """The parts of the ledger's budget."""
        others = subtract_decimals(
            subtract_decimals(self.total.epsilon, self.left.epsilon), self.charged
        )
        return BudgetParts(left=self.left, run=self.charged, earlier=others, total=self.total)

    @property
    def facts(self) -> list[tuple[str, tuple[str, ...]]]:
        """What the site did, as pairs of a name and sentences."""
        used = "not known from this file"
        if self.used is not None:
            used = f"{self.used} of the {self.asked} that were requested of it"
        return [
            ("Run", (f"{self.run}, which the site's own study names",)),
            ("Answers that left the site", (f"{self.given} of the {self.paid} that it paid for",)),
            ("Answers that the fit used", (used,)),
            (
                "What an answer is",
                (
                    "A vector of numbers, computed from all rows of the site, with noise. No row leaves.",
                ),
            ),
            (
                "Charged to the site's ledger",
                (f"epsilon {self.charged:.4g}, once, before the first answer was computed",),
            ),
        ]


# More could not be distinguished in a drawing, or would not be read in a table.
_MAX_BARS, _MAX_TABLE_LINES = 60, 200
# Settings that are shown elsewhere than in the list of settings.
_SETTINGS_SHOWN_ELSEWHERE = ("title", "notes", "method")


@dataclass(frozen=True, kw_only=True)
class ReportContents:
    """A posterior, its statement and its settings, as sentences and tables.

    Attributes:
        posterior: The posterior.
        settings: Public facts for repeating the fit; see `tacit.results.report.write_report`.
        schema: The schema, if it is known.
        units: Other units for some columns, as for `Posterior.summary`.
        site: The part of one site, if the report is for its board.
    """

    posterior: "Posterior"
    settings: Mapping[str, object]
    schema: Schema | None
    units: IncrementSizes = field(default_factory=dict)
    site: SiteContribution | None = None

    @property
    def statement(self) -> PrivacyStatement:
        """The privacy statement."""
        return self.posterior.privacy

    @property
    def title(self) -> str:
        """The question that was asked, or else what was fitted, in one line."""
        interpretation = self.posterior.interpretation
        said = self.settings.get("title") or (
            None if interpretation is None else interpretation.question
        )
        title = str(said) if said else f"Posterior of {_join_names(list(self.posterior.draws))}"
        return title if self.site is None else f"{title}: the part of {self.site.name}"

    @property
    def disclosures(self) -> list[Sequence[str]]:
        """What others learn of each site of a federated fit; empty for other fits."""
        return who_learns(self.statement) if self.posterior.sites else []

    @property
    def notes(self) -> list[tuple[str, str]]:
        """Who asked, why, and by which approval, as far as it was noted."""
        said = self.settings.get("notes") or {}
        if not isinstance(said, Mapping):
            raise InvalidArgument("The setting notes must map names to text.")
        return [(str(name).replace("_", " "), format_setting(text)) for name, text in said.items()]

    @property
    def answer(self) -> str:
        """What was fitted, and its privacy cost, in one sentence."""
        interpretation, formula = self.posterior.interpretation, self.settings.get("formula")
        what = f"A model with {_join_names(list(self.posterior.draws))}"
        if formula:
            family = self.settings.get("family")
            what = f"The model {formula} ({family})" if family else f"The model {formula}"
        if interpretation is not None:
            what = f"A {interpretation.kind}"
        if not self.statement.is_private:
            return f"{what} was fitted without protecting anyone: the result must not be released."
        said = (
            f"{what} was fitted to private data. What the result can tell about any one "
            f"{self.statement.unit} is limited: "
            f"{self.statement.cost_line(self.statement.adjacency)}."
        )
        return " ".join([said, *self.statement.count_note])

    @cached_property
    def summary(self) -> Summary:
        """The table of parameters, of limited length."""
        return replace(self._whole, lines=self._whole.lines[:_MAX_TABLE_LINES])

    @cached_property
    def _whole(self) -> Summary:
        return self.posterior.summary(INTERVAL_LEVEL, units=self.units)

    @cached_property
    def bars(self) -> list[Bar]:
        """The bars of the forest plot."""
        return forest_bars(self.posterior, _MAX_BARS, units=self.units)

    @property
    def interpretation_notes(self) -> list[str]:
        """How to read the numbers."""
        interpretation = self.posterior.interpretation
        return [*reference_note(interpretation), *interpretation_notes(interpretation)]

    @property
    def priors(self) -> list[str]:
        """The prior of each parameter, and that scaling numbers for the fit makes no difference."""
        interpretation = self.posterior.interpretation
        if interpretation is None:
            return []
        asked = check_units(interpretation, self.units)
        words = {n: each.prior_words(asked) for n, each in interpretation.parameters.items()}
        listed = "; ".join(f"{name}: {said}" for name, said in words.items() if said)
        steps = dict.fromkeys(
            s for each in interpretation.parameters.values() for s in each.increments
        )
        scaled = ", ".join(f"{s.name} by {s.in_model:.6g} ({s.origin})" for s in steps)
        note = f"For the fit, numbers were divided by a public scale: {scaled}."
        told = [f"{note} Everything here is converted back."] if scaled else []
        return [*([f"Priors. {listed}."] if listed else []), *told]

    @property
    def omissions(self) -> list[str]:
        """What is not shown, and where to find it."""
        count = sum(math.prod(mean.shape) for mean in self.posterior.mean().values())
        notes = []
        if count > _MAX_BARS:
            notes.append(f"The drawing shows the first {_MAX_BARS} of {count} numbers.")
        if count > _MAX_TABLE_LINES:
            notes.append(
                f"The table shows the first {_MAX_TABLE_LINES} of {count} numbers; "
                "summary().to_pandas() has them all."
            )
        return notes

    def interval(self, level: float) -> str:
        """The name of an interval, with a note if it leaves out the privacy noise."""
        kind = self.posterior.intervals
        name = f"{level:.0%} interval"
        return with_noise_note(name, kind) if kind == Intervals.LEFT_OUT else name

    @property
    def interval_sentence(self) -> str:
        """Whether intervals account for the privacy noise."""
        return INTERVAL_SENTENCES[self.posterior.intervals]

    @property
    def course(self) -> list[str]:
        """How the fit went: how a chain mixes, and notes of the method; but not what stands elsewhere."""
        mixing = [self._mixing()] if self.posterior.chain else []
        return [*mixing, *(each for each in self.posterior.course if each != self.summary.finding)]

    @property
    def remarks(self) -> list[str]:
        """What to know of the fit beside the table."""
        return [each for each in self.course if each in self.summary.notes]

    @property
    def more(self) -> list[str]:
        """Priors, and how the fit went as far as nobody has to know it."""
        return [*self.priors, *(each for each in self.course if each not in self.summary.notes)]

    @property
    def method(self) -> list[str]:
        """The method and its random numbers, in words."""
        return [" ".join([*self.posterior.fitted_by[:2], self.statement.randomness_sentence])]

    @property
    def technical(self) -> tuple[str, list[str]]:
        """The method and its random numbers, as experts write them, with a title."""
        method = self.settings.get("method")
        said = [] if method is None else [f"Method: {format_setting(method)}"]
        noise = f"Noise and sampling: {self.statement.randomness}"
        steps = self.posterior.fitted_by[2:]
        return "Method and random numbers in technical terms", [*said, *steps, noise]

    @property
    def rows(self) -> list[tuple[tuple[str, str], *tuple[str, ...]]]:
        """The lines of the table; the first cell is the name and what one unit is."""
        lines = self.summary.lines
        cells = [self._ratio_first(row[1:]) for row in self.summary.cells()]
        return [((a.name, a.unit), *row) for a, row in zip(lines, cells, strict=True)]

    @property
    def markdown_rows(self) -> list[list[str]]:
        """The same lines, the name and what one unit is in one cell."""
        return [[", ".join(filter(None, name)), *cells] for name, *cells in self.rows]

    @property
    def header(self) -> list[str]:
        """Titles of the columns after the first."""
        return self._ratio_first(self.summary.header()[1:])

    def _ratio_first(self, cells: Sequence[str]) -> list[str]:
        """Ratios before the other numbers, so that they are on the screen of a phone."""
        return list(cells) if self.summary.ratio is None else [cells[-1], *cells[:-1]]

    @property
    def expected(self) -> list[list[str]]:
        """Half widths of intervals as they were forecast and as they came out, if there was a forecast."""
        forecast, usual = self.posterior.expected, self.posterior.summary(INTERVAL_LEVEL).lines
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
            ("Unit of privacy", (UNIT_SENTENCES.get(said.unit, f"One {said.unit}."),)),
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
        header, *lines = schema_module.public_facts(dict(self.schema.items), whole=True)
        return header, list(lines), self.schema.notes

    @property
    def all_settings(self) -> list[tuple[str, str]]:
        """All settings that are known, and the versions of the software."""
        formula = (
            {}
            if self.posterior.interpretation is None
            else {"formula": self.posterior.interpretation.formula}
        )
        known = {**formula, **self.settings}
        said = [
            (name.replace("_", " "), format_setting(value))
            for name, value in known.items()
            if name not in _SETTINGS_SHOWN_ELSEWHERE
        ]
        versions = ", ".join(f"{name} {each}" for name, each in self.statement.versions.items())
        return [*said, ("computed with", versions)]

    @property
    def epsilon_meaning(self) -> str:
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
        compared = f"Compares {ADJACENCY_COMPARISONS[adjacency].format(unit=self.statement.unit)}."
        if epsilon is None or math.isinf(epsilon):
            return f"{compared} No limit is known."
        return f"{compared} {Budget(epsilon, delta, adjacency).explain()}"

    @property
    def sites(self) -> list[Sequence[str]]:
        """The cost of a federated fit at each site, and how many of its answers were used.

        Empty if the report is for one of the sites.
        """
        if self.site is not None:
            return []
        return [
            (
                name,
                format_number(one.delta),
                *(format_epsilon(one.epsilons[a]) for a in ADJACENCIES),
                one.unit,
                self._used(name),
            )
            for name, one in self.posterior.sites.items()
        ]

    def _used(self, site: str) -> str:
        if site not in self.posterior.answers:
            return "not known"
        used, asked = self.posterior.answers[site]
        return f"{used} of {asked}"

    @cached_property
    def curves(self) -> dict[Adjacency, Curve]:
        """Curves of epsilon over delta, where they are known."""
        found = {}
        for adjacency in ADJACENCIES:
            written = self.statement.curves_shown[adjacency]
            between = self.statement.curve(adjacency, _INTERMEDIATE_DELTAS)
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
    def spending(self) -> BudgetParts | None:
        """The parts of the ledger's budget, as it recorded them; None without a ledger."""
        if self.site is not None:
            return self.site.spending
        said, total = self.statement, _budget_from_setting(self.settings.get("ledger_total"))
        before, left, run = said.budget_before, said.budget_left, said.epsilons[said.adjacency]
        if left is None or run is None:
            return None
        if before is None:
            return BudgetParts(left=left, run=run, earlier=None, total=total)
        run = subtract_decimals(before.epsilon, left.epsilon)
        earlier = None if total is None else subtract_decimals(total.epsilon, before.epsilon)
        return BudgetParts(left=left, run=run, earlier=earlier, total=total)

    @property
    def budget_sentence(self) -> str:
        """The remaining budget, in words."""
        if self.statement.event is None:
            return "The fit was made without privacy: no budget applies."
        spending = self.spending
        if spending is None and self.statement.book != NO_LEDGER:
            return f"{self.statement.book[:1].upper()}{self.statement.book[1:]}."
        if spending is None:
            return (
                "No ledger was charged. Nothing limits how often these data are used, "
                "and the costs of all uses add up."
            )
        left = str(spending.left) if spending.total is None else spending.left.amounts
        total = "" if spending.total is None else f" of {spending.total}"
        return (
            f"After this run the ledger of these data had {left} left{total}. Every further fit to "
            "the same data is charged to it, and refused once it is used up."
        )

    @property
    def event(self) -> str:
        """What was done to the data, as JSON."""
        event = self.statement.event
        return "null" if event is None else json.dumps(events.to_dict(event), indent=2)


def _join_names(names: Sequence[str]) -> str:
    shown = list(names[:3]) if len(names) <= 4 else [*names[:3], f"{len(names) - 3} more"]
    shown = list(names) if len(names) == 4 else shown
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def _budget_from_setting(said: object) -> Budget | None:
    if said is None or isinstance(said, Budget):
        return said
    try:
        return Budget(**said)  # type: ignore[arg-type]  # whatever it is, it is refused below
    except TypeError:
        raise InvalidArgument(
            "The setting ledger_total must be a Budget, or a mapping of epsilon, delta and "
            f"adjacency; got {type(said).__name__}."
        ) from None


def format_setting(value: object) -> str:
    """A setting in words: lists with commas, mappings with their names."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {format_setting(each)}" for name, each in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return ", ".join(map(format_setting, value))
    return "none" if value is None else str(value)
