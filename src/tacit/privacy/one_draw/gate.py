"""The gate of mechanisms without steps: draws that are private by themselves."""

from collections.abc import Callable
from typing import ClassVar

from tacit._typing import Floats, PyTree
from tacit.errors import BoundaryError
from tacit.privacy.gate import Gate, silenced_jax
from tacit.privacy.one_draw.chain import ChainDraws, check_chain, draw_by_chain
from tacit.privacy.one_draw.claims import BoundedLikelihood, LipschitzLikelihood, LogConcave
from tacit.privacy.one_draw.exact import (
    GridDraws,
    StatisticDraws,
    check_grid,
    check_statistic,
    draw_by_statistic,
    draw_from_grid,
)
from tacit.privacy.one_draw.logistic import LogisticDraws, check_rejection, draw_by_rejection

# For each mechanism, what is checked before anything is charged, and what draws.
_DRAW_FUNCTIONS: dict[type, tuple[Callable[..., None], Callable[..., Floats]]] = {
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

    _mechanisms: ClassVar[frozenset[type]] = frozenset(_DRAW_FUNCTIONS)
    _parts: ClassVar[frozenset[type]] = frozenset(
        {BoundedLikelihood, LipschitzLikelihood, LogConcave}
    )

    @silenced_jax()
    def check_draw(self, *given: PyTree) -> None:
        """Raises what `draw` would raise, without reading a row."""
        check, _ = _DRAW_FUNCTIONS[type(self.mechanism)]
        check(self.mechanism, self._private.blank(), *given)

    @silenced_jax()
    def draw(self, *given: PyTree) -> Floats:
        """The mechanism's draws, one below the other. Nothing else leaves. [gate-draw]"""
        self.check_draw(*given)
        _, draw = _DRAW_FUNCTIONS[type(self.mechanism)]
        self._use_up()
        self._session.start_draw(self, given)
        return draw(self.mechanism, self._private, self._bits.noise, *given)


def as_draw_gate(gate: Gate) -> DrawGate:
    """The gate, if it is one for draws."""
    if not isinstance(gate, DrawGate):
        raise BoundaryError("This gate's mechanism has steps: run them instead of drawing.")
    return gate
