"""Variational families on the unconstrained space: Gaussian ones, and NumPyro's automatic guides, flows among them."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Protocol, cast, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from numpyro import distributions as dist
from numpyro.distributions import biject_to
from numpyro.distributions.transforms import Transform
from numpyro.infer import autoguide

from tacit import _validate
from tacit.errors import InvalidArgument

Params = dict[str, jax.Array]


@runtime_checkable
class Guide(Protocol):
    """A family of distributions: theta is a smooth function of parameters and standard normals."""

    def start(self, dimension: int) -> Params:
        """Initial parameters, centred at zero."""
        ...

    def recentre(self, params: Params, centre: jax.Array) -> Params:
        """The same parameters with another centre."""
        ...

    def noise_size(self, dimension: int) -> int:
        """How many standard normals one draw takes."""
        ...

    def draw(self, params: Params, noise: jax.Array) -> jax.Array:
        """One draw."""
        ...

    def entropy(self, params: Params, noise: jax.Array) -> jax.Array:
        """Entropy up to a constant, or an unbiased estimate of it from one draw's noise."""
        ...

    def covariance(self, params: Params) -> jax.Array | None:
        """Covariance matrix around ``params["mean"]``, or None if this is no Gaussian."""
        ...


class _Gaussian:
    """What the Gaussian families share."""

    def recentre(self, params: Params, centre: jax.Array) -> Params:
        return params | {"mean": jnp.asarray(centre, jnp.float32)}


@dataclass(frozen=True, kw_only=True)
class MeanField(_Gaussian):
    """A Gaussian with independent coordinates.

    Args:
        start_scale: Initial standard deviation of every coordinate.
    """

    start_scale: float = 0.1

    def start(self, dimension: int) -> Params:
        level = math.log(_validate.positive("start_scale", self.start_scale))
        return {"mean": jnp.zeros(dimension), "log_scale": jnp.full(dimension, level)}

    def noise_size(self, dimension: int) -> int:
        return dimension

    def draw(self, params: Params, noise: jax.Array) -> jax.Array:
        return params["mean"] + jnp.exp(params["log_scale"]) * noise

    def entropy(self, params: Params, noise: jax.Array) -> jax.Array:  # noqa: ARG002
        return params["log_scale"].sum()

    def covariance(self, params: Params) -> jax.Array:
        return jnp.diag(jnp.exp(2 * params["log_scale"]))


@dataclass(frozen=True, kw_only=True)
class FullRank(_Gaussian):
    """A Gaussian with any covariance, by its Cholesky factor.

    Args:
        start_scale: Initial standard deviation of every coordinate.
    """

    start_scale: float = 0.1

    def start(self, dimension: int) -> Params:
        below = jnp.zeros((dimension, dimension))
        return MeanField(start_scale=self.start_scale).start(dimension) | {"below": below}

    def noise_size(self, dimension: int) -> int:
        return dimension

    def _factor(self, params: Params) -> jax.Array:
        return jnp.tril(params["below"], -1) + jnp.diag(jnp.exp(params["log_scale"]))

    def draw(self, params: Params, noise: jax.Array) -> jax.Array:
        return params["mean"] + self._factor(params) @ noise

    def entropy(self, params: Params, noise: jax.Array) -> jax.Array:  # noqa: ARG002
        return params["log_scale"].sum()

    def covariance(self, params: Params) -> jax.Array:
        factor = self._factor(params)
        return factor @ factor.T


@dataclass(frozen=True, kw_only=True)
class LowRank(_Gaussian):
    """A Gaussian with a diagonal plus low-rank covariance.

    Args:
        rank: The rank of the second part.
        start_scale: Initial standard deviation of every coordinate.
    """

    rank: int
    start_scale: float = 0.1

    def start(self, dimension: int) -> Params:
        rank = _validate.count("rank", self.rank)
        directions = self.start_scale * small_directions(dimension, rank)
        return MeanField(start_scale=self.start_scale).start(dimension) | {"directions": directions}

    def noise_size(self, dimension: int) -> int:
        return dimension + self.rank

    def draw(self, params: Params, noise: jax.Array) -> jax.Array:
        size = params["mean"].shape[0]
        spread = jnp.exp(params["log_scale"]) * noise[:size]
        return params["mean"] + spread + params["directions"] @ noise[size:]

    def entropy(self, params: Params, noise: jax.Array) -> jax.Array:  # noqa: ARG002
        scaled = params["directions"] * jnp.exp(-params["log_scale"])[:, None]
        inner = jnp.eye(self.rank) + scaled.T @ scaled
        total: jax.Array = params["log_scale"].sum() + 0.5 * jnp.linalg.slogdet(inner)[1]
        return total

    def covariance(self, params: Params) -> jax.Array:
        spread = jnp.diag(jnp.exp(2 * params["log_scale"]))
        return spread + params["directions"] @ params["directions"].T


def num_parameters(params: Params) -> int:
    """The total number of entries of a guide's parameters."""
    return sum(leaf.size for leaf in jax.tree.leaves(params))


def small_directions(dimension: int, rank: int) -> jax.Array:
    """Small and all different, because gradients at zero would vanish by symmetry."""
    angles = jnp.arange(dimension * rank, dtype=jnp.float32).reshape(dimension, rank)
    return 0.1 * jnp.sin(1.0 + 1.7 * angles)


_SITE = "theta"
_SUPPORTED_GUIDES = (
    autoguide.AutoDiagonalNormal,
    autoguide.AutoMultivariateNormal,
    autoguide.AutoLowRankMultivariateNormal,
    autoguide.AutoIAFNormal,
    autoguide.AutoBNAFNormal,
)


# Makes an automatic guide of a NumPyro model; usually its class.
GuideFactory = Callable[[Callable[[], None]], autoguide.AutoContinuous]


@dataclass(frozen=True)
class AutoGuide:
    """An automatic guide of NumPyro, made by ``factory(model)``: usually its class.

    The guide sees one latent, the whole unconstrained vector, and no row. NumPyro packs
    several latents in the order of the trace and JAX in that of their names: with one, there
    is no order to get wrong, which is checked.
    """

    factory: GuideFactory

    def start(self, dimension: int) -> Params:
        """As NumPyro starts it, around zero."""
        return self.recentre(
            _initialised_guide(self.factory, dimension).start, jnp.zeros(dimension)
        )

    def recentre(self, params: Params, centre: jax.Array) -> Params:
        """The same around another centre; a flow gets one that is added to its draws."""
        name = next((each for each in params if each.endswith("_loc")), "centre")
        return params | {name: jnp.asarray(centre, jnp.float32)}

    def noise_size(self, dimension: int) -> int:
        """As many normals as the vector has numbers."""
        return dimension

    def draw(self, params: Params, noise: jax.Array) -> jax.Array:
        """One draw."""
        theta: jax.Array = self._transform(params, noise)(noise)
        return theta + params["centre"] if "centre" in params else theta

    def entropy(self, params: Params, noise: jax.Array) -> jax.Array:
        """The log determinant of the map at the draw: an estimate of the entropy, up to a constant."""
        transform = self._transform(params, noise)
        slope = transform.log_abs_det_jacobian(noise, transform(noise))
        return jnp.sum(slope)

    def _transform(self, params: Params, noise: jax.Array) -> Transform:
        return _initialised_guide(self.factory, noise.shape[-1]).transform(params)

    def covariance(self, params: Params) -> None:
        """Not in closed form."""


class _InitialisedGuide:
    """A NumPyro guide that was initialised for a dimension, without data."""

    def __init__(self, factory: GuideFactory, dimension: int) -> None:
        def latent() -> None:
            numpyro.sample(_SITE, dist.Normal(0.0, 1.0).expand([dimension]).to_event(1))

        guide = factory(latent)
        if not isinstance(guide, _SUPPORTED_GUIDES):
            raise InvalidArgument(
                f"{type(guide).__name__} has no reparametrised draw of the whole vector; use "
                f"{', '.join(kind.__name__ for kind in _SUPPORTED_GUIDES)}."
            )
        if dimension == 1 and isinstance(guide, _SUPPORTED_GUIDES[3:]):
            raise InvalidArgument(
                "A flow needs two numbers or more; use AutoDiagonalNormal for a model with one."
            )
        with numpyro.handlers.seed(rng_seed=0), numpyro.handlers.trace() as trace:
            guide()
        self.guide, self._dimension = guide, dimension
        self._sites = {n: site for n, site in trace.items() if site["type"] == "param"}
        self._assert_order()

    def _assert_order(self) -> None:
        probe = jnp.arange(self._dimension, dtype=jnp.float32)
        unpacked = self.guide._unpack_latent(probe)  # noqa: SLF001
        assert list(unpacked) == [_SITE]
        assert np.array_equal(unpacked[_SITE], probe)

    def _support(self, name: str) -> Transform:
        constraint = self._sites[name]["kwargs"].get("constraint", dist.constraints.real)
        return biject_to(constraint)

    @cached_property
    def start(self) -> Params:
        start = {
            name: jax.tree.map(self._support(name).inv, site["value"])
            for name, site in self._sites.items()
        }
        for name, value in start.items():
            if name.endswith("_cov_factor"):  # NumPyro's zeros have a gradient of zero
                start[name] = small_directions(*value.shape)
        return start

    def transform(self, params: Params) -> Transform:
        """The map from standard normals to the vector."""
        given = {name: jax.tree.map(self._support(name), params[name]) for name in self._sites}
        return self.guide.get_transform(given)


@lru_cache(maxsize=32)
def _initialised_guide(factory: GuideFactory, dimension: int) -> _InitialisedGuide:
    return _InitialisedGuide(factory, dimension)


def as_guide(guide: object) -> Guide:
    """A guide, or NumPyro's class of one, or a function that makes one, as a `Guide`.

    Raises:
        InvalidArgument: If it is something else, such as a guide that was made for a model already.
    """
    if isinstance(guide, type):
        usable = not issubclass(guide, MeanField | FullRank | LowRank)
    elif isinstance(guide, Guide):
        return guide
    else:
        usable = callable(guide) and not isinstance(guide, autoguide.AutoGuide)
    if not usable:
        raise InvalidArgument(
            "guide must be MeanField(), FullRank(), LowRank(rank=...) or the class of a NumPyro "
            "autoguide, such as AutoIAFNormal; not a guide made for a model."
        )
    return AutoGuide(cast("GuideFactory", guide))
