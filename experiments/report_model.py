"""What the report's experiments share: linear regression of one coefficient at several sites.

The report gives outcome noise and prior, not the inputs: here x is standard normal. Its prior
"N(0, 5)" has a standard deviation of 5, as its Figure 4.1 says.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from reproduction import Verdict
from through_origin import through_origin

from tacit.accounting import Budget, events
from tacit.api.fit import fit_many
from tacit.federated.schemes import no_inputs, statistic_step
from tacit.papers.accountants import Moments
from tacit.privacy.gate import Gate, run
from tacit.privacy.mechanisms import NoisySums
from tacit.privacy.noise import Randomness
from tacit.privacy.rows import Rows

NOISE_SD, PRIOR_SD, DELTA = 0.5, 5.0, 1e-5
TARGET = through_origin(1, noise_sd=NOISE_SD, prior_sd=PRIOR_SD)
SITES, POINTS, NOISE, DAMPING, MOST = 20, 10, 5.0, 0.1, 10.0
PRINTED, CLAMPED, CLEAR, ONCE = "eq. 4.20", "clamped factor", "without noise", "one release"


def regression(theta, shape, rng):
    x = rng.normal(size=shape)
    return x, theta * x + NOISE_SD * rng.normal(size=shape)


def drawn(size, seed):
    """So many coefficients from the prior, each with data at all sites."""
    rng = np.random.default_rng(seed)
    theta = PRIOR_SD * rng.normal(size=(size, 1, 1))
    return theta[:, 0, 0], *regression(theta, (size, SITES, POINTS), rng)


def authors_fifty(size=50):
    """The author's data sets: seeds 1 to 50 of NumPy's legacy generator.

    Every site draws rows for all sites, and test rows, and keeps its own share of the rows.
    """
    every = SITES * POINTS
    thetas, inputs, outcomes = [], [], []
    for seed in range(1, size + 1):
        rng = np.random.RandomState(seed)
        theta = rng.normal(0, PRIOR_SD)
        drawn_at = [(rng.randn(every), rng.randn(every), rng.randn(400)) for _ in range(SITES)]
        parts = [slice(i * POINTS, (i + 1) * POINTS) for i in range(SITES)]
        x = np.array([each[0][part] for each, part in zip(drawn_at, parts, strict=True)])
        noise = np.array([each[1][part] for each, part in zip(drawn_at, parts, strict=True)])
        thetas.append(theta)
        inputs.append(x)
        outcomes.append(theta * x + NOISE_SD * noise)
    return np.array(thetas), np.array(inputs), np.array(outcomes)


def exact(x, y):
    """The posterior: precision, and precision times mean; over the last two axes of the data."""
    sums = np.stack([(x * x).sum(axis=(-2, -1)), (x * y).sum(axis=(-2, -1))], axis=-1)
    return TARGET.prior + sums / NOISE_SD**2


def divergence(q, p):
    """KL(q, p) of normals by natural parameters; infinite where q is no distribution."""
    precision = np.where(q[..., 0] > 0, q[..., 0], np.nan)
    ratio, away = p[..., 0] / precision, q[..., 1] / precision - p[..., 1] / p[..., 0]
    gaps = (ratio - 1 - np.log(ratio) + p[..., 0] * away**2) / 2
    return np.where(np.isnan(precision), np.inf, gaps)


def stopped():
    """The first round after which the moments accountant exceeds epsilon 10."""
    rounds = 1
    while Moments().epsilon(rounds_of(rounds), DELTA) <= MOST:
        rounds += 1
    return rounds


def rounds_of(rounds):
    return events.repeat(events.gaussian(NOISE), rounds)


def released(clip, noise, data, rounds, seed=0):
    """The noisy clipped statistics of all sites in every round: [rounds, coefficients, sites, 2]."""
    _, x, y = data
    plan = NoisySums(
        sampling_rate=1.0,
        num_steps=rounds,
        clip=clip / NOISE_SD**2,
        noise_multiplier=noise,
        dimension=2,
    )
    step, out = statistic_step(TARGET), []
    for i in range(len(x)):  # one gate at a time: each holds a block of random words
        for j in range(x.shape[1]):
            source = Randomness(10**6 * seed + 100 * i + j)
            gate = Gate(Rows({"x": x[i, j][:, None], "y": y[i, j]}), plan, source)
            out.append(run(gate, step, TARGET.constants, no_inputs)[1])
    return np.stack(out, axis=1, dtype=np.float64).reshape(rounds, *x.shape[:2], 2)


def damped(noisy, floor):
    """Posteriors after every round of damped updates, with eq. 4.20's floor or another."""
    factors, posteriors = np.zeros(noisy.shape[1:]), []
    for statistic in noisy:
        found = statistic.copy()
        if floor == PRINTED:
            found[..., 0] = np.maximum(found[..., 0], 0)
        factors = factors + DAMPING * (found - factors)
        if floor == CLAMPED:
            factors[..., 0] = np.maximum(factors[..., 0], 0)
        posteriors.append(TARGET.prior + factors.sum(axis=-2))
    return np.array(posteriors)


def _drawn_outcome(key, params, row):
    mean = jnp.dot(jnp.atleast_1d(row["x"]), params["coefficients"])
    return {"y": mean + NOISE_SD * jax.random.normal(key)}


_WITH_OUTCOMES = replace(TARGET.model.source, simulate=_drawn_outcome).unit_model


def by_default(data, spent):
    """Natural parameters by `tacit.fit`'s default, which a curator of all rows runs: [coefficients, 2]."""
    _, x, y = data
    rows = [Rows({"x": a.reshape(-1, 1), "y": b.ravel()}) for a, b in zip(x, y, strict=True)]
    budgets = [Budget(spent, DELTA)] * len(rows)
    found = fit_many(_WITH_OUTCOMES, rows, budgets, seeds=range(len(rows)))
    draws = np.array([np.asarray(each.draws["coefficients"], float)[:, 0] for each in found])
    precision = 1 / draws.var(axis=1)
    return np.stack([precision, precision * draws.mean(axis=1)], axis=-1)


def clipped(clip, x, y):
    """The clipped statistics of every site without noise, in plain NumPy: [..., sites, 2]."""
    rows = np.stack([x * x, x * y], axis=-1)
    rows /= np.maximum(1, np.linalg.norm(rows, axis=-1, keepdims=True) / clip)
    return rows.sum(axis=-2) / NOISE_SD**2


def posteriors(clip, data, rounds, seed=0):
    """The last ten posteriors by every way: [rounds, coefficients, 2]."""
    noisy = released(clip, NOISE, data, rounds, seed)
    clear = np.repeat(clipped(clip, *data[1:])[None], rounds, axis=0)
    # The same privacy in one release as in all rounds together: of Gaussians, exactly.
    single = released(clip, NOISE / rounds**0.5, data, 1, seed)[0].sum(axis=-2)
    single[..., 0] = np.maximum(single[..., 0], 0)
    return {
        PRINTED: damped(noisy, PRINTED)[-10:],
        CLAMPED: damped(noisy, CLAMPED)[-10:],
        CLEAR: damped(clear, None)[-10:],
        ONCE: (TARGET.prior + single)[None],
    }


def together(a, b):
    """The rank correlation of two lists."""
    ranks = [np.argsort(np.argsort(each)) for each in (a, b)]
    return float(np.corrcoef(*ranks)[0, 1])


def judged(*truths) -> Verdict:
    """Agrees if all hold, in part if some do."""
    if all(truths):
        return "agrees"
    return "agrees in part" if any(truths) else "does not agree"
