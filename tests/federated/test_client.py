"""A site's memory: lost messages, repeated tasks and killed processes change nothing."""

import sqlite3
from dataclasses import dataclass, replace

import numpy as np
import pytest
from through_origin import through_origin

from tacit import Budget, Ledger, Rows
from tacit.accounting import events
from tacit.errors import BudgetError, InvalidArgument
from tacit.federated.journal import LedgerJournal, MemoryJournal, RunTerms
from tacit.federated.protocol import Task
from tacit.federated.pvi import PVIServer
from tacit.federated.schemes import ClippedStatistics, RunSetting, WithoutPrivacy
from tacit.federated.site import Client

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 2)).astype(np.float32)
Y = (X @ [1.0, -2.0] + 0.5 * RNG.normal(size=60)).astype(np.float32)
TARGET = through_origin(2, noise_sd=0.5, prior_sd=3.0)
BUDGET = Budget(1, 1e-5)
SHARES = [Rows({"x": X[i::3], "y": Y[i::3]}) for i in range(3)]


def setting(budget, answers):
    return RunSetting(target=TARGET, budget=budget, answers=answers, sites=3, together=3)


def private(answers=4):
    prepared = ClippedStatistics(clip=20.0).prepare(setting(BUDGET, answers))
    terms = RunTerms(run="r", answers=answers, event=prepared.event, budget=BUDGET)
    return prepared.work, terms


def client(journal=None, work=None, answers=4):
    made, terms = private(answers)
    return Client("a", SHARES[0], work or made, terms, journal)


def ledger(path, epsilon=1.0):
    file = path / "a.db"
    return Ledger(file) if file.exists() else Ledger.new(file, total=Budget(epsilon, 1e-5))


def first_task(round_number=1, shift=0.0):
    return Task(run="r", round=round_number, posterior=TARGET.prior + shift)


class Lossy:
    """Loses tasks on the way, replies on the way back, and delivers some tasks twice."""

    def __init__(self, clients, chance, rng):
        self._clients, self._chance, self._rng = clients, chance, rng
        self.sites, self.sent = tuple(each.name for each in clients), True

    def exchange(self, tasks):
        by_name = {each.name: each for each in self._clients}
        replies = {}
        for name, task in tasks.items():
            luck = self._rng.uniform()
            if luck < self._chance:
                continue
            reply = by_name[name].answer(task)
            if luck < 2 * self._chance:
                continue
            if luck > 1 - self._chance:
                assert np.array_equal(by_name[name].answer(task).change, reply.change)
            replies[name] = reply
        return replies


@pytest.mark.parametrize("seed", range(5))
def test_lost_messages_never_part_server_and_sites(seed):
    work = WithoutPrivacy().prepare(setting(None, 100)).work
    terms = RunTerms(run="r", answers=100, event=None, budget=None)
    clients = [Client(f"s{i}", rows, work, terms) for i, rows in enumerate(SHARES)]
    transport = Lossy(clients, 0.25, np.random.default_rng(seed))
    server = PVIServer(
        run="r", family=TARGET.family, prior=TARGET.prior, sites=transport.sites, damping=0.7
    )
    for _ in range(60):
        tasks = server.tasks(server.sites)
        replies = transport.exchange(tasks)
        for each in clients:
            if each.name in replies:  # it has heard what became of its last answer
                assert np.array_equal(each.factor, server.factors[each.name])
        server.apply_replies(tasks, replies)
    x, y = X.astype(float), Y.astype(float)
    precision = x.T @ x / 0.25 + np.eye(2) / 9
    mean = np.linalg.solve(precision, x.T @ y / 0.25)
    assert TARGET.family.mean(server.posterior) == pytest.approx(mean, rel=1e-6)


def test_a_repeated_task_gets_the_same_answer_and_costs_once(tmp_path):
    book = ledger(tmp_path)
    one = client(LedgerJournal(book))
    first = one.answer(first_task())
    # Another process, later: a new client with the same journal.
    again = client(LedgerJournal(ledger(tmp_path))).answer(first_task())
    assert np.array_equal(first.change, again.change)
    assert len(book.charges) == 1
    assert book.left.epsilon == pytest.approx(0)
    other = client(LedgerJournal(book)).answer(first_task(round_number=2))
    assert not np.array_equal(first.change, other.change)
    assert len(book.charges) == 1


@dataclass(frozen=True)
class Dying:
    """Work whose process is killed after the rows were read, before anything left."""

    work: object
    size: int
    grid: None = None

    def change(self, *arguments):
        self.work.change(*arguments)
        raise SystemExit


def test_a_killed_site_comes_back_with_the_noise_it_was_charged_for(tmp_path):
    work, _ = private()
    book = ledger(tmp_path)
    with pytest.raises(SystemExit):
        client(LedgerJournal(book), Dying(work, work.size)).answer(first_task())
    assert len(book.charges) == 1
    with sqlite3.connect(book.path) as file:
        (key,) = file.execute("SELECT key FROM answers").fetchone()
    file.close()
    replies = [client(LedgerJournal(book)).answer(first_task()) for _ in range(2)]
    assert np.array_equal(replies[0].change, replies[1].change)
    replay = MemoryJournal()
    made, terms = private()
    expected = Client("a", SHARES[0], made, terms, replay, key=lambda _: key).answer(first_task())
    assert np.array_equal(replies[0].change, expected.change)


def test_keys_of_noise_are_forgotten_once_they_are_not_needed(tmp_path):
    book = ledger(tmp_path)
    one = client(LedgerJournal(book))
    for number in (1, 2, 3):
        one.answer(first_task(number))
    with sqlite3.connect(book.path) as file:
        keys = [key for (key,) in file.execute("SELECT key FROM answers ORDER BY id")]
    file.close()
    assert keys == [None, None, None]


@pytest.mark.parametrize("durable", [True, False])
def test_no_more_answers_than_were_paid_for(tmp_path, durable):
    journal = LedgerJournal(ledger(tmp_path)) if durable else MemoryJournal()
    one = client(journal, answers=3)
    for number in (1, 2, 3):
        one.answer(first_task(number, shift=0.1 * number))
    with pytest.raises(BudgetError, match="3 answers"):
        one.answer(first_task(4))
    one.answer(first_task(2, shift=0.2))  # what was said may be said again


def test_a_run_beyond_the_budget_reads_nothing(tmp_path):
    book = ledger(tmp_path, epsilon=0.5)
    work, _ = private()
    with pytest.raises(BudgetError, match="left of"):
        client(LedgerJournal(book), Dying(work, work.size)).answer(first_task())
    assert book.charges == []
    with sqlite3.connect(book.path) as file:
        assert file.execute("SELECT count(*) FROM answers").fetchone() == (0,)
    file.close()


def test_the_charge_is_all_answers_together(tmp_path):
    book = ledger(tmp_path)
    _, terms = private(4)
    client(LedgerJournal(book), answers=4).answer(first_task())
    assert book.charges[0].event == repr(terms.event)
    assert events.leaves(terms.event).__next__()[1] == 4


@pytest.mark.parametrize(
    ("task", "words"),
    [
        (Task(run="other", round=2, posterior=TARGET.prior), "takes part in the run"),
        (Task(run="r", round=2, posterior=np.ones(3)), "finite numbers"),
        (Task(run="r", round=2, posterior=TARGET.prior * np.nan), "finite numbers"),
        (Task(run="r", round=1, posterior=TARGET.prior + 1), "needs a new round"),
        (
            Task(
                run="r", round=9, posterior=TARGET.prior, applied_round=7, applied_share=np.ones(5)
            ),
            "not in this site's journal",
        ),
        (
            Task(
                run="r", round=9, posterior=TARGET.prior, applied_round=1, applied_share=np.ones(2)
            ),
            "not in this",
        ),
    ],
)
def test_tasks_that_cannot_be_are_refused(task, words):
    one = client()
    one.answer(first_task())
    with pytest.raises(InvalidArgument, match=words):
        one.answer(task)


def test_a_run_keeps_the_terms_it_began_with(tmp_path):
    book = Ledger.new(tmp_path / "a.db", total=Budget(3, 1e-4))
    client(LedgerJournal(book), answers=4).answer(first_task())
    with pytest.raises(InvalidArgument, match="other terms"):
        client(LedgerJournal(book), answers=8).answer(first_task(2))


@pytest.mark.parametrize("durable", [True, False])
def test_another_study_of_the_same_name_gets_no_answer_of_the_first(tmp_path, durable):
    journal = LedgerJournal(ledger(tmp_path)) if durable else MemoryJournal()
    work, terms = private()
    Client("a", SHARES[0], work, replace(terms, about="one"), journal).answer(first_task())
    with pytest.raises(InvalidArgument, match="'r' began under other terms"):
        Client("a", SHARES[0], work, replace(terms, about="two"), journal).answer(first_task())


def test_a_posterior_that_is_no_distribution_costs_nothing(tmp_path):
    book = ledger(tmp_path)
    made, terms = private()
    one = Client("a", SHARES[0], made, terms, LedgerJournal(book), family=TARGET.family)
    with pytest.raises(InvalidArgument, match="improper posterior"):
        one.answer(first_task(shift=-1.0))
    assert book.charges == []
    one.answer(first_task())
    assert len(book.charges) == 1


def test_the_posterior_without_a_site_must_be_a_distribution_too():
    work = WithoutPrivacy().prepare(setting(None, 2)).work
    terms = RunTerms(run="r", answers=2, event=None, budget=None)
    one = Client("a", SHARES[0], work, terms, family=TARGET.family)
    added = one.answer(first_task()).change
    told = {"run": "r", "round": 2, "applied_round": 1, "applied_share": np.ones(5)}
    with pytest.raises(InvalidArgument, match="improper posterior"):
        one.answer(Task(**told, posterior=TARGET.prior))  # which has less than the site added
    one.answer(Task(**told, posterior=TARGET.prior + added))  # and an answer is left for this


def test_rows_are_read_for_what_is_computed_and_for_nothing_else(tmp_path):
    reads = []

    def read():
        reads.append(1)
        return SHARES[0]

    made, terms = private()

    def opened():
        return Client("a", read, made, terms, LedgerJournal(ledger(tmp_path)))

    opened().answer(first_task())
    opened().answer(first_task())
    with pytest.raises(InvalidArgument):
        opened().answer(first_task(shift=1.0))
    assert len(reads) == 1


class Overtaken:
    """Work during which another process answers the same task, from rows that were changed."""

    size, grid = TARGET.family.size, None

    def __init__(self, work, other):
        self._work, self._other, self.said = work, other, None

    def change(self, *arguments):
        self.said = self._other.answer(first_task())
        return self._work.change(*arguments)


@pytest.mark.parametrize("durable", [True, False])
def test_one_key_of_noise_never_leaves_with_two_answers(tmp_path, durable):
    journal = LedgerJournal(ledger(tmp_path)) if durable else MemoryJournal()
    work, terms = private()
    overtaken = Overtaken(work, Client("a", SHARES[1], work, terms, journal))
    reply = client(journal, overtaken).answer(first_task())
    assert np.array_equal(reply.change, overtaken.said.change)


@pytest.mark.parametrize("durable", [True, False])
def test_a_round_has_one_question_also_if_two_come_at_once(tmp_path, durable):
    journal = LedgerJournal(ledger(tmp_path)) if durable else MemoryJournal()

    def meanwhile(_):
        client(journal).answer(first_task())
        return bytes(32)

    made, terms = private()
    late = Client("a", SHARES[0], made, terms, journal, key=meanwhile)
    with pytest.raises(InvalidArgument, match="needs a new round"):
        late.answer(first_task(shift=1.0))


def test_a_task_that_comes_twice_at_once_is_answered_twice_alike(tmp_path):
    book, said = ledger(tmp_path), []

    def meanwhile(_):
        said.append(client(LedgerJournal(book)).answer(first_task()))
        return bytes(32)

    made, terms = private()
    late = Client("a", SHARES[0], made, terms, LedgerJournal(book), key=meanwhile)
    assert np.array_equal(late.answer(first_task()).change, said[0].change)
    assert len(book.charges) == 1
