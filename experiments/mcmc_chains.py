"""DP-MCMC, Figs. 2 and 3: private chains beside non-private ones, and beside DP-SGLD.

The paper draws from the mixture of two means, a million rows counted as a hundred: 40,000
steps without privacy, and 20 private chains of 20,000 on batches of 1,000, proposals of
deviation .1, from a place that private variational inference has found. Fig. 3 has the errors
of mean and variance over the first t steps against what these cost, with DP-SGLD (Li et al.
2019) beside: 20 runs (usually 10 here) of 6 million steps of 7e-5 on batches of 100, clipped to .01,
which is 100 before tempering (`mcmc_langevin`). All is compared with a grid here, not with a chain.

Beside them are Tacit's: the test on all rows, exact, at epsilon 1 in all, on a tenth of the rows, which is the
harder case; and Langevin steps with the right noise, and a clip that suits the gradients. Tacit's
Langevin chains, as published and with the right noise, have larger and fewer steps (2e-3), and go on
for a seventh of the paper's time, as the equation counts time.
"""

import math
from dataclasses import dataclass
from typing import Any

import mcmc_parameters as parameters
import numpy as np
from mcmc_chains_claims import BY_ENGINE, CORRECT, PUBLISHED, RIGHT, claims
from mcmc_langevin import BATCH as PAPERS_BATCH
from mcmc_langevin import BURN_IN, EVERY, RUNS, STEPS, langevin_chains
from mixture import exact_chains, mixture_grid, mixture_moments, mixture_rows, two_means
from reproduction import Experiment, save_figure, save_table

from tacit import Barker, Budget, Langevin, Rows, Variational
from tacit.accounting import PLD, Renyi, events, renyi
from tacit.accounting.convert import epsilon_by_order
from tacit.api.fit import fit, fit_many
from tacit.methods import GaussianWalk, PublishedLangevin
from tacit.papers.barker import PublishedBarker

COUNTED, BATCH, SCALE = 100, 1000, 0.1
# So large that it never binds, where chains are compared at settings.
AMPLE = Budget(1e6, 1e-6, "replace")
LANGEVIN_AMPLE = Budget(1e4, 2e-6)
# The paper's DP-SGLD: noise over clip, sampling rate and steps.
PAPERS = events.sampled_gaussian(100 / math.sqrt(70 * 10**6) / 0.01, PAPERS_BATCH / 10**6, STEPS)


@dataclass(frozen=True, kw_only=True)
class Chains:
    """Several chains, from the first step; and what the first t steps of one cost."""

    name: str
    theta: Any
    burn_in: int
    cost: Any

    def errors(self, truth, points=14):
        """At some t: cost, and by coordinate mean error and its standard error, of both moments."""
        length = self.theta.shape[1] - self.burn_in
        ends = np.unique(np.geomspace(length / 30, length, points).astype(int))
        kept = self.theta[:, self.burn_in :].astype(np.float64)
        sums, squares = (np.cumsum(kept**k, axis=1)[:, ends - 1] for k in (1, 2))
        means = sums / ends[:, None]
        variances = squares / ends[:, None] - means**2
        gaps = np.abs(np.stack([means - truth[0], variances - truth[1]]))
        costs = np.array([self.cost(int(end) + self.burn_in) for end in ends])
        return costs, gaps.mean(axis=1), gaps.std(axis=1, ddof=1) / math.sqrt(len(kept))

    def pooled(self, truth):
        """Mean and variance over truth of all chains together, with standard errors."""
        kept = self.theta[:, self.burn_in :].astype(np.float64)
        each = np.stack([kept.mean(axis=1), ((kept - truth[0]) ** 2).mean(axis=1) / truth[1]])
        return each.mean(axis=1), each.std(axis=1, ddof=1) / math.sqrt(len(kept))


def together(x, method, budget, count):
    """Whole chains of several runs."""
    rows, budgets = [Rows({"x": x})] * count, [budget] * count
    fits = fit_many(two_means(), rows, budgets, method, seeds=range(count))
    return np.stack([each.trace["theta"] for each in fits])


def start(x):
    """A place from a private variational fit as the paper's: noise 10, clip 1, batches of 100."""
    rate, steps = 100 / len(x), 1000
    event = events.sampled_gaussian(10.0, rate, steps)
    budget = Budget(PLD().epsilon(event, 1e-6, "replace"), 1e-6, "replace")
    method = Variational(
        sampling_rate=rate, num_steps=steps, clip=1.0, gradient="joint", learning_rate=1e-3,
        average=False, start="random",
    )  # fmt: skip
    found = fit(two_means(), Rows({"x": x}), budget=budget, method=method, seed=1)
    return {"theta": np.asarray(found.unconstrained_mean)}


def on_batches(setting, x, at, scale=SCALE):
    """The paper's private chains. What they cost has the start in it, 0.22 as the paper has it."""
    steps = setting.pick(quick=1000, usual=20_000)
    runs = setting.pick(quick=2, usual=20)
    if scale != SCALE:  # only to show what the clip does to bolder steps
        steps, runs = steps // 4, runs // 2
    method = PublishedBarker(
        num_steps=steps, size=len(x), tempered_size=COUNTED, batch_size=BATCH,
        proposal=GaussianWalk(scale), start=at,
    )  # fmt: skip

    def cost(t):
        event = parameters.tests(BATCH, len(x), t, paper=True)
        return parameters.PAPERS.epsilon(event, 1e-6, "replace") + 0.22

    theta = together(x, method, AMPLE, runs)
    return Chains(name="DP-MCMC, as published", theta=theta, burn_in=steps // 20, cost=cost)


def on_all_rows(setting, x):
    """Tacit's plain walk: exact tests on all rows, whose bound follows from the budget."""
    steps, runs = setting.pick(quick=100, usual=2000), setting.pick(quick=2, usual=6)
    budget = Budget(1, 1e-6, "replace")
    method = Barker(num_steps=steps, size=len(x), tempered_size=COUNTED)
    bound = method.calibrate(two_means(), budget).clip

    def cost(t):
        event = events.repeat(events.BarkerTest(ratio_bound=bound), t)
        return Renyi().epsilon(event, 1e-6, "replace")

    theta = together(x, method, budget, runs)
    return Chains(name="Barker, Tacit's plain walk", theta=theta, burn_in=steps // 5, cost=cost)


def langevin(setting, x):
    """DP-SGLD at the paper's settings, as published and with noise of the right size."""
    steps = setting.pick(quick=20_000, usual=STEPS)
    runs = setting.pick(quick=2, usual=RUNS // 2, paper=RUNS)
    burn_in = min(BURN_IN, steps // 2) // EVERY
    papers = langevin_cost(PAPERS, STEPS)
    found = langevin_chains(x, COUNTED, steps, runs)
    for name, theta in zip((PUBLISHED, CORRECT), found, strict=True):
        yield Chains(name=name, theta=theta, burn_in=burn_in, cost=lambda t: papers(t * EVERY))


def by_engine(setting, x):
    """Tacit's chains by releases, in larger steps: as published, and at the right temperature."""
    size, rate, steps = 2e-3, 2e-4, setting.pick(quick=2000, usual=30_000)
    settings = {
        "sampling_rate": rate, "num_steps": steps, "step_size": size, "clip": 5.0,
        "size": len(x), "tempered_size": COUNTED, "burn_in": 0.0,
    }  # fmt: skip
    runs = setting.pick(quick=2, usual=8)
    for name, method in {
        BY_ENGINE: PublishedLangevin(**settings),
        RIGHT: Langevin(**settings),
    }.items():
        ((noise, _),) = method.calibrate(two_means(), LANGEVIN_AMPLE).phases
        cost = langevin_cost(events.sampled_gaussian(noise, rate, steps), steps)
        theta = together(x, method, LANGEVIN_AMPLE, runs)
        yield Chains(name=name, theta=theta, burn_in=round(min(7 / size, steps / 2)), cost=cost)


def langevin_cost(event, steps):
    """What the first t of so many steps cost, by Rényi orders, which add up over steps."""
    orders = renyi.default_orders(integer=False)
    whole = renyi.divergence(event, orders, "add-remove")
    return lambda t: float(epsilon_by_order(orders, whole * t / steps, 2e-6, "basic").min())


def draw_samples(setting, grid, chains, ratios):
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 4, figsize=(17, 4.4))
    first, second, weights = grid
    heights = np.sort(weights.ravel())[::-1]
    inside = [heights[np.searchsorted(np.cumsum(heights), share)] for share in (0.95, 0.5)]
    for axis, (title, theta) in zip(axes, chains.items(), strict=False):
        shown = theta[:: max(len(theta) // 1500, 1)]
        axis.plot(*shown.T, ".", ms=2, alpha=0.4)
        axis.contour(first, second, weights.T, levels=inside, colors="k", linewidths=0.8)
        axis.set(
            xlim=(-1.2, 2.2), ylim=(-3.2, 3.2), xlabel="theta 1", ylabel="theta 2", title=title
        )
    last = axes[3]
    for place, (mean, error) in enumerate(ratios.values()):
        for coordinate, marker in ((0, "o"), (1, "s")):
            last.errorbar(
                mean[1, coordinate], -place + 0.15 - 0.3 * coordinate, xerr=2 * error[1, coordinate],
                fmt=marker, color=f"C{coordinate}",
                label=f"theta {coordinate + 1}, 2 s.e." if place == 0 else None,
            )  # fmt: skip
    last.axvline(1, color="k", lw=0.8)
    last.set(
        yticks=-np.arange(len(ratios)), yticklabels=list(ratios), xlabel="variance over truth",
        title="all chains together",
    )  # fmt: skip
    last.yaxis.tick_right()
    last.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2)
    figure.tight_layout()
    save_figure(setting, "mcmc_chains_samples", figure)


def draw_errors(setting, errors, floor):
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 2, figsize=(11, 7.4), sharex=True, sharey="row")
    for row, what in enumerate(("mean", "variance")):
        for column in range(2):
            axis = axes[row, column]
            for name, (costs, gap, error) in errors.items():
                # Where the whole run costs next to nothing, only its end can be drawn.
                part = slice(-1, None) if costs[-1] < 0.1 else slice(None)
                axis.errorbar(
                    costs[part], gap[row, part, column], error[row, part, column], label=name,
                    elinewidth=0.6, marker="o" if part.start else None,
                )  # fmt: skip
            axis.axhline(
                floor[row, column], color="k", ls=":", label="non-private chain of 40,000 steps"
            )
            axis.set(title=f"{what} of theta {column + 1}")
        axes[row, 0].set(xlim=(0, None), ylim=(0, None))  # of both columns
        axes[row, 0].set_ylabel(f"mean absolute error of the {what}, 1 s.e.")
        axes[1, row].set_xlabel("epsilon of the first t steps, as each is accounted")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="upper center", bbox_to_anchor=(0.5, 0.02), ncols=3)
    figure.tight_layout()
    save_figure(setting, "mcmc_chains_errors", figure)


def run(setting):
    x = mixture_rows(setting.pick(quick=10**5, usual=10**6))
    few = x[: setting.pick(quick=10**4, usual=10**5)]
    grid, truth = mixture_grid(x, COUNTED), mixture_moments(x, COUNTED)
    at = {"theta": np.zeros(2)} if setting.length == "quick" else start(x)
    exact = Chains(
        name="without privacy",
        theta=exact_chains(
            x, COUNTED, setting.pick(quick=1000, usual=40_000), SCALE,
            setting.pick(quick=4, usual=20), at["theta"],
        ),
        burn_in=setting.pick(quick=100, usual=1000),
        cost=lambda _: math.inf,
    )  # fmt: skip
    private, ours = on_batches(setting, x, at), on_all_rows(setting, few)
    (published, correct), (engine, right) = langevin(setting, x), by_engine(setting, x)
    several = (private, published, ours, right)
    truths = {
        each.name: mixture_moments(few, COUNTED) if each is ours else truth for each in several
    }
    errors = {each.name: each.errors(truths[each.name]) for each in several}
    pooled = {
        each.name: each.pooled(truths.get(each.name, truth))
        for each in (exact, *several, correct, engine)
    }
    if setting.length != "quick":
        bold = on_batches(setting, x, at, scale=0.2)
        pooled["DP-MCMC, proposals .2"] = bold.pooled(truth)
    floor = exact.errors(truth)[1][:, -1]
    shown = {"without privacy, 40,000 steps": exact, "DP-MCMC, 20,000 steps": private}
    samples = {title: each.theta[0, each.burn_in :] for title, each in shown.items()}
    samples["Tacit's plain walk, all chains"] = ours.theta[:, ours.burn_in :].reshape(-1, 2)
    draw_samples(setting, grid, samples, pooled)
    draw_errors(setting, errors, floor)
    save_table(
        setting, "mcmc_chains",
        ("chains", "mean 1", "s.e.", "mean 2", "s.e.", "variance 1 over truth", "s.e.",
         "variance 2 over truth", "s.e."),
        [(name, *np.stack([m, e], axis=-1).ravel().tolist()) for name, (m, e) in pooled.items()],
    )  # fmt: skip
    squared = mixture_moments(x, COUNTED, 2)[1] / truth[1]
    tight = Renyi() if setting.length == "quick" else PLD()
    return claims(x, truth, squared, pooled, errors, floor, PAPERS, tight)


EXPERIMENT = Experiment(
    name="mcmc_chains",
    source="004",
    figure="Figs. 2 and 3",
    title="Private chains, non-private ones, and DP-SGLD",
    run=run,
)
