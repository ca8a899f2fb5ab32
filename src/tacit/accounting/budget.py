"""Privacy budgets."""

import math
from typing import Literal, get_args

from attrs import field, frozen

from tacit import _validate
from tacit._format import in_digits

Adjacency = Literal["add-remove", "replace"]
ADJACENCIES: tuple[Adjacency, ...] = get_args(Adjacency)


def _epsilon(value: float) -> float:
    return _validate.non_negative("epsilon", value)


def _delta(value: float) -> float:
    return _validate.probability("delta", value)


@frozen
class Budget:
    """A differential privacy budget: how much a result may depend on any one person.

    A run within ``Budget(epsilon, delta)`` makes no outcome more than ``exp(epsilon)`` times as
    likely because one person's data were used, except for outcomes of total probability ``delta``.

    Budgets are partially ordered. One budget is at most another if both have the same adjacency and
    neither its epsilon nor its delta is larger.

    Args:
        epsilon: The privacy loss. Smaller is more private.
        delta: The probability with which the bound may fail. Zero is pure differential privacy.
        adjacency: Which data sets are neighbours. ``"add-remove"``: one person's data are added or
            removed. ``"replace"``: one person's record is replaced by another; this hides the
            content of a record but not its presence, and costs more for the same noise.

    Raises:
        InvalidArgument: If a value is out of range.

    Examples:
        >>> Budget(1, 1e-6) <= Budget(2, 1e-6)
        True
        >>> Budget(1, 1e-5) <= Budget(2, 1e-6) or Budget(2, 1e-6) <= Budget(1, 1e-5)
        False
    """

    epsilon: float = field(converter=_epsilon)
    delta: float = field(default=0.0, converter=_delta)
    adjacency: Adjacency = "add-remove"

    def __attrs_post_init__(self) -> None:
        _validate.choice("adjacency", self.adjacency, ADJACENCIES)

    def __le__(self, other: "Budget") -> bool:
        if not isinstance(other, Budget):
            return NotImplemented
        return (
            self.adjacency == other.adjacency
            and self.epsilon <= other.epsilon
            and self.delta <= other.delta
        )

    def __lt__(self, other: "Budget") -> bool:
        if not isinstance(other, Budget):
            return NotImplemented
        return self <= other and self != other

    def __ge__(self, other: "Budget") -> bool:
        if not isinstance(other, Budget):
            return NotImplemented
        return other <= self

    def __gt__(self, other: "Budget") -> bool:
        if not isinstance(other, Budget):
            return NotImplemented
        return other < self

    @property
    def is_pure(self) -> bool:
        """Whether delta is zero."""
        return self.delta == 0

    @property
    def best_guess(self) -> float:
        """The largest probability with which an attacker can guess about one person correctly.

        The attacker knows everything except one person's record, considers two equally likely
        worlds (the person is in or out; or the record is one or another), and sees the result.
        Guessing by a coin toss is right half the time.

        Examples:
            >>> round(Budget(1, 1e-5).best_guess, 3)
            0.731
        """
        # From P(S) <= e^eps Q(S) + delta both ways: the two error rates of any test
        # add up to at least 2 (1 - delta) / (1 + e^eps) (Kairouz et al. 2015).
        return 1 - (1 - self.delta) / (1 + math.exp(min(self.epsilon, 700.0)))

    def explain(self) -> str:
        """One sentence on what the budget means for a person in the data.

        Examples:
            >>> print(Budget(1, 1e-5).explain())
            Someone who knows every other record and tosses a fair coin over whether yours is in the data can, after seeing the result, guess right at most 73.2% of the time.
        """
        worlds = {
            "add-remove": "whether yours is in the data",
            "replace": "which of two records is yours",
        }
        return (
            f"Someone who knows every other record and tosses a fair coin over "
            f"{worlds[self.adjacency]} can, after seeing the result, guess right "
            f"at most {_percent(self.best_guess)} of the time."
        )

    @property
    def amounts(self) -> str:
        """Epsilon and delta as text; delta is left out if it is zero."""
        delta = "" if self.is_pure else f", delta {in_digits(self.delta)}"
        return f"epsilon {in_digits(self.epsilon)}{delta}"

    def __str__(self) -> str:
        return f"{self.amounts} ({self.adjacency})"


def _percent(share: float) -> str:
    """Rounded up, so that the sentence it stands in stays true."""
    decimals = 1 if share < 0.999 else 6
    scale = 10.0 ** (decimals + 2)
    return f"{math.ceil(share * scale - 1e-9) / scale * 100:.{decimals}f}%"
