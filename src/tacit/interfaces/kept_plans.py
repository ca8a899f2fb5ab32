"""Plans that `tacit.fit` made before, so that the same fit again neither plans nor compiles anew.

A plan holds public facts only, and users may keep one themselves. A NumPyro function or a PyMC model
can change between two calls without looking different, so plans of those are not kept.
"""

from dataclasses import fields, is_dataclass
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
        model: A model as for `tacit.plan`. It counts as the same only if it is the same object.
        schema: The schema.
        budget: The budget.
        method: The method, or None for the default.
        size: The declared size, if any.

    Returns:
        The plan.
    """
    if front_end_of(model).lasting and all(map(_hashable, (schema, budget, method, size))):
        return _kept(_Same(model), schema, budget, _Settings(method), size)
    return plan(model, schema, budget=budget, method=method, size=size)


class _Same:
    """A model, equal only to itself."""

    def __init__(self, held: Any) -> None:
        self.held = held

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.held is other.held

    def __hash__(self) -> int:
        return id(self.held)


class _Settings:
    """A method or a setting, equal if all settings are: also those that methods do not compare."""

    def __init__(self, held: Any) -> None:
        self.held = held

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Settings):
            return False
        mine, theirs = self.held, other.held
        if mine is theirs:
            return True
        if type(mine) is not type(theirs) or not _hashable(mine) or mine != theirs:
            return False
        hidden = (
            [each.name for each in fields(mine) if not each.compare] if is_dataclass(mine) else []
        )
        return all(_Settings(vars(mine)[n]) == _Settings(vars(theirs)[n]) for n in hidden)

    def __hash__(self) -> int:
        return hash(self.held)


@lru_cache(maxsize=16)
def _kept(
    model: _Same, schema: Schema, budget: Budget, method: _Settings, size: int | None
) -> Plan:
    return plan(model.held, schema, budget=budget, method=method.held, size=size)


def _hashable(value: object) -> bool:
    """Whether a value can be looked up; settings may hold anything."""
    try:
        hash(value)
    except TypeError:
        return False
    return True
