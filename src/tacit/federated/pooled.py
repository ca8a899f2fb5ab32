"""Pooled scoring: private Fisher scoring over several sites, the default federated method.

A site releases one noisy sum of what its rows add, for the query that it is sent (`ScoreSumRelease`). The gate clips
what a row adds, whatever the server asks for. All sites are sent the same query, so that sums over sites are sums over
all rows. The server adds the answers up (`PooledServer`) and hands the sums to the rounds of `tacit.inference`, which
say what to ask for next and make the posterior, as for one table. All of it is post-processing of what sites released.
`PooledScoring` has the settings, and calibrates the noise.
"""

import logging
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tacit import _validate
from tacit._typing import PyTree
from tacit.accounting import Budget
from tacit.errors import InvalidArgument, TacitError
from tacit.federated.method import FederatedFit
from tacit.federated.protocol import Arrays, Numbers, Reply
from tacit.federated.schemes import (
    Prepared,
    RunSetting,
)
from tacit.federated.server import (
    Influence,
    Server,
    influence_sentences,
    other_state,
    sum_replies,
)
from tacit.federated.sums import SummedAnswers, released_numbers
from tacit.federated.targets import ConjugateTarget
from tacit.inference.method import no_inputs
from tacit.inference.result import MethodResult
from tacit.inference.score_contributions import (
    ScoreQuery,
    ScoreSums,
    contribution_size,
    split_release,
)
from tacit.inference.scoring import (
    check_model,
    make_query,
    method_result,
    scoring_rate_for_size,
    scoring_step,
    start_rounds,
)
from tacit.inference.scoring_posterior import draw_posterior
from tacit.inference.scoring_rounds import RemovedUnits, Rounds, WhitenedQuery
from tacit.inference.whitening import whiten_prior
from tacit.models.base import UnitModel
from tacit.models.exponential_families import Vector
from tacit.privacy.gate import Gate, run
from tacit.privacy.mechanisms import NoisySums
from tacit.privacy.noise import Randomness
from tacit.privacy.rows import Rows, Units

# Lengths of a query beside the position and the metric: clip, curvature_clip, max_slope, max_direction_slope; and shares.
_NUM_LENGTHS, _NUM_SHARES = 4, 9
# Beyond these a query is none that a fit can have come to. Squares of smaller lengths are not
# those of single precision, and what is clipped at them may be longer.
_MAX_COORDINATE, _MAX_METRIC, _MIN_LENGTH, _MAX_LENGTH = 1e6, 1e9, 1e-6, 1e6


@dataclass(frozen=True)
class QueryVector:
    """What a task holds: a `tacit.inference.score_contributions.ScoreQuery` as one vector, without the model's constants.

    ``is_proper`` refuses what no fit can ask for. Privacy does not depend on it, because the gate clips.
    """

    dimension: int

    @property
    def size(self) -> int:
        """Length of the vector."""
        return self.dimension * (self.dimension + 1) + _NUM_LENGTHS + 1 + _NUM_SHARES

    def pack(self, query: ScoreQuery) -> Vector:
        """A query as one vector."""
        return np.concatenate([np.ravel(np.asarray(part, np.float64)) for part in query[:-1]])

    def unpack(self, vector: Vector, constants: PyTree) -> ScoreQuery:
        """The query that a vector stands for."""
        theta, metric, lengths, sizes, shares = self._parts(np.asarray(vector, np.float32))
        parts = (theta, metric.reshape(self.dimension, -1), *lengths, sizes[0], shares)
        return ScoreQuery._make([*map(jnp.asarray, parts), constants])

    def is_proper(self, vector: Vector) -> bool:
        """Whether a fit can ask for this."""
        theta, metric, lengths, sizes, shares = self._parts(vector)
        return bool(
            np.isfinite(vector).all()
            and np.all(np.abs(theta) <= _MAX_COORDINATE)
            and np.all(np.abs(metric) <= _MAX_METRIC)
            and np.all((lengths >= _MIN_LENGTH) & (lengths <= _MAX_LENGTH))
            and sizes[0] in {0, 1}
            and np.all(shares >= 0)
            and np.sum(shares**2) < 1.001
        )

    def _parts(self, vector: NDArray[np.floating]) -> list[NDArray[np.floating]]:
        lengths = [self.dimension, self.dimension**2, _NUM_LENGTHS, 1]
        return np.split(vector, np.cumsum(lengths))


@dataclass(frozen=True, kw_only=True, eq=False)
class PooledTarget:
    """What sites fit together by pooled scoring: any model that Scoring fits.

    ``family`` says what a task holds, ``prior`` is for the digest of the study, and ``simulated`` are
    public units that were drawn from the schema alone, for the server, or None if there is no schema.
    """

    model: UnitModel
    family: QueryVector
    prior: Vector
    simulated: Units | None = None

    declared_public: ClassVar[tuple[str, ...]] = ("prior",)

    @property
    def constants(self) -> PyTree:
        """Public arrays of the model."""
        return self.model.constants


@dataclass(frozen=True)
class ScoreSumRelease:
    """Work that releases the noisy sum of what a site's rows add."""

    target: PooledTarget
    outcomes: int
    mechanism: NoisySums

    @property
    def size(self) -> int:
        """Length of an answer."""
        return contribution_size(self.target.model.dimension)

    @property
    def grid(self) -> float | None:
        """The factor of answers that are whole numbers, or None."""
        return self.mechanism.grid if self.mechanism.as_integers else None

    def change(
        self,
        rows: Rows,
        posterior: Vector,
        factor: Vector,  # noqa: ARG002 (answers go into no factor)
        source: Randomness,
    ) -> Numbers:
        """The noisy sum, for the query that the task holds. [site-scores]"""
        target = self.target
        gate = Gate(rows, self.mechanism, source.child("gate"))
        constants = jax.tree.map(jnp.asarray, target.constants)
        query = target.family.unpack(posterior, constants)
        _, out = run(gate, scoring_step(target.model, self.outcomes), query, no_inputs)
        return released_numbers(self.mechanism, out[0])


_LOG = logging.getLogger(__name__)
# The part of the rounds after the first that finds the position and the metric. All rounds have the same
# noise, so that fewer of them are early than for one table.
_EARLY_FRACTION = 0.53
# Late rounds that a posterior needs.
_MIN_LATE_ROUNDS = 2
_POSTERIOR_DRAWS = 1000
# Standard deviations of noise, and of the number of units that are sampled, that no answer exceeds.
_MAX_NOISE_STDS = 8.0


def early_rounds(num_rounds: int) -> int:
    """How many rounds after the first find the position and the metric. They leave what a posterior needs."""
    return min(round(_EARLY_FRACTION * (num_rounds - 1)), num_rounds - 1 - _MIN_LATE_ROUNDS)


class FinishedRound(NamedTuple):
    """A round that counted: what was asked, whose rows are in its sum, and the sums of single sites.

    There are no sums of single sites if answers were masked.
    """

    query: WhitenedQuery
    members: frozenset[str]
    total: Vector
    answers: Mapping[str, Vector]


@dataclass(kw_only=True)
class PooledServer(Server):
    """Where a fit is, and what sites answered.

    Args:
        run: See `Server`, also for the other settings that are not listed here.
        model: The model.
        simulated: Public units that were drawn from the schema alone, or None.
        num_rounds: How many rounds there will be, of which the first counts the units.
        noise_std: Standard deviation of the noise in one site's answer.
        num_outcomes: Number of outcomes that are drawn for each row.
        sampling_rate: Probability with which each unit takes part in a round.
    """

    model: UnitModel
    simulated: Units | None
    num_rounds: int
    noise_std: float
    num_outcomes: int
    sampling_rate: float = 1.0
    rounds: Rounds = field(init=False)
    finished: list[FinishedRound] = field(init=False, default_factory=list)

    rule_fields: ClassVar[Mapping[str, tuple[str, int]]] = {
        "members": ("i", 1),
        "sums": ("f", 2),
        "query": ("f", 1),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        self.rounds = self._rounds(self.num_early)
        self._query = self._next_query()

    @property
    def num_early(self) -> int:
        """How many rounds after the first find the position and the metric."""
        return early_rounds(self.num_rounds)

    def _rounds(self, early: int) -> Rounds:
        """The state of a fit before its first round."""
        noise = [self.noise_std * math.sqrt(len(self.sites))] * self.num_rounds
        return start_rounds(
            self.model, self.simulated, noise, early, self.num_outcomes, self.sampling_rate
        )

    def _next_query(self) -> Vector:
        query = make_query(self.model, whiten_prior(self.model), self.rounds.ask())
        return QueryVector(self.model.dimension).pack(query)

    @property
    def query(self) -> Vector:
        """What all sites are to compute."""
        return self._query

    @property
    def answer_size(self) -> int:
        """The number of numbers that a site's rows add up to."""
        return contribution_size(self.model.dimension)

    @property
    def position(self) -> Vector:
        """What the next query is about, on the unconstrained scale."""
        space = whiten_prior(self.model)
        position = self.rounds.basis @ self.rounds.position
        return np.asarray(space.mean + position @ space.scale.T)

    def is_possible(self, name: str, values: Vector) -> bool:
        """Whether the numbers can be a sum of clipped vectors; masked numbers can be any."""
        return self.needs_all_sites or self._is_possible_sum(values, frozenset([name]))

    def update(self, replies: Mapping[str, Reply]) -> Vector | None:
        """Moves the position by the sum of the answers."""
        total = self._sum(list(replies.values()))
        if self.needs_all_sites and not self._is_possible_sum(total, frozenset(replies)):
            _LOG.warning(
                "The sum of the answers is no sum of clipped vectors; a site is not honest."
            )
            return None
        masked = self.needs_all_sites
        answers = {} if masked else {name: reply.values for name, reply in replies.items()}
        self._record_round(frozenset(replies), total, answers)
        self._query = self._next_query()
        return np.zeros(0)  # sites keep no factors

    def _sum(self, replies: Sequence[Reply]) -> Vector:
        """The sum of answers; of whole numbers modulo 2^64, as masks are."""
        return sum_replies(replies, np.zeros(0))

    def _record_round(
        self, members: frozenset[str], total: Vector, answers: Mapping[str, Vector]
    ) -> None:
        """Goes on by what sites answered to the last query."""
        query = self.rounds.query
        assert query is not None
        self.finished.append(FinishedRound(query, members, total, answers))
        self.rounds.tell(self._sums(self.finished[-1], self.sites))

    def _sums(self, finished: FinishedRound, names: Sequence[str]) -> ScoreSums:
        """The sums of a round over some sites, of which single ones may be missing.

        The last answer of a missing site to a query of this kind stands in for it; of late rounds,
        the mean of those that are known. A site without any counts as the mean of the others.
        """
        answers = finished.answers
        if self.needs_all_sites:
            parts, number = [self._split(finished.total, finished.query)], len(finished.members)
        else:
            missing = [name for name in names if name not in answers]
            parts = [part for name in missing for part in self._stand_in(name, finished)]
            there = [name for name in names if name in answers]
            there = there if there or parts else list(answers)
            number = len(parts) + len(there)
            if there:
                total = np.sum([answers[name] for name in there], axis=0)
                parts.append(self._split(total, finished.query))
        factor = len(names) / number
        return _scaled_sum(parts, factor, factor * math.sqrt(number))

    def _split(self, vector: Vector, query: WhitenedQuery) -> ScoreSums:
        """The parts of an answer, with the noise of one site."""
        noise = max(self.noise_std, 1e-3)
        return split_release(vector, self.model.dimension, query.shares, noise, self.sampling_rate)

    def _stand_in(self, name: str, finished: FinishedRound) -> list[ScoreSums]:
        """What a site would have answered, by its other answers; nothing if there are none."""
        shares = finished.query.shares
        alike = [
            e for e in self.finished if name in e.answers and np.array_equal(e.query.shares, shares)
        ]
        late = any(each is finished for each in self.finished[1 + self.num_early :])
        moved = [
            change_metric(self._split(each.answers[name], each.query), each.query, finished.query)
            for each in (alike if late else alike[-1:])
        ]
        return [_scaled_sum(moved, 1 / len(moved), 1.0)] if moved else []

    def _is_possible_sum(self, values: Vector, sites: frozenset[str]) -> bool:
        """Whether this can be a noisy sum over as many units as these sites have reported.

        The first round counts units, and a unit's vector is no longer than one. This bounds what a site
        that sends anything else can do. A site that is not in the first round, because it came late or its answer was
        none, may be as large as the largest that is.
        """
        first = self.finished[0] if self.finished else None
        count = math.inf
        if first is None:
            count = float(values[-1])
        elif self.needs_all_sites and sites <= first.members:
            count = float(first.total[-1])
        elif not self.needs_all_sites:
            counts = {name: float(answer[-1]) for name, answer in first.answers.items()}
            count = sum(counts.get(name, max(counts.values())) for name in sites)
        slack = (
            _MAX_NOISE_STDS
            * self.noise_std
            * math.sqrt(len(self.sites))
            * (1 + math.sqrt(len(values)))
        )
        if self.sampling_rate < 1:  # every round has another sample
            slack += _MAX_NOISE_STDS * math.sqrt(2 * max(count, 0.0))
        return bool(np.linalg.norm(values) <= count + slack)  # not so for NaN

    def influence(self) -> dict[str, Influence]:
        """How far the posterior would move without each site.

        Of several parameters it is the one that moves most. One step from the posterior of all sites, so that it is quick
        for many. Masked answers cannot be separated.
        """
        late = self.finished[1 + self.num_early :]
        there = [name for name in self.sites if any(name in each.answers for each in late)]
        if len(there) < 2:
            return {}
        first = self.finished[0]
        whole, covariance = self.rounds.late_posterior()
        spread = np.maximum(np.sqrt(np.diag(covariance)), 1e-12)
        found = {}
        for name in there:
            units = self.rounds.units / len(self.sites)
            if name in first.answers:
                units = self._split(first.answers[name], first.query).units
            scores = []
            for each in late:
                known = name in each.answers
                sums = (
                    self._split(each.answers[name], each.query)
                    if known
                    else self._stand_in(name, each)[0]
                )
                score = sums.score[: self.rounds.basis.shape[1]]
                scores.append(each.query.clip * self.rounds.root @ score)
            removed = RemovedUnits(units, scores, 1 / len(self.sites))
            mean, without = self.rounds.late_posterior(removed)
            moved = np.abs(mean - whole) / spread
            most = int(np.argmax(moved))
            # If rows are alike, the variance of the difference is the difference of the variances.
            chance = math.sqrt(max(without[most, most] / spread[most] ** 2 - 1, 0.0))
            found[name] = Influence(float(moved[most]), chance)
        return found

    def fitted(self, rng: np.random.Generator, without: Sequence[str] = ()) -> MethodResult:
        """The posterior of what sites answered.

        Args:
            rng: Draws the posterior.
            without: Sites to leave out.

        Returns:
            The posterior.
        """
        rounds, missing = self._rounds_without(without)
        result = draw_posterior(self.model, rounds, rng, _POSTERIOR_DRAWS)
        found = method_result(self.model, result, rounds)
        absent = f"The posterior is without the rows of {', '.join(missing)}."
        moved = influence_sentences({} if without else self.influence())
        return replace(
            found,
            trace={"mean": np.array(self.trace)},
            messages=(
                *found.messages,
                *((absent,) if missing else ()),
                *moved,
            ),
            fitted_by=(
                f"Private Fisher scoring over {len(self.sites) - len(missing)} sites.",
                f"{len(self.finished)} rounds; intervals include the noise.",
            ),
        )

    def _rounds_without(self, without: Sequence[str]) -> tuple[Rounds, tuple[str, ...]]:
        """The rounds as if only some sites had been asked the same; and which sites are not in them.

        Those are the sites that are left out, and those that answered in no late round. Early rounds
        that lack one of the others are left out, and in late ones its other late answers stand in.
        """
        first = 1 + self.num_early
        if len(self.finished) < first + _MIN_LATE_ROUNDS:
            raise TacitError("Too few rounds counted to make a posterior; start the run again.")
        names = frozenset(self._posterior_sites(without))
        missing = tuple(name for name in self.sites if name not in names)
        if not missing and all(each.members == names for each in self.finished):
            return self.rounds, ()
        if self.needs_all_sites:
            chosen = [i for i, each in enumerate(self.finished) if i and each.members == names]
        else:
            chosen = [
                i for i, e in enumerate(self.finished) if i >= first or (i and e.members >= names)
            ]
        rounds = self._rounds(sum(i < first for i in chosen))
        for i in (0, *chosen):
            finished = self.finished[i]
            rounds.query = finished.query
            if i:
                rounds.position, rounds.root = self.rounds.records[i - 1][:2]
            sums = self._sums(finished, sorted(names))
            rounds.tell(sums if i < first else self._with_gap_noise(sums, names))
        return rounds, missing

    def _posterior_sites(self, without: Sequence[str]) -> Sequence[str]:
        """The sites that a posterior is of.

        If answers are masked, they are those that most late rounds have: sums over different sites are
        no samples of one sum, and cannot be taken apart.
        """
        late = self.finished[1 + self.num_early :]
        if not self.needs_all_sites:
            names = [
                n for n in self.sites if n not in without and any(n in e.answers for e in late)
            ]
            if not names:
                raise TacitError("No site is left to make a posterior of.")
            return names
        if without:
            raise InvalidArgument("Answers were masked; only their sum is known.")
        groups = [each.members for each in late]
        usual = max(groups, key=lambda group: (groups.count(group), len(group)))
        if groups.count(usual) < _MIN_LATE_ROUNDS:
            raise TacitError(
                "Sites left so often that too few rounds are of the same sites; start a new run."
            )
        return sorted(usual)

    def _with_gap_noise(self, sums: ScoreSums, names: Collection[str]) -> ScoreSums:
        """Sums of a late round whose noise is such that the mean over late rounds has its own.

        A mean that stands in for missing answers has no noise of its own.
        """
        if self.needs_all_sites:
            return sums
        late = self.finished[1 + self.num_early :]
        answers = [sum(name in each.answers for each in late) for name in names]
        more = math.sqrt(len(late) * sum(1 / each for each in answers) / len(answers))
        return sums._replace(noise={name: more * each for name, each in sums.noise.items()})

    def rule_state(self) -> Sequence[NDArray[np.float64] | NDArray[np.int64]]:
        """The last round, and what is asked next."""
        last = self.finished[-1] if self.finished else None
        sums = [] if last is None else [*last.answers.values()] or [last.total]
        names = [] if last is None else [*last.answers] or sorted(last.members)
        return (
            np.array([self.sites.index(name) for name in names], np.int64),
            np.reshape(sums, (-1, self.answer_size)).astype(np.float64),
            self._query,
        )

    def restore_rule(self, state: Arrays) -> None:
        """Goes on by the round of a state, if it has one."""
        members, sums, query = state["members"], state["sums"], state["query"]
        number = min(len(members), 1) if self.needs_all_sites else len(members)
        if (
            sums.shape != (number, self.answer_size)
            or query.shape != self._query.shape
            or not set(members) <= set(range(len(self.sites)))
        ):
            raise other_state()
        if number:
            names = [self.sites[i] for i in members]
            answers = {} if self.needs_all_sites else dict(zip(names, sums, strict=True))
            self._record_round(frozenset(names), sums.sum(axis=0), answers)
            self._next_query()
        # The same numbers to the last bit, which sites compare, also on another machine.
        self._query = query


def change_metric(sums: ScoreSums, before: WhitenedQuery, after: WhitenedQuery) -> ScoreSums:
    """An answer to one query, as it would be to another of its kind at the same position."""
    rotation = after.to_metric @ np.linalg.pinv(before.to_metric)
    curvature = sums.curvature
    slope_ratio = 1.0 if before.sizing else before.max_direction_slope / after.max_direction_slope
    return sums._replace(
        score=before.clip / after.clip * rotation @ sums.score,
        curvature=None if curvature is None else rotation @ curvature @ rotation.T,
        diagonal=slope_ratio * sums.diagonal,
        slope=before.max_slope / after.max_slope * sums.slope,
    )


def _scaled_sum(terms: Sequence[ScoreSums], factor: float, noise_factor: float) -> ScoreSums:
    """The sum of terms times a factor, with so many times the noise of the first."""
    parts = zip(*(each[:-1] for each in terms), strict=True)
    values = [None if each[0] is None else factor * np.sum(each, axis=0) for each in parts]
    noise = {name: noise_factor * each for name, each in terms[0].noise.items()}
    return ScoreSums._make([*values, noise])


@dataclass(frozen=True, kw_only=True)
class PooledScoring(SummedAnswers[PooledTarget], FederatedFit[PooledTarget]):
    """Private Fisher scoring over several sites, the default federated method.

    In every round all sites release the noisy sum of what their rows add at the same place, in the
    metric of what was learned so far. The server adds the sums up, which makes them sums over all rows.
    What it asks for next, and the posterior, follow from them as in `tacit.Scoring`. Intervals include the
    noise. Nothing needs tuning, and how rows are spread over sites does not matter.

    The model must be able to draw its outcomes, and have at most 400 unconstrained parameters. All settings
    are public and the same at all sites.

    Args:
        num_rounds: How often every site is asked; the first round counts the units.
        noise: With ``"site"`` every answer is private by itself. The noise of the sum then grows with
            the square root of the number of sites. With ``"split"`` sites share the noise and mask
            their answers; the result is that of one table.
        dishonest: With ``"split"``, the number of sites that may reveal or leave out their noise.
        dropouts: With ``"split"``, the number of sites that may leave for good without ending the run.
            Each site adds as much more noise. One that leaves in the middle of a round costs an answer
            of the others, so ``spare_answers`` must be at least as many.
        spare_answers: Answers that are charged in addition to the rounds.
        num_outcomes: As of `tacit.Scoring`.
        sampling_rate: Probability with which each unit takes part in a round, at all sites. Less than
            one is for sites with very many units.
    """

    num_rounds: int = 20
    num_outcomes: int = 6
    sampling_rate: float = 1.0

    def __post_init__(self) -> None:
        _validate.integer("num_rounds", self.num_rounds, least=4)
        super().__post_init__()
        _validate.count("num_outcomes", self.num_outcomes, least=2)
        _validate.rate("sampling_rate", self.sampling_rate)

    def for_size(self, size: int) -> "PooledScoring":
        """The method with settings for about ``size`` units at the largest site, which is public."""
        rate = min(self.sampling_rate, scoring_rate_for_size(size))
        return replace(self, sampling_rate=rate)

    def prepare(self, setting: RunSetting[PooledTarget]) -> Prepared:
        """Noise for all answers: each is one noisy clipped sum. Theorem F7."""
        without_noise = NoisySums(
            sampling_rate=self.sampling_rate,
            num_steps=1,
            clip=1.0,
            noise_multiplier=0.0,
            dimension=contribution_size(setting.target.model.dimension),
            secrets=True,
        )
        mechanism, event = self.with_noise(without_noise, setting)
        work = ScoreSumRelease(setting.target, self.num_outcomes, mechanism)
        return Prepared(work=work, event=event, in_factor=False, noise_std=mechanism.noise_std)

    def target(self, model: UnitModel | ConjugateTarget) -> PooledTarget:
        """What sites fit together."""
        if isinstance(model, ConjugateTarget):
            raise InvalidArgument(
                "PooledScoring() needs a model; use tacit.federated.Partitioned()."
            )
        check_model(model)
        space = whiten_prior(model)
        prior = np.concatenate([space.mean, np.ravel(space.scale)])
        return PooledTarget(model=model, family=QueryVector(model.dimension), prior=prior)

    def server(
        self,
        target: PooledTarget,
        names: tuple[str, ...],
        *,
        run: str,
        budget: Budget | None,
        source: Randomness,  # noqa: ARG002 (the server adds no noise)
    ) -> PooledServer:
        """The server of a run. The budget tells it how much noise answers have."""
        prepared = self.prepare(self.setting(target, budget, len(names)))
        return PooledServer(
            run=run,
            model=target.model,
            simulated=target.simulated,
            sites=names,
            num_rounds=self.num_rounds,
            noise_std=prepared.noise_std,
            num_outcomes=self.num_outcomes,
            sampling_rate=self.sampling_rate,
            needs_all_sites=self.split,
            dropouts=self.dropouts,
            spare_rounds=self.spare_answers,
            grid=prepared.work.grid,
        )

    def fitted(self, target: PooledTarget, server: Server, seed: int) -> MethodResult:  # noqa: ARG002
        """The posterior of a finished run."""
        return cast("PooledServer", server).fitted(np.random.default_rng(seed))
