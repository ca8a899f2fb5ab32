"""The digest of a study, which tells it from another study with the same name.

It depends on public values only: the settings, the prior, and the model's densities as JAX traces them for
columns of the given types. It does not depend on the rows or their number.
"""

from typing import Protocol

import jax.numpy as jnp
import numpy as np

from tacit.federated.target import ConjugateTarget
from tacit.models.base import AnyModel
from tacit.models.natural import Vector
from tacit.privacy.digest import (
    digest_of,
    made_up_unit,
    model_digest,
    trace_digest,
    without_addresses,
)
from tacit.privacy.rows import Rows


class Describable(Protocol):
    """What a digest needs of a target."""

    @property
    def model(self) -> AnyModel:
        """The model."""
        ...

    @property
    def family(self) -> object:
        """What tasks hold."""
        ...

    @property
    def prior(self) -> Vector:
        """Numbers of the prior."""
        ...


def described(settings: object, target: Describable, rows: Rows) -> str:
    """A digest of settings, by their ``repr``, and of a target for rows of these types."""
    texts = [repr(settings), repr(target.family), model_digest(target.model, rows)]
    if isinstance(target, ConjugateTarget):
        eta = jnp.asarray(target.prior)
        texts.append(trace_digest(target.likelihood, eta, *made_up_unit(rows), target.constants))
    prior = np.asarray(target.prior, np.float64).tobytes()
    return digest_of(prior, *(without_addresses(each).encode() for each in texts))
