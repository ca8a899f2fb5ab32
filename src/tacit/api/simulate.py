"""Tables simulated from a schema, a scenario and a model's prior, and fits of them by the mechanism that a plan would execute. No data are read."""

import dataclasses
import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, lru_cache

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit import _validate
from tacit._precision import in_32_bits
from tacit._typing import Array, ArrayTree, Floats
from tacit.accounting import Budget
from tacit.api.rows import model_columns
from tacit.api.scenario import Scenario
from tacit.data.schema import Schema
from tacit.errors import InvalidArgument
from tacit.inference.diagnostics import effective_sample_sizes
from tacit.inference.method import Method
from tacit.inference.reference_fits import laplace
from tacit.inference.result import Intervals, MethodResult
from tacit.inference.whitening import prior_draws
from tacit.models.base import Row, UnitModel, add_simulated_outcomes, fit_simulated_outcomes
from tacit.models.families import POISSON
from tacit.models.glm import INTERCEPT, GLMFunction
from tacit.models.interpretation import (
    ParameterMeaning,
)
from tacit.privacy.captured import check_captured
from tacit.privacy.gate import open_gate
from tacit.privacy.mechanisms import without_stop
from tacit.privacy.noise import Randomness
from tacit.privacy.rows import Rows, Units
from tacit.results.summary import coordinates

# Larger tables are simulated with this many units. More units would take longer and hardly change a forecast.
MAX_UNITS = 1_000_000
# To find the intercept by bisection: units to simulate, and steps.
_INTERCEPT_UNITS, _INTERCEPT_BISECTIONS = 2000, 12
# The probability of a forecast's intervals, and their ends as quantiles.
INTERVAL_LEVEL = 0.9
_INTERVAL_ENDS = ((1 - INTERVAL_LEVEL) / 2, 1 - (1 - INTERVAL_LEVEL) / 2)

Vector = NDArray[np.float32]
Columns = dict[str, NDArray[np.generic]]


@dataclass(frozen=True, kw_only=True, eq=False)
class SimulatedTables:
    """Tables of one size that are simulated from a schema, a scenario and a model, and their true parameters.

    Attributes:
        model: The model.
        schema: The schema.
        scenario: What is expected of the data.
        size: The number of units in each table.
        seed: Seed of all random numbers.
    """

    model: UnitModel
    schema: Schema
    size: int
    scenario: Scenario
    seed: int = 0

    def __post_init__(self) -> None:
        _validate.count("size", self.size)
        _validate.count("seed", self.seed, least=0)
        if not isinstance(self.scenario, Scenario):
            raise InvalidArgument("scenario must be a tacit.Scenario(...).")
        check_captured(*self.model.user_functions)  # or a forecast could tell of data for nothing
        if self.model.simulate is None:
            raise InvalidArgument(
                "A forecast draws outcomes from the model, and this model cannot draw them; give a "
                "tacit.Model simulate=."
            )
        self.scenario.check_fits(self.schema, model_columns(self.model, self.schema))

    @cached_property
    def fitted(self) -> UnitModel:
        """The model to fit to the tables."""
        return fit_simulated_outcomes(self.model)

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """A label for each entry of each parameter, as a summary has them."""
        return tuple(label for label, _, _ in self._entries)

    @cached_property
    def _entries(self) -> list[tuple[str, str, tuple[int, ...]]]:
        shapes = jax.eval_shape(self.model.constrain, jnp.zeros(self.model.dimension))
        labels = self.model.labels
        return [
            (label, name, where)
            for name in self.model.names
            for label, where in coordinates(name, shapes[name].shape, labels.get(name))
        ]

    @cached_property
    def units(self) -> dict[str, str]:
        """The unit of each parameter in words, as a summary has it, where the model knows it."""
        found = {label: each.words({}) for label, each in self._meanings.items()}
        return {label: words for label, words in found.items() if words}

    @cached_property
    def factors(self) -> Floats:
        """Factors from the model's own parameters to those in the units of a summary."""
        known = {label: each.factor({}) for label, each in self._meanings.items()}
        return np.array([known.get(label, 1.0) for label in self.labels])

    @property
    def _meanings(self) -> dict[str, ParameterMeaning]:
        interpretation = self.model.interpretation
        known = {} if interpretation is None else interpretation.parameters
        return {label: known[name] for label, name, _ in self._entries if name in known}

    def flatten(self, values: Mapping[str, ArrayLike]) -> Floats:
        """Draws of parameters as an array, [draws, entries]."""
        arrays = {name: np.asarray(values[name], np.float64) for name in self.model.names}
        return np.concatenate([each.reshape(len(each), -1) for each in arrays.values()], axis=1)

    @cached_property
    def prior(self) -> Floats:
        """Draws from the prior, [draws, entries]."""
        return self.flatten(self._constrain_all(self._prior_vectors))

    def simulate(self, count: int) -> tuple[list[Rows], Floats]:
        """Some tables as rows, and their true parameters, [tables, entries]."""
        vectors, truth = self.draw_parameters(count)
        return [self.rows(i, vector) for i, vector in enumerate(vectors)], truth

    def draw_parameters(self, count: int) -> tuple[Vector, Floats]:
        """True parameters of some tables: as unconstrained vectors, and constrained, [tables, entries]."""
        rng = np.random.default_rng([self.seed, 1])
        chosen = self._prior_vectors[rng.choice(len(self._prior_vectors), count, replace=False)]
        middle = np.median(self._prior_vectors, axis=0)
        vectors = middle + self.scenario.spread * (chosen - middle)
        if self.scenario.effects:
            vectors = np.stack(
                [self._set_effects(vector, self.scenario.effects) for vector in vectors]
            )
        if self.scenario.outcome is not None:
            vectors = np.stack([self._set_outcome_mean(vector) for vector in vectors])
        return vectors.astype(np.float32), self.flatten(self._constrain_all(vectors))

    @cached_property
    def _prior_vectors(self) -> Floats:
        draws = prior_draws(self.model)
        return np.asarray(draws[np.isfinite(draws).all(axis=1)], np.float64)

    def _constrain_all(self, vectors: Floats) -> Mapping[str, Array]:
        many = jax.jit(jax.vmap(lambda v: self.model.constrain(v, self.model.constants)))
        values: Mapping[str, Array] = many(jnp.asarray(vectors, jnp.float32))
        return values

    def _set_effects(self, vector: Floats, effects: Mapping[str, float]) -> Floats:
        """A copy of the vector with some effects set to given values."""
        known = {label: (name, where) for label, name, where in self._entries}
        drawn = self.model.constrain(jnp.asarray(vector, jnp.float32), self.model.constants)
        values = {name: np.array(drawn[name]) for name in self.model.parameters}
        for label, effect in effects.items():
            if label not in known or known[label][0] not in values:
                raise InvalidArgument(
                    f"The scenario has an effect of {label!r}, which is not a parameter that can be set; "
                    f"the parameters are {', '.join(self.labels)}."
                )
            name, where = known[label]
            values[name][where] = effect / self.factors[self.labels.index(label)]
        return np.asarray(self.model.unconstrain(values))

    def _set_outcome_mean(self, vector: Floats) -> Floats:
        """A copy of the vector with the intercept at which outcomes have the expected mean, by bisection."""
        if INTERCEPT not in self.labels:
            raise InvalidArgument(
                "outcome of a scenario sets the intercept of a formula, and this model has none; "
                "pass effects instead."
            )
        if any(
            isinstance(f, GLMFunction) and f.outcome.censoring is not None
            for f in self.model.user_functions
        ):
            raise InvalidArgument(
                "outcome of a scenario is a mean, which censored times do not show; pass an effect of "
                f"{INTERCEPT} instead, the logarithm of the time by which 63% had the event."
            )
        low, high = np.quantile(self.prior[:, self.labels.index(INTERCEPT)], [0.001, 0.999])
        ends = [self._set_effects(vector, {INTERCEPT: float(end)}) for end in (low, high)]

        def mean(share: float) -> float:
            return float(
                self._draw_few_outcomes(
                    (ends[0] + share * (ends[1] - ends[0])).astype(np.float32)
                ).mean()
            )

        wanted, below, above = float(self.scenario.outcome_mean or 0), 0.0, 1.0
        for _ in range(_INTERCEPT_BISECTIONS):
            middle = (below + above) / 2
            below, above = (middle, above) if mean(middle) < wanted else (below, middle)
        return np.asarray(ends[0] + below * (ends[1] - ends[0]))

    def _draw_few_outcomes(self, vector: Vector) -> Floats:
        """Outcomes of a small table as the model draws them, without overdispersion."""
        plain = dataclasses.replace(self.scenario, outcome=self.scenario.outcome_mean)
        rows = dataclasses.replace(self, size=_INTERCEPT_UNITS, scenario=plain).draw_outcomes(
            0, vector
        )
        return np.asarray(next(iter(rows.values())), np.float64)

    def _intercept_shifts(self, index: int, vector: Vector) -> tuple[Vector, Vector]:
        """By how much each unit's intercept is shifted, and the direction of the intercept in the parameter vector.

        Shifts are zero unless the scenario expects counts to vary more than the model allows. Each unit's rate is
        then multiplied by a gamma variable with mean 1, whose variance gives the expected standard deviation.
        """
        if self.scenario.outcome_sd is None:
            return np.zeros(self._num_units, np.float32), np.zeros_like(vector)
        self._check_overdispersion()
        plain = self._draw_few_outcomes(vector)
        mean, variance = plain.mean(), plain.var()
        squares = max(variance - mean, 0.0) + mean**2  # of the rates
        extra = max((self.scenario.outcome_sd**2 - variance) / squares, 1e-6)
        rng = np.random.default_rng([self.seed, 3, index])
        times = rng.gamma(1 / extra, extra, size=self._num_units)
        wide = vector.astype(np.float64)
        one, zero = (self._set_effects(wide, {INTERCEPT: each}) for each in (1.0, 0.0))
        return np.log(np.maximum(times, 1e-30)).astype(np.float32), (one - zero).astype(np.float32)

    def _check_overdispersion(self) -> None:
        """Raises if the model cannot use the expected standard deviation of the outcome."""
        programs = [each for each in self.model.user_functions if isinstance(each, GLMFunction)]
        if not any(each.family is POISSON and INTERCEPT in self.labels for each in programs):
            raise InvalidArgument(
                "sd of a scenario's outcome is for Poisson formulas with an intercept; pass effects "
                "instead, such as {'sigma': 2.5}."
            )

    @property
    def rows_per_unit(self) -> int:
        """The number of rows of each unit."""
        return self.scenario.rows_per_person or self.schema.most_rows or 1

    def rows(self, index: int, vector: Vector) -> Rows:
        """One table, as rows of the model that is fitted to it.

        Args:
            index: The number of the table. Tables of other numbers have other columns.
            vector: The true parameters, unconstrained.

        Returns:
            The rows, with outcomes drawn from the model.
        """
        table = self.columns(index, vector)
        if self.schema.most_rows is None:
            rows = Rows(table)
        else:
            person = np.repeat(np.arange(self._num_units), self.rows_per_unit)
            rows = Rows.by_person(table, person, self.schema.most_rows)
        rows.simulated = self._schema_units
        return rows

    def columns(self, index: int, vector: Vector) -> Columns:
        """The encoded columns of a table, with outcomes drawn from the model; arguments as for `rows`."""
        return add_simulated_outcomes(
            self._predictor_columns(index), self.draw_outcomes(index, vector)
        )

    @cached_property
    def _schema_units(self) -> Units:
        """Units simulated from the schema alone, for the fit itself, which must not know the scenario."""
        few = dataclasses.replace(self, size=_INTERCEPT_UNITS // 2, scenario=Scenario())
        fields = few.columns(0, np.median(self._prior_vectors, axis=0).astype(np.float32))
        if self.schema.most_rows is None:
            return Units.single_rows(fields)
        shape = few.size, few.rows_per_unit
        fields = {name: value.reshape(*shape, *value.shape[1:]) for name, value in fields.items()}
        return Units(fields, np.ones(shape, np.bool_))

    @property
    def _num_units(self) -> int:
        return min(self.size, MAX_UNITS)

    def _predictor_columns(self, index: int) -> Columns:
        """Encoded columns of a table by the scenario. Those of the outcome are included, but not used."""
        names = [n for n in model_columns(self.model, self.schema) if n != self.schema.person]
        rng = np.random.default_rng([self.seed, 2, index])
        raw = self.scenario.draw_table(
            self.schema, names, self._num_units * self.rows_per_unit, rng
        )
        return self.schema.encode_new(raw, names)[0]

    def draw_outcomes(self, index: int, vector: Vector) -> Columns:
        """The outcomes of a table, row by row.

        Args:
            index: The number of the table.
            vector: The true parameters, unconstrained.

        Returns:
            The outcomes by the names that the model has for them.
        """
        count, each = self._num_units, self.rows_per_unit
        columns = self._predictor_columns(index)
        units = {n: v.reshape(count, each, *v.shape[1:]) for n, v in columns.items()}
        keys = jax.random.split(jax.random.fold_in(jax.random.key(self.seed), index), count)
        shifts, step = self._intercept_shifts(index, vector)
        draw = _outcome_sampler(self.model)
        drawn = draw((vector, step), shifts, keys, units, self.model.constants)
        return {n: np.asarray(v).reshape(count * each, *v.shape[2:]) for n, v in drawn.items()}


@lru_cache(maxsize=8)
def _outcome_sampler(model: UnitModel) -> Callable[..., Mapping[str, Array]]:
    """A compiled function that draws the outcomes of all units, for tables of any scenario."""
    assert model.simulate is not None
    simulate = model.simulate

    def of_unit(
        line: tuple[Array, Array], shift: Array, key: Array, rows: Row, constants: ArrayTree
    ) -> Mapping[str, Array]:
        present = jnp.ones(len(jax.tree.leaves(rows)[0]), jnp.bool_)
        return simulate(key, line[0] + shift * line[1], rows, present, constants)

    return jax.jit(jax.vmap(of_unit, (None, 0, 0, 0, None)))


@dataclass(frozen=True)
class SimulatedFits:
    """Fits of several tables: posterior means and ends of 90% intervals, [fits, entries].

    ``converged``, ``effective`` and ``seconds`` have an entry for each fit. ``effective`` is the smallest effective sample
    size among the parameters of a chain; NaN where draws are independent. ``noise_included`` says whether intervals account
    for the privacy noise, so that they should cover the truth.
    """

    mean: Floats
    low: Floats
    high: Floats
    converged: NDArray[np.bool_]
    effective: Floats
    noise_included: bool
    seconds: Floats

    @property
    def width(self) -> Floats:
        """The median width of an interval."""
        return np.asarray(np.median(self.high - self.low, axis=0))

    def error(self, truth: Floats) -> Floats:
        """The root mean square error of the posterior mean."""
        return np.asarray(np.sqrt(np.mean((self.mean - truth) ** 2, axis=0)))

    def covers(self, truth: Floats) -> NDArray[np.bool_]:
        """Which intervals hold the truth."""
        return (self.low <= truth) & (truth <= self.high)

    def detection_rate(self, truth: Floats, effects: Floats) -> Floats:
        """How often an interval would exclude zero, on the right side, if these were the effects.

        Errors and widths are taken to be those of the effects that were simulated.
        """
        moved = effects - truth
        detected = np.where(effects > 0, self.low + moved > 0, self.high + moved < 0)
        return np.asarray(np.mean(detected, axis=0))

    def detectable(self, truth: Floats, share: float) -> Floats:
        """The smallest positive effect for which this share of intervals would exclude zero."""
        return np.asarray(np.maximum(np.quantile(truth - self.low, share, axis=0), 0.0))


def fit_tables(
    tables: SimulatedTables, rows: Sequence[Rows], budget: Budget, method: Method
) -> SimulatedFits:
    """Fits every table within a budget, one after the other over one compiled program.

    Args:
        tables: What made the tables.
        rows: The tables.
        budget: The budget of each fit.
        method: The method with its settings.

    Returns:
        What the fits found.
    """
    seed = tables.seed  # of the noise: nothing here has to stay private
    # What a fit finds if it goes on.
    model, mechanism = tables.fitted, without_stop(method.calibrate(tables.fitted, budget))

    @in_32_bits  # in its own thread
    def fitted(i: int) -> tuple[MethodResult, float]:
        began = time.perf_counter()
        gate = open_gate(rows[i], mechanism, Randomness(seed + i))
        return method.run(model, gate, jax.random.key(seed + i)), time.perf_counter() - began

    first = fitted(0)  # which compiles
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found, seconds = zip(first, *pool.map(fitted, range(1, len(rows))), strict=True)
    return _combine_fits(tables, found, seconds)


def width_without_privacy(tables: SimulatedTables, rows: Sequence[Rows]) -> Floats:
    """The median width of an interval without privacy: of the exact mode and the curvature there.

    Args:
        tables: What made the tables.
        rows: The tables.

    Returns:
        The width for each entry; NaN if no mode was found in any table.
    """
    found = [laplace(tables.fitted, each, 0) for each in rows]
    modes = [each for each in found if each.converged]
    if not modes:
        return np.full(len(tables.labels), np.nan)
    return _combine_fits(tables, modes, []).width


def _combine_fits(
    tables: SimulatedTables, found: Sequence[MethodResult], seconds: Sequence[float]
) -> SimulatedFits:
    draws = [tables.flatten(each.draws) for each in found]
    ends = np.array([np.quantile(each, _INTERVAL_ENDS, axis=0) for each in draws])
    return SimulatedFits(
        mean=np.array([each.mean(axis=0) for each in draws]),
        low=ends[:, 0],
        high=ends[:, 1],
        converged=np.array([each.converged is not False for each in found]),
        effective=np.array([_effective_sample_size(each) for each in found]),
        noise_included=all(each.intervals is Intervals.INCLUDED for each in found),
        seconds=np.asarray(seconds),
    )


def _effective_sample_size(found: MethodResult) -> float:
    """The smallest effective sample size among all parameters; NaN without a chain, and 0 if a chain never moved."""
    if not found.chain:
        return float("nan")
    sizes = effective_sample_sizes(found.draws, found.chains).values()
    return float(min(np.nan_to_num(each).min() for each in sizes))
