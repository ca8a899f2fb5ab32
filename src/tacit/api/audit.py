"""Audits: an empirical lower bound on the epsilon of a plan, compared with its claim.

The plan is run many times on simulated rows, each time with or without a canary. An observer guesses
from the releases whether the canary was present, and the number of correct guesses gives a lower
bound on epsilon. No private row is read.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass

import jax
import numpy as np

from tacit import _validate
from tacit._format import format_epsilon, format_number
from tacit._precision import in_32_bits
from tacit._typing import JSON
from tacit.accounting import Adjacency
from tacit.api.audit_runs import (
    AuditRuns,
    ObservableMechanism,
    ObservedPlan,
    choose_canary,
    lower_bound,
    train_observer,
    with_broken_noise,
)
from tacit.api.plan import Plan
from tacit.errors import InvalidArgument
from tacit.privacy.mechanisms import SampledBarkerTests
from tacit.privacy.noise import Randomness

# Runs by default: where the observer sees every release, and where it sees draws only.
_DEFAULT_RUNS, _DEFAULT_RUNS_OF_DRAWS, _MIN_RUNS = 24_000, 4_000, 100
# The share of the runs that the observer learns from.
_TRAINING_SHARE = 0.1


@dataclass(frozen=True, kw_only=True)
class Audit:
    """The result of an audit. Print it.

    Attributes:
        claim: The epsilon that the plan claims.
        delta: The delta of the claim.
        adjacency: The adjacency of the claim.
        unit: The unit of privacy.
        lower_bound: A lower bound on the true epsilon at ``delta``, which holds with
            ``confidence``.
        highest: The largest bound that this number of runs can give.
        confidence: The confidence of the bound.
        runs: The number of runs.
        guesses: The number of guesses the observer made.
        right: The number of correct guesses.
        watched: What the observer saw.
        canary: A description of the canary.
        noise_factor: The fraction of the charged noise that was used; 1 unless ``break_noise`` was
            passed.
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

    def to_dict(self) -> dict[str, JSON]:
        """All fields as plain data."""
        return asdict(self) | {"contradicted": self.contradicted}

    def __str__(self) -> str:
        sure = f"{self.confidence:.6g}"
        claim = f"epsilon {format_epsilon(self.claim)} at delta {format_number(self.delta)}"
        counted = f"{self.right:,} of its {self.guesses:,} guesses were right"
        lines = [
            f"Claim: {claim}, {self.adjacency}, for a {self.unit}.",
            f"Found: epsilon is at least {self.lower_bound:.4g}, with confidence {sure}.",
            f"{self.runs:,} runs on simulated rows; an observer saw {self.watched}, and {counted}.",
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


@in_32_bits
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
    """Computes an empirical lower bound on the epsilon of a plan. Reads no data.

    If the releases are noisy sums, or tests on all units, the observer sees every release. For
    other plans it sees only the draws. A bound below the claim does not prove the claim; see
    "Audits" in the documentation.

    Args:
        plan: A plan from `tacit.plan`, with a schema.
        runs: Number of runs, at least 100. By default 24,000, or 4,000 if only draws are observed.
        confidence: Confidence of the bound, from 0.5 to below 1.
        others: Number of simulated units beside the canary.
        break_noise: Fraction of the charged noise to run with. A value such as 0.25 shows that an
            audit can fail.
        seed: Makes the audit reproducible.
        progress: Called with the number of runs done and the total.

    Returns:
        The result, with the bound and the claim.

    Raises:
        InvalidArgument: If an argument is wrong, or the plan has no bound under its adjacency.
    """
    _check_arguments(plan, confidence, others, break_noise)
    adjacency, source = plan.budget.adjacency, Randomness(seed)
    claim = plan.epsilons[adjacency]
    if claim is None:
        raise InvalidArgument(
            f"The plan has no bound under {adjacency}, so there is no claim to audit."
        )
    observed = _observed_plan(plan, jax.random.key(_public_seed(source)))
    if runs is None:
        runs = _DEFAULT_RUNS_OF_DRAWS if observed is None else _DEFAULT_RUNS
    _validate.count("runs", runs, least=_MIN_RUNS)
    if isinstance(plan.mechanism, SampledBarkerTests):
        others = plan.mechanism.dataset_size - 1
    data = choose_canary(plan, observed, others, seed=_public_seed(source) % 2**20)
    coins = source.child("coins").words(runs) >> np.uint64(63) == 1
    mechanism = plan.mechanism
    if break_noise != 1 and isinstance(mechanism, ObservableMechanism):
        mechanism = with_broken_noise(mechanism, break_noise)
    many = AuditRuns(
        plan=plan,
        mechanism=mechanism,
        data=data,
        coins=coins,
        source=source.child("runs"),
        progress=progress,
    )
    seen = many.draws() if observed is None else many.releases(observed)
    # The observer learns from the first runs, and guesses on the others.
    first = max(round(_TRAINING_SHARE * runs), 2)
    fresh, delta, error = runs - first, plan.budget.delta, 1 - confidence
    observer = train_observer(seen[:first], coins[:first], fresh, delta, error)
    right, guesses = observer.guesses(seen[first:], coins[first:])
    return Audit(
        claim=claim,
        delta=delta,
        adjacency=adjacency,
        unit=plan.unit,
        confidence=confidence,
        runs=runs,
        watched="the draws alone" if observed is None else "every release",
        canary=data.describe(plan.unit),
        noise_factor=break_noise,
        lower_bound=lower_bound(right, guesses, fresh, delta, error),
        highest=lower_bound(fresh, fresh, fresh, delta, error),
        right=right,
        guesses=guesses,
    )


def _observed_plan(plan: Plan, key: jax.Array) -> ObservedPlan | None:
    """The plan's mechanism and steps, where an observer can make use of each of their releases."""
    mechanism = plan.mechanism
    if not isinstance(mechanism, ObservableMechanism):
        return None
    steps = plan.method.steps(plan.model, mechanism, key)
    return None if steps is None else ObservedPlan(mechanism, steps)


def _public_seed(source: Randomness) -> int:
    """A public number that follows from a seed, if there is one."""
    return int(source.child("public").words(1)[0] >> np.uint64(33))


def _check_arguments(plan: Plan, confidence: float, others: int, break_noise: float) -> None:
    if not isinstance(plan, Plan) or plan.schema is None:
        raise InvalidArgument("audit takes a plan from tacit.plan, with a schema.")
    if not 0.5 <= confidence < 1:
        raise InvalidArgument(f"confidence must be at least 0.5 and below 1; got {confidence}.")
    _validate.count("others", others, least=0)
    _validate.positive("break_noise", break_noise)
    if break_noise != 1 and not isinstance(plan.mechanism, ObservableMechanism):
        raise InvalidArgument(
            "break_noise works only for plans of noisy sums or of tests on all units."
        )
