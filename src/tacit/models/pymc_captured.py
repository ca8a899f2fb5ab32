"""The search for arrays and code from outside in the graph of a PyMC model."""

from collections.abc import Iterable, Iterator
from typing import Any, Protocol, runtime_checkable

import numpy as np
from pytensor.compile import SharedVariable
from pytensor.compile.ops import FromFunctionOp
from pytensor.graph.basic import Variable
from pytensor.graph.op import Op
from pytensor.graph.traversal import ancestors
from pytensor.link.jax.ops import JAXOp
from pytensor.tensor.random.type import RandomType

from tacit.errors import BoundaryError, InvalidArgument

# More numbers than this in an array, not all the same, could be rows.
_LONG = 16


def refuse_captured_arrays(
    outputs: Iterable[tuple[str, Variable]], inputs: Iterable[Variable] | None = None
) -> None:
    """Raises if a graph holds arrays or code that are neither inputs nor declared public.

    Args:
        outputs: Outputs of the graph, each with the name that messages use.
        inputs: Its inputs. Without them shared variables are allowed.
    """
    known = set() if inputs is None else set(inputs)
    for name, output in outputs:
        for each in everything(output):
            if isinstance(each, _Holding) and _long(each.data):
                raise BoundaryError(_CAPTURED.format(name=name))
            if each.owner is not None and _foreign(each.owner.op):
                raise BoundaryError(_CODE.format(name=name))
            if inputs is None or each in known or not isinstance(each, SharedVariable):
                continue
            if isinstance(each.type, RandomType):
                raise InvalidArgument(_RANDOM.format(name=name))
            raise BoundaryError(_SHARED.format(name=name, shared=each.name))


def everything(output: Variable) -> Iterator[Variable]:
    """All variables that an output is computed from, including those of nested graphs."""
    for each in ancestors([output]):
        yield each
        if each.owner is None or not isinstance(each.owner.op, _Nesting):
            continue
        inner = each.owner.op.fgraph
        for inside in () if inner is None else inner.outputs:
            yield from everything(inside)


# Protocols, because more than one class of PyTensor or SciPy has these.
@runtime_checkable
class _Holding(Protocol):
    data: Any


@runtime_checkable
class _Nesting(Protocol):
    fgraph: Any


@runtime_checkable
class _Sparse(Protocol):
    nnz: int


def _long(data: object) -> bool:
    """Whether a constant has enough different numbers to hold rows."""
    if isinstance(data, _Sparse):
        return True
    if not isinstance(data, np.ndarray) or data.size <= _LONG:
        return False
    return bool((data != data.flat[0]).any())


def _foreign(op: Op) -> bool:
    """Whether an operation runs code from elsewhere, which may hold arrays the graph does not show."""
    home = type(op).__module__.split(".")[0]
    return home not in {"pytensor", "pymc", "abc"} or isinstance(op, JAXOp | FromFunctionOp)


_CAPTURED = (
    "{name!r} uses an array from outside the model, which could hold rows; put it into a pm.Data "
    "over rows if it is a column, or into a pm.Data named in tacit.models.PyMC(model, constants=[...]) "
    "if it is public."
)
_SHARED = (
    "{name!r} uses the shared variable {shared!r}, which could hold rows; make it a pm.Data over rows "
    "if it is a column, or a pm.Data named in tacit.models.PyMC(model, constants=[...]) if it is public."
)
_CODE = (
    "{name!r} runs custom code (an Op of your own, or a wrapped function), which could hold rows; "
    "write it with PyTensor's functions."
)
_RANDOM = (
    "{name!r} uses random numbers that are not a named random variable of the model; give every "
    "random variable a name."
)
