"""Errors that are raised before anything is charged: model and method are tried on a made-up row."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tacit.accounting import Budget
from tacit.accounting.ledger import Ledger
from tacit.errors import BudgetError, InvalidArgument
from tacit.inference.base import Method
from tacit.models.base import AnyModel
from tacit.models.model import Model
from tacit.privacy.mechanisms import Mechanism
from tacit.privacy.noise import Randomness
from tacit.privacy.opening import open_gate
from tacit.privacy.rows import Rows


def refuse_early(model: AnyModel, method: Method, rows: Rows, mechanism: Mechanism) -> None:
    """Raises if the model or the method does not work on a made-up row."""
    if method.by_gradients and model.discrete:
        names = ", ".join(
            repr(name) for name in dict.fromkeys(held.name for held in model.discrete)
        )
        raise InvalidArgument(
            f"{type(method).__name__} follows gradients, and {names} of the model is discrete; use "
            "tacit.Barker(), or write the sum over all values into the model."
        )
    refuse_model(model, rows)
    method.check(model, open_gate(rows, mechanism, Randomness(0)))


def refuse_model(model: AnyModel, rows: Rows) -> None:
    """Raises if the model's functions do not work on a row of these shapes, whatever the method."""
    start = jnp.zeros(model.dimension)
    if isinstance(model, Model):
        _refuse_bad_functions(model, rows, start)
    if not np.isfinite(jax.jit(model.prior_density)(start, model.constants)):
        raise InvalidArgument(
            "The log prior is not finite at the start of the fit (zero, unconstrained); check the "
            "parameters' supports."
        )


def refuse_ledger(ledger: Ledger, budgets: Sequence[Budget], rows: Sequence[Rows]) -> None:
    """Raises if the ledger protects something else than these runs do."""
    if not isinstance(ledger, Ledger):
        raise InvalidArgument(
            "ledger must be a tacit.Ledger(path); tacit.Ledger.new(path, total=...) creates one."
        )
    for each in rows:
        if each.unit != ledger.unit:
            raise BudgetError(
                f"The ledger protects a {ledger.unit}, but the unit of these rows is a {each.unit}."
            )
    for budget in budgets:
        ledger.refuse_adjacency(budget)


def _refuse_bad_functions(model: Model, rows: Rows, start: jax.Array) -> None:
    row = rows.made_up_row()
    densities: dict[str, Callable[..., Any]] = {
        "log_likelihood": model.row_density,
        "log_prior": lambda vector, _, constants: model.prior_density(vector, constants),
    }
    for name, density in densities.items():
        try:
            shape = jax.eval_shape(density, start, row, model.constants)
        except jax.errors.ConcretizationTypeError as error:
            raise InvalidArgument(
                f"{name} decides something in Python by a value that differs from row to row; "
                "use jnp.where or jax.lax.select instead of if."
            ) from error
        except KeyError as error:
            raise InvalidArgument(
                f"{name} asks for {error}, but the columns are {', '.join(rows.names)} and the "
                f"parameters {', '.join(model.parameters)}."
            ) from error
        if shape.shape != ():
            raise InvalidArgument(
                f"{name} must return a single number; its shape is {shape.shape}."
            )
