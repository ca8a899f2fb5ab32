"""A ledger in a database: what the server enforces, what marks show, and what is said when it fails."""

import copy
import importlib
import math
import os
import pickle
import re
import select
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing
from itertools import count

import pytest
from server_fixtures import registry, server

from tacit.accounting import Budget, events, ledger_chain
from tacit.accounting import ledger_store as serving
from tacit.accounting.ledger import Ledger, adopt, raise_total, read_history
from tacit.accounting.ledger_store import parse_location
from tacit.cli.main import main
from tacit.errors import BudgetError, InvalidArgument, LedgerError, MissingPackage, Overspent
from tacit.federated.journal import LedgerJournal

psycopg = (
    importlib.import_module("psycopg")  # in CI nothing is skipped
    if os.environ.get("TACIT_POSTGRES") == "required"
    else pytest.importorskip("psycopg", reason="the extra postgres is not installed")
)
# Fixtures that tests take by name.
__all__ = ["registry", "server"]
NUMBERS = count(1)
EVENT = events.gaussian(10.0)
ONE = Budget(0.5, 1e-7)


@pytest.fixture(autouse=True)
def marks(tmp_path, monkeypatch):
    """The marks of one machine."""
    monkeypatch.setenv("TACIT_MARKS", str(tmp_path / "marks"))
    return tmp_path / "marks"


@pytest.fixture(scope="module")
def prepared(server, tmp_path_factory):
    """The name of a database with a ledger of the steward that the team may use."""
    server.run("CREATE DATABASE prepared OWNER steward")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TACIT_MARKS", str(tmp_path_factory.mktemp("marks")))
        url = server.url("prepared")
        Ledger.new(url, Budget(3, 1e-5), unit="person", analysts=["team"])
    return "prepared"


@pytest.fixture
def team(server, prepared):
    """Such a ledger for one test."""
    name = f"team_{next(NUMBERS)}"
    server.run(f"CREATE DATABASE {name} TEMPLATE {prepared} OWNER steward")
    yield Ledger(server.url(name))
    server.run(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(scope="module")
def refusing(server, tmp_path_factory):
    """A ledger with one charge, for tests that change nothing."""
    server.run("CREATE DATABASE refusing OWNER steward")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TACIT_MARKS", str(tmp_path_factory.mktemp("marks")))
        ledger = Ledger.new(server.url("refusing"), Budget(3, 1e-5), analysts=["team"])
        ledger.charge(EVENT, ONE)
    return ledger


def opened(server, team, user):
    return Ledger(server.url(team.path.name, user))


def by_hand(server, database, user, *statements, isolation="serializable"):
    """One transaction of somebody who does not use Tacit."""
    address = server.url(database, user)
    with closing(psycopg.connect(address)) as connection, connection.transaction():
        connection.execute(f"SET TRANSACTION ISOLATION LEVEL {isolation}")
        return [connection.execute(each) for each in statements]


# Charges


def test_a_ledger_in_a_database_does_what_a_file_does(server, team, tmp_path):
    file = Ledger.new(tmp_path / "r.db", Budget(3, 1e-5), unit="person")
    anna = opened(server, team, "anna")
    for _ in range(3):
        assert anna.charge(EVENT, ONE, "ill ~ age") == file.charge(EVENT, ONE, "ill ~ age")
    assert (anna.left, anna.total, anna.unit, anna.rule) == (
        file.left,
        file.total,
        file.unit,
        file.rule,
    )
    costs = [
        [(c.label, c.epsilon, c.delta, c.event) for c in each.charges] for each in (anna, file)
    ]
    assert costs[0] == costs[1]
    with pytest.raises(Overspent, match="Nothing was released"):
        anna.charge(events.gaussian(0.5), Budget(20, 1e-7))
    assert len(opened(server, team, "bert").charges) == 3


def test_renyi_divergences_add_up_in_a_database_too(server, registry, tmp_path):
    total = Budget(3, 1e-5)
    both = [
        Ledger.new(where, total, rule="renyi") for where in (server.url(registry), tmp_path / "r")
    ]
    for ledger in both:
        ledger.charge_all([(EVENT, ONE)] * 2)
    assert both[0].left == both[1].left
    assert read_history(both[0]).spent == read_history(both[1]).spent


def test_an_entry_names_run_folder_analyst_and_the_servers_time(server, team, tmp_path):
    anna = opened(server, team, "anna").for_run("first look", tmp_path)
    anna.charge(EVENT, ONE, "ill ~ age")
    opened(server, team, "bert").charge(EVENT, ONE)
    first, second = team.charges
    assert (first.analyst, first.run, first.label) == ("anna", "first look", "ill ~ age")
    assert first.folder.endswith(f":{tmp_path}")
    assert (second.analyst, second.run, second.folder) == ("bert", "", "")
    assert first.time.endswith("+00:00")
    assert anna.own_charges == [first]


def test_text_that_a_database_cannot_hold_is_replaced_or_refused(server, team):
    anna = opened(server, team, "anna").for_run("a\0b", "runs/\udcff")
    anna.charge(EVENT, ONE)
    assert anna.own_charges[0].run == "a?b"
    with pytest.raises(LedgerError, match="does not accept such a line"):
        anna.charge(EVENT, ONE, label="a\0b")
    assert len(anna.charges) == 1


def test_a_name_cannot_be_chosen(server, team, monkeypatch):
    monkeypatch.setattr("tacit.accounting.ledger.user_name", lambda: "bert")
    opened(server, team, "anna").charge(EVENT, ONE)
    assert team.charges[0].analyst == "anna"


# What the server enforces

CHARGE = (
    "INSERT INTO tacit.charges VALUES (2, '', 'mine', {epsilon}, 1e-9, 0, '')",
    "INSERT INTO tacit.entries VALUES (2, 'bert', '', '')",
)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE tacit.charges SET epsilon = 0",
        "DELETE FROM tacit.charges",
        "TRUNCATE tacit.charges",
        "UPDATE tacit.book SET epsilon = 100",
        "DELETE FROM tacit.chain",
        "INSERT INTO tacit.raises VALUES (1, '', '', 100, 1e-5)",
        "DROP TABLE tacit.charges",
        "ALTER TABLE tacit.charges DISABLE TRIGGER ALL",
        "CREATE TABLE tacit.more ()",
    ],
)
def test_an_analyst_can_change_nothing_and_raise_nothing(server, refusing, statement):
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        by_hand(server, refusing.path.name, "anna", statement)
    assert len(refusing.charges) == 1


@pytest.mark.parametrize("table", ["book", "charges", "entries", "finishes", "raises", "chain"])
@pytest.mark.parametrize("verb", ["DELETE FROM", "TRUNCATE"])
def test_even_the_steward_cannot_remove_a_line(server, refusing, table, verb):
    with pytest.raises(psycopg.errors.DatabaseError, match=r"append-only|cannot truncate"):
        by_hand(server, refusing.path.name, "steward", f"{verb} tacit.{table}")


@pytest.mark.parametrize(
    ("epsilon", "isolation", "reason"),
    [
        ("0.1", "read committed", "serializable"),
        ("0.1", "repeatable read", "serializable"),
        ("0.1", "serializable", "needs its entry and its link"),
        ("3.1", "serializable", "too little is left"),
        ("-1", "serializable", "check constraint"),
        ("'NaN'", "serializable", "too little is left|check constraint"),
        ("'Infinity'", "serializable", "too little is left|check constraint"),
    ],
)
def test_a_charge_that_tacit_would_not_write_is_refused(
    server, refusing, epsilon, isolation, reason
):
    lines = [each.format(epsilon=epsilon) for each in CHARGE]
    with pytest.raises(psycopg.DatabaseError, match=reason):
        by_hand(server, refusing.path.name, "anna", *lines, isolation=isolation)
    assert len(refusing.charges) == 1


@pytest.mark.parametrize("number", [-1, 3, 2**31 - 1])
def test_charges_are_numbered_one_after_the_other(server, refusing, number):
    charge = CHARGE[0].format(epsilon=0).replace("(2,", f"({number},")
    with pytest.raises(psycopg.DatabaseError, match="one after the other"):
        by_hand(server, refusing.path.name, "anna", charge, isolation="SERIALIZABLE")
    assert len(refusing.charges) == 1


@pytest.mark.parametrize(
    ("link", "reason"),
    [
        ("5, 'charge', 'digest'::bytea, 'hash'::bytea", "its line"),
        ("7, 'charge', 'digest'::bytea, sha256('')", "must follow"),
        ("5, 'raise', digest, sha256(hash || '\\x00' || 'raise' || '\\x00' || digest)", "steward"),
        ("5, 'entry', digest, sha256(hash || '\\x00' || 'entry' || '\\x00' || digest)", "its line"),
    ],
)
def test_a_link_that_does_not_follow_is_refused(server, refusing, link, reason):
    statement = f"INSERT INTO tacit.chain SELECT {link} FROM tacit.chain WHERE id = 4"  # noqa: S608
    with pytest.raises(psycopg.DatabaseError, match=reason):
        by_hand(server, refusing.path.name, "anna", statement)
    assert len(opened(server, refusing, "anna").charges) == 1


def test_one_result_leaves_for_a_charge(server, team):
    """Whoever records it first; the server signs the time, and nobody can record one by hand."""
    anna = opened(server, team, "anna")
    anna.charge(EVENT, ONE, run_id="r")
    anna.charge(EVENT, ONE)
    assert anna.finish("r", "a") == team.finish("r", "b") == "a"
    assert team.finished_digest("r") == "a"
    statement = "INSERT INTO tacit.finishes VALUES (2, 2, '', 'mine')"
    with pytest.raises(psycopg.DatabaseError, match="needs its link"):
        by_hand(server, team.path.name, "anna", statement, isolation="SERIALIZABLE")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        by_hand(server, team.path.name, "anna", "UPDATE tacit.finishes SET digest = 'b'")
    with pytest.raises(LedgerError, match="no charge for the run"):
        anna.finish("other", "a")


def test_the_server_counts_a_run_that_stopped_as_its_charge_says(server, team):
    """And lets nobody else say so, nor of a run that was not charged as one that may stop, nor by hand."""
    anna, bert = opened(server, team, "anna"), opened(server, team, "bert")
    whole = Budget(2, 1e-6)
    run = events.gaussian(3.0), whole
    anna.charge(*run, run_id="a", stopped=events.gaussian(30.0))
    anna.charge(EVENT, ONE, run_id="b")
    with pytest.raises(LedgerError, match="recorded by the login that was charged"):
        bert.finish("a", "d", stopped=True)
    with pytest.raises(LedgerError, match="that may stop early"):
        anna.finish("b", "d", stopped=True)
    by_number = "INSERT INTO tacit.finishes VALUES (1, 2, '', 'd', 1)"
    with pytest.raises(psycopg.DatabaseError, match="not charged as one that may stop early"):
        by_hand(server, team.path.name, "anna", by_number, isolation="SERIALIZABLE")
    with pytest.raises(Overspent):
        anna.charge(*run)
    before, cost = team.left.epsilon, anna.charges[0].epsilon
    assert anna.finish("a", "d", stopped=True) == bert.finish("a", "e", stopped=True) == "d"
    stopped = anna.charges[0].epsilon
    assert 0 < stopped < 0.2 * cost
    assert math.isclose(team.left.epsilon, before + cost - stopped)
    anna.charge(*run)  # which the server admits, too
    assert [each.stopped for each in bert.charges] == [True, False, False]


def test_nobody_records_a_result_for_the_charge_of_another(server, team):
    """The other's posterior would be refused when it is ready, and the charge lost."""
    anna, bert = opened(server, team, "anna"), opened(server, team, "bert")
    anna.charge(EVENT, ONE, run_id="r")
    with pytest.raises(LedgerError, match="recorded by the login that was charged"):
        bert.finish("r", "b")
    assert anna.finish("r", "a") == bert.finish("r", "b") == "a"


def test_a_wrong_link_does_not_block_the_ledger(server, team):
    """An analyst who writes charges by hand: whatever digests and hashes are passed, the server makes its own."""
    anna = opened(server, team, "anna")
    anna.charge(EVENT, ONE, 'säuberlich\n"ill" ~ age')
    link = (
        "INSERT INTO tacit.chain SELECT id + 1, '{kind}', 'wrong'::bytea, sha256(hash || '\\x00' || "
        "'{kind}' || '\\x00' || 'wrong'::bytea) FROM tacit.chain ORDER BY id DESC LIMIT 1"
    )
    charge, entry = (each.format(epsilon=0.1) for each in CHARGE)
    lines = (charge, link.format(kind="charge"), entry, link.format(kind="entry"))
    by_hand(server, team.path.name, "anna", *lines)
    bert = opened(server, team, "bert")
    assert [each.label for each in bert.charges][1] == "mine"
    bert.charge(EVENT, ONE)
    assert len(opened(server, team, "anna").charges) == 3


def test_entries_come_in_the_order_of_their_charges(server, refusing):
    """Or their links would be in another order than they are."""
    entry = "INSERT INTO tacit.entries VALUES (1, 'bert', '', '')"
    with pytest.raises(psycopg.DatabaseError, match="in the order of their charges"):
        by_hand(server, refusing.path.name, "anna", entry)


def test_who_is_not_of_the_team_sees_nothing(server, team):
    with pytest.raises(LedgerError, match="does not allow this to you"):
        opened(server, team, "stranger")


def test_only_the_steward_raises(server, team, tmp_path):
    held = opened(server, team, "bert")  # opened before
    with pytest.raises(LedgerError, match="only its steward"):
        raise_total(opened(server, team, "anna"), Budget(4, 1e-5))
    with pytest.raises(InvalidArgument, match="can only be raised"):
        raise_total(team, Budget(4, 1e-6))
    with pytest.raises(InvalidArgument, match="can only be raised"):
        raise_total(team, team.total)
    with pytest.raises(BudgetError, match="counts under"):
        raise_total(team, Budget(4, 1e-5, "replace"))
    raise_total(team, Budget(4, 2e-5))
    held.charge(EVENT, ONE)
    assert held.total == Budget(4, 2e-5)
    past = read_history(held)
    assert (past.first_total, past.total) == (Budget(3, 1e-5), Budget(4, 2e-5))
    assert [(each.steward, each.epsilon) for each in past.raises] == [("steward", 4.0)]
    with pytest.raises(psycopg.DatabaseError, match="can only be raised"):
        by_hand(
            server,
            team.path.name,
            "steward",
            "INSERT INTO tacit.raises VALUES (2, '', '', 1, 1e-5)",
        )
    file = Ledger.new(tmp_path / "r.db", Budget(3, 1e-5))
    with pytest.raises(LedgerError, match="was fixed when it was created"):
        raise_total(file, Budget(4, 1e-5))


def test_under_divergences_only_epsilon_is_raised(server, registry):
    ledger = Ledger.new(server.url(registry), Budget(3, 1e-5), rule="renyi")
    with pytest.raises(InvalidArgument, match="Only the epsilon"):
        raise_total(ledger, Budget(4, 2e-5))
    before = ledger.left
    raise_total(ledger, Budget(4, 1e-5))
    assert math.isclose(ledger.left.epsilon, before.epsilon + 1)


def test_terms_are_fixed_when_it_is_created(server, team):
    with pytest.raises(LedgerError, match="There was a ledger at"):
        Ledger.new(server.url(team.path.name), Budget(30, 1e-5))
    with pytest.raises(InvalidArgument, match="was created with total"):
        Ledger(server.url(team.path.name), Budget(30, 1e-5))


def test_a_second_ledger_in_a_database_is_refused_from_any_machine(
    server, team, monkeypatch, tmp_path
):
    monkeypatch.setenv("TACIT_MARKS", str(tmp_path / "another machine"))
    with pytest.raises(LedgerError, match="holds a ledger already"):
        Ledger.new(server.url(team.path.name), Budget(30, 1e-5))


def test_roles_are_for_databases_and_must_exist(server, registry, tmp_path):
    with pytest.raises(InvalidArgument, match="has no roles"):
        Ledger.new(tmp_path / "r.db", Budget(3, 1e-5), analysts=["team"])
    with pytest.raises(LedgerError, match="has no role of that name"):
        Ledger.new(server.url(registry), Budget(3, 1e-5), analysts=['nobody"; DROP'])
    Ledger.new(server.url(registry), Budget(3, 1e-5), analysts=["team"])  # nothing was left behind


# Marks


def backed_up(server, name):
    server.run(
        f"DROP DATABASE IF EXISTS backup_{name}", f"CREATE DATABASE backup_{name} TEMPLATE {name}"
    )


def restored(server, name):
    server.run(f"DROP DATABASE {name}", f"CREATE DATABASE {name} TEMPLATE backup_{name}")


def test_an_older_copy_is_noticed_by_whoever_saw_a_later_line(
    server, team, marks, monkeypatch, tmp_path
):
    anna = opened(server, team, "anna")
    anna.charge(EVENT, ONE)
    monkeypatch.setenv("TACIT_MARKS", str(tmp_path / "bert"))
    opened(server, team, "bert")
    backed_up(server, team.path.name)
    monkeypatch.setenv("TACIT_MARKS", str(marks))
    anna.charge(EVENT, ONE)
    restored(server, team.path.name)
    for refused in (lambda: anna.left, lambda: opened(server, team, "anna")):
        with pytest.raises(LedgerError, match="is older than its mark"):
            refused()
    # Another machine has not seen what is missing, unless marks are shared.
    monkeypatch.setenv("TACIT_MARKS", str(tmp_path / "bert"))
    assert len(opened(server, team, "bert").charges) == 1
    monkeypatch.setenv("TACIT_MARKS", str(marks))
    with pytest.raises(LedgerError, match="is older than its mark"):
        opened(server, team, "bert")


def test_another_ledger_at_the_same_address_is_noticed(server, team, monkeypatch, tmp_path, marks):
    server.run(f"DROP DATABASE {team.path.name}", f"CREATE DATABASE {team.path.name} OWNER steward")
    with pytest.raises(LedgerError, match="holds no ledger"):
        opened(server, team, "steward")
    with pytest.raises(LedgerError, match="There was a ledger at"):
        Ledger.new(server.url(team.path.name), Budget(3, 1e-5))
    monkeypatch.setenv("TACIT_MARKS", str(tmp_path / "another machine"))
    Ledger.new(server.url(team.path.name), Budget(3, 1e-5))
    monkeypatch.setenv("TACIT_MARKS", str(marks))
    with pytest.raises(LedgerError, match="or another ledger"):
        opened(server, team, "steward")


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE tacit.charges SET epsilon = epsilon / 2",
        "UPDATE tacit.entries SET analyst = 'bert'",
        "UPDATE tacit.book SET epsilon = 30",
        "DELETE FROM tacit.entries",
        "UPDATE tacit.charges SET run_id = 'other'",
        "INSERT INTO tacit.finishes VALUES (1, 1, '', 'digest')",
        "INSERT INTO tacit.raises VALUES (1, '', '', 30, 1e-5)",
    ],
)
def test_a_line_that_an_administrator_changed_is_noticed(server, team, change):
    """Whoever runs the server can switch off its rules, but not what follows from the lines."""
    anna = opened(server, team, "anna")
    raise_total(team, Budget(3.5, 1e-5))
    anna.charge(EVENT, ONE)
    number = "" if "raises" not in change else change.replace("(1,", "(2,")
    server.run(
        "SET session_replication_role = replica; " + (number or change), database=team.path.name
    )
    with pytest.raises(LedgerError, match="was changed by another program"):
        anna.charge(EVENT, ONE)
    with pytest.raises(LedgerError, match="was changed by another program"):
        opened(server, team, "bert")


def test_a_mark_that_cannot_be_written_stops_the_charge(server, team, monkeypatch):
    monkeypatch.setenv("TACIT_MARKS", "/proc/nowhere/marks")
    with pytest.raises(LedgerError, match="TACIT_MARKS"):
        opened(server, team, "anna")
    monkeypatch.setattr(ledger_chain.tempfile, "mkstemp", no_room)
    with pytest.raises(LedgerError, match="cannot be written"):
        team.charge(EVENT, ONE)
    monkeypatch.undo()
    assert team.charges == []


def no_room(**_):
    raise OSError(28, "No space left on device")


def test_marks_are_in_the_users_folder_and_only_theirs(server, team, monkeypatch, tmp_path):
    monkeypatch.delenv("TACIT_MARKS")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    opened(server, team, "anna")
    (mark,) = (tmp_path / "state" / "tacit" / "marks").iterdir()
    assert mark.stat().st_mode & 0o777 == 0o600
    assert mark.parent.stat().st_mode & 0o777 == 0o700


# Several at once


def test_without_turns_the_server_still_lets_nobody_overspend(server, team, monkeypatch):
    """Serialisable transactions alone keep the total; turns only spare repetitions."""
    monkeypatch.setattr(serving, "LOCK_STATEMENT", "SELECT 1")
    cost = opened(server, team, "anna").charge(EVENT, ONE)
    each = cost.before.epsilon - cost.left.epsilon
    refused, errors = [], []

    def spend(ledger):
        for _ in range(4):
            try:
                ledger.charge(EVENT, ONE)
            except Overspent:
                refused.append(ledger)
            except Exception as error:  # noqa: BLE001
                errors.append(error)

    ledgers = [opened(server, team, user) for user in ("anna", "bert") * 2]
    threads = [threading.Thread(target=spend, args=(ledger,)) for ledger in ledgers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    charges = team.charges
    assert not errors
    assert len(charges) == int(3 / each)
    assert len(charges) + len(refused) == 17


def test_who_waits_too_long_is_told(server, team, monkeypatch):
    monkeypatch.setattr(serving, "_TRANSACTION_SETTINGS", ("SET LOCAL lock_timeout = '200ms'",))
    with team.transaction(), pytest.raises(LedgerError, match="is locked by another process"):
        opened(server, team, "anna")


def test_who_stands_still_is_ended_and_nothing_is_charged(server, team, monkeypatch):
    quick = "SET LOCAL idle_in_transaction_session_timeout = '100ms'"
    monkeypatch.setattr(serving, "_TRANSACTION_SETTINGS", (quick,))
    with (  # noqa: PT012
        pytest.raises(LedgerError, match=r"lost the connection|stood still"),
        team.transaction() as connection,
    ):
        team.append_charge(connection, team.prepare_charge(EVENT, ONE, ""))
        while not connection.connection.driver_connection.closed:
            time.sleep(0.05)
            select.select([connection.connection.driver_connection], [], [], 60)
            connection.exec_driver_sql("SELECT 1")
    monkeypatch.setattr(serving, "_TRANSACTION_SETTINGS", ())
    assert team.charges == []


# What is said


SECRET = "hunter2-word"  # noqa: S105


@pytest.mark.parametrize(
    ("address", "said"),
    [
        (
            "postgresql://anna:{secret}@127.0.0.1:{port}/{registry}",
            "refuses this user or this passw",
        ),
        ("postgresql://anna@127.0.0.1:{port}/{registry}", "asks for a password"),
        ("postgresql://anna@127.0.0.1:{port}/{registry}?password={secret}", "refuses this user"),
        ("postgresql://steward:steward-word@127.0.0.1:{port}/nowhere", "no such database"),
        ("postgresql://anna:{secret}@127.0.0.1:1/{registry}", "no server answers there"),
        ("postgresql://anna:{secret}@nowhere.invalid/{registry}", "no host of that name"),
        ("postgresql://steward:steward-word@127.0.0.1:{port}/{registry}", "holds no ledger"),
        ("postgresql://anna:{secret}@127.0.0.1:{port}", "is not complete"),
        ("postgresql://anna:{secret}@127.0.0.1:port/{registry}", "is not complete"),
        ("postgresql://anna:{secret}@127.0.0.1:1/{registry}?colour={secret}", "unknown|cannot be"),
        ("mysql://anna:{secret}@127.0.0.1/{registry}", "a database on a PostgreSQL server"),
    ],
)
def test_errors_are_one_sentence_without_the_password(
    server, registry, address, said, capsys, monkeypatch
):
    monkeypatch.delenv("PGPASSWORD", raising=False)
    text = address.format(secret=SECRET, port=server.port, registry=registry)
    code = main(["ledger", "show", text])
    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    assert err.strip().count("\n") == 0
    assert re.search(said, err)
    assert SECRET not in err
    assert "steward-word" not in err


def test_a_missing_driver_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingPackage, match=r"pip install 'tacit-bayes\[postgres\]'"):
        Ledger("postgresql://anna@127.0.0.1/registry")


def test_a_password_is_in_no_copy_and_no_text(server, team, monkeypatch):
    anna = opened(server, team, "anna").for_run("a")
    assert "anna-word" not in repr(anna) + str(anna.path) + repr(anna.path) + anna.path.name
    assert b"anna-word" not in pickle.dumps(anna)
    copy.deepcopy(anna).charge(EVENT, ONE)
    monkeypatch.setenv("PGPASSWORD", "anna-word")
    again = pickle.loads(pickle.dumps(anna))  # noqa: S301
    assert again.own_charges == anna.charges


def test_an_address_that_was_made_a_path_is_not_repeated(tmp_path):
    crushed = tmp_path / f"postgresql://anna:{SECRET}@127.0.0.1/registry"
    with pytest.raises(InvalidArgument, match="as text") as error:
        Ledger(crushed)
    assert SECRET not in str(error.value)


def test_what_an_address_shows():
    shown = {
        "postgresql+psycopg://anna:pw@db.example.org:5433/registry": "postgresql://anna@db.example.org:5433/registry",
        "postgresql:///registry?host=/run/postgresql&password=pw": "postgresql:///run/postgresql/registry",
        "postgres://db.example.org/registry?sslmode=verify-full": "postgresql://db.example.org/registry",
    }
    for text, expected in shown.items():
        address = parse_location(text)
        assert str(address) == expected
        assert address.name == "registry"
        assert "pw" not in address.without_secrets
    assert "sslmode=verify-full" in parse_location(list(shown)[2]).without_secrets


def test_neither_adopting_nor_a_federated_site_takes_a_database(server, team):
    with pytest.raises(LedgerError, match="needs no adopting"):
        adopt(server.url(team.path.name))
    with pytest.raises(InvalidArgument, match="keeps its ledger in a file"):
        LedgerJournal(team)


@pytest.mark.slow
def test_a_crash_of_the_server_loses_no_charge(server, team):
    anna = opened(server, team, "anna")
    anna.charge(EVENT, ONE)
    with (  # noqa: PT012
        pytest.raises(LedgerError, match="lost the connection"),
        team.transaction() as connection,
    ):
        team.append_charge(connection, team.prepare_charge(EVENT, ONE, "never charged"))
        server.stop(signal.SIGQUIT)
    with pytest.raises(LedgerError, match="no server answers there"):
        anna.charge(EVENT, ONE)
    server.start()
    assert len(anna.charges) == 1
    anna.charge(EVENT, ONE)


# Processes

SPENDING = """
import sys
from tacit.accounting import Budget, events
from tacit.accounting.ledger import Ledger
from tacit.errors import Overspent

event, budget, ledger = events.gaussian(100.0), Budget(0.5, 1e-9), Ledger(sys.argv[1])
charge = ledger.prepare_charge(event, budget, "")
print("ready", flush=True)
sys.stdin.readline()
admitted = 0
for i in range(50):
    try:
        ledger.for_run(f"{sys.argv[2]} {i}").charge(event, budget)
        admitted += 1
    except Overspent:
        pass
print(admitted, flush=True)
"""


@pytest.mark.slow
@pytest.mark.processes
def test_two_hundred_charges_of_two_analysts_at_once_lose_none_and_exceed_nothing(server, team):
    event, budget = events.gaussian(100.0), Budget(0.5, 1e-9)
    each = team.prepare_charge(event, budget, "").epsilon
    total, fit = Budget(150.5 * each, 1e-5), 150
    raise_total(team, total)
    analysts = ("anna", "bert", "anna", "bert")
    commands = [
        [sys.executable, "-c", SPENDING, server.url(team.path.name, name), f"{name} {i}"]
        for i, name in enumerate(analysts)
    ]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen(command, **pipes) for command in commands]
    assert [process.stdout.readline() for process in processes] == ["ready\n"] * 4
    done = [process.communicate("go\n")[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * 4
    charges = team.charges
    assert sum(map(int, done)) == len(charges) == fit
    assert math.fsum(charge.epsilon for charge in charges) <= total.epsilon
    assert len({charge.run for charge in charges}) == fit
    assert {charge.analyst for charge in charges} == {"anna", "bert"}


CHARGING = """
import signal, sys
import sqlalchemy as sa
from tacit.accounting import Budget, ledger_chain, events
from tacit.accounting.ledger import Ledger

address, point = sys.argv[1:]
ledger = Ledger(address)

def stop(*_):
    print(point, flush=True)
    signal.pause()  # until it is killed

if point == "booked":
    write = Ledger.append_charge
    Ledger.append_charge = lambda *line: (write(*line), stop())
elif point == "before the commit":
    sa.event.listen(ledger.backend._engine, "commit", stop)
else:
    ledger_chain.MarkFile._move_into_place = stop
ledger.charge(events.gaussian(10.0), Budget(0.5, 1e-7))
"""


@pytest.mark.processes
@pytest.mark.parametrize(
    "point",
    ["booked", pytest.param("before the commit", marks=pytest.mark.slow), "after the commit"],
)
def test_a_process_that_is_killed_while_it_charges_leaves_the_book_sound(server, team, point):
    bert = opened(server, team, "bert")
    bert.charge(EVENT, ONE)
    command = [sys.executable, "-c", CHARGING, server.url(team.path.name, "anna"), point]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == f"{point}\n"
        process.kill()
    charged = 1 if point == "after the commit" else 0
    assert len(bert.charges) == 1 + charged  # which waits until the server has noticed
    bert.charge(EVENT, ONE)
    assert [each.analyst for each in team.charges] == ["bert", *["anna"] * charged, "bert"]


# The command line


@pytest.mark.slow
@pytest.mark.processes
def test_a_fit_on_the_command_line_names_its_run_and_hides_the_password(
    server, registry, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    address = server.url(registry)
    assert main(["ledger", "new", address, "--epsilon", "3", "--delta", "1e-5"]) == 0
    (tmp_path / "t.csv").write_text("y,x\n" + "\n".join(f"{i % 2},{i % 7}" for i in range(400)))
    (tmp_path / "s.yaml").write_text(
        "columns:\n  y: {kind: binary}\n  x: {kind: number, low: 0, high: 7}\n"
    )
    fit = ["fit", "t.csv", "--schema", "s.yaml", "--formula", "y ~ x", "--epsilon", "1"]
    fit += ["--delta", "1e-6", "--ledger", address, "--out", "runs/first"]
    fit += ["--method", "variational", "--set", "num_steps=20"]
    assert main([*fit, "--quiet"]) == 0
    assert main(["ledger", "show", address]) == 0
    assert main(["ledger", "page", address, "--out", "ledger.html"]) == 0
    assert main(["ledger", "raise", address, "--epsilon", "4", "--delta", "1e-5"]) == 0
    assert main(["ledger", "show", address, "--json"]) == 0
    (charge,) = Ledger(address).charges
    assert (charge.analyst, charge.run) == ("steward", "first")
    assert charge.folder.endswith(str(tmp_path / "runs" / "first"))
    printed = "".join(capsys.readouterr())
    assert "first" in printed
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > 5
    for content in (printed.encode(), *(path.read_bytes() for path in files)):
        assert b"steward-word" not in content
