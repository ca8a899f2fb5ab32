"""Privacy cost against epochs at several sampling probabilities: the report's Figure 4.2.

The Gaussian mechanism on a Poisson sample of each data set, accounted for by moments. Noise and delta are
not given: here noise 1 and delta 1e-5, as in Figure 4.1. The probabilities, and up to 1000 epochs, are those of the author's
public program. An epoch is 1/q steps.
"""

import numpy as np
from report_model import DELTA, judged
from reproduction import EASY, KNOWN, Claim, Experiment, Setting, save_figure, save_table

from tacit.accounting import PLD, events
from tacit.papers.accountants import Moments

RATES = (0.001, 0.01, 0.05, 0.1, 0.5)
NOISE = 1.0


def costs(accountant, rates, epochs):
    """Epsilon after each number of epochs: [rates, epochs]."""
    return np.array(
        [
            [accountant.epsilon(events.sampled_gaussian(NOISE, q, round(e / q)), DELTA) for e in epochs]
            for q in rates
        ]
    )  # fmt: skip


def _figure(setting: Setting, rates, epochs, found) -> None:
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(8, 4.5))
    for i, q in enumerate(rates):
        axis.plot(
            epochs,
            found["moments"][i],
            "o-",
            color=f"C{i}",
            markersize=3,
            label=f"q = {q:g}, moments",
        )
        axis.plot(
            epochs, found["pld"][i], ":", color=f"C{i}", label=f"q = {q:g}, Tacit (privacy loss)"
        )
    axis.set(
        xscale="log",
        yscale="log",
        xlabel="epochs (1/q steps each)",
        ylabel=f"epsilon (delta {DELTA:g}, add or remove a row)",
        title=f"Figure 4.2: a sampled Gaussian with noise {NOISE:g}; exact numbers, no error bars",
    )
    axis.grid(alpha=0.3)
    axis.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize=8, frameon=False)
    save_figure(setting, EXPERIMENT.name, figure)  # fmt: skip


def run(setting: Setting) -> list[Claim]:
    rates = setting.pick(quick=RATES[::2], usual=RATES)
    epochs = setting.pick(quick=(1, 2, 5, 10), usual=(1, 2, 5, 10, 20, 50, 100, 200, 500, 1000))
    found = {a.name: costs(a, rates, epochs) for a in (Moments(), PLD())}
    _figure(setting, rates, epochs, found)
    save_table(
        setting,
        EXPERIMENT.name,
        ("accountant", "q", "epochs", "epsilon"),
        [
            [name, q, e, float(each[i, j])]
            for name, each in found.items()
            for i, q in enumerate(rates)
            for j, e in enumerate(epochs)
        ],
    )
    return _claims(rates, epochs, found)


def _claims(rates, epochs, found) -> list[Claim]:
    moments, tight = found["moments"], found["pld"]
    grows = bool(np.all(np.diff(moments, axis=0) > 0))
    last = ", ".join(f"q={q:g}: {m:.3g}" for q, m in zip(rates, moments[:, -1], strict=True))
    tried = np.geomspace(1e-5, 0.5, 60)
    allowed = [q for q in tried if costs(Moments(), (float(q),), (10,))[0, 0] <= 1]
    strong = float(max(allowed, default=tried[0]))
    return [
        Claim(
            said="Epsilon depends very much on the sampling probability, at the same number of epochs.",
            reported="curves far apart",
            found=f"moments at {epochs[-1]} epochs: {last}",
            verdict=judged(grows, moments[-1, -1] > 10 * moments[0, -1]),
            why="Very much is taken to be a factor of ten between the smallest and the largest q.",
        ),
        Claim(
            said="Private gradients protect strongly only where a site has many points, so that q can be small.",
            reported="from the figure",
            found=f"moments at 10 epochs: {', '.join(f'q={q:g}: {m:.3g}' for q, m in zip(rates, moments[:, min(3, len(epochs) - 1)], strict=True))}; epsilon 1 needs q = {strong:.2g}: with a point a step, {1 / strong:.0f} points at a site; the sites of Fig. 4.1 have 10",
            verdict=judged(strong < 0.1),
            why="Strong is taken to be epsilon 1 at 10 epochs, many points to be more than the sites of Fig. 4.1 have; noise 1. " + f"{KNOWN} {EASY}",
        ),
        Claim(
            said="Tight accounting asks for less (not a claim of the report).",
            reported="",
            found=f"at {epochs[-1]} epochs: " + ", ".join(f"q={q:g}: {t:.3g}" for q, t in zip(rates, tight[:, -1], strict=True)),
            verdict=judged(*(tight <= moments).ravel()),
            why="At every q and number of epochs.",
        ),
    ]  # fmt: skip


EXPERIMENT = Experiment(
    name="report_sampling",
    source="001",
    figure="Fig. 4.2",
    title="Privacy cost of sampled mechanisms against epochs",
    run=run,
)
