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
what no model has asked for.
"""

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.compilation_cache import compilation_cache
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, Primitive, Var, primitives

from tacit.errors import BoundaryError, InvalidArgument, TacitError
from tacit.privacy.rows import Units

# Loggers of JAX that were made to say less, and the levels they had; and how many gates work.
_saved_levels: dict[logging.Logger, int] = {}
_settings_lock, _active_gates = Lock(), [0]
# Where compiled programs shall be stored, by all who have asked, and what was set before the first of them.
_CACHE_FOLDER_OPTION, _CACHE_MIN_SECONDS_OPTION = (
    "jax_compilation_cache_dir",
    "jax_persistent_cache_min_compile_time_secs",
)
_DUMP_FOLDER_OPTION = "jax_dump_ir_to"  # where JAX writes programs before they are compiled
_cache_requests: dict[object, Path | None] = {}
_saved_options: dict[str, object] = {}


@contextmanager
def silenced_jax() -> Iterator[None]:
    """Within this no setting of the process makes JAX say or do something because of rows.

    One that stops at NaN would tell that a row has it; one that logs what is compiled, or moved to
    the device, prints shapes, which hold how many rows there are, as JAX's loggers do below a
    warning; one that stores compiled programs writes those shapes into files that others may read;
    without compilation every operation runs by itself. [gate-settings]
    """
    with ExitStack() as off:
        off.enter_context(_silenced_loggers())
        off.enter_context(compilation_cache_in(None))
        off.enter_context(jax.transfer_guard("allow"))
        for setting in (
            jax.debug_nans, jax.debug_infs, jax.log_compiles, jax.explain_cache_misses,
            jax.enable_checks, jax.check_tracer_leaks, jax.disable_jit,
        ):  # fmt: skip
            off.enter_context(setting(False))
        yield


@contextmanager
def _silenced_loggers() -> Iterator[None]:
    """JAX's loggers say nothing below a warning, for as long as a gate works in any thread."""
    with _settings_lock:
        _active_gates[0] += 1
        for logger in _verbose_loggers():
            _saved_levels.setdefault(logger, logger.level)
            logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        with _settings_lock:
            _active_gates[0] -= 1
            while not _active_gates[0] and _saved_levels:
                logger, level = _saved_levels.popitem()
                logger.setLevel(level)


def _verbose_loggers() -> list[logging.Logger]:
    """JAX's loggers that would say more; others of its ask the first of these."""
    made = [logging.getLogger("jax"), *logging.Logger.manager.loggerDict.values()]
    return [
        each
        for each in made
        if isinstance(each, logging.Logger)
        and each.name.split(".")[0] == "jax"
        and each.getEffectiveLevel() < logging.WARNING
    ]


@contextmanager
def compilation_cache_in(folder: Path | None) -> Iterator[None]:
    """Stores programs that any thread compiles meanwhile in a folder, or nowhere.

    JAX has one such setting for the whole process. So while anybody says nowhere, it is nowhere.
    """
    asked = object()
    with _settings_lock:
        if not _cache_requests:
            _saved_options.update(
                {
                    name: jax.config.values[name]
                    for name in (
                        _CACHE_FOLDER_OPTION,
                        _CACHE_MIN_SECONDS_OPTION,
                        _DUMP_FOLDER_OPTION,
                    )
                }
            )
        _cache_requests[asked] = folder
        _set_compilation_cache()
    try:
        yield
    finally:
        with _settings_lock:
            del _cache_requests[asked]
            _set_compilation_cache()


def _set_compilation_cache() -> None:
    """Tells JAX where to store programs."""
    wanted = dict(_saved_options)
    if _cache_requests:
        *_, last = _cache_requests.values()
        nowhere = last is None or None in _cache_requests.values()
        wanted |= {
            _CACHE_FOLDER_OPTION: None if nowhere else str(last),
            _CACHE_MIN_SECONDS_OPTION: 0.0,
        }
        wanted |= {_DUMP_FOLDER_OPTION: ""} if nowhere else {}
    if wanted[_DUMP_FOLDER_OPTION] != jax.config.values[_DUMP_FOLDER_OPTION]:
        jax.config.update(_DUMP_FOLDER_OPTION, wanted[_DUMP_FOLDER_OPTION])  # type: ignore[no-untyped-call]
    if wanted[_CACHE_FOLDER_OPTION] != jax.config.values[_CACHE_FOLDER_OPTION]:
        for name in (_CACHE_FOLDER_OPTION, _CACHE_MIN_SECONDS_OPTION):
            jax.config.update(name, wanted[name])  # type: ignore[no-untyped-call]
        compilation_cache.reset_cache()  # JAX chooses the folder only once


@contextmanager
def translated_trace_errors() -> Iterator[None]:
    """What a function cannot be traced for, in a sentence of our own.

    JAX's words may have shapes, and with them how many rows there are, so only the kind is told.
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


# What decides on the last bits of what JAX computes, beside its version and XLA's flags.
_ARITHMETIC_OPTIONS = (
    "jax_default_matmul_precision", "jax_default_prng_impl", "jax_disable_most_optimizations",
    "jax_enable_x64", "jax_exec_time_optimization_effort", "jax_high_dynamic_range_gumbel",
    "jax_num_cpu_devices", "jax_numpy_dtype_promotion", "jax_optimization_level",
    "jax_random_seed_offset", "jax_softmax_custom_jvp", "jax_threefry_partitionable",
    "jax_use_direct_linearize",
)  # fmt: skip
# What XLA and the libraries of linear algebra read when they are loaded.
_ARITHMETIC_VARIABLES = (
    "XLA_FLAGS", "BLIS_NUM_THREADS", "GOTO_NUM_THREADS", "MKL_CBWR", "MKL_NUM_THREADS",
    "OMP_NUM_THREADS", "OPENBLAS_CORETYPE", "OPENBLAS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS",
)  # fmt: skip


def num_threads() -> int:
    """How many threads XLA computes with on the CPU, found as XLA finds it.

    A product of matrices may be cut into as many parts, which round by themselves.
    """
    for name in ("PJRT_NPROC", "NPROC"):
        with suppress(KeyError, ValueError):
            return max(0, int(os.environ[name]))
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # where the system does not tell
        return os.cpu_count() or 1


def arithmetic_settings() -> str:
    """Settings of JAX, XLA and linear algebra on which the last bits of a result depend."""
    known = jax.config.values
    held = {name: getattr(jax.config, name, known.get(name)) for name in _ARITHMETIC_OPTIONS}
    variables = {name: os.environ[name] for name in _ARITHMETIC_VARIABLES if name in os.environ}
    return repr((held, variables))


# What a function of one unit may do.
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


def is_per_unit(equation: Any) -> bool:
    """Whether an operation of a function of one unit does with it what it does with it alone."""
    return _is_listed(equation, PER_UNIT_PRIMITIVES) and not any(
        map(_is_foreign_key, _avals(equation))
    )


def is_allowed(equation: Any) -> bool:
    """Whether an operation is a function of its inputs, and does nothing else."""
    return _is_listed(equation, PUBLIC_PRIMITIVES)


def _is_listed(equation: Any, names: frozenset[str]) -> bool:
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


def _avals(equation: Any) -> list[Any]:
    return [atom.aval for atom in [*equation.invars, *equation.outvars]]


def _is_foreign_key(kind: Any) -> bool:
    """Whether values are random keys that other numbers than threefry's are made from."""
    dtype = getattr(kind, "dtype", None)
    return (
        dtype is not None
        and bool(jnp.issubdtype(dtype, jax.dtypes.prng_key))
        and dtype != _threefry_dtype()
    )


@lru_cache
def _threefry_dtype() -> Any:
    return jax.eval_shape(lambda: jax.random.key(0, impl="threefry2x32")).dtype


# Labels of what is computed from rows, and of the noise as it came.
_ROWS_LABEL, _NOISE_LABEL = "rows", ".noise"
# Calls whose inputs and outputs are those of their body.
_CALL_PRIMITIVES = {"jit", "closed_call", "custom_jvp_call", "custom_vjp_call", "remat2"}


def check_trace(
    traced: ClosedJaxpr, public: int, batch: Any, release: Primitive, lattice: object
) -> None:
    """Raises unless the trace, whose inputs are so many public ones and the batch, keeps the rules."""
    walk = _Walk(release, lattice, batch)
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


def check_per_unit(traced: ClosedJaxpr) -> None:
    """Raises unless every operation of a function of one unit, at any depth, is on the list."""
    _check_units_apart(traced.jaxpr)


class _Walk:
    def __init__(self, release: Primitive, lattice: object, batch: Any) -> None:
        self.releases = 0
        self._release, self._lattice = release, lattice
        named, self._structure = jax.tree_util.tree_flatten_with_path(batch)
        # Every part of the batch by its own name, such as ".units.fields['x']" or ".noise".
        self.labels: list[str | None] = [jax.tree_util.keystr(path) for path, _ in named]

    def through(self, jaxpr: Jaxpr, labels: Sequence[str | None]) -> list[str | None]:
        """Labels of the outputs, given those of the inputs."""
        known: dict[Var, str | None] = dict(zip(jaxpr.invars, labels, strict=True))

        def label(atom: Any) -> str | None:
            return None if isinstance(atom, Literal) else known.get(atom)

        for equation in jaxpr.eqns:
            given = [label(atom) for atom in equation.invars]
            out: Sequence[str | None]
            if equation.primitive is self._release:
                self._check_release(equation, given)
                out = [None]
            elif (body := _call_body(equation)) is not None:
                self._refuse_release(
                    equation, body
                )  # whose trace would have the batch's width in it
                _check_allowed(equation)
                out = self.through(body, given)
            else:
                self._refuse_hidden(equation)
                if _NOISE_LABEL in given:
                    raise BoundaryError("The noise of a release is used outside it.")
                touched = any(each is not None for each in given)
                out = [_ROWS_LABEL if touched else None] * len(equation.outvars)
            known.update(zip(equation.outvars, out, strict=True))
        return [label(atom) for atom in jaxpr.outvars]

    def _check_release(self, equation: Any, given: Sequence[str | None]) -> None:
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
        if any(inner.primitive is self._release for inner in all_equations(unit)):
            raise BoundaryError("A release cannot be made inside another.")
        _check_units_apart(unit)

    def _refuse_hidden(self, equation: Any) -> None:
        _check_allowed(equation)
        for body in _inner_jaxprs(equation):
            self._refuse_release(equation, body)
            for inner in all_equations(body):
                _check_allowed(inner)

    def _refuse_release(self, equation: Any, body: Jaxpr) -> None:
        if any(inner.primitive is self._release for inner in all_equations(body)):
            raise BoundaryError(
                f"The step makes its release inside {equation.primitive.name}; call it once, in the step "
                "itself."
            )


def _check_allowed(equation: Any) -> None:
    if not is_allowed(equation):
        raise BoundaryError(
            f"The operation {equation.primitive.name} is not one of the plain operations of JAX: "
            "rows could leave by it; leave out callbacks, printing, references and custom batching "
            "rules."
        )


def _check_units_apart(unit: Jaxpr) -> None:
    """Raises if units could meet in what a function of one unit does."""
    for equation in all_equations(unit):
        if not is_per_unit(equation):
            raise BoundaryError(
                f"The operation {equation.primitive.name} is not known as one that acts on every "
                "unit by itself: rows could leave by it, or meet in it; leave out callbacks, "
                "printing, references, custom batching rules, incomplete beta functions, and "
                "random keys other than threefry's."
            )


def _call_body(equation: Any) -> Jaxpr | None:
    if equation.primitive.name not in _CALL_PRIMITIVES:
        return None
    for body in _inner_jaxprs(equation):
        if len(body.invars) == len(equation.invars):
            return body
    return None


def _inner_jaxprs(equation: Any) -> Iterator[Jaxpr]:
    """The jaxprs among an equation's parameters."""
    kinds = (ClosedJaxpr, Jaxpr)
    for value in jax.tree.leaves(
        list(equation.params.values()), is_leaf=lambda x: isinstance(x, kinds)
    ):
        if isinstance(value, kinds):
            yield value.jaxpr if isinstance(value, ClosedJaxpr) else value


def all_equations(jaxpr: Jaxpr) -> Iterator[Any]:
    """All equations, at any depth."""
    for equation in jaxpr.eqns:
        yield equation
        for body in _inner_jaxprs(equation):
            yield from all_equations(body)


def shares_constants(first: ClosedJaxpr, second: ClosedJaxpr) -> bool:
    """Whether two traces of one function share constants: arrays it did not make itself."""
    known = {_buffer_identity(value) for value in trace_constants(first)}
    return any(_buffer_identity(value) in known for value in trace_constants(second))


def trace_constants(traced: ClosedJaxpr) -> Iterator[Any]:
    """The arrays in a trace, at any depth."""
    yield from traced.consts
    for equation in all_equations(traced.jaxpr):
        for value in jax.tree.leaves(
            list(equation.params.values()), is_leaf=lambda x: isinstance(x, ClosedJaxpr)
        ):
            if isinstance(value, ClosedJaxpr):
                yield from value.consts


def _buffer_identity(value: Any) -> int:
    if isinstance(value, jax.core.Tracer):
        raise BoundaryError(
            "The step uses a value that it kept from inside another function, where it may have been "
            "a row. Return it from there instead."
        )
    if isinstance(value, jax.Array):
        return id(value)
    return int(np.asarray(value).__array_interface__["data"][0])


def take_units(units: Units, places: jax.Array) -> Units:
    """The units at these places."""

    def of(leaf: jax.Array) -> jax.Array:
        return leaf.at[places].get(mode="promise_in_bounds", wrap_negative_indices=False)

    taken: Units = jax.tree.map(of, units)
    return taken


def scan_with_buffer(
    advance: Callable[[Any, Any, Any], Any],
    bring: Callable[[Any], Any],
    state: Any,
    inputs: Any,
) -> tuple[Any, Any]:
    """Steps in turn, each with its units in a buffer that has one place more: of zeros, for nobody.

    A fetch that stands by itself is spread over threads however small it is, and a thread that was
    woken stays awake for a while. One that writes into a part of something larger is not.
    """

    def room(leaf: jax.ShapeDtypeStruct) -> jax.Array:
        return jnp.zeros((leaf.shape[0] + 1, *leaf.shape[1:]), leaf.dtype)

    def fill(buffer: jax.Array, units: jax.Array) -> jax.Array:
        return jax.lax.dynamic_update_slice(buffer, units, [0] * buffer.ndim)

    def following(carry: Any, inputs: Any) -> Any:
        state, buffer = carry
        buffer = jax.tree.map(fill, buffer, bring(inputs.whom))
        state, out = advance(state, buffer, inputs)
        return (state, buffer), out

    first = jax.tree.map(lambda leaf: leaf[0], inputs.whom)
    buffer = jax.tree.map(room, jax.eval_shape(bring, first))
    (state, _), out = jax.lax.scan(following, (state, buffer), inputs)
    return state, out
