"""Models written in PyMC: the likelihood of a row is that of the model with this row only.

Data containers (`pm.Data`) over rows are columns. The model's graph is rebuilt for one row, with
inputs instead of the containers, so rows cannot interact. The prior is a function that takes no
column. `tacit.models.pymc_graph` checks on dummy rows that this is also what the model means when
it is given many rows.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from tacit._typing import ArrayTree
from tacit.models.base import (
    Outcomes,
    Parameters,
    Prediction,
    Row,
    UnitModel,
    broadcast_start,
    cast_to_columns,
    check_finite_start,
    check_start_names,
    simulate_each_row,
    sum_over_rows,
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


def is_bambi(model: object) -> bool:
    """Whether a model was made by Bambi, which need not be installed."""
    if type(model).__module__.split(".")[0] == "bambi":
        return True
    return "__obs__" in (getattr(model, "coords", None) or {})  # its name for the dim over rows


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
class PyMCModel(AdaptedModel):
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
        "arrays", "constants", "drawable", "dtypes", "dummy_row", "functions", "labels", "outcomes",
        "parameter_shapes", "slices",
    )  # fmt: skip

    @cached_property
    def unit_model(self) -> UnitModel:
        """The model as inference takes it."""
        made = self.make_unit_model(
            constrain=self.constrain,
            unconstrain=self.unconstrain,
            log_prior=self.log_prior,
            log_likelihood=sum_over_rows(self.row_log_likelihood),
            simulate=simulate_each_row(self._simulate_row) if self.drawable else None,
        )
        return replace(made, constants=dict(self.arrays), predict=self.predict)

    def unconstrained_numbers(self, vector: jax.Array) -> list[jax.Array]:
        """The unconstrained numbers of each parameter, in the graph's order."""
        return [vector[s.start : s.stop].reshape(s.shape) for s in self.slices.values()]

    def public_inputs(self, constants: ArrayTree = None) -> list[ArrayLike]:
        """The constants that were passed back, or the model's own, in the graph's order."""
        given = self.arrays if constants is None else cast(Mapping[str, ArrayLike], constants)
        return [given[name] for name in self.arrays]

    def single_row_table(self, row: Mapping[str, ArrayLike]) -> list[jax.Array]:
        """The columns of a table that has this row only, in the graph's order."""
        return self.table({name: jnp.asarray(row[name])[None] for name in self.columns})

    def table(self, columns: Mapping[str, ArrayLike]) -> list[jax.Array]:
        """Columns in the order and with the types that the graph takes."""
        return [jnp.asarray(columns[n]).astype(self.dtypes[n]) for n in self.columns]

    def constrain(self, vector: jax.Array, constants: ArrayTree = None) -> Parameters:
        """Parameters on their supports, and what the model derives from them."""
        numbers = self.unconstrained_numbers(vector)
        values = self.functions.values(*numbers, *self.public_inputs(constants))
        return dict(zip(self.names, values, strict=True))

    def unconstrain(self, values: Mapping[str, ArrayLike]) -> jax.Array:
        """The unconstrained vector of given values; zero for parameters not given."""
        check_start_names(values, self.slices)
        vector = jnp.zeros(self.dimension)
        for name, here in self.slices.items():  # a support may depend on what comes before
            if name in values:
                params = self.constrain(vector)
                params[name] = broadcast_start(name, values[name], self.parameter_shapes[name])
                given = *(params[each] for each in self.slices), *self.public_inputs()
                numbers = dict(zip(self.slices, self.functions.numbers(*given), strict=True))
                vector = vector.at[here.start : here.stop].set(numbers[name].ravel())
        return check_finite_start(vector)

    def log_prior(self, vector: jax.Array, constants: ArrayTree = None) -> jax.Array:
        """Log prior of the unconstrained vector, with the Jacobian of its map."""
        numbers = self.unconstrained_numbers(vector)
        terms = self.functions.prior(*numbers, *self.public_inputs(constants))
        return sum((each.sum() for each in terms), start=jnp.zeros((), vector.dtype))

    def row_log_likelihood(
        self, vector: jax.Array, row: Row, constants: ArrayTree = None, outcomes: Outcomes = None
    ) -> jax.Array:
        """Log-likelihood of one row."""
        columns = self.single_row_table({**row, **(outcomes or {})})
        numbers = self.unconstrained_numbers(vector)
        terms = self.functions.row(*numbers, *columns, *self.public_inputs(constants))
        return sum((each.sum() for each in terms), start=jnp.zeros((), vector.dtype))

    def _simulate_row(
        self, key: jax.Array, vector: jax.Array, row: Row, constants: ArrayTree
    ) -> dict[str, jax.Array]:
        """A draw of the row's outcomes, by column."""
        params = self.constrain(jax.lax.stop_gradient(vector), constants)
        draws = self._draw(key, *self._inputs(params, row, constants))
        return cast_to_columns({self.drawable[name]: draw for name, draw in draws.items()}, row)

    def predict(
        self,
        key: jax.Array,
        params: Parameters,
        row: Mapping[str, ArrayLike],
        constants: ArrayTree = None,
    ) -> dict[str, Prediction]:
        """Predictions of each outcome of a new row, given parameters."""
        given = self._inputs(params, row, constants)
        draws = self._draw(key, *given)

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

    def _inputs(
        self, params: Parameters, row: Mapping[str, ArrayLike], constants: ArrayTree
    ) -> tuple[list[jax.Array], list[jax.Array], list[ArrayLike]]:
        """Parameters, columns and constants, in the graph's order."""
        values = [params[name] for name in self.slices]
        return values, self.single_row_table(row), self.public_inputs(constants)

    def _draw(
        self,
        key: jax.Array,
        params: list[jax.Array],
        columns: list[jax.Array],
        constants: list[ArrayLike],
    ) -> dict[str, jax.Array]:
        """Draws of the outcomes; empty if JAX has none."""
        if self.functions.draw is None:
            return {}
        keys = [{"jax_state": each} for each in jax.random.split(key, self.num_keys)]
        drawn = self.functions.draw(*params, *keys, *columns, *constants)
        return {name: each[0] for name, each in zip(self.outcomes, drawn, strict=True)}
