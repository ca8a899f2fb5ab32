"""What the report states without a figure: equations, group privacy, PVI's fixed point, hybrid updates.

Equations are compared with numbers computed another way. Hybrid updates are the report's own wish (Section 4.2):
analytical updates to begin with, private gradients to follow. They are run here at 5 sites of 400 points, epsilon 1,
clip 20, beside private gradients and one release of the statistics.
"""

import numpy as np
from logistic import apart, mean_and_error, scored, table
from report_model import DELTA, TARGET, by_default, divergence, exact, judged, regression
from reproduction import DEFAULT, KNOWN, Claim, Experiment, Setting, save_figure, save_table
from scipy import optimize
from scipy.stats import norm

from tacit import Rows
from tacit.accounting import Budget
from tacit.federated import Partitioned
from tacit.federated.method import run_in_process
from tacit.federated.schemes import OneRelease, Optimised
from tacit.inference.variational import Variational
from tacit.papers.federated import Hybrid

SITES, POINTS, CLIP, BUDGET = 5, 400, 20.0, Budget(1.0, DELTA)
# Each with the rounds that suit it: private gradients get their default ten.
WAYS = {
    "hybrid": Partitioned(scheme=Hybrid(clip=CLIP), num_rounds=1),
    "private gradients": Partitioned(scheme=Optimised()),
    "one release": Partitioned(scheme=OneRelease(clip=CLIP), num_rounds=1),
}


def compared(seeds):
    """KL(q, exact) by way, for each seed with data of its own."""
    found = {name: [] for name in WAYS}
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        x, y = regression(2.0, (SITES, POINTS), rng)
        rows = {f"s{i}": Rows({"x": x[i][:, None], "y": y[i]}) for i in range(SITES)}
        for name, method in WAYS.items():
            budgets = dict.fromkeys(rows, BUDGET)
            run = run_in_process(method, TARGET, rows, budgets, run=f"{name} {seed}", seed=seed)
            found[name].append(float(divergence(run.trace[-1], exact(x, y))))
        ours = by_default((None, x[None], y[None]), BUDGET.epsilon)
        found.setdefault(DEFAULT, []).append(float(divergence(ours, exact(x, y))[0]))
    return {name: np.array(each) for name, each in found.items()}


def _default_claim(found) -> Claim:
    medians = {name: np.median(each) for name, each in found.items()}
    others = {name: m for name, m in medians.items() if name != DEFAULT}
    return Claim(
        said="Tacit's default, private Fisher scoring of all rows at once, is nearer to the exact posterior than each of the three (not a claim of the report).",
        reported="",
        found=", ".join(f"{name}: median KL {m:.2g}" for name, m in medians.items()),
        verdict=judged(*(medians[DEFAULT] < m for m in others.values())),
        why="At the same epsilon. A curator has all rows, where the others have sites.",
    )


def _median_claim(setting: Setting) -> Claim:
    """DPVI at epsilon 1 with the clip at the median length of unclipped gradients, and at multiples of it."""
    data = table(setting, "Abalone")
    x, y = data.x[: data.cut].astype(float), data.y[: data.cut]
    lengths = np.linalg.norm(x, axis=1)
    middles = []
    for share in np.linspace(0, 1, 11):  # from where training starts to the most probable weights
        chances = 1 / (1 + np.exp(-x @ (share * data.most_probable)))
        middles.append(np.median(np.abs(y - chances) * lengths))
    clip, runs = float(np.mean(middles)), setting.pick(quick=2, usual=10)
    times = setting.pick(quick=(0.1, 1.0), usual=(0.1, 0.3, 1.0, 3.0, 10.0))
    steps = setting.pick(quick=100, usual=1000)
    found = {
        k: scored(data, Variational(clip=k * clip, num_steps=steps), (1.0,), runs) for k in times
    }
    told, behind = [], []
    for part in ("accuracy", "density"):
        means = {k: mean_and_error(getattr(each, part)[0]) for k, each in found.items()}
        behind.append(apart(max(means.values()), means[1.0]) > 2)
        told.append(", ".join(f"{m:.4f} at {k:g} times" for k, (m, _) in means.items()))
    return Claim(
        said="The clip is best fixed at the median length of unclipped gradients in training (Abadi et al. 2016, in Section 2.1.3).",
        reported="a suggestion",
        found=f"the median is {clip:.2g} on Abalone at epsilon 1; accuracy {told[0]}; log density {told[1]}",
        verdict=judged(not behind[0], not behind[1]),
        why="Agrees if the median is within two standard errors of the best multiple in accuracy and in log density, in part if in one. By `Variational`, 10 runs; the median is taken of the rows here, which itself is not private.",
    )  # fmt: skip


def _hybrid_claim(found) -> Claim:
    medians = {name: np.median(each) for name, each in found.items()}
    return Claim(
        said="Analytical updates to begin with and private gradients to follow would achieve more at lower cost (Section 4.2).",
        reported="a wish; not investigated",
        found=", ".join(f"{name}: median KL {m:.2g}" for name, m in medians.items()),
        verdict=judged(medians["hybrid"] < medians["private gradients"], medians["hybrid"] < medians["one release"]),
        why=f"{len(found['hybrid'])} data sets of {SITES} sites x {POINTS} points, epsilon {BUDGET.epsilon:g} for each way, clip {CLIP:g} on natural parameters, settings otherwise Tacit's defaults. Agrees if the hybrid has the lowest median KL, in part if it beats one of the two. {KNOWN}",
    )  # fmt: skip


def _group_claim() -> tuple[Claim, list]:
    """Eq. 3.8 beside the exact delta of the Gaussian mechanism, whose shift by a group is known."""
    ratios, lines = [], []
    for noise in (1.0, 2.0, 5.0):
        for epsilon in (0.1, 0.5, 1.0):
            single = _delta(1 / noise, epsilon)
            for size in (1, 2, 5, 10, 20):
                bound = single * np.expm1(size * epsilon) / np.expm1(epsilon)
                true = _delta(size / noise, size * epsilon)
                ratios.append(true / bound)
                lines.append([noise, epsilon, size, float(min(bound, 1)), float(true)])
    claim = Claim(
        said="(epsilon, delta) for a point is (t epsilon, delta (1 - e^(t epsilon)) / (1 - e^epsilon)) for t points (eq. 3.8).",
        reported="an upper bound",
        found=f"of {len(ratios)} Gaussian mechanisms and groups up to 20, the exact delta is {min(ratios):.2g} to {max(ratios):.2g} times the bound",
        verdict="agrees" if max(ratios) <= 1 + 1e-9 else "paper is wrong",
        why="Agrees if no exact delta is above the bound. `Budget` and the ledger account for groups as units, which is exact.",
    )  # fmt: skip
    return claim, lines


def _delta(mu, epsilon) -> float:
    """Exact delta of the Gaussian mechanism with a shift of mu standard deviations."""
    return float(
        norm.cdf(mu / 2 - epsilon / mu) - np.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)
    )


def _divergence_claim() -> Claim:
    """Eq. 2.23 beside the maximiser of the local free energy, eq. 2.22, for a normal tilted distribution."""
    tilted = np.array([8.0, 4.0])  # precision, and precision x mean

    def energy(params):
        mean, log_variance = params
        variance = np.exp(log_variance)
        squares = variance + mean**2
        return 0.5 * log_variance - 0.5 * tilted[0] * squares + tilted[1] * mean

    best = optimize.minimize(lambda p: -energy(p), (0.0, 0.0)).x

    def gap(params):
        precision = np.exp(-params[1])
        return float(divergence(np.array([precision, precision * params[0]]), tilted))

    there, away = gap(best), gap(best + np.array([3.0, 1.0]))
    return Claim(
        said="Maximising the local free energy is the same as maximising KL(q, tilted distribution) (eq. 2.23).",
        reported="argmax of KL",
        found=f"KL is {there:.1e} at the maximum of the free energy, and {away:.3g} away from it",
        verdict="paper is wrong" if there < 1e-6 < away else "agrees",
        why="A misprint: it is the minimum of KL, as Chapter 4 itself says where it recalls the equation.",
    )


def _algorithm_claim() -> Claim:
    """Line 7 of Algorithm 1 as printed, and as its text says."""
    rng = np.random.default_rng(0)
    gradients = 30 * rng.standard_t(2, size=(1000, 2))
    norms = np.linalg.norm(gradients, axis=1)
    kept = gradients / np.maximum(norms, 1)[:, None]
    longest = [float(np.linalg.norm(each, axis=1).max()) for each in (gradients, kept)]
    return Claim(
        said="Algorithm 1 perturbs the sum of the gradients of a lot with noise of deviation sigma c, for a sensitivity of c.",
        reported="line 7 adds up g(x), not its clipped form of line 6",
        found=f"with c = 1, one row of a thousand moves the sum by up to {longest[0]:.3g} as printed, and by {longest[1]:.3g} if clipped gradients are added up",
        verdict="paper is wrong" if longest[0] > 1 else "agrees",
        why="A misprint: line 7 lacks the tilde of line 6, and without clipping there is no guarantee. The text and the experiments clip.",
    )


def _fixed_point_claims(setting: Setting) -> list[Claim]:
    """Theorem 2.2.3 for a Poisson regression of one coefficient, whose expectations are in closed form."""
    rng = np.random.default_rng(1)
    x = 0.5 * rng.normal(size=(4, 25))
    y = rng.poisson(np.exp(0.8 * x))
    prior = np.array([1.0, 0.0])

    def likelihood(params, i):
        mean, variance = params[0], np.exp(params[1])
        return float(np.sum(y[i] * x[i] * mean - np.exp(x[i] * mean + x[i] ** 2 * variance / 2)))

    def against(params, eta):
        """Mean under q of the log of exp(eta . (-theta^2 / 2, theta))."""
        mean, variance = params[0], np.exp(params[1])
        return -0.5 * eta[0] * (variance + mean**2) + eta[1] * mean

    def entropy(params):
        return 0.5 * (1 + np.log(2 * np.pi) + params[1])

    def maximised(energy, start):
        return optimize.minimize(
            lambda p: -energy(p), start, method="BFGS", options={"gtol": 1e-9}
        ).x

    def natural(params):
        return np.exp(-params[1]) * np.array([1.0, params[0]])

    whole = maximised(
        lambda p: sum(likelihood(p, i) for i in range(4)) + against(p, prior) + entropy(p),
        (0.0, 0.0),
    )
    factors, q = np.zeros((4, 2)), np.zeros(2)
    for step in range(setting.pick(quick=40, usual=200)):
        i = step % 4
        cavity = prior + factors.sum(axis=0) - factors[i]
        q = maximised(lambda p, i=i, c=cavity: likelihood(p, i) + against(p, c) + entropy(p), q)
        factors[i] = natural(q) - cavity
    # Constants of factors do not matter to optima; they cancel in the sum if each is what makes q normal.
    log_norm = -entropy(q) - against(q, natural(q))  # log q = natural . statistics + log_norm
    local = sum(likelihood(q, i) - against(q, factors[i]) for i in range(4)) - log_norm
    total = sum(likelihood(q, i) for i in range(4)) + against(q, prior) + entropy(q)
    far = float(np.abs(q - whole).max())
    return [
        Claim(
            said="At convergence of PVI the sum of local free energies is the global one (Theorem 2.2.3, 1).",
            reported="eq. 2.27",
            found=f"{local:.6f} and {total:.6f}",
            verdict=judged(abs(local - total) < 1e-6 * abs(total)),
            why="Poisson regression at 4 sites of 25 points; equal to 1e-6. It needs factors whose constants make the posterior normal.",
        ),
        Claim(
            said="A fixed point of PVI is an optimum of the global free energy (Theorem 2.2.3, 2).",
            reported="eq. 2.28",
            found=f"mean and log variance differ by {far:.1e} from those of the global optimum",
            verdict=judged(far < 1e-4),
            why="Equal to 1e-4, by a general optimiser of all rows at once.",
        ),
    ]


def _figure(setting: Setting, found, groups) -> None:
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    for place, each in enumerate(found.values()):
        left.plot(np.full(len(each), place), each, "o", alpha=0.6)
        left.plot(place, np.median(each), "_", color="black", markersize=30)
    left.set(
        yscale="log",
        ylabel="KL(q, exact), nats",
        title=f"epsilon {BUDGET.epsilon:g}; bars: medians",
    )
    left.set_xticks(range(len(found)), list(found))
    left.margins(x=0.15)
    shown = [line for line in groups if line[0] == 2.0 and line[1] == 0.5]
    right.plot([line[2] for line in shown], [line[3] for line in shown], "o-", label="eq. 3.8")
    right.plot([line[2] for line in shown], [line[4] for line in shown], "s-", label="exact")
    right.set(ylim=(0, None), xlabel="points in a group, t", ylabel="delta at t x 0.5")
    right.set_title("Gaussian mechanism, noise 2 sensitivities")
    right.legend(frameon=False)
    save_figure(setting, EXPERIMENT.name, figure)


def run(setting: Setting) -> list[Claim]:
    found = compared(setting.pick(quick=1, usual=8))
    group, lines = _group_claim()
    _figure(setting, found, lines)
    save_table(
        setting,
        EXPERIMENT.name,
        ("way", "seed", "kl"),
        [[name, seed, float(kl)] for name, each in found.items() for seed, kl in enumerate(each)],
    )
    return [
        _divergence_claim(),
        _algorithm_claim(),
        *_fixed_point_claims(setting),
        group,
        _hybrid_claim(found),
        _default_claim(found),
        _median_claim(setting),
    ]


EXPERIMENT = Experiment(
    name="report_theory",
    source="001",
    figure="Chapters 2 to 4",
    title="Equations, group privacy, the clip, the fixed point of PVI, and hybrid updates",
    run=run,
    tables=("abalone",),
)
