"""What sites fit together: a prior in an exponential family, and what rows add to it.

For a conjugate model, the likelihood of the rows is a vector of natural parameters: the sum of one
vector for each row. For any other model it is approximated by a Gaussian around the present posterior q,
with precision E_q[-hessian] and precision times mean E_q[gradient] + precision x mean of the
log-likelihood. This is a step of natural gradient; where it changes nothing, the variational free energy
is stationary.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tacit.errors import InvalidArgument
from tacit.inference.base import parameters
from tacit.models.base import AnyModel, Row
from tacit.models.gaussians import DiagonalGaussian, Gaussian
from tacit.models.matrices import triangle
from tacit.models.natural import ExponentialFamily, Vector
from tacit.models.statistic import Conjugate, Constants


class Target(Protocol):
    """What sites fit together. It is public and the same at all sites."""

    def __hash__(self) -> int: ...
    @property
    def model(self) -> AnyModel:
        """The model: densities and names."""
        ...

    @property
    def family(self) -> ExponentialFamily:
        """The family of the posterior."""
        ...

    @property
    def prior(self) -> Vector:
        """Natural parameters of the prior."""
        ...

    @property
    def constants(self) -> Any:
        """Public arrays, which are inputs of the compiled program."""
        ...

    def likelihood(
        self, eta: jax.Array, rows: Row, present: jax.Array, constants: Any
    ) -> jax.Array:
        """What the rows that are present add to the natural parameters, if the posterior is ``eta``."""
        ...

    def named(self, eta: Vector, count: int, seed: int) -> dict[str, NDArray[np.floating]]:
        """Draws of the parameters by name."""
        ...


@dataclass(frozen=True, kw_only=True, eq=False)
class ConjugateTarget:
    """A conjugate model by its natural parameters.

    `conjugate_target` makes one from a model of `tacit.conjugate`. Other conjugate models can be
    written directly.

    Args:
        model: The model: densities and names.
        family: The family of the prior and the posterior.
        prior: Natural parameters of the prior.
        statistic: ``statistic(row, constants)``: what a row adds to the natural parameters.
        from_draws: Parameters by name, from draws [draws, numbers] of the family.
        constants: Public arrays that ``statistic`` takes.
    """

    model: AnyModel
    family: ExponentialFamily
    prior: Vector
    statistic: Callable[[Row, Constants], jax.Array]
    from_draws: Callable[[Vector], dict[str, Vector]]
    constants: Constants = field(default_factory=dict)

    declared_public: ClassVar[tuple[str, ...]] = ("prior", "constants")

    def likelihood(
        self,
        eta: jax.Array,  # noqa: ARG002 (it is the same for every posterior)
        rows: Row,
        present: jax.Array,
        constants: Constants,
    ) -> jax.Array:
        """The sum of the statistics of the rows that are present."""
        terms = jax.vmap(lambda row: self.statistic(row, constants))(dict(rows))
        return jnp.where(present[:, None], terms, 0).sum(axis=0)

    def named(self, eta: Vector, count: int, seed: int) -> dict[str, NDArray[np.floating]]:
        """Draws of the parameters by name."""
        return dict(self.from_draws(self.family.draws(eta, count, np.random.default_rng(seed))))


@lru_cache(maxsize=32)
def conjugate_target(model: Conjugate) -> ConjugateTarget:
    """The target of a conjugate model: the same object for the same model, so that it compiles once."""
    return ConjugateTarget(
        model=model,
        family=model.family,
        prior=model.natural_prior,
        statistic=model.natural_statistic,
        from_draws=model.from_draws,
        constants=model.constants,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Approximate:
    """Any model with a Gaussian prior on the unconstrained scale, and a Gaussian posterior.

    Args:
        model: The model.
        family: The family of the posterior.
        num_draws: Number of pairs of opposite draws that expectations under q are computed with. The
            draws are the same in all rounds and at all sites.
    """

    model: AnyModel
    family: Gaussian
    num_draws: int = 8

    @cached_property
    def prior(self) -> Vector:
        """Natural parameters of the prior, computed from its density."""
        return gaussian_prior(self.model, self.family)

    @cached_property
    def constants(self) -> Any:
        """Those of the model, and the draws."""
        normal = np.random.default_rng(0).standard_normal((self.num_draws, self.model.dimension))
        spread = np.sqrt(
            np.mean(normal**2, axis=0)
        )  # then the variance of all draws is exactly one
        return self.model.constants, np.concatenate([normal, -normal]) / spread

    declared_public: ClassVar[tuple[str, ...]] = ("prior", "constants")

    def likelihood(
        self, eta: jax.Array, rows: Row, present: jax.Array, constants: tuple[Any, jax.Array]
    ) -> jax.Array:
        """A Gaussian approximation of the likelihood of these rows around q."""
        mean, slope, bend = self.seen(eta, rows, present, constants)
        if isinstance(self.family, DiagonalGaussian):
            precision = jnp.diag(bend)
            return jnp.concatenate([precision, slope + precision * mean])
        below, beside, scale = triangle(self.family.dimension)
        return jnp.concatenate([bend[below, beside] * jnp.asarray(scale), slope + bend @ mean])

    def seen(
        self, eta: jax.Array, rows: Row, present: jax.Array, constants: tuple[Any, jax.Array]
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """The mean of q, and expectations of the log-likelihood's gradient and negative hessian."""
        if self.model.whole_units:
            raise InvalidArgument(
                "This model has effects of single people, which need all rows of a person together; "
                "use Optimised()."
            )
        of_model, normal = constants
        mean, draws = _draws(self.family, eta, normal.astype(eta.dtype))

        def density(theta: jax.Array) -> jax.Array:
            return self.model.unit_density(theta, rows, present, of_model)

        def at(theta: jax.Array) -> Any:
            return jax.grad(density)(theta), -jax.hessian(density)(theta)

        slope, bend = jax.tree.map(lambda each: each.mean(axis=0), jax.lax.map(at, draws))
        return mean, slope, bend

    def named(self, eta: Vector, count: int, seed: int) -> dict[str, NDArray[np.floating]]:
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
    """Natural parameters of a Gaussian prior density; other priors are refused."""
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
            "Federated fits need a Gaussian prior on the unconstrained scale. Use normal priors, and "
            "log-normal priors for positive parameters; or a model of tacit.conjugate."
        )
    diagonal = np.diag(np.diag(precision))
    if isinstance(family, DiagonalGaussian) and not np.allclose(precision, diagonal):
        raise InvalidArgument("The prior has correlations; pass guide=tacit.methods.FullRank().")
    kept = np.diag(precision) if isinstance(family, DiagonalGaussian) else precision
    eta = family.join(kept, slope)
    if not family.proper(eta):
        raise InvalidArgument("The prior must be a proper distribution for all parameters.")
    return eta
