"""From a PyMC model to a model of rows: containers, dims, latents, and what is refused.

Everything here looks at the graph, or runs on made-up rows; the values in the model's
containers are never read, except those of containers that are declared public.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pymc
from numpy.typing import NDArray
from pytensor.graph.traversal import ancestors
from pytensor.scalar import Cast
from pytensor.tensor.elemwise import Elemwise

from tacit.errors import BoundaryError, InvalidArgument
from tacit.models.adapt import MadeUp, explained
from tacit.models.pymc import Functions, PyMC, PyMCModel, layout
from tacit.models.pymc_graph import Draws, Graphs, Leaves, Traced, refuse_captured_arrays
from tacit.models.verify import ROWS, and_, refuse_index_beyond, refuse_rows_that_meet, somewhere


def from_pymc(
    described: PyMC, made_up: MadeUp, highest: Callable[[str], Any], person: str | None = None
) -> PyMCModel:
    """The model of rows that a PyMC model describes, if it keeps the rules.

    ``made_up`` gives the columns that exist, with made-up values; ``highest`` the highest
    value of a column; ``person`` is the column that says whose a row is.
    """
    model = _pymc(described)
    _refuse_variables(model)
    example = made_up(1, 0)
    leaves = _leaves(described, model, example, person)
    graphs = Graphs(leaves)
    numbers = _shapes(graphs)
    with _translated(), explained("on a single row"):
        alone = graphs.densities(1, numbers)
    _refuse_prior_that_sees_rows(model, alone, leaves)
    with explained(f"on {ROWS} rows"):
        several = graphs.densities(ROWS, numbers)
    adapted = _assembled(graphs, (alone, several), numbers, example)
    _refuse_without_rows(adapted, alone, made_up(1, 0))
    _refuse_without_rows(adapted, several, made_up(ROWS, 0))
    refuse_rows_that_meet(_Together(adapted, several), made_up)
    refuse_index_beyond(
        lambda row, vector: adapted.row_density(vector, row),
        somewhere(adapted),
        {name: adapted.made_up[name] for name in adapted.columns},
        {name: highest(name) for name in adapted.columns},
    )
    return adapted


@contextmanager
def _translated() -> Iterator[None]:
    """What JAX does not have is a fault of its own."""
    try:
        yield
    except InvalidArgument as error:
        if not isinstance(error.__cause__, NotImplementedError):
            raise
        text = str(error.__cause__).strip().split(". ")[0].splitlines()[0][:200].rstrip(".")
        raise InvalidArgument(
            f"PyMC cannot turn the model into JAX ({text}); use another distribution or function "
            "there, or write the model in NumPyro."
        ) from error.__cause__


def _pymc(described: PyMC) -> Any:
    if not isinstance(described.model, pymc.Model):
        raise InvalidArgument(
            f"tacit.PyMC takes a pm.Model; got {type(described.model).__name__}; pass the model "
            "itself, not the function that makes it."
        )
    if isinstance(described.constants, str):
        raise InvalidArgument("constants must be a list of names of containers.")
    return described.model


def _refuse_variables(model: Any) -> None:
    """What no fit of rows one by one can have, by the kinds of its variables."""
    for rv in model.observed_RVs:
        if type(rv.owner.op).__name__ == "MinibatchRandomVariable":
            raise InvalidArgument(
                f"{rv.name!r} has a total_size, which stands for a number of rows that is private; "
                "leave it out: rows are sampled by the fit."
            )
    for rv in model.free_RVs:
        if rv.dtype.startswith(("int", "uint", "bool")):
            raise InvalidArgument(
                f"Latent {rv.name!r} is discrete; sum over its values in the model, as pm.Mixture "
                "does."
            )
    if not model.free_RVs:
        raise InvalidArgument("The model has no parameter: nothing in it is random and unobserved.")
    if not model.observed_RVs:
        raise InvalidArgument(
            'Nothing is observed; pass the outcome, pm.Data("name", values, dims="row"), as '
            "observed= of a distribution."
        )
    named = [*model.basic_RVs, *model.potentials, *model.deterministics]
    refuse_captured_arrays({each.name: each for each in named})


def _container(model: Any, rv: Any) -> Any:
    """The container that a variable observes."""
    value = model.rvs_to_values[rv]
    while (
        value.owner is not None
        and isinstance(value.owner.op, Elemwise)
        and isinstance(value.owner.op.scalar_op, Cast)
    ):
        value = value.owner.inputs[0]
    if value not in model.data_vars:
        if columns := {each.name for each in ancestors([value]) if each in model.data_vars}:
            raise InvalidArgument(
                f"{rv.name!r} observes something computed from {and_(columns)}; observe a container "
                "itself, and put what is computed of a row into a column."
            )
        raise BoundaryError(
            f"{rv.name!r} observes an array that is part of the model, which would be private rows; "
            f'put it into pm.Data("name", values, dims="row") and observe that.'
        )
    return value


def _row_dim(described: PyMC, model: Any) -> str:
    if described.row_dim is not None:
        if described.row_dim not in model.dim_lengths:
            raise InvalidArgument(
                f"The model has no dim {described.row_dim!r}, only {_listed(model.dim_lengths)}; pass "
                "the one over rows as row_dim=."
            )
        return described.row_dim
    firsts = set()
    for rv in model.observed_RVs:
        container = _container(model, rv)
        dims = model.named_vars_to_dims.get(container.name)
        if not dims or dims[0] is None:
            raise InvalidArgument(
                f"Container {container.name!r} is observed and has no dims; name the dim over rows: "
                f'pm.Data({container.name!r}, values, dims="row").'
            )
        firsts.add(str(dims[0]))
    if len(firsts) > 1:
        raise InvalidArgument(
            f"Which dim is over rows is not clear: what is observed has {_listed(sorted(firsts))}; "
            "pass row_dim=."
        )
    return firsts.pop()


def _leaves(described: PyMC, model: Any, example: Mapping[str, Any], person: str | None) -> Leaves:
    """Which containers are columns, and which are public."""
    row_dim = _row_dim(described, model)
    for rv in model.observed_RVs:
        _container(model, rv)
    columns, constants = {}, {}
    for container in model.data_vars:
        name = container.name
        dims: tuple[Any, ...] = tuple(model.named_vars_to_dims.get(name) or ())
        over_rows = bool(dims) and dims[0] == row_dim
        if name in described.constants:
            if row_dim in dims:
                raise InvalidArgument(
                    f"Container {name!r} is over rows, and rows are no constants; leave it out of "
                    "constants."
                )
            constants[name] = container.get_value().astype(narrow(container.dtype))
        elif over_rows:
            columns[name] = _column(name, container, example, person)
        else:
            raise BoundaryError(
                f"Container {name!r} is not over rows (dims={row_dim!r} first), and could hold rows "
                "all the same; give it that dim if it is a column, or name it in "
                "tacit.PyMC(model, constants=[...]) if it is public."
            )
    for name in described.constants:
        if name not in constants:
            raise InvalidArgument(f"constants has {name!r}, which is no pm.Data of the model.")
    return Leaves(model, row_dim, columns, constants)


def _column(
    name: str, container: Any, example: Mapping[str, Any], person: str | None
) -> tuple[int, ...]:
    """The shape of a column in one row, if the container can hold it."""
    if name == person:
        raise InvalidArgument(
            f"Container {name!r} says whose a row is; effects of single people are not possible in "
            "a PyMC model; write it in NumPyro, where they are integrated out."
        )
    if name not in example:
        raise InvalidArgument(
            f"The model has a container {name!r} over rows, which is not a column; the columns are "
            f"{', '.join(example)}; declare it in the schema."
        )
    found = example[name]
    if found.shape[1:] != container.get_value(borrow=True).shape[1:]:
        raise InvalidArgument(
            f"Container {name!r} must have shape (rows, *{found.shape[1:]}), as the schema says of "
            "the column; make it so, or change the schema."
        )
    if container.dtype.startswith(("int", "uint", "bool")) and found.dtype.kind == "f":
        raise InvalidArgument(
            f"Container {name!r} holds whole numbers, and the column any numbers; declare a Count, "
            "Binary or Category, or fill the container with floats."
        )
    return tuple(found.shape[1:])


def _shapes(graphs: Graphs) -> dict[str, tuple[int, ...]]:
    """Shapes of the latents' numbers, which are the same however many rows there are."""
    with explained("on a single row"):
        alone = graphs.shapes(1, constrained=False)
    with explained(f"on {ROWS} rows"):
        several = graphs.shapes(ROWS, constrained=False)
    for name, shape in alone.items():
        if shape != several[name]:
            raise InvalidArgument(
                f"Latent {name!r} is over rows, a number for each row, which cannot be released "
                "privately; integrate it out in the model, as a negative binomial does for Poisson "
                "rates."
            )
    return alone


def _refuse_prior_that_sees_rows(model: Any, traced: Traced, leaves: Leaves) -> None:
    for rv in model.free_RVs:
        if columns := traced.uses(f"value {rv.name}") & set(leaves.columns):
            raise InvalidArgument(
                f"The support of latent {rv.name!r} depends on {and_(columns)}; give it bounds that "
                "do not come from data."
            )
    for each in model.potentials:
        if columns := traced.uses(f"prior {each.name}") & set(leaves.columns):
            raise InvalidArgument(
                f"Potential {each.name!r} uses {and_(columns)}; what depends on rows must be "
                "observed= of a distribution (pm.CustomDist, if none fits)."
            )
    for rv in model.free_RVs:
        if columns := traced.uses(f"prior {rv.name}") & set(leaves.columns):
            raise InvalidArgument(
                f"The prior of {rv.name!r} depends on {and_(columns)}; write it with numbers that do "
                "not come from data, such as declared bounds."
            )


def _assembled(
    graphs: Graphs,
    both: tuple[Traced, Traced],
    numbers: Mapping[str, tuple[int, ...]],
    example: Mapping[str, Any],
) -> PyMCModel:
    traced, leaves, model = both[0], graphs.leaves, graphs.leaves.model
    rows = [rv.name for rv in model.observed_RVs]
    seen = set().union(*(each.uses(f"row {name}") for each in both for name in rows))
    columns = tuple(name for name in leaves.columns if name in seen)
    derived = tuple(
        each.name
        for each in model.deterministics
        if not traced.uses(f"value {each.name}") & set(leaves.columns)
    )
    public = (*numbers, *leaves.constants)
    with _translated(), explained("on a single row"):
        parameters = graphs.shapes(1, constrained=True)
        given = graphs.given_parameters(1, parameters)
        drawn = graphs.draws(1, parameters, columns)
        functions = Functions(
            values=traced.function([f"value {n}" for n in (*numbers, *derived)], public),
            prior=traced.function([n for n in traced.outputs if n.startswith("prior ")], public),
            numbers=given.function([f"number {name}" for name in numbers], public),
            row=traced.function(
                [f"row {n}" for n in rows], (*numbers, *columns, *leaves.constants)
            ),
            expected=_expected(given, (*numbers, *columns, *leaves.constants)),
            draw=None if drawn is None else drawn.function,
        )
    adapted = PyMCModel(
        functions=functions,
        columns=columns,
        kinds={name: np.dtype(narrow(model[name].dtype)) for name in columns},
        arrays=leaves.constants,
        places=layout(numbers, parameters),
        derived=derived,
        predictors=tuple(n for n in columns if n in _predictors(given, drawn)),
        outcomes={rv.name: leaves.columns[_container(model, rv).name] for rv in model.observed_RVs},
        drawable=_drawable(model, drawn),
        labels=_labels(model, parameters),
        num_keys=0 if drawn is None else drawn.keys,
        made_up={name: example[name][0] for name in columns},
    )
    try:
        _try_to_predict(adapted)
    except NotImplementedError:  # JAX has no draws of this distribution
        return replace(adapted, functions=functions._replace(draw=None), drawable={})
    return adapted


def _drawable(model: Any, drawn: Draws | None) -> dict[str, str]:
    """The column of each outcome; none if draws cannot replace it, because others use it, too."""
    columns = {rv.name: _container(model, rv).name for rv in model.observed_RVs}
    taken = set(columns.values())
    if drawn is None or len(taken) < len(columns) or taken & drawn.used:
        return {}
    return columns


def _try_to_predict(model: PyMCModel) -> None:
    def predicted(vector: jax.Array) -> Any:
        key = jax.random.key(0)
        return model.predict(key, model.constrain(vector), model.made_up)

    jax.eval_shape(predicted, somewhere(model))


def narrow(dtype: str) -> str:
    """What JAX has for a type of PyTensor."""
    return {"float64": "float32", "int64": "int32"}.get(dtype, dtype)


def _labels(
    model: Any, shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, tuple[tuple[str, ...], ...]]:
    """Names of entries, of the parameters whose dims all have coords."""
    found = {}
    for name, shape in shapes.items():
        axes = [model.coords.get(dim) for dim in model.named_vars_to_dims.get(name) or ()]
        if shape and tuple(0 if each is None else len(each) for each in axes) == shape:
            found[name] = tuple(tuple(str(entry) for entry in each) for each in axes)
    return found


def _expected(given: Traced, inputs: tuple[str, ...]) -> dict[tuple[str, str], Any]:
    found = {}
    for output in given.outputs:
        kind, name = output.split(" ", 1)
        if kind != "number":
            found[kind, name] = given.function([output], inputs)
    return found


def _predictors(given: Traced, drawn: Draws | None) -> set[str]:
    """The columns that a prediction needs."""
    kept = [name for name in given.outputs if not name.startswith("number ")]
    used = set() if drawn is None else drawn.used
    return used.union(*(given.uses(name) for name in kept))


def _refuse_without_rows(model: PyMCModel, traced: Traced, columns: Mapping[str, Any]) -> None:
    """Every term has an entry for each row."""
    count = len(next(iter(columns.values())))
    with explained("on a single row" if count == 1 else f"on {count} rows"):
        terms = jax.eval_shape(lambda: _Together(model, traced).terms(columns))
    for name, term in zip(model.outcomes, terms, strict=True):
        if term.shape[:1] != (count,):
            raise InvalidArgument(
                f"{name!r} does not have one entry for each row: it has shape {term.shape} for "
                f"{count} rows; give it the dim over rows, and no shape of its own."
            )


class _Together:
    """A model on several made-up rows at once, and on each of them alone."""

    def __init__(self, model: PyMCModel, several: Traced) -> None:
        self._model, self._vector = model, somewhere(model)
        names = (*model.places, *model.columns, *model.arrays)
        self._rows = several.function([f"row {name}" for name in model.outcomes], names)
        priors = [name for name in several.outputs if name.startswith("prior ")]
        self._prior = several.function(priors, (*model.places, *model.arrays))

    def terms(self, columns: Mapping[str, Any]) -> list[jax.Array]:
        """What each outcome adds, with an axis for rows."""
        model = self._model
        given = [jnp.asarray(columns[n]).astype(model.kinds[n]) for n in model.columns]
        return self._rows(*model.numbers(self._vector), *given, *model.public(None))

    def together(self, columns: Mapping[str, Any]) -> tuple[NDArray[Any], float]:
        with explained(f"on {ROWS} rows"):
            terms, prior = self._compiled({n: columns[n] for n in self._model.columns})
        return np.asarray(terms), float(prior)

    def alone(self, columns: Mapping[str, Any], i: int) -> tuple[float, float]:
        with explained("on a single row"):
            row = {name: columns[name][i] for name in self._model.columns}
            term, prior = self._compiled_alone(row)
        return float(term), float(prior)

    @cached_property
    def _compiled(self) -> Callable[..., Any]:
        def terms_and_prior(columns: Any) -> Any:
            prior = self._prior(*self._model.numbers(self._vector), *self._model.public(None))
            terms = [each.reshape(len(each), -1).sum(axis=1) for each in self.terms(columns)]
            return sum(terms[1:], start=terms[0]), sum(each.sum() for each in prior)

        return jax.jit(terms_and_prior)

    @cached_property
    def _compiled_alone(self) -> Callable[..., Any]:
        model, vector = self._model, self._vector
        return jax.jit(lambda row: (model.row_density(vector, row), model.prior_density(vector)))


def _listed(names: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in names) or "none"
