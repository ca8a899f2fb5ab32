"""Bayesian inference on data that must stay private.

Importing this package does nothing but define names; parts load when first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tacit import accounting as accounting
    from tacit.accounting import Budget as Budget
    from tacit.accounting.ledger import Ledger as Ledger
    from tacit.errors import BudgetError as BudgetError
    from tacit.errors import TacitError as TacitError
    from tacit.inference.variational import Variational as Variational
    from tacit.interfaces.fit import fit as fit
    from tacit.models.model import Model as Model
    from tacit.models.model import Parameter as Parameter
    from tacit.privacy.rows import Rows as Rows

__version__ = "0.1.0"

_HOMES = {
    "accounting": "tacit.accounting",
    "Budget": "tacit.accounting",
    "BudgetError": "tacit.errors",
    "Ledger": "tacit.accounting.ledger",
    "Model": "tacit.models.model",
    "Parameter": "tacit.models.model",
    "Rows": "tacit.privacy.rows",
    "TacitError": "tacit.errors",
    "Variational": "tacit.inference.variational",
    "fit": "tacit.interfaces.fit",
}

__all__ = [
    "Budget",
    "BudgetError",
    "Ledger",
    "Model",
    "Parameter",
    "Rows",
    "TacitError",
    "Variational",
    "__version__",
    "accounting",
    "fit",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'tacit' has no attribute {name!r}")
    home = import_module(_HOMES[name])
    return home if home.__name__ == f"tacit.{name}" else getattr(home, name)


def __dir__() -> list[str]:
    return sorted(__all__)
