"""The coarse forecast: how precise a fit by the default method will be, by a formula instead of fits.

In coordinates in which the prior is standard normal, J is the expected information of one unit. A late round of private
scoring adds noise whose covariance is v J for all units together, v being the squared noise of the mechanism, in clips,
times the dimension and a factor of the method. N units then tell as much as N^2 / (N + v) units would without privacy,
and the posterior precision is I + N^2 / (N + v) J. The factor was chosen on fits to simulated tables of logistic
regressions with four columns (benchmarks/RESULTS.md); other families and dimensions have not been calibrated.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from tacit._format import text_table
from tacit._precision import in_32_bits
from tacit._typing import Floats
from tacit.api.rows import model_columns, simulated_units
from tacit.api.scenario import ColumnDistribution, Scenario
from tacit.api.simulate import SimulatedTables
from tacit.data.columns import Binary, Category, Kind
from tacit.data.schema import Schema
from tacit.inference.method import constrain_vectors
from tacit.inference.scoring import Scoring, final_noise, simulated_scores
from tacit.inference.whitening import whiten_prior
from tacit.models.base import UnitModel
from tacit.models.glm import INTERCEPT
from tacit.privacy.mechanisms import NoisySums
from tacit.privacy.rows import Units
from tacit.results.statement import UNIT_PLURALS

# Half the width of a 90% interval, in standard deviations.
_HALF_WIDTH = 1.645
# By how much the method's noise exceeds that of an ideal one, and by how much more where noise is large.
_NOISE_FACTOR, _NOISE_GROWTH = 4.0, 1.0
# True parameters that are drawn from the prior, and the quantile of their widths in the pessimistic case.
_NUM_TRUTHS, _PESSIMISTIC_QUANTILE = 8, 0.75
# The pessimistic case: the centre and standard deviation of a number as parts of its range, those of a number that is
# uniform over a tenth of it; and the share of every level but the first.
_CONCENTRATED_MEAN, _CONCENTRATED_SD, _UNCOMMON_SHARE = 0.25, 0.03, 0.01
# An interval that is wider than this share of the prior's is uninformative.
_UNINFORMATIVE_RATIO = 0.6
# A parameter whose interval is so many times as wide without a level than if the level is uncommon is about this level.
_LEVEL_RATIO = 1.5


class PrecisionLine(NamedTuple):
    """How precisely one parameter would be known. Widths are those of 90% intervals, in the units of a summary.

    Attributes:
        parameter: The name, as in a summary.
        spread: The width if columns spread over their bounds.
        concentrated: The width if columns fill a small part of their bounds, levels are uncommon, and
            people have one row each.
        absent: The width if nobody has a level but the first of its column.
        without_privacy: The width without privacy if columns spread over their bounds.
        prior: The width by the prior alone.
    """

    parameter: str
    spread: float
    concentrated: float
    absent: float
    without_privacy: float
    prior: float

    @property
    def is_of_level(self) -> bool:
        """Whether it depends on how many have a level: nothing is known of one that nobody has."""
        return self.absent > _LEVEL_RATIO * self.concentrated


@dataclass(frozen=True, kw_only=True, eq=False)
class Precision:
    """The coarse forecast of a fit, as a range between two assumptions on columns. Print it for a table.

    Attributes:
        size: The number of units.
        is_declared: Whether this number was declared; otherwise it is only an example.
        unit: The unit of privacy, ``"row"`` or ``"person"``.
        epsilon: The budget's epsilon.
        lines: One line for each parameter.
        assumptions: What was assumed of the data, in sentences.
        units: What one unit of a parameter is, as a summary says it, by its name.
    """

    size: int
    is_declared: bool
    unit: str
    epsilon: float
    lines: tuple[PrecisionLine, ...]
    assumptions: tuple[str, ...]
    units: Mapping[str, str] = field(default_factory=dict)

    @property
    def _size_text(self) -> str:
        many = f"about {self.size:,} {UNIT_PLURALS[self.unit]}"
        return f"with {many}" if self.is_declared else f"if there were {many}"

    @property
    def line(self) -> str:
        """The precision of the first coefficient in one line."""
        first = next((each for each in self.lines if each.parameter != INTERCEPT), self.lines[0])
        low, high = (two_digits(width / 2) for width in (first.spread, first.concentrated))
        said = (
            f"{self._size_text}: {self._label(first)} ±{low} "
            f"({two_digits(first.without_privacy / 2)} without privacy)"
        )
        if low == high:
            return f"{said}, if the data are as the scenario says"
        absent = f"; ±{two_digits(first.absent / 2)}, if nobody has it" if first.is_of_level else ""
        return f"{said}, if columns spread over their bounds; ±{high}, if they fill a small part{absent}"

    def warnings(self) -> tuple[str, ...]:
        """Why the budget would be wasted; nothing if it is worth spending, or if no size was declared."""
        lines = [each for each in self.lines if each.parameter != INTERCEPT] or self.lines
        least = min(each.spread / each.prior for each in lines)
        if not self.is_declared or least < _UNINFORMATIVE_RATIO:
            return ()
        return (
            (
                f"The forecast is hopeless: {self._size_text} and epsilon {self.epsilon:g}, intervals would be "
                f"at least {least:.0%} as wide as the prior's. Use a larger budget, more data, fewer parameters or a "
                "stronger prior."
            ),
        )

    def _label(self, line: PrecisionLine) -> str:
        unit = self.units.get(line.parameter)
        return line.parameter if unit is None else f"{line.parameter} {unit}"

    def table(self) -> list[list[str]]:
        """Half widths of 90% intervals: a row for each parameter, after a header."""
        header = ["half width of the 90% interval", "prior", "private", "no privacy"]
        levels = any(each.is_of_level for each in self.lines)
        rows = [[*header, *(["level nobody has"] if levels else [])]]
        for each in self.lines:
            cells = [
                self._label(each),
                two_digits(each.prior / 2),
                range_text(each.spread / 2, each.concentrated / 2),
                two_digits(each.without_privacy / 2),
            ]
            absent = two_digits(each.absent / 2) if each.is_of_level else ""
            rows.append([*cells, *([absent] if levels else [])])
        return rows

    def __str__(self) -> str:
        header, *cells = self.table()
        about = (
            f"Coarse forecast, {self._size_text} and epsilon {self.epsilon:g}, by a formula; tacit.forecast fits "
            "simulated tables."
        )
        sides = "l" + "r" * (len(header) - 1)
        return "\n".join([text_table(cells, sides, header), "", about, *self.assumptions])


@in_32_bits
def coarse_forecast(
    model: UnitModel,
    schema: Schema,
    method: Scoring,
    mechanism: NoisySums,
    *,
    size: int,
    epsilon: float,
    scenario: Scenario | None = None,
    is_declared: bool = True,
) -> Precision:
    """Forecasts the precision of a fit by the default method, in about a second. Reads no data.

    Args:
        model: The model.
        schema: The schema.
        method: The method.
        mechanism: What the gate will execute.
        size: The number of units.
        epsilon: The budget's epsilon.
        scenario: What is expected of the data. Columns that it does not describe give a range.
        is_declared: Whether the size was declared.

    Returns:
        The forecast.
    """
    given = Scenario() if scenario is None else scenario
    tables = SimulatedTables(model=model, schema=schema, size=size, scenario=given)
    names = [name for name in model_columns(model, schema) if name != schema.person]
    cases = (
        given,
        pessimistic_scenario(given, schema, names),
        pessimistic_scenario(given, schema, names, share=0.0),
    )
    truths = _draw_truths(tables)
    noise = final_noise(mechanism) ** 2 * model.dimension
    roots, centres = [], []
    for case in cases:
        units = _draw_units(schema, names, case)
        for truth in truths:
            information = _information(model, units, method, truth)
            for variance in (noise, 0.0):
                roots.append(_posterior_root(information, size, variance))
                centres.append(truth)
    roots.append(np.eye(model.dimension))
    centres.append(truths.mean(axis=0))
    widths = _widths(tables, np.array(roots), np.array(centres))
    found = widths[:-1].reshape(len(cases), len(truths), 2, -1)
    spread, without = np.median(found[0], axis=0)
    concentrated, absent = np.quantile(found[1:, :, 0], _PESSIMISTIC_QUANTILE, axis=1)
    concentrated = np.maximum(spread, concentrated)
    prior = widths[-1]
    columns = [
        np.minimum(each, prior)
        for each in (spread, concentrated, np.maximum(concentrated, absent), without, prior)
    ]
    assumptions = [*given.describe(schema), *pessimistic_assumptions(given, schema, names)]
    return Precision(
        size=size,
        is_declared=is_declared,
        unit="row" if schema.person is None else "person",
        epsilon=epsilon,
        lines=tuple(
            PrecisionLine(label, *(float(each[j]) for each in columns))
            for j, label in enumerate(tables.labels)
        ),
        assumptions=tuple(assumptions),
        units=tables.units,
    )


def pessimistic_scenario(
    given: Scenario, schema: Schema, names: Sequence[str], share: float = _UNCOMMON_SHARE
) -> Scenario:
    """A scenario with pessimistic assumptions where it says nothing.

    Args:
        given: The scenario.
        schema: The schema.
        names: The columns that the model reads.
        share: The share of rows at every level but the first.

    Returns:
        The scenario with a distribution for each column, and one row per person.
    """
    rare = {n: _concentrated(schema[n], share) for n in names if n not in given.columns}
    each = None if schema.most_rows is None else given.rows_per_person or 1
    return replace(given, columns={**given.columns, **rare}, rows_per_person=each)


def pessimistic_assumptions(given: Scenario, schema: Schema, names: Sequence[str]) -> list[str]:
    """What the wider end of a range assumes, in a sentence; nothing if the scenario leaves nothing open."""
    kinds = [schema[name] for name in names if name not in given.columns]
    said = []
    if any(not isinstance(kind, Binary | Category) for kind in kinds):
        said.append("numbers fill about a tenth of their bounds")
    if any(isinstance(kind, Binary | Category) for kind in kinds):
        said.append(f"{_UNCOMMON_SHARE:.0%} of rows have each level but the first")
    if (schema.most_rows or 1) > 1 and given.rows_per_person is None:
        said.append("people have one row each")
    if not said:
        return []
    listed = said[0] if len(said) == 1 else f"{', '.join(said[:-1])} and {said[-1]}"
    return [f"The wider end of a range: {listed}. A scenario narrows it."]


def _concentrated(column: Kind, share: float) -> ColumnDistribution:
    """A pessimistic distribution: a number in a small part of its bounds, every level but the first uncommon."""
    if isinstance(column, Binary):
        return share
    if isinstance(column, Category):
        levels = [str(each) for each in (*column.levels, column.other) if each is not None]
        share = min(share, 1 / len(levels))
        return dict.fromkeys(levels[1:], share) | {levels[0]: 1 - share * (len(levels) - 1)}
    wide = float(column.high - column.low)
    return {"mean": column.low + _CONCENTRATED_MEAN * wide, "sd": _CONCENTRATED_SD * wide}


def _draw_truths(tables: SimulatedTables) -> Floats:
    """True parameters, in coordinates in which the prior has mean zero and spread one."""
    space, scenario = whiten_prior(tables.model), tables.scenario
    if scenario.effects or scenario.outcome is not None:
        vectors, _ = tables.draw_parameters(_NUM_TRUTHS)
        return np.asarray(np.linalg.solve(space.scale, (vectors - space.mean).T).T, np.float64)
    drawn = np.random.default_rng(tables.seed).normal(size=(_NUM_TRUTHS, tables.model.dimension))
    return np.asarray(scenario.spread * drawn)


def _draw_units(schema: Schema, names: list[str], scenario: Scenario) -> Units:
    """Units by a scenario, of the shapes of those that the fit simulates, so that its compiled program serves."""
    like = simulated_units(schema, names)
    shape = like.present.shape
    raw = scenario.draw_table(schema, names, int(np.prod(shape)), np.random.default_rng(0))
    encoded = schema.encode_new(raw, names)[0]
    fields = {
        name: np.asarray(value.reshape(*shape, *value.shape[1:]), like.fields[name].dtype)
        for name, value in encoded.items()
    }
    each = scenario.rows_per_person or shape[1]
    return Units(fields, np.broadcast_to(np.arange(shape[1]) < each, shape))


def _information(model: UnitModel, units: Units, method: Scoring, truth: Floats) -> Floats:
    """The expected information of a unit, from the scores that the method computes of simulated units."""
    scores = simulated_scores(model, units, method.num_outcomes)(truth).reshape(-1, model.dimension)
    return np.asarray(scores.T @ scores / len(scores))


def _posterior_root(information: Floats, size: int, variance: float) -> Floats:
    """A root of the posterior covariance. Where noise exceeds sampling, curvature is not known either."""
    noise = _NOISE_FACTOR * variance * (1 + _NOISE_GROWTH * variance / size)
    precision = np.eye(len(information)) + size**2 / (size + noise) * information
    return np.asarray(np.linalg.cholesky(np.linalg.inv(precision)))


def _widths(tables: SimulatedTables, roots: Floats, centres: Floats) -> Floats:
    """Widths of 90% intervals of the reported parameters, by central differences along the columns of each root."""
    model, space = tables.model, whiten_prior(tables.model)
    steps = np.swapaxes(roots, 1, 2)
    points = np.stack([centres[:, None] + steps, centres[:, None] - steps], axis=2)
    vectors = space.mean + points.reshape(-1, model.dimension) @ space.scale.T
    values = tables.flatten(
        constrain_vectors(model)(jnp.asarray(vectors, jnp.float32), model.constants)
    )
    pairs = values.reshape(len(roots), model.dimension, 2, -1)
    sd = np.sqrt((((pairs[:, :, 0] - pairs[:, :, 1]) / 2) ** 2).sum(axis=1))
    return np.asarray(2 * _HALF_WIDTH * np.abs(tables.factors) * sd)


def range_text(low: float, high: float) -> str:
    """A number, or the ends of a range.

    >>> range_text(0.0123, 0.47), range_text(0.0123, 0.0121)
    ('0.012 to 0.47', '0.012')
    """
    texts = two_digits(low), two_digits(high)
    return texts[0] if not high > low or texts[0] == texts[1] else " to ".join(texts)


def two_digits(number: float) -> str:
    """A number with the two digits that a forecast is good for."""
    return f"{float(f'{number:.2g}'):g}" if np.isfinite(number) else "-"
