"""Models written in PyMC: the likelihood of a row is that of the model with this row only.

Data containers (`pm.Data`) over rows are columns. The model's graph is rebuilt for one row, with
inputs instead of the containers, so rows cannot interact. The prior is a function that takes no
column. `tacit.models.pymc_graph` checks on made-up rows that this is also what the model means when
it is given many rows.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Protocol, cast, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from tacit.errors import InvalidArgument
from tacit.models.base import (
    Outcomes,
    Parameters,
    Prediction,
    PyTree,
    Row,
    RowByRow,
    broadcast_start,
    cast_to_columns,
    check_finite_start,
    check_start_names,
)
from tacit.models.jax_model import AdaptedModel, Shape

JaxFunction = Callable[..., list[jax.Array]]


@dataclass(frozen=True, eq=False)
class PyMC:
    """A PyMC model with options.

    Containers made by ``pm.Data(name, values, dims=row_dim)`` are columns, by name. Their values
    are not used.

    Args:
        model: The PyMC model.
        row_dim: The dim over rows, if it is not the first dim of the observed variables.
        constants: Names of containers that are not over rows and whose values are public.
    """

    model: Any
    _: KW_ONLY
    row_dim: str | None = None
    constants: Sequence[str] = ()


@runtime_checkable
class _HasCoords(Protocol):
    coords: Any


def is_bambi(model: object) -> bool:
    """Whether a model was made by Bambi, which need not be installed."""
    if type(model).__module__.split(".")[0] == "bambi":
        return True
    return isinstance(model, _HasCoords) and "__obs__" in (
        model.coords or {}
    )  # its name for the dim over rows


class PyMCFunctions(NamedTuple):
    """The parts of a model as JAX functions.

    Attributes:
        values: Parameters and what is derived from them, of unconstrained numbers.
        prior: Terms of the log prior, of unconstrained numbers.
        numbers: Unconstrained numbers, of parameters.
        row: Terms of the log-likelihood, of unconstrained numbers and columns.
        expected: Means and logits by kind and outcome, of parameters and columns.
        draw: Draws of the outcomes, of parameters, keys and columns; None if JAX has none.
    """

    values: JaxFunction
    prior: JaxFunction
    numbers: JaxFunction
    row: JaxFunction
    expected: Mapping[tuple[str, str], JaxFunction]
    draw: JaxFunction | None


@dataclass(frozen=True, kw_only=True, eq=False)  # equal only to itself, and hashable
class PyMCModel(AdaptedModel, RowByRow):
    """A PyMC model as log densities of one unconstrained vector, row by row.

    Attributes:
        functions: Its parts as JAX functions.
        dtypes: Types of the containers of its columns.
        parameter_shapes: Shapes of its parameters.
        outcomes: Shapes of the outcomes in one row.
        drawable: The column of each outcome, if draws can replace the columns; empty if not.
        num_keys: The number of random keys that a draw takes.
    """

    functions: PyMCFunctions
    dtypes: Mapping[str, np.dtype[Any]]
    parameter_shapes: Mapping[str, Shape]
    outcomes: Mapping[str, Shape]
    drawable: Mapping[str, str]
    num_keys: int

    # PyMC's graph was searched for captured arrays when the model was adapted.
    declared_public: ClassVar[tuple[str, ...]] = (
        "arrays", "constants", "drawable", "dtypes", "functions", "labels", "made_up", "outcomes",
        "parameter_shapes", "places",
    )  # fmt: skip

    @cached_property
    def constants(self) -> dict[str, Any]:
        """Public inputs of the compiled program."""
        return dict(self.arrays)

    @property
    def searched(self) -> tuple[object, ...]:
        """Nothing: PyMC's graph was searched for captured arrays when the model was adapted."""
        return ()

    def numbers(self, vector: jax.Array) -> list[jax.Array]:
        """The unconstrained numbers of each parameter, in the graph's order."""
        return [vector[p.start : p.stop].reshape(p.shape) for p in self.places.values()]

    def public(self, constants: PyTree = None) -> list[Any]:
        """The constants that were passed back, or the model's own, in the graph's order."""
        given = self.constants if constants is None else cast(Mapping[str, Any], constants)
        return [given[name] for name in self.arrays]

    def single(self, row: Row) -> list[jax.Array]:
        """The columns of a table that has this row only, in the graph's order."""
        return self.table({name: jnp.asarray(row[name])[None] for name in self.columns})

    def table(self, columns: Mapping[str, ArrayLike]) -> list[jax.Array]:
        """Columns in the order and with the types that the graph takes."""
        return [jnp.asarray(columns[n]).astype(self.dtypes[n]) for n in self.columns]

    def constrain(self, vector: jax.Array, constants: PyTree = None) -> Parameters:
        """Parameters on their supports, and what the model derives from them."""
        values = self.functions.values(*self.numbers(vector), *self.public(constants))
        return dict(zip(self.names, values, strict=True))

    def prior_density(self, vector: jax.Array, constants: PyTree = None) -> jax.Array:
        """Log prior of the unconstrained vector, with the Jacobian of its map."""
        terms = self.functions.prior(*self.numbers(vector), *self.public(constants))
        return sum((each.sum() for each in terms), start=jnp.zeros((), vector.dtype))

    def row_density(
        self, vector: jax.Array, row: Row, constants: PyTree = None, outcomes: Outcomes = None
    ) -> jax.Array:
        """Log-likelihood of one row."""
        columns = self.single({**row, **(outcomes or {})})
        terms = self.functions.row(*self.numbers(vector), *columns, *self.public(constants))
        return sum((each.sum() for each in terms), start=jnp.zeros((), vector.dtype))

    @property
    def simulates(self) -> bool:
        """Whether draws of all outcomes can replace their columns."""
        return bool(self.drawable)

    def row_outcomes(
        self, key: jax.Array, vector: jax.Array, row: Row, constants: PyTree = None
    ) -> Outcomes:
        """A draw of the row's outcomes, by column."""
        if not self.simulates:
            raise InvalidArgument(
                "The model cannot draw outcomes: PyTensor cannot draw them in JAX, or an outcome is "
                "also a predictor."
            )
        params = self.constrain(jax.lax.stop_gradient(vector), constants)
        given = [params[name] for name in self.places], self.single(row), self.public(constants)
        draws = self._drawn(key, *given)
        return cast_to_columns({self.drawable[name]: draw for name, draw in draws.items()}, row)

    def predict(
        self, key: jax.Array, params: Parameters, row: Row, constants: PyTree = None
    ) -> dict[str, Prediction]:
        """Predictions of each outcome of a new row, given parameters."""
        given = [params[name] for name in self.places], self.single(row), self.public(constants)
        draws = self._drawn(key, *given)

        def known(kind: str, name: str, shape: Shape) -> jax.Array | None:
            function = self.functions.expected.get((kind, name))
            if function is None:
                return None
            value = function(*given[0], *given[1], *given[2])[0]
            return value.reshape(value.shape[1:]) if value.ndim > len(shape) else value

        return {
            name: Prediction(
                draws.get(name), known("mean", name, shape), known("logit", name, shape)
            )
            for name, shape in self.outcomes.items()
        }

    def _drawn(
        self, key: jax.Array, params: list[jax.Array], columns: list[jax.Array], public: list[Any]
    ) -> dict[str, jax.Array]:
        """Draws of the outcomes; empty if JAX has none."""
        if self.functions.draw is None:
            return {}
        keys = [{"jax_state": each} for each in jax.random.split(key, self.num_keys)]
        drawn = self.functions.draw(*params, *keys, *columns, *public)
        return {name: each[0] for name, each in zip(self.outcomes, drawn, strict=True)}

    def start(self, values: Mapping[str, ArrayLike]) -> jax.Array:
        """The unconstrained vector of given values; zero for parameters not given."""
        check_start_names(values, self.places)
        vector = jnp.zeros(self.dimension)
        for name, place in self.places.items():  # a support may depend on what comes before
            if name in values:
                params = self.constrain(vector)
                params[name] = broadcast_start(name, values[name], self.parameter_shapes[name])
                given = *(params[each] for each in self.places), *self.public()
                numbers = dict(zip(self.places, self.functions.numbers(*given), strict=True))
                vector = vector.at[place.start : place.stop].set(numbers[name].ravel())
        return check_finite_start(vector)
