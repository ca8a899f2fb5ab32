"""Bayesian inference on data that must stay private.

Importing this package does nothing but define names; parts load when first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tacit import accounting as accounting
    from tacit.accounting import Budget as Budget
    from tacit.accounting.ledger import Ledger as Ledger
    from tacit.data.columns import Binary as Binary
    from tacit.data.columns import Category as Category
    from tacit.data.columns import Count as Count
    from tacit.data.columns import Number as Number
    from tacit.data.schema import Schema as Schema
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
    "Binary": "tacit.data.columns",
    "Budget": "tacit.accounting",
    "BudgetError": "tacit.errors",
    "Category": "tacit.data.columns",
    "Count": "tacit.data.columns",
    "Ledger": "tacit.accounting.ledger",
    "Model": "tacit.models.model",
    "Number": "tacit.data.columns",
    "Parameter": "tacit.models.model",
    "Rows": "tacit.privacy.rows",
    "Schema": "tacit.data.schema",
    "TacitError": "tacit.errors",
    "Variational": "tacit.inference.variational",
    "fit": "tacit.interfaces.fit",
}

__all__ = [
    "Binary",
    "Budget",
    "BudgetError",
    "Category",
    "Count",
    "Ledger",
    "Model",
    "Number",
    "Parameter",
    "Rows",
    "Schema",
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
