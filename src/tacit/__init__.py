"""Bayesian inference on data that must stay private.

Importing this package does nothing but define names; parts load when first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tacit import accounting as accounting
    from tacit.accounting import Budget as Budget
    from tacit.errors import BudgetError as BudgetError
    from tacit.errors import TacitError as TacitError

__version__ = "0.1.0"

_HOMES = {
    "accounting": "tacit.accounting",
    "Budget": "tacit.accounting",
    "BudgetError": "tacit.errors",
    "TacitError": "tacit.errors",
}

__all__ = ["Budget", "BudgetError", "TacitError", "__version__", "accounting"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'tacit' has no attribute {name!r}")
    home = import_module(_HOMES[name])
    return home if home.__name__ == f"tacit.{name}" else getattr(home, name)


def __dir__() -> list[str]:
    return sorted(__all__)
