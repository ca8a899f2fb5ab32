"""Bayesian inference with differential privacy.

- Fit: `plan`, `fit`, `fit_without_privacy`, `fit_federated`, `federated_study`, and the
  scikit-learn estimators `PrivateBayesClassifier` and `PrivateBayesRegressor`.
- Before a fit: `explore` takes a `Look` at counts, means and quantiles; `forecast` with a `Scenario` says what a
  budget will buy; `tune` searches for settings.
- Budgets: `Budget`, `Ledger`; more in `tacit.accounting`.
- Data: `Schema` with the columns `Number`, `Count`, `Binary`, `Category` and `Date`; `private_scales`;
  `Rows` for models without a schema.
- Models: `glm`, `conjugate` and `Model`; more in `tacit.models`. NumPyro functions and PyMC models
  need no wrapper.
- Methods: `Scoring`, `Variational`, `Barker`, `Langevin`, `Statistics` and `OneSample`; more in
  `tacit.methods`.
- Federated inference: `tacit.federated`.
- After a fit: `check` says what does not fit, in a `ModelCheck`; `score` scores kept rows; `compare` compares models.
- Results: `Plan`, `Posterior`, `PrivacyStatement`; `audit` tests a privacy claim.
- Errors: `TacitError`, `BudgetError`.

The stub ``__init__.pyi`` lists the names. Each is imported when it is first used.
"""

import lazy_loader

__version__ = "0.3.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
