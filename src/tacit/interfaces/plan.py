"""Plans: what a fit will do and cost, before data are read."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from tacit._format import asked_for, in_digits, printed
from tacit.accounting import Adjacency, Budget
from tacit.accounting.cost import cost, costs
from tacit.data.schema import Schema
from tacit.errors import InvalidArgument
from tacit.inference.base import Foretelling, Method
from tacit.inference.methods import default_method
from tacit.interfaces.front_ends.registry import as_model, schema_of
from tacit.interfaces.probe import gradient_lengths
from tacit.interfaces.refusals import refuse_early
from tacit.interfaces.rows import blank_rows
from tacit.interfaces.stopwatch import Speed, can_be_timed, speed_of
from tacit.models.base import AnyModel
from tacit.privacy.plans import NoisySums, ReleasePlan
from tacit.privacy.rows import Rows

_PLURAL = {"row": "rows", "person": "people"}


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
        release: What the gate will execute. The ledger is charged for exactly this.
        blank: One made-up unit with the shapes of the data.
    """

    model: AnyModel
    schema: Schema | None
    budget: Budget
    method: Method
    release: ReleasePlan
    blank: Rows

    @property
    def unit(self) -> str:
        """The unit of privacy: ``"row"`` or ``"person"``."""
        return self.blank.unit

    @cached_property
    def epsilons(self) -> dict[Adjacency, float | None]:
        """Epsilon at the budget's delta under each adjacency; None where no bound is known."""
        asked = self.budget
        return costs(self.release.event, asked.delta, asked.adjacency, asked.epsilon)

    @cached_property
    def cost(self) -> Budget:
        """What is charged: the budget, or less if the method needs less."""
        return cost(self.release.event, self.budget)

    @cached_property
    def made_up_gradients(self) -> tuple[float, float] | None:
        """On made-up rows, at the start: the median gradient in clips, and the share clipped."""
        if self.schema is None or not isinstance(self.release, NoisySums):
            return None
        if not self.method.by_gradients or isinstance(self.method, Foretelling):
            return None
        lengths = gradient_lengths(self.model, self.schema) / self.release.clip
        usable = lengths[np.isfinite(lengths)]
        return float(np.median(usable)), float(np.mean(usable > 1))

    def seconds(self, rows: int) -> float | None:
        """Estimates the running time, by a trial on made-up rows.

        Args:
            rows: The number of units (rows, or people) in the data.

        Returns:
            Seconds, or None for a method that is not a sequence of similar steps.
        """
        if not can_be_timed(self.release):
            return None
        return self._speed.seconds(self.release, rows)

    @cached_property
    def _speed(self) -> Speed:
        release: Any = self.release
        return speed_of(self.model, self.schema, self.blank, self.method, release)

    def __repr__(self) -> str:
        cost = f"epsilon {printed(self.cost.epsilon)} at delta {in_digits(self.cost.delta)}"
        return f"Plan({cost}, {self.release.num_steps} steps; print it for the whole)"

    def __str__(self) -> str:
        many = _PLURAL[self.unit]
        lines = [
            self.method.describe(self.model),
            *self.release.explain(self.unit, many),
            *self._on_made_up_rows(),
            "",
            *self._cost(),
            f"Unit of privacy: one {self.unit}. No data has been read and nothing charged.",
        ]
        if self.schema is not None:
            sizes = (10_000, 1_000_000)
            times = [(self.seconds(n), f"{n:,} {many}") for n in sizes]
            known = " and ".join(
                f"{float(f'{time:.2g}'):g} s for {size}" for time, size in times if time
            )
            if known:
                lines += ["", f"Time, by a trial on made-up rows: about {known}."]
            lines += ["", str(self.schema)]
        return "\n".join(lines)

    def _on_made_up_rows(self) -> list[str]:
        if isinstance(self.method, Foretelling):
            return [self.method.expect(self.release, _PLURAL[self.unit])]
        if self.made_up_gradients is None:
            return []
        middle, share = self.made_up_gradients
        advice = ""
        if share > 0.5:
            advice = " Most rows are clipped: scale the columns, or raise the clip."
        found = f"a row's gradient at the start is {middle:.2g} clips long; {share:.0%} are longer."
        return [f"On made-up rows within the bounds, {found}{advice}"]

    def _cost(self) -> list[str]:
        lines = []
        for adjacency, epsilon in self.epsilons.items():
            mine = adjacency == self.budget.adjacency
            asked = f" ({asked_for(epsilon, self.budget.epsilon)})" if mine else ""
            at = f"epsilon {printed(epsilon)} at delta {in_digits(self.budget.delta)}"
            lines.append(f"Cost: {at}, {adjacency}{asked}.")
        return [*lines, self.cost.explain()]


def plan(
    model: Any,
    schema: Schema | None = None,
    *,
    budget: Budget,
    method: Method | None = None,
) -> Plan:
    """Plans a fit within a budget. Reads no data and charges nothing.

    Args:
        model: A NumPyro function whose arguments are columns of the schema, or a `tacit.NumPyro`
            with options for one; a PyMC model whose data containers are columns, or a `tacit.PyMC`;
            a `tacit.Model`; a model of `tacit.conjugate`; or a model by formula from `tacit.glm`.
        schema: The public facts about the columns. A model from `tacit.glm` has its own.
        budget: What the fit may cost.
        method: Settings of an inference method. The default is as for `tacit.fit`.

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
    return planned(adapted, schema, blank_rows(adapted, schema, 1), budget, method)


def planned(
    model: AnyModel,
    schema: Schema | None,
    blank: Rows,
    budget: Budget,
    method: Method | None,
) -> Plan:
    """The plan for a model and rows of these shapes. Raises if it cannot work."""
    if not isinstance(budget, Budget):
        raise InvalidArgument("budget must be a tacit.Budget(epsilon, delta).")
    method = default_method(model) if method is None else method
    if isinstance(method, type) or not isinstance(method, Method):
        raise InvalidArgument("method must be settings such as tacit.Scoring(num_steps=500).")
    release = method.calibrated(model, budget)
    refuse_early(model, method, blank, release)
    return Plan(
        model=model, schema=schema, budget=budget, method=method, release=release, blank=blank
    )
