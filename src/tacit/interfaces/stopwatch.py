"""The time of a step, measured on made-up rows."""

import time
from typing import NamedTuple

import jax

from tacit.data.schema import Schema
from tacit.inference.base import Method, Stepwise, Triable
from tacit.interfaces.rows import blank_rows
from tacit.models.base import AnyModel
from tacit.privacy.decisions import BarkerTests, SampledBarkerTests
from tacit.privacy.gate import Gate, run
from tacit.privacy.mechanisms import Mechanism, NoisySums, StepMechanism
from tacit.privacy.noise import Randomness
from tacit.privacy.rows import Rows

# Mechanisms of many similar steps; how many steps are timed, and on batches of which sizes.
Timed = NoisySums | BarkerTests | SampledBarkerTests
_STEPS, _BATCHES = 40, (64, 1024)


class Speed(NamedTuple):
    """Seconds of a step: a fixed part, and a part for every unit in the batch."""

    fixed: float
    per_unit: float
    mechanism: StepMechanism

    def seconds(self, units: int) -> float:
        """Seconds of all steps of the mechanism, for a number of units."""
        step = self.fixed + self.per_unit * self.mechanism.looked_at(units)
        return self.mechanism.num_steps * step


def speed_of(
    model: AnyModel, schema: Schema | None, blank: Rows, method: Method, mechanism: Mechanism
) -> Speed | None:
    """Measures the speed of a fit on rows that the schema makes up, or on the blank row.

    None for a mechanism that does not consist of many similar steps.
    """
    if not isinstance(mechanism, Timed) or mechanism.num_steps < _STEPS:
        return None
    if not isinstance(method, Triable):
        return None
    short = method.trial(_STEPS)
    small, large = (_step(model, schema, blank, short, mechanism, batch) for batch in _BATCHES)
    slope = max(large - small, 0.0) / (_BATCHES[1] - _BATCHES[0])
    return Speed(max(small - slope * _BATCHES[0], 0.0), slope, mechanism)


def _step(
    model: AnyModel,
    schema: Schema | None,
    blank: Rows,
    short: Method,
    mechanism: StepMechanism,
    batch: int,
) -> float:
    trial, units = mechanism.trial(_STEPS, batch)
    rows = blank_rows(model, schema, units) if schema else blank
    taken = []
    for _ in range(3):  # the first compiles
        gate, key = Gate(rows, trial, Randomness(0)), jax.random.key(0)
        steps = short.steps(model, trial, key) if isinstance(short, Stepwise) else None
        began = time.perf_counter()
        if steps is None:
            short.run(model, gate, key)
        else:  # without what follows the steps, however many there are
            run(gate, *steps)
        taken.append(time.perf_counter() - began)
    return min(taken[1:]) / _STEPS
