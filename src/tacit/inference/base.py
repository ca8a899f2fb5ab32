"""The interface of inference methods, and what they share."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import numpy as np
from numpy.typing import NDArray

from tacit.accounting import Budget
from tacit.errors import InvalidArgument
from tacit.models.base import AnyModel, Row
from tacit.privacy.gate import Gate
from tacit.privacy.mechanisms import Mechanism
from tacit.privacy.program import Step
from tacit.privacy.release import Release

Arrays = Mapping[str, NDArray[np.floating]]
Progress = Callable[[int], None]
# Steps whose draws share a seed.
_STRETCH = 250


class Intervals(StrEnum):
    """What the intervals of a posterior say about the noise that protects people."""

    INCLUDED = "noise included"
    LEFT_OUT = "noise not included"
    SAMPLED = "draws of a private sampler"
    NO_NOISE = "no noise was added"
    UNKNOWN = "not known"


@dataclass(frozen=True, kw_only=True)
class MethodResult:
    """What a method found. Follows from released values and public numbers only.

    ``trace`` has every step. ``mean`` and ``covariance`` are a Gaussian on the unconstrained
    scale, if that is what was fitted. ``chain`` says that draws follow one another, so that
    how well they mix can be judged; ``sample_stats`` has more about each of them. ``chains`` says
    of how many chains of equal length they are, one after the other.

    ``converged`` is None where the method cannot tell. ``said`` are sentences about how the fit
    went, the most important first. ``intervals`` says whether intervals include the noise.
    """

    draws: Arrays
    trace: Arrays
    mean: NDArray[np.floating] | None = None
    covariance: NDArray[np.floating] | None = None
    chain: bool = False
    chains: int = 1
    sample_stats: Arrays = field(default_factory=dict)
    converged: bool | None = None
    said: tuple[str, ...] = ()
    intervals: Intervals = Intervals.UNKNOWN


@runtime_checkable
class Method(Protocol):
    """Settings of an algorithm, all public, and what it does with a model and a gate.

    ``by_gradients`` says that it sums clipped gradients of the likelihood. ``assumptions`` are
    sentences that must be true for its guarantee to hold, for the statement.
    """

    @property
    def by_gradients(self) -> bool:
        """Whether a clip bounds gradients."""
        ...

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What is taken to be true."""
        ...

    def calibrated(self, model: AnyModel, budget: Budget) -> Mechanism:
        """What the gate will do, with the noise that a budget asks for."""
        ...

    def without_noise(self, model: AnyModel) -> Mechanism:
        """The same without privacy."""
        ...

    def check(self, model: AnyModel, gate: Gate) -> None:
        """Raises what `run` would raise of the model, without reading a row."""
        ...

    def run(
        self, model: AnyModel, gate: Gate, key: jax.Array, progress: Progress | None = None
    ) -> MethodResult:
        """Fits the model through the gate."""
        ...

    def describe(self, model: AnyModel) -> str:
        """A line for people."""
        ...


def refuse_no_method(method: object) -> None:
    """Raises if this is not a method with its settings, but for example its class."""
    if isinstance(method, type) or not isinstance(method, Method):
        raise InvalidArgument("method must be settings such as tacit.Scoring(num_steps=57).")


class Steps(NamedTuple):
    """An algorithm as `tacit.privacy.gate.run` takes it: a step, where it starts, and public inputs."""

    step: Step
    state: Any
    inputs: Callable[[int, int], Any]


@runtime_checkable
class Stepwise(Protocol):
    """A method whose releases are those of one sequence of like steps."""

    def steps(self, model: AnyModel, mechanism: Any, key: jax.Array) -> Steps | None:
        """What it does through a gate with this mechanism, or None if it needs more than steps."""
        ...


@runtime_checkable
class Triable(Method, Protocol):
    """A method of many like steps, a few of which can be timed."""

    def trial(self, num_steps: int) -> Method:
        """The same method with so few steps, all of them kept."""
        ...


@runtime_checkable
class Staged(Protocol):
    """A method of two stages of like steps, a few of which can be timed."""

    def stages(self, model: AnyModel, mechanism: Any) -> tuple[Method, Steps] | None:
        """The method of the first stage, and the steps of the second; None if there is one stage."""
        ...


@runtime_checkable
class Sizable(Protocol):
    """A method that knows which settings suit a number of units."""

    def for_size(self, model: AnyModel, size: int, budget: Budget) -> "Method":
        """The method with settings for a declared size and a budget; all of it is public."""
        ...


@runtime_checkable
class Foretelling(Protocol):
    """A method that can say, from public numbers alone, how much data it takes."""

    def expect(self, mechanism: Any, many: str) -> str:
        """A line for people: about how many units it takes to learn anything by a mechanism."""
        ...


def noisy_gradient(
    release: Release, model: AnyModel, gradient: Callable[..., Any], given: Any
) -> jax.Array:
    """The noisy sum of gradients of ``density(theta)``, for whichever density the model has.

    ``given`` are public values; the last of them are the model's constants.
    """
    if model.whole_units:

        def per_unit(given: Any, rows: Row, present: jax.Array) -> Any:
            constants = given[-1]

            def density(theta: jax.Array) -> jax.Array:
                return model.unit_density(theta, rows, present, constants)

            return gradient(density, *given[:-1])

        return release.noisy_unit_sum(per_unit, given)

    def per_row(given: Any, row: Row) -> Any:
        constants = given[-1]

        def density(theta: jax.Array) -> jax.Array:
            return model.row_density(theta, row, constants)

        return gradient(density, *given[:-1])

    return release.noisy_sum(per_row, given)


def seed_of(key: jax.Array) -> list[int]:
    """What a key of JAX is made of."""
    words: list[int] = np.asarray(jax.random.key_data(key)).tolist()
    return words


def by_stretch(
    draw: Callable[[np.random.Generator, int], NDArray[Any]],
    seed: Sequence[int],
    first: int,
    steps: int,
    stream: int = 0,
) -> NDArray[Any]:
    """What ``draw(generator, count)`` gives for some steps, whichever way steps are grouped.

    Draws for the same seed and another ``stream`` are independent. On the host, where they
    need no threads. They protect nobody and may be guessed, so they must not tell how the
    steps were grouped, which follows how many rows there are: a step's draws depend on its
    number alone.
    """
    begin, end = first // _STRETCH, -(-(first + steps) // _STRETCH)
    drawn = [
        draw(np.random.default_rng([*seed, stretch, stream]), _STRETCH)
        for stretch in range(begin, end)
    ]
    whole = drawn[0] if len(drawn) == 1 else np.concatenate(drawn)
    return whole[first - begin * _STRETCH :][:steps]


def normals(
    seed: Sequence[int], first: int, steps: int, shape: tuple[int, ...]
) -> NDArray[np.float32]:
    """Normal draws of the model for some steps."""
    return by_stretch(
        lambda generator, count: generator.standard_normal((count, *shape), np.float32),
        seed,
        first,
        steps,
    )


def parameters(model: AnyModel, vectors: jax.Array) -> dict[str, NDArray[np.floating]]:
    """Parameters on their supports, in the model's order, for each unconstrained vector."""
    found = _constrained(model, vectors, model.constants)
    return {name: np.asarray(found[name]) for name in model.names}


@partial(jax.jit, static_argnames="model")
def _constrained(model: AnyModel, vectors: jax.Array, constants: Any) -> Any:
    return jax.vmap(lambda vector: model.constrain(vector, constants))(vectors)
