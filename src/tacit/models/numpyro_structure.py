"""From a NumPyro function to a model of rows: its columns, plates and latents, and checks that it keeps the rules.

Everything here runs on dummy rows and on shapes. An error names the site and a remedy. It may quote dummy values,
never rows.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.interpreters import partial_eval
from numpy.typing import NDArray
from numpyro.distributions import biject_to

from tacit.data.schema import Schema
from tacit.errors import InvalidArgument
from tacit.models.base import Parameters, Prediction, Row
from tacit.models.checks import (
    NUM_CHECK_ROWS,
    Columns,
    TermsAndPrior,
    arbitrary_vector,
    check_index_bounds,
    check_prior_without_columns,
    check_rows_independent,
    check_support_without_columns,
    explain_model_errors,
    join_names,
    quote_names,
)
from tacit.models.jax_model import Limits, Shape, layout, support_limits, unconstrained_shape
from tacit.models.numpyro import Message, NumPyro, NumPyroModel, Site, SiteRecorder
from tacit.models.random_effects import RandomEffect, quadrature_points, random_effect

_Found = TypeVar("_Found")
SitesByName = Mapping[str, Site]


class PlateFinder:
    """Runs of a function on shapes, to find out which plates are over rows and people."""

    def __init__(
        self,
        described: NumPyro,
        used: tuple[str, ...],
        person_column: str | None,
        schema: Schema,
    ) -> None:
        self._described, self._used = described, used
        self._person_column, self._schema = person_column, schema

    def _inspect_run(
        self, count: int, lengths: Mapping[str, int], look: Callable[[SitesByName], _Found]
    ) -> _Found:
        """What ``look`` finds at the sites of a run on so many dummy rows."""
        columns = self._schema.dummy_rows(count, self._used)
        if self._person_column is not None:
            columns[self._person_column] = np.zeros(count, np.int32)
        run = SiteRecorder(self._described.function, lengths, _value_at_zero)
        self._last = run
        seen: list[_Found] = []

        def go(columns: Row) -> None:
            run(**self._described.constants, **columns)
            seen.append(look(run.sites))  # while the values are alive

        jax.eval_shape(go, columns)
        return seen[0]

    def inspect_one_row(
        self, lengths: Mapping[str, int], look: Callable[[SitesByName], _Found]
    ) -> _Found:
        """What ``look`` finds at the sites of a run on a single row."""
        with explain_model_errors(1):
            return self._inspect_run(1, lengths, look)

    def row_plates(self) -> set[str]:
        """The plates over rows: those that grow with the rows, or else the only one that can."""
        plates, person = self._plates(), self.person_plate()
        named = self._described.row_plate
        if named is not None:
            if named not in plates:
                raise InvalidArgument(
                    f"The model has no plate {named!r}, only {quote_names(plates)}; pass the one over "
                    "rows as row_plate=."
                )
            return {named}
        others = [name for name in plates if name != person]
        growing = self._growing(person)
        over_rows = {name for name in others if growing.get(name) == (3, 5)}
        if not over_rows:
            fitting = [name for name in others if self._fits(name, person)]
            over_rows = set(fitting) if len(fitting) == 1 else set()
        if not over_rows:
            self._raise_no_row_plate(others, person, growing)
        return over_rows

    def _raise_no_row_plate(
        self, others: list[str], person: str | None, growing: Mapping[str, tuple[int, int]]
    ) -> None:
        with explain_model_errors(3):
            self._inspect_run(3, {person: 1} if person else {}, len)
        for name, (at_three, at_five) in growing.items():
            if at_three != at_five:
                raise InvalidArgument(
                    f"Plate {name!r} has {at_three} entries for 3 rows, so it drops or combines rows; "
                    "every row must be an entry of its own."
                )
        if not others:
            raise InvalidArgument(
                "The model has no plate over rows: put what is observed inside "
                'with numpyro.plate("rows", n), where n is the number of rows.'
            )
        raise InvalidArgument(
            f"It is not clear which plate is over rows; the model has {quote_names(others)}; give the "
            "plate over rows the number of rows as its size, or pass row_plate=."
        )

    def person_plate(self) -> str | None:
        """The plate over people, if the model has one."""
        if self._described.person_plate is None and self._person_column is None:
            return None
        name = self._described.person_plate or self._person_column
        plates = self._plates()
        if name in plates:
            return name
        with explain_model_errors(3):
            self._inspect_run(3, {}, len)
        raise InvalidArgument(
            f"The model takes the person column but has no plate {name!r}, only {quote_names(plates)}; name the "
            f"plate over people {name!r}, or pass person_plate=."
        )

    def _plates(self) -> dict[str, int]:
        """All plates that a run reaches; one of fixed size may not fit three rows."""
        with suppress(Exception):
            self._inspect_run(3, {}, len)
        return self._last.plates

    def _growing(self, person: str | None) -> dict[str, tuple[int, int]]:
        """Sizes of the plates on three and on five rows; empty if the model fails on either."""
        sizes = []
        for count in (3, 5):
            with suppress(Exception):
                self._inspect_run(count, {person: 1} if person else {}, len)
                sizes.append(self._last.plates)
        if len(sizes) < 2:
            return {}
        return {name: (size, sizes[1].get(name, 0)) for name, size in sizes[0].items()}

    def _fits(self, name: str, person: str | None) -> bool:
        """Whether the model runs on three rows, and observes them, if this plate is over rows."""
        with suppress(Exception):
            return bool(
                self._inspect_run(
                    3,
                    {name: 3} | ({person: 1} if person else {}),
                    lambda sites: any(s.observed and name in s.plates for s in sites.values()),
                )
            )
        return False


def _value_at_zero(message: Message) -> jax.Array:
    """The value of a latent at unconstrained zeros."""
    fn = message["fn"]
    if fn.support is None or fn.support.is_discrete:
        return jnp.zeros(fn.shape(), jnp.int32)
    value: jax.Array = biject_to(fn.support)(jnp.zeros(unconstrained_shape(fn)))
    return value


def from_numpyro(described: NumPyro, schema: Schema) -> NumPyroModel:
    """The model of rows that a NumPyro function describes.

    Args:
        described: The function with its options.
        schema: The columns that exist.

    Returns:
        The model, not yet checked by `check_numpyro_model`.

    Raises:
        InvalidArgument: The function cannot be a model of rows.
    """
    if isinstance(described.integrate, str):
        raise InvalidArgument("integrate must be a list of names of latent variables.")
    used, person_column = _find_columns(described, schema.names, schema.person)
    draft = PlateFinder(described, used, person_column, schema)
    plates = draft.row_plates()
    person_plate = draft.person_plate()
    lengths = dict.fromkeys(plates | ({person_plate} if person_plate else set()), 1)

    def look(sites: SitesByName) -> Latents:
        _check_observed(sites, plates)
        return _classify_latents(described, sites, plates, person_plate)

    latents = draft.inspect_one_row(lengths, look)
    shapes = {
        name: latents.parameters[name] for name in described.order if name in latents.parameters
    }
    # Arrays are inputs of the compiled program, and settings are part of it.
    arrays = {
        name: value
        for name, value in described.constants.items()
        if isinstance(value, np.ndarray | jax.Array)
    }
    model = NumPyroModel(
        function=described.function,
        columns=used,
        arrays=arrays,
        settings={n: v for n, v in described.constants.items() if n not in arrays},
        person_column=person_column,
        row_plates=frozenset(plates),
        person_plate=person_plate,
        slices=layout(shapes | latents.parameters),
        row_effects=latents.row_effects,
        person_effects=latents.person_effects,
        nodes=described.nodes,
        outcomes=None if described.outcomes is None else tuple(described.outcomes),
        dummy_row={name: value[0] for name, value in schema.dummy_rows(1).items()},
        labels=described.labels,
        interpretation=described.interpretation,
    )
    for effects in (latents.row_effects, latents.person_effects):
        if effects:
            quadrature_points(effects, described.nodes)  # refuses too many
    return model


def _find_columns(
    described: NumPyro, columns: tuple[str, ...], person: str | None
) -> tuple[tuple[str, ...], str | None]:
    """Which columns the function takes, and whether it takes the person's."""
    kinds = inspect.Parameter
    arguments = dict(inspect.signature(described.function).parameters)
    if described.columns is not None:
        arguments = dict.fromkeys(described.columns, kinds("column", kinds.KEYWORD_ONLY))
    used, person_column = [], None
    for name, parameter in arguments.items():
        if name in described.constants:
            if name in columns:
                raise InvalidArgument(f"{name!r} is a column and a constant; rename one of them.")
        elif name == person:
            person_column = name
        elif name in columns:
            used.append(name)
        elif parameter.kind in (kinds.VAR_POSITIONAL, kinds.VAR_KEYWORD):
            continue
        elif parameter.default is kinds.empty or parameter.kind is kinds.POSITIONAL_ONLY:
            raise InvalidArgument(
                f"The model asks for {name!r}, which is not a column; the columns are "
                f"{', '.join(columns)}; declare it in the schema, or pass it in constants if it "
                "is public."
            )
    if not used:
        raise InvalidArgument(
            f"The model takes none of the columns; name its arguments after them: "
            f"{', '.join(columns)}."
        )
    return tuple(used), person_column


class Latents(NamedTuple):
    """The latents of a model: of parameters, the shapes of their unconstrained numbers and limits."""

    parameters: dict[str, tuple[Shape, Limits]]
    row_effects: tuple[RandomEffect, ...]
    person_effects: tuple[RandomEffect, ...]


def _check_observed(sites: SitesByName, plates: set[str]) -> None:
    observed = [site for site in sites.values() if site.observed]
    if not any(plates & set(site.plates) for site in observed):
        raise InvalidArgument(
            "Nothing is observed in the plate over rows; pass the outcome as obs= of a "
            "numpyro.sample, and name it as a column."
        )
    for site in sites.values():
        if len(plates & set(site.plates)) > 1:
            raise InvalidArgument(
                f"Statement {site.name!r} is in two plates over rows; put it in one, or name the plate "
                "over rows with row_plate=."
            )


def _classify_latents(
    described: NumPyro, sites: SitesByName, plates: set[str], person: str | None
) -> Latents:
    """Which latents are parameters, and which are effects of rows or people."""
    parameters: dict[str, tuple[Shape, Limits]] = {}
    of_rows, of_people = [], []
    for site in sites.values():
        fn = site.distribution
        if fn is None or site.observed:
            continue
        if plates & set(site.plates):
            if not fn.support.is_discrete and site.name not in described.integrate:
                raise InvalidArgument(_LATENT_PER_ROW.format(name=site.name))
            of_rows.append(random_effect(site.name, fn, 1))
        elif person in site.plates:
            of_people.append(random_effect(site.name, fn, 1))
        elif fn.support.is_discrete:
            parameters[site.name] = fn.shape(), support_limits(site.name, fn)
        else:
            parameters[site.name] = unconstrained_shape(fn), None
    for name in described.integrate:
        if name not in {each.name for each in of_rows}:
            raise InvalidArgument(
                f"integrate has {name!r}, which is not a latent inside the plate over rows; remove it."
            )
    if not parameters:
        raise InvalidArgument("The model has no parameter outside the plate over rows.")
    return Latents(parameters, tuple(of_rows), tuple(of_people))


_LATENT_PER_ROW = (
    "Latent {name!r} is inside the plate over rows: one number for each row, which cannot be "
    "released privately; integrate it out in the model (as a negative binomial does for Poisson "
    "rates), or pass integrate=[{name!r}] to have it done by quadrature."
)

# The person of each dummy row, where a model has people.
_PERSON_OF_ROW = np.arange(NUM_CHECK_ROWS) // 2


def check_numpyro_model(model: NumPyroModel, schema: Schema) -> NumPyroModel:
    """The model, if it keeps the rules, with what it derives from its parameters.

    Args:
        model: The model as it was adapted.
        schema: The columns that exist.

    Raises:
        InvalidArgument: The model breaks a rule. The message names the site and a remedy.
    """
    _check_prior_without_rows(model)
    check_rows_independent(_make_terms_and_prior(model), schema)
    _check_model_index_bounds(model, schema)
    complete = replace(model, derived=_derived_sites(model), predictors=_predictor_columns(model))
    _check_labels(complete)
    return complete


def from_glm(described: NumPyro, outcome: frozenset[str], schema: Schema) -> NumPyroModel:
    """The model of a formula, whose outcome is computed from these columns.

    A formula makes only models that keep the rules of `check_numpyro_model`, so nothing is run to check them.
    """
    model = from_numpyro(described, schema)
    if len(outcome) > 1:  # trials, for example, are needed for a prediction
        return replace(model, predictors=_predictor_columns(model))
    return replace(model, predictors=tuple(n for n in model.columns if n not in outcome))


def _check_labels(model: NumPyroModel) -> None:
    """Before the budget is charged, because results need labels that fit."""
    if not model.labels:
        return
    shapes = jax.eval_shape(model.constrain, arbitrary_vector(model.dimension), model.constants)
    for name, axes in model.labels.items():
        shape = shapes[name].shape if name in shapes else None
        if shape is None or isinstance(axes, str) or tuple(len(each) for each in axes) != shape:
            raise InvalidArgument(
                f"labels must have a list of names for every axis of a parameter; for {name!r}, "
                f"{'which is not a parameter' if shape is None else f'of shape {shape}'}, they do "
                "not fit."
            )


def _find_dependencies(
    model: NumPyroModel, pick: Callable[[SitesByName], Parameters]
) -> dict[str, set[str]]:
    """For each output picked from a run on one row, the columns and effects it depends on.

    By the trace of the run, from outputs back to inputs. So it holds for all values.
    """
    points = {each.name: jnp.zeros((1, each.size)) for each in model.effects}
    inputs = model.single_row_table(model.dummy_row), points
    names = jax.tree.leaves(({n: n for n in inputs[0]}, {n: n for n in inputs[1]}))

    def outputs(inputs: tuple[Row, Row], vector: jax.Array) -> Parameters:
        columns, points = inputs
        latent = model.with_effects(model.parameters(vector), points)
        return pick(model.run(columns, model.constants, latent))

    with explain_model_errors(1):
        traced, shape = jax.make_jaxpr(outputs, return_shape=True)(
            inputs, arbitrary_vector(model.dimension)
        )
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


def _check_prior_without_rows(model: NumPyroModel) -> None:
    """No latent's density or support, and nothing observed outside the plate, uses a column."""

    def supports(sites: SitesByName) -> Parameters:
        return {name: sites[name].value for name in model.slices}

    def densities(observed: bool) -> Callable[[SitesByName], Parameters]:
        return lambda sites: {
            name: site.log_prob()
            for name, site in sites.items()
            if site.distribution is not None
            and site.observed == observed
            and not (site.plates.keys() & model.row_plates)
        }

    check_support_without_columns(_find_dependencies(model, supports))
    for name, columns in _find_dependencies(model, densities(observed=True)).items():
        if columns:
            raise InvalidArgument(
                f"Statement {name!r} observes {join_names(columns)} outside the plate over rows; move it "
                "into the plate."
            )
    columns_of_model = set(model.single_row_table(model.dummy_row))
    seen = _find_dependencies(model, densities(observed=False))
    check_prior_without_columns({name: used & columns_of_model for name, used in seen.items()})


def _derived_sites(model: NumPyroModel) -> tuple[str, ...]:
    """Deterministic sites that depend on parameters only, in the model's order."""

    def deterministic(sites: SitesByName) -> Parameters:
        return {
            name: site.value
            for name, site in sites.items()
            if site.distribution is None and not model.is_local(site)
        }

    return tuple(
        name for name, seen in _find_dependencies(model, deterministic).items() if not seen
    )


def _predictor_columns(model: NumPyroModel) -> tuple[str, ...]:
    """The columns that a prediction for a new row needs: not the outcome."""
    row = {name: jnp.asarray(model.dummy_row[name]) for name in model.columns}
    params = jax.eval_shape(model.constrain, arbitrary_vector(model.dimension), model.constants)

    def outputs(row: Row, params: Parameters) -> dict[str, Prediction]:
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


def _make_terms_and_prior(model: NumPyroModel) -> TermsAndPrior:
    """The model on dummy rows, with dummy values of the effects of each row and person."""
    vector, rng = arbitrary_vector(model.dimension), np.random.default_rng(1)

    def points(effects: Sequence[RandomEffect], entries: int) -> dict[str, NDArray[np.generic]]:
        # Some value of a discrete effect; others near their middle.
        return {
            each.name: rng.integers(0, each.values, size=(entries, 1))
            if each.values
            else rng.normal(size=(entries, each.size))
            for each in effects
        }

    of_rows = points(model.row_effects, NUM_CHECK_ROWS)
    of_people = points(model.person_effects, int(_PERSON_OF_ROW.max()) + 1)

    def compute(
        columns: Row, points: Row, lengths: tuple[tuple[str, int], ...]
    ) -> tuple[jax.Array, jax.Array]:
        latent = model.with_effects(model.parameters(vector), points)
        sites = model.run(columns, model.constants, latent, lengths=dict(lengths))
        shared = [
            site.log_prob().sum()
            for site in sites.values()
            if site.distribution is not None and not model.is_local(site)
        ]
        return model.row_terms(sites), sum(shared, start=jnp.zeros(()))

    compiled = jax.jit(compute, static_argnums=2)

    def run(columns: Columns, which: NDArray[np.intp]) -> tuple[jax.Array, jax.Array]:
        people, person = np.unique(_PERSON_OF_ROW[which], return_inverse=True)
        given = {name: columns[name] for name in model.columns}
        if model.person_column is not None:
            given[model.person_column] = person.astype(np.int32)
        lengths = dict.fromkeys(model.row_plates, len(which))
        if model.person_plate is not None:
            lengths[model.person_plate] = len(people)
        points = {name: values[which] for name, values in of_rows.items()}
        points |= {name: values[people] for name, values in of_people.items()}
        terms, prior = compiled(given, points, tuple(lengths.items()))
        return terms, prior

    return run


def _check_model_index_bounds(model: NumPyroModel, schema: Schema) -> None:
    params = jax.jit(model.constrain)(arbitrary_vector(model.dimension), model.constants)
    last = {each.name: jnp.full((1, each.size), (each.values or 1) - 1) for each in model.effects}

    # Given parameters, because maps onto their supports index arrays of their own.
    def density(row: Row, params: Parameters) -> jax.Array:
        latent = model.with_effects(lambda message: params[message["name"]], last)
        return model.row_terms(model.run(model.single_row_table(row), None, latent)).sum()

    check_index_bounds(density, params, {n: model.dummy_row[n] for n in model.columns}, schema)
