"""Plans: what a fit will do and cost, before data are read."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tacit import _validate
from tacit._format import asked_for, clean, in_digits, printed
from tacit._html import render
from tacit.accounting import Adjacency, Budget
from tacit.accounting.cost import cost, costs
from tacit.data.schema import Schema
from tacit.errors import InvalidArgument
from tacit.inference.base import Foretelling, Method, refuse_no_method
from tacit.inference.methods import called, default_method
from tacit.inference.sizes import USUAL_SIZE
from tacit.interfaces.forecast import can_forecast, forecast_of
from tacit.interfaces.forecasting.result import PLURAL, Forecast
from tacit.interfaces.forecasting.scenario import Scenario
from tacit.interfaces.forecasting.tables import Tables
from tacit.interfaces.front_ends.registry import as_model, schema_of
from tacit.interfaces.probe import gradient_lengths
from tacit.interfaces.refusals import refuse_early
from tacit.interfaces.rows import blank_rows
from tacit.interfaces.stopwatch import Speed, speeds_of
from tacit.models import reading
from tacit.models.base import AnyModel
from tacit.privacy.mechanisms import Mechanism, NoisySums
from tacit.privacy.rows import Rows

# Made-up tables of a plan's own forecast, and the share of clipped rows that is worth a warning.
_TABLES, _MOSTLY = 8, 0.5


@dataclass(frozen=True, kw_only=True, eq=False)
class Plan:
    """What a fit will do. Everything in it is public, and none of it comes from data.

    Make a plan with `tacit.plan`, print it to see what the fit does and costs, and pass it to
    `tacit.fit` with the data.

    Attributes:
        model: The model in the form that inference uses.
        schema: The schema, or None for a model of `tacit.Rows`.
        budget: The budget that was asked for.
        method: The settings of the method.
        mechanism: What the gate will execute. The ledger is charged for exactly this.
        blank: One made-up unit with the shapes of the data.
        size: The declared number of units, or None.
        scenario: What is expected of the data, for forecasts.
    """

    model: AnyModel
    schema: Schema | None
    budget: Budget
    method: Method
    mechanism: Mechanism
    blank: Rows
    size: int | None = None
    scenario: Scenario | None = None

    @property
    def unit(self) -> str:
        """The unit of privacy: ``"row"`` or ``"person"``."""
        return self.blank.unit

    @cached_property
    def epsilons(self) -> dict[Adjacency, float | None]:
        """Epsilon at the budget's delta under each adjacency; None where no bound is known."""
        asked = self.budget
        return costs(self.mechanism.event, asked.delta, asked.adjacency, asked.epsilon)

    @cached_property
    def cost(self) -> Budget:
        """What is charged: the budget, or less if the method needs less."""
        return cost(self.mechanism.event, self.budget)

    @cached_property
    def made_up_gradients(self) -> tuple[float, float] | None:
        """On made-up rows, at the start: the median gradient in clips, and the share clipped."""
        if self.schema is None or not isinstance(self.mechanism, NoisySums):
            return None
        if not self.method.by_gradients or isinstance(self.method, Foretelling):
            return None
        lengths = gradient_lengths(self.model, self.schema) / self.mechanism.clip
        usable = lengths[np.isfinite(lengths)]
        return float(np.median(usable)), float(np.mean(usable > 1))

    def seconds(self, rows: int) -> float | None:
        """Estimates the running time, by a trial on made-up rows.

        Args:
            rows: The number of units (rows, or people) in the data.

        Returns:
            Seconds, or None for a method that is not a sequence of similar steps.
        """
        return sum(each.seconds(rows) for each in self._speeds) if self._speeds else None

    @cached_property
    def _speeds(self) -> tuple[Speed, ...]:
        size = USUAL_SIZE if self.size is None else self.size
        return speeds_of(self.model, self.schema, self.blank, self.method, self.mechanism, size)

    @cached_property
    def forecast(self) -> Forecast | None:
        """What the fit will be worth, by fits to made-up tables; None if no size was declared.

        Reads no data. It is computed when it is first asked for, which takes some seconds.
        """
        if self.size is None or self.schema is None or not can_forecast(self.model, self.method):
            return None
        assumed = Scenario() if self.scenario is None else self.scenario
        tables = Tables(model=self.model, schema=self.schema, size=self.size, scenario=assumed)
        return forecast_of(tables, [self.budget], self.method, repeats=_TABLES)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Reasons not to fit, from public numbers alone."""
        said = () if self.forecast is None else self.forecast.warnings()
        return (*said, *self._clipped())

    def __repr__(self) -> str:
        cost = f"epsilon {printed(self.cost.epsilon)} at delta {in_digits(self.cost.delta)}"
        return f"Plan({cost}, {self.mechanism.num_steps} steps; print it for details)"

    def __str__(self) -> str:
        many, lines = PLURAL[self.unit], self.sentences()
        lines.insert(-len(self._cost()) - 1, "")
        if self.forecast is not None:
            lines += ["", str(self.forecast), *self.forecast.warnings()]
        if self.schema is not None:
            sizes = (10_000, 1_000_000) if self.size is None else (self.size,)
            times = [(self.seconds(n), f"{n:,} {many}") for n in sizes]
            known = " and ".join(
                f"{float(f'{time:.2g}'):g} s for {size}" for time, size in times if time
            )
            if known:
                lines += ["", f"Estimated time, by a trial on made-up rows: about {known}."]
            lines += ["", str(self.schema)]
        return "\n".join(lines)

    def sentences(self) -> list[str]:
        """What the fit does, what it costs, and what is protected."""
        return [
            *self.method_lines(),
            *self._about_size(),
            *self._on_made_up_rows(),
            *self._cost(),
            f"Unit of privacy: one {self.unit}. No data has been read and nothing charged.",
        ]

    def _repr_html_(self) -> str:
        return render("plan.html", plan=self)

    def method_lines(self) -> tuple[str, ...]:
        """The method and its steps, in sentences."""
        steps = self.mechanism.explain(self.unit, PLURAL[self.unit])
        return (self.method.describe(self.model), *steps)

    def label(self, note: str | None = None) -> str:
        """What a ledger's entry says of the fit: the model, the method, and a note."""
        said = f"{reading.called(self.model)}, by {called(self.method)}"
        return said if note is None else f"{said}; {clean(note)}"

    def key_lines(self) -> list[str]:
        """What to know before the fit: method, size, cost, and what the forecast says."""
        many = PLURAL[self.unit]
        said = [] if self.forecast is None else self.forecast.sentences
        steps = self.mechanism.explain(self.unit, many)[:1]
        return [*steps, *self._about_size(), *self._cost()[:1], *said]

    def _about_size(self) -> list[str]:
        """For which number of units settings were chosen."""
        many = PLURAL[self.unit]
        if self.size is not None:
            return [f"Declared size: about {self.size:,} {many}."]
        if self.method == default_method(self.model):
            return [
                f"No size was declared. Declare about how many {many} there are to get a forecast."
            ]
        return []

    def _clipped(self) -> list[str]:
        """A warning if most rows are clipped, as far as made-up rows tell."""
        if self.made_up_gradients is None or self.made_up_gradients[1] <= _MOSTLY:
            return []
        return ["Most rows are clipped: scale the columns, or raise the clip."]

    def _on_made_up_rows(self) -> list[str]:
        if isinstance(self.method, Foretelling):
            return [self.method.expect(self.mechanism, PLURAL[self.unit])]
        if self.made_up_gradients is None:
            return []
        middle, share = self.made_up_gradients
        found = (
            f"the median gradient of a row is {middle:.2g} clips long, and {share:.0%} are clipped."
        )
        return [" ".join([f"At the start, on made-up rows, {found}", *self._clipped()])]

    def _cost(self) -> list[str]:
        lines = []
        for adjacency, epsilon in self.epsilons.items():
            mine = adjacency == self.budget.adjacency
            asked = f" ({asked_for(epsilon, self.budget.epsilon)})" if mine else ""
            at = f"epsilon {printed(epsilon)} at delta {in_digits(self.budget.delta)}"
            lines.append(f"Cost: {at}, {adjacency}{asked}.")
        return [*lines, self.cost.explain()]


def plan(
    model: object,
    schema: Schema | None = None,
    *,
    budget: Budget,
    method: Method | None = None,
    size: int | None = None,
    scenario: Scenario | None = None,
) -> Plan:
    """Plans a fit within a budget. Reads no data and charges nothing.

    Args:
        model: A NumPyro function whose arguments are columns of the schema, or a `tacit.models.NumPyro`
            with options for one; a PyMC model whose data containers are columns, or a `tacit.models.PyMC`;
            a `tacit.Model`; a model of `tacit.conjugate`; or a model by formula from `tacit.glm`.
        schema: The public facts about the columns. A model from `tacit.glm` has its own.
        budget: What the fit may cost.
        method: Settings of an inference method. The default is as for `tacit.fit`, with settings for
            the declared size.
        size: About how many rows there are, or people if the schema names a person column. A guess
            within a factor of two is enough. It must be public: do not take it from the data. With
            it the plan has a forecast (see `tacit.forecast`).
        scenario: What is expected of columns and effects, for the forecast.

    Returns:
        The plan. Print it, and pass it to `tacit.fit`.

    Raises:
        InvalidArgument: If the model, schema, budget or method cannot be used.
        BudgetError: If no noise level meets the budget.
        BoundaryError: If the model or method would take rows past the gate.
    """
    schema = schema_of(model, schema)
    if not isinstance(schema, Schema):
        raise InvalidArgument("plan needs a tacit.Schema: the public facts about the columns.")
    adapted = as_model(model, schema)
    by_gradients = method is None or (isinstance(method, Method) and method.by_gradients)
    if by_gradients and not np.isfinite(gradient_lengths(adapted, schema)).any():
        raise InvalidArgument(
            "On made-up rows within the bounds the likelihood has no finite gradient, so no row would "
            "contribute; check the bounds and how the model uses them."
        )
    if size is None and scenario is not None:
        raise InvalidArgument("A scenario is for the forecast, which needs a size too: pass size=.")
    blank = blank_rows(adapted, schema, 1)
    return planned(adapted, schema, blank, budget, method, size, scenario)


def planned(
    model: AnyModel,
    schema: Schema | None,
    blank: Rows,
    budget: Budget,
    method: Method | None,
    size: int | None = None,
    scenario: Scenario | None = None,
) -> Plan:
    """The plan for a model and rows of these shapes. Raises if it cannot work."""
    if not isinstance(budget, Budget):
        raise InvalidArgument("budget must be a tacit.Budget(epsilon, delta).")
    if size is not None:
        _validate.count("size", size)
    method = default_method(model, size, budget) if method is None else method
    refuse_no_method(method)
    mechanism = method.calibrated(model, budget)
    refuse_early(model, method, blank, mechanism)
    return Plan(
        model=model,
        schema=schema,
        budget=budget,
        method=method,
        mechanism=mechanism,
        blank=blank,
        size=size,
        scenario=scenario,
    )
