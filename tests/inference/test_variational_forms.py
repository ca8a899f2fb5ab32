"""The forms of variational inference, and schedules of clips and sampling rates."""

import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import optimize, stats

from tacit.accounting import PLD, Budget, events
from tacit.api.fit import fit, fit_without_privacy
from tacit.errors import InvalidArgument
from tacit.inference.variational import Variational
from tacit.models.jax_model import Model, Parameter
from tacit.privacy.rows import Rows

RNG = np.random.default_rng(3)
Y = 4 + RNG.normal(size=60)
ROWS = Rows({"y": Y})
BUDGET = Budget(1, 1e-5)


def location_model():
    """The mean of normal rows of variance one, under a prior N(0, 1)."""
    return Model(
        parameters={"m": Parameter()},
        log_prior=lambda p: -0.5 * p["m"] ** 2,
        log_likelihood=lambda p, row: -0.5 * (row["y"] - p["m"]) ** 2,
    ).unit_model


MODEL = location_model()
ALL = {
    "sampling_rate": 1.0,
    "num_steps": 3000,
    "num_draws": 8,
    "learning_rate": optax.cosine_decay_schedule(0.05, 3000),
}


def _clipped(vectors, clip):
    norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors * np.minimum(1, clip / np.maximum(norms, 1e-12))


def _fixed_point(clip, *, shared):
    """Where the expected clipped ascent stands still, by quadrature and a root finder."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(61)
    weights = weights / weights.sum()

    def ascent(params):
        mean, log_scale = params
        noise = nodes * np.exp(log_scale)
        slope = Y[None, :] - (mean + noise)[:, None]  # of a row, for one draw shared by all rows
        rows = np.stack([slope, slope * noise[:, None]], axis=-1)
        public = np.stack([-(mean + noise), 1 - (mean + noise) * noise], axis=-1)
        if shared:
            total = _clipped(rows + public[:, None, :] / len(Y), clip).sum(axis=1)
        else:
            total = _clipped(rows, clip).sum(axis=1) + public
        return weights @ total

    return optimize.root(ascent, (3.0, -1.5)).x


@pytest.mark.parametrize(("gradient", "shared"), [("joint", False), ("elbo", True)])
def test_forms_stand_still_where_their_clipped_gradients_do(gradient, shared):
    """A tight clip leaves the prior its whole weight in one form, and clips it in the other."""
    size = {"size": len(Y)} if shared else {}
    method = Variational(gradient=gradient, clip=0.3, **ALL | {"num_draws": 1}, **size)
    post = fit_without_privacy(MODEL, ROWS, method=method)
    expected = _fixed_point(0.3, shared=shared)
    assert post.unconstrained_mean[0] == pytest.approx(expected[0], abs=0.03)


def test_unclipped_shares_add_up_to_the_elbo():
    method = Variational(gradient="elbo", clip=500.0, size=len(Y), **ALL)
    post = fit_without_privacy(MODEL, ROWS, method=method)
    assert post.unconstrained_mean[0] == pytest.approx(Y.sum() / (len(Y) + 1), abs=0.02)
    assert post.unconstrained_covariance[0, 0] == pytest.approx(1 / (len(Y) + 1), rel=0.1)


def test_shares_need_a_declared_size():
    with pytest.raises(InvalidArgument, match="size="):
        fit(MODEL, ROWS, budget=BUDGET, method=Variational(gradient="elbo"))
    sized = Variational(gradient="elbo").for_size(MODEL, 500, BUDGET)
    assert sized.size == 500
    assert Variational().for_size(MODEL, 500, BUDGET).size is None


def test_a_clip_schedule_scales_the_noise_and_costs_the_same():
    """Without rows, a step of plain gradient ascent is the prior's slope and noise of the present clip."""
    nobody = Rows({"y": np.zeros(0)})

    def clip(step):
        return jnp.where(step < 200, 8.0, 0.5)

    settings = {"optimiser": "sgd", "learning_rate": 1e-6, "num_steps": 400, "average": False}
    scheduled = Variational(clip=clip, sampling_rate=1.0, **settings)
    plain = Variational(clip=8.0, sampling_rate=1.0, **settings)
    mechanism = scheduled.calibrate(MODEL, BUDGET)
    assert mechanism.event == plain.calibrate(MODEL, BUDGET).event
    trace = fit(MODEL, nobody, budget=BUDGET, method=scheduled, seed=1).trace["mean"][:, 0]
    moves = np.diff(trace, prepend=0.0) / 1e-6
    early, late = moves[:200].std(), moves[200:].std()
    noise = mechanism.noise_multiplier
    # Within six standard errors of a standard deviation of 200 normal numbers; rounding adds some.
    assert early == pytest.approx(8 * noise, rel=0.3)
    assert late == pytest.approx(0.5 * noise, rel=0.3)


def test_a_clip_schedule_bounds_every_unit():
    """One row far away: what it adds in a step is the clip of that step, and the prior's slope is small."""
    one = Rows({"y": np.array([1e6])})
    method = Variational(
        clip=optax.linear_schedule(40.0, 10.0, 3),
        sampling_rate=1.0,
        num_steps=4,
        optimiser="sgd",
        learning_rate=1e-4,
        average=False,
    )
    trace = fit_without_privacy(MODEL, one, method=method).trace["mean"][:, 0]
    moved = np.diff(trace, prepend=0.0) / 1e-4
    assert moved == pytest.approx(
        [40.0, 30.0, 20.0, 10.0], abs=1.0
    )  # the prior has ten deviations of .1


def test_rate_schedules_are_charged_for_what_they_do():
    method = Variational(sampling_rate=((0.02, 300), (0.1, 100)), num_steps=400)
    planned = method.calibrate(MODEL, BUDGET)
    noise = planned.mechanisms[0].noise_multiplier
    whole = events.compose(
        events.sampled_gaussian(noise, 0.02, 300), events.sampled_gaussian(noise, 0.1, 100)
    )
    spent = PLD().epsilon(whole, BUDGET.delta)
    assert 0.999 < spent <= 1
    assert PLD().epsilon(planned.event, BUDGET.delta) == pytest.approx(spent)
    assert [each.sampling_rate for each in planned.mechanisms] == [0.02, 0.1]
    with pytest.raises(InvalidArgument, match="add up"):
        Variational(sampling_rate=((0.02, 300), (0.1, 50)), num_steps=400)


def test_rate_schedules_sample_so_many_and_divide_by_the_rate():
    """A sum over a batch, divided by its rate, is the sum over everybody on average in every stage."""
    many = Rows({"y": np.full(500, 1e6)})  # every row adds the clip, one
    method = Variational(
        sampling_rate=((0.05, 150), (0.5, 150)),
        num_steps=300,
        clip=1.0,
        optimiser="sgd",
        learning_rate=1e-7,
        average=False,
    )
    trace = fit_without_privacy(MODEL, many, method=method).trace["mean"][:, 0]
    sums = np.diff(trace, prepend=0.0) / 1e-7
    for part, rate in ((sums[:150], 0.05), (sums[150:], 0.5)):
        deviation = np.sqrt(500 * (1 - rate) / rate)
        assert part.mean() == pytest.approx(500, abs=6 * deviation / np.sqrt(150))
        low, high = stats.chi2.ppf([1e-7, 1 - 1e-7], 149) / 149
        assert low * 0.9 < part.var(ddof=1) / deviation**2 < high * 1.1


def test_schedules_that_cannot_be():
    with pytest.raises(InvalidArgument, match="positive"):
        fit(MODEL, ROWS, budget=BUDGET, method=Variational(clip=lambda step: 1.0 - step))
    with pytest.raises(InvalidArgument, match="pairs"):
        Variational(sampling_rate=(0.1, 0.2))
