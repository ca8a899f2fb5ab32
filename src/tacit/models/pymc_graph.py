"""From a PyMC model to a model of rows: its data containers, its graph as JAX functions, and checks of both.

PyMC's graph is rebuilt for a given number of rows, with every data container replaced by an input of a known shape.
Nothing of the containers' values is left in it, except of those that are declared public. Anything else that the
graph holds from outside is refused. Everything here looks at the graph, or runs on dummy rows.
"""

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pymc
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.distributions.moments.means import mean
from pymc.exceptions import NotConstantValueError
from pymc.pytensorf import constant_fold
from pymc.variational.minibatch_rv import MinibatchRandomVariable
from pytensor import config
from pytensor.compile import SharedVariable
from pytensor.compile.mode import JAX
from pytensor.compile.ops import FromFunctionOp
from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors, graph_inputs
from pytensor.link.jax.ops import JAXOp
from pytensor.scalar import Cast
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.random.basic import BernoulliRV, CategoricalRV
from pytensor.tensor.random.type import RandomType

from tacit.data.schema import Schema
from tacit.errors import BoundaryError, InvalidArgument
from tacit.models.checks import (
    NUM_CHECK_ROWS,
    TermsAndPrior,
    arbitrary_vector,
    check_index_bounds,
    check_prior_without_columns,
    check_rows_independent,
    check_support_without_columns,
    explain_model_errors,
    join_names,
    quote_names,
)
from tacit.models.jax_model import Shape, layout
from tacit.models.pymc import JaxFunction, PyMC, PyMCFunctions, PyMCModel

# More numbers than this in an array, not all the same, could be rows.
_MAX_CONSTANT_SIZE = 16


def check_captured_arrays(
    outputs: Iterable[tuple[str, Variable]], inputs: Iterable[Variable] | None = None
) -> None:
    """Raises if a graph holds arrays or code that are neither inputs nor declared public.

    Args:
        outputs: Outputs of the graph, each with the name that messages use.
        inputs: Its inputs. Without them shared variables are allowed.
    """
    known = set() if inputs is None else set(inputs)
    for name, output in outputs:
        for each in all_ancestors(output):
            if _could_hold_rows(getattr(each, "data", None)):
                raise BoundaryError(_CAPTURED_ARRAY.format(name=name))
            if each.owner is not None and _is_foreign_op(each.owner.op):
                raise BoundaryError(_CUSTOM_CODE.format(name=name))
            if inputs is None or each in known or not isinstance(each, SharedVariable):
                continue
            if isinstance(each.type, RandomType):
                raise InvalidArgument(_UNNAMED_RANDOM.format(name=name))
            raise BoundaryError(_SHARED_VARIABLE.format(name=name, shared=each.name))


def all_ancestors(output: Variable) -> Iterator[Variable]:
    """All variables that an output is computed from, including those of nested graphs."""
    for each in ancestors([output]):
        yield each
        inner = None if each.owner is None else getattr(each.owner.op, "fgraph", None)
        for inside in () if inner is None else inner.outputs:
            yield from all_ancestors(inside)


def _could_hold_rows(data: object) -> bool:
    """Whether a constant has enough different numbers to hold rows."""
    if hasattr(data, "nnz"):  # a sparse matrix, of any library
        return True
    if not isinstance(data, np.ndarray) or data.size <= _MAX_CONSTANT_SIZE:
        return False
    return bool((data != data.flat[0]).any())


def _is_foreign_op(op: Op) -> bool:
    """Whether an operation runs code from elsewhere, which may hold arrays the graph does not show."""
    home = type(op).__module__.split(".")[0]
    return home not in {"pytensor", "pymc", "abc"} or isinstance(op, JAXOp | FromFunctionOp)


_CAPTURED_ARRAY = (
    "{name!r} uses an array from outside the model, which could hold rows; put it into a pm.Data "
    "over rows if it is a column, or into a pm.Data named in tacit.models.PyMC(model, constants=[...]) "
    "if it is public."
)
_SHARED_VARIABLE = (
    "{name!r} uses the shared variable {shared!r}, which could hold rows; make it a pm.Data over rows "
    "if it is a column, or a pm.Data named in tacit.models.PyMC(model, constants=[...]) if it is public."
)
_CUSTOM_CODE = (
    "{name!r} runs custom code (an Op of your own, or a wrapped function), which could hold rows; "
    "write it with PyTensor's functions."
)
_UNNAMED_RANDOM = (
    "{name!r} uses random numbers that are not a named random variable of the model; give every "
    "random variable a name."
)


class Output(NamedTuple):
    """An output of a graph: what it is, and the name of its variable."""

    kind: str
    name: str


def pytensor_to_jax() -> Any:
    """PyTensor's translation to JAX, imported without its change of JAX's precision."""
    before = jax.enable_x64.get_global()  # not what this thread sees, as in_32_bits switched it
    try:
        from pytensor.link.jax.dispatch import jax_funcify
    finally:
        jax.config.update("jax_enable_x64", before)  # type: ignore[no-untyped-call]
    return jax_funcify


@dataclass(frozen=True, eq=False)
class Containers:
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

    def replacements(self, rows: int) -> dict[Variable, Variable]:
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
class TracedGraph:
    """Inputs of a graph, and its outputs after PyTensor's rewrites."""

    inputs: Mapping[str, Variable]
    outputs: Mapping[Output, Variable]

    def outputs_of_kind(self, kind: str) -> list[Output]:
        """The outputs of a kind, in order."""
        return [each for each in self.outputs if each.kind == kind]

    def uses(self, kind: str, name: str) -> set[str]:
        """Names of the inputs that an output is computed from."""
        above = set(ancestors([self.outputs[Output(kind, name)]]))
        return {name for name, each in self.inputs.items() if each in above}

    def function(self, outputs: Sequence[Output], inputs: Sequence[str]) -> JaxFunction:
        """These outputs, as a JAX function of these inputs and of no others."""
        chosen = [self.outputs[output] for output in outputs]
        given = [self.inputs[name] for name in inputs]
        function = pytensor_to_jax()(FunctionGraph(given, chosen, clone=True))

        def quiet(*values: Any) -> list[jax.Array]:
            with warnings.catch_warnings():  # the graph asks for float64 where JAX has float32
                warnings.filterwarnings("ignore", message="Explicitly requested dtype")
                return [jnp.asarray(each) for each in function(*values)]

        return quiet


class DrawFunction(NamedTuple):
    """A function of parameters, keys, columns and constants, and names of the inputs it uses."""

    function: JaxFunction
    keys: int
    used: set[str]


class GraphBuilder:
    """Graphs of one model, to be traced for any number of rows."""

    def __init__(self, containers: Containers) -> None:
        self.containers, self._model = containers, containers.model

    @cached_property
    def _prior(self) -> dict[str, Variable]:
        return self._terms([*self._model.free_RVs, *self._model.potentials])

    @cached_property
    def _likelihood(self) -> dict[str, Variable]:
        return self._terms(self._model.observed_RVs)

    def _terms(self, variables: Sequence[Variable]) -> dict[str, Variable]:
        terms = self._model.logp(vars=list(variables), sum=False)
        named = {each.name: term for each, term in zip(variables, terms, strict=True)}
        check_captured_arrays(named.items())
        return named

    @cached_property
    def _constrained(self) -> dict[str, Variable]:
        variables = [*self._model.free_RVs, *self._model.deterministics]
        values = self._model.replace_rvs_by_values(variables)
        return {each.name: value for each, value in zip(variables, values, strict=True)}

    def shapes(self, rows: int, *, constrained: bool) -> dict[str, Shape]:
        """Shapes of the latents, or of their unconstrained numbers."""
        free = self._model.free_RVs
        shapes = [(rv if constrained else _unconstrain(self._model, rv)).shape for rv in free]
        replaced = clone_replace(shapes, self.containers.replacements(rows), rebuild_strict=False)
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

    def densities(self, rows: int, shapes: Mapping[str, Shape]) -> TracedGraph:
        """Functions of unconstrained numbers.

        Outputs of kind "value" are parameters and deterministic variables, those of kind "prior"
        and "row" are terms of the log prior and of the log-likelihood.
        """
        new = self.containers.replacements(rows)
        numbers = {}
        for rv in self._model.free_RVs:
            value = self._model.rvs_to_values[rv]
            numbers[rv.name] = new[value] = value.type.clone(shape=shapes[rv.name])(rv.name)
        outputs = _label_outputs("value", self._constrained)
        outputs |= _label_outputs("prior", self._prior) | _label_outputs("row", self._likelihood)
        return self._trace(outputs, new, numbers)

    def given_parameters(self, rows: int, shapes: Mapping[str, Shape]) -> TracedGraph:
        """Functions of parameters: their unconstrained numbers, and means and logits of outcomes."""
        new, params = self._parameters(rows, shapes)
        numbers = {rv.name: _unconstrain(self._model, rv) for rv in self._model.free_RVs}
        outputs = _label_outputs("number", numbers)
        for rv in self._model.observed_RVs:
            for kind, each in mean_and_logit(rv).items():
                known = clone_replace([each], new, rebuild_strict=False)[0]
                if not _is_random(known):  # as some means of mixtures are
                    outputs[Output(kind, rv.name)] = each
        return self._trace(outputs, new, params)

    def draws(
        self, rows: int, shapes: Mapping[str, Shape], columns: Sequence[str]
    ) -> DrawFunction | None:
        """Draws of the outcomes given parameters; None where JAX has none."""
        new, inputs = self._parameters(rows, shapes)
        outputs = {Output("draw", rv.name): rv for rv in self._model.observed_RVs}
        roots = graph_inputs(outputs.values())
        keys = [each for each in roots if isinstance(each.type, RandomType)]
        for i, each in enumerate(keys):
            inputs[f"key {i}"] = new[each] = each.type()
        names = (*inputs, *columns, *self.containers.constants)
        with suppress(NotImplementedError):
            traced = self._trace(outputs, new, inputs)
            used = set().union(*(traced.uses(*each) for each in traced.outputs))
            return DrawFunction(traced.function(list(traced.outputs), names), len(keys), used)
        return None

    def _parameters(
        self, rows: int, shapes: Mapping[str, Shape]
    ) -> tuple[dict[Variable, Variable], dict[str, Variable]]:
        """Replacements of containers and latents, and the inputs that replace the latents."""
        new, params = self.containers.replacements(rows), {}
        for rv in self._model.free_RVs:
            params[rv.name] = new[rv] = rv.type.clone(shape=shapes[rv.name])(rv.name)
        return new, params

    def _trace(
        self,
        outputs: Mapping[Output, Variable],
        new: Mapping[Variable, Variable],
        first: Mapping[str, Variable],
    ) -> TracedGraph:
        """The outputs of inputs instead of containers, rewritten for JAX."""
        pytensor_to_jax()
        columns = {name: new[self._model[name]] for name in self.containers.columns}
        constants = {name: new[self._model[name]] for name in self.containers.constants}
        inputs = {**first, **columns, **constants}
        replaced = clone_replace(list(outputs.values()), dict(new), rebuild_strict=False)
        found = dict(zip(outputs, replaced, strict=True))
        named = [(output.name, each) for output, each in found.items()]
        check_captured_arrays(named, inputs.values())
        return TracedGraph(inputs, _rewrite_for_jax(found, inputs, set(columns.values())))


def _rewrite_for_jax(
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


def _label_outputs(kind: str, outputs: Mapping[str, Variable]) -> dict[Output, Variable]:
    return {Output(kind, name): each for name, each in outputs.items()}


def _unconstrain(model: pymc.Model, rv: Variable) -> Variable:
    """The unconstrained numbers of a latent."""
    transform = model.rvs_to_transforms[rv]
    return rv if transform is None else transform.forward(rv, *rv.owner.inputs)


def mean_and_logit(rv: Variable) -> dict[str, Variable]:
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


def _is_random(output: Variable) -> bool:
    return any(isinstance(each.type, RandomType) for each in all_ancestors(output))


def find_containers(described: PyMC, example: Mapping[str, Any], person: str | None) -> Containers:
    """Which containers of a model are columns, and which are public.

    Args:
        described: The model with its options.
        example: Simulated columns, with an axis for rows.
        person: The column that identifies the person of a row.

    Raises:
        InvalidArgument: The model cannot be fitted row by row.
        BoundaryError: The model holds arrays that could be rows.
    """
    model = _check_options(described)
    _check_variables(model)
    return _sort_containers(described, model, example, person)


def _check_options(described: PyMC) -> pymc.Model:
    """The PyMC model, if the options make sense."""
    if not isinstance(described.model, pymc.Model):
        raise InvalidArgument(
            f"tacit.models.PyMC takes a pm.Model; got {type(described.model).__name__}; pass the model "
            "itself, not the function that makes it."
        )
    if isinstance(described.constants, str):
        raise InvalidArgument("constants must be a list of names of containers.")
    return described.model


def _check_variables(model: pymc.Model) -> None:
    """Raises if a variable is of a kind that cannot be fitted row by row."""
    for rv in model.observed_RVs:
        if isinstance(rv.owner.op, MinibatchRandomVariable):
            raise InvalidArgument(
                f"{rv.name!r} has a total_size, which is a number of rows and private; leave it out: "
                "the fit samples rows itself."
            )
    for rv in model.free_RVs:
        if rv.dtype.startswith(("int", "uint", "bool")):
            raise InvalidArgument(
                f"Latent {rv.name!r} is discrete; sum over its values in the model, as pm.Mixture "
                "does."
            )
    if not model.free_RVs:
        raise InvalidArgument("The model has no parameter: it has no unobserved random variable.")
    if not model.observed_RVs:
        raise InvalidArgument(
            'Nothing is observed; pass the outcome, pm.Data("name", values, dims="row"), as '
            "observed= of a distribution."
        )
    named = [*model.basic_RVs, *model.potentials, *model.deterministics]
    check_captured_arrays((each.name, each) for each in named)


def observed_container(model: pymc.Model, rv: Variable) -> Variable:
    """The container that a variable observes."""
    value = model.rvs_to_values[rv]
    while (
        value.owner is not None
        and isinstance(value.owner.op, Elemwise)
        and isinstance(value.owner.op.scalar_op, Cast)
    ):
        value = value.owner.inputs[0]
    if value not in model.data_vars:
        if columns := {each.name for each in ancestors([value]) if each in model.data_vars}:
            raise InvalidArgument(
                f"{rv.name!r} observes something computed from {join_names(columns)}; observe a container "
                "itself, and put computed values into a column."
            )
        raise BoundaryError(
            f"{rv.name!r} observes an array that is part of the model, which would be private rows; "
            'put it into pm.Data("name", values, dims="row") and observe that.'
        )
    return value


def _find_row_dim(described: PyMC, model: pymc.Model) -> str:
    """The dim over rows: as given, or the first dim of what is observed."""
    if described.row_dim is not None:
        if described.row_dim not in model.dim_lengths:
            raise InvalidArgument(
                f"The model has no dim {described.row_dim!r}, only {quote_names(model.dim_lengths)}; pass "
                "the one over rows as row_dim=."
            )
        return described.row_dim
    firsts = set()
    for rv in model.observed_RVs:
        container = observed_container(model, rv)
        dims = model.named_vars_to_dims.get(container.name)
        if not dims or dims[0] is None:
            raise InvalidArgument(
                f"Container {container.name!r} is observed and has no dims; name the dim over rows: "
                f'pm.Data({container.name!r}, values, dims="row").'
            )
        firsts.add(str(dims[0]))
    if len(firsts) > 1:
        raise InvalidArgument(
            f"It is not clear which dim is over rows: observed containers have {quote_names(sorted(firsts))}; "
            "pass row_dim=."
        )
    return firsts.pop()


def _sort_containers(
    described: PyMC, model: pymc.Model, example: Mapping[str, Any], person: str | None
) -> Containers:
    """Containers that are columns, and values of those that are public."""
    row_dim = _find_row_dim(described, model)
    for rv in model.observed_RVs:
        observed_container(model, rv)
    columns, constants = {}, {}
    for container in model.data_vars:
        name = container.name
        dims: tuple[Any, ...] = tuple(model.named_vars_to_dims.get(name) or ())
        over_rows = bool(dims) and dims[0] == row_dim
        if name in described.constants:
            if row_dim in dims:
                raise InvalidArgument(
                    f"Container {name!r} is over rows, so it cannot be a constant; leave it out of "
                    "constants."
                )
            constants[name] = container.get_value().astype(single_precision(container.dtype))
        elif over_rows:
            columns[name] = _check_column(name, container, example, person)
        else:
            raise BoundaryError(
                f"Container {name!r} does not have {row_dim!r} as its first dim, and could hold rows all "
                "the same; give it that dim if it is a column, or name it in "
                "tacit.models.PyMC(model, constants=[...]) if it is public."
            )
    for name in described.constants:
        if name not in constants:
            raise InvalidArgument(f"constants has {name!r}, which is not a pm.Data of the model.")
    return Containers(model, row_dim, columns, constants)


def _check_column(
    name: str, container: Variable, example: Mapping[str, Any], person: str | None
) -> Shape:
    """The shape of a column in one row, if the container can hold it."""
    if name == person:
        raise InvalidArgument(
            f"Container {name!r} is the person column; PyMC models cannot have effects of single people; "
            "write the model in NumPyro, where they are integrated out."
        )
    if name not in example:
        raise InvalidArgument(
            f"The model has a container {name!r} over rows, which is not a column; the columns are "
            f"{', '.join(example)}; declare it in the schema."
        )
    found = example[name]
    if found.shape[1:] != container.get_value(borrow=True).shape[1:]:
        raise InvalidArgument(
            f"Container {name!r} must have shape (rows, *{found.shape[1:]}), as the schema declares for "
            "the column; reshape it, or change the schema."
        )
    if container.dtype.startswith(("int", "uint", "bool")) and found.dtype.kind == "f":
        raise InvalidArgument(
            f"Container {name!r} holds whole numbers, but the column may have fractions; declare a "
            "Count, Binary or Category, or fill the container with floats."
        )
    return tuple(found.shape[1:])


def single_precision(dtype: str) -> str:
    """The type that JAX uses for a type of PyTensor."""
    return {"float64": "float32", "int64": "int32"}.get(dtype, dtype)


def from_pymc(described: PyMC, schema: Schema) -> PyMCModel:
    """The model of rows that a PyMC model describes.

    Args:
        described: The PyMC model with its options.
        schema: The columns that exist.

    Raises:
        InvalidArgument: The model breaks a rule. The message names the variable and a remedy.
        BoundaryError: The model holds arrays that could be rows.
    """
    example = schema.dummy_rows(1)
    containers = find_containers(described, example, schema.person)
    graphs = GraphBuilder(containers)
    numbers = _latent_shapes(graphs)
    with _explain_untranslatable(), explain_model_errors(1):
        single = graphs.densities(1, numbers)
    _check_prior_without_rows(single, containers)
    with explain_model_errors(NUM_CHECK_ROWS):
        several = graphs.densities(NUM_CHECK_ROWS, numbers)
    adapted = _assemble_model(graphs, (single, several), numbers, example)
    _check_entry_for_each_row(adapted, single, example)
    _check_entry_for_each_row(adapted, several, schema.dummy_rows(NUM_CHECK_ROWS))
    check_rows_independent(_make_terms_and_prior(adapted, several), schema)
    check_index_bounds(
        lambda row, vector: adapted.row_log_likelihood(vector, row),
        arbitrary_vector(adapted.dimension),
        {name: adapted.dummy_row[name] for name in adapted.columns},
        schema,
    )
    return adapted


@contextmanager
def _explain_untranslatable() -> Iterator[None]:
    """Explains that PyTensor has no translation to JAX, where that is why a model fails."""
    try:
        yield
    except InvalidArgument as error:
        if not isinstance(error.__cause__, NotImplementedError):
            raise
        text = str(error.__cause__).strip().split(". ")[0].splitlines()[0][:200].rstrip(".")
        raise InvalidArgument(
            f"PyMC cannot turn the model into JAX ({text}); use another distribution or function "
            "there, or write the model in NumPyro."
        ) from error.__cause__


def _latent_shapes(graphs: GraphBuilder) -> dict[str, Shape]:
    """Shapes of the unconstrained numbers of the latents, if they do not depend on the rows."""
    with explain_model_errors(1):
        single = graphs.shapes(1, constrained=False)
    with explain_model_errors(NUM_CHECK_ROWS):
        several = graphs.shapes(NUM_CHECK_ROWS, constrained=False)
    for name, shape in single.items():
        if shape != several[name]:
            raise InvalidArgument(
                f"Latent {name!r} is over rows: one number for each row, which cannot be released "
                "privately; integrate it out in the model, as a negative binomial does for Poisson "
                "rates."
            )
    return single


def _check_prior_without_rows(traced: TracedGraph, containers: Containers) -> None:
    """Raises if a support, a potential or a prior uses a column."""
    model, columns = containers.model, set(containers.columns)
    latents = [rv.name for rv in model.free_RVs]
    check_support_without_columns({name: traced.uses("value", name) & columns for name in latents})
    for each in model.potentials:
        if used := traced.uses("prior", each.name) & columns:
            raise InvalidArgument(
                f"Potential {each.name!r} uses {join_names(used)}; what depends on rows must be "
                "observed= of a distribution (pm.CustomDist, if none fits)."
            )
    check_prior_without_columns({name: traced.uses("prior", name) & columns for name in latents})


def _assemble_model(
    graphs: GraphBuilder,
    both: tuple[TracedGraph, TracedGraph],
    numbers: Mapping[str, Shape],
    example: Mapping[str, Any],
) -> PyMCModel:
    traced, containers, model = both[0], graphs.containers, graphs.containers.model
    rows = [rv.name for rv in model.observed_RVs]
    seen = set().union(*(each.uses("row", name) for each in both for name in rows))
    columns = tuple(name for name in containers.columns if name in seen)
    derived = tuple(
        each.name
        for each in model.deterministics
        if not traced.uses("value", each.name) & set(containers.columns)
    )
    public = (*numbers, *containers.constants)
    with _explain_untranslatable(), explain_model_errors(1):
        parameters = graphs.shapes(1, constrained=True)
        given = graphs.given_parameters(1, parameters)
        drawn = graphs.draws(1, parameters, columns)
        functions = PyMCFunctions(
            values=traced.function([Output("value", n) for n in (*numbers, *derived)], public),
            prior=traced.function(traced.outputs_of_kind("prior"), public),
            numbers=given.function(given.outputs_of_kind("number"), public),
            row=traced.function(
                traced.outputs_of_kind("row"), (*numbers, *columns, *containers.constants)
            ),
            expected=_expected_functions(given, (*numbers, *columns, *containers.constants)),
            draw=None if drawn is None else drawn.function,
        )
    adapted = PyMCModel(
        functions=functions,
        columns=columns,
        dtypes={name: np.dtype(single_precision(model[name].dtype)) for name in columns},
        arrays=containers.constants,
        slices=layout({name: (shape, None) for name, shape in numbers.items()}),
        parameter_shapes=parameters,
        derived=derived,
        predictors=tuple(n for n in columns if n in _predictor_columns(given, drawn)),
        outcomes={
            rv.name: containers.columns[observed_container(model, rv).name]
            for rv in model.observed_RVs
        },
        drawable=_drawable_columns(model, drawn),
        labels=_labels(model, parameters),
        num_keys=0 if drawn is None else drawn.keys,
        dummy_row={name: example[name][0] for name in columns},
    )
    try:
        _check_draws(adapted)
    except NotImplementedError:  # JAX has no draws of this distribution
        return replace(adapted, functions=functions._replace(draw=None), drawable={})
    return adapted


def _drawable_columns(model: pymc.Model, drawn: DrawFunction | None) -> dict[str, str]:
    """The column of each outcome; empty if draws cannot replace them, because a draw uses one."""
    columns = {rv.name: observed_container(model, rv).name for rv in model.observed_RVs}
    taken = set(columns.values())
    if drawn is None or len(taken) < len(columns) or taken & drawn.used:
        return {}
    return columns


def _check_draws(model: PyMCModel) -> None:
    """Raises NotImplementedError if JAX cannot draw the outcomes."""

    def predicted(vector: jax.Array) -> Any:
        key = jax.random.key(0)
        return model.predict(key, model.constrain(vector), model.dummy_row)

    jax.eval_shape(predicted, arbitrary_vector(model.dimension))


def _labels(
    model: pymc.Model, shapes: Mapping[str, Shape]
) -> dict[str, tuple[tuple[str, ...], ...]]:
    """Names of the entries of parameters whose dims all have coords."""
    found = {}
    for name, shape in shapes.items():
        axes = [model.coords.get(dim) for dim in model.named_vars_to_dims.get(name) or ()]
        if shape and tuple(0 if each is None else len(each) for each in axes) == shape:
            found[name] = tuple(tuple(str(entry) for entry in each) for each in axes)
    return found


def _expected_functions(
    given: TracedGraph, inputs: tuple[str, ...]
) -> dict[tuple[str, str], JaxFunction]:
    """Functions of the means and logits that are known, by kind and outcome."""
    known = [*given.outputs_of_kind("mean"), *given.outputs_of_kind("logit")]
    return {(each.kind, each.name): given.function([each], inputs) for each in known}


def _predictor_columns(given: TracedGraph, drawn: DrawFunction | None) -> set[str]:
    """The columns that a prediction needs."""
    known = [*given.outputs_of_kind("mean"), *given.outputs_of_kind("logit")]
    used = set() if drawn is None else drawn.used
    return used.union(*(given.uses(*each) for each in known))


def _check_entry_for_each_row(
    model: PyMCModel, traced: TracedGraph, columns: Mapping[str, Any]
) -> None:
    """Every term has an entry for each row."""
    count = len(next(iter(columns.values())))
    with explain_model_errors(count):
        terms = jax.eval_shape(lambda: _make_row_terms(model, traced)(columns))
    for name, term in zip(model.outcomes, terms, strict=True):
        if term.shape[:1] != (count,):
            raise InvalidArgument(
                f"{name!r} does not have one entry for each row: it has shape {term.shape} for "
                f"{count} rows; give it the dim over rows, and no shape of its own."
            )


def _make_row_terms(
    model: PyMCModel, traced: TracedGraph
) -> Callable[[Mapping[str, Any]], list[jax.Array]]:
    """What each outcome adds to the log-likelihood, with an axis for rows."""
    names = (*model.slices, *model.columns, *model.arrays)
    function, vector = (
        traced.function(traced.outputs_of_kind("row"), names),
        arbitrary_vector(model.dimension),
    )
    return lambda columns: function(
        *model.unconstrained_numbers(vector), *model.table(columns), *model.public_inputs()
    )


def _make_terms_and_prior(model: PyMCModel, several: TracedGraph) -> TermsAndPrior:
    """The model on all dummy rows by the graph of so many rows, and on one row as in a fit."""
    vector, terms = arbitrary_vector(model.dimension), _make_row_terms(model, several)
    prior = several.function(several.outputs_of_kind("prior"), (*model.slices, *model.arrays))

    @jax.jit
    def on_all(columns: Mapping[str, jax.Array]) -> tuple[jax.Array, jax.Array]:
        by_row = [each.reshape(len(each), -1).sum(axis=1) for each in terms(columns)]
        shared = prior(*model.unconstrained_numbers(vector), *model.public_inputs())
        return jnp.stack(by_row).sum(axis=0), jnp.stack([each.sum() for each in shared]).sum()

    @jax.jit
    def on_one(columns: Mapping[str, jax.Array]) -> tuple[jax.Array, jax.Array]:
        row = {name: values[0] for name, values in columns.items()}
        return model.row_log_likelihood(vector, row)[None], model.log_prior(vector)

    def run(columns: Mapping[str, Any], which: NDArray[np.intp]) -> Any:
        return (on_one if len(which) == 1 else on_all)({n: columns[n] for n in model.columns})

    return run
