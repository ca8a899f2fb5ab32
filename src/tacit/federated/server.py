"""The server's end of a run: rounds, which answers count, and what sites learn about them.

`Server` is the part that all methods share. It asks sites by a schedule, leaves late and invalid answers out, and
tells each site with its next task which of its answers was applied (`AppliedUpdate`), so that the site applies the
same. A method adds an update rule: what is asked, and what follows from the answers. There are two, of partitioned
variational inference (`tacit.federated.pvi`) and of pooled scoring (`tacit.federated.pooled`).
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from tacit import _validate
from tacit._typing import Floats
from tacit.errors import InvalidArgument, TacitError
from tacit.federated.protocol import (
    Arrays,
    Reply,
    Task,
    Transport,
    matching_replies,
    pack_arrays,
    unpack_arrays,
)

# Saves the state of the server after an update, before anything that depends on it leaves.
SaveState = Callable[["Server"], None]
ScheduleName = Literal["synchronous", "sequential"]

_LOG = logging.getLogger(__name__)
# A run ends after this number of consecutive rounds without a usable answer.
_MAX_EMPTY_ROUNDS = 3
# A site is notable if the posterior would move by so many of its standard deviations without it, and by so many times
# what chance moves it: without the largest site, a posterior moves far in any case.
_NOTABLE_INFLUENCE, _NOTABLE_RATIO, _MAX_NAMED = 3.0, 4.0, 3
# The arrays of a state that all update rules have: kinds of numbers and dimensions.
_STATE_FIELDS = {
    "round": ("i", 0),
    "abandoned": ("i", 0),
    "applied": ("i", 1),
    "shares": ("f", 2),
    "used": ("i", 1),
    "mark": ("u", 1),
}


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """The order in which sites are asked. Every site is asked ``num_rounds`` times.

    Args:
        num_rounds: How often every site is asked.
        kind: With ``"synchronous"`` all sites start from the same posterior and their changes are added.
            With ``"sequential"`` they are asked one after the other.
        group_size: The number of sites that are asked at a time, synchronously.
        damping: The factor that changes are multiplied by.
    """

    num_rounds: int
    kind: ScheduleName = "synchronous"
    group_size: int | None = None
    damping: float = 1.0

    def __post_init__(self) -> None:
        _validate.count("num_rounds", self.num_rounds)
        _validate.choice("schedule", self.kind, ("synchronous", "sequential"))
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


@dataclass(frozen=True, eq=False)
class AppliedUpdate:
    """The round of a site's last answer that was used, and the share of each number that was applied.

    The share is empty where sites keep no factor of their own.
    """

    round: int = 0
    share: Floats = field(default_factory=lambda: np.zeros(0))


@dataclass(kw_only=True)
class Server(ABC):
    """What every server of a run knows and does; subclasses are update rules.

    ``round`` is the number of the last round that was asked. ``applied`` has the last answer of each site that
    was used, ``used`` how many were, ``trace`` a vector for every update, and ``abandoned`` the number of rounds that
    were given up because a site left.

    Args:
        run: The name of the run.
        sites: Names of the sites.
        needs_all_sites: Whether a round counts only if all its sites answered, as shared noise requires.
        dropouts: How many sites may be missing from such a round.
        spare_rounds: How many rounds may be given up because a site left in the middle.
        grid: The factor of replies that are whole numbers, or None.
        mark: Identifies a server that adds noise; see `tacit.federated.protocol.Task`.
    """

    run: str
    sites: tuple[str, ...]
    needs_all_sites: bool = False
    dropouts: int = 0
    spare_rounds: int = 0
    grid: float | None = None
    mark: bytes = b""
    round: int = field(init=False, default=0)
    abandoned: int = field(init=False, default=0)
    applied: dict[str, AppliedUpdate] = field(init=False)
    used: dict[str, int] = field(init=False)
    trace: list[Floats] = field(init=False, default_factory=list)

    # The arrays of a state that only this update rule has.
    rule_fields: ClassVar[Mapping[str, tuple[str, int]]]

    def __post_init__(self) -> None:
        self.applied = {name: AppliedUpdate() for name in self.sites}
        self.used = dict.fromkeys(self.sites, 0)
        self._empty_rounds = 0

    @property
    @abstractmethod
    def query(self) -> Floats:
        """The vector that every site is sent in the next round."""

    @property
    @abstractmethod
    def answer_size(self) -> int:
        """Length of an answer."""

    @property
    @abstractmethod
    def position(self) -> Floats:
        """Where the fit is: the entry of the trace after an update."""

    @abstractmethod
    def is_possible(self, name: str, values: Floats) -> bool:
        """Whether a site can have answered with these numbers."""

    @abstractmethod
    def update(self, replies: Mapping[str, Reply]) -> Floats | None:
        """Goes on by the answers of a round.

        Returns:
            The share of each number that a site applies to its own factor; empty where sites keep none. None
            if the answers cannot be used.
        """

    @abstractmethod
    def influence(self) -> dict[str, "Influence"]:
        """How far the posterior would move without each site."""

    @abstractmethod
    def rule_state(self) -> Sequence[Floats | np.integer | np.ndarray]:
        """The arrays of ``rule_fields`` after the last update."""

    @abstractmethod
    def restore_rule(self, state: Arrays) -> None:
        """Goes on by the arrays of one update, in the order in which the updates were made."""

    def task(self, site: str) -> Task:
        """The task of a site in this round."""
        applied = self.applied[site]
        return Task(
            run=self.run,
            round=self.round,
            posterior=self.query.copy(),
            applied_round=applied.round,
            applied_share=applied.share,
            mark=self.mark,
        )

    def tasks(self, sites: Sequence[str]) -> dict[str, Task]:
        """The tasks of the next round for some sites; of the same one again, if it did not count."""
        self.round += 1
        return {name: self.task(name) for name in sites}

    def apply_replies(self, tasks: Mapping[str, Task], replies: Mapping[str, Reply]) -> bool:
        """Applies the replies of a round by the update rule, if they can be used.

        A round in which nothing could be used does not count. The same question is asked again, and sites
        repeat their answers, which costs nothing; or the round is given up.

        Args:
            tasks: The tasks of the round, by site. Empty if no task was sent.
            replies: The replies, by site. Replies to other tasks are dropped.

        Returns:
            Whether there was an update, which makes the trace longer.
        """
        matching = matching_replies(self.run, tasks, replies)
        valid = {name: reply for name, reply in matching.items() if self._is_valid(name, reply)}
        complete = bool(valid) and (not self.needs_all_sites or self._masks_cancel(tasks, valid))
        share = self.update(valid) if complete else None
        if share is not None:
            for name, reply in valid.items():
                self.applied[name] = AppliedUpdate(reply.round, share)
                self.used[name] += 1
            self._empty_rounds = 0
            self.trace.append(self.position)
            return True
        abandoned = bool(tasks) and not complete and self._abandons(matching)
        if not abandoned and all(task.round == self.round for task in tasks.values()):
            self.round -= 1
        return False

    def _is_valid(self, name: str, reply: Reply) -> bool:
        """Whether a reply has the shape and type of this run, and can be what a site answers."""
        valid = (
            reply.grid == self.grid
            and reply.change.shape == (self.answer_size,)
            and reply.change.dtype.kind == ("f" if self.grid is None else "i")
            and self.is_possible(name, reply.values)
        )
        if not valid:
            _LOG.warning(
                "The answer of %s is not of the expected form, or no site can have computed it; it is left "
                "out.",
                name,
            )
        return valid

    def _masks_cancel(self, tasks: Mapping[str, Task], valid: Mapping[str, Reply]) -> bool:
        """Whether all members of the round answered, and enough of them, so that their sum has its noise."""
        members = {name for reply in valid.values() for name in reply.members} or set(tasks)
        return valid.keys() == members and len(valid) >= len(tasks) - self.dropouts

    def _abandons(self, matching: Mapping[str, Reply]) -> bool:
        """Gives a round up that lacks a site for good: its answers are bound to a group with the site.

        That is so if some of the group answered, or if a round is in vain for the second time. Without
        spare answers the same round is asked again, until the site is back.
        """
        self._empty_rounds += 1
        gone = bool(self.dropouts) and (bool(matching) or self._empty_rounds > 1)
        if not gone or self.abandoned >= self.spare_rounds:
            return False
        self.abandoned, self._empty_rounds = self.abandoned + 1, 0
        _LOG.warning("A site left in the middle of a round; the others are asked another one.")
        return True

    def pack_state(self) -> bytes:
        """The state after the last update, as bytes."""
        applied = [self.applied[name] for name in self.sites]
        shares = np.zeros((len(applied), max(len(each.share) for each in applied)))
        for row, each in zip(shares, applied, strict=True):
            row[: len(each.share)] = each.share
        return pack_arrays(
            np.int64(self.round),
            np.int64(self.abandoned),
            np.array([each.round for each in applied], np.int64),
            shares,
            np.array([self.used[name] for name in self.sites], np.int64),
            np.frombuffer(self.mark, np.uint8),
            *self.rule_state(),
        )

    def restore(self, states: Sequence[bytes], abandoned: int = 0) -> None:
        """Goes back to where a server was.

        Args:
            states: What it packed: before its first update, and after each.
            abandoned: The number of rounds that it gave up, if that is more than in the last state.
        """
        for number, packed in enumerate(states):
            state = unpack_arrays(packed, **_STATE_FIELDS, **self.rule_fields)
            if len(state["used"]) != len(self.sites):
                raise other_state()
            self.restore_rule(state)
            if number:
                self.trace.append(self.position)
        self.mark = state["mark"].tobytes()
        for i, name in enumerate(self.sites):
            last = int(state["applied"][i])
            self.applied[name] = (
                AppliedUpdate(last, state["shares"][i]) if last else AppliedUpdate()
            )
            self.used[name] = int(state["used"][i])
        self.abandoned = max(abandoned, int(state["abandoned"]))
        self.round = int(state["round"]) + self.abandoned - int(state["abandoned"])


def other_state() -> TacitError:
    """The error of a stored state that does not fit a server."""
    return TacitError("The stored state is of other sites, or of another model.")


def sum_replies(replies: Sequence[Reply], posterior: Floats) -> Floats:  # noqa: ARG001
    """The sum of changes; whole numbers are added exactly."""
    grid = common_grid(replies)
    if len({reply.change.shape for reply in replies}) != 1:
        raise InvalidArgument(
            "Sites answered with vectors of different sizes; their settings differ."
        )
    if grid is None:
        return np.asarray(np.sum([reply.values for reply in replies], axis=0), np.float64)
    added = np.sum([reply.change for reply in replies], axis=0, dtype=np.int64)
    return np.asarray(added, np.float64) * grid


def common_grid(replies: Sequence[Reply]) -> float | None:
    """The factor of whole numbers, which must be the same for all replies."""
    grids = {reply.grid for reply in replies}
    if len(grids) > 1:
        raise InvalidArgument("Sites answered on different lattices; their settings differ.")
    return grids.pop()


class Influence(NamedTuple):
    """How far the posterior would move without a site, and how far by chance if its rows are like those of others.

    Both in standard deviations of the posterior; the second is zero if it is not known.
    """

    moved: float
    by_chance: float

    @property
    def notable(self) -> bool:
        """Whether chance does not explain it."""
        return self.moved >= max(_NOTABLE_INFLUENCE, _NOTABLE_RATIO * self.by_chance)


def influence_sentences(found: Mapping[str, Influence]) -> tuple[str, ...]:
    """Describes the influence of sites: a sentence about each that is notable, or about the one that matters most."""
    if not found:
        return ()
    _LOG.info(
        "Without one of the sites the posterior would move, in its standard deviations: %s.",
        ", ".join(f"{name} {each.moved:.1f}" for name, each in found.items()),
    )

    def moves(name: str) -> str:
        return f"Without {name} the posterior would move by {found[name].moved:.1f} of its standard deviations"

    names = sorted(found, key=lambda name: found[name].moved, reverse=True)
    notable = [name for name in names if found[name].notable][:_MAX_NAMED]
    if notable:
        return tuple(
            f"{moves(name)}; compare the sites' data, or leave it out." for name in notable
        )
    return (
        f"{moves(names[0])}, and without others by less; chance and its size can explain that.",
    )


def run_schedule(
    server: Server,
    transport: Transport,
    schedule: Schedule,
    progress: Callable[[int], None] | None = None,
    save: SaveState | None = None,
) -> Floats:
    """Runs a schedule to its end. A server with a restored state continues from there.

    Args:
        server: The server.
        transport: Carries tasks and replies.
        schedule: The order in which sites are asked.
        progress: Is called with the number of rounds done.
        save: Saves the server's state, after every update and when a round was given up.

    Returns:
        Posteriors after every update, [updates, numbers].

    Raises:
        TacitError: If no answer could be used in several consecutive rounds.
    """
    empty, groups = 0, schedule.groups(server.sites)
    while (done := len(server.trace)) < schedule.num_rounds * len(groups):
        abandoned = server.abandoned
        tasks = server.tasks(groups[done % len(groups)])
        replies = transport.exchange(tasks)
        updated = server.apply_replies(tasks if transport.sent else {}, replies)
        useful = updated or server.abandoned > abandoned
        if save is not None and useful:
            save(server)
        empty = 0 if useful else empty + 1
        if empty == _MAX_EMPTY_ROUNDS * len(groups):
            refused = "; ".join(f"{name}: {error}" for name, error in transport.refused.items())
            why = f"Sites refused: {refused}" if refused else "Sites did not answer in time."
            raise TacitError(
                f"No answer could be used in {_MAX_EMPTY_ROUNDS} consecutive rounds. {why}"
            )
        if progress is not None and updated and len(server.trace) % len(groups) == 0:
            progress(len(server.trace) // len(groups))
    return np.array(server.trace)
