"""Planted faults, each with the tests that must notice it; one that nobody notices fails here.

All of them run with ``-m slow``. A few that are quick run always.
"""

from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest
from planted_faults import FAULTS, QUICK
from planting import codes, planted

TESTS = Path(__file__).parents[1]
ASSERTIONS = (AssertionError, pytest.fail.Exception)
# Slow tests too, and no doctests.
OPTIONS = ("-q", "-o", "addopts=", "-W", "ignore::pytest.PytestAssertRewriteWarning")
# Nothing of the outer run is touched: neither its cache nor its workers nor its signals. And the
# garbage of every inner run is not collected five times over.
WITHOUT = ("cacheprovider", "xdist", "faulthandler", "hypothesispytest", "unraisableexception")


@dataclass
class Seen:
    """Which tests ran, and what kind of error ended each."""

    ran: set[str] = field(default_factory=set)
    errors: dict[str, type] = field(default_factory=dict)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item, call):
        name = item.nodeid.removeprefix("tests/")
        self.ran.add(name)
        if call.excinfo is not None:
            self.errors[name] = call.excinfo.type
        return (yield)


def run(*tests):
    """Runs tests in this process."""
    seen = Seen()
    without = [each for name in WITHOUT for each in ("-p", f"no:{name}")]
    config = ["--rootdir", str(TESTS.parent), "-c", str(TESTS.parent / "pyproject.toml")]
    found = [str(TESTS / each) for each in tests]
    pytest.main([*OPTIONS, *without, *config, *found], plugins=[seen])
    assert all(_of(test, seen.ran) for test in tests), "not all of these tests can be run"
    return seen.errors


def _of(test, names):
    """Names of a test, or of its cases."""
    return [name for name in names if name == test or name.startswith(f"{test}[")]


@cache
def passes(test):
    """Whether a test passes as things are."""
    return not run(test)


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(fault, id=fault.name, marks=() if fault.name in QUICK else pytest.mark.slow)
        for fault in FAULTS
    ],
)
def test_a_planted_fault_is_noticed(fault):
    for test in fault.noticed_by:
        assert passes(test), f"{test} fails without any fault"
    with planted(fault):
        errors = run(*fault.noticed_by)
    for test in fault.noticed_by:
        found = [errors[name] for name in _of(test, errors)]
        assert found, f"{test} did not notice it"
        assert any(issubclass(each, ASSERTIONS) for each in found), (test, found)


def test_the_table_is_what_it_says():
    names = [fault.name for fault in FAULTS]
    assert len(set(names)) == len(names) >= 30
    assert set(QUICK) <= set(names)
    assert all(fault.noticed_by for fault in FAULTS)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_is_of_the_code_as_it_is(fault):
    """Where the code was changed since, the fault must be, too; and so are its tests."""
    assert codes(fault)
    for test in fault.noticed_by:
        file, name = test.split("::")
        assert f"def {name.partition('[')[0]}(" in (TESTS / file).read_text(), test
