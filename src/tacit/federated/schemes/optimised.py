"""Rows protected by noise in the gradients of each site's own optimisation.

Every release is made by the gate: clipped contributions of single units, summed, with noise. What leaves a
site is a function of releases, so it is protected from everybody who sees it.
"""

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from tacit.accounting import calibrate, events
from tacit.federated.local import gaussian_of, guide_of, optimised
from tacit.federated.schemes.base import EachMessagePrivate, Prepared, RunSetting, covered
from tacit.federated.target import Target
from tacit.inference.variational import Variational
from tacit.models.natural import Vector
from tacit.privacy.gate import Gate
from tacit.privacy.mechanisms import NoisySums
from tacit.privacy.noise import Randomness
from tacit.privacy.rows import Rows


@dataclass(frozen=True, kw_only=True)
class Optimised(EachMessagePrivate):
    """Each site maximises its local free energy by private gradients, with the cavity as its prior.

    Args:
        variational: Settings of one answer. Its guide is replaced by the family of the posterior.
        noise_multiplier: Noise over clip. By default it is calibrated to the budget; a given value
            must be covered by the budget.
    """

    variational: Variational = field(default_factory=lambda: Variational(num_steps=200))
    noise_multiplier: float | None = None

    def prepare(self, setting: RunSetting) -> Prepared:
        """Noise for the steps of all answers. Theorem F1."""
        method = suited(self.variational, setting.target)
        rate, steps = method.constant_rate, method.num_steps * setting.answers
        noise, event = self.noise_multiplier or 0.0, None
        if setting.budget is not None and self.noise_multiplier is None:
            noise = calibrate.noise_multiplier(setting.budget, sampling_rate=rate, num_steps=steps)
        if noise > 0:
            event = covered(events.sampled_gaussian(noise, rate, steps), setting.budget)
        mechanism = method.mechanism(setting.target.model, noise)
        return Prepared(work=Optimising(setting.target, method, mechanism), event=event)


@dataclass(frozen=True)
class Optimising:
    """Work that optimises a local posterior by private gradients."""

    target: Target
    method: Variational
    mechanism: NoisySums
    grid: ClassVar[None] = None

    @property
    def size(self) -> int:
        """Length of a change."""
        return self.target.family.size

    def change(self, rows: Rows, posterior: Vector, factor: Vector, source: Randomness) -> Vector:
        """The difference between the fitted and the present posterior."""
        return self.fitted(rows, posterior - factor, posterior, source) - posterior

    def fitted(self, rows: Rows, cavity: Vector, start: Vector, source: Randomness) -> Vector:
        """The posterior after a private optimisation from ``start``."""
        gate = Gate(rows, self.mechanism, source.child("gate"))
        key = int(source.child("model").words(1)[0] >> np.uint64(33))
        return optimised(self.target, self.method, gate, cavity, start, key)


def suited(method: Variational, target: Target) -> Variational:
    """A copy of the settings with the guide of the posterior's family."""
    return replace(method, guide=guide_of(gaussian_of(target)), start=None)
