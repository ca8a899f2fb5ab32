"""Samplers for `OneSample`: private posterior draws on a grid, and by chains.

Three are exact, which is what the theorems are about: on a grid, by a sum where the model is
an exponential family, and by rejection for logistic regression. A chain is not, and asks for
a reason to take it for exact.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit import _validate
from tacit.errors import InvalidArgument
from tacit.models.base import AnyModel
from tacit.privacy.mechanisms import Mechanism
from tacit.privacy.one_draw.chain import ChainDraws
from tacit.privacy.one_draw.claims import (
    BoundedLikelihood,
    Claim,
    LipschitzLikelihood,
    LogConcave,
)
from tacit.privacy.one_draw.gate import DrawGate
from tacit.privacy.one_draw.grid import GridDraws

Floats = NDArray[np.float64]


class Sampler(Protocol):
    """How draws are made: settings, all public."""

    @property
    def claims(self) -> tuple[type, ...]:
        """Kinds of claim it can work with; none if it knows its own bound."""
        ...

    @property
    def reason(self) -> str | None:
        """Why its draws may be taken for exact, where that is an assumption."""
        ...

    def mechanism(
        self, model: AnyModel, claim: Claim | None, num_draws: int
    ) -> Callable[[float], Mechanism]:
        """What the gate will do, for each power that the likelihood may count with."""
        ...

    def check(self, model: AnyModel, gate: DrawGate) -> None:
        """Raises what `draw` would raise, without reading a row."""
        ...

    def draw(self, model: AnyModel, gate: DrawGate) -> Floats:
        """Unconstrained vectors, one below the other."""
        ...


@dataclass(frozen=True, kw_only=True)
class GridSampler:
    """Exact draws from the posterior on a public grid, for models with few parameters.

    Args:
        low: The lower end of the grid for each parameter, on its own scale.
        high: The upper end for each parameter.
        points: Number of grid points along each unconstrained dimension, equally spaced on that
            scale. All values of a discrete parameter are included.
    """

    low: Mapping[str, ArrayLike] = field(hash=False)
    high: Mapping[str, ArrayLike] = field(hash=False)
    points: int = 500

    claims: ClassVar[tuple[type, ...]] = (BoundedLikelihood, LipschitzLikelihood)
    reason: ClassVar[None] = None

    def mechanism(
        self, model: AnyModel, claim: Claim | None, num_draws: int
    ) -> Callable[[float], Mechanism]:
        """The mechanism for a power."""
        assert isinstance(claim, BoundedLikelihood | LipschitzLikelihood)
        low, high = ends_of(model, self.low, self.high)
        points = [_validate.count("points", self.points, least=2)] * model.dimension
        for place, least, most, _ in model.discrete:
            low[place], high[place], points[place] = float(least), float(most), most - least + 1

        def of(power: float) -> GridDraws:
            return GridDraws(
                claim=claim,
                low=tuple(low),
                high=tuple(high),
                points=tuple(points),
                power=power,
                num_draws=num_draws,
            )

        return of

    def check(self, model: AnyModel, gate: DrawGate) -> None:
        """Raises what `draw` would raise."""
        gate.check_draw(prior_at(model, gate.mechanism.places), model.unit_density, model.constants)

    def draw(self, model: AnyModel, gate: DrawGate) -> Floats:
        """Points of the grid."""
        prior = prior_at(model, gate.mechanism.places)
        return gate.draw(prior, model.unit_density, model.constants)


@dataclass(frozen=True, kw_only=True)
class ChainSampler:
    """Approximate draws for any model: the last states of long NUTS chains.

    The guarantee holds for exact draws, so ``approximate`` must state why these may be treated as
    exact. The privacy statement repeats it. Each draw has its own chain. With `BoundedLikelihood`,
    a unit's log-likelihood is clamped to [-bound, bound]. A `LogConcave` claim is not enforced; it
    is an assumption too.

    Args:
        approximate: The reason why the draws may be treated as exact.
        warm_up: Number of warm-up steps.
        length: Number of steps after the warm-up.
        resolution: Draws are rounded to multiples of this number.
    """

    approximate: str | None = None
    warm_up: int = 1000
    length: int = 1000
    resolution: float = 2.0**-20

    claims: ClassVar[tuple[type, ...]] = (BoundedLikelihood, LipschitzLikelihood, LogConcave)

    def __post_init__(self) -> None:
        if not isinstance(self.approximate, str) or not self.approximate.strip():
            raise InvalidArgument(
                "A chain is only approximately at its posterior, and the guarantee is about exact "
                'draws. Say why its draws may be treated as exact, with approximate="..."; the '
                "privacy statement repeats it. Or use an exact sampler."
            )

    @property
    def reason(self) -> str | None:
        """What the caller said."""
        return self.approximate

    def mechanism(
        self, model: AnyModel, claim: Claim | None, num_draws: int
    ) -> Callable[[float], Mechanism]:
        """The mechanism for a power."""
        assert claim is not None
        if model.discrete:
            raise InvalidArgument(
                "A chain needs gradients, and the model has discrete parameters; use GridSampler."
            )

        def of(power: float) -> ChainDraws:
            return ChainDraws(
                claim=claim,
                dimension=model.dimension,
                power=power,
                warm_up=self.warm_up,
                length=self.length,
                resolution=self.resolution,
                num_draws=num_draws,
            )

        return of

    def check(self, model: AnyModel, gate: DrawGate) -> None:
        """Raises what `draw` would raise; or if the prior is plainly less concave than claimed."""
        gate.check_draw(model.prior_density, model.unit_density, model.constants)
        claim = gate.mechanism.claim
        if isinstance(claim, LogConcave) and not (_concavity(model) >= claim.concavity * 0.999):
            raise InvalidArgument(
                f"The log prior is not as concave as claimed, {claim.concavity:g}, everywhere on the "
                "unconstrained scale; a normal prior is, by its precision."
            )

    def draw(self, model: AnyModel, gate: DrawGate) -> Floats:
        """Ends of chains."""
        return gate.draw(model.prior_density, model.unit_density, model.constants)


def ends_of(
    model: AnyModel, low: Mapping[str, ArrayLike], high: Mapping[str, ArrayLike]
) -> tuple[list[float], list[float]]:
    """The ends of a grid on the unconstrained scale."""
    first, last = (np.asarray(model.start(end), np.float64).ravel() for end in (low, high))
    return first.tolist(), last.tolist()


def prior_at(model: AnyModel, places: Floats) -> Floats:
    """The log prior at each of many places."""
    vectors = jnp.asarray(places, jnp.float32)
    found = jax.vmap(lambda vector: model.prior_density(vector, model.constants))(vectors)
    return np.asarray(found, np.float64)


def _concavity(model: AnyModel) -> float:
    """The least curvature of the log prior at a few places: no proof, but it finds mistakes."""
    places = jax.random.normal(jax.random.key(0), (16, model.dimension)) * 3
    curvature = jax.vmap(jax.hessian(model.prior_density), in_axes=(0, None))
    return float(jnp.linalg.eigvalsh(-curvature(places, model.constants)).min())
