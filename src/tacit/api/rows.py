"""Private rows of a table or of several files, dummy rows of the same shapes, and simulated units."""

import os
from collections.abc import Sequence
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tacit._precision import in_32_bits
from tacit.data.columns import Column, mark_missing
from tacit.data.schema import Schema
from tacit.data.shards import ShardAssignment, check_distinct_files, read_shard_assignment
from tacit.data.tables import TableLike
from tacit.errors import InvalidArgument
from tacit.models.base import Row, UnitModel, single_row_unit
from tacit.privacy.distributed import PartitionedRows, Processes
from tacit.privacy.rows import Rows, Units

# What `tacit.fit` takes: a table, the paths of several files, or rows of a model without a schema.
Data: TypeAlias = TableLike | list[str] | list[Path] | Rows
# Rows that are simulated from the schema, and of how many values that may be missing one is.
_NUM_SIMULATED_ROWS, _MISSING_EVERY = 1000, 5


def model_columns(model: UnitModel, schema: Schema) -> tuple[str, ...]:
    """The columns a model takes; a model in plain JAX may take any."""
    return schema.names if model.columns is None else model.columns


def model_rows(model: UnitModel, schema: Schema, data: TableLike) -> Rows:
    """The private rows of a table, encoded by the schema."""
    return encode_rows(schema, model_columns(model, schema), data, model.may_be_missing)


def encode_rows(
    schema: Schema, names: Sequence[str], data: TableLike, may_be_missing: Sequence[str] = ()
) -> Rows:
    """The private rows of some columns of a table, encoded by the schema; those without some columns are kept."""
    rows = Rows.from_encoded(*schema.encode(data, names, keep_missing=may_be_missing))
    rows.simulated = simulated_units(schema, names, may_be_missing)
    return rows


@in_32_bits
def simulated_units(
    schema: Schema, names: Sequence[str], may_be_missing: Sequence[str] = ()
) -> Units:
    """Units drawn from the schema alone, by a fixed seed.

    Numbers are uniform within their bounds, one in ten at a bound; levels are equally frequent. Of what may be
    missing, every fifth value is. People have any number of rows up to the most that they may have.
    """
    people = max(1, _NUM_SIMULATED_ROWS // (schema.most_rows or 1))
    columns = schema.dummy_rows(people * (schema.most_rows or 1), names)
    for place, name in enumerate(may_be_missing):
        present = (np.arange(len(columns[name])) + place) % _MISSING_EVERY > 0
        columns[name] = mark_missing(Column(columns[name], present))
    if schema.most_rows is None:
        return Units.single_rows(columns)
    rng = np.random.default_rng(0)
    fields = {n: v.reshape(people, schema.most_rows, *v.shape[1:]) for n, v in columns.items()}
    number = rng.integers(1, schema.most_rows, people, endpoint=True)
    return Units(fields, np.arange(schema.most_rows) < number[:, None])


@in_32_bits
def dummy_rows(model: UnitModel, schema: Schema, units: int) -> Rows:
    """Simulated rows of the shapes that the data will have."""
    return example_rows(schema, model_columns(model, schema), units)


@in_32_bits
def example_rows(schema: Schema, names: Sequence[str], units: int = 1) -> Rows:
    """Simulated rows of some columns, of the shapes that the data will have."""
    columns = schema.dummy_rows(units, names=names)
    if schema.most_rows is None:
        return Rows(columns)
    return Rows.by_person(columns, np.arange(units), schema.most_rows)


_NUM_PROBE_ROWS = 200  # simulated rows


@lru_cache(maxsize=32)
@in_32_bits
def gradient_norms(model: UnitModel, schema: Schema) -> NDArray[np.floating]:
    """Lengths of the gradients of simulated units with one row each, at the start of a fit."""
    rows = schema.dummy_rows(_NUM_PROBE_ROWS, names=model_columns(model, schema))
    theta = 0.1 * jax.random.normal(jax.random.key(0), (model.dimension,))

    @jax.jit
    @jax.vmap
    def length(row: Row) -> jax.Array:
        def density(theta: jax.Array) -> jax.Array:
            return model.log_likelihood(theta, *single_row_unit(row), model.constants)

        return jnp.asarray(jnp.linalg.norm(jax.grad(density)(theta)))

    return np.asarray(length(rows))


def read_files(
    model: UnitModel, schema: Schema, paths: Sequence[str | os.PathLike[str]]
) -> PartitionedRows:
    """The private rows of several files, of which this process reads its own.

    Args:
        model: The model.
        schema: The schema.
        paths: The paths of all files, in the same order in every process.

    Returns:
        The rows, each file a part.

    Raises:
        InvalidArgument: If a file cannot be read, or rows of one person could be in several files.
    """
    if not paths or not all(isinstance(each, str | os.PathLike) for each in paths):
        raise InvalidArgument("A list of data must hold the paths of files.")
    files = [Path(each).absolute() for each in paths]
    check_distinct_files(files)
    processes = Processes()
    own = own_files(files, processes.rank, processes.size)
    if schema.person is None:  # rows are units, so that any files will do
        held: dict[int, tuple[Path, ShardAssignment | None]] = {
            n: (path, None) for n, path in own.items()
        }
        # With another order in another process, rows of a file would count twice.
        number = len(paths)
        shared: tuple[object, ...] = tuple(map(str, files))
    else:
        held, number, shared = _assigned_shards(own, schema.person)
    names = model_columns(model, schema)
    keep = model.may_be_missing
    rows = {
        part: _read_file(schema, names, *each, tables=len(held), may_be_missing=keep)
        for part, each in held.items()
    }
    return PartitionedRows(rows, number, processes, sha256(repr(shared).encode()).digest())


def own_files(paths: Sequence[Path], rank: int, size: int) -> dict[int, Path]:
    """The files that a process reads, by their places in the list."""
    return {place: paths[place] for place in range(rank, len(paths), size)}


def _assigned_shards(
    own: dict[int, Path], person: str
) -> tuple[dict[int, tuple[Path, ShardAssignment | None]], int, tuple[object, ...]]:
    """Files by their numbers in an assignment, how many it has, and what they share; raises unless people are in one."""
    assignments = {path: read_shard_assignment(path) for path in own.values()}
    for path, assignment in assignments.items():
        if assignment is None or assignment.person != person:
            raise InvalidArgument(
                f"Rows of one person could be in several files, as {path} was not written by tacit shard "
                f"for {person!r}. Divide the people first: tacit shard FILES --person {person} --into N."
            )
    held = {
        assignment.index: (path, assignment)
        for path, assignment in assignments.items()
        if assignment is not None
    }
    shared = {assignment.shared for _, assignment in held.values()}
    if len(shared) > 1 or len(held) < len(own):
        raise InvalidArgument("The files must be those of one call of tacit shard, each once.")
    number = next((assignment.into for _, assignment in held.values()), 0)
    return dict(held), number, next(iter(shared), ())


def _read_file(
    schema: Schema,
    names: Sequence[str],
    path: Path,
    assignment: ShardAssignment | None,
    *,
    tables: int,
    may_be_missing: Sequence[str],
) -> Rows:
    """The rows of one file; of a file of an assignment, those of its own people."""
    encoded = schema.encode(str(path), names, tables=tables, keep_missing=may_be_missing)
    if assignment is not None and encoded.person is not None:
        out = encoded.left_out
        left_out = assignment.keep_own(out) if isinstance(out, np.ndarray) else out
        encoded = encoded._replace(person=assignment.keep_own(encoded.person), left_out=left_out)
    rows = Rows.from_encoded(*encoded)
    rows.simulated = simulated_units(schema, names, may_be_missing)
    return rows
