"""How to read the parameters of a model, in the units of the table: public values, without data.

A model gives a `Reading`, the posterior saves it, and summaries and reports are written by it.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol, TypeVar, runtime_checkable

from attrs import asdict, field, frozen

from tacit import _validate
from tacit.errors import InvalidArgument
from tacit.models.base import AnyModel, Predicts

Role = Literal["intercept", "coefficient", "effect", "spread"]
Units = Mapping[str, float]
_T = TypeVar("_T")
# Words for one of a unit of measurement that is named in the plural.
_ONE = {
    f"{each}s": each
    for each in ("year", "month", "week", "day", "hour", "minute", "second", "visit", "unit")
}


@frozen
class Step:
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

    def size(self, units: Units) -> float:
        """The step that is asked for, or the usual one."""
        return float(units.get(self.name, self.shown))

    def words(self, units: Units, *, named: bool) -> str:
        """The step in words, with the name of the column if it is not clear from elsewhere.

        >>> Step("age", 40.0, 10.0, "years").words({}, named=True)
        '10 years of age'
        >>> Step("stay", 15.0).words({}, named=False)
        '1'
        """
        size = self.size(units)
        amount = f"{size:.4g}" if size == self.own else f"{size:.10g}"
        if self.measure is not None:
            amount += f" {_ONE.get(self.measure, self.measure) if size == 1 else self.measure}"
        return f"{amount} of {self.name}" if named else amount


@frozen
class Prior:
    """A prior: its formula, its name in words, and the ends of its central 95%, if they are known."""

    formula: str
    name: str = ""
    low: float | None = None
    high: float | None = None


@frozen
class Meaning:
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

    role: Role
    text: str = ""
    steps: tuple[Step, ...] = ()
    prior: Prior | None = None
    ratio: bool = False
    start: float | None = None
    note: str = ""

    def factor(self, units: Units) -> float:
        """What the model's own number is multiplied by to be shown."""
        return math.prod(step.size(units) / step.own for step in self.steps)

    def words(self, units: Units) -> str:
        """What one unit of it is, in words, such as ``"per 10 years, against A"``."""
        named = len(self.steps) > 1
        per = " x ".join(step.words(units, named=named) for step in self.steps)
        return ", ".join(each for each in (f"per {per}" if per else "", self.text) if each)

    def prior_words(self, units: Units) -> str:
        """The prior in words, on the scale that is shown."""
        if self.prior is None:
            return ""
        low, high = self.prior.low, self.prior.high
        if low is None or high is None:
            return self.prior.formula
        factor = self.factor(units)
        return f"{self.prior.name}, 95% between {factor * low:.3g} and {factor * high:.3g}"


@frozen
class Reference:
    """The value or level of a column where the intercept is."""

    column: str
    value: str


@frozen
class Reading:
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
    reference: tuple[Reference, ...] = ()
    bounds: tuple[float, float] | None = None
    parameters: Mapping[str, Meaning] = field(factory=dict)

    def units(self, asked: Units | None) -> Units:
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
    def from_dict(cls, data: Mapping[str, Any]) -> "Reading":
        """A reading from plain data, as `to_dict` gives it."""
        parameters = {name: _meaning(each) for name, each in data["parameters"].items()}
        return cls(
            **{
                **data,
                "reference": tuple(Reference(**each) for each in data["reference"]),
                "bounds": _or_none(tuple[float, float], data["bounds"]),
                "parameters": parameters,
            }
        )


def _meaning(data: Mapping[str, Any]) -> Meaning:
    steps = tuple(Step(**each) for each in data["steps"])
    prior = None if data["prior"] is None else Prior(**data["prior"])
    return Meaning(**{**data, "steps": steps, "prior": prior})


def _or_none(make: Callable[[Any], _T], value: Any) -> _T | None:
    return None if value is None else make(value)


def round_step(own: float) -> float:
    """The largest power of ten that is at most half of a number.

    >>> round_step(40.0), round_step(0.5), round_step(1e5)
    (10.0, 0.1, 10000.0)
    """
    power = math.floor(math.log10(own / 2) + 1e-9)
    return 10.0**power if power >= 0 else float(f"1e{power}")


@runtime_checkable
class Readable(Protocol):
    """A model that says how to read its parameters, or None if it cannot."""

    @property
    def reading(self) -> Reading | None:
        """How to read the parameters."""
        ...


def reading_of(model: object) -> Reading | None:
    """How to read the parameters of a model, if it says so."""
    return model.reading if isinstance(model, Readable) else None


def called(model: AnyModel) -> str:
    """What was fitted, in one line: the formula, or outcomes, columns and parameters by name."""
    reading = reading_of(model)
    if reading is not None:
        return f"{reading.formula} ({reading.kind})"
    names = f"model with {', '.join(model.names)}"
    if not isinstance(model, Predicts):
        return names if model.columns is None else f"{', '.join(model.columns)}; {names}"
    outcomes = [name for name in model.columns if name not in model.predictors]
    given = f" given {', '.join(model.predictors)}" if model.predictors else ""
    return f"{', '.join(outcomes)}{given}; {names}"
