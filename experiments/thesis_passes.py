"""How much noise passes over the data cost, by several accountants: thesis Figure 2.2.

Example 2.29: 1000 rows, sampling ratio 0.005, a budget of (1, 1e-3), 1 to 10 passes over the
data, and the sigma that each step needs by the moments accountant and by amplified advanced
composition. Sigma is noise over sensitivity, which is twice the clip. No rows are needed. The text gives two numbers:
advanced composition goes from 2 to 6.
"""

import numpy as np
from reproduction import Claim, Experiment, Setting, save_figure, save_table

from tacit.accounting import PLD, Budget, calibrate
from tacit.papers.accountants import Advanced, Moments

RATE, BUDGET = 0.005, Budget(1.0, 1e-3, "replace")
WAYS = {
    "advanced composition, amplified": (Advanced(check=False), "C1", "-"),
    "moments accountant": (Moments(), "C0", "-"),
    "Tacit's accountant: privacy loss": (PLD(), "C2", ":"),
    "advanced composition where its theorem holds": (Advanced(), "C3", "--"),
}


def sigma(accountant, passes: int) -> float:
    """Noise over sensitivity."""
    steps = round(passes / RATE)
    return (
        calibrate.noise_multiplier(
            BUDGET, sampling_rate=RATE, num_steps=steps, accountant=accountant
        )
        / 2
    )


def run(setting: Setting) -> list[Claim]:
    passes = setting.pick(quick=(1, 10), usual=tuple(range(1, 11)))
    found = {
        label: [sigma(accountant, p) for p in passes] for label, (accountant, *_) in WAYS.items()
    }
    header = ("passes", *(label.replace(",", "") for label in found))
    save_table(setting, EXPERIMENT.name, header, list(zip(passes, *found.values(), strict=True)))
    _figure(setting, passes, found)
    return _claims(found)


def _figure(setting, passes, found) -> None:
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(8, 4))
    for label, sigmas in found.items():
        _, colour, line = WAYS[label]
        axis.plot(passes, sigmas, line, color=colour, marker="o", markersize=3, label=label)
    axis.plot([1, 10], [2, 6], "kx", label="the thesis, advanced composition")
    axis.set(
        title="Noise for epsilon 1, delta 0.001 at sampling ratio 0.005 (no repeats: exact numbers)",
        xlabel="passes over the data (200 steps each)",
        ylabel="sigma of a step: noise / sensitivity",
        ylim=(0, None),
    )
    axis.title.set_fontsize(10)
    axis.grid(alpha=0.3)
    axis.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize=8, frameon=False)
    save_figure(setting, EXPERIMENT.name, figure)


def _claims(found) -> list[Claim]:
    (a1, a10), (m1, m10), (p1, p10), (v1, v10) = ((s[0], s[-1]) for s in found.values())
    best = [
        calibrate.noise_multiplier(
            BUDGET,
            sampling_rate=RATE,
            num_steps=steps,
            accountant=Advanced(check=False, slack=None),
        )
        / 2
        for steps in (200, 2000)
    ]
    near = [abs(np.log(ours / theirs)) < np.log(1.1) for ours, theirs in ((a1, 2), (a10, 6))]
    return [
        Claim(
            said="Ten times the passes change the moments accountant's sigma little.",
            reported="a nearly flat curve",
            found=f"{m1:.3f} to {m10:.3f}, a factor of {m10 / m1:.2f}",
            verdict="agrees" if m10 / m1 < 1.5 < a10 / a1 else "does not agree",
            why="Little is taken to be less than half as much again.",
        ),
        Claim(
            said="Ten times the passes raise advanced composition's sigma from 2 to 6.",
            reported="2 to 6",
            found=f"{a1:.2f} to {a10:.2f}",
            verdict="agrees" if all(near) else "agrees in part" if any(near) else "does not agree",
            why=(
                f"Equal to a tenth, in part if one of the two is. Half of delta goes to the composition; the best share gives {best[0]:.2f} to "
                f"{best[1]:.2f}. The Gaussian theorem holds for a step's epsilon below 1 only; where it does, sigma "
                f"goes from {v1:.2f} to {v10:.2f}."
            ),
        ),
        Claim(
            said="The moments accountant shows the power of accounting for sampling.",
            reported="its curve is far below the other",
            found=(
                f"{a1 / m1:.1f} to {a10 / m10:.1f} times less noise than advanced composition; "
                f"privacy-loss accounting needs {p1:.3f} to {p10:.3f}, {m10 / p10:.1f} to "
                f"{m1 / p1:.1f} times less again"
            ),
            verdict="agrees" if a1 / m1 > 2 else "does not agree",
            why="Far is taken to be a factor of two.",
        ),
    ]


EXPERIMENT = Experiment(
    name="thesis_passes",
    source="003",
    figure="Fig. 2.2",
    title="Noise against passes over the data, by accountant",
    run=run,
)
