"""The server's end: holds the posterior, asks sites by a schedule, and combines their answers.

The server decides which share of a round's answers is applied (`Folded`), applies it, and tells each
site with its next task, so that the site applies the same. Late and invalid answers are not applied.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from tacit.errors import InvalidArgument, TacitError
from tacit.federated.arrays import read, written
from tacit.federated.factor import largest_share, total
from tacit.federated.influence import MOST_COMPARED, influences, tell
from tacit.federated.schedule import Schedule
from tacit.federated.transport import Reply, Task, Transport, replies_to
from tacit.models.natural import ExponentialFamily, Vector

# Turns the replies of a round, and the posterior that they are for, into the change of the posterior. By
# default it is their sum. Noise of the server is added here.
Aggregate = Callable[[Sequence[Reply], Vector], Vector]
# Saves the state of the server after an update, before anything that depends on it leaves.
Keep = Callable[["AnyServer"], None]

_LOG = logging.getLogger(__name__)
# A run ends after this number of consecutive rounds without a usable answer.
_FRUITLESS = 3
# The squares of larger numbers overflow.
_MOST = 1e100


# The arrays of a state, in this order: kinds of numbers and dimensions.
_KINDS = {
    "round": ("i", 0),
    "posterior": ("f", 1),
    "factors": ("f", 2),
    "folded": ("i", 1),
    "shares": ("f", 2),
    "used": ("i", 1),
    "mark": ("u", 1),
}


class AnyServer(Protocol):
    """A server's end of a run: what `conduct` asks of it.

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
class Folded:
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
        mark: Identifies a server that adds noise; see `tacit.federated.transport.Task`.
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
    folded: dict[str, Folded] = field(init=False)
    used: dict[str, int] = field(init=False)
    given_up: int = field(init=False, default=0)
    round: int = field(init=False, default=0)
    trace: list[Vector] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        if not self.family.proper(self.prior):
            raise InvalidArgument("The prior must be a proper distribution.")
        self.posterior = np.array(self.prior, np.float64)
        self.factors = {name: np.zeros(self.family.size) for name in self.sites}
        self.folded = {name: Folded() for name in self.sites}
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
        answering = replies_to(self.run, tasks, replies)
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
        if len(own) <= MOST_COMPARED:
            parts = {name: share * part for name, part in own.items()}
            tell(self.round, influences(self.family, self.posterior, parts))
        # Where the factor is shared, sites keep none of their own.
        told = share if self.tracked else np.zeros(self.family.size)
        for name, reply in kept.items():
            self.folded[name] = Folded(reply.round, told)
            self.used[name] += 1
        return share

    def _sound(self, name: str, reply: Reply) -> bool:
        """Whether a reply has the shape and type of this run, and is finite."""
        kind = "f" if self.grid is None else "i"
        sound = (
            reply.grid == self.grid
            and reply.change.shape == self.prior.shape
            and reply.change.dtype.kind == kind
            and bool(np.all(np.abs(reply.values) < _MOST))  # not so for NaN
        )
        if not sound:
            _LOG.warning(
                "%s did not answer with %d numbers of the expected type; its answer is left out.",
                name,
                self.family.size,
            )
        return sound

    def _aggregated(self, replies: Sequence[Reply]) -> Vector:
        aggregate = self.aggregate or added_up
        change = aggregate(replies, self.posterior)
        if change.shape != self.prior.shape or not np.isfinite(change).all():
            raise InvalidArgument("The sum of the answers is not finite, or has the wrong shape.")
        return change

    def influence(self) -> dict[str, float]:
        """How far the posterior would move without each site, in standard deviations.

        Nothing is known if only the sum of answers is.
        """
        known = self.tracked and 1 < len(self.sites) <= MOST_COMPARED
        return influences(self.family, self.posterior, self.factors) if known else {}

    def without(self, sites: Sequence[str]) -> Vector:
        """The posterior without some sites: divided by their factors."""
        if not self.tracked:
            raise InvalidArgument("Only the sum of answers is known.")
        rest = self.posterior - total([self.factors[name] for name in sites])
        if not self.family.proper(rest):
            raise TacitError("Without these sites the posterior is not a distribution.")
        return rest

    def packed(self) -> bytes:
        """The state as bytes."""
        folded = [self.folded[name] for name in self.sites]
        shares = [each.share if len(each.share) else np.zeros(self.family.size) for each in folded]
        return written(
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
        states = [read(each, **_KINDS) for each in packed]
        held = states[-1]
        if held["factors"].shape != (len(self.sites), self.family.size):
            raise TacitError("The stored state is of other sites, or of another model.")
        self.round, self.posterior = int(held["round"]), held["posterior"]
        self.mark = held["mark"].tobytes()
        for i, name in enumerate(self.sites):
            number = int(held["folded"][i])
            self.factors[name] = held["factors"][i]
            self.folded[name] = Folded(number, held["shares"][i]) if number else Folded()
            self.used[name] = int(held["used"][i])
        self.trace = [each["posterior"] for each in states[1:]]

    def _cavities(self) -> dict[str, Vector]:
        if not self.tracked:
            return {}
        return {name: self.posterior - factor for name, factor in self.factors.items()}


def added_up(replies: Sequence[Reply], posterior: Vector) -> Vector:  # noqa: ARG001
    """The sum of changes; whole numbers are added exactly."""
    grid = common_grid(replies)
    if len({reply.change.shape for reply in replies}) != 1:
        raise InvalidArgument(
            "Sites answered with vectors of different sizes; their settings differ."
        )
    if grid is None:
        return total([reply.values for reply in replies])
    added = np.sum([reply.change for reply in replies], axis=0, dtype=np.int64)
    return np.asarray(added, np.float64) * grid


def common_grid(replies: Sequence[Reply]) -> float | None:
    """The factor of whole numbers, which must be the same for all replies."""
    grids = {reply.grid for reply in replies}
    if len(grids) > 1:
        raise InvalidArgument("Sites answered on different lattices; their settings differ.")
    return grids.pop()


def conduct(
    server: AnyServer,
    transport: Transport,
    schedule: Schedule,
    progress: Callable[[int], None] | None = None,
    keep: Keep | None = None,
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
        return _asynchronously(server, transport, schedule, progress)
    fruitless, groups = 0, schedule.groups(server.sites)
    most = _FRUITLESS * len(groups)
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
            raise _stuck(_FRUITLESS, transport)
        if progress is not None and updated and len(server.trace) % len(groups) == 0:
            progress(len(server.trace) // len(groups))
    return np.array(server.trace)


def _stuck(rounds: int, transport: Transport) -> TacitError:
    """The error of a run in which no answer could be used."""
    refused = "; ".join(f"{name}: {said}" for name, said in transport.refused.items())
    why = f" Sites refused: {refused}" if refused else " Sites did not answer in time."
    return TacitError(f"No answer could be used in {rounds} consecutive rounds.{why}")


def _asynchronously(
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
