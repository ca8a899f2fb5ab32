"""Effective sizes and R-hat beside ArviZ, chains that take turns, and what is said of bad mixing."""

import arviz
import numpy as np
import pytest

from tacit.inference.chains import chain_indices, group_by_chain, num_chains
from tacit.inference.diagnostics import effective_sample_sizes, mixing_warnings, r_hats


def correlated(chains, steps, keeps, seed=0):
    """Chains [chains, steps, 2], the second number with a heavy tail."""
    rng = np.random.default_rng(seed)
    found = np.zeros((chains, steps, 2))
    for t in range(1, steps):
        found[:, t] = keeps * found[:, t - 1] + rng.standard_normal((chains, 2))
    found[..., 1] = np.exp(found[..., 1])
    return found


@pytest.mark.parametrize(
    ("chains", "steps", "keeps"), [(4, 500, 0.9), (4, 251, 0.99), (2, 1000, 0.0)]
)
def test_sizes_and_ratios_are_those_of_arviz(chains, steps, keeps):
    made = correlated(chains, steps, keeps)
    draws = {"a": made.reshape(-1, 2)}
    sizes, ratios = effective_sample_sizes(draws, chains)["a"], r_hats(draws, chains)["a"]
    for i in range(2):
        assert sizes[i] == pytest.approx(float(arviz.ess(made[..., i])), rel=0.05)
        assert ratios[i] == pytest.approx(float(arviz.rhat(made[..., i])), abs=1e-6)


def test_chains_that_disagree_are_said_to_mix_badly():
    made = correlated(4, 400, 0.0)
    assert mixing_warnings({"a": made.reshape(-1, 2)}, 4) == ()
    made[0] += 0.7  # of a standard deviation: R-hat is between 1.05 and 1.1
    draws = {"a": made.reshape(-1, 2)}
    assert 1.05 < r_hats(draws, 4)["a"].max() < 1.1
    assert "mixes badly" in mixing_warnings(draws, 4)[0]
    stuck = {"a": np.zeros(100)}
    assert "never moved" in mixing_warnings(stuck)[0]


def test_steps_of_chains_that_take_turns_are_told_apart():
    steps = np.arange(43)
    assert num_chains(43) == 4
    assert num_chains(12) == 1
    for i, turn in enumerate(chain_indices(3, 9, 4)):
        assert turn == (3 + i) % 4
    found = group_by_chain(steps, 4, slice(2, None, 3))
    assert found.tolist() == [8, 20, 32, 9, 21, 33, 10, 22, 34, 11, 23, 35]
