"""Conjugate models, whose posterior depends on the rows only through a sum.

A conjugate model defines a statistic of one row: a vector within public bounds. The sum over all rows
is sufficient for the parameters, so one noisy sum is enough for a fit. The prior and the posterior belong
to one exponential family, and every row adds to its natural parameters; federated fits use this form. Like
every model, conjugate models also have a log-likelihood of each row.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from numpy.typing import NDArray

from tacit import _validate
from tacit.errors import InvalidArgument
from tacit.models.base import (
    Discrete,
    Labels,
    Outcomes,
    Parameters,
    Prediction,
    PyTree,
    Row,
    RowByRow,
)
from tacit.models.model import Model, Parameter
from tacit.models.natural import ExponentialFamily, Vector

Bounds = tuple[float, float]
Constants = Mapping[str, jax.Array | NDArray[np.float32]]


class Limit(NamedTuple):
    """The kind of a column in a schema, and its lowest and highest encoded value."""

    kind: str
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Conjugate(RowByRow):
    """A model with a sufficient statistic of bounded length.

    Args:
        bounds: ``(low, high)`` for each column. Bounds are public: take them from knowledge of the
            field, never from the data. Leave them out if a schema declares them. Values outside the
            bounds are moved to the nearest bound.
    """

    bounds: tuple[Bounds, ...] | None = None

    kinds: ClassVar[tuple[str, ...]] = ("number", "count", "binary")
    declared_public: ClassVar[tuple[str, ...]] = ("bounds", "constants")

    def __post_init__(self) -> None:
        if self.bounds is None:
            return
        if len(self.bounds) != len(self.columns):
            raise InvalidArgument(
                f"bounds needs (low, high) for each of {', '.join(self.columns)}; "
                f"got {len(self.bounds)} pairs."
            )
        checked = tuple(_bounds(*pair) for pair in zip(self.columns, self.bounds, strict=True))
        object.__setattr__(self, "bounds", checked)

    @property
    @abstractmethod
    def columns(self) -> tuple[str, ...]:
        """The columns of the model."""

    @property
    def predictors(self) -> Sequence[str]:
        """The columns that the outcome depends on."""
        return ()

    @property
    @abstractmethod
    def parameters(self) -> Mapping[str, Parameter]:
        """Shapes and supports of the parameters."""

    @abstractmethod
    def log_prior(self, params: Parameters, constants: Constants) -> jax.Array:
        """Log prior density."""

    @abstractmethod
    def log_likelihood(self, params: Parameters, row: Row, constants: Constants) -> jax.Array:
        """Log-likelihood of one row."""

    @abstractmethod
    def predict(
        self, key: jax.Array, params: Parameters, row: Row, constants: Constants | None = None
    ) -> dict[str, Prediction]:
        """A prediction of the outcome of a new row, given parameters."""

    @property
    @abstractmethod
    def statistic_size(self) -> int:
        """Length of a row's statistic."""

    @abstractmethod
    def statistic(self, row: Row, constants: Constants) -> jax.Array:
        """The statistic of a row: numbers from -1 to 1."""

    @abstractmethod
    def longest(self, order: int) -> float:
        """A public bound on the 1-norm or the 2-norm of a row's statistic."""

    @property
    @abstractmethod
    def family(self) -> ExponentialFamily:
        """The exponential family of the prior and the posterior."""

    @property
    @abstractmethod
    def natural_prior(self) -> Vector:
        """Natural parameters of the prior."""

    @abstractmethod
    def natural_statistic(self, row: Row, constants: Constants) -> jax.Array:
        """The vector that a row adds to the natural parameters, in the columns' units."""

    @abstractmethod
    def from_draws(self, drawn: Vector) -> dict[str, Vector]:
        """Parameters by name, from draws [draws, numbers] of the family."""

    def within(self, limits: Mapping[str, Limit]) -> Self:
        """A copy with the bounds that a schema declares, unless the model has its own."""
        for name in self.columns:
            if name not in limits or limits[name].kind not in self.kinds:
                raise InvalidArgument(
                    f"{type(self).__name__} needs column {name!r} to have one value in each row, of "
                    f"kind {' or '.join(self.kinds)}."
                )
        return self._with([limits[name] for name in self.columns])

    def _with(self, limits: Sequence[Limit]) -> Self:
        if self.bounds is not None:
            return self
        return replace(self, bounds=tuple((limit.low, limit.high) for limit in limits))

    def _known_bounds(self) -> tuple[Bounds, ...]:
        if self.bounds is None:
            raise InvalidArgument(
                f"{type(self).__name__} needs public bounds: pass bounds=((low, high), ...) with a "
                "pair for each of its columns, or a schema that declares them."
            )
        return self.bounds

    @cached_property
    def constants(self) -> Constants:
        """Public inputs of the compiled program: the bounds."""
        low, high = zip(*self._known_bounds(), strict=True)
        return {"low": np.asarray(low, np.float32), "high": np.asarray(high, np.float32)}

    @cached_property
    def _model(self) -> Model:
        return Model(
            parameters=self.parameters,
            log_prior=self.log_prior,
            log_likelihood=self.log_likelihood,
            constants=self.constants,
            simulate=self._simulated,
        )

    def _simulated(
        self, key: jax.Array, params: Parameters, row: Row, constants: Constants
    ) -> dict[str, Any]:
        return {name: p.draw for name, p in self.predict(key, params, row, constants).items()}

    @property
    def dimension(self) -> int:
        """Length of the unconstrained vector."""
        return self._model.dimension

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the parameters."""
        return tuple(self.parameters)

    @property
    def places(self) -> tuple[str, ...]:
        """Names of the parameters that predictions need."""
        return self.names

    @property
    def made_up(self) -> dict[str, Any]:
        """A made-up row."""
        return dict.fromkeys(self.columns, np.float32(0))

    @property
    def labels(self) -> Labels:
        """No axis has names."""
        return {}

    @property
    def searched(self) -> tuple[Any, ...]:
        """What the boundary searches for arrays of rows."""
        return (self.log_likelihood,)

    @property
    def discrete(self) -> Discrete:
        """No parameter is a whole number."""
        return ()

    def start(self, values: Mapping[str, Any]) -> jax.Array:
        """The unconstrained vector of given values; zero for parameters not given."""
        return self._model.start(values)

    def constrain(self, vector: jax.Array, constants: PyTree = None) -> Parameters:
        """Parameters on their supports."""
        return self._model.constrain(vector, constants)

    def prior_density(self, vector: jax.Array, constants: PyTree = None) -> jax.Array:
        """Log prior of the unconstrained vector."""
        return self._model.prior_density(vector, constants)

    def row_density(
        self,
        vector: jax.Array,
        row: Row,
        constants: PyTree = None,
        outcomes: Outcomes = None,
    ) -> jax.Array:
        """Log-likelihood of one row."""
        return self._model.row_density(vector, row, constants, outcomes)

    @property
    def simulates(self) -> bool:
        """Whether outcomes can be drawn."""
        return self._model.simulates

    def row_outcomes(
        self, key: jax.Array, vector: jax.Array, row: Row, constants: PyTree = None
    ) -> Outcomes:
        """A draw of the row's outcome, by column."""
        return self._model.row_outcomes(key, vector, row, constants)


@dataclass(frozen=True)
class OneColumn(Conjugate):
    """A model of one column, without predictors."""

    column: str

    @property
    def columns(self) -> tuple[str, ...]:
        """The column of the outcome."""
        return (self.column,)

    @abstractmethod
    def outcome_of(self, key: jax.Array, params: Parameters) -> Prediction:
        """A prediction of the outcome, given parameters."""

    def predict(
        self,
        key: jax.Array,
        params: Parameters,
        row: Row,  # noqa: ARG002
        constants: Constants | None = None,  # noqa: ARG002
    ) -> dict[str, Prediction]:
        """A prediction of the outcome, the same for every row."""
        return {self.column: self.outcome_of(key, params)}


def _bounds(column: str, pair: Any) -> Bounds:
    """A checked pair of bounds."""
    try:
        low, high = pair
    except (TypeError, ValueError):
        raise InvalidArgument(f"The bounds of {column!r} must be a pair (low, high).") from None
    low = _validate.finite(f"the low bound of {column!r}", low)
    high = _validate.finite(f"the high bound of {column!r}", high)
    if low >= high:
        raise InvalidArgument(
            f"The low bound of {column!r} must be below the high bound; got {low:g} and {high:g}."
        )
    return low, high


def log_normal_density(value: ArrayLike, mean: ArrayLike, variance: ArrayLike) -> jax.Array:
    """Log density of a normal distribution."""
    value, mean, variance = map(jnp.asarray, (value, mean, variance))
    return -0.5 * ((value - mean) ** 2 / variance + jnp.log(2 * jnp.pi * variance))
