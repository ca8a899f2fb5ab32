"""Bayesian inference with differential privacy.

Submodules are imported when they are first used.
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
    from tacit.federated.partitioned import Partitioned as Partitioned
    from tacit.inference.barker import Barker as Barker
    from tacit.inference.guides import FullRank as FullRank
    from tacit.inference.guides import LowRank as LowRank
    from tacit.inference.guides import MeanField as MeanField
    from tacit.inference.known_forms import ConjugateSampler as ConjugateSampler
    from tacit.inference.known_forms import LogisticRejection as LogisticRejection
    from tacit.inference.langevin import Langevin as Langevin
    from tacit.inference.one_sample import OneSample as OneSample
    from tacit.inference.proposals import BoundedWalk as BoundedWalk
    from tacit.inference.proposals import GaussianWalk as GaussianWalk
    from tacit.inference.published_langevin import PublishedLangevin as PublishedLangevin
    from tacit.inference.samplers import ChainSampler as ChainSampler
    from tacit.inference.samplers import GridSampler as GridSampler
    from tacit.inference.scoring import Scoring as Scoring
    from tacit.inference.statistics import Statistics as Statistics
    from tacit.inference.tempering import coarsened_size as coarsened_size
    from tacit.inference.variational import Variational as Variational
    from tacit.interfaces.audit import Audit as Audit
    from tacit.interfaces.audit import audit as audit
    from tacit.interfaces.federated import fit_federated as fit_federated
    from tacit.interfaces.fit import fit as fit
    from tacit.interfaces.fit import fit_without_privacy as fit_without_privacy
    from tacit.interfaces.glm import glm as glm
    from tacit.interfaces.plan import Plan as Plan
    from tacit.interfaces.plan import plan as plan
    from tacit.interfaces.scales import private_scales as private_scales
    from tacit.interfaces.sklearn import PrivateBayesClassifier as PrivateBayesClassifier
    from tacit.interfaces.sklearn import PrivateBayesRegressor as PrivateBayesRegressor
    from tacit.interfaces.study import federated_study as federated_study
    from tacit.models import conjugate as conjugate
    from tacit.models.model import Model as Model
    from tacit.models.model import Parameter as Parameter
    from tacit.models.model import Whole as Whole
    from tacit.models.numpyro import NumPyro as NumPyro
    from tacit.models.pymc import PyMC as PyMC
    from tacit.privacy.one_draw.claims import BoundedLikelihood as BoundedLikelihood
    from tacit.privacy.one_draw.claims import LipschitzLikelihood as LipschitzLikelihood
    from tacit.privacy.one_draw.claims import LogConcave as LogConcave
    from tacit.privacy.rows import Rows as Rows
    from tacit.results.posterior import Posterior as Posterior
    from tacit.results.statement import PrivacyStatement as PrivacyStatement

__version__ = "0.1.0"

_HOMES = {
    "accounting": "tacit.accounting",
    "audit": "tacit.interfaces.audit",
    "Audit": "tacit.interfaces.audit",
    "Barker": "tacit.inference.barker",
    "Binary": "tacit.data.columns",
    "BoundedLikelihood": "tacit.privacy.one_draw.claims",
    "BoundedWalk": "tacit.inference.proposals",
    "Budget": "tacit.accounting",
    "BudgetError": "tacit.errors",
    "Category": "tacit.data.columns",
    "ChainSampler": "tacit.inference.samplers",
    "coarsened_size": "tacit.inference.tempering",
    "ConjugateSampler": "tacit.inference.known_forms",
    "conjugate": "tacit.models.conjugate",
    "Count": "tacit.data.columns",
    "federated_study": "tacit.interfaces.study",
    "fit": "tacit.interfaces.fit",
    "fit_federated": "tacit.interfaces.federated",
    "fit_without_privacy": "tacit.interfaces.fit",
    "FullRank": "tacit.inference.guides",
    "GaussianWalk": "tacit.inference.proposals",
    "glm": "tacit.interfaces.glm",
    "GridSampler": "tacit.inference.samplers",
    "Langevin": "tacit.inference.langevin",
    "Ledger": "tacit.accounting.ledger",
    "LipschitzLikelihood": "tacit.privacy.one_draw.claims",
    "LogConcave": "tacit.privacy.one_draw.claims",
    "LogisticRejection": "tacit.inference.known_forms",
    "LowRank": "tacit.inference.guides",
    "MeanField": "tacit.inference.guides",
    "Model": "tacit.models.model",
    "Number": "tacit.data.columns",
    "NumPyro": "tacit.models.numpyro",
    "OneSample": "tacit.inference.one_sample",
    "Parameter": "tacit.models.model",
    "Partitioned": "tacit.federated.partitioned",
    "plan": "tacit.interfaces.plan",
    "Plan": "tacit.interfaces.plan",
    "Posterior": "tacit.results.posterior",
    "PrivacyStatement": "tacit.results.statement",
    "private_scales": "tacit.interfaces.scales",
    "PrivateBayesClassifier": "tacit.interfaces.sklearn",
    "PrivateBayesRegressor": "tacit.interfaces.sklearn",
    "PublishedLangevin": "tacit.inference.published_langevin",
    "PyMC": "tacit.models.pymc",
    "Rows": "tacit.privacy.rows",
    "Schema": "tacit.data.schema",
    "Scoring": "tacit.inference.scoring",
    "Statistics": "tacit.inference.statistics",
    "TacitError": "tacit.errors",
    "Variational": "tacit.inference.variational",
    "Whole": "tacit.models.model",
}

__all__ = [
    "Audit",
    "Barker",
    "Binary",
    "BoundedLikelihood",
    "BoundedWalk",
    "Budget",
    "BudgetError",
    "Category",
    "ChainSampler",
    "ConjugateSampler",
    "Count",
    "FullRank",
    "GaussianWalk",
    "GridSampler",
    "Langevin",
    "Ledger",
    "LipschitzLikelihood",
    "LogConcave",
    "LogisticRejection",
    "LowRank",
    "MeanField",
    "Model",
    "NumPyro",
    "Number",
    "OneSample",
    "Parameter",
    "Partitioned",
    "Plan",
    "Posterior",
    "PrivacyStatement",
    "PrivateBayesClassifier",
    "PrivateBayesRegressor",
    "PublishedLangevin",
    "PyMC",
    "Rows",
    "Schema",
    "Scoring",
    "Statistics",
    "TacitError",
    "Variational",
    "Whole",
    "__version__",
    "accounting",
    "audit",
    "coarsened_size",
    "conjugate",
    "federated_study",
    "fit",
    "fit_federated",
    "fit_without_privacy",
    "glm",
    "plan",
    "private_scales",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'tacit' has no attribute {name!r}")
    home = import_module(_HOMES[name])
    return vars(home).get(name, home)  # a module stands for itself


def __dir__() -> list[str]:
    return sorted(__all__)
