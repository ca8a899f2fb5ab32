"""An audit of secret words (PROOFS.md, Theorem 1S): what one unit more does to what leaves.

Units count for or against by their words. The canary is the first unit, so that without it all
others have another place. An observer must not tell better than was charged; it does where words
are known and dealt by place.
"""

import jax.numpy as jnp
import numpy as np
import pytest
from audit import claimed_tradeoff, contradictions

from tacit.accounting import events
from tacit.privacy.gate import Gate, run
from tacit.privacy.mechanisms import NoisySums
from tacit.privacy.noise import Randomness
from tacit.privacy.rows import Rows

TRANSCRIPTS, STEPS, OTHERS, SCALE = 2500, 2, 8, 1.0


def transcripts(seed, *, canary, rate=1.0):
    """Many short transcripts, as one long run without memory."""
    signs = np.where(np.arange(OTHERS) % 2, -1.0, 1.0)
    values = np.append([1.0], signs) if canary else signs

    def step(state, _, release):
        def per_unit(_, rows, _present, secret):
            return jnp.where(secret[0] % 2 == 1, rows["x"], -rows["x"])

        return state, release.noisy_sum(per_unit, ())

    plan = NoisySums(
        sampling_rate=rate,
        num_steps=STEPS * TRANSCRIPTS,
        clip=1.0,
        noise_multiplier=SCALE,
        dimension=1,
        secrets=True,
    )
    gate = Gate(Rows({"x": values}), plan, Randomness(seed))
    _, out = run(gate, step, jnp.zeros(1), lambda _, n: np.zeros(n), block=5000)
    return np.asarray(out, np.float64).reshape(TRANSCRIPTS, STEPS)


def found(rate):
    """Scores of a transcript that tell the canary's presence better than was charged."""
    inside, outside = (transcripts(5 + c, canary=c, rate=rate) for c in (True, False))
    scores = {
        "sum": lambda x: x.sum(axis=1),
        "against": lambda x: -x.sum(axis=1),
        "size": lambda x: np.abs(x).sum(axis=1),
        "smallness": lambda x: -np.abs(x).sum(axis=1),
        "product": lambda x: x.prod(axis=1),
    }
    tradeoff = claimed_tradeoff(events.sampled_gaussian(SCALE, rate, STEPS))
    return contradictions(
        {name: score(inside) for name, score in scores.items()},
        {name: score(outside) for name, score in scores.items()},
        tradeoff,
    )


@pytest.mark.parametrize("rate", [1.0, 0.5])
def test_one_unit_more_shows_no_more_than_was_charged(rate):
    assert found(rate) == []


def test_known_words_by_place_would_show_it(monkeypatch):
    """The same observer, where words follow from places: all others change with the canary."""

    def by_place(_plan, _bits, steps, width):
        return np.broadcast_to(np.arange(width, dtype=np.uint32)[:, None], (steps, width, 2))

    monkeypatch.setattr(NoisySums, "secret", by_place)
    with_canary, without = (transcripts(5, canary=each) for each in (True, False))
    assert np.abs(with_canary.mean() - without.mean()) > 2 * OTHERS - 2
    assert "sum" in found(1.0)


def test_one_word_for_all_would_show_no_more_even_if_known(monkeypatch):
    """It is an argument like others: wrong for inference, and no matter to privacy."""

    def shared(_plan, bits, steps, width):
        own = np.arange(steps, dtype=np.uint32)
        return np.broadcast_to(own[:, None, None], (steps, width, 2))

    monkeypatch.setattr(NoisySums, "secret", shared)
    assert found(1.0) == []
