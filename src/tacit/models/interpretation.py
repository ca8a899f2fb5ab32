"""How to interpret the parameters of a model in the units of the table. All of it is public.

A model has an `Interpretation`, the posterior saves it, and summaries and reports are written by it.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from tacit import _validate
from tacit.errors import InvalidArgument

ParameterRole = Literal["intercept", "coefficient", "effect", "spread"]
IncrementSizes = Mapping[str, float]
# Words for one of a unit of measurement that is named in the plural.
_SINGULAR = {
    f"{each}s": each
    for each in ("year", "month", "week", "day", "hour", "minute", "second", "visit", "unit")
}


@dataclass(frozen=True)
class Increment:
    """The change of a predictor that a coefficient is about: "per 10 years of age".

    Attributes:
        name: The column or calculation, as the formula has it.
        in_model: The increment of the model's own coefficient: half of the declared range, or the
            spread.
        in_summary: The increment that summaries use by default.
        measured_in: The unit of measurement, if the schema has one.
        origin: Where the model's own increment comes from, such as ``"half of 18 to 98"``.
    """

    name: str
    in_model: float
    in_summary: float = 1.0
    measured_in: str | None = None
    origin: str = ""

    def size(self, units: IncrementSizes) -> float:
        """The requested increment, or the usual one."""
        return float(units.get(self.name, self.in_summary))

    def words(self, units: IncrementSizes, *, named: bool) -> str:
        """The increment in words, with the name of the column if it is not clear from elsewhere.

        >>> Increment("age", 40.0, 10.0, "years").words({}, named=True)
        '10 years of age'
        >>> Increment("stay", 15.0).words({}, named=False)
        '1'
        """
        size = self.size(units)
        amount = f"{size:.4g}" if size == self.in_model else f"{size:.10g}"
        if self.measured_in is not None:
            unit = self.measured_in
            amount += f" {_SINGULAR.get(unit, unit) if size == 1 else unit}"
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
        text: What it is, apart from its increments, such as ``"against A"``.
        note: What it is, if that is too long to stand beside its name.
        increments: The increments of the predictors that it is a coefficient of.
        prior: Its prior, per increments of the model.
        ratio: Whether its exponential is a ratio, such as an odds ratio.
        start: Where a fit begins, for a standard deviation.
    """

    role: ParameterRole
    text: str = ""
    increments: tuple[Increment, ...] = ()
    prior: PriorSummary | None = None
    ratio: bool = False
    start: float | None = None
    note: str = ""

    def factor(self, units: IncrementSizes) -> float:
        """What the model's own number is multiplied by to be shown."""
        return math.prod(each.size(units) / each.in_model for each in self.increments)

    def words(self, units: IncrementSizes) -> str:
        """What one unit of it is, in words, such as ``"per 10 years, against A"``."""
        named = len(self.increments) > 1
        per = " x ".join(each.words(units, named=named) for each in self.increments)
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
    """How to interpret the parameters of a model.

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
        notes: What else was declared, in sentences.
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
    notes: tuple[str, ...] = ()

    def units(self, asked: IncrementSizes | None) -> IncrementSizes:
        """The requested increments, checked; raises if a name or a number is wrong."""
        if not isinstance(asked or {}, Mapping):
            raise InvalidArgument('units must be a mapping such as {"age": 10}.')
        known = dict.fromkeys(s.name for each in self.parameters.values() for s in each.increments)
        found = {}
        for name, size in (asked or {}).items():
            if name not in known:
                have = f"numbers with a unit are {', '.join(known)}" if known else "there are none"
                raise InvalidArgument(f"units names {name!r}, which is not a number here; {have}.")
            found[name] = _validate.positive(f"units[{name!r}]", size)
        return found

    def parameter_table(self) -> list[str]:
        """Lines of a table: each parameter, what one unit of it is in the model, and its prior."""
        rows = [("parameter", "what it is", "prior")]
        for name, each in self.parameters.items():
            own = {step.name: step.in_model for step in each.increments}
            origins = [step.origin for step in each.increments if step.origin]
            words = ", ".join(filter(None, [each.words(own), *origins, each.note]))
            rows.append((name, words, "" if each.prior is None else each.prior.formula))
        widths = [max(len(row[i]) for row in rows) for i in range(2)]
        return [f"{n:<{widths[0]}}  {w:<{widths[1]}}  {p}".rstrip() for n, w, p in rows]

    def to_dict(self) -> dict[str, Any]:
        """The interpretation as plain data."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Interpretation":
        """An interpretation from plain data, as `to_dict` gives it."""
        return cls(
            **{
                **data,
                "reference": tuple(ReferenceValue(**each) for each in data["reference"]),
                "notes": tuple(data.get("notes", ())),
                "bounds": None if data["bounds"] is None else tuple(data["bounds"]),
                "parameters": {
                    n: _meaning_from_dict(each) for n, each in data["parameters"].items()
                },
            }
        )


def _meaning_from_dict(data: Mapping[str, Any]) -> ParameterMeaning:
    increments = tuple(Increment(**each) for each in data["increments"])
    prior = None if data["prior"] is None else PriorSummary(**data["prior"])
    return ParameterMeaning(**{**data, "increments": increments, "prior": prior})


def round_increment(size: float) -> float:
    """The largest power of ten that is at most half of a number.

    >>> round_increment(40.0), round_increment(0.5), round_increment(1e5)
    (10.0, 0.1, 10000.0)
    """
    power = math.floor(math.log10(size / 2) + 1e-9)
    return 10.0**power if power >= 0 else float(f"1e{power}")


# Names of `tacit.models.families.FAMILIES`, which takes long to import.
FAMILY_NAMES = (
    "bernoulli", "binomial", "gaussian", "poisson", "negativebinomial", "zero_inflated_poisson",
    "zero_inflated_negativebinomial", "gamma", "beta", "lognormal", "weibull", "weibull_ph", "piecewise_exponential", "categorical",
    "ordinal",
)  # fmt: skip
# Names of other packages, and of the regressions themselves, for families here.
_FOREIGN_FAMILIES = {
    **dict.fromkeys(("logistic", "logit", "binary", "probit"), "bernoulli"),
    **dict.fromkeys(("normal", "linear", "ols", "identity"), "gaussian"),
    **dict.fromkeys(("nb", "negbin", "negbinomial", "nbinom", "nbinom2", "quasipoisson", "negative_binomial"), "negativebinomial"),
    **dict.fromkeys(("multinomial", "softmax"), "categorical"),
    **dict.fromkeys(("cumulative", "polr", "ordered"), "ordinal"),
    **dict.fromkeys(("count", "log"), "poisson"),
    **dict.fromkeys(("zip", "hurdle_poisson"), "zero_inflated_poisson"),
    **dict.fromkeys(("zinb", "zero_inflated_negbinomial", "hurdle_negbinomial"), "zero_inflated_negativebinomial"),
    **dict.fromkeys(("cox", "coxph", "survival"), "weibull_ph"),
    "exponential": "weibull",
    "inverse_gaussian": "gamma",
}  # fmt: skip


def check_family(name: object) -> str:
    """The name of a family, checked.

    Raises:
        InvalidArgument: If there is none; of a name that another package has for one, it says which.
    """
    if isinstance(name, str) and name in FAMILY_NAMES:
        return name
    text = name if isinstance(name, str) else type(name).__name__  # an object of another package
    plain = text.removesuffix("()").strip().lower()
    known = _FOREIGN_FAMILIES.get(plain, plain if plain in FAMILY_NAMES else None)
    if known is None:
        return _validate.choice("family", text, FAMILY_NAMES)
    link = ' with link="probit"' if plain == "probit" else ""
    shown = repr(name) if isinstance(name, str) else text
    raise InvalidArgument(f'There is no family {shown}; use family="{known}"{link} instead.')


@dataclass(frozen=True, kw_only=True)
class GLMSpec:
    """What a model by formula was made from, beside the schema, so that it can be made again.

    Priors are not part of it: predictions do not depend on them once there are draws.

    Attributes:
        formula: The formula.
        family: Name of the family.
        link: Name of the link.
        predictors: The columns that a prediction needs, once the model has been tried out.
    """

    formula: str
    family: str
    link: str
    predictors: tuple[str, ...] = ()

    def to_json(self) -> str:
        """The specification as JSON."""
        return json.dumps(vars(self))

    @classmethod
    def from_json(cls, text: str) -> "GLMSpec":
        """The specification that `to_json` wrote."""
        found = json.loads(text)
        return cls(**found | {"predictors": tuple(found["predictors"])})
