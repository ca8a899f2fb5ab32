"""Models written in PyMC: each row's term is the model's log-likelihood of that row alone.

Data containers (`pm.Data`) over rows are columns. The model's graph is rebuilt for one row,
with inputs in place of the containers, so that rows cannot meet; and the prior is a function
that takes no column at all. `tacit.models.pymc_adapt` then checks, on made-up rows only, that
this is also what the model means when it is given many rows.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from math import prod
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np

from tacit.errors import InvalidArgument
from tacit.models.base import (
    Discrete,
    Outcomes,
    Parameters,
    Prediction,
    Row,
    RowByRow,
    finite_start,
    like_columns,
    refuse_strangers,
    shaped_start,
)

Function = Callable[..., list[jax.Array]]


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
class _Coordinated(Protocol):
    coords: Any


def is_bambi(model: Any) -> bool:
    """Whether a model was made by Bambi, which need not be installed to tell."""
    if type(model).__module__.split(".")[0] == "bambi":
        return True
    return isinstance(model, _Coordinated) and "__obs__" in (
        model.coords or {}
    )  # its name for the dim over rows


class Place(NamedTuple):
    """Where a latent's unconstrained numbers are in the vector, and its own shape."""

    start: int
    stop: int
    shape: tuple[int, ...]
    parameter_shape: tuple[int, ...]


class Functions(NamedTuple):
    """The model's parts in JAX; ``row`` and what follows take columns, the others do not."""

    values: Function
    prior: Function
    numbers: Function
    row: Function
    expected: Mapping[tuple[str, str], Function]
    draw: Callable[..., list[jax.Array]] | None


@dataclass(frozen=True, kw_only=True, eq=False)  # equal only to itself, and hashable
class PyMCModel(RowByRow):
    """A PyMC model as densities of one unconstrained vector, a row at a time."""

    functions: Functions
    columns: tuple[str, ...]
    kinds: Mapping[str, np.dtype[Any]]  # what the containers hold
    arrays: Mapping[str, Any]
    places: Mapping[str, Place]
    derived: tuple[str, ...]
    predictors: tuple[str, ...]
    outcomes: Mapping[str, tuple[int, ...]]  # shapes of what is observed in one row
    drawable: Mapping[str, str]  # columns that draws of outcomes can replace
    labels: Mapping[str, Sequence[Sequence[str]]]
    num_keys: int
    made_up: Mapping[str, Any]  # one row, public

    # What the functions hold from outside was looked for in PyMC's graph.
    declared_public: ClassVar[tuple[str, ...]] = (
        "arrays", "constants", "drawable", "functions", "kinds", "labels", "made_up", "outcomes", "places",
    )  # fmt: skip

    @cached_property
    def constants(self) -> dict[str, Any]:
        """Public inputs of the compiled program."""
        return dict(self.arrays)

    @property
    def dimension(self) -> int:
        """Length of the unconstrained vector."""
        return max(place.stop for place in self.places.values())

    @property
    def names(self) -> tuple[str, ...]:
        """Parameters in the order of the model, then what it derives from them."""
        return (*self.places, *self.derived)

    @property
    def searched(self) -> tuple[Any, ...]:
        """Nothing: PyMC's graph was searched for arrays from outside when it was taken over."""
        return ()

    @property
    def discrete(self) -> Discrete:
        """None: discrete latents are refused."""
        return ()

    def numbers(self, vector: jax.Array) -> list[jax.Array]:
        """The vector in the parts that the graph takes."""
        return [vector[p.start : p.stop].reshape(p.shape) for p in self.places.values()]

    def public(self, constants: Any) -> list[Any]:
        """Declared arrays, as the graph takes them."""
        given = constants or self.constants
        return [given[name] for name in self.arrays]

    def alone(self, row: Row) -> list[jax.Array]:
        """Columns of a single row, as the graph takes them."""
        return [jnp.asarray(row[n])[None].astype(self.kinds[n]) for n in self.columns]

    def constrain(self, vector: jax.Array, constants: Any = None) -> Parameters:
        """Parameters on their supports, and what the model derives from them."""
        values = self.functions.values(*self.numbers(vector), *self.public(constants))
        return dict(zip(self.names, values, strict=True))

    def prior_density(self, vector: jax.Array, constants: Any = None) -> jax.Array:
        """Log prior of the unconstrained vector, with the Jacobian of its map."""
        terms = self.functions.prior(*self.numbers(vector), *self.public(constants))
        return sum((each.sum() for each in terms), start=jnp.zeros((), vector.dtype))

    def row_density(
        self, vector: jax.Array, row: Row, constants: Any = None, outcomes: Outcomes = None
    ) -> jax.Array:
        """Log-likelihood of one row."""
        columns = self.alone({**row, **(outcomes or {})})
        terms = self.functions.row(*self.numbers(vector), *columns, *self.public(constants))
        return sum((each.sum() for each in terms), start=jnp.zeros((), vector.dtype))

    @property
    def simulates(self) -> bool:
        """Whether draws of all outcomes can replace their columns."""
        return bool(self.drawable)

    def row_outcomes(
        self, key: jax.Array, vector: jax.Array, row: Row, constants: Any = None
    ) -> Outcomes:
        """Columns of the row's outcomes, drawn."""
        if not self.simulates:
            raise InvalidArgument(
                "The model cannot draw outcomes: PyTensor cannot draw them in JAX, or they are "
                "predictors, too."
            )
        params = self.constrain(jax.lax.stop_gradient(vector), constants)
        given = [params[name] for name in self.places], self.alone(row), self.public(constants)
        draws = self._drawn(key, *given)
        return like_columns({self.drawable[name]: draw for name, draw in draws.items()}, row)

    def predict(
        self, key: jax.Array, params: Parameters, row: Row, constants: Any = None
    ) -> dict[str, Prediction]:
        """What each outcome would be for a new row, given parameters."""
        given = [params[name] for name in self.places], self.alone(row), self.public(constants)
        draws = self._drawn(key, *given)

        def known(kind: str, name: str, shape: tuple[int, ...]) -> jax.Array | None:
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

    def _drawn(self, key: jax.Array, params: Any, columns: Any, public: Any) -> dict[str, Any]:
        if self.functions.draw is None:
            return {}
        keys = [{"jax_state": each} for each in jax.random.split(key, self.num_keys)]
        drawn = self.functions.draw(*params, *keys, *columns, *public)
        return {name: each[0] for name, each in zip(self.outcomes, drawn, strict=True)}

    def start(self, values: Mapping[str, Any]) -> jax.Array:
        """The unconstrained vector of given values; zero for parameters not given."""
        refuse_strangers(values, self.places)
        vector = jnp.zeros(self.dimension)
        for name, place in self.places.items():  # a support may depend on what comes before
            if name in values:
                params = self.constrain(vector)
                params[name] = shaped_start(name, values[name], place.parameter_shape)
                given = *(params[each] for each in self.places), *self.public(None)
                numbers = dict(zip(self.places, self.functions.numbers(*given), strict=True))
                vector = vector.at[place.start : place.stop].set(numbers[name].ravel())
        return finite_start(vector)


def layout(
    numbers: Mapping[str, tuple[int, ...]], parameters: Mapping[str, tuple[int, ...]]
) -> dict[str, Place]:
    """Places one after the other, in the order of the model."""
    places, start = {}, 0
    for name, shape in numbers.items():
        places[name] = Place(start, start + prod(shape), shape, parameters[name])
        start += prod(shape)
    return places
