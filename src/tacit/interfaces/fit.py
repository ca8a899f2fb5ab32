"""Fitting: the straight line from a model, rows and a budget to a posterior.

Plan (public numbers only), calibrate, charge the ledger, open the gate, run, wrap up. The
ledger is charged in full before a row is read.
"""

import sys
import time
from collections.abc import Callable, Sequence

import jax
import numpy as np

from tacit.accounting import Budget, calibrate
from tacit.accounting.ledger import Ledger
from tacit.errors import BudgetError, Interrupted, InvalidArgument
from tacit.inference.variational import Variational, VariationalFit, check_fit, fit_guides
from tacit.models.model import Model
from tacit.privacy.gate import Gate, NoisySums
from tacit.privacy.noise import Randomness
from tacit.privacy.rows import Rows
from tacit.results.posterior import Posterior, as_numpy, draw_gaussian
from tacit.results.statement import PrivacyStatement

_DRAWS = 1000


def fit(
    model: Model,
    rows: Rows,
    budget: Budget,
    method: Variational | None = None,
    *,
    ledger: Ledger | None = None,
    seed: int | None = None,
    progress: bool = False,
) -> Posterior:
    """Fits a model within a privacy budget.

    Without a ``ledger`` nothing stops the same data from being used again and again, and
    the statement says so. A ``seed`` makes the fit repeatable and not private.
    """
    return fit_many(
        model, [rows], [budget], method, ledger=ledger, seeds=[seed], progress=progress
    )[0]


def fit_many(
    model: Model,
    rows: Sequence[Rows],
    budgets: Sequence[Budget],
    method: Variational | None = None,
    *,
    ledger: Ledger | None = None,
    seeds: Sequence[int | None] | None = None,
    progress: bool = False,
) -> list[Posterior]:
    """Several fits in one compiled program, each with its own rows, budget and charge."""
    method = method or Variational()
    seeds = [None] * len(rows) if seeds is None else seeds
    if not rows or not (len(rows) == len(budgets) == len(seeds)):
        raise InvalidArgument("Pass one budget for each fit, and one seed if any.")
    sources = [Randomness(seed) for seed in seeds]
    plans = [_calibrated(model, method, budget) for budget in budgets]
    gates = [Gate(r, p, s) for r, p, s in zip(rows, plans, sources, strict=True)]
    for gate, each in zip(gates, rows, strict=True):
        _refuse_early(model, method, each, gate)
    if ledger is not None:
        for each in rows:
            if each.unit != ledger.unit:
                raise BudgetError(
                    f"The ledger protects a {ledger.unit}; these rows are grouped by {each.unit}."
                )
        runs = [(plan.event, budget) for plan, budget in zip(plans, budgets, strict=True)]
        ledger.charge_all(runs, label="variational fit")
    statements = [
        _statement(gate, budget, ledger) for gate, budget in zip(gates, budgets, strict=True)
    ]
    return _run(model, method, gates, sources, statements, progress)


def fit_without_privacy(
    model: Model, rows: Rows, method: Variational | None = None, *, seed: int = 0
) -> Posterior:
    """The same fit without noise, for comparison only. Its result says that it is not private."""
    method = method or Variational()
    source = Randomness(seed)
    gate = Gate(rows, method.plan(model, 0.0), source)
    _refuse_early(model, method, rows, gate)
    statement = PrivacyStatement(
        event=None,
        delta=0.0,
        adjacency="add-remove",
        unit=rows.unit,
        public=(),
        seeded=True,
    )
    return _run(model, method, [gate], [source], [statement], progress=False)[0]


def _calibrated(model: Model, method: Variational, budget: Budget) -> NoisySums:
    noise = calibrate.noise_multiplier(
        budget, sampling_rate=method.sampling_rate, num_steps=method.num_steps
    )
    return method.plan(model, noise)


def _refuse_early(model: Model, method: Variational, rows: Rows, gate: Gate) -> None:
    """Tries the model on a made-up row: what cannot work is said before anything is charged."""
    start = method.guide.start(model.dimension)["mean"]
    row = rows.made_up_row()
    for name, density in (
        ("log_likelihood", model.row_density),
        ("log_prior", lambda vector, _, constants: model.prior_density(vector, constants)),
    ):
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
    if not np.isfinite(model.prior_density(start, model.constants)):
        raise InvalidArgument(
            "log_prior is not finite at the start of the fit (zero, unconstrained); check the "
            "parameters' supports."
        )
    check_fit(method, model, gate)


def _run(
    model: Model,
    method: Variational,
    gates: Sequence[Gate],
    sources: Sequence[Randomness],
    statements: Sequence[PrivacyStatement],
    progress: bool,
) -> list[Posterior]:
    keys = [jax.random.key(int(s.child("model").words(1)[0] >> np.uint64(33))) for s in sources]
    try:
        fits = fit_guides(method, model, gates, keys, _bar(method.num_steps) if progress else None)
    except KeyboardInterrupt as error:
        spent = "\n\n".join(str(statement) for statement in statements)
        raise Interrupted(
            "Interrupted. The run counts as spent: its ledger, if it has one, was charged in full "
            f"before it began, and nothing is given back.\n{spent}"
        ) from error
    return [
        _posterior(model, method, found, key, statement)
        for found, key, statement in zip(fits, keys, statements, strict=True)
    ]


def _posterior(
    model: Model,
    method: Variational,
    found: VariationalFit,
    key: jax.Array,
    statement: PrivacyStatement,
) -> Posterior:
    params = {name: jax.numpy.asarray(value) for name, value in found.params.items()}
    covariance = method.guide.covariance(params)
    vectors = draw_gaussian(jax.random.fold_in(key, 2**32 - 1), params["mean"], covariance, _DRAWS)
    return Posterior(
        draws=as_numpy(jax.vmap(model.constrain)(vectors)),
        unconstrained_mean=np.asarray(params["mean"]),
        unconstrained_covariance=np.asarray(covariance),
        trace=found.trace,
        settled_from=found.settled_from,
        averaged=found.averaged,
        privacy=statement,
        model=model,
    )


def _statement(gate: Gate, budget: Budget, ledger: Ledger | None) -> PrivacyStatement:
    return PrivacyStatement(
        event=gate.plan.event,
        delta=budget.delta,
        adjacency=budget.adjacency,
        unit=gate.unit,
        public=(
            "the model and its prior",
            "column names and shapes",
            "every setting of the method",
        ),
        seeded=gate.seeded,
        budget_left=None if ledger is None else ledger.left,
    )


def _bar(steps: int) -> Callable[[int], None]:
    """Steps done and time left, on standard error; nothing from rows."""
    began = time.monotonic()

    def show(done: int) -> None:
        left = (time.monotonic() - began) / done * (steps - done)
        end = "\n" if done == steps else ""
        filled = "=" * round(30 * done / steps)
        sys.stderr.write(f"\r[{filled:<30}] {done}/{steps} steps, {left:.0f} s left {end}")
        sys.stderr.flush()

    return show
