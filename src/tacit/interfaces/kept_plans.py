"""Plans that `tacit.fit` made before, so that the same fit again neither plans nor compiles anew.

A plan holds public facts only, and users may keep one themselves. A NumPyro function or a PyMC model
can change between two calls without looking different, so plans of those are not kept.
"""

from collections.abc import Hashable
from functools import lru_cache
from typing import Any, cast

from tacit.accounting import Budget
from tacit.data.schema import Schema
from tacit.inference.base import Method
from tacit.interfaces.front_ends.registry import front_end_of
from tacit.interfaces.plan import Plan, plan


def plan_again(
    model: object, schema: Schema, budget: Budget, method: Method | None, size: int | None
) -> Plan:
    """The plan that `tacit.plan` makes, or the one it made for the same arguments before.

    Args:
        model: A model as for `tacit.plan`. It counts as the same only if it is the same object.
        schema: The schema.
        budget: The budget.
        method: The method, or None for the default.
        size: The declared size, if any.

    Returns:
        The plan.
    """
    if front_end_of(model).lasting and all(map(_hashable, (schema, budget, method, size))):
        return _kept(_Same(model), schema, budget, cast(Hashable, method), size)
    return plan(model, schema, budget=budget, method=method, size=size)


class _Same:
    """A model, equal only to itself."""

    def __init__(self, model: object) -> None:
        self.model = model

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.model is other.model

    def __hash__(self) -> int:
        return id(self.model)


@lru_cache(maxsize=16)
def _kept(same: _Same, schema: Schema, budget: Budget, method: Any, size: int | None) -> Plan:
    return plan(same.model, schema, budget=budget, method=method, size=size)


def _hashable(value: object) -> bool:
    """Whether a value can be looked up; settings may hold anything."""
    try:
        hash(value)
    except TypeError:
        return False
    return True
