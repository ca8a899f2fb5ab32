"""The server's end: holds the posterior, asks sites by a schedule, combines answers.

The server decides how much of a round's answers is applied (`Folded`), applies it, and tells each
site with its next task; the site applies the same. An answer that did not arrive is not applied,
and the site is told so by the same message. Nor is one that no site of this run could give: other
numbers than there are, or not finite ones.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from tacit import _validate
from tacit.errors import InvalidArgument, TacitError
from tacit.federated.factor import largest_share, total
from tacit.federated.natural import Family, Vector
from tacit.federated.transport import Reply, Task, Transport

ScheduleName = Literal["synchronous", "sequential", "asynchronous"]
# What turns the replies of a round, and the posterior they are for, into its change: by default
# their sum. Noise of the server is added here. A secure aggregation goes around it: it unmasks the
# sum, and hands on one reply that holds it.
Aggregate = Callable[[Sequence[Reply], Vector], Vector]
# What has been folded in is kept by this before anything that follows from it leaves.
Keep = Callable[["Server"], None]

_LOG = logging.getLogger(__name__)
# A run ends after so many rounds in which no answer could be used.
_FRUITLESS = 3
# Larger numbers are as good as infinite: their squares are.
_MOST = 1e100


@dataclass(frozen=True, eq=False)
class Folded:
    """What became of a site's last answer that was used."""

    round: int = 0
    share: Vector = field(default_factory=lambda: np.zeros(0))


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Who is asked when. Every site is asked ``num_rounds`` times.

    ``"synchronous"``: all at once, from the same posterior, and their changes are added.
    ``"sequential"``: one after the other. ``"asynchronous"``: each answers from the posterior of
    some time ago, as sites of different speed do: each takes as long as its place in line, a
    reference for comparisons. ``group_size`` asks synchronously so many at a time, in turn.
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
                raise InvalidArgument("Groups are asked synchronously; leave schedule out.")

    def groups(self, sites: Sequence[str]) -> list[tuple[str, ...]]:
        """Who is asked together, for one round of all sites."""
        if self.kind == "synchronous" and self.group_size is None:
            return [tuple(sites)]
        size = self.group_size or 1
        return [tuple(sites[i : i + size]) for i in range(0, len(sites), size)]


@dataclass(kw_only=True)
class Server:
    """The posterior, and what the server knows of the factors.

    ``whole`` says that a round counts only if every site of it answered, as noise that is split
    over sites must. ``tracked`` says that the server sees single changes, and keeps cavities
    proper by them; otherwise all sites share the public factor, whose cavity is proper if q is.
    ``grid`` is what whole numbers of replies are multiplied by, if replies are whole numbers.
    """

    run: str
    family: Family
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
        """What to ask a site in this round."""
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
        """Applies what was answered, or the largest share that keeps everything proper.

        Returns the share of each number. Replies to other tasks than these are dropped.
        """
        share = self._folded_in(tasks, replies)
        self.trace.append(self.posterior)
        return share

    def _folded_in(self, tasks: Mapping[str, Task], replies: Mapping[str, Reply]) -> Vector:
        kept = {
            name: reply
            for name, reply in replies.items()
            if name in tasks
            and (reply.run, reply.round) == (self.run, tasks[name].round)
            and self._sound(name, reply)
        }
        if not kept or (self.whole and kept.keys() != tasks.keys()):
            return np.zeros(self.family.size)
        own = {name: reply.values for name, reply in kept.items()} if self.tracked else {}
        change = self._aggregated(list(kept.values()))
        share = largest_share(
            self.family, self.posterior, change, self._cavities(), own, self.damping
        )
        self.posterior = self.posterior + share * change
        for name, part in own.items():
            self.factors[name] = self.factors[name] + share * part
        # Where factors are shared, sites keep none of their own.
        told = share if self.tracked else np.zeros(self.family.size)
        for name, reply in kept.items():
            self.folded[name] = Folded(reply.round, told)
            self.used[name] += 1
        return share

    def _sound(self, name: str, reply: Reply) -> bool:
        """Whether a reply is one that a site with the settings of this run gives."""
        kind = "f" if self.grid is None else "i"
        sound = (
            reply.grid == self.grid
            and reply.change.shape == self.prior.shape
            and reply.change.dtype.kind == kind
            and bool(np.all(np.abs(reply.values) < _MOST))  # not so for NaN
        )
        if not sound:
            _LOG.warning(
                "%s answered with other than %d numbers of this run's kind; its answer is left out.",
                name,
                self.family.size,
            )
        return sound

    def _aggregated(self, replies: Sequence[Reply]) -> Vector:
        aggregate = self.aggregate or added_up
        change = aggregate(replies, self.posterior)
        if change.shape != self.prior.shape or not np.isfinite(change).all():
            raise InvalidArgument("A site answered with other than finite natural parameters.")
        return change

    def _cavities(self) -> dict[str, Vector]:
        if not self.tracked:
            return {}
        return {name: self.posterior - factor for name, factor in self.factors.items()}


def added_up(replies: Sequence[Reply], posterior: Vector) -> Vector:  # noqa: ARG001
    """The sum of changes; whole numbers are added as such."""
    grid = common_grid(replies)
    if len({reply.change.shape for reply in replies}) != 1:
        raise InvalidArgument("Sites answered with vectors of other sizes; their settings differ.")
    if grid is None:
        return total([reply.values for reply in replies])
    added = np.sum([reply.change for reply in replies], axis=0, dtype=np.int64)
    return np.asarray(added, np.float64) * grid


def common_grid(replies: Sequence[Reply]) -> float | None:
    """What all whole numbers are multiplied by."""
    grids = {reply.grid for reply in replies}
    if len(grids) > 1:
        raise InvalidArgument("Sites answered on different lattices; their settings differ.")
    return grids.pop()


def conduct(
    server: Server,
    transport: Transport,
    schedule: Schedule,
    progress: Callable[[int], None] | None = None,
    keep: Keep | None = None,
) -> Vector:
    """Runs a schedule to its end; the posteriors after every fold, [folds, numbers].

    A server that has folded something in already goes on from there. The run ends with an error if
    rounds go by in which no answer could be used.
    """
    if schedule.kind == "asynchronous":
        return _asynchronously(server, transport, schedule, progress)
    fruitless, groups = 0, schedule.groups(server.sites)
    for number in range(len(server.trace) // len(groups), schedule.num_rounds):
        before = sum(server.used.values())
        for group in groups[len(server.trace) - number * len(groups) :]:
            tasks = server.tasks(group)
            server.fold(tasks, transport.exchange(tasks))
            if keep is not None:
                keep(server)
        fruitless = 0 if sum(server.used.values()) > before else fruitless + 1
        if fruitless == _FRUITLESS:
            raise _stuck(fruitless, transport)
        if progress is not None:
            progress(number + 1)
    if not any(server.used.values()):
        raise _stuck(fruitless, transport)
    return np.array(server.trace)


def _stuck(rounds: int, transport: Transport) -> TacitError:
    refused = "; ".join(f"{name}: {said}" for name, said in transport.refused.items())
    why = f" Sites refused: {refused}" if refused else " Sites did not answer in time."
    return TacitError(f"No answer could be used in {rounds} rounds running.{why}")


def _asynchronously(
    server: Server,
    transport: Transport,
    schedule: Schedule,
    progress: Callable[[int], None] | None,
) -> Vector:
    """Site i takes i + 1 units of time for an answer; all begin at once.

    A site is asked when its last answer has come; the answer uses the posterior of when it was
    asked, and is folded into the posterior of when it comes.
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
