"""Opening the gate that a mechanism needs: the closed table of mechanisms."""

from tacit.errors import BoundaryError
from tacit.privacy.decisions import BarkerTests, SampledBarkerTests
from tacit.privacy.gate import Gate
from tacit.privacy.keeper import Keeper
from tacit.privacy.mechanisms import Mechanism, NoisySums, Stages
from tacit.privacy.noise import Randomness
from tacit.privacy.one_draw.chain import ChainDraws
from tacit.privacy.one_draw.gate import DrawGate
from tacit.privacy.one_draw.grid import GridDraws
from tacit.privacy.one_draw.reject import LogisticDraws
from tacit.privacy.one_draw.statistic import StatisticDraws
from tacit.privacy.part_gate import PartGate
from tacit.privacy.parts import Parts
from tacit.privacy.rows import Rows

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
    keeper: Keeper | None = None,
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
    if isinstance(rows, Parts):
        return PartGate(rows, mechanism, randomness, keeper)
    return _GATES[type(mechanism)](rows, mechanism, randomness, keeper)
