"""Draws that are private by themselves: what one unit can move, and what the draws are."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from tacit.errors import BoundaryError, InvalidArgument
from tacit.privacy.gate import open_gate
from tacit.privacy.noise import Randomness
from tacit.privacy.one_draw import exact as draw_module
from tacit.privacy.one_draw import exact as statistic_module
from tacit.privacy.one_draw import logistic as reject_module
from tacit.privacy.one_draw.chain import ChainDraws
from tacit.privacy.one_draw.claims import BoundedLikelihood, LipschitzLikelihood, LogConcave
from tacit.privacy.one_draw.exact import GridDraws, StatisticDraws
from tacit.privacy.one_draw.logistic import (
    Bits,
    LogisticDraws,
    NormalEnvelope,
    Proposals,
    RadialEnvelope,
)
from tacit.privacy.rows import Rows

RNG = np.random.default_rng(0)
BASE = RNG.normal(1, 2, size=1500).astype(np.float32)


def normal(vector, rows, present, _):
    """Normal with an unknown mean."""
    terms = -0.5 * (rows["x"] - vector[0]) ** 2
    return jnp.where(present, terms, 0.0).sum()


def grid(**changes):
    settings = {
        "claim": BoundedLikelihood(bound=1.5),
        "low": (-4.0,),
        "high": (4.0,),
        "points": (81,),
        "power": 0.4,
    }
    return GridDraws(**(settings | changes))


def prior_of(mechanism):
    return -0.5 * (mechanism.places**2).sum(axis=1)


def drawn(rows, mechanism, seed=0, density=normal):
    return open_gate(rows, mechanism, Randomness(seed)).draw(prior_of(mechanism), density, None)


def log_probabilities(monkeypatch, module, release):
    """The very terms that the draw is made with, as log probabilities."""
    seen = []

    def spy(bits, terms, count):
        seen.append(sum(c * n.astype(np.float64) for c, n in terms))
        return np.zeros(count, np.int64)

    monkeypatch.setattr(module, "exact_categorical", spy)
    release()
    (scores,) = seen
    return scores - np.logaddexp.reduce(scores)


STRANGE = [0.0, 3.7, -1e4, 1e30, np.inf, -np.inf, np.nan]


@pytest.mark.parametrize("extra", STRANGE)
def test_one_row_moves_every_probability_by_its_bound_at_most(monkeypatch, extra):
    mechanism = grid()

    def of(values):
        rows = Rows({"x": np.asarray(values, np.float32)})
        return log_probabilities(monkeypatch, draw_module, lambda: drawn(rows, mechanism))

    without, with_row = of(BASE[:200]), of([*BASE[:200], extra])
    replaced = of([*BASE[:199], extra])
    most = 2 * mechanism.power * mechanism.claim.bound
    assert np.ptp(with_row - without) <= most
    assert np.ptp(replaced - without) <= 2 * most
    if not np.isfinite(extra):
        assert np.allclose(with_row, without, atol=1e-9)


def test_the_bound_is_reached(monkeypatch):
    """Two points, one row that says all it may for one of them: no looser bound is charged."""
    mechanism = grid(points=(2,), claim=BoundedLikelihood(bound=0.5), power=1.0)

    def of(values):
        rows = Rows({"x": np.asarray(values, np.float32)})
        return log_probabilities(monkeypatch, draw_module, lambda: drawn(rows, mechanism))

    many = [9.0] * 50  # so that one point has all but nothing
    change = of([*many, 9.0]) - of(many)
    assert change.max() - change.min() == pytest.approx(1.0, abs=1e-5)
    swapped = of([*many, -9.0]) - of([*many, 9.0])
    assert swapped.max() == pytest.approx(2.0, abs=1e-5)


def test_slack_bound_gives_the_posterior():
    few = BASE[:30]
    mechanism = grid(
        claim=BoundedLikelihood(bound=60.0),
        power=0.5,
        low=(-1.0,),
        high=(3.0,),
        points=(41,),
        num_draws=20_000,
    )
    places = mechanism.places[:, 0]
    scores = -0.5 * places**2 - 0.25 * ((few[:, None] - places) ** 2).sum(axis=0)
    expected = np.exp(scores - scores.max())
    expected /= expected.sum()
    found = drawn(Rows({"x": few}), mechanism)[:, 0]
    counts = np.array([np.isclose(found, place).sum() for place in places])
    likely = expected * len(found) > 10
    assert counts[~likely].sum() < 200
    observed, wanted = counts[likely], expected[likely]
    wanted = wanted / wanted.sum() * observed.sum()
    assert stats.chisquare(observed, wanted).pvalue > 1e-4


def test_a_unit_counts_the_same_whoever_else_is_there():
    mechanism = grid()

    def sums(values):
        rows = Rows({"x": values})
        return draw_module._total_scores(rows, mechanism.claim, normal, mechanism.places, None)[0]

    whole = sums(BASE)  # more than one chunk
    assert np.array_equal(whole, sums(BASE[:377]) + sums(BASE[377:]))
    assert np.array_equal(whole, sums(BASE[::-1]))
    each = sum(sums(BASE[i : i + 1]) for i in range(20))
    assert np.array_equal(sums(BASE[:20]), each)


def test_a_person_counts_for_no_more_than_one_row(monkeypatch):
    mechanism = grid()

    def of(values, people):
        rows = Rows.by_person({"x": np.asarray(values, np.float32)}, people, most_rows=6)
        return log_probabilities(monkeypatch, draw_module, lambda: drawn(rows, mechanism))

    without = of(BASE[:60], np.arange(60) // 2)
    with_her = of([*BASE[:60], *[8.0] * 6], [*(np.arange(60) // 2), *[99] * 6])
    change = with_her - without
    assert change.max() - change.min() <= 2 * mechanism.power * mechanism.claim.bound + 1e-9
    assert change.max() - change.min() > 0.9 * 2 * mechanism.power * mechanism.claim.bound


def test_no_rows_give_the_prior(monkeypatch):
    mechanism = grid()
    empty = Rows({"x": np.zeros(0, np.float32)})
    found = log_probabilities(monkeypatch, draw_module, lambda: drawn(empty, mechanism))
    prior = prior_of(mechanism)
    assert np.allclose(found, prior - np.logaddexp.reduce(prior))


def test_lipschitz_bound_holds_under_replace(monkeypatch):
    claim = LipschitzLikelihood(slope=1.0, radius=0.8)
    mechanism = grid(claim=claim, power=0.7)

    def tilt(vector, rows, present, _):  # far steeper than claimed, for the clamp to cut
        terms = 5 * jnp.tanh(vector[0]) * rows["x"] - 0.1 * vector[0] ** 2
        return jnp.where(present, terms, 0.0).sum()

    def of(values):
        rows = Rows({"x": np.asarray(values, np.float32)})
        release = lambda: drawn(rows, mechanism, density=tilt)  # noqa: E731
        return log_probabilities(monkeypatch, draw_module, release)

    before = of(BASE[:40])
    for other in (-9.0, 9.0, np.nan):
        change = of([*BASE[:39], other]) - before
        assert np.abs(change).max() <= 4 * 0.7 * 0.8 + 1e-9
    gentle = of(BASE[:40] * 0.01)  # where nothing is cut, it is the posterior
    places = mechanism.places[:, 0]
    exact = prior_of(mechanism) + 0.7 * (
        5 * np.tanh(places) * BASE[:40].sum(dtype=np.float64) * 0.01 - 40 * 0.1 * places**2
    )
    assert np.allclose(gentle, exact - np.logaddexp.reduce(exact), atol=1e-3)


def test_what_a_density_may_not_do():
    mechanism, rows = grid(), Rows({"x": BASE[:3]})
    secret = jnp.asarray(BASE[:3])

    def prints(vector, rows, present, _):
        jax.debug.print("{}", rows["x"])
        return vector[0]

    def holds(vector, rows, present, _):
        return vector[0] * secret.sum()

    def long(vector, rows, present, _):
        return jnp.ones(2) * vector[0]

    for density, error in (
        (prints, BoundaryError),
        (holds, BoundaryError),
        (long, InvalidArgument),
    ):
        with pytest.raises(error):
            open_gate(rows, mechanism).check_draw(prior_of(mechanism), density, None)
        with pytest.raises(error):
            drawn(rows, mechanism, density=density)


def test_a_gate_draws_once():
    gate = open_gate(Rows({"x": BASE}), grid(), Randomness(0))
    gate.draw(prior_of(grid()), normal, None)
    with pytest.raises(BoundaryError, match="spent"):
        gate.draw(prior_of(grid()), normal, None)


# By a sum -------------------------------------------------------------------------------------


def rates(**changes):
    places = np.linspace(0.1, 0.9, 200)
    settings = {
        "column": "y",
        "low": 0.0,
        "high": 1.0,
        "steps": 1,
        "places": places[:, None],
        "prior": np.zeros(200),
        "at_low": np.log(1 - places),
        "at_high": np.log(places),
        "power": 0.5,
    }
    return StatisticDraws(**(settings | changes))


@pytest.mark.parametrize("ends", [(1.0, 1.0), (2.0, 1.0), (np.nan, 1.0), (0.0, np.inf)])
def test_the_ends_of_a_column_differ(ends):
    """Or a row's step would be nothing over nothing."""
    with pytest.raises(InvalidArgument, match="below the highest"):
        rates(low=ends[0], high=ends[1])


def of_rates(monkeypatch, values, mechanism, **people):
    column = {"y": np.asarray(values, np.float32)}
    rows = Rows.by_person(column, **people) if people else Rows(column)

    def release():
        open_gate(rows, mechanism, Randomness(0)).draw()

    return log_probabilities(monkeypatch, statistic_module, release)


def test_a_sum_gives_the_conjugate_posterior(monkeypatch):
    mechanism = rates()
    yes = RNG.random(300) < 0.7
    found = of_rates(monkeypatch, yes, mechanism)
    places = mechanism.places[:, 0]
    beta = stats.beta(1 + 0.5 * yes.sum(), 1 + 0.5 * (~yes).sum()).logpdf(places)
    assert np.allclose(found, beta - np.logaddexp.reduce(beta), atol=1e-6)


@pytest.mark.parametrize("extra", [0.0, 1.0, 40.0, -np.inf, np.nan])
def test_a_row_moves_a_sum_by_its_bound_at_most(monkeypatch, extra):
    mechanism = rates()
    base = [1.0] * 30 + [0.0] * 10
    change = of_rates(monkeypatch, [*base, extra], mechanism) - of_rates(
        monkeypatch, base, mechanism
    )
    most = 0.5 * np.log(9)
    assert 2 * mechanism.power * mechanism.bound == pytest.approx(most)
    assert np.ptp(change) <= most
    if np.isfinite(extra):  # at either end of the column it says all that it may
        assert np.ptp(change) == pytest.approx(most, rel=1e-6)
    swap = of_rates(monkeypatch, [*base[1:], extra], mechanism) - of_rates(
        monkeypatch, base, mechanism
    )
    assert np.ptp(swap) <= 2 * most


def test_rows_of_a_person_are_charged_together(monkeypatch):
    people = {"person": [1, 1, 1, 2], "most_rows": 3}
    with pytest.raises(InvalidArgument, match="rows_per_unit=3"):
        of_rates(monkeypatch, [1, 1, 1, 0], rates(), **people)
    mechanism = rates(rows_per_unit=3)
    assert mechanism.bound == pytest.approx(3 * rates().bound)
    both = of_rates(monkeypatch, [1, 1, 1, 0], mechanism, **people)
    alone = of_rates(monkeypatch, [0], mechanism, person=[2], most_rows=3)
    assert 0.5 < np.ptp(both - alone) / (2 * mechanism.power * mechanism.bound) <= 1 + 1e-9


# By rejection ---------------------------------------------------------------------------------


def logistic(**changes):
    settings = {
        "features": "x",
        "outcome": "y",
        "dimension": 1,
        "radius": 1.0,
        "precision": 0.5,
        "power": 0.6,
        "resolution": 2.0**-20,
    }
    return LogisticDraws(**(settings | changes))


X = RNG.normal(size=(60, 1)).astype(np.float32)
Y = (RNG.random(60) < 0.75).astype(np.float32)
SHORT = X.astype(np.float64) / np.maximum(np.abs(X), 1)


def rejected(x, y, mechanism, seed=0):
    return open_gate(Rows({"x": x, "y": y}), mechanism, Randomness(seed)).draw()


def test_rejection_gives_the_posterior():
    found = rejected(X, Y, logistic(num_draws=3000))[:, 0]
    places = np.linspace(-8, 8, 20_001)
    logits = np.outer(places, (2 * Y - 1) * SHORT[:, 0])
    scores = -0.25 * places**2 - 0.6 * np.logaddexp(0, -logits).sum(axis=1)
    density = np.exp(scores - scores.max())
    curve = np.cumsum(density) / density.sum()
    assert stats.kstest(found, lambda value: np.interp(value, places, curve)).pvalue > 1e-3


def test_high_precision_decides_as_double_precision_does(monkeypatch):
    def first(seed):
        return rejected(X[:10], Y[:10], logistic(), seed)[0, 0]

    usual = [first(seed) for seed in range(15)]
    ratios = reject_module._Target.log_ratios

    def unsure(self, proposals):
        return ratios(self, proposals)[0], np.full(len(proposals.vectors), np.inf)

    monkeypatch.setattr(reject_module._Target, "log_ratios", unsure)
    assert [first(seed) for seed in range(15)] == usual


def test_rounding_is_exact_where_doubles_end():
    for seed in range(10):
        fine, coarse = (
            rejected(X, Y, logistic(resolution=resolution), seed)[0, 0]
            for resolution in (1e-17, 2.0**-6)
        )
        assert abs(fine - coarse) <= 2.0**-7 + 1e-12
        assert coarse * 2**6 == round(coarse * 2**6)


def target_of(count, kind, power=1.0, dimension=3):
    """A data set whose posterior has an envelope of the given kind, forced or not."""
    rng = np.random.default_rng(count)
    rows = rng.normal(size=(count, dimension))
    rows /= np.maximum(np.linalg.norm(rows, axis=1), 1)[:, None]
    target = reject_module._Target(rows, logistic(power=power, dimension=dimension))
    if kind is not None:
        shape = target._shape(target._mode())
        given = (0.5,) if kind is NormalEnvelope else (target._curvature(shape.place), 1e-9, rows)
        target.envelope = kind.above(shape, *given)
    return target


@pytest.mark.parametrize("kind", [NormalEnvelope, RadialEnvelope])
@pytest.mark.parametrize("count", [0, 1, 60, 3000])
def test_the_proposal_lies_above_the_posterior(count, kind):
    target = target_of(count, kind)
    proposals = target.envelope.proposals(Bits.drawn(Randomness(0), 2000, 3))
    ratio, doubt = target.log_ratios(proposals)
    assert ratio.max() <= 0
    assert doubt.mean() < 1e-7  # so high precision is hardly ever asked
    # Also far away, where proposals hardly come.
    mode = target._mode()
    step = np.random.default_rng(1).normal(size=(3000, 3)) * np.geomspace(1e-3, 300, 3000)[:, None]
    if kind is NormalEnvelope:
        tilt = np.sum((mode + step - target.envelope.centre) ** 2, axis=1) / (
            2 * target.envelope.scale**2
        )
    else:
        tilt = target.envelope.rate * np.linalg.norm(
            np.linalg.solve(target.envelope.spread, step.T), axis=0
        )
    far = Proposals(mode + step, tilt, np.linalg.norm(mode + step, axis=1))
    assert target.log_ratios(far)[0].max() <= 0


def test_many_rows_are_not_rejected_more_often():
    """The closer the posterior is to normal, the closer is the envelope."""
    for count in (1000, 30_000):
        target = target_of(count, None, dimension=5)
        proposals = target.envelope.proposals(Bits.drawn(Randomness(0), 300, 5))
        accepted = np.exp(target.log_ratios(proposals)[0]).mean()
        assert isinstance(target.envelope, RadialEnvelope)
        assert accepted > 0.3


@pytest.mark.parametrize(
    "kind", [RadialEnvelope, pytest.param(NormalEnvelope, marks=pytest.mark.slow)]
)
def test_both_envelopes_give_the_same_draws_in_distribution(kind):
    target = target_of(40, kind)
    bits = Randomness(3)
    found = np.array([reject_module._draw_one(target, bits) for _ in range(1500)])
    prior = np.random.default_rng(0).normal(size=(300_000, 3)) * np.sqrt(2)
    loss = np.logaddexp(0, -(prior @ target.rows.T)).sum(axis=1)
    weight = np.exp(loss.min() - loss)
    mean = weight @ prior / weight.sum()
    sd = np.sqrt(weight @ (prior - mean) ** 2 / weight.sum())
    assert np.allclose(found.mean(axis=0), mean, atol=5 * sd.max() / np.sqrt(1500))
    assert np.allclose(found.std(axis=0), sd, rtol=0.1)


@pytest.mark.parametrize("kind", [NormalEnvelope, RadialEnvelope])
def test_high_precision_proposals_are_those_of_double_precision(kind):
    target = target_of(20, kind)
    bits = Bits.drawn(Randomness(0), 20, 3)
    proposals = target.envelope.proposals(bits)
    for i in range(20):
        vector, tilt = target.envelope.exact(bits, i)
        error = np.abs(np.array(vector, float) - proposals.vectors[i]).max()
        assert error <= (2 * 3 + 16) * 2.0**-50 * proposals.sizes[i]
        assert float(tilt) == pytest.approx(proposals.tilts[i], rel=1e-12)


def test_rows_are_shortened_and_bad_ones_say_nothing():
    mechanism = logistic(num_draws=5)
    long = X.copy()
    long[np.abs(X) > 1] *= 1e6
    assert np.array_equal(rejected(long, Y, mechanism), rejected(X, Y, mechanism))
    bad = np.append(X, [[np.nan], [np.inf]], axis=0), np.append(Y, [1, 0])
    assert np.array_equal(rejected(*bad, mechanism), rejected(X, Y, mechanism))


# By chains ------------------------------------------------------------------------------------


def test_a_chain_reaches_a_posterior_in_closed_form():
    """A likelihood that tilts: the posterior is normal, moved by one row as far as charged."""
    claim = LogConcave(slope=2.0, concavity=4.0, shortened=("x", 2.0))
    mechanism = ChainDraws(
        claim=claim, dimension=1, power=0.5, warm_up=80, length=20, resolution=2.0**-10,
        num_draws=120,
    )  # fmt: skip

    def tilt(vector, rows, present, _):
        return jnp.where(present, vector[0] * rows["x"], 0.0).sum()

    def prior(vector, _):
        return -2.0 * jnp.sum(vector**2)

    values = np.array([1.0, -0.5, 7.0, np.nan], np.float32)  # 7 is shortened to 2
    gate = open_gate(Rows({"x": values}), mechanism, Randomness(0))
    found = gate.draw(prior, tilt, None)[:, 0]
    error = 0.5 / np.sqrt(120)
    assert found.mean() == pytest.approx(0.5 * 2.5 / 4, abs=4 * error)
    assert found.std() == pytest.approx(0.5, rel=0.3)
    assert np.array_equal(found, np.rint(found * 2**10) / 2**10)
