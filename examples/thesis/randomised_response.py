"""Answers that may be denied: thesis Example 2.7, with two coins for every respondent.

python examples/thesis/randomised_response.py
"""

import math

import numpy as np

from tacit.accounting import PLD, events
from tacit.papers.response import frequencies, randomised_response
from tacit.privacy.noise import Randomness

# Tails: the truth. Heads: another coin says yes or no. That is noise 1/2 over two answers.
NOISE, ANSWERS = 0.5, ("no", "yes")
PEOPLE, SHARE = 50_000, 0.3


def main(seed: int | None = None) -> None:
    source = Randomness(seed)
    epsilon = PLD().epsilon(events.randomised_response(NOISE, len(ANSWERS)), 0.0, "replace")
    print(f"Claim: the answers are ln 3 = {math.log(3):.4f}-differentially private.")
    print(f"The accountant's epsilon at delta 0: {epsilon:.4f}.")

    shares = [
        np.mean(randomised_response(np.full(PEOPLE, truth), NOISE, len(ANSWERS), source))
        for truth in (0, 1)
    ]
    print(
        f"Of {PEOPLE:,} who mean no, {shares[0]:.4f} say yes; of those who mean yes, {shares[1]:.4f}."
    )
    print(
        f"So one answer makes an output {shares[1] / shares[0]:.3f} times as likely; at most 3.\n"
    )

    truth = np.arange(PEOPLE) < SHARE * PEOPLE
    said = randomised_response(truth, NOISE, len(ANSWERS), source)
    found, errors = frequencies(said, NOISE, len(ANSWERS))
    print(f"A study: {SHARE:.0%} of {PEOPLE:,} mean yes, {said.mean():.2%} say so.")
    print(f"Estimate of those who mean it: {found[1]:.4f}, standard error {errors[1]:.4f}.")
    print("Nobody who said yes can be told to mean it: half of all answers are a coin's.")


if __name__ == "__main__":
    main()
