"""From an event to its dominating pairs.

Under add-remove a sampled release has two pairs, for the unit's removal and its addition;
every other release is symmetric and has one.
"""

import math

from dp_accounting import dp_event
from dp_accounting.dp_event import DpEvent

from tacit import _validate
from tacit.accounting import events
from tacit.accounting.budget import Adjacency
from tacit.accounting.pairs import (
    AddedPair,
    BoundedRangePair,
    GaussianPair,
    LaplacePair,
    Pair,
    RemovedPair,
    ReplacedPair,
    SwappedPair,
    randomised_response_pair,
)
from tacit.errors import UnsupportedEvent


def dominating_pairs(  # noqa: C901, PLR0911, PLR0912 (a table)
    event: DpEvent, adjacency: Adjacency
) -> tuple[Pair, ...]:
    """The pairs that dominate one release; raises where none is known."""
    change = 2.0 if adjacency == "replace" else 1.0
    match event:
        case dp_event.GaussianDpEvent(noise_multiplier=scale):
            return (GaussianPair(change / _scale(scale)),)
        case events.GaussianBarkerTest(ratio_bound=bound, noise_variance=variance):
            return (GaussianPair(change * bound / math.sqrt(variance)),)
        case events.LogConcavePosteriorSample(lipschitz=slope, concavity=concavity):
            return (GaussianPair(change * slope / math.sqrt(concavity)),)
        case dp_event.LaplaceDpEvent(noise_multiplier=scale):
            return (LaplacePair(change / _scale(scale)),)
        case events.BarkerTest(ratio_bound=bound):
            return (BoundedRangePair(change * bound),)
        case events.BoundedPosteriorSample(likelihood_bound=bound):
            # A unit's term lies in [-B, B] over the parameters; two units' difference in
            # [-2B, 2B]: the loss lies in an interval of twice that length.
            return (BoundedRangePair(2 * change * bound),)
        case events.LipschitzPosteriorSample(lipschitz=slope, radius=radius):
            _require_replace(event, adjacency)
            return (BoundedRangePair(4 * slope * radius),)
        case dp_event.RandomizedResponseDpEvent(noise_parameter=noise, num_buckets=categories):
            _require_replace(event, adjacency)
            return (randomised_response_pair(_validate.rate("noise", noise), categories),)
        case dp_event.PoissonSampledDpEvent(
            sampling_probability=rate, event=dp_event.GaussianDpEvent(noise_multiplier=scale)
        ):
            rate, scale = _validate.rate("sampling_rate", rate), _scale(scale)
            if adjacency == "replace":
                return (ReplacedPair(rate, scale),)
            return RemovedPair(rate, scale), AddedPair(rate, scale)
        case dp_event.SampledWithoutReplacementDpEvent(
            sample_size=batch,
            source_dataset_size=size,
            event=dp_event.GaussianDpEvent(noise_multiplier=scale),
        ):
            _require_replace(event, adjacency)
            rate = _validate.rate("sampling_rate", batch / size)
            if rate == 1:
                return (GaussianPair(change / _scale(scale)),)
            return (SwappedPair(rate, _scale(scale) / 2),)
        case events.SubsampledBarkerTest():
            _require_replace(event, adjacency)
    raise UnsupportedEvent(
        f"No dominating pair is known for {type(event).__name__}; "
        "describe the run with the events in tacit.accounting.events."
    )


def _scale(noise_multiplier: float) -> float:
    return _validate.positive("noise_multiplier", noise_multiplier)


def _require_replace(event: DpEvent, adjacency: Adjacency) -> None:
    """Refuses add-remove for an event whose theorem speaks of replacing only."""
    if adjacency != "replace":
        raise UnsupportedEvent(
            f'{type(event).__name__} has no proved bound under add-remove; use adjacency="replace".'
        )
