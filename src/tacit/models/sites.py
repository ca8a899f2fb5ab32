"""Runs of a NumPyro function with given plate lengths and given values of latents.

A run returns every site with its distribution, value and plates. Nothing is drawn at random.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import RLock
from typing import Any

import jax
import jax.numpy as jnp
from numpyro.distributions import Distribution
from numpyro.primitives import Messenger

from tacit.errors import InvalidArgument

Message = dict[str, Any]
Latent = Callable[[Message], jax.Array]
# Kinds of statements that a model of rows cannot have, and what to write instead.
_REFUSED = {
    "param": "has a free parameter without a prior; use numpyro.sample with a prior",
    "mutable": "keeps a state that changes from call to call; remove it",
    "prng_key": "draws random numbers outside of a site; use numpyro.sample",
    "control_flow": "is a NumPyro loop; write it with jax.lax.scan or a Python loop",
}


@dataclass(frozen=True)
class Statement:
    """One sample or deterministic statement of a run."""

    name: str
    distribution: Distribution | None
    value: Any
    observed: bool
    plates: Mapping[str, int]
    scale: Any

    def log_prob(self) -> jax.Array:
        """Log density of each entry of the value, scaled only by handlers of the model itself."""
        assert self.distribution is not None
        terms: jax.Array = self.distribution.log_prob(self.value) * self.scale
        return terms

    def by_plate(self, plate: str) -> jax.Array:
        """Log density of each entry of a plate, summed over all other axes."""
        terms = self.log_prob()
        axis = terms.ndim + self.plates[plate]
        return terms.sum(axis=tuple(i for i in range(terms.ndim) if i != axis))


_ONE_AT_A_TIME = RLock()


class Run(Messenger):  # type: ignore[misc]
    """Runs a model with given plate lengths and values of latents, and collects its sites.

    Args:
        function: The model.
        lengths: Lengths of the plates over rows and people. These plates get the index 0, 1, ...
            whatever size the model gives them, and are not scaled for subsampling.
        latent: Returns the value of a latent.
        observe: Returns the value of an observed site in these plates; its own by default.
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
        self.sites: dict[str, Statement] = {}
        self.plates: dict[str, int] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the model, one thread at a time: all threads share NumPyro's stack of handlers."""
        with _ONE_AT_A_TIME:
            return super().__call__(*args, **kwargs)

    def process_message(self, msg: Message) -> None:
        """Sets the index of plates and the values of latents."""
        kind = msg["type"]
        if kind == "plate":
            self._give_index(msg)
        elif kind == "subsample":
            msg["type"] = "rows as they came"  # otherwise the plate would select from them again
        elif kind == "sample" and not msg["is_observed"]:
            msg["value"] = self._latent(msg)
        elif kind == "sample" and self._observe is not None and self._in_plates(msg):
            msg["value"] = self._observe(msg)
        elif kind in _REFUSED:
            name = f"Statement {msg['name']!r}" if msg.get("name") else "The model"
            raise InvalidArgument(f"{name} {_REFUSED[kind]}.")

    def _give_index(self, msg: Message) -> None:
        name, (size, part) = msg["name"], msg["args"]
        self.plates[name] = size
        if name in self._lengths:
            msg["value"], msg["args"] = jnp.arange(self._lengths[name]), (size, None)
        elif part is not None and part != size:
            raise InvalidArgument(
                f"Plate {name!r} has a subsample_size; only the plate over rows may have one, and it is "
                "ignored there."
            )

    def _in_plates(self, msg: Message) -> bool:
        return any(frame.name in self._lengths for frame in msg["cond_indep_stack"])

    def postprocess_message(self, msg: Message) -> None:
        """Records the result of a statement."""
        if msg["type"] not in ("sample", "deterministic"):
            return
        if msg["name"] in self.sites:
            raise InvalidArgument(
                f"The model has two sites called {msg['name']!r}; give them different names."
            )
        plates = {frame.name: frame.dim for frame in msg["cond_indep_stack"]}
        self.sites[msg["name"]] = Statement(
            name=msg["name"],
            distribution=msg["fn"] if msg["type"] == "sample" else None,
            value=msg["value"],
            observed=msg["type"] == "sample" and msg["is_observed"],
            plates=plates,
            scale=self._own_scale(msg, plates),
        )

    def _own_scale(self, msg: Message, plates: Mapping[str, int]) -> Any:
        """The scale of the model's own handlers, without that of plates whose length was changed."""
        scale = msg.get("scale")
        if scale is None:
            return 1.0
        for name in plates:
            length = self._lengths.get(name)
            if length is not None and self.plates[name] != length:
                scale = scale * (length / self.plates[name])
        return scale
