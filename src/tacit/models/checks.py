"""Checks on dummy rows that a model treats its rows one by one.

They do not protect rows: the form of an adapted model and the gate do. They protect the user from a fit of
something else than the model they wrote. No data are used, so a pass or a failure says nothing about data.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import checkify
from jax.extend.core import ClosedJaxpr, Jaxpr
from numpy.typing import ArrayLike, NDArray

from tacit.data.schema import Schema
from tacit.errors import InvalidArgument, TacitError
from tacit.models.base import Row


def arbitrary_vector(dimension: int) -> jax.Array:
    """Some unconstrained vector, always the same."""
    drawn = np.random.default_rng(0).normal(size=dimension, scale=0.5)
    return jnp.asarray(drawn, jnp.float32)


@contextmanager
def explain_model_errors(rows: int) -> Iterator[None]:
    """Explains errors that the model's own code raises on so many dummy rows."""
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
            f"The model fails on {count} of simulated values ({type(error).__name__}: {text}); it "
            "must run on any number of rows, with columns of the shapes that the schema declares."
        ) from error


def join_names(names: Iterable[str]) -> str:
    """Names joined by "and", in alphabetical order."""
    return " and ".join(sorted(names))


def quote_names(names: Iterable[str]) -> str:
    """Names in quotes, separated by commas; "none" if there are none."""
    return ", ".join(repr(name) for name in names) or "none"


Given = TypeVar("Given")
Columns = Mapping[str, NDArray[np.generic]]
NUM_CHECK_ROWS = 5
TermsAndPrior = Callable[[Columns, NDArray[np.intp]], tuple[ArrayLike, ArrayLike]]
"""Runs a model on some of the dummy rows, by their numbers; returns each row's term and the log prior."""


def check_support_without_columns(uses: Mapping[str, set[str]]) -> None:
    """Raises if the support of a latent depends on columns, which are listed by latent."""
    for name, columns in uses.items():
        if columns:
            raise InvalidArgument(
                f"The support of latent {name!r} depends on {join_names(columns)}; give it bounds that "
                "do not come from data."
            )


def check_prior_without_columns(uses: Mapping[str, set[str]]) -> None:
    """Raises if the prior of a latent depends on columns, which are listed by latent."""
    for name, columns in uses.items():
        if columns:
            raise InvalidArgument(
                f"The prior of {name!r} depends on {join_names(columns)}; write it with numbers that do "
                "not come from data, such as declared bounds."
            )


def check_rows_independent(run: TermsAndPrior, schema: Schema) -> None:
    """Raises unless each row's term among several rows is that of the row by itself."""
    columns, others = (schema.dummy_rows(NUM_CHECK_ROWS, seed=seed) for seed in (1, 2))
    every = np.arange(NUM_CHECK_ROWS)
    terms, prior = _run_on_rows(run, columns, every)
    if terms.shape != (NUM_CHECK_ROWS,):
        raise InvalidArgument(
            "What is observed does not have one entry for each row; give the plate over rows the "
            "number of rows as its size."
        )
    touched = np.zeros((NUM_CHECK_ROWS, NUM_CHECK_ROWS), np.bool_)
    for j in range(NUM_CHECK_ROWS):
        changed = {name: values.copy() for name, values in columns.items()}
        for name, values in changed.items():
            values[j] = others[name][j]
        touched[:, j] = ~_is_close(_run_on_rows(run, changed, every)[0], terms)
    np.fill_diagonal(touched, val=False)
    if touched.any():
        raise InvalidArgument(_describe_row_dependence(touched))
    single = [_run_on_rows(run, columns, every[i : i + 1]) for i in range(NUM_CHECK_ROWS)]
    if not _is_close(np.array([each[1] for each in single]), prior).all():
        raise InvalidArgument(
            "The prior depends on the number of rows, which is private; use a declared number."
        )
    if not _is_close(np.array([each[0].sum() for each in single]), terms).all():
        raise InvalidArgument(
            "A row's term by itself differs from its term among other rows: it depends on how many "
            "rows there are, or on the row's place among them; use columns and declared numbers only."
        )


def _run_on_rows(
    run: TermsAndPrior, columns: Columns, which: NDArray[np.intp]
) -> tuple[NDArray[np.floating], float]:
    """The terms of some rows and the log prior, with errors explained."""
    with explain_model_errors(len(which)):
        terms, prior = run({name: values[which] for name, values in columns.items()}, which)
        return np.asarray(terms), float(np.asarray(prior))


def _is_close(first: ArrayLike, second: ArrayLike) -> NDArray[np.bool_]:
    return np.asarray(np.isclose(first, second, rtol=1e-3, atol=1e-3, equal_nan=True))


def _describe_row_dependence(touched: NDArray[np.bool_]) -> str:
    """What the model does, by which rows change which terms."""
    rows = np.arange(NUM_CHECK_ROWS)
    if not (touched & (rows[:, None] != rows[None, :] + 1)).any():
        return (
            "A row's term depends on the row before it (a lag); put what it needs of other rows "
            "into separate columns, or make a unit of all rows of a person."
        )
    if (touched.any(axis=0)).sum() == 1:
        return (
            "Every row's term depends on one and the same row; what all rows need must be a "
            "parameter or a declared constant."
        )
    if touched.sum() > NUM_CHECK_ROWS * (NUM_CHECK_ROWS - 1) / 2:
        return (
            "Each row's term depends on all other rows, as with a mean or a standard deviation "
            "over the batch (batch normalisation); standardise by declared numbers instead."
        )
    return "A row's term depends on other rows; it may depend on its own columns only."


def check_index_bounds(
    density: Callable[[Row, Given], jax.Array],
    given: Given,
    dummy_row: Mapping[str, ArrayLike],
    schema: Schema,
) -> None:
    """Raises if a column's highest value indexes beyond the end of an array.

    JAX would silently use the last entry.
    """
    example = {name: jnp.asarray(value) for name, value in dummy_row.items()}
    with explain_model_errors(1):
        if not _has_indexing(jax.make_jaxpr(density)(example, given).jaxpr):
            return  # which saves compiling the check
    checked = jax.jit(checkify.checkify(density, errors=checkify.index_checks))
    for column, value in example.items():
        if not jnp.issubdtype(value.dtype, jnp.integer):
            continue
        row = example | {column: jnp.asarray(schema[column].ends[1], value.dtype)}
        with explain_model_errors(1):
            error, _ = checked(row, given)
        if error.get() is not None:
            raise InvalidArgument(
                f"The model indexes an array by {column}, whose highest value is beyond the array's "
                "end and would silently get its last entry; give the array an entry for every "
                "level, including the one for undeclared values."
            )


def _has_indexing(jaxpr: Jaxpr) -> bool:
    """Whether a trace indexes an array, at any depth."""
    for equation in jaxpr.eqns:
        name = equation.primitive.name
        if name == "gather" or name.startswith(("scatter", "dynamic_")):
            return True
        inner = jax.tree.leaves(list(equation.params.values()), is_leaf=_is_jaxpr)
        traces = [each for each in inner if _is_jaxpr(each)]
        if any(_has_indexing(t.jaxpr if isinstance(t, ClosedJaxpr) else t) for t in traces):
            return True
    return False


def _is_jaxpr(value: object) -> bool:
    return isinstance(value, Jaxpr | ClosedJaxpr)
