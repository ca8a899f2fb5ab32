"""From a PyMC model to a model of rows: containers, dims, latents, and what is refused.

Everything here looks at the graph, or runs on made-up rows; the values in the model's
containers are never read, except those of containers that are declared public.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tacit.errors import BoundaryError, InvalidArgument
from tacit.models.adapt import MadeUp, explained
from tacit.models.pymc import Functions, PyMC, PyMCModel, layout
from tacit.models.pymc_graph import Graphs, Leaves, Traced, refuse_captured_arrays
from tacit.models.verify import ROWS, and_, refuse_index_beyond, refuse_rows_that_meet, somewhere

_BAMBI_ROWS = "__obs__"


def is_bambi(model: Any) -> bool:
    """Whether a model comes from Bambi, which need not be there to tell."""
    inside = model.model if isinstance(model, PyMC) else model
    if type(inside).__module__.split(".")[0] == "bambi":
        return True
    return _BAMBI_ROWS in (getattr(inside, "coords", None) or {})


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
    with explained("on a single row"):
        alone = graphs.densities(1, numbers)
    _refuse_prior_that_sees_rows(model, alone, leaves)
    with explained(f"on {ROWS} rows"):
        several = graphs.densities(ROWS, numbers)
    adapted = _assembled(graphs, alone, numbers, example)
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


def _pymc(described: PyMC) -> Any:
    try:
        import pymc
    except ImportError as error:
        raise InvalidArgument(
            "PyMC models need PyMC, which is not installed; pip install 'tacit[pymc]'."
        ) from error
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
    while value.owner is not None and len(value.owner.inputs) == 1:  # a cast
        value = value.owner.inputs[0]
    if value not in model.data_vars:
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
        dims = model.named_vars_to_dims.get(name) or ()
        over_rows = bool(dims) and dims[0] == row_dim
        if name in described.constants:
            if row_dim in dims:
                raise InvalidArgument(
                    f"Container {name!r} is over rows, and rows are no constants; leave it out of "
                    "constants."
                )
            constants[name] = container.get_value()
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
    traced: Traced,
    numbers: Mapping[str, tuple[int, ...]],
    example: Mapping[str, Any],
) -> PyMCModel:
    leaves, model = graphs.leaves, graphs.leaves.model
    rows = [rv.name for rv in model.observed_RVs]
    seen = set().union(*(traced.uses(f"row {name}") for name in rows))
    columns = tuple(name for name in leaves.columns if name in seen)
    derived = tuple(
        each.name
        for each in model.deterministics
        if not traced.uses(f"value {each.name}") & set(leaves.columns)
    )
    public = (*numbers, *leaves.constants)
    with explained("on a single row"):
        parameters = graphs.shapes(1, constrained=True)
        given = graphs.given_parameters(1, parameters)
        functions = Functions(
            values=traced.function([f"value {n}" for n in (*numbers, *derived)], public),
            prior=traced.function([n for n in traced.outputs if n.startswith("prior ")], public),
            numbers=given.function([f"number {name}" for name in numbers], public),
            row=traced.function([f"row {n}" for n in rows], (*numbers, *columns, *leaves.constants)),
            expected=_expected(given, (*numbers, *columns, *leaves.constants)),
            draw=None,
        )
    return PyMCModel(
        functions=functions,
        columns=columns,
        kinds={name: np.dtype(_narrow(model[name].dtype)) for name in columns},
        arrays=leaves.constants,
        places=layout(numbers, parameters),
        derived=derived,
        predictors=tuple(n for n in columns if n in _predictors(given)),
        outcomes={rv.name: leaves.columns[_container(model, rv).name] for rv in model.observed_RVs},
        num_keys=0,
        made_up={name: example[name][0] for name in columns},
    )


def _narrow(dtype: str) -> str:
    return {"float64": "float32", "int64": "int32"}.get(dtype, dtype)


def _expected(given: Traced, inputs: tuple[str, ...]) -> dict[tuple[str, str], Any]:
    found = {}
    for output in given.outputs:
        kind, name = output.split(" ", 1)
        if kind != "number":
            found[kind, name] = given.function([output], inputs)
    return found


def _predictors(given: Traced) -> set[str]:
    """The columns that a prediction needs."""
    kept = [name for name in given.outputs if not name.startswith("number ")]
    return set().union(*(given.uses(name) for name in kept))


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
        model = self._model
        terms = [np.asarray(t).reshape(len(t), -1).sum(axis=1) for t in self.terms(columns)]
        prior = self._prior(*model.numbers(self._vector), *model.public(None))
        return sum(terms[1:], start=terms[0]), float(sum(each.sum() for each in prior))

    def alone(self, columns: Mapping[str, Any], i: int) -> tuple[float, float]:
        row = {name: values[i] for name, values in columns.items()}
        model, vector = self._model, self._vector
        return float(model.row_density(vector, row)), float(model.prior_density(vector))


def _listed(names: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in names) or "none"
