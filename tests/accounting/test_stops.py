"""Runs that stop early: what counts of their charges, and that all of it together keeps the promise."""

import math
import sqlite3
from contextlib import closing
from threading import Thread

import numpy as np
import pytest
from scipy.special import ndtr

from tacit.accounting import PLD, Budget, calibrate, events
from tacit.accounting.accountants import stopping_costs, unstopped_budget
from tacit.accounting.ledger import Ledger
from tacit.errors import BudgetError, LedgerError, Overspent

ADJACENCIES = ["add-remove", "replace"]
# Noise of a count for a hundredth of what all steps cost, and of the other steps.
SHARES = ((0.01, 1), (0.3, 16), (0.69, 12))


def steps_within(budget):
    """A run as the default method's, and what it does until it may stop."""

    def schedule(noise):
        return [(noise * math.sqrt(number / share), number) for share, number in SHARES]

    noise = calibrate.calibrate(
        lambda noise: events.sampled_gaussian(schedule(noise), 1.0), unstopped_budget(budget)
    )
    return events.sampled_gaussian(schedule(noise), 1.0), events.sampled_gaussian(
        schedule(noise)[:1], 1.0
    )


def mu_of(event, adjacency):
    """Of Gaussian releases: how far apart the neighbours' sums are, in standard deviations of the noise."""
    squares = sum(n / leaf.noise_multiplier**2 for leaf, n in events.leaves(event))
    return (2 if adjacency == "replace" else 1) * math.sqrt(squares)


def hockey_stick(mu, epsilon):
    """The delta of normal noise at an epsilon (Balle and Wang 2018)."""
    return ndtr(mu / 2 - epsilon / mu) - np.exp(epsilon) * ndtr(-mu / 2 - epsilon / mu)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("epsilon", [0.1, 1, 6])
def test_both_outcomes_fit_into_one_delta(adjacency, epsilon):
    """What a run may reveal beyond either epsilon has a probability of at most delta in all."""
    budget = Budget(epsilon, 1e-6, adjacency)
    event, stopped = steps_within(budget)
    whole, early = stopping_costs(event, stopped, budget)
    assert whole == budget
    assert early.delta == budget.delta
    assert 0.08 * epsilon < early.epsilon < 0.2 * epsilon
    beyond = [
        hockey_stick(mu_of(each, adjacency), cost.epsilon)
        for each, cost in ((event, whole), (stopped, early))
    ]
    assert beyond[0] + beyond[1] <= budget.delta
    assert beyond[1] > 0


def test_a_run_that_leaves_no_delta_for_its_stop_is_refused(tmp_path):
    """One that just fits into its budget without a stop."""
    event, stopped = events.gaussian(4.0), events.gaussian(40.0)
    budget = Budget(PLD().epsilon(event, 1e-6), 1e-6)
    ledger = Ledger.new(tmp_path / "l.db", total=Budget(3, 1e-5))
    ledger.charge(event, budget)
    with pytest.raises(BudgetError, match="would cost more"):
        ledger.charge(event, budget, run_id="r", stopped=stopped)
    assert len(ledger.charges) == 1


def test_a_stop_never_costs_more_than_the_whole(tmp_path):
    """At a small part of a large delta, a single step may have a larger epsilon than all of them at delta."""
    budget = Budget(0.01, 0.01)
    event, stopped = steps_within(budget)
    assert stopping_costs(event, stopped, budget)[1].epsilon == budget.epsilon
    ledger = Ledger.new(tmp_path / "l.db", total=Budget(1, 0.1))
    ledger.charge(event, budget, run_id="r", stopped=stopped)
    ledger.finish("r", "d", stopped=True)
    assert ledger.left == Budget(0.99, 0.09)


@pytest.fixture(scope="module")
def one():
    budget = Budget(1, 1e-6)
    return (*steps_within(budget), budget)


def charged(ledger, one, name, **more):
    event, stopped, budget = one
    return ledger.charge(event, budget, "a fit", run_id=name, stopped=stopped, **more)


def test_a_run_counts_in_full_until_it_is_known_to_have_stopped(tmp_path, one):
    """Its delta counts in any case."""
    ledger = Ledger.new(tmp_path / "l.db", total=Budget(2, 1e-5))
    event, stopped, budget = one
    receipt = charged(ledger, one, "a")
    charged(ledger, one, "b")
    assert ledger.left.epsilon == 0
    with pytest.raises(Overspent):
        charged(ledger, one, "c")
    assert ledger.finish("a", "digest", stopped=True) == "digest"
    early = stopping_costs(event, stopped, budget)[1].epsilon
    assert ledger.left == Budget(round(1 - early, 12), 8e-6)
    first, second = Ledger(tmp_path / "l.db").charges
    assert (first.epsilon, first.delta, first.stopped) == (early, 1e-6, True)
    assert (second.epsilon, second.delta, second.stopped) == (1, 1e-6, False)
    assert first.described == "a fit; stopped after its count"
    assert ledger.receipt(event, "a").before == receipt.before
    with pytest.raises(Overspent):  # what is left is less than a whole run
        charged(ledger, one, "c")


def test_a_run_has_stopped_or_finished_and_never_both(tmp_path, one):
    ledger = Ledger.new(tmp_path / "l.db", total=Budget(3, 1e-5))
    charged(ledger, one, "a")
    charged(ledger, one, "b")
    assert ledger.finish("a", "posterior") == "posterior"
    assert ledger.finish("a", "count", stopped=True) == "posterior"
    assert ledger.left.epsilon == 1  # it counts in full
    assert ledger.finish("b", "count", stopped=True) == "count"
    assert ledger.finish("b", "posterior") == "count"
    assert ledger.finish("b", "another count", stopped=True) == "count"
    assert [each.stopped for each in ledger.charges] == [False, True]


def test_only_a_run_that_was_charged_as_one_can_stop(tmp_path, one):
    event, _, budget = one
    ledger = Ledger.new(tmp_path / "l.db", total=Budget(3, 1e-5))
    ledger.charge(event, budget, run_id="a")
    with pytest.raises(LedgerError, match="that may stop early"):
        ledger.finish("a", "digest", stopped=True)
    with pytest.raises(LedgerError, match="that may stop early"):
        ledger.finish("", "digest", stopped=True)
    assert ledger.left.epsilon == 2
    assert ledger.finish("a", "posterior") == "posterior"


def test_under_orders_a_stopped_run_costs_a_hundredth(tmp_path, one):
    event, stopped, _ = one
    ledger = Ledger.new(tmp_path / "l.db", total=Budget(1.6, 1e-5), rule="renyi")
    runs = 2
    for number in range(runs):
        charged(ledger, one, f"run {number}")
    with pytest.raises(Overspent):
        charged(ledger, one, "one more")
    for number in range(runs):
        ledger.finish(f"run {number}", "digest", stopped=True)
    divergences = [ledger._filter.divergence(each) for each in (event, stopped)]
    assert math.isclose(divergences[1], divergences[0] / 100)
    with closing(sqlite3.connect(tmp_path / "l.db")) as connection:
        kept = connection.execute("SELECT divergence, stopped_divergence FROM charges").fetchall()
    assert kept == [tuple(divergences)] * runs
    charged(ledger, one, "one more")  # a whole run fits again


def test_several_runs_that_are_charged_together_stop_one_by_one(tmp_path, one):
    event, stopped, budget = one
    ledger = Ledger.new(tmp_path / "l.db", total=Budget(3, 1e-5))
    ledger.charge_all(
        [(event, budget)] * 3, "fits", run_ids=["a", "b", "c"], stopped=[stopped, None, stopped]
    )
    ledger.finish("c", "digest", stopped=True)
    with pytest.raises(LedgerError, match="that may stop early"):
        ledger.finish("b", "digest", stopped=True)
    assert [each.stopped for each in ledger.charges] == [False, False, True]


def test_stops_and_charges_at_once_lose_nothing(tmp_path, one):
    """What is left is right in the end, and never less than nothing in between."""
    path = Ledger.new(tmp_path / "l.db", total=Budget(4, 1e-4)).path
    early = stopping_costs(*one)[1].epsilon
    seen = []

    def spend(name):
        own = Ledger(path)
        for number in range(4):
            try:
                charged(own, one, f"{name} {number}")
            except Overspent:
                continue
            own.finish(f"{name} {number}", "digest", stopped=True)
            seen.append(own.left.epsilon)

    threads = [Thread(target=spend, args=(name,)) for name in "ab"]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    ledger = Ledger(path)
    assert all(each.stopped for each in ledger.charges)
    assert math.isclose(ledger.left.epsilon, 4 - len(seen) * early, abs_tol=1e-9)
    assert min(seen) >= 0


@pytest.mark.parametrize(
    "attack",
    [
        "INSERT INTO charges VALUES (9, 't', 'l', 0.5, 0.0, 1.0, 'e', 'r', 0.6, 1.0)",
        "INSERT INTO charges VALUES (9, 't', 'l', 0.5, 0.0, 1.0, 'e', 'r', -0.1, 1.0)",
        "INSERT INTO charges VALUES (9, 't', 'l', 0.5, 0.0, 1.0, 'e', 'r', 'free', 1.0)",
        "INSERT INTO charges VALUES (9, 't', 'l', 0.5, 0.0, 1.0, 'e', 'r', 0.1, 1.1)",
        "INSERT INTO finishes VALUES (9, 1, 't', 'd', 2)",
    ],
)
def test_a_stop_that_no_run_could_have_is_refused_by_the_file_itself(tmp_path, one, attack):
    ledger = Ledger.new(tmp_path / "l.db", total=Budget(3, 1e-5))
    charged(ledger, one, "a")
    with (
        pytest.raises(sqlite3.IntegrityError, match="CHECK"),
        closing(sqlite3.connect(tmp_path / "l.db")) as connection,
    ):
        connection.execute(attack)


def test_a_stop_that_was_written_by_hand_is_noticed(tmp_path, one):
    ledger = Ledger.new(tmp_path / "l.db", total=Budget(3, 1e-5))
    charged(ledger, one, "a")
    with closing(sqlite3.connect(tmp_path / "l.db")) as connection, connection:
        connection.execute("INSERT INTO finishes VALUES (1, 1, 't', 'd', 1)")
    with pytest.raises(LedgerError, match="changed by another program"):
        charged(ledger, one, "b")


def test_a_ledger_without_a_place_for_stops_is_refused_in_a_sentence(tmp_path):
    Ledger.new(tmp_path / "l.db", total=Budget(3, 1e-5))
    with closing(sqlite3.connect(tmp_path / "l.db")) as connection, connection:
        connection.execute("ALTER TABLE finishes RENAME COLUMN stopped TO other")
    with pytest.raises(LedgerError, match="written by an earlier version of Tacit"):
        Ledger(tmp_path / "l.db")


def gaussian_fitting(ledger):
    """The largest sum of one number that a ledger still admits: its mu, which neighbours differ by."""
    left, delta = ledger.left, 1e-6
    epsilon = left.epsilon * (0.5 if ledger.rule == "renyi" else 1)
    noise = calibrate.calibrate(events.gaussian, Budget(epsilon, delta), guess=5.0)
    ledger.charge(events.gaussian(noise), Budget(epsilon, delta), "the rest")
    return 1 / noise


@pytest.mark.parametrize("rule", ["sum", "renyi"])
@pytest.mark.parametrize("direction", [1, -1])
def test_all_that_a_ledger_admits_after_a_stop_keeps_its_promise(tmp_path, one, rule, direction):
    """The exact delta at the total's epsilon of a run that may stop and of one that spends what is left then."""
    event, stopped, _ = one
    total = Budget(2, 2.5e-6)
    ends = {}
    for ended in ("stopped", "went on"):
        ledger = Ledger.new(tmp_path / f"{ended}.db", total=total, rule=rule)
        charged(ledger, one, "a")
        if ended == "stopped":
            ledger.finish("a", "digest", stopped=True)
        ends[ended] = gaussian_fitting(ledger)
    assert ends["stopped"] > 1.1 * ends["went on"]
    count, whole = (mu_of(each, "add-remove") for each in (stopped, event))
    rest = math.hypot(math.sqrt(whole**2 - count**2), ends["went on"])
    # In standard deviations of the count's noise, from the count of the first of the neighbours.
    y = np.linspace(-10, 10, 40_001)
    density = np.exp(-(y**2) / 2) / math.sqrt(2 * math.pi)
    loss = direction * -count * y + count**2 / 2
    for threshold in (-5.0, -2.0, 0.0, 2.0, 5.0):
        mu = np.where(y < threshold, ends["stopped"], rest)
        found = np.trapezoid(density * hockey_stick(mu, total.epsilon - loss), y)
        assert found <= total.delta
