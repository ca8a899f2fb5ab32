"""Many runs of a plan on made-up units, side by side in one program, and what is seen of them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tacit.inference.base import Found, Steps
from tacit.interfaces.auditing.canary import MadeUp
from tacit.interfaces.auditing.guesses import Coins, Floats
from tacit.interfaces.auditing.watch import SumsOrTests, evidence, watched
from tacit.interfaces.plan import Plan
from tacit.privacy.gate import Gate, run
from tacit.privacy.noise import Randomness
from tacit.privacy.plans import BarkerTests, NoisySums

# Runs side by side; numbers that are held of a block of their steps; and steps of a block.
_BESIDE, _NUMBERS, _BLOCK = 1_000, 2**23, 250
# Numbers of the draws that an observer takes into account.
_FEATURES = 40


@dataclass(frozen=True, kw_only=True, eq=False)
class Runs:
    """Runs of a plan, each with one of two neighbouring sets of made-up units, as its coin says.

    ``release`` is what the gates execute: the plan's own, or with noise that was broken.
    """

    plan: Plan
    release: Any
    made_up: MadeUp
    coins: Coins
    source: Randomness
    progress: Callable[[int, int], None] | None = None

    def releases(self, steps: Steps) -> Floats:
        """What all releases of a run say of the coin: its log-likelihood ratio [runs, 1]."""
        charged: SumsOrTests = self.plan.release  # type: ignore[assignment]
        others, canaries = self.made_up.counts
        step = watched(steps.step, charged, others)
        found = []
        for gates in self._in_turn(beside_of(charged)):
            count = len(gates)
            states = _repeated((_one(steps.states, 0), self.made_up.units), count)

            def inputs(first: int, length: int, count: int = count) -> Any:
                return _repeated(_one(steps.inputs(first, length), 1), count, axis=1)

            _, said = run(gates, step, states, inputs, block=_BLOCK)
            found.append(evidence(charged, said))
        each = np.concatenate(found)
        return each if canaries == 1 else each[:, 1:] - each[:, :1]

    def draws(self) -> Floats:
        """Means and spreads of a run's draws: some numbers [runs, numbers]."""
        found: list[Floats] = []
        keys = list(jax.random.split(jax.random.key(0), _BESIDE))
        for gates in self._in_turn(_BESIDE):
            results = self.plan.method.run(self.plan.model, gates, keys[: len(gates)])
            found += [_features(each) for each in results]
        return np.stack(found)

    def _in_turn(self, beside: int) -> Iterator[list[Gate]]:
        """Gates, so many at a time; the last of them fewer."""
        worlds = self._worlds()
        for start in range(0, len(self.coins), beside):
            some = self.coins[start : start + beside]
            yield [Gate(worlds[int(coin)], self.release, self.source.child("run")) for coin in some]
            if self.progress is not None:
                self.progress(start + len(some), len(self.coins))

    def _worlds(self) -> Any:
        if self.made_up.counts[1] == 1:
            return self.made_up.rows(), self.made_up.rows(0)
        return self.made_up.rows(0), self.made_up.rows(1)


def beside_of(plan: SumsOrTests) -> int:
    """How many runs go side by side: fewer where a step has many numbers."""
    return max(2, min(_BESIDE, _NUMBERS // (min(_BLOCK, plan.num_steps) * plan.words)))


def broken(release: Any, factor: float) -> Any:
    """A release whose noise is so many times what is charged; or a unit's say in a test the inverse."""
    if isinstance(release, NoisySums):
        phases = tuple((factor * scale, steps) for scale, steps in release.phases)
        return replace(release, noise_multiplier=phases)
    assert isinstance(release, BarkerTests)
    return replace(release, ratio_bound=release.ratio_bound / factor)


def _one(tree: Any, axis: int) -> Any:
    """Of the only gate."""
    return jax.tree.map(lambda leaf: leaf.take(0, axis=axis), tree)


def _repeated(tree: Any, count: int, axis: int = 0) -> Any:
    """The same for so many gates."""

    def leaf(values: Any) -> Any:
        values = np.expand_dims(np.asarray(values), axis)
        return jnp.asarray(np.repeat(values, count, axis=axis))

    return jax.tree.map(leaf, tree)


def _features(found: Found) -> Floats:
    draws = [np.asarray(each, np.float64) for each in found.draws.values()]
    flat = np.concatenate([each.reshape(len(each), -1) for each in draws], axis=1)
    several = len(flat) > 1
    parts = [flat.mean(axis=0)] + ([np.log(flat.std(axis=0) + 1e-9)] if several else [])
    return np.concatenate([part[:_FEATURES] for part in parts])
