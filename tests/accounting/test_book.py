"""The file of a ledger: what shows that it is whole, and what is said when it is not."""

import copy
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from threading import Thread

import pytest
import sqlalchemy as sa

from tacit.accounting import Budget, events, ledger_chain, ledger_store
from tacit.accounting.ledger import Ledger, adopt
from tacit.cli.main import main
from tacit.errors import InvalidArgument, LedgerError
from tacit.federated.journal import Answer, LedgerJournal, RunTerms, random_key

ONE = Budget(1, 1e-7)
EVENT = events.gaussian(10.0)


@pytest.fixture
def path(tmp_path):
    return Ledger.new(tmp_path / "r.db", total=Budget(3, 1e-6)).path


def mark_of(path):
    return path.with_name(f"{path.name}.mark")


def by_hand(path, *statements):
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def spend(path, times=1):
    for _ in range(times):
        Ledger(path).charge(EVENT, ONE)


@pytest.mark.skipif(os.name != "posix", reason="folders cannot be locked there")
def test_a_mark_is_not_replaced_by_an_older_one(path, monkeypatch):
    """Of two that have charged, the later one comes while the earlier one places its mark."""
    mark = ledger_chain.MarkFile(path)
    first, second = (ledger_chain.ChainHead(mark.read().links + i, bytes([i])) for i in (1, 2))
    other = Thread(
        target=ledger_chain.MarkFile(path)._move_into_place,
        args=(mark._write_draft(second), second),
    )

    def meanwhile():
        other.start()
        other.join(0.2)  # it waits
        return ledger_chain.ChainHead(0, b"")

    monkeypatch.setattr(mark, "read", meanwhile)
    mark._move_into_place(mark._write_draft(first), first)
    other.join()
    assert ledger_chain.MarkFile(path).read() == second


def test_a_line_that_was_changed_is_noticed_by_who_had_opened_the_book(path):
    """Whoever charges may have opened it long before."""
    held, terms = Ledger(path), RunTerms(run="r", answers=1, event=EVENT, budget=ONE)
    journal = LedgerJournal(held)
    held.charge(EVENT, ONE)
    by_hand(
        path,
        "PRAGMA ignore_check_constraints=ON",
        "INSERT INTO charges (time, label, epsilon, delta, divergence, event) "
        "VALUES ('', '', -100.0, 0.0, 0.0, '')",
    )
    with pytest.raises(LedgerError, match="was changed"):
        held.charge(EVENT, ONE)
    with pytest.raises(LedgerError, match="was changed"):
        journal.admit(terms, Answer(1, b"d", random_key(), b"s"))


def test_a_copy_of_a_ledger_is_the_same_book_wherever_it_is_made(tmp_path, monkeypatch):
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        Ledger.new("r.db", total=Budget(3, 1e-6))
    held = Ledger("r.db")
    monkeypatch.chdir(tmp_path / "here")
    copy.copy(held).charge(EVENT, ONE)
    assert [len(Ledger(tmp_path / name / "r.db").charges) for name in ("here", "there")] == [0, 1]


PATHS = {"long": "a" * 5000, "zero byte": "a\0b", "loop": "loop.db"}


@pytest.mark.parametrize("name", PATHS)
def test_a_path_that_none_can_have_is_one_sentence(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop.db").symlink_to("loop.db")
    for attempt in (Ledger, adopt, lambda path: Ledger.new(path, total=ONE)):
        with pytest.raises(LedgerError) as refused:
            attempt(PATHS[name])
        assert "aaaa" not in str(refused.value)


@pytest.mark.parametrize("text", ['{"links": 1e400, "hash": ""}', "[" * 100_000])
def test_a_mark_of_anything_is_one_sentence(path, text):
    mark_of(path).write_text(text)
    with pytest.raises(LedgerError, match="not the mark file"):
        Ledger(path)


def test_a_book_is_opened_once(path):
    for _ in range(2):
        with pytest.raises(LedgerError, match=r"exists already.* open it: tacit\.Ledger\("):
            Ledger.new(path, total=Budget(9, 1e-6))
    assert Ledger(path).total == Budget(3, 1e-6)


def test_a_book_that_is_gone_is_not_opened_anew(path):
    spend(path)
    held, shared = Ledger(path), path.read_bytes()
    path.unlink()
    attempts = (
        lambda: Ledger(path),
        lambda: Ledger(path, total=Budget(3, 1e-6)),
        lambda: Ledger.new(path, total=Budget(3, 1e-6)),
    )
    for attempt in attempts:
        with pytest.raises(LedgerError, match="newest copy"):
            attempt()
    for use in (lambda: held.charge(EVENT, ONE), lambda: held.left, lambda: held.charges):
        with pytest.raises(LedgerError, match="is gone"):
            use()
    assert not path.exists()
    path.write_bytes(shared)
    assert len(held.charges) == 1


def test_a_book_that_was_emptied_or_exchanged_is_refused(path, tmp_path):
    spend(path)
    held = Ledger(path)
    path.write_bytes(b"")
    for use in (lambda: Ledger(path), lambda: held.charge(EVENT, ONE)):
        with pytest.raises(LedgerError, match="emptied"):
            use()
    other = Ledger.new(tmp_path / "other.db", total=Budget(3, 1e-6))
    spend(other.path)
    shutil.copy(other.path, path)
    for use in (lambda: Ledger(path), lambda: held.charge(EVENT, ONE)):
        with pytest.raises(LedgerError, match="another ledger"):
            use()


def test_an_older_copy_is_refused_also_while_it_is_in_use(path):
    spend(path)
    held, older = Ledger(path), path.read_bytes()
    spend(path)
    path.write_bytes(older)
    for use in (lambda: Ledger(path), lambda: held.charge(EVENT, ONE), lambda: held.left):
        with pytest.raises(LedgerError, match="older than its mark"):
            use()


def test_a_book_without_its_mark_is_taken_only_by_an_act(path):
    spend(path)
    mark_of(path).unlink()
    with pytest.raises(LedgerError, match=r"no mark .* tacit ledger adopt"):
        Ledger(path)
    assert len(adopt(path).charges) == 1
    assert len(Ledger(path).charges) == 1
    with pytest.raises(LedgerError, match="needs no adopting"):
        adopt(path)


def test_a_mark_that_is_behind_is_brought_up_to_date(path):
    """As after a crash between the book's transaction and the mark."""
    spend(path)
    behind, one = mark_of(path).read_bytes(), path.read_bytes()
    spend(path)
    mark_of(path).write_bytes(behind)
    assert len(Ledger(path).charges) == 2
    path.write_bytes(one)
    with pytest.raises(LedgerError, match="older than its mark"):
        Ledger(path)


CRASHING = """
import os, sys
from tacit.accounting import Budget, ledger_chain, events
from tacit.accounting.ledger import Ledger

ledger = Ledger(sys.argv[1])
ledger_chain.MarkFile._move_into_place = lambda *_: os._exit(7)  # on disk is the book, and not yet the mark
ledger.charge(events.gaussian(10.0), Budget(1, 1e-7))
"""


@pytest.mark.processes
def test_a_crash_before_the_mark_loses_nothing(path):
    done = subprocess.run([sys.executable, "-c", CRASHING, str(path)], check=False)
    assert done.returncode == 7
    assert json.loads(mark_of(path).read_text())["links"] == 2
    assert len(Ledger(path).charges) == 1
    assert json.loads(mark_of(path).read_text())["links"] == 4  # the charge, and whose it was


@pytest.mark.parametrize(
    "attack",
    [
        "INSERT INTO charges VALUES (9, 't', 'l', -100.0, 0.0, 0.0, 'e', '', NULL, NULL)",
        "INSERT INTO charges VALUES (9, 't', 'l', 'free', 0.0, 0.0, 'e', '', NULL, NULL)",
        "INSERT INTO charges VALUES (9, 't', 'l', 9e999, 0.0, 0.0, 'e', '', NULL, NULL)",
        "INSERT INTO charges VALUES (9, 't', 'l', 0.0, -1.0, 0.0, 'e', '', NULL, NULL)",
        "INSERT INTO charges VALUES (9, 't', 'l', 0.0, 0.0, -1.0, 'e', '', NULL, NULL)",
        "INSERT INTO book VALUES (2, 9.0, 0.0, 'replace', 'row', 'sum', 0.0)",
    ],
)
def test_lines_that_no_run_could_have_are_refused_by_the_file_itself(path, attack):
    with pytest.raises(sqlite3.IntegrityError, match="CHECK"):
        by_hand(path, attack)


FREE = ("DROP TRIGGER charges_no_update", "DROP TRIGGER charges_no_delete")


@pytest.mark.parametrize(
    "attack",
    [
        ("INSERT INTO charges VALUES (9, 't', 'l', 0.5, 0.0, 0.0, 'e', '', NULL, NULL)",),
        (*FREE, "UPDATE charges SET epsilon = 0.001 WHERE id = 1"),
        (*FREE, "UPDATE charges SET label = 'other' WHERE id = 2"),
        (*FREE, "DELETE FROM charges WHERE id = 2"),
        (*FREE, "DELETE FROM charges WHERE id = 1"),
        ("DROP TRIGGER book_no_update", "UPDATE book SET epsilon = 99"),
        ("DROP TRIGGER entries_no_update", "UPDATE entries SET analyst = 'other' WHERE id = 2"),
        ("INSERT INTO raises VALUES (1, 't', 's', 99.0, 0.0)",),
        ("INSERT INTO finishes VALUES (1, 1, 't', 'd', 0)",),
        ("DROP TRIGGER chain_no_update", "UPDATE chain SET digest = x'00' WHERE id = 2"),
    ],
)
def test_lines_that_were_changed_by_hand_are_noticed(path, attack):
    spend(path, 2)
    by_hand(path, *attack)
    with pytest.raises(LedgerError, match="changed by another program"):
        Ledger(path)


def test_a_book_that_lacks_its_last_lines_is_noticed(path):
    spend(path, 2)
    cut = ("DELETE FROM charges WHERE id = 2", "DELETE FROM entries WHERE id = 2")
    free = ("DROP TRIGGER chain_no_delete", "DROP TRIGGER entries_no_delete")
    by_hand(path, *FREE, *free, *cut, "DELETE FROM chain WHERE id > 4")
    with pytest.raises(LedgerError, match="older than its mark"):
        Ledger(path)


def test_a_book_of_an_earlier_version_is_refused_in_a_sentence(path):
    """Its charges do not say of which run they are, and no result was recorded."""
    spend(path)
    by_hand(path, "DROP TABLE finishes")
    with pytest.raises(
        LedgerError, match="written by an earlier version of Tacit, or lost a table"
    ):
        Ledger(path)


def answered(path, rounds, key=random_key, run="r"):
    journal = LedgerJournal(Ledger(path))
    terms = RunTerms(run=run, answers=50, event=EVENT, budget=ONE)
    for number in rounds:
        digest = number.to_bytes(4)
        journal.admit(terms, Answer(number, digest, key(), b"state" * 100))
        journal.finish(run, digest, b"reply" * 600)


def test_a_question_that_was_taken_out_of_the_journal_is_noticed(path):
    answered(path, range(1, 4))
    by_hand(path, "DELETE FROM answers WHERE round = 3")
    with pytest.raises(LedgerError, match="changed by another program"):
        LedgerJournal(Ledger(path))


def test_keys_of_noise_do_not_stay_in_the_file(path):
    keys = []

    def key():
        keys.append(random_key())
        return keys[-1]

    answered(path, range(1, 40), key)
    files = [file.read_bytes() for file in path.parent.iterdir()]
    assert len(keys) == 39
    assert b"reply" in b"".join(files)
    assert not [key for key in keys for file in files if key[:12] in file]


def test_a_key_is_there_while_it_is_needed(path):
    journal = LedgerJournal(Ledger(path))
    terms = RunTerms(run="r", answers=5, event=EVENT, budget=ONE)
    key = random_key()
    journal.admit(terms, Answer(1, b"1", key, b""))
    assert journal.find(terms, b"1").key == key
    journal.finish("r", b"1", b"reply")
    assert journal.find(terms, b"1").key is None


def locked(path):
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    return other.close


def full(path):
    with closing(sqlite3.connect(path)) as connection:
        pages = connection.execute("PRAGMA page_count").fetchone()[0]

    def limit(connection, _record):
        connection.execute(f"PRAGMA max_page_count={pages}")

    sa.event.listen(sa.pool.Pool, "connect", limit)
    return lambda: sa.event.remove(sa.pool.Pool, "connect", limit)


def read_only(path):
    def forbid(connection, _record):
        connection.execute("PRAGMA query_only=ON")

    sa.event.listen(sa.pool.Pool, "connect", forbid)
    return lambda: sa.event.remove(sa.pool.Pool, "connect", forbid)


def damaged(path):
    held = path.read_bytes()
    path.write_bytes(held[:100] + b"\xff" * (len(held) - 100))
    return lambda: path.write_bytes(held)


@pytest.mark.parametrize(
    ("trouble", "said"),
    [
        (locked, "locked by another process"),
        (full, "disk is full"),
        (read_only, "read-only"),
        (damaged, "damaged"),
    ],
)
def test_trouble_with_the_file_is_told_in_a_sentence(path, trouble, said, monkeypatch):
    monkeypatch.setattr(ledger_store, "LOCK_TIMEOUT", 0.05)
    held, label = Ledger(path), "of more than a page" * 1000
    end = trouble(path)
    try:
        with pytest.raises(LedgerError, match=said) as caught:
            held.charge(EVENT, ONE, label)
    finally:
        end()
    assert str(caught.value).removeprefix(str(path)).count(".") == 1
    assert not Ledger(path).charges


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write anywhere")
def test_what_cannot_be_marked_is_not_booked(path):
    path.parent.chmod(0o500)
    try:
        with pytest.raises(LedgerError, match=r"read-only|cannot be written|cannot be opened"):
            Ledger(path).charge(EVENT, ONE)
    finally:
        path.parent.chmod(0o700)
    assert not Ledger(path).charges


def test_a_mark_without_room_books_nothing(path, monkeypatch):
    held = Ledger(path)

    def no_room(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(ledger_chain.tempfile, "mkstemp", no_room)
    with pytest.raises(LedgerError, match="No space left"):
        held.charge(EVENT, ONE)
    monkeypatch.undo()
    assert not held.charges
    assert {file.name for file in path.parent.iterdir()} == {"r.db", "r.db.mark"}


def test_a_mark_that_is_none_is_refused(path):
    for text in ("", "{}", "[1]", '{"links": "many", "hash": "00"}'):
        mark_of(path).write_text(text)
        with pytest.raises(LedgerError, match="not the mark file of a ledger"):
            Ledger(path)


def test_both_files_are_for_the_owner(path):
    spend(path)
    assert [file.stat().st_mode & 0o077 for file in (path, mark_of(path))] == [0, 0]


def test_a_book_whose_lines_were_changed_is_not_adopted(path):
    spend(path, 2)
    mark_of(path).unlink()
    by_hand(path, *FREE, "UPDATE charges SET epsilon = 0.001 WHERE id = 1")
    before = path.read_bytes()
    with pytest.raises(LedgerError, match="changed by another program"):
        adopt(path)
    assert path.read_bytes() == before
    assert not mark_of(path).exists()


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        (["finishes"], "earlier version of Tacit, or lost a table"),
        (["chain"], "earlier version of Tacit, or lost a table"),
        (["finishes", "entries", "charges"], "holds no ledger"),
    ],
)
def test_a_book_that_lacks_tables_is_not_adopted(path, tables, said):
    mark_of(path).unlink()
    by_hand(path, *(f"DROP TABLE {table}" for table in tables))
    before = path.read_bytes()
    for use in (Ledger, adopt):
        with pytest.raises(LedgerError, match=said):
            use(path)
    assert path.read_bytes() == before
    assert not mark_of(path).exists()


def test_a_changed_journal_is_noticed_after_its_book_was_adopted(path):
    journal = LedgerJournal(Ledger(path))
    terms = RunTerms(run="r", answers=3, event=EVENT, budget=ONE)
    for number in (1, 2):
        journal.admit(terms, Answer(number, bytes([number]), random_key(), b"state"))
    mark_of(path).unlink()
    by_hand(path, "DELETE FROM answers WHERE round = 2")
    with pytest.raises(LedgerError, match="changed by another program"):
        LedgerJournal(adopt(path))


def test_commands_end_with_two_and_a_sentence(path, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(ledger_store, "LOCK_TIMEOUT", 0.05)
    for command in (["show", "none.db"], ["adopt", "none.db"], ["adopt", str(path)]):
        assert main(["ledger", *command]) == 2
        assert capsys.readouterr().err.startswith("Error: ")
    new = ["ledger", "new", str(path), "--epsilon", "1", "--delta", "1e-6", "--unit", "row"]
    assert main(new) == 2
    assert "exists" in capsys.readouterr().err
    end = locked(path)
    assert main(["ledger", "show", str(path)]) == 2
    assert "locked by another process" in capsys.readouterr().err
    end()
    path.unlink()
    assert main(new) == 2
    assert "its mark file is still there" in capsys.readouterr().err


def test_what_is_said_must_be_what_was_fixed(path):
    with pytest.raises(InvalidArgument, match="cannot be changed"):
        Ledger(path, total=Budget(4, 1e-6))
