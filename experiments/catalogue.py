"""All reproductions, in the order of the sources. Add a module here, and `tacit reproduce` has it."""

from collections.abc import Sequence
from importlib import import_module

from reproduction import Experiment

MODULES: tuple[str, ...] = ()


def experiments() -> Sequence[Experiment]:
    """Every experiment; their modules load here."""
    return [import_module(name).EXPERIMENT for name in MODULES]
