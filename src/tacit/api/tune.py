"""A search for settings of a method on simulated tables, before data are read."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tacit import _validate
from tacit._format import text_table
from tacit._precision import in_32_bits
from tacit.accounting import Budget
from tacit.accounting.budget import choose_budget
from tacit.api.scenario import Scenario
from tacit.api.simulate import SimulatedTables, fit_tables
from tacit.data.schema import Schema
from tacit.errors import InvalidArgument
from tacit.inference.method import Method
from tacit.inference.registry import choose_method, default_method
from tacit.inference.scoring import Scoring
from tacit.inference.variational import Variational
from tacit.models.base import UnitModel
from tacit.models.front_ends import SchemaLike, adapt_model, resolve_model


@dataclass(frozen=True)
class Trial:
    """Settings that were tried: the error of posterior means in units of the prior's spread.

    Attributes:
        method: The settings.
        error: The root mean square error, on average over parameters. 1 is that of the prior.
        coverage: The share of 90% intervals that contained the true value.
        seconds: The time of a fit.
    """

    method: Method
    error: float
    coverage: float
    seconds: float


@dataclass(frozen=True, kw_only=True)
class TuneResult:
    """What a search found. Print it for the table; pass ``method`` to `tacit.plan`.

    Attributes:
        trials: What was tried, the best first.
        size: The declared number of units.
        budget: The budget.
    """

    trials: tuple[Trial, ...]
    size: int
    budget: Budget

    @property
    def method(self) -> Method:
        """The best settings."""
        return self.trials[0].method

    def __str__(self) -> str:
        header = ["settings", "error", "intervals that contained the true value", "seconds"]
        rows = [
            [repr(each.method), f"{each.error:.3f}", f"{each.coverage:.0%}", f"{each.seconds:.2g}"]
            for each in self.trials
        ]
        about = (
            "The error of posterior means, as a share of the prior's spread, on simulated tables. No data "
            "has been read and nothing charged."
        )
        return f"{text_table(rows, 'lrrr', header)}\n\n{about}"


@in_32_bits
def tune(
    model: object,
    schema: SchemaLike | None = None,
    *,
    size: int,
    epsilon: float | None = None,
    delta: float | None = None,
    budget: Budget | None = None,
    family: str | None = None,
    methods: Sequence[Method | str] | None = None,
    scenario: Scenario | None = None,
    repeats: int = 10,
    seed: int = 0,
) -> TuneResult:
    """Searches for settings of a method on simulated tables. Reads no data and charges nothing.

    Args:
        model: A model as for `tacit.plan`. It must be able to draw its outcomes.
        schema: The public facts about the columns, as for `tacit.plan`.
        size: About how many rows or people there will be. It must be public.
        epsilon: The epsilon that the fit may cost.
        delta: The delta that it may cost; 1e-6 by default.
        budget: Epsilon, delta and the neighbouring relation, in the place of ``epsilon``.
        family: The family of a formula, as for `tacit.glm`.
        methods: The methods to try, as settings or names. By default the default method's for this size, and others
            around it: fewer and more steps, lower and higher sampling rates.
        scenario: What is expected of the data, as for `tacit.forecast`.
        repeats: The number of simulated tables.
        seed: Seed of all random numbers.

    Returns:
        What was tried, the best first. ``tune(...).method`` has the settings.

    Raises:
        InvalidArgument: If an argument cannot be used, or the model cannot draw its outcomes.
        BudgetError: If no noise level meets the budget.
    """
    budget = choose_budget(budget, epsilon, delta)
    model, schema = resolve_model(model, schema, family)
    if not isinstance(schema, Schema):
        raise InvalidArgument("tune needs a tacit.Schema: the public facts about the columns.")
    _validate.count("repeats", repeats, least=2)
    adapted = adapt_model(model, schema)
    if methods is not None and not methods:
        raise InvalidArgument("methods must be settings to try; leave it out for the usual ones.")
    asked = [choose_method(adapted, method, size, budget) for method in methods or ()]
    assumed = Scenario() if scenario is None else scenario
    tables = SimulatedTables(model=adapted, schema=schema, size=size, scenario=assumed, seed=seed)
    rows, truth = tables.simulate(repeats)
    spread = tables.prior.std(axis=0)
    trials = []
    for method in asked or _candidate_methods(adapted, size, budget):
        fits = fit_tables(tables, rows, budget, method)
        error = np.sqrt(np.mean((fits.error(truth) / spread) ** 2))
        coverage = float(fits.covers(truth).mean())
        trials.append(Trial(method, float(error), coverage, float(np.median(fits.seconds[1:]))))
    ordered = sorted(trials, key=lambda trial: trial.error)
    return TuneResult(trials=tuple(ordered), size=size, budget=budget)


def _candidate_methods(model: UnitModel, size: int, budget: Budget) -> list[Method]:
    """Settings around the default ones."""
    usual = default_method(model, size, budget)
    assert isinstance(usual, Scoring | Variational)
    assert isinstance(usual.sampling_rate, float)
    number = usual.calibrate(model, budget).num_steps
    steps = [max(8, round(number * factor)) for factor in (0.25, 0.5, 1, 2)]
    rates = sorted({min(1.0, usual.sampling_rate * factor) for factor in (0.5, 1, 3)})
    return [
        replace(usual, num_steps=number, sampling_rate=float(f"{rate:.3g}"))
        for number in steps
        for rate in rates
    ]
