"""The model as a site sees it: the cavity in place of the prior, and a fit that starts at q."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from tacit.errors import InvalidArgument
from tacit.federated.natural import DiagonalGaussian, FullGaussian, Gaussian, Vector
from tacit.federated.target import Target
from tacit.inference.guides import FullRank, Guide, MeanField, Params
from tacit.inference.variational import Variational, fit_guides
from tacit.models.base import AnyModel, Discrete, Labels, Outcomes, Parameters, Row
from tacit.privacy.gate import Gate


@dataclass(frozen=True)
class Tilted:
    """A model whose prior is a Gaussian given by natural parameters: the cavity.

    The cavity is among the constants, so that the next round compiles nothing anew; two of
    these are equal if their models are.
    """

    model: AnyModel
    precision: Any = field(compare=False)
    weighted: Any = field(compare=False)

    declared_public: ClassVar[tuple[str, ...]] = ("precision", "weighted")

    @property
    def constants(self) -> Any:
        """The model's own, and the cavity."""
        return self.model.constants, self.precision, self.weighted

    @property
    def dimension(self) -> int:
        """As the model."""
        return self.model.dimension

    @property
    def names(self) -> tuple[str, ...]:
        """As the model."""
        return self.model.names

    @property
    def columns(self) -> tuple[str, ...] | None:
        """As the model."""
        return self.model.columns

    @property
    def labels(self) -> Labels:
        """As the model."""
        return self.model.labels

    @property
    def searched(self) -> tuple[Any, ...]:
        """As the model."""
        return self.model.searched

    @property
    def whole_units(self) -> bool:
        """As the model."""
        return self.model.whole_units

    @property
    def discrete(self) -> Discrete:
        """As the model."""
        return self.model.discrete

    def start(self, values: Mapping[str, Any]) -> Any:
        """As the model."""
        return self.model.start(values)

    def constrain(self, vector: jax.Array, constants: Any = None) -> Parameters:
        """As the model."""
        return self.model.constrain(vector, constants and constants[0])

    def prior_density(self, vector: jax.Array, constants: Any = None) -> jax.Array:
        """The log of the cavity, up to a constant."""
        _, precision, weighted = self.constants if constants is None else constants
        bent = precision * vector if precision.ndim == 1 else precision @ vector
        return jnp.dot(weighted - bent / 2, vector)

    def row_density(
        self, vector: jax.Array, row: Row, constants: Any = None, outcomes: Outcomes = None
    ) -> jax.Array:
        """As the model."""
        return self.model.row_density(vector, row, constants and constants[0], outcomes)

    def unit_density(
        self,
        vector: jax.Array,
        rows: Row,
        present: jax.Array,
        constants: Any = None,
        outcomes: Outcomes = None,
    ) -> jax.Array:
        """As the model."""
        given = constants and constants[0]
        return self.model.unit_density(vector, rows, present, given, outcomes)

    @property
    def simulates(self) -> bool:
        """As the model."""
        return self.model.simulates

    def row_outcomes(
        self, key: jax.Array, vector: jax.Array, row: Row, constants: Any = None
    ) -> Outcomes:
        """As the model."""
        return self.model.row_outcomes(key, vector, row, constants and constants[0])

    def unit_outcomes(
        self,
        key: jax.Array,
        vector: jax.Array,
        rows: Row,
        present: jax.Array,
        constants: Any = None,
    ) -> Outcomes:
        """As the model."""
        given = constants and constants[0]
        return self.model.unit_outcomes(key, vector, rows, present, given)


@dataclass(frozen=True)
class Started:
    """A guide that starts where the posterior is; equal to others of the same family."""

    guide: Guide
    params: Params = field(compare=False)

    declared_public: ClassVar[tuple[str, ...]] = ("params",)

    def start(self, dimension: int) -> Params:  # noqa: ARG002 (it is that of the parameters)
        """The posterior's parameters."""
        return self.params

    def moved(self, params: Params, centre: jax.Array) -> Params:
        """As the guide."""
        return self.guide.moved(params, centre)

    def noise_size(self, dimension: int) -> int:
        """As the guide."""
        return self.guide.noise_size(dimension)

    def draw(self, params: Params, noise: jax.Array) -> jax.Array:
        """As the guide."""
        return self.guide.draw(params, noise)

    def entropy(self, params: Params, noise: jax.Array) -> jax.Array:
        """As the guide."""
        return self.guide.entropy(params, noise)

    def covariance(self, params: Params) -> jax.Array | None:
        """As the guide."""
        return self.guide.covariance(params)


def family_of(guide: Any, dimension: int) -> Gaussian:
    """The family whose natural parameters a guide's distributions have."""
    if isinstance(guide, MeanField):
        return DiagonalGaussian(dimension)
    if isinstance(guide, FullRank):
        return FullGaussian(dimension)
    raise InvalidArgument(
        "Sites add natural parameters, which these guides have: tacit.MeanField(), tacit.FullRank()."
    )


def params_of(family: Gaussian, eta: Vector) -> Params:
    """A guide's parameters for natural ones."""
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


def natural_of(family: Gaussian, params: Mapping[str, Any]) -> Vector:
    """Natural parameters of a guide's own, in double precision."""
    wide = {name: np.asarray(value, np.float64) for name, value in params.items()}
    if isinstance(family, DiagonalGaussian):
        return family.from_moments(wide["mean"], np.exp(2 * wide["log_scale"]))
    factor = np.tril(wide["below"], -1) + np.diag(np.exp(wide["log_scale"]))
    return family.from_moments(wide["mean"], factor @ factor.T)


def optimised(
    target: Target, method: Variational, gate: Gate, cavity: Vector, start: Vector, key: int
) -> Vector:
    """The posterior after the local free energy was maximised through a gate, from ``start``."""
    family = gaussian_of(target)
    precision, weighted = (jnp.asarray(each, jnp.float32) for each in family.split(cavity))
    model = Tilted(target.model, precision, weighted)
    guide = Started(guide_of(family), params_of(family, start))
    method = replace(method, guide=guide, start=None)
    fit = fit_guides(method, model, [gate], [jax.random.key(key)])[0]
    return natural_of(family, fit.params)


def gaussian_of(target: Target) -> Gaussian:
    """The target's family, which must be Gaussian on the scale of the model's vector."""
    family = target.family
    if not isinstance(family, DiagonalGaussian | FullGaussian):
        raise InvalidArgument(
            "Optimisation needs a Gaussian posterior; release statistics instead."
        )
    return family


def guide_of(family: Gaussian) -> Guide:
    """The guide whose distributions are a family's."""
    return MeanField() if isinstance(family, DiagonalGaussian) else FullRank()
