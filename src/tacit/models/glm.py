"""Generalised linear models by formula: NumPyro models made from a formula and a schema.

`glm` makes a `GLM`, whose `GLMFunction` is the NumPyro function. Its default priors, and how its parameters are
interpreted, follow from the schema.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpyro
from numpyro import distributions as dist
from numpyro.distributions import Distribution, constraints
from scipy import stats

from tacit import _validate
from tacit.data.cells import label_text
from tacit.data.columns import Binary, Category, Kind, Number
from tacit.data.schema import Schema
from tacit.errors import InvalidArgument
from tacit.models.design import Group, Term, build_group, build_terms
from tacit.models.distributions import Ordered, Rescaled
from tacit.models.families import (
    CUTPOINT,
    FAMILIES,
    AuxiliaryParameter,
    Family,
    Outcome,
    PredictorScales,
    build_outcome,
    default_family,
)
from tacit.models.formula import (
    Columns,
    Expression,
    Facts,
    KnownColumns,
    Node,
    ParsedFormula,
    bounded_expression,
    called_function,
    format_node,
    parse_formula,
    unknown_name_error,
)
from tacit.models.interpretation import (
    Interpretation,
    ParameterMeaning,
    PriorSummary,
    ReferenceValue,
)
from tacit.models.numpyro import NumPyro


@dataclass(frozen=True, kw_only=True)
class GLMSpec:
    """A formula and what it was read with. All of it is public.

    Priors are not part of it: predictions do not depend on them once there are draws.

    Attributes:
        formula: The formula.
        family: Name of the family.
        link: Name of the link.
        person: The column that identifies the person of a row, if any.
        known: What is public about the columns.
        predictors: The columns that a prediction needs, once the model has been tried out.
    """

    formula: str
    family: str
    link: str
    person: str | None
    known: KnownColumns
    predictors: tuple[str, ...] = ()

    def to_json(self) -> str:
        """The recipe as JSON."""
        known = {name: facts._asdict() for name, facts in self.known.items()}
        return json.dumps({**vars(self), "known": known})

    @classmethod
    def from_json(cls, text: str) -> "GLMSpec":
        """The recipe that `to_json` wrote."""
        found = json.loads(text)
        known = {name: _facts_from_json(each) for name, each in found["known"].items()}
        return cls(**found | {"known": known, "predictors": tuple(found["predictors"])})


def _facts_from_json(found: dict[str, Any]) -> Facts:
    """JSON has lists in the place of tuples."""
    values: Any = {n: tuple(v) if isinstance(v, list) else v for n, v in found.items()}
    return Facts(**values)


_PRIOR_CLASSES: dict[str, tuple[Any, str]] = {
    "beta": (dist.Beta, "first shape, second shape"),
    "cauchy": (dist.Cauchy, "location, scale"),
    "exponential": (dist.Exponential, "rate"),
    "gamma": (dist.Gamma, "shape, rate"),
    "halfcauchy": (dist.HalfCauchy, "scale"),
    "halfnormal": (dist.HalfNormal, "scale"),
    "laplace": (dist.Laplace, "location, scale"),
    "lognormal": (dist.LogNormal, "location, scale"),
    "normal": (dist.Normal, "location, scale"),
    "studentt": (dist.StudentT, "degrees of freedom, location, scale"),
}
# The name of a prior in words, and the same distribution in SciPy, by the name of its class.
_SCIPY_PRIORS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "Beta": ("beta", lambda p: stats.beta(p.concentration1, p.concentration0)),
    "Cauchy": ("Cauchy", lambda p: stats.cauchy(p.loc, p.scale)),
    "Exponential": ("exponential", lambda p: stats.expon(scale=1 / p.rate)),
    "Gamma": ("gamma", lambda p: stats.gamma(p.concentration, scale=1 / p.rate)),
    "HalfCauchy": ("half-Cauchy", lambda p: stats.halfcauchy(scale=p.scale)),
    "HalfNormal": ("half-normal", lambda p: stats.halfnorm(scale=p.scale)),
    "Laplace": ("Laplace", lambda p: stats.laplace(p.loc, p.scale)),
    "LogNormal": ("log-normal", lambda p: stats.lognorm(p.scale, scale=math.exp(p.loc))),
    "Normal": ("normal", lambda p: stats.norm(p.loc, p.scale)),
    "StudentT": ("Student's t", lambda p: stats.t(p.df, p.loc, p.scale)),
}
_POSITIVE_SUPPORTS = (constraints.positive, constraints.nonnegative)
# Where a prior may lie, in words, and supports that do.
_PRIOR_SUPPORTS = (
    ("the positive numbers", _POSITIVE_SUPPORTS),
    ("the numbers between 0 and 1", (constraints.unit_interval,)),
    ("all real numbers", (constraints.real,)),
)


def merge_priors(defaults: Mapping[str, Any], given: Mapping[str, Any] | None) -> dict[str, Any]:
    """The default priors, with those that the user gave instead."""
    if given is not None and not isinstance(given, Mapping):
        raise InvalidArgument('priors must be a mapping such as {"age": ("normal", 0, 1)}.')
    found = dict(defaults)
    for name, prior in (given or {}).items():
        if name not in defaults:
            raise unknown_name_error("priors names", name, defaults)
        found[name] = _check_prior(name, prior, defaults[name])
    return found


def _check_prior(name: str, prior: Any, default: Any) -> Any:
    made = _prior_from_tuple(name, prior) if isinstance(prior, tuple | list) else prior
    if not isinstance(made, dist.Distribution) or made.batch_shape or made.event_shape:
        raise InvalidArgument(
            f'The prior of {name!r} must be a tuple such as ("normal", 0, 1), or a NumPyro '
            "distribution over a single number."
        )
    where, allowed = next(each for each in _PRIOR_SUPPORTS if _is_one_of(default.support, each[1]))
    if not _is_one_of(made.support, allowed):
        raise InvalidArgument(f"The prior of {name!r} must be a distribution over {where}.")
    return _with_python_numbers(made)


def _is_one_of(support: Any, supports: tuple[Any, ...]) -> bool:
    return any(support is each for each in supports)


def _with_python_numbers(prior: Any) -> Any:
    """The same prior with Python numbers, because an array in a model could hold rows."""
    try:
        numbers = {name: float(value) for name, value in prior.get_args().items()}
        return type(prior)(**numbers)
    except (AttributeError, TypeError):
        return prior  # a transformed distribution, for example


def _prior_from_tuple(name: str, prior: Any) -> Any:
    kind = prior[0] if prior else None
    if kind not in _PRIOR_CLASSES:
        raise InvalidArgument(
            f"The prior of {name!r} must be one of {', '.join(_PRIOR_CLASSES)}, with its numbers; got "
            f"{kind!r}."
        )
    make, wanted = _PRIOR_CLASSES[kind]
    numbers = [_validate.finite(f"the prior of {name!r}", each) for each in prior[1:]]
    if len(numbers) != len(wanted.split(", ")):
        raise InvalidArgument(f"The {kind} prior of {name!r} needs {wanted}; got {prior[1:]!r}.")
    try:
        return make(*numbers, validate_args=True)
    except ValueError:
        raise InvalidArgument(
            f"The prior of {name!r} has a number out of range; a {kind} prior has {wanted}, and scales "
            "and rates must be positive."
        ) from None


def format_prior(prior: dist.Distribution) -> str:
    """A prior as text.

    >>> described(dist.Normal(0, 2.5))
    'Normal(0, 2.5)'
    """
    try:
        numbers = [f"{float(value):.4g}" for value in prior.get_args().values()]
    except (AttributeError, TypeError):
        numbers = ["..."]
    return f"{type(prior).__name__}({', '.join(numbers)})"


def prior_interval(prior: dist.Distribution) -> tuple[str, float | None, float | None]:
    """The name of a prior, and the ends of its central 95%, if they are known.

    >>> in_words(dist.Normal(0, 1))
    ('normal', -1.96, 1.96)
    """
    kind = type(prior).__name__
    if kind not in _SCIPY_PRIORS:
        return kind, None, None
    name, known = _SCIPY_PRIORS[kind]
    low, high = (float(f"{end:.5g}") for end in known(prior).ppf([0.025, 0.975]))
    return name, low, high


INTERCEPT = "Intercept"
_ROW_PLATE = "rows of the table"
# Unit of the logarithm of a spread, whose gradient is longer than that of a coefficient.
_LOG_SCALE_UNIT = 0.3


@dataclass(frozen=True, kw_only=True, eq=False)
class GLMFunction:
    """The NumPyro function of a generalised linear model."""

    family: Family
    link: str
    outcome: Outcome
    intercept: bool
    terms: tuple[Term, ...]
    groups: tuple[Group, ...]
    offsets: tuple[Expression, ...]
    priors: Mapping[str, Any]
    recipe: GLMSpec | None = None

    # All of these follow from the formula and the schema.
    declared_public: ClassVar[tuple[str, ...]] = (
        "family", "outcome", "terms", "groups", "offsets", "priors", "scales", "further", "labels", "takes", "recipe",
    )  # fmt: skip

    @cached_property
    def scales(self) -> PredictorScales:
        """Public scales of the linear predictor."""
        return self.family.scales(self.outcome)

    @cached_property
    def further(self) -> dict[str, AuxiliaryParameter]:
        """The family's further parameters, by names that differ from those of all terms."""
        return {
            self._free(each.name): each for each in self.family.further if each.needed(self.outcome)
        }

    @property
    def cutpoint(self) -> str | None:
        """The name of the cutpoints, if the family has them."""
        return self._free(CUTPOINT) if self.family.cut else None

    def _free(self, name: str) -> str:
        """A name that is not that of a term or of the outcome."""
        taken = {self.outcome.name, *(term.name for term in self.terms)}
        return f"{self.outcome.name}_{name}" if name in taken else name

    @cached_property
    def takes(self) -> tuple[str, ...]:
        """Names of the columns, including the person column if there are effects of people."""
        parts: tuple[Term | Group | Expression, ...]
        parts = (*self.terms, *self.groups, *self.offsets)
        of = [self.outcome.columns, *(each.columns for each in parts)]
        people = [each.person for each in self.groups if each.person is not None]
        return tuple(sorted(frozenset[str]().union(*of, people)))

    @property
    def order(self) -> tuple[str, ...]:
        """Names of the parameters, in the order in which they are reported."""
        effects = {f"{each.name}_sd": each.name for each in self.groups}
        pairs = ((name, effects[name]) if name in effects else (name,) for name in self.priors)
        return tuple(name for pair in pairs for name in pair)

    @cached_property
    def labels(self) -> dict[str, tuple[tuple[str, ...], ...]]:
        """Labels of the entries of array parameters, axis by axis."""
        levels = (self.outcome.levels,) if self.outcome.levels else ()
        found: dict[str, tuple[tuple[str, ...], ...]] = {INTERCEPT: levels}
        if self.cutpoint is not None:
            found[self.cutpoint] = (self.outcome.cutpoints,)
        for term in self.terms:
            found[term.name] = (*((term.block.labels,) if term.shape else ()), *levels)
        for group in self.groups:
            within = (group.varying.labels,) if group.varying.labels else ()
            if group.person is None:  # effects of people are not reported
                found[group.name] = (group.levels, *within, *levels)
            found[f"{group.name}_sd"] = (*within, *levels)
        return {name: axes for name, axes in found.items() if axes}

    def __call__(self, **columns: Any) -> None:
        """Runs the model's NumPyro statements."""
        further = {each.name: self._further(name) for name, each in self.further.items()}
        count = len(next(iter(columns.values())))
        several = bool(self.outcome.levels)
        eta: Any = jnp.zeros((count, len(self.outcome.levels)) if several else count)
        centre: Any = self.scales.middle
        for term in self.terms:
            middle = self.scales.middle if term.is_level else 0.0
            found = self._sample(term.name, term.shape, middle)
            x = term.read(columns)
            eta = eta + (x @ found if term.shape else (x if several else x[:, 0]) * found)
            centre = centre - term.block.centre * (found.sum(axis=0) if term.shape else found)
        if self.intercept:
            # The fit is in terms of the intercept at the middle of all columns, where it hardly
            # depends on the coefficients. It is reported at the reference.
            eta = eta + self._sample(INTERCEPT, (), centre)
        if self.cutpoint is not None:
            cuts = Ordered(self.priors[self.cutpoint], len(self.outcome.cutpoints))
            further[CUTPOINT] = numpyro.sample(
                self.cutpoint, Rescaled(cuts, -centre, self.scales.unit)
            )
        for group in self.groups:
            eta = eta + self._grouped(group, columns, count)
        for offset in self.offsets:
            value = offset.read(columns)
            eta = eta + (value[:, None] if several else value)
        fn = self.family.distribution(self.outcome, self.link, eta, further, columns)
        with numpyro.plate(_ROW_PLATE, count):
            numpyro.sample(self.outcome.name, fn, obs=self.outcome.read(columns))

    def _further(self, name: str) -> Any:
        """A parameter beside the coefficients."""
        start = self.further[name].start(self.scales)
        prior = self.priors[name]
        pace = 1.0 if prior.support is constraints.unit_interval else _LOG_SCALE_UNIT
        return numpyro.sample(name, Rescaled(prior, 0.0, start, pace))

    def _shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """A shape of coefficients, with an axis for the levels of the outcome."""
        levels = self.outcome.levels
        return (*shape, len(levels)) if levels else shape

    def _sample(self, name: str, shape: tuple[int, ...], middle: Any) -> Any:
        """Coefficients of a shape, fitted from a middle."""
        prior = self.priors[name].expand(self._shape(shape))
        return numpyro.sample(name, Rescaled(prior, middle, self.scales.unit))

    def _grouped(self, group: Group, columns: Columns, count: int) -> jax.Array:
        """What the effects of a group add to the linear predictor."""
        within = (len(group.varying.labels),) if group.varying.labels else ()
        sd = self._sample(f"{group.name}_sd", within, 0.0)
        if group.person is not None:
            with numpyro.plate(group.person, count):
                fn = dist.Normal(0.0, sd)
                effects = numpyro.sample(group.name, fn.to_event(1) if jnp.ndim(sd) else fn)
        else:
            shape = self._shape((len(group.levels), *within))
            fn = dist.Normal(jnp.zeros(shape), sd)
            effects = numpyro.sample(group.name, Rescaled(fn, 0.0, sd))
        of_row = effects[group.code(columns)]
        x = group.varying.read(columns)
        if not within:
            return jnp.asarray(of_row * (x if self.outcome.levels else x[:, 0]))
        if self.outcome.levels:
            x = x[:, :, None]
        return jnp.asarray((x * of_row).sum(axis=1))


# Names of columns that a question lists.
_MAX_NAMES_IN_QUESTION = 6


class _CoefficientScale(NamedTuple):
    """What coefficients are changes of, and what their exponentials are called."""

    words: str
    ratio: str | None = None


# By link. A softmax compares each level of the outcome with the first.
_SCALES_BY_LINK = {
    "identity": _CoefficientScale("the mean of {outcome}"),
    "log": _CoefficientScale("the logarithm of the mean of {outcome}", "ratio of means"),
    "logit": _CoefficientScale("the log-odds that {event}", "odds ratio"),
    "probit": _CoefficientScale("the probit of the probability that {event}"),
    "cloglog": _CoefficientScale("the complementary log-log of the probability that {event}"),
    "softmax": _CoefficientScale(
        "the log-odds of each level of {outcome} against {first}", "odds ratio"
    ),
}
# Where a family's coefficients are changes of something else than its link says.
_SCALES_BY_FAMILY = {
    ("beta", "logit"): _CoefficientScale("the log-odds of the mean of {outcome}", "ratio of odds"),
    ("ordinal", "logit"): _CoefficientScale(
        "the log-odds of a higher level of {outcome}", "odds ratio"
    ),
    ("ordinal", "probit"): _CoefficientScale(
        "the probit of the probability of a higher level of {outcome}"
    ),
    ("weibull", "log"): _CoefficientScale("the logarithm of {outcome}", "ratio of times"),
}
# What regressions are called, by family and link.
_REGRESSION_NAMES = {
    ("bernoulli", "logit"): "logistic regression",
    ("binomial", "logit"): "logistic regression",
    ("categorical", "softmax"): "multinomial logistic regression",
    ("beta", "logit"): "beta regression",
    ("gamma", "log"): "gamma regression",
    ("gaussian", "identity"): "linear regression",
    ("negativebinomial", "log"): "negative binomial regression",
    ("ordinal", "logit"): "ordinal logistic regression",
    ("poisson", "log"): "Poisson regression",
    ("weibull", "log"): "Weibull regression",
    ("zero_inflated_negativebinomial", "log"): "zero-inflated negative binomial regression",
    ("zero_inflated_poisson", "log"): "zero-inflated Poisson regression",
}
_RATE_FAMILIES = (
    "poisson",
    "negativebinomial",
    "zero_inflated_poisson",
    "zero_inflated_negativebinomial",
)


def interpret_glm(formula: str, program: GLMFunction, priors: Mapping[str, Any]) -> Interpretation:
    """How to read the parameters of a formula.

    Args:
        formula: The formula.
        program: The model, which has all public facts.
        priors: The priors of its parameters.

    Returns:
        The reading.
    """
    outcome, scale = program.outcome, _coefficient_scale(program)
    measured = program.link == "identity" and not outcome.facts.levels
    return Interpretation(
        formula=formula,
        question=_format_question(program),
        outcome=outcome.name,
        kind=_regression_name(program.family.name, program.link),
        scale=scale.words,
        ratio=scale.ratio,
        reference=_reference_values(program.terms),
        bounds=(outcome.facts.low, outcome.facts.high) if measured else None,
        parameters=_parameter_meanings(program, priors, ratio=scale.ratio is not None),
    )


def describe_parameter(program: GLMFunction, name: str) -> str:
    """What a parameter of the model means, in its own steps, in a few words."""
    for group in program.groups:
        if name == f"{group.name}_sd":
            return "; ".join(filter(None, (_GROUP_SD_TEXT, group.varying.meaning)))
    if name in (further := _auxiliary_meanings(program)):
        return further[name][0]
    if name == INTERCEPT:
        return "at the reference"
    if name == program.cutpoint:
        return _CUTPOINTS_TEXT
    return next(term.block.meaning for term in program.terms if term.name == name)


_GROUP_SD_TEXT = "standard deviation between groups"
_CUTPOINTS_TEXT = "between levels, in order; at the reference"


def _parameter_meanings(
    program: GLMFunction, priors: Mapping[str, Any], *, ratio: bool
) -> dict[str, ParameterMeaning]:
    found = {
        name: ParameterMeaning("spread", prior=_summarize_prior(each))
        for name, each in priors.items()
    }
    if INTERCEPT in found:
        words = "at the reference" if _reference_values(program.terms) else ""
        found[INTERCEPT] = ParameterMeaning(
            "intercept", words, prior=_summarize_prior(priors[INTERCEPT])
        )
    if program.cutpoint is not None:
        prior = _summarize_prior(priors[program.cutpoint])
        found[program.cutpoint] = ParameterMeaning("intercept", _CUTPOINTS_TEXT, prior=prior)
    for term in program.terms:
        found[term.name] = _term_meaning(term, _summarize_prior(priors[term.name]), ratio=ratio)
    for group in program.groups:
        found |= _group_meanings(group, priors, ratio=ratio)
    for name, (words, start) in _auxiliary_meanings(program).items():
        found[name] = ParameterMeaning(
            "spread", prior=_summarize_prior(priors[name]), start=start, note=words
        )
    return found


def _auxiliary_meanings(program: GLMFunction) -> dict[str, tuple[str, float]]:
    """The family's parameters beside the coefficients: what each is, and where a fit begins."""
    return {
        name: (each.meaning, each.start(program.scales)) for name, each in program.further.items()
    }


def _term_meaning(term: Term, prior: PriorSummary, *, ratio: bool) -> ParameterMeaning:
    block = term.block
    if term.is_level:
        return ParameterMeaning("intercept", block.text, block.steps, prior)
    if not block.alone:
        return ParameterMeaning(
            "coefficient", "part of a curve", block.steps, prior, note=block.text
        )
    return ParameterMeaning("coefficient", block.text, block.steps, prior, ratio)


def _group_meanings(
    group: Group, priors: Mapping[str, Any], *, ratio: bool
) -> dict[str, ParameterMeaning]:
    """Effects of groups, which people's are not reported of, and their standard deviation."""
    of, sd = group.varying, f"{group.name}_sd"
    between = "; ".join(filter(None, (_GROUP_SD_TEXT, of.text)))
    found = {
        sd: ParameterMeaning("spread", "", of.steps, _summarize_prior(priors[sd]), note=between)
    }
    if group.person is None:
        around = PriorSummary(f"Normal(0, {sd})")
        text = "; ".join(filter(None, ("against the mean of groups", of.text)))
        found[group.name] = ParameterMeaning("effect", text, of.steps, around, ratio)
    return found


def _summarize_prior(prior: Distribution) -> PriorSummary:
    return PriorSummary(format_prior(prior), *prior_interval(prior))


def _coefficient_scale(program: GLMFunction) -> _CoefficientScale:
    outcome, family = program.outcome, program.family.name
    by_link = _SCALES_BY_LINK.get(
        program.link, _CoefficientScale("the linear predictor of {outcome}")
    )
    scale = _SCALES_BY_FAMILY.get((family, program.link), by_link)
    ratio = "rate ratio" if family in _RATE_FAMILIES and program.link == "log" else scale.ratio
    first = outcome.facts.levels[0] if outcome.facts.levels else ""
    words = scale.words.format(
        outcome=_outcome_with_unit(outcome), event=_event_text(outcome), first=first
    )
    return _CoefficientScale(words, ratio)


def _regression_name(family: str, link: str) -> str:
    return _REGRESSION_NAMES.get((family, link), f"{family} regression with link {link}")


def _outcome_with_unit(outcome: Outcome) -> str:
    measure = outcome.facts.measure
    if measure in (None, outcome.name):
        return outcome.name
    return f"{outcome.name} in {measure}"


def _event_text(outcome: Outcome) -> str:
    """What has odds: that a binary outcome is yes, or that a trial is a success."""
    return "a trial is a success" if outcome.trials is not None else outcome.described


def _reference_values(terms: Sequence[Term]) -> tuple[ReferenceValue, ...]:
    """Where all numbers of the design are zero, each variable once."""
    at = dict(each for term in terms for each in term.block.reference)
    return tuple(ReferenceValue(*each) for each in at.items())


def _format_question(program: GLMFunction) -> str:
    """What the formula asks, as a question."""
    outcome, names = program.outcome, _predictor_names(program)
    levels = outcome.facts.levels
    named = (
        "" if levels in ((), ("0", "1")) or len(levels) > 2 else f" ({' or '.join(levels[::-1])})"
    )
    if outcome.trials is not None:
        named = f" ({outcome.described})"
    if not names:
        return f"How is {outcome.name}{named} distributed?"
    return f"How does {outcome.name}{named} depend on {_join_names(names)}?"


def _predictor_names(program: GLMFunction) -> list[str]:
    """The columns that the outcome depends on, in the order of the formula."""
    parts: tuple[Term | Group, ...] = (*program.terms, *program.groups)
    steps: list[str] = []
    for part in parts:
        block = part.block if isinstance(part, Term) else part.varying
        steps += [name for name, _ in block.reference if name in part.columns]
        steps += [name for name in _columns_in_order(part.name, part.columns) if name not in steps]
    return list(dict.fromkeys(steps))


def _columns_in_order(name: str, columns: frozenset[str]) -> list[str]:
    """Columns by where they are in the name of a part."""
    return sorted(columns, key=name.find)


def _join_names(names: Sequence[str]) -> str:
    shown = list(names[:_MAX_NAMES_IN_QUESTION])
    if len(names) > _MAX_NAMES_IN_QUESTION:
        shown.append(f"{len(names) - _MAX_NAMES_IN_QUESTION} more")
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


@dataclass(frozen=True, kw_only=True, eq=False)
class GLM:
    """A generalised linear model made by `tacit.glm`. Print it to see its parameters and priors.

    Pass it to `tacit.plan` or `tacit.fit` like any other model. It contains its schema.
    """

    formula: str
    family: str
    link: str
    schema: Any
    priors: Mapping[str, Any]
    program: GLMFunction

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns in the formula; no others are read."""
        return self.program.takes

    @property
    def described(self) -> NumPyro:
        """The NumPyro model."""
        person = next((each.person for each in self.program.groups if each.person), None)
        program = self.program
        return NumPyro(program, person_plate=person, labels=program.labels, reading=self.reading)

    @property
    def reading(self) -> Interpretation:
        """How to read the parameters: their units, reference levels and priors."""
        return interpret_glm(self.formula, self.program, self.priors)

    def __repr__(self) -> str:
        return f"GLM({self.formula!r}, family={self.family!r}, link={self.link!r})"

    def __str__(self) -> str:
        program, reference = self.program, self.reading.reference
        at = ", ".join(f"{each.column} {each.value}" for each in reference)
        lines = [
            f"{self.formula}",
            f"Family {self.family}, link {self.link}; outcome: {program.outcome.described}.",
            *([f"Reference: {at}."] if at else []),
            "",
        ]
        rows = [("parameter", "what it is", "prior")]
        rows += [
            (n, describe_parameter(program, n), format_prior(p)) for n, p in self.priors.items()
        ]
        rows += [
            (each.name, "effect of each group", f"Normal(0, {each.name}_sd)")
            for each in program.groups
        ]
        widths = [max(len(row[i]) for row in rows) for i in range(2)]
        table = [f"{n.ljust(widths[0])}  {m.ljust(widths[1])}  {p}" for n, m, p in rows]
        return "\n".join([*lines, *table])


def build_glm(
    formula: str,
    *,
    family: str,
    link: str | None,
    priors: Mapping[str, Any] | None,
    known: KnownColumns,
    person: str | None,
    schema: object,
) -> GLM:
    """The model that a formula describes.

    Args:
        formula: The formula.
        family: Name of the family.
        link: Name of the link; None for the family's default.
        priors: Priors that replace defaults, by name of the parameter.
        known: What is public about the columns.
        person: The column that identifies the person of a row.
        schema: The schema that the columns come from, which the model keeps.

    Raises:
        InvalidArgument: The formula, family, link or a prior is not valid.
    """
    chosen = FAMILIES[_validate.choice("family", family, FAMILIES)]
    link = _validate.choice(f"link of the {family} family", link or chosen.link, chosen.links)
    parts = parse_formula(formula)
    if chosen.cut and not parts.intercept:
        raise InvalidArgument(
            f"The {family} family has cutpoints in the place of an intercept; leave out 0 + or - 1 "
            f"in {formula!r}."
        )
    draft = _build_function(parts, chosen, link, known, person)
    _check_formula(formula, draft)
    complete = merge_priors(_default_priors(draft), priors)
    recipe = GLMSpec(formula=formula, family=family, link=link, person=person, known=dict(known))
    program = replace(draft, priors=complete, recipe=recipe)
    return GLM(
        formula=formula, family=family, link=link, schema=schema, priors=complete, program=program
    )


def glm_from_spec(recipe: GLMSpec, schema: object) -> GLM:
    """The model that was made from a recipe, with the default priors."""
    return build_glm(
        recipe.formula,
        family=recipe.family,
        link=recipe.link,
        priors=None,
        known=recipe.known,
        person=recipe.person,
        schema=schema,
    )


def _build_function(
    parts: ParsedFormula, family: Family, link: str, known: KnownColumns, person: str | None
) -> GLMFunction:
    """The function of a formula, still without priors."""
    outcome = build_outcome(parts, family, known)
    common = [nodes for nodes in parts.terms if not _is_offset(nodes)]
    with_intercept = [
        _format_interaction(each.groups) for each in parts.grouped if not each.varying
    ]
    return GLMFunction(
        family=family,
        link=link,
        outcome=outcome,
        intercept=parts.intercept and not family.cut,
        terms=build_terms(common, parts.intercept, known),
        groups=tuple(
            build_group(each, known, person, _format_interaction(each.groups) in with_intercept)
            for each in parts.grouped
        ),
        offsets=tuple(_build_offset(nodes, known) for nodes in parts.terms if _is_offset(nodes)),
        priors={},
    )


def _format_interaction(nodes: Sequence[Node]) -> str:
    """The nodes of an interaction as text."""
    return ":".join(format_node(node) for node in nodes)


def _is_offset(nodes: Sequence[Node]) -> bool:
    return any(called_function(node) == "offset" for node in nodes)


def _build_offset(nodes: Sequence[Node], known: KnownColumns) -> Expression:
    """The calculation in offset(...)."""
    if len(nodes) != 1 or len(nodes[0].args) != 1 or nodes[0].kwargs:
        raise InvalidArgument(f"{_format_interaction(nodes)!r} must be offset(...) of one column.")
    return bounded_expression(nodes[0].args[0], known)


def _check_formula(formula: str, program: GLMFunction) -> None:
    """Raises if the parts of a formula do not fit together."""
    outcome, terms = program.outcome, program.terms
    if program.intercept and INTERCEPT in {outcome.name, *(term.name for term in terms)}:
        raise InvalidArgument(
            f"The formula {formula!r} has a column called {INTERCEPT!r}, which is the name of the "
            "intercept; rename the column."
        )
    parts: tuple[Term | Group | Expression, ...] = (*terms, *program.groups, *program.offsets)
    for each in parts:
        if used := each.columns & outcome.columns:
            raise InvalidArgument(
                f"The formula {formula!r} has {min(used)!r} on both sides of ~; an outcome "
                "cannot explain itself."
            )
    if not (program.intercept or program.cutpoint or terms or program.groups):
        raise InvalidArgument(f"The formula {formula!r} has nothing to estimate.")


def _default_priors(program: GLMFunction) -> dict[str, Any]:
    """Priors of all parameters, on the public scale of the outcome."""
    family, scales = program.family, program.scales
    width = family.links[program.link] * scales.spread
    found: dict[str, Any] = {}
    if program.intercept:
        found[INTERCEPT] = dist.Normal(scales.middle, width)
    if program.cutpoint is not None:
        found[program.cutpoint] = dist.Normal(scales.middle, width)
    for term in program.terms:
        found[term.name] = dist.Normal(scales.middle if term.is_level else 0.0, width)
    for group in program.groups:
        found[f"{group.name}_sd"] = dist.HalfNormal(scales.between)
    found |= {name: each.prior(scales) for name, each in program.further.items()}
    return found


def glm(
    formula: str,
    *,
    family: str | None = None,
    schema: Schema,
    link: str | None = None,
    priors: Mapping[str, Any] | None = None,
) -> GLM:
    """Builds a generalised linear model from a formula and a schema.

    Formulas follow R, formulae and Bambi, but everything that those learn from data comes from the
    schema. Numbers are standardised by their bounds to [-1, 1], categories have the declared
    levels, and spline knots lie between the bounds. See docs/formulas.md.

    Args:
        formula: The formula, such as ``"readmitted ~ age + C(ward)"``.
        family: ``"bernoulli"``, ``"binomial"``, ``"gaussian"``, ``"poisson"``,
            ``"negativebinomial"``, ``"zero_inflated_poisson"``,
            ``"zero_inflated_negativebinomial"``, ``"gamma"``, ``"beta"``, ``"weibull"``,
            ``"categorical"`` or ``"ordinal"``. By default chosen by the kind of the outcome:
            Bernoulli for `Binary`, Gaussian for `Number`, Poisson for `Count`, categorical for
            `Category`, binomial for ``p(successes, trials)`` and Weibull for
            ``censored(time, event)``.
        schema: The public facts about the columns.
        link: The link function; by default the first link of the family.
        priors: Priors to replace, by parameter name. Each is a tuple such as ``("normal", 0, 1)``
            or a NumPyro distribution.

    Returns:
        The model, to be passed to `tacit.plan` or `tacit.fit`. Print it to see its parameters and
        priors.

    Raises:
        InvalidArgument: If the formula, family, link or a prior is wrong, or a column is not in the
            schema.

    Examples:
        >>> import tacit
        >>> schema = tacit.Schema(
        ...     {
        ...         "age": tacit.Number(18, 98),
        ...         "ward": tacit.Category(["A", "B"], other="other"),
        ...         "readmitted": tacit.Binary(),
        ...     }
        ... )
        >>> print(tacit.glm("readmitted ~ age + ward", family="bernoulli", schema=schema))
        readmitted ~ age + ward
        Family bernoulli, link logit; outcome: readmitted is 1.
        Reference: age 58, ward A.
        <BLANKLINE>
        parameter  what it is                prior
        Intercept  at the reference          Normal(0, 2.5)
        age        per 40, half of 18 to 98  Normal(0, 2.5)
        ward       against A                 Normal(0, 2.5)
    """
    if not isinstance(schema, Schema):
        raise InvalidArgument("glm needs schema=, a tacit.Schema: the facts about the columns.")
    known = {name: _facts(kind) for name, kind in schema.items}
    return build_glm(
        formula,
        family=family or default_family(formula, known),
        link=link,
        priors=priors,
        known=known,
        person=schema.person,
        schema=schema,
    )


def _facts(kind: Kind) -> Facts:
    """What is public about a column, in the form that models take."""
    if isinstance(kind, Category):
        named = [*kind.levels, *([] if kind.other is None else [kind.other])]
        levels = tuple(str(label_text(each)) for each in named)
        return Facts(kind.kind, levels=levels, other=None if kind.other is None else levels[-1])
    if isinstance(kind, Binary):
        both = ("0", "1") if kind.yes is None else (str(kind.no), str(kind.yes))
        return Facts(kind.kind, 0.0, 1.0, levels=both)
    bounds = float(kind.low), float(kind.high)
    facts = Facts(kind.kind, *bounds, shape=kind.shape, measure=kind.measured_in)
    if not isinstance(kind, Number):
        return facts
    return facts._replace(scale=kind.scale, standard=None if kind.scaled else kind.scale)
