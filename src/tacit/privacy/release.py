"""The releases a step may call: operations of their own, so that the walk can find them."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir

from tacit.captured.search import refuse_captured
from tacit.errors import BoundaryError
from tacit.privacy.bound import (
    Lattice,
    RatioLattice,
    decide,
    decide_on_batch,
    on_lattice,
    on_lattice_by_sum,
    part_sums,
    ratio_on_lattice,
    ratio_sums,
    released,
    whole_sum,
)
from tacit.privacy.units import Units

_PIECE = 2**14  # units that are looked at together, so that what is in between fits a cache
PerRow = Callable[[Any, dict[str, jax.Array]], jax.Array]
PerUnit = Callable[..., jax.Array]  # of arguments, rows, which are present, and secret bits if any


class Batch(NamedTuple):
    """One step's share of what protects or is protected.

    ``secret`` are words of each unit's own, or None. ``present`` says which places hold a unit.
    """

    units: Units
    secret: Any
    present: Any
    noise: Any
    clip: Any
    grid: Any


class _Public(NamedTuple):
    """What a release is given that is public. ``shift`` is of a test; None for a sum."""

    constants: list[Any]
    arguments: list[Any]
    shift: jax.Array | None


class Release:
    """Handed to a step, which calls one of its methods once: for the kind of release planned."""

    def __init__(self, batch: Batch, lattice: Lattice | RatioLattice) -> None:
        self._batch, self._lattice = batch, lattice

    def noisy_sum(self, per_row: PerRow, arguments: Any) -> jax.Array:
        """The noisy sum of ``per_row(arguments, row)``, a vector, over the sampled units.

        Guarantee:
            Released: the sum over sampled units of a vector clipped to the mechanism's clip, plus noise,
                on the mechanism's lattice.
            Neighbours: add-remove and replace.
            Sensitivity under add-remove: `clip`, for a unit that is sampled; in the 2-norm, with
                Laplace noise in the 1-norm.
            Sensitivity under replace: `2 * clip`.
            Event: `NoisySums.event`.
            Public inputs: the mechanism, and the arguments, which the check proves to be free of rows.
            Theorem: 1; with Laplace noise 3.
        """
        return self._released(Lattice, _over_rows(per_row), arguments)

    def noisy_unit_sum(self, per_unit: PerUnit, arguments: Any) -> jax.Array:
        """The same of ``per_unit(arguments, rows, present)``: all rows of a unit at once.

        ``present`` tells which of the rows are real. A vector that is not finite is zero.
        Where the mechanism has secrets, ``per_unit(arguments, rows, present, secret)`` gets the two
        words of 32 bits that are the unit's own in this step: fresh, and never released.

        Guarantee:
            Released: as for `noisy_sum`.
            Neighbours: add-remove and replace.
            Sensitivity under add-remove: `clip`, for a unit that is sampled; in the 2-norm, with
                Laplace noise in the 1-norm.
            Sensitivity under replace: `2 * clip`.
            Event: `NoisySums.event`.
            Public inputs: the mechanism, and the arguments, which the check proves to be free of rows.
            Theorem: 1; with Laplace noise 3; with secrets 1S.
        """
        return self._released(Lattice, _over_units(per_unit), arguments)

    def noisy_test(self, per_row: PerRow, arguments: Any, shift: jax.Array) -> jax.Array:
        """Whether to accept: the sum of ``per_row(arguments, row)``, plus ``shift``, is tested.

        Guarantee:
            Released: one bit, true with a probability that follows the sum over units of a number
                clipped to the mechanism's clip, and the shift.
            Neighbours: add-remove and replace on all units; replace on a batch of fixed size.
            Sensitivity under add-remove: `clip`, in the log odds; none for `SampledBarkerTests`.
            Sensitivity under replace: `2 * clip`, in the log odds; for `SampledBarkerTests` in the sum of
                the batch's log ratios.
            Event: `BarkerTests.event` or `SampledBarkerTests.event`.
            Public inputs: the mechanism, and the arguments and the shift, which the check proves to be
                free of rows; for `SampledBarkerTests` the number of units.
            Theorem: 4 on all units; 5 on a batch of fixed size.
        """
        return self._tested(_over_rows(per_row, _decisive), arguments, shift)

    def noisy_unit_test(self, per_unit: PerUnit, arguments: Any, shift: jax.Array) -> jax.Array:
        """The same of ``per_unit(arguments, rows, present)``: all rows of a unit at once.

        Guarantee:
            Released: as for `noisy_test`.
            Neighbours: add-remove and replace on all units; replace on a batch of fixed size.
            Sensitivity under add-remove: `clip`, in the log odds; none for `SampledBarkerTests`.
            Sensitivity under replace: `2 * clip`, in the log odds; for `SampledBarkerTests` in the sum
                of the batch's log ratios.
            Event: `BarkerTests.event` or `SampledBarkerTests.event`.
            Public inputs: the mechanism, and the arguments and the shift, which the check proves to be
                free of rows; for `SampledBarkerTests` the number of units.
            Theorem: 4 on all units; 5 on a batch of fixed size.
        """
        return self._tested(_over_units(per_unit), arguments, shift)

    def _tested(
        self, per_unit: Callable[..., jax.Array], arguments: Any, shift: jax.Array
    ) -> jax.Array:
        shift = jnp.asarray(shift, jnp.float32).reshape(())
        return self._released(RatioLattice, per_unit, arguments, shift)

    def _released(
        self,
        kind: type,
        per_unit: Callable[..., jax.Array],
        arguments: Any,
        shift: jax.Array | None = None,
    ) -> jax.Array:
        batch, lattice = self._batch, self._lattice
        if not isinstance(lattice, kind):
            raise BoundaryError("The step calls another kind of release than its mechanism makes.")
        unit = jax.tree.map(_first, (batch.units, batch.secret))
        traced, shape = jax.make_jaxpr(per_unit, return_shape=True)(arguments, *unit)
        if shape.shape != lattice.unit_shape:
            raise BoundaryError(
                f"The mechanism adds up arrays of shape {lattice.unit_shape}, but the contribution of a "
                f"row has shape {shape.shape}."
            )
        public = _Public(list(traced.consts), jax.tree.leaves(arguments), shift)
        released: jax.Array = release_p.bind(  # type: ignore[no-untyped-call]
            *jax.tree.leaves(public),
            *jax.tree.leaves(batch),
            unit=traced.jaxpr,
            public=jax.tree.structure(public),
            batch=jax.tree.structure(batch),
            lattice=lattice,
        )
        return released


def _first(leaf: Any) -> jax.ShapeDtypeStruct:
    """The kind of one unit of many."""
    return _like(leaf, leaf.shape[1:])


def _like(leaf: Any, shape: tuple[int, ...] | None = None) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(leaf.shape if shape is None else shape, leaf.dtype)  # type: ignore[no-untyped-call]


def _finite(vector: jax.Array) -> jax.Array:
    """A row whose contribution is not finite contributes nothing."""
    vector = vector.astype(jnp.float32)
    return jnp.where(jnp.isfinite(vector).all(), vector, 0.0)


def _decisive(ratio: jax.Array) -> jax.Array:
    """A row that rules a place out is against it, as far as it may be; NaN is nothing."""
    return jnp.nan_to_num(ratio.astype(jnp.float32), nan=0.0, posinf=1e30, neginf=-1e30)


def _over_rows(
    per_row: PerRow, clean: Callable[[jax.Array], jax.Array] = _finite
) -> Callable[..., jax.Array]:
    """What a unit contributes, if its rows contribute each by itself."""
    refuse_captured(per_row)

    def per_unit(arguments: Any, unit: Units, secret: jax.Array | None) -> jax.Array:  # noqa: ARG001
        if unit.row_present is None:  # zeroed on the lattice if not finite
            return per_row(arguments, unit.fields).astype(jnp.float32)
        values = jax.vmap(lambda row: clean(per_row(arguments, row)))(unit.fields)
        kept = unit.row_present.reshape(-1, *[1] * (values.ndim - 1))
        return jnp.where(kept, values, 0).sum(axis=0)

    return per_unit


def _over_units(per_unit: PerUnit) -> Callable[..., jax.Array]:
    """What a unit contributes, given all its rows."""
    refuse_captured(per_unit)
    one = jnp.ones(1, jnp.bool_)

    def of_unit(arguments: Any, unit: Units, secret: jax.Array | None) -> jax.Array:
        fields, present = unit
        if present is None:
            fields, present = jax.tree.map(lambda leaf: leaf[None], fields), one
        own = () if secret is None else (secret,)
        return per_unit(arguments, fields, present, *own).astype(jnp.float32)

    return of_unit


# A primitive, so that the check can find it; without rules for grad and vmap, so that neither can
# turn one charged release into several.
release_p = Primitive("tacit_release")


def _release(
    *operands: jax.Array, unit: Any, public: Any, batch: Any, lattice: Lattice | RatioLattice
) -> jax.Array:
    shared: _Public = jax.tree.unflatten(public, operands[: public.num_leaves])
    given: Batch = jax.tree.unflatten(batch, operands[public.num_leaves :])
    if isinstance(lattice, RatioLattice):
        return _decided(unit, shared, given, lattice)
    return released(_sums(unit, shared, given, lattice), given.noise, given.grid, lattice)


def unreleased_sum(
    *operands: jax.Array, unit: Any, public: Any, batch: Any, lattice: Lattice
) -> jax.Array:
    """The sum that a release has of a part of the units, as integers without noise. Gate only.

    What is added to those of the other parts and to noise before anything leaves. [parts-sum]
    """
    shared: _Public = jax.tree.unflatten(public, operands[: public.num_leaves])
    given: Batch = jax.tree.unflatten(batch, operands[public.num_leaves :])
    return whole_sum(_sums(unit, shared, given, lattice), lattice)


def _contributions(unit: Any, shared: _Public, axis: int = 0) -> Callable[..., jax.Array]:
    """What units contribute, each by itself. ``axis`` is that of the units in what is given."""

    def of(*leaves: jax.Array) -> jax.Array:
        (found,) = jax.core.eval_jaxpr(unit, shared.constants, *shared.arguments, *leaves)
        return jnp.asarray(found)

    return jax.vmap(of, in_axes=axis)


def _decided(unit: Any, shared: _Public, given: Batch, lattice: RatioLattice) -> jax.Array:
    """The decision of a test on all units, or on a batch of fixed size.

    Units are the last axis here, as a column's values then lie one after the other: products with parameters take a
    fraction of the time.
    """
    assert shared.shift is not None
    ratios = _contributions(unit, shared, axis=-1)

    def on_points(*private: jax.Array) -> jax.Array:
        turned = [jnp.moveaxis(leaf, 0, -1) for leaf in private]
        # Or the compiler would turn them back.
        turned = jax.lax.optimization_barrier(turned)  # type: ignore[no-untyped-call]
        return ratio_on_lattice(ratios(*turned), given.clip, lattice)

    def sums(*operands: jax.Array) -> jax.Array:
        *private, present = operands
        return ratio_sums(on_points(*private), present, lattice)

    private = jax.tree.leaves((given.units, given.secret))
    if lattice.batch_size is None:
        parts = _in_pieces(sums, [*private, given.present])
        return decide(parts, given.noise, given.grid, shared.shift)
    units = on_points(*private)
    return decide_on_batch(units, given.present, given.noise, shared.shift, lattice)


def _sums(unit: Any, shared: _Public, given: Batch, lattice: Lattice) -> jax.Array:
    """Sums of the units present, on the lattice, in parts as of `part_sums`."""
    place = on_lattice if lattice.order == 2 else on_lattice_by_sum
    contributions = _contributions(unit, shared)

    def sums(*operands: jax.Array) -> jax.Array:
        *private, present = operands
        values = jnp.asarray(contributions(*private))
        units = jax.vmap(lambda vector: place(vector, given.clip, lattice.points))(values)
        return part_sums(units, present, lattice)

    return _in_pieces(sums, [*jax.tree.leaves((given.units, given.secret)), given.present])


def _in_pieces(sums: Callable[..., jax.Array], operands: Sequence[jax.Array]) -> jax.Array:
    """Sums over units; over many, a piece at a time: integers add up to the same, in less memory."""
    units = len(operands[-1])
    if units <= _PIECE:
        return sums(*operands)

    def piece(start: jax.Array) -> jax.Array:
        return sums(*[jax.lax.dynamic_slice_in_dim(leaf, start, _PIECE) for leaf in operands])

    even = units // _PIECE * _PIECE
    parts = jax.lax.map(piece, jnp.arange(0, even, _PIECE))
    flat: jax.Array = parts.reshape(-1, *parts.shape[2:])
    if even == units:
        return flat
    return jnp.concatenate([flat, sums(*[leaf[even:] for leaf in operands])])


def _abstract(*_: Any, lattice: Lattice | RatioLattice, **__: Any) -> Any:
    return jax.core.ShapedArray(*lattice.released)


def refuse_inseparable(equations: Iterable[Any]) -> None:
    """Raises what compiling a release would raise: JAX cannot do everything unit by unit."""
    for equation in equations:
        if equation.primitive is release_p:
            given = [_like(atom.aval) for atom in equation.invars]
            jax.eval_shape(partial(_release, **equation.params), *given)


release_p.def_impl(_release)  # type: ignore[no-untyped-call]
release_p.def_abstract_eval(_abstract)  # type: ignore[no-untyped-call]
mlir.register_lowering(release_p, mlir.lower_fun(_release, multiple_results=False))


def _refuse_vmap(*_: Any, **__: Any) -> Any:
    raise BoundaryError(
        "vmap over a release is refused: it would make several of one that is charged once."
    )


batching.primitive_batchers[release_p] = _refuse_vmap
