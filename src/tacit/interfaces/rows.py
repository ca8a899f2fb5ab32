"""Private rows of a table, and made-up rows of the same shapes."""

from collections.abc import Sequence

import numpy as np

from tacit.data.schema import Schema
from tacit.data.tables import TableLike
from tacit.models.base import AnyModel
from tacit.privacy.rows import Rows
from tacit.privacy.units import Units

# Rows that are simulated from the schema.
_SIMULATED = 1000


def columns_of(model: AnyModel, schema: Schema) -> tuple[str, ...]:
    """The columns a model takes; a model in plain JAX may take any."""
    return schema.names if model.columns is None else model.columns


def rows_of(model: AnyModel, schema: Schema, data: TableLike) -> Rows:
    """The private rows of a table, encoded by the schema."""
    return encoded_rows(schema, columns_of(model, schema), data)


def encoded_rows(schema: Schema, names: Sequence[str], data: TableLike) -> Rows:
    """The private rows of some columns of a table, encoded by the schema."""
    rows = Rows.of_encoded(*schema.encode(data, names))
    rows.simulated = simulated_units(schema, names)
    return rows


def simulated_units(schema: Schema, names: Sequence[str]) -> Units:
    """Units drawn from the schema alone, by a fixed seed.

    Numbers are uniform within their bounds, one in ten at a bound; levels are equally frequent.
    People have any number of rows up to the most that they may have.
    """
    if schema.most_rows is None:
        return Units(schema.made_up(_SIMULATED, names), None)
    rng = np.random.default_rng(0)
    people = max(1, _SIMULATED // schema.most_rows)
    columns = schema.made_up(people * schema.most_rows, names)
    fields = {n: v.reshape(people, schema.most_rows, *v.shape[1:]) for n, v in columns.items()}
    number = rng.integers(1, schema.most_rows, people, endpoint=True)
    return Units(fields, np.arange(schema.most_rows) < number[:, None])


def blank_rows(model: AnyModel, schema: Schema, units: int) -> Rows:
    """Made-up rows of the shapes that the data will have."""
    columns = schema.made_up(units, names=columns_of(model, schema))
    if schema.most_rows is None:
        return Rows(columns)
    return Rows.by_person(columns, np.arange(units), schema.most_rows)
