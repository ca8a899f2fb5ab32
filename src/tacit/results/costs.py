"""What a run cost a person and its ledger, as sentences and tables of a report."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tacit._format import in_digits, less, printed
from tacit.accounting import ADJACENCIES, Adjacency, Budget, Curve
from tacit.errors import InvalidArgument
from tacit.results.statement import NO_LEDGER, PrivacyStatement
from tacit.results.wording import COMPARED

if TYPE_CHECKING:
    from tacit.results.posterior import Posterior

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
class CostContents:
    """The privacy costs of a posterior."""

    posterior: "Posterior"
    settings: Mapping[str, Any]

    @property
    def statement(self) -> PrivacyStatement:
        """The privacy statement."""
        return self.posterior.privacy

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
        """The cost of a federated fit at each site, and how many of its answers were used."""
        return [
            (
                name,
                in_digits(one.delta),
                *(printed(one.epsilons[a]) for a in ADJACENCIES),
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
        if spending is None and self.statement.book != NO_LEDGER:
            return f"{self.statement.book[:1].upper()}{self.statement.book[1:]}."
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
