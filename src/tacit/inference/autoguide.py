"""NumPyro's automatic guides, flows among them, on the model's unconstrained vector."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from numpyro import distributions as dist
from numpyro.distributions import biject_to
from numpyro.infer import autoguide

from tacit.errors import InvalidArgument
from tacit.inference.guides import Params, small_directions

_SITE = "theta"
_KINDS = (
    autoguide.AutoDiagonalNormal,
    autoguide.AutoMultivariateNormal,
    autoguide.AutoLowRankMultivariateNormal,
    autoguide.AutoIAFNormal,
    autoguide.AutoBNAFNormal,
)


@runtime_checkable
class Made(Protocol):
    """A NumPyro autoguide that was made for a model already."""

    def sample_posterior(self, *given: Any, **named: Any) -> Any:
        """Draws."""
        ...


@dataclass(frozen=True)
class AutoGuide:
    """An automatic guide of NumPyro, made by ``factory(model)``: usually its class.

    The guide sees one latent, the whole unconstrained vector, and no row. NumPyro packs
    several latents in the order of the trace and JAX in that of their names: with one, there
    is no order to get wrong, which is checked.
    """

    factory: Callable[[Any], Any]

    def start(self, dimension: int) -> Params:
        """As NumPyro starts it, around zero."""
        return self.moved(_prepared(self.factory, dimension).start, jnp.zeros(dimension))

    def moved(self, params: Params, centre: jax.Array) -> Params:
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
        """How much the map stretches at the draw: the entropy's estimate, up to a constant."""
        transform = self._transform(params, noise)
        slope = transform.log_abs_det_jacobian(noise, transform(noise))
        return jnp.sum(slope)

    def _transform(self, params: Params, noise: jax.Array) -> Any:
        return _prepared(self.factory, noise.shape[-1]).transform(params)

    def covariance(self, params: Params) -> None:
        """Not in closed form."""


class _Prepared:
    """A guide set up for a dimension, on no data at all."""

    def __init__(self, factory: Callable[[Any], Any], dimension: int) -> None:
        def latent() -> None:
            numpyro.sample(_SITE, dist.Normal(0.0, 1.0).expand([dimension]).to_event(1))

        guide = factory(latent)
        if not isinstance(guide, _KINDS):
            raise InvalidArgument(
                f"{type(guide).__name__} has no reparametrised draw of the whole vector; use "
                f"{', '.join(kind.__name__ for kind in _KINDS)}."
            )
        if dimension == 1 and isinstance(guide, _KINDS[3:]):
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

    def _support(self, name: str) -> Any:
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

    def transform(self, params: Params) -> Any:
        """The map from standard normals to the vector."""
        given = {name: jax.tree.map(self._support(name), params[name]) for name in self._sites}
        return self.guide.get_transform(given)


@lru_cache(maxsize=32)
def _prepared(factory: Callable[[Any], Any], dimension: int) -> _Prepared:
    return _Prepared(factory, dimension)
