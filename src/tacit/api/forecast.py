"""Forecasts: what a fit will be worth, before data are read and anything is charged."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from tacit import _validate
from tacit._precision import in_32_bits
from tacit._typing import Floats
from tacit.accounting import Budget
from tacit.accounting.budget import choose_budget
from tacit.api.forecast_result import Forecast, ForecastLine
from tacit.api.precision import pessimistic_assumptions, pessimistic_scenario
from tacit.api.rows import model_columns
from tacit.api.scenario import Scenario
from tacit.api.simulate import (
    INTERVAL_LEVEL,
    SimulatedFits,
    SimulatedTables,
    fit_tables,
    width_without_privacy,
)
from tacit.data.columns import Binary, Category
from tacit.data.schema import Schema
from tacit.errors import InvalidArgument
from tacit.inference.method import Method
from tacit.inference.one_sample import OneSample
from tacit.inference.registry import choose_method
from tacit.inference.statistics import Statistics
from tacit.models.base import UnitModel
from tacit.models.front_ends import SchemaLike, adapt_model, resolve_model
from tacit.models.glm import INTERCEPT

# An effect is detectable if at least this share of intervals excludes zero.
_DETECTION_POWER = 0.8
# The ends of an interval, the upper one first.
_INTERVAL_QUANTILES = (1 - (1 - INTERVAL_LEVEL) / 2, (1 - INTERVAL_LEVEL) / 2)
# The quantile of the widths of fits to unfavourable tables that is reported.
_PESSIMISTIC_QUANTILE = 0.75
# A limit on the time that a forecast takes.
_MAX_TABLES = 1000


@in_32_bits
def forecast(
    model: object,
    schema: SchemaLike | None = None,
    *,
    size: int,
    epsilon: float | Sequence[float] | None = None,
    delta: float | None = None,
    budgets: Budget | Sequence[Budget] | None = None,
    family: str | None = None,
    method: Method | str | None = None,
    scenario: Scenario | None = None,
    focus: str | None = None,
    effect: float | None = None,
    repeats: int = 10,
    seed: int = 0,
) -> Forecast:
    """Forecasts what fits within some budgets will be worth. Reads no data and charges nothing.

    True parameters are drawn from the prior, and tables from the model. The method fits every table
    within each budget, as it would fit the data. Where the scenario leaves something open, other
    tables are simulated with unfavourable columns, and the forecast is a range.

    Args:
        model: A model as for `tacit.plan`. It must be able to draw its outcomes.
        schema: The public facts about the columns, as for `tacit.plan`.
        size: About how many rows there will be, or people if the schema names a person column. A
            guess within a factor of two is enough. It must be public: do not take it from the data.
        epsilon: One epsilon or several to compare.
        delta: Their delta; 1e-6 by default.
        budgets: One budget or several, in the place of ``epsilon``.
        family: The family of a formula, as for `tacit.glm`.
        method: An inference method or its name. By default what `tacit.plan` chooses for this size.
        scenario: What is expected of columns and effects. By default columns are uniform within
            their bounds at the narrow end of a range, and fill a tenth of them at the wide end;
            parameters are drawn from the prior.
        focus: The parameter that sentences are about. By default the first that is not an
            intercept.
        effect: An effect of interest. The forecast then says how often it would be distinguished from zero.
        repeats: The number of simulated tables.
        seed: Seed of all random numbers.

    Returns:
        The forecast. Print it.

    Raises:
        InvalidArgument: If an argument cannot be used, or the model cannot draw its outcomes.
        BudgetError: If no noise level meets a budget.
    """
    model, schema = resolve_model(model, schema, family)
    if not isinstance(schema, Schema):
        raise InvalidArgument("forecast needs a tacit.Schema: the public facts about the columns.")
    adapted = adapt_model(model, schema)
    assumed = Scenario() if scenario is None else scenario
    tables = SimulatedTables(model=adapted, schema=schema, size=size, scenario=assumed, seed=seed)
    chosen = _choose_budgets(budgets, epsilon, delta)
    return forecast_from_tables(tables, chosen, method, focus=focus, effect=effect, repeats=repeats)


def _choose_budgets(
    budgets: Budget | Sequence[Budget] | None,
    epsilon: float | Sequence[float] | None,
    delta: float | None,
) -> list[Budget]:
    """The budgets of a call that takes several, or several epsilons with one delta."""
    if budgets is None and isinstance(epsilon, Sequence | np.ndarray):
        return [choose_budget(None, each, delta) for each in epsilon]
    several = budgets if isinstance(budgets, Sequence) else [budgets]
    return [choose_budget(each, epsilon, delta) for each in several]  # type: ignore[arg-type]


def can_forecast(model: UnitModel, method: Method) -> bool:
    """Whether a method can fit a model's simulated tables.

    Statistics and single draws read the columns of the model's own class, and simulated tables hold
    outcomes beside the columns.
    """
    return model.simulate is not None and not isinstance(method, Statistics | OneSample)


def forecast_from_tables(
    tables: SimulatedTables,
    budgets: Sequence[Budget],
    method: Method | str | None = None,
    *,
    focus: str | None = None,
    effect: float | None = None,
    repeats: int = 10,
) -> Forecast:
    """Fits simulated tables within some budgets; see `forecast`."""
    size = tables.size
    methods = [choose_method(tables.model, method, size, budget) for budget in budgets]
    _check_arguments(tables, methods, effect, repeats)
    if focus is None:
        focus = next((label for label in tables.labels if label != INTERCEPT), tables.labels[0])
    _validate.choice("focus", focus, tables.labels)
    rows, truth = tables.simulate(repeats)
    fits = [
        fit_tables(tables, rows, budget, each)
        for budget, each in zip(budgets, methods, strict=True)
    ]
    floor = width_without_privacy(tables, rows)
    wide, assumed = _pessimistic_widths(tables, budgets, methods, repeats)
    lines = [
        line._replace(wide=max(line.width, float(most)))
        for budget, found, widest in zip(budgets, fits, wide, strict=True)
        for line, most in zip(
            _forecast_lines(tables, budget.epsilon, found, truth, floor, effect),
            widest,
            strict=True,
        )
    ]
    return Forecast(
        size=size,
        unit="row" if tables.schema.person is None else "person",
        budgets=tuple(budgets),
        method=tuple(map(repr, methods)),
        assumptions=(*tables.scenario.describe(tables.schema), *assumed),
        lines=tuple(lines),
        seconds=tuple(float(np.median(found.seconds[1:])) for found in fits),
        converged=tuple(float(found.converged.mean()) for found in fits),
        noise_included=tuple(found.noise_included for found in fits),
        effective=tuple(float(np.median(found.effective)) for found in fits),
        repeats=repeats,
        focus=focus,
        effect=effect,
        units=tables.units,
    )


def _pessimistic_widths(
    tables: SimulatedTables, budgets: Sequence[Budget], methods: Sequence[Method], repeats: int
) -> tuple[list[Floats], list[str]]:
    """Widths at each budget if what the scenario leaves open is unfavourable, and what is assumed then."""
    model, schema, scenario = tables.model, tables.schema, tables.scenario
    names = [name for name in model_columns(model, schema) if name != schema.person]
    assumed = pessimistic_assumptions(scenario, schema, names)
    if not assumed:
        return [np.zeros(len(tables.labels)) for _ in budgets], []
    worse = replace(tables, scenario=pessimistic_scenario(scenario, schema, names))
    rows, _ = worse.simulate(max(2, repeats // 2))
    prior = np.subtract(*np.quantile(tables.prior, _INTERVAL_QUANTILES, axis=0))
    found = []
    for budget, method in zip(budgets, methods, strict=True):
        fits = fit_tables(worse, rows, budget, method)
        width = np.quantile(fits.high - fits.low, _PESSIMISTIC_QUANTILE, axis=0)
        found.append(np.asarray(tables.factors * np.minimum(width, prior)))
    if any(isinstance(schema[name], Binary | Category) for name in names):
        assumed.append("Of a level that nobody has, only the prior is known.")
    return found, assumed


def _check_arguments(
    tables: SimulatedTables, methods: Sequence[Method], effect: float | None, repeats: int
) -> None:
    """Raises if an argument cannot be used."""
    if not methods:
        raise InvalidArgument("Pass one epsilon or budget, or several in a list.")
    if not all(can_forecast(tables.model, method) for method in methods):
        raise InvalidArgument(
            "There is no forecast for tacit.Statistics and tacit.OneSample; leave out the method, "
            "or use another."
        )
    _validate.count("repeats", repeats, least=2, most=_MAX_TABLES)
    if effect is not None and _validate.finite("effect", effect) == 0:
        raise InvalidArgument("effect must not be zero, from which it is to be distinguished.")


def _forecast_lines(
    tables: SimulatedTables,
    epsilon: float,
    found: SimulatedFits,
    truth: Floats,
    floor: Floats,
    effect: float | None,
) -> Iterator[ForecastLine]:
    """The expected width, error, coverage and detectable effect of each parameter at one budget, in the units of a summary."""
    shown = tables.factors
    prior = np.subtract(*np.quantile(tables.prior, _INTERVAL_QUANTILES, axis=0))
    columns = {
        "width": shown * found.width,
        "error": shown * found.error(truth),
        "without_privacy": shown * floor,
        "prior": shown * prior,
        "coverage": found.covers(truth).mean(axis=0),
        "detectable": shown * found.detectable(truth, _DETECTION_POWER),
    }
    chance = None if effect is None else found.detection_rate(truth, effect / shown)
    for j, label in enumerate(tables.labels):
        yield ForecastLine(
            parameter=label,
            epsilon=epsilon,
            chance=None if chance is None else float(chance[j]),
            **{name: float(column[j]) for name, column in columns.items()},
        )
