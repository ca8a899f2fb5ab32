"""The correction of the Barker test: what ships, how far it is from right, and its draws."""

import json
import math
import runpy
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
from scipy import integrate, stats

from tacit.errors import InvalidArgument
from tacit.inference.barker import LOGISTIC_VARIANCE, Correction, logistic_correction
from tacit.inference.method import per_step_normals
from tacit.papers.barker import mixture_correction

ROOT = Path(__file__).parent.parent.parent
FILES = {
    "table": files("tacit.inference").joinpath("barker_tables.json"),
    "mixture": files("tacit.papers").joinpath("barker_mixture.json"),
}
SHIPPED = {kind: json.loads(file.read_text()) for kind, file in FILES.items()}
MADE = {"table": logistic_correction, "mixture": mixture_correction}
EVERY = [(float(variance), kind) for kind in SHIPPED for variance in SHIPPED[kind]]
# What a mixture or a table of this kind can be held to; none is exact.
WORST = {(0.5, "table"): 1e-7, (1.0, "table"): 1e-7, (1.5, "table"): 3e-5, (2.0, "table"): 6e-4}
WORST |= {(2.5, "table"): 4e-3, (2.0, "mixture"): 2.6e-3}


def parts(found):
    return zip(found.weights.tolist(), found.centres.tolist(), found.spreads.tolist(), strict=True)


def difference(found, at):
    """Of the two distribution functions, by the standard library."""
    total = math.fsum(
        weight * math.erfc((centre - at) / math.sqrt(2 * (found.noise_variance + spread**2))) / 2
        for weight, centre, spread in parts(found)
    )
    return abs(total - 1 / (1 + math.exp(-at)))


@pytest.mark.parametrize(("variance", "kind"), EVERY)
def test_a_symmetric_distribution_of_the_right_variance(variance, kind):
    found = MADE[kind](variance)
    assert found.weights.min() >= 0
    assert found.weights.sum() == pytest.approx(1, abs=1e-12)
    assert np.allclose(found.centres, -found.centres[::-1])
    assert found.weights @ found.centres == pytest.approx(0, abs=1e-12)
    by_hand = sum(weight * (centre**2 + spread**2) for weight, centre, spread in parts(found))
    near = {"table": 1e-6, "mixture": 0.02}[kind]
    assert by_hand + variance == pytest.approx(LOGISTIC_VARIANCE, abs=near)
    assert found.variance == pytest.approx(by_hand)


@pytest.mark.parametrize(
    ("variance", "kind"),
    [pytest.param(v, kind, marks=[pytest.mark.slow] * (kind == "mixture")) for v, kind in EVERY],
)
def test_the_error_is_what_a_finer_look_finds(variance, kind):
    """On points of another grid, on both sides, by another formula."""
    found = MADE[kind](variance)
    points = np.arange(-35, 35, 0.0037)
    worst = max(difference(found, at) for at in points)
    assert found.error == pytest.approx(worst, rel=0.02, abs=1e-10)
    assert worst < WORST[variance, kind]
    # And by integrating: normal noise behind each point of the correction is not assumed.
    if kind == "mixture":
        at = points[np.argmax([difference(found, at) for at in points])]
        draws = stats.norm(scale=math.sqrt(variance))

        def beyond(noise):
            chances = stats.norm.cdf((at - noise - found.centres) / found.spreads)
            return draws.pdf(noise) * (found.weights @ chances)

        total = integrate.quad(beyond, -12, 12, limit=400)[0]
        assert abs(total - stats.logistic.cdf(at)) == pytest.approx(worst, rel=0.02)


def test_the_table_is_better_than_the_mixture_and_than_no_correction():
    nothing = Correction.mirrored(2.0, np.ones(1), np.zeros(1), np.zeros(1))
    normal = Correction.mirrored(2.0, np.ones(1), np.zeros(1), np.array([1.2899**0.5]))
    table, mixture = logistic_correction(2.0), mixture_correction(2.0)
    assert 4 * table.error < mixture.error < normal.error / 5 < nothing.error / 5


@pytest.mark.parametrize(
    ("variance", "kind"),
    [
        (1.0, "table"),
        (2.0, "table"),
        pytest.param(2.0, "mixture", marks=pytest.mark.slow),
    ],
)
def test_normal_noise_and_draws_are_logistic(variance, kind):
    found, generator, count = (
        MADE[kind](variance),
        np.random.default_rng(1),
        1_000_000,
    )
    noise = np.sqrt(variance) * generator.standard_normal(count)
    drawn = found.draw(generator, count)
    assert drawn.dtype == np.float64
    chance = 2.3 / math.sqrt(count)  # exceeded once in 20,000 times

    def apart(sample):
        return stats.kstest(sample, "logistic").statistic

    assert apart(noise + drawn) < found.error + chance
    # The same look tells a correction that is wrong: a normal one of the same variance.
    wrong = np.sqrt(LOGISTIC_VARIANCE - variance) * generator.standard_normal(count)
    assert apart(noise + wrong) > logistic_correction(2.0).error + 4 * chance
    assert drawn.var() == pytest.approx(found.variance, rel=0.02)


def test_draws_depend_on_the_number_of_a_step_alone():
    found = mixture_correction(2.0)
    whole = found.draws([3, 4], 0, 700)
    pieces = [found.draws([3, 4], first, steps) for first, steps in ((0, 1), (1, 399), (400, 300))]
    assert np.array_equal(np.concatenate(pieces), whole)
    assert len(np.unique(whole)) == 700
    assert not np.array_equal(found.draws([3, 5], 0, 700), whole)


def test_draws_are_independent_of_a_run_s_normals():
    """Under one seed: a correction must not follow the proposal it is used with."""
    found, steps = mixture_correction(2.0), 20_000
    drawn, others = found.draws([3, 4], 0, steps), per_step_normals([3, 4], 0, steps, (3,))
    limit = 4.5 / math.sqrt(steps)
    for column in others.T:
        assert abs(stats.spearmanr(drawn, column).statistic) < limit
        assert abs(stats.spearmanr(abs(drawn), abs(column)).statistic) < limit


@pytest.mark.parametrize(
    ("variance", "worst"),
    [pytest.param(0.05, 1e-7, marks=pytest.mark.slow), (1.8, 3e-4), (3.2, 0.03)],
)
def test_other_variances_are_made_when_asked(variance, worst):
    found = logistic_correction(variance)
    assert found is logistic_correction(variance)  # once
    assert found.error < worst
    assert found.variance + variance == pytest.approx(LOGISTIC_VARIANCE, abs=1e-6)
    assert found.error == pytest.approx(
        max(difference(found, at) for at in np.arange(-30, 30, 0.0173)), rel=0.05, abs=1e-9
    )


def test_what_ships_is_what_the_script_makes():
    script = runpy.run_path(str(ROOT / "scripts" / "make_correction.py"))
    assert list(SHIPPED["table"]) == [f"{variance:g}" for variance in script["TABLES"]]
    made, shipped = script["table"](2.0), SHIPPED["table"]["2"]
    arrays = {name: np.array(values) for name, values in made.items()}
    again = Correction.mirrored(2.0, **arrays, spreads=np.zeros_like(arrays["centres"]))
    points = np.arange(-20, 20, 0.01)
    ours = logistic_correction(2.0).total_distribution(points)
    assert again.total_distribution(points) == pytest.approx(ours, abs=1e-6)
    assert made["centres"] == pytest.approx(shipped["centres"])
    assert made["weights"] == pytest.approx(shipped["weights"], abs=1e-6)
    for kind, file in FILES.items():
        assert script["written"](SHIPPED[kind]) == file.read_text()
    assert script["TABLE_FILE"].samefile(FILES["table"])
    assert script["MIXTURE_FILE"].samefile(FILES["mixture"])


@pytest.mark.slow
def test_the_mixture_is_what_the_script_makes():
    """Another machine's arithmetic may send Adam elsewhere, to a fit as good."""
    script = runpy.run_path(str(ROOT / "scripts" / "make_correction.py"))
    arrays = {name: np.array(values) for name, values in script["mixture"](2.0).items()}
    shipped, again = mixture_correction(2.0), Correction.mirrored(2.0, **arrays)
    assert again.error == pytest.approx(shipped.error, rel=0.1)
    assert again.variance == pytest.approx(shipped.variance, abs=0.01)


@pytest.mark.parametrize(
    ("variance", "kind", "found"),
    [
        (math.pi**2 / 3, "table", "below pi"),
        (0.01, "table", "at least 0.05"),
        (-1, "table", "positive"),
        (1.7, "mixture", "noise_variance of 2 only"),
    ],
)
def test_refusals(variance, kind, found):
    with pytest.raises(InvalidArgument, match=found):
        MADE[kind](variance)
