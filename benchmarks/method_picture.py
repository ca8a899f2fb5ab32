"""The picture of docs/concepts/intervals.md: where the rounds of a default fit were, and the posterior they led to.

python benchmarks/method_picture.py docs/images/method.png
"""

import sys

import matplotlib as mpl
import numpy as np

import tacit

mpl.use("Agg")
import matplotlib.pyplot as plt

NAMES, COLOURS = ("a", "b", "c"), ("#1b6ca8", "#c1551f", "#3c7d3f")


def table(rows=5000):
    """A yes-no outcome and three columns, two of them correlated."""
    rng = np.random.default_rng(11)
    shared = rng.normal(size=rows)
    columns = [0.8 * shared + 0.6 * rng.normal(size=rows) for _ in range(2)]
    columns = np.clip([*columns, rng.normal(size=rows)], -3, 3)
    logit = -0.5 + np.array([0.9, -0.6, 0.3]) @ columns
    return dict(zip(NAMES, columns, strict=True)) | {
        "y": (rng.random(rows) < 1 / (1 + np.exp(-logit))) * 1
    }


def main():
    bounds = {name: tacit.Number(-4, 4) for name in NAMES}
    schema = tacit.Schema({**bounds, "y": tacit.Binary(yes=1, no=0)})
    model = tacit.glm("y ~ a + b + c", schema=schema, family="bernoulli")
    data = table()
    exact = tacit.fit_without_privacy(model, data)
    private = tacit.fit(model, data, budget=tacit.Budget(1, 1e-5), seed=3)
    places, scale = private.trace["mean"], np.sqrt(np.diag(exact.unconstrained_covariance))
    figure, axes = plt.subplots(figsize=(7, 3.6), layout="constrained")
    last = len(places)
    axes.axvspan(0, 4 / 7 * last, color="0.95", lw=0)
    axes.text(0.5, 0.02, "early rounds", transform=axes.get_xaxis_transform(), color="0.4")
    axes.text(
        4 / 7 * last + 0.5, 0.02, "late rounds", transform=axes.get_xaxis_transform(), color="0.4"
    )
    for i, (name, colour) in enumerate(zip(NAMES, COLOURS, strict=True), start=1):
        centre = exact.unconstrained_mean[i]
        axes.axhspan(
            centre - 1.645 * scale[i], centre + 1.645 * scale[i], color=colour, alpha=0.2, lw=0
        )
        axes.plot(np.arange(1, last + 1), places[:, i], color=colour, marker=".", ms=4, lw=1)
        mean, sd = (
            private.unconstrained_mean[i],
            np.sqrt(private.unconstrained_covariance[i, i]),
        )
        axes.errorbar(last + 2, mean, 1.645 * sd, color=colour, marker="o", ms=4, capsize=3)
        axes.text(last + 3, mean, name, color=colour, va="center")
    axes.set(xlabel="round", ylabel="coefficient, scaled", xlim=(0, last + 5))
    axes.set_title("Dots: rounds. Bands: exact 90% intervals. Bars: private ones.", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(sys.argv[1], dpi=150)


if __name__ == "__main__":
    main()
