"""A noisy count, and what asking again tells: thesis Definition 2.10 and Example 2.23.

python examples/thesis/counting.py
"""

import tempfile
from pathlib import Path

import jax.numpy as jnp
import numpy as np

import tacit
from tacit.accounting import PLD
from tacit.papers.accountants import Advanced, Basic
from tacit.privacy.gate import Gate, run
from tacit.privacy.mechanisms import NoisySums, sum_rows
from tacit.privacy.noise import Randomness
from tacit.privacy.rows import Rows

STUDY = {"Alice": 0, "Bob": 1, "Charles": 0, "Diana": 1, "Eric": 1}
EPSILON = 0.5
DELTA = 1e-6


def counts(num_answers: int) -> NoisySums:
    """So many counts, each with Laplace noise: a person moves one by 1, so its scale is 1/epsilon."""
    return NoisySums(
        sampling_rate=1.0,
        num_steps=num_answers,
        clip=1.0,
        noise_multiplier=1 / EPSILON,
        dimension=1,
        batch_bound=1000,
        laplace=True,
    )


def diabetic(_, row):
    return row["diabetic"][None]


def ask(state, _, release):
    return state, release.noisy_sum(sum_rows(diabetic), ())


def answers(people: dict[str, int], num_answers: int, source: Randomness) -> np.ndarray:
    """What the gate releases of a study."""
    rows = Rows({"diabetic": np.array(list(people.values()), np.float32)})
    gate = Gate(rows, counts(num_answers), source)
    return run(gate, ask, jnp.zeros(()), lambda _, steps: np.zeros(steps, np.float32))[1].ravel()


def mechanism(source: Randomness) -> None:
    """Definition 2.10 and Theorem 2.11, by many releases on two neighbouring studies."""
    without = {name: value for name, value in STUDY.items() if name != "Diana"}
    ours, theirs = (np.sort(answers(study, 40_000, source)) for study in (STUDY, without))
    error = np.abs(ours - sum(STUDY.values())).mean()
    # How often an answer is above a threshold, where that happens often enough to be compared.
    thresholds = np.arange(0, 6.5, 0.5)
    above, others = (1 - np.searchsorted(each, thresholds) / len(each) for each in (ours, theirs))
    ratio = np.log(above / others).max()
    cost = PLD().epsilon(counts(1).event, 0.0)
    print(
        f"Claim: Laplace noise of scale 1/epsilon makes a count {EPSILON}-differentially private."
    )
    print(f"The accountant's epsilon at delta 0: {cost:.4f}.")
    print(f"Mean error of {len(ours):,} releases: {error:.3f}, for a scale of {1 / EPSILON:g}.")
    print(
        f"With Diana and without, measured chances differ by a factor exp({ratio:.3f}) at most.\n"
    )


def attack(source: Randomness) -> None:
    """Example 2.23: the adversary knows everyone else, and wants to know of Diana."""
    known = sum(value for name, value in STUDY.items() if name != "Diana")
    total = sum(STUDY.values())
    print(f"Without noise: {known} before Diana joined, {total} after. So Diana has diabetes.")
    print(f"With it, an adversary averages answers of epsilon {EPSILON} each:")
    heard = answers(STUDY, 40_000, source)
    for times in (1, 10, 100, 1000):
        means = heard.reshape(-1, times).mean(axis=1)
        right = np.mean(means > known + 0.5)
        event = counts(times).event
        costs = [each.epsilon(event, DELTA) for each in (Basic(), Advanced(slack=None), PLD())]
        print(
            f"  {times:4d} at a time: off by {np.abs(means - total).mean():.3f}, right about Diana in "
            f"{right:.1%}; epsilon {', '.join(f'{cost:.4g}' for cost in costs)}"
        )
    print(f"(epsilon by basic and by advanced composition and by privacy loss, delta {DELTA:g})")


def ledger_refuses() -> None:
    """A book of what was spent stops the adversary: answers cost, and are not given for nothing."""
    with tempfile.TemporaryDirectory() as folder:
        ledger = tacit.Ledger.new(Path(folder) / "study.db", total=tacit.Budget(2.0), unit="row")
        given = 0
        try:
            for _ in range(1000):
                ledger.charge(counts(1).event, tacit.Budget(EPSILON), label="count")
                given += 1
        except tacit.BudgetError:
            print(f"\nA ledger of epsilon 2 allows {given} such answers, and refuses the next.")


def main(seed: int | None = None) -> None:
    source = Randomness(seed)
    mechanism(source.child("mechanism"))
    attack(source.child("attack"))
    ledger_refuses()


if __name__ == "__main__":
    main()
