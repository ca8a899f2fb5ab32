"""Seven models as a user writes them in NumPyro, with simulated tables and their schemas."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

import tacit

GROUPS = 6
CORNERS = np.array([[0, 0], [2, 2], [2, -2], [-2, 2], [-2, -2]], float)


@dataclass(frozen=True, eq=False)
class Animal:
    """A model, the public facts of its table, and tables of any length."""

    model: Callable[..., Any]
    schema: tacit.Schema
    simulate: Callable[[int, np.random.Generator], dict[str, Any]]
    rows: int = 300
    steps: int = 2000
    clip: float = 100.0
    start: Any = None

    def table(self, rows: int | None = None, seed: int = 0) -> dict[str, Any]:
        """A simulated table."""
        return self.simulate(rows or self.rows, np.random.default_rng(seed))


def logistic(x, y=None):
    """Logistic regression."""
    a = numpyro.sample("a", dist.Normal(0, 2))
    b = numpyro.sample("b", dist.Normal(0, 1).expand([3]).to_event(1))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=a + x @ b), obs=y)


def simulate_logistic(rows, rng):
    x = rng.uniform(-1, 1, (rows, 3)) @ np.array([[1, 0.5, 0], [0, 0.5, 0], [0, 0, 1]])
    odds = np.exp(0.5 + x @ [2.0, -1.5, 1.0])
    return {"x": x, "y": rng.binomial(1, odds / (1 + odds))}


def mixture(x):
    """Spherical Gaussians with unknown centres, shares and a common spread."""
    shares = numpyro.sample("shares", dist.Dirichlet(jnp.ones(5)))
    with numpyro.plate("components", 5):
        centres = numpyro.sample("centres", dist.Normal(0, 3).expand([2]).to_event(1))
    spread = numpyro.sample("spread", dist.LogNormal(0, 1))
    with numpyro.plate("rows", x.shape[0]):
        parts = dist.Normal(centres, spread).to_event(1)
        numpyro.sample("x", dist.MixtureSameFamily(dist.Categorical(shares), parts), obs=x)


def mixture_by_latent(x):
    """The same with the component of each row written out."""
    shares = numpyro.sample("shares", dist.Dirichlet(jnp.ones(5)))
    with numpyro.plate("components", 5):
        centres = numpyro.sample("centres", dist.Normal(0, 3).expand([2]).to_event(1))
    spread = numpyro.sample("spread", dist.LogNormal(0, 1))
    with numpyro.plate("rows", x.shape[0]):
        which = numpyro.sample("which", dist.Categorical(shares))
        numpyro.sample("x", dist.Normal(centres[which], spread).to_event(1), obs=x)


def simulate_mixture(rows, rng):
    """The thesis' data: components at 0 and (+-2, +-2), covariance .5 I."""
    which = rng.integers(0, 5, rows)
    return {"x": CORNERS[which] + np.sqrt(0.5) * rng.normal(size=(rows, 2))}


def hierarchical(u, group, y=None):
    """A line with intercepts of declared groups."""
    mu = numpyro.sample("mu", dist.Normal(0, 2))
    tau = numpyro.sample("tau", dist.LogNormal(-0.5, 0.5))
    slope = numpyro.sample("slope", dist.Normal(0, 1))
    noise = numpyro.sample("noise", dist.LogNormal(0, 0.5))
    with numpyro.plate("groups", GROUPS):
        shift = numpyro.sample("shift", dist.Normal(mu, tau))
    with numpyro.plate("rows", u.shape[0]):
        numpyro.sample("y", dist.Normal(shift[group] + slope * u, noise), obs=y)


def simulate_hierarchical(rows, rng):
    u, group = rng.uniform(-1, 1, rows), rng.integers(0, GROUPS, rows)
    shift = np.linspace(-1, 1.4, GROUPS)
    y = shift[group] + 0.8 * u + 0.7 * rng.normal(size=rows)
    return {"u": u, "group": np.array(list("abcdef"))[group], "y": y}


def poisson(x, count=None):
    """Poisson regression."""
    a = numpyro.sample("a", dist.Normal(0, 1))
    b = numpyro.sample("b", dist.Normal(0, 1).expand([2]).to_event(1))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("count", dist.Poisson(jnp.exp(a + x @ b)), obs=count)


def simulate_poisson(rows, rng):
    x = rng.uniform(-1, 1, (rows, 2))
    return {"x": x, "count": rng.poisson(np.exp(0.7 + x @ [0.8, -0.5]))}


def negative_binomial(x, count=None):
    """Counts that vary more than a Poisson's."""
    a = numpyro.sample("a", dist.Normal(0, 1))
    b = numpyro.sample("b", dist.Normal(0, 1).expand([2]).to_event(1))
    size = numpyro.sample("size", dist.LogNormal(0, 1))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("count", dist.NegativeBinomial2(jnp.exp(a + x @ b), size), obs=count)


def simulate_negative_binomial(rows, rng):
    x = rng.uniform(-1, 1, (rows, 2))
    rate = np.exp(0.7 + x @ [0.8, -0.5]) * rng.gamma(2.0, 0.5, rows)
    return {"x": x, "count": rng.poisson(rate)}


def visits(u, patient, count=None, people=1):
    """Visits of patients, each with a level of her own."""
    a = numpyro.sample("a", dist.Normal(0, 1))
    b = numpyro.sample("b", dist.Normal(0, 1))
    tau = numpyro.sample("tau", dist.LogNormal(-0.5, 0.5))
    with numpyro.plate("patient", people):
        level = numpyro.sample("level", dist.Normal(a, tau))
    with numpyro.plate("rows", u.shape[0]):
        numpyro.sample("count", dist.Poisson(jnp.exp(level[patient] + b * u)), obs=count)


def simulate_visits(rows, rng):
    people = max(rows // 5, 1)
    patient, u = rng.integers(0, people, rows), rng.uniform(-1, 1, rows)
    level = 0.3 + 0.7 * rng.normal(size=people)
    return {"u": u, "patient": patient, "count": rng.poisson(np.exp(level[patient] + 0.6 * u))}


def network(x, y=None):
    """A layer of four units."""
    into = numpyro.sample("into", dist.Normal(0, 1.5).expand([2, 4]).to_event(2))
    bias = numpyro.sample("bias", dist.Normal(0, 1).expand([4]).to_event(1))
    out = numpyro.sample("out", dist.Normal(0, 1).expand([4]).to_event(1))
    noise = numpyro.sample("noise", dist.LogNormal(-1, 0.5))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Normal(jnp.tanh(x @ into + bias) @ out, noise), obs=y)


def simulate_network(rows, rng):
    x = rng.uniform(-2, 2, (rows, 2))
    y = np.sin(1.5 * x[:, 0]) - 0.5 * x[:, 1] + 0.3 * rng.normal(size=rows)
    return {"x": x, "y": y}


TWO, COUNT = tacit.Number(-1, 1, shape=(2,)), tacit.Count(60)
ZOO = {
    "logistic": Animal(
        logistic,
        tacit.Schema({"x": tacit.Number(-1, 1, shape=(3,)), "y": tacit.Binary()}),
        simulate_logistic,
    ),
    "mixture": Animal(
        mixture,
        tacit.Schema({"x": tacit.Number(-6, 6, shape=(2,))}),
        simulate_mixture,
        rows=1000,
        steps=1500,
        start={"centres": 0.5 * CORNERS},
    ),
    "hierarchical": Animal(
        hierarchical,
        tacit.Schema(
            {
                "u": tacit.Number(-1, 1),
                "group": tacit.Category(list("abcdef")),
                "y": tacit.Number(-8, 8),
            }
        ),
        simulate_hierarchical,
        steps=4000,
    ),
    "poisson": Animal(poisson, tacit.Schema({"x": TWO, "count": COUNT}), simulate_poisson),
    "negative binomial": Animal(
        negative_binomial, tacit.Schema({"x": TWO, "count": COUNT}), simulate_negative_binomial
    ),
    "person": Animal(
        visits,
        tacit.Schema({"u": tacit.Number(-1, 1), "count": COUNT}, person="patient", most_rows=15),
        simulate_visits,
    ),
    "network": Animal(
        network,
        tacit.Schema({"x": tacit.Number(-2, 2, shape=(2,)), "y": tacit.Number(-5, 5)}),
        simulate_network,
        start="random",
    ),
}
