"""The walk over a step's trace that proves rows leave through the release only.

Every value of the trace carries a label: a part of the batch as it came (which unit operand,
the sampling mask, the noise, the clip, the grid), "rows" for anything computed from those,
or nothing. The rules:

- a release takes exactly the parts of the batch, in order, arguments without a label, and the
  plan's lattice; there is exactly one, not inside a loop or a branch, and it alone uses the noise;
- what the step returns has no label;
- every operation, also inside the per-row function, is a plain one of JAX: no effects, no
  callbacks, no references, no rules of its own for batching.
"""

from array import array
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence, ValuesView
from contextlib import suppress
from functools import partial
from logging import Logger
from numbers import Number
from sys import modules, stdlib_module_names
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, Primitive, Var, primitives

from tacit.errors import BoundaryError

_ROWS = "rows"
# Operations that talk to other devices or to references; the rest of JAX's own list is plain.
_NOT_PLAIN = {
    "after_all", "all_gather", "all_to_all", "axis_index", "create_token", "dce_sink", "device_put",
    "get", "pmax", "pmin", "ppermute", "psum", "ragged_all_to_all", "rng_uniform", "stage", "swap",
}  # fmt: skip
_PLAIN = {
    each
    for each in [*vars(primitives).values(), *vars(jax.lax).values()]
    if isinstance(each, Primitive) and each.name not in _NOT_PLAIN
}
# Which of a few implementations of linear algebra this machine has; JAX does not export it.
_PLATFORM = "platform_index"
# Calls whose inputs and outputs are those of their body.
_CALLS = {"jit", "closed_call", "custom_jvp_call", "custom_vjp_call", "remat2"}
# Libraries whose own globals are not searched for rows.
_LIBRARIES = {"jax", "jaxlib", "numpy", "numpyro", "optax", "scipy", "tacit"} | stdlib_module_names
_COLLECTIONS = (list, tuple, set, frozenset, deque, ValuesView)
# What data frames, series and tensors of other libraries have.
_TABLES = ("__array__", "__array_interface__", "__dataframe__", "__arrow_c_stream__", "__dlpack__")
# More numbers than this in a collection could be rows.
_LONG = 16


def check_trace(
    traced: ClosedJaxpr, labels: Sequence[str | None], release: Primitive, lattice: object
) -> None:
    """Raises unless the trace, whose inputs have these labels, keeps the rules."""
    walk = _Walk(release, lattice)
    out = walk.through(traced.jaxpr, labels)
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


def check_plain(traced: ClosedJaxpr) -> None:
    """Raises unless every operation of a trace, at any depth, is a plain one."""
    for equation in _equations(traced.jaxpr):
        _refuse_unless_plain(equation)


class _Walk:
    def __init__(self, release: Primitive, lattice: object) -> None:
        self.releases = 0
        self._release, self._lattice = release, lattice

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
            elif (body := _called(equation)) is not None:
                _refuse_unless_plain(equation)
                out = self.through(body, given)
            else:
                self._refuse_hidden(equation)
                if "noise" in given:
                    raise BoundaryError("The noise of a release is used outside it.")
                touched = any(each is not None for each in given)
                out = [_ROWS if touched else None] * len(equation.outvars)
            known.update(zip(equation.outvars, out, strict=True))
        return [label(atom) for atom in jaxpr.outvars]

    def _check_release(self, equation: Any, given: Sequence[str | None]) -> None:
        public = equation.params["public"]
        if any(each is not None for each in given[:public]):
            raise BoundaryError(
                "An argument of the release is computed from rows; pass released or public values."
            )
        expected = [f"batch {i}" for i in range(len(given) - public - 4)]
        if list(given[public:]) != [*expected, "present", "noise", "clip", "grid"]:
            raise BoundaryError(
                "The release must get its batch and its noise as the gate drew them."
            )
        if equation.params["lattice"] != self._lattice:
            raise BoundaryError("The release must use the plan's lattice.")
        self.releases += 1
        for inner in _equations(equation.params["unit"]):
            _refuse_unless_plain(inner)
            if inner.primitive is self._release:
                raise BoundaryError("A release cannot be made inside another.")

    def _refuse_hidden(self, equation: Any) -> None:
        _refuse_unless_plain(equation)
        for body in _bodies(equation):
            for inner in _equations(body):
                if inner.primitive is self._release:
                    raise BoundaryError(
                        f"A release inside {equation.primitive.name} cannot be counted; call it "
                        "once, in the step itself."
                    )
                _refuse_unless_plain(inner)


def _refuse_unless_plain(equation: Any) -> None:
    known = equation.primitive in _PLAIN or equation.primitive.name == _PLATFORM
    if equation.effects or not known:
        raise BoundaryError(
            f"The operation {equation.primitive.name} is not one of the plain operations of JAX: "
            "rows could leave by it, or meet in it. Leave out callbacks, printing, references and "
            "custom batching rules."
        )


def _called(equation: Any) -> Jaxpr | None:
    if equation.primitive.name not in _CALLS:
        return None
    for body in _bodies(equation):
        if len(body.invars) == len(equation.invars):
            return body
    return None


def _bodies(equation: Any) -> Iterator[Jaxpr]:
    """The jaxprs among an equation's parameters."""
    kinds = (ClosedJaxpr, Jaxpr)
    for value in jax.tree.leaves(
        list(equation.params.values()), is_leaf=lambda x: isinstance(x, kinds)
    ):
        if isinstance(value, kinds):
            yield value.jaxpr if isinstance(value, ClosedJaxpr) else value


def _equations(jaxpr: Jaxpr) -> Iterator[Any]:
    """All equations, at any depth."""
    for equation in jaxpr.eqns:
        yield equation
        for body in _bodies(equation):
            yield from _equations(body)


def captured(first: ClosedJaxpr, second: ClosedJaxpr) -> bool:
    """Whether two traces of one function share constants: arrays it did not make itself."""
    known = {_identity(value) for value in constants(first)}
    return any(_identity(value) in known for value in constants(second))


def constants(traced: ClosedJaxpr) -> Iterator[Any]:
    """The arrays in a trace, at any depth."""
    yield from traced.consts
    for equation in _equations(traced.jaxpr):
        for value in jax.tree.leaves(
            list(equation.params.values()), is_leaf=lambda x: isinstance(x, ClosedJaxpr)
        ):
            if isinstance(value, ClosedJaxpr):
                yield from value.consts


def _identity(value: Any) -> int:
    if isinstance(value, jax.Array):
        return id(value)
    return int(np.asarray(value).__array_interface__["data"][0])


def refuse_captured(function: Callable[..., Any], *more: Any) -> None:
    """Raises if a function, or anything it reaches, holds an array from outside itself.

    The trace alone cannot tell an array made inside from one that NumPy computed, while
    tracing, from rows outside; closures, globals, attributes and defaults can. A lone number
    computed from rows beforehand cannot be told from a public one: that is up to its author.
    """
    for each in (function, *more):
        name = getattr(each, "__name__", type(each).__name__)
        _Search(name).visit(name, each)


class _Search:
    """Looks for arrays in whatever a function can reach."""

    def __init__(self, owner: str) -> None:
        self._owner = owner
        # Kept alive, so that no address stands for two things.
        self._seen: dict[int, Any] = {}

    def visit(self, name: str, value: Any) -> None:
        # A tracer is a value of the step itself, which the walk follows; a logger only takes.
        if id(value) in self._seen or isinstance(value, jax.core.Tracer | Logger):
            return
        self._seen[id(value)] = value
        if _is_array(value) or _numbers(value) > _LONG:
            raise BoundaryError(
                f"{self._owner} uses {name}, an array from outside itself, which could hold rows. "
                "Pass it as one of the model's public constants."
            )
        for inner, each in self._inside(name, value):
            self.visit(inner, each)

    def _inside(self, name: str, value: Any) -> Iterator[tuple[str, Any]]:
        if isinstance(value, Mapping):
            yield from ((f"{name}[{key!r}]", each) for key, each in value.items())
        elif isinstance(value, _COLLECTIONS):
            yield from ((name, each) for each in value)
        elif isinstance(value, partial):
            yield name, value.func
            yield from (("an argument of a partial", each) for each in value.args)
            for key, each in value.keywords.items():
                yield f"the argument {key} of a partial", each
        elif isinstance(value, MethodType | staticmethod | classmethod):
            yield name, value.__func__
            yield name, getattr(value, "__self__", None)
        elif isinstance(value, FunctionType):
            yield from _of_function(value)
        elif isinstance(value, property):
            yield from ((name, each) for each in (value.fget, value.fset))
        elif isinstance(value, type):
            yield from _of_class(name, value)
        elif not isinstance(value, ModuleType):
            yield from _of_object(name, value)


def _is_array(value: Any) -> bool:
    if isinstance(value, type | np.generic):
        return False
    holds = isinstance(value, np.ndarray | jax.Array | array | memoryview)
    text = isinstance(value, bytes | bytearray) and len(value) > _LONG
    return holds or text or any(hasattr(type(value), each) for each in _TABLES)


def _numbers(value: Any, depth: int = 4) -> int:
    """How many numbers there are in a collection of collections."""
    if isinstance(value, Number):
        return 1
    inside = value.values() if isinstance(value, Mapping) else value
    if depth == 0 or not isinstance(inside, _COLLECTIONS):
        return 0
    return sum(_numbers(each, depth - 1) for each in inside)


def _of_function(function: FunctionType) -> Iterator[tuple[str, Any]]:
    code = function.__code__
    arguments = code.co_varnames[: code.co_argcount]
    defaults = function.__defaults__ or ()
    for key, each in zip(arguments[len(arguments) - len(defaults) :], defaults, strict=True):
        yield f"the default of {key}", each
    for key, each in (function.__kwdefaults__ or {}).items():
        yield f"the default of {key}", each
    mentioned = set(_names(code))
    for key, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # nothing in it yet
            yield from _mentioned(f"{key} of its closure", cell.cell_contents, mentioned)
    for key, each in vars(function).items():
        yield f"{function.__name__}.{key}", each
    if not _is_library(function.__module__):
        for key in mentioned & function.__globals__.keys():
            yield from _mentioned(f"the global {key}", function.__globals__[key], mentioned)


def _mentioned(name: str, value: Any, names: set[str]) -> Iterator[tuple[str, Any]]:
    """A value; of a module, what the function may take from it."""
    if not isinstance(value, ModuleType):
        yield name, value
    elif not (_is_library(value.__name__) or _is_installed(value.__name__)):
        for key in names & vars(value).keys():
            yield from _mentioned(f"{name}.{key}", vars(value)[key], names)


def _of_class(name: str, kind: type) -> Iterator[tuple[str, Any]]:
    for each in kind.__mro__:
        if not (_is_library(each.__module__) or _is_installed(each.__module__)):
            for key, inner in vars(each).items():
                if key not in ("__dict__", "__weakref__", "__doc__"):
                    yield f"{name}.{key}", inner


def _of_object(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    declared = getattr(type(value), "declared_public", ())
    if hasattr(value, "__wrapped__"):  # jax.jit and other wrappers
        yield name, value.__wrapped__
    for key, each in getattr(value, "__dict__", {}).items():
        if key not in declared:
            yield f"{name}.{key}", each
    for kind in type(value).__mro__:
        slots = vars(kind).get("__slots__", ())
        for key in (slots,) if isinstance(slots, str) else slots:
            if key not in declared and hasattr(value, key):
                yield f"{name}.{key}", getattr(value, key)
    yield type(value).__name__, type(value)


def _is_library(module: str | None) -> bool:
    return (module or "").split(".")[0] in _LIBRARIES


def _is_installed(module: str) -> bool:
    """Whether a module is of a package that pip put here: tables in it are its own."""
    file = getattr(modules.get(module), "__file__", None) or ""
    return "site-packages" in file or "dist-packages" in file


def _names(code: CodeType) -> Iterator[str]:
    """Global names that a function's code, or code nested in it, mentions."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
