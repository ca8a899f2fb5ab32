"""Private sufficient statistics: a conjugate model or a linear regression from one noisy sum over all rows.

The sum of the rows' statistics is released once, with noise. Treating the noisy sum as exact would
give intervals that are too narrow. By default the posterior therefore treats the true sum and the
number of rows as unknown (Bernstein and Sheldon 2018).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from tacit import _validate
from tacit._typing import ArrayTree, Floats
from tacit.accounting import Budget, calibrate, events
from tacit.errors import InvalidArgument
from tacit.inference.conjugate_statistics import (
    ChainLength,
    count_chain,
    count_draws,
    linear_chain,
    linear_draws,
)
from tacit.inference.diagnostics import mixing_warnings
from tacit.inference.formula_statistics import SliceChains, design_draws
from tacit.inference.method import Method, Progress, Steps, no_inputs
from tacit.inference.result import Arrays, Intervals, MethodResult
from tacit.models.base import UnitModel
from tacit.models.conjugate import Conjugate, CountModel, Linear
from tacit.models.glm_statistics import LinearStatistics, linear_statistics
from tacit.privacy.captured import check_captured
from tacit.privacy.gate import Gate, check, run
from tacit.privacy.mechanisms import NoisySums, Release, sum_rows
from tacit.privacy.trace import Step

# The most units that a sum can add up without wrapping around.
_BATCH_BOUND = 2**31
# The number of chains of a formula's posterior, which have no privacy cost: the sum is released once.
_NUM_CHAINS = 4
_STEPS_PER_SWEEP = 3  # of a chain in a sweep


@dataclass(frozen=True, kw_only=True)
class Statistics(Method):
    """Fits a model from one noisy sum of sufficient statistics. All settings are public.

    Models are those of `tacit.conjugate`, and formulas of the Gaussian family with an intercept, without
    groups and offsets, whose coefficients have normal priors. The number of rows is treated as unknown,
    with a flat prior.

    Args:
        noise: ``"gaussian"`` or ``"laplace"``. Laplace noise needs no delta, and is smaller for
            models with few statistics, such as a binary outcome. Formulas need Gaussian noise.
        noise_aware: Whether the posterior accounts for the noise. With False the noisy sum is
            treated as exact and intervals are too narrow.
        size: The public number of rows; only under replace.
        most_rows: The number of rows of a person that count in full, if the unit is a person. The
            noise is proportional to it; people with more rows count as that many.
        num_draws: Number of draws to keep. For a formula they come from four chains.
        burn_in: Number of draws to discard at the start of a chain.
        sweeps: Number of sweeps between draws.
    """

    noise: Literal["gaussian", "laplace"] = "gaussian"
    noise_aware: bool = True
    size: int | None = None
    most_rows: int | None = None
    num_draws: int = 1000
    burn_in: int = 100
    sweeps: int = 10

    def __post_init__(self) -> None:
        _validate.choice("noise", self.noise, ("gaussian", "laplace"))
        for name, value in (("size", self.size), ("most_rows", self.most_rows)):
            if value is not None:
                _validate.count(name, value)
        _validate.count("num_draws", self.num_draws)
        _validate.count("burn_in", self.burn_in, least=0)
        _validate.count("sweeps", self.sweeps)

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What is taken to be true for the guarantee."""
        if self.size is None:
            return ()
        return (f"the number of rows, {self.size}, is public",)

    def calibrate(self, model: UnitModel, budget: Budget) -> NoisySums:
        """One release, with the noise that the budget asks for."""
        if self.size is not None and budget.adjacency != "replace":
            raise InvalidArgument(
                "size makes the number of rows public, which add-remove protects; leave it out, "
                'or use Budget(..., adjacency="replace").'
            )
        if self.noise == "laplace":
            return self._plan(model, calibrate.calibrate(events.laplace, budget))
        return self._plan(model, calibrate.noise_multiplier(budget))

    def without_noise(self, model: UnitModel) -> NoisySums:
        """The same without privacy."""
        return self._plan(model, 0.0)

    def _plan(self, model: UnitModel, noise_multiplier: float) -> NoisySums:
        conjugate, laplace = _conjugate_model(model), self.noise == "laplace"
        if isinstance(conjugate, LinearStatistics):
            self._refuse_for_formulas()
        return NoisySums(
            sampling_rate=1.0,
            num_steps=1,
            clip=conjugate.statistic_norm_bound(1 if laplace else 2) * (self.most_rows or 1),
            noise_multiplier=noise_multiplier,
            dimension=conjugate.statistic_size,
            batch_bound=_BATCH_BOUND,
            laplace=laplace,
        )

    def _refuse_for_formulas(self) -> None:
        if self.noise == "laplace":
            raise InvalidArgument('Statistics of a formula need noise="gaussian".')
        if self.size is not None:
            raise InvalidArgument(
                "Statistics of a formula are of the rows without missing values, whose number is not "
                "public; leave out size."
            )

    def check(self, model: UnitModel, gate: Gate) -> None:
        """Raises what `run` would raise of the model, without reading a row."""
        conjugate = _conjugate_model(model)
        check_captured(*conjugate.user_functions)
        if gate.unit == "person" and self.most_rows is None:
            raise InvalidArgument(
                "Where the unit is a person, pass Statistics(most_rows=...), the number of rows of a "
                "person that count in full; the noise is proportional to it."
            )
        try:
            check(_statistics_step(conjugate), conjugate.constants, jnp.zeros(()), gate)
        except KeyError as error:
            raise InvalidArgument(f"The model needs column {error}, which is missing.") from error

    def steps(
        self,
        model: UnitModel,
        mechanism: NoisySums,  # noqa: ARG002 (it changes nothing in a step)
        key: jax.Array,  # noqa: ARG002 (a step draws nothing)
    ) -> Steps:
        """The one release as a step."""
        conjugate = _conjugate_model(model)
        return Steps(_statistics_step(conjugate), conjugate.constants, no_inputs)

    def run(
        self, model: UnitModel, gate: Gate, key: jax.Array, progress: Progress | None = None
    ) -> MethodResult:
        """One release, and the posterior that follows."""
        mechanism = gate.mechanism
        _, released = run(gate, *self.steps(model, mechanism, key), progress=progress)
        scale = mechanism.noise_multiplier * mechanism.clip
        draws = self.posterior(_conjugate_model(model), released[0], scale, key)
        return self._found(draws, released, scale, linear_statistics(model) is not None)

    def _found(self, draws: Arrays, released: Floats, scale: float, formula: bool) -> MethodResult:
        trace, exact = {"statistics": released}, not self.noise_aware or not scale > 0
        intervals = Intervals.LEFT_OUT if exact else Intervals.INCLUDED
        if exact and not formula:  # independent draws of a known distribution
            return MethodResult(draws=draws, trace=trace, converged=True, intervals=intervals)
        chains = _NUM_CHAINS if formula else 1
        mixing = mixing_warnings(draws, chains)
        return MethodResult(
            draws=draws,
            trace=trace,
            chain=True,
            chains=chains,
            converged=False if mixing else None,
            messages=mixing,
            intervals=intervals,
        )

    def posterior(
        self, model: Conjugate | LinearStatistics, released: Floats, scale: float, key: jax.Array
    ) -> Arrays:
        """Draws [draws, ...] of each parameter, from the released sum only.

        ``scale`` is the noise's: a normal's standard deviation or a Laplace's scale.
        """
        if isinstance(model, LinearStatistics):
            kept, steps = -(-self.num_draws // _NUM_CHAINS), _STEPS_PER_SWEEP * self.sweeps
            slices = SliceChains(_NUM_CHAINS, self.burn_in, kept, steps)
            noise = scale if self.noise_aware else 0.0
            return model.named(*design_draws(model, released, noise, key, slices))
        with jax.enable_x64(True):
            seen = jnp.asarray(released, jnp.float64)
            if not self.noise_aware or not scale > 0:
                draw = linear_draws if isinstance(model, Linear) else count_draws
                found = draw(model, seen, key, size=self.size, kept=self.num_draws)
            else:
                found = self._chain(model)(model, seen, jnp.float64(scale), key)
            return _draws_by_name(model, found)

    def _chain(self, model: Conjugate) -> Callable[..., ArrayTree]:
        return partial(
            linear_chain if isinstance(model, Linear) else count_chain,
            laplace=self.noise == "laplace",
            size=self.size,
            length=ChainLength(self.burn_in, self.num_draws, self.sweeps),
        )

    def describe(self, model: UnitModel) -> str:
        """A line for the printed plan."""
        how = "which the posterior knows to be noisy" if self.noise_aware else "taken for exact"
        found = _conjugate_model(model)
        said = f"One noisy sum of {found.statistic_size} numbers of each row, {how}."
        if not isinstance(found, LinearStatistics):
            return said
        return f"{said} Priors: {found.described_priors()}."


def _conjugate_model(model: UnitModel) -> Conjugate | LinearStatistics:
    if isinstance(model.source, CountModel | Linear):
        return model.source
    found = linear_statistics(model)
    if found is None:
        raise InvalidArgument(
            "tacit.Statistics fits formulas of the gaussian family and the models of tacit.conjugate; use "
            "tacit.Scoring or tacit.Variational for others."
        )
    return found


def _draws_by_name(model: Conjugate, found: ArrayTree) -> Arrays:
    arrays = jax.tree.map(np.asarray, found)
    named = model.to_column_units(*arrays) if isinstance(model, Linear) else arrays
    return {name: named[name] for name in model.names}


@lru_cache(maxsize=32)
def _statistics_step(model: Conjugate | LinearStatistics) -> Step:
    """The one step of a fit: the same object again, so that it compiles once."""

    def step(constants: ArrayTree, _: jax.Array, release: Release) -> tuple[ArrayTree, jax.Array]:
        total = release.noisy_sum(
            sum_rows(lambda known, row: model.statistic(row, known)), constants
        )
        return constants, total

    return step
