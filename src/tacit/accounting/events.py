"""What a run does to the data, as frozen values.

An event lists the releases of a run with their parameters, all of which are public. An accountant
computes its privacy cost. Events of dp-accounting are used as they are (`GaussianDpEvent` and others,
created and checked by the functions here); further ones are defined below. `noise_multiplier` is always
the noise standard deviation divided by the clip, the bound on one unit's contribution. How much a change of
one unit then matters under add-remove or replace is worked out by the accountant.
"""

import math
from collections.abc import Iterable, Iterator, Sequence

import attrs
from dp_accounting import dp_event
from dp_accounting.dp_event import DpEvent

from tacit import _validate
from tacit.errors import InvalidArgument

MAX_STEPS = 10**9  # of a run; with more, numbers would overflow


def gaussian(noise_multiplier: float) -> DpEvent:
    """A sum over all units of vectors clipped in the 2-norm, with Gaussian noise.

    Args:
        noise_multiplier: The noise standard deviation divided by the clip.

    Returns:
        The event.
    """
    return dp_event.GaussianDpEvent(_validate.positive("noise_multiplier", noise_multiplier))


def laplace(noise_multiplier: float) -> DpEvent:
    """A sum over all units of vectors clipped in the 1-norm, with Laplace noise.

    Args:
        noise_multiplier: The scale of the noise divided by the clip.

    Returns:
        The event.
    """
    return dp_event.LaplaceDpEvent(_validate.positive("noise_multiplier", noise_multiplier))


def sampled_gaussian(
    noise_multiplier: float | Sequence[tuple[float, int]],
    sampling_rate: float,
    num_steps: int = 1,
) -> DpEvent:
    """Steps of Gaussian noise, each on a new Poisson sample of the units.

    Args:
        noise_multiplier: The noise standard deviation divided by the clip; or a schedule, a list of
            pairs of a multiplier and the number of steps that it is used for.
        sampling_rate: The probability with which a unit is in a sample.
        num_steps: The number of steps; leave it out with a schedule.

    Returns:
        The event.
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
    """Steps of Gaussian noise on batches of fixed size, drawn without replacement.

    Tacit samples this way only in the subsampled Barker test. The event is here to compare the cost of
    fixed batches. It has a bound under replace only.

    Args:
        noise_multiplier: The noise standard deviation divided by the clip.
        batch_size: The number of units in a batch.
        dataset_size: The number of units.
        num_steps: The number of steps.

    Returns:
        The event.
    """
    size = _validate.count("dataset_size", dataset_size)
    batch = _validate.count("batch_size", batch_size)
    if batch > size:
        raise InvalidArgument(f"batch_size {batch} is larger than dataset_size {size}.")
    step = dp_event.SampledWithoutReplacementDpEvent(size, batch, gaussian(noise_multiplier))
    return repeat(step, num_steps)


def randomised_response(noise: float, num_categories: int) -> DpEvent:
    """Randomised response: every answer is kept, or replaced by a random category.

    Who answered is public, so there is a bound under replace only.

    Args:
        noise: The probability with which an answer is replaced by a draw from all categories.
        num_categories: The number of categories.

    Returns:
        The event.
    """
    share = _validate.rate("noise", noise)
    return dp_event.RandomizedResponseDpEvent(
        share, _validate.count("num_categories", num_categories, least=2)
    )


def repeat_and_select(event: DpEvent, mean: float, shape: float = 0.0) -> DpEvent:
    """The best of a random number of runs, by a score that is itself private.

    Args:
        event: One run, including its score.
        mean: The mean number of runs.
        shape: The distribution of their number: 0 is logarithmic, 1 geometric, infinity Poisson, and
            anything else truncated negative binomial (Papernot and Steinke 2022).

    Returns:
        The event.
    """
    if not (float(mean) >= 1):
        raise InvalidArgument(f"mean must be at least 1 run; got {mean!r}.")
    if not (float(shape) >= 0):
        raise InvalidArgument(f"shape must be 0 or more; got {shape!r}.")
    return dp_event.RepeatAndSelectDpEvent(event, float(mean), float(shape))


def compose(*events: DpEvent) -> DpEvent:
    """Several events, in any order. Each may be chosen after seeing the results of earlier ones.

    Args:
        *events: The events.

    Returns:
        The event of all of them.
    """
    for event in events:
        if not isinstance(event, DpEvent):
            raise InvalidArgument(f"compose takes events; got {type(event).__name__}.")
    if len(events) == 1:
        return events[0]
    # A tuple where dp-accounting's annotation says list: it works the same and cannot change.
    return dp_event.ComposedDpEvent(tuple(events))  # type: ignore[arg-type]


def repeat(event: DpEvent, num_steps: int) -> DpEvent:
    """The same event several times.

    Args:
        event: The event.
        num_steps: How many times it happens.

    Returns:
        The event of all of them.
    """
    times = _validate.count("num_steps", num_steps, most=MAX_STEPS)
    return event if times == 1 else dp_event.SelfComposedDpEvent(event, times)


def _check_positive(_: object, field: "attrs.Attribute[float]", value: float) -> None:
    _validate.positive(field.name, value)


def _check_count(_: object, field: "attrs.Attribute[int]", value: int) -> None:
    _validate.count(field.name, value)


@attrs.frozen(kw_only=True)
class BarkerTest(DpEvent):
    """One accept/reject decision of DP-MCMC on the full data, by the exact accept bit.

    ``ratio_bound`` bounds what one unit can add to the (tempered) log-likelihood ratio,
    by clipping or by Lemma 2 of Heikkilä et al. 2019. The bit is Bernoulli with a logit
    that a unit moves by at most ``ratio_bound`` (add-remove) or twice that (replace).
    """

    ratio_bound: float = attrs.field(validator=_check_positive)


@attrs.frozen(kw_only=True)
class GaussianBarkerTest(DpEvent):
    """The same decision by Gaussian noise plus a correction (their Theorem 1).

    ``noise_variance`` is the paper's C, below pi^2/3.
    """

    ratio_bound: float = attrs.field(validator=_check_positive)
    noise_variance: float = attrs.field(default=2.0, validator=_check_positive)

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

    batch_size: int = attrs.field(validator=_check_count)
    dataset_size: int = attrs.field(validator=_check_count)
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

    likelihood_bound: float = attrs.field(validator=_check_positive)


@attrs.frozen(kw_only=True)
class LipschitzPosteriorSample(DpEvent):
    """One exact draw where the log-likelihood is Lipschitz in a record of bounded norm.

    4LR-differentially private under replace (Wang et al. 2015); a Lipschitz constant
    says nothing about leaving a record out, so there is no bound under add-remove.
    """

    lipschitz: float = attrs.field(validator=_check_positive)
    radius: float = attrs.field(validator=_check_positive)


@attrs.frozen(kw_only=True)
class LogConcavePosteriorSample(DpEvent):
    """One exact draw from a strongly log-concave posterior (Gopi, Lee and Liu 2022).

    With a per-unit log-likelihood that is ``lipschitz`` in the parameters and a posterior
    that is ``concavity``-strongly log-concave, the draw is as private as Gaussian noise
    with mu = lipschitz / sqrt(concavity), or twice that under replace.
    """

    lipschitz: float = attrs.field(validator=_check_positive)
    concavity: float = attrs.field(validator=_check_positive)


@attrs.frozen(kw_only=True)
class Slack(DpEvent):
    """A probability with which the releases beside it differ from what their events say.

    Every accountant adds it to delta. If two mechanisms differ by a total variation distance t, a guarantee
    of one holds for the other with a delta that is larger by (1 + e^epsilon) t.
    """

    delta: float = attrs.field(validator=_check_positive)


def split_slack(event: DpEvent) -> tuple[DpEvent, float]:
    """The event without its slack, and the total slack."""
    parts = list(leaves(event))
    if not any(isinstance(leaf, Slack) for leaf, _ in parts):
        return event, 0.0
    slack = math.fsum(count * leaf.delta for leaf, count in parts if isinstance(leaf, Slack))
    rest = [repeat(leaf, count) for leaf, count in parts if not isinstance(leaf, Slack)]
    return compose(*rest) if rest else dp_event.NoOpDpEvent(), slack


def leaves(event: DpEvent, count: int = 1) -> Iterator[tuple[DpEvent, int]]:
    """The releases that ``count`` of an event consist of, and how many times each happens."""
    if isinstance(event, dp_event.SelfComposedDpEvent):
        times = _validate.count("the count of a SelfComposedDpEvent", event.count, least=0)
        yield from leaves(event.event, count * times)
    elif isinstance(event, dp_event.ComposedDpEvent):
        inner: Iterable[DpEvent] = event.events
        for part in inner:
            yield from leaves(part, count)
    elif isinstance(event, dp_event.PoissonSampledDpEvent) and event.sampling_probability == 1:
        yield from leaves(event.event, count)
    elif not isinstance(event, dp_event.NoOpDpEvent) and count > 0:
        yield event, count
