"""Posteriors as NetCDF files, which xarray and ArviZ read.

They are written and read without xarray, which takes long to import.
"""

import contextlib
import json
import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import h5netcdf
import h5py
import numpy as np
from numpy.typing import ArrayLike

from tacit._typing import FloatArray
from tacit.data.schema import Schema
from tacit.errors import InvalidArgument, TacitError
from tacit.inference.diagnostics import split_chains
from tacit.inference.result import Intervals
from tacit.models.interpretation import GLMSpec, Interpretation
from tacit.results.predictive import formula_recipe
from tacit.results.statement import PrivacyStatement
from tacit.results.summary import Labels, to_table_units

if TYPE_CHECKING:
    from tacit.results.posterior import Posterior

# An array with names for its axes.
Variable: TypeAlias = tuple[Sequence[str], ArrayLike | Sequence[str]]

# Draws of the first format are those of the model's own parameters.
_FORMAT = 2
_GAUSSIAN = "unconstrained_gaussian"
DRAFTS = ".{}.*.part"
"""How files are called that are not complete, given the name of the whole."""
_SITES, _SITE, _STATEMENT = "sites", "site", "privacy_statement"
_ANSWERS = ("answers_used", "answers_asked")


class Group(NamedTuple):
    """One group of a file or a tree: arrays with names for their axes, names of entries, attributes."""

    variables: Mapping[str, Variable]
    coordinates: Mapping[str, ArrayLike]
    attrs: dict[str, str | int]


def posterior_groups(posterior: "Posterior") -> dict[str, Group]:
    """All groups of a posterior by name, as described at `Posterior.to_datatree`; ``/`` has the attributes."""
    draws = split_chains(posterior.draws, posterior.chains)
    groups = {
        "/": Group({}, {}, _attributes(posterior)),
        "posterior": _group(draws, ("chain", "draw"), posterior.labels),
    }
    groups["posterior"].attrs.update(
        _fit_attributes(posterior)
    )  # a group may be taken out of the tree
    if posterior.trace:
        groups["fit"] = _group(posterior.trace, ("step",))
    if posterior.sample_stats:
        stats = split_chains(posterior.sample_stats, posterior.chains)
        groups["sample_stats"] = _group(stats, ("chain", "draw"))
    if posterior.chain:
        sizes, ratios = posterior.effective_sizes(), posterior.r_hats()
        stacked = {name: np.stack([sizes[name], ratios[name]]) for name in sizes}
        groups["diagnostics"] = _group(stacked, ("diagnostic",))
    if sites := posterior.sites:
        said = [each.to_json(curve=False) for each in sites.values()]
        counts = [posterior.answers[name] for name in sites if name in posterior.answers]
        held: dict[str, Variable] = {_STATEMENT: ((_SITE,), said)}
        if len(counts) == len(sites):
            held |= {
                name: ((_SITE,), list(c))
                for name, c in zip(_ANSWERS, zip(*counts, strict=True), strict=True)
            }
        groups[_SITES] = Group(held, {_SITE: list(sites)}, {})
    axes = ("coordinate", "other_coordinate")
    normal = {
        "mean": posterior.unconstrained_mean,
        "covariance": posterior.unconstrained_covariance,
    }
    known = {name: (axes[: each.ndim], each) for name, each in normal.items() if each is not None}
    if known:
        groups[_GAUSSIAN] = Group(known, {}, {})
    return groups


def save_posterior(posterior: "Posterior", path: str | os.PathLike[str]) -> None:
    """Writes a file beside the target, and then moves it there: nobody sees half a file."""
    target = Path(path)
    draft = target.parent / DRAFTS.format(target.name).replace("*", secrets.token_hex(4))
    try:
        with h5netcdf.File(draft, "w") as file:
            for name, group in posterior_groups(posterior).items():
                _write_group(file if name == "/" else file.create_group(name), group)
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
        with h5netcdf.File(source, "r", decode_vlen_strings=True) as file:
            groups = {name: _read_group(each) for name, each in file.groups.items()}
            return _fields(dict(file.attrs), groups)
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise TacitError(
            f"{source} is not a posterior written by Posterior.save: {error}."
        ) from error


def _write_group(file: h5netcdf.Group, group: Group) -> None:
    """Writes a group by the rules of NetCDF: a coordinate is an array with the name of its axis."""
    arrays = {name: ((name,), values) for name, values in group.coordinates.items()}
    for name, (axes, values) in {**group.variables, **arrays}.items():
        array = np.asarray(values)
        for axis, length in zip(axes, array.shape, strict=True):
            if axis not in file.dimensions:
                file.dimensions[axis] = length
        if array.dtype.kind in "UO":
            array = array.astype(h5py.string_dtype())
        file.create_variable(name, tuple(axes), array.dtype, data=array)
    file.attrs.update(group.attrs)


def _read_group(file: h5netcdf.Group) -> Group:
    arrays = {name: (each.dimensions, np.asarray(each[...])) for name, each in file.items()}
    names = {name for name, (axes, _) in arrays.items() if axes == (name,)}
    return Group(
        {name: each for name, each in arrays.items() if name not in names},
        {name: arrays[name][1] for name in names},
        dict(file.attrs),
    )


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


def _group(
    arrays: Mapping[str, FloatArray], leading: Sequence[str], labels: Labels | None = None
) -> Group:
    """A group of arrays whose first axes are ``leading``; other axes are named after the array."""
    variables, names = dict[str, Variable](), _names(arrays, len(leading))
    for label, name in names.items():
        value = arrays[name]
        variables[label] = ((*leading, *_axes(label, value.ndim - len(leading))), value)
    lengths = next(iter(arrays.values())).shape
    coordinates: dict[str, ArrayLike] = {
        axis: ["ess", "r_hat"] if axis == "diagnostic" else np.arange(lengths[i])
        for i, axis in enumerate(leading)
    }
    for label, name in names.items():
        for axis, entries in enumerate((labels or {}).get(name, ())):
            coordinates[f"{label}_dim_{axis}"] = list(entries)
    # Files do not keep the order of variables, nor every name.
    return Group(variables, coordinates, {"names": json.dumps(names)})


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


def _fields(said: Mapping[str, Any], groups: Mapping[str, Group]) -> dict[str, Any]:
    """The fields of the posterior with these attributes and groups."""
    if said.get("tacit_format") not in (1, _FORMAT):
        raise InvalidArgument("it does not have the format of this version")
    draws = groups["posterior"]
    normal = groups[_GAUSSIAN].variables if _GAUSSIAN in groups else {}
    found = {
        "draws": _stack_chains(_arrays(draws)),
        "trace": _arrays(groups["fit"]) if "fit" in groups else {},
        "sample_stats": _stack_chains(_arrays(groups["sample_stats"]))
        if "sample_stats" in groups
        else {},
        "unconstrained_mean": normal["mean"][1] if "mean" in normal else None,
        "unconstrained_covariance": normal["covariance"][1] if "covariance" in normal else None,
        "converged": bool(said["converged"]) if "converged" in said else None,
        "messages": tuple(map(str, json.loads(said.get("messages", "[]")))),
        "intervals": Intervals(said.get("intervals", Intervals.UNKNOWN)),
        "expected": json.loads(said.get("expected", "{}")),
        "chain": bool(said["chain"]),
        "chains": len(np.asarray(draws.coordinates["chain"])),
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
        names = [str(name) for name in np.asarray(sites.coordinates[_SITE])]
        statements = np.asarray(sites.variables[_STATEMENT][1])
        found["sites"] = {
            name: PrivacyStatement.from_json(str(each))
            for name, each in zip(names, statements, strict=True)
        }
        found["answers"] = {}
        if set(_ANSWERS) <= set(sites.variables):
            counts = zip(
                *(np.asarray(sites.variables[name][1]).tolist() for name in _ANSWERS), strict=True
            )
            found["answers"] = dict(zip(names, counts, strict=True))
    return found


def _labels(draws: Group) -> dict[str, tuple[tuple[str, ...], ...]]:
    """Names of the entries of arrays, where the axes have such coordinates."""
    names: dict[str, str] = json.loads(str(draws.attrs["names"]))
    axes = {name: draws.variables[label][0][2:] for label, name in names.items()}
    return {
        name: tuple(tuple(map(str, np.asarray(draws.coordinates[axis]))) for axis in own)
        for name, own in axes.items()
        if own and set(own) <= set(draws.coordinates)
    }


def _arrays(group: Group) -> dict[str, FloatArray]:
    """The arrays of a group, by the names of the parameters."""
    names: dict[str, str] = json.loads(str(group.attrs["names"]))
    return {name: np.asarray(group.variables[label][1]) for label, name in names.items()}
