"""Models written in NumPyro: functions of columns."""

from dataclasses import replace
from typing import Any

import jax

from tacit.data.schema import Schema
from tacit.errors import InvalidArgument
from tacit.interfaces.front_ends.base import FrontEnd, highest, made_up
from tacit.models.adapt import from_numpyro
from tacit.models.base import AnyModel
from tacit.models.numpyro import NumPyro, NumPyroModel
from tacit.models.verify import verified
from tacit.privacy.captured import refuse_captured


class ByNumPyro(FrontEnd):
    """A NumPyro function, or a `tacit.NumPyro` with more to say about one."""

    def takes(self, model: Any) -> bool:  # noqa: ARG002
        """Anything: a function is known by what it does. So this comes last."""
        return True

    def adapt(self, model: Any, schema: Schema | None) -> AnyModel:
        """A row at a time, checked on made-up rows."""
        if isinstance(model, NumPyroModel):
            return model
        described = model if isinstance(model, NumPyro) else NumPyro(model)
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
