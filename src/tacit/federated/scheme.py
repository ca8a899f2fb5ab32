"""The interface of privacy schemes, and the scheme without privacy.

A scheme is settings, all public. `prepare` makes from them, a budget and the number of answers
what one site does (`Prepared`), with noise calibrated for all answers together. Every site does
this for itself.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Protocol

import jax.numpy as jnp
import numpy as np
from dp_accounting.dp_event import DpEvent

from tacit import _validate
from tacit.accounting import PLD, Budget
from tacit.errors import BudgetError
from tacit.federated.client import Work
from tacit.federated.natural import DiagonalGaussian, Vector
from tacit.federated.server import Aggregate
from tacit.federated.target import Approximate, Target
from tacit.privacy.groups import in_the_clear
from tacit.privacy.noise import Randomness
from tacit.privacy.rows import Rows

ALONE = (
    "nobody but the site itself is trusted: every message that leaves it is protected by itself, "
    "also from the server and from other sites"
)
SEVERAL_SITES = "a person whose data several sites hold pays the budget of each of them"


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What a site knows of a run, pinned in its own settings: nothing of it comes by message.

    ``sites`` is how many take part, ``together`` how many answer in one round. ``budget`` is None
    for a run without privacy.
    """

    target: Target
    budget: Budget | None
    answers: int
    sites: int
    together: int
    damping: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """What a site does in a run, and what all its answers together are to the accountant."""

    work: Work
    event: DpEvent | None


@dataclass(frozen=True, kw_only=True)
class Aggregation:
    """What a scheme asks of the server; see `tacit.federated.server.Server`.

    ``mark`` names a server with noise of its own: see `tacit.federated.transport.Task`.
    """

    whole: bool = False
    tracked: bool = True
    aggregate: Aggregate | None = None
    mark: bytes = b""
    grid: float | None = None


class Scheme(Protocol):
    """How sites protect what they hold.

    ``protects`` is ``"rows"`` (each unit of the rows by itself) or ``"data set"`` (whether a site
    takes part, and with what). ``trust`` says in words who is trusted.
    """

    @property
    def protects(self) -> str:
        """What one promise is about."""
        ...

    @property
    def trust(self) -> tuple[str, ...]:
        """Who is trusted, in sentences for the statement."""
        ...

    @property
    def alone(self) -> bool:
        """Whether every message is protected by itself, so that any schedule will do."""
        ...

    @property
    def own_factors(self) -> bool:
        """Whether sites keep hidden noise in factors of their own."""
        ...

    @property
    def split(self) -> bool:
        """Whether only the sum of all sites' messages has enough noise."""
        ...

    def prepare(self, setting: Setting) -> Prepared:
        """What a site does, with the noise that its budget asks for."""
        ...

    def aggregation(self, setting: Setting, source: Randomness) -> Aggregation:
        """What the server does."""
        ...


@lru_cache(maxsize=32)
def local_change(target: Target, weight: float, num_iterations: int) -> Callable[..., Any]:
    """The change that some rows make to the posterior, as a pure function.

    ``function((posterior, factor, constants), rows, present)``: the natural parameters of the
    rows' likelihood, to the power ``weight``, less the factor that stood for them. For models that
    are not conjugate the likelihood is looked at from where the last iteration led.
    """

    def function(given: Any, rows: Any, present: Any) -> Any:
        posterior, factor, constants = given
        change = jnp.zeros_like(posterior)
        for _ in range(num_iterations):
            seen = target.likelihood(posterior + change, rows, present, constants)
            change = weight * seen.astype(posterior.dtype) - factor
        return change

    return function


@lru_cache(maxsize=32)
def careful_change(target: Approximate, num_iterations: int) -> Callable[..., Any]:
    """As `local_change`, for posteriors without correlations of models that are not conjugate.

    There all coordinates of the mean step at once, each as if the others stood still; where they
    are correlated they together step too far, and every round further, however many sites there
    are. So directions in which the rows' curvature is more than that of the coordinates by
    themselves step less, by as much. It changes how the fit settles, not where: there nothing
    steps.
    """

    def function(given: Any, rows: Any, present: Any) -> Any:
        posterior, factor, constants = given
        cavity_precision, cavity_weighted = jnp.split(posterior - factor, 2)
        eta = posterior
        for _ in range(num_iterations):
            mean, slope, bend = target.seen(eta, rows, present, constants)
            precision = cavity_precision + jnp.diag(bend)
            pull = slope + cavity_weighted - cavity_precision * mean
            eta = jnp.concatenate([precision, precision * mean + _held_back(bend, pull)])
        return eta - posterior

    return function


def _held_back(bend: Any, pull: Any) -> Any:
    """A pull on the mean, less where coordinates together bend more than each by itself."""
    single = jnp.abs(jnp.diag(bend))
    scale = jnp.sqrt(jnp.maximum(single, 1e-6 * single.max() + 1e-30))
    values, vectors = jnp.linalg.eigh(bend / scale[:, None] / scale)
    along = vectors.T @ (pull / scale) / jnp.maximum(values, 1.0)
    return scale * (vectors @ along)


@dataclass(frozen=True, kw_only=True)
class WithoutPrivacy:
    """No noise at all: the reference. Exact for conjugate models."""

    num_iterations: int = 1

    protects: ClassVar[str] = "rows"
    trust: ClassVar[tuple[str, ...]] = ()
    alone: ClassVar[bool] = True
    own_factors: ClassVar[bool] = False
    split: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _validate.count("num_iterations", self.num_iterations)

    def prepare(self, setting: Setting) -> Prepared:
        """Work without noise."""
        return Prepared(work=_Clear(setting.target, self.num_iterations), event=None)

    def aggregation(self, setting: Setting, source: Randomness) -> Aggregation:  # noqa: ARG002
        """The sum."""
        return Aggregation()


@dataclass(frozen=True)
class _Clear:
    target: Target
    num_iterations: int
    grid: ClassVar[None] = None

    @property
    def size(self) -> int:
        return self.target.family.size

    def change(self, rows: Rows, posterior: Vector, factor: Vector, source: Randomness) -> Vector:  # noqa: ARG002
        target = self.target
        function = (
            careful_change(target, self.num_iterations)
            if isinstance(target, Approximate) and isinstance(target.family, DiagonalGaussian)
            else local_change(target, 1.0, self.num_iterations)
        )
        given = posterior, factor, self.target.constants
        return np.asarray(in_the_clear(rows, function, given), np.float64)


def covered(event: DpEvent, budget: Budget | None) -> DpEvent:
    """An event whose noise was given, if the budget covers it."""
    if budget is not None:
        spent = PLD().epsilon(event, budget.delta, budget.adjacency)
        if not (spent <= budget.epsilon):
            raise BudgetError(
                f"The given noise_multiplier costs more than {budget}; leave it out, to have it "
                "calibrated."
            )
    return event
