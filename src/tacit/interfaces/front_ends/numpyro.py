"""Models written in NumPyro: functions of columns."""

from dataclasses import replace

import jax

from tacit.captured.search import refuse_captured
from tacit.data.schema import Schema
from tacit.errors import InvalidArgument
from tacit.interfaces.front_ends.base import FrontEnd, highest, made_up
from tacit.models.adapt import from_numpyro
from tacit.models.base import AnyModel
from tacit.models.numpyro import NumPyro, NumPyroModel
from tacit.models.verify import verified


class ByNumPyro(FrontEnd[object]):
    """A NumPyro function, or a `tacit.models.NumPyro` with options for one."""

    def takes(self, model: object) -> bool:  # noqa: ARG002
        """Always, because a function is recognised only by running it. So this front end comes last."""
        return True

    def adapt(self, model: object, schema: Schema | None) -> AnyModel:
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
        refuse_captured(described.function, *filter(callable, described.constants.values()))
        adapted = from_numpyro(described, made_up(schema), schema.person)
        return verified(
            adapted, made_up(schema), {name: highest(schema[name]) for name in adapted.columns}
        )
