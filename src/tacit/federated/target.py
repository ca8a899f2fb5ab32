"""What sites fit together: a prior in a family, and what a site's rows add to it.

For a conjugate model the rows' likelihood is a vector of the family itself, the sum of one vector
for each row. For any other model it is replaced by the vector that stands for it best where the
posterior is: with q Gaussian, precision E_q[-hessian] and precision times mean E_q[gradient] +
precision x mean of the log-likelihood. That is a step of natural gradient; where it changes
nothing, the variational free energy is stationary.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from tacit import _validate
from tacit.errors import InvalidArgument
from tacit.federated.natural import (
    DiagonalGaussian,
    Dirichlet,
    Family,
    FullGaussian,
    Gamma,
    Gaussian,
    Vector,
    triangle,
)
from tacit.inference.base import parameters
from tacit.models.base import AnyModel
from tacit.models.model import Interval, Model, Parameter, Positive, Simplex

Rows = Mapping[str, jax.Array]


class Target(Protocol):
    """What sites fit together. Public, and the same at all of them."""

    def __hash__(self) -> int: ...
    @property
    def model(self) -> AnyModel:
        """The model: densities and names."""
        ...

    @property
    def family(self) -> Family:
        """The family of the posterior."""
        ...

    @property
    def prior(self) -> Vector:
        """The prior's natural parameters."""
        ...

    @property
    def constants(self) -> Any:
        """Public arrays, which the compiled program takes as an input."""
        ...

    def likelihood(self, eta: jax.Array, rows: Rows, present: jax.Array, constants: Any) -> Any:
        """What rows that are present add to natural parameters, seen from ``eta``."""
        ...

    def named(self, eta: Vector, count: int, seed: int) -> dict[str, Any]:
        """Draws of the parameters by name."""
        ...


@dataclass(frozen=True, kw_only=True, eq=False)
class Conjugate:
    """A conjugate model: ``statistic(row)`` is what a row adds to natural parameters."""

    model: Model
    family: Family
    prior: Vector
    statistic: Callable[[Mapping[str, Any]], jax.Array]
    constants: Any = None

    declared_public: ClassVar[tuple[str, ...]] = ("prior", "constants")

    def likelihood(
        self,
        eta: jax.Array,  # noqa: ARG002 (wherever it is seen from)
        rows: Rows,
        present: jax.Array,
        constants: Any,  # noqa: ARG002
    ) -> jax.Array:
        """The sum of the statistics of rows that are present."""
        terms = jax.vmap(self.statistic)(dict(rows))
        return jnp.where(present[:, None], terms, 0).sum(axis=0)

    def named(self, eta: Vector, count: int, seed: int) -> dict[str, Any]:
        """Draws of the parameter by its name."""
        drawn = self.family.draws(eta, count, np.random.default_rng(seed))
        (name, parameter) = next(iter(self.model.parameters.items()))
        if isinstance(self.family, Dirichlet) and parameter.shape == ():
            drawn = drawn[:, 0]
        return {name: drawn.reshape(count, *parameter.shape)}


def linear_regression(
    size: int, *, noise_sd: float, prior_sd: float = 1.0, x: str = "x", y: str = "y"
) -> Conjugate:
    """Outcome ``y`` linear in the ``size`` numbers of ``x``, with noise of a known deviation."""
    precision = 1 / _validate.positive("noise_sd", noise_sd) ** 2
    family = FullGaussian(_validate.count("size", size))
    below, beside, scale = triangle(size)
    places, times = (tuple(below), tuple(beside)), tuple(scale.tolist())

    def statistic(row: Mapping[str, Any]) -> jax.Array:
        features = jnp.atleast_1d(row[x])
        left, right = (features[jnp.array(place)] for place in places)
        return precision * jnp.concatenate([left * right * jnp.array(times), features * row[y]])

    def log_likelihood(params: Any, row: Any) -> jax.Array:
        expected = jnp.dot(jnp.atleast_1d(row[x]), params["coefficients"])
        return jnp.asarray(-0.5 * precision * (row[y] - expected) ** 2)

    return Conjugate(
        model=Model(
            parameters={"coefficients": Parameter((size,))},
            log_prior=lambda p: -0.5 * jnp.sum((p["coefficients"] / prior_sd) ** 2),
            log_likelihood=log_likelihood,
        ),
        family=family,
        prior=family.from_moments(np.zeros(size), np.full(size, prior_sd**2)),
        statistic=statistic,
    )


def poisson(*, shape: float = 1.0, rate: float = 1.0, y: str = "y") -> Conjugate:
    """Counts ``y`` with a gamma prior of their mean."""
    return Conjugate(
        model=Model(
            parameters={"mean": Parameter((), Positive())},
            log_prior=lambda p: (shape - 1) * jnp.log(p["mean"]) - rate * p["mean"],
            log_likelihood=lambda p, row: row[y] * jnp.log(p["mean"]) - p["mean"],
        ),
        family=Gamma(),
        prior=np.array([shape, rate], np.float64),
        statistic=lambda row: jnp.stack([row[y] * 1.0, 1.0]),
    )


def bernoulli(*, yes: float = 1.0, no: float = 1.0, y: str = "y") -> Conjugate:
    """Outcomes ``y``, 1 or 0, with a beta prior of their chance."""
    return Conjugate(
        model=Model(
            parameters={"chance": Parameter((), Interval())},
            log_prior=lambda p: (
                (yes - 1) * jnp.log(p["chance"]) + (no - 1) * jnp.log1p(-p["chance"])
            ),
            log_likelihood=lambda p, row: jnp.log(
                jnp.where(row[y] == 1, p["chance"], 1 - p["chance"])
            ),
        ),
        family=Dirichlet(2),
        prior=np.array([yes, no], np.float64),
        statistic=lambda row: jnp.stack([row[y] * 1.0, 1.0 - row[y]]),
    )


def categorical(categories: int, *, prior: float = 1.0, y: str = "y") -> Conjugate:
    """Outcomes ``y`` from 0 to ``categories`` - 1, with a Dirichlet prior of their shares."""
    return Conjugate(
        model=Model(
            parameters={"shares": Parameter((categories,), Simplex())},
            log_prior=lambda p: (prior - 1) * jnp.log(p["shares"]).sum(),
            log_likelihood=lambda p, row: jnp.log(p["shares"])[row[y]],
        ),
        family=Dirichlet(categories),
        prior=np.full(categories, float(prior)),
        statistic=lambda row: jax.nn.one_hot(row[y], categories),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Approximate:
    """Any model with a Gaussian prior on the unconstrained scale, and a Gaussian posterior.

    Expectations under q are over ``num_draws`` pairs of opposite draws, the same in all rounds
    and at all sites.
    """

    model: AnyModel
    family: Gaussian
    num_draws: int = 8

    @cached_property
    def prior(self) -> Vector:
        """The prior's natural parameters, read off its density."""
        return gaussian_prior(self.model, self.family)

    @cached_property
    def constants(self) -> Any:
        """The model's own, and the draws."""
        normal = np.random.default_rng(0).standard_normal((self.num_draws, self.model.dimension))
        spread = np.sqrt(np.mean(normal**2, axis=0))  # of the pairs together, exactly one
        return self.model.constants, np.concatenate([normal, -normal]) / spread

    declared_public: ClassVar[tuple[str, ...]] = ("prior", "constants")

    def likelihood(self, eta: jax.Array, rows: Rows, present: jax.Array, constants: Any) -> Any:
        """The Gaussian that stands for the likelihood of these rows where q is."""
        mean, slope, bend = self.seen(eta, rows, present, constants)
        if isinstance(self.family, DiagonalGaussian):
            precision = jnp.diag(bend)
            return jnp.concatenate([precision, slope + precision * mean])
        below, beside, scale = triangle(self.family.dimension)
        return jnp.concatenate([bend[below, beside] * jnp.asarray(scale), slope + bend @ mean])

    def seen(self, eta: jax.Array, rows: Rows, present: jax.Array, constants: Any) -> Any:
        """The mean of q, and under q the likelihood's gradient and its hessian with a minus."""
        if self.model.whole_units:
            raise InvalidArgument(
                "This model has effects of single people, whose rows belong together; use "
                "Optimised(), which takes people one at a time."
            )
        of_model, normal = constants
        mean, draws = _draws(self.family, eta, normal.astype(eta.dtype))

        def density(theta: jax.Array) -> jax.Array:
            return self.model.unit_density(theta, rows, present, of_model)

        def at(theta: jax.Array) -> Any:
            return jax.grad(density)(theta), -jax.hessian(density)(theta)

        slope, bend = jax.tree.map(lambda each: each.mean(axis=0), jax.lax.map(at, draws))
        return mean, slope, bend

    def named(self, eta: Vector, count: int, seed: int) -> dict[str, Any]:
        """Draws of the parameters by name, on their supports."""
        drawn = self.family.draws(eta, count, np.random.default_rng(seed))
        return dict(parameters(self.model, jnp.asarray(drawn, jnp.float32)))


def _draws(family: Gaussian, eta: jax.Array, normal: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The mean of a Gaussian, and its draws for given standard normals."""
    size = family.dimension
    if isinstance(family, DiagonalGaussian):
        precision, weighted = eta[:size], eta[size:]
        mean = weighted / precision
        return mean, mean + normal / jnp.sqrt(precision)
    below, beside, scale = triangle(size)
    packed = eta[: len(below)] / jnp.asarray(scale, eta.dtype)
    matrix = jnp.zeros((size, size), eta.dtype).at[below, beside].set(packed)
    factor = jnp.linalg.cholesky(matrix + jnp.tril(matrix, -1).T)
    mean = jax.scipy.linalg.cho_solve((factor, True), eta[len(below) :])
    spread = jax.scipy.linalg.solve_triangular(factor.T, normal.T)
    return mean, mean + spread.T


def gaussian_prior(model: AnyModel, family: Gaussian) -> Vector:
    """The natural parameters of a prior density that is Gaussian; refused if it is not."""
    size = model.dimension
    with jax.enable_x64(True):

        def density(theta: jax.Array) -> jax.Array:
            return model.prior_density(theta, model.constants)

        def bend(theta: jax.Array) -> Any:
            return -jax.hessian(density)(theta)

        zero, far = jnp.zeros(size), 3.0 * jnp.sin(1.0 + jnp.arange(size))
        precision, slope = np.asarray(bend(zero), np.float64), np.asarray(jax.grad(density)(zero))
        elsewhere = np.asarray(bend(far), np.float64)
    if not np.allclose(precision, elsewhere, rtol=1e-4, atol=1e-6):
        raise InvalidArgument(
            "Sites share a Gaussian prior on the unconstrained scale, and this model's is not one; "
            "use normal priors, for the logarithm of a positive parameter too."
        )
    diagonal = np.diag(np.diag(precision))
    if isinstance(family, DiagonalGaussian) and not np.allclose(precision, diagonal):
        raise InvalidArgument("This prior has correlations; pass guide=tacit.FullRank().")
    kept = np.diag(precision) if isinstance(family, DiagonalGaussian) else precision
    eta = family.join(kept, slope)
    if not family.proper(eta):
        raise InvalidArgument("The prior must be a proper distribution for all parameters.")
    return eta
