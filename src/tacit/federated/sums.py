"""Noisy sums over several sites: what pooled scoring has in common with releases of one sum, and these releases.

A site answers with the noisy sum of what its units add. All sites are asked the same, so that the sum of their answers
is the sum over all units (`SummedAnswers`). Each message has the whole noise of its site's budget, or sites share the
noise and mask their answers.

`NoisySum` asks once. `SumTarget` says what for: the tables of `tacit.explore`, or the sums of a check or of a score. What
follows from the total is computed as for one table.
"""

import math
from abc import ABC
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Generic, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit import _validate
from tacit.accounting import Budget, calibrate, events
from tacit.accounting.events import DpEvent
from tacit.errors import InvalidArgument
from tacit.federated.agreement import BY_NOISE, MAY_LEAVE, SEVERAL_SITES
from tacit.federated.method import FederatedMethod
from tacit.federated.protocol import Arrays, Numbers, Reply, Task
from tacit.federated.schemes import (
    Prepared,
    RunSetting,
    Scheme,
    check_noise_shares,
    normal_noise_budget,
    shares_slack,
)
from tacit.federated.server import Influence, Schedule, Server, other_state, sum_replies
from tacit.federated.targets import T
from tacit.inference.method import SumRelease, no_inputs
from tacit.models.exponential_families import Vector
from tacit.privacy.checkpoint import combined_digest
from tacit.privacy.gate import Gate, run
from tacit.privacy.mechanisms import NoisySums
from tacit.privacy.noise import Randomness
from tacit.privacy.rows import Rows

# Sums of all sites take 64 bits, which hold those of this many units. It bounds nothing else.
_BATCH_BOUND = 2**40
# Sites of a round whose answers are masked.
_MIN_MASKED_SITES = 2
# How often sites are asked one question, if each message is private by itself and some do not answer.
_MAX_ATTEMPTS = 3


def released_numbers(mechanism: NoisySums, released: ArrayLike) -> Numbers:
    """What the gate releases of one sum: real numbers, or whole numbers of 64 bits that can be masked. [whole-sum]"""
    if not mechanism.as_integers:
        return np.asarray(released, np.float64)
    return np.ascontiguousarray(released).view(np.int64)


@dataclass(frozen=True, kw_only=True)
class SummedAnswers(FederatedMethod[T], Scheme[T], ABC, Generic[T]):
    """Settings of runs in which every answer is the noisy sum of what a site's units add.

    Args:
        noise: With ``"site"`` every answer is private by itself. The noise of the total then grows with
            the square root of the number of sites. With ``"split"`` sites share the noise and mask
            their answers; the result is that of one table.
        dishonest: With ``"split"``, the number of sites that may reveal or leave out their noise.
        dropouts: With ``"split"``, the number of sites that may leave for good without ending the run.
            Each site adds as much more noise. One that leaves in the middle of a round costs an answer
            of the others, so ``spare_answers`` must be at least as many.
        spare_answers: Answers that are charged in addition to the rounds.
    """

    noise: Literal["site", "split"] = "site"
    dishonest: int = 1
    dropouts: int = 0
    spare_answers: int = 0

    def __post_init__(self) -> None:
        _validate.count("spare_answers", self.spare_answers, least=0)
        _validate.choice("noise", self.noise, ("site", "split"))
        _validate.count("dishonest", self.dishonest, least=0)
        _validate.count("dropouts", self.dropouts, least=0)
        if self.dropouts and self.noise == "site":
            raise InvalidArgument('dropouts is for noise="split"; other runs go on without a site.')
        if self.dropouts > self.spare_answers:
            raise InvalidArgument(
                "A site that leaves in the middle of a round costs an answer of the others; pass "
                "spare_answers of at least dropouts."
            )

    @property
    def scheme(self) -> Scheme[T]:  # type: ignore[override]
        """How sites protect their rows, which follows from the same settings."""
        return self

    @property
    def trust(self) -> tuple[str, ...]:
        """Who is trusted."""
        sentences = (*BY_NOISE[self.noise], *((MAY_LEAVE,) if self.dropouts else ()))
        numbers = {"dishonest": self.dishonest, "dropouts": self.dropouts}
        return (*(each.format(**numbers) for each in sentences), SEVERAL_SITES)

    @property
    def each_message_private(self) -> bool:
        """Whether every message has enough noise by itself."""
        return self.noise == "site"

    @property
    def split(self) -> bool:
        """Whether only the sum of all messages has enough noise."""
        return self.noise == "split"

    def rounds(self, sites: int) -> Schedule:  # noqa: ARG002 (all are asked in every round)
        """The schedule: all sites in every round."""
        return Schedule(num_rounds=self.num_rounds)

    def setting(self, target: T, budget: Budget | None, sites: int) -> RunSetting[T]:
        """What one site knows about the run."""
        return RunSetting(
            target=target,
            budget=budget,
            answers=self.num_rounds + self.spare_answers,
            sites=sites,
            together=sites,
            dropouts=self.dropouts,
        )

    def with_noise(
        self, mechanism: NoisySums, setting: RunSetting[T]
    ) -> tuple[NoisySums, DpEvent | None]:
        """One answer of a site with its noise, and the event of all its answers. Theorems F7 and F8.

        Args:
            mechanism: One answer without noise.
            setting: What the site knows about the run.
        """
        budget, noise, event = setting.budget, 0.0, None
        if budget is not None:
            normal = normal_noise_budget(budget) if self.split else budget
            rate = mechanism.sampling_rate
            noise = calibrate.noise_multiplier(
                normal, sampling_rate=rate, num_steps=setting.answers
            )
            event = events.sampled_gaussian(noise, rate, setting.answers)
        # The least number of sites whose shares of noise are in a sum. Theorem F8.
        honest = setting.together - self.dishonest - self.dropouts
        if self.split and honest < 1:
            raise InvalidArgument(
                f"With {setting.together} sites, of which {self.dishonest} may be dishonest and "
                f'{self.dropouts} may leave, nobody is left to add noise; use noise="site".'
            )
        if self.split and setting.together - self.dropouts < _MIN_MASKED_SITES:
            raise InvalidArgument(
                f"With {setting.together} sites, of which {self.dropouts} may leave, one could be left, whose "
                'answer nobody masks; use noise="site", or fewer dropouts.'
            )
        own = replace(
            mechanism,
            noise_multiplier=noise / math.sqrt(honest) if self.split else noise,
            batch_bound=_BATCH_BOUND,
            as_integers=self.split,
        )
        if self.split and budget is not None and event is not None:
            check_noise_shares(own, setting, budget, honest, 'use noise="site"')
            event = events.compose(event, shares_slack(budget))
        return own, event


@dataclass(frozen=True)
class Question:
    """A question in one line, and in full: texts that tell it from every other one."""

    line: str
    full: str

    def describe(self) -> str:
        """The question in one line."""
        return self.line

    def digest(self, rows: Rows) -> str:  # noqa: ARG002 (the types of columns follow from the schema)
        """A digest of the question."""
        return combined_digest(self.full.encode())


@dataclass(frozen=True)
class EmptyTask:
    """What tasks hold where there is nothing to send: a zero."""

    size: int = 1

    def is_proper(self, vector: Vector) -> bool:
        """Whether it is the zero."""
        return not vector.any()


@dataclass(frozen=True, kw_only=True, eq=False)
class SumTarget:
    """What sites are asked once. All of it is public.

    Args:
        model: The question in words, with everything that it depends on.
        release: What is asked of the rows.
        mechanism: The noisy sum for one table. Its clip, its length and its secrets count, and not its noise.
    """

    model: Question
    release: SumRelease
    mechanism: NoisySums
    family: EmptyTask = field(default_factory=EmptyTask)
    prior: Vector = field(default_factory=lambda: np.zeros(0))

    declared_public: ClassVar[tuple[str, ...]] = ("prior",)


@dataclass(frozen=True)
class SumWork:
    """Work that releases the noisy sum of what a site's units add."""

    release: SumRelease
    mechanism: NoisySums

    @property
    def size(self) -> int:
        """Length of an answer."""
        return self.mechanism.dimension

    @property
    def grid(self) -> float | None:
        """The factor of answers that are whole numbers, or None."""
        return self.mechanism.grid if self.mechanism.as_integers else None

    def change(
        self,
        rows: Rows,
        posterior: Vector,  # noqa: ARG002 (the question is in the site's own settings)
        factor: Vector,  # noqa: ARG002 (answers go into no factor)
        source: Randomness,
    ) -> Numbers:
        """The noisy sum. [site-sum]"""
        gate = Gate(rows, self.mechanism, source.child("gate"))
        _, out = run(gate, self.release.step, self.release.question(), no_inputs)
        return released_numbers(self.mechanism, out[0])


@dataclass(kw_only=True)
class SumServer(Server):
    """The total of what sites answered, and whose answers are in it.

    Args:
        dimension: Length of an answer. See `Server` for the other settings.
    """

    dimension: int
    total: Vector = field(init=False)
    members: frozenset[str] = field(init=False, default=frozenset())

    rule_fields: ClassVar[Mapping[str, tuple[str, int]]] = {
        "members": ("i", 1),
        "total": ("f", 1),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        self.total = np.zeros(self.dimension)
        self._attempts = 0

    @property
    def query(self) -> Vector:
        """Nothing: sites know the question."""
        return np.zeros(EmptyTask().size)

    @property
    def answer_size(self) -> int:
        """Length of an answer."""
        return self.dimension

    @property
    def position(self) -> Vector:
        """The total."""
        return self.total

    def is_possible(self, name: str, values: Vector) -> bool:  # noqa: ARG002 (of any site)
        """Whether these are numbers."""
        return bool(np.isfinite(values).all())

    def tasks(self, sites: Sequence[str]) -> dict[str, Task]:
        """The tasks of the round, which are the same each time that sites are asked."""
        self._attempts += 1
        return super().tasks(sites)

    def update(self, replies: Mapping[str, Reply]) -> Vector | None:
        """Adds the answers up, once all sites have answered, or some have not after the third question."""
        some_missing = len(replies) < len(self.sites) and not self.needs_all_sites
        if some_missing and self._attempts < _MAX_ATTEMPTS:
            return None  # what sites have answered they repeat, at no cost
        self.total = sum_replies(list(replies.values()), self.query)
        self.members = frozenset(replies)
        return np.zeros(0)  # sites keep no factors

    def influence(self) -> dict[str, Influence]:
        """Nothing: there is no posterior."""
        return {}

    def rule_state(self) -> Sequence[NDArray[np.float64] | NDArray[np.int64]]:
        """Whose answers are in the total, and the total."""
        places = [self.sites.index(name) for name in sorted(self.members)]
        return np.array(places, np.int64), self.total

    def restore_rule(self, state: Arrays) -> None:
        """Goes on by the total of a state."""
        members, total = state["members"], state["total"]
        if total.shape != (self.dimension,) or not set(members) <= set(range(len(self.sites))):
            raise other_state()
        self.members, self.total = frozenset(self.sites[i] for i in members), total


@dataclass(frozen=True, kw_only=True)
class NoisySum(SummedAnswers[SumTarget]):
    """One noisy sum over several sites: how they explore, check and score together.

    Every site is asked once. Each computes the noisy sum of what its own rows add, after its ledger was charged, and the
    server adds these sums up. All settings are public and the same at all sites.

    Args:
        noise: With ``"site"`` every answer is private by itself. The noise of the total then grows with
            the square root of the number of sites. With ``"split"`` sites share the noise and mask
            their answers, so that the total has the noise of one table, or little more.
        dishonest: With ``"split"``, the number of sites that may reveal or leave out their noise.
        dropouts: With ``"split"``, the number of sites that may leave without ending the run. Each site adds
            as much more noise, and ``spare_answers`` must be at least as many.
        spare_answers: Answers that are charged in addition to one.
    """

    num_rounds: int = field(init=False, default=1)

    def prepare(self, setting: RunSetting[SumTarget]) -> Prepared:
        """Noise for all answers. Theorem F10."""
        target = setting.target
        mechanism, event = self.with_noise(target.mechanism, setting)
        work = SumWork(target.release, mechanism)
        return Prepared(work=work, event=event, in_factor=False, noise_std=mechanism.noise_std)

    def server(
        self,
        target: SumTarget,
        names: tuple[str, ...],
        *,
        run: str,
        budget: Budget | None,
        source: Randomness,  # noqa: ARG002 (the server adds no noise)
    ) -> SumServer:
        """The server of a run."""
        prepared = self.prepare(self.setting(target, budget, len(names)))
        return SumServer(
            run=run,
            sites=names,
            dimension=prepared.work.size,
            needs_all_sites=self.split,
            dropouts=self.dropouts,
            spare_rounds=self.spare_answers,
            grid=prepared.work.grid,
        )
