"""From a PyMC model to a model of rows: checks of its graph, and its parts as JAX functions.

Everything here looks at the graph, or runs on made-up rows.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pymc
from numpy.typing import NDArray

from tacit.errors import InvalidArgument
from tacit.models.made_up import MadeUp, and_, explained, somewhere
from tacit.models.places import Shape, layout
from tacit.models.pymc import Function, Functions, PyMC, PyMCModel
from tacit.models.pymc_containers import container_of, containers, narrow
from tacit.models.pymc_graph import Draws, Graphs, Leaves, Output, Traced
from tacit.models.row_checks import (
    ROWS,
    TermsAndPrior,
    refuse_index_beyond,
    refuse_prior_of_columns,
    refuse_rows_that_meet,
    refuse_support_of_columns,
)


def from_pymc(
    described: PyMC, made_up: MadeUp, highest: Callable[[str], Any], person: str | None = None
) -> PyMCModel:
    """The model of rows that a PyMC model describes.

    Args:
        described: The PyMC model with its options.
        made_up: Makes up values of the columns that exist.
        highest: Returns the highest value of a column.
        person: The column that identifies the person of a row.

    Raises:
        InvalidArgument: The model breaks a rule. The message names the variable and a remedy.
        BoundaryError: The model holds arrays that could be rows.
    """
    example = made_up(1, 0)
    leaves = containers(described, example, person)
    graphs = Graphs(leaves)
    numbers = _shapes(graphs)
    with _translated(), explained(1):
        single = graphs.densities(1, numbers)
    _refuse_prior_that_sees_rows(single, leaves)
    with explained(ROWS):
        several = graphs.densities(ROWS, numbers)
    adapted = _assembled(graphs, (single, several), numbers, example)
    _refuse_without_rows(adapted, single, example)
    _refuse_without_rows(adapted, several, made_up(ROWS, 0))
    refuse_rows_that_meet(_terms_and_prior(adapted, several), made_up)
    refuse_index_beyond(
        lambda row, vector: adapted.row_density(vector, row),
        somewhere(adapted),
        {name: adapted.made_up[name] for name in adapted.columns},
        {name: highest(name) for name in adapted.columns},
    )
    return adapted


@contextmanager
def _translated() -> Iterator[None]:
    """Explains that PyTensor has no translation to JAX, where that is why a model fails."""
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


def _shapes(graphs: Graphs) -> dict[str, Shape]:
    """Shapes of the unconstrained numbers of the latents, if they do not depend on the rows."""
    with explained(1):
        single = graphs.shapes(1, constrained=False)
    with explained(ROWS):
        several = graphs.shapes(ROWS, constrained=False)
    for name, shape in single.items():
        if shape != several[name]:
            raise InvalidArgument(
                f"Latent {name!r} is over rows: one number for each row, which cannot be released "
                "privately; integrate it out in the model, as a negative binomial does for Poisson "
                "rates."
            )
    return single


def _refuse_prior_that_sees_rows(traced: Traced, leaves: Leaves) -> None:
    """Raises if a support, a potential or a prior uses a column."""
    model, columns = leaves.model, set(leaves.columns)
    latents = [rv.name for rv in model.free_RVs]
    refuse_support_of_columns({name: traced.uses("value", name) & columns for name in latents})
    for each in model.potentials:
        if used := traced.uses("prior", each.name) & columns:
            raise InvalidArgument(
                f"Potential {each.name!r} uses {and_(used)}; what depends on rows must be "
                "observed= of a distribution (pm.CustomDist, if none fits)."
            )
    refuse_prior_of_columns({name: traced.uses("prior", name) & columns for name in latents})


def _assembled(
    graphs: Graphs,
    both: tuple[Traced, Traced],
    numbers: Mapping[str, Shape],
    example: Mapping[str, Any],
) -> PyMCModel:
    traced, leaves, model = both[0], graphs.leaves, graphs.leaves.model
    rows = [rv.name for rv in model.observed_RVs]
    seen = set().union(*(each.uses("row", name) for each in both for name in rows))
    columns = tuple(name for name in leaves.columns if name in seen)
    derived = tuple(
        each.name
        for each in model.deterministics
        if not traced.uses("value", each.name) & set(leaves.columns)
    )
    public = (*numbers, *leaves.constants)
    with _translated(), explained(1):
        parameters = graphs.shapes(1, constrained=True)
        given = graphs.given_parameters(1, parameters)
        drawn = graphs.draws(1, parameters, columns)
        functions = Functions(
            values=traced.function([Output("value", n) for n in (*numbers, *derived)], public),
            prior=traced.function(traced.of_kind("prior"), public),
            numbers=given.function(given.of_kind("number"), public),
            row=traced.function(traced.of_kind("row"), (*numbers, *columns, *leaves.constants)),
            expected=_expected(given, (*numbers, *columns, *leaves.constants)),
            draw=None if drawn is None else drawn.function,
        )
    adapted = PyMCModel(
        functions=functions,
        columns=columns,
        dtypes={name: np.dtype(narrow(model[name].dtype)) for name in columns},
        arrays=leaves.constants,
        places=layout({name: (shape, None) for name, shape in numbers.items()}),
        parameter_shapes=parameters,
        derived=derived,
        predictors=tuple(n for n in columns if n in _predictors(given, drawn)),
        outcomes={
            rv.name: leaves.columns[container_of(model, rv).name] for rv in model.observed_RVs
        },
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


def _drawable(model: pymc.Model, drawn: Draws | None) -> dict[str, str]:
    """The column of each outcome; empty if draws cannot replace them, because a draw uses one."""
    columns = {rv.name: container_of(model, rv).name for rv in model.observed_RVs}
    taken = set(columns.values())
    if drawn is None or len(taken) < len(columns) or taken & drawn.used:
        return {}
    return columns


def _try_to_predict(model: PyMCModel) -> None:
    """Raises NotImplementedError if JAX cannot draw the outcomes."""

    def predicted(vector: jax.Array) -> Any:
        key = jax.random.key(0)
        return model.predict(key, model.constrain(vector), model.made_up)

    jax.eval_shape(predicted, somewhere(model))


def _labels(
    model: pymc.Model, shapes: Mapping[str, Shape]
) -> dict[str, tuple[tuple[str, ...], ...]]:
    """Names of the entries of parameters whose dims all have coords."""
    found = {}
    for name, shape in shapes.items():
        axes = [model.coords.get(dim) for dim in model.named_vars_to_dims.get(name) or ()]
        if shape and tuple(0 if each is None else len(each) for each in axes) == shape:
            found[name] = tuple(tuple(str(entry) for entry in each) for each in axes)
    return found


def _expected(given: Traced, inputs: tuple[str, ...]) -> dict[tuple[str, str], Function]:
    """Functions of the means and logits that are known, by kind and outcome."""
    known = [*given.of_kind("mean"), *given.of_kind("logit")]
    return {(each.kind, each.name): given.function([each], inputs) for each in known}


def _predictors(given: Traced, drawn: Draws | None) -> set[str]:
    """The columns that a prediction needs."""
    known = [*given.of_kind("mean"), *given.of_kind("logit")]
    used = set() if drawn is None else drawn.used
    return used.union(*(given.uses(*each) for each in known))


def _refuse_without_rows(model: PyMCModel, traced: Traced, columns: Mapping[str, Any]) -> None:
    """Every term has an entry for each row."""
    count = len(next(iter(columns.values())))
    with explained(count):
        terms = jax.eval_shape(lambda: _terms(model, traced)(columns))
    for name, term in zip(model.outcomes, terms, strict=True):
        if term.shape[:1] != (count,):
            raise InvalidArgument(
                f"{name!r} does not have one entry for each row: it has shape {term.shape} for "
                f"{count} rows; give it the dim over rows, and no shape of its own."
            )


def _terms(model: PyMCModel, traced: Traced) -> Callable[[Mapping[str, Any]], list[jax.Array]]:
    """What each outcome adds to the log-likelihood, with an axis for rows."""
    names = (*model.places, *model.columns, *model.arrays)
    function, vector = traced.function(traced.of_kind("row"), names), somewhere(model)
    return lambda columns: function(*model.numbers(vector), *model.table(columns), *model.public())


def _terms_and_prior(model: PyMCModel, several: Traced) -> TermsAndPrior:
    """The model on all made-up rows by the graph of so many rows, and on one row as in a fit."""
    vector, terms = somewhere(model), _terms(model, several)
    prior = several.function(several.of_kind("prior"), (*model.places, *model.arrays))

    @jax.jit
    def on_all(columns: Mapping[str, jax.Array]) -> tuple[jax.Array, jax.Array]:
        by_row = [each.reshape(len(each), -1).sum(axis=1) for each in terms(columns)]
        shared = prior(*model.numbers(vector), *model.public())
        return jnp.stack(by_row).sum(axis=0), jnp.stack([each.sum() for each in shared]).sum()

    @jax.jit
    def on_one(columns: Mapping[str, jax.Array]) -> tuple[jax.Array, jax.Array]:
        row = {name: values[0] for name, values in columns.items()}
        return model.row_density(vector, row)[None], model.prior_density(vector)

    def run(columns: Mapping[str, Any], which: NDArray[np.intp]) -> Any:
        return (on_one if len(which) == 1 else on_all)({n: columns[n] for n in model.columns})

    return run
