"""An audit: what an observer can find out by a plan's releases, beside what the plan claims.

Many runs of the plan, on made-up rows, each with a canary or without it. An observer guesses which
from what was released, and what it gets right is a lower bound on epsilon. No private row takes part.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import jax
import numpy as np

from tacit import _validate
from tacit._format import in_digits, printed
from tacit.accounting import Adjacency
from tacit.errors import InvalidArgument
from tacit.inference.base import Steps, Stepwise
from tacit.interfaces.auditing.canary import choose
from tacit.interfaces.auditing.guesses import Coins, Floats, lower_bound, trained
from tacit.interfaces.auditing.runs import Runs, broken
from tacit.interfaces.plan import Plan
from tacit.privacy.noise import Randomness
from tacit.privacy.plans import BarkerTests, NoisySums, SampledBarkerTests

# Runs by default: where every release is watched, and where only draws are.
_RUNS, _FEWER_RUNS, _LEAST = 24_000, 4_000, 100
# The share of the runs that the observer learns from.
_LEARNING = 0.1


@dataclass(frozen=True, kw_only=True)
class Audit:
    """What an audit found. Print it.

    ``lower_bound`` holds with ``confidence``: the plan's epsilon at ``delta`` is no smaller. It is at
    most ``highest``, whatever the plan does, with so few runs. ``noise_factor`` is one, unless noise was
    broken on purpose.
    """

    claim: float
    delta: float
    adjacency: Adjacency
    unit: str
    lower_bound: float
    highest: float
    confidence: float
    runs: int
    guesses: int
    right: int
    watched: str
    canary: str
    noise_factor: float = 1.0

    @property
    def contradicted(self) -> bool:
        """Whether the claim is false, with the stated confidence."""
        return self.lower_bound > self.claim

    def to_dict(self) -> dict[str, Any]:
        """All of it, as plain data."""
        return asdict(self) | {"contradicted": self.contradicted}

    def __str__(self) -> str:
        sure = f"{self.confidence:.6g}"
        claim = f"epsilon {printed(self.claim)} at delta {in_digits(self.delta)}"
        counted = f"{self.right:,} of its {self.guesses:,} guesses were right"
        lines = [
            f"Claim: {claim}, {self.adjacency}, for a {self.unit}.",
            f"Found: epsilon is at least {self.lower_bound:.4g}, with confidence {sure}.",
            f"{self.runs:,} runs on made-up rows; an observer saw {self.watched}, and {counted}.",
            f"Canary: {self.canary}.",
        ]
        if self.noise_factor != 1:
            lines.append(
                f"The noise was broken on purpose: {self.noise_factor:g} times what is charged."
            )
        if self.claim >= self.highest:
            lines.append(
                f"So few runs cannot contradict a claim above {self.highest:.3g}: take more of them."
            )
        verdict = "THE CLAIM IS FALSE." if self.contradicted else "The claim is not contradicted."
        return "\n".join([*lines, verdict])


def audit(
    plan: Plan,
    *,
    runs: int | None = None,
    confidence: float = 0.95,
    others: int = 1,
    break_noise: float = 1.0,
    seed: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Audit:
    """An empirical lower bound on the epsilon of a plan, beside its claim. Reads no data.

    ``runs`` of the plan are made on ``others`` made-up units, and in half of them a canary, a unit
    that says as much as one can. Where releases are noisy sums, or tests on all units, the observer
    sees every one of them; elsewhere the draws alone. With ``break_noise=0.5`` the noise is
    half of what is charged: to see an audit fail. ``progress`` is told how many runs are done,
    of how many.

    A bound below the claim proves nothing: see docs/audit.md.
    """
    _refuse(plan, confidence, others, break_noise)
    adjacency, source = plan.budget.adjacency, Randomness(seed)
    claim = plan.epsilons[adjacency]
    if claim is None:
        raise InvalidArgument(f"The plan claims nothing under {adjacency} that could be audited.")
    steps = _steps(plan, jax.random.key(_number(source)))
    runs = _FEWER_RUNS if runs is None and steps is None else _RUNS if runs is None else runs
    _validate.count("runs", runs, least=_LEAST)
    if isinstance(plan.release, SampledBarkerTests):
        others = plan.release.dataset_size - 1
    made_up = choose(plan, steps, others, seed=_number(source) % 2**20)
    coins = source.child("coins").words(runs) >> np.uint64(63) == 1
    release = plan.release if break_noise == 1 else broken(plan.release, break_noise)
    many = Runs(
        plan=plan,
        release=release,
        made_up=made_up,
        coins=coins,
        source=source.child("runs"),
        progress=progress,
    )
    seen = many.draws() if steps is None else many.releases(steps)
    guessed = _guessed(seen, coins, plan.budget.delta, 1 - confidence)
    return Audit(
        claim=claim,
        delta=plan.budget.delta,
        adjacency=adjacency,
        unit=plan.unit,
        confidence=confidence,
        runs=runs,
        watched="the draws alone" if steps is None else "every release",
        canary=made_up.describe(plan.unit),
        noise_factor=break_noise,
        **guessed,
    )


def _steps(plan: Plan, key: jax.Array) -> Steps | None:
    """The plan as steps, where an observer can make use of each of their releases."""
    sums_or_tests = isinstance(plan.release, NoisySums | BarkerTests)
    if not sums_or_tests or not isinstance(plan.method, Stepwise):
        return None
    return plan.method.steps(plan.model, [plan.release], [key])


def _guessed(seen: Floats, coins: Coins, delta: float, error: float) -> dict[str, Any]:
    """The bound, by an observer who learned from the first runs, on the others."""
    first = max(round(_LEARNING * len(coins)), 2)
    fresh = len(coins) - first
    observer = trained(seen[:first], coins[:first], fresh, delta, error)
    right, guesses = observer.guesses(seen[first:], coins[first:])
    return {
        "lower_bound": lower_bound(right, guesses, fresh, delta, error),
        "highest": lower_bound(fresh, fresh, fresh, delta, error),
        "right": right,
        "guesses": guesses,
    }


def _number(source: Randomness) -> int:
    """A public number that follows from a seed, if there is one."""
    return int(source.child("public").words(1)[0] >> np.uint64(33))


def _refuse(plan: Plan, confidence: float, others: int, break_noise: float) -> None:
    if not isinstance(plan, Plan) or plan.schema is None:
        raise InvalidArgument("audit takes a plan from tacit.plan, with a schema.")
    if not 0.5 <= confidence < 1:
        raise InvalidArgument(f"confidence is from 0.5 to below 1; got {confidence}.")
    _validate.count("others", others, least=0)
    _validate.positive("break_noise", break_noise)
    if break_noise != 1 and not isinstance(plan.release, NoisySums | BarkerTests):
        raise InvalidArgument(
            "break_noise is for plans of noisy sums or of tests on all units; this one has other noise."
        )
