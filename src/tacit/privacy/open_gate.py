"""Opening the gate that a mechanism needs: the closed table of mechanisms, and the gate of those without steps."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tacit.errors import BoundaryError
from tacit.privacy.checkpoint import GateCheckpoint, density_digest, dummy_unit
from tacit.privacy.distributed import DistributedGate, PartitionedRows
from tacit.privacy.gate import Gate
from tacit.privacy.mechanisms import BarkerTests, Mechanism, NoisySums, SampledBarkerTests, Stages
from tacit.privacy.noise import Randomness
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
from tacit.privacy.rows import Rows
from tacit.privacy.trace import silenced_jax

# For each mechanism, what is checked before anything is charged, and what draws.
_DRAW_FUNCTIONS: dict[type, tuple[Callable[..., None], Callable[..., NDArray[np.float64]]]] = {
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
    def check_draw(self, *given: Any) -> None:
        """Raises what `draw` would raise, without reading a row."""
        check, _ = _DRAW_FUNCTIONS[type(self.mechanism)]
        check(self.mechanism, self._private.blank(), *given)

    @silenced_jax()
    def draw(self, *given: Any) -> NDArray[np.float64]:
        """The mechanism's draws, one below the other. Nothing else leaves. [gate-draw]"""
        self.check_draw(*given)
        _, draw = _DRAW_FUNCTIONS[type(self.mechanism)]
        self._use_up()
        if self._keeper is not None:  # a run that goes on draws anew, and the same  [kept-run]
            self._keeper.ask(_draw_question(self.mechanism, self._private.blank(), given))
        return draw(self.mechanism, self._private, self._bits.noise, *given)


def _draw_question(mechanism: Any, rows: Rows, given: Sequence[Any]) -> list[Any]:
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
        density_digest(density, vector, *dummy_unit(rows), constants),
        constants,
    ]


def as_draw_gate(gate: Gate) -> DrawGate:
    """The gate, if it is one for draws."""
    if not isinstance(gate, DrawGate):
        raise BoundaryError("This gate's mechanism has steps: run them instead of drawing.")
    return gate


# Every mechanism that there is. Looked up by the very class, so that no other passes for one.
_GATES: dict[type, type[Gate]] = {
    NoisySums: Gate,
    BarkerTests: Gate,
    SampledBarkerTests: Gate,
    Stages: Gate,
    GridDraws: DrawGate,
    StatisticDraws: DrawGate,
    LogisticDraws: DrawGate,
    ChainDraws: DrawGate,
}


def open_gate(
    rows: Rows,
    mechanism: Mechanism,
    randomness: Randomness | None = None,
    keeper: GateCheckpoint | None = None,
) -> Gate:
    """The gate for a mechanism.

    Args:
        rows: The private rows.
        mechanism: What will be done, and is charged.
        randomness: What protects the rows; by default keyed by the operating system.
        keeper: What stores how far the gate is, if the run is kept on disk.

    Returns:
        The gate, which is good for one run.

    Raises:
        BoundaryError: If the mechanism is not one of `tacit.privacy`, or could change later.
    """
    if type(mechanism) not in _GATES:
        raise BoundaryError(
            "A gate takes the mechanisms of tacit.privacy, of plain numbers, and no others."
        )
    if isinstance(rows, PartitionedRows):
        return DistributedGate(rows, mechanism, randomness, keeper)
    return _GATES[type(mechanism)](rows, mechanism, randomness, keeper)
