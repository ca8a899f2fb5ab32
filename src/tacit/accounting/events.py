"""What a run does to the data, as frozen values.

An event names the releases of a run and their parameters, all of them public; an
accountant turns it into a privacy cost. Events that dp-accounting has are used as they
are (`GaussianDpEvent` and so on, made and checked by the functions here); the rest are
defined below in the same manner. `noise_multiplier` is always noise std over clip, the
bound on what one unit contributes; what a change of one unit then amounts to under
add-remove or replace is the accountant's business.
"""

import math
from collections.abc import Iterable, Iterator, Sequence

import attrs
from dp_accounting import dp_event
from dp_accounting.dp_event import DpEvent

from tacit import _validate
from tacit.errors import InvalidArgument

MOST_STEPS = 10**9  # of a run: beyond it no budget matters, and numbers overflow


def gaussian(noise_multiplier: float) -> DpEvent:
    """A sum of vectors clipped in the 2-norm, with Gaussian noise, over all units."""
    return dp_event.GaussianDpEvent(_validate.positive("noise_multiplier", noise_multiplier))


def laplace(noise_multiplier: float) -> DpEvent:
    """A sum of vectors clipped in the 1-norm, with Laplace noise: scale over clip."""
    return dp_event.LaplaceDpEvent(_validate.positive("noise_multiplier", noise_multiplier))


def sampled_gaussian(
    noise_multiplier: float | Sequence[tuple[float, int]],
    sampling_rate: float,
    num_steps: int = 1,
) -> DpEvent:
    """Steps that each look at a fresh Poisson sample of the units, with Gaussian noise.

    ``noise_multiplier`` may be a schedule: pairs of a multiplier and the number of steps
    it holds for, one after the other. Then leave ``num_steps`` out.

    >>> sampled_gaussian([(2.0, 100), (1.0, 900)], 0.01) == compose(
    ...     sampled_gaussian(2.0, 0.01, 100), sampled_gaussian(1.0, 0.01, 900)
    ... )
    True
    """
    if isinstance(noise_multiplier, Sequence):
        if num_steps != 1 or not noise_multiplier:
            raise InvalidArgument(
                "A noise schedule is a list of (noise_multiplier, num_steps) pairs, which "
                "say how long each lasts; leave num_steps out."
            )
        return compose(*(sampled_gaussian(s, sampling_rate, n) for s, n in noise_multiplier))
    rate = _validate.rate("sampling_rate", sampling_rate)
    step = gaussian(noise_multiplier)
    if rate < 1:
        step = dp_event.PoissonSampledDpEvent(rate, step)
    return repeat(step, num_steps)


def fixed_batch_gaussian(
    noise_multiplier: float, batch_size: int, dataset_size: int, num_steps: int = 1
) -> DpEvent:
    """Steps on batches of fixed size drawn without replacement, with Gaussian noise.

    Tacit samples this way only in the subsampled Barker test; the event is here so that
    the cost of fixed batches can be compared. It has a bound under replace only.
    """
    size = _validate.count("dataset_size", dataset_size)
    batch = _validate.count("batch_size", batch_size)
    if batch > size:
        raise InvalidArgument(f"batch_size {batch} is larger than dataset_size {size}.")
    step = dp_event.SampledWithoutReplacementDpEvent(size, batch, gaussian(noise_multiplier))
    return repeat(step, num_steps)


def randomised_response(noise: float, num_categories: int) -> DpEvent:
    """Each person's answer is kept, or with probability ``noise`` drawn from all categories.

    The respondents themselves are public, so there is a bound under replace only.
    """
    share = _validate.rate("noise", noise)
    return dp_event.RandomizedResponseDpEvent(
        share, _validate.count("num_categories", num_categories, least=2)
    )


def repeat_and_select(event: DpEvent, mean: float, shape: float = 0.0) -> DpEvent:
    """The best of a random number of runs of ``event``, by a score that is itself private.

    ``mean`` is the mean number of runs; ``shape`` their distribution: 0 logarithmic,
    1 geometric, infinity Poisson, otherwise truncated negative binomial (Papernot and
    Steinke 2022).
    """
    if not (float(mean) >= 1):
        raise InvalidArgument(f"mean must be at least 1 run; got {mean!r}.")
    if not (float(shape) >= 0):
        raise InvalidArgument(f"shape must be 0 or more; got {shape!r}.")
    return dp_event.RepeatAndSelectDpEvent(event, float(mean), float(shape))


def compose(*events: DpEvent) -> DpEvent:
    """All of these events, in any order, each perhaps chosen after seeing the others."""
    for event in events:
        if not isinstance(event, DpEvent):
            raise InvalidArgument(f"compose takes events; got {type(event).__name__}.")
    if len(events) == 1:
        return events[0]
    # A tuple where dp-accounting names a list: equal in use, but it cannot change.
    return dp_event.ComposedDpEvent(tuple(events))  # type: ignore[arg-type]


def repeat(event: DpEvent, num_steps: int) -> DpEvent:
    """The same event a number of times."""
    times = _validate.count("num_steps", num_steps, most=MOST_STEPS)
    return event if times == 1 else dp_event.SelfComposedDpEvent(event, times)


def _positive(_: object, field: "attrs.Attribute[float]", value: float) -> None:
    _validate.positive(field.name, value)


def _whole(_: object, field: "attrs.Attribute[int]", value: int) -> None:
    _validate.count(field.name, value)


@attrs.frozen(kw_only=True)
class BarkerTest(DpEvent):
    """One accept/reject decision of DP-MCMC on the full data, by the exact accept bit.

    ``ratio_bound`` bounds what one unit can add to the (tempered) log-likelihood ratio,
    by clipping or by Lemma 2 of Heikkilä et al. 2019. The bit is Bernoulli with a logit
    that a unit moves by at most ``ratio_bound`` (add-remove) or twice that (replace).
    """

    ratio_bound: float = attrs.field(validator=_positive)


@attrs.frozen(kw_only=True)
class GaussianBarkerTest(DpEvent):
    """The same decision by Gaussian noise plus a correction (their Theorem 1).

    ``noise_variance`` is the paper's C, below pi^2/3.
    """

    ratio_bound: float = attrs.field(validator=_positive)
    noise_variance: float = attrs.field(default=2.0, validator=_positive)

    def __attrs_post_init__(self) -> None:
        if not (self.noise_variance < math.pi**2 / 3):
            raise InvalidArgument(
                "noise_variance must be below pi^2/3, the variance of the logistic "
                f"distribution; got {self.noise_variance!r}."
            )


@attrs.frozen(kw_only=True)
class SubsampledBarkerTest(DpEvent):
    """The decision on a fixed-size batch without replacement (their Theorem 2, C = 2).

    Log-likelihood ratios are clipped to sqrt(batch_size) / N0. The bound is the one proved
    at `renyi.barker_divergence`, or with ``paper_bound`` the paper's looser eq. (21). Only
    replace has a bound.
    """

    batch_size: int = attrs.field(validator=_whole)
    dataset_size: int = attrs.field(validator=_whole)
    paper_bound: bool = False

    def __attrs_post_init__(self) -> None:
        if self.batch_size > self.dataset_size:
            raise InvalidArgument(
                f"batch_size {self.batch_size} is larger than dataset_size {self.dataset_size}."
            )


@attrs.frozen(kw_only=True)
class BoundedPosteriorSample(DpEvent):
    """One exact draw from a posterior with |log-likelihood| of a unit at most a bound.

    4B-differentially private under replace, 2B under add-remove (Wang et al. 2015).
    """

    likelihood_bound: float = attrs.field(validator=_positive)


@attrs.frozen(kw_only=True)
class LipschitzPosteriorSample(DpEvent):
    """One exact draw where the log-likelihood is Lipschitz in a record of bounded norm.

    4LR-differentially private under replace (Wang et al. 2015); a Lipschitz constant
    says nothing about leaving a record out, so there is no bound under add-remove.
    """

    lipschitz: float = attrs.field(validator=_positive)
    radius: float = attrs.field(validator=_positive)


@attrs.frozen(kw_only=True)
class LogConcavePosteriorSample(DpEvent):
    """One exact draw from a strongly log-concave posterior (Gopi, Lee and Liu 2022).

    With a per-unit log-likelihood that is ``lipschitz`` in the parameters and a posterior
    that is ``concavity``-strongly log-concave, the draw is as private as Gaussian noise
    with mu = lipschitz / sqrt(concavity), or twice that under replace.
    """

    lipschitz: float = attrs.field(validator=_positive)
    concavity: float = attrs.field(validator=_positive)


@attrs.frozen(kw_only=True)
class Slack(DpEvent):
    """A chance by which the releases beside it differ from what their events say.

    It is added to delta, whatever the accountant: where two mechanisms differ by it in total
    variation, times 1 + e^epsilon, a guarantee of one holds for the other with so much more delta.
    """

    delta: float = attrs.field(validator=_positive)


def without_slack(event: DpEvent) -> tuple[DpEvent, float]:
    """The event but for its slack, and the slack of all of it."""
    parts = list(leaves(event))
    if not any(isinstance(leaf, Slack) for leaf, _ in parts):
        return event, 0.0
    slack = math.fsum(count * leaf.delta for leaf, count in parts if isinstance(leaf, Slack))
    rest = [repeat(leaf, count) for leaf, count in parts if not isinstance(leaf, Slack)]
    return compose(*rest) if rest else dp_event.NoOpDpEvent(), slack


def leaves(event: DpEvent) -> Iterator[tuple[DpEvent, int]]:
    """The releases an event is composed of, each with the number of times it happens."""
    yield from _leaves(event, 1)


def _leaves(event: DpEvent, count: int) -> Iterator[tuple[DpEvent, int]]:
    if isinstance(event, dp_event.SelfComposedDpEvent):
        times = _validate.count("the count of a SelfComposedDpEvent", event.count, least=0)
        yield from _leaves(event.event, count * times)
    elif isinstance(event, dp_event.ComposedDpEvent):
        inner: Iterable[DpEvent] = event.events
        for part in inner:
            yield from _leaves(part, count)
    elif isinstance(event, dp_event.PoissonSampledDpEvent) and event.sampling_probability == 1:
        yield from _leaves(event.event, count)
    elif not isinstance(event, dp_event.NoOpDpEvent) and count > 0:
        yield event, count
