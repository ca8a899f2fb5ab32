"""Checks that a NumPyro model keeps the rules, on made-up rows; see `tacit.models.row_checks`."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.interpreters import partial_eval
from numpy.typing import NDArray

from tacit.errors import InvalidArgument
from tacit.models.base import Parameters, Row
from tacit.models.made_up import MadeUp, and_, explained, somewhere
from tacit.models.numpyro import NumPyroModel
from tacit.models.row_checks import (
    ROWS,
    TermsAndPrior,
    refuse_index_beyond,
    refuse_prior_of_columns,
    refuse_rows_that_meet,
    refuse_support_of_columns,
)
from tacit.models.sites import Statement

Sites = Mapping[str, Statement]
# The person of each made-up row, where a model has people.
_PEOPLE = np.arange(ROWS) // 2


def verified(model: NumPyroModel, made_up: MadeUp, highest: Row) -> NumPyroModel:
    """The model, if it keeps the rules, with what it derives from its parameters.

    Args:
        model: The model as it was adapted.
        made_up: Makes up columns.
        highest: A row with every column at its highest value.

    Raises:
        InvalidArgument: The model breaks a rule. The message names the site and a remedy.
    """
    _refuse_prior_that_sees_rows(model)
    refuse_rows_that_meet(_terms_and_prior(model), made_up)
    _refuse_index_beyond(model, highest)
    complete = replace(model, derived=_derived(model), predictors=_predictors(model))
    _refuse_labels_that_do_not_fit(complete)
    return complete


def _refuse_labels_that_do_not_fit(model: NumPyroModel) -> None:
    """Before the budget is charged, because results need labels that fit."""
    if not model.labels:
        return
    shapes = jax.eval_shape(model.constrain, somewhere(model), model.constants)
    for name, axes in model.labels.items():
        shape = shapes[name].shape if name in shapes else None
        if shape is None or isinstance(axes, str) or tuple(len(each) for each in axes) != shape:
            raise InvalidArgument(
                f"labels must have a list of names for every axis of a parameter; for {name!r}, "
                f"{'which is not a parameter' if shape is None else f'of shape {shape}'}, they do "
                "not fit."
            )


def _inputs_of(model: NumPyroModel, pick: Callable[[Sites], Any]) -> dict[str, set[str]]:
    """For each output picked from a run on one row, the columns and effects it depends on.

    By the trace of the run, from outputs back to inputs. So it holds for all values.
    """
    points = {each.name: jnp.zeros((1, each.size)) for each in model.effects}
    inputs = model.single(model.made_up), points
    names = jax.tree.leaves(({n: n for n in inputs[0]}, {n: n for n in inputs[1]}))

    def outputs(inputs: Any, vector: jax.Array) -> Any:
        columns, points = inputs
        latent = model.with_effects(model.parameters(vector), points)
        return pick(model.run(columns, model.constants, latent))

    with explained(1):
        traced, shape = jax.make_jaxpr(outputs, return_shape=True)(inputs, somewhere(model))
    if traced.effects:
        raise InvalidArgument(
            "The model prints, or calls Python while it runs, by which rows could leave; remove "
            "such calls."
        )
    owners = jax.tree.leaves({n: jax.tree.map(lambda _, n=n: n, p) for n, p in shape.items()})
    found = {}
    for name in shape:
        _, live = partial_eval.dce_jaxpr(traced.jaxpr, [owner == name for owner in owners])
        found[name] = {each for each, used in zip(names, live, strict=False) if used}
    return found


def _refuse_prior_that_sees_rows(model: NumPyroModel) -> None:
    """No latent's density or support, and nothing observed outside the plate, uses a column."""

    def supports(sites: Sites) -> Any:
        return {name: sites[name].value for name in model.places}

    def densities(observed: bool) -> Callable[[Sites], Any]:
        return lambda sites: {
            name: site.log_prob()
            for name, site in sites.items()
            if site.distribution is not None
            and site.observed == observed
            and not (site.plates.keys() & model.row_plates)
        }

    refuse_support_of_columns(_inputs_of(model, supports))
    for name, columns in _inputs_of(model, densities(observed=True)).items():
        if columns:
            raise InvalidArgument(
                f"Statement {name!r} observes {and_(columns)} outside the plate over rows; move it "
                "into the plate."
            )
    columns_of_model = set(model.single(model.made_up))
    seen = _inputs_of(model, densities(observed=False))
    refuse_prior_of_columns({name: used & columns_of_model for name, used in seen.items()})


def _derived(model: NumPyroModel) -> tuple[str, ...]:
    """Deterministic sites that depend on parameters only, in the model's order."""

    def deterministic(sites: Sites) -> Any:
        return {
            name: site.value
            for name, site in sites.items()
            if site.distribution is None and not model.is_local(site)
        }

    return tuple(name for name, seen in _inputs_of(model, deterministic).items() if not seen)


def _predictors(model: NumPyroModel) -> tuple[str, ...]:
    """The columns that a prediction for a new row needs: not the outcome."""
    row = {name: jnp.asarray(model.made_up[name]) for name in model.columns}
    params = jax.eval_shape(model.constrain, somewhere(model), model.constants)

    def outputs(row: Row, params: Parameters) -> Any:
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


def _terms_and_prior(model: NumPyroModel) -> TermsAndPrior:
    """The model on made-up rows, with made-up values of the effects of each row and person."""
    vector, rng = somewhere(model), np.random.default_rng(1)

    def points(effects: Any, entries: int) -> dict[str, NDArray[Any]]:
        # Some value of a discrete effect; others near their middle.
        return {
            each.name: rng.integers(0, each.values, size=(entries, 1))
            if each.values
            else rng.normal(size=(entries, each.size))
            for each in effects
        }

    of_rows = points(model.row_effects, ROWS)
    of_people = points(model.person_effects, int(_PEOPLE.max()) + 1)

    def compute(columns: Any, points: Any, lengths: Any) -> Any:
        latent = model.with_effects(model.parameters(vector), points)
        sites = model.run(columns, model.constants, latent, lengths=dict(lengths))
        shared = [
            site.log_prob().sum()
            for site in sites.values()
            if site.distribution is not None and not model.is_local(site)
        ]
        return model.row_terms(sites), sum(shared)

    compiled = jax.jit(compute, static_argnums=2)

    def run(columns: Mapping[str, Any], which: NDArray[np.intp]) -> Any:
        people, person = np.unique(_PEOPLE[which], return_inverse=True)
        given = {name: columns[name] for name in model.columns}
        if model.person_column is not None:
            given[model.person_column] = person.astype(np.int32)
        lengths = dict.fromkeys(model.row_plates, len(which))
        if model.person_plate is not None:
            lengths[model.person_plate] = len(people)
        points = {name: values[which] for name, values in of_rows.items()}
        points |= {name: values[people] for name, values in of_people.items()}
        return compiled(given, points, tuple(lengths.items()))

    return run


def _refuse_index_beyond(model: NumPyroModel, highest: Row) -> None:
    params = jax.jit(model.constrain)(somewhere(model), model.constants)
    last = {each.name: jnp.full((1, each.size), (each.values or 1) - 1) for each in model.effects}

    # Given parameters, because maps onto their supports index arrays of their own.
    def density(row: Row, params: Parameters) -> jax.Array:
        latent = model.with_effects(lambda message: params[message["name"]], last)
        return model.row_terms(model.run(model.single(row), None, latent)).sum()

    refuse_index_beyond(density, params, {n: model.made_up[n] for n in model.columns}, highest)
