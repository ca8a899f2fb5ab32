"""Which plates of a NumPyro function are over rows and over people."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import biject_to

from tacit.errors import InvalidArgument
from tacit.models.made_up import MadeUp, explained, quoted
from tacit.models.numpyro import NumPyro
from tacit.models.places import unconstrained_shape
from tacit.models.sites import Message, Run, Statement

Found = TypeVar("Found")
Sites = Mapping[str, Statement]


class Draft:
    """Runs of a function on shapes, to find out which plates are over rows and people."""

    def __init__(
        self,
        described: NumPyro,
        used: tuple[str, ...],
        person_column: str | None,
        made_up: MadeUp,
    ) -> None:
        self._described, self._used = described, used
        self._person_column, self._made_up = person_column, made_up

    def _attempt(
        self, count: int, lengths: Mapping[str, int], look: Callable[[Sites], Found]
    ) -> Found:
        """What ``look`` finds at the sites of a run on so many made-up rows."""
        columns = {name: self._made_up(count, 0)[name] for name in self._used}
        if self._person_column is not None:
            columns[self._person_column] = np.zeros(count, np.int32)
        run = Run(self._described.function, lengths, _at_zero)
        self._last = run
        seen: list[Found] = []

        def go(columns: Any) -> None:
            run(**self._described.constants, **columns)
            seen.append(look(run.sites))  # while the values are alive

        jax.eval_shape(go, columns)
        return seen[0]

    def look_at_one_row(self, lengths: Mapping[str, int], look: Callable[[Sites], Found]) -> Found:
        """What ``look`` finds at the sites of a run on a single row."""
        with explained(1):
            return self._attempt(1, lengths, look)

    def row_plates(self) -> set[str]:
        """The plates over rows: those that grow with the rows, or else the only one that can."""
        plates, person = self._plates(), self.person_plate()
        named = self._described.row_plate
        if named is not None:
            if named not in plates:
                raise InvalidArgument(
                    f"The model has no plate {named!r}, only {quoted(plates)}; pass the one over "
                    "rows as row_plate=."
                )
            return {named}
        others = [name for name in plates if name != person]
        growing = self._growing(person)
        over_rows = {name for name in others if growing.get(name) == (3, 5)}
        if not over_rows:
            fitting = [name for name in others if self._fits(name, person)]
            over_rows = set(fitting) if len(fitting) == 1 else set()
        if not over_rows:
            self._refuse(others, person, growing)
        return over_rows

    def _refuse(
        self, others: list[str], person: str | None, growing: Mapping[str, tuple[int, int]]
    ) -> None:
        with explained(3):
            self._attempt(3, {person: 1} if person else {}, len)
        for name, (at_three, at_five) in growing.items():
            if at_three != at_five:
                raise InvalidArgument(
                    f"Plate {name!r} has {at_three} entries for 3 rows, so it drops or combines rows; "
                    "every row must be an entry of its own."
                )
        if not others:
            raise InvalidArgument(
                "The model has no plate over rows: put what is observed inside "
                'with numpyro.plate("rows", n), where n is the number of rows.'
            )
        raise InvalidArgument(
            f"It is not clear which plate is over rows; the model has {quoted(others)}; give the "
            "plate over rows the number of rows as its size, or pass row_plate=."
        )

    def person_plate(self) -> str | None:
        """The plate over people, if the model has one."""
        if self._described.person_plate is None and self._person_column is None:
            return None
        name = self._described.person_plate or self._person_column
        plates = self._plates()
        if name in plates:
            return name
        with explained(3):
            self._attempt(3, {}, len)
        raise InvalidArgument(
            f"The model takes the person column but has no plate {name!r}, only {quoted(plates)}; name the "
            f"plate over people {name!r}, or pass person_plate=."
        )

    def _plates(self) -> dict[str, int]:
        """All plates that a run reaches; one of fixed size may not fit three rows."""
        with suppress(Exception):
            self._attempt(3, {}, len)
        return self._last.plates

    def _growing(self, person: str | None) -> dict[str, tuple[int, int]]:
        """Sizes of the plates on three and on five rows; empty if the model fails on either."""
        sizes = []
        for count in (3, 5):
            with suppress(Exception):
                self._attempt(count, {person: 1} if person else {}, len)
                sizes.append(self._last.plates)
        if len(sizes) < 2:
            return {}
        return {name: (size, sizes[1].get(name, 0)) for name, size in sizes[0].items()}

    def _fits(self, name: str, person: str | None) -> bool:
        """Whether the model runs on three rows, and observes them, if this plate is over rows."""
        with suppress(Exception):
            return bool(
                self._attempt(
                    3,
                    {name: 3} | ({person: 1} if person else {}),
                    lambda sites: any(s.observed and name in s.plates for s in sites.values()),
                )
            )
        return False


def _at_zero(message: Message) -> jax.Array:
    """The value of a latent at unconstrained zeros."""
    fn = message["fn"]
    if fn.support is None or fn.support.is_discrete:
        return jnp.zeros(fn.shape(), jnp.int32)
    value: jax.Array = biject_to(fn.support)(jnp.zeros(unconstrained_shape(fn)))
    return value
