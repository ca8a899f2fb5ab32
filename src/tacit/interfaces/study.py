"""A federated study: a model and a schema in the form that `tacit.federated.deploy` uses."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tacit.accounting import Budget
from tacit.data.schema import Schema
from tacit.federated.deploy import Study
from tacit.federated.engine import FederatedResult, SiteCost
from tacit.federated.method import FederatedMethod
from tacit.federated.server import AnyServer
from tacit.interfaces.federated import method_and_target, posterior_of
from tacit.interfaces.rows import blank_rows, rows_of
from tacit.privacy.rows import Rows


def federated_study(
    model: Any,
    *,
    schema: Schema,
    sites: Sequence[str],
    run: str,
    budget: Budget,
    method: FederatedMethod | None = None,
    seed: int | None = None,
) -> Study:
    """Defines a federated study for a real deployment.

    The server and each site keep their own copy of the file that calls this function. See
    docs/federated.md.

    Args:
        model: The model, as for `tacit.fit_federated`.
        schema: The schema, the same at all sites.
        sites: Names of the sites. Their data stay where they are.
        run: Name of the run. A run is charged once, however often it is restarted; a new run needs
            a new name.
        budget: The budget of every site for this run. A site's own settings limit all runs
            together.
        method: As of `tacit.fit_federated`.
        seed: Makes the run reproducible. The result is then not private.

    Returns:
        The study.
    """
    chosen, target = method_and_target(model, schema, method)
    names, example = tuple(sites), blank_rows(target.model, schema, 1)

    def read(path: Path) -> Rows:
        return rows_of(target.model, schema, path)

    def finish(server: AnyServer, path: Path) -> None:
        prepared = chosen.scheme.prepare(chosen.setting(target, budget, len(names)))
        costs = dict.fromkeys(names, SiteCost(event=prepared.event, budget=budget))
        posterior_of(
            FederatedResult(server=server, costs=costs),
            chosen,
            target,
            schema,
            dict.fromkeys(names, study.unit),
            seed,
            book="each site's own ledger has its charge, on the terms that it confirmed with every answer",
        ).save(path)

    study = Study(
        run=run,
        target=target,
        method=chosen,
        sites=names,
        budget=budget,
        read=read,
        example=example,
        finish=finish,
        seed=seed,
        schema=schema.to_text(),
    )
    return study
