"""What follows from the rounds of pooled scoring: the posterior, also without some sites, and their influence."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tacit.errors import InvalidArgument, TacitError
from tacit.federated.influence import MOST_COMPARED, swayed
from tacit.federated.method import Fitted
from tacit.federated.scored.carried import MetricFrame, carried
from tacit.inference.base import Intervals, parameters
from tacit.inference.evidence import StepRecord, posterior_of
from tacit.inference.scores import Tempo, parts_of, width
from tacit.inference.whitened import whitened
from tacit.models.base import AnyModel
from tacit.models.natural import Vector

_DRAWS, _FEW_DRAWS = 1000, 200
# Late rounds that a posterior needs.
_FEWEST = 2


class Round(NamedTuple):
    """A round that counted: its number, what the step left, whose rows are in it, and the sites' sums.

    There are no sums of single sites if answers were masked.
    """

    number: int
    record: StepRecord
    members: frozenset[str]
    answers: Mapping[str, Vector]


@dataclass(frozen=True, kw_only=True)
class Findings:
    """The rounds of a run, and what is known of them; see `tacit.federated.scored.server.ScoringServer`.

    ``early`` is the number of rounds that only found the way, and ``tempo`` has a line for every round.
    """

    model: AnyModel
    sites: tuple[str, ...]
    noise: float
    outcomes: int
    whole: bool
    early: int
    tempo: NDArray[np.float32]
    done: tuple[Round, ...]

    def influence(self) -> dict[str, float]:
        """How far the posterior would move without each site, in its standard deviations.

        Of several parameters it is the one that moves most. Masked answers cannot be told apart.
        """
        if self.whole or len(self.sites) == 1:
            return {}
        whole = self._result(())
        spread = np.maximum(whole.std(axis=0), 1e-12)
        there = [name for name in self.sites if self._late_answers(name)]
        return {
            name: float(
                np.max(np.abs(self._result([name]).mean(axis=0) - whole.mean(axis=0)) / spread)
            )
            for name in (there if len(there) > 1 else ())
        }

    def _late_answers(self, name: str) -> int:
        return sum(name in each.answers for each in self.done[self.early :])

    def _result(self, without: Sequence[str]) -> Vector:
        """Few draws without some sites, by the same random numbers."""
        seen, given, _ = self._seen(without)
        late = min(len(seen.place), len(self.done) - self.early)
        rng = np.random.default_rng(0)
        found = posterior_of(
            self.model, Tempo(given, late, 1.0), seen, self.outcomes, rng, _FEW_DRAWS
        )
        return found.draws

    def fitted(
        self, rng: np.random.Generator, trace: Vector, without: Sequence[str] = ()
    ) -> Fitted:
        """The posterior of what sites answered.

        Args:
            rng: Draws the posterior.
            trace: Where the rounds were, on the unconstrained scale.
            without: Sites to leave out.

        Returns:
            The posterior.
        """
        seen, given, missing = self._seen(without)
        late = min(len(seen.place), len(self.done) - self.early)
        result = posterior_of(self.model, Tempo(given, late, 1.0), seen, self.outcomes, rng, _DRAWS)
        vectors = vector_of(self.model, result.draws)
        absent = f"The posterior is without the rows of {', '.join(missing)}."
        return Fitted(
            draws=parameters(self.model, jnp.asarray(vectors, jnp.float32)),
            trace={"mean": trace},
            mean=vectors.mean(axis=0),
            covariance=np.atleast_2d(np.cov(vectors.T)),
            said=(*result.said, *((absent,) if missing else ()), *self._swayed(without)),
            fitted_by=(
                f"Private Fisher scoring over {len(self.sites) - len(missing)} sites.",
                f"{len(self.done)} rounds; intervals include the noise.",
            ),
            intervals=Intervals.INCLUDED,
            converged=result.converged,
        )

    def _swayed(self, without: Sequence[str]) -> tuple[str, ...]:
        """A sentence about the site with the most influence, if that is much."""
        return swayed({} if without or len(self.sites) > MOST_COMPARED else self.influence())

    def pulls(self, finished: Round) -> dict[str, float]:
        """How strongly each site pulled in a round, in standard deviations that all rows leave.

        It is the length of a site's score. Scores of all sites cancel where the posterior is.
        """
        frame, size = frame_of(self.tempo, finished), self.model.dimension
        if self.whole or not 1 < len(finished.answers) <= MOST_COMPARED:
            return {}
        seen = {
            name: parts_of(answer, size, 1.0, frame.clips, frame.shares)
            for name, answer in finished.answers.items()
        }
        units = max(sum(float(each.count) for each in seen.values()), 1.0)
        return {
            name: float(np.linalg.norm(each.score)) / math.sqrt(units)
            for name, each in seen.items()
        }

    def _seen(
        self, without: Sequence[str]
    ) -> tuple[StepRecord, NDArray[np.float32], tuple[str, ...]]:
        """What the rounds left, what was known of them, and which sites are not in it.

        Where a site missed a late round, the mean of its other late answers takes the place of the
        missing one, and counts as often less as it should.
        """
        if len(self.done) < self.early + _FEWEST:
            raise TacitError("Too few rounds counted to make a posterior; start the run again.")
        records = [finished.record for finished in self.done]
        seen = StepRecord(*(np.stack(each) for each in zip(*records, strict=True)))
        given = self.tempo[: len(self.done)].copy()
        if self.whole:
            if without:
                raise InvalidArgument("Answers were masked; only their sum is known.")
            return self._of_one_group(seen, given)
        late = self.done[self.early :]
        counts = {name: self._late_answers(name) for name in self.sites}
        there = [name for name in self.sites if counts[name] and name not in without]
        missing = tuple(name for name in self.sites if name not in there)
        if not missing and min(counts.values()) == len(late):
            return seen, given, ()
        if not there:
            raise TacitError("No site is left to make a posterior of.")
        released = [self._sum_of(there, each, late) for each in late]
        seen = StepRecord(*(each[self.early :] for each in seen))._replace(
            released=np.stack(released)
        )
        given = given[self.early :]
        given[:, 0] = self.noise * math.sqrt(len(late) * sum(1 / counts[name] for name in there))
        return seen, given, missing

    def _of_one_group(
        self, seen: StepRecord, given: NDArray[np.float32]
    ) -> tuple[StepRecord, NDArray[np.float32], tuple[str, ...]]:
        """The rounds whose sums are over the same sites: those of the group that most late rounds have.

        Sums over different sites are no samples of one sum, and masked answers cannot be taken apart.
        """
        groups = [each.members for each in self.done[self.early :]]
        if all(len(group) == len(self.sites) for group in groups):
            return seen, given, ()
        usual = max(groups, key=lambda group: (groups.count(group), len(group)))
        chosen = [self.early + i for i, group in enumerate(groups) if group == usual]
        if len(chosen) < _FEWEST:
            raise TacitError(
                "Sites left so often that too few rounds are of the same sites; start a new run."
            )
        given = given[chosen]
        given[:, 0] = self.noise * math.sqrt(len(usual))
        missing = tuple(name for name in self.sites if name not in usual)
        return StepRecord(*(each[chosen] for each in seen)), given, missing

    def _sum_of(self, names: Sequence[str], finished: Round, late: Sequence[Round]) -> Vector:
        """The sum of sites' answers in a round, with means in place of missing ones."""
        total = np.zeros(width(self.model.dimension))
        frame = frame_of(self.tempo, finished)
        for name in names:
            if name in finished.answers:
                total += finished.answers[name]
                continue
            others = [each for each in late if name in each.answers]
            moved_here = [carried(e.answers[name], frame_of(self.tempo, e), frame) for e in others]
            total += np.mean(moved_here, axis=0)
        return total


def frame_of(tempo: NDArray[np.float32], finished: Round) -> MetricFrame:
    """The metric, clips and shares of a round."""
    root, clips = (np.asarray(e, np.float64) for e in (finished.record.root, finished.record.clips))
    return MetricFrame(root, clips, tempo[finished.number - 1][4:].astype(np.float64))


def vector_of(model: AnyModel, places: Any) -> Vector:
    """Unconstrained numbers, from whitened ones."""
    space = whitened(model)
    return np.asarray(space.mean + np.asarray(places, np.float64) @ space.scale.T)
