"""Fits that stop after their count: what they say, what they are charged, and that they stay stopped."""

import json
import math
import pickle
import shutil
from dataclasses import replace

import jax
import numpy as np
import pytest

import tacit
from tacit.accounting import ledger as ledgers
from tacit.accounting.accountants import stopping_costs
from tacit.api import resume
from tacit.api.fit import fit_many
from tacit.api.plan import build_plan
from tacit.cli.main import main
from tacit.cli.runs import RunFolder
from tacit.errors import Interrupted, InvalidArgument, LedgerError, TooFewUnits, Unsaved
from tacit.inference.scoring import count_sd, min_count, stopping_probability
from tacit.models.front_ends import adapt_model
from tacit.models.jax_model import Model, Parameter
from tacit.privacy import checkpoint
from tacit.privacy.mechanisms import NoisySums
from tacit.privacy.noise import Randomness
from tacit.privacy.rows import Rows

BUDGET = tacit.Budget(1, 1e-6)
MODEL = adapt_model(
    Model(
        parameters={"m": Parameter()},
        log_prior=lambda p: -0.5 * p["m"] ** 2,
        log_likelihood=lambda p, row: -0.5 * (row["y"] - p["m"]) ** 2,
        simulate=lambda key, p, _: {"y": p["m"] + jax.random.normal(key)},
    ),
    None,
)
# None of its cells can be read; and as many rows that can.
UNREADABLE = Rows({"y": np.full(1000, np.nan, np.float32)})
READABLE = Rows({"y": np.random.default_rng(1).normal(0.5, 1, 1000).astype(np.float32)})
SHORT = tacit.Scoring(num_steps=8)
PLAN = build_plan(MODEL, None, UNREADABLE.blank(), BUDGET, SHORT)
COST = stopping_costs(PLAN.mechanism.event, PLAN.mechanism.stopped_event, BUDGET)[1]


class Killed(BaseException):
    """Stands for the end of the process."""


@pytest.fixture(autouse=True)
def keyed(monkeypatch):
    """Keys by which the count is small: of one without a unit, one in 44 is not."""
    keys = iter(bytes([number]) * 32 for number in range(1, 100))

    def chosen(seed=None):
        return Randomness(seed) if seed is not None else Randomness.from_key(next(keys))

    monkeypatch.setattr(resume, "Randomness", chosen)
    monkeypatch.setattr(checkpoint, "_MIN_SECONDS_BETWEEN_WRITES", 0.0)
    monkeypatch.setattr(checkpoint, "_WRITE_TIME_FACTOR", 0.0)


@pytest.fixture
def drawn(monkeypatch):
    """The numbers of steps whose noise was drawn."""
    seen, usual = [], NoisySums.noise

    def noise(self, bits, start, steps):
        seen.extend(range(start, start + steps))
        return usual(self, bits, start, steps)

    monkeypatch.setattr(NoisySums, "noise", noise)
    return seen


def new_ledger(folder, name="l.db", **more):
    return tacit.Ledger.new(folder / name, total=tacit.Budget(3, 1e-5), **more)


def stopped(**more):
    with pytest.raises(TooFewUnits) as raised:
        tacit.fit(PLAN, UNREADABLE, **more)
    return raised.value


def test_a_large_standard_deviation_is_written_out():
    found = resume.refusal(PLAN, TooFewUnits("", 0.0, 3123.0, 0.1, 1e-6), seeded=False)
    assert "(standard deviation 3,100)" in str(found)


@pytest.mark.parametrize("rule", ["sum", "renyi"])
@pytest.mark.parametrize("kept", [False, True])
def test_a_table_that_cannot_be_read_costs_its_count(tmp_path, drawn, rule, kept):
    """And says so in one sentence, with what was released and what to do."""
    ledger = new_ledger(tmp_path, rule=rule)
    found = stopped(ledger=ledger, run=tmp_path / "run" if kept else None)
    assert drawn == [0]
    (charge,) = ledger.charges
    assert charge.stopped
    assert (charge.epsilon, charge.delta) == (found.epsilon, found.delta)
    assert charge.epsilon == COST.epsilon == pytest.approx(0.147, abs=0.001)
    if rule == "sum":
        assert ledger.left == tacit.Budget(3 - COST.epsilon, 9e-6)
    assert found.sd == count_sd(PLAN.mechanism) == pytest.approx(42.2, abs=0.1)
    assert found.count < 2 * found.sd
    said = (
        f"A noisy count found about {max(round(found.count), 0)} complete rows (standard deviation 42), too few to "
        "learn anything, so the fit stopped and spent only epsilon 0.14713 (delta 1e-6) of epsilon 1; to see why "
        "rows cannot be read, run: tacit schema check SCHEMA DATA --rows."
    )
    assert str(found) == said
    assert str(pickle.loads(pickle.dumps(found))) == said  # noqa: S301 (our own)


def test_a_table_without_a_row_stops_too():
    with pytest.raises(TooFewUnits, match=r"found about \d+ complete rows"):
        tacit.fit(PLAN, Rows({"y": np.zeros(0, np.float32)}))


def test_people_are_counted_and_not_rows():
    rows = np.random.default_rng(2).normal(size=400).astype(np.float32)
    people = Rows.by_person({"y": rows}, np.arange(400) // 40, 40)
    with pytest.raises(TooFewUnits, match=r"about \d+ people with complete rows"):
        tacit.fit(MODEL, people, budget=BUDGET, method=SHORT)


def test_a_seed_gives_the_same_count_and_says_that_it_is_not_private():
    first, second = stopped(seed=3), stopped(seed=3)
    assert first.count == second.count != stopped(seed=4).count
    assert str(first).startswith("Seeded, so not private: a noisy count")


def test_without_the_check_the_fit_goes_on_and_costs_all(tmp_path, drawn):
    ledger, method = new_ledger(tmp_path), tacit.Scoring(num_steps=8, check_count=False)
    post = tacit.fit(MODEL, UNREADABLE, budget=BUDGET, method=method, ledger=ledger)
    assert len(drawn) == 8
    assert ledger.left.epsilon == post.privacy.budget_left.epsilon == 2
    with pytest.raises(InvalidArgument, match="check_count must be True or False"):
        tacit.Scoring(check_count=1)


def test_a_fit_that_goes_on_is_charged_and_stated_in_full(tmp_path, drawn):
    ledger = new_ledger(tmp_path)
    post = tacit.fit(PLAN, READABLE, ledger=ledger)
    (charge,) = ledger.charges
    assert not charge.stopped
    assert charge.epsilon == post.privacy.epsilons["add-remove"] == PLAN.cost.epsilon == 1
    assert drawn == list(range(8))


def test_a_method_that_says_so_after_its_last_step_is_charged_in_full(tmp_path, monkeypatch, drawn):
    """What counts is what the gate has executed, and not who raises what."""
    ledger, usual = new_ledger(tmp_path), tacit.Scoring.run

    def late(*arguments):
        usual(*arguments)
        raise TooFewUnits("too few", 3.0, 1.0)

    monkeypatch.setattr(tacit.Scoring, "run", late)
    with pytest.raises(TooFewUnits, match="too few"):
        tacit.fit(PLAN, READABLE, ledger=ledger)
    assert len(drawn) == 8
    assert ledger.left.epsilon == 2
    assert not ledger.charges[0].stopped


POINTS = {
    "after the charge": (ledgers.Ledger, "charge", 1),
    "when the count is stored": (checkpoint, "write_atomically", 3),
    "when the stop waits": (resume, "write_atomically", 1),
    "when it was recorded": (ledgers.Ledger, "finish", 1),
    "when it is in its place": (resume, "sync_folder", 1),
}


def killed(point, folder, **more):
    """A fit that is killed there."""
    holder, name, number = POINTS[point]
    with pytest.MonkeyPatch.context() as patch:
        usual, calls = getattr(holder, name), []

        def counted(*arguments, **named):
            found = usual(*arguments, **named)
            calls.append(name)
            if len(calls) == number:
                raise Killed
            return found

        patch.setattr(holder, name, counted)
        patch.setattr(resume.ResumableRun, "discard_uncharged", lambda _: None)
        with pytest.raises(Killed):
            tacit.fit(PLAN, UNREADABLE, run=folder, **more)


@pytest.mark.parametrize("point", POINTS)
def test_a_stopped_fit_that_was_killed_has_one_charge_one_count_and_one_end(tmp_path, drawn, point):
    ledger, run = new_ledger(tmp_path), tmp_path / "run"
    killed(point, run, ledger=ledger)
    before = list(drawn)
    assert before == ([] if point == "after the charge" else [0])
    found = stopped(ledger=ledger, run=run)
    assert drawn == [0]
    (charge,) = ledger.charges
    assert charge.stopped
    assert [path.name for path in run.iterdir()] == ["stopped.json"]
    held = json.loads((run / "stopped.json").read_text())
    assert (held["message"], held["count"]) == (str(found), found.count)
    again = stopped(ledger=ledger, run=run)
    assert (str(again), again.count) == (str(found), found.count)
    assert drawn == [0]
    assert ledger.charges == [charge]


def test_a_fit_that_was_killed_after_its_count_goes_on_without_another(tmp_path, drawn):
    """To the posterior of a fit that was not killed."""
    ledger, run = new_ledger(tmp_path), tmp_path / "run"
    with pytest.MonkeyPatch.context() as patch:
        usual = checkpoint.CheckpointedSession.store

        def stored(self, gate, position):
            usual(self, gate, position)
            if position.steps == 1:
                raise Killed

        patch.setattr(checkpoint.CheckpointedSession, "store", stored)
        patch.setattr(resume.ResumableRun, "discard_uncharged", lambda _: None)
        with pytest.raises(Killed):
            tacit.fit(PLAN, READABLE, run=run, ledger=ledger)
        key = bytes.fromhex(json.loads((run / "unfinished" / "keys").read_text())["key"])
        patch.setattr(resume, "Randomness", lambda _: Randomness.from_key(key))
        whole = tacit.fit(PLAN, READABLE, ledger=new_ledger(tmp_path, "other.db"))
    drawn.clear()
    assert tacit.fit(PLAN, READABLE, run=run, ledger=ledger) == whole
    assert drawn == list(range(1, 8))
    assert ledger.left.epsilon == 2


def test_of_two_copies_one_stops(tmp_path):
    """Whoever is recorded first; the other says nothing of its count."""
    ledger, run, copy = new_ledger(tmp_path), tmp_path / "run", tmp_path / "copy"
    killed("when the count is stored", run, ledger=ledger)
    shutil.copytree(run, copy)
    stopped(run=run, ledger=ledger)
    with pytest.raises(InvalidArgument, match="A result has left"):
        tacit.fit(PLAN, UNREADABLE, run=copy, ledger=ledger)
    assert len(ledger.charges) == 1


def test_a_copy_that_would_say_another_count_says_nothing(tmp_path):
    """Were the arithmetic of two machines not the same, one charge would pay for two counts."""
    ledger, run, copy = new_ledger(tmp_path), tmp_path / "run", tmp_path / "copy"
    killed("when the stop waits", run, ledger=ledger)
    shutil.copytree(run, copy)
    held = json.loads((copy / "unfinished" / "stopped.json").read_text())
    (copy / "unfinished" / "stopped.json").write_text(json.dumps(held | {"count": 1.0}))
    stopped(run=run, ledger=ledger)
    with pytest.raises(Unsaved, match="A result has left"):
        tacit.fit(PLAN, UNREADABLE, run=copy, ledger=ledger)


def test_a_stop_that_cannot_be_recorded_stays_charged_in_full(tmp_path, monkeypatch):
    """Without a folder for good; in one it is recorded when the run goes on."""
    ledger, run = new_ledger(tmp_path), tmp_path / "run"

    def locked(*_, **__):
        raise LedgerError("l.db is locked by another process.")

    with monkeypatch.context() as patch:
        patch.setattr(ledgers.Ledger, "finish", locked)
        with pytest.raises(LedgerError, match=r"stays charged in full: l\.db is locked"):
            tacit.fit(PLAN, UNREADABLE, ledger=ledger)
        with pytest.raises(Unsaved, match=r"charged and then failed: l\.db is locked.*To continue"):
            tacit.fit(PLAN, UNREADABLE, ledger=ledger, run=run)
    assert [each.stopped for each in ledger.charges] == [False, False]
    stopped(ledger=ledger, run=run)
    assert [each.stopped for each in ledger.charges] == [False, True]


def test_an_interruption_while_a_stop_is_recorded_leaves_the_whole_charge(tmp_path, monkeypatch):
    ledger = new_ledger(tmp_path)

    def pressed(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ledgers.Ledger, "finish", pressed)
        with pytest.raises(Interrupted, match="counts as spent"):
            tacit.fit(PLAN, UNREADABLE, ledger=ledger)
    assert ledger.left.epsilon == 2


def test_of_several_fits_those_that_stop_are_charged_so_and_the_others_are_not_lost(tmp_path):
    ledger = new_ledger(tmp_path)
    with pytest.raises(TooFewUnits) as raised:
        fit_many(
            MODEL, [UNREADABLE, READABLE, UNREADABLE], [BUDGET] * 3, SHORT, ledger=ledger,
            seeds=[1, 2, 3],
        )  # fmt: skip
    (post,) = raised.value.posteriors
    assert post.privacy.budget_left.epsilon == 1
    assert [each.stopped for each in ledger.charges] == [True, False, True]
    assert math.isclose(ledger.left.epsilon, 3 - 1 - 2 * COST.epsilon)


def stopped_share(mechanism, units, runs=100_000):
    """How often a fit of so many units stops: by the noise that the gate would draw."""
    scale, rate = mechanism.phases[0][0], mechanism.sampling_rate
    counts = NoisySums(
        sampling_rate=rate, num_steps=runs, clip=1.0, noise_multiplier=scale, dimension=1
    )
    noise = counts.noise(Randomness(5), 0, runs)[:, 0] * counts.grid
    sampled = np.random.default_rng(1).binomial(units, rate, runs)
    return float(np.mean((sampled + noise) / rate < min_count(mechanism)))


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_useful_fits_go_on_and_empty_tables_stop(epsilon):
    """Fewer than one in 1,000 stop with 5.2 standard deviations of the count, and 97 in 100 without a unit."""
    mechanism = tacit.Scoring().calibrate(MODEL, tacit.Budget(epsilon, 1e-6))
    useful = math.ceil(5.2 * count_sd(mechanism))
    assert stopped_share(mechanism, useful) < 1e-3
    assert stopped_share(mechanism, 0) > 0.97
    for units in (0, useful // 5, useful // 2):
        expected = stopping_probability(mechanism, units)
        assert abs(stopped_share(mechanism, units) - expected) < 0.01


def test_a_part_of_the_units_tells_whether_there_are_enough():
    """Of a million that were declared, a hundredth is enough to go on."""
    million = tacit.Scoring().for_size(MODEL, 1_000_000, BUDGET)
    assert million.sampling_rate < 0.3
    mechanism = million.calibrate(MODEL, BUDGET)
    assert stopped_share(mechanism, 10_000) < 1e-3
    assert stopped_share(mechanism, 0) > 0.97
    expected = stopping_probability(mechanism, 120)
    assert 0.01 < expected < 0.99
    assert abs(stopped_share(mechanism, 120) - expected) < 0.02


TABLE = "y\n" + "\n".join(f"{value} mmHg" for value in range(100, 180)) * 10
SCHEMA = tacit.Schema({"y": tacit.Number(80, 220)})


@pytest.fixture
def study(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "y.csv").write_text(TABLE)
    SCHEMA.to_yaml(tmp_path / "y.yaml")
    new_ledger(tmp_path)
    return tmp_path


def test_the_command_line_says_it_and_goes_no_further(study, capsys, drawn):
    arguments = ["fit", "y.csv", "--schema", "y.yaml", "--formula", "y ~ 1"]
    amounts = ["--epsilon", "1", "--delta", "1e-6"]
    more = ["--ledger", "l.db", "--set", "num_steps=8", "--out", "run", "--quiet"]
    assert main([*arguments, *amounts, *more]) == 5
    said = capsys.readouterr().err
    assert said.startswith("Error: A noisy count found about ")
    assert said.count("\n") == 1
    assert sorted(path.name for path in (study / "run").iterdir()) == [
        "schema.yaml", "settings.yaml", "stopped.json",
    ]  # fmt: skip
    for command in ("resume", "report", "explain"):
        assert main([command, "run"]) == 5
        assert capsys.readouterr().err == said
    assert drawn == [0]
    assert main(["ledger", "show", "l.db"]) == 0
    shown = capsys.readouterr().out
    assert "stopped after its count" in " ".join(shown.split())
    assert "Left: epsilon 2.85" in shown
    assert main(["ledger", "show", "l.db", "--json"]) == 0
    (charge,) = json.loads(capsys.readouterr().out)["charges"]
    assert charge["stopped"] is True
    assert main(["ledger", "page", "l.db", "--out", "l.html"]) == 0
    assert "stopped after its count" in (study / "l.html").read_text()
    folder = RunFolder(study / "run")
    folder.check_empty()  # whoever mends the schema types the same command again
    (study / "run" / "notes.txt").write_text("mine")
    with pytest.raises(InvalidArgument, match="not empty"):
        folder.check_empty()


def test_a_plan_says_when_it_stops_and_warns_if_that_is_likely():
    plan = replace(PLAN, size=100)
    costs = "the fit stops there and costs epsilon 0.14713."
    assert f"If a noisy count finds fewer than 84 rows, {costs}" in plan.details()
    chance = f"{stopping_probability(plan.mechanism, 100):.0%}"
    assert any(f"with a probability of {chance}" in each for each in plan.warnings)
    assert not replace(plan, size=400).warnings
    method = replace(SHORT, check_count=False)
    never = build_plan(MODEL, None, UNREADABLE.blank(), BUDGET, method, 100)
    assert not never.warnings
    assert "the fit stops" not in never.details()


@pytest.mark.slow
def test_forecasts_are_of_fits_that_go_on():
    """However few units are simulated."""
    model = tacit.glm("y ~ 1", schema=SCHEMA)
    found = tacit.forecast(model, size=20, budgets=BUDGET, repeats=2, method=SHORT)
    assert len(found.lines) == 2
