"""What bounds one unit's influence on a posterior, so that a draw from it is private by itself.

Each claim is public numbers, and the event that a draw amounts to once the likelihood is raised to a power.
Whether a claim is enforced or taken on trust is up to how the draw is made. A unit's log-likelihood is checked to
be a plain function of that unit and public values.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import jax
import jax.numpy as jnp

from tacit import _validate
from tacit._typing import PyTree
from tacit.accounting import events
from tacit.accounting.events import DpEvent
from tacit.errors import BoundaryError, InvalidArgument
from tacit.privacy.rows import Rows, Units
from tacit.privacy.trace import check_per_unit, shares_constants, translated_trace_errors

# A unit's say is made less than it is charged for, by more than double precision can be wrong.
ROUNDING_FACTOR: Final = 1 - 2.0**-40


@dataclass(frozen=True, kw_only=True)
class BoundedLikelihood:
    """A claim that a unit's log-likelihood varies by at most twice ``bound`` over all parameters.

    One draw then costs epsilon 2 x bound under add-remove and 4 x bound under replace (Wang et al.
    2015; Dimitrakakis et al. 2014). The claim is enforced by clipping.

    Args:
        bound: The bound.
    """

    bound: float

    def __post_init__(self) -> None:
        _validate.positive("bound", self.bound)

    def event(self, power: float) -> DpEvent:
        """What one draw amounts to, with the likelihood raised to a power."""
        return events.BoundedPosteriorSample(likelihood_bound=power * self.bound)


@dataclass(frozen=True, kw_only=True)
class LipschitzLikelihood:
    """A claim that a row's log-likelihood is Lipschitz in the row.

    One draw then costs epsilon 4 x slope x radius under replace (Wang et al. 2015). There is no
    bound under add-remove. The claim is enforced: a row's log-likelihood is clipped to within slope
    x radius of that of a row of zeros.

    Args:
        slope: The Lipschitz constant.
        radius: The largest norm of a row.
    """

    slope: float
    radius: float

    def __post_init__(self) -> None:
        _validate.positive("slope", self.slope)
        _validate.positive("radius", self.radius)

    def event(self, power: float) -> DpEvent:
        """What one draw amounts to, with the likelihood raised to a power."""
        return events.LipschitzPosteriorSample(lipschitz=power * self.slope, radius=self.radius)


@dataclass(frozen=True, kw_only=True)
class LogConcave:
    """A claim that a unit's log-likelihood is concave and Lipschitz in the parameters.

    One draw is then as private as the Gaussian mechanism with mu = slope / sqrt(concavity), or
    twice that under replace (Gopi, Lee and Liu 2022).

    Args:
        slope: The Lipschitz constant on the unconstrained scale.
        concavity: The posterior is at least as concave as a normal distribution of this precision,
            such as that of a normal prior.
        shortened: A column of vectors, and the norm to which they are shortened, row by row, before
            anything else.
    """

    slope: float
    concavity: float
    shortened: tuple[str, float] | None = None

    def __post_init__(self) -> None:
        _validate.positive("slope", self.slope)
        _validate.positive("concavity", self.concavity)
        if self.shortened is not None:
            _validate.positive("the norm in shortened", self.shortened[1])

    def event(self, power: float) -> DpEvent:
        """What one draw amounts to, with the likelihood raised to a power."""
        return events.LogConcavePosteriorSample(
            lipschitz=power * self.slope, concavity=self.concavity
        )


Claim = BoundedLikelihood | LipschitzLikelihood | LogConcave


@dataclass(frozen=True, kw_only=True)
class ClaimedDraws:
    """Draws with the likelihood raised to a power, each as private as a claim says. All public."""

    claim: Claim
    power: float
    num_draws: int = 1

    def __post_init__(self) -> None:
        _validate.rate("power", self.power)
        _validate.count("num_draws", self.num_draws)

    @property
    def event(self) -> DpEvent:
        """The event to account for, if the draws are exact."""
        return events.repeat(self.claim.event(self.power), self.num_draws)

    @property
    def num_steps(self) -> int:
        """A release for each draw."""
        return self.num_draws


def check_rows_per_unit(rows: Rows, stated: int) -> None:
    """A unit may have as many rows as were charged for, and no more. Shapes are public."""
    most = rows.rows_per_unit
    if most > stated:
        raise InvalidArgument(f"A person has up to {most} rows; pass rows_per_unit={most}.")


def check_column(rows: Rows, name: str, shape: tuple[int, ...]) -> None:
    """A row's entry in a column has this shape, or one row could count as several."""
    row = rows.dummy_row()
    if name not in row:
        raise InvalidArgument(f"The sampler reads {name!r}; the columns are {', '.join(row)}.")
    if row[name].shape != shape:
        wanted = f"a vector of {shape[0]}" if shape else "one number"
        raise InvalidArgument(
            f"The sampler reads {wanted} for each row from {name!r}; got an array of shape "
            f"{row[name].shape} for each."
        )


def format_draws(count: int) -> str:
    """A number of draws, in words."""
    return "One draw" if count == 1 else f"{count} draws"


def format_influence(power: float, unit: str, span: float) -> str:
    """How much one unit can say, in words."""
    return (
        f"The likelihood counts with a power of {power:.4g}; one {unit} moves a log probability "
        f"ratio by at most {span:.4g}."
    )


# Of the parameters, the unit's rows, which of them are real, and public constants.
Density = Callable[[jax.Array, PyTree, jax.Array, PyTree], jax.Array]


def checked_function(density: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    """The same function; what runs is a trace of it that was checked. [draw-check]"""

    def run(*arguments: PyTree) -> jax.Array:
        (found,) = _run_checked(density, arguments)
        return jnp.asarray(found, jnp.float32)

    return run


def checked_value_and_grad(
    density: Callable[..., jax.Array],
) -> Callable[..., tuple[jax.Array, jax.Array]]:
    """A function's value and gradient; what runs is a trace of both that was checked.

    A function may have rules of its own for its gradient, which a trace of its value lacks.
    """
    value = checked_function(density)

    def run(*arguments: PyTree) -> tuple[jax.Array, jax.Array]:
        found, slope = _run_checked(jax.value_and_grad(value), arguments)
        return found, slope

    return run


def _run_checked(function: Callable[..., PyTree], arguments: tuple[PyTree, ...]) -> list[jax.Array]:
    """What a function returns, by a trace of it that was checked."""
    with translated_trace_errors():
        first = jax.make_jaxpr(function)(*arguments)
    with jax.default_matmul_precision("highest"):  # traces anew what JAX has kept
        second = jax.make_jaxpr(function)(*arguments)
    check_per_unit(first.jaxpr)
    if shares_constants(first, second):
        raise BoundaryError(
            "The model uses an array from outside itself, which could hold rows. Pass it "
            "as one of the model's public constants."
        )
    if first.out_avals[0].shape != ():
        raise InvalidArgument("The log-likelihood and the log prior must each be one number.")
    leaves = jax.tree.leaves(arguments)
    return list(jax.core.eval_jaxpr(first.jaxpr, first.consts, *leaves))


def check_density(rows: Rows, density: Density, dimension: int, constants: PyTree) -> None:
    """Raises what `checked_function` would raise, by a unit of zeros."""
    unit = rows.dummy_unit()
    jax.eval_shape(densities_at(density), jnp.zeros((1, dimension)), unit, constants)


def check_prior(prior: Callable[..., jax.Array], dimension: int, constants: PyTree) -> None:
    """Raises what `checked_function` would raise."""
    jax.eval_shape(checked_function(prior), jnp.zeros(dimension), constants)


def densities_at(density: Density) -> Callable[..., jax.Array]:
    """The log-likelihood of one unit at each of many places."""
    of = checked_function(density)

    def values(vectors: jax.Array, unit: Units, constants: PyTree) -> jax.Array:
        return jax.vmap(lambda vector: of(vector, *unit, constants))(vectors)

    return values
