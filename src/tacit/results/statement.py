"""What a result cost the people in the data, in words and numbers a reader can check."""

from dataclasses import dataclass
from functools import cached_property

from dp_accounting.dp_event import DpEvent

from tacit.accounting import PLD, Adjacency, Budget, Curve
from tacit.errors import UnsupportedEvent


@dataclass(frozen=True, kw_only=True)
class PrivacyStatement:
    """The guarantee of one result, what it rests on, and what it leaves out.

    ``event`` is None for a fit made without privacy, which has no guarantee.
    """

    event: DpEvent | None
    delta: float
    adjacency: Adjacency
    unit: str
    public: tuple[str, ...]
    seeded: bool
    ledger: str

    @property
    def is_private(self) -> bool:
        """Whether there is a guarantee: noise was added, and nobody can know it."""
        return self.event is not None and not self.seeded

    @cached_property
    def epsilons(self) -> dict[Adjacency, float | None]:
        """Epsilon at ``delta`` under each adjacency; None where no bound is known."""
        if self.event is None:
            return {"add-remove": None, "replace": None}
        return PLD().epsilons(self.event, self.delta)

    def curve(self, adjacency: Adjacency) -> Curve | None:
        """Epsilon at every delta, or None where no bound is known."""
        if self.event is None:
            return None
        try:
            return PLD().curve(self.event, adjacency)
        except UnsupportedEvent:
            return None

    def __str__(self) -> str:
        if self.event is None:
            return "NOT PRIVATE: fitted without noise, for comparison only. Do not release."
        lines = []
        if self.seeded:
            lines.append("seeded: not private (whoever knows the seed can remove the noise)")
        for adjacency, epsilon in self.epsilons.items():
            value = "not available" if epsilon is None else f"{epsilon:.4g}"
            asked = " (asked for)" if adjacency == self.adjacency else ""
            lines.append(f"epsilon {value} at delta {self.delta:g} under {adjacency}{asked}")
        spent = self.epsilons[self.adjacency]
        if spent is not None:
            lines.append(Budget(spent, self.delta, self.adjacency).explain())
        lines += [
            f"unit of privacy: one {self.unit}",
            f"taken as public: {', '.join(self.public)}",
            "not protected: running time; whoever runs the program and holds the data is trusted",
            f"noise and sampling: {self._randomness}",
            self.ledger,
        ]
        return "\n".join(lines)

    @property
    def _randomness(self) -> str:
        if self.seeded:
            return "AES-256 keyed by the seed"
        return "AES-256 keyed by the operating system, exact on an integer lattice"
