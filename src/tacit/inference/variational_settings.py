"""Settings of private variational inference, and what they ask of the gate."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Real
from types import FunctionType
from typing import Any, ClassVar, Literal, Self

import numpy as np
import optax
from numpy.typing import ArrayLike, NDArray

from tacit import _validate
from tacit.accounting import Budget, calibrate
from tacit.errors import InvalidArgument
from tacit.inference.autoguide import AutoGuide, Made
from tacit.inference.guides import Guide, MeanField, flat_size
from tacit.inference.sizes import rate_for, room_for
from tacit.inference.variational_steps import FORMS
from tacit.models.base import AnyModel
from tacit.privacy.mechanisms import NoisySums, Stages

OPTIMISERS: dict[str, Callable[[Any], optax.GradientTransformation]] = {
    "adam": optax.adam,
    # From zero, as the papers have it; a little added so that a zero gradient is no division.
    "adagrad": lambda rate: optax.adagrad(rate, initial_accumulator_value=1e-12, eps=1e-12),
    "sgd": optax.sgd,
}


@dataclass(frozen=True, kw_only=True)
class VariationalSettings:
    """The fields of `tacit.Variational`, which documents them, and the mechanism that they ask for."""

    sampling_rate: float | tuple[tuple[float, int], ...] = 0.05
    num_steps: int = 1000
    clip: float | optax.Schedule | None = None
    guide: Guide | Callable[[Any], Any] = field(default_factory=MeanField)
    gradient: Literal["aligned", "joint", "elbo"] = "aligned"
    num_draws: int = 1
    optimiser: str | optax.GradientTransformation = "adam"
    learning_rate: float | optax.Schedule | None = None
    reset_every: int | None = None
    average: bool = True
    batch_bound: int = 2**17
    start: Literal["random"] | Mapping[str, ArrayLike] | None = field(default=None, compare=False)
    size: int | None = None

    declared_public: ClassVar[tuple[str, ...]] = ("start",)
    by_gradients: ClassVar[bool] = True
    assumptions: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        _guide(self.guide)
        _validate.integer("num_steps", self.num_steps)
        self._check_rates()
        if self.learning_rate is not None and not callable(self.learning_rate):
            # Numbers that can be compared, so that equal methods compile once.
            if not isinstance(self.learning_rate, Real):
                raise InvalidArgument(
                    "learning_rate must be a number or an optax schedule; got "
                    f"{type(self.learning_rate).__name__}."
                )
            _validate.positive("learning_rate", self.learning_rate)
        _validate.choice("gradient", self.gradient, FORMS)
        _validate.count("num_draws", self.num_draws)
        if self.gradient == "aligned" and self.num_draws > 1:
            raise InvalidArgument(
                "Aligned gradients share one draw of theta in a step; take more steps, or use "
                'gradient="joint".'
            )
        if self.size is not None:
            _validate.count("size", self.size)
        if isinstance(self.optimiser, str):
            _validate.choice("optimiser", self.optimiser, OPTIMISERS)
        if self.reset_every is not None:
            _validate.count("reset_every", self.reset_every)
        if isinstance(self.start, str):
            _validate.choice("start", self.start, ("random",))

    def _check_rates(self) -> None:
        if not isinstance(self.sampling_rate, Sequence):
            return
        try:
            pairs = tuple((float(rate), int(steps)) for rate, steps in self.sampling_rate)
        except (TypeError, ValueError):
            raise InvalidArgument(
                "sampling_rate must be a number or a schedule of (probability, steps) pairs."
            ) from None
        constant = len(pairs) == 1
        # A tuple, so that it can be hashed.
        object.__setattr__(self, "sampling_rate", pairs[0][0] if constant else pairs)
        for rate, steps in pairs:
            _validate.rate("sampling_rate", rate)
            _validate.count("the steps of a sampling rate", steps)
        if sum(steps for _, steps in pairs) != self.num_steps:
            raise InvalidArgument("The steps of the sampling rates must add up to num_steps.")

    @property
    def family(self) -> Guide:
        """The guide as a `Guide`, also if it comes from NumPyro."""
        return _guide(self.guide)

    @property
    def phases(self) -> tuple[tuple[float, int], ...]:
        """Sampling rates, and the number of steps that each holds for."""
        if isinstance(self.sampling_rate, tuple):
            return self.sampling_rate
        return ((self.sampling_rate, self.num_steps),)

    @property
    def constant_rate(self) -> float:
        """The sampling rate, if it is the same in all steps.

        Raises:
            InvalidArgument: If the rate follows a schedule.
        """
        if isinstance(self.sampling_rate, tuple):
            raise InvalidArgument(
                "A schedule of sampling rates cannot be used here; pass a number."
            )
        return self.sampling_rate

    def clips(self, first: int, steps: int) -> NDArray[np.float32]:
        """The clip of some steps, where it follows a schedule."""
        assert callable(self.clip)
        found = np.array([float(self.clip(first + i)) for i in range(steps)], np.float32)
        if not (np.isfinite(found) & (found > 0)).all():
            raise InvalidArgument("The schedule of clips must give positive numbers in all steps.")
        return found

    def _sums(self, model: AnyModel, noise_multiplier: float, rate: float, steps: int) -> NoisySums:
        if self.gradient == "elbo" and self.size is None:
            raise InvalidArgument(
                'gradient="elbo" shares prior and entropy among the units; pass size=, a public '
                "number of them."
            )
        aligned = self.gradient == "aligned"
        clip = model.dimension**0.5 if self.clip is None else self.clip
        return NoisySums(
            sampling_rate=rate,
            num_steps=steps,
            # Gradients are in units of the present clip if it has a schedule (PROOFS.md, Corollary 1C).
            clip=1.0 if callable(clip) else clip,
            noise_multiplier=noise_multiplier,
            dimension=model.dimension if aligned else flat_size(self.family.start(model.dimension)),
            batch_bound=self.batch_bound,
        )

    def mechanism(self, model: AnyModel, noise_multiplier: float) -> NoisySums:
        """What the gate will do for this model, at one sampling rate."""
        return self._sums(model, noise_multiplier, self.constant_rate, self.num_steps)

    def _planned(self, model: AnyModel, noise_multiplier: float) -> NoisySums | Stages:
        """What the gate will do: a stage for each sampling rate, if there are several."""
        if callable(self.clip):
            self.clips(0, self.num_steps)
        if not isinstance(self.sampling_rate, tuple):
            return self.mechanism(model, noise_multiplier)
        return Stages(tuple(self._sums(model, noise_multiplier, *phase) for phase in self.phases))

    def for_size(self, model: AnyModel, size: int, budget: Budget) -> Self:  # noqa: ARG002
        """The method with sampling rates for a declared size: lower for many units."""
        rates = [rate_for(rate, size) for rate, _ in self.phases]
        pairs = tuple((rate, steps) for rate, (_, steps) in zip(rates, self.phases, strict=True))
        return replace(
            self,
            sampling_rate=pairs if isinstance(self.sampling_rate, tuple) else rates[0],
            batch_bound=room_for(self.batch_bound, max(rates), size),
            size=size if self.gradient == "elbo" and self.size is None else self.size,
        )

    def calibrated(self, model: AnyModel, budget: Budget) -> NoisySums | Stages:
        """What the gate will do, with the least noise that meets a budget."""
        if not isinstance(self.sampling_rate, tuple):
            noise = calibrate.noise_multiplier(
                budget, sampling_rate=self.sampling_rate, num_steps=self.num_steps
            )
        else:
            noise = calibrate.calibrate(lambda scale: self._planned(model, scale).event, budget)
        return self._planned(model, noise)

    def without_noise(self, model: AnyModel) -> NoisySums | Stages:
        """The same without privacy."""
        return self._planned(model, 0.0)

    def describe(self, model: AnyModel) -> str:
        """A line for people."""
        named = self.guide if isinstance(self.guide, type | FunctionType) else type(self.guide)
        return (
            f"Variational inference ({named.__name__} guide, {self.gradient} gradients) for "
            f"{model.dimension} unconstrained numbers.{self._scheduled()}"
        )

    def _scheduled(self) -> str:
        if not callable(self.clip):
            return ""
        first, last = self.clips(0, 1)[0], self.clips(self.num_steps - 1, 1)[0]
        return (
            f" The clip goes from {first:.4g} to {last:.4g}; sums are in units of the present clip."
        )

    def transformation(self) -> optax.GradientTransformation:
        """The optimiser."""
        if not isinstance(self.optimiser, str):
            return self.optimiser
        falling = optax.cosine_decay_schedule(0.02, self.num_steps)
        return OPTIMISERS[self.optimiser](
            falling if self.learning_rate is None else self.learning_rate
        )


def _guide(guide: Any) -> Guide:
    made = not isinstance(guide, type)
    if made and isinstance(guide, Guide):
        return guide
    if not callable(guide) or isinstance(guide, Made if made else Guide):
        raise InvalidArgument(
            "guide must be MeanField(), FullRank(), LowRank(rank=...) or the class of a NumPyro "
            "autoguide, such as AutoIAFNormal; not a guide made for a model."
        )
    return AutoGuide(guide)
