"""The form in which inference takes any model: a record of functions of one unconstrained vector."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit._typing import ArrayTree
from tacit.errors import InvalidArgument
from tacit.models.interpretation import Interpretation

if TYPE_CHECKING:
    from tacit.privacy.rows import Rows

Parameters = dict[str, jax.Array]
Row = Mapping[str, jax.Array]
# Drawn outcomes that replace those of rows, by site or by column; None keeps the rows' own.
Outcomes = Mapping[str, jax.Array] | None
Labels = Mapping[str, Sequence[Sequence[str]]]
PublicArrays = Mapping[str, jax.Array | NDArray[np.generic]]


class DiscreteCoordinate(NamedTuple):
    """A coordinate of the unconstrained vector that holds a whole number of a parameter."""

    coordinate: int
    low: int
    high: int
    name: str


DiscreteCoordinates = tuple[DiscreteCoordinate, ...]


class UnitWeights(NamedTuple):
    """How often the log-likelihood of a unit counts.

    Attributes:
        typical: A typical weight, by declared bounds.
        relative: ``relative(rows, present)``: the unit's weight over the typical one. Where its rows differ, it is
            that of the sum of their squares.
    """

    typical: float
    relative: Callable[[Row, jax.Array], jax.Array]


class Prediction(NamedTuple):
    """A prediction of one outcome of a row. What is not known is None.

    Attributes:
        draw: A draw of the outcome.
        mean: The mean of its distribution; for a category, the probabilities of all levels.
        logit: The log odds, if the outcome is binary.
    """

    draw: jax.Array | None
    mean: jax.Array | None
    logit: jax.Array | None


class Place(NamedTuple):
    """Where the outcome of a row lies in its distribution.

    Attributes:
        below: The probability of an outcome that is lower.
        until: The probability of this outcome or a lower one. Of a censored outcome, the two are the probabilities up to the
            ends of what is known.
        predicted: The mean, where it is known; of levels, that of their places.
        value: The outcome as a number; NaN for a censored time.
        likely: The likeliest level; NaN if outcomes are numbers.
    """

    below: jax.Array
    until: jax.Array
    predicted: jax.Array
    value: jax.Array
    likely: jax.Array


@dataclass(frozen=True, kw_only=True, eq=False)
class UnitModel:
    """A model as inference takes it: log densities of one unconstrained vector, unit by unit.

    ``rows`` are the rows of one unit, columns with an axis for rows, and ``present`` says which of
    them are real. ``constants`` are the field of this name, which is an input of compiled programs
    and is therefore passed back to every function.

    Two models are equal if they have the same functions. Constants do not count, so that models
    that differ in nothing else share a compiled program.

    Attributes:
        names: Names of what `constrain` returns.
        parameters: Those of them that are parameters; others are derived from these.
        dimension: Length of the unconstrained vector.
        columns: Columns that the model takes; None if it may take any.
        constrain: ``constrain(vector, constants)``: parameters on their supports, by name.
        unconstrain: ``unconstrain(values)``: the vector of given values; zero where none is given.
        log_prior: ``log_prior(vector, constants)``, with the Jacobian of the map.
        log_likelihood: ``log_likelihood(vector, rows, present, constants, outcomes=None)`` of the
            rows of a unit that are present, or of ``outcomes`` instead of their own.
        simulate: ``simulate(key, vector, rows, present, constants)``: a draw of the outcomes of all
            rows of a unit, given their other columns; None if outcomes cannot be drawn.
        sample_prior: ``sample_prior(key)``: a draw of the vector from the prior; None if there is
            no direct way.
        predict: ``predict(key, parameters, row, constants)``: a `Prediction` of each outcome of a
            new row, by name; None if the model has no rule for new rows.
        place: ``place(vector, row, constants, outcomes=None)``: the `Place` of a row's outcome, or of ``outcomes``, in
            its distribution; None if the model has no distribution functions.
        predictors: Columns that a prediction needs.
        dummy_row: A dummy row, whose values fill the other columns.
        constants: Public arrays.
        arrays: Those of them that the user declared, by name.
        labels: Names for the entries of array parameters, axis by axis.
        discrete: Coordinates of the vector that hold whole numbers.
        has_person_effects: Whether rows of a person share an effect that is integrated out.
        may_be_missing: Columns that the model integrates out where they are missing; rows without them are kept.
        weights: What the log-likelihood of each unit is multiplied by; None if nothing.
        interpretation: How to interpret the parameters, if the model says so.
        user_functions: Functions and objects of the user, to be searched for captured data.
        known_digest: A digest of all that the functions follow from, if that can be written down, as for a formula.
        source: The model that this was made from, as its own module represents it.
    """

    names: tuple[str, ...]
    parameters: tuple[str, ...]
    dimension: int
    columns: tuple[str, ...] | None
    constrain: Callable[..., Parameters]
    unconstrain: Callable[[Mapping[str, ArrayLike]], jax.Array]
    log_prior: Callable[..., jax.Array]
    log_likelihood: Callable[..., jax.Array]
    simulate: Callable[..., Mapping[str, jax.Array]] | None
    sample_prior: Callable[[jax.Array], jax.Array] | None = None
    predict: Callable[..., dict[str, Prediction]] | None = None
    place: Callable[..., Place] | None = None
    predictors: tuple[str, ...] = ()
    dummy_row: Mapping[str, ArrayLike] = field(default_factory=dict)
    constants: ArrayTree = None
    arrays: PublicArrays = field(default_factory=dict)
    labels: Labels = field(default_factory=dict)
    discrete: DiscreteCoordinates = ()
    has_person_effects: bool = False
    may_be_missing: tuple[str, ...] = ()
    weights: UnitWeights | None = None
    interpretation: Interpretation | None = None
    user_functions: tuple[object, ...] = ()
    known_digest: str | None = None
    source: object = None

    declared_public: ClassVar[tuple[str, ...]] = ("arrays", "constants", "dummy_row", "labels")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UnitModel) and self._functions == other._functions

    def __hash__(self) -> int:
        return hash(self._functions)

    @property
    def _functions(self) -> tuple[object, ...]:
        return self.log_prior, self.log_likelihood, self.simulate

    def program_key(self, name: str) -> str | None:
        """The key by which a program of the model's functions is stored; None if only a trace determines it."""
        return None if self.known_digest is None else f"{name} {self.known_digest}"

    def digest(self, rows: "Rows") -> str:
        """A digest of prior, likelihood and draws of outcomes, for rows of these types."""
        from tacit.privacy.checkpoint import combined_digest, density_digest, trace_digest

        if self.known_digest is not None:
            return self.known_digest
        vector, unit = jnp.zeros(self.dimension), rows.dummy_unit()
        parts = [
            repr(self.names),
            density_digest(self.log_prior, vector, self.constants),
            density_digest(self.log_likelihood, vector, *unit, self.constants),
        ]
        if (simulate := self.simulate) is not None:

            def draw(words: jax.Array, *given: ArrayTree) -> Mapping[str, jax.Array]:
                return simulate(jax.random.wrap_key_data(words), *given)

            words = jnp.zeros(2, jnp.uint32)
            parts.append(trace_digest(draw, words, vector, *unit, self.constants))
        return combined_digest(*(part.encode() for part in parts))

    def describe(self) -> str:
        """What is fitted, in one line: the formula, or outcomes, columns and parameters by name."""
        if self.interpretation is not None:
            return f"{self.interpretation.formula} ({self.interpretation.kind})"
        names = f"model with {', '.join(self.names)}"
        if self.columns is None:
            return names
        if self.predict is None:
            return f"{', '.join(self.columns)}; {names}"
        outcomes = [name for name in self.columns if name not in self.predictors]
        given = f" given {', '.join(self.predictors)}" if self.predictors else ""
        return f"{', '.join(outcomes)}{given}; {names}"


def single_row_unit(row: Row) -> tuple[Row, jax.Array]:
    """The rows of a unit that has this row only, and that it is present."""
    return {name: jnp.asarray(value)[None] for name, value in row.items()}, jnp.ones(1, jnp.bool_)


def sum_over_rows(
    row_log_likelihood: Callable[[jax.Array, Row, ArrayTree, Outcomes], jax.Array],
) -> Callable[..., jax.Array]:
    """The log-likelihood of units whose rows are independent given the parameters.

    Args:
        row_log_likelihood: The log-likelihood of a vector, one row, constants and outcomes.

    Returns:
        The function that `UnitModel.log_likelihood` is.
    """

    def log_likelihood(
        vector: jax.Array,
        rows: Row,
        present: jax.Array,
        constants: ArrayTree = None,
        outcomes: Outcomes = None,
    ) -> jax.Array:
        def term(row: Row, outcomes: Outcomes) -> jax.Array:
            return row_log_likelihood(vector, row, constants, outcomes)

        if len(present) == 1:  # without an axis of length one, which would cost time
            alone = jax.tree.map(lambda leaf: leaf[0], (rows, outcomes))
            return jnp.where(present[0], term(*alone), 0.0)
        return jnp.where(present, jax.vmap(term)(rows, outcomes), 0.0).sum()

    return log_likelihood


def simulate_each_row(
    simulate_row: Callable[[jax.Array, jax.Array, Row, ArrayTree], Mapping[str, jax.Array]],
) -> Callable[..., Mapping[str, jax.Array]]:
    """Draws of the outcomes of units whose rows are independent given the parameters.

    Args:
        simulate_row: Draws the outcomes of one row, from a key, a vector, the row and constants.

    Returns:
        The function that `UnitModel.simulate` is.
    """

    def simulate(
        key: jax.Array,
        vector: jax.Array,
        rows: Row,
        present: jax.Array,
        constants: ArrayTree = None,
    ) -> Mapping[str, jax.Array]:
        if len(present) == 1:
            alone = jax.tree.map(lambda leaf: leaf[0], rows)
            drawn = simulate_row(key, vector, alone, constants)
            return {name: value[None] for name, value in drawn.items()}
        keys = jax.random.split(key, len(present))
        return jax.vmap(lambda key, row: simulate_row(key, vector, row, constants))(keys, rows)

    return simulate


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


_SIMULATED_PREFIX = "drawn "


def fit_simulated_outcomes(model: UnitModel) -> UnitModel:
    """A model that takes its outcomes from fields of a simulated row, where `add_simulated_outcomes` put them.

    Everything else is the model's own. So a method does with a simulated table exactly what it does
    with a real one, whatever the outcomes are: columns of the table, or functions of them.
    """

    def log_likelihood(
        vector: jax.Array,
        rows: Row,
        present: jax.Array,
        constants: ArrayTree = None,
        outcomes: Outcomes = None,
    ) -> jax.Array:
        if outcomes is None:
            outcomes = {
                name.removeprefix(_SIMULATED_PREFIX): values
                for name, values in rows.items()
                if name.startswith(_SIMULATED_PREFIX)
            }
        return model.log_likelihood(vector, rows, present, constants, outcomes)

    # A simulated row has fields beside the columns.
    return replace(model, columns=None, log_likelihood=log_likelihood)


def add_simulated_outcomes(
    columns: Mapping[str, NDArray[Any]], outcomes: Mapping[str, NDArray[Any]]
) -> dict[str, NDArray[Any]]:
    """Columns of a simulated table, with drawn outcomes where `fit_simulated_outcomes` looks for them."""
    drawn = {f"{_SIMULATED_PREFIX}{name}": values for name, values in outcomes.items()}
    return {**columns, **drawn}


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
