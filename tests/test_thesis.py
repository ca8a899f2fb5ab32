"""The thesis' teaching examples run, and show what the thesis says of them."""

import math
import re
import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples" / "thesis"


@pytest.fixture
def shown(capsys):
    """What an example prints, and numbers in it; seeded, so that a test repeats."""

    def run(name):
        runpy.run_path(str(EXAMPLES / f"{name}.py"))["main"](seed=1)
        return capsys.readouterr().out

    return run


def numbers(pattern, text):
    """The groups of every match, as numbers."""
    found = re.findall(pattern, text)
    assert found, pattern
    return [tuple(float(each) for each in ((m,) if isinstance(m, str) else m)) for m in found]


def test_every_example_is_tested():
    names = {path.stem for path in EXAMPLES.glob("*.py")}
    assert names == {"randomised_response", "counting", "least_squares", "linear_regression"}


def test_randomised_response(shown):
    out = shown("randomised_response")
    ((epsilon,),) = numbers(r"epsilon at delta 0: ([\d.]+)\.", out)
    assert epsilon == pytest.approx(math.log(3), abs=1e-4)
    ((no, yes),) = numbers(r"mean no, ([\d.]+) say yes; of those who mean yes, ([\d.]+)\.", out)
    assert (no, yes) == pytest.approx((0.25, 0.75), abs=4.5 * 0.43 / math.sqrt(50_000))
    ((estimate, error),) = numbers(r"mean it: ([\d.]+), standard error ([\d.]+)\.", out)
    assert abs(estimate - 0.3) < 4.5 * error < 0.03


def test_laplace_mechanism(shown):
    out = shown("counting")
    ((epsilon,),) = numbers(r"epsilon at delta 0: ([\d.]+)\.", out)
    assert epsilon == pytest.approx(0.5, abs=1e-3)
    ((error,),) = numbers(r"Mean error of 40,000 releases: ([\d.]+),", out)
    assert error == pytest.approx(2, abs=4.5 * 2 / math.sqrt(40_000))
    # A log ratio of two shares of 6% and more has a standard error below 0.027.
    ((ratio,),) = numbers(r"a factor exp\(([\d.]+)\)", out)
    assert ratio == pytest.approx(0.5, abs=4.5 * 0.027)


def test_averaging_finds_diana_and_is_priced(shown):
    out = shown("counting")
    rows = numbers(
        r"(\d+) at a time: off by ([\d.]+), .* in ([\d.]+)%; epsilon ([\d.]+), ([\d.]+), ([\d.]+)",
        out,
    )
    assert [row[0] for row in rows] == [1, 10, 100, 1000]
    once, often = rows[0], rows[-1]
    assert once[1] > 1.8  # an answer is off by more than Diana could matter
    guess = 100 * (1 - math.exp(-0.25) / 2)  # little better than a coin: 61%
    assert once[2] == pytest.approx(guess, abs=4.5 * 49 / math.sqrt(40_000))
    assert often[1] < 0.12  # a thousand find the count, and her
    assert often[2] == 100
    for times, _, _, basic, advanced, loss in rows:
        assert basic == pytest.approx(0.5 * times)
        assert loss <= min(basic, advanced) * 1.001
    assert often[4] < often[3]  # advanced composition is for many answers
    assert rows[1][4] > rows[1][3]
    assert "allows 4 such answers, and refuses the next" in out


def test_noisy_least_squares(shown):
    out = shown("least_squares")
    rows = numbers(
        r"epsilon +([\d.]+), .{23} noise +([\d.]+) clips, w off by ([\d.]+)",
        out,
    )
    assert len(rows) == 12
    better = 1.0
    for first in range(0, 12, 4):
        basic, advanced, loss, _ = rows[first : first + 4]
        assert basic[1] > 2 * advanced[1] > 2 * loss[1]  # noise
        assert basic[2] > advanced[2]  # and what it does, in twenty runs
        better *= basic[2] / advanced[2]
    assert better > 2**3
    for way in range(4):
        assert rows[way][2] > 3 * rows[way + 8][2]  # a larger epsilon is nearer
    assert rows[9][2] < 0.15
    ((best,),) = numbers(r"without noise: w = ([\d.]+)\.", out)
    assert best == pytest.approx(1, abs=0.1)


def test_linear_regression(shown):
    out = shown("linear_regression")
    assert abs(float(re.search(r"differs by (\S+)\.\n", out)[1])) < 1e-8
    line = r": ([\d.]+) \+- ([\d.]+); variance of y ([\d.]+)"
    exact, ascended, private, again = numbers(line, out)
    assert abs(exact[0] - 0.7) < 4.5 * exact[1]
    assert exact[2] == pytest.approx(0.04, rel=0.2)
    ((mean, std),) = numbers(r"w by integration: ([\d.]+) \+- ([\d.]+)", out)
    assert ascended[0] == pytest.approx(mean, abs=0.01 * std)
    assert ascended[1] == pytest.approx(std, rel=0.01)
    ((precision, expected),) = numbers(r"precision: ([\d.]+) by .*, ([\d.]+) by", out)
    assert precision == pytest.approx(expected, rel=0.02)
    # To first order, noise of 8.45 in the sums of xy and xx moves w by this.
    moved = 8.45 * math.hypot(1, 0.7) / 331
    for each in (private, again):
        assert 0 < abs(each[0] - exact[0]) < 4.5 * moved
