"""A PostgreSQL server for the tests of shared ledgers."""

import os
from itertools import count

import postgres
import pytest

NUMBERS = count(1)


@pytest.fixture(scope="session")
def server():
    """One server for the session; skipped where there is none, except in CI."""
    with postgres.running() as found:
        if found is None:
            assert os.environ.get("TACIT_POSTGRES") != "required", "CI must have PostgreSQL"
            pytest.skip("no PostgreSQL server is installed (pip install pgserver)")
        yield found


@pytest.fixture
def registry(server):
    """A new, empty database that belongs to the steward."""
    name = f"registry_{next(NUMBERS)}"
    server.run(f"CREATE DATABASE {name} OWNER steward")
    yield name
    server.run(f"DROP DATABASE {name} WITH (FORCE)")
