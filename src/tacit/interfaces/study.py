"""A study for a deployment: a model and a schema, as `tacit.federated.deploy` takes them."""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tacit.accounting import Budget
from tacit.data import tables
from tacit.data.schema import Schema
from tacit.errors import InvalidArgument
from tacit.federated.deploy import Study
from tacit.federated.natural import Vector
from tacit.federated.partitioned import Found, Partitioned, site_of
from tacit.interfaces.federated import posterior_of, target_of
from tacit.interfaces.plan import blank_rows, columns_of, rows_of
from tacit.results.federated import FederatedPosterior


def federated_study(
    model: Any,
    *,
    schema: Schema,
    sites: Sequence[str],
    run: str,
    budget: Budget,
    method: Partitioned | None = None,
    seed: int | None = None,
) -> Study:
    """What server and sites of a real deployment agree in; each keeps a copy of the file it is in.

    Arguments are those of `tacit.fit_federated`, but that ``sites`` are names: data stay where they
    are. ``budget`` is every site's for this ``run``; what a site allows all runs is in its own
    settings. A run is charged once however often it is begun; a new one needs a new name.
    """
    chosen = method or Partitioned()
    target = target_of(model, schema, chosen)
    names, example = tuple(sites), blank_rows(target.model, schema, 1)

    def read(path: Path) -> Any:
        table = read_table(path)
        needed = [*(columns_of(target.model, schema) or schema.names), schema.person]
        _refuse_header(path, tables.header(table), needed)
        return rows_of(target.model, schema, table)

    def posterior(natural: Vector, trace: Vector) -> FederatedPosterior:
        rows = dict.fromkeys(names, example)
        prepared = chosen.scheme.prepare(chosen.setting(target, budget, len(names)))
        found = {
            name: site_of(
                name,
                rows[name],
                chosen,
                target,
                run=run,
                sites=len(names),
                budget=budget,
                prepared=prepared,
            )
            for name in names
        }
        return posterior_of(
            Found(posterior=natural, trace=trace, sites=found),
            chosen,
            target,
            schema,
            rows,
            seed,
            book="each site's own ledger has its charge",
        )

    def finish(natural: Vector, trace: Vector, path: Path) -> None:
        posterior(natural, trace).save(path)

    return Study(
        run=run,
        target=target,
        method=chosen,
        sites=names,
        budget=budget,
        read=read,
        example=example,
        finish=finish,
        seed=seed,
    )


def _refuse_header(path: Path, found: Sequence[Any], needed: Sequence[str | None]) -> None:
    """Names what is missing, and nothing that was found: without a header, that is a row."""
    missing = [name for name in needed if name is not None and name not in found]
    if missing:
        raise InvalidArgument(
            f"{path} has no column {', '.join(missing)}; its first line must name the columns."
        )


def read_table(path: Path) -> Any:
    """A table from a CSV file with a header, or from a Parquet file."""
    if not path.is_file():
        raise InvalidArgument(f"There is no data file at {path}.")
    if path.suffix == ".parquet":
        import pyarrow.parquet

        return pyarrow.parquet.read_table(path)
    with path.open(newline="", encoding="utf-8") as file:
        lines = [line for line in csv.reader(file) if line]
    names, cells = (lines[0], lines[1:]) if lines else ([], [])
    if len(set(names)) != len(names) or any(len(line) != len(names) for line in cells):
        raise InvalidArgument(
            f"{path} needs a header that names every column once, and lines as long as it."
        )
    return {name: [line[i] for line in cells] for i, name in enumerate(names)}
