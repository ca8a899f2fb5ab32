"""Posteriors as ArviZ takes them, with predictions for public rows.

From version 1 on, ArviZ takes any `xarray.DataTree`. Versions before take their own `InferenceData`, and
flatten a tree, which is a mapping, into one table of all its groups, in which most cells are empty.
`PosteriorTree` is a tree that these versions take for an `InferenceData`.
"""

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from tacit.data.tables import TableLike
from tacit.errors import TacitError
from tacit.inference.mixing import by_chain
from tacit.models.places import PlacedModel
from tacit.results import files, predictive
from tacit.results.figures import arviz_library, is_first_generation

if TYPE_CHECKING:
    from tacit.results.posterior import Posterior

_ROW = "row"


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


def _as_dataset(found: Any) -> Any:
    return found.to_dataset() if isinstance(found, xr.DataTree) else found


def tree_for_arviz(posterior: "Posterior", public: TableLike | None, seed: int) -> xr.DataTree:
    """The tree described at `Posterior.to_datatree`."""
    groups = {
        path: node.to_dataset() for path, node in files.to_datatree(posterior).subtree_with_keys
    }
    constants = _constants(posterior)
    if public is not None:
        predicted, columns = _predicted(posterior, public, seed)
        groups["posterior_predictive"] = predicted
        constants |= columns
    if constants:
        groups["constant_data"] = xr.Dataset(constants)
    return _tree().from_dict(groups)


def _tree() -> type[xr.DataTree]:
    """The class of tree that the installed ArviZ takes."""
    try:
        version("arviz")
        library = arviz_library()
    except (PackageNotFoundError, TacitError):  # none is installed, or it lacks matplotlib
        return xr.DataTree
    if not is_first_generation(library):
        return xr.DataTree
    library.InferenceData.register(PosteriorTree)
    return PosteriorTree


def _constants(posterior: "Posterior") -> dict[str, Any]:
    """The public arrays of a NumPyro or PyMC model, by name."""
    model: object = posterior.model
    arrays = model.arrays if isinstance(model, PlacedModel) else {}
    return {name: _variable(name, (), value) for name, value in arrays.items()}


def _predicted(
    posterior: "Posterior", public: TableLike, seed: int
) -> tuple[xr.Dataset, dict[str, Any]]:
    """Draws of the outcomes of public rows, and the columns that they depend on."""
    draws = predictive.predictions(posterior, public, "draws", seed)
    model, schema = predictive.needed(posterior)
    columns, _ = schema.encode_new(public, model.predictors)
    by = by_chain(draws, posterior.chains)
    outcomes = {n: _variable(n, ("chain", "draw", _ROW), v) for n, v in by.items()}
    return xr.Dataset(outcomes), {n: _variable(n, (_ROW,), v) for n, v in columns.items()}


def _variable(name: str, leading: tuple[str, ...], values: Any) -> tuple[list[str], Any]:
    """An array with names for its axes."""
    array = np.asarray(values)
    rest = [f"{name}_dim_{axis}" for axis in range(array.ndim - len(leading))]
    return [*leading, *rest], array
