"""The exact posterior mode with a Laplace approximation. NOT PRIVATE: a reference to compare with.

Newton's method with a line search climbs the log posterior of all rows, unclipped and without
noise, in double precision on the unconstrained scale. The curvature at the mode is the
precision of a normal distribution, of which draws are made and put on their supports.
"""

from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tacit.errors import InvalidArgument
from tacit.inference.base import Intervals, MethodResult
from tacit.models.base import AnyModel
from tacit.privacy.open_sum import Density, Derivatives, OpenSum, wide
from tacit.privacy.rows import Rows

Vector = NDArray[np.float64]
# Draws of the normal distribution; steps of Newton's, and halvings of one.
_DRAWS, _MOST_STEPS, _MOST_HALVINGS = 2000, 200, 50
# In posterior standard deviations: how far from the mode is as good as there, and near enough.
_THERE, _NEAR = 1e-7, 1e-3
LAPLACE = "Exact mode with Laplace approximation"
_STARTS = 8  # places where the search may begin


class Mode(NamedTuple):
    """Where Newton's method ended. ``off`` is its last step in posterior standard deviations.

    ``lowest`` is the smallest eigenvalue of the precision once its diagonal is made one.
    """

    vector: Vector
    covariance: NDArray[np.float64]
    off: float
    lowest: float
    steps: int

    @property
    def peaked(self) -> bool:
        """Whether the density falls in all directions."""
        return self.lowest > 0

    @property
    def converged(self) -> bool:
        """Whether it is a mode, as nearly as it matters."""
        return self.peaked and self.off < _NEAR

    @property
    def said(self) -> tuple[str, ...]:
        """How it went, in sentences."""
        if self.converged:
            return (f"{LAPLACE}; Newton's method converged in {self.steps} steps.",)
        flat = "" if self.peaked else " The density does not fall in all directions there."
        off = "" if self.off < _NEAR else f" Its last step was {self.off:.2g} posterior sd long."
        failed = f"{LAPLACE}; but Newton's method DID NOT CONVERGE: no mode was found.{flat}{off}"
        return (f'{failed} These numbers are no reference; method="nuts" needs no mode.',)


def posterior_of(model: AnyModel, rows: Rows) -> "LogPosterior":
    """The log posterior of all rows. NOT PRIVATE."""
    likelihood = OpenSum(
        rows,
        density_of(model),
        model.constants,
        dimension=model.dimension,
        whole_units=model.whole_units,
    )
    return LogPosterior(model, likelihood)


class LogPosterior(NamedTuple):
    """A model's prior and the open sum of its likelihood. NOT PRIVATE."""

    model: AnyModel
    likelihood: OpenSum

    def value(self, vector: Vector) -> float:
        """The log posterior, up to a constant; NaN counts as no density."""
        prior = float(_prior(self.model)(vector, 0))
        found = prior + self.likelihood.value(vector) if np.isfinite(prior) else prior
        return -np.inf if np.isnan(found) else found

    def derivatives(self, vector: Vector) -> Derivatives:
        """The same with its derivatives."""
        pairs = zip(_prior(self.model)(vector, 2), self.likelihood.derivatives(vector), strict=True)
        return Derivatives(*(a + b for a, b in pairs))


@lru_cache(maxsize=32)
def density_of(model: AnyModel) -> Density:
    """The likelihood of a unit or a row: the same object again, so that it compiles once."""

    def density(vector: jax.Array, fields: Any, present: Any, constants: Any) -> jax.Array:
        if present is None:
            return model.row_density(vector, fields, constants)
        return model.unit_density(vector, fields, present, constants)

    return density


@lru_cache(maxsize=32)
def _prior(model: AnyModel) -> Any:
    density = model.prior_density
    value = jax.jit(density)
    all_three = jax.jit(
        lambda v, c: (density(v, c), jax.grad(density)(v, c), jax.hessian(density)(v, c))
    )

    def at(vector: Vector, order: int) -> Any:
        with jax.enable_x64(True):
            place, constants = jnp.asarray(vector, jnp.float64), wide(model.constants)
            if order == 0:
                return np.asarray(value(place, constants))
            return [np.asarray(each) for each in all_three(place, constants)]

    return at


def laplace(model: AnyModel, rows: Rows, seed: int) -> MethodResult:
    """The exact mode, and draws of the normal distribution around it."""
    refuse_discrete(model, "The exact mode")
    mode = find_mode(posterior_of(model, rows), seed)
    drawn = mode.vector + _standard(model.dimension, seed) @ root_of(mode.covariance).T
    return MethodResult(
        draws=constrained(model, drawn),
        trace={},
        mean=mode.vector,
        covariance=mode.covariance,
        converged=mode.converged,
        said=mode.said,
        intervals=Intervals.NO_NOISE,
    )


def refuse_discrete(model: AnyModel, what: str) -> None:
    """Raises if the model has whole numbers, which have no gradient."""
    if model.discrete:
        names = ", ".join(repr(name) for name in dict.fromkeys(h.name for h in model.discrete))
        raise InvalidArgument(
            f"{what} needs gradients, and {names} of the model is discrete; pass "
            "method=tacit.Barker(), or write the sum over all values into the model."
        )


def find_mode(density: LogPosterior, seed: int) -> Mode:
    """Climbs from zero on the unconstrained scale to a place where the density falls everywhere."""
    vector = start_of(density, seed)
    for steps in range(_MOST_STEPS + 1):
        found = density.derivatives(vector)
        parts: list[Any] = [*found]
        if not all(np.isfinite(each).all() for each in parts):
            return Mode(vector, np.eye(len(vector)), np.inf, -np.inf, steps)
        direction, covariance, lowest = _newton(found)
        off = max(float(found.gradient @ direction), 0.0) ** 0.5
        if off < _THERE and lowest <= 0:  # a ridge or a saddle: leave it where it curves upwards
            direction = _out(found)
        mode = Mode(vector, covariance, off, lowest, steps)
        if off < _THERE and lowest > 0:
            break
        moved = _line_search(density, vector, found, direction)
        if moved is None:
            break
        vector = moved
    return mode


def start_of(density: LogPosterior, seed: int) -> Vector:
    """Almost zero; or where that has no density, some other place near it.

    Not zero itself: densities that are made of absolute values have a wrong slope there, as
    NumPyro's of a yes or no by its logit has.
    """
    rng, size = np.random.default_rng(seed), density.model.dimension
    for attempt in range(_STARTS):
        vector = (1e-4 + 0.5 * attempt) * rng.normal(size=size)
        if np.isfinite(density.value(vector)):
            return vector
    raise InvalidArgument(
        "The log posterior is not finite where the search starts (zero, unconstrained, and places "
        "near it): some row is impossible for the model there; check the outcome's values, its "
        "bounds and the parameters' supports."
    )


def _newton(found: Derivatives) -> tuple[Vector, NDArray[np.float64], float]:
    """Newton's step uphill, the covariance, and the lowest eigenvalue of the scaled precision.

    Scaled to a diagonal of ones, so that units of parameters do not matter. Directions that curve
    the wrong way are taken as if they curved as much the right way.
    """
    precision = -(found.hessian + found.hessian.T) / 2
    scale = np.sqrt(np.maximum(np.abs(np.diag(precision)), 1e-12))
    values, vectors = np.linalg.eigh(precision / np.outer(scale, scale))
    rounding = 1e-13 * max(np.abs(values).max(), 1.0)
    lowest = float(values[0]) if values[0] > rounding else min(float(values[0]), 0.0)
    steep = np.maximum(np.abs(values), max(rounding, 1e-10))
    covariance = (vectors / steep) @ vectors.T / np.outer(scale, scale)
    return covariance @ found.gradient, covariance, lowest


def _out(found: Derivatives) -> Vector:
    """The direction of the strongest upward curve."""
    values, vectors = np.linalg.eigh((found.hessian + found.hessian.T) / 2)
    return np.asarray(vectors[:, -1] / np.sqrt(max(values[-1], 1.0)))


def _line_search(
    density: LogPosterior, vector: Vector, found: Derivatives, direction: Vector
) -> Vector | None:
    """A step that climbs enough: whole, or halved until it does; None if none does."""
    slope = max(float(found.gradient @ direction), 0.0)
    length = 1.0
    for _ in range(_MOST_HALVINGS):
        moved = vector + length * direction
        if density.value(moved) > found.value + 1e-4 * length * slope:
            return moved
        length /= 2
    return None


def _standard(size: int, seed: int) -> Vector:
    """Standard normal draws in pairs of opposites; their covariance too is made exact if it can be."""
    half = np.random.default_rng(seed).normal(size=(_DRAWS // 2, size))
    if size < _DRAWS // 4:
        root = np.linalg.cholesky(half.T @ half / len(half))
        half = np.linalg.solve(root, half.T).T
    return np.concatenate([half, -half])


def root_of(covariance: NDArray[np.float64]) -> NDArray[np.float64]:
    """A matrix whose product with its own transpose is the covariance."""
    scale = np.sqrt(np.diag(covariance))
    values, vectors = np.linalg.eigh(covariance / np.outer(scale, scale))
    return np.asarray(scale[:, None] * vectors * np.sqrt(np.maximum(values, 0.0)))


def constrained(model: AnyModel, vectors: Vector) -> dict[str, NDArray[np.floating]]:
    """Parameters on their supports, in the model's order, in double precision."""
    with jax.enable_x64(True):
        found = _constrained(model, jnp.asarray(vectors, jnp.float64), wide(model.constants))
        return {name: np.asarray(found[name]) for name in model.names}


@partial(jax.jit, static_argnames="model")
def _constrained(model: AnyModel, vectors: jax.Array, constants: Any) -> Any:
    return jax.vmap(lambda vector: model.constrain(vector, constants))(vectors)
