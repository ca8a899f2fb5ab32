"""Versions of the software that a result was computed with."""

import platform
from functools import cache
from importlib.metadata import version

from tacit import __version__


def library_versions() -> dict[str, str]:
    """Versions of Tacit, the libraries that results depend on, and Python."""
    return dict(_library_versions())


@cache
def _library_versions() -> tuple[tuple[str, str], ...]:
    others = ((name, version(name)) for name in ("jax", "numpy", "dp-accounting"))
    return (("tacit", __version__), *others, ("python", platform.python_version()))
