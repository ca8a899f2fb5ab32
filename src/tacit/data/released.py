"""Records of numbers in a schema that were estimated from the data, at a charge."""

from typing import Any, NamedTuple

from tacit._format import in_digits
from tacit.errors import InvalidArgument


class Released(NamedTuple):
    """Columns whose centre and spread were estimated from the data, and the cost.

    >>> print(Released(("age", "dose"), 0.1, 1e-6, "add-remove"))
    centre and spread of age, dose, released at epsilon 0.1, delta 1e-06 (add-remove)
    """

    columns: tuple[str, ...]
    epsilon: float
    delta: float
    adjacency: str

    def __str__(self) -> str:
        cost = (
            f"epsilon {in_digits(self.epsilon)}, delta {in_digits(self.delta)} ({self.adjacency})"
        )
        return f"centre and spread of {', '.join(self.columns)}, released at {cost}"


def records_of(notes: object) -> list[Released]:
    """The records in a YAML file, as `Schema.to_yaml` wrote them."""
    if not isinstance(notes, list):
        raise InvalidArgument("released must be a list, as written by tacit.")
    return [_record_of(note) for note in notes]


def _record_of(note: Any) -> Released:
    try:
        found = Released(**{**note, "columns": tuple(note["columns"])})
        numbers = float(found.epsilon), float(found.delta)
        return found._replace(epsilon=numbers[0], delta=numbers[1])
    except (KeyError, TypeError, ValueError):
        raise InvalidArgument(
            f"Each entry of released must have {', '.join(Released.__annotations__)}, as written by tacit."
        ) from None
