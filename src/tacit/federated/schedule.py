"""The order in which sites are asked."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tacit import _validate
from tacit.errors import InvalidArgument

ScheduleName = Literal["synchronous", "sequential", "asynchronous"]


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """The order in which sites are asked. Every site is asked ``num_rounds`` times.

    Args:
        num_rounds: How often every site is asked.
        kind: With ``"synchronous"`` all sites start from the same posterior and their changes are added.
            With ``"sequential"`` they are asked one after the other. ``"asynchronous"`` simulates
            sites of different speeds, for comparisons.
        group_size: The number of sites that are asked at a time, synchronously.
        damping: The factor that changes are multiplied by.
    """

    num_rounds: int
    kind: ScheduleName = "synchronous"
    group_size: int | None = None
    damping: float = 1.0

    def __post_init__(self) -> None:
        _validate.count("num_rounds", self.num_rounds)
        _validate.choice("schedule", self.kind, ("synchronous", "sequential", "asynchronous"))
        _validate.rate("damping", self.damping)
        if self.group_size is not None:
            _validate.count("group_size", self.group_size)
            if self.kind != "synchronous":
                raise InvalidArgument(
                    "group_size needs the synchronous schedule; leave schedule out."
                )

    def groups(self, sites: Sequence[str]) -> list[tuple[str, ...]]:
        """The groups of sites that are asked together in one round."""
        if self.kind == "synchronous" and self.group_size is None:
            return [tuple(sites)]
        size = self.group_size or 1
        return [tuple(sites[i : i + size]) for i in range(0, len(sites), size)]
