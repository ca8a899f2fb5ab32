"""Descriptions of models, without data. See "Models" in the documentation.

- `Model` and `Parameter` describe a model in plain JAX. `Real`, `Positive`, `Interval`, `Simplex`
  and `Whole` are supports of parameters.
- `NumPyro` and `PyMC` wrap a model with options.
- `conjugate` has models with known posteriors.

The stub ``__init__.pyi`` lists the names. Each is imported when it is first used.
"""

import sys
import warnings
from importlib import import_module

import lazy_loader

if "IPython" in sys.modules:
    # NumPyro imports this, which warns in every notebook without widgets. Tacit shows none.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import_module("tqdm.auto")

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
