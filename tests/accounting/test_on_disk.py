"""What a ledger has booked is on the disk, not on its way there, before anything goes on."""

import sqlite3

import pytest

from tacit.accounting import Budget, events
from tacit.accounting.ledger import Ledger

EXTRA = 3  # SQLite's number for it


@pytest.fixture
def ledger(tmp_path):
    return Ledger.new(tmp_path / "r.db", total=Budget(3, 1e-6))


def test_every_transaction_waits_for_the_disk(ledger):
    """Of the database, of its journal, and of the folder that the journal vanishes from."""
    with ledger.transaction() as connection:

        def setting(name):
            return connection.exec_driver_sql(f"PRAGMA {name}").scalar()

        assert setting("synchronous") == EXTRA
        assert setting("journal_mode") in {"delete", "truncate", "persist", "wal"}


def test_a_charge_waits_for_the_disk(ledger, monkeypatch):
    """The very connection that books says so, at the time."""
    seen, append = [], Ledger.append_charge

    def watched(self, connection, line):
        append(self, connection, line)
        seen.append(connection.exec_driver_sql("PRAGMA synchronous").scalar())

    monkeypatch.setattr(Ledger, "append_charge", watched)
    ledger.charge(events.gaussian(8.0), Budget(1, 1e-7))
    assert seen == [EXTRA]


def test_a_charge_is_there_for_others_as_soon_as_it_is_made(ledger):
    ledger.charge(events.gaussian(8.0), Budget(1, 1e-7))
    with sqlite3.connect(ledger.path) as other:
        assert other.execute("SELECT count(*) FROM charges").fetchone() == (1,)
    other.close()
