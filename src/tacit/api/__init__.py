"""What users call: `plan`, `fit`, forecasts, audits and the scikit-learn estimators.

The stub ``__init__.pyi`` lists modules that the command line loads only when a command needs them.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
