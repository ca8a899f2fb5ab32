"""Models written in PyMC, which are recognised without importing PyMC."""

import sys

from tacit.data.schema import Schema
from tacit.errors import InvalidArgument, MissingPackage
from tacit.interfaces.front_ends.base import FrontEnd, highest, made_up
from tacit.models.base import AnyModel
from tacit.models.pymc import PyMC, PyMCModel, is_bambi


class ByPyMC(FrontEnd[object]):
    """A model of PyMC, a `tacit.models.PyMC`, or a Bambi model, which is refused."""

    def takes(self, model: object) -> bool:
        """Whether it is of PyMC, or of Bambi."""
        library = sys.modules.get("pymc")
        made_by_pymc = library is not None and isinstance(model, library.Model)
        return isinstance(model, PyMC | PyMCModel) or made_by_pymc or is_bambi(model)

    def adapt(self, model: object, schema: Schema | None) -> AnyModel:
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
            from tacit.models.pymc_adapt import from_pymc
        except ModuleNotFoundError as error:
            raise MissingPackage("pymc", "A PyMC model") from error
        return from_pymc(
            described, made_up(schema), lambda name: highest(schema[name]), schema.person
        )
