"""What inference needs of any model, and what models share."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp

from tacit.errors import InvalidArgument

Parameters = dict[str, jax.Array]
Row = Mapping[str, Any]
# What was drawn in place of a row's outcomes, by site or by column; None stands for its own.
Outcomes = Mapping[str, jax.Array] | None


class Held(NamedTuple):
    """A coordinate of the vector that holds a whole number of a parameter."""

    place: int
    low: int
    high: int
    name: str


Discrete = tuple[Held, ...]
Labels = Mapping[str, Sequence[Sequence[str]]]


class AnyModel(Protocol):
    """What inference needs of a model: densities of one unconstrained vector.

    ``names`` are those of what `constrain` returns; ``labels`` names entries of arrays among them,
    axis by axis. ``columns`` are the columns it takes, None if it may take any. ``constants`` are
    public arrays; they are inputs of the compiled program and passed back as the last argument. ``searched`` is what might hold an array from outside.
    ``whole_units`` says that rows of a person share something that is integrated out, so
    that only all of them together have a density. ``discrete`` are the vector's coordinates
    that hold whole numbers. ``simulates`` says whether outcomes of a row can be drawn.
    """

    def __hash__(self) -> int: ...
    @property
    def constants(self) -> Any: ...
    @property
    def dimension(self) -> int: ...
    @property
    def names(self) -> tuple[str, ...]: ...
    @property
    def columns(self) -> tuple[str, ...] | None: ...
    @property
    def labels(self) -> Labels: ...
    @property
    def searched(self) -> tuple[Any, ...]: ...
    @property
    def whole_units(self) -> bool: ...
    @property
    def discrete(self) -> Discrete: ...
    @property
    def simulates(self) -> bool: ...

    def start(self, values: Mapping[str, Any]) -> Any:
        """The unconstrained vector of given values; zero for parameters not given."""
        ...

    def constrain(self, vector: jax.Array, constants: Any = None) -> Parameters:
        """Parameters on their supports."""
        ...

    def prior_density(self, vector: jax.Array, constants: Any = None) -> jax.Array:
        """Log prior of the unconstrained vector."""
        ...

    def row_density(
        self, vector: jax.Array, row: Row, constants: Any = None, outcomes: Outcomes = None
    ) -> jax.Array:
        """Log-likelihood of one row, or of outcomes in place of its own."""
        ...

    def unit_density(
        self,
        vector: jax.Array,
        rows: Row,
        present: jax.Array,
        constants: Any = None,
        outcomes: Outcomes = None,
    ) -> jax.Array:
        """Log-likelihood of all rows of a unit that are present, or of outcomes in their place."""
        ...

    def row_outcomes(
        self, key: jax.Array, vector: jax.Array, row: Row, constants: Any = None
    ) -> Outcomes:
        """What the row might have been observed to be, given its other columns: a draw."""
        ...

    def unit_outcomes(
        self,
        key: jax.Array,
        vector: jax.Array,
        rows: Row,
        present: jax.Array,
        constants: Any = None,
    ) -> Outcomes:
        """The same for all rows of a unit, which share the effects of their person."""
        ...


class Prediction(NamedTuple):
    """Of one observed site: a draw, the distribution's mean, and its logit if it is a yes or no.

    The mean of a category is the probabilities of all levels. None stands for what is not known.
    """

    draw: jax.Array | None
    mean: jax.Array | None
    logit: jax.Array | None


class RowByRow(ABC):
    """A model whose rows are independent given the parameters, those of one person too."""

    @abstractmethod
    def row_density(
        self, vector: jax.Array, row: Row, constants: Any = None, outcomes: Outcomes = None
    ) -> jax.Array:
        """Log-likelihood of one row, or of outcomes in place of its own."""

    @abstractmethod
    def row_outcomes(
        self, key: jax.Array, vector: jax.Array, row: Row, constants: Any = None
    ) -> Outcomes:
        """What the row might have been observed to be, given its other columns: a draw."""

    @property
    def whole_units(self) -> bool:
        """Never."""
        return False

    def unit_density(
        self,
        vector: jax.Array,
        rows: Row,
        present: jax.Array,
        constants: Any = None,
        outcomes: Outcomes = None,
    ) -> jax.Array:
        """Log-likelihood of all rows of a unit that are present: the sum of theirs."""

        def term(row: Row, outcomes: Outcomes) -> jax.Array:
            return self.row_density(vector, row, constants, outcomes)

        return jnp.where(present, jax.vmap(term)(rows, outcomes), 0.0).sum()

    def unit_outcomes(
        self,
        key: jax.Array,
        vector: jax.Array,
        rows: Row,
        present: jax.Array,
        constants: Any = None,
    ) -> Outcomes:
        """Columns of the outcomes of all rows of a unit, drawn row by row."""

        def drawn(key: jax.Array, row: Row) -> Outcomes:
            return self.row_outcomes(key, vector, row, constants)

        return jax.vmap(drawn)(jax.random.split(key, len(present)), rows)


@runtime_checkable
class DrawsPrior(Protocol):
    """A model that can draw from its prior."""

    def prior_vector(self, key: jax.Array) -> jax.Array:
        """An unconstrained vector, drawn from the prior."""
        ...


@runtime_checkable
class Predicts(Protocol):
    """A model that can say of a new row what its outcomes would be.

    ``predictors`` are the columns that it takes for that; ``made_up`` is a row, for the others.
    ``places`` has the names of the parameters that predictions need.
    """

    @property
    def columns(self) -> tuple[str, ...]: ...
    @property
    def predictors(self) -> tuple[str, ...]: ...
    @property
    def made_up(self) -> Mapping[str, Any]: ...
    @property
    def places(self) -> Iterable[str]: ...

    def predict(
        self, key: jax.Array, params: Parameters, row: Row, constants: Any = None
    ) -> dict[str, Prediction]:
        """What each outcome would be, given parameters."""
        ...


def like_columns(found: Any, row: Row) -> dict[str, jax.Array]:
    """Drawn columns, in the shape and kind that they have in the row."""
    if not isinstance(found, Mapping) or not found:
        raise InvalidArgument(
            "simulate must return a mapping from names of columns to values, "
            'as in {"count": drawn}.'
        )
    columns = {}
    for name, value in found.items():
        if name not in row:
            raise InvalidArgument(
                f"simulate returned {name!r}, which is no column; the columns are {', '.join(row)}."
            )
        here = jnp.asarray(row[name])
        if jnp.shape(value) != here.shape:
            raise InvalidArgument(
                f"simulate returned {name!r} of shape {jnp.shape(value)}; in a row it has shape "
                f"{here.shape}."
            )
        columns[name] = jnp.asarray(value).astype(here.dtype)
    return columns


def refuse_strangers(values: Mapping[str, Any], names: Iterable[str]) -> None:
    """Starting values are for the model's own parameters."""
    for name in values:
        if name not in names:
            raise InvalidArgument(
                f"start has {name!r}, which is no parameter; the parameters are {', '.join(names)}."
            )


def shaped_start(name: str, value: Any, shape: tuple[int, ...]) -> jax.Array:
    """Starting values have the shape of their parameter, or one that fills it."""
    try:
        return jnp.broadcast_to(jnp.asarray(value, jnp.float32), shape)
    except (TypeError, ValueError) as error:
        raise InvalidArgument(f"start[{name!r}] must be numbers of shape {shape}.") from error


def finite_start(vector: jax.Array) -> jax.Array:
    """Starting values must lie inside their supports."""
    if not jnp.isfinite(vector).all():
        raise InvalidArgument("start has a value that is not inside its parameter's support.")
    return vector
