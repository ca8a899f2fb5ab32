"""What the post states of posterior sampling and of private gradients, before its simulation.

One draw from a posterior is 4B-DP if log-likelihoods are at most B in size, and 4LR-DP if they are L-Lipschitz in a row of norm at most R
(Wang et al. 2015). Both are compared with exact posteriors on grids, over all data sets of a few rows and all that differ from them
in one. The theorem on DP-SGD (Abadi et al. 2016) names constants that it does not give: here they are found by tight accounting. And
one draw for the post's own data is compared with its variational inference.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
from blog_code import data
from reproduction import DEFAULT, Claim, Experiment, Setting, save_figure, save_table
from scipy.special import logsumexp
from scipy.stats import beta as beta_distribution
from scipy.stats import kstest

from tacit import Budget, Model, OneSample, Rows, Variational, fit
from tacit.accounting import calibrate
from tacit.methods import LogisticRejection
from tacit.models import Parameter

DELTA, RADIUS, PRECISION = 1e-3, 2.0, 10.0


def _largest_loss(log_likelihood, prior, size):
    """The largest log ratio of two posteriors over a grid, for all data sets that differ in one row.

    ``log_likelihood`` is [values, grid]; a data set is a multiset of values.
    """
    values = range(len(log_likelihood))
    largest = 0.0
    for others in itertools.combinations_with_replacement(values, size - 1):
        sums = prior + log_likelihood[list(others)].sum(axis=0)
        logs = sums + log_likelihood
        posteriors = logs - logsumexp(logs, axis=1, keepdims=True)
        gaps = posteriors[:, None] - posteriors[None]
        largest = max(largest, float(np.abs(gaps).max()))
    return largest


def _bounded_claim(setting: Setting) -> tuple[Claim, list]:
    theta = np.linspace(0.05, 0.95, 181)
    likelihood = np.stack([np.log1p(-theta), np.log(theta)])
    bound = float(np.abs(likelihood).max())
    sizes = setting.pick(quick=(1, 2), usual=(1, 2, 5, 10, 20, 50))
    losses = {n: _largest_loss(likelihood, np.zeros(len(theta)), n) for n in sizes}
    claim = Claim(
        said="If log-likelihoods are at most B in size, one posterior draw is 4B-DP.",
        reported=f"4B = {4 * bound:.2f} for a probability within .05 and .95",
        found="largest loss of all data sets, one row replaced: "
        + ", ".join(f"{loss:.2f} with {n}" for n, loss in losses.items())
        + " rows",
        verdict="agrees" if max(losses.values()) <= 4 * bound else "paper is wrong",
        why="Agrees if no data set has a larger loss. `tacit.OneSample` charges it, and 2B if a row is added or removed; here the true range of a log-likelihood, not 2B, would do.",
    )  # fmt: skip
    return claim, [["bounded", n, 4 * bound, loss] for n, loss in losses.items()]


def _lipschitz_claim(setting: Setting) -> tuple[Claim, list]:
    theta, radius = np.linspace(-1, 1, 101), 0.5
    x = np.linspace(-radius, radius, 5)
    likelihood = -0.5 * (x[:, None] - theta) ** 2
    slope = float(np.abs(x[:, None] - theta).max())
    sizes = setting.pick(quick=(1, 2), usual=(1, 2, 4, 8))
    losses = {n: _largest_loss(likelihood, np.zeros(len(theta)), n) for n in sizes}
    bound = 4 * slope * radius
    claim = Claim(
        said="If rows have norm at most R and log-likelihoods are L-Lipschitz, one posterior draw is 4LR-DP.",
        reported=f"4LR = {bound:.2f} for a normal mean within 1, rows within {radius:g}",
        found="largest loss of all data sets, one row replaced: "
        + ", ".join(f"{loss:.2f} with {n}" for n, loss in losses.items())
        + " rows",
        verdict="agrees" if max(losses.values()) <= bound else "paper is wrong",
        why="Agrees if no data set has a larger loss. Lipschitz in the row, not in theta, as the theorem needs it.",
    )  # fmt: skip
    return claim, [["Lipschitz", n, bound, loss] for n, loss in losses.items()]


def _gradient_claim(setting: Setting) -> tuple[Claim, list]:
    """The constant c2 = sigma epsilon / (q sqrt(T log(1/delta))) that tight accounting needs, wherever epsilon < q^2 T."""
    rates = setting.pick(quick=(0.01,), usual=(0.001, 0.01, 0.05))
    lines = []
    for q, steps, epsilon, delta in itertools.product(rates, (10**3, 10**4, 10**5), (0.1, 0.5, 1.0), (1e-3, 1e-6)):  # fmt: skip
        if epsilon < q**2 * steps:
            noise = calibrate.noise_multiplier(
                Budget(epsilon, delta), sampling_rate=q, num_steps=steps
            )
            constant = noise * epsilon / (q * np.sqrt(steps * np.log(1 / delta)))
            lines.append([f"q={q:g}, T={steps}, epsilon={epsilon:g}, delta={delta:g}", "", "", float(constant)])  # fmt: skip
    found = [line[3] for line in lines]
    claim = Claim(
        said="Constants exist such that noise of c2 q sqrt(T log(1/delta)) / epsilon is enough for all epsilon below c1 q^2 T.",
        reported="constants are not given",
        found=f"with c1 = 1, c2 from {min(found):.2f} to {max(found):.2f} in {len(found)} settings",
        verdict="agrees" if max(found) < 3 * min(found) else "does not agree",
        why="Agrees if c2 differs by less than a factor of three. The post's own runs do not use it: their noise is that of one step.",
    )
    return claim, lines


def _logistic(size):
    return Model(
        parameters={"w": Parameter((size,))},
        log_prior=lambda p: -0.5 * PRECISION * jnp.sum(p["w"] ** 2),
        log_likelihood=lambda p, row: jax.nn.log_sigmoid(
            (2 * row["y"] - 1) * jnp.dot(row["x"], p["w"])
        ),
        simulate=lambda key, p, row: {
            "y": jax.random.bernoulli(key, jax.nn.sigmoid(jnp.dot(row["x"], p["w"])))
        },
    ).unit_model


def _asymptotic_claims(setting: Setting) -> list[Claim]:
    """One draw from the posterior of a coin, at chances between .05 and .95, for many data sets of a true chance of .3."""
    rng, truth, repeats = np.random.default_rng(3), 0.3, setting.pick(quick=2000, usual=20_000)
    sizes, errors, distances = (100, 1000, 10_000), [], []
    for size in sizes:
        heads = rng.binomial(size, truth, repeats)
        posterior = beta_distribution(1 + heads, 1 + size - heads)
        low, high = posterior.cdf(0.05), posterior.cdf(0.95)
        drawn = posterior.ppf(low + (high - low) * rng.random(repeats))
        errors.append(float(np.sqrt(np.mean((drawn - truth) ** 2))))
        scale = np.sqrt(2 * truth * (1 - truth) / size)
        distances.append(float(kstest((drawn - truth) / scale, "norm").statistic))
    fall = errors[0] / errors[-1]
    chance = 1.63 / repeats**0.5  # 1% of samples of normals are farther away
    told = "a coin with a chance of .3, a flat prior between .05 and .95"
    return [
        Claim(
            said="One posterior sample is consistent.",
            reported="stated, with a reference",
            found=f"root mean square error of {repeats:,} draws, {told}: " + ", ".join(f"{e:.4f} of {n:,} rows" for n, e in zip(sizes, errors, strict=True)),
            verdict="agrees" if abs(fall / 10 - 1) < 0.1 else "agrees in part" if fall > 5 else "does not agree",
            why="Agrees if a hundred times the rows have a tenth of the error, to a tenth; in part if a fifth. At the full likelihood, whose epsilon is 4B however many the rows.",
        ),
        Claim(
            said="One posterior sample is asymptotically normal.",
            reported="stated, with a reference",
            found="largest distance of the distribution function from a normal's with twice the variance of the efficient estimate: " + ", ".join(f"{d:.4f} with {n:,} rows" for n, d in zip(sizes, distances, strict=True)),
            verdict="agrees" if distances[-1] < 0.005 + chance else "agrees in part" if distances[-1] < distances[0] else "does not agree",
            why=f"Agrees if below .005 and what chance gives in 99 of 100 samples ({chance:.4f}) for the most rows, in part if it falls. Twice the variance: the estimate's own, and that of the draw around it.",
        ),
    ]  # fmt: skip


def _drawn_claim(setting: Setting) -> Claim:
    x, other, y, truth = data()
    methods = {
        "one draw": OneSample(sampler=LogisticRejection(radius=RADIUS, precision=PRECISION)),
        DEFAULT: None,
        "Tacit's Variational": Variational(),
    }
    runs, found = setting.pick(quick=2, usual=10), {}
    for name, method in methods.items():
        found[name] = np.array(
            [
                _accuracy(fit(_logistic(x.shape[1]), Rows({"x": x, "y": y}), budget=Budget(1, DELTA), method=method, seed=seed), other, truth)
                for seed in range(runs)
            ]
        )  # fmt: skip
    means = {name: each.mean() for name, each in found.items()}
    return Claim(
        said="One draw of the posterior is a private classifier by itself (not shown in the post).",
        reported="no simulation",
        found=", ".join(
            f"{name} {each.mean():.3f} ± {each.std(ddof=1) / runs**0.5:.3f}"
            for name, each in found.items()
        )
        + " at epsilon 1",
        verdict="agrees" if means["one draw"] > max(truth.mean(), 1 - truth.mean()) and means["one draw"] > 0.8 else "does not agree",
        why=f"The post's data and model, but for the prior's precision, {PRECISION:g}. Agrees if its accuracy is above 0.8, and above that of the larger class.",
    )  # fmt: skip


def _accuracy(post, x, y) -> float:
    weights = np.asarray(post.draws["w"], float).mean(axis=0)
    return float(np.mean((x @ weights > 0) == (y > 0)))


def _figure(setting: Setting, losses, constants) -> None:
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    for colour, kind in (("C0", "bounded"), ("C1", "Lipschitz")):
        some = [line for line in losses if line[0] == kind]
        left.plot([line[1] for line in some], [line[3] for line in some], "o-", color=colour, label=f"{kind}: largest loss")  # fmt: skip
        left.axhline(some[0][2], color=colour, linestyle="--", label=f"{kind}: the theorem")
    left.set(xlabel="rows", ylabel="epsilon of one draw, one row replaced", ylim=(0, 17))
    left.legend(frameon=False, ncols=2, fontsize=8, loc="upper center")
    right.plot(sorted(line[3] for line in constants), "o")
    right.set(xlabel="settings of q, T, epsilon and delta, in order", ylim=(0, None))
    right.set(ylabel="c2 = sigma epsilon / (q sqrt(T log(1/delta)))")
    save_figure(setting, EXPERIMENT.name, figure)


def run(setting: Setting) -> list[Claim]:
    bounded, first = _bounded_claim(setting)
    lipschitz, second = _lipschitz_claim(setting)
    gradients, constants = _gradient_claim(setting)
    _figure(setting, first + second, constants)
    header = ("theorem or setting", "rows", "bound", "found")
    save_table(setting, EXPERIMENT.name, header, [*first, *second, *constants])
    return [bounded, lipschitz, *_asymptotic_claims(setting), gradients, _drawn_claim(setting)]


EXPERIMENT = Experiment(
    name="blog_theorems",
    source="002",
    figure="Theorems",
    title="One posterior sample, and the noise of private gradients",
    run=run,
)
