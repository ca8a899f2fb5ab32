"""Many runs of a plan on made-up units, one after the other, and what is seen of them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import jax
import numpy as np

from tacit.inference.base import MethodResult
from tacit.interfaces.auditing.canary import MadeUp
from tacit.interfaces.auditing.guesses import Coins, Floats
from tacit.interfaces.auditing.watch import SumsOrTests, Watched, evidence, watched
from tacit.interfaces.plan import Plan
from tacit.privacy.gate import Gate, run
from tacit.privacy.mechanisms import Mechanism, NoisySums
from tacit.privacy.noise import Randomness
from tacit.privacy.opening import open_gate
from tacit.privacy.rows import Rows

# Runs between two calls of progress, and steps whose noise is drawn at once.
_TOLD, _BLOCK = 1_000, 1_000
# Numbers of the draws that an observer takes into account.
_FEATURES = 40


@dataclass(frozen=True, kw_only=True, eq=False)
class Runs:
    """Runs of a plan, each with one of two neighbouring sets of made-up units, as its coin says.

    ``mechanism`` is what the gates execute: the plan's own, or with noise that was broken.
    """

    plan: Plan
    mechanism: Mechanism
    made_up: MadeUp
    coins: Coins
    source: Randomness
    progress: Callable[[int, int], None] | None = None

    def releases(self, seen: Watched) -> Floats:
        """What all releases of a run say of the coin: its log-likelihood ratio [runs, 1]."""
        charged, steps = seen
        others, canaries = self.made_up.counts
        step = watched(steps.step, charged, others)
        state = steps.state, self.made_up.units
        found = []
        for gate in self._gates():
            _, said = run(gate, step, state, steps.inputs, block=_BLOCK)
            found.append(evidence(charged, said))
        each = np.stack(found)
        return each if canaries == 1 else each[:, 1:] - each[:, :1]

    def draws(self) -> Floats:
        """Means and spreads of a run's draws: some numbers [runs, numbers]."""
        key = jax.random.key(0)
        method, model = self.plan.method, self.plan.model
        found = [
            _features(method.run(model, gate, jax.random.fold_in(key, i)))
            for i, gate in enumerate(self._gates())
        ]
        return np.stack(found)

    def _gates(self) -> Iterator[Gate]:
        """A gate for each run in turn."""
        worlds = self._worlds()
        for done, coin in enumerate(self.coins):
            if self.progress is not None and done and done % _TOLD == 0:
                self.progress(done, len(self.coins))
            yield open_gate(worlds[int(coin)], self.mechanism, self.source.child("run"))
        if self.progress is not None:
            self.progress(len(self.coins), len(self.coins))

    def _worlds(self) -> tuple[Rows, Rows]:
        """The two data sets: what a run gets if its coin is 0, and if it is 1."""
        if self.made_up.counts[1] == 1:
            return self.made_up.rows(), self.made_up.rows(0)
        return self.made_up.rows(0), self.made_up.rows(1)


def broken(mechanism: SumsOrTests, factor: float) -> SumsOrTests:
    """A mechanism whose noise is so many times what is charged; or a unit's say in a test the inverse."""
    if isinstance(mechanism, NoisySums):
        # Phases are those of all rounds.
        phases = tuple((factor * scale, steps) for scale, steps in mechanism.phases)
        return replace(mechanism, noise_multiplier=phases, rounds=1)
    return replace(mechanism, ratio_bound=mechanism.ratio_bound / factor)


def _features(found: MethodResult) -> Floats:
    draws = [np.asarray(each, np.float64) for each in found.draws.values()]
    flat = np.concatenate([each.reshape(len(each), -1) for each in draws], axis=1)
    several = len(flat) > 1
    parts = [flat.mean(axis=0)] + ([np.log(flat.std(axis=0) + 1e-9)] if several else [])
    return np.concatenate([part[:_FEATURES] for part in parts])
