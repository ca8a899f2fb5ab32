"""The densities of a PyMC model as JAX functions whose inputs hold no data.

PyMC's graph is rebuilt for a given number of rows, with every data container replaced by an input
of a known shape. Nothing of the containers' values is left in it. Anything else that the graph
holds from outside is refused, unless it is declared public.
"""

import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pymc
import pytensor.tensor as pt
from pymc.distributions.moments.means import mean
from pymc.exceptions import NotConstantValueError
from pymc.pytensorf import constant_fold
from pytensor import config
from pytensor.compile.mode import JAX
from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors, graph_inputs
from pytensor.tensor.random.basic import BernoulliRV, CategoricalRV
from pytensor.tensor.random.type import RandomType

from tacit.errors import InvalidArgument
from tacit.models.places import Shape
from tacit.models.pymc import Function
from tacit.models.pymc_captured import everything, refuse_captured_arrays


class Output(NamedTuple):
    """An output of a graph: what it is, and the name of its variable."""

    kind: str
    name: str


def pytensor_to_jax() -> Any:
    """PyTensor's translation to JAX, imported without its change of JAX's precision."""
    before = jax.config.read("jax_enable_x64")  # type: ignore[no-untyped-call]
    try:
        from pytensor.link.jax.dispatch import jax_funcify
    finally:
        jax.config.update("jax_enable_x64", before)  # type: ignore[no-untyped-call]
    return jax_funcify


@dataclass(frozen=True, eq=False)
class Leaves:
    """The model's containers.

    Attributes:
        model: The PyMC model.
        row_dim: The dim over rows.
        columns: Containers over rows, by the shape of one row.
        constants: Values of the containers that are declared public.
    """

    model: pymc.Model
    row_dim: str
    columns: Mapping[str, Shape]
    constants: Mapping[str, Any]

    def replaced(self, rows: int) -> dict[Variable, Variable]:
        """Containers and lengths of dims, with their replacements for so many rows."""
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
    """Inputs of a graph, and its outputs after PyTensor's rewrites."""

    inputs: Mapping[str, Variable]
    outputs: Mapping[Output, Variable]

    def of_kind(self, kind: str) -> list[Output]:
        """The outputs of a kind, in order."""
        return [each for each in self.outputs if each.kind == kind]

    def uses(self, kind: str, name: str) -> set[str]:
        """Names of the inputs that an output is computed from."""
        above = set(ancestors([self.outputs[Output(kind, name)]]))
        return {name for name, each in self.inputs.items() if each in above}

    def function(self, outputs: Sequence[Output], inputs: Sequence[str]) -> Function:
        """These outputs, as a JAX function of these inputs and of no others."""
        chosen = [self.outputs[output] for output in outputs]
        given = [self.inputs[name] for name in inputs]
        function = pytensor_to_jax()(FunctionGraph(given, chosen, clone=True))

        def quiet(*values: Any) -> list[jax.Array]:
            with warnings.catch_warnings():  # the graph asks for float64 where JAX has float32
                warnings.filterwarnings("ignore", message="Explicitly requested dtype")
                return [jnp.asarray(each) for each in function(*values)]

        return quiet


class Draws(NamedTuple):
    """A function of parameters, keys, columns and constants, and names of the inputs it uses."""

    function: Function
    keys: int
    used: set[str]


class Graphs:
    """Graphs of one model, to be traced for any number of rows."""

    def __init__(self, leaves: Leaves) -> None:
        self.leaves, self._model = leaves, leaves.model

    @cached_property
    def _prior(self) -> dict[str, Variable]:
        return self._terms([*self._model.free_RVs, *self._model.potentials])

    @cached_property
    def _likelihood(self) -> dict[str, Variable]:
        return self._terms(self._model.observed_RVs)

    def _terms(self, variables: Sequence[Variable]) -> dict[str, Variable]:
        terms = self._model.logp(vars=list(variables), sum=False)
        named = {each.name: term for each, term in zip(variables, terms, strict=True)}
        refuse_captured_arrays(named.items())
        return named

    @cached_property
    def _constrained(self) -> dict[str, Variable]:
        variables = [*self._model.free_RVs, *self._model.deterministics]
        values = self._model.replace_rvs_by_values(variables)
        return {each.name: value for each, value in zip(variables, values, strict=True)}

    def shapes(self, rows: int, *, constrained: bool) -> dict[str, Shape]:
        """Shapes of the latents, or of their unconstrained numbers."""
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

    def densities(self, rows: int, shapes: Mapping[str, Shape]) -> Traced:
        """Functions of unconstrained numbers.

        Outputs of kind "value" are parameters and deterministic variables, those of kind "prior"
        and "row" are terms of the log prior and of the log-likelihood.
        """
        new = self.leaves.replaced(rows)
        numbers = {}
        for rv in self._model.free_RVs:
            value = self._model.rvs_to_values[rv]
            numbers[rv.name] = new[value] = value.type.clone(shape=shapes[rv.name])(rv.name)
        outputs = _labelled("value", self._constrained)
        outputs |= _labelled("prior", self._prior) | _labelled("row", self._likelihood)
        return self._traced(outputs, new, numbers)

    def given_parameters(self, rows: int, shapes: Mapping[str, Shape]) -> Traced:
        """Functions of parameters: their unconstrained numbers, and means and logits of outcomes."""
        new, params = self._parameters(rows, shapes)
        numbers = {rv.name: _forward(self._model, rv) for rv in self._model.free_RVs}
        outputs = _labelled("number", numbers)
        for rv in self._model.observed_RVs:
            for kind, each in expected(rv).items():
                known = clone_replace([each], new, rebuild_strict=False)[0]
                if not _random(known):  # as some means of mixtures are
                    outputs[Output(kind, rv.name)] = each
        return self._traced(outputs, new, params)

    def draws(self, rows: int, shapes: Mapping[str, Shape], columns: Sequence[str]) -> Draws | None:
        """Draws of the outcomes given parameters; None where JAX has none."""
        new, inputs = self._parameters(rows, shapes)
        outputs = {Output("draw", rv.name): rv for rv in self._model.observed_RVs}
        roots = graph_inputs(outputs.values())
        keys = [each for each in roots if isinstance(each.type, RandomType)]
        for i, each in enumerate(keys):
            inputs[f"key {i}"] = new[each] = each.type()
        names = (*inputs, *columns, *self.leaves.constants)
        with suppress(NotImplementedError):
            traced = self._traced(outputs, new, inputs)
            used = set().union(*(traced.uses(*each) for each in traced.outputs))
            return Draws(traced.function(list(traced.outputs), names), len(keys), used)
        return None

    def _parameters(
        self, rows: int, shapes: Mapping[str, Shape]
    ) -> tuple[dict[Variable, Variable], dict[str, Variable]]:
        """Replacements of containers and latents, and the inputs that replace the latents."""
        new, params = self.leaves.replaced(rows), {}
        for rv in self._model.free_RVs:
            params[rv.name] = new[rv] = rv.type.clone(shape=shapes[rv.name])(rv.name)
        return new, params

    def _traced(
        self,
        outputs: Mapping[Output, Variable],
        new: Mapping[Variable, Variable],
        first: Mapping[str, Variable],
    ) -> Traced:
        """The outputs of inputs instead of containers, rewritten for JAX."""
        pytensor_to_jax()
        columns = {name: new[self._model[name]] for name in self.leaves.columns}
        constants = {name: new[self._model[name]] for name in self.leaves.constants}
        inputs = {**first, **columns, **constants}
        replaced = clone_replace(list(outputs.values()), dict(new), rebuild_strict=False)
        found = dict(zip(outputs, replaced, strict=True))
        named = [(output.name, each) for output, each in found.items()]
        refuse_captured_arrays(named, inputs.values())
        return Traced(inputs, _rewritten(found, inputs, set(columns.values())))


def _rewritten(
    outputs: Mapping[Output, Variable], inputs: Mapping[str, Variable], columns: set[Variable]
) -> dict[Output, Variable]:
    """Outputs after PyTensor's rewrites.

    Each output that uses a column is rewritten by itself. Rewriting may fuse operations of several
    outputs into one with several results, after which all of them seem to use the column.
    """
    without = [name for name, each in outputs.items() if not columns & set(ancestors([each]))]
    groups = [without, *([name] for name in outputs if name not in without)]
    found: dict[Output, Variable] = {}
    for group in filter(None, groups):
        chosen = [outputs[name] for name in group]
        graph = FunctionGraph(list(inputs.values()), chosen, clone=True, copy_inputs=False)
        # A parameter out of range makes the term of its own row meaningless, and no other.
        with config.change_flags(cxx=""):
            JAX.including("local_remove_check_parameter").optimizer.rewrite(graph)
        found |= zip(group, graph.outputs, strict=True)
    return {name: found[name] for name in outputs}


def _labelled(kind: str, outputs: Mapping[str, Variable]) -> dict[Output, Variable]:
    return {Output(kind, name): each for name, each in outputs.items()}


def _forward(model: pymc.Model, rv: Variable) -> Variable:
    """The unconstrained numbers of a latent."""
    transform = model.rvs_to_transforms[rv]
    return rv if transform is None else transform.forward(rv, *rv.owner.inputs)


def expected(rv: Variable) -> dict[str, Variable]:
    """The mean of an outcome and its logit, where they are known."""
    if isinstance(rv.owner.op, CategoricalRV):  # the mean of a category: chances of all levels
        return {"mean": rv.owner.op.dist_params(rv.owner)[0]}
    found = {}
    try:
        found["mean"] = mean(rv)
    except (NotImplementedError, ValueError, TypeError):
        return {}
    if isinstance(rv.owner.op, BernoulliRV):
        chance = rv.owner.op.dist_params(rv.owner)[0]
        found["logit"] = pt.log(chance) - pt.log1p(-chance)
    return found


def _random(output: Variable) -> bool:
    return any(isinstance(each.type, RandomType) for each in everything(output))
