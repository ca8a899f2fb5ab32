"""Privacy events: what a run does to the data, as frozen values.

An event lists the releases of a run with their parameters, all of which are public. An accountant computes its
privacy cost. `noise_multiplier` is always the noise standard deviation divided by the clip, the bound on one unit's
contribution. How much a change of one unit then matters under add-remove or replace is worked out by the accountant.

Classes whose names end in ``DpEvent`` have the names and fields of Google's dp-accounting, the exchange format of
the field; `to_dp_event` and `from_dp_event` convert from one to the other. The other classes have no counterpart there.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from types import ModuleType
from typing import TYPE_CHECKING

from tacit import _validate
from tacit.errors import InvalidArgument, MissingPackage, UnsupportedEvent

if TYPE_CHECKING:
    from dp_accounting import dp_event

MAX_STEPS = 10**9  # of a run; with more, numbers would overflow


@dataclass(frozen=True)
class DpEvent:
    """Base class of events."""


@dataclass(frozen=True)
class NoOpDpEvent(DpEvent):
    """Nothing is done to the data."""


@dataclass(frozen=True)
class NonPrivateDpEvent(DpEvent):
    """A release without any guarantee: its epsilon is infinite."""


@dataclass(frozen=True)
class GaussianDpEvent(DpEvent):
    """A sum over all units of vectors clipped in the 2-norm, with Gaussian noise."""

    noise_multiplier: float

    def __post_init__(self) -> None:
        _validate.convert_fields(self, noise_multiplier=_validate.positive)


@dataclass(frozen=True)
class LaplaceDpEvent(DpEvent):
    """A sum over all units of vectors clipped in the 1-norm, with Laplace noise."""

    noise_multiplier: float

    def __post_init__(self) -> None:
        _validate.convert_fields(self, noise_multiplier=_validate.positive)


@dataclass(frozen=True)
class RandomizedResponseDpEvent(DpEvent):
    """Every answer is replaced, with probability ``noise_parameter``, by a draw from all categories."""

    noise_parameter: float
    num_buckets: int

    def __post_init__(self) -> None:
        _validate.convert_fields(
            self,
            noise_parameter=_validate.rate,
            num_buckets=lambda name, value: _validate.count(name, value, least=2),
        )


@dataclass(frozen=True)
class PoissonSampledDpEvent(DpEvent):
    """An event on a Poisson sample, in which each unit is with the same probability."""

    sampling_probability: float
    event: DpEvent

    def __post_init__(self) -> None:
        _validate.convert_fields(self, sampling_probability=_validate.rate, event=_check_event)


@dataclass(frozen=True)
class SampledWithoutReplacementDpEvent(DpEvent):
    """An event on a batch of fixed size, drawn without replacement."""

    source_dataset_size: int
    sample_size: int
    event: DpEvent

    def __post_init__(self) -> None:
        _validate.convert_fields(
            self,
            source_dataset_size=_validate.count,
            sample_size=_validate.count,
            event=_check_event,
        )
        _check_batch(self.sample_size, self.source_dataset_size)


@dataclass(frozen=True)
class TruncatedSubsampledGaussianDpEvent(DpEvent):
    """Gaussian noise on a Poisson sample that is cut to a largest size.

    Tacit never draws such batches. The event is here to compare their cost, which dp-accounting computes.
    """

    dataset_size: int
    sampling_probability: float
    truncated_batch_size: int
    noise_multiplier: float

    def __post_init__(self) -> None:
        _validate.convert_fields(
            self,
            dataset_size=_validate.count,
            sampling_probability=_validate.rate,
            truncated_batch_size=_validate.count,
            noise_multiplier=_validate.positive,
        )


@dataclass(frozen=True)
class RepeatAndSelectDpEvent(DpEvent):
    """The best of a random number of runs, by a score that is itself private."""

    event: DpEvent
    mean: float
    shape: float

    def __post_init__(self) -> None:
        _validate.convert_fields(
            self, event=_check_event, mean=_validate.real, shape=_validate.real
        )
        if not (1 <= self.mean < math.inf):
            raise InvalidArgument(f"mean must be at least 1 run; got {self.mean!r}.")
        if not (self.shape >= 0):
            raise InvalidArgument(f"shape must be 0 or more; got {self.shape!r}.")


@dataclass(frozen=True)
class SelfComposedDpEvent(DpEvent):
    """The same event several times."""

    event: DpEvent
    count: int

    def __post_init__(self) -> None:
        _validate.convert_fields(
            self,
            event=_check_event,
            count=lambda name, value: _validate.count(name, value, least=0),
        )


@dataclass(frozen=True)
class ComposedDpEvent(DpEvent):
    """Several events, each of which may be chosen after seeing the results of earlier ones."""

    events: tuple[DpEvent, ...]

    def __post_init__(self) -> None:
        _validate.convert_fields(self, events=_check_events)


@dataclass(frozen=True, kw_only=True)
class BarkerTest(DpEvent):
    """One accept/reject decision of DP-MCMC on the full data, by the exact accept bit.

    ``ratio_bound`` bounds what one unit can add to the (tempered) log-likelihood ratio,
    by clipping or by Lemma 2 of Heikkilä et al. 2019. The bit is Bernoulli with a logit
    that a unit moves by at most ``ratio_bound`` (add-remove) or twice that (replace).
    """

    ratio_bound: float

    def __post_init__(self) -> None:
        _validate.convert_fields(self, ratio_bound=_validate.positive)


@dataclass(frozen=True, kw_only=True)
class GaussianBarkerTest(DpEvent):
    """The same decision by Gaussian noise plus a correction (their Theorem 1).

    ``noise_variance`` is the paper's C, below pi^2/3.
    """

    ratio_bound: float
    noise_variance: float = 2.0

    def __post_init__(self) -> None:
        _validate.convert_fields(
            self, ratio_bound=_validate.positive, noise_variance=_validate.positive
        )
        if not (self.noise_variance < math.pi**2 / 3):
            raise InvalidArgument(
                "noise_variance must be below pi^2/3, the variance of the logistic "
                f"distribution; got {self.noise_variance!r}."
            )


@dataclass(frozen=True, kw_only=True)
class SubsampledBarkerTest(DpEvent):
    """The decision on a fixed-size batch without replacement (their Theorem 2, C = 2).

    Log-likelihood ratios are clipped to sqrt(batch_size) / N0. The bound is the one proved
    at `renyi.barker_divergence`, or with ``paper_bound`` the paper's looser eq. (21). Only
    replace has a bound.
    """

    batch_size: int
    dataset_size: int
    paper_bound: bool = False

    def __post_init__(self) -> None:
        _validate.convert_fields(self, batch_size=_validate.count, dataset_size=_validate.count)
        _check_batch(self.batch_size, self.dataset_size)


@dataclass(frozen=True, kw_only=True)
class BoundedPosteriorSample(DpEvent):
    """One exact draw from a posterior with |log-likelihood| of a unit at most a bound.

    4B-differentially private under replace, 2B under add-remove (Wang et al. 2015).
    """

    likelihood_bound: float

    def __post_init__(self) -> None:
        _validate.convert_fields(self, likelihood_bound=_validate.positive)


@dataclass(frozen=True, kw_only=True)
class LipschitzPosteriorSample(DpEvent):
    """One exact draw where the log-likelihood is Lipschitz in a record of bounded norm.

    4LR-differentially private under replace (Wang et al. 2015); a Lipschitz constant
    says nothing about leaving a record out, so there is no bound under add-remove.
    """

    lipschitz: float
    radius: float

    def __post_init__(self) -> None:
        _validate.convert_fields(self, lipschitz=_validate.positive, radius=_validate.positive)


@dataclass(frozen=True, kw_only=True)
class LogConcavePosteriorSample(DpEvent):
    """One exact draw from a strongly log-concave posterior (Gopi, Lee and Liu 2022).

    With a per-unit log-likelihood that is ``lipschitz`` in the parameters and a posterior
    that is ``concavity``-strongly log-concave, the draw is as private as Gaussian noise
    with mu = lipschitz / sqrt(concavity), or twice that under replace.
    """

    lipschitz: float
    concavity: float

    def __post_init__(self) -> None:
        _validate.convert_fields(self, lipschitz=_validate.positive, concavity=_validate.positive)


@dataclass(frozen=True, kw_only=True)
class Slack(DpEvent):
    """A probability with which the releases beside it differ from what their events say.

    Every accountant adds it to delta. If two mechanisms differ by a total variation distance t, a guarantee
    of one holds for the other with a delta that is larger by (1 + e^epsilon) t.
    """

    delta: float

    def __post_init__(self) -> None:
        _validate.convert_fields(self, delta=_validate.positive)


def gaussian(noise_multiplier: float) -> DpEvent:
    """A sum over all units of vectors clipped in the 2-norm, with Gaussian noise.

    Args:
        noise_multiplier: The noise standard deviation divided by the clip.

    Returns:
        The event.
    """
    return GaussianDpEvent(noise_multiplier)


def laplace(noise_multiplier: float) -> DpEvent:
    """A sum over all units of vectors clipped in the 1-norm, with Laplace noise.

    Args:
        noise_multiplier: The scale of the noise divided by the clip.

    Returns:
        The event.
    """
    return LaplaceDpEvent(noise_multiplier)


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
        step = PoissonSampledDpEvent(rate, step)
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
    step = SampledWithoutReplacementDpEvent(size, batch, gaussian(noise_multiplier))
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
    return RandomizedResponseDpEvent(
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
    return RepeatAndSelectDpEvent(event, mean, shape)


def compose(*events: DpEvent) -> DpEvent:
    """Several events, in any order. Each may be chosen after seeing the results of earlier ones.

    Args:
        *events: The events.

    Returns:
        The event of all of them.
    """
    composed = ComposedDpEvent(events)
    return events[0] if len(events) == 1 else composed


def repeat(event: DpEvent, num_steps: int) -> DpEvent:
    """The same event several times.

    Args:
        event: The event.
        num_steps: How many times it happens.

    Returns:
        The event of all of them.
    """
    times = _validate.count("num_steps", num_steps, most=MAX_STEPS)
    return event if times == 1 else SelfComposedDpEvent(event, times)


def split_slack(event: DpEvent) -> tuple[DpEvent, float]:
    """The event without its slack, and the total slack."""
    parts = list(leaves(event))
    if not any(isinstance(leaf, Slack) for leaf, _ in parts):
        return event, 0.0
    slack = math.fsum(count * leaf.delta for leaf, count in parts if isinstance(leaf, Slack))
    rest = [repeat(leaf, count) for leaf, count in parts if not isinstance(leaf, Slack)]
    return compose(*rest) if rest else NoOpDpEvent(), slack


def leaves(event: DpEvent, count: int = 1) -> Iterator[tuple[DpEvent, int]]:
    """The releases that ``count`` of an event consist of, and how many times each happens."""
    if isinstance(event, SelfComposedDpEvent):
        yield from leaves(event.event, count * event.count)
    elif isinstance(event, ComposedDpEvent):
        for part in event.events:
            yield from leaves(part, count)
    elif isinstance(event, PoissonSampledDpEvent) and event.sampling_probability == 1:
        yield from leaves(event.event, count)
    elif not isinstance(event, NoOpDpEvent) and count > 0:
        yield event, count


def to_dict(event: DpEvent) -> dict[str, object]:
    """An event as nested dictionaries that JSON can hold, so that a saved statement can be checked later.

    Examples:
        >>> to_dict(sampled_gaussian(2.0, 0.5))["event"]
        {'kind': 'GaussianDpEvent', 'noise_multiplier': 2.0}
    """

    def plain(value: object) -> object:
        if isinstance(value, DpEvent):
            return to_dict(value)
        if isinstance(value, tuple):
            return [plain(each) for each in value]
        is_infinite = isinstance(value, float) and math.isinf(value)  # which JSON does not have
        return str(value) if is_infinite else value

    return {"kind": type(event).__name__} | {
        field.name: plain(getattr(event, field.name)) for field in fields(event)
    }


def from_dict(data: Mapping[str, object]) -> DpEvent:
    """The event that `to_dict` wrote."""

    def restore(value: object) -> object:
        if isinstance(value, dict):
            return from_dict(value)
        if isinstance(value, list):
            return tuple(restore(each) for each in value)
        return float(value) if isinstance(value, str) else value

    try:
        values = {name: restore(value) for name, value in data.items() if name != "kind"}
        return _EVENTS[str(data["kind"])](**values)
    except (AttributeError, KeyError, TypeError) as error:
        raise InvalidArgument(
            f"This version of Tacit does not know this event: {error!r}."
        ) from error


def to_dp_event(event: DpEvent) -> "dp_event.DpEvent":
    """The same event as an object of dp-accounting, for its accountants.

    Args:
        event: The event.

    Returns:
        The event of dp-accounting.

    Raises:
        UnsupportedEvent: If dp-accounting has no such event.
        MissingPackage: If dp-accounting is not installed.
    """
    kind: type[dp_event.DpEvent] | None = getattr(_dp_event_module(), type(event).__name__, None)
    if kind is None:
        raise UnsupportedEvent(f"dp-accounting has no event like {type(event).__name__}.")

    def convert(value: object) -> object:
        if isinstance(value, tuple):
            return [convert(each) for each in value]
        return to_dp_event(value) if isinstance(value, DpEvent) else value

    return kind(**{field.name: convert(getattr(event, field.name)) for field in fields(event)})


def from_dp_event(event: "dp_event.DpEvent") -> DpEvent:
    """The event that an object of dp-accounting describes.

    Args:
        event: The event of dp-accounting.

    Returns:
        The same event, for the accountants of Tacit.

    Raises:
        UnsupportedEvent: If Tacit has no such event.
        InvalidArgument: If it is not an event of dp-accounting, or has values that no release has.
        MissingPackage: If dp-accounting is not installed.
    """
    theirs = _dp_event_module()
    if not isinstance(event, theirs.DpEvent):
        raise InvalidArgument(f"Pass an event of dp-accounting; got {type(event).__name__}.")
    kind = _EVENTS.get(type(event).__name__)
    if kind is None or type(event).__module__ != theirs.__name__:
        raise UnsupportedEvent(f"Tacit has no event like {type(event).__name__} of dp-accounting.")

    def convert(value: object) -> object:
        if isinstance(value, list | tuple):
            return tuple(convert(each) for each in value)
        return from_dp_event(value) if isinstance(value, theirs.DpEvent) else value

    return kind(**{field.name: convert(getattr(event, field.name)) for field in fields(kind)})


def _dp_event_module() -> ModuleType:
    try:
        from dp_accounting import dp_event
    except ModuleNotFoundError:
        raise MissingPackage("dp_accounting", "An event of dp-accounting") from None
    return dp_event


def _check_event(name: str, value: object) -> DpEvent:
    if not isinstance(value, DpEvent):
        raise InvalidArgument(
            f"{name} must be an event of tacit.accounting.events; got {type(value).__name__}. "
            "Convert an event of dp-accounting with from_dp_event."
        )
    return value


def _check_events(name: str, values: object) -> tuple[DpEvent, ...]:
    if not isinstance(values, Sequence):
        raise InvalidArgument(f"{name} must be a list of events; got {type(values).__name__}.")
    return tuple(_check_event(name, each) for each in values)


def _check_batch(batch_size: int, dataset_size: int) -> None:
    if batch_size > dataset_size:
        raise InvalidArgument(
            f"batch_size {batch_size} is larger than dataset_size {dataset_size}."
        )


_EVENTS: dict[str, type[DpEvent]] = {kind.__name__: kind for kind in DpEvent.__subclasses__()}
