"""Private rows of a table, and made-up rows of the same shapes."""

from collections.abc import Sequence

import numpy as np

from tacit.data.schema import Schema
from tacit.data.tables import TableLike
from tacit.models.base import AnyModel
from tacit.privacy.rows import Rows


def columns_of(model: AnyModel, schema: Schema) -> tuple[str, ...]:
    """The columns a model takes; a model in plain JAX may take any."""
    return schema.names if model.columns is None else model.columns


def rows_of(model: AnyModel, schema: Schema, data: TableLike) -> Rows:
    """The private rows of a table, encoded by the schema."""
    return encoded_rows(schema, columns_of(model, schema), data)


def encoded_rows(schema: Schema, names: Sequence[str], data: TableLike) -> Rows:
    """The private rows of some columns of a table, encoded by the schema."""
    return Rows.of_encoded(*schema.encode(data, names))


def blank_rows(model: AnyModel, schema: Schema, units: int) -> Rows:
    """Made-up rows of the shapes that the data will have."""
    columns = schema.made_up(units, names=columns_of(model, schema))
    if schema.most_rows is None:
        return Rows(columns)
    return Rows.by_person(columns, np.arange(units), schema.most_rows)
