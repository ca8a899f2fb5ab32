"""Functions of a model on single rows, which are units of one row."""

import jax

from tacit.models.base import single_row_unit


def row_log_likelihood(model, vector, row, constants=None, outcomes=None):
    if outcomes is not None:
        outcomes = jax.tree.map(lambda leaf: leaf[None], outcomes)
    return model.log_likelihood(vector, *single_row_unit(row), constants, outcomes)


def simulate_row(model, key, vector, row, constants=None):
    drawn = model.simulate(key, vector, *single_row_unit(row), constants)
    return {name: value[0] for name, value in drawn.items()}
