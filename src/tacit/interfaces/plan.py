"""A plan: what a fit will do and what it will cost, before any data is touched."""

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tacit._format import asked_for, in_digits, printed
from tacit.accounting import Adjacency, Budget
from tacit.accounting.cost import cost, costs
from tacit.data.columns import Category, Count, Kind, Number
from tacit.data.schema import Schema
from tacit.errors import InvalidArgument
from tacit.inference.base import Method, Stepwise
from tacit.inference.scoring import Scoring, suits
from tacit.inference.variational import Variational
from tacit.models.model import AnyModel, Model
from tacit.models.pymc import PyMC, PyMCModel, is_bambi
from tacit.models.statistic import Conjugate, Limit
from tacit.privacy.captured import refuse_captured
from tacit.privacy.gate import Gate, run
from tacit.privacy.noise import Randomness
from tacit.privacy.plans import BarkerTests, NoisySums, ReleasePlan, SampledBarkerTests
from tacit.privacy.rows import Rows

# Made-up rows to measure gradients on, and batches to measure time on.
_TRIED, _BATCHES, _TIMED_STEPS = 200, (64, 1024), 40
_PLURAL = {"row": "rows", "person": "people"}


@dataclass(frozen=True, kw_only=True, eq=False)
class Plan:
    """What a fit will do: all of it public, none of it from data. Print it.

    ``release`` is what the gate will execute, and what is charged. Hand the plan to
    `tacit.fit` with the data.
    """

    model: AnyModel
    schema: Schema | None
    budget: Budget
    method: Method
    release: ReleasePlan
    blank: Rows

    @property
    def unit(self) -> str:
        """What is protected."""
        return self.blank.unit

    @cached_property
    def epsilons(self) -> dict[Adjacency, float | None]:
        """Epsilon at the budget's delta under each adjacency; None where no bound is known."""
        asked = self.budget
        return costs(self.release.event, asked.delta, asked.adjacency, asked.epsilon)

    @cached_property
    def cost(self) -> Budget:
        """What is charged: the budget, or less if the method needs less."""
        return cost(self.release.event, self.budget)

    @cached_property
    def made_up_gradients(self) -> tuple[float, float] | None:
        """On made-up rows, at the start: the median gradient in clips, and the share clipped."""
        if self.schema is None or not isinstance(self.release, NoisySums):
            return None
        if not self.method.by_gradients or isinstance(self.method, Scoring):
            return None
        lengths = _gradients(self.model, self.schema) / self.release.clip
        usable = lengths[np.isfinite(lengths)]
        return float(np.median(usable)), float(np.mean(usable > 1))

    def seconds(self, rows: int) -> float | None:
        """About how long the fit takes on so many units, by trying it on made-up ones.

        None for a fit that is not made of many like steps.
        """
        if not isinstance(self.release, NoisySums | BarkerTests | SampledBarkerTests):
            return None
        if self.release.num_steps < _TIMED_STEPS:
            return None
        fixed, per_unit = self._speed
        return self.release.num_steps * (fixed + per_unit * self.release.looked_at(rows))

    @cached_property
    def _speed(self) -> tuple[float, float]:
        small, large = (self._time_a_step(batch) for batch in _BATCHES)
        slope = max(large - small, 0.0) / (_BATCHES[1] - _BATCHES[0])
        return max(small - slope * _BATCHES[0], 0.0), slope

    def _time_a_step(self, batch: int) -> float:
        kept = {"burn_in": 0.0} if hasattr(self.method, "burn_in") else {}
        method = replace(self.method, num_steps=_TIMED_STEPS, **kept)  # type: ignore[type-var]
        release, units = self.release.trial(_TIMED_STEPS, batch)  # type: ignore[attr-defined]
        rows = blank_rows(self.model, self.schema, units) if self.schema else self.blank
        taken = []
        for _ in range(3):  # the first compiles
            gate, keys = Gate(rows, release, Randomness(0)), [jax.random.key(0)]
            steps = (
                method.steps(self.model, [release], keys) if isinstance(method, Stepwise) else None
            )
            began = time.perf_counter()
            if steps is None:
                method.run(self.model, [gate], keys)
            else:  # without what follows the steps, however many there are
                run([gate], *steps)
            taken.append(time.perf_counter() - began)
        return min(taken[1:]) / _TIMED_STEPS

    def __repr__(self) -> str:
        cost = f"epsilon {printed(self.cost.epsilon)} at delta {in_digits(self.cost.delta)}"
        return f"Plan({cost}, {self.release.num_steps} steps; print it for the whole)"

    def __str__(self) -> str:
        many = _PLURAL[self.unit]
        lines = [
            self.method.describe(self.model),
            *self.release.explain(self.unit, many),
            *self._on_made_up_rows(),
            "",
            *self._cost(),
            f"Unit of privacy: one {self.unit}. No data has been read and nothing charged.",
        ]
        if self.schema is not None:
            sizes = (10_000, 1_000_000)
            times = [(self.seconds(n), f"{n:,} {many}") for n in sizes]
            known = " and ".join(
                f"{float(f'{time:.2g}'):g} s for {size}" for time, size in times if time
            )
            if known:
                lines += ["", f"Time, by a trial on made-up rows: about {known}."]
            lines += ["", str(self.schema)]
        return "\n".join(lines)

    def _on_made_up_rows(self) -> list[str]:
        if isinstance(self.method, Scoring):
            return [self.method.expect(self.release, _PLURAL[self.unit])]  # type: ignore[arg-type]
        if self.made_up_gradients is None:
            return []
        middle, share = self.made_up_gradients
        advice = ""
        if share > 0.5:
            advice = " Most rows are clipped: scale the columns, or raise the clip."
        found = f"a row's gradient at the start is {middle:.2g} clips long; {share:.0%} are longer."
        return [f"On made-up rows within the bounds, {found}{advice}"]

    def _cost(self) -> list[str]:
        lines = []
        for adjacency, epsilon in self.epsilons.items():
            mine = adjacency == self.budget.adjacency
            asked = f" ({asked_for(epsilon, self.budget.epsilon)})" if mine else ""
            at = f"epsilon {printed(epsilon)} at delta {in_digits(self.budget.delta)}"
            lines.append(f"Cost: {at}, {adjacency}{asked}.")
        return [*lines, self.cost.explain()]


def _gradients(model: AnyModel, schema: Schema) -> NDArray[np.floating]:
    """Lengths of gradients at the start, each of a made-up unit with one row."""
    rows = schema.made_up(_TRIED, names=columns_of(model, schema))
    theta = 0.1 * jax.random.normal(jax.random.key(0), (model.dimension,))

    @jax.jit
    @jax.vmap
    def length(row: Any) -> jax.Array:
        def density(theta: jax.Array) -> jax.Array:
            if not model.whole_units:
                return model.row_density(theta, row, model.constants)
            alone = jax.tree.map(lambda leaf: leaf[None], row)
            return model.unit_density(theta, alone, jnp.ones(1, jnp.bool_), model.constants)

        return jnp.asarray(jnp.linalg.norm(jax.grad(density)(theta)))

    return np.asarray(length(rows))


def plan(
    model: Any,
    schema: Schema | None = None,
    *,
    budget: Budget,
    method: Method | None = None,
) -> Plan:
    """What a fit within a budget will do. Touches no data, and charges nothing.

    ``model`` is a NumPyro function whose arguments are columns of the schema, a
    `tacit.NumPyro` with more to say about one, a PyMC model whose data containers are columns,
    a `tacit.PyMC` with more to say about that, a `tacit.Model`, or what `tacit.glm` made of a
    formula, which has its schema with it.
    """
    schema = schema_of(model, schema)
    if not isinstance(schema, Schema):
        raise InvalidArgument("plan needs a tacit.Schema: the public facts about the columns.")
    adapted = as_model(model, schema)
    by_gradients = method is None or getattr(method, "by_gradients", False)
    if by_gradients and not np.isfinite(_gradients(adapted, schema)).any():
        raise InvalidArgument(
            "On made-up rows within the bounds the likelihood has no finite gradient, so that no "
            "row would count; check the bounds, and what the model does with them."
        )
    return planned(adapted, schema, blank_rows(adapted, schema, 1), budget, method)


def planned(
    model: AnyModel,
    schema: Schema | None,
    blank: Rows,
    budget: Budget,
    method: Method | None,
) -> Plan:
    """The plan for a model and rows of these shapes, refused here if it cannot work."""
    if not isinstance(budget, Budget):
        raise InvalidArgument("budget must be a tacit.Budget(epsilon, delta).")
    method = default_method(model) if method is None else method
    if isinstance(method, type) or not isinstance(method, Method):
        raise InvalidArgument("method must be settings such as tacit.Scoring(num_steps=500).")
    release = method.calibrated(model, budget)
    refuse_early(model, method, blank, release)
    return Plan(
        model=model, schema=schema, budget=budget, method=method, release=release, blank=blank
    )


def default_method(model: AnyModel) -> Method:
    """What fits a model if nothing is asked for, by what is public of it."""
    return Scoring() if suits(model) else Variational()


def schema_of(model: Any, schema: Schema | None) -> Schema | None:
    """The schema that was passed, or the one that a model by formula was made with."""
    # By what it has: its class would load NumPyro, which not every model needs.
    own = getattr(model, "schema", None) if hasattr(model, "described") else None
    if not isinstance(own, Schema):
        return schema
    if schema is not None and schema != own:
        raise InvalidArgument(
            "The model was made by tacit.glm with another schema; leave schema= out here."
        )
    return own


def as_model(model: Any, schema: Schema | None) -> AnyModel:
    """The model in the form that inference takes."""
    if schema is not None and not isinstance(schema, Schema):
        raise InvalidArgument("schema must be a tacit.Schema: the public facts about the columns.")
    if isinstance(model, Model):
        return model
    if isinstance(model, Conjugate):
        return model if schema is None else model.within(_limits(schema))
    if is_pymc(model):
        return _from_pymc(model, schema)
    from tacit.models.adapt import from_numpyro
    from tacit.models.numpyro import NumPyro, NumPyroModel
    from tacit.models.verify import verified

    if isinstance(model, NumPyroModel):
        return model
    model = getattr(model, "described", model)  # by formula
    described = model if isinstance(model, NumPyro) else NumPyro(model)
    if isinstance(described.function, jax.stages.Wrapped):  # jax.jit would hide what it samples
        described = replace(described, function=described.function.__wrapped__)  # type: ignore[attr-defined]
    if not callable(described.function):
        raise InvalidArgument(
            f"model must be a NumPyro function, a PyMC model or a tacit.Model; got {type(model).__name__}."
        )
    if schema is None:
        raise InvalidArgument("A NumPyro model needs schema=: the public facts about its columns.")
    refuse_captured(described.function, *filter(callable, described.constants.values()))

    def made_up(count: int, seed: int) -> dict[str, Any]:
        return dict(schema.made_up(count, seed=seed))

    adapted = from_numpyro(described, made_up, schema.person)
    return verified(adapted, made_up, {n: _highest(schema[n]) for n in adapted.columns})


def is_pymc(model: Any) -> bool:
    """Whether a model is of PyMC, or of Bambi, without importing them."""
    library = sys.modules.get("pymc")
    made_by_pymc = library is not None and isinstance(model, library.Model)
    return isinstance(model, PyMC | PyMCModel) or made_by_pymc or is_bambi(model)


def _from_pymc(model: Any, schema: Schema | None) -> AnyModel:
    from tacit.models.pymc_adapt import from_pymc

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

    def made_up(count: int, seed: int) -> dict[str, Any]:
        return dict(schema.made_up(count, seed=seed))

    return from_pymc(described, made_up, lambda name: _highest(schema[name]), schema.person)


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


def _highest(kind: Kind) -> Any:
    """The highest encoded value of a column, where that is a whole number."""
    if isinstance(kind, Category):
        return np.int32(kind.size - 1)
    if isinstance(kind, Count):
        return np.int32(kind.high)
    return kind.made_up(1000, np.random.default_rng(0)).max(axis=0)


def columns_of(model: AnyModel, schema: Schema) -> tuple[str, ...]:
    """The columns a model takes; a model in plain JAX may take any."""
    return getattr(model, "columns", schema.names)


def rows_of(model: AnyModel, schema: Schema, data: Any) -> Rows:
    """The private rows of a table, encoded by the schema."""
    return encoded_rows(schema, columns_of(model, schema), data)


def encoded_rows(schema: Schema, names: Sequence[str], data: Any) -> Rows:
    """The private rows of some columns of a table, encoded by the schema."""
    return Rows.of_encoded(*schema.encode(data, names))


def blank_rows(model: AnyModel, schema: Schema, units: int) -> Rows:
    """Made-up rows of the shapes that the data will have."""
    columns = schema.made_up(units, names=columns_of(model, schema))
    if schema.most_rows is None:
        return Rows(columns)
    return Rows.by_person(columns, np.arange(units), schema.most_rows)


def refuse_early(model: AnyModel, method: Method, rows: Rows, release: ReleasePlan) -> None:
    """Tries the model on a made-up row: what cannot work is said before anything is charged."""
    if method.by_gradients and model.discrete:
        names = ", ".join(
            repr(name) for name in dict.fromkeys(held.name for held in model.discrete)
        )
        raise InvalidArgument(
            f"{type(method).__name__} follows gradients, and {names} of the model is discrete; use "
            "tacit.Barker(), or write the sum over all values into the model."
        )
    refuse_model(model, rows)
    method.check(model, Gate(rows, release, Randomness(0)))


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
