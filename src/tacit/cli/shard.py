"""The command ``tacit shard``."""

from pathlib import Path
from typing import Annotated

import typer

from tacit.errors import MissingPackage


def shard(
    data: Annotated[list[Path], typer.Argument(help="The data: Parquet files.")],
    into: Annotated[int, typer.Option(min=1, help="Number of shards to write.")],
    person: Annotated[
        str | None,
        typer.Option(help="Column that identifies people. All rows of one go to one shard."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Output folder; must be new or empty.")] = Path(
        "shards"
    ),
) -> None:
    """Deal the rows of Parquet files to shards, for fits in several processes.

    With --person, people are dealt by a keyed hash, so that all rows of a person lie in one shard. The
    key is random and is kept in the header of each shard; shards are as private as the data. Rows are
    read in pieces, so that the data may be larger than memory.
    """
    try:
        from tacit.data.arrow import write_shards  # pyarrow is an extra
    except ModuleNotFoundError:
        raise MissingPackage("pyarrow", "tacit shard") from None
    written = write_shards(data, into, out, person)
    typer.echo(f"Wrote {len(written)} shards to {out}.")
