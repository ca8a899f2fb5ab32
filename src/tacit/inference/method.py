"""The interface of inference methods, and what they share.

A method has public settings, says what the gate will do for a budget, and turns what the gate releases into a
posterior. The settings for a declared number of units are here too; the number is a public guess and never counted
from data. So is tempering, by which the data count as fewer units.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple, Self, TypeVar

import jax
import numpy as np
from numpy.typing import NDArray

from tacit import _validate
from tacit._compile import stored_jit
from tacit._typing import ArrayTree, Floats, PyTree
from tacit.accounting import Budget
from tacit.errors import InvalidArgument
from tacit.inference.result import MethodResult
from tacit.models.base import Parameters, Row, UnitModel
from tacit.privacy.gate import Gate, check, run
from tacit.privacy.mechanisms import Mechanism, Release
from tacit.privacy.rows import Units
from tacit.privacy.trace import Step

Progress = Callable[[int], None]
_F = TypeVar("_F", bound=np.floating)
# How many consecutive steps share a seed of their draws.
_STEPS_PER_SEED = 250


# A log density as a function of the unconstrained vector.
Density = Callable[[jax.Array], jax.Array]
# The public inputs of so many steps from a first one, with a leading axis for the steps.
Inputs = Callable[[int, int], ArrayTree]


class Steps(NamedTuple):
    """An algorithm as `tacit.privacy.gate.run` takes it: a step, its first state, and public inputs.

    ``inputs(first, count)`` are those of ``count`` steps from step ``first``, stacked.
    """

    step: Step
    state: ArrayTree
    inputs: Inputs


class Method(ABC):
    """Settings of an algorithm, all public, and what it does with a model and a gate.

    A subclass is a frozen dataclass. It must have the five abstract members; the others have defaults,
    which a method overrides if it can do better.

    Attributes:
        by_gradients: Whether it sums clipped gradients of the likelihood. Such methods refuse discrete
            parameters.
        declared_public: Names of settings that may hold arrays, which the user declares to be public.
    """

    by_gradients: ClassVar[bool] = False
    declared_public: ClassVar[tuple[str, ...]] = ()

    @property
    def assumptions(self) -> tuple[str, ...]:
        """Sentences that must be true for the guarantee to hold; the privacy statement repeats them."""
        return ()

    @classmethod
    def can_fit(cls, model: UnitModel) -> bool:  # noqa: ARG003
        """Whether the method can be the default of a model, as far as public facts tell."""
        return True

    def has_finite_scores(self, model: UnitModel, simulated: Units) -> bool:  # noqa: ARG002
        """Whether simulated units have gradients where a fit starts, if the method computes them anyway."""
        return False

    @abstractmethod
    def calibrate(self, model: UnitModel, budget: Budget) -> Mechanism:
        """What the gate will do, with the least noise that meets a budget."""

    @abstractmethod
    def without_noise(self, model: UnitModel) -> Mechanism:
        """What the gate will do without privacy."""

    @abstractmethod
    def check(self, model: UnitModel, gate: Gate) -> None:
        """Raises what `run` would raise of the model, without reading a row."""

    @abstractmethod
    def run(
        self, model: UnitModel, gate: Gate, key: jax.Array, progress: Progress | None = None
    ) -> MethodResult:
        """Fits the model through the gate."""

    @abstractmethod
    def describe(self, model: UnitModel) -> str:
        """A line for the printed plan."""

    def for_size(self, model: UnitModel, size: int, budget: Budget) -> Self:  # noqa: ARG002
        """The method with settings for a declared number of units; all of it is public."""
        return self

    def steps(self, model: UnitModel, mechanism: Any, key: jax.Array) -> Steps | None:  # noqa: ARG002
        """What the method does through a gate with this mechanism, if that is one sequence of steps.

        With it, `tacit.audit` can observe every release.
        """
        return None

    def stages(self, model: UnitModel, mechanism: Mechanism) -> tuple["Method", Steps] | None:  # noqa: ARG002
        """The method of the first stage and the steps of the second, if there are two stages.

        With it, a plan can time both.
        """
        return None

    def trial(self, num_steps: int) -> Self | None:  # noqa: ARG002
        """The same method with so few steps, all of them kept, for a plan to time; None if it has no steps."""
        return None

    def expect(self, mechanism: Any, many: str) -> str | None:  # noqa: ARG002
        """A sentence on how many units, ``many`` by name, it takes to learn anything by a mechanism."""
        return None


def noisy_gradient(
    release: Release,
    model: UnitModel,
    gradient: Callable[..., jax.Array],
    given: tuple[ArrayTree, ...],
) -> jax.Array:
    """The noisy sum over units of gradients of ``density(theta)``, the log-likelihood of a unit.

    ``given`` are public values; the last of them are the model's constants.
    """

    def per_unit(given: tuple[ArrayTree, ...], rows: Row, present: jax.Array) -> jax.Array:
        constants = given[-1]

        def density(theta: jax.Array) -> jax.Array:
            return model.log_likelihood(theta, rows, present, constants)

        return gradient(density, *given[:-1])

    return release.noisy_sum(per_unit, given)


def no_inputs(_: int, steps: int) -> NDArray[np.float32]:
    """The inputs of steps that need none, for `Steps`."""
    return np.zeros(steps, np.float32)


class SumRelease(ABC):
    """A question about all units that one noisy sum answers. Everything in it is public."""

    @property
    @abstractmethod
    def step(self) -> Step:
        """The step that releases the sum."""

    @abstractmethod
    def question(self) -> PyTree:
        """What the step is given, as arrays."""

    def check(self, gate: Gate) -> None:
        """Raises if the release cannot be made of rows of these shapes. Reads no row."""
        check(self.step, self.question(), no_inputs(0, 1)[0], gate)

    def run(self, gate: Gate) -> Floats:
        """The sum with its noise, from what the gate releases."""
        _, released = run(gate, self.step, self.question(), no_inputs)
        return np.asarray(released[0], np.float64)


def later_progress(progress: Progress | None, done: int) -> Progress | None:
    """The progress of steps that follow so many others."""
    return None if progress is None else lambda steps: progress(done + steps)


def seed_from_key(key: jax.Array) -> list[int]:
    """A seed for NumPy from a key of JAX."""
    words: list[int] = np.asarray(jax.random.key_data(key)).tolist()
    return words


def per_step_draws(
    draw: Callable[[np.random.Generator, int], NDArray[_F]],
    seed: Sequence[int],
    first: int,
    steps: int,
    stream: int = 0,
) -> NDArray[_F]:
    """What ``draw(generator, count)`` gives for some steps, whichever way steps are grouped.

    Draws for the same seed and another ``stream`` are independent. On the host, where they
    need no threads. They protect nobody and may be guessed, so they must not tell how the
    steps were grouped, which follows how many rows there are: a step's draws depend on its
    number alone.
    """
    begin, end = first // _STEPS_PER_SEED, -(-(first + steps) // _STEPS_PER_SEED)
    drawn = [
        draw(np.random.default_rng([*seed, stretch, stream]), _STEPS_PER_SEED)
        for stretch in range(begin, end)
    ]
    whole = drawn[0] if len(drawn) == 1 else np.concatenate(drawn)
    return whole[first - begin * _STEPS_PER_SEED :][:steps]


def per_step_normals(
    seed: Sequence[int], first: int, steps: int, shape: tuple[int, ...]
) -> NDArray[np.float32]:
    """Standard normal draws for each of some steps, which the algorithm itself needs."""
    return per_step_draws(
        lambda generator, count: generator.standard_normal((count, *shape), np.float32),
        seed,
        first,
        steps,
    )


def constrained_draws(model: UnitModel, vectors: jax.Array) -> dict[str, NDArray[np.floating]]:
    """Parameters on their supports, in the model's order, for each unconstrained vector."""
    found = constrain_vectors(model)(vectors, model.constants)
    return {name: np.asarray(found[name]) for name in model.names}


@lru_cache(maxsize=32)
def constrain_vectors(model: UnitModel) -> Callable[[jax.Array, ArrayTree], Parameters]:
    """Parameters on their supports, as a program of unconstrained vectors and the model's constants."""
    return stored_jit(jax.vmap(model.constrain, in_axes=(0, None)), model.program_key("constrain"))


# The number of units that default settings are made for.
DEFAULT_SIZE = 20_000
# How fast the sampling rate falls with more units: so that 500 steps at a rate of 0.1 for the usual
# number look about five times at each of a million. What sampling then adds to the error is small (benchmarks/settings.py). Beyond a
# million it falls faster: a fit to a hundred million takes less than three times one to 100,000.
_RATE_EXPONENT, _MANY_UNITS, _RATE_EXPONENT_MANY = 0.59, 1_000_000, 0.85


def sampling_rate_for_size(rate: float, size: int) -> float:
    """The sampling rate for a number of units.

    Args:
        rate: The rate for the usual number of units, or fewer.
        size: The declared number of units.

    Returns:
        The rate, lower for more units, so that time grows more slowly than the data.

    >>> sampling_rate_for_size(0.1, 500), sampling_rate_for_size(0.1, 1_000_000), sampling_rate_for_size(0.1, 10_000_000)
    (0.1, 0.00995, 0.0014)
    """
    units = max(_validate.count("size", size), DEFAULT_SIZE)
    slowly = (DEFAULT_SIZE / min(units, _MANY_UNITS)) ** _RATE_EXPONENT
    faster = (_MANY_UNITS / max(units, _MANY_UNITS)) ** _RATE_EXPONENT_MANY
    return float(f"{rate * slowly * faster:.3g}")


def batch_bound_for_size(bound: int, rate: float, size: int) -> int:
    """The bound on a batch: the given one, or a larger power of two if batches need it.

    >>> batch_bound_for_size(2**17, 0.1, 1000) == 2**17, batch_bound_for_size(2**17, 0.1, 10**7) == 2**22
    (True, True)
    """
    return max(bound, 1 << math.ceil(math.log2(4 * rate * size)))


def tempering(size: int | None, tempered_size: float | None) -> float:
    """The factor that the log-likelihood is multiplied by; 1 without a tempered size.

    Args:
        size: A public number of units.
        tempered_size: The number of units that the data count as.

    Returns:
        ``tempered_size / size``, or 1.

    Raises:
        InvalidArgument: If the sizes are wrong.
    """
    if size is not None:
        _validate.count("size", size)
    if tempered_size is None:
        return 1.0
    if size is None:
        raise InvalidArgument("tempered_size needs size=, the public number of units.")
    if _validate.positive("tempered_size", tempered_size) > size:
        raise InvalidArgument(f"tempered_size must be at most size, {size}; got {tempered_size}.")
    return tempered_size / size


def coarsened_size(size: int, coarsening: float) -> float:
    """The tempered size N0 = N beta / (N + beta) of the coarsened posterior.

    The coarsened posterior conditions only on the data being within an exponentially distributed
    distance, of rate beta, of the observed data (Miller and Dunson 2019).

    Args:
        size: The public number of units, N.
        coarsening: The rate, beta.

    Returns:
        The tempered size, for ``tempered_size=``.

    Examples:
        >>> coarsened_size(1000, 1000.0)
        500.0
    """
    units, beta = _validate.count("size", size), _validate.positive("coarsening", coarsening)
    return units * beta / (units + beta)
