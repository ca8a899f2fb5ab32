"""Thesis, Figs. 5.4 and 5.5: a mixture of five Gaussians, by DPVI, DP-SGLD, and without privacy.

The thesis draws 1,000 rows to learn from and 100 to test, of five round Gaussians at the origin and
(+-2, +-2) with variance .5. Means have N(0, I) priors, variances Inv-Gamma(1, 1), shares a flat
Dirichlet; who belongs where is summed out. DPVI (Algorithm 1, which
clips shares of the ELBO) takes 1,000 steps at q = .03, clip 1, AdaGrad that forgets every ten steps; DP-SGLD 150 steps at q = .03, of 1e-4 and L = 1
as in the authors' code; without privacy DPVI has no noise, q = .01 and 2,000 steps. Ten runs each, at
epsilon .1 to 10, delta 1e-3.

Beside it are at the same epsilon Tacit's `Variational` (aligned gradients, Adam, tight accounting), the same with
the thesis' clip, as its own, sqrt(19), is meant for standardised regressions, and Tacit's default, private Fisher scoring.
"""

import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from reproduction import DEFAULT, Experiment, save_figure, save_table
from thesis_mixture_claims import CLIPPED, VARIATIONAL, claims, nearest

from tacit import Budget, Model, Rows, Scoring, Variational
from tacit.accounting import PLD, calibrate, events
from tacit.api.fit import fit_many, fit_without_privacy
from tacit.methods import PublishedLangevin
from tacit.models import Parameter
from tacit.models.jax_model import Positive, Simplex
from tacit.papers.accountants import Advanced, Moments

CENTRES = np.array([[0, 0], [2, 2], [-2, -2], [-2, 2], [2, -2]], float)
VARIANCE, DELTA, RATE = 0.5, 1e-3, 0.03
SHOWN = 1.0
LANGEVIN = PublishedLangevin(
    sampling_rate=RATE, num_steps=150, step_size=1e-4, clip=1.0, size=1000, burn_in=1 / 3
)


def rows(count, rng):
    return CENTRES[rng.integers(0, 5, count)] + math.sqrt(VARIANCE) * rng.normal(size=(count, 2))


def five(shape=1.0, scale=1.0, dimension=2):
    """The thesis' model: shares, means, and variances with an inverse gamma prior.

    ``dimension`` is that of the rows in the determinant; the authors' program has 5.
    """

    def log_prior(p):
        v = p["variances"]
        return -0.5 * jnp.sum(p["means"] ** 2) - jnp.sum((shape + 1) * jnp.log(v) + scale / v)

    def log_likelihood(p, row):
        squares = jnp.sum((row["x"] - p["means"]) ** 2, axis=1)
        parts = -0.5 * squares / p["variances"]
        parts = parts - dimension / 2 * jnp.log(2 * math.pi * p["variances"])
        return jax.nn.logsumexp(jnp.log(p["shares"]) + parts)

    def simulate(key, p, row):  # noqa: ARG001
        which, where = jax.random.split(key)
        k = jax.random.categorical(which, jnp.log(p["shares"]))
        normal = jax.random.normal(where, (2,))
        return {"x": p["means"][k] + jnp.sqrt(p["variances"][k]) * normal}

    return Model(
        parameters={
            "shares": Parameter((5,), Simplex()),
            "means": Parameter((5, 2)),
            "variances": Parameter((5,), Positive()),
        },
        log_prior=log_prior,
        log_likelihood=log_likelihood,
        simulate=simulate,
    ).unit_model


def predictive(draws, test):
    """Log of the posterior predictive density of a test row, averaged over rows."""
    shares, means, variances = (
        np.asarray(draws[k], np.float64)[-100:] for k in ("shares", "means", "variances")
    )
    squares = ((test[:, None, None] - means) ** 2).sum(axis=-1)
    parts = np.exp(-0.5 * squares / variances) / (2 * math.pi * variances)
    return float(np.log((shares * parts).sum(axis=-1).mean(axis=1)).mean())


def oracle(test):
    """The same by the true mixture."""
    squares = ((test[:, None] - CENTRES) ** 2).sum(axis=-1)
    parts = np.exp(-0.5 * squares / VARIANCE) / (2 * math.pi * VARIANCE)
    return float(np.log(parts.mean(axis=1)).mean())


def papers(steps, rate=RATE):
    return Variational(
        sampling_rate=rate, num_steps=steps, clip=1.0, gradient="elbo", size=1000,
        optimiser="adagrad", learning_rate=0.1, reset_every=10, average=False, start="random",
    )  # fmt: skip


def tight_budget(epsilon, accountant, steps):
    """A budget that has the noise which an accountant of the thesis asks for at an epsilon."""
    noise = calibrate.noise_multiplier(
        Budget(epsilon, DELTA, "replace"),
        sampling_rate=RATE,
        num_steps=steps,
        accountant=accountant,
    )
    event = events.sampled_gaussian(noise, RATE, steps)
    return Budget(PLD().epsilon(event, DELTA, "replace"), DELTA, "replace")


def many(method, budgets, data, seed, model=None):
    """Draws of fits with these budgets, each on its own rows."""
    found = fit_many(
        model or five(), [Rows({"x": x}) for x, _ in data], budgets, method,
        seeds=range(seed, seed + len(budgets)),
    )  # fmt: skip
    return [each.draws for each in found]


def by_form(setting, epsilons, data):
    """Draws by form and epsilon, one for each split."""
    runs, steps = len(data), setting.pick(quick=100, usual=1000)
    every = [part for _ in epsilons for part in data]
    plain = [Budget(e, DELTA, "replace") for e in epsilons for _ in data]
    advanced = Advanced(check=False)
    thesis = [
        tight_budget(e, by, steps) for by in (Moments(max_order=200), advanced) for e in epsilons
    ]
    both = many(papers(steps), [b for b in thesis for _ in data], every * 2, 100)
    variational = Variational(sampling_rate=RATE, num_steps=steps, start="random")
    flat = {
        "DPVI-MA (thesis)": both[: len(every)],
        "DPVI (thesis, advanced composition)": both[len(every) :],
        "DP-SGLD (thesis)": many(LANGEVIN, plain, every, 1000),
        VARIATIONAL: many(variational, plain, every, 2000),
        # It would refuse some at the smallest epsilon, as the noisy count of rows is too low.
        DEFAULT: many(Scoring(check_count=False), plain, every, 6000),
    }
    if setting.length != "quick":
        flat[CLIPPED] = many(replace(variational, clip=1.0), plain, every, 3000)
    spent = {
        name: thesis[k * len(epsilons) :][: len(epsilons)] for k, name in enumerate(list(flat)[:2])
    }
    parted = {
        name: [draws[k * runs : (k + 1) * runs] for k in range(len(epsilons))]
        for name, draws in flat.items()
    }
    return parted, {name: [b.epsilon for b in each] for name, each in spent.items()}


def without(setting, data):
    steps = setting.pick(quick=100, usual=2000)
    return [
        fit_without_privacy(
            five(), Rows({"x": x}), method=papers(steps=steps, rate=0.01), seed=seed
        ).draws
        for seed, (x, _) in enumerate(data)
    ]


def draw_scores(setting, epsilons, scores, alone, true):
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(8, 5))
    for name, found in scores.items():
        error = found.std(axis=1, ddof=1) / math.sqrt(found.shape[1])
        axis.errorbar(epsilons, found.mean(axis=1), error, fmt="o-", capsize=3, label=name)
    axis.axhline(alone.mean(), color="red", ls="--", label="without privacy (thesis' form)")
    axis.axhline(true, color="k", ls=":", label="the true mixture")
    floor = min(s.mean(axis=1).min() for s in scores.values())
    axis.set(xscale="log", xlabel="epsilon at delta 1e-3, replace, by each form's own accounting")
    axis.set(
        ylabel="log predictive density of a test row, 1 s.e.",
        ylim=(max(floor, -14) - 1, true + 0.4),
    )
    axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=2)
    save_figure(setting, "thesis_mixture_scores", figure)


def draw_circles(setting, examples):
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(examples), figsize=(2.8 * len(examples), 3.3), sharey=True)
    for axis, (title, (x, draws)) in zip(axes, examples.items(), strict=True):
        axis.plot(*x[::8].T, ".", color="tab:green", ms=2)
        for centre in CENTRES:
            _circle(axis, centre, VARIANCE, "black", "-")
        means, variances = (
            np.asarray(draws[k])[-100:].mean(axis=0) for k in ("means", "variances")
        )
        for k, (centre, variance) in enumerate(zip(means, variances, strict=True)):
            _circle(axis, centre, variance, f"C{k + 3}", "--")
        axis.set(xlim=(-5, 5), ylim=(-5, 5), aspect="equal", xlabel="first coordinate")
        axis.set_title(title, fontsize=10)
    axes[0].set_ylabel("second coordinate")
    figure.suptitle(
        f"Epsilon {SHOWN:g}, run of median score: true components (black) and learnt ones"
    )
    figure.tight_layout()
    save_figure(setting, "thesis_mixture_components", figure)


def _circle(axis, centre, variance, colour, style):
    import matplotlib.pyplot as plt

    axis.plot(*centre, "o", color=colour, ms=5)
    axis.add_artist(
        plt.Circle(centre, 2 * math.sqrt(variance), color=colour, fill=False, ls=style, lw=1.5)
    )


def variances(several):
    """Of all components, for each of several runs."""
    return np.array([np.asarray(draws["variances"])[-100:].mean(axis=0) for draws in several])


def run(setting):
    rng = np.random.default_rng(5)
    runs = setting.pick(quick=2, usual=10)
    data = [(rows(1000, rng), rows(100, rng)) for _ in range(runs)]
    epsilons = setting.pick(quick=[SHOWN], usual=np.geomspace(0.1, 10, 5).tolist())
    found, spent = by_form(setting, epsilons, data)
    alone = without(setting, data[: setting.pick(quick=1, usual=3, paper=10)])
    tests = [test for _, test in data]
    scores = {
        name: np.array(
            [[predictive(d, t) for d, t in zip(each, tests, strict=True)] for each in by]
        )
        for name, by in found.items()
    }
    bare = np.array([predictive(d, t) for d, t in zip(alone, tests, strict=False)])
    true = float(np.mean([oracle(test) for test in tests]))
    draw_scores(setting, epsilons, scores, bare, true)
    at = int(np.argmin(np.abs(np.array(epsilons) - SHOWN)))
    shown = ("DPVI-MA (thesis)", "DP-SGLD (thesis)", VARIATIONAL, DEFAULT)
    middle = {name: int(np.argsort(scores[name][at])[runs // 2]) for name in shown}
    examples = {name: (data[k][0], found[name][at][k]) for name, k in middle.items()}
    draw_circles(setting, examples)
    gaps = {name: np.array([nearest(d, CENTRES) for d in found[name][at]]) for name in shown}
    sizes = {name: variances(found[name][at]) for name in shown}
    budgets = [Budget(SHOWN, DELTA, "replace")] * runs
    if setting.length != "quick":
        sizes["other prior"] = variances(many(LANGEVIN, budgets, data, 4000, five(10.0, 0.1)))
        wide = [(rows(2000, rng), None) for _ in range(runs)]
        chain = replace(LANGEVIN, size=2000)
        sizes["right"] = variances(many(chain, budgets, wide, 5000))
        sizes["as coded"] = variances(many(chain, budgets, wide, 5000, five(dimension=5)))
    table = [
        (name, e, s.mean(), s.std(ddof=1) / math.sqrt(len(s)))
        for name, by in scores.items()
        for e, s in zip(epsilons, by, strict=True)
    ]
    table += [
        ("without privacy", "", bare.mean(), bare.std() / math.sqrt(len(bare))),
        ("true", "", true, ""),
    ]
    save_table(setting, "thesis_mixture", ("form", "epsilon", "log density", "s.e."), table)
    return claims(epsilons, scores, bare, true, gaps, sizes, spent)


EXPERIMENT = Experiment(
    name="thesis_mixture",
    source="003",
    figure="Figs. 5.4 and 5.5",
    title="A mixture of five Gaussians",
    run=run,
)
