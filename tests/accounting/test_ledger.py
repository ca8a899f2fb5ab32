"""The budget book: what it admits, that it lasts, and that nothing gets past it."""

import multiprocessing
import random
import signal
import sqlite3
import subprocess
import sys

import pytest

from tacit.accounting import PLD, Budget, calibrate, events
from tacit.accounting.ledger import Ledger
from tacit.errors import BudgetError, InvalidArgument, LedgerError


def run_of(budget):
    noise = calibrate.noise_multiplier(budget, sampling_rate=0.01, num_steps=100)
    return events.sampled_gaussian(noise, 0.01, 100)


def spend(ledger, epsilon, delta=1e-7):
    budget = Budget(epsilon, delta, ledger.total.adjacency)
    ledger.charge(run_of(budget), budget, label=f"run of {epsilon}")


def test_sums_add_up_to_the_total_and_no_further(tmp_path):
    ledger = Ledger.new(tmp_path / "r.db", total=Budget(3, 1e-6), unit="person")
    for _ in range(3):
        spend(ledger, 1)
    assert ledger.left == Budget(0, 1e-6 - 3e-7)
    with pytest.raises(BudgetError, match="left of epsilon 3"):
        spend(ledger, 0.001)
    assert [charge.label for charge in ledger.charges] == ["run of 1"] * 3


@pytest.mark.parametrize("rule", ["sum", "renyi"])
def test_a_receipt_is_found_again_by_its_run(tmp_path, rule):
    """As the charge was answered, whatever was charged later."""
    ledger = Ledger.new(tmp_path / "r.db", total=Budget(3, 1e-5), rule=rule)
    small = Budget(0.5, 1e-7)
    event, other = run_of(small), run_of(Budget(0.4, 1e-7))
    given = [ledger.charge(event, small, "a fit", run_id=f"run {i}") for i in range(3)]
    assert [Ledger(tmp_path / "r.db").receipt(event, f"run {i}") for i in range(3)] == given
    assert ledger.receipt(event, "run 3") is None
    assert ledger.receipt(other, "run 1") is None
    assert len(ledger.charges) == 3


def test_a_run_is_not_recognised_by_what_users_write(tmp_path):
    """A label may end like the name of somebody else's run."""
    ledger = Ledger.new(tmp_path / "r.db", total=Budget(3, 1e-5))
    small = Budget(0.5, 1e-7)
    ledger.charge(run_of(small), small, "a study, run 0123456789abcdef")
    assert ledger.receipt(run_of(small), "run 0123456789abcdef") is None
    assert ledger.receipt(run_of(small), "0123456789abcdef") is None


def test_a_run_is_charged_once(tmp_path):
    ledger = Ledger.new(tmp_path / "r.db", total=Budget(3, 1e-5))
    small = Budget(0.5, 1e-7)
    for _ in range(2):
        ledger.charge(run_of(small), small)
    ledger.charge(run_of(small), small, run_id="r")
    with pytest.raises(LedgerError, match="does not accept such a line"):
        ledger.charge(run_of(small), small, run_id="r")
    assert [each.run_id for each in ledger.charges] == ["", "", "r"]


def test_one_result_leaves_for_a_charge(tmp_path):
    """The same one may leave again, after a crash; whatever else was finished in between."""
    ledger = Ledger.new(tmp_path / "r.db", total=Budget(3, 1e-5))
    small = Budget(0.5, 1e-7)
    for name in ("", "first", "second"):
        ledger.charge(run_of(small), small, run_id=name)
    assert ledger.finished_digest("first") is None
    assert ledger.finish("second", "b") == "b"
    assert ledger.finish("first", "a") == "a"
    assert ledger.finish("first", "other") == "a"
    assert Ledger(tmp_path / "r.db").finish("first", "a") == "a"
    assert (ledger.finished_digest("first"), ledger.finished_digest("second")) == ("a", "b")
    for name in ("", "third"):
        with pytest.raises(LedgerError, match="no charge for the run"):
            ledger.finish(name, "a")


def test_delta_runs_out_too(tmp_path):
    ledger = Ledger.new(tmp_path / "r.db", total=Budget(10, 1e-6))
    spend(ledger, 0.1, 9e-7)
    with pytest.raises(BudgetError):
        spend(ledger, 0.1, 2e-7)


@pytest.mark.slow
def test_many_small_runs_fit_better_by_orders(tmp_path):
    total, small = Budget(3, 1e-6), Budget(0.1, 1e-9)
    event = run_of(small)

    def admitted(rule):
        ledger = Ledger.new(tmp_path / f"{rule}.db", total=total, rule=rule)
        for count in range(2000):
            try:
                ledger.charge(event, small)
            except BudgetError:
                return count, ledger
        return 2000, ledger

    by_sums, _ = admitted("sum")
    by_orders, ledger = admitted("renyi")
    assert by_sums == 30
    assert by_orders > 2 * by_sums
    # The filter's promise holds for what was admitted, by the tight accountant.
    assert PLD().epsilon(events.repeat(event, by_orders), total.delta) <= total.epsilon
    assert ledger.left.epsilon < 0.5


def test_fixed_when_opened(tmp_path):
    path = tmp_path / "r.db"
    Ledger.new(path, total=Budget(3, 1e-6), unit="person", rule="renyi")
    again = Ledger(path)
    assert (again.total, again.unit, again.rule) == (Budget(3, 1e-6), "person", "renyi")
    for change in (
        {"total": Budget(4, 1e-6)},
        {"total": Budget(3, 1e-6, "replace")},
        {"unit": "row"},
        {"rule": "sum"},
    ):
        with pytest.raises(InvalidArgument, match="cannot be changed"):
            Ledger(path, **change)


def test_wrong_openings(tmp_path):
    with pytest.raises(LedgerError, match="no ledger"):
        Ledger(tmp_path / "none.db")
    assert not list(tmp_path.iterdir())
    with pytest.raises(InvalidArgument, match="total"):
        Ledger.new(tmp_path / "r.db", total=3)
    with pytest.raises(InvalidArgument, match="unit"):
        Ledger.new(tmp_path / "r.db", total=Budget(1), unit="household")
    with pytest.raises(InvalidArgument, match="rule"):
        Ledger.new(tmp_path / "r.db", total=Budget(1), rule="hope")
    with pytest.raises(InvalidArgument, match="pure"):
        Ledger.new(tmp_path / "r.db", total=Budget(1), rule="renyi")


def test_several_runs_are_booked_together_or_not_at_all(tmp_path):
    ledger = Ledger.new(tmp_path / "r.db", total=Budget(1.5, 1e-6))
    runs = [(run_of(b), b) for b in (Budget(1, 1e-7), Budget(0.9, 1e-7))]
    with pytest.raises(BudgetError):
        ledger.charge_all(runs)
    assert ledger.charges == []


def test_odd_paths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Ledger.new(":memory:", total=Budget(1))
    assert (tmp_path / ":memory:").exists()
    Ledger.new("a?mode=ro.db", total=Budget(1))
    assert (tmp_path / "a?mode=ro.db").exists()
    (tmp_path / "junk.db").write_text("this is no database, but it is long enough to be read")
    for path in ("no/such/folder.db", ".", "junk.db"):
        with pytest.raises(LedgerError, match="ledger"):
            Ledger.new(path, total=Budget(1))
        with pytest.raises(LedgerError, match=r"ledger|cannot be opened"):
            Ledger(path)


def test_a_run_must_be_what_it_declares(tmp_path):
    ledger = Ledger.new(tmp_path / "r.db", total=Budget(3, 1e-6))
    with pytest.raises(BudgetError, match="more than"):
        ledger.charge(run_of(Budget(2, 1e-7)), Budget(1, 1e-7))
    with pytest.raises(BudgetError, match="adjacency"):
        ledger.charge(run_of(Budget(1, 1e-7, "replace")), Budget(1, 1e-7, "replace"))
    assert ledger.charges == []


def test_lines_cannot_be_changed_or_taken_back(tmp_path):
    ledger = Ledger.new(tmp_path / "r.db", total=Budget(3, 1e-6))
    spend(ledger, 1)
    connection = sqlite3.connect(tmp_path / "r.db")
    for attack in (
        "DELETE FROM charges",
        "UPDATE charges SET epsilon = 0",
        "UPDATE book SET epsilon = 99",
        "DELETE FROM book",
    ):
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            connection.execute(attack)
    connection.close()
    assert len(ledger.charges) == 1


def _spend_all(path, ready, go, queue):
    ledger = Ledger(path)
    budget = Budget(0.1, 1e-8)
    event = run_of(budget)
    ready.release()
    go.wait()
    admitted = 0
    for _ in range(30):
        try:
            ledger.charge(event, budget)
            admitted += 1
        except BudgetError:
            break
    queue.put(admitted)


@pytest.mark.processes
def test_two_processes_cannot_spend_the_same_budget(tmp_path):
    path = tmp_path / "r.db"
    ledger = Ledger.new(path, total=Budget(2.05, 1e-6))
    context = multiprocessing.get_context("spawn")
    ready, go, queue = context.Semaphore(0), context.Event(), context.Queue()
    processes = [
        context.Process(target=_spend_all, args=(path, ready, go, queue)) for _ in range(2)
    ]
    for process in processes:
        process.start()
    for _ in processes:
        ready.acquire()
    go.set()
    admitted = [queue.get() for _ in processes]
    for process in processes:
        process.join()
    assert sum(admitted) == len(ledger.charges) == 20


# A process that fits, notes on disk every time it reads rows, and stops where it is told to.
FITTING = """
import os, signal, sys
import numpy as np
from tacit.accounting import Budget
from tacit.accounting.ledger import Ledger
from tacit.inference.variational import Variational
from tacit.api.fit import fit
from tacit.models.jax_model import Model, Parameter
from tacit.privacy.rows import Rows

path, marks, point = sys.argv[1:]

def reached(name):
    if name == point:
        print(name, flush=True)
        signal.pause()  # until it is killed

def around(owner, name, before=None, after=None):
    original = getattr(owner, name)
    def wrapped(*arguments, **named):
        reached(before)
        found = original(*arguments, **named)
        reached(after)
        return found
    setattr(owner, name, wrapped)

def note():
    with open(marks, "a") as file:
        file.write("read\\n")
        file.flush()
        os.fsync(file.fileno())

read = Rows._device_fields
def noted(rows, length=None):
    note()
    return read(rows, length)
Rows._device_fields = noted
around(Rows, "_device_fields", after="read")
around(Ledger, "charge", "asked", "charged")
around(Ledger, "append_charge", after="booked")  # in the transaction, which is not at its end

class Watch:
    # Ends the process after so many calls and returns, of Tacit and of the database.
    def __init__(self, limit=None):
        self.count, self.limit = 0, limit
    def __call__(self, frame, event, argument):
        if event.startswith("c_"):
            mine = type(getattr(argument, "__self__", None)).__module__ == "sqlite3"
        else:
            mine = frame.f_globals.get("__name__", "").startswith("tacit.")
        self.count += mine
        if self.limit is not None and self.count > self.limit:
            os.kill(os.getpid(), signal.SIGKILL)

model = Model(parameters={"m": Parameter()}, log_prior=lambda p: -p["m"] ** 2,
              log_likelihood=lambda p, row: -(row["y"] - p["m"]) ** 2)
rows = Rows({"y": np.zeros(20)})
ledger = Ledger(path)

def run(watch=None):
    sys.setprofile(watch)
    fit(model, rows, budget=Budget(0.01, 1e-9), method=Variational(num_steps=2), ledger=ledger)
    sys.setprofile(None)
    reached("fitted")

if point.startswith("0."):  # of a fit, as long as the second one is
    run()
    run(usual := Watch())
    run(Watch(int(float(point) * usual.count)))
else:
    run()
"""


class Killed:
    """A book, and processes that fit and are killed at a point of their way."""

    def __init__(self, folder):
        self.path, self.marks = folder / "r.db", folder / "marks"
        self.marks.touch()
        self.ledger = Ledger.new(self.path, total=Budget(10_000, 1e-3))

    def fit(self, point):
        """Kills a fit at a point; what it charged, and how often it read rows."""
        before = self.held()
        command = [sys.executable, "-c", FITTING, str(self.path), str(self.marks), point]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                said = process.stdout.readline()  # it is there, or has ended
            finally:
                process.kill()
        assert process.returncode == -signal.SIGKILL
        assert said == (f"{point}\n" if point.isalpha() else "")
        charges, reads = self.held()
        return charges - before[0], reads - before[1]

    def held(self):
        return len(self.ledger.charges), len(self.marks.read_text().splitlines())


@pytest.mark.processes
@pytest.mark.parametrize(
    ("point", "charges", "reads"),
    [
        ("charged", 1, False),
        pytest.param("booked", 0, False, marks=pytest.mark.slow),
        pytest.param("asked", 0, False, marks=pytest.mark.slow),
        pytest.param("read", 1, True, marks=pytest.mark.slow),
        pytest.param("fitted", 1, True, marks=pytest.mark.slow),
    ],
)
def test_killed_fits_are_never_uncharged(tmp_path, point, charges, reads):
    killed = Killed(tmp_path)
    found = killed.fit(point)
    assert (found[0], found[1] > 0) == (charges, reads)


@pytest.mark.processes
@pytest.mark.slow
def test_two_hundred_kills(tmp_path):
    killed, rng = Killed(tmp_path), random.Random(1)
    within = 0
    for _ in range(200):
        charges, reads = killed.fit(f"{rng.random():.6f}")
        assert charges in {2, 3}  # of the two fits before, and of the one that was killed
        assert reads in {2, 3}
        assert reads <= charges
        within += charges == 3
    assert 0 < within < 200  # some came before the charge, some after
