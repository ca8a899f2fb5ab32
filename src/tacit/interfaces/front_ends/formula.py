"""Models by formula, which carry their schema."""

import sys
from typing import TYPE_CHECKING

from tacit.data.schema import Schema
from tacit.interfaces.front_ends.base import FrontEnd
from tacit.interfaces.front_ends.numpyro import ByNumPyro
from tacit.models.base import AnyModel

if TYPE_CHECKING:
    from tacit.models.glm import GLM


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

    def adapt(self, model: "GLM", schema: Schema | None) -> AnyModel:
        """As the NumPyro function that it is."""
        return ByNumPyro().adapt(model.described, schema)
