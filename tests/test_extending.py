"""The skeletons of docs/development/extending run as they are printed, and do what their guides say."""

import itertools
import re
import runpy
from pathlib import Path

import numpy as np
import pytest

import tacit
from tacit.accounting import PLD
from tacit.inference.method import Method
from tacit.inference.result import Intervals
from tacit.privacy.noise import Randomness

ROOT = Path(__file__).parent.parent
GUIDES = ROOT / "docs" / "development" / "extending"


def run_skeleton(name, folder):
    (block,) = re.findall(r"```python\n(.*?)```", (GUIDES / name).read_text(), flags=re.DOTALL)
    script = folder / "skeleton.py"
    script.write_text(block)
    return runpy.run_path(str(script))


def test_index_lists_every_guide():
    index = (GUIDES / "index.md").read_text()
    guides = {path.name for path in GUIDES.glob("*.md")} - {"index.md"}
    assert set(re.findall(r"\(([a-z_]+\.md)\)", index)) == guides


def test_files_that_guides_name_exist():
    for guide in GUIDES.glob("*.md"):
        for name in re.findall(r"`((?:\w+/)+\w+\.(?:py|md))`", guide.read_text()):
            assert (ROOT / name).exists() or (ROOT / "src" / "tacit" / name).exists(), name


def test_method(tmp_path):
    found = run_skeleton("method.md", tmp_path)
    post, method = found["post"], found["NoisyAscent"]()
    assert isinstance(method, Method)
    assert method.steps(found["model"].unit_model, None, None) is not None
    assert float(post.mean()["mean"]) == pytest.approx(1.0, abs=0.2)
    assert post.intervals == Intervals.LEFT_OUT
    assert PLD().epsilon(post.privacy.event, 1e-6) == pytest.approx(1, rel=0.01)
    assert post.privacy.is_private


def test_method_is_planned_and_compared_without_noise(tmp_path):
    found = run_skeleton("method.md", tmp_path)
    schema = tacit.Schema({"y": tacit.Number(-5, 5)})
    plan = tacit.plan(
        found["model"], schema, budget=tacit.Budget(1, 1e-6), method=found["NoisyAscent"]()
    )
    assert "Noisy gradient ascent" in plan.details()
    exact = tacit.fit_without_privacy(
        found["model"], found["rows"], method=found["NoisyAscent"](num_steps=400)
    )
    # Far rows are clipped at 1, so this is not the mean but where clipped deviations balance.
    assert float(exact.mean()["mean"]) == pytest.approx(1.0, abs=0.1)
    assert not exact.privacy.is_private


def elections(num_options, most):
    for size in range(most + 1):
        yield from itertools.combinations_with_replacement(range(num_options), size)


def neighbours(votes, num_options, adjacency):
    if adjacency == "add-remove":
        return [(*votes, more) for more in range(num_options)]
    return [
        (*votes[:i], other, *votes[i + 1 :])
        for i in range(len(votes))
        for other in range(num_options)
    ]


@pytest.mark.parametrize("adjacency", ["add-remove", "replace"])
def test_mechanism_is_dominated_by_its_pair(adjacency, tmp_path):
    found = run_skeleton("mechanism.md", tmp_path)
    strength, options = 0.7, 3
    pair = found["vote_pair"](found["Vote"](strength=strength), adjacency)
    epsilons = np.linspace(-1.5, 1.5, 61)
    above, below = pair.upper(epsilons)
    claimed = above - np.exp(epsilons) * below
    worst = np.full_like(epsilons, -np.inf)
    for votes in elections(options, 4):
        one = found["probabilities"](list(votes), options, strength)
        for other in neighbours(votes, options, adjacency):
            two = found["probabilities"](list(other), options, strength)
            for p, q in ((one, two), (two, one)):
                exact = np.maximum(p - np.exp(epsilons)[:, None] * q, 0).sum(axis=1)
                worst = np.maximum(worst, exact)
    assert (worst <= claimed + 1e-12).all()
    assert worst[30] > 0.7 * claimed[30]  # at epsilon 0: the claim is not idle


def test_mechanism_draws_what_its_proof_says(tmp_path):
    found = run_skeleton("mechanism.md", tmp_path)
    votes, source = [0, 2, 2, 1, 2], Randomness(0)
    drawn = [found["private_vote"](votes, 3, 0.5, source) for _ in range(4000)]
    shares = np.bincount(drawn, minlength=3) / len(drawn)
    assert shares == pytest.approx(found["probabilities"](votes, 3, 0.5), abs=0.04)


def test_front_end(tmp_path):
    found = run_skeleton("front_end.md", tmp_path)
    post = found["post"]
    assert post.intervals == Intervals.INCLUDED  # the default method, as the model simulates
    low, high = post.interval(0.999)["coefficients"]
    assert (low < [1, -1]).all()
    assert (high > [1, -1]).all()
    with pytest.raises(tacit.TacitError, match="must be a Number"):
        found["logistic"]("ill", ["ill"], found["schema"])
