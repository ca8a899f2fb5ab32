"""The server's end: holds the posterior, asks sites by a schedule, and combines their answers.

The posterior q is the prior times one factor for each site. A factor need not be a distribution by itself: its
precision may be negative. But q must be one, and so must every cavity, which is q without the factor of one site.
If a change would make one of them improper, only the largest possible share of the change is applied.

The server decides which share of a round's answers is applied (`AppliedUpdate`), applies it, and tells each
site with its next task, so that the site applies the same. Late and invalid answers are not applied. How far
single sites move the posterior follows from what sites released and from public numbers.
"""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np

from tacit import _validate
from tacit.errors import InvalidArgument, TacitError
from tacit.federated.protocol import (
    Reply,
    Task,
    Transport,
    matching_replies,
    pack_arrays,
    unpack_arrays,
)
from tacit.models.exponential_families import ExponentialFamily, Vector, kl_divergence

ScheduleName = Literal["synchronous", "sequential", "asynchronous"]


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """The order in which sites are asked. Every site is asked ``num_rounds`` times.

    Args:
        num_rounds: How often every site is asked.
        kind: With ``"synchronous"`` all sites start from the same posterior and their changes are added.
            With ``"sequential"`` they are asked one after the other. ``"asynchronous"`` simulates
            sites of different speeds, for comparisons.
        group_size: The number of sites that are asked at a time, synchronously.
        damping: The factor that changes are multiplied by.
    """

    num_rounds: int
    kind: ScheduleName = "synchronous"
    group_size: int | None = None
    damping: float = 1.0

    def __post_init__(self) -> None:
        _validate.count("num_rounds", self.num_rounds)
        _validate.choice("schedule", self.kind, ("synchronous", "sequential", "asynchronous"))
        _validate.rate("damping", self.damping)
        if self.group_size is not None:
            _validate.count("group_size", self.group_size)
            if self.kind != "synchronous":
                raise InvalidArgument(
                    "group_size needs the synchronous schedule; leave schedule out."
                )

    def groups(self, sites: Sequence[str]) -> list[tuple[str, ...]]:
        """The groups of sites that are asked together in one round."""
        if self.kind == "synchronous" and self.group_size is None:
            return [tuple(sites)]
        size = self.group_size or 1
        return [tuple(sites[i : i + size]) for i in range(0, len(sites), size)]


def cavity(posterior: Vector, factor: Vector) -> Vector:
    """The posterior without the factor of one site."""
    return posterior - factor


def shared_factor(posterior: Vector, prior: Vector, sites: int) -> Vector:
    """The factor of each site if all contributed equally; it depends on public numbers only."""
    return (posterior - prior) / sites


def largest_share(
    family: ExponentialFamily,
    posterior: Vector,
    change: Vector,
    cavities: Mapping[str, Vector],
    own: Mapping[str, Vector],
    damping: float,
) -> Vector:
    """The largest share of a change, at most ``damping``, that keeps q and all cavities proper.

    There is a share for each entry, so that independent coordinates do not hold each other back. The proper
    vectors of a family are a convex set, so every smaller share keeps them proper as well.

    Args:
        family: The family of the posterior.
        posterior: Natural parameters of q.
        change: The change of q.
        cavities: The cavity of each site, by name.
        own: The part of the change that goes into the factor of a site, by name. It does not change the
            cavity of that site.
        damping: The largest share.

    Returns:
        The share of each entry.
    """
    steps: list[tuple[Vector, Vector]] = [(posterior, change)]
    steps += [(each, change - own.get(name, 0.0)) for name, each in cavities.items()]
    shares = [family.largest_step(eta, damping * step) for eta, step in steps]
    return damping * np.asarray(np.min(np.stack(shares), axis=0), np.float64)


def sum_changes(changes: Sequence[Vector]) -> Vector:
    """The sum of changes, in the order given."""
    return np.asarray(np.sum(np.stack(changes), axis=0), np.float64)


_INFLUENCE_LOG = logging.getLogger(__name__)
# With more sites than this, they are not compared with each other.
MAX_COMPARED_SITES = 30
# A site whose rows move the posterior by more standard deviations than this is named.
_NOTABLE_INFLUENCE = 3.0


def site_influences(
    family: ExponentialFamily, posterior: Vector, factors: Mapping[str, Vector]
) -> dict[str, float]:
    """How far a posterior would move without each factor, as a shift of so many standard deviations.

    It is the square root of twice the Kullback-Leibler divergence, which for a shift of a Gaussian is its
    length. It is infinite if the rest is no distribution.
    """

    def away(rest: Vector) -> float:
        if not family.proper(rest):
            return math.inf
        return math.sqrt(2 * max(kl_divergence(family, rest, posterior), 0.0))

    return {name: away(posterior - factor) for name, factor in factors.items()}


def influence_warnings(found: Mapping[str, float]) -> tuple[str, ...]:
    """A sentence about the site with the most influence, if that is much."""
    name = max(found, key=lambda each: found[each], default="")
    if not name or found[name] < _NOTABLE_INFLUENCE:
        return ()
    moves = (
        f"Without {name} the posterior would move by {found[name]:.1f} of its standard deviations"
    )
    return (f"{moves}; compare the sites' data, or leave it out.",)


def log_influence(number: int, found: Mapping[str, float]) -> None:
    """Logs which site moved the posterior most in a round."""
    if len(found) > 1:
        name = max(found, key=lambda each: found[each])
        _INFLUENCE_LOG.info(
            "Round %d: %s moved the posterior most, by %.1f standard deviations.",
            number,
            name,
            found[name],
        )


# Turns the replies of a round, and the posterior that they are for, into the change of the posterior. By
# default it is their sum. Noise of the server is added here.
Aggregate = Callable[[Sequence[Reply], Vector], Vector]
# Saves the state of the server after an update, before anything that depends on it leaves.
SaveState = Callable[["AnyServer"], None]

_LOG = logging.getLogger(__name__)
# A run ends after this number of consecutive rounds without a usable answer.
_MAX_EMPTY_ROUNDS = 3
# The squares of larger numbers overflow.
_MAX_NUMBER = 1e100


# The arrays of a state, in this order: kinds of numbers and dimensions.
_STATE_FIELDS = {
    "round": ("i", 0),
    "posterior": ("f", 1),
    "factors": ("f", 2),
    "folded": ("i", 1),
    "shares": ("f", 2),
    "used": ("i", 1),
    "mark": ("u", 1),
}


class AnyServer(Protocol):
    """A server's end of a run: what `run_schedule` asks of it.

    ``trace`` has a vector for every update, ``used`` the number of answers of each site that were used,
    and ``given_up`` the number of rounds that were given up because a site left.
    """

    sites: tuple[str, ...]
    trace: list[Vector]
    used: dict[str, int]
    given_up: int

    def tasks(self, sites: Sequence[str]) -> dict[str, Task]:
        """The tasks of the next round for some sites."""
        ...

    def fold(self, tasks: Mapping[str, Task], replies: Mapping[str, Reply]) -> object:
        """Applies replies; an update makes the trace longer. Without tasks, nothing was sent."""
        ...

    def packed(self) -> bytes:
        """The state after the last update."""
        ...

    def restore(self, packed: Sequence[bytes]) -> None:
        """Goes back to where a server was, by the states after all its updates."""
        ...


@dataclass(frozen=True, eq=False)
class AppliedUpdate:
    """The round of a site's last answer that was used, and the share of it that was applied."""

    round: int = 0
    share: Vector = field(default_factory=lambda: np.zeros(0))


@dataclass(kw_only=True)
class Server:
    """The posterior, and what the server knows about the factors of sites.

    Args:
        run: The name of the run.
        family: The family of the posterior.
        prior: Natural parameters of the prior.
        sites: Names of the sites.
        damping: The factor that changes are multiplied by.
        whole: Whether a round counts only if all its sites answered, as shared noise requires.
        tracked: Whether the server sees single changes, and uses them to keep cavities proper.
            Otherwise all sites share the public factor, whose cavity is proper if q is.
        aggregate: Turns replies into a change of the posterior; by default their sum.
        mark: Identifies a server that adds noise; see `tacit.federated.protocol.Task`.
        grid: The factor of replies that are whole numbers, or None.
    """

    run: str
    family: ExponentialFamily
    prior: Vector
    sites: tuple[str, ...]
    damping: float = 1.0
    whole: bool = False
    tracked: bool = True
    aggregate: Aggregate | None = None
    mark: bytes = b""
    grid: float | None = None
    posterior: Vector = field(init=False)
    factors: dict[str, Vector] = field(init=False)
    folded: dict[str, AppliedUpdate] = field(init=False)
    used: dict[str, int] = field(init=False)
    given_up: int = field(init=False, default=0)
    round: int = field(init=False, default=0)
    trace: list[Vector] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        if not self.family.proper(self.prior):
            raise InvalidArgument("The prior must be a proper distribution.")
        self.posterior = np.array(self.prior, np.float64)
        self.factors = {name: np.zeros(self.family.size) for name in self.sites}
        self.folded = {name: AppliedUpdate() for name in self.sites}
        self.used = dict.fromkeys(self.sites, 0)

    def task(self, site: str) -> Task:
        """The task of a site in this round."""
        folded = self.folded[site]
        return Task(
            run=self.run,
            round=self.round,
            posterior=self.posterior.copy(),
            folded=folded.round,
            share=folded.share,
            mark=self.mark,
        )

    def tasks(self, sites: Sequence[str]) -> dict[str, Task]:
        """The tasks of a new round for some sites."""
        self.round += 1
        return {name: self.task(name) for name in sites}

    def fold(self, tasks: Mapping[str, Task], replies: Mapping[str, Reply]) -> Vector:
        """Applies replies, or the largest share of them that keeps q and all cavities proper.

        A round in which nothing could be used does not count. The same question is asked again, and
        sites repeat their answers, which costs nothing.

        Args:
            tasks: The tasks of the round, by site.
            replies: The replies, by site. Replies to other tasks are dropped.

        Returns:
            The share of each number that was applied.
        """
        answering = matching_replies(self.run, tasks, replies)
        kept = {name: reply for name, reply in answering.items() if self._sound(name, reply)}
        if not kept or (self.whole and kept.keys() != tasks.keys()):
            if all(task.round == self.round for task in tasks.values()):
                self.round -= 1
            return np.zeros(self.family.size)
        share = self._folded_in(kept)
        self.trace.append(self.posterior)
        return share

    def _folded_in(self, kept: Mapping[str, Reply]) -> Vector:
        own = {name: reply.values for name, reply in kept.items()} if self.tracked else {}
        change = self._aggregated(list(kept.values()))
        share = largest_share(
            self.family, self.posterior, change, self._cavities(), own, self.damping
        )
        self.posterior = self.posterior + share * change
        for name, part in own.items():
            self.factors[name] = self.factors[name] + share * part
        if len(own) <= MAX_COMPARED_SITES:
            parts = {name: share * part for name, part in own.items()}
            log_influence(self.round, site_influences(self.family, self.posterior, parts))
        # Where the factor is shared, sites keep none of their own.
        told = share if self.tracked else np.zeros(self.family.size)
        for name, reply in kept.items():
            self.folded[name] = AppliedUpdate(reply.round, told)
            self.used[name] += 1
        return share

    def _sound(self, name: str, reply: Reply) -> bool:
        """Whether a reply has the shape and type of this run, and is finite."""
        kind = "f" if self.grid is None else "i"
        sound = (
            reply.grid == self.grid
            and reply.change.shape == self.prior.shape
            and reply.change.dtype.kind == kind
            and bool(np.all(np.abs(reply.values) < _MAX_NUMBER))  # not so for NaN
        )
        if not sound:
            _LOG.warning(
                "%s did not answer with %d numbers of the expected type; its answer is left out.",
                name,
                self.family.size,
            )
        return sound

    def _aggregated(self, replies: Sequence[Reply]) -> Vector:
        aggregate = self.aggregate or sum_replies
        change = aggregate(replies, self.posterior)
        if change.shape != self.prior.shape or not np.isfinite(change).all():
            raise InvalidArgument("The sum of the answers is not finite, or has the wrong shape.")
        return change

    def influence(self) -> dict[str, float]:
        """How far the posterior would move without each site, in standard deviations.

        Nothing is known if only the sum of answers is.
        """
        known = self.tracked and 1 < len(self.sites) <= MAX_COMPARED_SITES
        return site_influences(self.family, self.posterior, self.factors) if known else {}

    def without(self, sites: Sequence[str]) -> Vector:
        """The posterior without some sites: divided by their factors."""
        if not self.tracked:
            raise InvalidArgument("Only the sum of answers is known.")
        rest = self.posterior - sum_changes([self.factors[name] for name in sites])
        if not self.family.proper(rest):
            raise TacitError("Without these sites the posterior is not a distribution.")
        return rest

    def packed(self) -> bytes:
        """The state as bytes."""
        folded = [self.folded[name] for name in self.sites]
        shares = [each.share if len(each.share) else np.zeros(self.family.size) for each in folded]
        return pack_arrays(
            np.int64(self.round),
            self.posterior,
            np.stack([self.factors[name] for name in self.sites]),
            np.array([each.round for each in folded], np.int64),
            np.stack(shares),
            np.array([self.used[name] for name in self.sites], np.int64),
            np.frombuffer(self.mark, np.uint8),
        )

    def restore(self, packed: Sequence[bytes]) -> None:
        """Goes back to where a server was, by the states after all its updates."""
        states = [unpack_arrays(each, **_STATE_FIELDS) for each in packed]
        held = states[-1]
        if held["factors"].shape != (len(self.sites), self.family.size):
            raise TacitError("The stored state is of other sites, or of another model.")
        self.round, self.posterior = int(held["round"]), held["posterior"]
        self.mark = held["mark"].tobytes()
        for i, name in enumerate(self.sites):
            number = int(held["folded"][i])
            self.factors[name] = held["factors"][i]
            self.folded[name] = (
                AppliedUpdate(number, held["shares"][i]) if number else AppliedUpdate()
            )
            self.used[name] = int(held["used"][i])
        self.trace = [each["posterior"] for each in states[1:]]

    def _cavities(self) -> dict[str, Vector]:
        if not self.tracked:
            return {}
        return {name: self.posterior - factor for name, factor in self.factors.items()}


def sum_replies(replies: Sequence[Reply], posterior: Vector) -> Vector:  # noqa: ARG001
    """The sum of changes; whole numbers are added exactly."""
    grid = common_grid(replies)
    if len({reply.change.shape for reply in replies}) != 1:
        raise InvalidArgument(
            "Sites answered with vectors of different sizes; their settings differ."
        )
    if grid is None:
        return sum_changes([reply.values for reply in replies])
    added = np.sum([reply.change for reply in replies], axis=0, dtype=np.int64)
    return np.asarray(added, np.float64) * grid


def common_grid(replies: Sequence[Reply]) -> float | None:
    """The factor of whole numbers, which must be the same for all replies."""
    grids = {reply.grid for reply in replies}
    if len(grids) > 1:
        raise InvalidArgument("Sites answered on different lattices; their settings differ.")
    return grids.pop()


def run_schedule(
    server: AnyServer,
    transport: Transport,
    schedule: Schedule,
    progress: Callable[[int], None] | None = None,
    keep: SaveState | None = None,
) -> Vector:
    """Runs a schedule to its end. A server with a restored state continues from there.

    Args:
        server: The server.
        transport: Carries tasks and replies.
        schedule: The order in which sites are asked.
        progress: Is called with the number of rounds done.
        keep: Saves the server's state, after every update and when a round was given up.

    Returns:
        Posteriors after every update, [updates, numbers].

    Raises:
        TacitError: If no answer could be used in several consecutive rounds.
    """
    if schedule.kind == "asynchronous":
        return _run_asynchronous(server, transport, schedule, progress)
    fruitless, groups = 0, schedule.groups(server.sites)
    most = _MAX_EMPTY_ROUNDS * len(groups)
    while (done := len(server.trace)) < schedule.num_rounds * len(groups):
        before, given_up = sum(server.used.values()), server.given_up
        tasks = server.tasks(groups[done % len(groups)])
        replies = transport.exchange(tasks)
        server.fold(tasks if transport.sent else {}, replies)
        updated, goes_on = len(server.trace) > done, server.given_up > given_up
        if keep is not None and (updated or goes_on):
            keep(server)
        useful = goes_on or sum(server.used.values()) > before
        fruitless = 0 if useful else fruitless + 1
        if fruitless == most:
            raise _no_answers_error(_MAX_EMPTY_ROUNDS, transport)
        if progress is not None and updated and len(server.trace) % len(groups) == 0:
            progress(len(server.trace) // len(groups))
    return np.array(server.trace)


def _no_answers_error(rounds: int, transport: Transport) -> TacitError:
    """The error of a run in which no answer could be used."""
    refused = "; ".join(f"{name}: {said}" for name, said in transport.refused.items())
    why = f" Sites refused: {refused}" if refused else " Sites did not answer in time."
    return TacitError(f"No answer could be used in {rounds} consecutive rounds.{why}")


def _run_asynchronous(
    server: AnyServer,
    transport: Transport,
    schedule: Schedule,
    progress: Callable[[int], None] | None,
) -> Vector:
    """Runs the asynchronous schedule: site i takes i + 1 units of time for an answer.

    All sites start at once. A site is asked again when its answer has arrived. An answer uses the
    posterior of when the site was asked, and is applied to the posterior of when it arrives.
    """
    waiting = {name: (i + 1, i, server.tasks([name])) for i, name in enumerate(server.sites)}
    left = dict.fromkeys(server.sites, schedule.num_rounds)
    while waiting:
        name = min(waiting, key=lambda each: waiting[each][:2])
        due, place, tasks = waiting.pop(name)
        server.fold(tasks, transport.exchange(tasks))
        left[name] -= 1
        if left[name]:
            waiting[name] = (due + place + 1, place, server.tasks([name]))
        if progress is not None and len(server.trace) % len(server.sites) == 0:
            progress(len(server.trace) // len(server.sites))
    return np.array(server.trace)
