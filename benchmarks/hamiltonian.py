"""DP-HMC and the penalty method beside Barker tests at the same epsilon, on two known posteriors.

    python benchmarks/hamiltonian.py                    # about ten minutes
    python benchmarks/hamiltonian.py --quick            # fewer rows and one epsilon

The models are those of Räisä, Koskela and Honkela (2021): a banana in two dimensions, and a normal mean in
ten, with 100,000 rows and delta .1 / n under replace. Clips, step sizes and numbers of leapfrog steps are theirs, as far as
their text gives them; constants of the banana and starts are ours. Noise is by our accountant, so that all of epsilon is
used. "mmd" is the maximum mean discrepancy between the chain's draws and exact ones, by a normal kernel
whose width is the median distance; exact draws against exact ones have about .03 at these numbers. "guided" is `tacit.Hamiltonian`
and `tacit.Barker` as they come, which start from private Fisher scoring.
"""

import argparse
import math
import time

import jax
import jax.numpy as jnp
import numpy as np

import tacit
from tacit.methods import GaussianWalk

# Of the banana: variances of the two columns, and how bent it is. Of both: the prior's deviation.
FIRST, SECOND, BEND, WIDE = 20.0, 2.5, 20.0, 30.0
# tau, tau_g, step, leapfrog steps, ratio clip, gradient clip of the paper.
PAPER = {
    "banana": (0.10, 0.55, 0.006, 25, 0.1, 0.05),
    "gaussian": (0.1, 0.25, 0.00015, 12, 6.0, 10.0),
}
MOST = 1000  # draws that are compared


def normal_log(x, mean, variance):
    return -0.5 * (x - mean) ** 2 / variance


def banana(size, rng):
    """The model, its rows, and exact draws by a grid."""
    x = np.stack([rng.normal(0, math.sqrt(FIRST), size), rng.normal(3, math.sqrt(SECOND), size)], 1)

    def centre(theta):
        return jnp.stack([theta[0], theta[1] + BEND * theta[0] ** 2])

    model = tacit.Model(
        parameters={"theta": tacit.models.Parameter((2,))},
        log_prior=lambda p: jnp.sum(normal_log(p["theta"], 0.0, WIDE**2)),
        log_likelihood=lambda p, row: jnp.sum(
            normal_log(row["x"], centre(p["theta"]), jnp.array([FIRST, SECOND]))
        ),
        simulate=lambda key, p, _: {
            "x": centre(p["theta"])
            + jnp.sqrt(jnp.array([FIRST, SECOND])) * jax.random.normal(key, (2,))
        },
    ).unit_model
    means = x.mean(axis=0)
    one = rng.normal(means[0], math.sqrt(FIRST / size), 20 * MOST)
    two = rng.normal(means[1] - BEND * one**2, math.sqrt(SECOND / size))
    return model, tacit.Rows({"x": x}), np.stack([one, two], 1), {"theta": [0.0, 3.0]}


def gaussian(size, rng):
    """A mean in ten dimensions, with rows of variance one."""
    x = rng.normal(size=(size, 10))
    model = tacit.Model(
        parameters={"theta": tacit.models.Parameter((10,))},
        log_prior=lambda p: jnp.sum(normal_log(p["theta"], 0.0, WIDE**2)),
        log_likelihood=lambda p, row: jnp.sum(normal_log(row["x"], p["theta"], 1.0)),
        simulate=lambda key, p, _: {"x": p["theta"] + jax.random.normal(key, (10,))},
    ).unit_model
    exact = rng.normal(x.mean(axis=0), 1 / math.sqrt(size), (20 * MOST, 10))
    return model, tacit.Rows({"x": x}), exact, {"theta": np.zeros(10)}


def mmd(one, two):
    """The maximum mean discrepancy of two samples, scaled by the second's deviations."""
    scale = two.std(axis=0)
    one, two = (
        each[np.linspace(0, len(each) - 1, MOST).astype(int)] / scale for each in (one, two)
    )

    def distances(a, b):
        return ((a[:, None] - b[None]) ** 2).sum(axis=-1)

    width = np.median(distances(two, two)) / 2

    def mean(a, b):
        return np.exp(-distances(a, b) / (2 * width)).mean()

    return math.sqrt(max(mean(one, one) + mean(two, two) - 2 * mean(one, two), 0.0))


def chains(name, size, epsilon, start, scale):
    """Methods with the paper's numbers, those of a walk of about the posterior's width, and ours."""
    tau, tau_g, step, leapfrog, ratio, gradient = PAPER[name]
    costs = 1 / (2 * tau**2 * size), (leapfrog + 1) / (2 * tau_g**2 * size)
    spread = math.sqrt(-math.log(0.1 / size))
    total = (math.sqrt(spread**2 + epsilon) - spread) ** 2  # the paper's mu
    plain = {"step_size": step, "ratio_clip": ratio, "start": start, "burn_in": 0.2}
    yield "hmc", tacit.Hamiltonian(
        num_steps=max(round(total / sum(costs)), 5), num_leapfrog=leapfrog, gradient_clip=gradient,
        gradient_share=costs[1] / sum(costs), **plain,
    )  # fmt: skip
    walk = plain | {"step_size": scale}
    yield (
        "penalty",
        tacit.Hamiltonian(
            num_steps=max(round(total / (1 / (2 * 0.17**2 * size))), 5), num_leapfrog=0, **walk
        ),
    )
    yield "barker", tacit.Barker(num_steps=2000, proposal=GaussianWalk(scale), start=start)
    yield "guided hmc", tacit.Hamiltonian()
    yield "guided barker", tacit.Barker()


def main(given=None):
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--models", nargs="+", choices=PAPER, default=list(PAPER))
    chosen = parser.parse_args(given)
    size, epsilons = (4000, (8.0,)) if chosen.quick else (100_000, (4.0, 8.0))
    print(
        "| target | epsilon | method | steps | accepted | mmd | seconds |\n|---|---|---|---|---|---|---|"
    )
    for name in chosen.models:
        make = {"banana": banana, "gaussian": gaussian}[name]
        model, rows, exact, start = make(size, np.random.default_rng(0))
        scale = float(exact.std(axis=0).min()) * 2.4 / math.sqrt(exact.shape[1])
        for epsilon in epsilons:
            budget = tacit.Budget(epsilon, 0.1 / size, "replace")
            for kind, method in chains(name, size, epsilon, start, scale):
                began = time.perf_counter()
                post = tacit.fit(model, rows, budget=budget, method=method, seed=0)
                tests = post.trace["accepted"]
                accepted, steps = float(np.mean(tests)), len(tests)
                off = mmd(np.asarray(post.draws["theta"], np.float64), exact)
                took = time.perf_counter() - began
                print(
                    f"| {name} | {epsilon:g} | {kind} | {steps} | {accepted:.2f} "
                    f"| {off:.3f} | {took:.0f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
