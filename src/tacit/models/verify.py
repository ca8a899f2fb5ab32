"""What a model of rows must be for a fit to mean what it says; checked on made-up rows.

None of this protects rows (the model's form does that, and the gate): it protects the user
from a fit of something else than the model she wrote. A pass or a failure says nothing about
data, because no data is used.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import checkify
from jax.extend.core import ClosedJaxpr, Jaxpr
from jax.interpreters import partial_eval
from numpy.typing import NDArray

from tacit.errors import InvalidArgument
from tacit.models.adapt import MadeUp, explained
from tacit.models.base import AnyModel
from tacit.models.numpyro import NumPyroModel
from tacit.models.sites import Site

# Whose the made-up rows are, where a model has people.
_WHOSE = np.array([0, 0, 1, 1, 2], np.int32)
ROWS = len(_WHOSE)


def verified(model: NumPyroModel, made_up: MadeUp, highest: Mapping[str, Any]) -> NumPyroModel:
    """The model, with what it derives from its parameters, if it keeps the rules.

    ``highest`` is a row with every column at its highest value.
    """
    _refuse_prior_that_sees_rows(model)
    refuse_rows_that_meet(_Together(model), made_up)
    _refuse_index_beyond(model, highest)
    whole = replace(model, derived=_derived(model), predictors=_predictors(model))
    _refuse_labels_that_do_not_fit(whole)
    return whole


def _refuse_labels_that_do_not_fit(model: NumPyroModel) -> None:
    """Here, because later would be after the data were paid for."""
    if not model.labels:
        return
    shapes = jax.eval_shape(model.constrain, somewhere(model), model.constants)
    for name, axes in model.labels.items():
        shape = shapes[name].shape if name in shapes else None
        if shape is None or isinstance(axes, str) or tuple(len(each) for each in axes) != shape:
            raise InvalidArgument(
                f"labels must have a list of names for every axis of a parameter; for {name!r}, "
                f"{'which is none' if shape is None else f'of shape {shape}'}, they do not fit."
            )


def somewhere(model: AnyModel) -> jax.Array:
    """Some unconstrained numbers, always the same."""
    drawn = np.random.default_rng(0).normal(size=model.dimension, scale=0.5)
    return jnp.asarray(drawn, jnp.float32)


def _sees(model: NumPyroModel, pick: Callable[[dict[str, Site]], Any]) -> dict[str, set[str]]:
    """For each thing picked from a run on one row, the columns and effects it is computed from.

    By the trace of the run: what an output needs, going backwards. It covers all values.
    """
    effects = model.row_effects + model.person_effects
    inputs = model.alone(None), {e.name: jnp.zeros((1, e.size)) for e in effects}
    names = jax.tree.leaves(({n: n for n in inputs[0]}, {n: n for n in inputs[1]}))

    def outputs(inputs: Any, vector: jax.Array) -> Any:
        columns, points = inputs
        latent = model.with_effects(model.unconstrained(vector, []), points)
        return pick(model.run(columns, model.constants, latent))

    with explained("on a single row"):
        traced, shape = jax.make_jaxpr(outputs, return_shape=True)(inputs, somewhere(model))
    if traced.effects:
        raise InvalidArgument(
            "The model prints, or calls Python while it runs, by which rows could leave; leave "
            "such calls out."
        )
    owners = jax.tree.leaves({n: jax.tree.map(lambda _, n=n: n, p) for n, p in shape.items()})
    found = {}
    for name in shape:
        _, live = partial_eval.dce_jaxpr(traced.jaxpr, [owner == name for owner in owners])
        found[name] = {each for each, used in zip(names, live, strict=False) if used}
    return found


def _refuse_prior_that_sees_rows(model: NumPyroModel) -> None:
    """No latent's density or support, and nothing observed outside the plate, uses a column."""

    def supports(sites: dict[str, Site]) -> Any:
        return {name: sites[name].value for name in model.places}

    def of(kind: bool) -> Callable[[dict[str, Site]], Any]:
        return lambda sites: {
            name: site.log_prob()
            for name, site in sites.items()
            if site.distribution is not None
            and site.observed == kind
            and not (site.plates.keys() & model.row_plates)
        }

    for name, columns in _sees(model, supports).items():
        if columns:
            raise InvalidArgument(
                f"The support of latent {name!r} depends on {and_(columns)}; give it bounds that "
                "do not come from data."
            )
    for name, columns in _sees(model, of(kind=True)).items():
        if columns:
            raise InvalidArgument(
                f"Site {name!r} observes {and_(columns)} outside the plate over rows; move it "
                "into the plate."
            )
    for name, seen in _sees(model, of(kind=False)).items():
        if columns := seen & set(model.alone(None)):
            raise InvalidArgument(
                f"The prior of {name!r} depends on {and_(columns)}; write it with numbers that do "
                "not come from data, such as declared bounds."
            )


def _derived(model: NumPyroModel) -> tuple[str, ...]:
    """Deterministic sites that follow from parameters alone, in the model's order."""

    def deterministic(sites: dict[str, Site]) -> Any:
        return {
            name: site.value
            for name, site in sites.items()
            if site.distribution is None and not model.is_local(site)
        }

    return tuple(name for name, seen in _sees(model, deterministic).items() if not seen)


def _predictors(model: NumPyroModel) -> tuple[str, ...]:
    """The columns that a prediction for a new row needs: not the outcome."""
    row = {name: jnp.asarray(model.made_up[name]) for name in model.columns}
    params = jax.eval_shape(model.constrain, somewhere(model), model.constants)

    def outputs(row: Any, params: Any) -> Any:
        return model.predict(jax.random.key(0), params, row, model.constants)

    try:
        traced = jax.make_jaxpr(outputs)(row, params)
    except NotImplementedError:
        raise InvalidArgument(
            "NumPyro cannot draw from the distribution of an observed site of this model, so nothing "
            "can be predicted from it; use a proper distribution, or write a tacit.Model."
        ) from None
    _, live = partial_eval.dce_jaxpr(traced.jaxpr, [True] * len(traced.jaxpr.outvars))
    used = {name for name, each in zip(sorted(row), live, strict=False) if each}
    return tuple(name for name in model.columns if name in used)


class Together(Protocol):
    """A model on several made-up rows at once, and on each of them alone."""

    def together(self, columns: Mapping[str, Any]) -> tuple[NDArray[Any], float]:
        """Each row's term, and the log prior, of one run on all rows."""
        ...

    def alone(self, columns: Mapping[str, Any], i: int) -> tuple[float, float]:
        """The same of row i by itself."""
        ...


class _Together:
    """The model on several made-up rows at once, and on each of them alone."""

    def __init__(self, model: NumPyroModel) -> None:
        self._model, self._vector = model, somewhere(model)
        rng = np.random.default_rng(1)

        def points(effects: Any, entries: int) -> dict[str, Any]:
            # Within the first values of a discrete effect, near the middle of the others.
            return {
                e.name: rng.integers(0, e.values, size=(entries, 1))
                if e.values
                else rng.normal(size=(entries, e.size))
                for e in effects
            }

        self._of_rows = points(model.row_effects, ROWS)
        self._of_people = points(model.person_effects, _WHOSE.max() + 1)

    def together(self, columns: Mapping[str, Any]) -> tuple[NDArray[Any], float]:
        """Each row's term, and the log prior, of one run on all rows."""
        lengths = dict.fromkeys(self._model.row_plates, ROWS)
        points = {**self._of_rows, **self._of_people}
        return self._run(columns, _WHOSE, points, lengths, int(_WHOSE.max()) + 1)

    def alone(self, columns: Mapping[str, Any], i: int) -> tuple[float, float]:
        """The same of row i by itself."""
        row = {name: values[i : i + 1] for name, values in columns.items()}
        points = {name: values[i : i + 1] for name, values in self._of_rows.items()}
        who = slice(_WHOSE[i], _WHOSE[i] + 1)
        points |= {name: values[who] for name, values in self._of_people.items()}
        lengths = dict.fromkeys(self._model.row_plates, 1)
        terms, prior = self._run(row, np.zeros(1, np.int32), points, lengths, 1)
        return float(terms.sum()), prior

    def _run(
        self, columns: Any, whose: Any, points: Any, lengths: dict[str, int], people: int
    ) -> tuple[NDArray[Any], float]:
        model = self._model
        if model.person_plate is not None:
            lengths = lengths | {model.person_plate: people}
        given = {name: columns[name] for name in model.columns}
        if model.person_column is not None:
            given[model.person_column] = whose
        with explained("on a single row" if len(whose) == 1 else f"on {len(whose)} rows"):
            terms, prior = self._compiled(given, points, tuple(lengths.items()))
        return np.asarray(terms), float(prior)

    @cached_property
    def _compiled(self) -> Callable[..., Any]:
        model, vector = self._model, self._vector

        def terms_and_prior(given: Any, points: Any, lengths: Any) -> Any:
            latent = model.with_effects(model.unconstrained(vector, []), points)
            sites = model.run(given, model.constants, latent, lengths=dict(lengths))
            shared = [
                site.log_prob().sum()
                for site in sites.values()
                if site.distribution is not None and not model.is_local(site)
            ]
            return model.row_terms(sites), sum(shared)

        return jax.jit(terms_and_prior, static_argnums=2)


def refuse_rows_that_meet(runs: Together, made_up: MadeUp) -> None:
    """On several made-up rows at once, each row's term is that of the row alone."""
    columns, others = made_up(ROWS, 1), made_up(ROWS, 2)
    terms, prior = runs.together(columns)
    if terms.shape != (ROWS,):
        raise InvalidArgument(
            "What is observed does not have one entry for each row; give the plate over rows the "
            "number of rows as its size."
        )
    touched = np.zeros((ROWS, ROWS), np.bool_)
    for j in range(ROWS):
        changed = {name: values.copy() for name, values in columns.items()}
        for name, values in changed.items():
            values[j] = others[name][j]
        touched[:, j] = ~_same(runs.together(changed)[0], terms)
    np.fill_diagonal(touched, val=False)
    if touched.any():
        raise InvalidArgument(_how_rows_meet(touched))
    alone = [runs.alone(columns, i) for i in range(ROWS)]
    if not _same(np.array([each[1] for each in alone]), prior).all():
        raise InvalidArgument(
            "The prior depends on the number of rows, which is private; use a declared number."
        )
    if not _same(np.array([each[0] for each in alone]), terms).all():
        raise InvalidArgument(
            "A row's term is not the same alone as among other rows: it depends on how many rows "
            "there are, or on the row's place among them; use columns and declared numbers only."
        )


def _same(first: Any, second: Any) -> NDArray[np.bool_]:
    return np.asarray(np.isclose(first, second, rtol=1e-3, atol=1e-3, equal_nan=True))


def _how_rows_meet(touched: NDArray[np.bool_]) -> str:
    """Which rows change which terms says what the model does."""
    rows = np.arange(ROWS)
    if not (touched & (rows[:, None] != rows[None, :] + 1)).any():
        return (
            "A row's term depends on the row before it (a lag); put what it needs of other rows "
            "into columns of its own, or make a unit of all rows of a person."
        )
    if (touched.any(axis=0)).sum() == 1:
        return (
            "Every row's term depends on one and the same row; what all rows need must be a "
            "parameter or a declared constant."
        )
    if touched.sum() > ROWS * (ROWS - 1) / 2:
        return (
            "Each row's term depends on all other rows, as with a mean or a standard deviation "
            "over the batch (batch normalisation); standardise by declared numbers instead."
        )
    return "A row's term depends on other rows; it may depend on its own columns only."


def _refuse_index_beyond(model: NumPyroModel, highest: Mapping[str, Any]) -> None:
    params = jax.jit(model.constrain)(somewhere(model), model.constants)
    effects = model.row_effects + model.person_effects
    last = {e.name: jnp.full((1, e.size), (e.values or 1) - 1) for e in effects}

    # Given parameters, because maps onto their supports index arrays of their own.
    def density(row: Any, params: Any) -> jax.Array:
        latent = model.with_effects(lambda message: params[message["name"]], last)
        return model.row_terms(model.run(model.alone(row), None, latent)).sum()

    refuse_index_beyond(density, params, {n: model.made_up[n] for n in model.columns}, highest)


def refuse_index_beyond(
    density: Callable[..., jax.Array],
    params: Any,
    made_up: Mapping[str, Any],
    highest: Mapping[str, Any],
) -> None:
    """No column's highest value points beyond the end of an array, where JAX would clamp it."""
    example = {name: jnp.asarray(value) for name, value in made_up.items()}
    with explained("on a single row"):
        if not _indexes(jax.make_jaxpr(density)(example, params).jaxpr):
            return  # which saves compiling the check
    checked = jax.jit(checkify.checkify(density, errors=checkify.index_checks))
    for column in example:
        row = example | {column: jnp.asarray(highest[column])}
        if not jnp.issubdtype(row[column].dtype, jnp.integer):
            continue
        with explained("on a row of highest values"):
            error, _ = checked(row, params)
        if error.get() is not None:
            raise InvalidArgument(
                f"The model indexes an array by {column}, whose highest value is beyond the array's "
                "end and would silently get its last entry; give the array an entry for every "
                "level, also for the one that stands for others."
            )


def _indexes(jaxpr: Any) -> bool:
    """Whether a trace has, at any depth, an operation that takes entries of an array by number."""
    for equation in jaxpr.eqns:
        name = equation.primitive.name
        if name == "gather" or name.startswith(("scatter", "dynamic_")):
            return True
        inner = jax.tree.leaves(list(equation.params.values()), is_leaf=_is_trace)
        traces = [each for each in inner if _is_trace(each)]
        if any(_indexes(t.jaxpr if isinstance(t, ClosedJaxpr) else t) for t in traces):
            return True
    return False


def _is_trace(value: Any) -> bool:
    return isinstance(value, Jaxpr | ClosedJaxpr)


def and_(columns: set[str]) -> str:
    """Names in a sentence."""
    return " and ".join(sorted(columns))
