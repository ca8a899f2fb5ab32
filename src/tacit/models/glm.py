"""Generalised linear models by formula: NumPyro models made from a formula and a schema.

`glm` makes a `GLM`, whose `GLMFunction` is the NumPyro function. Its default priors, and how its parameters are
interpreted, follow from the schema.
"""

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from numpyro import distributions as dist
from numpyro.distributions import Distribution, constraints
from scipy import special

from tacit import _validate
from tacit._precision import in_32_bits
from tacit.data.columns import MISSING_INTEGER, Number
from tacit.data.schema import Schema
from tacit.errors import InvalidArgument
from tacit.models.base import Row, UnitWeights
from tacit.models.design import Group, MissingPredictor, Term, build_design
from tacit.models.distributions import Ordered, Rescaled, Weighted
from tacit.models.families import (
    CUTPOINT,
    FAMILIES,
    LOG_HAZARD,
    AuxiliaryParameter,
    CoefficientScale,
    Family,
    Outcome,
    Predictor,
    PredictorScales,
)
from tacit.models.formula import (
    Columns,
    Expression,
    ParsedFormula,
    format_node,
    split_weights,
    unknown_name_error,
)
from tacit.models.formula_parser import parse_formula
from tacit.models.interpretation import (
    GLMSpec,
    Interpretation,
    ParameterMeaning,
    PriorSummary,
    ReferenceValue,
    check_family,
)
from tacit.models.numpyro import NumPyro
from tacit.models.outcomes import build_outcome, default_family

Priors = Mapping[str, dist.Distribution]
_PRIOR_CLASSES: dict[str, tuple[type[dist.Distribution], str]] = {
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
# The name of a prior in words, and its quantile function, by the name of its class.
_PRIOR_QUANTILES: dict[str, tuple[str, Callable[[dist.Distribution, float], float]]] = {
    "Beta": ("beta", lambda p, q: special.betaincinv(p.concentration1, p.concentration0, q)),
    "Cauchy": ("Cauchy", lambda p, q: p.loc + p.scale * math.tan(math.pi * (q - 0.5))),
    "Exponential": ("exponential", lambda p, q: -math.log1p(-q) / p.rate),
    "Gamma": ("gamma", lambda p, q: special.gammaincinv(p.concentration, q) / p.rate),
    "HalfCauchy": ("half-Cauchy", lambda p, q: p.scale * math.tan(math.pi * q / 2)),
    "HalfNormal": ("half-normal", lambda p, q: p.scale * special.ndtri((1 + q) / 2)),
    "Laplace": (
        "Laplace",
        lambda p, q: p.loc + p.scale * math.copysign(math.log1p(-abs(2 * q - 1)), q - 0.5),
    ),
    "LogNormal": ("log-normal", lambda p, q: math.exp(p.loc + p.scale * special.ndtri(q))),
    "Normal": ("normal", lambda p, q: p.loc + p.scale * special.ndtri(q)),
    "StudentT": ("Student's t", lambda p, q: p.loc + p.scale * special.stdtrit(p.df, q)),
}
_POSITIVE_SUPPORTS = (constraints.positive, constraints.nonnegative)
# Where a prior may lie, in words, and supports that do.
_PRIOR_SUPPORTS = (
    ("the positive numbers", _POSITIVE_SUPPORTS),
    ("the numbers between 0 and 1", (constraints.unit_interval,)),
    ("all real numbers", (constraints.real,)),
)


def merge_priors(
    defaults: Priors, given: Mapping[str, object] | None
) -> dict[str, dist.Distribution]:
    """The default priors, with those that the user gave instead."""
    if given is not None and not isinstance(given, Mapping):
        raise InvalidArgument('priors must be a mapping such as {"age": ("normal", 0, 1)}.')
    found = dict(defaults)
    for name, prior in (given or {}).items():
        if name not in defaults:
            raise unknown_name_error("priors names", name, defaults)
        found[name] = _check_prior(name, prior, defaults[name])
    return found


def _check_prior(name: str, prior: object, default: dist.Distribution) -> dist.Distribution:
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


def _is_one_of(support: object, supports: tuple[object, ...]) -> bool:
    return any(support is each for each in supports)


def _with_python_numbers(prior: dist.Distribution) -> dist.Distribution:
    """The same prior with Python numbers, because an array in a model could hold rows."""
    try:
        numbers = {name: float(value) for name, value in prior.get_args().items()}
        return type(prior)(**numbers)
    except (AttributeError, TypeError):
        return prior  # a transformed distribution, for example


def _prior_from_tuple(name: str, prior: Sequence[object]) -> dist.Distribution:
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

    >>> format_prior(dist.Normal(0, 2.5))
    'Normal(0, 2.5)'
    """
    try:
        numbers = [f"{float(value):.4g}" for value in prior.get_args().values()]
    except (AttributeError, TypeError):
        numbers = ["..."]
    return f"{type(prior).__name__}({', '.join(numbers)})"


def prior_interval(prior: dist.Distribution) -> tuple[str, float | None, float | None]:
    """The name of a prior, and the ends of its central 95%, if they are known.

    >>> prior_interval(dist.Normal(0, 1))
    ('normal', -1.96, 1.96)
    """
    kind = type(prior).__name__
    if kind not in _PRIOR_QUANTILES:
        return kind, None, None
    name, quantile = _PRIOR_QUANTILES[kind]
    low, high = (float(f"{float(quantile(prior, q)):.5g}") for q in (0.025, 0.975))
    return name, low, high


INTERCEPT = "Intercept"
_ROW_PLATE = "rows of the table"
# Quadrature nodes for a missing predictor: the error of the trapezoidal rule is then about 1e-7.
_MISSING_NODES = 12
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
    priors: Priors
    missing: tuple[MissingPredictor, ...] = ()
    spec: GLMSpec | None = None

    # All of these follow from the formula and the schema.
    declared_public: ClassVar[tuple[str, ...]] = (
        "family", "outcome", "terms", "groups", "offsets", "priors", "scales", "auxiliary", "labels", "columns", "spec",
        "weights", "missing",
    )  # fmt: skip

    @cached_property
    def scales(self) -> PredictorScales:
        """Public scales of the linear predictor."""
        return self.family.scales(self.outcome)

    @cached_property
    def auxiliary(self) -> dict[str, AuxiliaryParameter]:
        """The family's auxiliary parameters, by names that differ from those of all terms."""
        return {
            self._unique_name(each.name): each
            for each in self.family.auxiliary
            if each.needed(self.outcome)
        }

    @property
    def baseline(self) -> str | None:
        """The name of what takes the place of the intercept, if anything does."""
        return None if self.family.baseline is None else self._unique_name(self.family.baseline)

    def _unique_name(self, name: str) -> str:
        """A name that is not that of a term or of the outcome."""
        taken = {self.outcome.name, *(term.name for term in self.terms)}
        return f"{self.outcome.name}_{name}" if name in taken else name

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns, including the person column if there are effects of people."""
        parts: tuple[Term | Group | Expression | MissingPredictor, ...]
        parts = (*self.terms, *self.groups, *self.offsets, *self.missing)
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
        if self.baseline is not None:
            found[self.baseline] = (self.outcome.baseline,)
        for term in self.terms:
            found[term.name] = (*((term.block.labels,) if term.shape else ()), *levels)
        for group in self.groups:
            within = (group.varying.labels,) if group.varying.labels else ()
            if group.person is None:  # effects of people are not reported
                found[group.name] = (group.levels, *within, *levels)
            found[f"{group.name}_sd"] = (*within, *levels)
        return {name: axes for name, axes in found.items() if axes}

    def __call__(self, **columns: jax.Array) -> None:
        """Runs the model's NumPyro statements."""
        auxiliary = {each.name: self._auxiliary(name) for name, each in self.auxiliary.items()}
        count = len(next(iter(columns.values())))
        rows = numpyro.plate(_ROW_PLATE, count)
        columns |= {each.name: _filled(each, columns, rows) for each in self.missing}
        several = bool(self.outcome.levels)
        eta = jnp.zeros((count, len(self.outcome.levels)) if several else count)
        centre: jax.Array | float = self.scales.middle
        blocks, coefficients = [], []
        for term in self.terms:
            middle = self.scales.middle if term.is_level else 0.0
            found = self._sample(term.name, term.shape, middle)
            blocks.append(term.read(columns))
            coefficients.append(found if term.shape else found[None])
            if term.block.centre:  # a number, no array: what has no arrays is traced once
                centre = centre - term.block.centre * coefficients[-1].sum(axis=0)
        if blocks:  # one product, whose derivative is one product, too
            eta = eta + jnp.concatenate(blocks, axis=1) @ jnp.concatenate(coefficients)
        if self.intercept:
            # The fit is in terms of the intercept at the middle of all columns, where it hardly
            # depends on the coefficients. It is reported at the reference.
            eta = eta + self._sample(INTERCEPT, (), centre)
        if self.family.baseline is not None:
            auxiliary[self.family.baseline] = self._baseline(centre)
        for group in self.groups:
            eta = eta + self._group_effects(group, columns, count)
        for offset in self.offsets:
            value = jnp.asarray(offset.read(columns))
            eta = eta + (value[:, None] if several else value)
        given = Predictor(self.outcome, self.link, eta, auxiliary, columns)
        fn = self.family.distribution(given)
        with rows:
            numpyro.sample(
                self.outcome.name, self._weighted(fn, columns), obs=self.outcome.read(columns)
            )

    def _auxiliary(self, name: str) -> jax.Array:
        """A parameter beside the coefficients."""
        start = self.auxiliary[name].start(self.scales)
        prior = self.priors[name]
        pace = 1.0 if prior.support is constraints.unit_interval else _LOG_SCALE_UNIT
        value: jax.Array = numpyro.sample(name, Rescaled(prior, 0.0, start, pace))
        return value

    def _weighted(self, fn: Distribution, columns: Columns) -> Distribution:
        """A distribution whose log density counts as often as the row's weight says."""
        weight = self.outcome.weight
        return fn if weight is None else Weighted(fn, weight.read(columns))

    @cached_property
    def weights(self) -> UnitWeights | None:
        """The weights of units; None if the formula has none."""
        weight = self.outcome.weight
        if weight is None:
            return None
        ends = np.linspace(weight.low, weight.high, 101)
        typical = float((ends**2).sum() / ends.sum())

        def relative(rows: Row, present: jax.Array) -> jax.Array:
            each = jnp.where(present, jnp.asarray(weight.read(rows)), 0.0)
            return (each**2).sum() / jnp.maximum(each.sum(), 1e-6 * typical) / typical

        return UnitWeights(typical, relative)

    def _baseline(self, centre: jax.Array | float) -> jax.Array:
        """What takes the place of the intercept, fitted at the middle of all columns as that is."""
        assert self.baseline is not None
        count = len(self.outcome.baseline)
        if self.family.baseline != CUTPOINT:
            return self._sample(self.baseline, (count,), centre)
        cuts = Ordered(self.priors[self.baseline], count)
        value: jax.Array = numpyro.sample(self.baseline, Rescaled(cuts, -centre, self.scales.unit))
        return value

    def _shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """A shape of coefficients, with an axis for the levels of the outcome."""
        levels = self.outcome.levels
        return (*shape, len(levels)) if levels else shape

    def _sample(self, name: str, shape: tuple[int, ...], middle: jax.Array | float) -> jax.Array:
        """Coefficients of a shape, fitted from a middle."""
        prior = self.priors[name].expand(self._shape(shape))
        value: jax.Array = numpyro.sample(name, Rescaled(prior, middle, self.scales.unit))
        return value

    def _group_effects(self, group: Group, columns: Columns, count: int) -> jax.Array:
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


def _filled(predictor: MissingPredictor, columns: Columns, rows: numpyro.plate) -> jax.Array:
    """A column with a latent of each row where it has no value."""
    mean = jnp.asarray(predictor.mean.read(columns))
    if predictor.sd is None:
        fn: Distribution = dist.Bernoulli(probs=mean)
    else:
        fn = dist.Normal(mean, jnp.asarray(predictor.sd.read(columns)))
    with rows:
        value = numpyro.sample(missing_site(predictor), fn)
    column, own = predictor.column, columns[predictor.name]
    inside = jnp.clip(value, column.low, column.high)
    if isinstance(column, Number) and column.scale is not None:
        inside = (inside - column.scale[0]) / column.scale[1]
    missing = jnp.isnan(own) if column.kind == "number" else own == MISSING_INTEGER
    # The latent of a row that has its value says nothing, and is integrated out to a factor of one.
    return jnp.where(missing, inside.astype(own.dtype), own)


def missing_site(predictor: MissingPredictor) -> str:
    """The name of the latent that stands for a missing predictor."""
    return f"{predictor.name}, where it is missing"


# Names of columns that a question lists.
_MAX_NAMES_IN_QUESTION = 6


def interpret_glm(formula: str, function: GLMFunction, priors: Priors) -> Interpretation:
    """How to interpret the parameters of a formula, from its function and their priors."""
    outcome, scale = function.outcome, _coefficient_scale(function)
    measured = function.link == "identity" and not outcome.column.labels
    return Interpretation(
        formula=formula,
        question=_format_question(function),
        outcome=outcome.name,
        kind=function.family.regression_name(function.link),
        scale=scale.words,
        ratio=scale.ratio,
        reference=_reference_values(function.terms),
        bounds=(float(outcome.column.low), float(outcome.column.high)) if measured else None,
        parameters=_parameter_meanings(function, priors, ratio=scale.ratio is not None),
        notes=(
            *_weight_notes(formula),
            *(f"Where {each.name} is missing, it is {each.text}." for each in function.missing),
        ),
    )


def _weight_notes(formula: str) -> tuple[str, ...]:
    """How rows are weighted, if they are."""
    _, weight = split_weights(parse_formula(formula).response)
    return () if weight is None else (f"Rows are weighted by {format_node(weight)}.",)


def describe_parameter(function: GLMFunction, name: str) -> str:
    """What a parameter of the model means, in its own steps, in a few words."""
    for group in function.groups:
        if name == f"{group.name}_sd":
            return "; ".join(filter(None, (_GROUP_SD_TEXT, group.varying.meaning)))
    if name in (auxiliary := _auxiliary_meanings(function)):
        return auxiliary[name][0]
    if name == INTERCEPT:
        return "at the reference"
    if name == function.baseline:
        return _BASELINE_TEXTS[str(function.family.baseline)]
    return next(term.block.meaning for term in function.terms if term.name == name)


_GROUP_SD_TEXT = "standard deviation between groups"
_BASELINE_TEXTS = {
    CUTPOINT: "between levels, in order",
    LOG_HAZARD: "logarithm of the hazard in each interval, per unit of time",
}


def _parameter_meanings(
    function: GLMFunction, priors: Priors, *, ratio: bool
) -> dict[str, ParameterMeaning]:
    found = {
        name: ParameterMeaning("spread", prior=_summarize_prior(each))
        for name, each in priors.items()
    }
    if INTERCEPT in found:
        words = "at the reference" if _reference_values(function.terms) else ""
        found[INTERCEPT] = ParameterMeaning(
            "intercept", words, prior=_summarize_prior(priors[INTERCEPT])
        )
    if function.baseline is not None:
        prior = _summarize_prior(priors[function.baseline])
        text = _BASELINE_TEXTS[str(function.family.baseline)]
        found[function.baseline] = ParameterMeaning(
            "intercept", "at the reference", prior=prior, note=text
        )
    for term in function.terms:
        found[term.name] = _term_meaning(term, _summarize_prior(priors[term.name]), ratio=ratio)
    for group in function.groups:
        found |= _group_meanings(group, priors, ratio=ratio)
    for name, (words, start) in _auxiliary_meanings(function).items():
        found[name] = ParameterMeaning(
            "spread", prior=_summarize_prior(priors[name]), start=start, note=words
        )
    return found


def _auxiliary_meanings(function: GLMFunction) -> dict[str, tuple[str, float]]:
    """The family's parameters beside the coefficients: what each is, and where a fit begins."""
    return {
        name: (each.meaning, each.start(function.scales))
        for name, each in function.auxiliary.items()
    }


def _term_meaning(term: Term, prior: PriorSummary, *, ratio: bool) -> ParameterMeaning:
    block = term.block
    if term.is_level:
        return ParameterMeaning("intercept", block.text, block.increments, prior)
    if not block.alone:
        return ParameterMeaning(
            "coefficient", "part of a curve", block.increments, prior, note=block.text
        )
    return ParameterMeaning("coefficient", block.text, block.increments, prior, ratio)


def _group_meanings(group: Group, priors: Priors, *, ratio: bool) -> dict[str, ParameterMeaning]:
    """Effects of groups, which people's are not reported of, and their standard deviation."""
    of, sd = group.varying, f"{group.name}_sd"
    between = "; ".join(filter(None, (_GROUP_SD_TEXT, of.text)))
    found = {
        sd: ParameterMeaning(
            "spread", "", of.increments, _summarize_prior(priors[sd]), note=between
        )
    }
    if group.person is None:
        around = PriorSummary(f"Normal(0, {sd})")
        text = "; ".join(filter(None, ("against the mean of groups", of.text)))
        found[group.name] = ParameterMeaning("effect", text, of.increments, around, ratio)
    return found


def _summarize_prior(prior: Distribution) -> PriorSummary:
    return PriorSummary(format_prior(prior), *prior_interval(prior))


def _coefficient_scale(function: GLMFunction) -> CoefficientScale:
    """What coefficients are changes of, with the names of the outcome."""
    outcome, scale = function.outcome, function.family.coefficient_scale(function.link)
    measure = outcome.column.measured_in
    words = scale.words.format(
        outcome=outcome.name if measure in (None, outcome.name) else f"{outcome.name} in {measure}",
        # What has odds: that a binary outcome is yes, or that a trial is a success.
        event=outcome.description if outcome.trials is None else "a trial is a success",
        first=outcome.column.labels[0] if outcome.column.labels else "",
    )
    return scale._replace(words=words)


def _reference_values(terms: Sequence[Term]) -> tuple[ReferenceValue, ...]:
    """Where all numbers of the design are zero, each variable once."""
    at = dict(each for term in terms for each in term.block.reference)
    return tuple(ReferenceValue(*each) for each in at.items())


def _format_question(function: GLMFunction) -> str:
    """What the formula asks, as a question."""
    outcome, names = function.outcome, _predictor_names(function)
    levels = outcome.column.labels
    named = (
        "" if levels in ((), ("0", "1")) or len(levels) > 2 else f" ({' or '.join(levels[::-1])})"
    )
    if outcome.trials is not None:
        named = f" ({outcome.description})"
    if not names:
        return f"How is {outcome.name}{named} distributed?"
    return f"How does {outcome.name}{named} depend on {_join_names(names)}?"


def _predictor_names(function: GLMFunction) -> list[str]:
    """The columns that the outcome depends on, in the order of the formula."""
    parts: tuple[Term | Group, ...] = (*function.terms, *function.groups)
    steps: list[str] = []
    for part in parts:
        block = part.block if isinstance(part, Term) else part.varying
        steps += [name for name, _ in block.reference if name in part.columns]
        steps += [n for n in sorted(part.columns, key=part.name.find) if n not in steps]
    return list(dict.fromkeys(steps))


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
    schema: Schema
    priors: Priors
    function: GLMFunction

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns in the formula; no others are read."""
        return self.function.columns

    @property
    def numpyro(self) -> NumPyro:
        """The NumPyro model."""
        person = next((each.person for each in self.function.groups if each.person), None)
        return NumPyro(
            self.function,
            row_plate=_ROW_PLATE,
            person_plate=person,
            labels=self.function.labels,
            interpretation=self.interpretation,
            columns=self.function.columns,
            order=self.function.order,
            outcomes=(self.function.outcome.name,),
            integrate=[missing_site(each) for each in self.function.missing],
            nodes=_MISSING_NODES if self.function.missing and person is None else None,
        )

    @property
    def interpretation(self) -> Interpretation:
        """How to interpret the parameters: their units, reference levels and priors."""
        return interpret_glm(self.formula, self.function, self.priors)

    @property
    def digest(self) -> str | None:
        """A digest of all that the model follows from; None if a prior cannot be written down."""
        priors = {}
        for name, prior in self.priors.items():
            try:
                numbers = {key: float(value) for key, value in prior.get_args().items()}
            except (AttributeError, TypeError):
                return None
            # Others have parts that are no arguments (transforms, components, what is truncated), or code of the user.
            if type(prior) not in {kind for kind, _ in _PRIOR_CLASSES.values()}:
                return None
            priors[name] = repr(type(prior)), numbers
        text = repr((self.formula, self.family, self.link, priors, self.schema))
        return hashlib.sha256(text.encode()).hexdigest()

    def __repr__(self) -> str:
        return f"GLM({self.formula!r}, family={self.family!r}, link={self.link!r})"

    def __str__(self) -> str:
        function, reference = self.function, self.interpretation.reference
        at = ", ".join(f"{each.column} {each.value}" for each in reference)
        lines = [
            f"{self.formula}",
            f"Family {self.family}, link {self.link}; outcome: {function.outcome.description}.",
            *([f"Reference: {at}."] if at else []),
            *self.interpretation.notes,
            "",
        ]
        rows = [("parameter", "what it is", "prior")]
        rows += [
            (n, describe_parameter(function, n), format_prior(p)) for n, p in self.priors.items()
        ]
        rows += [
            (each.name, "effect of each group", f"Normal(0, {each.name}_sd)")
            for each in function.groups
        ]
        widths = [max(len(row[i]) for row in rows) for i in range(2)]
        table = [f"{n.ljust(widths[0])}  {m.ljust(widths[1])}  {p}" for n, m, p in rows]
        return "\n".join([*lines, *table])


@in_32_bits
def glm_from_spec(spec: GLMSpec, schema: Schema) -> GLM:
    """The model that a specification describes, with the default priors."""
    return glm(spec.formula, family=spec.family, schema=schema, link=spec.link)


def _build_function(parts: ParsedFormula, family: Family, link: str, schema: Schema) -> GLMFunction:
    """The function of a formula, still without priors."""
    outcome = build_outcome(parts, family, schema)
    design = build_design(parts, schema)
    return GLMFunction(
        family=family,
        link=link,
        outcome=outcome,
        intercept=parts.intercept and family.baseline is None,
        terms=design.terms,
        groups=design.groups,
        offsets=design.offsets,
        missing=design.missing,
        priors={},
    )


def _check_formula(formula: str, function: GLMFunction) -> None:
    """Raises if the parts of a formula do not fit together."""
    outcome, terms = function.outcome, function.terms
    if function.intercept and INTERCEPT in {outcome.name, *(term.name for term in terms)}:
        raise InvalidArgument(
            f"The formula {formula!r} has a column called {INTERCEPT!r}, which is the name of the "
            "intercept; rename the column."
        )
    if function.missing and outcome.weight is not None:
        raise InvalidArgument(
            f"The formula {formula!r} has weighted(...) and mi(...); use one of them."
        )
    parts: tuple[Term | Group | Expression | MissingPredictor, ...]
    parts = (*terms, *function.groups, *function.offsets, *function.missing)
    for each in parts:
        if used := each.columns & outcome.columns:
            raise InvalidArgument(
                f"The formula {formula!r} has {min(used)!r} on both sides of ~; an outcome "
                "cannot explain itself."
            )
    if not (function.intercept or function.baseline or terms or function.groups):
        raise InvalidArgument(f"The formula {formula!r} has nothing to estimate.")


def _default_priors(function: GLMFunction) -> dict[str, dist.Distribution]:
    """Priors of all parameters, on the public scale of the outcome."""
    family, scales = function.family, function.scales
    width = family.links[function.link] * scales.spread
    found: dict[str, dist.Distribution] = {}
    if function.intercept:
        found[INTERCEPT] = dist.Normal(scales.middle, width)
    if function.baseline is not None:
        found[function.baseline] = dist.Normal(scales.middle, width)
    for term in function.terms:
        found[term.name] = dist.Normal(scales.middle if term.is_level else 0.0, width)
    for group in function.groups:
        found[f"{group.name}_sd"] = dist.HalfNormal(scales.between)
    found |= {name: each.prior(scales) for name, each in function.auxiliary.items()}
    return found


_BASELINES = {CUTPOINT: "cutpoints", LOG_HAZARD: "hazards of intervals"}


@in_32_bits
def glm(
    formula: str,
    *,
    family: str | None = None,
    schema: Schema,
    link: str | None = None,
    priors: Mapping[str, object] | None = None,
) -> GLM:
    """Builds a generalised linear model from a formula and a schema.

    Formulas follow R, formulae and Bambi, but everything that those learn from data comes from the
    schema. Numbers are standardised by their bounds to [-1, 1], categories have the declared
    levels, and spline knots lie between the bounds. See "Formulas" in the documentation.

    Args:
        formula: The formula, such as ``"readmitted ~ age + C(ward)"``.
        family: ``"bernoulli"``, ``"binomial"``, ``"gaussian"``, ``"poisson"``,
            ``"negativebinomial"``, ``"zero_inflated_poisson"``,
            ``"zero_inflated_negativebinomial"``, ``"gamma"``, ``"beta"``, ``"lognormal"``,
            ``"weibull"``, ``"weibull_ph"``, ``"piecewise_exponential"``, ``"categorical"`` or
            ``"ordinal"``. By default chosen by the kind of the outcome:
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
    family = family or default_family(formula, schema)
    chosen = FAMILIES[check_family(family)]
    link = _validate.choice(f"link of the {family} family", link or chosen.link, chosen.links)
    parts = parse_formula(formula)
    if chosen.baseline is not None and not parts.intercept:
        raise InvalidArgument(
            f"The {family} family has {_BASELINES[chosen.baseline]} in the place of an intercept; leave "
            f"out 0 + or - 1 in {formula!r}."
        )
    draft = _build_function(parts, chosen, link, schema)
    _check_formula(formula, draft)
    complete = merge_priors(_default_priors(draft), priors)
    spec = GLMSpec(formula=formula, family=family, link=link)
    return GLM(
        formula=formula,
        family=family,
        link=link,
        schema=schema,
        priors=complete,
        function=replace(draft, priors=complete, spec=spec),
    )
