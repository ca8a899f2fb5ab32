"""The conjugate models of the library, for `tacit.Statistics` and federated fits.

>>> from tacit import conjugate
>>> conjugate.LinearRegression("weight", ("height",), noise_sd=5.0).statistic_size
5
"""

from tacit.models.counts import Poisson
from tacit.models.normal import LinearRegression, Normal
from tacit.models.shares import Bernoulli, Categorical
from tacit.models.statistic import Conjugate

__all__ = ["Bernoulli", "Categorical", "Conjugate", "LinearRegression", "Normal", "Poisson"]
