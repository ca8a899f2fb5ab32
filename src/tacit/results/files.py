"""Posteriors as xarray trees, which ArviZ reads, and as NetCDF files.

From version 1 on, ArviZ takes any `xarray.DataTree`. Versions before take their own `InferenceData`, and
flatten a tree, which is a mapping, into one table of all its groups, in which most cells are empty.
`PosteriorTree` is a tree that these versions take for an `InferenceData`.
"""

import contextlib
import json
import os
import secrets
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from tacit._typing import FloatArray
from tacit.data.schema import Schema
from tacit.data.tables import TableLike
from tacit.errors import InvalidArgument, TacitError
from tacit.inference.diagnostics import split_chains
from tacit.inference.result import Intervals
from tacit.models.interpretation import GLMSpec, Interpretation
from tacit.results import predictive
from tacit.results.plots import is_legacy_arviz, load_arviz
from tacit.results.predictive import formula_recipe
from tacit.results.statement import PrivacyStatement
from tacit.results.summary import Labels, to_table_units

if TYPE_CHECKING:
    from tacit.results.posterior import Posterior


_T = TypeVar("_T")
# An array with names for its axes, as xarray takes it.
_Variable: TypeAlias = tuple[Sequence[str], ArrayLike | Sequence[str]]

# Draws of the first format are those of the model's own parameters.
_FORMAT = 2
_GAUSSIAN = "unconstrained_gaussian"
DRAFTS = ".{}.*.part"
"""How files are called that are not complete, given the name of the whole."""
_SITES, _SITE, _STATEMENT = "sites", "site", "privacy_statement"
_ANSWERS = ("answers_used", "answers_asked")


def to_datatree(posterior: "Posterior") -> xr.DataTree:
    """The tree described at `Posterior.to_datatree`."""
    draws = split_chains(posterior.draws, posterior.chains)
    groups = {
        "/": xr.Dataset(attrs=_attributes(posterior)),
        "posterior": _dataset(draws, ("chain", "draw"), posterior.labels),
    }
    groups["posterior"].attrs |= _fit_attributes(posterior)  # a group may be taken out of the tree
    if posterior.trace:
        groups["fit"] = _dataset(posterior.trace, ("step",))
    if posterior.sample_stats:
        stats = split_chains(posterior.sample_stats, posterior.chains)
        groups["sample_stats"] = _dataset(stats, ("chain", "draw"))
    if posterior.chain:
        sizes, ratios = posterior.effective_sizes(), posterior.r_hats()
        stacked = {name: np.stack([sizes[name], ratios[name]]) for name in sizes}
        groups["diagnostics"] = _dataset(stacked, ("diagnostic",))
    if sites := posterior.sites:
        said = [each.to_json(curve=False) for each in sites.values()]
        counts = [posterior.answers[name] for name in sites if name in posterior.answers]
        held: dict[str, _Variable] = {_STATEMENT: ((_SITE,), said)}
        if len(counts) == len(sites):
            held |= {
                name: ((_SITE,), list(c))
                for name, c in zip(_ANSWERS, zip(*counts, strict=True), strict=True)
            }
        groups[_SITES] = xr.Dataset(held, {_SITE: list(sites)})
    axes = ("coordinate", "other_coordinate")
    normal = {
        "mean": posterior.unconstrained_mean,
        "covariance": posterior.unconstrained_covariance,
    }
    known = {name: (axes[: each.ndim], each) for name, each in normal.items() if each is not None}
    if known:
        groups[_GAUSSIAN] = xr.Dataset(known)
    return xr.DataTree.from_dict(groups)


def save_posterior(posterior: "Posterior", path: str | os.PathLike[str]) -> None:
    """Writes a file beside the target, and then moves it there: nobody sees half a file."""
    target, tree = Path(path), to_datatree(posterior)
    draft = target.parent / DRAFTS.format(target.name).replace("*", secrets.token_hex(4))
    try:
        tree.to_netcdf(draft, engine="h5netcdf")
        draft.replace(target)
    except OSError as error:
        raise TacitError(
            f"The posterior could not be written to {target}: {error.strerror or error}."
        ) from error
    finally:
        with contextlib.suppress(OSError):
            draft.unlink()


def load_fields(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The fields of the posterior in a file."""
    source = Path(path)
    if not source.is_file():
        raise TacitError(f"There is no file at {source}.")
    try:
        with xr.open_datatree(source, engine="h5netcdf", decode_cf=False) as tree:
            return _fields(tree.load())
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise TacitError(
            f"{source} is not a posterior written by Posterior.save: {error}."
        ) from error


def _attributes(posterior: "Posterior") -> dict[str, str | int]:
    """Attributes of the tree, warnings first. NetCDF has no Booleans, so they are 0 or 1."""
    warnings, interpretation = posterior.warnings, posterior.interpretation
    recipe = posterior.recipe or formula_recipe(posterior.model)
    return {
        **({"warning": " ".join(warnings)} if warnings else {}),
        "inference_library": "tacit",
        "inference_library_version": posterior.privacy.versions["tacit"],
        "tacit_format": _FORMAT,
        "privacy_statement": posterior.privacy.to_json(),
        **_fit_attributes(posterior),
        "chain": int(posterior.chain),
        "fitted_by": json.dumps(posterior.fitted_by),
        **(
            {}
            if interpretation is None
            else {"interpretation": json.dumps(interpretation.to_dict())}
        ),
        **({} if posterior.schema is None else {"schema": posterior.schema.to_text()}),
        **({} if recipe is None else {"recipe": recipe.to_json()}),
    }


def _fit_attributes(posterior: "Posterior") -> dict[str, str | int]:
    """How the fit went. Whether it converged is left out if that is not known."""
    known = {} if posterior.converged is None else {"converged": int(posterior.converged)}
    return {
        **known,
        "messages": json.dumps(posterior.messages),
        "intervals": str(posterior.intervals),
        "expected": json.dumps(dict(posterior.expected)),
    }


def _dataset(
    arrays: Mapping[str, FloatArray], leading: Sequence[str], labels: Labels | None = None
) -> xr.Dataset:
    """A dataset of arrays whose first axes are ``leading``; other axes are named after the array."""
    variables, names = {}, _names(arrays, len(leading))
    for label, name in names.items():
        value = arrays[name]
        variables[label] = ((*leading, *_axes(label, value.ndim - len(leading))), value)
    lengths = next(iter(arrays.values())).shape
    coordinates: dict[str, Sequence[int] | Sequence[str]] = {
        axis: ["ess", "r_hat"] if axis == "diagnostic" else range(lengths[i])
        for i, axis in enumerate(leading)
    }
    for label, name in names.items():
        for axis, entries in enumerate((labels or {}).get(name, ())):
            coordinates[f"{label}_dim_{axis}"] = list(entries)
    # Files do not keep the order of variables, nor every name.
    return xr.Dataset(variables, coordinates, attrs={"names": json.dumps(names)})


def _names(arrays: Mapping[str, FloatArray], leading: int) -> dict[str, str]:
    """Names that a tree can hold, without slashes and repeats, and the parameter of each."""
    taken, names = {"chain", "draw", "step"}, dict[str, str]()
    for name, value in arrays.items():
        label = name.replace("/", "::").strip().strip(".") or "_"
        while taken & {label, *_axes(label, value.ndim - leading)}:
            label += "_"
        taken |= {label, *_axes(label, value.ndim - leading)}
        names[label] = name
    return names


def _stack_chains(arrays: Mapping[str, FloatArray]) -> dict[str, FloatArray]:
    """Arrays [chains, draws, ...] as draws one after the other."""
    return {
        name: value.reshape(value.shape[0] * value.shape[1], *value.shape[2:])
        for name, value in arrays.items()
    }


def _axes(label: str, count: int) -> list[str]:
    return [f"{label}_dim_{axis}" for axis in range(count)]


def _fields(tree: xr.DataTree) -> dict[str, Any]:
    """The fields of the posterior in a tree."""
    said, groups = tree.attrs, {name: each.to_dataset() for name, each in tree.children.items()}
    if said.get("tacit_format") not in (1, _FORMAT):
        raise InvalidArgument("it does not have the format of this version")
    draws, normal = groups["posterior"], groups.get(_GAUSSIAN, xr.Dataset())
    found = {
        "draws": _stack_chains(_arrays(draws)),
        "trace": _arrays(groups["fit"]) if "fit" in groups else {},
        "sample_stats": _stack_chains(_arrays(groups["sample_stats"]))
        if "sample_stats" in groups
        else {},
        "unconstrained_mean": normal["mean"].values if "mean" in normal else None,
        "unconstrained_covariance": normal["covariance"].values if "covariance" in normal else None,
        "converged": bool(said["converged"]) if "converged" in said else None,
        "messages": tuple(map(str, json.loads(said.get("messages", "[]")))),
        "intervals": Intervals(said.get("intervals", Intervals.UNKNOWN)),
        "expected": json.loads(said.get("expected", "{}")),
        "chain": bool(said["chain"]),
        "chains": int(draws.sizes["chain"]),
        "labels": _labels(draws),
        "fitted_by": tuple(map(str, json.loads(said.get("fitted_by", "[]")))),
        "interpretation": Interpretation.from_dict(json.loads(said["interpretation"]))
        if "interpretation" in said
        else None,
        "schema": Schema.from_text(said["schema"]) if "schema" in said else None,
        "recipe": GLMSpec.from_json(said["recipe"]) if "recipe" in said else None,
        "privacy": PrivacyStatement.from_json(said["privacy_statement"]),
    }
    if said["tacit_format"] == 1:
        found["draws"] = to_table_units(found["draws"], found["interpretation"])
    if _SITES in groups:
        sites = groups[_SITES]
        names = [str(name) for name in sites[_SITE].values]
        statements = [PrivacyStatement.from_json(str(each)) for each in sites[_STATEMENT].values]
        found["sites"] = dict(zip(names, statements, strict=True))
        found["answers"] = {}
        if set(_ANSWERS) <= set(sites.data_vars):
            counts = zip(*(sites[name].values.tolist() for name in _ANSWERS), strict=True)
            found["answers"] = dict(zip(names, counts, strict=True))
    return found


def _labels(draws: xr.Dataset) -> dict[str, tuple[tuple[str, ...], ...]]:
    """Names of the entries of arrays, where the axes have such coordinates."""
    names: dict[str, str] = json.loads(draws.attrs["names"])
    return {
        name: tuple(tuple(map(str, draws[axis].values)) for axis in draws[label].dims[2:])
        for label, name in names.items()
        if draws[label].ndim > 2 and set(draws[label].dims[2:]) <= set(draws.coords)
    }


def _arrays(group: xr.Dataset) -> dict[str, FloatArray]:
    """The arrays of a group, by the names of the parameters."""
    names: dict[str, str] = json.loads(group.attrs["names"])
    return {name: group[label].values for label, name in names.items()}


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


def _as_dataset(found: _T) -> _T | xr.Dataset:
    return found.to_dataset() if isinstance(found, xr.DataTree) else found


def to_arviz_tree(posterior: "Posterior", public: TableLike | None, seed: int) -> xr.DataTree:
    """The tree described at `Posterior.to_datatree`."""
    groups = {path: node.to_dataset() for path, node in to_datatree(posterior).subtree_with_keys}
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


def _constant_variables(posterior: "Posterior") -> dict[str, _Variable]:
    """The public arrays of a NumPyro or PyMC model, by name."""
    arrays = {} if posterior.model is None else posterior.model.arrays
    return {name: _variable(name, (), value) for name, value in arrays.items()}


def _predictive_variables(
    posterior: "Posterior", public: TableLike, seed: int
) -> tuple[xr.Dataset, dict[str, _Variable]]:
    """Draws of the outcomes of public rows, and the columns that they depend on."""
    draws = predictive.predict_outcomes(posterior, public, "draws", seed)
    model, schema = predictive.predictive_model(posterior)
    columns, _ = schema.encode_new(public, model.predictors)
    by = split_chains(draws, posterior.chains)
    outcomes = {n: _variable(n, ("chain", "draw", _ROW), v) for n, v in by.items()}
    return xr.Dataset(outcomes), {n: _variable(n, (_ROW,), v) for n, v in columns.items()}


def _variable(name: str, leading: tuple[str, ...], values: ArrayLike) -> _Variable:
    """An array with names for its axes."""
    array = np.asarray(values)
    rest = [f"{name}_dim_{axis}" for axis in range(array.ndim - len(leading))]
    return [*leading, *rest], array
