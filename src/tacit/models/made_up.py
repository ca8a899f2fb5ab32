"""Trying a model on made-up rows, and explaining the errors of its code.

Rows, parameters and messages here are made up: nothing depends on data.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tacit.errors import InvalidArgument, TacitError
from tacit.models.base import AnyModel

MadeUp = Callable[[int, int], dict[str, Any]]
"""Makes up columns: takes the number of rows, and a seed."""


def somewhere(model: AnyModel) -> jax.Array:
    """Some unconstrained vector, always the same."""
    drawn = np.random.default_rng(0).normal(size=model.dimension, scale=0.5)
    return jnp.asarray(drawn, jnp.float32)


@contextmanager
def explained(rows: int) -> Iterator[None]:
    """Explains errors that the model's own code raises on so many made-up rows."""
    try:
        yield
    except TacitError:
        raise
    except (jax.errors.ConcretizationTypeError, jax.errors.TracerArrayConversionError) as error:
        raise InvalidArgument(
            "The model decides something in Python, or in NumPy, by a value that differs from row "
            "to row; use jnp.where instead of if, and jax.numpy throughout."
        ) from error
    except Exception as error:
        text = (str(error).strip().splitlines() or [""])[0][:200].rstrip(".")
        count = "a single row" if rows == 1 else f"{rows} rows"
        raise InvalidArgument(
            f"The model fails on {count} of made-up values ({type(error).__name__}: {text}); it "
            "must run on any number of rows, with columns of the shapes that the schema declares."
        ) from error


def and_(names: Iterable[str]) -> str:
    """Names joined by "and", in alphabetical order."""
    return " and ".join(sorted(names))


def quoted(names: Iterable[str]) -> str:
    """Names in quotes, separated by commas; "none" if there are none."""
    return ", ".join(repr(name) for name in names) or "none"
