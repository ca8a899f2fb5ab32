"""DPVI, DP-SGLD and no privacy on Abalone and Adult: thesis Figure 5.1.

The thesis runs DPVI ten times at each of ten noise levels, and gives each level an epsilon twice:
by the moments accountant and by amplified advanced composition. DP-SGLD goes by its own formula.
The text has q, T and c for DPVI, and nothing for DP-SGLD; its passes and L are those of the
authors' scripts (10 and 5 for Abalone, 2 and 10 for Adult). Their steps, of 0.1 and more on a
gradient of thousands, only work with a projection that Algorithm 2 does not have; here the step
is the best of four at each epsilon, judged by the test rows, which favours DP-SGLD.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from logistic import (
    ADVANCED,
    HEADER,
    MOMENTS,
    Table,
    accuracies,
    cost,
    draw,
    finish,
    lines,
    mean_and_error,
    panels,
    published_runs,
    table,
)
from reproduction import Claim, Experiment, Setting, save_figure, save_table

from tacit.accounting import PLD, Budget
from tacit.inference.langevin import Langevin
from tacit.inference.published_langevin import PublishedLangevin
from tacit.inference.variational import Variational

# The noise levels of the authors' scripts, and mean accuracies in their stored results.
ABALONE_SIGMAS = tuple(np.exp(np.linspace(0.2, 5, 10)).tolist())
ABALONE_STORED = (0.7620, 0.7620, 0.7603, 0.7604, 0.7563, 0.7573, 0.7487, 0.7440, 0.7342, 0.7353)
ABALONE_ERRORS = (0.0012, 0.0007, 0.0013, 0.0010, 0.0013, 0.0013, 0.0013, 0.0025, 0.0023, 0.0043)
ADULT_SIGMAS = tuple(np.exp(np.linspace(3, -0.3, 10)).tolist())[::-1]
# For Adult they are of q = 0.005 in another figure, with c = 50: sigma and accuracy.
ADULT_STORED = ((0.8, 0.8143), (1.2, 0.8142), (1.6, 0.8103), (2.0, 0.8112))
STORED_LEVELS = {"Abalone": 0.7667, "Adult": 0.8113}


@dataclass(frozen=True, kw_only=True)
class Case:
    """The settings for one table."""

    name: str
    sigmas: tuple[float, ...]
    rate: float
    steps: int
    clip: float
    batch: int
    passes: int
    lipschitz: float
    step_sizes: tuple[float, ...]


CASES = (
    Case(
        name="Abalone",
        sigmas=ABALONE_SIGMAS,
        rate=0.05,
        steps=1000,
        clip=5.0,
        batch=167,
        passes=10,
        lipschitz=5.0,
        step_sizes=(1e-5, 3e-5, 1e-4, 3e-4),
    ),
    Case(
        name="Adult",
        sigmas=ADULT_SIGMAS,
        rate=0.005,
        steps=2000,
        clip=75.0,
        batch=195,
        passes=2,
        lipschitz=10.0,
        step_sizes=(1e-6, 3e-6, 1e-5, 3e-5),
    ),
)


@dataclass(frozen=True, kw_only=True)
class Found:
    """Accuracies for one table; those by budget are at ``asked``."""

    case: Case
    table: Table
    level: float
    moments: np.ndarray
    advanced: np.ndarray
    dpvi: np.ndarray
    asked: np.ndarray
    by_budget: dict[str, np.ndarray]

    def dpvi_at(self, epsilons: np.ndarray, spent: np.ndarray) -> np.ndarray:
        """Runs of DPVI at other epsilons, between those it has."""
        order = np.argsort(spent)
        return np.stack(
            [np.interp(np.log(epsilons), np.log(spent[order]), run[order]) for run in self.dpvi.T],
            axis=1,
        )


def compared(setting: Setting, case: Case) -> Found:
    data = table(setting, case.name)
    runs = setting.pick(quick=2, usual=10 if case.name == "Abalone" else 5, paper=10)
    steps = setting.pick(quick=case.steps // 10, usual=case.steps)
    sigmas = case.sigmas[:: setting.pick(quick=5, usual=1)]
    spent = cost(MOMENTS, sigmas, case.rate, steps)
    asked = np.array(setting.pick(quick=(0.3, 1.0), usual=(0.05, 0.1, 0.2, 0.5, 1.0, 2.0)))
    dpvi = published_runs(data, sigmas, rate=case.rate, steps=steps, clip=case.clip, runs=runs)
    return Found(
        case=case,
        table=data,
        level=data.without_privacy,
        moments=spent,
        advanced=cost(ADVANCED, sigmas, case.rate, steps),
        dpvi=dpvi,
        asked=asked,
        by_budget=_by_budget(setting, case, data, asked, runs, steps),
    )


def _by_budget(setting, case, data, asked, runs, steps):
    default = Variational(sampling_rate=case.rate, num_steps=steps)
    sizes = case.step_sizes[:: setting.pick(quick=4, usual=1)]
    found = {
        "DP-SGLD, published noise": _best_of(
            [accuracies(data, published_langevin(case, size), asked, runs) for size in sizes]
        ),
        "Tacit's default": accuracies(data, default, asked, runs),
    }
    if setting.length == "quick":
        return found
    whole = table(setting, case.name, intercept=True)
    return found | {
        "Tacit's DP-SGLD, same steps": _best_of(
            [accuracies(data, tight_langevin(case, size), asked, runs) for size in sizes]
        ),
        "Tacit's default, with an intercept": accuracies(whole, default, asked, runs),
    }


def _best_of(tried: list[np.ndarray]) -> np.ndarray:
    """The best step size for each epsilon."""
    best = np.argmax([found.mean(axis=1) for found in tried], axis=0)
    return np.array([tried[b][i] for i, b in enumerate(best)])


def _chain(case: Case, size: float) -> dict[str, Any]:
    return {
        "sampling_rate": case.rate,
        "num_steps": round(case.passes / case.rate),
        "clip": case.lipschitz,
        "step_size": size,
    }


def published_langevin(case: Case, size: float) -> PublishedLangevin:
    return PublishedLangevin(**_chain(case, size))


def tight_langevin(case: Case, size: float) -> Langevin:
    """The same chain with noise by tight accounting; hot, as such large steps need."""
    return Langevin(hot=True, **_chain(case, size))


def claims_of(found: Found) -> list[Claim]:
    data, case = found.table, found.case
    reach = found.moments[found.dpvi.mean(axis=1) >= found.level - 0.01]
    return [
        Claim(
            said=f"{case.name}: DPVI outperforms DP-SGLD.",
            reported="DPVI above at every epsilon drawn",
            **_against_langevin(found),
        ),
        Claim(
            said=f"{case.name}: DPVI reaches the non-private level at relatively small epsilon.",
            reported=f"non-private {STORED_LEVELS[case.name]:.4f} in the stored results",
            found=(
                f"non-private {found.level:.4f}; DPVI is within 0.01 from epsilon "
                f"{min(reach, default=np.inf):.2g} by moments on"
            ),
            verdict="agrees" if min(reach, default=np.inf) <= 1 else "does not agree",
        ),
        _against_stored(found),
        _met(found),
        Claim(
            said=f"{case.name}: the table's size, and about how many rows are in a batch.",
            reported={
                "Abalone": "4177 by 8; 167 rows",
                "Adult": "48842 by 14; 195 rows",
            }[case.name],
            found=f"{len(data.y)} by {data.x.shape[1]}; {case.rate * data.cut:.0f} rows",
            verdict="agrees" if round(case.rate * data.cut) == case.batch else "does not agree",
        ),
        _accountants(found),
        _exact(found),
    ]


def _against_langevin(found: Found) -> dict[str, str]:
    wins, losses, texts = [], [], []
    for label, spent in (("moments", found.moments), ("advanced", found.advanced)):
        inside = found.asked >= spent.min()
        asked = found.asked[inside]
        a, da = mean_and_error(found.dpvi_at(asked, spent))
        b, db = mean_and_error(found.by_budget["DP-SGLD, published noise"][inside])
        wins += (a - b > 2 * np.hypot(da, db)).tolist()
        losses += (b - a > 2 * np.hypot(da, db)).tolist()
        pairs = "; ".join(
            f"{e:g}: {x:.3f} and {y:.3f}" for e, x, y in zip(asked, a, b, strict=True)
        )
        texts.append(f"by {label} at epsilon {pairs}")
    partly = "agrees in part" if not any(losses) else "does not agree"
    return {
        "found": "DPVI and DP-SGLD " + "; ".join(texts),
        "verdict": "agrees" if all(wins) else partly,
        "why": (
            f"Above by two standard errors at {sum(wins)} of {len(wins)}, below at {sum(losses)}. "
            f"{found.dpvi.shape[1]} runs at each level (the thesis: ten); DP-SGLD takes the best of "
            f"four steps for each epsilon.{_tightly(found)}"
        ),
    }


def _tightly(found: Found) -> str:
    """How much of the difference is the accounting of DP-SGLD."""
    if "Tacit's DP-SGLD, same steps" not in found.by_budget:
        return ""
    at = int(np.argmin(np.abs(found.asked - 1)))
    theirs, ours = (
        found.by_budget[label][at].mean()
        for label in ("DP-SGLD, published noise", "Tacit's DP-SGLD, same steps")
    )
    return (
        f" Much of the gap is its accounting: with tight noise the same chain goes from {theirs:.3f} to "
        f"{ours:.3f} at epsilon {found.asked[at]:g}."
    )


def _stored(found: Found) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sigmas, accuracies and errors in the stored results, of those sigmas that were run."""
    if found.case.name == "Abalone":
        rows = zip(ABALONE_SIGMAS, ABALONE_STORED, ABALONE_ERRORS, strict=True)
        return tuple(np.array([r for r in rows if r[0] in _ran(found)]).T)
    sigmas, stored = np.array(ADULT_STORED).T
    return sigmas, stored, np.full(len(sigmas), 0.0015)


def _ran(found: Found) -> list[float]:
    step = len(found.case.sigmas) // len(found.moments)
    return list(found.case.sigmas[::step])


def _against_stored(found: Found) -> Claim:
    sigmas, stored, errors = _stored(found)
    order = np.argsort(_ran(found))
    ran = np.array(_ran(found))[order]
    ours = np.stack([np.interp(np.log(sigmas), np.log(ran), run[order]) for run in found.dpvi.T], 1)
    mean, error = mean_and_error(ours)
    gap = mean - stored
    near = np.abs(gap) <= 2 * np.hypot(error, errors)
    if near.all():
        verdict = "agrees"
    else:
        verdict = "agrees in part" if np.abs(gap).max() < 0.02 else "does not agree"
    return Claim(
        said=f"{found.case.name}: mean accuracy at each noise level (stored results).",
        reported=", ".join(f"{s:.4f}" for s in stored),
        found=", ".join(f"{m:.4f}" for m in mean)
        + f" at sigma {', '.join(f'{s:.3g}' for s in sigmas)}",
        verdict=verdict,
        why=(
            f"Within two standard errors at {near.sum()} of {len(near)}; gaps from {gap.min():+.4f} to "
            f"{gap.max():+.4f}. How the authors coded sex and other categories is not known."
            + (" Their c was 50 for these." if found.case.name == "Adult" else "")
        ),
    )


def _met(found: Found) -> Claim:
    """What Tacit's default makes of the epsilon that each stored accuracy was reported with."""
    sigmas, stored, errors = _stored(found)
    spent = cost(MOMENTS, sigmas, found.case.rate, found.case.steps)
    asked = np.log(found.asked)
    texts, met = [], {}
    for label in ("Tacit's default", "Tacit's default, with an intercept"):
        if label not in found.by_budget:
            continue
        runs = found.by_budget[label]
        inside = spent >= found.asked.min()
        ours = np.stack([np.interp(np.log(spent[inside]), asked, run) for run in runs.T], 1)
        mean, error = mean_and_error(ours)
        met[label] = mean >= stored[inside] - 2 * np.hypot(error, errors[inside])
        gap = mean - stored[inside]
        texts.append(
            f"{label}: met at {met[label].sum()} of {len(gap)}, gaps {gap.min():+.4f} to {gap.max():+.4f}"
        )
    whole = [each.all() for each in met.values()]
    return Claim(
        said=f"{found.case.name}: Tacit does no worse at the epsilon of each stored accuracy.",
        reported="by the moments accountant: " + ", ".join(f"{e:.2g}" for e in spent),
        found="; ".join(texts),
        verdict="agrees" if all(whole) else "agrees in part" if any(whole) else "does not agree",
        why=(
            "Not a claim of the thesis; met is no more than two standard errors below. The authors' models have "
            "no intercept. Of this one split, the non-private optimum itself has "
            f"{found.level:.4f} (stored: {STORED_LEVELS[found.case.name]:.4f})."
        ),
    )


def _accountants(found: Found) -> Claim:
    ratio = found.advanced / found.moments
    tight = cost(PLD(), _ran(found), found.case.rate, found.case.steps)
    middle = len(tight) // 2
    return Claim(
        said=f"{found.case.name}: the moments accountant is much tighter than advanced composition.",
        reported="two curves for the same runs",
        found=(
            f"advanced composition is {ratio.min():.1f} to {ratio.max():.0f} times the moments "
            f"accountant; at sigma {_ran(found)[middle]:.3g} they are {found.advanced[middle]:.3g} and "
            f"{found.moments[middle]:.3g}, and tightly {tight[middle]:.3g}"
        ),
        verdict="agrees" if (ratio > 1).all() else "does not agree",
        why="Below a sigma of about 4 the Gaussian theorem that advanced composition starts from does not hold.",
    )


def _exact(found: Found) -> Claim:
    method = published_langevin(found.case, found.case.step_sizes[0])
    release = method.calibrated(found.table.model, Budget(1.0, 1e-3, "replace"))
    spent = PLD().epsilon(release.event, 1e-3, "replace")
    return Claim(
        said=f"{found.case.name}: DP-SGLD's composition gives exact bounds on the privacy spent.",
        reported="epsilon 1, delta 0.001",
        found=f"the same noise costs {spent:.2g}",
        verdict="agrees" if spent > 0.9 else "paper is wrong",
        why="The formula is valid and loose: privacy-loss accounting of the same run is far below it.",
    )


def figure_of(setting: Setting, founds: list[Found]) -> None:
    _, figure, axes = panels(setting)
    for axis, found in zip(axes, founds, strict=True):
        draw(axis, found.moments, found.dpvi, "DPVI-MA (moments)", color="C0")
        draw(axis, found.advanced, found.dpvi, "DPVI (advanced composition)", color="C1")
        colours = iter(("C3", "C2", "C4", "C8"))
        for label, runs in found.by_budget.items():
            dashed = {"linestyle": ":" if label.startswith("Tacit") else "-"}
            draw(axis, found.asked, runs, label, color=next(colours), **dashed)
        sigmas, stored, errors = _stored(found)
        spent = cost(MOMENTS, sigmas, found.case.rate, found.case.steps)
        axis.errorbar(
            spent,
            stored,
            yerr=errors,
            fmt="kx",
            markersize=5,
            label="DPVI-MA, as stored by the authors",
        )
        axis.axhline(
            STORED_LEVELS[found.case.name], color="gray", linestyle="-.", linewidth=1,
            label="without privacy, as stored",
        )  # fmt: skip
        case = found.case
        finish(axis, f"{case.name}: q={case.rate:g}, T={case.steps}, c={case.clip:g}", found.level)
        axis.set_xlim(0.02, 200)
    figure.tight_layout()
    save_figure(setting, EXPERIMENT.name, figure)


def run(setting: Setting) -> list[Claim]:
    founds = [compared(setting, case) for case in CASES[: setting.pick(quick=1, usual=2)]]
    numbers = []
    for found in founds:
        name = found.case.name
        numbers += lines(name, "DPVI-MA", _ran(found), found.moments, found.dpvi)
        numbers += lines(name, "DPVI-ACT", _ran(found), found.advanced, found.dpvi)
        for label, runs in found.by_budget.items():
            numbers += lines(name, label, [""] * len(found.asked), found.asked, runs)
    save_table(setting, EXPERIMENT.name, HEADER, numbers)
    figure_of(setting, founds)
    return [claim for found in founds for claim in claims_of(found)]


EXPERIMENT = Experiment(
    name="thesis_comparison",
    source="003",
    figure="Fig. 5.1",
    title="DPVI, DP-SGLD and no privacy on Abalone and Adult",
    run=run,
)
