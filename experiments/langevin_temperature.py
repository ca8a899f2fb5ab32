"""How wide DP-SGLD spreads its draws: the published form, ours, and the true posterior.

    python experiments/langevin_temperature.py            # a quarter of an hour
    python experiments/langevin_temperature.py --quick    # an eighth of that, with more error

Two posteriors, both of a million units that count as a hundred. The Gaussian has a known
mean and variance, the same in all coordinates, over which figures are averaged. The
two-component mixture (Heikkilä et al. 2019, Section 4) has two modes; its moments are sums over
a fine grid. The published form has noise of variance eta where the
drift needs 2 eta, so it samples the posterior squared, whose moments are printed beside.
Chains run side by side from zero; standard errors are between chains.
"""

import argparse
import math

import numpy as np
from jax.scipy.stats import norm
from mixture import mixture_moments, mixture_rows

from tacit.accounting import Budget
from tacit.inference.langevin import Langevin
from tacit.inference.published_langevin import PublishedLangevin
from tacit.interfaces.fit import fit_many
from tacit.models.mixture import two_means
from tacit.models.model import Model, Parameter
from tacit.privacy.rows import Rows

UNITS, COUNTED = 1_000_000, 100


def gaussian(dimension):
    """Rows around an unknown place, with a known deviation of one."""
    return Model(
        parameters={"theta": Parameter((dimension,))},
        log_prior=lambda p: norm.logpdf(p["theta"]).sum(),
        log_likelihood=lambda p, row: norm.logpdf(row["x"], p["theta"]).sum(),
    )


def gaussian_rows(units, dimension, seed=0):
    return np.random.default_rng(seed).normal(size=(units, dimension)).astype(np.float32)


def gaussian_moments(x, counted, power=1):
    """Mean and variance of the tempered posterior raised to a power, over all coordinates."""
    mean = counted * x.mean(dtype=np.float64) / (counted + 1)
    return np.array([mean]), np.array([1 / (counted + 1) / power])


def moments(model, x, method, budget, chains, *, alike=False):
    """Means, variances and the variances' standard errors over chains, and the epsilon spent.

    With ``alike`` coordinates count as so many chains more.
    """
    posteriors = fit_many(
        model, [Rows({"x": x})] * chains, [budget] * chains, method, seeds=range(chains)
    )
    draws = np.stack([posterior.draws["theta"] for posterior in posteriors]).astype(np.float64)
    means = draws.mean(axis=(0, 1))
    squares = ((draws - means) ** 2).mean(axis=1)
    if alike:
        means, squares = means.mean(keepdims=True), squares.reshape(-1, 1)
    error = squares.std(axis=0, ddof=1) / math.sqrt(len(squares))
    return means, squares.mean(axis=0), error, posteriors[0].privacy.epsilons["add-remove"]


def show(name, means, variances, truth, error=None, epsilon=None):
    def listed(values):
        return " ".join(f"{value:7.4f}" for value in values)

    ratio = " ".join(f"{v:5.3f}" for v in variances / truth)
    errors = "" if error is None else " +- " + " ".join(f"{e:.3f}" for e in error / truth)
    spent = "" if epsilon is None else f"  epsilon {epsilon:.3g}"
    print(
        f"{name:22} mean {listed(means)}  variance {listed(variances)}  ratio {ratio}{errors}{spent}"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="an eighth of the steps")
    quick = parser.parse_args().quick
    shared = {"size": UNITS, "tempered_size": COUNTED, "sampling_rate": 0.001, "burn_in": 0.1}
    targets = [
        ("Gaussian", gaussian(16), gaussian_rows(UNITS, 16), gaussian_moments, 8.0, 20_000, 2e-4),
        ("Mixture", two_means(), mixture_rows(UNITS), mixture_moments, 5.0, 80_000, 2e-3),
    ]
    budget, chains = Budget(8, 1e-6), 16
    for name, model, x, exact, clip, steps, size in targets:
        settings = shared | {"clip": clip, "num_steps": steps // 8 if quick else steps, "thin": 10}
        print(f"{name}: {chains} chains of {settings['num_steps']} steps, {budget}")
        means, truth = exact(x, COUNTED)
        show("truth", means, truth, truth)
        show("truth, squared", *exact(x, COUNTED, 2), truth)
        methods = {
            f"published, step {size:g}": PublishedLangevin(step_size=size, **settings),
            f"ours, step {size:g}": Langevin(step_size=size, **settings),
            "ours, default step": Langevin(**settings),
        }
        for label, method in methods.items():
            found = moments(model, x, method, budget, chains, alike=name == "Gaussian")
            show(label, *found[:2], truth, *found[2:])
        print()


if __name__ == "__main__":
    main()
