"""Posteriors as xarray trees, which ArviZ reads.

From version 1 on, ArviZ takes any `xarray.DataTree`. Versions before take their own `InferenceData`, and
flatten a tree, which is a mapping, into one table of all its groups, in which most cells are empty.
`PosteriorTree` is a tree that these versions take for an `InferenceData`.
"""

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from tacit.data.tables import TableLike
from tacit.errors import TacitError
from tacit.inference.diagnostics import split_chains
from tacit.results import predictive
from tacit.results.files import Group, Variable, posterior_groups
from tacit.results.plots import is_legacy_arviz, load_arviz

if TYPE_CHECKING:
    from tacit.results.posterior import Posterior

_T = TypeVar("_T")
_ROW = "row"


def _dataset(group: Group) -> xr.Dataset:
    return xr.Dataset(group.variables, group.coordinates, group.attrs)


class _Groups(tuple[str, ...]):
    """Paths of groups, as a tree has them; called, their names, as an `InferenceData` has them."""

    __slots__ = ()

    def __call__(self) -> list[str]:
        return [path.strip("/") for path in self if path != "/"]


class PosteriorTree(xr.DataTree):  # type: ignore[no-untyped-call]  # of xarray
    """A tree that ArviZ before version 1 takes for one of its own: its groups are datasets."""

    __slots__ = ()

    @property
    def groups(self) -> _Groups:
        """The paths of all groups."""
        return _Groups(super().groups)

    def __getitem__(self, key: str) -> Any:
        """A group as a dataset, or a variable."""
        return _as_dataset(super().__getitem__(key))

    def __getattr__(self, name: str) -> Any:
        """A group as a dataset, or a variable."""
        return _as_dataset(super().__getattr__(name))


def _as_dataset(found: _T) -> _T | xr.Dataset:
    return found.to_dataset() if isinstance(found, xr.DataTree) else found


def to_arviz_tree(posterior: "Posterior", public: TableLike | None, seed: int) -> xr.DataTree:
    """The tree described at `Posterior.to_datatree`."""
    groups = {name: _dataset(each) for name, each in posterior_groups(posterior).items()}
    constants = _constant_variables(posterior)
    if public is not None:
        predicted, columns = _predictive_variables(posterior, public, seed)
        groups["posterior_predictive"] = predicted
        constants |= columns
    if constants:
        groups["constant_data"] = xr.Dataset(constants)
    return _arviz_tree_class().from_dict(groups)


def _arviz_tree_class() -> type[xr.DataTree]:
    """The class of tree that the installed ArviZ takes."""
    try:
        version("arviz")
        library = load_arviz()
    except (PackageNotFoundError, TacitError):  # none is installed, or it lacks matplotlib
        return xr.DataTree
    if not is_legacy_arviz(library):
        return xr.DataTree
    library.InferenceData.register(PosteriorTree)
    return PosteriorTree


def _constant_variables(posterior: "Posterior") -> dict[str, Variable]:
    """The public arrays of a NumPyro or PyMC model, by name."""
    arrays = {} if posterior.model is None else posterior.model.arrays
    return {name: _variable(name, (), value) for name, value in arrays.items()}


def _predictive_variables(
    posterior: "Posterior", public: TableLike, seed: int
) -> tuple[xr.Dataset, dict[str, Variable]]:
    """Draws of the outcomes of public rows, and the columns that they depend on."""
    draws = predictive.predict_outcomes(posterior, public, "draws", seed)
    model, schema = predictive.predictive_model(posterior)
    columns, _ = schema.encode_new(public, model.predictors)
    by = split_chains(draws, posterior.chains)
    outcomes = {n: _variable(n, ("chain", "draw", _ROW), v) for n, v in by.items()}
    return xr.Dataset(outcomes), {n: _variable(n, (_ROW,), v) for n, v in columns.items()}


def _variable(name: str, leading: tuple[str, ...], values: ArrayLike) -> Variable:
    """An array with names for its axes."""
    array = np.asarray(values)
    rest = [f"{name}_dim_{axis}" for axis in range(array.ndim - len(leading))]
    return [*leading, *rest], array
