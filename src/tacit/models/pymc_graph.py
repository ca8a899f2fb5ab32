"""A PyMC model's densities as JAX functions of inputs that hold no data.

PyMC's graph is rebuilt with every data container replaced by an input of a known shape, for
a given number of rows. Nothing of the containers' values is left in it; what else the graph
holds from outside is refused, unless it is declared public.
"""

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
import pytensor.tensor as pt
from pymc.distributions.moments.means import mean
from pymc.exceptions import NotConstantValueError
from pymc.pytensorf import constant_fold
from pytensor import config
from pytensor.compile import SharedVariable
from pytensor.compile.mode import JAX
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors, graph_inputs
from pytensor.tensor.random.type import RandomType

from tacit.errors import BoundaryError, InvalidArgument
from tacit.models.pymc import Function

# More numbers than this in an array, not all the same, could be rows.
_LONG = 16


def pytensor_to_jax() -> Any:
    """PyTensor's translation to JAX, whose import must not change JAX's precision."""
    before = jax.config.read("jax_enable_x64")  # type: ignore[no-untyped-call]
    try:
        from pytensor.link.jax.dispatch import jax_funcify
    finally:
        jax.config.update("jax_enable_x64", before)  # type: ignore[no-untyped-call]
    return jax_funcify


@dataclass(frozen=True, eq=False)
class Leaves:
    """The model's containers: columns by the shape of one row, and public constants."""

    model: Any
    row_dim: str
    columns: Mapping[str, tuple[int, ...]]
    constants: Mapping[str, Any]

    def replaced(self, rows: int) -> dict[Any, Any]:
        """Containers and lengths of dims, and what stands for them with so many rows."""
        shapes = {name: (rows, *shape) for name, shape in self.columns.items()}
        shapes |= {name: np.shape(value) for name, value in self.constants.items()}
        new = {}
        for name, shape in shapes.items():
            container = self.model[name]
            new[container] = pt.tensor(name, dtype=container.dtype, shape=shape)
        for dim, length in self.model.dim_lengths.items():
            if length.owner is None:  # not taken from a container
                known = rows if dim == self.row_dim else int(length.get_value())
                new[length] = pt.constant(known, dtype=length.dtype)
        return new


@dataclass(frozen=True, eq=False)
class Traced:
    """Outputs of a graph after PyTensor's rewrites, by name, and the inputs by theirs."""

    graph: Any
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def shapes(self) -> dict[str, tuple[int | None, ...]]:
        """Shapes of the outputs, as far as they are known."""
        found = zip(self.outputs, self.graph.outputs, strict=True)
        return {name: each.type.shape for name, each in found}

    def uses(self, name: str) -> set[str]:
        """Names of the inputs that an output is computed from."""
        above = set(ancestors([self.graph.outputs[self.outputs.index(name)]]))
        return {n for n, each in zip(self.inputs, self.graph.inputs, strict=True) if each in above}

    def function(self, outputs: Sequence[str], inputs: Sequence[str]) -> Function:
        """The outputs named, as a JAX function of the inputs named and of no others."""
        chosen = [self.graph.outputs[self.outputs.index(name)] for name in outputs]
        given = [self.graph.inputs[self.inputs.index(name)] for name in inputs]
        function = pytensor_to_jax()(FunctionGraph(given, chosen, clone=True))

        def quiet(*values: Any) -> list[jax.Array]:
            with warnings.catch_warnings():  # the graph speaks of float64 where JAX has float32
                warnings.filterwarnings("ignore", message="Explicitly requested dtype")
                return [jnp.asarray(each) for each in function(*values)]

        return quiet


class Draws(NamedTuple):
    """A function of parameters, keys, columns and constants, and what it uses of them."""

    function: Function
    keys: int
    used: set[str]


class Graphs:
    """Graphs of one model, to be traced for any number of rows."""

    def __init__(self, leaves: Leaves) -> None:
        self.leaves, self._model = leaves, leaves.model

    @cached_property
    def _prior(self) -> dict[str, Any]:
        return self._terms([*self._model.free_RVs, *self._model.potentials])

    @cached_property
    def _likelihood(self) -> dict[str, Any]:
        return self._terms(self._model.observed_RVs)

    def _terms(self, variables: Sequence[Any]) -> dict[str, Any]:
        terms = self._model.logp(vars=list(variables), sum=False)
        named = {each.name: term for each, term in zip(variables, terms, strict=True)}
        refuse_captured_arrays(named)
        return named

    @cached_property
    def _constrained(self) -> dict[str, Any]:
        variables = [*self._model.free_RVs, *self._model.deterministics]
        values = self._model.replace_rvs_by_values(variables)
        return {each.name: value for each, value in zip(variables, values, strict=True)}

    def shapes(self, rows: int, *, constrained: bool) -> dict[str, tuple[int, ...]]:
        """Shapes of the latents, or of the real numbers that they are made from."""
        free = self._model.free_RVs
        shapes = [(rv if constrained else _forward(self._model, rv)).shape for rv in free]
        replaced = clone_replace(shapes, self.leaves.replaced(rows), rebuild_strict=False)
        try:
            folded = constant_fold(replaced)
        except NotConstantValueError as error:
            raise InvalidArgument(
                "The shape of a latent depends on values that differ from row to row; give it a "
                "number, or dims with declared coords."
            ) from error
        return {
            rv.name: tuple(int(n) for n in shape) for rv, shape in zip(free, folded, strict=True)
        }

    def densities(self, rows: int, shapes: Mapping[str, tuple[int, ...]]) -> Traced:
        """Of the unconstrained numbers: parameters, and terms of the prior and of the rows.

        Outputs are called ``value``, ``prior`` or ``row`` and the variable's name.
        """
        new = self.leaves.replaced(rows)
        numbers = {}
        for rv in self._model.free_RVs:
            value = self._model.rvs_to_values[rv]
            numbers[rv.name] = new[value] = value.type.clone(shape=shapes[rv.name])(rv.name)
        outputs = _labelled("value", self._constrained)
        outputs |= _labelled("prior", self._prior) | _labelled("row", self._likelihood)
        return _traced(outputs, new, self._inputs(new, numbers))

    def given_parameters(self, rows: int, shapes: Mapping[str, tuple[int, ...]]) -> Traced:
        """Of parameters: what their numbers are, and what an outcome is expected to be."""
        new = self.leaves.replaced(rows)
        params = {}
        for rv in self._model.free_RVs:
            params[rv.name] = new[rv] = rv.type.clone(shape=shapes[rv.name])(rv.name)
        numbers = {rv.name: _forward(self._model, rv) for rv in self._model.free_RVs}
        outputs = _labelled("number", numbers)
        for rv in self._model.observed_RVs:
            for kind, each in expected(rv).items():
                known = clone_replace([each], new, rebuild_strict=False)[0]
                if not _random(known):  # as some means of mixtures are
                    outputs[f"{kind} {rv.name}"] = each
        return _traced(outputs, new, self._inputs(new, params))

    def draws(
        self, rows: int, params: Mapping[str, tuple[int, ...]], columns: Sequence[str]
    ) -> Draws | None:
        """Draws of the outcomes given parameters; None where JAX has none."""
        new = self.leaves.replaced(rows)
        inputs = {}
        for rv in self._model.free_RVs:
            inputs[rv.name] = new[rv] = rv.type.clone(shape=params[rv.name])(rv.name)
        outputs = {f"draw {rv.name}": rv for rv in self._model.observed_RVs}
        known = (each for each in graph_inputs(outputs.values()))
        keys = [each for each in known if isinstance(each.type, RandomType)]
        for i, each in enumerate(keys):
            inputs[f"key {i}"] = new[each] = each.type()
        names = (*inputs, *columns, *self.leaves.constants)
        with suppress(NotImplementedError):
            traced = _traced(outputs, new, self._inputs(new, inputs))
            used = set().union(*(traced.uses(name) for name in traced.outputs))
            return Draws(traced.function(traced.outputs, names), len(keys), used)
        return None

    def _inputs(self, new: Mapping[Any, Any], first: Mapping[str, Any]) -> dict[str, Any]:
        names = (*self.leaves.columns, *self.leaves.constants)
        return {**first, **{name: new[self._model[name]] for name in names}}


def _labelled(kind: str, outputs: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{kind} {name}": each for name, each in outputs.items()}


def _forward(model: Any, rv: Any) -> Any:
    """The real numbers that a latent is made from."""
    transform = model.rvs_to_transforms[rv]
    return rv if transform is None else transform.forward(rv, *rv.owner.inputs)


def expected(rv: Any) -> dict[str, Any]:
    """The mean of an outcome, and its logit, where they are known."""
    kind = type(rv.owner.op).__name__
    if kind == "CategoricalRV":  # the mean of a category is the chance of each level
        return {"mean": rv.owner.op.dist_params(rv.owner)[0]}
    found = {}
    try:
        found["mean"] = mean(rv)
    except (NotImplementedError, ValueError, TypeError):
        return {}
    if kind == "BernoulliRV":
        chance = rv.owner.op.dist_params(rv.owner)[0]
        found["logit"] = pt.log(chance) - pt.log1p(-chance)
    return found


def _random(output: Any) -> bool:
    return any(isinstance(each.type, RandomType) for each in _everything(output))


def _traced(
    outputs: Mapping[str, Any], new: Mapping[Any, Any], inputs: Mapping[str, Any]
) -> Traced:
    pytensor_to_jax()
    replaced = clone_replace(list(outputs.values()), dict(new), rebuild_strict=False)
    refuse_captured_arrays(dict(zip(outputs, replaced, strict=True)), inputs.values())
    graph = FunctionGraph(list(inputs.values()), replaced, clone=True)
    # A parameter that is out of range makes its own row's term meaningless, and that alone.
    with config.change_flags(cxx=""):
        JAX.including("local_remove_check_parameter").optimizer.rewrite(graph)
    return Traced(graph, tuple(inputs), tuple(outputs))


def refuse_captured_arrays(outputs: Mapping[str, Any], inputs: Iterable[Any] | None = None) -> None:
    """Raises if a graph holds arrays, or code, that are neither inputs nor declared.

    Without ``inputs`` only constants are looked at.
    """
    known = set() if inputs is None else set(inputs)
    for name, output in outputs.items():
        for each in _everything(output):
            if isinstance(each, _Holding) and _long(each.data):
                raise BoundaryError(_CAPTURED.format(name=name.split(" ")[-1]))
            if each.owner is not None and _foreign(each.owner.op):
                raise BoundaryError(_CODE.format(name=name.split(" ")[-1]))
            if inputs is None or each in known or not isinstance(each, SharedVariable):
                continue
            if isinstance(each.type, RandomType):
                raise InvalidArgument(_RANDOM.format(name=name.split(" ")[-1]))
            raise BoundaryError(_SHARED.format(name=name.split(" ")[-1], shared=each.name))


@runtime_checkable
class _Holding(Protocol):
    data: Any


@runtime_checkable
class _Nesting(Protocol):
    fgraph: Any


@runtime_checkable
class _Sparse(Protocol):
    nnz: int


def _everything(output: Any) -> Iterator[Any]:
    """All variables that an output is computed from, in graphs within graphs too."""
    for each in ancestors([output]):
        yield each
        if each.owner is None or not isinstance(each.owner.op, _Nesting):
            continue
        inner = each.owner.op.fgraph
        for inside in () if inner is None else inner.outputs:
            yield from _everything(inside)


def _long(data: Any) -> bool:
    if isinstance(data, _Sparse):
        return True
    if not isinstance(data, np.ndarray) or data.size <= _LONG:
        return False
    return bool((data != data.flat[0]).any())


def _foreign(op: Any) -> bool:
    """Code from elsewhere, which may hold arrays that the graph does not show."""
    home = type(op).__module__.split(".")[0]
    return home not in {"pytensor", "pymc", "abc"} or type(op).__name__ in {
        "JAXOp",
        "FromFunctionOp",
    }


_CAPTURED = (
    "{name!r} uses an array from outside the model, which could hold rows; put it into a pm.Data "
    "over rows if it is a column, or into a pm.Data named in tacit.PyMC(model, constants=[...]) "
    "if it is public."
)
_SHARED = (
    "{name!r} uses the shared variable {shared!r}, which could hold rows; make it a pm.Data over rows "
    "if it is a column, or a pm.Data named in tacit.PyMC(model, constants=[...]) if it is public."
)
_CODE = (
    "{name!r} runs code of its own (a custom Op or a wrapped function), which could hold rows; "
    "write it with PyTensor's functions."
)
_RANDOM = (
    "{name!r} draws random numbers of its own; make every random variable one of the model's, by "
    "a name."
)
