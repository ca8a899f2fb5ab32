"""From any way of writing a model to the form that inference takes."""

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import jax
import numpy as np

from tacit.data.columns import Category, Count, Kind, Number
from tacit.data.schema import Schema
from tacit.errors import InvalidArgument, MissingPackage
from tacit.models.base import UnitModel
from tacit.models.conjugate import ColumnLimits, Conjugate
from tacit.models.jax_model import Model
from tacit.models.numpyro import NumPyro, NumPyroModel
from tacit.models.numpyro_structure import check_numpyro_model, from_numpyro
from tacit.models.pymc import PyMC, PyMCModel, is_bambi
from tacit.privacy.captured import check_captured

if TYPE_CHECKING:
    from tacit.models.glm import GLM


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
    def adapt(self, model: _Written, schema: Schema | None) -> UnitModel:
        """The model in the form that inference takes."""

    def own_schema(self, model: _Written) -> Schema | None:  # noqa: ARG002
        """The schema that a model was made with, if it has one."""
        return None


def make_dummy_columns(schema: Schema) -> Callable[[int, int], dict[str, Any]]:
    """A function of a number of rows and a seed that makes up encoded columns."""
    return lambda count, seed: dict(schema.made_up(count, seed=seed))


def highest_value(kind: Kind) -> Any:
    """The highest encoded value of a column, where that is a whole number."""
    if isinstance(kind, Category):
        return np.int32(kind.size - 1)
    if isinstance(kind, Count):
        return np.int32(kind.high)
    return kind.made_up(1000, np.random.default_rng(0)).max(axis=0)


class Plain(FrontEnd[Model]):
    """A `tacit.Model`."""

    lasting = True

    def takes(self, model: object) -> bool:
        """Whether it is one."""
        return isinstance(model, Model)

    def adapt(self, model: Model, schema: Schema | None) -> UnitModel:  # noqa: ARG002
        """As it is."""
        return model


class ByStatistics(FrontEnd[Conjugate]):
    """One of `tacit.conjugate`."""

    lasting = True

    def takes(self, model: object) -> bool:
        """Whether it is one."""
        return isinstance(model, Conjugate)

    def adapt(self, model: Conjugate, schema: Schema | None) -> UnitModel:
        """Within the bounds of the schema, if there is one."""
        return model if schema is None else model.within(_column_limits(schema))


def _column_limits(schema: Schema) -> dict[str, ColumnLimits]:
    """Lowest and highest encoded values of the columns that have a single one in each row."""
    limits = {}
    for name, kind in schema.items:
        if isinstance(kind, Number):
            ends = kind.ends
        elif isinstance(kind, Count):
            ends = float(kind.low), float(kind.high)
        else:
            ends = 0.0, float(kind.size - 1 if isinstance(kind, Category) else 1)
        if kind.shape == ():
            limits[name] = ColumnLimits(kind.kind, *ends)
    return limits


class ByPyMC(FrontEnd[object]):
    """A model of PyMC, a `tacit.models.PyMC`, or a Bambi model, which is refused."""

    def takes(self, model: object) -> bool:
        """Whether it is of PyMC, or of Bambi."""
        library = sys.modules.get("pymc")
        made_by_pymc = library is not None and isinstance(model, library.Model)
        return isinstance(model, PyMC | PyMCModel) or made_by_pymc or is_bambi(model)

    def adapt(self, model: object, schema: Schema | None) -> UnitModel:
        """The density of one row at a time, from the graph of the model."""
        if isinstance(model, PyMCModel):
            return model
        described = model if isinstance(model, PyMC) else PyMC(model)
        if is_bambi(described.model):
            raise InvalidArgument(
                "Models made by Bambi cannot be private: it centres predictors, scales priors and finds "
                "levels by looking at the data; write the formula for tacit.glm, which takes all of "
                "that from the schema."
            )
        if schema is None:
            raise InvalidArgument("A PyMC model needs schema=: the public facts about its columns.")
        try:
            from tacit.models.pymc_graph import from_pymc
        except ModuleNotFoundError as error:
            raise MissingPackage("pymc", "A PyMC model") from error
        return from_pymc(
            described,
            make_dummy_columns(schema),
            lambda name: highest_value(schema[name]),
            schema.person,
        )


class ByNumPyro(FrontEnd[object]):
    """A NumPyro function, or a `tacit.models.NumPyro` with options for one."""

    def takes(self, model: object) -> bool:  # noqa: ARG002
        """Always, because a function is recognised only by running it. So this front end comes last."""
        return True

    def adapt(self, model: object, schema: Schema | None) -> UnitModel:
        """The density of one row at a time, checked on made-up rows."""
        if isinstance(model, NumPyroModel):
            return model
        described = model if isinstance(model, NumPyro) else NumPyro(model)  # type: ignore[arg-type]  # checked below
        if isinstance(described.function, jax.stages.Wrapped):  # it would hide what it samples
            described = replace(described, function=described.function.__wrapped__)  # type: ignore[attr-defined]
        if not callable(described.function):
            raise InvalidArgument(
                "model must be a NumPyro function, a PyMC model or a tacit.Model; got "
                f"{type(model).__name__}."
            )
        if schema is None:
            raise InvalidArgument(
                "A NumPyro model needs schema=: the public facts about its columns."
            )
        check_captured(described.function, *filter(callable, described.constants.values()))
        adapted = from_numpyro(described, make_dummy_columns(schema), schema.person)
        return check_numpyro_model(
            adapted,
            make_dummy_columns(schema),
            {name: highest_value(schema[name]) for name in adapted.columns},
        )


class ByFormula(FrontEnd["GLM"]):
    """A model from `tacit.glm`."""

    lasting = True

    def takes(self, model: object) -> bool:
        """Whether it is one. If its module is not loaded, it cannot be."""
        home = sys.modules.get("tacit.models.glm")
        return home is not None and isinstance(model, home.GLM)

    def own_schema(self, model: "GLM") -> Schema | None:
        """The schema that was passed to tacit.glm."""
        return model.schema if isinstance(model.schema, Schema) else None

    def adapt(self, model: "GLM", schema: Schema | None) -> UnitModel:
        """As the NumPyro function that it is."""
        return ByNumPyro().adapt(model.described, schema)


# The first front end that takes a model adapts it. The last one takes any model.
FRONT_ENDS: tuple[FrontEnd[Any], ...] = (
    Plain(),
    ByStatistics(),
    ByPyMC(),
    ByFormula(),
    ByNumPyro(),
)


def find_front_end(model: object) -> FrontEnd[Any]:
    """The front end of a model."""
    return next(each for each in FRONT_ENDS if each.takes(model))


def adapt_model(model: object, schema: Schema | None) -> UnitModel:
    """The model in the form that inference takes."""
    if schema is not None and not isinstance(schema, Schema):
        raise InvalidArgument("schema must be a tacit.Schema: the public facts about the columns.")
    return find_front_end(model).adapt(model, schema)


def resolve_schema(model: object, schema: Schema | None) -> Schema | None:
    """The schema that was passed, or the one that a model was made with."""
    own = find_front_end(model).own_schema(model)
    if own is None:
        return schema
    if schema is not None and schema != own:
        raise InvalidArgument(
            "The model was made by tacit.glm with another schema; leave schema= out here."
        )
    return own
