"""Privacy statements: the guarantee of a result, in words and numbers."""

import json
import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from attrs import asdict, field, frozen
from dp_accounting.dp_event import DpEvent

from tacit import _validate
from tacit._format import asked_for, in_digits, printed
from tacit._html import render
from tacit.accounting import ADJACENCIES, PLD, Adjacency, Budget, Curve
from tacit.accounting.cost import costs
from tacit.errors import InvalidArgument, UnsupportedEvent
from tacit.results import eventdata, registry
from tacit.results.versions import library_versions

NO_LEDGER = "no durable ledger"
NOT_PROTECTED = ("running time", "whoever runs the program and holds the data is trusted")

# The deltas at which the curve is written out; `PrivacyStatement.curve` has more points.
DECADES = tuple(10.0**exponent for exponent in range(-12, 0))
_MEANT = {"add-remove": "a unit is in the data, or not", "replace": "a unit is one, or another"}


def _delta(value: float) -> float:
    return _validate.probability("delta", value)


@frozen(kw_only=True, repr=False, slots=False)
class PrivacyStatement:
    """The privacy guarantee of one result: what it covers, assumes and leaves out.

    Attributes:
        event: What was done to the data. Every epsilon is computed from it. None for a fit without
            privacy.
        delta: The delta of the budget.
        adjacency: The adjacency of the budget; see `Budget`.
        unit: The unit of privacy: a row, or a person with all their rows.
        public: What was treated as public.
        seeded: Whether the noise came from a seed, which voids the guarantee.
        not_protected: What the guarantee does not cover.
        assumptions: What must be true for the guarantee to hold.
        declared: What somebody declared about the data before the fit, which nothing can check. Every
            rendering begins with it.
        asked: The epsilon of the budget. The run may have cost less, and the ledger is charged the
            actual cost.
        budget_before: What the ledger had left before the charge.
        budget_left: What it had left afterwards, or None without a ledger.
        book: A note on the ledger if ``budget_left`` is None.
        versions: Versions of the software.
    """

    event: DpEvent | None
    delta: float = field(converter=_delta)
    adjacency: Adjacency
    unit: str
    public: tuple[str, ...]
    seeded: bool
    not_protected: tuple[str, ...] = NOT_PROTECTED
    assumptions: tuple[str, ...] = ()
    declared: str = ""
    asked: float | None = None
    budget_before: Budget | None = None
    budget_left: Budget | None = None
    book: str = NO_LEDGER
    versions: Mapping[str, str] = field(factory=library_versions, hash=False)

    def __attrs_post_init__(self) -> None:
        _validate.choice("adjacency", self.adjacency, ADJACENCIES)

    @property
    def is_private(self) -> bool:
        """Whether the result has a guarantee."""
        return self.warning is None

    @property
    def warning(self) -> str | None:
        """Why there is no guarantee, or None if there is one. Every rendering begins with it."""
        if self.event is None:
            return "NOT PRIVATE: fitted without noise, for comparison only. Do not release."
        if self.seeded:
            return "seeded: not private (whoever knows the seed can remove the noise)"
        if self.meaning is None:
            return f"NOT PRIVATE: no limit is known at delta {in_digits(self.delta)} under {self.adjacency}."
        return None

    @cached_property
    def epsilons(self) -> dict[Adjacency, float | None]:
        """Epsilon at ``delta`` under each adjacency, as charged; None where no bound is known."""
        if self.event is None:
            return {"add-remove": None, "replace": None}
        return costs(self.event, self.delta, self.adjacency, self.asked)

    @property
    def meaning(self) -> str | None:
        """What the epsilon means for a person, or None if there is no bound."""
        spent = self.epsilons[self.adjacency]
        if spent is None or math.isinf(spent):
            return None
        return Budget(spent, self.delta, self.adjacency).explain()

    def curve(self, adjacency: Adjacency, deltas: tuple[float, ...] | None = None) -> Curve | None:
        """Epsilon over a range of deltas. The guarantee holds at every point of the curve.

        Args:
            adjacency: ``"add-remove"`` or ``"replace"``.
            deltas: The deltas; by default a public grid.

        Returns:
            The curve, or None if no bound is known.
        """
        if self.event is None:
            return None
        try:
            return PLD().curve(self.event, adjacency, deltas)
        except UnsupportedEvent:
            return None

    @property
    def randomness(self) -> str:
        """The source of the random numbers for sampling and noise."""
        if self.event is None:
            return "no noise"
        if self.seeded:
            return "AES-256 keyed by the seed"
        return "AES-256 keyed by the operating system, exact on an integer lattice"

    @property
    def headline(self) -> str:
        """The warning, or the epsilon of the budget, in one line."""
        return self.warning or self.epsilon_line(self.adjacency)

    def __str__(self) -> str:
        if self.event is None:
            return str(self.warning)
        lines = [said for said in (self.warning, self.declared) if said]
        if self.seeded:
            lines.append("without a seed, the same run would have:")
        lines += [self.epsilon_line(adjacency) for adjacency in ADJACENCIES]
        lines += [self.meaning] if self.meaning else []
        lines += [f"{name}: {said}" if name else said for name, said in self.facts()]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"PrivacyStatement({self.headline})"

    def _repr_html_(self) -> str:
        return render("statement.html", statement=self)

    def to_dict(self, *, curve: bool = True) -> dict[str, Any]:
        """The statement as plain data, for JSON or YAML.

        Args:
            curve: Whether to include the curve of epsilon over delta.

        Returns:
            A dictionary. An infinite or unknown epsilon is None.
        """
        curves = {a: _points(self.written_curves[a]) for a in ADJACENCIES} if curve else {}
        return {
            "private": self.is_private,
            "warning": self.warning,
            "epsilon": {a: _finite(e) for a, e in self.epsilons.items()},
            "delta": self.delta,
            "adjacency": self.adjacency,
            "meaning": self.meaning,
            "unit": self.unit,
            "public": list(self.public),
            "not_protected": list(self.not_protected),
            "assumptions": list(self.assumptions),
            "declared": self.declared,
            "seeded": self.seeded,
            "randomness": self.randomness,
            "asked": self.asked,
            "budget_before": None if self.budget_before is None else asdict(self.budget_before),
            "budget_left": None if self.budget_left is None else asdict(self.budget_left),
            "book": self.book,
            **({"curve": curves} if curve else {}),
            "event": None if self.event is None else eventdata.to_data(self.event),
            "versions": dict(self.versions),
        }

    def to_json(self, *, curve: bool = True) -> str:
        """The statement as JSON text.

        Args:
            curve: Whether to include the curve of epsilon over delta.

        Returns:
            The text, which `from_json` reads.
        """
        return json.dumps(self.to_dict(curve=curve), indent=2, allow_nan=False)

    def to_registry(self, *, federated: bool = False) -> dict[str, Any]:
        """The fields of an entry in the public deployments registry.

        Args:
            federated: Whether the data stayed with several sites.

        Returns:
            A dictionary. Fields that a statement cannot know, such as the publisher, are None.
        """
        return registry.entry(self, federated=federated)

    @classmethod
    def from_json(cls, text: str) -> "PrivacyStatement":
        """Reads a statement that `to_json` wrote.

        Epsilons are computed again from the event, so a file cannot claim more than its event
        proves.

        Args:
            text: The JSON text.

        Returns:
            The statement.
        """
        try:
            data = json.loads(text)
            event, before, left = data["event"], data.get("budget_before"), data["budget_left"]
            return cls(
                event=None if event is None else eventdata.from_data(event),
                asked=data.get("asked"),
                budget_before=None if before is None else Budget(**before),
                budget_left=None if left is None else Budget(**left),
                versions=dict(data["versions"]),
                public=tuple(data["public"]),
                not_protected=tuple(data["not_protected"]),
                assumptions=tuple(data["assumptions"]),
                declared=str(data.get("declared", "")),
                book=str(data.get("book", NO_LEDGER)),
                **{name: data[name] for name in ("delta", "adjacency", "unit", "seeded")},
            )
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidArgument(
                f"This is not a privacy statement written by Tacit: {error}."
            ) from error

    def epsilon_line(self, adjacency: Adjacency) -> str:
        """The cost under an adjacency, and whether it is the one asked for."""
        asked = f" ({self.asked_for})" if adjacency == self.adjacency else ""
        return f"{self.cost_line(adjacency)}{asked}"

    def cost_line(self, adjacency: Adjacency) -> str:
        """The cost under an adjacency."""
        epsilon = printed(self.epsilons[adjacency])
        return f"epsilon {epsilon} at delta {in_digits(self.delta)} under {adjacency}"

    @property
    def asked_for(self) -> str:
        """Whether the run spent the epsilon that was asked for, or less."""
        return asked_for(self.epsilons[self.adjacency], self.asked)

    def facts(self) -> list[tuple[str, str]]:
        """What a reader should know beside the numbers; a fact without a name is a sentence."""
        assumed = [("assumes", "; ".join(self.assumptions))] if self.assumptions else []
        left = self.budget_left
        return [
            ("unit of privacy", f"one {self.unit}"),
            ("treated as public", ", ".join(self.public)),
            ("not protected", "; ".join(self.not_protected)),
            *assumed,
            ("noise and sampling", self.randomness),
            ("computed with", ", ".join(f"{name} {v}" for name, v in self.versions.items())),
            ("", self.book) if left is None else ("ledger", f"{left} left"),
        ]

    @cached_property
    def written_curves(self) -> dict[Adjacency, Curve | None]:
        """Epsilon at each of the deltas that renderings show, under each adjacency."""
        return {adjacency: self.curve(adjacency, DECADES) for adjacency in ADJACENCIES}

    def epsilon_table(self) -> tuple[Sequence[str], list[Sequence[str]]]:
        """Header and rows of a table of epsilons under each adjacency."""
        rows: list[Sequence[str]] = [(a, printed(self.epsilons[a]), _MEANT[a]) for a in ADJACENCIES]
        return ("adjacency", f"epsilon at {in_digits(self.delta)}", ""), rows

    def curve_table(self) -> tuple[Sequence[str], list[Sequence[str]]]:
        """Header and rows of a table of epsilons at several deltas."""
        found = {
            adjacency: dict(zip(*curve, strict=True))
            for adjacency, curve in self.written_curves.items()
            if curve is not None
        }
        rows: list[Sequence[str]] = [
            [f"{delta:g}", *(printed(found.get(a, {}).get(delta)) for a in ADJACENCIES)]
            for delta in DECADES
        ]
        return ("delta", *(f"epsilon, {a}" for a in ADJACENCIES)), rows


def _points(curve: Curve | None) -> dict[str, list[float | None]] | None:
    if curve is None:
        return None
    return {"delta": list(curve.deltas), "epsilon": [_finite(e) for e in curve.epsilons]}


def _finite(value: float | None) -> float | None:
    return None if value is None or math.isinf(value) else value
