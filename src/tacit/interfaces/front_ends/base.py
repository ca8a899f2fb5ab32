"""The interface of a front end, and what the schema tells every front end."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np

from tacit.data.columns import Category, Count, Kind
from tacit.data.schema import Schema
from tacit.models.base import AnyModel

_Written = TypeVar("_Written")


class FrontEnd(ABC, Generic[_Written]):
    """One way to write a model, and how it becomes what inference takes.

    Attributes:
        lasting: Whether such a model stays as it was made, so that a plan for it can be kept.
    """

    lasting: ClassVar[bool] = False

    @abstractmethod
    def takes(self, model: object) -> bool:
        """Whether a model is written this way."""

    @abstractmethod
    def adapt(self, model: _Written, schema: Schema | None) -> AnyModel:
        """The model in the form that inference takes."""

    def own_schema(self, model: _Written) -> Schema | None:  # noqa: ARG002
        """The schema that a model was made with, if it has one."""
        return None


def made_up(schema: Schema) -> Callable[[int, int], dict[str, Any]]:
    """A function of a number of rows and a seed that makes up encoded columns."""
    return lambda count, seed: dict(schema.made_up(count, seed=seed))


def highest(kind: Kind) -> Any:
    """The highest encoded value of a column, where that is a whole number."""
    if isinstance(kind, Category):
        return np.int32(kind.size - 1)
    if isinstance(kind, Count):
        return np.int32(kind.high)
    return kind.made_up(1000, np.random.default_rng(0)).max(axis=0)
