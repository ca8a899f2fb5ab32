"""What all tests share."""

import pytest
from hypothesis import HealthCheck, settings

# No test depends on how fast it runs.
settings.register_profile(
    "at any speed", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("at any speed")

# Real servers and nodes wait for each other more than they work: others can work meanwhile.
FIRST = ("test_deployment.py",)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that take longest by the clock come first, so that no worker is left with one at the end."""
    items.sort(key=lambda item: item.path.name not in FIRST)
