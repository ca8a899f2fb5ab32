"""Plans that `tacit.fit` made before, so that the same fit again neither plans nor compiles anew.

A plan holds public facts only, and users may keep one themselves. A NumPyro function or a PyMC model
can change between two calls without looking different, so plans of those are not kept.
"""

from functools import lru_cache
from typing import Any

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
        model: A model as for `tacit.plan`. It counts as the same only if it is the same object, and so
            does the method, because settings may be equal and not the same.
        schema: The schema.
        budget: The budget.
        method: The method, or None for the default.
        size: The declared size, if any.

    Returns:
        The plan.
    """
    if front_end_of(model).lasting and all(map(_hashable, (schema, budget, size))):
        return _kept(_Same(model), schema, budget, _Same(method), size)
    return plan(model, schema, budget=budget, method=method, size=size)


class _Same:
    """A model or a method, equal only to itself."""

    def __init__(self, held: Any) -> None:
        self.held = held

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.held is other.held

    def __hash__(self) -> int:
        return id(self.held)


@lru_cache(maxsize=16)
def _kept(model: _Same, schema: Schema, budget: Budget, method: _Same, size: int | None) -> Plan:
    return plan(model.held, schema, budget=budget, method=method.held, size=size)


def _hashable(value: object) -> bool:
    """Whether a value can be looked up; settings may hold anything."""
    try:
        hash(value)
    except TypeError:
        return False
    return True
