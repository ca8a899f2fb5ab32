"""Private gradient ascent on local free energies: the report's Figure 4.1.

5 sites of 10 points, theta 2, 50 local steps of rate 1e-5 a round with one point each, C = 10, noise 1. The
figure has natural parameters, KL(q, exact) and epsilon (moments, delta 1e-5) against rounds. How the
gradient of one point becomes that of the local free energy is not said: `report_readings` plays every way that
the text allows, on several data sets, and the library's own engine runs the same settings. The author's public program settles it: the
log variance has a thousand times the mean's rate, and sites answer at once. It cuts noisy gradients back to a threshold, as
Section 4.2.1 says, and starts at the prior. Four seeds, each with data sets of its own, show how much its median varies.
"""

import jax
import jax.numpy as jnp
import numpy as np
from report_model import DELTA, NOISE_SD, TARGET, by_default, divergence, exact, judged, released
from report_readings import (
    NOISE_VARIANCE,
    POINTS,
    READINGS,
    SITES,
    STEPS,
    UNSCALED,
    by_author,
    made_up,
    played,
)
from reproduction import DEFAULT, EASY, KNOWN, Claim, Experiment, Setting, save_figure, save_table

from tacit import Rows, Variational
from tacit.accounting import PLD, Budget, calibrate, events
from tacit.federated import Partitioned
from tacit.federated.method import run_in_process
from tacit.federated.schemes import Optimised
from tacit.papers.accountants import Moments

RATE, ROUNDS, CLIPPED_MEDIAN = 1e-5, 1000, 22.0
SEEDS = (0, 1, 2, 3)  # of data sets and noise
AUTHOR = "as the author's program has it"
WAYS = {"rate 1e-5": (RATE, 0.5), "eq. 4.17 as printed": (RATE, 1.0), "rate 1e-4": (10 * RATE, 0.5)}


def epsilon(accountant, rounds) -> float:
    return accountant.epsilon(events.sampled_gaussian(1.0, 1 / POINTS, STEPS * rounds), DELTA)


def engine(x, y, rounds):
    """The same settings by the library: Poisson samples, the whole free energy, log deviation."""
    rows = {f"s{i}": Rows({"x": x[i][:, None], "y": y[i]}) for i in range(SITES)}
    steps = Variational(
        sampling_rate=1 / POINTS,
        num_steps=STEPS,
        clip=10.0,
        gradient="joint",
        num_draws=8,
        optimiser="sgd",
        learning_rate=RATE,
        average=False,
    )
    scheme = Optimised(variational=steps, noise_multiplier=1.0)
    method = Partitioned(scheme=scheme, num_rounds=rounds, schedule="sequential")
    found = run_in_process(method, TARGET, rows, dict.fromkeys(rows), run="4.1", seed=0)
    return divergence(found.trace[SITES - 1 :: SITES], exact(x, y))


def once(x, y, spent):
    """KL of one release of the statistics (C = 10) at an epsilon: [sets]."""
    noise = calibrate.noise_multiplier(Budget(spent, DELTA), num_steps=1)
    sums = released(10.0, noise, (None, x, y), 1)[0].sum(axis=-2)
    return divergence(TARGET.prior + sums, exact(x, y))


def run(setting: Setting) -> list[Claim]:
    rounds = setting.pick(quick=100, usual=ROUNDS)
    names = list(READINGS)[:: setting.pick(quick=4, usual=1)]
    ways = dict(list(WAYS.items())[: setting.pick(quick=1, usual=3)])
    found = played(names, ways, sets=setting.pick(quick=2, usual=8), rounds=rounds)
    x, y = made_up(setting.pick(quick=2, usual=8))
    own = engine(x[0], y[0], setting.pick(quick=2, usual=60, paper=ROUNDS))
    shares = setting.pick(quick=(0.5, 1.0), usual=(0.1, 0.2, 0.5, 1.0))
    at = [round(share * rounds) for share in shares]
    costs = {a.name: [epsilon(a, r) for r in at] for a in (Moments(), PLD())}
    ours = np.array([once(x, y, spent) for spent in costs["moments"]])
    parts = [made_up(setting.pick(quick=2, usual=40), seed) for seed in SEEDS]
    several = [
        by_author(*part, rate=RATE, rounds=rounds, seed=seed)
        for seed, part in zip(SEEDS, parts, strict=True)
    ]
    default = np.array(
        [divergence(by_default((None, x, y), spent), exact(x, y)) for spent in costs["moments"]]
    )
    wide = tuple(np.concatenate(each) for each in zip(*parts, strict=True))
    found[AUTHOR, "rates 1e-5 and 1e-2"] = tuple(
        np.concatenate(each) for each in zip(*several, strict=True)
    )
    late = {key: _late(gaps, rounds) for key, (gaps, _) in found.items()}
    save_table(
        setting,
        EXPERIMENT.name,
        ("reading", "way", "kl_half_way", "kl_end"),
        [[name, way, *each] for (name, way), each in late.items()],
    )
    _figure(setting, found, exact(*wide), own, (at, costs, ours, default))
    gaps = found[AUTHOR, "rates 1e-5 and 1e-2"][0]
    return _claims(late, gaps, own, (at, costs, ours, default), rounds, (x, y))


def _late(gaps, rounds):
    """Medians over data sets and 50 rounds, half way and in the end."""
    window = min(50, rounds // 2)
    return [float(np.median(gaps[:, end - window : end])) for end in (rounds // 2, rounds)]


def _figure(setting: Setting, found, true, own, spent) -> None:
    import matplotlib.pyplot as plt

    figure, (first, second, third) = plt.subplots(3, 1, figsize=(7, 10), sharex=True)
    figure.subplots_adjust(hspace=0.25)
    at, costs, ours, default = spent
    name, way = next(key for key in found if key[0] == AUTHOR)
    path = found[name, way][1][0]
    for j, (label, colour) in enumerate((("precision", "C0"), ("precision x mean", "C1"))):
        first.plot(path[:, j], color=colour, label=label)
        first.axhline(
            true[0, j], color=colour, linestyle="--", linewidth=1, label=f"{label}, exact"
        )
    first.set(
        ylabel="natural parameters of q",
        title="one data set, with the settings of the author's program",
    )
    for (reading, how), (gaps, _) in found.items():
        middle = np.median(gaps[:, ::10], axis=0)
        if how == "rate 1e-4" or not np.isfinite(middle[-1]):
            continue
        low, high = np.quantile(gaps[:, ::10], [0.1, 0.9], axis=0)
        rounds = 1 + 10 * np.arange(len(middle))
        style = "--" if how == "eq. 4.17 as printed" else "-"
        colour = "magenta" if reading == AUTHOR else f"C{list(READINGS).index(reading)}"
        second.plot(rounds, middle, style, color=colour, linewidth=1.2, label=f"{reading}; {how}")
        second.fill_between(rounds, low, high, color=colour, alpha=0.08)
    second.plot(own, color="black", linewidth=1, label="the library's engine, same settings")
    second.axhspan(1e-3, 1e-2, color="grey", alpha=0.25, label="the report, late")
    bars = np.abs(np.quantile(ours, [0.1, 0.9], axis=1) - np.median(ours, axis=1))
    second.errorbar(
        at,
        np.median(ours, axis=1),
        yerr=bars,
        fmt="*:",
        color="black",
        capsize=3,
        markersize=9,
        label="Tacit: one release at the epsilon below",
    )
    second.plot(at, np.median(default, axis=1), "D:", color="C4", markersize=5, label=DEFAULT)
    second.set(
        yscale="log",
        ylabel="KL(q, exact), nats",
        title="medians of data sets; bands and bars: 10% to 90%\n(*) has less noise than epsilon counts on",
    )
    for accountant, values in costs.items():
        third.plot(
            at,
            values,
            "o-",
            label={"moments": "moments accountant", "pld": "Tacit (privacy loss)"}[accountant],
        )
    third.axhline(500, color="grey", linestyle="--", label="the report, for reasonable performance")
    third.set(xlabel="rounds", ylabel=f"epsilon at delta {DELTA:g}")
    for axis in (first, second, third):
        axis.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize=8, frameon=False)
    save_figure(setting, EXPERIMENT.name, figure)  # fmt: skip


def _claims(late, gaps, own, spent, rounds, data) -> list[Claim]:
    at, costs, ours, default = spent
    slow = {key: each[1] for key, each in late.items() if key[1] in list(WAYS)[:2]}
    window = gaps[:, -min(50, rounds // 2) :]
    author, (low, high) = (
        float(np.median(window)),
        np.quantile(window, [0.1, 0.9], method="nearest"),
    )
    by_seed = [float(np.median(part)) for part in np.split(window, len(SEEDS))]
    best = min(slow, key=slow.__getitem__)
    private = min(gap for key, gap in slow.items() if key[0] != UNSCALED)
    covered = 1 - np.exp(-RATE * STEPS * rounds / 2)
    said = ", ".join(
        f"{r} rounds: moments {m:.0f}, privacy loss {p:.0f}"
        for r, m, p in zip(at, costs["moments"], costs["pld"], strict=True)
    )
    half = at.index(round(rounds / 2))
    there = round(float(np.interp(500, costs["moments"], at)))
    bought = float(np.median(gaps[:, max(0, there - 50) : there]))
    return [
        Claim(
            said="KL becomes small, so that the fit is effectively the non-private one.",
            reported="about 1e-3",
            found=f"after {rounds} rounds {author:.2g} with the settings of the author's program (10% to 90%: {low:.2g} to {high:.2g}; by seed {', '.join(f'{each:.2g}' for each in by_seed)}); by readings of the text {slow[best]:.2g} ({'; '.join(best)}) to {max(slow.values()):.2g}; the engine after {len(own)} rounds {own[-1]:.2g}",
            verdict=judged(author < 1e-2, low <= 1e-3),
            why=f"Agrees if the median of all seeds is below 1e-2, and 1e-3 is within 10% to 90%; in part if one holds. The text leaves out that the log variance has a thousand times the mean's rate: at the rate printed a site's factor has gone {covered:.0%} of the way to its precision. The program also divides the cavity's part by the site's points, keeps factors' precisions positive, and cuts noisy gradients back to 1000. Medians of {len(gaps)} data sets, a quarter of them for each seed. {KNOWN}",
        ),
        Claim(
            said="Reasonable performance costs epsilon of about 500.",
            reported="500",
            found=f"{said}; median KL {bought:.2g} at the round where moments reach 500",
            verdict=judged(costs["moments"][half] <= 500 <= costs["moments"][-1] and bought < 0.5),
            why="Epsilon passes 500 between half of the rounds and all, and reasonable is a KL below 0.5, that of a mean one deviation off. The accountant is for Poisson samples; lots of exactly one point, as in the report, have no such guarantee. " + f"{KNOWN} {EASY}",
        ),
        Claim(
            said="Private gradients do better than clipped analytical updates.",
            reported=f"1e-3 against a median of {CLIPPED_MEDIAN:g}",
            found=f"{author:.2g} with the author's settings, {slow[best]:.2g} to {max(slow.values()):.2g} by readings of the text",
            verdict=judged(author < CLIPPED_MEDIAN),
            why=f"Agrees if the median with the author's settings is below {CLIPPED_MEDIAN:g}; at 40 to 80 times the epsilon. {KNOWN}",
        ),
        _scale_claim(*data),
        _equation_claim(),
        Claim(
            said="One release of the statistics at the same epsilon is nearer to the exact posterior (not a claim of the report).",
            reported="",
            found="; ".join(f"epsilon {e:.0f}: median KL {np.median(o):.2g}" for e, o in zip(costs["moments"], ours, strict=True)),
            verdict=judged(np.median(ours[-1]) < private),
            why=f"C = 10 too, noise by tight accounting; against {private:.2g} after {rounds} rounds by the best reading that has the noise that epsilon counts on. {KNOWN}",
        ),
        Claim(
            said="Tacit's default, private Fisher scoring of all rows at once, is nearer to the exact posterior than private gradients at the same epsilon (not a claim of the report).",
            reported="",
            found="; ".join(f"epsilon {e:.0f}: median KL {np.median(d):.2g}, one release {np.median(o):.2g}" for e, d, o in zip(costs["moments"], default, ours, strict=True)) + f"; private gradients with the author's settings {late[AUTHOR, 'rates 1e-5 and 1e-2'][1]:.2g} in the end",
            verdict=judged(np.median(default[-1]) < late[AUTHOR, "rates 1e-5 and 1e-2"][1], np.median(default[-1]) < private),
            why=f"A curator has all rows, {SITES * POINTS} of them, where the report has sites. Agrees if better after {rounds} rounds than the author's settings and than the best reading with the full noise, in part if than one.",
        ),
    ]  # fmt: skip


def _scale_claim(x, y) -> Claim:
    """Sizes of a point's gradients for mean and log variance, at the prior and at the posterior."""
    ratios = []
    for eta in (TARGET.prior, exact(x, y)[0]):
        mean, variance = eta[1] / eta[0], 1 / eta[0]
        slopes = np.abs(x * (y - x * mean)) / NOISE_VARIANCE
        ratios.append(float(np.median(slopes) / np.median(x**2 * variance / 2 / NOISE_VARIANCE)))
    return Claim(
        said="Gradients of mean and log variance differ in scale, though they are clipped and noised alike.",
        reported="no guarantee of a similar scale",
        found=f"median size of a point's gradient for the mean over that for the log variance: {ratios[0]:.2g} at the prior, {ratios[1]:.2g} at the posterior",
        verdict=judged(max(ratios) > 10 or min(ratios) < 0.1),
        why="A factor of ten is taken to be a different scale.",
    )  # fmt: skip


def _equation_claim() -> Claim:
    """Eq. 4.17 beside the derivative of eqs. 4.13 to 4.15."""
    total, cavity, variance = 10.0, 0.2, 0.3

    def energy(v):
        return 0.5 * jnp.log(v) - v * total / (2 * NOISE_SD**2) - v * cavity / 2

    right = float(jax.grad(energy)(variance))
    printed = 1 / (2 * variance) - total / NOISE_SD**2 - cavity
    return Claim(
        said="The gradient of the local free energy for the variance is eq. 4.17.",
        reported=f"{printed:.2f} at variance 0.3, sum of squares 10, cavity precision 0.2",
        found=f"{right:.2f}, the derivative of eqs. 4.13 to 4.15",
        verdict="agrees" if abs(right - printed) < 1e-3 else "paper is wrong",
        why="Equal to 1e-3, or wrong. The last two terms lack a factor of one half.",
    )


EXPERIMENT = Experiment(
    name="report_gradients",
    source="001",
    figure="Fig. 4.1",
    title="Private gradient ascent on local free energies",
    run=run,
)
