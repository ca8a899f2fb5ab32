"""The model as a site sees it: with the cavity as its prior, and a fit that starts at q."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, cast

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from tacit.errors import InvalidArgument
from tacit.federated.target import Target
from tacit.inference.guides import FullRank, Guide, MeanField, Params
from tacit.inference.variational import Variational, fit_guide
from tacit.models.base import PyTree
from tacit.models.gaussians import DiagonalGaussian, FullGaussian, Gaussian
from tacit.models.natural import Vector
from tacit.models.wrapped import WrappedModel
from tacit.privacy.gate import Gate

# Constants of the model, then precision and precision times mean of the cavity.
TiltedConstants = tuple[Any, jax.Array, jax.Array]


@dataclass(frozen=True)
class Tilted(WrappedModel):
    """A model whose prior is a Gaussian given by natural parameters: the cavity.

    The cavity is among the constants, and does not count for equality, so that the next round uses the
    same compiled program.
    """

    precision: jax.Array = field(compare=False)
    weighted: jax.Array = field(compare=False)

    declared_public: ClassVar[tuple[str, ...]] = ("precision", "weighted")

    @property
    def constants(self) -> TiltedConstants:
        """Those of the model, and the cavity."""
        return self.model.constants, self.precision, self.weighted

    def of_model(self, constants: PyTree) -> PyTree:
        """The model's constants, without the cavity."""
        return None if constants is None else cast("TiltedConstants", constants)[0]

    def prior_density(self, vector: jax.Array, constants: PyTree = None) -> jax.Array:
        """The log of the cavity, up to a constant."""
        given = self.constants if constants is None else cast("TiltedConstants", constants)
        _, precision, weighted = given
        bent = precision * vector if precision.ndim == 1 else precision @ vector
        return jnp.dot(weighted - bent / 2, vector)


@dataclass(frozen=True)
class Started:
    """A guide that starts at the posterior. The start does not count for equality."""

    guide: Guide
    params: Params = field(compare=False)

    declared_public: ClassVar[tuple[str, ...]] = ("params",)

    def start(self, dimension: int) -> Params:  # noqa: ARG002 (the parameters have it)
        """The parameters of the posterior."""
        return self.params

    def moved(self, params: Params, centre: jax.Array) -> Params:
        """As for the guide."""
        return self.guide.moved(params, centre)

    def noise_size(self, dimension: int) -> int:
        """As for the guide."""
        return self.guide.noise_size(dimension)

    def draw(self, params: Params, noise: jax.Array) -> jax.Array:
        """As for the guide."""
        return self.guide.draw(params, noise)

    def entropy(self, params: Params, noise: jax.Array) -> jax.Array:
        """As for the guide."""
        return self.guide.entropy(params, noise)

    def covariance(self, params: Params) -> jax.Array | None:
        """As for the guide."""
        return self.guide.covariance(params)


def family_of(guide: Guide, dimension: int) -> Gaussian:
    """The exponential family of a guide's distributions."""
    if isinstance(guide, MeanField):
        return DiagonalGaussian(dimension)
    if isinstance(guide, FullRank):
        return FullGaussian(dimension)
    raise InvalidArgument(
        "Federated fits need a guide with natural parameters: tacit.methods.MeanField() or tacit.methods.FullRank()."
    )


def params_of(family: Gaussian, eta: Vector) -> Params:
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


def natural_of(family: Gaussian, params: Mapping[str, ArrayLike]) -> Vector:
    """Natural parameters in double precision, from parameters of a guide."""
    wide = {name: np.asarray(value, np.float64) for name, value in params.items()}
    if isinstance(family, DiagonalGaussian):
        return family.from_moments(wide["mean"], np.exp(2 * wide["log_scale"]))
    factor = np.tril(wide["below"], -1) + np.diag(np.exp(wide["log_scale"]))
    return family.from_moments(wide["mean"], factor @ factor.T)


def optimised(
    target: Target, method: Variational, gate: Gate, cavity: Vector, start: Vector, key: int
) -> Vector:
    """The posterior that maximises the local free energy, by private steps from ``start``."""
    family = gaussian_of(target)
    precision, weighted = (jnp.asarray(each, jnp.float32) for each in family.split(cavity))
    model = Tilted(target.model, precision, weighted)
    guide = Started(guide_of(family), params_of(family, start))
    method = replace(method, guide=guide, start=None)
    fit = fit_guide(method, model, gate, jax.random.key(key))
    return natural_of(family, fit.params)


def gaussian_of(target: Target) -> Gaussian:
    """The family of the target, which must be Gaussian on the unconstrained scale."""
    family = target.family
    if not isinstance(family, DiagonalGaussian | FullGaussian):
        raise InvalidArgument(
            "Optimised() needs a Gaussian posterior. For this conjugate model pass "
            "method=tacit.federated.Partitioned(scheme=OneRelease(clip=...), num_rounds=1); see "
            "tacit.federated.schemes."
        )
    return family


def guide_of(family: Gaussian) -> Guide:
    """The guide with the distributions of a family."""
    return MeanField() if isinstance(family, DiagonalGaussian) else FullRank()
