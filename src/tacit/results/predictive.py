"""Predictions for new rows from the draws of a posterior."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tacit import _validate
from tacit.errors import InvalidArgument
from tacit.models.base import Predicts

if TYPE_CHECKING:
    from tacit.results.posterior import Posterior

Kind = Literal["mean", "draws", "probit"]
# Numbers a block of rows and draws may take of memory.
_MOST = 2**24


def predict(
    posterior: "Posterior", data: Any, kind: Kind, seed: int
) -> NDArray[Any] | dict[str, NDArray[Any]]:
    """See `Posterior.predict`."""
    _validate.choice("kind", kind, ("mean", "draws", "probit"))
    seed = _validate.count("seed", seed, least=0)
    model: Any = posterior.model
    schema = posterior.schema
    if not isinstance(model, Predicts) or schema is None:
        raise InvalidArgument(
            "predict needs a posterior of a NumPyro or PyMC model, as tacit.fit returned it; one that was "
            "loaded from a file gets it by Posterior.load(path, plan=plan)."
        )
    columns, present = schema.encode_new(data, model.predictors)
    names = [name for name in model.columns if name not in columns]
    made_up = {
        n: np.broadcast_to(model.made_up[n], (len(present), *np.shape(model.made_up[n])))
        for n in names
    }
    found = _blocks(posterior, {**columns, **made_up}, kind, seed)
    whole = {name: _with_gaps(values, present, kind) for name, values in found.items()}
    return next(iter(whole.values())) if len(whole) == 1 else whole


def _blocks(
    posterior: "Posterior", columns: Mapping[str, Any], kind: Kind, seed: int
) -> dict[str, NDArray[Any]]:
    model: Any = posterior.model
    draws = {name: jnp.asarray(posterior.draws[name]) for name in model.places}
    keys = jax.random.split(jax.random.key(seed), posterior.num_draws)
    rows = len(next(iter(columns.values())))

    @jax.jit
    def block(first: jax.Array, part: Any, draws: Any, constants: Any) -> Any:
        count = len(next(iter(part.values())))

        def one_row(i: jax.Array, row: Any) -> Any:
            def one_draw(key: jax.Array, params: Any) -> Any:
                return model.predict(jax.random.fold_in(key, first + i), params, row, constants)

            return _reduced(jax.vmap(one_draw)(keys, draws), kind)

        return jax.vmap(one_row)(jnp.arange(count), part)

    size = max(1, min(rows, _MOST // max(1, posterior.num_draws)))
    parts: list[Any] = []
    for start in range(0, max(rows, 1), size):
        part = {name: jnp.asarray(values[start : start + size]) for name, values in columns.items()}
        parts.append(jax.tree.map(np.asarray, block(start, part, draws, model.constants)))
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _reduced(found: Mapping[str, Any], kind: Kind) -> dict[str, jax.Array]:
    """Over the draws, for one row."""
    if kind == "draws":
        for name, each in found.items():
            if each.draw is None:
                raise InvalidArgument(f'Draws of {name!r} are not known; use kind="mean".')
        return {name: each.draw for name, each in found.items()}
    if kind == "mean":
        for name, each in found.items():
            if each.mean is None:
                raise InvalidArgument(f'The mean of {name!r} is not known; use kind="draws".')
        return {name: each.mean.mean(axis=0) for name, each in found.items()}
    reduced = {}
    for name, each in found.items():
        if each.logit is None:
            raise InvalidArgument(
                f'{name!r} is not a yes or no with a logit, which kind="probit" is for; use '
                'kind="mean".'
            )
        # The mean of a logistic function under a normal, by a probit of matched slope
        # (MacKay 1992).
        centre, spread = each.logit.mean(axis=0), each.logit.var(axis=0)
        reduced[name] = jax.nn.sigmoid(centre / jnp.sqrt(1 + math.pi * spread / 8))
    return reduced


def _with_gaps(values: NDArray[Any], present: NDArray[np.bool_], kind: Kind) -> NDArray[Any]:
    """Rows that cannot be predicted, because of a missing value, are NaN."""
    if not present.all():
        values = values.astype(np.float32)
        values[~present] = np.nan
    return np.moveaxis(values, 0, 1) if kind == "draws" else values
