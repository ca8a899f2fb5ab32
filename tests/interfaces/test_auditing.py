"""`tacit.audit`: bounds that hold, and that notice a mechanism which is not what is charged."""

import json
import shlex
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit

import tacit
from tacit.accounting import calibrate
from tacit.api.audit_runs import lower_bound, train_observer
from tacit.cli.main import main
from tacit.errors import InvalidArgument
from tacit.inference.method import Method, Steps
from tacit.privacy import mechanisms
from tacit.privacy import mechanisms as release_module
from tacit.privacy.gate import check as gate_check

SCHEMA = tacit.Schema({"x": tacit.Number(-1, 1), "y": tacit.Binary()})
PEOPLE = tacit.Schema(
    {"x": tacit.Number(-1, 1), "y": tacit.Binary()}, person="patient", most_rows=3
)
DOCS = Path(__file__).parents[2] / "docs" / "evidence/audits.md"
# In plain JAX: quick to trace.
MODEL = tacit.Model(
    parameters={"slope": tacit.models.Parameter(())},
    log_prior=lambda p: -0.5 * p["slope"] ** 2,
    log_likelihood=lambda p, row: jax.nn.log_sigmoid((2 * row["y"] - 1) * p["slope"] * row["x"]),
    simulate=lambda key, p, row: {
        "y": jax.random.bernoulli(key, jax.nn.sigmoid(p["slope"] * row["x"]))
    },
)
RUNS = 700


@lru_cache
def planned(kind, adjacency="add-remove", schema=SCHEMA):
    budget = tacit.Budget(2, 1e-5, adjacency)
    if kind in ("gaussian", "laplace"):
        model, method = tacit.conjugate.Bernoulli("y"), tacit.Statistics(noise=kind)
        return tacit.plan(model, schema, budget=budget, method=method)
    method = {
        "scoring": tacit.Scoring(num_steps=12, sampling_rate=0.5),
        "variational": tacit.Variational(num_steps=12, sampling_rate=0.5),
        "joint": tacit.Variational(num_steps=12, sampling_rate=1.0, gradient="joint"),
        "langevin": tacit.Langevin(
            num_steps=12, sampling_rate=0.5, step_size=0.5, hot=True, burn_in=0.0
        ),
        "barker": tacit.Barker(num_steps=12, burn_in=0.0, proposal=tacit.methods.GaussianWalk()),
        "hamiltonian": tacit.Hamiltonian(
            num_steps=4,
            num_leapfrog=2,
            step_size=0.3,
            gradient_clip=1.0,
            ratio_clip=1.0,
            burn_in=0.0,
        ),
        "noisy barker": tacit.Barker(num_steps=12, burn_in=0.0, noise_variance=2.0),
    }[kind]
    return tacit.plan(MODEL, schema, budget=budget, method=method)


# One of each kind of release at all times; the others take as long again.
ALL = [("variational", RUNS), ("barker", RUNS), ("gaussian", RUNS)] + [
    pytest.param(kind, 1500, marks=pytest.mark.slow)
    for kind in ("scoring", "joint", "langevin", "noisy barker", "hamiltonian", "laplace")
]


@pytest.mark.parametrize(("kind", "runs"), ALL)
def test_what_is_charged_is_not_contradicted_and_an_eighth_of_the_noise_is(kind, runs):
    plan = planned(kind)
    whole, broken = (
        tacit.audit(plan, runs=runs, seed=1, break_noise=factor) for factor in (1, 0.125)
    )
    assert not whole.contradicted
    assert whole.lower_bound > 0.02 * whole.claim, "the canary is seen"
    assert broken.contradicted
    assert "THE CLAIM IS FALSE." in str(broken)
    assert "broken on purpose" in str(broken)
    assert "broken on purpose" not in str(whole)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["variational", "barker"])
def test_under_replace_one_canary_takes_the_place_of_another(kind):
    plan = planned(kind, "replace")
    whole, broken = (
        tacit.audit(plan, runs=RUNS, seed=1, break_noise=factor) for factor in (1, 0.125)
    )
    assert not whole.contradicted
    assert broken.contradicted
    assert "one in place of the other" in whole.canary


@pytest.mark.slow
def test_a_person_is_audited_with_all_rows():
    found = tacit.audit(planned("variational", schema=PEOPLE), runs=RUNS, seed=1)
    assert found.unit == "person"
    assert 0.05 * found.claim < found.lower_bound <= found.claim


@dataclass(frozen=True)
class MakingUp(Method):
    """A method that compares outcomes with ones that it makes up, by each unit's secret bits."""

    sampling_rate: float = 0.5
    num_steps: int = 12

    def calibrate(self, model, budget):
        settings = {"sampling_rate": self.sampling_rate, "num_steps": self.num_steps}
        noise = calibrate.noise_multiplier(budget, **settings)
        return mechanisms.NoisySums(
            **settings, clip=1.0, noise_multiplier=noise, dimension=2, secrets=True
        )

    def without_noise(self, model):
        return replace(self.calibrate(model, tacit.Budget(1, 1e-5)), noise_multiplier=0.0)

    def check(self, model, gate):
        gate_check(making_up, jnp.zeros(()), jnp.zeros(()), gate)

    def steps(self, model, mechanism, key):
        given = lambda _, steps: np.zeros(steps, np.float32)  # noqa: E731
        return Steps(making_up, jnp.zeros(()), given)

    def run(self, model, gate, key, progress=None):
        raise NotImplementedError

    def describe(self, model):
        return "Outcomes against made-up ones."


def making_up(slope, _, release):
    def per_unit(slope, rows, present, secret):
        chance = jax.nn.sigmoid(slope * rows["x"])
        made_up = (secret[0] + jnp.arange(len(present)) * secret[1]) * 2.0**-32 < chance
        difference = jnp.where(present, (rows["y"] - made_up) * rows["x"], 0).sum()
        return jnp.stack([difference, made_up.mean() / 4])

    released = release.noisy_sum(per_unit, slope)
    return slope + 0.01 * released[0], released


@pytest.mark.parametrize(
    ("schema", "adjacency"),
    [
        pytest.param(PEOPLE, "add-remove", id="people"),
        pytest.param(SCHEMA, "replace", id="rows replaced", marks=pytest.mark.slow),
        pytest.param(SCHEMA, "add-remove", id="rows", marks=pytest.mark.slow),
        pytest.param(PEOPLE, "replace", id="people replaced", marks=pytest.mark.slow),
    ],
)
def test_a_method_with_secret_bits_is_audited_by_every_release(schema, adjacency):
    """The observer does not know them, and takes what is expected of a unit."""
    method = MakingUp() if adjacency == "add-remove" else MakingUp(1.0)
    plan = tacit.plan(MODEL, schema, budget=tacit.Budget(2, 1e-5, adjacency), method=method)
    whole, broken = (
        tacit.audit(plan, runs=RUNS, seed=1, break_noise=factor) for factor in (1, 0.125)
    )
    assert whole.watched == "every release"
    assert 0.02 * whole.claim < whole.lower_bound <= whole.claim
    assert broken.contradicted


def quarter_noise(monkeypatch):
    real = mechanisms.rounded_normals
    monkeypatch.setattr(mechanisms, "rounded_normals", lambda bits, s, n: real(bits, s / 4, n))


def no_sampling(monkeypatch):
    real = mechanisms.poisson_batches
    monkeypatch.setattr(mechanisms, "poisson_batches", lambda b, _, *rest: real(b, 0.999999, *rest))


def loose_clip(monkeypatch):
    real = release_module.clip_to_lattice
    monkeypatch.setattr(release_module, "clip_to_lattice", lambda *args: 4 * real(*args))


@pytest.mark.parametrize(
    "fault", [pytest.param(quarter_noise, marks=pytest.mark.slow), no_sampling, loose_clip]
)
def test_faults_of_the_real_mechanism_are_noticed(fault, monkeypatch):
    """The audit runs the gate itself: it is not told what is wrong with it."""
    # At a low rate, so that sampling is most of what protects; the plan is made before the fault.
    plan = tacit.plan(
        MODEL,
        SCHEMA,
        budget=tacit.Budget(3, 1e-5),
        method=tacit.Variational(num_steps=40, sampling_rate=0.1 + 1e-3 * len(fault.__name__)),
    )
    fault(monkeypatch)
    assert tacit.audit(plan, runs=RUNS, seed=1).contradicted


@pytest.mark.slow
def test_draws_are_audited_where_no_release_can_be_watched():
    claim = tacit.methods.BoundedLikelihood(bound=1.0)
    sampler = tacit.methods.GridSampler(low={"w": -2.0}, high={"w": 2.0}, points=9)
    model = tacit.Model(
        parameters={"w": tacit.models.Parameter(())},
        log_prior=lambda p: -0.5 * p["w"] ** 2,
        log_likelihood=lambda p, row: -2.0 * (p["w"] > row["x"]),
    )
    plan = tacit.plan(
        model,
        tacit.Schema({"x": tacit.Number(-1, 1)}),
        budget=tacit.Budget(2.0, 0.0),
        method=tacit.OneSample(sampler=sampler, claim=claim),
    )
    found = tacit.audit(plan, runs=300, seed=1)
    assert found.watched == "the draws alone"
    assert 0 < found.lower_bound <= found.claim
    with pytest.raises(InvalidArgument, match="break_noise works only for"):
        tacit.audit(plan, runs=800, break_noise=0.5)


def test_an_audit_says_what_it_cannot_show():
    found = tacit.audit(planned("gaussian"), runs=100, seed=1)
    assert found.highest < 4
    assert "cannot contradict" not in str(found)
    few = tacit.audit(planned("gaussian"), runs=100, seed=1, confidence=0.999999)
    assert few.highest < few.claim
    assert "cannot contradict a claim above" in str(few)


def test_a_seed_repeats_an_audit():
    one, again = (tacit.audit(planned("gaussian"), runs=200, seed=7) for _ in range(2))
    assert one == again


def answers(generator, count, epsilon, delta):
    """Randomised response that with a chance of delta tells the truth, and says that it does."""
    coins = generator.integers(0, 2, count) == 1
    told = generator.uniform(size=count) < delta
    truthful = told | (generator.uniform(size=count) < expit(epsilon))
    return coins, np.where(truthful, coins, ~coins), told


@pytest.mark.parametrize("only_told", [False, True])
def test_bounds_hold_as_often_as_they_say(only_told):
    """For a mechanism that uses up its epsilon and delta; also if only what delta tells is used."""
    generator, epsilon, delta, runs, times = np.random.default_rng(0), 1.0, 0.01, 1000, 2000
    too_high = {delta: 0, 0.0: 0}
    for _ in range(times):
        coins, answer, told = answers(generator, runs, epsilon, delta)
        made = told if only_told else np.ones(runs, bool)
        right, guesses = np.count_nonzero((coins == answer) & made), np.count_nonzero(made)
        for taken in too_high:
            too_high[taken] += lower_bound(right, guesses, runs, taken, 0.05) > epsilon
    assert too_high[delta] < times * (0.05 + 3 * (0.05 * 0.95 / times) ** 0.5)
    if only_told:
        assert too_high[0.0] > times / 4, "without delta the bound would be false"


def test_an_observer_that_learned_chance_finds_nothing():
    generator = np.random.default_rng(0)
    high = 0
    for _ in range(200):
        seen, coins = generator.standard_normal((400, 10)), generator.integers(0, 2, 400) == 1
        observer = train_observer(seen[:100], coins[:100], 300, 1e-5, 0.05)
        right, guesses = observer.guesses(seen[100:], coins[100:])
        high += lower_bound(right, guesses, 300, 1e-5, 0.05) > 0
    assert high < 200 * 0.05 + 3 * (200 * 0.05 * 0.95) ** 0.5


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"runs": 10}, "runs"),
        ({"confidence": 1.0}, "confidence"),
        ({"confidence": 0.3}, "confidence"),
        ({"others": -1}, "others"),
        ({"break_noise": 0.0}, "break_noise"),
    ],
)
def test_wrong_settings_are_refused(wrong, words):
    with pytest.raises(InvalidArgument, match=words):
        tacit.audit(planned("gaussian"), **wrong)


def test_only_a_plan_is_audited():
    with pytest.raises(InvalidArgument, match=r"takes a plan from tacit\.plan"):
        tacit.audit(MODEL)


@pytest.fixture
def schema_file(tmp_path):
    SCHEMA.to_yaml(tmp_path / "schema.yaml")
    return str(tmp_path / "schema.yaml")


def command(schema_file, *more):
    settings = ["--method", "variational", "--set", "num_steps=12", "--set", "sampling_rate=0.5"]
    options = ["--formula", "y ~ x", "--epsilon", "2", "--runs", "300", "--seed", "1"]
    return main(["audit", schema_file, *options, *settings, *more])


@pytest.mark.slow
def test_the_command_ends_with_0_if_the_claim_stands(schema_file, capsys):
    assert command(schema_file) == 0
    assert "The claim is not contradicted." in capsys.readouterr().out


def test_the_command_ends_with_1_if_the_claim_is_false(schema_file, capsys):
    assert command(schema_file, "--break-noise", "0.125", "--json") == 1
    told = json.loads(capsys.readouterr().out)
    assert told["contradicted"]
    assert told["lower_bound"] > told["claim"]
    assert (told["runs"], told["confidence"], told["noise_factor"]) == (300, 0.95, 0.125)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "--demo"),
        (["missing.yaml", "--formula", "y ~ x"], "missing.yaml"),
        (["--demo", "--formula", "y ~ x"], "leave them out"),
        (["--demo", "--confidence", "2"], "confidence"),
        (["--demo", "--runs", "3"], "runs"),
        (["--demo", "--adjacency", "sideways"], "adjacency"),
    ],
)
def test_wrong_arguments_end_with_2_and_a_sentence(arguments, words, capsys):
    assert main(["audit", *arguments]) == 2
    told = capsys.readouterr().err
    assert told.startswith("Error: ")
    assert words in told


def documented():
    """Commands of docs/evidence/audits.md, as they are written."""
    lines = DOCS.read_text(encoding="utf-8").splitlines()
    return [shlex.split(line)[1:] for line in lines if line.startswith("tacit ")]


@pytest.mark.slow
def test_the_commands_of_the_docs_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    example, own, *demos = documented()
    assert main(example) == 0
    assert main([*own, "--runs", "100", "--set", "num_steps=5"]) == 0
    assert "for a person." in capsys.readouterr().out
    assert demos == [["audit", "--demo"], ["audit", "--demo", "--break-noise", "0.5"]]


@pytest.mark.slow
@pytest.mark.parametrize(("factor", "code"), [("1", 0), ("0.5", 1)])
def test_the_demonstrations_plan_at_full_noise_and_at_half(factor, code):
    assert main(["audit", "--demo", "--seed", "1", "--break-noise", factor]) == code
