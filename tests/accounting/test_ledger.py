"""The budget book: what it admits, that it lasts, and that nothing gets past it."""

import multiprocessing
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time

import pytest

from tacit.accounting import PLD, Budget, calibrate, events
from tacit.accounting.ledger import Ledger
from tacit.errors import BudgetError, InvalidArgument


def run_of(budget):
    noise = calibrate.noise_multiplier(budget, sampling_rate=0.01, num_steps=100)
    return events.sampled_gaussian(noise, 0.01, 100)


def spend(ledger, epsilon, delta=1e-7):
    budget = Budget(epsilon, delta, ledger.total.adjacency)
    ledger.charge(run_of(budget), budget, label=f"run of {epsilon}")


def test_sums_add_up_to_the_total_and_no_further(tmp_path):
    ledger = Ledger(tmp_path / "r.db", total=Budget(3, 1e-6), unit="person")
    for _ in range(3):
        spend(ledger, 1)
    assert ledger.left == Budget(0, 1e-6 - 3e-7)
    with pytest.raises(BudgetError, match="left of epsilon 3"):
        spend(ledger, 0.001)
    assert [charge.label for charge in ledger.charges] == ["run of 1"] * 3


def test_delta_runs_out_too(tmp_path):
    ledger = Ledger(tmp_path / "r.db", total=Budget(10, 1e-6))
    spend(ledger, 0.1, 9e-7)
    with pytest.raises(BudgetError):
        spend(ledger, 0.1, 2e-7)


@pytest.mark.slow
def test_many_small_runs_fit_better_by_orders(tmp_path):
    total, small = Budget(3, 1e-6), Budget(0.1, 1e-9)
    event = run_of(small)

    def admitted(rule):
        ledger = Ledger(tmp_path / f"{rule}.db", total=total, rule=rule)
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
    Ledger(path, total=Budget(3, 1e-6), unit="person", rule="renyi")
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
    with pytest.raises(InvalidArgument, match="no ledger"):
        Ledger(tmp_path / "none.db")
    with pytest.raises(InvalidArgument, match="unit"):
        Ledger(tmp_path / "r.db", total=Budget(1), unit="household")
    with pytest.raises(InvalidArgument, match="rule"):
        Ledger(tmp_path / "r.db", total=Budget(1), rule="hope")
    with pytest.raises(InvalidArgument, match="pure"):
        Ledger(tmp_path / "r.db", total=Budget(1), rule="renyi")


def test_several_runs_are_booked_together_or_not_at_all(tmp_path):
    ledger = Ledger(tmp_path / "r.db", total=Budget(1.5, 1e-6))
    runs = [(run_of(b), b) for b in (Budget(1, 1e-7), Budget(0.9, 1e-7))]
    with pytest.raises(BudgetError):
        ledger.charge_all(runs)
    assert ledger.charges == []


def test_odd_paths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Ledger(":memory:", total=Budget(1))
    assert (tmp_path / ":memory:").exists()
    Ledger("a?mode=ro.db", total=Budget(1))
    assert (tmp_path / "a?mode=ro.db").exists()
    (tmp_path / "junk.db").write_text("this is no database, but it is long enough to be read")
    for path in ("no/such/folder.db", ".", "junk.db"):
        with pytest.raises(InvalidArgument, match="ledger"):
            Ledger(path, total=Budget(1))


def test_a_run_must_be_what_it_declares(tmp_path):
    ledger = Ledger(tmp_path / "r.db", total=Budget(3, 1e-6))
    with pytest.raises(BudgetError, match="more than"):
        ledger.charge(run_of(Budget(2, 1e-7)), Budget(1, 1e-7))
    with pytest.raises(BudgetError, match="adjacency"):
        ledger.charge(run_of(Budget(1, 1e-7, "replace")), Budget(1, 1e-7, "replace"))
    assert ledger.charges == []


def test_lines_cannot_be_changed_or_taken_back(tmp_path):
    ledger = Ledger(tmp_path / "r.db", total=Budget(3, 1e-6))
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


def test_two_processes_cannot_spend_the_same_budget(tmp_path):
    path = tmp_path / "r.db"
    ledger = Ledger(path, total=Budget(2.05, 1e-6))
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
    admitted = [queue.get(timeout=120) for _ in processes]
    for process in processes:
        process.join()
    assert sum(admitted) == len(ledger.charges) == 20


# A process that fits again and again, and notes on disk every time it reads rows.
FITTING = """
import os, sys
import numpy as np, jax.numpy as jnp
from tacit.accounting import Budget
from tacit.accounting.ledger import Ledger
from tacit.inference.variational import Variational
from tacit.interfaces.fit import fit
from tacit.models.model import Model, Parameter
from tacit.privacy.rows import Rows

path, marks = sys.argv[1:]
read = Rows.device_fields
def noted(rows):
    with open(marks, "a") as file:
        file.write("read\\n")
        file.flush()
        os.fsync(file.fileno())
    return read(rows)
Rows.device_fields = noted
model = Model(parameters={"m": Parameter()}, log_prior=lambda p: -p["m"] ** 2,
              log_likelihood=lambda p, row: -(row["y"] - p["m"]) ** 2)
rows = Rows({"y": np.zeros(20)})
ledger = Ledger(path)
print("ready", flush=True)
while True:
    fit(model, rows, budget=Budget(0.01, 1e-9), method=Variational(num_steps=2), ledger=ledger)
"""


def kill_at_random(tmp_path, kills, seed):
    path, marks = tmp_path / "r.db", tmp_path / "marks"
    marks.touch()
    ledger = Ledger(path, total=Budget(10_000, 1e-3))
    rng = random.Random(seed)
    for _ in range(kills):
        command = [sys.executable, "-c", FITTING, str(path), str(marks)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout.readline() == "ready\n"
            time.sleep(rng.uniform(0, 2.0))
        finally:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            process.stdout.close()
        reads = len(marks.read_text().splitlines())
        assert reads <= len(ledger.charges)
    assert reads > kills / 4  # the kills did fall among fits


def test_killed_fits_are_never_uncharged(tmp_path):
    kill_at_random(tmp_path, kills=6, seed=0)


@pytest.mark.slow
def test_two_hundred_kills(tmp_path):
    kill_at_random(tmp_path, kills=200, seed=1)
