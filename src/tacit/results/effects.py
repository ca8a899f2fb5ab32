"""Effects on the outcome's scale, from the draws of a model by formula: free of charge, and without a row.

Means are computed in NumPy: a design row times the draws is the linear predictor, and the family gives the mean.
They are at declared values: a grid of levels and of numbers within bounds, other columns at the reference.
"""

import ast
import operator
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from scipy.special import expit, gammainc, gammaln, log_ndtr, ndtr, softmax

from tacit import _validate
from tacit._typing import FloatArray
from tacit.data.cells import parse_date
from tacit.data.columns import Date, Kind, Number
from tacit.data.schema import Schema
from tacit.errors import InvalidArgument
from tacit.models.design import Design, build_design
from tacit.models.formula import (
    Call,
    NumPyColumns,
    ParsedFormula,
    column_name,
    interval_starts,
    literal_number,
    outcome_name,
    split_weights,
    unknown_name_error,
)
from tacit.models.formula_parser import parse_formula
from tacit.results.summary import coordinates

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from tacit.models.interpretation import GLMSpec
    from tacit.results.posterior import Posterior

At = Mapping[str, object]
Contrast = Literal["difference", "ratio"]
# How many values of a number "all" stands for, and how many a curve has.
_GRID_VALUES, _CURVE_VALUES = 5, 61
# The step of a slope, in parts of the declared range: encoded numbers have seven digits.
_SLOPE_STEP = 2e-3
# As in `tacit.models.families`: where linear predictors are limited so that means are finite.
_MAX_LOG_EXCESS, _MAX_LOG_TIME_RATIO, _MIN_BETA_MEAN = 5.0, 12.0, 1e-4
# Shapes of Weibull times and standard deviations of logarithms are at least this, so that means are finite.
_MIN_SHAPE, _MIN_LOG_SIGMA, _MAX_LOG_TIME = 0.01, 1e-3, 60.0


class WeibullCurves(NamedTuple):
    """Weibull times of every draw and row, by parameters [draws, rows]."""

    log_scale: FloatArray
    alpha: FloatArray

    def mean(self) -> FloatArray:
        """Mean times."""
        return np.asarray(np.exp(self.log_scale + gammaln(1 + 1 / self.alpha)))

    def survival(self, time: float) -> FloatArray:
        """Probabilities of no event until a positive time."""
        return np.asarray(np.exp(-self._hazard(time)))

    def _hazard(self, time: float) -> FloatArray:
        log_hazard = np.minimum(self.alpha * (np.log(time) - self.log_scale), 40.0)
        return np.asarray(np.exp(log_hazard))

    def restricted_mean(self, time: float) -> FloatArray:
        """Mean times, where later ones count as this time."""
        return np.asarray(self.mean() * gammainc(1 / self.alpha, self._hazard(time)))


class LogNormalCurves(NamedTuple):
    """Times of every draw and row whose logarithms are normal, by parameters [draws, rows]."""

    location: FloatArray
    sigma: FloatArray

    def mean(self) -> FloatArray:
        """Mean times."""
        return np.asarray(np.exp(np.minimum(self.location + self.sigma**2 / 2, _MAX_LOG_TIME)))

    def survival(self, time: float) -> FloatArray:
        """Probabilities of no event until a positive time."""
        return np.asarray(ndtr((self.location - np.log(time)) / self.sigma))

    def restricted_mean(self, time: float) -> FloatArray:
        """Mean times, where later ones count as this time."""
        deviate = (np.log(time) - self.location) / self.sigma
        early = np.exp(self.location + self.sigma**2 / 2 + log_ndtr(deviate - self.sigma))
        return np.asarray(early + time * ndtr(-deviate))


class PiecewiseExponentialCurves(NamedTuple):
    """Times of every draw and row with constant hazards [draws, rows, intervals] from each start on."""

    hazard: FloatArray
    starts: FloatArray

    def mean(self) -> FloatArray:
        """Mean times."""
        return self.restricted_mean(np.inf)

    def survival(self, time: float) -> FloatArray:
        """Probabilities of no event until a time."""
        ends = np.append(self.starts[1:], np.inf)
        spent = np.clip(time, self.starts, ends) - self.starts
        return np.asarray(np.exp(-(self.hazard * spent).sum(axis=-1)))

    def restricted_mean(self, time: float) -> FloatArray:
        """Mean times, where later ones count as this time: survived of each interval, over its hazard."""
        ends = np.minimum(np.append(self.starts[1:], np.inf), time)
        total = np.zeros(self.hazard.shape[:-1])
        for k, (start, end) in enumerate(zip(self.starts, ends, strict=True)):
            if start < end:
                last = 0.0 if np.isinf(end) else self.survival(end)
                total += (self.survival(start) - last) / self.hazard[..., k]
        return total


TIME_FAMILIES = ("weibull", "weibull_ph", "piecewise_exponential", "lognormal")
TimeCurves = WeibullCurves | LogNormalCurves | PiecewiseExponentialCurves


@dataclass(frozen=True, eq=False)
class FormulaMeans:
    """Computes the mean of the outcome of encoded rows, for every draw, in NumPy."""

    spec: "GLMSpec"
    schema: Schema
    parts: ParsedFormula
    design: Design

    @classmethod
    def build(cls, spec: "GLMSpec", schema: Schema) -> "FormulaMeans | None":
        """The means of a formula; None if effects of people must be integrated out."""
        parts = parse_formula(spec.formula)
        design = build_design(parts, schema)
        found = cls(spec, schema, parts, design)
        return None if any(each.person is not None for each in design.groups) else found

    @property
    def outcome(self) -> str:
        """The name of the outcome."""
        return outcome_name(self.parts.response)

    @property
    def column(self) -> Kind:
        """What is public about the outcome."""
        return self.schema[self.outcome]

    @property
    def levels(self) -> tuple[str, ...]:
        """Levels whose probabilities are predicted; empty if a mean is."""
        return self.column.labels if self.spec.family in ("categorical", "ordinal") else ()

    def linear_predictor(
        self, draws: Mapping[str, FloatArray], columns: Mapping[str, Any]
    ) -> FloatArray:
        """The linear predictor: [draws, rows], or [draws, rows, levels] of a categorical outcome.

        Args:
            draws: Draws on the model's own scale.
            columns: Encoded columns.
        """
        read = NumPyColumns(columns)
        rows = len(next(iter(columns.values())))
        count = len(next(iter(draws.values())))
        several = self.spec.family == "categorical"
        eta = np.zeros((count, rows, *([len(self.levels) - 1] if several else [])))
        if "Intercept" in draws and self.parts.intercept and self.spec.family != "ordinal":
            eta += np.asarray(draws["Intercept"], np.float64)[:, None]
        for term in self.design.terms:
            found = np.asarray(draws[term.name], np.float64)
            by = found if term.shape else found[:, None]
            eta += np.einsum("rk,dk...->dr...", np.asarray(term.read(read)), by)
        for group in self.design.groups:
            effects = np.asarray(draws[group.name], np.float64)[:, np.asarray(group.code(read))]
            within = effects if group.varying.labels else effects[:, :, None]
            eta += np.einsum("rk,drk...->dr...", np.asarray(group.varying.read(read)), within)
        for offset in self.design.offsets:
            value = np.asarray(offset.read(read), np.float64)
            eta += value[:, None] if several and value.ndim else value
        return eta

    def means(  # noqa: PLR0911 (one for each kind of family)
        self,
        draws: Mapping[str, FloatArray],
        columns: Mapping[str, Any],
        *,
        per_trial: bool = False,
    ) -> FloatArray:
        """The mean of the outcome: [draws, rows], or probabilities [draws, rows, levels].

        Args:
            draws: Draws on the model's own scale.
            columns: Encoded columns.
            per_trial: Whether a binomial outcome is the probability of a success, not their number.
        """
        eta, family = self.linear_predictor(draws, columns), self.spec.family
        if family == "categorical":
            first = np.zeros((*eta.shape[:-1], 1))
            return np.asarray(softmax(np.concatenate([first, eta], axis=-1), axis=-1))
        if family == "ordinal":
            return self._ordinal(eta, self._auxiliary(draws, "cutpoint"))
        if family in ("bernoulli", "binomial"):
            chance = _inverse_link(self.spec.link, eta)
            return chance if family == "bernoulli" or per_trial else chance * self._trials(columns)
        if family == "gaussian":
            return eta
        if family == "beta":
            return np.asarray(np.clip(expit(eta), _MIN_BETA_MEAN, 1 - _MIN_BETA_MEAN))
        times = self.time_curves(draws, eta)
        if times is not None:
            return times.mean()
        most = np.log(self.column.high) + _MAX_LOG_EXCESS
        rate = np.exp(np.clip(eta, -2 * _MAX_LOG_EXCESS - most, most))
        if family.startswith("zero_inflated"):
            rate = rate * (1 - self._auxiliary(draws, "zero_inflation")[:, None])
        return np.asarray(rate)

    def time_curves(self, draws: Mapping[str, FloatArray], eta: FloatArray) -> TimeCurves | None:
        """The distributions of times, by draws and linear predictors; None if outcomes are not times."""
        family = self.spec.family
        if family not in TIME_FAMILIES:
            return None
        centre = np.log(self.column.high)
        hazard = np.clip(eta, -_MAX_LOG_TIME_RATIO, _MAX_LOG_TIME_RATIO)
        time = np.clip(eta, centre - _MAX_LOG_TIME_RATIO, centre + _MAX_LOG_TIME_RATIO)
        if family == "lognormal":
            sigma = np.maximum(self._auxiliary(draws, "sigma"), _MIN_LOG_SIGMA)
            return LogNormalCurves(time, sigma[:, None])
        if family == "piecewise_exponential":
            baseline = self._auxiliary(draws, "log_hazard")
            limited = np.clip(baseline, -centre - _MAX_LOG_TIME_RATIO, _MAX_LOG_TIME_RATIO - centre)
            return PiecewiseExponentialCurves(
                np.exp(hazard[:, :, None] + limited[:, None]), self._interval_starts()
            )
        alpha = np.maximum(self._auxiliary(draws, "alpha"), _MIN_SHAPE)[:, None]
        return WeibullCurves(time if family == "weibull" else centre - hazard / alpha, alpha)

    def _interval_starts(self) -> FloatArray:
        """Where intervals of constant hazard begin."""
        node, _ = split_weights(self.parts.response)
        return np.asarray(interval_starts(node, self.column))

    def _auxiliary(self, draws: Mapping[str, FloatArray], name: str) -> FloatArray:
        """Draws of a parameter of the family, whose name is longer if a term has the same."""
        taken = {self.outcome, *(term.name for term in self.design.terms)}
        return np.asarray(draws[f"{self.outcome}_{name}" if name in taken else name], np.float64)

    def _trials(self, columns: Mapping[str, Any]) -> FloatArray:
        node, _ = split_weights(self.parts.response)
        assert isinstance(node, Call)
        total = column_name(node.args[1])
        if total is None:
            return np.asarray(literal_number(node.args[1]))
        return np.asarray(columns[total], np.float64)

    def _ordinal(self, eta: FloatArray, cutpoints: FloatArray) -> FloatArray:
        below = _inverse_link(self.spec.link, cutpoints[:, None, :] - eta[:, :, None])
        ends = np.zeros((*eta.shape, 1)), np.ones((*eta.shape, 1))
        found = np.clip(np.diff(np.concatenate([ends[0], below, ends[1]], axis=-1)), 0.0, None)
        return np.asarray(found / found.sum(axis=-1, keepdims=True))


def _inverse_link(link: str, eta: FloatArray) -> FloatArray:
    if link == "probit":
        return np.asarray(ndtr(eta))
    if link == "cloglog":
        return np.asarray(-np.expm1(-np.exp(np.clip(eta, -30.0, 4.0))))
    return np.asarray(expit(eta))


def formula_means(posterior: "Posterior") -> FormulaMeans:
    """The means of a posterior's formula; raises if its model is none."""
    from tacit.results.predictive import formula_recipe

    spec = posterior.recipe or formula_recipe(posterior.model)
    if spec is None or posterior.schema is None:
        raise InvalidArgument(
            "Effects need a posterior of a model by formula; for another model, use predict with rows "
            "of your own."
        )
    found = FormulaMeans.build(spec, posterior.schema)
    if found is None:
        raise InvalidArgument(
            "Effects are not available for a formula with effects of people; use predict with rows of "
            "your own."
        )
    return found


def predictions(posterior: "Posterior", at: At | None = None, level: float = 0.9) -> "pd.DataFrame":
    """See `Posterior.predictions`."""
    means = formula_means(posterior)
    table = grid(posterior, means, at or {})
    return frame_of(means, table, _means_at(posterior, means, table), level)


def comparisons(
    posterior: "Posterior",
    variable: str,
    at: At | None = None,
    by: Contrast = "difference",
    values: tuple[object, object] | None = None,
    level: float = 0.9,
) -> "pd.DataFrame":
    """See `Posterior.comparisons`."""
    _validate.choice("by", by, ("difference", "ratio"))
    means = formula_means(posterior)
    kind = _predictor(means, variable)
    reference = _reference(posterior, means)[variable]
    if values is not None:
        pairs = [values]
    elif kind.labels:
        pairs = [(reference, each) for each in kind.labels if each != reference]
    else:
        size = _increment(posterior, variable)
        first = float(str(reference))
        pairs = [(first, first + size) if first + size <= kind.high else (first - size, first)]
    rest = {name: value for name, value in (at or {}).items() if name != variable}
    found = []
    for low, high in pairs:
        tables = [grid(posterior, means, {**rest, variable: [end]}) for end in (low, high)]
        first_mean, second_mean = (_means_at(posterior, means, table) for table in tables)
        change = second_mean - first_mean if by == "difference" else second_mean / first_mean
        shown = {n: v for n, v in tables[0].items() if n != variable}
        ends = [value_text(_shown(kind, end)) for end in (high, low)]
        contrast = [" against ".join(ends)] * len(tables[0][variable])
        found.append(frame_of(means, {variable: contrast, **shown}, change, level))
    import pandas as pd

    return pd.concat(found, ignore_index=True)


def slopes(
    posterior: "Posterior", variable: str, at: At | None = None, level: float = 0.9
) -> "pd.DataFrame":
    """See `Posterior.slopes`."""
    means = formula_means(posterior)
    kind = _predictor(means, variable)
    if kind.kind not in {"number", "date"}:
        raise InvalidArgument(
            f"{variable!r} is a {kind.kind}, which has no slope; use comparisons({variable!r})."
        )
    table = grid(posterior, means, {variable: _reference(posterior, means)[variable], **(at or {})})
    here = np.asarray(table[variable], np.float64)
    step = _SLOPE_STEP * (kind.high - kind.low) / 2
    low, high = np.maximum(here - step, kind.low), np.minimum(here + step, kind.high)
    below, above = (
        _means_at(posterior, means, {**table, variable: ends.tolist()}) for ends in (low, high)
    )
    width = (high - low)[:, None] if means.levels else high - low
    return frame_of(means, table, (above - below) / width, level)


def _predictor(means: FormulaMeans, name: str) -> Kind:
    """A column that the outcome depends on."""
    if name not in means.spec.predictors:
        raise unknown_name_error("The model has no predictor", name, means.spec.predictors)
    return means.schema[name]


def _increment(posterior: "Posterior", name: str) -> float:
    """The change of a number that the summary shows, or 1."""
    meanings = (
        () if posterior.interpretation is None else posterior.interpretation.parameters.values()
    )
    known = {each.name: each.in_summary for meaning in meanings for each in meaning.increments}
    return float(known.get(name, 1.0))


def _reference(posterior: "Posterior", means: FormulaMeans) -> dict[str, object]:
    """The value of each predictor at the reference."""
    said = (
        {}
        if posterior.interpretation is None
        else {each.column: each.value for each in posterior.interpretation.reference}
    )
    found: dict[str, object] = {}
    for name in means.spec.predictors:
        kind = means.schema[name]
        if kind.labels:
            found[name] = said[name] if said.get(name) in kind.labels else kind.labels[0]
        elif isinstance(kind, Number) and kind.centre is not None:
            found[name] = float(kind.centre)
        else:
            middle = (kind.low + kind.high) / 2
            found[name] = float(np.floor(middle)) if kind.kind == "count" else float(middle)
    return found


def grid(posterior: "Posterior", means: FormulaMeans, at: At) -> dict[str, list[object]]:
    """All combinations of the requested values, other columns at the reference."""
    if not isinstance(at, Mapping):
        raise InvalidArgument('at must be a mapping such as {"age": [30, 60], "ward": "all"}.')
    axes = {name: _values(name, _predictor(means, name), value) for name, value in at.items()}
    axes |= {n: [v] for n, v in _reference(posterior, means).items() if n not in axes}
    rows = list(product(*axes.values()))
    return {name: [row[i] for row in rows] for i, name in enumerate(axes)}


def _values(name: str, kind: Kind, asked: object) -> list[object]:
    """The values of a column that ``at`` asks for; raises if one is not declared."""
    if isinstance(asked, str) and asked == "all" and "all" not in kind.labels:
        if kind.labels:
            return list(kind.labels)
        return [float(each) for each in np.linspace(kind.low, kind.high, _GRID_VALUES)]
    several = not isinstance(asked, str) and isinstance(asked, Sequence | np.ndarray)
    values: list[object] = list(asked) if several else [asked]  # type: ignore[call-overload]
    if not values:
        raise InvalidArgument(f"at has no value for {name!r}.")
    if isinstance(kind, Date):
        values = [_date_number(name, kind, value) for value in values]
    for value in values:
        if kind.labels:
            if str(value) not in kind.labels:
                raise InvalidArgument(
                    f"{value!r} is not a level of {name!r}; its levels are {', '.join(kind.labels)}."
                )
        elif not kind.low <= _validate.finite(f"at[{name!r}]", value) <= kind.high:
            raise InvalidArgument(
                f"{value!r} is outside the declared bounds of {name!r}, {kind.low:g} to {kind.high:g}."
            )
    return [str(each) if kind.labels else float(str(each)) for each in values]


def encode_grid(means: FormulaMeans, table: Mapping[str, Sequence[object]]) -> Mapping[str, Any]:
    """The encoded columns of a grid."""
    names = means.spec.predictors
    if not names:
        return {"": np.zeros(1)}
    cells = {n: [_cell(means.schema[n], v) for v in table[n]] for n in names}
    return means.schema.encode_new(cells, names)[0]


def _means_at(
    posterior: "Posterior", means: FormulaMeans, table: Mapping[str, Sequence[object]]
) -> FloatArray:
    return means.means(posterior.model_draws, encode_grid(means, table), per_trial=True)


def _date_number(name: str, kind: Date, value: object) -> object:
    """A date as a number in its column's unit, which may also be passed."""
    if isinstance(value, int | float):
        return value
    days = parse_date(value)
    if np.isnan(days):
        raise InvalidArgument(f"{value!r} is not a date; pass {name!r} as '{kind.dates[0]}'.")
    return float(kind.to_numbers(np.array([days]))[0])


def _cell(kind: Kind, value: object) -> object:
    """A value as a cell of the table: a binary level by its code, a date as a date."""
    if isinstance(kind, Date):
        return kind.to_moments(np.array(value, np.float64))[()]
    return kind.labels.index(str(value)) if kind.kind == "binary" else value


def _shown(kind: Kind, value: object) -> object:
    """A value as people read it: a date as a date."""
    if isinstance(kind, Date) and isinstance(value, float):
        return kind.to_moments(np.array(value)).astype("M8[D]").item()
    return value


def frame_of(
    means: FormulaMeans, table: Mapping[str, Sequence[object]], found: FloatArray, level: float
) -> "pd.DataFrame":
    """Means and intervals of each row of a grid, and of each level of the outcome."""
    import pandas as pd

    if not (0 < level < 1):
        raise InvalidArgument(f"level must be between 0 and 1; got {level!r}.")
    count = len(means.levels) or 1
    rows = found.shape[1]
    data: dict[str, list[Any]] = {
        name: [
            _shown(means.schema[name], value) if name in means.schema.names else value
            for value in values
            for _ in range(count)
        ]
        for name, values in table.items()
    }
    if means.levels:
        data[means.outcome] = list(means.levels) * rows
    flat = found.reshape(len(found), -1)
    ends = np.quantile(flat, [(1 - level) / 2, (1 + level) / 2], axis=0)
    names = [f"{50 * (1 - level):.4g}%", f"{50 * (1 + level):.4g}%"]
    return pd.DataFrame({**data, "mean": flat.mean(axis=0), names[0]: ends[0], names[1]: ends[1]})


def value_text(value: object) -> str:
    """A value of a grid as text."""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


_OPERATORS: dict[type, Callable[..., Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.Pow: operator.pow, ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Not: np.logical_not,
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
}  # fmt: skip
_CALLS = {"exp": np.exp, "log": np.log, "abs": np.abs}


def probability(posterior: "Posterior", statement: str) -> float:
    """See `Posterior.probability`."""
    known = {
        label: values.astype(np.float64)
        for name, draws in posterior.draws.items()
        for (label, where) in coordinates(name, draws.shape[1:], posterior.labels.get(name))
        for values in [np.moveaxis(draws, 0, -1)[where]]
    }
    # Names such as ward[B] or age:ward[B] are no Python names: each stands for a placeholder.
    listed = sorted(known, key=len, reverse=True)
    pattern = "|".join(f"`?{re.escape(each)}`?" for each in listed)
    used: dict[str, FloatArray] = {}

    def placeholder(found: re.Match[str]) -> str:
        key = f"_{listed.index(found[0].strip('`'))}_"
        used[key] = known[found[0].strip("`")]
        return key

    text = re.sub(rf"(?<![\w.])(?:{pattern})(?![\w\[(])", placeholder, statement)
    hint = f'write it as "age > 0"; the parameters are {", ".join(known)}'
    try:
        truth = _evaluate(ast.parse(text.strip(), mode="eval").body, used)
    except (SyntaxError, ValueError, KeyError, RecursionError):
        raise InvalidArgument(f"The statement {statement!r} cannot be read; {hint}.") from None
    if getattr(truth, "dtype", None) != np.bool_ or np.ndim(truth) != 1:
        raise InvalidArgument(f"{statement!r} is not a statement about a parameter; {hint}.")
    return float(np.mean(truth))


def _evaluate(node: ast.expr, names: Mapping[str, FloatArray]) -> Any:  # noqa: PLR0911
    """The value of a calculation; raises KeyError or ValueError for anything else."""
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            return np.float64(value)
        case ast.Name(id=name):
            return names[name]
        case ast.BinOp(left=left, op=op, right=right):
            with np.errstate(all="ignore"):
                return _OPERATORS[type(op)](_evaluate(left, names), _evaluate(right, names))
        case ast.UnaryOp(op=op, operand=operand):
            return _OPERATORS[type(op)](_evaluate(operand, names))
        case ast.Compare(left=left, ops=ops, comparators=others):
            sides = [_evaluate(each, names) for each in (left, *others)]
            truths = [
                _OPERATORS[type(op)](a, b)
                for op, a, b in zip(ops, sides[:-1], sides[1:], strict=True)
            ]
            return np.logical_and.reduce(truths)
        case ast.BoolOp(op=op, values=values):
            both = np.logical_and if isinstance(op, ast.And) else np.logical_or
            return both.reduce([_evaluate(each, names) for each in values])
        case ast.Call(func=ast.Name(id=name), args=[argument], keywords=[]):
            with np.errstate(all="ignore"):
                return _CALLS[name](_evaluate(argument, names))
    raise ValueError


def plot_predictions(
    posterior: "Posterior",
    variable: str,
    by: str | None = None,
    at: At | None = None,
    path: str | os.PathLike[str] | None = None,
) -> "Figure":
    """See `Posterior.plot_predictions`."""
    from matplotlib.figure import Figure

    means = formula_means(posterior)
    kind = _predictor(means, variable)
    asked: dict[str, object] = {
        variable: "all" if kind.labels else np.linspace(kind.low, kind.high, _CURVE_VALUES).tolist()
    }
    if by is not None:
        asked = {by: "all", **asked}
    frame = predictions(posterior, {**(at or {}), **asked})
    group = means.outcome if means.levels else by
    figure = Figure(figsize=(6, 3.8), layout="constrained")
    facets = frame.groupby(by, sort=False) if means.levels and by is not None else [(None, frame)]
    parts = list(facets)
    drawn = figure.subplots(1, len(parts), sharey=True, squeeze=False)[0]
    for axes, (name, part) in zip(drawn, parts, strict=True):
        curves = [(None, part)] if group is None else list(part.groupby(group, sort=False))
        for i, (label, curve) in enumerate(curves):
            low, high = curve.columns[-2:]
            colour = f"C{i % 10}"
            if kind.labels:
                at_x = np.arange(len(curve)) + 0.12 * (i - (len(curves) - 1) / 2)
                ends = np.abs(curve[[low, high]].to_numpy().T - curve["mean"].to_numpy())
                axes.errorbar(at_x, curve["mean"], ends, fmt="o", color=colour, label=label)
            else:
                axes.plot(curve[variable], curve["mean"], color=colour, label=label)
                axes.fill_between(
                    curve[variable], curve[low], curve[high], color=colour, alpha=0.2, linewidth=0
                )
        if kind.labels:
            axes.set_xticks(np.arange(len(kind.labels)), kind.labels)
        unit = "" if kind.measured_in is None or kind.kind == "date" else f" ({kind.measured_in})"
        axes.set_xlabel(variable + unit)
        axes.spines[["top", "right"]].set_visible(False)
        if name is not None:
            axes.set_title(f"{by} {name}", fontsize=9)
    drawn[0].set_ylabel(_outcome_words(means))
    if group is not None:
        drawn[-1].legend(title=group, frameon=False, fontsize=8)
    if path is not None:
        figure.savefig(path, dpi=150)
    return figure


def _outcome_words(means: FormulaMeans) -> str:
    """What is predicted, for an axis."""
    if means.levels:
        return f"probability of {means.outcome}"
    if means.spec.family == "bernoulli":
        yes = means.parts.level or means.column.labels[1]
        named = means.outcome if yes == "1" else f"{means.outcome} is {yes}"
        return f"probability that {named}" if yes != "1" else f"probability of {named}"
    if means.spec.family == "binomial":
        return f"probability of {means.outcome}"
    unit = "" if means.column.measured_in is None else f" ({means.column.measured_in})"
    return f"mean of {means.outcome}{unit}"
