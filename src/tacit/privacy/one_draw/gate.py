"""The gate of mechanisms without steps: draws that are private by themselves."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tacit.errors import BoundaryError
from tacit.privacy.digest import density_digest, made_up_unit
from tacit.privacy.gate import Gate
from tacit.privacy.one_draw.chain import ChainDraws, check_chain, draw_by_chain
from tacit.privacy.one_draw.claims import BoundedLikelihood, LipschitzLikelihood, LogConcave
from tacit.privacy.one_draw.grid import GridDraws, check_grid, draw_from_grid
from tacit.privacy.one_draw.reject import LogisticDraws, check_rejection, draw_by_rejection
from tacit.privacy.one_draw.statistic import StatisticDraws, check_statistic, draw_by_statistic
from tacit.privacy.rows import Rows
from tacit.privacy.settings import quiet

# For each mechanism, what is checked before anything is charged, and what draws.
_DRAWN: dict[type, tuple[Callable[..., None], Callable[..., NDArray[np.float64]]]] = {
    GridDraws: (check_grid, draw_from_grid),
    StatisticDraws: (check_statistic, draw_by_statistic),
    LogisticDraws: (check_rejection, draw_by_rejection),
    ChainDraws: (check_chain, draw_by_chain),
}


class DrawGate(Gate):
    """Rows, a mechanism of `tacit.privacy.one_draw`, and the randomness that protects them.

    Good for one call of `draw`. ``given`` is public: for a grid, the log prior of its points, a unit's
    density and the model's constants; for a chain, the prior's density, a unit's density and the
    constants; for the others nothing.
    """

    _mechanisms: ClassVar[frozenset[type]] = frozenset(_DRAWN)
    _parts: ClassVar[frozenset[type]] = frozenset(
        {BoundedLikelihood, LipschitzLikelihood, LogConcave}
    )

    @quiet()
    def check_draw(self, *given: Any) -> None:
        """Raises what `draw` would raise, without reading a row."""
        check, _ = _DRAWN[type(self.mechanism)]
        check(self.mechanism, self._private.blank(), *given)

    @quiet()
    def draw(self, *given: Any) -> NDArray[np.float64]:
        """The mechanism's draws, one below the other. Nothing else leaves. [gate-draw]"""
        self.check_draw(*given)
        _, draw = _DRAWN[type(self.mechanism)]
        self._use_up()
        if self._keeper is not None:  # a run that goes on draws anew, and the same  [kept-run]
            self._keeper.ask(_question(self.mechanism, self._private.blank(), given))
        return draw(self.mechanism, self._private, self._bits.noise, *given)


def _question(mechanism: Any, rows: Rows, given: Sequence[Any]) -> list[Any]:
    """What is asked of rows of these types; functions by digests of their traces. [kept-question]"""
    asked = [type(mechanism).__name__, vars(mechanism)]
    if not given:
        return asked
    prior, density, constants = given
    on_grid = isinstance(mechanism, GridDraws)
    vector = jnp.zeros(len(mechanism.points) if on_grid else mechanism.dimension)
    return [
        *asked,
        prior if on_grid else density_digest(prior, vector, constants),
        density_digest(density, vector, *made_up_unit(rows), constants),
        constants,
    ]


def draw_gate(gate: Gate) -> DrawGate:
    """The gate, if it is one for draws."""
    if not isinstance(gate, DrawGate):
        raise BoundaryError("This gate's mechanism has steps: run them instead of drawing.")
    return gate
