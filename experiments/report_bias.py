"""Noise on statistics biases mean and variance: the report's Figure 4.3.

Ten points evenly from -1 to 1, 10,000 draws of noise of deviation 1 on both statistics, no clipping. The
coefficients are 2 and -2, as in the author's public program, with outcomes on the line. Whether the report drops
negative precisions is not said; here they are dropped. Claims are about both coefficients together, by absolute values.
"""

import numpy as np
from report_model import NOISE_SD, TARGET, judged
from reproduction import Claim, Experiment, Setting, save_figure, save_table

from tacit.privacy.noise import Randomness, standard_normals

DRAWS, THETAS = 10_000, (2.0, -2.0)


def run(setting: Setting) -> list[Claim]:
    found = {theta: _noisy(theta, seed) for seed, theta in enumerate(THETAS)}
    _figure(setting, found)
    save_table(
        setting,
        EXPERIMENT.name,
        ("theta", "quantity", "true", "mean", "median", "standard_error"),
        [
            [theta, n, float(t), float(v.mean()), float(np.median(v)), _error(v)]
            for theta, values in found.items()
            for n, (t, v) in values.items()
        ],
    )
    sizes = {
        name: (abs(found[2.0][name][0]), np.concatenate([np.sign(t) * f[name][1] for t, f in found.items()]))
        if "mean" in name else (found[2.0][name][0], np.concatenate([f[name][1] for f in found.values()]))
        for name in found[2.0]
    }  # fmt: skip
    return _claims(sizes, len(THETAS) * DRAWS - len(sizes["mean"][1]))


def _noisy(theta, seed):
    """Exact and drawn values of every quantity, for one coefficient."""
    x = np.linspace(-1, 1, 10)
    sums = np.array([np.sum(x * x), theta * np.sum(x * x)])
    true = sums / NOISE_SD**2 + TARGET.prior
    noise = standard_normals(Randomness(seed), 2 * DRAWS).reshape(DRAWS, 2)
    noisy = (sums + noise) / NOISE_SD**2 + TARGET.prior
    kept = noisy[noisy[:, 0] > 0]
    return {
        "precision": (true[0], noisy[:, 0]),
        "precision x mean": (true[1], noisy[:, 1]),
        "mean": (true[1] / true[0], kept[:, 1] / kept[:, 0]),
        "variance": (1 / true[0], 1 / kept[:, 0]),
    }


def _error(values) -> float:
    return float(values.std(ddof=1) / len(values) ** 0.5)


def _figure(setting: Setting, found) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(len(found), 4, figsize=(13, 6.2), layout="constrained")
    for row, (theta, values) in zip(axes, found.items(), strict=True):
        for axis, (name, each) in zip(row, values.items(), strict=True):
            _panel(axis, each, labelled=axis is axes[0, 0])
            axis.set(xlabel=name)
        row[0].set(ylabel=f"draws, theta = {theta:g}")
    figure.suptitle(
        f"Figure 4.3: {DRAWS:,} draws of noise 1 on the statistics of 10 points (99% of draws shown)"
    )
    figure.legend(loc="outside lower center", ncols=3, frameon=False)
    save_figure(setting, EXPERIMENT.name, figure)


def _panel(axis, each, *, labelled) -> None:
    true, found = each
    low, high = np.quantile(found, [0.005, 0.995])
    axis.hist(found[(found > low) & (found < high)], bins=60, color="C0", alpha=0.6)
    lines = (
        (true, "black", "-", "exact"),
        (found.mean(), "C3", "--", "mean of draws"),
        (np.median(found), "C1", ":", "median of draws"),
    )
    for at, colour, style, label in lines:
        axis.axvline(at, color=colour, linestyle=style, label=label if labelled else None)


def _claims(values, dropped) -> list[Claim]:
    naturals = [values[n] for n in ("precision", "precision x mean")]
    means, variances = values["mean"], values["variance"]
    below, above = np.mean(np.abs(means[1]) < means[0]), np.mean(variances[1] > variances[0])
    half = 0.5 / len(means[1]) ** 0.5
    return [
        Claim(
            said="Estimates of natural parameters are without bias.",
            reported="by eqs. 4.20 and 4.21",
            found="; ".join(f"{v.mean():.3f} ± {_error(v):.3f}, exact {t:.3f}" for t, v in naturals),
            verdict=judged(*(abs(v.mean() - t) < 3 * _error(v) for t, v in naturals)),
            why="Within three standard errors, without the floor at zero of eq. 4.20; with it they are biased (Fig. 4.4).",
        ),
        Claim(
            said="The absolute value of the mean is slightly underestimated.",
            reported="slightly",
            found=f"mean of draws {means[1].mean():.3f} ± {_error(means[1]):.3f}, median {np.median(means[1]):.3f}, peak {_peak(means[1]):.2f}, exact {means[0]:.3f}; below it in {below:.1%}",
            verdict=_direction(means[0] - means[1].mean(), _error(means[1]), below - 0.5, half),
            why="By the mean of draws and by the share below, at three standard errors. A ratio with noise in its denominator is too large on average (Jensen), not too small; its median is all but right, and only its peak is below.",
        ),
        Claim(
            said="The variance tends to be overestimated.",
            reported="tends to be",
            found=f"mean of draws {variances[1].mean():.4f} ± {_error(variances[1]):.4f}, exact {variances[0]:.4f}; above it in {above:.1%}; {dropped} draws without a variance",
            verdict=_direction(variances[1].mean() - variances[0], _error(variances[1]), above - 0.5, half),
            why="By the mean of draws and by the share above, at three standard errors. On average it is, by Jensen's inequality; as a precision's noise is symmetric, it is above and below equally often.",
        ),
    ]  # fmt: skip


def _peak(values) -> float:
    counts, edges = np.histogram(values, bins=60, range=tuple(np.quantile(values, [0.005, 0.995])))
    smooth = np.convolve(counts, np.ones(7), "same")
    return float((edges[:-1] + edges[1:])[smooth.argmax()] / 2)


def _direction(gap, error, share, half):
    """Agrees if both the mean and most draws are on the side that was said, in part if one is."""
    return judged(gap > 3 * error, share > 3 * half)


EXPERIMENT = Experiment(
    name="report_bias",
    source="001",
    figure="Fig. 4.3",
    title="Bias of mean and variance by noise on the statistics",
    run=run,
)
