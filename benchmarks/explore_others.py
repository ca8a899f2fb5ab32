"""Counts, means and quartiles by diffprivlib and OpenDP, for `explore.py`; runs in an environment that has both, and not Tacit.

    python explore_others.py tables.npz found.npz

The first file has the tables and settings, the second gets an array of numbers for each tool, question and epsilon. Budgets are split equally over what is asked.
OpenDP is run twice: with Laplace noise, whose epsilons add up, and with Gaussian noise, composed by zero-concentrated privacy.
"""

import sys
import warnings

import diffprivlib.tools as ibm
import numpy as np
import opendp.prelude as dp

QUARTILES = (0.25, 0.5, 0.75)
WARDS, BOUNDS, DELTA = 6, (0.0, 100.0), 1e-6
CANDIDATES = [float(each) for each in np.linspace(*BOUNDS, 201)]
# What is asked together; each alone is compared, too.
EVERYTHING = ("ward", "ill", "ward by ill", "age", "mean", "quartiles")


def with_diffprivlib(asked, table, epsilon, edges):
    """One answer within epsilon."""
    ward, ill, age = table
    if asked == "mean":
        return [ibm.mean(age, epsilon=epsilon, bounds=BOUNDS)]
    if asked == "quartiles":
        return ibm.quantile(age, list(QUARTILES), epsilon=epsilon, bounds=BOUNDS)
    values, bins = {
        "ward": (ward, np.arange(WARDS + 1) - 0.5),
        "ill": (ill, np.arange(3) - 0.5),
        "age": (age, np.array([BOUNDS[0], *edges, BOUNDS[1]])),
        "ward by ill": (ward * 2 + ill, np.arange(2 * WARDS + 1) - 0.5),
    }[asked]
    return ibm.histogram(values, epsilon=epsilon, bins=bins)[0]


def with_opendp(asked, table, share, edges, *, gaussian):
    """One answer within epsilon, or within rho."""
    ward, ill, age = table
    measure = dp.zero_concentrated_divergence() if gaussian else dp.max_divergence()
    numbers = dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.symmetric_distance()
    then_noise = dp.m.then_gaussian if gaussian else dp.m.then_laplace

    def calibrated(make):
        return dp.binary_search_chain(make, d_in=1, d_out=share, bounds=(1e-6, 1e9))

    if (
        asked == "mean"
    ):  # half for the sum of what is above and below the middle, half for the number
        share /= 2
        middle = sum(BOUNDS) / 2
        bounds = BOUNDS[0] - middle, BOUNDS[1] - middle
        total = dp.t.make_clamp(*numbers, bounds) >> dp.t.then_sum()
        count = dp.t.make_count(*numbers)
        above = calibrated(lambda scale: total >> then_noise(scale))((age - middle).tolist())
        below = calibrated(lambda scale: count >> then_noise(scale))(age.tolist())
        return [np.clip(middle + above / max(below, 1), *BOUNDS)]
    if asked == "quartiles":
        share /= len(QUARTILES)
        return [
            calibrated(
                lambda scale, each=each: dp.m.make_private_quantile(
                    *numbers, measure, CANDIDATES, each, scale
                )
            )(age.tolist())
            for each in QUARTILES
        ]
    values, size = {
        "ward": (ward, WARDS),
        "ill": (ill, 2),
        "age": (np.searchsorted(edges, age, side="right"), len(edges) + 1),
        "ward by ill": (ward * 2 + ill, 2 * WARDS),
    }[asked]
    cells = dp.vector_domain(dp.atom_domain(T=int)), dp.symmetric_distance()
    norm = "L2Distance<int>" if gaussian else "L1Distance<int>"
    count = dp.t.make_count_by_categories(*cells, [*range(size)], MO=norm)
    return calibrated(lambda scale: count >> then_noise(scale))(values.tolist())[:size]


def rho(epsilon):
    """The rho that is as much as epsilon and delta."""

    def converted(scale):
        space = dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float)
        noise = dp.m.make_gaussian(*space, scale)
        return dp.c.make_fix_delta(dp.c.make_zCDP_to_approxDP(noise), DELTA)

    scale = dp.binary_search(lambda s: converted(s).check(1.0, (epsilon, DELTA)), bounds=(1e-3, 1e6))  # fmt: skip
    return 0.5 / scale**2


def main():
    warnings.simplefilter("ignore")
    dp.enable_features("contrib", "idealized-numerics")
    given, found = np.load(sys.argv[1]), {}
    for epsilon in given["epsilons"].tolist():
        for group in (EVERYTHING, ("ward by ill",), ("age",), ("mean",), ("quartiles",)):
            kind = "together" if len(group) > 1 else "alone"
            part = len(group)
            for asked in group:
                rows = {"diffprivlib": [], "OpenDP, Laplace": [], "OpenDP, Gaussian": []}
                for place in range(len(given["ward"])):
                    table = [given[name][place] for name in ("ward", "ill", "age")]
                    rows["diffprivlib"].append(
                        with_diffprivlib(asked, table, epsilon / part, given["edges"])
                    )
                    for name, share in (("Laplace", epsilon), ("Gaussian", rho(epsilon))):
                        own = with_opendp(
                            asked, table, share / part, given["edges"], gaussian=name == "Gaussian"
                        )
                        rows[f"OpenDP, {name}"].append(own)
                for tool, numbers in rows.items():
                    found[f"{tool}|{kind}|{asked}|{epsilon:g}"] = np.array(numbers, float)
    np.savez(sys.argv[2], **found)


if __name__ == "__main__":
    main()
