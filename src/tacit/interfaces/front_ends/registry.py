"""The registry of front ends. To add one, write a file beside this one and add a line here."""

from typing import Any

from tacit.data.schema import Schema
from tacit.errors import InvalidArgument
from tacit.interfaces.front_ends.base import FrontEnd
from tacit.interfaces.front_ends.conjugate import ByStatistics
from tacit.interfaces.front_ends.formula import ByFormula
from tacit.interfaces.front_ends.numpyro import ByNumPyro
from tacit.interfaces.front_ends.plain import Plain
from tacit.interfaces.front_ends.pymc import ByPyMC
from tacit.models.base import AnyModel

# The first front end that takes a model adapts it. The last one takes any model.
FRONT_ENDS: tuple[FrontEnd[Any], ...] = (
    Plain(),
    ByStatistics(),
    ByPyMC(),
    ByFormula(),
    ByNumPyro(),
)


def front_end_of(model: object) -> FrontEnd[Any]:
    """The front end of a model."""
    return next(each for each in FRONT_ENDS if each.takes(model))


def as_model(model: object, schema: Schema | None) -> AnyModel:
    """The model in the form that inference takes."""
    if schema is not None and not isinstance(schema, Schema):
        raise InvalidArgument("schema must be a tacit.Schema: the public facts about the columns.")
    return front_end_of(model).adapt(model, schema)


def schema_of(model: object, schema: Schema | None) -> Schema | None:
    """The schema that was passed, or the one that a model was made with."""
    own = front_end_of(model).own_schema(model)
    if own is None:
        return schema
    if schema is not None and schema != own:
        raise InvalidArgument(
            "The model was made by tacit.glm with another schema; leave schema= out here."
        )
    return own
