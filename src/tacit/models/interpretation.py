"""How to interpret the parameters of a model in the units of the table. All of it is public.

A model has an `Interpretation`, the posterior saves it, and summaries and reports are written by it.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Protocol, TypeVar, runtime_checkable

import jax

from tacit import _validate
from tacit.errors import InvalidArgument
from tacit.models.base import (
    DiscreteCoordinates,
    Labels,
    Outcomes,
    Parameters,
    Predicts,
    PyTree,
    Row,
    UnitModel,
)

ParameterRole = Literal["intercept", "coefficient", "effect", "spread"]
IncrementSizes = Mapping[str, float]
_T = TypeVar("_T")
# Words for one of a unit of measurement that is named in the plural.
_SINGULAR = {
    f"{each}s": each
    for each in ("year", "month", "week", "day", "hour", "minute", "second", "visit", "unit")
}


@dataclass(frozen=True)
class Increment:
    """By how much a number changes, where a coefficient says what follows from that.

    Attributes:
        name: The column or calculation, as the formula has it.
        own: The step of the model's own coefficient: half of the declared range, or the spread.
        shown: The step that summaries use unless they are asked for another.
        measure: The unit of measurement, if the schema has one.
        why: Where the model's own step comes from, such as ``"half of 18 to 98"``.
    """

    name: str
    own: float
    shown: float = 1.0
    measure: str | None = None
    why: str = ""

    def size(self, units: IncrementSizes) -> float:
        """The step that is asked for, or the usual one."""
        return float(units.get(self.name, self.shown))

    def words(self, units: IncrementSizes, *, named: bool) -> str:
        """The step in words, with the name of the column if it is not clear from elsewhere.

        >>> Step("age", 40.0, 10.0, "years").words({}, named=True)
        '10 years of age'
        >>> Step("stay", 15.0).words({}, named=False)
        '1'
        """
        size = self.size(units)
        amount = f"{size:.4g}" if size == self.own else f"{size:.10g}"
        if self.measure is not None:
            amount += f" {_SINGULAR.get(self.measure, self.measure) if size == 1 else self.measure}"
        return f"{amount} of {self.name}" if named else amount


@dataclass(frozen=True)
class PriorSummary:
    """A prior: its formula, its name in words, and the ends of its central 95%, if they are known."""

    formula: str
    name: str = ""
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class ParameterMeaning:
    """What one parameter means.

    Attributes:
        role: What kind of parameter it is.
        text: What it is, apart from its steps, such as ``"against A"``.
        note: What it is, if that is too long to stand beside its name.
        steps: The steps of the numbers that it is a coefficient of.
        prior: Its prior, in the model's own steps.
        ratio: Whether its exponential is a ratio, such as an odds ratio.
        start: Where a fit begins, for a standard deviation.
    """

    role: ParameterRole
    text: str = ""
    steps: tuple[Increment, ...] = ()
    prior: PriorSummary | None = None
    ratio: bool = False
    start: float | None = None
    note: str = ""

    def factor(self, units: IncrementSizes) -> float:
        """What the model's own number is multiplied by to be shown."""
        return math.prod(step.size(units) / step.own for step in self.steps)

    def words(self, units: IncrementSizes) -> str:
        """What one unit of it is, in words, such as ``"per 10 years, against A"``."""
        named = len(self.steps) > 1
        per = " x ".join(step.words(units, named=named) for step in self.steps)
        return ", ".join(each for each in (f"per {per}" if per else "", self.text) if each)

    def prior_words(self, units: IncrementSizes) -> str:
        """The prior in words, on the scale that is shown."""
        if self.prior is None:
            return ""
        low, high = self.prior.low, self.prior.high
        if low is None or high is None:
            return self.prior.formula
        factor = self.factor(units)
        return f"{self.prior.name}, 95% between {factor * low:.3g} and {factor * high:.3g}"


@dataclass(frozen=True)
class ReferenceValue:
    """The value or level of a column where the intercept is."""

    column: str
    value: str


@dataclass(frozen=True)
class Interpretation:
    """How to read the parameters of a model.

    Attributes:
        formula: The formula.
        question: What was asked, as a question.
        outcome: The name of the outcome.
        kind: What the model is called, such as ``"logistic regression"``.
        scale: What coefficients are changes of, such as ``"the log-odds that ill is yes"``.
        ratio: What the exponential of a coefficient is called, or None if it means nothing.
        reference: Where the intercept is: the value or level of each column.
        bounds: The declared bounds of the outcome, if it is measured.
        parameters: The meaning of each parameter, by its name.
    """

    formula: str
    question: str
    outcome: str
    kind: str
    scale: str
    ratio: str | None = None
    reference: tuple[ReferenceValue, ...] = ()
    bounds: tuple[float, float] | None = None
    parameters: Mapping[str, ParameterMeaning] = field(default_factory=dict)

    def units(self, asked: IncrementSizes | None) -> IncrementSizes:
        """Steps that were asked for, checked; raises if a name or a number is wrong."""
        if not isinstance(asked or {}, Mapping):
            raise InvalidArgument('units must be a mapping such as {"age": 10}.')
        known = dict.fromkeys(s.name for each in self.parameters.values() for s in each.steps)
        found = {}
        for name, size in (asked or {}).items():
            if name not in known:
                have = f"numbers with a unit are {', '.join(known)}" if known else "there are none"
                raise InvalidArgument(f"units names {name!r}, which is not a number here; {have}.")
            found[name] = _validate.positive(f"units[{name!r}]", size)
        return found

    def to_dict(self) -> dict[str, Any]:
        """The reading as plain data."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Interpretation":
        """A reading from plain data, as `to_dict` gives it."""
        parameters = {name: _meaning_from_dict(each) for name, each in data["parameters"].items()}
        return cls(
            **{
                **data,
                "reference": tuple(ReferenceValue(**each) for each in data["reference"]),
                "bounds": _or_none(tuple[float, float], data["bounds"]),
                "parameters": parameters,
            }
        )


def _meaning_from_dict(data: Mapping[str, Any]) -> ParameterMeaning:
    steps = tuple(Increment(**each) for each in data["steps"])
    prior = None if data["prior"] is None else PriorSummary(**data["prior"])
    return ParameterMeaning(**{**data, "steps": steps, "prior": prior})


def _or_none(make: Callable[[Any], _T], value: Any) -> _T | None:
    return None if value is None else make(value)


def round_increment(own: float) -> float:
    """The largest power of ten that is at most half of a number.

    >>> round_step(40.0), round_step(0.5), round_step(1e5)
    (10.0, 0.1, 10000.0)
    """
    power = math.floor(math.log10(own / 2) + 1e-9)
    return 10.0**power if power >= 0 else float(f"1e{power}")


@runtime_checkable
class HasInterpretation(Protocol):
    """A model that says how to read its parameters, or None if it cannot."""

    @property
    def reading(self) -> Interpretation | None:
        """How to read the parameters."""
        ...


def model_interpretation(model: object) -> Interpretation | None:
    """How to read the parameters of a model, if it says so."""
    return model.reading if isinstance(model, HasInterpretation) else None


def describe_model(model: UnitModel) -> str:
    """What was fitted, in one line: the formula, or outcomes, columns and parameters by name."""
    reading = model_interpretation(model)
    if reading is not None:
        return f"{reading.formula} ({reading.kind})"
    names = f"model with {', '.join(model.names)}"
    if not isinstance(model, Predicts):
        return names if model.columns is None else f"{', '.join(model.columns)}; {names}"
    outcomes = [name for name in model.columns if name not in model.predictors]
    given = f" given {', '.join(model.predictors)}" if model.predictors else ""
    return f"{', '.join(outcomes)}{given}; {names}"


@dataclass(frozen=True)
class WrappedModel:
    """All of a model, for classes that change a part of it."""

    model: UnitModel

    @property
    def constants(self) -> Any:
        """As for the model."""
        return self.model.constants

    def of_model(self, constants: PyTree) -> PyTree:
        """The wrapped model's own constants, of those of this one."""
        return constants

    @property
    def dimension(self) -> int:
        """As for the model."""
        return self.model.dimension

    @property
    def names(self) -> tuple[str, ...]:
        """As for the model."""
        return self.model.names

    @property
    def columns(self) -> tuple[str, ...] | None:
        """As for the model."""
        return self.model.columns

    @property
    def labels(self) -> Labels:
        """As for the model."""
        return self.model.labels

    @property
    def reading(self) -> Interpretation | None:
        """As for the model."""
        return model_interpretation(self.model)

    @property
    def searched(self) -> tuple[Any, ...]:
        """As for the model."""
        return self.model.searched

    @property
    def whole_units(self) -> bool:
        """As for the model."""
        return self.model.whole_units

    @property
    def discrete(self) -> DiscreteCoordinates:
        """As for the model."""
        return self.model.discrete

    def start(self, values: Mapping[str, Any]) -> Any:
        """As for the model."""
        return self.model.start(values)

    def constrain(self, vector: jax.Array, constants: PyTree = None) -> Parameters:
        """As for the model."""
        return self.model.constrain(vector, self.of_model(constants))

    def prior_density(self, vector: jax.Array, constants: PyTree = None) -> jax.Array:
        """As for the model."""
        return self.model.prior_density(vector, self.of_model(constants))

    def row_density(
        self,
        vector: jax.Array,
        row: Row,
        constants: PyTree = None,
        outcomes: Outcomes = None,
    ) -> jax.Array:
        """As for the model."""
        return self.model.row_density(vector, row, self.of_model(constants), outcomes)

    def unit_density(
        self,
        vector: jax.Array,
        rows: Row,
        present: jax.Array,
        constants: PyTree = None,
        outcomes: Outcomes = None,
    ) -> jax.Array:
        """As for the model."""
        given = self.of_model(constants)
        return self.model.unit_density(vector, rows, present, given, outcomes)

    @property
    def simulates(self) -> bool:
        """As for the model."""
        return self.model.simulates

    def row_outcomes(
        self, key: jax.Array, vector: jax.Array, row: Row, constants: PyTree = None
    ) -> Outcomes:
        """As for the model."""
        return self.model.row_outcomes(key, vector, row, self.of_model(constants))

    def unit_outcomes(
        self,
        key: jax.Array,
        vector: jax.Array,
        rows: Row,
        present: jax.Array,
        constants: PyTree = None,
    ) -> Outcomes:
        """As for the model."""
        given = self.of_model(constants)
        return self.model.unit_outcomes(key, vector, rows, present, given)


_SIMULATED_PREFIX = "drawn "


@dataclass(frozen=True, eq=False)
class SimulatedModel(WrappedModel):
    """A model that takes its outcomes from fields of a made-up row, where `add_simulated_outcomes` put them.

    Everything else is the model's own. So a method does with a made-up table exactly what it does
    with a real one, whatever the outcomes are: columns of the table, or functions of them.
    """

    @property
    def columns(self) -> tuple[str, ...] | None:
        """Not restricted, because a made-up row has fields beside the columns."""
        return None

    def row_density(
        self, vector: jax.Array, row: Row, constants: PyTree = None, outcomes: Outcomes = None
    ) -> jax.Array:
        """Log-likelihood of the drawn outcomes of a row, or of others in their place."""
        own = _simulated_outcomes(row) if outcomes is None else outcomes
        return super().row_density(vector, row, constants, own)

    def unit_density(
        self,
        vector: jax.Array,
        rows: Row,
        present: jax.Array,
        constants: PyTree = None,
        outcomes: Outcomes = None,
    ) -> jax.Array:
        """The same for all rows of a unit."""
        own = _simulated_outcomes(rows) if outcomes is None else outcomes
        return super().unit_density(vector, rows, present, constants, own)


def add_simulated_outcomes(
    columns: Mapping[str, Any], outcomes: Mapping[str, Any]
) -> dict[str, Any]:
    """Columns of a made-up table, with drawn outcomes where `SimulatedModel` looks for them."""
    return {
        **columns,
        **{f"{_SIMULATED_PREFIX}{name}": values for name, values in outcomes.items()},
    }


def _simulated_outcomes(row: Row) -> dict[str, jax.Array]:
    return {
        name.removeprefix(_SIMULATED_PREFIX): row[name]
        for name in row
        if name.startswith(_SIMULATED_PREFIX)
    }
