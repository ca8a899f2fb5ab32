"""Record 2: coverage and width of intervals of a linear regression, by default fits.

    python benchmarks/records/linear_coverage.py

The setting of Alrawajfeh, Jälkö and Honkela (AISTATS 2025): ten predictors N(0, I) and an intercept, 5,000 rows, error variance
Inv-Gamma(20, .5), coefficients N(0, 4 error variances), epsilon .1, .3 and 1, delta 1e-5; data and truth are new in every
repeat. "Covered" is the share of true coefficients in their 50, 80, 90 and 95% intervals; "width" is the median width of the 90%
interval over that of the exact posterior, and "off" the root mean square of posterior mean less exact mean, in exact
standard deviations. The paper has 500 repeats, a clip set by hand (260), and figures without numbers.
"""

import argparse
import time

import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import t as student

import tacit
from tacit import Model
from tacit.api.fit import fit_many
from tacit.models import Parameter
from tacit.models.jax_model import Positive

ROWS, SIZE, LEVELS = 5000, 11, (0.5, 0.8, 0.9, 0.95)


def _log_prior(p):
    v = p["variance"]
    return -21 * jnp.log(v) - 0.5 / v - jnp.sum(p["w"] ** 2) / (8 * v) - SIZE / 2 * jnp.log(v)


def _log_likelihood(p, row):
    away = row["y"] - jnp.dot(row["x"], p["w"])
    return -0.5 * away**2 / p["variance"] - 0.5 * jnp.log(p["variance"])


def _simulate(key, p, row):
    noise = jnp.sqrt(p["variance"]) * jax.random.normal(key)
    return {"y": jnp.dot(row["x"], p["w"]) + noise}


MODEL = Model(
    parameters={"w": Parameter((SIZE,)), "variance": Parameter((), Positive())},
    log_prior=_log_prior,
    log_likelihood=_log_likelihood,
    simulate=_simulate,
).unit_model


def drawn(rng):
    variance = 0.5 / rng.gamma(20)
    truth = 2 * variance**0.5 * rng.normal(size=SIZE)
    x = np.column_stack([np.ones(ROWS), rng.normal(size=(ROWS, SIZE - 1))])
    return truth, x, x @ truth + variance**0.5 * rng.normal(size=ROWS)


def exact(x, y):
    """Mean, scale and degrees of freedom of the coefficients' t distributions."""
    precision = x.T @ x + np.eye(SIZE) / 4
    mean = np.linalg.solve(precision, x.T @ y)
    shape, rate = 20 + ROWS / 2, 0.5 + (y @ y - mean @ precision @ mean) / 2
    return mean, np.sqrt(rate / shape * np.diag(np.linalg.inv(precision))), 2 * shape


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=50)
    options = parser.parse_args()
    print("| epsilon | covered at", *(f"{100 * level:g}%," for level in LEVELS), "| width / exact | off | not converged | CPU s of a fit |")  # fmt: skip
    print("|---|---|---|---|---|---|")
    for epsilon in (0.1, 0.3, 1.0):
        began, covered, widths, off, unsure = time.process_time(), [], [], [], 0
        for seed in range(options.repeats):
            truth, x, y = drawn(np.random.default_rng(seed))
            rows = tacit.Rows({"x": x, "y": y})
            (post,) = fit_many(MODEL, [rows], [tacit.Budget(epsilon, 1e-5)], seeds=[seed])
            draws = np.asarray(post.draws["w"], float)
            mean, scale, freedom = exact(x, y)
            ends = {
                level: np.quantile(draws, [(1 - level) / 2, (1 + level) / 2], axis=0)
                for level in LEVELS
            }
            covered.append([np.mean((low < truth) & (truth < high)) for low, high in ends.values()])
            widths.append((ends[0.9][1] - ends[0.9][0]) / (2 * student.ppf(0.95, freedom) * scale))
            off.append(np.mean(((draws.mean(axis=0) - mean) / scale) ** 2))
            unsure += not post.converged
        took = (time.process_time() - began) / options.repeats
        share, error = np.mean(covered, axis=0), np.std(covered, axis=0) / options.repeats**0.5
        told = ", ".join(f"{a:.3f} ± {b:.3f}" for a, b in zip(share, error, strict=True))
        print(f"| {epsilon:g} | {told} | {np.median(widths):.2f} | {np.mean(off) ** 0.5:.2f} | {unsure} of {options.repeats} | {took:.1f} |", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
