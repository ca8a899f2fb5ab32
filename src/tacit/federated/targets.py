"""What sites fit together: a prior in an exponential family, and what rows add to it.

For a conjugate model, the likelihood of the rows is a vector of natural parameters: the sum of one
vector for each row. For any other model it is approximated by a Gaussian around the present posterior q,
with precision E_q[-hessian] and precision times mean E_q[gradient] + precision x mean of the
log-likelihood. This is a step of natural gradient; where it changes nothing, the variational free energy
is stationary. A site can also fit q itself, by private gradients, with the cavity as its prior.

`study_digest` tells a study from another one with the same name. It depends on public values only: the
settings, the prior, and the model's densities as JAX traces them for columns of the given types.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Protocol, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit._typing import ArrayTree
from tacit.errors import InvalidArgument
from tacit.federated.site import TaskSpace
from tacit.inference.guides import FullRank, Guide, MeanField, Params
from tacit.inference.method import constrained_draws
from tacit.inference.variational import Variational, fit_guide
from tacit.models.base import Outcomes, Row, UnitModel
from tacit.models.conjugate import Conjugate, Constants
from tacit.models.exponential_families import (
    DiagonalGaussian,
    ExponentialFamily,
    FullGaussian,
    Gaussian,
    Vector,
    packed_indices,
)
from tacit.privacy.checkpoint import (
    combined_digest,
    strip_addresses,
    trace_digest,
)
from tacit.privacy.gate import Gate
from tacit.privacy.rows import Rows


class Described(Protocol):
    """What is computed from rows: a model, or a question."""

    def describe(self) -> str:
        """What it is, in one line."""
        ...

    def digest(self, rows: Rows, /) -> str:
        """A digest of it, for rows of these types."""
        ...


class Target(Protocol):
    """What sites compute together by any method. It is public and the same at all sites."""

    @property
    def model(self) -> Described:
        """The model, or the question."""
        ...

    @property
    def family(self) -> TaskSpace:
        """What tasks hold."""
        ...

    @property
    def prior(self) -> Vector:
        """Numbers of the prior; none if nothing is fitted."""
        ...


class FitTarget(Target, Protocol):
    """What sites fit together."""

    @property
    def model(self) -> UnitModel:
        """The model: densities and names."""
        ...


T = TypeVar("T", bound=Target)
F = TypeVar("F", bound=FitTarget)


class NaturalTarget(FitTarget, Protocol):
    """What sites fit together by natural parameters."""

    def __hash__(self) -> int: ...
    @property
    def family(self) -> ExponentialFamily:
        """The family of the posterior."""
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

    def named_draws(self, eta: Vector, count: int, seed: int) -> dict[str, NDArray[np.floating]]:
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

    model: UnitModel
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

    def named_draws(self, eta: Vector, count: int, seed: int) -> dict[str, NDArray[np.floating]]:
        """Draws of the parameters by name."""
        return dict(self.from_draws(self.family.draws(eta, count, np.random.default_rng(seed))))


@lru_cache(maxsize=32)
def conjugate_target(model: Conjugate) -> ConjugateTarget:
    """The target of a conjugate model: the same object for the same model, so that it compiles once."""
    return ConjugateTarget(
        model=model.unit_model,
        family=model.family,
        prior=model.natural_prior,
        statistic=model.natural_statistic,
        from_draws=model.from_draws,
        constants=model.constants,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class ApproximateTarget:
    """Any model with a Gaussian prior on the unconstrained scale, and a Gaussian posterior.

    Args:
        model: The model.
        family: The family of the posterior.
        num_draws: Number of pairs of opposite draws that expectations under q are computed with. The
            draws are the same in all rounds and at all sites.
    """

    model: UnitModel
    family: Gaussian
    num_draws: int = 8

    @cached_property
    def prior(self) -> Vector:
        """Natural parameters of the prior, computed from its density."""
        return gaussian_prior(self.model, self.family)

    @cached_property
    def constants(self) -> tuple[ArrayTree, Vector]:
        """Those of the model, and the draws."""
        normal = np.random.default_rng(0).standard_normal((self.num_draws, self.model.dimension))
        # Scaled such that the variance of all draws is exactly one.
        scale = np.sqrt(np.mean(normal**2, axis=0))
        return self.model.constants, np.concatenate([normal, -normal]) / scale

    declared_public: ClassVar[tuple[str, ...]] = ("prior", "constants")

    def likelihood(
        self, eta: jax.Array, rows: Row, present: jax.Array, constants: tuple[ArrayTree, jax.Array]
    ) -> jax.Array:
        """A Gaussian approximation of the likelihood of these rows around q."""
        mean, gradient, precision = self.expected_derivatives(eta, rows, present, constants)
        if isinstance(self.family, DiagonalGaussian):
            diagonal = jnp.diag(precision)
            return jnp.concatenate([diagonal, gradient + diagonal * mean])
        row, column, scale = packed_indices(self.family.dimension)
        packed = precision[row, column] * jnp.asarray(scale)
        return jnp.concatenate([packed, gradient + precision @ mean])

    def expected_derivatives(
        self, eta: jax.Array, rows: Row, present: jax.Array, constants: tuple[ArrayTree, jax.Array]
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """The mean of q, and expectations of the log-likelihood's gradient and negative hessian."""
        if self.model.has_person_effects:
            raise InvalidArgument(
                "This model has effects of single people, which need all rows of a person together; "
                "use Optimised()."
            )
        model_constants, normal = constants
        mean, draws = _gaussian_draws(self.family, eta, normal.astype(eta.dtype))

        def log_likelihood(theta: jax.Array) -> jax.Array:
            return self.model.log_likelihood(theta, rows, present, model_constants)

        def derivatives(theta: jax.Array) -> tuple[jax.Array, jax.Array]:
            return jax.grad(log_likelihood)(theta), -jax.hessian(log_likelihood)(theta)

        gradients, hessians = jax.lax.map(derivatives, draws)
        return mean, gradients.mean(axis=0), hessians.mean(axis=0)

    def named_draws(self, eta: Vector, count: int, seed: int) -> dict[str, NDArray[np.floating]]:
        """Draws of the parameters by name, on their supports."""
        drawn = self.family.draws(eta, count, np.random.default_rng(seed))
        return dict(constrained_draws(self.model, jnp.asarray(drawn, jnp.float32)))


def _gaussian_draws(
    family: Gaussian, eta: jax.Array, normal: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The mean of a Gaussian, and its draws for given standard normals."""
    size = family.dimension
    if isinstance(family, DiagonalGaussian):
        precision, weighted = eta[:size], eta[size:]
        mean = weighted / precision
        return mean, mean + normal / jnp.sqrt(precision)
    row, column, scale = packed_indices(size)
    packed = eta[: len(row)] / jnp.asarray(scale, eta.dtype)
    lower = jnp.zeros((size, size), eta.dtype).at[row, column].set(packed)
    factor = jnp.linalg.cholesky(lower + jnp.tril(lower, -1).T)
    mean = jax.scipy.linalg.cho_solve((factor, True), eta[len(row) :])
    return mean, mean + jax.scipy.linalg.solve_triangular(factor.T, normal.T).T


def gaussian_prior(model: UnitModel, family: Gaussian) -> Vector:
    """Natural parameters of a Gaussian prior density; other priors are refused."""
    size = model.dimension
    with jax.enable_x64(True):

        def density(theta: jax.Array) -> jax.Array:
            return model.log_prior(theta, model.constants)

        def curvature(theta: jax.Array) -> jax.Array:
            return -jnp.asarray(jax.hessian(density)(theta))

        zero, far = jnp.zeros(size), 3.0 * jnp.sin(1.0 + jnp.arange(size))
        precision = np.asarray(curvature(zero), np.float64)
        gradient = np.asarray(jax.grad(density)(zero))
        elsewhere = np.asarray(curvature(far), np.float64)
    if not np.allclose(precision, elsewhere, rtol=1e-4, atol=1e-6):
        raise InvalidArgument(
            "Federated fits need a Gaussian prior on the unconstrained scale. Use normal priors, and "
            "log-normal priors for positive parameters; or a model of tacit.conjugate."
        )
    diagonal = np.diag(np.diag(precision))
    if isinstance(family, DiagonalGaussian) and not np.allclose(precision, diagonal):
        raise InvalidArgument("The prior has correlations; pass guide=tacit.methods.FullRank().")
    packed = np.diag(precision) if isinstance(family, DiagonalGaussian) else precision
    eta = family.join(packed, gradient)
    if not family.is_proper(eta):
        raise InvalidArgument("The prior must be a proper distribution for all parameters.")
    return eta


def study_digest(settings: object, target: Target, rows: Rows) -> str:
    """A digest of settings, by their ``repr``, and of a target for rows of these types."""
    texts = [repr(settings), repr(target.family), target.model.digest(rows)]
    if isinstance(target, ConjugateTarget):
        eta = jnp.asarray(target.prior)
        texts.append(trace_digest(target.likelihood, eta, *rows.dummy_unit(), target.constants))
    prior = np.asarray(target.prior, np.float64).tobytes()
    return combined_digest(prior, *(strip_addresses(each).encode() for each in texts))


# Constants of the model, then precision and precision times mean of the cavity.
CavityConstants = tuple[ArrayTree, jax.Array, jax.Array]


def cavity_model(model: UnitModel, precision: jax.Array, weighted: jax.Array) -> UnitModel:
    """A model whose prior is a Gaussian given by natural parameters: the cavity.

    The cavity is among the constants, so that the next round uses the same compiled program.
    """
    return replace(_cavity_functions(model), constants=(model.constants, precision, weighted))


@lru_cache(maxsize=32)
def _cavity_functions(model: UnitModel) -> UnitModel:
    """The model with functions that take the cavity among their constants: one object for each model."""

    def constrain(vector: jax.Array, constants: CavityConstants) -> dict[str, jax.Array]:
        return model.constrain(vector, constants[0])

    def log_likelihood(
        vector: jax.Array,
        rows: Row,
        present: jax.Array,
        constants: CavityConstants,
        outcomes: Outcomes = None,
    ) -> jax.Array:
        return model.log_likelihood(vector, rows, present, constants[0], outcomes)

    def simulate(
        key: jax.Array, vector: jax.Array, rows: Row, present: jax.Array, constants: CavityConstants
    ) -> Mapping[str, jax.Array]:
        assert model.simulate is not None
        return model.simulate(key, vector, rows, present, constants[0])

    return replace(
        model,
        constrain=constrain,
        log_prior=_cavity_log_prior,
        log_likelihood=log_likelihood,
        simulate=None if model.simulate is None else simulate,
        sample_prior=None,
        predict=None,
    )


def _cavity_log_prior(vector: jax.Array, constants: CavityConstants) -> jax.Array:
    """The log density of the cavity, up to a constant."""
    _, precision, weighted = constants
    product = precision * vector if precision.ndim == 1 else precision @ vector
    return jnp.dot(weighted - product / 2, vector)


def family_for_guide(guide: Guide, dimension: int) -> Gaussian:
    """The exponential family of a guide's distributions."""
    if isinstance(guide, MeanField):
        return DiagonalGaussian(dimension)
    if isinstance(guide, FullRank):
        return FullGaussian(dimension)
    raise InvalidArgument(
        "Federated fits need a guide with natural parameters: tacit.methods.MeanField() or tacit.methods.FullRank()."
    )


def guide_params(family: Gaussian, eta: Vector) -> Params:
    """Parameters of a guide, from natural parameters."""
    mean = jnp.asarray(family.mean(eta), jnp.float32)
    if isinstance(family, DiagonalGaussian):
        return {
            "mean": mean,
            "log_scale": jnp.asarray(-np.log(family.split(eta)[0]) / 2, jnp.float32),
        }
    factor = np.linalg.cholesky(family.covariance(eta))
    return {
        "mean": mean,
        "log_scale": jnp.asarray(np.log(np.diag(factor)), jnp.float32),
        "below": jnp.asarray(np.tril(factor, -1), jnp.float32),
    }


def natural_parameters(family: Gaussian, params: Mapping[str, ArrayLike]) -> Vector:
    """Natural parameters in double precision, from parameters of a guide."""
    wide = {name: np.asarray(value, np.float64) for name, value in params.items()}
    if isinstance(family, DiagonalGaussian):
        return family.from_moments(wide["mean"], np.exp(2 * wide["log_scale"]))
    factor = np.tril(wide["below"], -1) + np.diag(np.exp(wide["log_scale"]))
    return family.from_moments(wide["mean"], factor @ factor.T)


def optimise_locally(
    target: NaturalTarget, method: Variational, gate: Gate, cavity: Vector, start: Vector, key: int
) -> Vector:
    """The posterior that maximises the local free energy, by private steps from ``start``."""
    family = gaussian_family(target)
    precision, weighted = (jnp.asarray(each, jnp.float32) for each in family.split(cavity))
    model = cavity_model(target.model, precision, weighted)
    params = guide_params(family, start)
    fit = fit_guide(method, model, gate, jax.random.key(key), params=params)
    return natural_parameters(family, fit.params)


def gaussian_family(target: NaturalTarget) -> Gaussian:
    """The family of the target, which must be Gaussian on the unconstrained scale."""
    family = target.family
    if not isinstance(family, DiagonalGaussian | FullGaussian):
        raise InvalidArgument(
            "Optimised() needs a Gaussian posterior. For this conjugate model pass "
            "method=tacit.federated.Partitioned(scheme=OneRelease(clip=...), num_rounds=1); see "
            "tacit.federated.schemes."
        )
    return family


def guide_for_family(family: Gaussian) -> Guide:
    """The guide with the distributions of a family."""
    return MeanField() if isinstance(family, DiagonalGaussian) else FullRank()
