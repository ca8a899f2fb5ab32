"""Conjugate models: what their rows add up to is all that their posterior needs.

A conjugate model names a statistic of one row, a vector within public bounds. Its sum over
all rows says everything that the rows say about the parameters, so that one noisy sum is
enough for a fit. The same models have densities of rows, as any model has.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np

from tacit import _validate
from tacit.errors import InvalidArgument
from tacit.models.base import Discrete, Labels, Outcomes, Parameters, Prediction, Row, RowByRow
from tacit.models.model import Model, Parameter

Bounds = tuple[float, float]


class Limit(NamedTuple):
    """What a schema says of a column: its kind, and the lowest and highest encoded value."""

    kind: str
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Conjugate(RowByRow):
    """A model with a sufficient statistic of bounded length.

    ``bounds`` has the lowest and the highest value of each column that has bounds. They are
    public: declare them from knowledge of the field, or leave them out where a schema
    declares them. Values outside are moved to the nearest bound, each row by itself.
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
        """The columns that the model takes."""

    @property
    def predictors(self) -> Sequence[str]:
        """The columns that the outcome depends on."""
        return ()

    @property
    @abstractmethod
    def parameters(self) -> Mapping[str, Parameter]:
        """Shapes and supports of the parameters."""

    @abstractmethod
    def log_prior(self, params: Parameters, constants: Any) -> jax.Array:
        """Log prior density."""

    @abstractmethod
    def log_likelihood(self, params: Parameters, row: Row, constants: Any) -> jax.Array:
        """Log-likelihood of one row."""

    @abstractmethod
    def predict(
        self, key: jax.Array, params: Parameters, row: Row, constants: Any = None
    ) -> dict[str, Prediction]:
        """What the outcome of a new row would be, given parameters."""

    @property
    @abstractmethod
    def statistic_size(self) -> int:
        """How many numbers a row's statistic has."""

    @abstractmethod
    def statistic(self, row: Row, constants: Any) -> jax.Array:
        """A row's statistic: numbers from -1 to 1."""

    @abstractmethod
    def longest(self, order: int) -> float:
        """A bound on the 1-norm or the 2-norm of a row's statistic, from public numbers."""

    def within(self, limits: Mapping[str, Limit]) -> Self:
        """The same model with bounds, where it has none of its own, that a schema declares."""
        for name in self.columns:
            if name not in limits or limits[name].kind not in self.kinds:
                raise InvalidArgument(
                    f"{type(self).__name__} needs column {name!r} to be a single value in each "
                    f"row, of kind {' or '.join(self.kinds)}."
                )
        return self._with([limits[name] for name in self.columns])

    def _with(self, limits: Sequence[Limit]) -> Self:
        if self.bounds is not None:
            return self
        return replace(self, bounds=tuple((limit.low, limit.high) for limit in limits))

    def _known_bounds(self) -> tuple[Bounds, ...]:
        if self.bounds is None:
            raise InvalidArgument(
                f"{type(self).__name__} needs public bounds: pass bounds=((low, high),) for each "
                "of its columns, or a schema that declares them."
            )
        return self.bounds

    @cached_property
    def constants(self) -> dict[str, Any]:
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
        self, key: jax.Array, params: Parameters, row: Row, constants: Any
    ) -> dict[str, Any]:
        return {name: p.draw for name, p in self.predict(key, params, row, constants).items()}

    @property
    def dimension(self) -> int:
        """Length of the unconstrained vector."""
        return self._model.dimension

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters."""
        return tuple(self.parameters)

    @property
    def places(self) -> tuple[str, ...]:
        """The parameters that predictions need."""
        return self.names

    @property
    def made_up(self) -> dict[str, Any]:
        """A made-up row."""
        return dict.fromkeys(self.columns, np.float32(0))

    @property
    def labels(self) -> Labels:
        """None."""
        return {}

    @property
    def searched(self) -> tuple[Any, ...]:
        """What might hold an array of rows."""
        return (self.log_likelihood,)

    @property
    def discrete(self) -> Discrete:
        """None of the parameters is a whole number."""
        return ()

    def start(self, values: Mapping[str, Any]) -> jax.Array:
        """The unconstrained vector of given values; zero for parameters not given."""
        return self._model.start(values)

    def constrain(self, vector: jax.Array, constants: Any = None) -> Parameters:
        """Parameters on their supports."""
        return self._model.constrain(vector, constants)

    def prior_density(self, vector: jax.Array, constants: Any = None) -> jax.Array:
        """Log prior of the unconstrained vector."""
        return self._model.prior_density(vector, constants)

    def row_density(
        self, vector: jax.Array, row: Row, constants: Any = None, outcomes: Outcomes = None
    ) -> jax.Array:
        """Log-likelihood of one row."""
        return self._model.row_density(vector, row, constants, outcomes)

    @property
    def simulates(self) -> bool:
        """Whether outcomes can be drawn."""
        return self._model.simulates

    def row_outcomes(
        self, key: jax.Array, vector: jax.Array, row: Row, constants: Any = None
    ) -> Outcomes:
        """Columns of the row's outcomes, drawn."""
        return self._model.row_outcomes(key, vector, row, constants)


def _bounds(column: str, pair: Any) -> Bounds:
    try:
        low, high = pair
    except (TypeError, ValueError):
        raise InvalidArgument(f"The bounds of {column!r} must be a pair (low, high).") from None
    low = _validate.finite(f"the low bound of {column!r}", low)
    high = _validate.finite(f"the high bound of {column!r}", high)
    if low >= high:
        raise InvalidArgument(
            f"The low bound of {column!r} must be below the high one; got {low:g} and {high:g}."
        )
    return low, high


def log_normal_density(value: Any, mean: Any, variance: Any) -> jax.Array:
    """Log density of a normal."""
    return jnp.asarray(-0.5 * ((value - mean) ** 2 / variance + jnp.log(2 * jnp.pi * variance)))
