"""Running a NumPyro model on rows of our choosing, and looking at what it did.

A run is told how long the plates over rows and people are, and what value each latent has;
it gives back every site with its distribution, value and plates. Nothing is drawn at random.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from numpyro.distributions import Distribution
from numpyro.primitives import Messenger

from tacit.errors import InvalidArgument

Message = dict[str, Any]
Latent = Callable[[Message], jax.Array]
# Statements that have no place in a model of rows, and what to write instead.
_REFUSED = {
    "param": "has a free parameter without a prior; use numpyro.sample with a prior",
    "mutable": "keeps a state that changes from call to call; leave it out",
    "prng_key": "draws random numbers of its own; use numpyro.sample",
    "control_flow": "is a NumPyro loop; write it with jax.lax.scan or a Python loop",
}


@dataclass(frozen=True)
class Site:
    """One sample or deterministic statement of a run."""

    name: str
    distribution: Distribution | None
    value: Any
    observed: bool
    plates: Mapping[str, int]
    scale: Any

    def log_prob(self) -> jax.Array:
        """Log-density of the value, entry by entry; scaled by the model's own handlers only."""
        assert self.distribution is not None
        terms: jax.Array = self.distribution.log_prob(self.value) * self.scale
        return terms

    def by_plate(self, plate: str) -> jax.Array:
        """Log-density of each entry of a plate, all other axes summed."""
        terms = self.log_prob()
        axis = terms.ndim + self.plates[plate]
        return terms.sum(axis=tuple(i for i in range(terms.ndim) if i != axis))


class Run(Messenger):  # type: ignore[misc]
    """A model with its plates' lengths and latents' values given; collects the sites.

    ``lengths`` has the plates over rows and people. They get the index 0, 1, ... whatever
    size the model gives them, and no scaling for subsampling enters.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        lengths: Mapping[str, int],
        latent: Latent,
        observe: Latent | None = None,
    ) -> None:
        super().__init__(function)
        self._lengths, self._latent, self._observe = lengths, latent, observe
        self.sites: dict[str, Site] = {}
        self.plates: dict[str, int] = {}

    def process_message(self, msg: Message) -> None:
        """Gives plates their index and latents their value."""
        kind = msg["type"]
        if kind == "plate":
            self._give_index(msg)
        elif kind == "subsample":
            msg["type"] = "rows as they came"  # the plate would pick from them once more
        elif kind == "sample" and not msg["is_observed"]:
            msg["value"] = self._latent(msg)
        elif kind == "sample" and self._observe is not None and self._in_plates(msg):
            msg["value"] = self._observe(msg)
        elif kind in _REFUSED:
            name = f"Site {msg['name']!r}" if msg.get("name") else "The model"
            raise InvalidArgument(f"{name} {_REFUSED[kind]}.")

    def _give_index(self, msg: Message) -> None:
        name, (size, part) = msg["name"], msg["args"]
        self.plates[name] = size
        if name in self._lengths:
            msg["value"], msg["args"] = jnp.arange(self._lengths[name]), (size, None)
        elif part is not None and part != size:
            raise InvalidArgument(
                f"Plate {name!r} looks at a part of its entries; only the plate over rows may "
                "have a subsample_size, and it is ignored there."
            )

    def _in_plates(self, msg: Message) -> bool:
        return any(frame.name in self._lengths for frame in msg["cond_indep_stack"])

    def postprocess_message(self, msg: Message) -> None:
        """Notes what a statement came to."""
        if msg["type"] not in ("sample", "deterministic"):
            return
        if msg["name"] in self.sites:
            raise InvalidArgument(
                f"The model has two sites called {msg['name']!r}; give each a name of its own."
            )
        plates = {frame.name: frame.dim for frame in msg["cond_indep_stack"]}
        self.sites[msg["name"]] = Site(
            name=msg["name"],
            distribution=msg["fn"] if msg["type"] == "sample" else None,
            value=msg["value"],
            observed=msg["type"] == "sample" and msg["is_observed"],
            plates=plates,
            scale=self._own_scale(msg, plates),
        )

    def _own_scale(self, msg: Message, plates: Mapping[str, int]) -> Any:
        """The scale of the model's own handlers, without that of a plate given other rows."""
        scale = msg.get("scale")
        if scale is None:
            return 1.0
        for name in plates:
            length = self._lengths.get(name)
            if length is not None and self.plates[name] != length:
                scale = scale * (length / self.plates[name])
        return scale
