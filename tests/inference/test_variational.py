"""Variational fits end to end: against exact posteriors, and what they say of themselves."""

import dataclasses
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from tacit.accounting import PLD, Budget
from tacit.accounting.ledger import Ledger
from tacit.api.fit import fit, fit_many, fit_without_privacy
from tacit.errors import BoundaryError, BudgetError, Interrupted, InvalidArgument
from tacit.inference import variational
from tacit.inference.guides import FullRank, LowRank, MeanField
from tacit.inference.langevin import Langevin
from tacit.inference.result import Intervals
from tacit.inference.variational import Variational, fit_from_trace, stationary_start
from tacit.models.jax_model import Model, Parameter, Positive
from tacit.privacy import gate
from tacit.privacy.rows import Rows

RNG = np.random.default_rng(0)
X = RNG.normal(size=(400, 2)) @ np.array([[1.0, 0.8], [0.0, 0.6]])
Y = X @ np.array([1.0, -0.5]) + RNG.normal(size=400)


@cache
def linear_model():
    """Linear regression with unit noise: the posterior is Gaussian and known."""
    return Model(
        parameters={"w": Parameter((2,))},
        log_prior=lambda p: -0.5 * jnp.sum(p["w"] ** 2),
        log_likelihood=lambda p, row: -0.5 * (row["y"] - jnp.dot(row["x"], p["w"])) ** 2,
    ).unit_model


def exact_posterior(x, y):
    precision = x.T @ x + np.eye(x.shape[1])
    return np.linalg.solve(precision, x.T @ y), np.linalg.inv(precision)


ROWS = Rows({"x": X, "y": Y})
DECAY = optax.cosine_decay_schedule(0.05, 1500)
EXACTLY = {
    "sampling_rate": 1.0,
    "num_steps": 8000,
    "clip": 200.0,
    "learning_rate": optax.cosine_decay_schedule(0.05, 8000),
}


@pytest.mark.parametrize(
    ("guide", "gradient"),
    [
        pytest.param(FullRank(), "aligned", id="FullRank-aligned"),
        pytest.param(LowRank(rank=1), "joint", id="LowRank-joint"),
        pytest.param(FullRank(), "joint", id="FullRank-joint", marks=pytest.mark.slow),
        pytest.param(LowRank(rank=1), "aligned", id="LowRank-aligned", marks=pytest.mark.slow),
    ],
)
def test_without_noise_it_is_the_exact_posterior(guide, gradient):
    mean, covariance = exact_posterior(X, Y)
    method = Variational(guide=guide, gradient=gradient, **EXACTLY)
    post = fit_without_privacy(linear_model(), ROWS, method=method)
    sd = np.sqrt(np.diag(covariance))
    assert np.allclose(post.unconstrained_mean, mean, atol=0.15 * sd.min())
    assert np.allclose(
        post.unconstrained_covariance / np.outer(sd, sd), covariance / np.outer(sd, sd), atol=0.1
    )


def test_mean_field_is_the_best_product_of_gaussians():
    mean, covariance = exact_posterior(X, Y)
    post = fit_without_privacy(linear_model(), ROWS, method=Variational(**EXACTLY))
    best = 1 / np.sqrt(np.diag(np.linalg.inv(covariance)))
    assert np.allclose(post.unconstrained_mean, mean, atol=0.15 * best.min())
    assert np.allclose(np.sqrt(np.diag(post.unconstrained_covariance)), best, rtol=0.07)


def test_little_noise_is_close_to_none():
    method = Variational(
        guide=FullRank(), sampling_rate=0.5, num_steps=1500, clip=5.0, learning_rate=DECAY
    )
    private = fit(linear_model(), ROWS, budget=Budget(2000, 1e-5), method=method, seed=0)
    mean, covariance = exact_posterior(X, Y)
    assert np.allclose(private.unconstrained_mean, mean, atol=2 * np.sqrt(covariance.max()))


@pytest.mark.slow
def test_several_draws_steady_the_joint_form():
    def last(num_draws):
        method = Variational(
            gradient="joint", num_draws=num_draws, sampling_rate=1.0, num_steps=300, clip=200.0
        )
        traces = [
            fit_without_privacy(linear_model(), ROWS, method=method, seed=seed).trace["mean"]
            for seed in range(4)
        ]
        return np.mean([np.diff(trace[100:], axis=0).std() for trace in traces])

    assert last(16) < 0.6 * last(1)


def test_no_rows_fit_the_prior():
    empty = Rows({"x": np.zeros((0, 2)), "y": np.zeros(0)})
    method = Variational(
        num_steps=1500,
        guide=MeanField(start_scale=0.5),
        learning_rate=optax.cosine_decay_schedule(0.05, 1500),
    )
    post = fit_without_privacy(linear_model(), empty, method=method)
    assert np.allclose(post.unconstrained_mean, 0, atol=0.1)
    assert np.allclose(np.diag(post.unconstrained_covariance), 1, rtol=0.15)
    private = fit(linear_model(), empty, budget=Budget(1, 1e-5), method=method)
    assert np.isfinite(private.unconstrained_mean).all()


def test_constrained_parameters_come_back_on_their_support():
    model = Model(
        parameters={"mu": Parameter(), "sigma": Parameter(support=Positive())},
        log_prior=lambda p: -0.5 * p["mu"] ** 2 / 100 - p["sigma"],
        log_likelihood=lambda p, row: (
            -jnp.log(p["sigma"]) - 0.5 * ((row["y"] - p["mu"]) / p["sigma"]) ** 2
        ),
    ).unit_model
    data = Rows({"y": 3 + 2 * RNG.normal(size=2000)})
    method = Variational(
        sampling_rate=0.5,
        num_steps=800,
        clip=100.0,
        learning_rate=optax.cosine_decay_schedule(0.1, 800),
    )
    post = fit_without_privacy(model, data, method=method)
    assert (post.draws["sigma"] > 0).all()
    assert post.mean()["mu"] == pytest.approx(3, abs=0.2)
    assert post.mean()["sigma"] == pytest.approx(2, abs=0.2)


@pytest.mark.parametrize(
    "optimiser",
    [
        "adam",
        pytest.param("adagrad", marks=pytest.mark.slow),
        pytest.param("sgd", marks=pytest.mark.slow),
        optax.rmsprop(0.01),
    ],
    ids=["adam", "adagrad", "sgd", "rmsprop"],
)
def test_optimisers(optimiser):
    rate = 1e-4 if optimiser == "sgd" else 0.05
    method = Variational(
        optimiser=optimiser, learning_rate=rate, num_steps=400, sampling_rate=0.5, clip=50.0
    )
    post = fit_without_privacy(linear_model(), ROWS, method=method)
    assert np.allclose(post.unconstrained_mean, exact_posterior(X, Y)[0], atol=0.2)


@pytest.mark.slow
def test_adagrad_reset_boosts_its_steps():
    def last_moves(reset_every):
        method = Variational(
            optimiser="adagrad", learning_rate=0.1, num_steps=400, reset_every=reset_every
        )
        return fit(linear_model(), ROWS, budget=Budget(1, 1e-5), method=method, seed=1).trace[
            "mean"
        ]

    usual, reset = last_moves(None), last_moves(200)
    assert np.array_equal(usual[:200], reset[:200])
    assert (
        np.abs(np.diff(reset[200:205], axis=0)).max()
        > 3 * np.abs(np.diff(usual[200:205], axis=0)).max()
    )


def test_seed_repeats_and_says_so():
    one, two, other = (
        fit(linear_model(), ROWS, budget=Budget(1, 1e-5), method=Variational(num_steps=50), seed=s)
        for s in (5, 5, 6)
    )
    assert np.array_equal(one.unconstrained_mean, two.unconstrained_mean)
    assert not np.array_equal(one.unconstrained_mean, other.unconstrained_mean)
    assert "seeded: not private" in str(one.privacy)
    assert not one.privacy.is_private


def test_statement():
    budget = Budget(1, 1e-5, "replace")
    post = fit(linear_model(), ROWS, budget=budget, method=Variational(num_steps=50))
    assert post.privacy.is_private
    assert post.privacy.epsilons["replace"] <= 1
    assert post.privacy.epsilons["add-remove"] < post.privacy.epsilons["replace"]
    text = str(post.privacy)
    for words in (
        "no ledger: nothing limits",
        "under replace (requested)",
        "one row",
        "not protected",
    ):
        assert words in text
    curve = post.privacy.curve("replace")
    assert curve.epsilons[0] > curve.epsilons[-1]
    assert "NOT PRIVATE" in str(fit_without_privacy(linear_model(), ROWS).privacy)


def test_ledger_is_charged_before_and_refuses(tmp_path):
    ledger = Ledger.new(tmp_path / "book.db", total=Budget(1.5, 1e-4))
    method = Variational(num_steps=50)
    post = fit(linear_model(), ROWS, budget=Budget(1, 1e-5), method=method, ledger=ledger)
    assert "0.5" in str(post.privacy).split("ledger:")[1]
    with pytest.raises(BudgetError, match=r"epsilon 0\.5"):
        fit(linear_model(), ROWS, budget=Budget(1, 1e-5), method=method, ledger=ledger)
    assert len(ledger.charges) == 1
    people = Ledger.new(tmp_path / "people.db", total=Budget(5, 1e-4), unit="person")
    with pytest.raises(BudgetError, match="person"):
        fit(linear_model(), ROWS, budget=Budget(1, 1e-5), method=method, ledger=people)
    assert people.charges == []


def test_many_fits_are_each_charged(tmp_path):
    ledger = Ledger.new(tmp_path / "book.db", total=Budget(10, 1e-3))
    budgets = [Budget(e, 1e-5) for e in (0.5, 1.0, 4.0)]
    method = Variational(num_steps=60, average=False)
    posts = fit_many(linear_model(), [ROWS] * 3, budgets, method, ledger=ledger, seeds=[1, 2, 3])
    assert [charge.epsilon for charge in ledger.charges] == [0.5, 1.0, 4.0]
    single = fit(linear_model(), ROWS, budget=budgets[1], method=method, seed=2)
    assert np.allclose(posts[1].unconstrained_mean, single.unconstrained_mean, atol=1e-3)
    for post, budget in zip(posts, budgets, strict=True):
        assert PLD().epsilon(post.privacy.event, 1e-5) <= budget.epsilon


def test_ctrl_c_leaves_a_true_ledger(tmp_path, monkeypatch):
    ledger = Ledger.new(tmp_path / "book.db", total=Budget(2, 1e-4))

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(variational, "run", interrupted)
    with pytest.raises(Interrupted, match="charged in full") as caught:
        fit(linear_model(), ROWS, budget=Budget(1, 1e-5), ledger=ledger)
    assert "epsilon 1 " in str(caught.value)
    assert len(ledger.charges) == 1


def test_progress_shows_steps_and_time_only(capsys):
    fit(
        linear_model(),
        ROWS,
        budget=Budget(1, 1e-5),
        method=Variational(num_steps=50),
        progress=True,
    )
    shown = capsys.readouterr().err
    assert "50 steps" in shown
    assert set(shown) <= set("\n\u2501 0123456789,Fitting steps")


def test_steady_steps_are_found():
    rng = np.random.default_rng(0)
    flat = 0.1 * rng.normal(size=(2000, 3))
    drift = flat + np.linspace(0, 3, 2000)[:, None]
    then_flat = np.concatenate([drift, flat + 3])
    assert stationary_start(flat) == 0
    assert stationary_start(drift) is None
    assert stationary_start(then_flat) in (2000, 2400)
    assert stationary_start(flat[:5]) is None


def test_averages_only_steady_steps_and_never_says_that_it_converged():
    method = Variational(num_steps=60, learning_rate=0.02)  # too short to arrive
    post = fit(linear_model(), ROWS, budget=Budget(1, 1e-5), method=method, seed=0)
    assert post.converged is False
    assert "still moved" in post.messages[0]
    assert post.intervals == Intervals.LEFT_OUT
    assert np.array_equal(post.unconstrained_mean, post.trace["mean"][-1])
    slow = fit_from_trace({"mean": np.linspace(0, 5, 500)[:, None]}, average=True)
    assert not slow.steady
    assert slow.params["mean"] == 5
    flat = np.full((500, 1), 2.0)
    flat[-1] = 2.1
    done = fit_from_trace({"mean": flat}, average=True)
    assert done.steady
    assert done.params["mean"] < 2.01
    still = variational._method_result(
        Variational(),
        linear_model(),
        done._replace(params=Variational().family.start(linear_model().dimension)),
        jax.random.key(0),
    )
    assert still.converged is None
    assert "does not show that" in still.messages[0]


def test_settings_that_cannot_work_are_refused_early(tmp_path):
    wrong = [
        lambda: Variational(num_draws=3),
        lambda: Variational(gradient="magic"),
        lambda: Variational(optimiser="newton"),
        lambda: Variational(learning_rate=-1),
        lambda: Variational(learning_rate=jnp.float32(0.1)),
        lambda: Variational(num_steps=20.0),
        lambda: Variational(reset_every=0),
        lambda: fit(
            linear_model(), ROWS, budget=Budget(1, 1e-5), method=Variational(sampling_rate=0)
        ),
        lambda: fit(linear_model(), ROWS, budget=Budget(1, 1e-5), method=Variational(clip=-1.0)),
        lambda: fit(linear_model(), Rows({"z": Y}), budget=Budget(1, 1e-5)),
        lambda: fit_many(linear_model(), [ROWS], []),
    ]
    for make in wrong:
        with pytest.raises(InvalidArgument):
            make()
    ledger = Ledger.new(tmp_path / "book.db", total=Budget(2, 1e-4))
    vector = Model(
        parameters={"w": Parameter((2,))},
        log_prior=lambda p: -jnp.sum(p["w"] ** 2),
        log_likelihood=lambda p, row: row["x"] * p["w"],
    ).unit_model
    nowhere = Model(
        parameters={"w": Parameter((2,))},
        log_prior=lambda p: jnp.log(p["w"][0] - 5),
        log_likelihood=lambda p, row: row["y"] * p["w"][0],
    ).unit_model
    for model, word in ((vector, "single number"), (nowhere, "not finite")):
        with pytest.raises(InvalidArgument, match=word):
            fit(model, ROWS, budget=Budget(1, 1e-5), ledger=ledger)
    assert ledger.charges == []


def test_faults_are_said_before_the_charge(tmp_path):
    """A branch on a row, a callback, a float number of steps: nothing is spent on them."""
    ledger = Ledger.new(tmp_path / "book.db", total=Budget(9, 1e-4))

    def branching(p, row):
        return p["w"][0] if row["y"] > 0 else -p["w"][1]

    def printing(p, row):
        jax.debug.print("{}", row["y"])
        return -((row["y"] - p["w"][0]) ** 2)

    for likelihood, error in ((branching, InvalidArgument), (printing, BoundaryError)):
        model = Model(
            parameters={"w": Parameter((2,))},
            log_prior=lambda p: -jnp.sum(p["w"] ** 2),
            log_likelihood=likelihood,
        ).unit_model
        with pytest.raises(error):
            fit(model, ROWS, budget=Budget(1, 1e-5), ledger=ledger)
    assert ledger.charges == []
    with pytest.raises(InvalidArgument, match="seed"):
        fit_many(linear_model(), [ROWS] * 2, [Budget(1, 1e-5)] * 2, ledger=ledger, seeds=[1])
    assert ledger.charges == []
    quick = Variational(num_steps=20, learning_rate=np.float32(0.1))
    fit(linear_model(), ROWS, budget=Budget(1, 1e-5), method=quick, ledger=ledger)
    assert len(ledger.charges) == 1


@pytest.mark.slow
def test_reset_does_not_restart_the_schedule():
    settings = {"num_steps": 400, "sampling_rate": 0.5, "clip": 50.0}
    late = []
    for reset_every in (None, 100):
        method = Variational(reset_every=reset_every, **settings)
        trace = fit_without_privacy(linear_model(), ROWS, method=method).trace["mean"]
        late.append(np.abs(np.diff(trace[-20:], axis=0)).max())
    assert late[1] < 5 * late[0]


def test_rows_held_by_a_guide_or_a_support_are_refused():
    @dataclasses.dataclass(frozen=True)
    class Leaking(MeanField):
        data: object = None

    with pytest.raises(BoundaryError, match="data"):
        fit(linear_model(), ROWS, budget=Budget(1, 1e-5), method=Variational(guide=Leaking(data=X)))


def test_public_constants_are_allowed():
    model = Model(
        parameters={"w": Parameter((2,))},
        log_prior=lambda p, c: -0.5 * jnp.sum((p["w"] / c["scale"]) ** 2),
        log_likelihood=lambda p, row, _: -0.5 * (row["y"] - jnp.dot(row["x"], p["w"])) ** 2,
        constants={"scale": np.array([1.0, 2.0])},
    ).unit_model
    assert fit(
        model, ROWS, budget=Budget(1, 1e-5), method=Variational(num_steps=20)
    ).privacy.is_private


def test_rows_in_the_model_are_refused():
    leaking = Model(
        parameters={"w": Parameter((2,))},
        log_prior=lambda p: -jnp.sum((p["w"] - Y.mean() * X[0]) ** 2),
        log_likelihood=lambda p, row: -((row["y"] - jnp.dot(row["x"], p["w"])) ** 2),
    ).unit_model
    with pytest.raises(BoundaryError, match="constants"):
        fit(leaking, ROWS, budget=Budget(1, 1e-5))


def test_nothing_in_a_result_refers_to_rows():
    post = fit(linear_model(), ROWS, budget=Budget(1, 1e-5), method=Variational(num_steps=20))
    for value in jax.tree.leaves(vars(post)):
        assert not (hasattr(value, "shape") and 400 in np.shape(value))


@pytest.mark.parametrize(
    "method",
    [
        Variational(num_steps=300),
        pytest.param(Langevin(num_steps=300, step_size=0.01), marks=pytest.mark.slow),
    ],
)
def test_how_steps_are_grouped_shows_in_nothing(method, monkeypatch):
    # Blocks shrink as batches grow, that is with the number of rows, which is private. Noise and
    # sampling come from a key that nobody can guess; draws of the model do not.
    nobody = Rows({"x": np.zeros((0, 2)), "y": np.zeros(0)})
    first = fit_without_privacy(linear_model(), nobody, method=method, seed=5)
    for slots in (100, 700):
        monkeypatch.setattr(gate, "_MAX_BATCH_PLACES", slots)
        again = fit_without_privacy(linear_model(), nobody, method=method, seed=5)
        for name, values in first.trace.items():
            assert np.array_equal(values, again.trace[name])
        assert np.array_equal(first.draws["w"], again.draws["w"])


def test_a_plan_holds_no_rows():
    rows = Rows({"x": X, "y": Y})
    blank = rows.blank()
    assert blank._count == 1
    assert not any(np.any(np.asarray(v)) for v in blank._device_fields()[0].values())
    people = Rows.by_person({"x": X, "y": Y}, np.arange(len(Y)) // 2, most_rows=3).blank()
    assert people.unit == "person"
    assert people.dummy_unit().present.shape == (3,)
