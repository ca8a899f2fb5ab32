"""Proof, by its trace, that a step lets rows leave through its release only; and the program that runs that trace.

A step is traced on shapes, the trace is walked, and what runs is the very trace that was walked. Rows are
arguments of the program and never part of it. Every value of the trace carries a label: the name of a part of
the batch as it came (a column, units' secret bits, the sampling mask, the noise, the clip, the grid), "rows" for
anything computed from those, or nothing. The rules:

- a release takes exactly the batch, every part by its name, arguments without a label, and the
  mechanism's lattice; there is exactly one, in the step itself and not inside a loop, a branch or another
  function of JAX, and it alone uses the noise;
- what the step returns has no label;
- every operation is on an allow-list: a function of its inputs, without effects, callbacks, references and
  batching rules of its own; in the per-unit function, one that acts on every unit by itself.

The allow-list of operations that may touch rows: each acts, under `vmap`, on every unit by itself, in the
program that runs and not only in its definition. tests/privacy/test_contamination.py changes one unit of a
batch for every name and compares all others to the bit; a name without a case fails it. Add a name only with
its case. Left out are `regularized_incomplete_beta`, which goes on for all units until the slowest has
converged; `rng_bit_generator`, which makes a batch's numbers from the first unit's key, and with it all random
keys but threefry's; `svd`, which does not come back from some matrices with an infinite number in them; and
what no model needs.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Primitive, Var, primitives
from jax.extend.core import Literal as Constant
from jax.interpreters import partial_eval
from jax.tree_util import PyTreeDef

from tacit._compile import jit, remember, stored_jit
from tacit._typing import AnyArray, PyTree
from tacit.errors import BoundaryError, InvalidArgument, TacitError
from tacit.privacy.captured import check_captured
from tacit.privacy.clipping import Lattice, RatioLattice
from tacit.privacy.mechanisms import Batch, Release, check_vmappable, noiseless_sum, release_p
from tacit.privacy.rows import Units


@contextmanager
def translated_trace_errors() -> Iterator[None]:
    """What a function cannot be traced for, in a sentence of our own.

    JAX's words may have shapes, and with them how many rows there are, so only the kind is reported.
    The name of a column that is not there stands in the model's code; other keys may be shapes.
    """
    try:
        yield
    except TacitError:
        raise
    except Exception as error:  # whatever a model's own code may raise
        if isinstance(error, KeyError) and all(isinstance(key, str) for key in error.args):
            raise
        raise InvalidArgument(
            f"JAX cannot trace the model for this method ({type(error).__name__}): leave out "
            "callbacks, custom rules for gradients that do not fit, and decisions in Python that "
            "depend on a row."
        ) from None


# What a function of one unit may do. [admitted]
PER_UNIT_PRIMITIVES = frozenset(
    """
    abs acos acosh add add_any and argmax argmin asin asinh atan atan2 atanh bessel_i0e bessel_i1e
    bitcast_convert_type broadcast_in_dim cbrt ceil cholesky clamp clz complex concatenate cond conj
    conv_general_dilated convert_element_type copy cos cosh cumlogsumexp cummax cummin cumprod cumsum custom_jvp_call
    custom_linear_solve custom_vjp_call digamma div dot_general dynamic_slice dynamic_update_slice
    eigh empty2 eq erf erf_inv erfc exp exp2 expm1 fft floor gather ge gt igamma igamma_grad_a igammac imag
    integer_pow iota is_finite jit le le_to lgamma log log1p logistic lt lt_to lu max min mul mulhi name ne neg
    nextafter not optimization_barrier or pad platform_index polygamma population_count pow qr
    random_bits random_fold_in random_gamma random_seed random_split real reduce reduce_and
    reduce_max reduce_min reduce_or reduce_precision reduce_prod reduce_sum reduce_window
    reduce_window_max reduce_window_min reduce_window_sum reduce_xor rem remat2 reshape rev round
    rsqrt scan scatter scatter-add scatter-max scatter-min scatter-mul scatter-sub
    select_and_gather_add select_and_scatter_add select_n shift_left shift_right_arithmetic
    shift_right_logical sign sin sinh slice sort split sqrt square squeeze stack stop_gradient sub
    tan tanh threefry2x32 tile top_k transpose triangular_solve tridiagonal_solve unstack while
    xor zeta
    """.split()  # noqa: SIM905 (two pages otherwise)
)
# What a step may do besides, outside its release: it has nothing but public and released values.
PUBLIC_PRIMITIVES = PER_UNIT_PRIMITIVES | {
    "approx_top_k", "closed_call", "eig", "hessenberg",
    "householder_product", "regularized_incomplete_beta", "rng_bit_generator", "schur", "svd",
    "tridiagonal",
}  # fmt: skip
# Which of a few implementations this machine has: no value goes in. JAX does not export it.
_PLATFORM = "platform_index"


def is_per_unit(equation: JaxprEqn) -> bool:
    """Whether an operation, mapped over units, treats each unit as if it were alone."""
    atoms = [*equation.invars, *equation.outvars]
    foreign = any(_is_foreign_key(atom.aval) for atom in atoms)
    return _is_listed(equation, PER_UNIT_PRIMITIVES) and not foreign


def is_allowed(equation: JaxprEqn) -> bool:
    """Whether an operation is a function of its inputs, and does nothing else."""
    return _is_listed(equation, PUBLIC_PRIMITIVES)


def _is_listed(equation: JaxprEqn, names: frozenset[str]) -> bool:
    if equation.effects:
        return False
    if equation.primitive.name == _PLATFORM:
        return not equation.invars
    return equation.primitive in _jax_primitives(names)


@lru_cache
def _jax_primitives(names: frozenset[str]) -> frozenset[Primitive]:
    """JAX's own operations of these names: somebody else's could be called so, too."""
    known = [*vars(primitives).values(), *vars(jax.lax).values()]
    return frozenset(each for each in known if isinstance(each, Primitive) and each.name in names)


def _is_foreign_key(kind: AnyArray) -> bool:
    """Whether values are random keys that other numbers than threefry's are made from."""
    dtype = getattr(kind, "dtype", None)
    return (
        dtype is not None
        and bool(jnp.issubdtype(dtype, jax.dtypes.prng_key))
        and dtype != _threefry_dtype()
    )


@lru_cache
def _threefry_dtype() -> object:
    return jax.eval_shape(lambda: jax.random.key(0, impl="threefry2x32")).dtype


# Labels of what is computed from rows, and of the noise as it came.
_ROWS_LABEL, _NOISE_LABEL = "rows", ".noise"
# Calls whose inputs and outputs are those of their body.
_CALL_PRIMITIVES = {"jit", "closed_call", "custom_jvp_call", "custom_vjp_call", "remat2"}


def check_trace(
    traced: ClosedJaxpr, public: int, batch: Batch, lattice: Lattice | RatioLattice
) -> None:
    """Raises unless the trace, whose inputs are so many public ones and the batch, keeps the rules."""
    walk = _Walk(lattice, batch)
    out = walk.through(traced.jaxpr, [None] * public + walk.labels)
    if walk.releases != 1:
        raise BoundaryError(
            f"A step must make exactly one release, which is what is charged; this one makes "
            f"{walk.releases}."
        )
    if any(label is not None for label in out):
        raise BoundaryError(
            "The step returns something computed from rows other than by the release. Return "
            "only what follows from released values and public inputs."
        )


class _Walk:
    def __init__(self, lattice: Lattice | RatioLattice, batch: Batch) -> None:
        self.releases = 0
        self._lattice = lattice
        named, self._structure = jax.tree_util.tree_flatten_with_path(batch)
        # Every part of the batch by its own name, such as ".units.fields['x']" or ".noise".
        self.labels: list[str | None] = [jax.tree_util.keystr(path) for path, _ in named]

    def through(self, jaxpr: Jaxpr, labels: Sequence[str | None]) -> list[str | None]:
        """Labels of the outputs, given those of the inputs."""
        known: dict[Var, str | None] = dict(zip(jaxpr.invars, labels, strict=True))

        def label(atom: Var | Constant) -> str | None:
            return None if isinstance(atom, Constant) else known.get(atom)

        for equation in jaxpr.eqns:
            given = [label(atom) for atom in equation.invars]
            out: Sequence[str | None]
            if equation.primitive is release_p:
                self._check_release(equation, given)
                out = [None]
            elif (body := _call_body(equation)) is not None:
                self._check_no_release(
                    equation, body
                )  # the body's own trace would contain the batch's width
                _check_allowed(equation)
                out = self.through(body, given)
            else:
                self._check_inside(equation)
                if _NOISE_LABEL in given:
                    raise BoundaryError("The noise of a release is used outside it.")
                touched = any(each is not None for each in given)
                out = [_ROWS_LABEL if touched else None] * len(equation.outvars)
            known.update(zip(equation.outvars, out, strict=True))
        return [label(atom) for atom in jaxpr.outvars]

    def _check_release(self, equation: JaxprEqn, given: Sequence[str | None]) -> None:
        public = equation.params["public"].num_leaves
        if any(each is not None for each in given[:public]):
            raise BoundaryError(
                "An argument of the release is computed from rows; pass released or public values."
            )
        same = equation.params["batch"] == self._structure
        if not same or list(given[public:]) != self.labels:  # all of it, each part in its place
            raise BoundaryError(
                "The release must get its batch and its noise as the gate drew them."
            )
        if equation.params["lattice"] != self._lattice:
            raise BoundaryError("The release must use the mechanism's lattice.")
        self.releases += 1
        unit = equation.params["unit"]
        if any(inner.primitive is release_p for inner in all_equations(unit)):
            raise BoundaryError("A release cannot be made inside another.")
        check_per_unit(unit)

    def _check_inside(self, equation: JaxprEqn) -> None:
        _check_allowed(equation)
        for body in _inner_jaxprs(equation):
            self._check_no_release(equation, body)
            for inner in all_equations(body):
                _check_allowed(inner)

    def _check_no_release(self, equation: JaxprEqn, body: Jaxpr) -> None:
        if any(inner.primitive is release_p for inner in all_equations(body)):
            raise BoundaryError(
                f"The step makes its release inside {equation.primitive.name}; call it once, in the step "
                "itself."
            )


def _check_allowed(equation: JaxprEqn) -> None:
    if not is_allowed(equation):
        raise BoundaryError(
            f"The operation {equation.primitive.name} is not one of the plain operations of JAX: "
            "rows could leave by it; leave out callbacks, printing, references and custom batching "
            "rules."
        )


def check_per_unit(unit: Jaxpr) -> None:
    """Raises if units could meet in what a function of one unit does: every operation must be on the list."""
    for equation in all_equations(unit):
        if not is_per_unit(equation):
            raise BoundaryError(
                f"The operation {equation.primitive.name} is not known as one that acts on every "
                "unit by itself: rows could leave by it, or meet in it; leave out callbacks, "
                "printing, references, custom batching rules, incomplete beta functions, and "
                "random keys other than threefry's."
            )


def _call_body(equation: JaxprEqn) -> Jaxpr | None:
    if equation.primitive.name not in _CALL_PRIMITIVES:
        return None
    for body in _inner_jaxprs(equation):
        if len(body.invars) == len(equation.invars):
            return body
    return None


def _inner_jaxprs(equation: JaxprEqn) -> Iterator[Jaxpr]:
    """The jaxprs among an equation's parameters."""
    kinds = (ClosedJaxpr, Jaxpr)
    for value in jax.tree.leaves(
        list(equation.params.values()), is_leaf=lambda x: isinstance(x, kinds)
    ):
        if isinstance(value, kinds):
            yield value.jaxpr if isinstance(value, ClosedJaxpr) else value


def all_equations(jaxpr: Jaxpr) -> Iterator[JaxprEqn]:
    """All equations, at any depth."""
    for equation in jaxpr.eqns:
        yield equation
        for body in _inner_jaxprs(equation):
            yield from all_equations(body)


def shares_constants(first: ClosedJaxpr, second: ClosedJaxpr) -> bool:
    """Whether two traces of one function share constants: arrays it did not make itself."""
    known = {_buffer_identity(value) for value in trace_constants(first)}
    return any(_buffer_identity(value) in known for value in trace_constants(second))


def trace_constants(traced: ClosedJaxpr) -> Iterator[AnyArray]:
    """The arrays in a trace, at any depth."""
    yield from traced.consts
    for equation in all_equations(traced.jaxpr):
        for value in jax.tree.leaves(
            list(equation.params.values()), is_leaf=lambda x: isinstance(x, ClosedJaxpr)
        ):
            if isinstance(value, ClosedJaxpr):
                yield from value.consts


def _buffer_identity(value: AnyArray) -> int:
    if isinstance(value, jax.core.Tracer):
        raise BoundaryError(
            "The step uses a value that it kept from inside another function, where it may have been "
            "a row. Return it from there instead."
        )
    if isinstance(value, jax.Array):
        return id(value)
    return int(np.asarray(value).__array_interface__["data"][0])


Step = Callable[[PyTree, PyTree, Release], tuple[PyTree, PyTree]]
# What a step does, by its trace: the operations as text, the arrays it made, and the types of what it returns.
Fingerprint = tuple[str, tuple[bytes, ...], tuple[tuple[tuple[int, ...], str], ...]]
# Where in memory a function of a trace is.
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
# What makes a terminal print in colour.
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class StepInputs(NamedTuple):
    """What a block of steps gets, with a leading axis for the steps.

    ``whom`` are the places of a step's units, or the units themselves if the host fetched them, or
    None if a step looks at everyone. ``present`` says which of the places hold a unit.
    """

    whom: AnyArray | Units | None
    present: AnyArray | None
    secret: AnyArray | None
    noise: AnyArray
    given: PyTree


class SharedInputs(NamedTuple):
    """What is the same in all steps: the units in memory, who of them is real, clip and grid.

    ``units`` is None where the host fetches them, and ``present`` where steps look at batches.
    """

    units: PyTree
    present: AnyArray | None
    clip: AnyArray
    grid: AnyArray


def take_units(units: Units, places: jax.Array) -> Units:
    """The units at these places."""

    def of(leaf: jax.Array) -> jax.Array:
        return leaf.at[places].get(mode="promise_in_bounds", wrap_negative_indices=False)

    taken: Units = jax.tree.map(of, units)
    return taken


def scan_with_buffer(
    advance: Callable[[PyTree, Units, StepInputs], tuple[PyTree, PyTree]],
    bring: Callable[[AnyArray], Units],
    state: PyTree,
    inputs: StepInputs,
) -> tuple[PyTree, PyTree]:
    """Steps in turn, each with its units in a buffer with one extra, empty place; this is for speed.

    A fetch that stands by itself is spread over threads however small it is, and a thread that was
    woken stays awake for a while. One that writes into a part of something larger is not.
    """

    def room(leaf: jax.ShapeDtypeStruct) -> jax.Array:
        return jnp.zeros((leaf.shape[0] + 1, *leaf.shape[1:]), leaf.dtype)

    def fill(buffer: jax.Array, units: jax.Array) -> jax.Array:
        return jax.lax.dynamic_update_slice(buffer, units, [0] * buffer.ndim)

    def following(carry: PyTree, inputs: StepInputs) -> tuple[PyTree, PyTree]:
        state, buffer = carry
        buffer = jax.tree.map(fill, buffer, bring(inputs.whom))
        state, out = advance(state, buffer, inputs)
        return (state, buffer), out

    first = jax.tree.map(lambda leaf: leaf[0], inputs.whom)
    buffer = jax.tree.map(room, jax.eval_shape(bring, first))
    (state, _), out = jax.lax.scan(following, (state, buffer), inputs)
    return state, out


class _ArrayType(NamedTuple):
    """What a trace depends on of an array. Quickly made, as every run asks for it."""

    shape: tuple[int, ...]
    dtype: AnyArray
    weak: bool

    @classmethod
    def of(cls, leaf: AnyArray) -> "_ArrayType":
        if isinstance(leaf, np.ndarray):
            return cls(leaf.shape, leaf.dtype, False)
        if not isinstance(leaf, jax.Array | jax.ShapeDtypeStruct):
            leaf = jax.typeof(leaf)
        return cls(leaf.shape, leaf.dtype, bool(leaf.weak_type))

    def traceable(self) -> jax.ShapeDtypeStruct:
        """As JAX takes it, which has no wide numbers unless they are switched on."""
        plain = isinstance(self.dtype, np.dtype)
        dtype = jax.dtypes.canonicalize_dtype(self.dtype) if plain else self.dtype
        return jax.ShapeDtypeStruct(self.shape, dtype, weak_type=self.weak)  # type: ignore[no-untyped-call]


def first_step_shapes(tree: PyTree) -> PyTree:
    """The shapes and types of what one step gets, of inputs of several."""

    def first(leaf: AnyArray) -> jax.ShapeDtypeStruct:
        kind = _ArrayType.of(leaf)
        return kind._replace(shape=kind.shape[1:]).traceable()

    return jax.tree.map(first, tree)


def checked_fingerprint(
    step: Step, lattice: Lattice | RatioLattice, state: PyTree, given: PyTree, batch: Batch
) -> Fingerprint:
    """Proves on shapes that a step keeps the rules of this module, and returns what it does.

    That is a function of the shapes alone, so once is enough for arguments of the same shapes.
    """
    leaves, tree = jax.tree.flatten((state, given, batch))
    of = step, lattice, tree, tuple(map(_ArrayType.of, leaves))
    digest = getattr(step, "known_digest", None)
    if digest is None:
        return _cached_fingerprint(*of)
    check_captured(step)
    # The same code made the same trace in an earlier process, where it was walked. [gate-stored]
    return remember(repr((digest, *of[1:])), lambda: _cached_fingerprint(*of))


def step_output_shapes(
    step: Step, lattice: Lattice | RatioLattice, state: PyTree, given: PyTree, batch: Batch
) -> PyTree:
    """The shapes of what a checked step returns: its state and its outputs."""

    def whole(state: PyTree, given: PyTree, batch: Batch) -> PyTree:
        return step(state, given, Release(batch, lattice))

    return jax.eval_shape(whole, state, given, batch)


@lru_cache(maxsize=32)
def _cached_fingerprint(
    step: Step, lattice: Lattice | RatioLattice, tree: PyTreeDef, leaves: tuple[_ArrayType, ...]
) -> Fingerprint:
    shapes = jax.tree.unflatten(tree, [kind.traceable() for kind in leaves])
    traced, _ = _checked_trace(step, lattice, *shapes)
    with translated_trace_errors():  # before anything is charged
        check_vmappable(all_equations(traced.jaxpr))
    return _fingerprint(traced)


@lru_cache(maxsize=32)
def compile_block(
    step: Step, lattice: Lattice | RatioLattice, fingerprint: Fingerprint, source: str
) -> Callable[[SharedInputs, PyTree, StepInputs], tuple[PyTree, PyTree]]:
    """A block of steps as one program: of what all steps share, the state, and the steps' inputs.

    ``source`` is where the units of a step come from: "everyone", "memory", from which the program takes
    some, or "host", which fetched some. The same object again for the same arguments, so that fits which are alike compile once.
    """

    def advance(fixed: SharedInputs, state: PyTree, units: Units, inputs: StepInputs) -> PyTree:
        batch = Batch(units, inputs.secret, inputs.present, inputs.noise, fixed.clip, fixed.grid)
        return _run_trace(step, lattice, fingerprint, state, inputs.given, batch)

    def block(fixed: SharedInputs, state: PyTree, inputs: StepInputs) -> tuple[PyTree, PyTree]:
        if source == "everyone":

            def with_all(state: PyTree, inputs: StepInputs) -> PyTree:
                return advance(fixed, state, fixed.units, inputs._replace(present=fixed.present))

            return jax.lax.scan(with_all, state, inputs)

        def bring(whom: AnyArray) -> Units:
            return whom if source == "host" else take_units(fixed.units, whom)

        def with_batch(state: PyTree, units: Units, inputs: StepInputs) -> PyTree:
            return advance(fixed, state, units, inputs)

        return scan_with_buffer(with_batch, bring, state, inputs)

    return jit(block)


@lru_cache(maxsize=32)
def compile_sum(
    step: Step, lattice: Lattice, fingerprint: Fingerprint, *, public_width: bool = False
) -> Callable[[PyTree, PyTree, Batch], jax.Array]:
    """The sum that a step's release would make of a batch, as integers without noise. Gate only.

    The very trace that was walked is followed up to its release. [parts-sum] With ``public_width``, the width of
    batches does not depend on rows, so that the program may be stored. [gate-stored]
    """

    def total(state: PyTree, given: PyTree, batch: Batch) -> jax.Array:
        traced, _ = _matching_trace(step, lattice, fingerprint, state, given, batch)
        return _sum_at_release(traced, jax.tree.leaves((state, given, batch)))

    # The walked trace determines the program, so that one that was stored needs no other trace.
    return stored_jit(total, repr(("sum", fingerprint, lattice))) if public_width else jit(total)


@lru_cache(maxsize=32)
def compile_rest(
    step: Step, lattice: Lattice | RatioLattice, fingerprint: Fingerprint
) -> Callable[[PyTree, PyTree, Batch, AnyArray], tuple[PyTree, PyTree]]:
    """What a step makes of a released value: the next state and the outputs. Gate only.

    The batch has no units; it is there for its shapes. The very trace that was walked is followed from its release on.
    """

    def rest(state: PyTree, given: PyTree, nobody: Batch, released: AnyArray) -> PyTree:
        traced, out = _matching_trace(step, lattice, fingerprint, state, given, nobody)
        jaxpr = traced.jaxpr
        (release,) = [each for each in jaxpr.eqns if each.primitive is release_p]
        after = jaxpr.replace(
            invars=[*jaxpr.invars, *release.outvars],
            eqns=[each for each in jaxpr.eqns if each is not release],
        )
        after, _ = partial_eval.dce_jaxpr(after, [True] * len(after.outvars), instantiate=True)
        leaves = jax.tree.leaves((state, given, nobody))
        found = jax.core.eval_jaxpr(after, traced.consts, *leaves, released)
        return jax.tree.unflatten(jax.tree.structure(out), found)

    return stored_jit(rest, repr(("rest", fingerprint, lattice)))


def _sum_at_release(traced: ClosedJaxpr, given: Sequence[AnyArray]) -> jax.Array:
    """Follows a trace up to its release, which is in no call, and returns the sum there."""
    jaxpr = traced.jaxpr
    place = next(i for i, each in enumerate(jaxpr.eqns) if each.primitive is release_p)
    release, before = jaxpr.eqns[place], jaxpr.eqns[:place]
    wanted = [atom for atom in release.invars if not isinstance(atom, Constant)]
    start = jaxpr.replace(eqns=before, outvars=wanted)
    found = iter(jax.core.eval_jaxpr(start, traced.consts, *given))
    operands = [a.val if isinstance(a, Constant) else next(found) for a in release.invars]
    return noiseless_sum(*operands, **release.params)


def _run_trace(
    step: Step, lattice: Lattice | RatioLattice, fingerprint: Fingerprint, *of: PyTree
) -> tuple[PyTree, PyTree]:
    """What a step makes of its state, what it is given, and its batch."""
    traced, out = _matching_trace(step, lattice, fingerprint, *of)
    leaves = jax.core.eval_jaxpr(traced.jaxpr, traced.consts, *jax.tree.leaves(of))
    found: tuple[PyTree, PyTree] = jax.tree.unflatten(jax.tree.structure(out), leaves)
    return found


def _matching_trace(
    step: Step, lattice: Lattice | RatioLattice, fingerprint: Fingerprint, *of: PyTree
) -> tuple[ClosedJaxpr, PyTree]:
    """The trace of a step, if it has the fingerprint that was checked."""
    traced, out = _checked_trace(step, lattice, *of)
    if _fingerprint(traced) != fingerprint:
        raise BoundaryError("What the step does or returns depends on the width of the batch.")
    return traced, out


def _checked_trace(
    step: Step, lattice: Lattice | RatioLattice, state: PyTree, given: PyTree, batch: Batch
) -> tuple[ClosedJaxpr, PyTree]:
    """The trace of a step, searched, walked, and compared with another for arrays from outside."""
    check_captured(step)  # whenever its code is about to run
    first, out = _walked_trace(step, lattice, state, given, batch)
    if next(trace_constants(first), None) is None:
        return first, out  # it has no array at all
    # JAX keeps traces of its own functions, with the arrays they made; another setting that
    # is part of their key makes it trace them anew.
    with jax.default_matmul_precision("highest"):
        second, _ = _walked_trace(step, lattice, state, given, batch)
    if shares_constants(first, second):
        raise BoundaryError(
            "The step uses an array from outside itself, which could hold rows and would be "
            "compiled into the program. Pass it through the state, the inputs or the model's "
            "public constants."
        )
    return first, out


def _walked_trace(
    step: Step, lattice: Lattice | RatioLattice, state: PyTree, given: PyTree, batch: Batch
) -> tuple[ClosedJaxpr, PyTree]:
    """The trace of a step on these very arguments, after the walk over it."""

    def whole(state: PyTree, given: PyTree, batch: Batch) -> PyTree:
        return step(state, given, Release(batch, lattice))

    with translated_trace_errors():
        traced, out = jax.make_jaxpr(whole, return_shape=True)(state, given, batch)
    check_trace(traced, len(jax.tree.leaves((state, given))), batch, lattice)
    return traced, out


def strip_colours(text: str) -> str:
    """A trace as text without colours, which JAX adds in a process that prints to a terminal or a notebook."""
    return _COLOUR.sub("", text)


def _fingerprint(traced: ClosedJaxpr) -> Fingerprint:
    """What a step does but for the width of its batch, which only a release may notice.

    A step could count its batch's places while it is traced; they would be numbers in the trace.
    """
    jaxpr = traced.jaxpr
    number = {var: i for i, var in enumerate([*jaxpr.constvars, *jaxpr.invars])}
    done = []
    for equation in jaxpr.eqns:
        given = [str(a) if isinstance(a, Constant) else number[a] for a in equation.invars]
        number.update({var: len(number) + i for i, var in enumerate(equation.outvars)})
        kinds = [str(var.aval) for var in equation.outvars]
        done.append((equation.primitive.name, given, kinds, equation.params))
    made = tuple(np.asarray(each).tobytes() for each in trace_constants(traced))
    returned = tuple((aval.shape, str(aval.dtype)) for aval in traced.out_avals)
    # Which values are returned, and in which order: the fingerprint is the name of a stored program.
    out = [str(a) if isinstance(a, Constant) else number[a] for a in jaxpr.outvars]
    return _ADDRESS.sub("", strip_colours(str((done, out)))), made, returned
