"""Steps per second of Barker chains, beside the authors' own code.

    python benchmarks/mcmc.py            # a table; about two minutes
    python benchmarks/mcmc.py --quick    # fewer steps

The mixture of two means (Heikkilä et al. 2019, Section 4) with the paper's settings. The authors'
code makes 260 to 410 steps a second on batches of 1000; ours is timed with everything it does:
batches and thresholds from the cryptographic generator, sums on the lattice. Times are the
shortest of three, less the time to compile.
"""

import argparse
import math
import sys
import time
from pathlib import Path

import numpy as np

from tacit import Barker, Budget, Rows
from tacit.api.fit import fit_many
from tacit.methods import GaussianWalk

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "experiments"))
from mixture import two_means

AUTHORS = (260, 410)
TEMPERED_SIZE, BATCH = 100, 1000


def cases(quick):
    """Names, rows, steps, and settings of the test."""
    share = 10 if quick else 1
    bound = math.sqrt(BATCH) / TEMPERED_SIZE
    for size, steps in ((10**6, 40_000), (10**5, 40_000)):
        yield f"batches of {BATCH}", size, steps // share, {"batch_size": BATCH}
    for size, steps in ((10**4, 20_000), (10**5, 4000), (10**6, 400)):
        full = {"ratio_bound": bound * TEMPERED_SIZE / size}
        yield "all rows, exact", size, steps // share, full
    full = {"ratio_bound": bound * TEMPERED_SIZE / 10**5, "noise_variance": 2.0}
    yield "all rows, published", 10**5, 4000 // share, full


def seconds(model, rows, steps, size, settings):
    """The shortest of three runs; the first, which compiles, does not count."""
    method = Barker(
        num_steps=steps,
        size=size,
        tempered_size=TEMPERED_SIZE,
        proposal=GaussianWalk(0.1),
        **settings,
    )
    budget, taken = Budget(1e4, 1e-6, "replace"), []
    plan_free = time.perf_counter()
    method.calibrate(model, budget)
    planning = time.perf_counter() - plan_free
    for _ in range(4):
        began = time.perf_counter()
        fit_many(model, [rows], [budget], method)
        taken.append(time.perf_counter() - began - planning)
    return min(taken[1:])


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the steps")
    quick = parser.parse_args().quick
    rng, model = np.random.default_rng(0), two_means()
    x = rng.normal(rng.integers(0, 2, 10**6), math.sqrt(2)).astype(np.float32)
    print(f"{'test':22}{'rows':>10}{'steps':>8}{'steps/s':>10}   over the authors'")
    low, high = AUTHORS
    print(f"{'authors, of 1000':22}{10**6:>10,}{'':>8}{f'{low}-{high}':>10}")
    for name, size, steps, settings in cases(quick):
        speed = steps / seconds(model, Rows({"x": x[:size]}), steps, size, settings)
        ratios = f"{speed / high:.0f}x to {speed / low:.0f}x"
        print(f"{name:22}{size:>10,}{steps:>8,}{speed:>10,.0f}   {ratios}", flush=True)


if __name__ == "__main__":
    main()
