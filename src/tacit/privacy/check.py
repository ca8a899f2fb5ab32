"""The walk over a step's trace that proves rows leave through the release only.

Every value of the trace carries a label: a part of the batch as it came (which unit operand,
the sampling mask, the noise, the clip, the grid), "rows" for anything computed from those,
or nothing. The rules:

- a release takes exactly the parts of the batch, in order, and arguments without a label;
- each part of the noise is used once, by a release, and nothing else uses it;
- what the step returns has no label;
- there is exactly one release, not inside a loop or a branch, and no callback.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from inspect import getclosurevars
from types import FunctionType
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, Var

from tacit.errors import BoundaryError

_CALLS = {
    "jit",
    "pjit",
    "closed_call",
    "core_call",
    "remat",
    "checkpoint",
    "custom_jvp_call",
    "custom_vjp_call",
    "custom_vjp_call_jaxpr",
}
_ROWS = "rows"


def check_trace(traced: ClosedJaxpr, labels: Sequence[str | None], release: str) -> None:
    """Raises unless the trace, whose inputs have these labels, keeps the rules."""
    found: list[str] = []
    out = _walk(traced.jaxpr, labels, release, found)
    if len(found) != 1:
        raise BoundaryError(
            f"A step must make exactly one release, which is what is charged; this one makes "
            f"{len(found)}."
        )
    if any(label is not None for label in out):
        raise BoundaryError(
            "The step returns something computed from rows other than by the release. Return "
            "only what follows from released values and public inputs."
        )


def captured(first: ClosedJaxpr, second: ClosedJaxpr) -> bool:
    """Whether two traces of one function share constants: arrays it did not make itself."""
    known = {_identity(value) for value in first.consts}
    return any(_identity(value) in known for value in second.consts)


def refuse_captured(function: Callable[..., Any]) -> None:  # noqa: C901
    """Raises if a function's source reaches an array outside itself, at any depth.

    The trace alone cannot tell an array made inside from one that NumPy computed, while
    tracing, from rows outside; the function's own closure and globals can.
    """
    seen: set[int] = set()

    def visit(name: str, value: Any) -> None:  # noqa: C901
        if id(value) in seen:
            return
        seen.add(id(value))
        if isinstance(value, jax.core.Tracer):
            return  # a value of the step itself, which the walk follows
        if isinstance(value, np.ndarray | jax.Array) or hasattr(value, "__dataframe__"):
            raise BoundaryError(
                f"{function.__name__} uses {name}, an array from outside itself, which could "
                "hold rows. Pass it as one of the model's public constants."
            )
        if isinstance(value, partial):
            visit(name, (value.func, value.args, value.keywords))
        elif isinstance(value, Mapping):
            for key, each in value.items():
                visit(f"{name}[{key!r}]", each)
        elif isinstance(value, list | tuple):
            for each in value:
                visit(name, each)
        elif isinstance(value, FunctionType):
            visit(name, value.__defaults__ or ())
            found = getclosurevars(value)
            for inner, each in {**found.nonlocals, **found.globals}.items():
                visit(inner, each)

    visit(getattr(function, "__name__", "the function"), function)


def _identity(value: Any) -> int:
    if isinstance(value, jax.Array):
        return id(value)
    return int(np.asarray(value).__array_interface__["data"][0])


def _walk(
    jaxpr: Jaxpr, labels: Sequence[str | None], release: str, found: list[str]
) -> list[str | None]:
    known: dict[Var, str | None] = dict(zip(jaxpr.invars, labels, strict=True))

    def label(atom: Any) -> str | None:
        return None if isinstance(atom, Literal) else known.get(atom)

    for equation in jaxpr.eqns:
        given = [label(atom) for atom in equation.invars]
        name = equation.primitive.name
        if name == release:
            _check_release(equation, given, found)
            out: Sequence[str | None] = [None]
        elif inner := _called(equation):
            out = _walk(inner, given, release, found)
        else:
            _refuse_hidden(equation, name, release)
            if any(each == "noise" for each in given):
                raise BoundaryError("The noise of a release is used outside it.")
            touched = any(each is not None for each in given)
            out = [_ROWS if touched else None] * len(equation.outvars)
        known.update(zip(equation.outvars, out, strict=True))
    return [label(atom) for atom in jaxpr.outvars]


def _check_release(equation: Any, given: Sequence[str | None], found: list[str]) -> None:
    public = equation.params["public"]
    if any(each is not None for each in given[:public]):
        raise BoundaryError(
            "An argument of the release is computed from rows; pass released or public values."
        )
    expected = [f"batch {i}" for i in range(len(given) - public - 4)]
    if list(given[public:]) != [*expected, "present", "noise", "clip", "grid"]:
        raise BoundaryError("The release must get its batch and its noise as the gate drew them.")
    if "noise" in found:
        raise BoundaryError("The noise of one release is used for a second.")
    found.append("noise")


def _called(equation: Any) -> Jaxpr | None:
    """The body of a plain call, whose inputs and outputs match those of the equation."""
    if equation.primitive.name not in _CALLS:
        return None
    for key in ("jaxpr", "call_jaxpr", "fun_jaxpr"):
        body = equation.params.get(key)
        body = body.jaxpr if isinstance(body, ClosedJaxpr) else body
        if isinstance(body, Jaxpr) and len(body.invars) == len(equation.invars):
            return body
    return None


def _refuse_hidden(equation: Any, name: str, release: str) -> None:
    if "callback" in name or name in {"infeed", "outfeed", "debug_print"}:
        raise BoundaryError(f"A step may not call back to Python ({name}): rows could leave by it.")
    for body in jax.tree.leaves(
        list(equation.params.values()), is_leaf=lambda x: isinstance(x, ClosedJaxpr | Jaxpr)
    ):
        if isinstance(body, ClosedJaxpr | Jaxpr) and _mentions(body, release):
            raise BoundaryError(
                f"A release inside {name} cannot be counted; call it once, in the step itself."
            )


def _mentions(body: Any, release: str) -> bool:
    jaxpr = body.jaxpr if isinstance(body, ClosedJaxpr) else body
    for equation in jaxpr.eqns:
        _refuse_hidden(equation, equation.primitive.name, release)
        if equation.primitive.name == release:
            return True
    return False
