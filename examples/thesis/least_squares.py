"""Least squares by noisy gradients, priced in several ways: thesis Example 2.28.

python examples/thesis/least_squares.py
"""

import jax.numpy as jnp
import numpy as np

from tacit.accounting import PLD, Budget, calibrate, events
from tacit.papers.accountants import Advanced, Basic
from tacit.privacy.gate import Gate, run
from tacit.privacy.mechanisms import NoisySums, sum_rows
from tacit.privacy.noise import Randomness
from tacit.privacy.rows import Rows

PEOPLE, TRUTH = 100, 1.0
CLIP, STEPS, RUNS, DELTA = 0.5, 500, 20, 1e-6
LEARNING_RATE = 0.002
EPSILONS = (1.0, 5.0, 20.0)


def gradient(w, row):
    return (-2 * row["x"] * (row["y"] - w * row["x"]))[None]


def update(w, _, release):
    w = w - LEARNING_RATE * release.noisy_sum(sum_rows(gradient), w)[0]
    return w, w


def plan(noise_multiplier: float, *, laplace: bool) -> NoisySums:
    """So many gradients, each summed over everyone within the clip."""
    return NoisySums(
        sampling_rate=1.0,
        num_steps=STEPS,
        clip=CLIP,
        noise_multiplier=noise_multiplier,
        dimension=1,
        laplace=laplace,
    )


def ways(epsilon: float) -> dict[str, NoisySums]:
    """The least noise for one budget, by each theorem. One person's record may be replaced."""
    pure, relaxed = Budget(epsilon, 0.0, "replace"), Budget(epsilon, DELTA, "replace")

    def laplace(scale: float):
        return events.repeat(events.laplace(scale), STEPS)

    def gaussian(scale: float):
        return events.repeat(events.gaussian(scale), STEPS)

    noises = {
        "Laplace, basic": (calibrate.calibrate(laplace, pure, Basic()), True),
        "Laplace, advanced": (calibrate.calibrate(laplace, relaxed, Advanced(slack=None)), True),
        "Laplace, privacy loss": (calibrate.calibrate(laplace, relaxed, PLD()), True),
        "Gaussian, privacy loss": (calibrate.calibrate(gaussian, relaxed, PLD()), False),
    }
    return {name: plan(scale, laplace=laplace) for name, (scale, laplace) in noises.items()}


def fitted(rows: Rows, settings: NoisySums, source: Randomness) -> np.ndarray:
    """Where each of several runs ends."""
    gates = [Gate(rows, settings, source.child("run")) for _ in range(RUNS)]

    def nothing(_, steps):
        return np.zeros(steps, np.float32)

    return np.array([run(gate, update, jnp.zeros(()), nothing)[0] for gate in gates])


def people() -> tuple[np.ndarray, np.ndarray]:
    """Simulated people near a line."""
    generator = np.random.default_rng(1)
    x = generator.uniform(-1, 1, PEOPLE)
    return x, TRUTH * x + 0.1 * generator.standard_normal(PEOPLE)


def main(seed: int | None = None) -> None:
    source, (x, y) = Randomness(seed), people()
    rows, best = Rows({"x": x, "y": y}), (x @ y) / (x @ x)
    print(
        "Claim: basic composition perturbs learning too much; advanced composition, for a delta of"
    )
    print(
        f"{DELTA:g}, improves it a lot. {PEOPLE} people, {STEPS} updates, clip {CLIP}, {RUNS} runs."
    )
    print(f"Least squares without noise: w = {best:.4f}.\n")
    for epsilon in EPSILONS:
        for name, settings in ways(epsilon).items():
            found = fitted(rows, settings, source)
            away = np.sqrt(np.mean((found - best) ** 2))
            scale = settings.phases[0][0]
            print(f"epsilon {epsilon:4g}, {name:23s} noise {scale:7.2f} clips, w off by {away:.3f}")
    print("\nThe gate did what is charged: every update looked at everyone.")


if __name__ == "__main__":
    main()
