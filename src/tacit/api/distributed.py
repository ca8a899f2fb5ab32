"""Private rows of several files, over one or several processes."""

import os
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import jax
import numpy as np

from tacit.api.plan import Plan
from tacit.api.resume import model_fingerprint
from tacit.api.rows import model_columns, simulated_units
from tacit.data.schema import Schema
from tacit.data.shards import ShardAssignment, check_distinct_files, read_shard_assignment
from tacit.errors import InvalidArgument
from tacit.models.base import UnitModel
from tacit.privacy.checkpoint import strip_addresses
from tacit.privacy.distributed import PartitionedRows, Processes
from tacit.privacy.rows import Rows
from tacit.privacy.trace import arithmetic_settings, num_threads


def read_files(model: UnitModel, schema: Schema, paths: Sequence[Any]) -> PartitionedRows:
    """The private rows of several files, of which this process reads its own.

    Args:
        model: The model.
        schema: The schema.
        paths: The paths of all files, in the same order in every process.

    Returns:
        The rows, each file a part.

    Raises:
        InvalidArgument: If a file cannot be read, or people could lie in several files.
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
        number, shared = len(paths), tuple(map(str, files))
    else:
        held, number, shared = _assigned_shards(own, schema.person)
    names = model_columns(model, schema)
    rows = {part: _read_file(schema, names, *each, tables=len(held)) for part, each in held.items()}
    return PartitionedRows(rows, number, processes, sha256(repr(shared).encode()).digest())


def own_files(paths: Sequence[Path], rank: int, size: int) -> dict[int, Path]:
    """The files that a process reads, by their places in the list."""
    return {place: paths[place] for place in range(rank, len(paths), size)}


def check_single_process() -> None:
    """Raises if this is one of several processes, and its data are not a list of files."""
    if jax.process_count() > 1:
        raise InvalidArgument(
            f"This is one of {jax.process_count()} processes: pass a list of files, of which each reads "
            "its own."
        )


def agreed_facts(plan: Plan, seed: int | None, *, kept: bool) -> bytes:
    """What must be the same in all processes of a fit; ``kept`` says whether the run is.

    Processes with other numbers of threads could round differently (PROOFS.md, Theorem 11).
    """
    method, rounding = strip_addresses(repr(plan.method)), (num_threads(), arithmetic_settings())
    model = model_fingerprint(plan)
    return repr((method, plan.mechanism, plan.schema, model, rounding, seed, kept)).encode()


def _assigned_shards(
    own: dict[int, Path], person: str
) -> tuple[dict[int, tuple[Path, ShardAssignment | None]], int, tuple[Any, ...]]:
    """Files by their numbers in a deal, how many it has, and what they share; raises unless people are in one."""
    deals = {path: read_shard_assignment(path) for path in own.values()}
    for path, deal in deals.items():
        if deal is None or deal.person != person:
            raise InvalidArgument(
                f"Rows of one person could lie in several files, as {path} was not written by tacit shard "
                f"for {person!r}. Deal the people first: tacit shard FILES --person {person} --into N."
            )
    held = {deal.index: (path, deal) for path, deal in deals.items() if deal is not None}
    shared = {deal.shared for _, deal in held.values()}
    if len(shared) > 1 or len(held) < len(own):
        raise InvalidArgument("The files must be those of one call of tacit shard, each once.")
    alike: tuple[Any, ...] = next(iter(shared), ())
    return dict(held), alike[2] if alike else 0, alike


def _read_file(
    schema: Schema, names: Sequence[str], path: Path, deal: ShardAssignment | None, *, tables: int
) -> Rows:
    """The rows of one file; of a file that was dealt, those of its own people."""
    encoded = schema.encode(str(path), names, tables=tables)
    if deal is not None and encoded.person is not None:
        out = encoded.left_out
        left_out = deal.keep_own(out) if isinstance(out, np.ndarray) else out
        encoded = encoded._replace(person=deal.keep_own(encoded.person), left_out=left_out)
    rows = Rows.of_encoded(*encoded)
    rows.simulated = simulated_units(schema, names)
    return rows
