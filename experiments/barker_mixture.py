"""DP-MCMC on the mixture of two means: the posterior it finds, and what it costs.

    python experiments/barker_mixture.py            # about ten minutes
    python experiments/barker_mixture.py --quick    # about one, with more error

The setting of Heikkilä et al. 2019, Section 4: rows that count as a hundred, ratios clipped to
sqrt(1000)/100 = .316, normal proposals. First what 20,000 steps on a million rows cost, by the
paper's bounds and by tight ones. Then chains beside the grid posterior of the same rows: on all
rows they are within Monte Carlo error if ratios are hardly clipped. With the paper's clip the
variance shrinks by some per cent, on batches and on all rows alike: it is the clip, which
weakens the rows in the tails, and not the sampling of batches. Smaller proposals are clipped less.
"""

import argparse
import math

import numpy as np
from mixture import mixture_moments, mixture_rows

from tacit import Barker, Budget, GaussianWalk, Rows
from tacit.accounting import PLD, Renyi, events
from tacit.interfaces.fit import fit_many
from tacit.models.mixture import two_means
from tacit.results import diagnostics

COUNTED, BATCH = 100, 1000
CLIP = math.sqrt(BATCH) / COUNTED
# So large that it never binds: chains are compared here at settings, not at a budget.
AMPLE = Budget(1e6, 1e-6, "replace")


def costs(size=10**6, steps=20_000):
    """Names and epsilons of 20,000 steps, from the paper's bound to the tightest."""

    def batches(paper):
        return events.repeat(
            events.SubsampledBarkerTest(batch_size=BATCH, dataset_size=size, paper_bound=paper),
            steps,
        )

    bound = CLIP * COUNTED / size
    published = events.repeat(events.GaussianBarkerTest(ratio_bound=bound), steps)
    exact = events.repeat(events.BarkerTest(ratio_bound=bound), steps)
    yield "batches, Theorem 2 as printed", Renyi(conversion="basic"), batches(True)
    yield "batches, better conversion", Renyi(), batches(True)
    yield "batches, tight middle term", Renyi(), batches(False)
    yield "all rows, Theorem 1 as printed", Renyi(conversion="basic"), published
    yield "all rows, Theorem 1, tight", PLD(), published
    yield "all rows, exact accept bit", PLD(), exact


def chains(x, steps, settings, count, seed=0):
    """Draws of several chains, together."""
    method = Barker(num_steps=steps, size=len(x), tempered_size=COUNTED, **settings)
    found = fit_many(
        two_means(),
        [Rows({"x": x})] * count,
        [AMPLE] * count,
        method,
        seeds=range(seed, seed + count),
    )
    accepted = np.mean([post.trace["accepted"].mean() for post in found])
    return np.stack([post.draws["theta"] for post in found]), accepted


def clipped(x, scale, seed=0):
    """Share of ratios beyond the clip, for proposals from the true mean."""
    rng = np.random.default_rng(seed)
    mean, _ = mixture_moments(x[:10_000], COUNTED)
    moved = mean + scale * rng.normal(size=(200, 2))

    def log_likelihood(theta):
        first, second = x[:10_000] - theta[0], x[:10_000] - theta.sum()
        return np.logaddexp(-(first**2) / 4, -(second**2) / 4)

    now = log_likelihood(mean)
    return np.mean([np.abs(log_likelihood(theta) - now) > CLIP for theta in moved])


def show(name, draws, truth, note=""):
    """Means and variances with Monte Carlo standard errors, and deviations in these."""
    mean, variance = truth
    sizes = sum(diagnostics.effective_sizes({"t": chain})["t"] for chain in draws)
    squares = [{"t": (chain - mean) ** 2} for chain in draws]
    worth = sum(diagnostics.effective_sizes(each)["t"] for each in squares)
    flat = draws.reshape(-1, 2)
    found = flat.mean(axis=0), ((flat - mean) ** 2).mean(axis=0)
    errors = np.sqrt(variance / sizes), ((flat - mean) ** 2).std(axis=0) / np.sqrt(worth)
    cells = [
        f"{f:7.3f} +-{e:.3f} ({(f - t) / e:+.1f})"
        for f, e, t in zip(*map(np.ravel, (found, errors, truth)), strict=True)
    ]
    ratio = " ".join(f"{r:.2f}" for r in found[1] / variance)
    print(f"{name:34}" + "  ".join(cells) + f"  variance/truth {ratio}  {note}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="shorter chains on fewer rows")
    quick = parser.parse_args().quick
    print("20,000 steps on 1,000,000 rows, delta 1e-6, replace: epsilon")
    for name, accountant, event in costs():
        print(f"  {name:32}{accountant.epsilon(event, 1e-6, 'replace'):8.4f}")
    size, large, share = (10**4, 10**5, 8) if quick else (10**5, 10**6, 1)
    bound = CLIP * COUNTED / size
    x, many = mixture_rows(size), mixture_rows(large)
    truth, truth_many = mixture_moments(x, COUNTED), mixture_moments(many, COUNTED)
    cells = "  ".join(f"{t:7.3f}" + " " * 14 for t in np.ravel(truth))
    print("\nmeans and variances of theta; in brackets, standard errors from the truth")
    print(f"{f'truth, {size:,} rows':34}{cells}")
    wide = {"proposal": GaussianWalk(0.5), "ratio_bound": 5 * bound}
    draws, rate = chains(x, 40_000 // share, wide, 4)
    show("all rows, clip 1.6, steps .5", draws, truth, f"accepted {rate:.2f}")
    paper = {"proposal": GaussianWalk(0.1)}
    draws, rate = chains(x, 160_000 // share, paper | {"ratio_bound": bound}, 1)
    show("all rows, clip .316, steps .1", draws, truth, f"accepted {rate:.2f}")
    cells = "  ".join(f"{t:7.3f}" + " " * 14 for t in np.ravel(truth_many))
    print(f"{f'truth, {large:,} rows':34}{cells}")
    for scale, steps in ((0.05, 2_000_000), (0.1, 1_000_000), (0.2, 1_000_000)):
        settings = {"proposal": GaussianWalk(scale), "batch_size": BATCH}
        draws, rate = chains(many, steps // share, settings, 1)
        note = f"accepted {rate:.2f}, clipped {clipped(many, scale):.4f}"
        show(f"batches of 1000, steps {scale}", draws, truth_many, note)


if __name__ == "__main__":
    main()
