"""Exploring, checking and scoring over several sites: one noisy sum of the rows of all of them.

The question is that for one table, and what follows from the sum is computed by the same code. In
between are the sites: each charges its own ledger, adds its noise and sends the sum of its rows.
`release_federated` runs all sites in this process, and `release_study` defines a study for sites on a network. What
they have in common with fits is here, too: budgets, ledgers and statements of sites.
"""

import math
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, TypeGuard, TypeVar, cast
from uuid import uuid4

from tacit import _validate
from tacit._precision import in_32_bits
from tacit.accounting import Budget
from tacit.accounting.ledger import Ledger
from tacit.api.plan import ASSUMPTIONS, fit_assumptions
from tacit.api.release import SumPlan
from tacit.data.tables import TableLike
from tacit.errors import BudgetError, InvalidArgument
from tacit.federated.deploy import Study
from tacit.federated.method import FederatedMethod, FederatedResult, SiteCost, run_in_process
from tacit.federated.schemes import WithoutPrivacy
from tacit.federated.server import Server
from tacit.federated.sums import NoisySum, Question, SumServer, SumTarget
from tacit.federated.targets import T
from tacit.privacy.rows import Rows
from tacit.results.statement import NO_LEDGER, PrivacyStatement


class Written(Protocol):
    """A result that is written as JSON."""

    def to_json(self) -> str:
        """The result as JSON."""


Found = TypeVar("Found", bound=Written)
# Where the server's result says that charges are.
SITES_HOLD_CHARGES = (
    "each site's own ledger has its charge, on the terms that it confirmed with every answer"
)


@in_32_bits
def release_federated(
    plan: SumPlan[Found],
    data: Mapping[str, TableLike],
    *,
    budget: Mapping[str, Budget] | None = None,
    method: NoisySum | None = None,
    ledgers: Mapping[str, Ledger] | None = None,
    run: str | None = None,
    seed: int | None = None,
) -> Found:
    """Releases tables, a check or a score of the rows of several sites together, each site within its own budget.

    The result is that of `tacit.explore`, `tacit.check` or `tacit.score` for all rows, without pooling them. All sites run in this process, for
    studies and tests. For sites on a network pass the plan to `tacit.federated_study`.

    Args:
        plan: What is asked, with the budget of every site: ``tacit.Look.plan(...)``, ``tacit.ModelCheck.plan(...)`` or
            ``tacit.api.score.Score.plan(...)``.
        data: A table for each site, by its name. Somebody whose rows are at several sites counts at each of them.
        budget: A budget for each site, by its name, in the place of the plan's.
        method: ``tacit.federated.NoisySum()``, the default, or ``tacit.federated.NoisySum(noise="split")``.
        ledgers: Ledgers of sites, by name. Each is charged before anything is computed from the site's rows.
        run: Name of the run. Repeating a run with the same name and settings gives the same answers and is not charged again.
        seed: Makes the release reproducible. It is then not private.

    Returns:
        What the plan is for: a `Look`, a `ModelCheck` or a score, with the privacy statement of each site in ``sites``. Its
        intervals contain the noise of all sites.

    Raises:
        InvalidArgument: If an argument is wrong. Nothing is charged.
        BudgetError: If a ledger would refuse the charge. No site is charged.
    """
    check_is_plan(plan)
    if not isinstance(data, Mapping) or not data:
        raise InvalidArgument("data must map the names of sites to their tables.")
    chosen = _method(method)
    budgets = site_budgets(plan.budget if budget is None else budget, chosen, data)
    if seed is not None:
        _validate.count("seed", seed, least=0)
    rows = {name: plan.rows(table) for name, table in data.items()}
    check_site_ledgers(ledgers or {}, rows, chosen)
    target = release_target(plan)
    found = run_in_process(
        chosen,
        target,
        rows,
        budgets,
        run=run or uuid4().hex,
        ledgers=ledgers,
        schema=plan.schema.to_text(),
        seed=seed,
    )
    units = {name: each.unit for name, each in rows.items()}
    return release_result(plan, found, chosen, units, seed)


def _method(method: NoisySum | None) -> NoisySum:
    if not isinstance(method, NoisySum | None):
        raise InvalidArgument(
            'method must be tacit.federated.NoisySum(), or NoisySum(noise="split").'
        )
    return method or NoisySum()


def release_target(asked: SumPlan[Found]) -> SumTarget:
    """What sites compute for the release of a plan."""
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


def check_is_plan(plan: object) -> None:
    """Raises unless this is a plan of one noisy sum."""
    if not is_plan(plan):
        raise InvalidArgument(
            "Pass what sites are asked: tacit.Look.plan(...), tacit.ModelCheck.plan(...) or tacit.api.score.Score.plan(...)."
        )


def is_plan(plan: object) -> TypeGuard[SumPlan[Any]]:
    """Whether this is a plan of one noisy sum."""
    return all(hasattr(plan, name) for name in ("release", "mechanism", "identity", "found"))


def release_study(
    plan: SumPlan[Found],
    *,
    sites: Sequence[str],
    run: str,
    method: NoisySum | None = None,
    seed: int | None = None,
) -> Study[SumTarget]:
    """The study of a plan; see `tacit.federated_study`."""
    chosen, target, names = _method(method), release_target(plan), tuple(sites)
    prepared = chosen.prepare(chosen.setting(target, plan.budget, len(names)))

    @in_32_bits
    def read(path: Path) -> Rows:
        return plan.rows(path)

    @in_32_bits
    def finish(server: Server, path: Path) -> None:
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


def site_budgets(
    budget: Budget | Mapping[str, Budget] | None,
    method: FederatedMethod[T],
    names: Collection[str],
) -> dict[str, Budget | None]:
    """The budget of each site, by its name."""
    if isinstance(method.scheme, WithoutPrivacy):
        if budget is not None:
            raise InvalidArgument("WithoutPrivacy() spends no budget; leave it out.")
        return dict.fromkeys(names)
    if isinstance(budget, Budget):
        return dict.fromkeys(names, budget)
    if (
        not isinstance(budget, Mapping)
        or set(budget) != set(names)
        or not all(isinstance(each, Budget) for each in budget.values())
    ):
        raise InvalidArgument(
            "Pass epsilon= (with delta= if it is not 1e-6), budget=tacit.Budget(epsilon, delta), or a mapping "
            "with such a budget for each site."
        )
    return {name: budget[name] for name in names}


def privacy_unit(method: FederatedMethod[T], rows: Rows) -> str:
    """The unit of privacy at a site."""
    return "data set" if method.scheme.protects == "data set" else rows.unit


def check_site_ledgers(
    ledgers: Mapping[str, Ledger], rows: Mapping[str, Rows], method: FederatedMethod[T]
) -> None:
    """Raises if a ledger is of no site or of several, or protects another unit than the run."""
    if not isinstance(ledgers, Mapping):
        raise InvalidArgument("ledgers must map names of sites to tacit.Ledger(path).")
    sites: dict[str, str] = {}  # the name of the site of each file
    for name, ledger in ledgers.items():
        if name not in rows or not isinstance(ledger, Ledger):
            raise InvalidArgument("ledgers must map names of sites to tacit.Ledger(path).")
        other = sites.setdefault(os.path.realpath(str(ledger.path)), name)
        if other != name:  # its journal has one answer in a round, and both would be charged as one
            raise InvalidArgument(
                f"{other} and {name} have the same ledger; each site needs its own."
            )
        unit = privacy_unit(method, rows[name])
        if ledger.unit != unit:
            raise BudgetError(
                f"The ledger of {name} protects a {ledger.unit}; this method protects a {unit}."
            )


def spent_epsilon(statement: PrivacyStatement) -> float:
    """Epsilon, or infinity if there is none."""
    spent = statement.epsilons[statement.adjacency]
    return math.inf if spent is None else spent


def site_statement(
    cost: SiteCost,
    method: FederatedMethod[T],
    public: tuple[str, ...],
    assumptions: tuple[str, ...],
    unit: str,
    book: str,
    *,
    seeded: bool,
) -> PrivacyStatement:
    """The privacy statement of one site.

    Args:
        cost: What the run costs it.
        method: Settings of the run.
        public: What the run treats as public.
        assumptions: What must be true beside what the method needs.
        unit: The unit of privacy.
        book: Where charges are kept, if the ledger is not at hand.
        seeded: Whether the noise came from a seed.

    Returns:
        The statement.
    """
    budget, ledger = cost.budget, cost.ledger
    return PrivacyStatement(
        event=cost.event,
        delta=0.0 if budget is None else budget.delta,
        adjacency="add-remove" if budget is None else budget.adjacency,
        unit=unit,
        public=public,
        assumptions=(*assumptions, *method.scheme.trust),
        seeded=seeded,
        asked=None if budget is None else budget.epsilon,
        budget_left=None if ledger is None else ledger.left,
        book=book,
    )
