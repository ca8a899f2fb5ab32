"""The interface of federated methods, and what a fit found."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tacit.accounting import Budget
from tacit.federated.schemes import RunSetting, Scheme
from tacit.federated.server import Schedule, ScheduleName, Server
from tacit.inference.method import Intervals
from tacit.models.exponential_families import Vector
from tacit.privacy.noise import Randomness
from tacit.privacy.rows import Rows


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """What a federated fit found. It follows from released and public values only.

    ``mean`` and ``covariance`` are on the unconstrained scale. ``said`` are sentences about how the fit
    went, and ``fitted_by`` about how it was made. ``converged`` is None where the method cannot tell.
    """

    draws: Mapping[str, NDArray[np.floating]]
    trace: Mapping[str, NDArray[np.floating]]
    mean: Vector | None
    covariance: NDArray[np.float64] | None
    said: tuple[str, ...]
    fitted_by: tuple[str, ...]
    intervals: Intervals
    converged: bool | None = None


class FederatedMethod(Protocol):
    """Settings of a federated fit, which are public and the same at all sites.

    ``target`` makes of a model what the other functions take as ``target``.
    """

    @property
    def num_rounds(self) -> int:
        """How often every site is asked."""
        ...

    @property
    def spare_answers(self) -> int:
        """Answers that are charged in addition to the rounds."""
        ...

    @property
    def schedule(self) -> ScheduleName:
        """The order in which sites are asked."""
        ...

    @property
    def scheme(self) -> Scheme:
        """How sites protect their data."""
        ...

    def rounds(self, sites: int) -> Schedule:
        """Which sites are asked when."""
        ...

    def target(self, model: Any) -> Any:
        """What sites fit together."""
        ...

    def setting(self, target: Any, budget: Budget | None, sites: int) -> RunSetting:
        """What one site knows about the run."""
        ...

    def about(self, target: Any, sites: int, rows: Rows) -> str:
        """A digest that identifies the study."""
        ...

    def server(
        self,
        target: Any,
        names: tuple[str, ...],
        *,
        run: str,
        budget: Budget | None,
        source: Randomness,
    ) -> Server:
        """The server of a run."""
        ...

    def fitted(self, target: Any, server: Server, seed: int) -> Fitted:
        """What a server found at the end of a run."""
        ...
