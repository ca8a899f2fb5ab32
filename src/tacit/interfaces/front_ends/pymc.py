"""Models written in PyMC, which is not imported to tell them."""

import sys
from typing import Any

from tacit.data.schema import Schema
from tacit.errors import InvalidArgument
from tacit.interfaces.front_ends.base import FrontEnd, highest, made_up
from tacit.models.base import AnyModel
from tacit.models.pymc import PyMC, PyMCModel, is_bambi


class ByPyMC(FrontEnd):
    """A model of PyMC, a `tacit.PyMC`, or one of Bambi, to say that it cannot be private."""

    def takes(self, model: Any) -> bool:
        """Whether it is of PyMC, or of Bambi."""
        library = sys.modules.get("pymc")
        made_by_pymc = library is not None and isinstance(model, library.Model)
        return isinstance(model, PyMC | PyMCModel) or made_by_pymc or is_bambi(model)

    def adapt(self, model: Any, schema: Schema | None) -> AnyModel:
        """A row at a time, by its graph."""
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
            from tacit.models.pymc_adapt import from_pymc
        except ImportError as error:
            raise InvalidArgument(
                "PyMC models need PyMC, which is not installed; pip install 'tacit[pymc]'."
            ) from error
        return from_pymc(
            described, made_up(schema), lambda name: highest(schema[name]), schema.person
        )
