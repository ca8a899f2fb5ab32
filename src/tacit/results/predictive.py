"""Predictions for new rows from the draws of a posterior.

A posterior that comes from a file has no model; a model by formula is made again from its recipe.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tacit import _validate
from tacit._precision import in_32_bits
from tacit._typing import ArrayTree, FloatArray
from tacit.data.schema import Schema
from tacit.data.tables import TableLike
from tacit.errors import InvalidArgument
from tacit.models.interpretation import GLMSpec
from tacit.results import effects

if TYPE_CHECKING:  # means of formulas need no JAX
    import jax

    from tacit.models.base import Prediction, UnitModel
    from tacit.results.posterior import Posterior


def formula_recipe(model: "UnitModel | None") -> GLMSpec | None:
    """What a model was made from, if it is a model by formula."""
    if model is None:
        return None
    from tacit.models.glm import GLMFunction
    from tacit.models.numpyro import NumPyroModel

    source = model.source
    if isinstance(source, NumPyroModel) and isinstance(source.function, GLMFunction):
        spec = source.function.spec
        return None if spec is None else replace(spec, predictors=source.predictors)
    return None


@lru_cache(maxsize=8)
@in_32_bits
def model_from_spec(spec: GLMSpec, schema: Schema) -> "UnitModel":
    """The model that a specification describes, in the form that predictions take.

    It has the usual priors, whichever it was fitted with.
    """
    from tacit.models.glm import glm_from_spec
    from tacit.models.numpyro_structure import from_numpyro

    adapted = from_numpyro(glm_from_spec(spec, schema).numpyro, schema)
    return replace(adapted, predictors=spec.predictors).unit_model


PredictionKind = Literal["mean", "draws", "probit"]
# Also the mean for each draw, of which quantiles are taken.
_Kind = Literal["mean", "draws", "probit", "means"]
_Arrays: TypeAlias = "dict[str, jax.Array]"
# The largest number of predictions, rows times draws, that are computed at once.
_MAX_BLOCK_SIZE = 2**24


def predict(
    posterior: "Posterior", data: TableLike, kind: PredictionKind, seed: int
) -> FloatArray | dict[str, FloatArray]:
    """See `Posterior.predict`."""
    whole = predict_outcomes(posterior, data, kind, seed)
    return next(iter(whole.values())) if len(whole) == 1 else whole


def predictive_quantiles(
    posterior: "Posterior",
    data: TableLike,
    quantiles: Sequence[float],
    seed: int = 0,
    *,
    of: Literal["mean", "outcome"] = "outcome",
) -> dict[str, FloatArray]:
    """Quantiles of draws of each outcome or of its mean, [quantiles, rows] or [quantiles, rows, levels].

    They are computed in blocks: draws of all rows are not held.
    """

    def summary(draws: FloatArray) -> FloatArray:
        return np.moveaxis(np.quantile(draws, quantiles, axis=1), 0, 1)

    kind: _Kind = "draws" if of == "outcome" else "means"
    return predict_outcomes(posterior, data, kind, seed, summary)


def predictive_model(posterior: "Posterior") -> "tuple[UnitModel, Schema]":
    """The model and the schema that predictions need: its own, or made again from its formula."""
    model, schema = posterior.model, posterior.schema
    if model is None and posterior.recipe is not None and schema is not None:
        model = model_from_spec(posterior.recipe, schema)
    if model is None:
        raise InvalidArgument(
            "This posterior has no model to predict with. A file keeps models by formula; a NumPyro or "
            "PyMC model is code, so pass its plan: Posterior.load(path, plan=tacit.plan(...))."
        )
    if model.predict is None or schema is None:
        raise InvalidArgument(
            "predict needs a posterior of a model by formula, a NumPyro or PyMC model, or a conjugate "
            "model; a tacit.Model has no rule for new rows."
        )
    return model, schema


def predict_outcomes(
    posterior: "Posterior",
    data: TableLike,
    kind: _Kind,
    seed: int,
    summary: Callable[[FloatArray], FloatArray] = np.asarray,
) -> dict[str, FloatArray]:
    """Predictions of each outcome by name, or a summary of each block; see `Posterior.predict`."""
    _validate.choice("kind", kind, ("mean", "draws", "probit", "means"))
    seed = _validate.count("seed", seed, least=0)
    recipe = posterior.recipe or formula_recipe(posterior.model)
    if kind in ("mean", "means") and recipe is not None and posterior.schema is not None:
        means = effects.FormulaMeans.build(recipe, posterior.schema)
        if means is not None:
            return _formula_means(posterior, means, data, kind, summary)
    model, schema = predictive_model(posterior)
    columns, present = schema.encode_new(data, model.predictors)
    dummies = {
        name: np.broadcast_to(
            model.dummy_row[name], (len(present), *np.shape(model.dummy_row[name]))
        )
        for name in model.columns or ()
        if name not in columns
    }
    found = _predict_in_blocks(posterior, model, {**columns, **dummies}, kind, seed, summary)
    return {name: _mark_missing(values, present, kind) for name, values in found.items()}


def _formula_means(
    posterior: "Posterior",
    means: "effects.FormulaMeans",
    data: TableLike,
    kind: _Kind,
    summary: Callable[[FloatArray], FloatArray],
) -> dict[str, FloatArray]:
    """Means of a model by formula, in NumPy: nothing is compiled."""
    columns, present = means.schema.encode_new(data, means.spec.predictors)
    size = max(1, _MAX_BLOCK_SIZE // 8 // max(1, posterior.num_draws))
    columns = columns or {"": np.zeros(len(present))}
    parts = []
    for start in range(0, max(len(present), 1), size):
        part = {name: values[start : start + size] for name, values in columns.items()}
        found = means.means(posterior.model_draws, part)
        parts.append(found.mean(axis=0) if kind == "mean" else summary(np.moveaxis(found, 0, 1)))
    whole = np.concatenate(parts).astype(np.float32)
    return {means.outcome: _mark_missing(whole, present, kind)}


@in_32_bits
def _predict_in_blocks(
    posterior: "Posterior",
    model: "UnitModel",
    columns: Mapping[str, NDArray[np.generic]],
    kind: _Kind,
    seed: int,
    summary: Callable[[FloatArray], FloatArray],
) -> dict[str, FloatArray]:
    import jax
    import jax.numpy as jnp

    draws = {name: jnp.asarray(posterior.model_draws[name]) for name in model.parameters}
    keys = jax.random.split(jax.random.key(seed), posterior.num_draws)
    assert model.predict is not None
    predict_row = model.predict
    rows = len(next(iter(columns.values())))

    @jax.jit
    def block(first: int, part: _Arrays, draws: _Arrays, constants: ArrayTree) -> _Arrays:
        count = len(next(iter(part.values())))

        def one_row(i: "jax.Array", row: _Arrays) -> _Arrays:
            def one_draw(key: "jax.Array", params: _Arrays) -> "Mapping[str, Prediction]":
                return predict_row(jax.random.fold_in(key, first + i), params, row, constants)

            found = jax.vmap(one_draw)(keys, draws)
            return {name: _reduce(name, each, kind) for name, each in found.items()}

        return jax.vmap(one_row)(jnp.arange(count), part)

    size = max(1, min(rows, _MAX_BLOCK_SIZE // max(1, posterior.num_draws)))
    parts: list[dict[str, FloatArray]] = []
    for start in range(0, max(rows, 1), size):
        part = {name: jnp.asarray(values[start : start + size]) for name, values in columns.items()}
        found = block(start, part, draws, model.constants)
        parts.append({name: summary(np.asarray(values)) for name, values in found.items()})
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _reduce(name: str, found: "Prediction", kind: _Kind) -> "jax.Array":
    """The prediction of one outcome of a row, over the draws."""
    if kind == "draws":
        if found.draw is None:
            raise InvalidArgument(f'Draws of {name!r} are not known; use kind="mean".')
        return found.draw
    if kind in ("mean", "means"):
        if found.mean is None:
            raise InvalidArgument(f'The mean of {name!r} is not known; use kind="draws".')
        return found.mean.mean(axis=0) if kind == "mean" else found.mean
    if found.logit is None:
        raise InvalidArgument(
            f'kind="probit" is for binary outcomes with a logit, which {name!r} is not; use kind="mean".'
        )
    import jax
    import jax.numpy as jnp

    # The mean of a logistic function under a normal, by a probit of matched slope (MacKay 1992).
    centre, variance = found.logit.mean(axis=0), found.logit.var(axis=0)
    return jax.nn.sigmoid(centre / jnp.sqrt(1 + math.pi * variance / 8))


def _mark_missing(values: FloatArray, present: NDArray[np.bool_], kind: _Kind) -> FloatArray:
    """Predictions with NaN for rows that have a missing value."""
    if not present.all():
        values = values.astype(np.float32)
        values[~present] = np.nan
    return np.moveaxis(values, 0, 1) if kind in ("draws", "means") else values
