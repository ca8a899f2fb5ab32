"""What all tests share."""

import gc
import hashlib
import os
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, settings

from tacit.federated import journal
from tacit.privacy import noise

# Compiled programs stay out of the home of whoever runs the tests.
os.environ.setdefault("TACIT_CACHE_DIR", "")

# Traces and programs that JAX keeps are millions of objects, which the usual settings look through again and again.
gc.set_threshold(100_000, 50, 50)

# No test depends on how fast it runs.
settings.register_profile(
    "at any speed", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("at any speed")

# Real servers and nodes wait for each other more than they work: others can work meanwhile.
FIRST = ("test_deployment.py", "test_trial.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that take longest by the clock come first, so that no worker is left with one at the end."""
    items.sort(key=lambda item: item.path.name not in FIRST)


class Keys:
    """Keys of unseeded randomness that follow from the name of a test, so that it ends alike in every run."""

    def __init__(self) -> None:
        self.name, self.drawn = "", 0

    def begin(self, name: str) -> None:
        """Starts anew, for a test or a module."""
        self.name, self.drawn = name, 0

    def urandom(self, size: int) -> bytes:
        """Takes the place of `os.urandom`."""
        self.drawn += 1
        return hashlib.sha512(f"{self.name}:{self.drawn}".encode()).digest()[:size]


KEYS = Keys()


@pytest.fixture(autouse=True, scope="module")
def _keys_of_a_module(request):
    """Fixtures of a module have keys of their own."""
    KEYS.begin(request.node.nodeid)
    with pytest.MonkeyPatch.context() as patch:
        system = SimpleNamespace(urandom=KEYS.urandom, getpid=os.getpid)
        for module in (journal, noise):
            patch.setattr(module, "os", system)
        yield


@pytest.fixture(autouse=True)
def _keys_of_a_test(_keys_of_a_module, request):
    KEYS.begin(request.node.nodeid)
