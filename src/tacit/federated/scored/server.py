"""The server's part of pooled scoring: sums of all sites' sums, and the posterior that follows from them.

The update is that of `tacit.inference.scoring_steps`, and the posterior that of `tacit.inference.evidence`. All of
it is post-processing of what sites released.
"""

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tacit.errors import TacitError
from tacit.federated.arrays import read, written
from tacit.federated.influence import tell
from tacit.federated.method import Fitted
from tacit.federated.scored.carried import MetricFrame, carried
from tacit.federated.scored.findings import Findings, Round, frame_of, vector_of
from tacit.federated.scored.site import Question, low_words
from tacit.federated.server import added_up
from tacit.federated.transport import Reply, Task, replies_to
from tacit.inference.evidence import StepRecord
from tacit.inference.scores import SHARES, tempo, width
from tacit.inference.scoring_steps import LONG, State, asked, moved, start_of
from tacit.models.base import AnyModel
from tacit.models.natural import Vector

_LOG = logging.getLogger(__name__)
# The first rounds only find the way: such a part of them. What part of a Newton step a round goes, before
# and after (benchmarks/federation.py).
_EARLY, _PACES = 0.5, (1.2, 0.6)
# An answer so many rounds ago stands in for one that is missing, when the place moves.
_RECENT = 3
# Standard deviations of noise that no answer exceeds.
_SURE = 8.0
# The fields of a state that change from round to round, and how many dimensions they have.
_CHANGING = {
    "place": 1,
    "root": 2,
    "level": 0,
    "chances": 1,
    "slow": 1,
    "dispersion": 0,
    "counts": 1,
    "step": 0,
}


@dataclass(kw_only=True)
class ScoringServer:
    """Where a fit is, and what sites answered.

    Args:
        run: The name of the run.
        model: The model.
        sites: Names of the sites.
        num_rounds: How many rounds there will be.
        noise: Standard deviation of the noise in one site's answer.
        outcomes: Outcomes that are drawn for each row.
        rows_bound: The declared bound on the number of units at a site, which bounds its influence.
        whole: Whether a round counts only if all sites answered whose masks are in it, as shared noise
            requires.
        dropouts: How many sites may be missing from such a round.
        spare: How many rounds may be given up because a site left in the middle.
        grid: The factor of answers that are whole numbers, or None.
    """

    run: str
    model: AnyModel
    sites: tuple[str, ...]
    num_rounds: int
    noise: float
    outcomes: int
    rows_bound: int
    whole: bool = False
    dropouts: int = 0
    spare: int = 0
    grid: float | None = None
    given_up: int = field(init=False, default=0)
    state: State = field(init=False)
    done: list[Round] = field(init=False, default_factory=list)
    folded: dict[str, int] = field(init=False)
    used: dict[str, int] = field(init=False)
    trace: list[Vector] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self.state = start_of(self.model)
        self.folded = dict.fromkeys(self.sites, 0)
        self.used = dict.fromkeys(self.sites, 0)
        self._in_vain = 0

    @property
    def early(self) -> int:
        """The number of rounds that only find the way."""
        return math.floor(_EARLY * self.num_rounds)

    @cached_property
    def _tempo(self) -> NDArray[np.float32]:
        """What is known of the rounds beforehand."""
        noise = self.noise * math.sqrt(len(self.sites))
        late = self.num_rounds - self.early
        final = noise / math.sqrt(late * SHARES[1][0])
        return tempo([noise, noise], final, _PACES, (self.early, late))

    def tasks(self, sites: Sequence[str]) -> dict[str, Task]:
        """The tasks of the next round; of the same one again, if it did not count."""
        line = jnp.asarray(self._tempo[len(self.done)])
        question = Question(self.model.dimension).packed(_asked(self.state, line))
        return {name: self._task(name, self._number, question) for name in sites}

    @property
    def _number(self) -> int:
        """The number of the next round, as sites count: with those that were given up."""
        return len(self.done) + self.given_up + 1

    def _task(self, site: str, number: int, question: Vector) -> Task:
        folded = self.folded[site]
        share = np.zeros(width(self.model.dimension) if folded else 0)
        return Task(run=self.run, round=number, posterior=question, folded=folded, share=share)

    def fold(self, tasks: Mapping[str, Task], replies: Mapping[str, Reply]) -> None:
        """Moves the place by the sum of the answers. Nothing changes if the round does not count."""
        if not tasks:
            return
        answering = replies_to(self.run, tasks, replies)
        kept = {name: reply for name, reply in answering.items() if self._sound(name, reply)}
        if not kept or (self.whole and not self._complete(tasks, kept)):
            self._go_past(answering)
            return
        answers = {} if self.whole else {name: reply.values for name, reply in kept.items()}
        total = self._added_up(list(kept.values())) + self._stood_in(answers)
        if self.whole and not self._possible(total, len(kept)):
            _LOG.warning(
                "The sum of the answers is no sum of clipped vectors; a site is not honest."
            )
            return
        line = jnp.asarray(self._tempo[len(self.done)])
        arguments = _asked(self.state, line)
        state, record = _moved(self.state, line, arguments, jnp.asarray(total, jnp.float32))
        self.state = state
        found = jax.tree.map(np.asarray, record)
        self._tally(Round(len(self.done) + 1, found, frozenset(kept), answers))
        tell(len(self.done), self._findings.pulls(self.done[-1]))

    def _complete(self, tasks: Mapping[str, Task], kept: Mapping[str, Reply]) -> bool:
        """Whether masks cancel: all members of the round are there, and enough of them."""
        members = {name for reply in kept.values() for name in reply.members} or set(tasks)
        return kept.keys() == members and len(kept) >= len(self.sites) - self.dropouts

    def _go_past(self, answering: Mapping[str, Reply]) -> None:
        """Gives a round up that lacks a site for good: its answers are bound to a group with the site.

        That is so if some of the group answered, or if a round is in vain for the second time. Without
        spare answers the same round is asked again, until the site is back.
        """
        self._in_vain += 1
        if self.dropouts and self.given_up < self.spare and (answering or self._in_vain > 1):
            self.given_up, self._in_vain = self.given_up + 1, 0
            _LOG.warning("A site left in the middle of a round; the others are asked another one.")

    def _added_up(self, replies: Sequence[Reply]) -> Vector:
        """The sum of answers; of whole numbers, their lower halves (see `with_high_words`)."""
        if not self.whole:
            return added_up(replies, np.zeros(0))
        whole = np.asarray(np.sum([reply.change for reply in replies], axis=0, dtype=np.int64))
        return low_words(whole).astype(np.float64) * float(self.grid or 1.0)

    def _tally(self, finished: Round) -> None:
        for name in finished.members:
            self.folded[name] = self._number
            self.used[name] += 1
        self._in_vain = 0
        self.done.append(finished)
        self.trace.append(vector_of(self.model, self.state.place))

    def _stood_in(self, answers: Mapping[str, Vector]) -> Vector:
        """The sum of recent answers of sites that did not answer now, as of the present metric."""
        total = np.zeros(width(self.model.dimension))
        if self.whole:
            return total
        now = self._frame(len(self.done), self.state)
        for name in set(self.sites) - set(answers):
            for finished in reversed(self.done[-_RECENT:]):
                if name in finished.answers:
                    total += carried(finished.answers[name], frame_of(self._tempo, finished), now)
                    break
        return total

    def _frame(self, index: int, state: State) -> MetricFrame:
        line = self._tempo[index]
        given = _asked(state, jnp.asarray(line))
        clips = np.array([given.clip, given.wide], np.float64)
        return MetricFrame(np.asarray(state.root, np.float64), clips, line[4:].astype(np.float64))

    def _sound(self, name: str, reply: Reply) -> bool:
        """Whether an answer has the shape and type of this run, and can be a sum of clipped vectors."""
        kind = "f" if self.grid is None else "i"
        sound = (
            reply.grid == self.grid
            and reply.change.shape == (width(self.model.dimension),)
            and reply.change.dtype.kind == kind
            # Masked numbers can be any; not so for NaN.
            and (self.whole or self._possible(reply.values))
        )
        if not sound:
            _LOG.warning(
                "The answer of %s is not of the expected form, or no sum of clipped vectors; it is left "
                "out.",
                name,
            )
        return sound

    def _possible(self, values: Vector, sites: int = 1) -> bool:
        """Whether this can be a noisy sum over as many units as it says, and as sites may have.

        A unit's vector is no longer than one. This bounds what a site that sends anything else can do.
        """
        share = float(self._tempo[len(self.done)][-1])
        count = float(values[-1]) / share
        noise = self.noise * math.sqrt(sites)
        slack = _SURE * noise * (1 / share + math.sqrt(len(values)))
        most = min(count, float(sites * self.rows_bound)) + slack
        return bool(np.linalg.norm(values) <= most)  # not so for NaN

    def influence(self) -> dict[str, float]:
        """How far the posterior would move without each site; see `Findings.influence`."""
        return self._findings.influence()

    def pulls(self) -> list[dict[str, float]]:
        """How strongly each site pulled, in every round; see `Findings.pulls`."""
        return [self._findings.pulls(finished) for finished in self.done]

    def fitted(self, rng: np.random.Generator, without: Sequence[str] = ()) -> Fitted:
        """The posterior of what sites answered; see `Findings.fitted`."""
        return self._findings.fitted(rng, np.array(self.trace), without)

    @property
    def _findings(self) -> Findings:
        return Findings(
            model=self.model,
            sites=self.sites,
            noise=self.noise,
            outcomes=self.outcomes,
            whole=self.whole,
            early=self.early,
            tempo=self._tempo,
            done=tuple(self.done),
        )

    def packed(self) -> bytes:
        """The last round and where it led, as bytes."""
        held = self.state._asdict()
        state = [np.asarray(held[name], np.float32) for name in _CHANGING]
        if not self.done:
            return written(np.int64(0), *state)
        last = self.done[-1]
        answered = np.array([name in last.members for name in self.sites], np.int64)
        sums = [last.answers[name] for name in self.sites if name in last.answers]
        size = width(self.model.dimension)
        return written(
            np.int64(last.number),
            *state,
            *(np.asarray(each, np.float32) for each in last.record),
            answered,
            np.reshape(sums, (-1, size)).astype(np.float64),
            np.int64(self.given_up),
        )

    def restore(self, packed: Sequence[bytes]) -> None:
        """Goes back to where a server was, by all that it packed."""
        for each in packed[1:]:
            self._restore_round(each)

    def _restore_round(self, packed: bytes) -> None:
        kinds: dict[str, tuple[str, int]] = {"number": ("i", 0)}
        kinds |= {name: ("f", count) for name, count in _CHANGING.items()}
        shapes = {"place": 1, "root": 2, "level": 0, "clips": 1, "released": 1, "chances": 1}
        kinds |= {f"record_{name}": ("f", count) for name, count in shapes.items()}
        kinds |= {"answered": ("i", 1), "sums": ("f", 2), "given_up": ("i", 0)}
        held = read(packed, **kinds)
        if (
            len(held["answered"]) != len(self.sites)
            or held["place"].shape != self.state.place.shape
        ):
            raise TacitError("The stored state is of other sites, or of another model.")
        changed: dict[str, Any] = {name: held[name] for name in _CHANGING}
        self.state = self.state._replace(**changed)
        record = StepRecord(*(held[f"record_{name}"] for name in StepRecord.__annotations__))
        there = [name for name, yes in zip(self.sites, held["answered"], strict=True) if yes]
        answers = {} if self.whole else dict(zip(there, held["sums"], strict=True))
        self.given_up = int(held["given_up"])
        self._tally(Round(int(held["number"]), record, frozenset(there), answers))


_asked = jax.jit(asked)
_moved = jax.jit(partial(moved, rate=1.0, stride=LONG))
