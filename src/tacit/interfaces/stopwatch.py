"""How long a step takes, by trying a few on made-up rows."""

import time
from dataclasses import fields, replace
from typing import Any, NamedTuple, TypeGuard

import jax

from tacit.data.schema import Schema
from tacit.inference.base import Method, Stepwise
from tacit.interfaces.rows import blank_rows
from tacit.models.base import AnyModel
from tacit.privacy.gate import Gate, run
from tacit.privacy.noise import Randomness
from tacit.privacy.plans import BarkerTests, NoisySums, ReleasePlan, SampledBarkerTests
from tacit.privacy.rows import Rows

# Plans that are made of many like steps, and how many of them are timed on batches of these sizes.
Timed = NoisySums | BarkerTests | SampledBarkerTests
_STEPS, _BATCHES = 40, (64, 1024)


class Speed(NamedTuple):
    """Seconds that a step takes, whatever it looks at, and for every unit that it does."""

    fixed: float
    per_unit: float

    def seconds(self, release: Timed, units: int) -> float:
        """Of all steps of a plan, on so many units."""
        return release.num_steps * (self.fixed + self.per_unit * release.looked_at(units))


def can_be_timed(release: ReleasePlan) -> TypeGuard[Timed]:
    """Whether a plan is made of many like steps."""
    return isinstance(release, Timed) and release.num_steps >= _STEPS


def speed_of(
    model: AnyModel, schema: Schema | None, blank: Rows, method: Method, release: Timed
) -> Speed:
    """The speed of a fit, on rows that the schema makes up, or on a blank one."""
    small, large = (_step(model, schema, blank, method, release, batch) for batch in _BATCHES)
    slope = max(large - small, 0.0) / (_BATCHES[1] - _BATCHES[0])
    return Speed(max(small - slope * _BATCHES[0], 0.0), slope)


def _step(
    model: AnyModel,
    schema: Schema | None,
    blank: Rows,
    method: Method,
    release: Timed,
    batch: int,
) -> float:
    short = _shortened(method)
    trial, units = release.trial(_STEPS, batch)
    rows = blank_rows(model, schema, units) if schema else blank
    taken = []
    for _ in range(3):  # the first compiles
        gate, keys = Gate(rows, trial, Randomness(0)), [jax.random.key(0)]
        steps = short.steps(model, [trial], keys) if isinstance(short, Stepwise) else None
        began = time.perf_counter()
        if steps is None:
            short.run(model, [gate], keys)
        else:  # without what follows the steps, however many there are
            run([gate], *steps)
        taken.append(time.perf_counter() - began)
    return min(taken[1:]) / _STEPS


def _shortened(method: Any) -> Method:
    """The method with as few steps as are timed, all of them kept."""
    known = {field.name for field in fields(method)}
    short: Method = replace(
        method, num_steps=_STEPS, **({"burn_in": 0.0} if "burn_in" in known else {})
    )
    return short
