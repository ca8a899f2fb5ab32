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


def with_opendp(asked, share, edges, *, gaussian):
    """A function of a table that answers within epsilon, or within rho."""
    measure = dp.zero_concentrated_divergence() if gaussian else dp.max_divergence()
    numbers = dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.symmetric_distance()
    then_noise = dp.m.then_gaussian if gaussian else dp.m.then_laplace

    def calibrated(make, part):
        return dp.binary_search_chain(make, d_in=1, d_out=part, bounds=(1e-6, 1e9))

    if (
        asked == "mean"
    ):  # half for the sum of what is above and below the middle, half for the number
        middle = sum(BOUNDS) / 2
        bounds = BOUNDS[0] - middle, BOUNDS[1] - middle
        sums = dp.t.make_clamp(*numbers, bounds) >> dp.t.then_sum()
        counts = dp.t.make_count(*numbers)
        total = calibrated(lambda scale: sums >> then_noise(scale), share / 2)
        number = calibrated(lambda scale: counts >> then_noise(scale), share / 2)

        def mean(ward, ill, age):  # noqa: ARG001
            found = middle + total((age - middle).tolist()) / max(number(age.tolist()), 1)
            return [np.clip(found, *BOUNDS)]

        return mean
    if asked == "quartiles":

        def quantile(each):
            return calibrated(
                lambda scale: dp.m.make_private_quantile(
                    *numbers, measure, CANDIDATES, each, scale
                ),
                share / len(QUARTILES),
            )

        three = [quantile(each) for each in QUARTILES]
        return lambda ward, ill, age: [each(age.tolist()) for each in three]  # noqa: ARG005
    cell, size = {
        "ward": (lambda ward, ill, age: ward, WARDS),  # noqa: ARG005
        "ill": (lambda ward, ill, age: ill, 2),  # noqa: ARG005
        "age": (lambda ward, ill, age: np.searchsorted(edges, age, side="right"), len(edges) + 1),  # noqa: ARG005
        "ward by ill": (lambda ward, ill, age: ward * 2 + ill, 2 * WARDS),  # noqa: ARG005
    }[asked]
    cells = dp.vector_domain(dp.atom_domain(T=int)), dp.symmetric_distance()
    norm = "L2Distance<int>" if gaussian else "L1Distance<int>"
    counts = dp.t.make_count_by_categories(*cells, [*range(size)], MO=norm)
    noisy = calibrated(lambda scale: counts >> then_noise(scale), share)
    return lambda *table: noisy(cell(*table).tolist())[:size]


def rho(epsilon):
    """The rho that is as much as epsilon and delta."""

    def converted(scale):
        space = dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float)
        noise = dp.m.make_gaussian(*space, scale)
        return dp.c.make_fix_delta(dp.c.make_zCDP_to_approxDP(noise), DELTA)

    scale = dp.binary_search(lambda s: converted(s).check(1.0, (epsilon, DELTA)), bounds=(0.5, 1e5))
    return 0.5 / scale**2


def main():
    warnings.simplefilter("ignore")
    dp.enable_features("contrib", "idealized-numerics")
    given, found = np.load(sys.argv[1]), {}
    tables = [*zip(*(given[name] for name in ("ward", "ill", "age")), strict=True)]
    for epsilon in given["epsilons"].tolist():
        for group in (EVERYTHING, ("ward by ill",), ("age",), ("mean",), ("quartiles",)):
            kind = "together" if len(group) > 1 else "alone"
            part = len(group)
            for asked in group:
                tools = {
                    "diffprivlib": lambda *table, asked=asked, own=epsilon / part: with_diffprivlib(
                        asked, table, own, given["edges"]
                    ),
                    "OpenDP, Laplace": with_opendp(
                        asked, epsilon / part, given["edges"], gaussian=False
                    ),
                    "OpenDP, Gaussian": with_opendp(
                        asked, rho(epsilon) / part, given["edges"], gaussian=True
                    ),
                }
                for tool, answer in tools.items():
                    rows = [answer(*table) for table in tables]
                    found[f"{tool}|{kind}|{asked}|{epsilon:g}"] = np.array(rows, float)
    np.savez(sys.argv[2], **found)


if __name__ == "__main__":
    main()
