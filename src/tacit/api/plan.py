"""Plans: what a fit will do and cost, before data are read.

A plan is checked on dummy rows before anything is charged, and timed on them if this is requested. `tacit.fit` reuses
the plan of an earlier call with the same arguments.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cached_property, lru_cache, partial
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeGuard, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from tacit import _validate
from tacit._compile import stored_jit
from tacit._format import (
    clean_text,
    format_epsilon,
    format_number,
    labelled_lines,
    requested_note,
)
from tacit._html import render_template
from tacit._precision import in_32_bits
from tacit.accounting import Adjacency, Budget
from tacit.accounting.accountants import cost, costs, stopping_costs
from tacit.accounting.budget import choose_budget
from tacit.accounting.ledger import Ledger, Receipt
from tacit.api.precision import Precision, coarse_forecast
from tacit.api.rows import dummy_rows, gradient_norms, model_columns, simulated_units
from tacit.api.scenario import Scenario
from tacit.data.columns import DROP, Number
from tacit.data.schema import Schema
from tacit.errors import InvalidArgument
from tacit.inference.method import DEFAULT_SIZE, Method, Steps
from tacit.inference.registry import choose_method, default_method, method_title
from tacit.inference.scoring import Scoring, min_count, stopping_probability
from tacit.models.base import UnitModel, single_row_unit
from tacit.models.front_ends import SchemaLike, adapt_model, is_immutable, resolve_model
from tacit.models.jax_model import Model
from tacit.privacy.captured import check_captured
from tacit.privacy.gate import Gate, open_gate, run
from tacit.privacy.mechanisms import (
    BarkerTests,
    Mechanism,
    NoisySums,
    SampledBarkerTests,
    Stages,
    StepMechanism,
    stopped_event,
)
from tacit.privacy.noise import Randomness
from tacit.privacy.rows import Rows
from tacit.results.statement import (
    CHANGES,
    PUBLIC_COUNT,
    UNIT_PLURALS,
    PrivacyStatement,
    changes,
)

if TYPE_CHECKING:
    from tacit.api.rows import Data
    from tacit.results.posterior import Posterior


def check_on_dummy_row(model: UnitModel, method: Method, rows: Rows, mechanism: Mechanism) -> None:
    """Raises if the model or the method does not work on a dummy row."""
    if method.by_gradients and model.discrete:
        names = ", ".join(
            repr(name) for name in dict.fromkeys(held.name for held in model.discrete)
        )
        raise InvalidArgument(
            f"{type(method).__name__} follows gradients, and {names} of the model is discrete; use "
            "tacit.Barker(), or write the sum over all values into the model."
        )
    check_model(model, rows)
    method.check(model, open_gate(rows, mechanism, Randomness(0)))


def check_model(model: UnitModel, rows: Rows) -> None:
    """Raises if the model's functions do not work on a row of these shapes, whatever the method."""
    # Before anything is compiled: a program is stored, with every array that a function holds.
    check_captured(*model.user_functions)
    start = jnp.zeros(model.dimension)
    if isinstance(model.source, Model):
        _check_densities(model, rows, start)
    log_prior = stored_jit(model.log_prior, model.program_key("log prior"))
    if not np.isfinite(log_prior(start, model.constants)):
        raise InvalidArgument(
            "The log prior is not finite at the start of the fit (zero, unconstrained); check the "
            "parameters' supports."
        )


def check_ledger(ledger: Ledger, budgets: Sequence[Budget], rows: Sequence[Rows]) -> None:
    """Raises if the ledger protects something else than these runs do."""
    if not isinstance(ledger, Ledger):
        raise InvalidArgument(
            "ledger must be a tacit.Ledger(path); tacit.Ledger.new(path, total=...) creates one."
        )
    for each in rows:
        ledger.check_unit(each.unit)
    for budget in budgets:
        ledger.check_adjacency(budget)


def _check_densities(model: UnitModel, rows: Rows, start: jax.Array) -> None:
    row = rows.dummy_row()
    densities: dict[str, Callable[..., jax.Array]] = {
        "log_likelihood": lambda vector, row, constants: model.log_likelihood(
            vector, *single_row_unit(row), constants
        ),
        "log_prior": lambda vector, _, constants: model.log_prior(vector, constants),
    }
    for name, density in densities.items():
        try:
            shape = jax.eval_shape(density, start, row, model.constants)
        except jax.errors.ConcretizationTypeError as error:
            raise InvalidArgument(
                f"{name} decides something in Python by a value that differs from row to row; "
                "use jnp.where or jax.lax.select instead of if."
            ) from error
        except KeyError as error:
            raise InvalidArgument(
                f"{name} asks for {error}, but the columns are {', '.join(rows.names)} and the "
                f"parameters {', '.join(model.parameters)}."
            ) from error
        if shape.shape != ():
            raise InvalidArgument(
                f"{name} must return a single number; its shape is {shape.shape}."
            )


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


_T = TypeVar("_T")

# Mechanisms of many similar steps; how many steps are timed, at least and at most, and on batches of at
# most how many units.
TimedMechanism = NoisySums | BarkerTests | SampledBarkerTests
_MIN_TIMED_STEPS, _MAX_TIMED_STEPS, _MAX_TIMED_BATCH = 8, 40, 4096


class Speed(NamedTuple):
    """Seconds of a step on a batch of so many units."""

    step: float
    batch: int
    mechanism: StepMechanism

    def seconds(self, units: int) -> float:
        """Seconds of all steps of the mechanism: in proportion for larger batches, the same for smaller."""
        larger = self.mechanism.expected_batch(units) / self.batch
        return self.mechanism.num_steps * self.step * max(larger, 1.0)


@in_32_bits
def measure_speeds(
    model: UnitModel,
    schema: Schema | None,
    dummy: Rows,
    method: Method,
    mechanism: Mechanism,
    size: int,
) -> tuple[Speed, ...]:
    """Measures the speed of each stage of a fit on dummy rows.

    Batches are those of so many units. A batch of another size would be another program to compile.
    None at all for a mechanism that does not consist of many similar steps.
    """
    if isinstance(mechanism, Stages):
        stages = method.stages(model, mechanism)
        if stages is None:
            return ()
        first, steps = stages
        made = _measure_speed(model, schema, dummy, lambda *_: steps, mechanism.mechanisms[1], size)
        return (*measure_speeds(model, schema, dummy, first, mechanism.mechanisms[0], size), made)
    if not isinstance(mechanism, TimedMechanism) or mechanism.num_steps < _MIN_TIMED_STEPS:
        return ()
    short = method.trial(min(_MAX_TIMED_STEPS, mechanism.num_steps))
    if short is None:
        return ()
    steps_of = partial(short.steps, model)
    return (_measure_speed(model, schema, dummy, steps_of, mechanism, size, short),)


def _measure_speed(
    model: UnitModel,
    schema: Schema | None,
    dummy: Rows,
    steps_of: Callable[[StepMechanism, jax.Array], Steps | None],
    mechanism: StepMechanism,
    size: int,
    short: Method | None = None,
) -> Speed:
    """The speed of some steps, or of a short method where it is not known as steps."""
    batch = min(max(round(mechanism.expected_batch(size)), 1), _MAX_TIMED_BATCH)
    number = min(_MAX_TIMED_STEPS, mechanism.num_steps)
    trial, units = mechanism.trial(number, batch)
    rows = dummy_rows(model, schema, units) if schema else dummy
    times = []
    for _ in range(3):  # the first compiles
        gate, key = Gate(rows, trial, Randomness(0)), jax.random.key(0)
        steps = steps_of(trial, key)
        began = time.perf_counter()
        if steps is not None:  # without what follows the steps, however many there are
            run(gate, *steps)
        elif short is not None:
            short.run(model, gate, key)
        times.append(time.perf_counter() - began)
    return Speed(min(times[1:]) / number, batch, mechanism)


# The share of clipped rows that is worth a warning, and so is the probability to stop after the count.
_MAX_CLIPPED_SHARE, _MIN_STOPPING_PROBABILITY = 0.5, 0.05


ASSUMPTIONS = (
    "no number in the model, its constants, the schema or the settings was computed from these data",
    "what a row contributes does not depend, beyond its last bits, on the rows beside it in memory",
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Plan:
    """What a fit will do. Everything in it is public, and none of it comes from data.

    Make a plan with `tacit.plan`, print it to see what the fit does and costs, and pass it to
    `tacit.fit` with the data.

    Attributes:
        model: The model in the form that inference uses.
        schema: The schema, or None for a model of `tacit.Rows`.
        budget: The budget that was requested.
        method: The settings of the method.
        mechanism: What the gate will execute. The ledger is charged for exactly this.
        dummy: One dummy unit with the shapes of the data.
        size: The declared number of units, or None.
        scenario: What is expected of the data, for forecasts.
        forecast: Whether to make the coarse forecast.
    """

    model: UnitModel
    schema: Schema | None
    budget: Budget
    method: Method
    mechanism: Mechanism
    dummy: Rows
    size: int | None = None
    scenario: Scenario | None = None
    forecast: bool = True

    @property
    def unit(self) -> str:
        """The unit of privacy: ``"row"`` or ``"person"``."""
        return self.dummy.unit

    def fit(
        self, tables: "Sequence[Data]", *, ledger: Ledger | None = None, seed: int | None = None
    ) -> "list[Posterior]":
        """Fits each of several tables with this plan, as in a simulation study. All share one program.

        Args:
            tables: The tables, each as for `tacit.fit`. Each fit costs the plan's budget.
            ledger: The ledger to charge, once for each table.
            seed: Makes the fits reproducible, and not private; each table has a seed of its own.

        Returns:
            A posterior for each table.
        """
        from tacit.api.fit import fit

        if isinstance(tables, str) or not isinstance(tables, Sequence):
            raise InvalidArgument("Pass a list of tables; to fit one, use tacit.fit(plan, table).")
        return [
            fit(self, each, ledger=ledger, seed=None if seed is None else seed + i)
            for i, each in enumerate(tables)
        ]

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
    def stopped_cost(self) -> Budget | None:
        """What is charged instead if the fit stops after its count; None if it never does."""
        stopped = stopped_event(self.mechanism)
        if stopped is None:
            return None
        return stopping_costs(self.mechanism.event, stopped, self.budget)[1]

    @cached_property
    def simulated_gradients(self) -> tuple[float, float] | None:
        """On simulated rows, at the start: the median gradient in clips, and the share clipped."""
        if self.schema is None or not isinstance(self.mechanism, NoisySums):
            return None
        if not self.method.by_gradients or self._expected_size is not None:
            return None
        lengths = gradient_norms(self.model, self.schema) / self.mechanism.clip
        usable = lengths[np.isfinite(lengths)]
        return float(np.median(usable)), float(np.mean(usable > 1))

    def seconds(self, rows: int) -> float | None:
        """Estimates the running time, by a trial on simulated rows.

        Args:
            rows: The number of units (rows, or people) in the data.

        Returns:
            Seconds, or None for a method that is not a sequence of similar steps.
        """
        return sum(each.seconds(rows) for each in self._speeds) if self._speeds else None

    @cached_property
    def _speeds(self) -> tuple[Speed, ...]:
        size = DEFAULT_SIZE if self.size is None else self.size
        return measure_speeds(
            self.model, self.schema, self.dummy, self.method, self.mechanism, size
        )

    @cached_property
    def precision(self) -> Precision | None:
        """The coarse forecast, by a formula; None if it is not wanted, or for methods without one.

        Reads no data. Without a declared size it is for an example of one, and says so. `tacit.forecast` fits
        simulated tables instead, with any method.
        """
        if not self.forecast or self.schema is None:
            return None
        if not isinstance(self.method, Scoring) or not isinstance(self.mechanism, NoisySums):
            return None
        return coarse_forecast(
            self.model,
            self.schema,
            self.method,
            self.mechanism,
            size=DEFAULT_SIZE if self.size is None else self.size,
            epsilon=self.budget.epsilon,
            scenario=self.scenario,
            is_declared=self.size is not None,
        )

    @property
    def precision_line(self) -> str:
        """The coarse forecast in one line, or where to get a forecast."""
        if self.precision is not None:
            return self.precision.line
        return "not forecast here; tacit forecast fits simulated tables" if self.forecast else ""

    @property
    def warnings(self) -> tuple[str, ...]:
        """Reasons not to fit, from public numbers alone."""
        said = () if self.size is None or self.precision is None else self.precision.warnings()
        return (*said, *self._likely_stopped(), *self._clipped())

    def statement(self, gate: Gate, receipt: Receipt | None) -> PrivacyStatement:
        """What a fit by this plan cost, and what was public.

        Args:
            gate: The gate that the fit went through.
            receipt: The ledger's receipt for the charge, or None without a ledger.

        Returns:
            The privacy statement of the fit.
        """
        public = [
            "the model and its prior",
            "column names, types and shapes",
            "every setting of the method",
        ]
        if self.schema is not None:
            public.append("bounds and levels of the schema")
        if self.size is not None:
            public.append("the declared size, and what was expected of the data")
        if gate.public_count:
            public.append(f"{PUBLIC_COUNT}, a unit being a {gate.unit}")
        return PrivacyStatement(
            event=self.mechanism.event,
            delta=self.budget.delta,
            adjacency=self.budget.adjacency,
            unit=gate.unit,
            public=tuple(public),
            assumptions=(*fit_assumptions(self.schema), *self.method.assumptions),
            seeded=gate.seeded,
            asked=self.budget.epsilon,
            budget_before=None if receipt is None else receipt.before,
            budget_left=None if receipt is None else receipt.left,
        )

    def __repr__(self) -> str:
        cost = (
            f"epsilon {format_epsilon(self.cost.epsilon)} at delta {format_number(self.cost.delta)}"
        )
        return f"Plan({cost}, {self.mechanism.num_steps} steps; print it for details)"

    def __str__(self) -> str:
        title = f"Plan: {self.title}"
        lines = [f"{title:<53} (nothing read, nothing charged)"]
        lines += labelled_lines(self.facts(), indent="  ")
        return "\n".join([*lines, *self.warnings, "Details: plan.details()"])

    def details(self) -> str:
        """All that is known of the fit, as text: priors, steps, noise, costs, the forecast's table, and the schema.

        Returns:
            The text.
        """
        interpretation = self.model.interpretation
        header = [f"Plan: {self.title}", ""]
        source = [] if interpretation is None else [*interpretation.parameter_table(), ""]
        lines = self.sentences()
        lines.insert(-len(self._cost()) - 1, "")
        if self.precision is not None:
            lines += ["", str(self.precision), *self.precision.warnings()]
        elif self.forecast:
            lines += ["", f"Precision: {self.precision_line}."]
        if self.schema is not None:
            lines += ["", str(self.schema)]
        return "\n".join([*header, *source, *lines])

    @property
    def title(self) -> str:
        """The formula, or the names of columns and parameters."""
        interpretation = self.model.interpretation
        return self.model.describe() if interpretation is None else interpretation.formula

    def facts(self) -> list[tuple[str, str]]:
        """The model, the data, the cost, the method and the precision, each in a line."""
        found = [
            ("Model", self.model_line()),
            (
                "Data",
                f"{self.unit_line()}; {self._missing_line()}" if self.schema else self.unit_line(),
            ),
            ("Privacy", self._privacy_line()),
            ("Method", method_title(self.method)),
        ]
        return [*found, *([("Precision", self.precision_line)] if self.forecast else [])]

    def model_line(self) -> str:
        """What is fitted, of how many parameters, with which prior."""
        interpretation, size = self.model.interpretation, self.model.dimension
        if interpretation is None:
            return f"{_count(size, 'parameter')}: {', '.join(self.model.names)}"
        meanings = interpretation.parameters.values()
        plain = all(each.role in ("intercept", "coefficient") for each in meanings)
        said = f"Bayesian {interpretation.kind}, {_count(size, 'coefficient' if plain else 'parameter')}"
        priors = {
            each.prior.formula
            for each in meanings
            if each.role == "coefficient" and each.prior is not None
        }
        return f"{said}, {priors.pop()} on scaled predictors" if len(priors) == 1 else said

    def unit_line(self) -> str:
        """What one unit of privacy is."""
        if self.schema is None or self.schema.person is None:
            return "one row = one unit of privacy"
        return f"one person = {self.schema.person}, at most {_count(self.schema.most_rows or 1, 'row')} each"

    def _missing_line(self) -> str:
        """What becomes of missing cells."""
        assert self.schema is not None
        names = [n for n in model_columns(self.model, self.schema) if n != self.schema.person]
        kinds, integrated = {name: self.schema[name] for name in names}, self.model.may_be_missing
        kept = [n for n, kind in kinds.items() if kind.missing != DROP or n in integrated]
        if kept == names:
            gaps = any(isinstance(kind, Number) and kind.has_gaps for kind in kinds.values())
            how = "replaced or integrated out" if integrated else "replaced"
            return (
                f"missing cells are {'replaced or left to the model' if gaps else how} as declared"
            )
        but = f", but for missing {', '.join(kept)}" if kept else ""
        return f"rows with a missing cell are dropped{but}"

    def _privacy_line(self) -> str:
        """What the fit costs under both adjacencies."""
        mine = self.budget.adjacency
        other: Adjacency = "replace" if mine == "add-remove" else "add-remove"
        epsilon = f"epsilon {format_epsilon(self.epsilons[mine])} at delta {format_number(self.budget.delta)}"
        changed = changes(self.unit, mine)
        others = CHANGES[other].format(unit=self.unit)
        return f"{epsilon} {changed}; {format_epsilon(self.epsilons[other])} {others}"

    def sentences(self) -> list[str]:
        """What the fit does, what it costs, and what is protected."""
        return [
            *self.method_lines(),
            *self._about_size(),
            *self._on_simulated_rows(),
            *self._cost(),
            f"Unit of privacy: one {self.unit}. No data has been read and nothing charged.",
        ]

    def _repr_html_(self) -> str:
        return render_template("plan.html", plan=self)

    def method_lines(self) -> tuple[str, ...]:
        """The method and its steps, in sentences."""
        steps = self.mechanism.explain(self.unit, UNIT_PLURALS[self.unit])
        return (self.method.describe(self.model), *steps)

    def label(self, note: str | None = None) -> str:
        """What a ledger's entry says of the fit: the model, the method, and a note."""
        said = f"{self.model.describe()}, by {method_title(self.method)}"
        return said if note is None else f"{said}; {clean_text(note)}"

    def _about_size(self) -> list[str]:
        """For which number of units settings were chosen."""
        many = UNIT_PLURALS[self.unit]
        if self.size is not None:
            return [f"Declared size: about {self.size:,} {many}."]
        if self.method == default_method(self.model):
            return [
                f"No size was declared. Declare about how many {many} there are to get a forecast."
            ]
        return []

    def _likely_stopped(self) -> list[str]:
        """A warning if a fit of the declared size may well stop after its count."""
        if self.size is None or not _may_stop(self.mechanism):
            return []
        chance, many = stopping_probability(self.mechanism, self.size), UNIT_PLURALS[self.unit]
        said = (
            f"With about {self.size:,} {many}, the fit stops after its noisy count with a probability of "
            f"{chance:.0%}: raise epsilon, or pass tacit.Scoring(check_count=False) to fit all the same."
        )
        return [said] if chance >= _MIN_STOPPING_PROBABILITY else []

    def _if_stopped(self) -> list[str]:
        """When the fit stops after its count, and what that costs."""
        if self.stopped_cost is None or not _may_stop(self.mechanism):
            return []
        least = f"{min_count(self.mechanism):,.0f} {UNIT_PLURALS[self.unit]}"
        cost = f"costs epsilon {format_epsilon(self.stopped_cost.epsilon)}"
        return [f"If a noisy count finds fewer than {least}, the fit stops there and {cost}."]

    def _clipped(self) -> list[str]:
        """A warning if most rows are clipped, as far as simulated rows tell."""
        if self.simulated_gradients is None or self.simulated_gradients[1] <= _MAX_CLIPPED_SHARE:
            return []
        return ["Most rows are clipped: scale the columns, or raise the clip."]

    @property
    def _expected_size(self) -> str | None:
        """What the method says of how many units it takes, if it can tell."""
        return self.method.expect(self.mechanism, UNIT_PLURALS[self.unit])

    def _on_simulated_rows(self) -> list[str]:
        if self._expected_size is not None:
            return [self._expected_size, *self._if_stopped()]
        if self.simulated_gradients is None:
            return []
        middle, share = self.simulated_gradients
        found = (
            f"the median gradient of a row is {middle:.2g} clips long, and {share:.0%} are clipped."
        )
        return [" ".join([f"At the start, on simulated rows, {found}", *self._clipped()])]

    def _cost(self) -> list[str]:
        lines = []
        for adjacency, epsilon in self.epsilons.items():
            mine = adjacency == self.budget.adjacency
            asked = f" ({requested_note(epsilon, self.budget.epsilon)})" if mine else ""
            at = f"epsilon {format_epsilon(epsilon)} at delta {format_number(self.budget.delta)}"
            lines.append(f"Cost: {at}, {adjacency}{asked}.")
        return [*lines, self.cost.explain()]


def _may_stop(mechanism: Mechanism) -> TypeGuard[NoisySums]:
    """Whether a fit by this mechanism ends after its count if that is too small."""
    return isinstance(mechanism, NoisySums) and mechanism.stop_after > 0


def fit_assumptions(
    schema: Schema | None, assumptions: tuple[str, ...] = ASSUMPTIONS
) -> tuple[str, ...]:
    """The assumptions of every fit, or of another release, with earlier releases that the schema records."""
    if schema is None or not schema.released:
        return assumptions
    but = "; ".join(f"{each}, which counts in addition" for each in schema.released)
    return f"{assumptions[0]}, but for {but}", *assumptions[1:]


@in_32_bits
def plan(
    model: object,
    schema: SchemaLike | None = None,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    budget: Budget | None = None,
    family: str | None = None,
    method: Method | str | None = None,
    size: int | None = None,
    scenario: Scenario | None = None,
    forecast: bool = True,
) -> Plan:
    """Plans a fit within a budget. Reads no data and charges nothing.

    Args:
        model: A formula such as ``"readmitted ~ age + ward"``, or a model by formula from `tacit.glm`,
            which takes priors; a NumPyro function whose arguments are columns of the schema, or a
            `tacit.models.NumPyro` with options for one; a PyMC model whose data containers are
            columns, or a `tacit.models.PyMC`; a `tacit.Model`; or a model of `tacit.conjugate`.
        schema: The public facts about the columns, or the path of their YAML file. A model from
            `tacit.glm` has its own.
        epsilon: The epsilon that the fit may cost.
        delta: The delta that it may cost; 1e-6 by default. Choose it well below one over the number
            of people.
        budget: Epsilon, delta and the neighbouring relation, in the place of ``epsilon``.
        family: The distribution of the outcome of a formula, as for `tacit.glm`.
        method: An inference method by name, such as ``"variational"``, or its settings. The default
            is as for `tacit.fit`, with settings for the declared size.
        size: About how many rows there are, or people if the schema names a person column. A guess
            within a factor of two is enough. It must be public: do not take it from the data. With
            it the plan has a forecast (see `tacit.forecast`).
        scenario: What is expected of columns and effects, for the forecast.
        forecast: Whether the plan has a coarse forecast, in `Plan.precision`.

    Returns:
        The plan. Print it, and pass it to `tacit.fit`.

    Raises:
        InvalidArgument: If the model, schema, budget or method cannot be used.
        BudgetError: If no noise level meets the budget.
        BoundaryError: If the model or method would take rows past the gate.
    """
    budget = choose_budget(budget, epsilon, delta)
    model, schema = resolve_model(model, schema, family)
    if not isinstance(schema, Schema):
        raise InvalidArgument("plan needs a tacit.Schema: the public facts about the columns.")
    adapted = adapt_model(model, schema)
    dummy = dummy_rows(adapted, schema, 1)
    names = model_columns(adapted, schema)
    dummy.simulated = simulated_units(schema, names, adapted.may_be_missing)
    method = choose_method(adapted, method, size, budget)
    if (
        method.by_gradients
        and not method.has_finite_scores(adapted, dummy.simulated)
        and not np.isfinite(gradient_norms(adapted, schema)).any()
    ):
        raise InvalidArgument(
            "On simulated rows within the bounds the likelihood has no finite gradient, so no row would "
            "contribute; check the bounds and how the model uses them."
        )
    if size is None and scenario is not None:
        raise InvalidArgument("A scenario is for the forecast, which needs a size too: pass size=.")
    return build_plan(adapted, schema, dummy, budget, method, size, scenario, forecast)


@in_32_bits
def build_plan(
    model: UnitModel,
    schema: Schema | None,
    dummy: Rows,
    budget: Budget,
    method: Method | str | None,
    size: int | None = None,
    scenario: Scenario | None = None,
    forecast: bool = True,
) -> Plan:
    """The plan for a model and rows of these shapes. Raises if it cannot work."""
    if size is not None:
        _validate.count("size", size)
    method = choose_method(model, method, size, budget)
    mechanism = method.calibrate(model, budget)
    check_on_dummy_row(model, method, dummy, mechanism)
    return Plan(
        model=model,
        schema=schema,
        budget=budget,
        method=method,
        mechanism=mechanism,
        dummy=dummy,
        size=size,
        scenario=scenario,
        forecast=forecast,
    )


@in_32_bits
def cached_plan(
    model: object, schema: Schema, budget: Budget, method: Method | str | None, size: int | None
) -> Plan:
    """The plan that `tacit.plan` makes, or the one it made for the same arguments before.

    Args:
        model: A model as for `tacit.plan`. It counts as the same only if it is the same object.
        schema: The schema.
        budget: The budget.
        method: The method, its name, or None for the default.
        size: The declared size, if any.

    Returns:
        The plan.
    """
    if is_immutable(model) and all(map(_is_hashable, (schema, budget, method, size))):
        return _cached_plan(_ByIdentity(model), schema, budget, _ByAllFields(method), size)
    return plan(model, schema, budget=budget, method=method, size=size)


class _ByIdentity:
    """A model, equal only to itself."""

    def __init__(self, held: object) -> None:
        self.held = held

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ByIdentity) and self.held is other.held

    def __hash__(self) -> int:
        return id(self.held)


class _ByAllFields(Generic[_T]):
    """A method or a setting, equal if all settings are: also those that methods do not compare."""

    def __init__(self, held: _T) -> None:
        self.held = held

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _ByAllFields):
            return False
        mine, theirs = self.held, other.held
        if mine is theirs:
            return True
        if type(mine) is not type(theirs) or not _is_hashable(mine) or mine != theirs:
            return False
        hidden = (
            [each.name for each in fields(mine) if not each.compare] if is_dataclass(mine) else []
        )
        return all(_ByAllFields(vars(mine)[n]) == _ByAllFields(vars(theirs)[n]) for n in hidden)

    def __hash__(self) -> int:
        return hash(self.held)


@lru_cache(maxsize=16)
def _cached_plan(
    model: _ByIdentity,
    schema: Schema,
    budget: Budget,
    method: _ByAllFields[Method | str | None],
    size: int | None,
) -> Plan:
    return plan(model.held, schema, budget=budget, method=method.held, size=size)


def _is_hashable(value: object) -> bool:
    """Whether a value can be looked up; settings may hold anything."""
    try:
        hash(value)
    except TypeError:
        return False
    return True
