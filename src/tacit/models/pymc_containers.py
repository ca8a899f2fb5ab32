"""The data containers of a PyMC model: which are columns, which are public, and what is refused.

Values of containers are never read, except of those that are declared public.
"""

from collections.abc import Mapping
from typing import Any

import pymc
from pymc.variational.minibatch_rv import MinibatchRandomVariable
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors
from pytensor.scalar import Cast
from pytensor.tensor.elemwise import Elemwise

from tacit.errors import BoundaryError, InvalidArgument
from tacit.models.made_up import and_, quoted
from tacit.models.places import Shape
from tacit.models.pymc import PyMC
from tacit.models.pymc_captured import refuse_captured_arrays
from tacit.models.pymc_graph import Leaves


def containers(described: PyMC, example: Mapping[str, Any], person: str | None) -> Leaves:
    """Which containers of a model are columns, and which are public.

    Args:
        described: The model with its options.
        example: Made-up columns, with an axis for rows.
        person: The column that identifies the person of a row.

    Raises:
        InvalidArgument: The model cannot be fitted row by row.
        BoundaryError: The model holds arrays that could be rows.
    """
    model = _pymc(described)
    _refuse_variables(model)
    return _leaves(described, model, example, person)


def _pymc(described: PyMC) -> pymc.Model:
    """The PyMC model, if the options make sense."""
    if not isinstance(described.model, pymc.Model):
        raise InvalidArgument(
            f"tacit.models.PyMC takes a pm.Model; got {type(described.model).__name__}; pass the model "
            "itself, not the function that makes it."
        )
    if isinstance(described.constants, str):
        raise InvalidArgument("constants must be a list of names of containers.")
    return described.model


def _refuse_variables(model: pymc.Model) -> None:
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
    refuse_captured_arrays((each.name, each) for each in named)


def container_of(model: pymc.Model, rv: Variable) -> Variable:
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
                f"{rv.name!r} observes something computed from {and_(columns)}; observe a container "
                "itself, and put computed values into a column."
            )
        raise BoundaryError(
            f"{rv.name!r} observes an array that is part of the model, which would be private rows; "
            'put it into pm.Data("name", values, dims="row") and observe that.'
        )
    return value


def _row_dim(described: PyMC, model: pymc.Model) -> str:
    """The dim over rows: as given, or the first dim of what is observed."""
    if described.row_dim is not None:
        if described.row_dim not in model.dim_lengths:
            raise InvalidArgument(
                f"The model has no dim {described.row_dim!r}, only {quoted(model.dim_lengths)}; pass "
                "the one over rows as row_dim=."
            )
        return described.row_dim
    firsts = set()
    for rv in model.observed_RVs:
        container = container_of(model, rv)
        dims = model.named_vars_to_dims.get(container.name)
        if not dims or dims[0] is None:
            raise InvalidArgument(
                f"Container {container.name!r} is observed and has no dims; name the dim over rows: "
                f'pm.Data({container.name!r}, values, dims="row").'
            )
        firsts.add(str(dims[0]))
    if len(firsts) > 1:
        raise InvalidArgument(
            f"It is not clear which dim is over rows: observed containers have {quoted(sorted(firsts))}; "
            "pass row_dim=."
        )
    return firsts.pop()


def _leaves(
    described: PyMC, model: pymc.Model, example: Mapping[str, Any], person: str | None
) -> Leaves:
    """Containers that are columns, and values of those that are public."""
    row_dim = _row_dim(described, model)
    for rv in model.observed_RVs:
        container_of(model, rv)
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
            constants[name] = container.get_value().astype(narrow(container.dtype))
        elif over_rows:
            columns[name] = _column(name, container, example, person)
        else:
            raise BoundaryError(
                f"Container {name!r} does not have {row_dim!r} as its first dim, and could hold rows all "
                "the same; give it that dim if it is a column, or name it in "
                "tacit.models.PyMC(model, constants=[...]) if it is public."
            )
    for name in described.constants:
        if name not in constants:
            raise InvalidArgument(f"constants has {name!r}, which is not a pm.Data of the model.")
    return Leaves(model, row_dim, columns, constants)


def _column(
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


def narrow(dtype: str) -> str:
    """The type that JAX uses for a type of PyTensor."""
    return {"float64": "float32", "int64": "int32"}.get(dtype, dtype)
