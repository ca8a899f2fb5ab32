"""Models by formula, which have their schema with them."""

import sys
from typing import Any

from tacit.data.schema import Schema
from tacit.interfaces.front_ends.base import FrontEnd
from tacit.interfaces.front_ends.numpyro import ByNumPyro
from tacit.models.base import AnyModel


class ByFormula(FrontEnd):
    """What `tacit.glm` made."""

    def takes(self, model: Any) -> bool:
        """Whether it is that: whoever has one has loaded its class."""
        home = sys.modules.get("tacit.models.glm")
        return home is not None and isinstance(model, home.GLM)

    def own_schema(self, model: Any) -> Schema | None:
        """The one that tacit.glm was given."""
        own: Any = model.schema
        return own if isinstance(own, Schema) else None

    def adapt(self, model: Any, schema: Schema | None) -> AnyModel:
        """As the NumPyro function that it is."""
        return ByNumPyro().adapt(model.described, schema)
