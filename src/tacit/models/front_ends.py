"""From any way of writing a model to the form that inference takes.

To add a way of writing models, add a branch to `adapt_model`.
"""

import os
import sys
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, TypeGuard

import jax
import jax.numpy as jnp
import numpy as np

from tacit._precision import in_32_bits, to_32_bits
from tacit.data.columns import Number
from tacit.data.schema import Schema
from tacit.errors import InvalidArgument, MissingPackage
from tacit.models.base import UnitModel
from tacit.models.checks import arbitrary_vector
from tacit.models.conjugate import Conjugate
from tacit.models.jax_model import Model
from tacit.models.numpyro import NumPyro
from tacit.models.numpyro_structure import check_numpyro_model, from_glm, from_numpyro
from tacit.models.pymc import PyMC, is_bambi
from tacit.privacy.captured import check_captured

if TYPE_CHECKING:
    from tacit.models.glm import GLM

# A schema, or the path of its YAML file.
SchemaLike = Schema | str | os.PathLike[str]


@in_32_bits
def adapt_model(model: object, schema: Schema | None) -> UnitModel:
    """The model in the form that inference takes.

    Args:
        model: A `tacit.Model`, a model of `tacit.conjugate`, a model by `tacit.glm`, a PyMC model, or a
            NumPyro function; the latter is recognised only by running it, so it comes last.
        schema: The public facts about the columns. Plain and conjugate models can do without.

    Raises:
        InvalidArgument: If the model breaks a rule, or a schema is missing.
        BoundaryError: If the model holds what could be rows.
    """
    if schema is not None and not isinstance(schema, Schema):
        raise InvalidArgument("schema must be a tacit.Schema: the public facts about the columns.")
    if isinstance(model, UnitModel):
        return model
    if isinstance(model, Model):
        return model.unit_model
    if isinstance(model, Conjugate):
        return (model if schema is None else model.with_bounds_of(schema)).unit_model
    if _is_glm(model):
        described, outcome = model.numpyro, model.function.outcome.columns
        made = from_glm(described, outcome, schema or model.schema).unit_model
        return replace(
            made,
            known_digest=model.digest,
            weights=model.function.weights,
            may_be_missing=tuple(each.name for each in model.function.missing),
        )
    if _is_pymc(model):
        return _adapt_pymc(model, schema)
    return _adapt_numpyro(model, schema)


def resolve_model(
    model: object, schema: SchemaLike | None, family: str | None = None
) -> tuple[object, Schema | None]:
    """The model and the schema of a call: a formula as `tacit.glm` makes it, and a schema from its file.

    Args:
        model: A model as for `adapt_model`, or a formula as text.
        schema: The schema or the path of its file. A model of `tacit.glm` has its own.
        family: The distribution of the outcome of a formula.

    Returns:
        Both. The same formula, family and schema give the same model, so that its plan is found again.

    Raises:
        InvalidArgument: If text is no formula, or the arguments contradict each other.
    """
    if isinstance(schema, str | os.PathLike):
        schema = Schema.from_yaml(os.fspath(schema))
    if isinstance(model, str):
        if schema is None:
            raise InvalidArgument(
                "A formula needs schema=: the public facts about its columns, as a tacit.Schema or the path "
                "of a schema file. To write one, run: tacit schema draft FILE."
            )
        return _formula_model(model, schema, family), schema
    if family is not None:
        raise InvalidArgument(
            "family= is for a formula that is passed as text; this model has its own distribution."
        )
    if not _is_glm(model):
        return model, schema
    if schema is not None and schema != model.schema:
        raise InvalidArgument(
            "The model was made by tacit.glm with another schema; leave schema= out here."
        )
    return model, model.schema


def _formula_model(formula: str, schema: Schema, family: str | None) -> "GLM":
    if not isinstance(schema, Schema):
        raise InvalidArgument("schema must be a tacit.Schema: the public facts about the columns.")
    return _cached_glm(formula, schema, family)


@lru_cache(maxsize=32)
def _cached_glm(formula: str, schema: Schema, family: str | None) -> "GLM":
    from tacit.models.glm import glm  # formulae imports pandas, which takes time

    return glm(formula, family=family, schema=schema)


def is_immutable(model: object) -> bool:
    """Whether a model stays as it was made, so that a plan for it can be used again.

    A NumPyro function or a PyMC model can change between two calls without looking different.
    """
    written = model.source if isinstance(model, UnitModel) else model
    return isinstance(written, Model | Conjugate) or _is_glm(written)


def _is_glm(model: object) -> "TypeGuard[GLM]":
    """Whether a model was made by `tacit.glm`. If its module is not loaded, it was not."""
    home = sys.modules.get("tacit.models.glm")
    return home is not None and isinstance(model, home.GLM)


def _is_pymc(model: object) -> bool:
    """Whether a model is of PyMC, or of Bambi, which is refused. Neither is imported for this."""
    library = sys.modules.get("pymc")
    made_by_pymc = library is not None and isinstance(model, library.Model)
    return isinstance(model, PyMC) or made_by_pymc or is_bambi(model)


def _adapt_pymc(model: object, schema: Schema | None) -> UnitModel:
    """The density of one row at a time, from the graph of the model."""
    described = model if isinstance(model, PyMC) else PyMC(model)
    if is_bambi(described.model):
        raise InvalidArgument(
            "Models made by Bambi cannot be private: it centres predictors, scales priors and finds "
            "levels by looking at the data; write the formula for tacit.glm, which takes all of "
            "that from the schema."
        )
    if schema is None:
        raise InvalidArgument("A PyMC model needs schema=: the public facts about its columns.")
    try:
        from tacit.models.pymc_graph import from_pymc
    except ModuleNotFoundError as error:
        raise MissingPackage("pymc", "A PyMC model") from error
    return _check_gaps(from_pymc(described, schema).unit_model, schema)


def _adapt_numpyro(model: object, schema: Schema | None) -> UnitModel:
    """The density of one row at a time, checked on dummy rows."""
    described = model if isinstance(model, NumPyro) else NumPyro(model)  # type: ignore[arg-type]  # checked below
    if isinstance(described.function, jax.stages.Wrapped):  # it would hide what it samples
        described = replace(described, function=described.function.__wrapped__)  # type: ignore[attr-defined]
    if not callable(described.function):
        raise InvalidArgument(
            "model must be a formula, a NumPyro function, a PyMC model or a tacit.Model; got "
            f"{type(model).__name__}."
        )
    if schema is None:
        raise InvalidArgument("A NumPyro model needs schema=: the public facts about its columns.")
    check_captured(described.function, *filter(callable, described.constants.values()))
    described = replace(described, constants=to_32_bits(dict(described.constants)))
    made = check_numpyro_model(from_numpyro(described, schema), schema).unit_model
    return _check_gaps(made, schema)


def _check_gaps(model: UnitModel, schema: Schema) -> UnitModel:
    """Returns the model; raises if a gap that is left to it makes its likelihood, or the slope of that, NaN.

    Such a row would count nothing, and its gap would be no better than a row that is left out.
    """
    for name in model.columns or ():
        kind = schema[name]
        if not isinstance(kind, Number) or not kind.has_gaps:
            continue
        row = {each: jnp.asarray(value)[None] for each, value in model.dummy_row.items()}
        row[name] = jnp.full_like(row[name], jnp.nan)
        of_row = jax.value_and_grad(model.log_likelihood)
        vector, present = arbitrary_vector(model.dimension), jnp.ones(1, bool)
        if not np.isfinite(
            np.concatenate([np.ravel(n) for n in of_row(vector, row, present, model.constants)])
        ).all():
            raise InvalidArgument(
                f"The model's likelihood, or its gradient, is NaN where {name!r} is missing, which is declared with "
                "missing='keep'. Use jnp.isnan to tell such rows, and put a number in place of the NaN before "
                "anything is computed from it; or declare 'drop'."
            )
    return model
