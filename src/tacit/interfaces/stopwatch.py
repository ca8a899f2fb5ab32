"""The time of a step, measured on made-up rows."""

import time
from collections.abc import Callable
from typing import NamedTuple

import jax

from tacit.data.schema import Schema
from tacit.inference.base import Method, Staged, Steps, Stepwise, Triable
from tacit.interfaces.rows import blank_rows
from tacit.models.base import AnyModel
from tacit.privacy.decisions import BarkerTests, SampledBarkerTests
from tacit.privacy.gate import Gate, run
from tacit.privacy.mechanisms import Mechanism, NoisySums, Stages, StepMechanism
from tacit.privacy.noise import Randomness
from tacit.privacy.rows import Rows

# Mechanisms of many similar steps; how many steps are timed, at least and at most, and on batches of at
# most how many units.
Timed = NoisySums | BarkerTests | SampledBarkerTests
_FEWEST, _STEPS, _LARGEST = 8, 40, 4096


class Speed(NamedTuple):
    """Seconds of a step on a batch of so many units."""

    step: float
    batch: int
    mechanism: StepMechanism

    def seconds(self, units: int) -> float:
        """Seconds of all steps of the mechanism: in proportion for larger batches, the same for smaller."""
        larger = self.mechanism.looked_at(units) / self.batch
        return self.mechanism.num_steps * self.step * max(larger, 1.0)


def speeds_of(
    model: AnyModel,
    schema: Schema | None,
    blank: Rows,
    method: Method,
    mechanism: Mechanism,
    size: int,
) -> tuple[Speed, ...]:
    """Measures the speed of each stage of a fit on rows that the schema makes up, or on the blank row.

    Batches are those of so many units. A batch of another size would be another program to compile.
    None at all for a mechanism that does not consist of many similar steps.
    """
    if isinstance(mechanism, Stages):
        stages = method.stages(model, mechanism) if isinstance(method, Staged) else None
        if stages is None:
            return ()
        first, steps = stages
        made = _speed(model, schema, blank, lambda *_: steps, mechanism.mechanisms[1], size)
        return (*speeds_of(model, schema, blank, first, mechanism.mechanisms[0], size), made)
    if not isinstance(mechanism, Timed) or mechanism.num_steps < _FEWEST:
        return ()
    if not isinstance(method, Triable):
        return ()
    short = method.trial(min(_STEPS, mechanism.num_steps))

    def steps_of(trial: StepMechanism, key: jax.Array) -> Steps | None:
        return short.steps(model, trial, key) if isinstance(short, Stepwise) else None

    return (_speed(model, schema, blank, steps_of, mechanism, size, short),)


def _speed(
    model: AnyModel,
    schema: Schema | None,
    blank: Rows,
    steps_of: Callable[[StepMechanism, jax.Array], Steps | None],
    mechanism: StepMechanism,
    size: int,
    short: Method | None = None,
) -> Speed:
    """The speed of some steps, or of a short method where it is not known as steps."""
    batch = min(max(round(mechanism.looked_at(size)), 1), _LARGEST)
    number = min(_STEPS, mechanism.num_steps)
    trial, units = mechanism.trial(number, batch)
    rows = blank_rows(model, schema, units) if schema else blank
    times = []
    for _ in range(3):  # the first compiles
        gate, key = Gate(rows, trial, Randomness(0)), jax.random.key(0)
        steps = steps_of(trial, key)
        began = time.perf_counter()
        if steps is not None:  # without what follows the steps, however many there are
            run(gate, *steps)
        elif short is not None:
            short.run(model, gate, key)
        times.append(time.perf_counter() - began)
    return Speed(min(times[1:]) / number, batch, mechanism)
