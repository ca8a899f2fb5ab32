"""Federated fits: one posterior from the data of several sites.

`fit_federated` runs all sites in this process, and `federated_study` defines a study for sites on a network.
`site_part` is a federated result as it concerns one site, for the report of its board, and `held_out_score` a
private score of the result on rows of a site that were not fitted.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, cast
from uuid import uuid4

import numpy as np

from tacit import _validate
from tacit._format import is_watched, progress_bar
from tacit._precision import in_32_bits
from tacit.accounting import Budget
from tacit.accounting.budget import choose_budget
from tacit.accounting.ledger import Ledger
from tacit.api.federated_release import (
    SITES_HOLD_CHARGES,
    check_site_ledgers,
    is_plan,
    privacy_unit,
    release_study,
    site_budgets,
    site_statement,
    spent_epsilon,
)
from tacit.api.plan import Plan, fit_assumptions
from tacit.api.precision import Precision, coarse_forecast
from tacit.api.release import run_release
from tacit.api.rows import dummy_rows, model_columns, model_rows, simulated_units
from tacit.data.schema import Schema
from tacit.data.tables import TableLike
from tacit.errors import InvalidArgument
from tacit.federated.deploy import Study, load_study
from tacit.federated.journal import read_run_progress
from tacit.federated.method import (
    FederatedFit,
    FederatedResult,
    SiteCost,
    charge_label,
    run_in_process,
)
from tacit.federated.pooled import PooledScoring, PooledTarget, early_rounds
from tacit.federated.pvi import Partitioned
from tacit.federated.server import Server
from tacit.federated.settings import SiteSettings
from tacit.federated.sums import NoisySum, SumTarget
from tacit.federated.targets import ConjugateTarget, FitTarget, Target
from tacit.inference.held_out import HeldOutScore, ScoreRange, ScoreRelease, gaussian_draws
from tacit.inference.scoring import Scoring
from tacit.models.base import UnitModel
from tacit.models.conjugate import Conjugate
from tacit.models.front_ends import SchemaLike, adapt_model, resolve_model
from tacit.privacy.mechanisms import NoisySums
from tacit.privacy.rows import Rows
from tacit.results.contents import SiteContribution
from tacit.results.posterior import FederatedPosterior, Posterior
from tacit.results.statement import NO_LEDGER
from tacit.results.summary import to_table_units

_PUBLIC = (
    "the model and its prior",
    "column names, types and shapes",
    "every setting of the method",
    "which sites take part",
)


@in_32_bits
def fit_federated(
    model: object,
    data: Mapping[str, TableLike | Rows],
    *,
    schema: SchemaLike | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    budget: Budget | Mapping[str, Budget] | None = None,
    family: str | None = None,
    method: PooledScoring | Partitioned | None = None,
    size: int | None = None,
    ledgers: Mapping[str, Ledger] | None = None,
    run: str | None = None,
    seed: int | None = None,
    progress: bool | None = None,
) -> FederatedPosterior:
    """Fits one model to the data of several sites, each within its own budget.

    All sites run in this process, for studies and tests. A deployment over a network uses the same
    clients and server; see `tacit.federated_study`, and "Several sites" in the documentation.

    Args:
        model: A model as for `tacit.plan`. Models of `tacit.conjugate` are fitted by their natural
            parameters. A `tacit.federated.targets.ConjugateTarget` is for other conjugate models.
        data: A table for each site, by its name; or `tacit.Rows` for each site, without a
            ``schema``.
        schema: The schema, the same for all sites.
        epsilon: The epsilon of every site.
        delta: The delta of every site; 1e-6 by default.
        budget: The budget of every site, or a mapping with one for each, in the place of
            ``epsilon``. One of the two is required unless the scheme is without privacy.
        family: The family of a formula, as for `tacit.glm`.
        method: ``tacit.federated.PooledScoring()``, the default for models that it fits, or
            ``tacit.federated.Partitioned()``, the default for others.
        size: About how many units the largest site has, if that is public. With more than about
            100,000, sites look at a sample of their units in every round, as a fit of one table does.
        ledgers: Ledgers of sites, by name. The first answer of a site charges the whole run to its
            ledger.
        run: Name of the run. Repeating a run with the same name and settings gives the same answers
            and is not charged again. With ``noise="server"`` repeating is refused, because new
            noise on the same answers would be another release.
        seed: Makes the fit reproducible. The result is then not private.
        progress: Whether to show a progress bar; by default in a terminal and in a notebook.

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
    model, declared = resolve_model(model, schema, family)
    chosen, target = method_and_target(model, declared, method, size)
    if epsilon is not None or delta is not None:
        budget = choose_budget(budget, epsilon, delta)  # type: ignore[arg-type]  # refused if both
    budgets = site_budgets(budget, chosen, data)
    rows = {name: _site_rows(target, declared, table) for name, table in data.items()}
    check_site_ledgers(ledgers or {}, rows, chosen)
    if seed is not None:
        _validate.count("seed", seed, least=0)
    shown = is_watched() if progress is None else progress
    with progress_bar(chosen.num_rounds, shown=shown) as tell:
        found = run_in_process(
            chosen,
            target,
            rows,
            budgets,
            run=run or uuid4().hex,
            ledgers=ledgers,
            schema="" if declared is None else declared.to_text(),
            seed=seed,
            progress=tell,
        )
    units = {name: privacy_unit(chosen, each) for name, each in rows.items()}
    return federated_posterior(found, chosen, target, declared, units, seed)


def method_and_target(
    model: object,
    schema: Schema | None,
    method: PooledScoring | Partitioned | None,
    size: int | None = None,
) -> tuple[FederatedFit[FitTarget], FitTarget]:
    """The method, by default one that fits the model, and what sites fit together."""
    given = model if isinstance(model, ConjugateTarget) else adapt_model(model, schema)
    chosen = method or default_federated_method(given)
    if size is not None:
        if not isinstance(chosen, PooledScoring):
            raise InvalidArgument(
                "size is for PooledScoring(); of Optimised() set the sampling rate: "
                "Optimised(variational=tacit.Variational(sampling_rate=...))."
            )
        chosen = chosen.for_size(size)
    target: FitTarget = chosen.target(given)
    if isinstance(target, PooledTarget) and schema is not None:
        model = target.model
        simulated = simulated_units(schema, model_columns(model, schema), model.may_be_missing)
        target = replace(target, simulated=simulated)
    return cast("FederatedFit[FitTarget]", chosen), target


def default_federated_method(model: UnitModel | ConjugateTarget) -> PooledScoring | Partitioned:
    """The method that fits a model by default."""
    if isinstance(model, ConjugateTarget) or isinstance(model.source, Conjugate):
        return Partitioned()
    return PooledScoring() if Scoring.can_fit(model) else Partitioned()


def _site_rows(target: FitTarget, schema: Schema | None, data: TableLike | Rows) -> Rows:
    if isinstance(data, Rows) and schema is None:
        return data
    if isinstance(data, Rows) or schema is None:
        raise InvalidArgument(
            "Pass tables with a schema, or Rows without a schema; the same for all sites."
        )
    return model_rows(target.model, schema, data)


def federated_posterior(
    found: FederatedResult,
    method: FederatedFit[FitTarget],
    target: FitTarget,
    schema: Schema | None,
    units: Mapping[str, str],
    seed: int | None,
    *,
    book: str = NO_LEDGER,
) -> FederatedPosterior:
    """The posterior as draws, with a statement for each site of which an answer was used.

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
        name: site_statement(
            cost,
            method,
            _PUBLIC,
            fit_assumptions(schema),
            units[name],
            book,
            seeded=seed is not None,
        )
        for name, cost in found.costs.items()
        if found.server.used[name]
    }
    fitted = method.fitted(target, found.server, 0 if seed is None else seed)
    silent = [name for name in found.costs if name not in statements]
    unused = (
        f"No answer of {', '.join(silent)} was used, so there is no privacy statement for it: what it spent, if "
        "anything, is in its own ledger."
    )
    return FederatedPosterior(
        **vars(fitted)
        | {
            "draws": to_table_units(fitted.draws, target.model.interpretation),
            "messages": (*fitted.messages, *((unused,) if silent else ())),
        },
        privacy=max(statements.values(), key=spent_epsilon),
        model=target.model,
        schema=schema,
        labels=target.model.labels,
        interpretation=target.model.interpretation,
        sites=statements,
        answers={name: (found.server.used[name], method.num_rounds) for name in statements},
    )


@in_32_bits
def federated_study(
    model: object,
    *,
    schema: SchemaLike | None = None,
    sites: Sequence[str],
    run: str,
    epsilon: float | None = None,
    delta: float | None = None,
    budget: Budget | None = None,
    family: str | None = None,
    method: PooledScoring | Partitioned | NoisySum | None = None,
    size: int | None = None,
    seed: int | None = None,
) -> Study[FitTarget] | Study[SumTarget]:
    """Defines a federated study for a real deployment: a fit, or tables, a check or a score of all rows.

    The server and each site keep their own copy of the file that calls this function. See
    "Several sites" in the documentation.

    Args:
        model: The model, as for `tacit.fit_federated`; or the plan of what sites release together, as for
            `tacit.release_federated`. A plan has its own schema and budget, and its result is written as JSON.
        schema: The schema, the same at all sites.
        sites: Names of the sites. Their data stay where they are.
        run: Name of the run. A run is charged once, however often it is restarted; a new run needs
            a new name.
        epsilon: The epsilon of every site for this run. A site's own settings limit all runs
            together.
        delta: The delta of every site; 1e-6 by default.
        budget: Epsilon, delta and the neighbouring relation, in the place of ``epsilon``.
        family: The family of a formula, as for `tacit.glm`.
        method: As of `tacit.fit_federated`.
        size: As of `tacit.fit_federated`.
        seed: Makes the run reproducible. The result is then not private.

    Returns:
        The study.
    """
    if isinstance(sites, str):
        raise InvalidArgument("sites must be a list of names.")
    if isinstance(model, Plan):
        raise InvalidArgument(
            "Pass the model itself, with schema= and a budget; the plan of its fit is for one table."
        )
    if is_plan(model):
        given = schema, epsilon, delta, budget, family, size
        if any(each is not None for each in given) or not isinstance(method, NoisySum | None):
            raise InvalidArgument(
                "A plan has its own schema and budget; pass with it sites, run, seed and method=tacit.federated.NoisySum(...) only."
            )
        return release_study(model, sites=sites, run=run, method=method, seed=seed)
    if isinstance(method, NoisySum):
        raise InvalidArgument("NoisySum() is for plans such as tacit.Look.plan(...).")
    total = choose_budget(budget, epsilon, delta)
    model, found = resolve_model(model, schema, family)
    if found is None:
        raise InvalidArgument("A study needs schema=: the public facts about the columns.")
    declared = found
    chosen, target = method_and_target(model, declared, method, size)
    names, example = tuple(sites), dummy_rows(target.model, declared, 1)

    @in_32_bits
    def read(path: Path) -> Rows:
        return model_rows(target.model, declared, path)

    @in_32_bits
    def finish(server: Server, path: Path) -> None:
        prepared = chosen.scheme.prepare(chosen.setting(target, total, len(names)))
        costs = dict.fromkeys(names, SiteCost(event=prepared.event, budget=total))
        federated_posterior(
            FederatedResult(server=server, costs=costs),
            chosen,
            target,
            declared,
            dict.fromkeys(names, study.unit),
            seed,
            book=SITES_HOLD_CHARGES,
        ).save(path)

    study = Study(
        run=run,
        target=target,
        method=chosen,
        sites=names,
        budget=total,
        read=read,
        example=example,
        finish=finish,
        seed=seed,
        schema=declared.to_text(),
    )
    return study


@in_32_bits
def forecast_study(
    study: Study[Target], size: int, *, noise: Literal["site", "split"] | None = None
) -> Precision:
    """Forecasts the precision of a study by pooled scoring. Reads no data, and charges nothing.

    Args:
        study: The study, which has the sites, the budget and the settings.
        size: About how many units all sites have together.
        noise: Forecasts for noise at each site, or split; by default as in the study.

    Returns:
        The forecast.

    Raises:
        InvalidArgument: If the study has another method, or its sites cannot split the noise.
    """
    if not isinstance(study.method, PooledScoring):
        raise InvalidArgument("There are forecasts for PooledScoring() only.")
    model, sites = fitted_model(study), len(study.sites)
    _validate.count("size", size)
    given = study.method
    split = (noise or given.noise) == "split"
    method = replace(given, noise=noise or given.noise, dropouts=given.dropouts if split else 0)
    target = method.target(model)
    found = method.prepare(method.setting(target, study.budget, sites))
    of_sum = found.noise_std * math.sqrt(sites)
    early = 1 + early_rounds(method.num_rounds)
    mechanism = NoisySums(
        sampling_rate=method.sampling_rate,
        num_steps=method.num_rounds,
        clip=1.0,
        noise_multiplier=((of_sum, early), (of_sum, method.num_rounds - early)),
        dimension=found.work.size,
        secrets=True,
    )
    return coarse_forecast(
        model,
        Schema.from_text(study.schema),
        Scoring(num_outcomes=method.num_outcomes),
        mechanism,
        size=size,
        epsilon=study.budget.epsilon,
    )


def fitted_model(study: Study[Target]) -> UnitModel:
    """The model that a study fits; raises if it fits none."""
    if not isinstance(study.target.model, UnitModel):
        raise InvalidArgument(f"The study {study.run!r} fits no model: sites release one sum.")
    return study.target.model


def site_part(posterior: Posterior, path: Path) -> tuple[Posterior, SiteContribution]:
    """A federated result as it concerns one site.

    Args:
        posterior: The result.
        path: The settings of the site, ``site.toml``. Its ledger is read, and no row.

    Returns:
        The result with the statement of this site, and what the site did and spent.

    Raises:
        InvalidArgument: If the result is not of this site, or the site has not answered in its run.
    """
    settings = SiteSettings.from_file(path)
    if settings.name not in posterior.sites:
        raise InvalidArgument(
            f"The result is not of a federated fit with the site {settings.name}."
        )
    study, ledger = load_study(settings.study), Ledger(settings.ledger)
    run = next((each for each in read_run_progress(ledger) if each.run == study.run), None)
    if run is None:
        raise InvalidArgument(f"{settings.name} has not answered in the run {study.run!r}.")
    charges = [each for each in ledger.charges if each.label.startswith(charge_label(study.run))]
    used, asked = posterior.answers.get(settings.name, (None, None))
    part = SiteContribution(
        name=settings.name,
        run=study.run,
        used=used,
        asked=asked,
        given=run.given,
        paid=run.paid,
        charged=sum(each.epsilon for each in charges),
        left=ledger.left,
        total=ledger.total,
    )
    return replace(posterior, privacy=posterior.sites[settings.name]), part


@in_32_bits
def held_out_score(
    path: Path, posterior: Posterior, budget: Budget, own: ScoreRange
) -> HeldOutScore:
    """Releases how well a posterior predicts the held-out rows of a site, and charges the site's ledger.

    Args:
        path: The settings of the site, whose ``held_out`` names a file of rows that were not fitted.
        posterior: The result of the study.
        budget: What the release may cost, under the ledger's adjacency. It is charged every time.
        own: The range of log densities.

    Returns:
        The score.

    Raises:
        InvalidArgument: If the settings name no held-out rows, or the posterior has not as many
            parameters as the study's model. Nothing is charged.
        BudgetError: If the ledger refuses the charge. Nothing is released.
    """
    settings = SiteSettings.from_file(path)
    if settings.held_out is None:
        raise InvalidArgument(
            f'{path} names no held-out rows: held_out = "held_out.csv", a file of rows that are not in data.'
        )
    study = load_study(settings.study)
    model, mean = fitted_model(study), posterior.unconstrained_mean
    covariance = posterior.unconstrained_covariance
    if (
        mean is None
        or covariance is None
        or len(mean) != model.dimension
        or not np.isfinite(covariance).all()
    ):
        raise InvalidArgument(
            "The posterior has not the parameters of this study's model, or is not normal on the "
            "unconstrained scale."
        )
    draws = gaussian_draws(mean, covariance)
    ledger = Ledger(settings.ledger, settings.total, unit=study.unit)
    budget = replace(budget, adjacency=ledger.total.adjacency)
    release = ScoreRelease(models=(model,), vectors=(draws,), range=own, middle=own.high)
    mechanism = release.calibrate(budget)
    released, _ = run_release(
        release,
        study.read(settings.held_out),
        mechanism,
        budget,
        schema=None,
        public=("the result of the study", "the range of log densities"),
        assumption="the held-out rows were not fitted",
        label=f"held-out score of run {study.run}",
        ledger=ledger,
    )
    return release.found(released, mechanism.noise_std).log_density()
