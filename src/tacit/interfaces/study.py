"""A study for a deployment: a model and a schema, as `tacit.federated.deploy` takes them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tacit.accounting import Budget
from tacit.data.schema import Schema
from tacit.federated.deploy import Study
from tacit.federated.natural import Vector
from tacit.federated.partitioned import Found, Partitioned, site_of
from tacit.interfaces.federated import posterior_of, target_of
from tacit.interfaces.rows import blank_rows, rows_of
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
        return rows_of(target.model, schema, path)

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
