"""Exploring, checking and scoring over several sites: one noisy sum of the rows of all of them.

Each has the question of its sibling for one table, and what follows from the sum is computed by the same code. In
between are the sites: each charges its own ledger, adds its noise and sends the sum of its rows.
`explore_federated` and its siblings run all sites in this process, and `release_study` defines a study for sites on a
network.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol, TypeVar, cast
from uuid import uuid4

from tacit import _validate
from tacit.accounting import Budget
from tacit.accounting.budget import choose_budget
from tacit.accounting.ledger import Ledger
from tacit.api.explore import Counted, plan_look
from tacit.api.federated import (
    SITES_HOLD_CHARGES,
    check_site_ledgers,
    site_budgets,
    site_statement,
    spent_epsilon,
)
from tacit.api.look import Look
from tacit.api.plan import ASSUMPTIONS, fit_assumptions
from tacit.api.release import SumPlan
from tacit.data.tables import TableLike
from tacit.errors import InvalidArgument
from tacit.federated.deploy import Study
from tacit.federated.method import FederatedResult, SiteCost, run_in_process
from tacit.federated.server import Server
from tacit.federated.sums import NoisySum, Question, SumServer, SumTarget
from tacit.models.front_ends import SchemaLike
from tacit.privacy.rows import Rows
from tacit.results.statement import NO_LEDGER


class Written(Protocol):
    """A result that is written as JSON."""

    def to_json(self) -> str:
        """The result as JSON."""


Found = TypeVar("Found", bound=Written)
Budgets = Budget | Mapping[str, Budget]


def explore_federated(
    data: Mapping[str, TableLike],
    *,
    schema: SchemaLike,
    tables: Iterable[str | Sequence[str]] | None = None,
    by: str | None = None,
    bins: Mapping[str, int | Sequence[float]] | None = None,
    count: Counted | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    budget: Budgets | None = None,
    method: NoisySum | None = None,
    ledgers: Mapping[str, Ledger] | None = None,
    run: str | None = None,
    seed: int | None = None,
) -> Look:
    """Releases tables of the rows of several sites together, each site within its own budget.

    It is `tacit.explore` of all rows, without pooling them. All sites run in this process, for studies and tests. For sites
    on a network see `tacit.release_study`.

    Args:
        data: A table for each site, by its name.
        schema: The schema, the same for all sites.
        tables: See `tacit.explore`, also for ``by``, ``bins`` and ``count``.
        by: See `tacit.explore`.
        bins: See `tacit.explore`.
        count: See `tacit.explore`. Somebody whose rows are at several sites counts at each of them.
        epsilon: The epsilon of every site.
        delta: The delta of every site; 1e-6 by default.
        budget: The budget of every site, or a mapping with one for each, in the place of ``epsilon``.
        method: ``tacit.federated.NoisySum()``, the default, or ``tacit.federated.NoisySum(noise="split")``.
        ledgers: Ledgers of sites, by name. Each is charged before anything is computed from the site's rows.
        run: Name of the run. Repeating a run with the same name and settings gives the same answers and is not charged again.
        seed: Makes the release reproducible. It is then not private.

    Returns:
        The look, with the privacy statement of each site in ``sites``. Intervals contain the noise of all sites.

    Raises:
        InvalidArgument: If an argument is wrong. Nothing is charged.
        BudgetError: If a ledger refuses the charge. Sites that were asked before have paid, and repeat their answers if the
            run is repeated with its name.
    """
    asked = plan_look(
        schema, tables=tables, by=by, bins=bins, count=count, budget=_one_budget(budget, epsilon, delta)
    )  # fmt: skip
    return release_federated(
        asked, data, budget=budget, method=method, ledgers=ledgers, run=run, seed=seed
    )


def release_federated(
    asked: SumPlan[Found],
    data: Mapping[str, TableLike],
    *,
    budget: Budgets | None = None,
    method: NoisySum | None = None,
    ledgers: Mapping[str, Ledger] | None = None,
    run: str | None = None,
    seed: int | None = None,
) -> Found:
    """Makes the release of a plan of the rows of several sites; see `explore_federated` for the arguments."""
    if not isinstance(data, Mapping) or not data:
        raise InvalidArgument("data must map the names of sites to their tables.")
    chosen = _method(method)
    budgets = site_budgets(asked.budget if budget is None else budget, chosen, data)
    if seed is not None:
        _validate.count("seed", seed, least=0)
    rows = {name: asked.rows(table) for name, table in data.items()}
    check_site_ledgers(ledgers or {}, rows, chosen)
    target = release_target(asked)
    found = run_in_process(
        chosen,
        target,
        rows,
        budgets,
        run=run or uuid4().hex,
        ledgers=ledgers,
        seed=seed,
    )
    units = {name: each.unit for name, each in rows.items()}
    return release_result(asked, found, chosen, units, seed)


def _method(method: NoisySum | None) -> NoisySum:
    if not isinstance(method, NoisySum | None):
        raise InvalidArgument(
            'method must be tacit.federated.NoisySum(), or NoisySum(noise="split").'
        )
    return method or NoisySum()


def _one_budget(budget: Budgets | None, epsilon: float | None, delta: float | None) -> Budget:
    """The budget of one of the sites; what is asked does not depend on it."""
    if isinstance(budget, Mapping):
        given = next(iter(budget.values()), None)
        return choose_budget(given, epsilon, delta)
    return choose_budget(budget, epsilon, delta)


def release_target(asked: SumPlan[Found]) -> SumTarget:
    """What sites are asked for the release of a plan."""
    return SumTarget(
        model=Question(asked.label(), asked.identity),
        release=asked.release,
        mechanism=replace(asked.mechanism, noise_multiplier=0.0),
    )


def release_result(
    asked: SumPlan[Found],
    found: FederatedResult,
    method: NoisySum,
    units: Mapping[str, str],
    seed: int | None,
    *,
    book: str = NO_LEDGER,
) -> Found:
    """What follows from the total of the sites' answers, with the noise of all of them.

    Args:
        asked: The plan.
        found: The result of the run.
        method: Settings of the run.
        units: The unit of privacy at each site, by name.
        seed: The seed, if the run is not private.
        book: Where charges are kept, if ledgers are not at hand.

    Returns:
        The result.
    """
    server = cast("SumServer", found.server)
    assumptions = fit_assumptions(asked.schema, (asked.assumption, ASSUMPTIONS[1]))
    public = (*asked.public, "every setting of the method", "which sites take part")
    sites = {
        name: site_statement(
            cost, method, public, assumptions, units[name], book, seeded=seed is not None
        )
        if name in server.members
        else None
        for name, cost in found.costs.items()
    }
    noise = math.sqrt(sum(found.costs[name].noise_std ** 2 for name in server.members))
    given = [each for each in sites.values() if each is not None]
    return asked.found(server.total, noise, max(given, key=spent_epsilon), sites)


def release_study(
    plan: SumPlan[Found],
    *,
    sites: Sequence[str],
    run: str,
    method: NoisySum | None = None,
    seed: int | None = None,
) -> Study[SumTarget]:
    """Defines a study of several sites that release tables, a check or a score together.

    The server and each site keep their own copy of the file that calls this function, as for `tacit.federated_study`. The
    result is written as JSON.

    Args:
        plan: What is asked, with the budget of every site: `Look.plan`, `ModelCheck.plan` or `Score.plan`.
        sites: Names of the sites. Their data stay where they are.
        run: Name of the run. A run is charged once, however often it is restarted; a new run needs a new name.
        method: ``tacit.federated.NoisySum()``, the default, or ``tacit.federated.NoisySum(noise="split")``.
        seed: Makes the run reproducible. The result is then not private.

    Returns:
        The study.

    Raises:
        InvalidArgument: If an argument is wrong.
    """
    if not all(hasattr(plan, name) for name in ("release", "mechanism", "identity")):
        raise InvalidArgument(
            "Pass what sites are asked: tacit.Look.plan(...), tacit.ModelCheck.plan(...) or tacit.Score.plan(...)."
        )
    chosen, target, names = _method(method), release_target(plan), tuple(sites)

    def read(path: Path) -> Rows:
        return plan.rows(path)

    def finish(server: Server, path: Path) -> None:
        prepared = chosen.prepare(chosen.setting(target, plan.budget, len(names)))
        cost = SiteCost(event=prepared.event, budget=plan.budget, noise_std=prepared.noise_std)
        found = release_result(
            plan,
            FederatedResult(server=server, costs=dict.fromkeys(names, cost)),
            chosen,
            dict.fromkeys(names, study.unit),
            seed,
            book=SITES_HOLD_CHARGES,
        )
        path.with_suffix(".json").write_text(found.to_json(), encoding="utf-8")

    study = Study(
        run=run,
        target=target,
        method=chosen,
        sites=names,
        budget=plan.budget,
        read=read,
        example=plan.example(),
        finish=finish,
        seed=seed,
        schema=plan.schema.to_text(),
    )
    return study
