"""Conjugate models: the schema tells them the bounds of their columns."""

from tacit.data.columns import Category, Count, Number
from tacit.data.schema import Schema
from tacit.interfaces.front_ends.base import FrontEnd
from tacit.models.base import AnyModel
from tacit.models.statistic import Conjugate, Limit


class ByStatistics(FrontEnd[Conjugate]):
    """One of `tacit.conjugate`."""

    lasting = True

    def takes(self, model: object) -> bool:
        """Whether it is one."""
        return isinstance(model, Conjugate)

    def adapt(self, model: Conjugate, schema: Schema | None) -> AnyModel:
        """Within the bounds of the schema, if there is one."""
        return model if schema is None else model.within(_limits(schema))


def _limits(schema: Schema) -> dict[str, Limit]:
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
            limits[name] = Limit(kind.kind, *ends)
    return limits
