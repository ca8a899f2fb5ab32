"""Models in plain JAX, which are what inference takes."""

from tacit.data.schema import Schema
from tacit.interfaces.front_ends.base import FrontEnd
from tacit.models.base import AnyModel
from tacit.models.model import Model


class Plain(FrontEnd[Model]):
    """A `tacit.Model`."""

    lasting = True

    def takes(self, model: object) -> bool:
        """Whether it is one."""
        return isinstance(model, Model)

    def adapt(self, model: Model, schema: Schema | None) -> AnyModel:  # noqa: ARG002
        """As it is."""
        return model
