"""The Flower apps, called with messages and contexts: no process, no network."""

import logging
import re
import sqlite3

import numpy as np
import pytest

pytest.importorskip("flwr")

from fake_grid import FakeGrid, as_by_flower  # noqa: F401 (for every test)
from flwr.app import ConfigRecord, Context, Message, RecordDict
from sites_on_disk import NAMES, make_sites

from tacit import Ledger
from tacit.errors import TacitError
from tacit.federated import flower_grid
from tacit.federated.deploy import load_study, open_ledger
from tacit.federated.flower import client_app, hide_traceback
from tacit.federated.flower_grid import FlowerTransport, serve
from tacit.federated.guard import answer_or_error
from tacit.federated.method import run_in_process
from tacit.federated.protocol import task_fields
from tacit.federated.settings import SiteSettings


def in_this_process(files):
    study = load_study(files["north"].parent / "study.py")
    rows = {name: study.read(path.parent / "data.csv") for name, path in files.items()}
    budgets = dict.fromkeys(rows, study.budget)
    found = run_in_process(
        study.method, study.target, rows, budgets, run=study.run, seed=study.seed
    )
    return study, found


def served(files, grid, patience=30.0):
    study = load_study(files["north"].parent / "study.py")
    server = serve(grid, study, timeout=5.0, patience=patience)
    return server.posterior, np.array(server.trace)


@pytest.mark.parametrize("scheme", ["statistics", "masked"])
def test_the_same_posterior_as_in_process(tmp_path, scheme):
    files = make_sites(tmp_path, scheme, seed=3)
    _, found = in_this_process(files)
    posterior, trace = served(files, FakeGrid(files))
    assert np.array_equal(posterior, found.server.posterior)
    assert np.array_equal(trace, found.trace)


def test_masked_replies_are_nowhere_near_the_changes(tmp_path):
    files = make_sites(tmp_path, "masked", seed=3, rounds=1)
    grid = FakeGrid(files)
    served(files, grid)
    sent = [
        np.frombuffer(reply["change"], np.int64)
        for fields, reply in grid.replies
        if fields["kind"] == "task"
    ]
    assert np.abs(np.concatenate(sent).astype(float)).max() > 2.0**55
    assert np.abs(np.sum(sent, axis=0)).max() < 2**30


@pytest.mark.parametrize(
    ("scheme", "kind"),
    [
        ("masked", "lost"),
        ("statistics", "late"),
        ("statistics", "dead"),
        pytest.param("statistics", "lost", marks=pytest.mark.slow),
        pytest.param("masked", "late", marks=pytest.mark.slow),
        pytest.param("masked", "dead", marks=pytest.mark.slow),
    ],
)
def test_a_message_that_is_not_answered_is_sent_again_and_changes_nothing(tmp_path, scheme, kind):
    def trouble(node, fields, count):
        return kind if count in {5, 8, 12} else None

    files = make_sites(tmp_path, scheme, seed=3)
    _, found = in_this_process(files)
    posterior, _ = served(files, FakeGrid(files, trouble))
    assert np.array_equal(posterior, found.server.posterior)
    for path in files.values():
        assert len(Ledger(path.parent / "site.db").charges) == 1


@pytest.mark.parametrize("scheme", ["statistics", pytest.param("masked", marks=pytest.mark.slow)])
def test_a_site_that_always_answers_after_it_was_asked_again_is_heard(tmp_path, scheme):
    def trouble(node, fields, count):
        return "slow" if node == 1 and fields["kind"] != "hello" else None

    files = make_sites(tmp_path, scheme, seed=3)
    _, found = in_this_process(files)
    posterior, _ = served(files, FakeGrid(files, trouble))
    assert np.array_equal(posterior, found.server.posterior)


def test_a_repeated_task_gets_identical_bytes_and_a_new_one_takes_an_answer(tmp_path):
    files = make_sites(tmp_path)
    grid = FakeGrid(files, lambda *sent: "late" if sent[2] in {4, 5} else None)
    served(files, grid)
    tasks = [(f, r) for f, r in grid.replies if f["kind"] == "task"]
    by_question = {}
    for fields, reply in tasks:
        key = fields["round"], fields["posterior"], fields["applied_share"], reply["change"]
        by_question.setdefault(key, 0)
        by_question[key] += 1
    assert len(by_question) == 9  # three rounds of three sites
    assert sum(by_question.values()) == 11
    with sqlite3.connect(tmp_path / "north" / "site.db") as connection:
        assert connection.execute("select count(*) from answers").fetchone() == (3,)
        assert connection.execute("select count(*) from charges").fetchone() == (1,)
    connection.close()


@pytest.mark.parametrize("kind", [pytest.param("lost", marks=pytest.mark.slow), "late"])
def test_a_site_that_stays_away_for_a_round_keeps_in_step(tmp_path, kind):
    """The server goes on without it; when it is back, both ends have the same factor."""

    def trouble(node, fields, count):
        return kind if node == 2 and fields.get("round") == 2 else None

    files = make_sites(tmp_path, seed=3, rounds=4)
    study = load_study(files["north"].parent / "study.py")
    server = study.server()
    transport = FlowerTransport(
        FakeGrid(files, trouble),
        study.sites,
        agreement=study.agreement,
        timeout=0.2,
        patience=1.5,
    )
    for number in range(1, 5):
        tasks = server.tasks(study.sites)
        replies = transport.exchange(tasks)
        assert ("south" in replies) == (number != 2)
        server.apply_replies(tasks, replies)
    final = server.tasks(study.sites)
    transport.exchange(final)  # tells sites what became of round four
    from tacit.federated.deploy import OpenSite

    for name in NAMES:
        client = OpenSite(SiteSettings.from_file(files[name]))._client
        assert np.array_equal(client.factor, server.factors[name])
    assert server.applied["south"].round == 4


@pytest.mark.slow
def test_slow_answers_to_the_first_question_count_and_questions_do_not_pile_up(tmp_path):
    hellos = []

    def trouble(node, fields, count):
        hellos.extend([node] if fields["kind"] == "hello" else [])
        return "slow" if fields["kind"] == "hello" else None

    files = make_sites(tmp_path, seed=3)
    study = load_study(files["north"].parent / "study.py")
    server = serve(FakeGrid(files, trouble), study, timeout=0.3, patience=30.0)
    assert np.array_equal(server.posterior, served(files, FakeGrid(files))[0])
    assert len(hellos) <= 3 * 6  # after 0.3, 0.9, 2.1, ... of 8 seconds


def test_a_site_that_has_gone_is_not_waited_for_in_every_round(tmp_path):
    def trouble(node, fields, count):
        return "lost" if node == 2 and fields.get("round", 0) > 1 else None

    files = make_sites(tmp_path, seed=3, rounds=6)
    served(files, FakeGrid(files, trouble), patience=300.0)
    assert 300 < flower_grid.time.monotonic() < 400


def test_a_node_that_fails_is_not_asked_again_at_once(tmp_path):
    files = make_sites(tmp_path, seed=3, rounds=1)
    grid = FakeGrid(files, lambda node, *_: "dead" if node == 2 else None)
    served(files, grid, patience=300.0)
    assert grid.count < 40


def test_an_error_that_ends_a_run_is_one_sentence():
    said = TacitError("No answer could be used.")
    record = logging.LogRecord("flwr", 40, "", 1, "raised", None, (TacitError, said, None))
    assert hide_traceback(record)
    assert (record.getMessage(), record.exc_info) == ("No answer could be used.", None)
    other = logging.LogRecord("flwr", 40, "", 1, "raised", None, (ValueError, ValueError(), None))
    assert hide_traceback(other)
    assert other.exc_info


@pytest.mark.slow
def test_a_masked_round_without_one_site_is_asked_again_and_nobody_answers_before(tmp_path):
    attempts = []

    def trouble(node, fields, count):
        if fields.get("round") != 2:
            return None
        attempts.append(fields["attempt"])
        return "lost" if node == 2 and fields["attempt"] == attempts[0] else None

    files = make_sites(tmp_path, "masked", seed=3)
    grid = FakeGrid(files, trouble)
    posterior, _ = served(files, grid, patience=1.5)
    assert np.array_equal(posterior, served(files, FakeGrid(files))[0])
    tasks = [f["attempt"] for f, _ in grid.replies if f["kind"] == "task" and f["round"] == 2]
    assert len(tasks) == 3
    assert attempts[0] not in tasks


@pytest.mark.parametrize("scheme", ["statistics", pytest.param("masked", marks=pytest.mark.slow)])
def test_a_server_that_begins_again_comes_to_where_it_was(tmp_path, scheme):
    files = make_sites(tmp_path, scheme, rounds=2)  # without a seed: keys are random, and kept
    first, _ = served(files, FakeGrid(files))
    again, _ = served(files, FakeGrid(files))
    assert np.array_equal(first, again)


def task_message(fields):
    content = RecordDict({"tacit": ConfigRecord(fields)})
    return Message(content, 1, "query")


def said(files, fields):
    grid = FakeGrid(files)
    return dict(grid.call(task_message(fields)).content.config_records["tacit"])


def first_task(folder):
    study = load_study(folder / "north" / "study.py")
    return task_fields(study.server().tasks(NAMES)["north"], agreed=study.agreement.text)


def test_a_site_tells_what_is_wrong_with_a_question_and_of_no_error_of_others(tmp_path, caplog):
    files = make_sites(tmp_path)
    fields = first_task(tmp_path)
    other = said(files, {**fields, "run": "another"})
    assert other["kind"] == "question"
    assert "another" in other["error"]
    (tmp_path / "north" / "data.csv").write_text("77.125,secret,3\n")
    with caplog.at_level(logging.CRITICAL):
        failed = said(files, fields)
    assert failed == {
        "kind": "failure",
        "error": "The site failed. The site's own log says more.",
    }


def replacing(old, new):
    def spoil(home):
        text = (home / "site.toml").read_text()
        assert old in text
        (home / "site.toml").write_text(text.replace(old, new))

    return spoil


def reopened(home):
    """A book that allows less than the run costs."""
    replacing("epsilon = 20.0", "epsilon = 1.625")(home)
    for file in ("site.db", "site.db.mark"):
        (home / file).unlink()
    open_ledger(SiteSettings.from_file(home / "site.toml"))


# What is wrong at a site, the kind that is told, and what its log must still say.
FAULTS = {
    "budget": (reopened, "budget", "1.625"),
    "other budget": (replacing("epsilon = 20.0", "epsilon = 1.625"), "site", "1.625"),
    "no ledger": (lambda home: (home / "site.db").unlink(), "site", "site.db is gone"),
    "old ledger": (lambda home: (home / "site.db").write_bytes(b""), "site", "was emptied"),
    "settings": (lambda home: (home / "site.toml").write_text("name = 3"), "site", "site.toml"),
    "no study": (lambda home: (home / "study.py").unlink(), "site", "study.py"),
    "no data": (lambda home: (home / "data.csv").unlink(), "failure", "FileNotFoundError"),
    "another name": (replacing('"north"', '"hidden-77"'), "site", "hidden-77"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_server_hears_of_no_file_and_no_budget_of_a_site(tmp_path, fault, caplog):
    spoil, kind, detail = FAULTS[fault]
    files = make_sites(tmp_path)
    fields = first_task(tmp_path)
    spoil(tmp_path / "north")
    answer = said(files, fields)
    assert answer["kind"] == kind
    assert detail in caplog.text
    assert not re.search(r"[0-9/\\]|north|hidden|person|\.py|\.toml|\.csv", answer["error"])
    assert str(tmp_path) not in str(answer)
    assert answer["error"].endswith("The site's own log says more.")


def test_a_server_with_more_sites_than_pinned_is_refused(tmp_path):
    files = make_sites(tmp_path, "masked")
    study = load_study(tmp_path / "north" / "study.py")
    transport = FlowerTransport(
        FakeGrid(files),
        study.sites,
        agreement=study.agreement,
        masked=True,
        timeout=5.0,
        patience=5.0,
    )
    tasks = study.server().tasks(NAMES)
    del tasks["west"]
    assert transport.exchange(tasks) == {}
    assert transport.refused.keys() == {"north", "south"}
    assert all("expects 3 sites" in said for said in transport.refused.values())


def leaves(node, fields, kind, number):
    """Whether a message is the so-manyth question, of this kind, to a node."""
    return node == 3 and (fields["kind"], fields.get("round")) == (kind, number)


@pytest.mark.slow
def test_a_server_that_dies_after_it_gave_a_round_up_does_not_ask_it_again(tmp_path):
    files, state = make_sites(tmp_path, "scored, one may leave", seed=3), tmp_path / "state"
    study = load_study(tmp_path / "north" / "study.py")

    def trouble(node, fields, count):
        if leaves(node, fields, "task", 3):
            raise KeyboardInterrupt
        return "lost" if leaves(node, fields, "task", 2) else None

    given = {"timeout": 5.0, "patience": 5.0, "state": state}
    with pytest.raises(KeyboardInterrupt):
        serve(FakeGrid(files, trouble), study, **given)
    server = serve(FakeGrid(files), study, **given)
    assert server.abandoned == 1
    assert server.used == dict.fromkeys(NAMES, 4)


@pytest.mark.slow
def test_a_round_is_asked_again_of_the_sites_that_are_bound_to_it(tmp_path):
    """West comes back to a round that the others have answered without it."""
    files, state = make_sites(tmp_path, "scored, one may leave", seed=3), tmp_path / "state"
    study, late = load_study(tmp_path / "north" / "study.py"), []

    def trouble(node, fields, count):
        if leaves(node, fields, "task", 2) or (leaves(node, fields, "offer", 3) and not late):
            return "lost"
        if node == 2 and (fields["kind"], fields.get("round")) == ("task", 3) and not late:
            late.append(count)
            return "late"
        return None

    server = serve(FakeGrid(files, trouble), study, timeout=5.0, patience=4.0, state=state)
    assert late
    assert [sorted(each.members) for each in server.finished][1] == ["north", "south"]
    assert server.used == {"north": 4, "south": 4, "west": 3}


def test_a_node_without_settings_says_so(tmp_path):
    app = client_app()
    context = Context(1, 1, {}, RecordDict(), {})
    reply = app(task_message({"kind": "hello"}), context)
    assert "node-config" in reply.content.config_records["tacit"]["error"]


def test_a_site_s_own_log_holds_no_value(caplog):
    message = "could not convert string to float: '77.125 secret'"

    def fails():
        raise ValueError(message)

    answer = answer_or_error(fails)
    assert "secret" not in str(answer) + caplog.text
    assert "ValueError" in caplog.text  # and where, for whoever mends it
    assert "in fails" in caplog.text
