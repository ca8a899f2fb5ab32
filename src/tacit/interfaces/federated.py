"""Federated fits: one posterior from the data of several sites."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from uuid import uuid4

from tacit import _validate
from tacit.accounting import Budget
from tacit.accounting.ledger import Ledger
from tacit.data.schema import Schema
from tacit.errors import BudgetError, InvalidArgument
from tacit.federated.engine import FederatedResult, SiteCost, in_process
from tacit.federated.method import FederatedMethod
from tacit.federated.partitioned import Partitioned
from tacit.federated.schemes.without_privacy import WithoutPrivacy
from tacit.federated.scored.settings import PooledScoring
from tacit.federated.scored.site import ScoredTarget
from tacit.federated.target import ConjugateTarget
from tacit.inference.scoring import suits
from tacit.interfaces.front_ends.registry import as_model
from tacit.interfaces.progress import progress_bar
from tacit.interfaces.rows import columns_of, rows_of, simulated_units
from tacit.interfaces.statements import assumed
from tacit.models.base import AnyModel
from tacit.models.reading import reading_of
from tacit.models.statistic import Conjugate
from tacit.privacy.rows import Rows
from tacit.results.posterior import FederatedPosterior
from tacit.results.statement import NO_LEDGER, PrivacyStatement


def fit_federated(
    model: Any,
    data: Mapping[str, Any],
    *,
    schema: Schema | None = None,
    budget: Budget | Mapping[str, Budget] | None = None,
    method: FederatedMethod | None = None,
    ledgers: Mapping[str, Ledger] | None = None,
    run: str | None = None,
    seed: int | None = None,
    progress: bool = False,
) -> FederatedPosterior:
    """Fits one model to the data of several sites, each within its own budget.

    All sites run in this process, for studies and tests. A deployment over a network uses the same
    clients and server; see `tacit.federated_study` and docs/federated.md.

    Args:
        model: A model as for `tacit.plan`. Models of `tacit.conjugate` are fitted by their natural
            parameters. A `tacit.federated.target.ConjugateTarget` is for other conjugate models.
        data: A table for each site, by its name; or `tacit.Rows` for each site, without a
            ``schema``.
        schema: The schema, the same for all sites.
        budget: The budget of every site, or a mapping with one for each. Required unless the scheme
            is without privacy.
        method: ``tacit.federated.PooledScoring()``, the default for models that it fits, or
            ``tacit.federated.Partitioned()``, the default for others.
        ledgers: Ledgers of sites, by name. The first answer of a site charges the whole run to its
            ledger.
        run: Name of the run. Repeating a run with the same name and settings gives the same answers
            and is not charged again. With ``noise="server"`` repeating is refused, because new
            noise on the same answers would be another release.
        seed: Makes the fit reproducible. The result is then not private.
        progress: Whether to show a progress bar on standard error.

    Returns:
        The posterior, with the privacy statement of each site in ``sites``.

    Raises:
        InvalidArgument: If an argument is wrong. Nothing is charged.
        BudgetError: If a ledger refuses the charge.
    """
    if not isinstance(method, PooledScoring | Partitioned | None):
        raise InvalidArgument(
            "method must be tacit.federated.PooledScoring(...) or tacit.federated.Partitioned(...)."
        )
    if not isinstance(data, Mapping) or not data:
        raise InvalidArgument("data must map the names of sites to their tables, or to Rows.")
    method, target = method_and_target(model, schema, method)
    budgets = _budgets(budget, method, data)
    rows = {name: _rows(target, schema, table) for name, table in data.items()}
    _refuse_ledgers(ledgers or {}, rows, method)
    if seed is not None:
        _validate.count("seed", seed, least=0)
    with progress_bar(method.num_rounds, shown=progress) as tell:
        found = in_process(
            method,
            target,
            rows,
            budgets,
            run=run or uuid4().hex,
            ledgers=ledgers,
            seed=seed,
            progress=tell,
        )
    units = {name: _unit(method, each) for name, each in rows.items()}
    return posterior_of(found, method, target, schema, units, seed)


def _budgets(
    budget: Budget | Mapping[str, Budget] | None, method: FederatedMethod, data: Mapping[str, Any]
) -> dict[str, Budget | None]:
    if isinstance(method.scheme, WithoutPrivacy):
        if budget is not None:
            raise InvalidArgument("WithoutPrivacy() spends no budget; leave it out.")
        return dict.fromkeys(data)
    if isinstance(budget, Budget):
        return dict.fromkeys(data, budget)
    if not isinstance(budget, Mapping) or set(budget) != set(data):
        raise InvalidArgument(
            "Pass budget=tacit.Budget(epsilon, delta), or a mapping with one for each site."
        )
    return {name: budget[name] for name in data}


def method_and_target(
    model: Any, schema: Schema | None, method: FederatedMethod | None
) -> tuple[FederatedMethod, Any]:
    """The method, by default one that fits the model, and what sites fit together."""
    given = model if isinstance(model, ConjugateTarget) else as_model(model, schema)
    chosen = method or default_method(given)
    target = chosen.target(given)
    if isinstance(target, ScoredTarget) and schema is not None:
        simulated = simulated_units(schema, columns_of(target.model, schema))
        target = replace(target, simulated=simulated)
    return chosen, target


def default_method(model: AnyModel | ConjugateTarget) -> FederatedMethod:
    """What fits a model if nothing is asked for."""
    pooled = not isinstance(model, Conjugate | ConjugateTarget) and suits(model)
    return PooledScoring() if pooled else Partitioned()


def _rows(target: Any, schema: Schema | None, data: Any) -> Rows:
    if isinstance(data, Rows) != (schema is None):
        raise InvalidArgument(
            "Pass tables with a schema, or Rows without a schema; the same for all sites."
        )
    return data if schema is None else rows_of(target.model, schema, data)


def _unit(method: FederatedMethod, rows: Rows) -> str:
    """The unit of privacy at a site."""
    return "data set" if method.scheme.protects == "data set" else rows.unit


def _refuse_ledgers(
    ledgers: Mapping[str, Ledger], rows: Mapping[str, Rows], method: FederatedMethod
) -> None:
    for name, ledger in ledgers.items():
        if name not in rows or not isinstance(ledger, Ledger):
            raise InvalidArgument("ledgers must map names of sites to tacit.Ledger(path).")
        unit = _unit(method, rows[name])
        if ledger.unit != unit:
            raise BudgetError(
                f"The ledger of {name} protects a {ledger.unit}; this method protects a {unit}."
            )


def posterior_of(
    found: FederatedResult,
    method: FederatedMethod,
    target: Any,
    schema: Schema | None,
    units: Mapping[str, str],
    seed: int | None,
    *,
    book: str = NO_LEDGER,
) -> FederatedPosterior:
    """The posterior as draws, with a statement for each site.

    Args:
        found: The result of the run.
        method: Settings of the run.
        target: What sites fitted together.
        schema: The schema, if there is one.
        units: The unit of privacy at each site, by name.
        seed: The seed, if the run is not private.
        book: Where charges are kept, if ledgers are not at hand.

    Returns:
        The posterior.
    """
    statements = {
        name: _statement(cost, method, schema, units[name], book, seeded=seed is not None)
        for name, cost in found.costs.items()
    }
    fitted = method.fitted(target, found.server, 0 if seed is None else seed)
    return FederatedPosterior(
        draws=fitted.draws,
        unconstrained_mean=fitted.mean,
        unconstrained_covariance=fitted.covariance,
        trace=fitted.trace,
        privacy=max(statements.values(), key=_cost),
        model=target.model,
        schema=schema,
        labels=target.model.labels,
        reading=reading_of(target.model),
        sites=statements,
        answers={name: (used, method.num_rounds) for name, used in found.server.used.items()},
        said=fitted.said,
        converged=fitted.converged,
        fitted_by=fitted.fitted_by,
        intervals=fitted.intervals,
    )


def _cost(statement: PrivacyStatement) -> float:
    """Epsilon, or infinity if there is none."""
    spent = statement.epsilons[statement.adjacency]
    return math.inf if spent is None else spent


def _statement(
    cost: SiteCost,
    method: FederatedMethod,
    schema: Schema | None,
    unit: str,
    book: str,
    *,
    seeded: bool,
) -> PrivacyStatement:
    """The privacy statement of one site."""
    budget, ledger = cost.budget, cost.ledger
    return PrivacyStatement(
        event=cost.event,
        delta=0.0 if budget is None else budget.delta,
        adjacency="add-remove" if budget is None else budget.adjacency,
        unit=unit,
        public=(
            "the model and its prior",
            "column names, types and shapes",
            "every setting of the method",
            "which sites take part",
        ),
        assumptions=(*assumed(schema), *method.scheme.trust),
        seeded=seeded,
        asked=None if budget is None else budget.epsilon,
        budget_left=None if ledger is None else ledger.left,
        book=book,
    )
