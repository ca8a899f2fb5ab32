"""Fitting: from a model, rows and a budget to a posterior.

`fit` has all steps of a fit in their order. The plan follows from public facts only, so it is made before rows are
read. The ledger is charged in full before anything that could leave is computed from rows.
"""

import os
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np

from tacit import _validate
from tacit._format import is_watched, progress_bar
from tacit._precision import in_32_bits
from tacit.accounting import Budget
from tacit.accounting.budget import choose_budget
from tacit.accounting.ledger import Ledger, Receipt
from tacit.api.plan import (
    Plan,
    build_plan,
    cached_plan,
    check_ledger,
    check_model,
    check_on_dummy_row,
)
from tacit.api.resume import Run, open_run
from tacit.api.rows import Data, model_rows, read_files
from tacit.data.schema import Schema
from tacit.errors import ForecastWarning, Interrupted, InvalidArgument, TooFewUnits
from tacit.inference.method import Method
from tacit.inference.reference_fits import laplace, nuts
from tacit.inference.registry import choose_method, entry_named
from tacit.inference.result import Intervals, MethodResult
from tacit.models.base import UnitModel
from tacit.models.front_ends import SchemaLike, adapt_model, resolve_model
from tacit.privacy.distributed import PartitionedRows, Processes
from tacit.privacy.gate import Gate, open_gate
from tacit.privacy.mechanisms import stopped_event
from tacit.privacy.noise import Randomness
from tacit.privacy.rows import Rows
from tacit.results.posterior import Posterior
from tacit.results.statement import PrivacyStatement
from tacit.results.summary import to_table_units


@in_32_bits
def fit(
    model: object,
    data: Data,
    *,
    schema: SchemaLike | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    budget: Budget | None = None,
    family: str | None = None,
    method: Method | str | None = None,
    size: int | None = None,
    ledger: Ledger | None = None,
    seed: int | None = None,
    progress: bool | None = None,
    run: str | os.PathLike[str] | None = None,
    label: str | None = None,
) -> Posterior:
    """Fits a model to data within a privacy budget.

    If the plan's forecast is hopeless, or most rows would be clipped, a
    `tacit.errors.ForecastWarning` says so before the charge. A model by formula, a conjugate model or
    a `tacit.Model` that was fitted before with the same schema, budget, method and size is neither
    planned nor compiled anew.

    Args:
        model: A formula such as ``"readmitted ~ age + ward"`` or another model as `tacit.plan` takes
            it; or a `Plan`, which has its own schema, budget, method and size.
        data: A data frame, a mapping of arrays or the path of a file (see `Schema.encode`); or a
            list of paths, which several processes share (see "Large tables" in the documentation). A
            `tacit.Model` without a schema takes `tacit.Rows`.
        schema: The public facts about the columns, or the path of their YAML file. Leave it out if
            ``model`` was made by `tacit.glm`, or if ``data`` are `tacit.Rows`.
        epsilon: The epsilon that the fit may cost.
        delta: The delta that it may cost; 1e-6 by default. Choose it well below one over the number
            of people.
        budget: Epsilon, delta and the neighbouring relation, in the place of ``epsilon``.
        family: The distribution of the outcome of a formula, as for `tacit.glm`.
        method: An inference method by name, such as ``"variational"``, or its settings, such as
            ``tacit.Scoring(num_steps=57)``. By default `tacit.Scoring` if the model can simulate its
            outcomes and has at most 400 unconstrained parameters, and `tacit.Variational` otherwise.
        size: About how many rows or people there are, a public number; see `tacit.plan`.
        ledger: The ledger of the data, charged in full before the fit starts. With None, nothing
            limits how often the data are used, and the result says so.
        seed: Makes the fit reproducible. The result is then not private, and its statement says so.
        progress: Whether to show a progress bar; by default in a terminal and in a notebook.
        run: A folder that keeps the fit until it is finished, and then its posterior. If the process
            ends before, the same call continues the fit and is not charged again; see
            "Interrupted fits" in the documentation.
        label: A public note for the ledger's entry, such as a purpose or an approval number. The
            entry names the model and the method in any case.

    Returns:
        The posterior, with its privacy statement in ``privacy``.

    Raises:
        InvalidArgument: If an argument, the schema or the table's header is wrong. Nothing is
            charged.
        BudgetError: If the budget cannot be met, does not suit the ledger, or exceeds what the
            ledger has left. Nothing is charged.
        LedgerError: If the ledger cannot be used.
        BoundaryError: If the model or method would take rows past the gate.
        TooFewUnits: If the default method stops after its noisy count of rows or people. Only the count
            is spent.
        Unsaved: If the posterior cannot be written to ``run``. The same call goes on with the fit.
    """
    # 1. Check the arguments.
    given = (schema, epsilon, delta, budget, family, method, size)
    if isinstance(model, Plan) and any(each is not None for each in given):
        raise InvalidArgument("A plan has its own schema, budget, method and size: leave them out.")
    _check_seed(seed)
    # 2. Choose the model and the method, and
    # 3. plan the fit: from public facts, before any row is read.
    if isinstance(model, Plan):
        plan = model
    else:
        budget = choose_budget(budget, epsilon, delta)
        plan = _plan(*resolve_model(model, schema, family), data, budget, method, size)
    is_first = jax.process_index() == 0
    if jax.process_count() > 1:
        Processes().meet()
    if is_first:
        for sentence in plan.warnings:
            warnings.warn(sentence, ForecastWarning, stacklevel=3)
    # 4. Read the rows.
    rows = _read_rows(plan.model, plan.schema, data)
    # 5. Check the ledger.
    if ledger is not None:
        check_ledger(ledger, [plan.budget], [rows])
    with open_run(
        plan, rows, data, ledger, seed, label, None if run is None else Path(run)
    ) as opened:
        randomness = opened.randomness()
        gate = open_gate(rows, plan.mechanism, randomness, opened.checkpoint())
        gate.check_size()
        # 6. Charge the ledger, in full.
        opened.charge()
        try:
            # 7. Run the method through the gate.
            shown = is_watched() if progress is None else progress
            with opened.recorded_stop(gate):
                found = _run_method(plan, gate, randomness, progress=shown and is_first)
            # 8. Record the posterior with its privacy statement.
            statement = plan.statement(gate, opened.receipt())
            posterior = _planned_posterior(plan, found, statement)
        except KeyboardInterrupt as error:
            if not opened.is_charged:
                raise
            raise interrupted([plan.statement(gate, opened.receipt())], opened.hint) from error
        return opened.finish(posterior)


def _check_seed(seed: int | None) -> None:
    if seed is not None:
        _validate.count("seed", seed, least=0)


def _plan(
    model: object,
    schema: Schema | None,
    data: Data,
    budget: Budget,
    method: Method | str | None,
    size: int | None,
) -> Plan:
    """The plan of a fit whose arguments were passed one by one."""
    if isinstance(data, Rows) and schema is None:
        return build_plan(adapt_model(model, None), None, data.blank(), budget, method, size)
    if schema is None:
        raise InvalidArgument("Pass schema=tacit.Schema(...): the public facts about the columns.")
    return cached_plan(model, schema, budget, method, size)


@in_32_bits
def fit_many(
    model: object,
    rows: Sequence[Rows],
    budgets: Sequence[Budget],
    method: Method | None = None,
    *,
    ledger: Ledger | None = None,
    seeds: Sequence[int | None] | None = None,
    progress: bool = False,
) -> list[Posterior]:
    """Several fits of one model, one after the other, which share a compiled program.

    Each has its own rows and budget. They are charged together before the first of them runs: all or
    none. If some stop after their counts, the others are fitted all the same, and the error that is
    raised then has their posteriors.
    """
    adapted = adapt_model(model, None)
    method = choose_method(adapted, method)
    seeds = [None] * len(rows) if seeds is None else seeds
    if not rows or not (len(rows) == len(budgets) == len(seeds)):
        raise InvalidArgument("Pass one budget for each fit, and one seed if any.")
    shared: dict[tuple[object, Budget], Plan] = {}  # fits that are alike in public share a plan
    plans, gates, runs, sources = [], [], [], []
    for own, budget, seed in zip(rows, budgets, seeds, strict=True):
        _check_seed(seed)
        if (own.shapes, budget) not in shared:
            plan = build_plan(adapted, None, own.blank(), budget, method)
            shared[own.shapes, budget] = plan
        plans.append(shared[own.shapes, budget])
        runs.append(Run(plans[-1], ledger, seed))
        sources.append(runs[-1].randomness())
        gates.append(open_gate(own, plans[-1].mechanism, sources[-1]))
    if ledger is not None:
        check_ledger(ledger, budgets, rows)
    for gate in gates:
        gate.check_size()
    receipts: Sequence[Receipt | None] = [None] * len(plans)
    if ledger is not None:
        receipts = ledger.charge_all(
            [(plan.mechanism.event, plan.budget) for plan in plans],
            label=plans[0].label(),
            run_ids=[run.name for run in runs],
            stopped=[stopped_event(plan.mechanism) for plan in plans],
        )
    charged = list(zip(plans, gates, receipts, strict=True))
    found = []
    try:
        for (plan, gate, receipt), run, source in zip(charged, runs, sources, strict=True):
            with suppress(TooFewUnits), run.recorded_stop(gate):
                result = _run_method(plan, gate, source, progress=progress)
                found.append(_planned_posterior(plan, result, plan.statement(gate, receipt)))
    except KeyboardInterrupt as error:
        spent = [plan.statement(gate, receipt) for plan, gate, receipt in charged]
        raise interrupted(spent) from error
    if stops := [run.stop for run in runs if run.stop is not None]:
        stops[0].posteriors = found
        raise stops[0]
    return found


_REFERENCE_FITS = {"laplace": laplace, "nuts": nuts}


@in_32_bits
def fit_without_privacy(
    model: object,
    data: Data,
    *,
    schema: SchemaLike | None = None,
    family: str | None = None,
    method: Method | str | None = None,
    seed: int = 0,
) -> Posterior:
    """Fits a model without privacy, for comparison. The result is NOT PRIVATE.

    The default is a Laplace approximation: the exact posterior mode by Newton's method on all rows,
    and a normal distribution with the curvature there.

    Args:
        model: A model or a plan, as for `tacit.fit`.
        data: The data, as for `tacit.fit`.
        schema: The schema, as for `tacit.fit`.
        family: The family of a formula, as for `tacit.fit`.
        method: None or ``"laplace"`` for the Laplace approximation; ``"nuts"`` for draws from the
            posterior by one chain of NumPyro's NUTS; or one of Tacit's methods, as for `tacit.fit`,
            which then runs with its clip but without noise.
        seed: Seed of all random numbers.

    Returns:
        The posterior. Its statement says that it is not private. ``converged`` says whether a mode
        was found, or whether the chain mixed.

    Raises:
        InvalidArgument: If an argument, the schema or the table's header is wrong.
    """
    _validate.count("seed", seed, least=0)
    if isinstance(method, str) and method not in _REFERENCE_FITS:
        method = entry_named(method, tuple(_REFERENCE_FITS)).kind()
    if not isinstance(method, Method | str | None):
        raise InvalidArgument(
            'method must be None for the exact mode, "nuts", or settings such as tacit.Scoring().'
        )
    if isinstance(model, Plan):
        if schema is not None or family is not None:
            raise InvalidArgument("A plan has its own schema and model: leave them out.")
        adapted, declared = model.model, model.schema
    else:
        model, declared = resolve_model(model, schema, family)
        adapted = adapt_model(model, declared)
    rows = _read_rows(adapted, declared, data)
    if isinstance(method, Method):
        return _without_noise(adapted, declared, rows, method, seed)
    if isinstance(rows, PartitionedRows):
        raise InvalidArgument(
            "The exact mode and NUTS need all rows in one table; pass one file, or a method such as "
            "tacit.Scoring()."
        )
    check_model(adapted, rows.blank())
    found = _REFERENCE_FITS[method or "laplace"](adapted, rows, seed)
    return _posterior(adapted, declared, found, _statement_without_privacy(rows))


def _without_noise(
    adapted: UnitModel, schema: Schema | None, rows: Rows, method: Method, seed: int
) -> Posterior:
    """A method's own run, without noise."""
    source, mechanism = Randomness(seed), method.without_noise(adapted)
    check_on_dummy_row(adapted, method, rows.blank(), mechanism)
    gate = open_gate(rows, mechanism, source)
    found = method.run(adapted, gate, _model_key(source, gate))
    return _posterior(adapted, schema, found, _statement_without_privacy(rows))


def _statement_without_privacy(rows: Rows) -> PrivacyStatement:
    """That there is no guarantee."""
    return PrivacyStatement(
        event=None, delta=0.0, adjacency="add-remove", unit=rows.unit, public=(), seeded=True
    )


def _read_rows(model: UnitModel, schema: Schema | None, data: Data) -> Rows:
    """The private rows of the data, encoded by the schema if there is one."""
    if schema is None and isinstance(data, Rows):
        return data
    if schema is None or isinstance(data, Rows):
        raise InvalidArgument(
            "Pass a data frame, a mapping of arrays or a path with a schema, or Rows without one."
        )
    if isinstance(data, list):
        return read_files(model, schema, data)
    return model_rows(model, schema, data)


def _run_method(plan: Plan, gate: Gate, randomness: Randomness, *, progress: bool) -> MethodResult:
    """Runs the plan's method through the gate."""
    with progress_bar(plan.mechanism.num_steps, shown=progress) as report_progress:
        key = _model_key(randomness, gate)
        return plan.method.run(plan.model, gate, key, report_progress)


@in_32_bits
def run_plan(
    plan: Plan,
    gate: Gate,
    randomness: Randomness,
    statement: PrivacyStatement,
    *,
    progress: bool,
) -> Posterior:
    """A fit that was charged as a part of something larger, whose statement it gets.

    Raises:
        Interrupted: If the fit was interrupted.
    """
    try:
        found = _run_method(plan, gate, randomness, progress=progress)
    except KeyboardInterrupt as error:
        raise interrupted([statement]) from error
    return _planned_posterior(plan, found, statement)


def _planned_posterior(plan: Plan, found: MethodResult, statement: PrivacyStatement) -> Posterior:
    """What was found, with what the plan says about it."""
    # The first process has computed the forecast before; in the others it would only take time.
    wanted = plan.size is not None and jax.process_index() == 0
    precision = plan.precision if wanted else None
    expected = {each.parameter: each.concentrated for each in precision.lines} if precision else {}
    posterior = _posterior(plan.model, plan.schema, found, statement)
    return replace(posterior, expected=expected, fitted_by=plan.method_lines())


def interrupted(spent: Sequence[PrivacyStatement], hint: str = "") -> Interrupted:
    """The error of a fit that was interrupted after its charge."""
    statements = "\n\n".join(map(str, spent))
    return Interrupted(
        "Interrupted. The run counts as spent: its ledger, if any, was charged in full before it "
        f"started, and charges are not refunded.{hint}\n{statements}"
    )


def _model_key(source: Randomness, gate: Gate) -> jax.Array:
    """The key of the model's own draws, which protect nobody."""
    word = int(source.child("model").words(1)[0] >> np.uint64(33))
    return jax.random.key(gate.agree(word))


def _posterior(
    model: UnitModel, schema: Schema | None, found: MethodResult, statement: PrivacyStatement
) -> Posterior:
    """What a method found, with its statement and what the model says about it."""
    if statement.event is None:
        found = replace(found, intervals=Intervals.NO_NOISE)
    return Posterior(
        **vars(found) | {"draws": to_table_units(found.draws, model.interpretation)},
        privacy=statement,
        model=model,
        schema=schema,
        labels=model.labels,
        interpretation=model.interpretation,
    )
