"""Fits of the exact posterior. NOT PRIVATE: references to compare with.

Both use the log posterior of all rows, unclipped and without noise, in double precision on the unconstrained scale.
`laplace`: Newton's method with a line search finds the mode, and the curvature there is the precision of a normal
distribution. `nuts`: NumPyro's sampler, where the mode can be found in coordinates in which the posterior is
about a standard normal there, so that parameters on different scales are no trouble.
"""

from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from numpyro.infer.hmc import hmc

from tacit._typing import Floats
from tacit.errors import InvalidArgument, TacitError
from tacit.inference.diagnostics import mixing_warnings
from tacit.inference.method import constrain_vectors
from tacit.inference.result import Intervals, MethodResult
from tacit.models.base import UnitModel
from tacit.privacy.rows import Rows
from tacit.privacy.unclipped import Derivatives, UnclippedSum, to_float64

# The number of draws of the normal distribution, the most steps of Newton's method, and the most halvings of a step.
_LAPLACE_DRAWS, _MAX_NEWTON_STEPS, _MAX_HALVINGS = 2000, 200, 50
# In posterior standard deviations: the distance from the mode at which the search stops, and at which it counts as converged.
_STOP_DISTANCE, _CONVERGED_DISTANCE = 1e-7, 1e-3
_LAPLACE_TITLE = "Exact mode with Laplace approximation"
# The most points at which the search may begin.
_MAX_STARTS = 8


class Mode(NamedTuple):
    """Where Newton's method ended. ``off`` is its last step in posterior standard deviations.

    ``lowest`` is the smallest eigenvalue of the precision once its diagonal is made one.
    """

    vector: Floats
    covariance: Floats
    off: float
    lowest: float
    steps: int

    @property
    def peaked(self) -> bool:
        """Whether the density falls in all directions."""
        return self.lowest > 0

    @property
    def converged(self) -> bool:
        """Whether a mode was found."""
        return self.peaked and self.off < _CONVERGED_DISTANCE

    @property
    def messages(self) -> tuple[str, ...]:
        """Sentences on the search."""
        if self.converged:
            return (f"{_LAPLACE_TITLE}; Newton's method converged in {self.steps} steps.",)
        flat = "" if self.peaked else " The density does not fall in all directions there."
        off = (
            ""
            if self.off < _CONVERGED_DISTANCE
            else f" Its last step was {self.off:.2g} posterior sd long."
        )
        failed = (
            f"{_LAPLACE_TITLE}; but Newton's method DID NOT CONVERGE: no mode was found.{flat}{off}"
        )
        return (f'{failed} These numbers are no reference; method="nuts" needs no mode.',)


def log_posterior(model: UnitModel, rows: Rows) -> "LogPosterior":
    """The log posterior of all rows. NOT PRIVATE."""
    likelihood = UnclippedSum(
        rows,
        model.log_likelihood,
        model.constants,
        dimension=model.dimension,
    )
    return LogPosterior(model, likelihood)


class LogPosterior(NamedTuple):
    """A model's prior and the open sum of its likelihood. NOT PRIVATE."""

    model: UnitModel
    likelihood: UnclippedSum

    def value(self, vector: Floats) -> float:
        """The log posterior, up to a constant; NaN counts as no density."""
        prior = float(_prior_derivatives(self.model)(vector, 0))
        found = prior + self.likelihood.value(vector) if np.isfinite(prior) else prior
        return -np.inf if np.isnan(found) else found

    def derivatives(self, vector: Floats) -> Derivatives:
        """The same with its derivatives."""
        pairs = zip(
            _prior_derivatives(self.model)(vector, 2),
            self.likelihood.derivatives(vector),
            strict=True,
        )
        return Derivatives(*(a + b for a, b in pairs))


@lru_cache(maxsize=32)
def _prior_derivatives(model: UnitModel) -> Any:
    density = model.log_prior
    value = jax.jit(density)
    all_three = jax.jit(
        lambda v, c: (density(v, c), jax.grad(density)(v, c), jax.hessian(density)(v, c))
    )

    def at(vector: Floats, order: int) -> Any:
        with jax.enable_x64(True):
            place, constants = jnp.asarray(vector, jnp.float64), to_float64(model.constants)
            if order == 0:
                return np.asarray(value(place, constants))
            return [np.asarray(each) for each in all_three(place, constants)]

    return at


def laplace(model: UnitModel, rows: Rows, seed: int) -> MethodResult:
    """The exact mode, and draws of the normal distribution around it."""
    check_continuous(model, "The exact mode")
    mode = find_mode(log_posterior(model, rows), seed)
    drawn = (
        mode.vector
        + _antithetic_normals(model.dimension, seed) @ covariance_root(mode.covariance).T
    )
    return MethodResult(
        draws=double_precision_draws(model, drawn),
        trace={},
        unconstrained_mean=mode.vector,
        unconstrained_covariance=mode.covariance,
        converged=mode.converged,
        messages=mode.messages,
        intervals=Intervals.NO_NOISE,
    )


def check_continuous(model: UnitModel, what: str) -> None:
    """Raises if the model has whole numbers, which have no gradient."""
    if model.discrete:
        names = ", ".join(repr(name) for name in dict.fromkeys(h.name for h in model.discrete))
        raise InvalidArgument(
            f"{what} needs gradients, and {names} of the model is discrete; pass "
            "method=tacit.Barker(), or write the sum over all values into the model."
        )


def find_mode(density: LogPosterior, seed: int) -> Mode:
    """Newton's method from about zero on the unconstrained scale to a local maximum of the density."""
    vector = starting_vector(density, seed)
    for steps in range(_MAX_NEWTON_STEPS + 1):
        found = density.derivatives(vector)
        parts: list[Any] = [*found]
        if not all(np.isfinite(each).all() for each in parts):
            return Mode(vector, np.eye(len(vector)), np.inf, -np.inf, steps)
        direction, covariance, lowest = _newton_step(found)
        off = max(float(found.gradient @ direction), 0.0) ** 0.5
        if (
            off < _STOP_DISTANCE and lowest <= 0
        ):  # a ridge or a saddle: leave it where it curves upwards
            direction = _direction_from_saddle(found)
        mode = Mode(vector, covariance, off, lowest, steps)
        if off < _STOP_DISTANCE and lowest > 0:
            break
        moved = _line_search(density, vector, found, direction)
        if moved is None:
            break
        vector = moved
    return mode


def starting_vector(density: LogPosterior, seed: int) -> Floats:
    """Almost zero; or where that has no density, some other place near it.

    Not zero itself: densities that are made of absolute values have a wrong slope there, as
    NumPyro's of a yes or no by its logit has.
    """
    rng, size = np.random.default_rng(seed), density.model.dimension
    for attempt in range(_MAX_STARTS):
        vector = (1e-4 + 0.5 * attempt) * rng.normal(size=size)
        if np.isfinite(density.value(vector)):
            return vector
    raise InvalidArgument(
        "The log posterior is not finite where the search starts (zero, unconstrained, and places "
        "near it): some row is impossible for the model there; check the outcome's values, its "
        "bounds and the parameters' supports."
    )


def _newton_step(found: Derivatives) -> tuple[Floats, Floats, float]:
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


def _direction_from_saddle(found: Derivatives) -> Floats:
    """The direction of the strongest upward curve."""
    values, vectors = np.linalg.eigh((found.hessian + found.hessian.T) / 2)
    return np.asarray(vectors[:, -1] / np.sqrt(max(values[-1], 1.0)))


def _line_search(
    density: LogPosterior, vector: Floats, found: Derivatives, direction: Floats
) -> Floats | None:
    """A step that increases the density enough, halved until it does; None if none does."""
    slope = max(float(found.gradient @ direction), 0.0)
    length = 1.0
    for _ in range(_MAX_HALVINGS):
        moved = vector + length * direction
        if density.value(moved) > found.value + 1e-4 * length * slope:
            return moved
        length /= 2
    return None


def _antithetic_normals(size: int, seed: int) -> Floats:
    """Antithetic standard normal draws; their covariance is made exact too if there are enough."""
    half = np.random.default_rng(seed).normal(size=(_LAPLACE_DRAWS // 2, size))
    if size < _LAPLACE_DRAWS // 4:
        root = np.linalg.cholesky(half.T @ half / len(half))
        half = np.linalg.solve(root, half.T).T
    return np.concatenate([half, -half])


def covariance_root(covariance: Floats) -> Floats:
    """A root of the covariance."""
    scale = np.sqrt(np.diag(covariance))
    values, vectors = np.linalg.eigh(covariance / np.outer(scale, scale))
    return np.asarray(scale[:, None] * vectors * np.sqrt(np.maximum(values, 0.0)))


def double_precision_draws(model: UnitModel, vectors: Floats) -> dict[str, NDArray[np.floating]]:
    """Parameters on their supports, in the model's order, in double precision."""
    with jax.enable_x64(True):
        constants = to_float64(model.constants)
        found = constrain_vectors(model)(jnp.asarray(vectors, jnp.float64), constants)
        return {name: np.asarray(found[name]) for name in model.names}


_NUTS_WARMUP = _NUTS_DRAWS = 1000
# With more parameters, the mass matrix of the sampler is diagonal.
_MAX_DENSE_DIMENSION = 100


def nuts(model: UnitModel, rows: Rows, seed: int) -> MethodResult:
    """One chain, begun at the mode or, if none is found, at zero on the unconstrained scale."""
    check_continuous(model, "NUTS")
    density = log_posterior(model, rows)
    centre, stretch = _whitening_at_mode(density, seed)
    key = jax.random.key_data(jax.random.key(seed))
    given = centre, stretch, model.constants, key
    vectors, diverging, accepted = density.likelihood.inside(_nuts_program(model), *given)
    if not np.isfinite(vectors).all():
        raise TacitError("NUTS found no place where the log posterior is finite.")
    draws = double_precision_draws(model, vectors)
    wrong, mixing = int(diverging.sum()), mixing_warnings(draws)
    said = f"NUTS on the exact log posterior; {wrong} of {_NUTS_DRAWS} transitions diverged."
    return MethodResult(
        draws=draws,
        trace={},
        chain=True,
        sample_stats={"diverging": diverging.astype(np.float64), "acceptance_rate": accepted},
        converged=wrong == 0 and not mixing,
        messages=(*mixing, said),
        intervals=Intervals.NO_NOISE,
    )


def _whitening_at_mode(density: LogPosterior, seed: int) -> tuple[Floats, Floats]:
    """Where the chain begins, and a root of the approximate covariance there."""
    mode = find_mode(density, seed)
    if mode.converged:
        return mode.vector, covariance_root(mode.covariance)
    return starting_vector(density, seed), np.eye(density.model.dimension)


@lru_cache(maxsize=32)
def _nuts_program(model: UnitModel) -> Any:
    """The chain as a function of the log-likelihood of all rows. Cached, so that it compiles once."""

    def program(total: Any, centre: Any, stretch: Any, constants: Any, key: Any) -> Any:
        def potential(place: jax.Array) -> jax.Array:
            vector = centre + stretch @ place
            return jnp.negative(model.log_prior(vector, constants) + total(vector))

        begin, sample = hmc(potential, algo="NUTS")
        state = begin(
            jnp.zeros_like(centre),
            _NUTS_WARMUP,
            dense_mass=len(centre) <= _MAX_DENSE_DIMENSION,
            rng_key=jax.random.wrap_key_data(key),
        )

        def step(state: Any, _: Any) -> Any:
            state = sample(state)
            return state, (centre + stretch @ state.z, state.diverging, state.accept_prob)

        every = jax.lax.scan(step, state, length=_NUTS_WARMUP + _NUTS_DRAWS)[1]
        return jax.tree.map(lambda each: each[_NUTS_WARMUP:], every)

    return program
