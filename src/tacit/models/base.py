"""What inference needs of any model, and what models share."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import jax.typing
import numpy as np
from numpy.typing import ArrayLike

from tacit.errors import InvalidArgument

Parameters = dict[str, jax.Array]
Row = Mapping[str, Any]
# Drawn outcomes that replace those of a row, by site or by column; None keeps the row's own.
Outcomes = Mapping[str, jax.Array] | None
# Arrays in nested containers, as JAX takes them.
PyTree = jax.typing.ArrayLike | Sequence["PyTree"] | Mapping[str, "PyTree"] | None


class DiscreteCoordinate(NamedTuple):
    """A coordinate of the vector that holds a whole number of a parameter."""

    place: int
    low: int
    high: int
    name: str


DiscreteCoordinates = tuple[DiscreteCoordinate, ...]
Labels = Mapping[str, Sequence[Sequence[str]]]


class UnitModel(Protocol):
    """What inference needs of a model: log densities as functions of one unconstrained vector.

    Attributes:
        constants: Public arrays. They are inputs of the compiled program, and are passed back to
            the methods as the argument of this name.
        dimension: Length of the unconstrained vector.
        names: Names of what `constrain` returns.
        columns: Columns that the model takes; None if it may take any.
        labels: Names for the entries of array parameters, axis by axis.
        searched: Functions and objects of the user, to be searched for captured data.
        whole_units: Whether rows of a person share an effect that is integrated out. Then only all
            rows of a person together have a density.
        discrete: Coordinates of the vector that hold whole numbers.
        simulates: Whether outcomes of a row can be drawn. `tacit.Scoring` needs it.
    """

    def __hash__(self) -> int: ...
    @property
    def constants(self) -> PyTree: ...
    @property
    def dimension(self) -> int: ...
    @property
    def names(self) -> tuple[str, ...]: ...
    @property
    def columns(self) -> tuple[str, ...] | None: ...
    @property
    def labels(self) -> Labels: ...
    @property
    def searched(self) -> tuple[object, ...]: ...
    @property
    def whole_units(self) -> bool: ...
    @property
    def discrete(self) -> DiscreteCoordinates: ...
    @property
    def simulates(self) -> bool: ...

    def start(self, values: Mapping[str, ArrayLike]) -> jax.Array:
        """The unconstrained vector of given values; zero for parameters not given."""
        ...

    def constrain(self, vector: jax.Array, constants: PyTree = None) -> Parameters:
        """Parameters on their supports."""
        ...

    def prior_density(self, vector: jax.Array, constants: PyTree = None) -> jax.Array:
        """Log prior of the unconstrained vector."""
        ...

    def row_density(
        self, vector: jax.Array, row: Row, constants: PyTree = None, outcomes: Outcomes = None
    ) -> jax.Array:
        """Log-likelihood of one row, or of ``outcomes`` instead of its own."""
        ...

    def unit_density(
        self,
        vector: jax.Array,
        rows: Row,
        present: jax.Array,
        constants: PyTree = None,
        outcomes: Outcomes = None,
    ) -> jax.Array:
        """Log-likelihood of the rows of a unit that are present, or of ``outcomes`` instead."""
        ...

    def row_outcomes(
        self, key: jax.Array, vector: jax.Array, row: Row, constants: PyTree = None
    ) -> Outcomes:
        """A draw of the row's outcomes, given its other columns."""
        ...

    def unit_outcomes(
        self,
        key: jax.Array,
        vector: jax.Array,
        rows: Row,
        present: jax.Array,
        constants: PyTree = None,
    ) -> Outcomes:
        """A draw of the outcomes of all rows of a unit, which share the effects of their person."""
        ...


class Prediction(NamedTuple):
    """A prediction of one observed site.

    Attributes:
        draw: A draw of the outcome.
        mean: The mean of its distribution; for a category, the probabilities of all levels.
        logit: The log odds, if the outcome is binary.

    What is not known is None.
    """

    draw: jax.Array | None
    mean: jax.Array | None
    logit: jax.Array | None


class RowByRow(ABC):
    """A model whose rows are independent given the parameters, even rows of the same person."""

    @abstractmethod
    def row_density(
        self, vector: jax.Array, row: Row, constants: PyTree = None, outcomes: Outcomes = None
    ) -> jax.Array:
        """Log-likelihood of one row, or of ``outcomes`` instead of its own."""

    @abstractmethod
    def row_outcomes(
        self, key: jax.Array, vector: jax.Array, row: Row, constants: PyTree = None
    ) -> Outcomes:
        """A draw of the row's outcomes, given its other columns."""

    @property
    def whole_units(self) -> bool:
        """False: every row has a density of its own."""
        return False

    def unit_density(
        self,
        vector: jax.Array,
        rows: Row,
        present: jax.Array,
        constants: PyTree = None,
        outcomes: Outcomes = None,
    ) -> jax.Array:
        """The sum of the log-likelihoods of the rows of a unit that are present."""

        def term(row: Row, outcomes: Outcomes) -> jax.Array:
            return self.row_density(vector, row, constants, outcomes)

        if len(present) == 1:  # without an axis for the rows, which would only take time
            alone = jax.tree.map(lambda leaf: leaf[0], (rows, outcomes))
            return jnp.where(present[0], term(*alone), 0.0)
        return jnp.where(present, jax.vmap(term)(rows, outcomes), 0.0).sum()

    def unit_outcomes(
        self,
        key: jax.Array,
        vector: jax.Array,
        rows: Row,
        present: jax.Array,
        constants: PyTree = None,
    ) -> Outcomes:
        """A draw of the outcomes of all rows of a unit, row by row."""

        def drawn(key: jax.Array, row: Row) -> Outcomes:
            return self.row_outcomes(key, vector, row, constants)

        return jax.vmap(drawn)(jax.random.split(key, len(present)), rows)


@runtime_checkable
class DrawsPrior(Protocol):
    """A model that can draw from its prior."""

    def prior_vector(self, key: jax.Array) -> jax.Array:
        """A draw of the unconstrained vector from the prior."""
        ...


@runtime_checkable
class Predicts(Protocol):
    """A model that can predict the outcomes of new rows.

    Attributes:
        constants: Public arrays, passed back to `predict`.
        columns: Columns that the model takes.
        predictors: Those that a prediction needs.
        made_up: A made-up row, whose values fill the other columns.
        places: Names of the parameters that a prediction needs.
    """

    @property
    def constants(self) -> PyTree: ...
    @property
    def columns(self) -> tuple[str, ...]: ...
    @property
    def predictors(self) -> tuple[str, ...]: ...
    @property
    def made_up(self) -> Mapping[str, Any]: ...
    @property
    def places(self) -> Iterable[str]: ...

    def predict(
        self, key: jax.Array, params: Parameters, row: Row, constants: PyTree = None
    ) -> dict[str, Prediction]:
        """Predictions of each outcome of a new row, given parameters."""
        ...


def cast_to_columns(found: Mapping[str, ArrayLike], row: Row) -> dict[str, jax.Array]:
    """Drawn columns, checked against the shapes of the row and cast to its types."""
    if not isinstance(found, Mapping) or not found:
        raise InvalidArgument(
            'simulate must return a mapping from column names to values, such as {"count": drawn}.'
        )
    columns = {}
    for name, value in found.items():
        if name not in row:
            raise InvalidArgument(
                f"simulate returned {name!r}, which is not a column; the columns are {', '.join(row)}."
            )
        here = jnp.asarray(row[name])
        if np.shape(value) != here.shape:
            raise InvalidArgument(
                f"simulate returned {name!r} with shape {np.shape(value)}; in a row the column has "
                f"shape {here.shape}."
            )
        columns[name] = jnp.asarray(value).astype(here.dtype)
    return columns


def check_start_names(values: Mapping[str, ArrayLike], names: Iterable[str]) -> None:
    """Raises if a starting value is given for something that is not a parameter."""
    for name in values:
        if name not in names:
            raise InvalidArgument(
                f"start has {name!r}, which is not a parameter; the parameters are {', '.join(names)}."
            )


def broadcast_start(name: str, value: ArrayLike, shape: tuple[int, ...]) -> jax.Array:
    """A starting value, broadcast to the shape of its parameter."""
    try:
        return jnp.broadcast_to(jnp.asarray(value, jnp.float32), shape)
    except (TypeError, ValueError) as error:
        raise InvalidArgument(f"start[{name!r}] must be numbers of shape {shape}.") from error


def check_finite_start(vector: jax.Array) -> jax.Array:
    """The vector of starting values; raises if one lies outside its support."""
    if not jnp.isfinite(vector).all():
        raise InvalidArgument("start has a value outside its parameter's support.")
    return vector
