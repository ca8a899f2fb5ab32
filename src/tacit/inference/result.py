"""What a method found, and what its intervals say about the noise. Needs no JAX, so that results load quickly."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

# How the message begins that names parameters of which little was learnt.
UNLEARNED = "The data tell little about"
Arrays = Mapping[str, NDArray[np.floating]]


class Intervals(StrEnum):
    """What the intervals of a posterior say about the noise that protects people."""

    INCLUDED = "noise included"
    LEFT_OUT = "noise not included"
    SAMPLED = "draws of a private sampler"
    NO_NOISE = "no noise was added"
    UNKNOWN = "not known"


@dataclass(frozen=True, kw_only=True)
class MethodResult:
    """What a method found. Follows from released values and public numbers only.

    A `tacit.Posterior` has these fields, and more.

    Attributes:
        draws: An array [draws, *shape] for each parameter.
        unconstrained_mean: Mean of the fitted Gaussian on the unconstrained scale, if there is one.
        unconstrained_covariance: Covariance of that Gaussian.
        trace: Released values of every step of the fit.
        chain: Whether the draws are a Markov chain and therefore not independent.
        chains: The number of chains of equal length whose draws follow one another.
        sample_stats: Further values for each draw, such as whether a proposal was accepted.
        converged: Whether the fit converged by its method's own test, or None if the method cannot
            tell.
        messages: Sentences on how the fit went, most important first.
        intervals: Whether intervals and standard deviations account for the privacy noise.
        fitted_by: Sentences on the method and its steps.
    """

    draws: Arrays
    unconstrained_mean: NDArray[np.floating] | None = None
    unconstrained_covariance: NDArray[np.floating] | None = None
    trace: Arrays = field(default_factory=dict)
    chain: bool = False
    chains: int = 1
    sample_stats: Arrays = field(default_factory=dict)
    converged: bool | None = None
    messages: tuple[str, ...] = ()
    intervals: Intervals = Intervals.UNKNOWN
    fitted_by: tuple[str, ...] = ()
