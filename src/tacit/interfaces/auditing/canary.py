"""Made-up units: the others, and the canary, which says as much as a unit can."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tacit.data.columns import Category
from tacit.errors import InvalidArgument
from tacit.interfaces.auditing.watch import Watched, measured
from tacit.interfaces.plan import Plan
from tacit.interfaces.rows import columns_of
from tacit.models.base import Row
from tacit.privacy.gate import Gate, run
from tacit.privacy.noise import Randomness
from tacit.privacy.rows import Rows
from tacit.privacy.units import Units

# Candidates within the bounds, how many columns are tried beyond them, and how far.
_WITHIN, _COLUMNS, _BEYOND = 32, 24, (3.0, 10.0, 100.0, 1e4)
# A canary within the bounds is taken if it says this much of what the best one says.
_ENOUGH = 0.95
_PLACES = 64

Columns = dict[str, NDArray[Any]]


@dataclass(frozen=True, eq=False)
class MadeUp:
    """The others, and the canaries: one that is added, or two of which one replaces the other.

    ``strength`` is how far the canary moves a release, in clips, by its mean square; or for two,
    how far they are apart. None where that is not known.
    """

    others: Columns
    canaries: Columns
    beyond: bool
    strength: float | None
    most_rows: int | None

    @property
    def counts(self) -> tuple[int, int]:
        """How many others and canaries there are."""
        return _length(self.others), _length(self.canaries)

    def describe(self, unit: str) -> str:
        """In words; made up, so that all of it may be told."""
        where = "beyond the schema's bounds" if self.beyond else "within the schema's bounds"
        pair = self.counts[1] == 2
        what = (
            f"two made-up units {where}, one in place of the other"
            if pair
            else (f"a made-up {unit} {where}, there or not")
        )
        if self.strength is None:
            return what
        moves = "lie {:.3g} clips apart" if pair else "moves a release by {:.3g} clips"
        return f"{what}, which {moves.format(self.strength)}"

    def rows(self, *canaries: int) -> Rows:
        """The others, with these canaries."""
        chosen = {
            name: np.concatenate([values, self.canaries[name][list(canaries)]])
            for name, values in self.others.items()
        }
        return as_rows(chosen, self.most_rows)

    @property
    def units(self) -> Units:
        """All of them, in the form that a witness takes."""
        everyone = {n: np.concatenate([v, self.canaries[n]]) for n, v in self.others.items()}
        return as_units(everyone, self.most_rows)


def as_rows(columns: Columns, most_rows: int | None) -> Rows:
    """Private rows, each row a unit, or as many times over as a person may have rows."""
    if most_rows is None:
        return Rows(columns)
    repeated = {name: np.repeat(values, most_rows, axis=0) for name, values in columns.items()}
    people = np.repeat(np.arange(_length(columns)), most_rows)
    return Rows.by_person(repeated, people, most_rows)


def as_units(columns: Columns, most_rows: int | None) -> Units:
    """The same as arrays [units, rows, ...], and which rows are real: all."""
    copies = most_rows or 1
    fields = {
        name: jnp.asarray(np.repeat(np.asarray(values)[:, None], copies, axis=1))
        for name, values in columns.items()
    }
    return Units(fields, jnp.ones((_length(columns), copies), jnp.bool_))


def choose(plan: Plan, watched: Watched | None, others: int, *, seed: int) -> MadeUp:
    """Others, and the canary that says most of many that are tried in one run on the others."""
    assert plan.schema is not None
    names = columns_of(plan.model, plan.schema)
    beside = dict(plan.schema.made_up(others, names=names, seed=seed + 1))
    tried, within = _candidates(plan, seed, beyond=watched is not None)
    if watched is None:
        alike, strength_known = _by_density(plan, tried), False
    else:
        alike, strength_known = _by_steps(plan, watched, tried, beside), True
    replace = plan.budget.adjacency == "replace"
    chosen, strength = _strongest(alike, within, replace=replace)
    if not strength > 0:
        raise InvalidArgument(
            "No made-up row changes what is released, so that there is nothing to audit."
        )
    return MadeUp(
        others=beside,
        canaries={name: values[chosen] for name, values in tried.items()},
        beyond=max(chosen) >= within,
        strength=float(np.sqrt(strength)) if strength_known else None,
        most_rows=plan.schema.most_rows,
    )


def _candidates(plan: Plan, seed: int, *, beyond: bool) -> tuple[Columns, int]:
    """Made-up rows: first those within the bounds, whose number is told, then some beyond them."""
    assert plan.schema is not None
    names = columns_of(plan.model, plan.schema)
    inside = dict(plan.schema.made_up(_WITHIN, names=names, seed=seed))
    tried = [inside]
    numbers = [name for name in names if not isinstance(plan.schema[name], Category)]
    for name in numbers[-_COLUMNS:] if beyond else ():
        far = np.outer(_BEYOND, (1, -1)).ravel() * max(float(np.abs(inside[name]).max()), 1.0)
        rows = {each: np.repeat(values[:1], len(far), axis=0) for each, values in inside.items()}
        rows[name][...] = far.reshape(-1, *[1] * (rows[name].ndim - 1))
        tried.append(rows)
    return {name: np.concatenate([each[name] for each in tried]) for name in names}, _WITHIN


def _by_steps(plan: Plan, watched: Watched, tried: Columns, others: Columns) -> NDArray[np.float64]:
    """Mean products of what candidates contribute, over the steps of one run on the others."""
    mechanism, steps = watched
    most_rows = plan.schema.most_rows if plan.schema else None
    units = as_units(tried, most_rows)
    count = _length(tried)
    gate = Gate(as_rows(others, most_rows), mechanism, Randomness(0))
    step = measured(steps.step, mechanism)
    state = steps.state, units, jnp.zeros((count, count))
    (_, _, sums), _ = run(gate, step, state, steps.inputs)
    found: NDArray[np.float64] = np.asarray(sums, np.float64) / mechanism.num_steps
    return found


def _by_density(plan: Plan, tried: Columns) -> NDArray[np.float64]:
    """Products of what candidates say of some places, where a run is not made of steps."""
    model = plan.model
    rows, present = as_units(tried, plan.schema.most_rows if plan.schema else None)
    places = jax.random.normal(jax.random.key(0), (_PLACES, model.dimension))

    @jax.jit
    def density(rows: Row, present: jax.Array, constants: Any) -> Any:
        def at(place: jax.Array, fields: Row, there: jax.Array) -> jax.Array:
            return model.unit_density(place, fields, there, constants)

        over_units = jax.vmap(at, in_axes=(None, 0, 0))
        return jax.vmap(over_units, in_axes=(0, None, None))(places, rows, present)

    found = np.asarray(density(rows, present, model.constants), np.float64)
    found = np.where(np.isfinite(found), found, 0.0)
    found -= found.mean(axis=0)
    products: NDArray[np.float64] = found.T @ found / len(found)
    return products


def _strongest(
    alike: NDArray[np.float64], within: int, *, replace: bool
) -> tuple[list[int], float]:
    """The canary or the pair of canaries that says most, and how much: within the bounds if it can be."""
    sizes = np.diag(alike)
    if not replace:
        inner, best = int(np.argmax(sizes[:within])), int(np.argmax(sizes))
        chosen = inner if sizes[inner] >= _ENOUGH * sizes[best] else best
        return [chosen], float(sizes[chosen])
    apart = sizes[:, None] + sizes - 2 * alike
    inner_pair = np.unravel_index(np.argmax(apart[:within, :within]), (within, within))
    pair = np.unravel_index(np.argmax(apart), apart.shape)
    chosen_pair = inner_pair if apart[inner_pair] >= _ENOUGH * apart[pair] else pair
    return [int(each) for each in chosen_pair], float(apart[chosen_pair])


def _length(columns: Columns) -> int:
    return len(next(iter(columns.values())))
