"""The models of `calibration.py`: parameters from the prior, rows from the model, what is scored."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
from numpyro import distributions as dist

import tacit

GROUPS = 8
LEVELS = [f"g{i}" for i in range(GROUPS)]


@dataclass(frozen=True)
class Case:
    """A model with its schema, a way to draw parameters and a table, and what is scored.

    ``score`` makes one vector of parameters, on the scale on which errors are measured, and such
    that names of like parts do not matter. Where the posterior is far from normal, ``by_nuts``.
    """

    model: Any
    schema: tacit.Schema
    draw: Callable[[np.random.Generator, int], tuple[dict[str, Any], dict[str, Any]]]
    score: Callable[[Mapping[str, Any]], Any]
    by_nuts: bool = False


def plain(*names):
    """Parameters one after the other; those that must be positive (by a hyphen) as logarithms."""

    def score(values):
        parts = [
            jnp.log(values[name[1:]]) if name.startswith("-") else values[name] for name in names
        ]
        return jnp.concatenate([jnp.ravel(part) for part in parts])

    return score


def features(rng, size, count):
    return np.clip(rng.normal(size=(size, count)), -4, 4)


def logistic(count, spread, sd, bound):
    """Coefficients without an intercept, on columns of standard deviation ``spread``."""

    def model(x, y=None):
        b = numpyro.sample("b", dist.Normal(0, sd).expand([count]).to_event(1))
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("y", dist.Bernoulli(logits=x @ b), obs=y)

    def draw(rng, size):
        b = rng.normal(0, sd, count)
        x = np.clip(spread * rng.normal(size=(size, count)), -bound, bound)
        return {"b": b}, {"x": x, "y": (rng.random(size) < 1 / (1 + np.exp(-x @ b))).astype(int)}

    columns = {"x": tacit.Number(-bound, bound, shape=(count,)), "y": tacit.Binary()}
    return Case(model, tacit.Schema(columns), draw, plain("b"))


def counts(*, varied):
    """Poisson regression, or with ``varied`` counts that vary more."""

    def model(x, y=None):
        a = numpyro.sample("a", dist.Normal(0.5, 0.5))
        b = numpyro.sample("b", dist.Normal(0, 0.3).expand([2]).to_event(1))
        rate = jnp.exp(a + x @ b)
        fn = dist.Poisson(rate)
        if varied:
            fn = dist.NegativeBinomial2(rate, numpyro.sample("size", dist.LogNormal(1, 0.5)))
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("y", fn, obs=y)

    def draw(rng, size):
        truth = {"a": rng.normal(0.5, 0.5), "b": rng.normal(0, 0.3, 2)}
        x = features(rng, size, 2)
        rate = np.exp(truth["a"] + x @ truth["b"])
        if varied:
            truth["size"] = np.exp(rng.normal(1, 0.5))
            rate = rate * rng.gamma(truth["size"], 1 / truth["size"], size)
        return truth, {"x": x, "y": rng.poisson(rate)}

    columns = {"x": tacit.Number(-4, 4, shape=(2,)), "y": tacit.Count(200)}
    return Case(
        model, tacit.Schema(columns), draw, plain("a", "b", "-size") if varied else plain("a", "b")
    )


def linear(wide, freedom=None):
    """A line with unknown spread in the schema's own units; Student's t if ``freedom`` is given.

    The truth and its prior are the same whatever ``wide`` is: only the bounds are that much wider,
    so that encoded columns are that much narrower. Scored in the columns' own units.
    """
    in_x, in_y = 4.0 * wide, 20.0 * wide

    def model(x, y=None):
        a = numpyro.sample("a", dist.Normal(0, 1 / in_y))
        b = numpyro.sample("b", dist.Normal(0, in_x / in_y).expand([3]).to_event(1))
        sigma = numpyro.sample("sigma", dist.LogNormal(-np.log(in_y), 0.5))
        mean = a + x @ b
        fn = dist.Normal(mean, sigma) if freedom is None else dist.StudentT(freedom, mean, sigma)
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("y", fn, obs=y)

    def draw(rng, size):
        a, b, sigma = rng.normal(), rng.normal(size=3), np.exp(rng.normal(0, 0.5))
        x = features(rng, size, 3)
        noise = rng.normal(size=size) if freedom is None else rng.standard_t(freedom, size)
        truth = {"a": a / in_y, "b": b * in_x / in_y, "sigma": sigma / in_y}
        return truth, {"x": x, "y": a + x @ b + sigma * noise}

    def score(values):
        parts = values["a"] * in_y, values["b"] * in_y / in_x, jnp.log(values["sigma"] * in_y)
        return jnp.concatenate([jnp.ravel(part) for part in parts])

    columns = {
        "x": tacit.Number(-in_x, in_x, scaled=True, shape=(3,)),
        "y": tacit.Number(-in_y, in_y, scaled=True),
    }
    return Case(model, tacit.Schema(columns), draw, score)


def categorical():
    def model(x, y=None):
        b = numpyro.sample("b", dist.Normal(0, 1).expand([3, 3]).to_event(2))
        logits = jnp.concatenate([jnp.zeros_like(x[:, :1]), b[0] + x @ b[1:]], axis=1)
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("y", dist.Categorical(logits=logits), obs=y)

    def draw(rng, size):
        b, x = rng.normal(size=(3, 3)), features(rng, size, 2)
        logits = np.column_stack([np.zeros(size), b[0] + x @ b[1:]])
        return {"b": b}, {
            "x": x,
            "y": np.array(list("pqrs"))[(logits + rng.gumbel(size=(size, 4))).argmax(axis=1)],
        }

    columns = {"x": tacit.Number(-4, 4, shape=(2,)), "y": tacit.Category(list("pqrs"))}
    return Case(model, tacit.Schema(columns), draw, plain("b"))


def hierarchical(*, centred):
    def model(group, y=None):
        mu = numpyro.sample("mu", dist.Normal(0, 1))
        tau = numpyro.sample("tau", dist.HalfNormal(1))
        with numpyro.plate("groups", GROUPS):
            if centred:
                level = numpyro.sample("level", dist.Normal(mu, tau))
            else:
                raw = numpyro.sample("raw", dist.Normal(0, 1))
                level = numpyro.deterministic("level", mu + tau * raw)
        with numpyro.plate("rows", group.shape[0]):
            numpyro.sample("y", dist.Normal(level[group], 1), obs=y)

    def draw(rng, size):
        level = rng.normal() + abs(rng.normal()) * rng.normal(size=GROUPS)
        group = rng.integers(0, GROUPS, size)
        table = {"group": np.array(LEVELS)[group], "y": level[group] + rng.normal(size=size)}
        return {"level": level}, table

    columns = {"group": tacit.Category(LEVELS), "y": tacit.Number(-12, 12)}
    return Case(model, tacit.Schema(columns), draw, plain("level"), by_nuts=True)


def person():
    """People with up to five rows each, and a level of their own that is integrated out."""

    def model(u, patient, y=None, people=1):
        a = numpyro.sample("a", dist.Normal(0, 1))
        b = numpyro.sample("b", dist.Normal(0, 1))
        tau = numpyro.sample("tau", dist.LogNormal(-0.5, 0.5))
        with numpyro.plate("patient", people):
            level = numpyro.sample("level", dist.Normal(a, tau))
        with numpyro.plate("rows", u.shape[0]):
            numpyro.sample("y", dist.Bernoulli(logits=level[patient] + b * u), obs=y)

    def draw(rng, size):
        truth = {"a": rng.normal(), "b": rng.normal(), "tau": np.exp(rng.normal(-0.5, 0.5))}
        patient, u = np.arange(size) // 5, rng.uniform(-1, 1, size)
        level = truth["a"] + truth["tau"] * rng.normal(size=size // 5 + 1)
        chance = 1 / (1 + np.exp(-level[patient] - truth["b"] * u))
        return truth, {"u": u, "patient": patient, "y": (rng.random(size) < chance).astype(int)}

    columns = {"u": tacit.Number(-1, 1), "y": tacit.Binary()}
    schema = tacit.Schema(columns, person="patient", most_rows=5)
    return Case(model, schema, draw, plain("a", "b", "-tau"))


def mixture():
    """Two parts, whose centres are scored in order of size, whichever is called the first."""

    def model(y):
        centres = numpyro.sample("centres", dist.Normal(0, 2).expand([2]).to_event(1))
        parts = dist.Normal(centres, 0.5)
        with numpyro.plate("rows", y.shape[0]):
            numpyro.sample(
                "y", dist.MixtureSameFamily(dist.Categorical(jnp.ones(2) / 2), parts), obs=y
            )

    def draw(rng, size):
        centres = rng.normal(0, 2, 2)
        y = centres[rng.integers(0, 2, size)] + 0.5 * rng.normal(size=size)
        return {"centres": centres}, {"y": y}

    return Case(
        model,
        tacit.Schema({"y": tacit.Number(-10, 10)}),
        draw,
        lambda values: jnp.sort(values["centres"]),
        by_nuts=True,
    )


def by_formula(left, family, columns, priors, draw_prior, draw_outcome):
    """A family of `tacit.glm` with two predictors, and priors under which tables are not extreme.

    ``draw_prior`` draws parameters beside the two coefficients; ``draw_outcome`` columns of the
    outcome, by the sum of the coefficients' terms and the other parameters.
    """
    schema = tacit.Schema({"u": tacit.Number(-1, 1), "v": tacit.Number(-1, 1), **columns})
    priors = {"u": ("normal", 0, 0.7), "v": ("normal", 0, 0.7), **priors}
    model = tacit.glm(f"{left} ~ u + v", family=family, schema=schema, priors=priors)

    def draw(rng, size):
        truth = {"u": rng.normal(0, 0.7), "v": rng.normal(0, 0.7), **draw_prior(rng)}
        u, v = rng.uniform(-1, 1, (2, size))
        terms = truth["u"] * u + truth["v"] * v
        return truth, {"u": u, "v": v, **draw_outcome(rng, terms, truth)}

    # Drop-out is not scored where follow-up does not end at a constant rate.
    scored = {"u", "v", *draw_prior(np.random.default_rng(0))}
    signs = {name: f"-{name}" for name in ("alpha", "kappa", "drop_out")}
    names = [signs.get(name, name) for name in model.program.order if name in scored]
    return Case(model, schema, draw, plain(*names))


def ordinal():
    levels = ["poor", "fair", "good", "best"]

    def outcome(rng, terms, truth):
        latent = terms + rng.logistic(size=len(terms))
        return {"y": np.array(levels)[np.searchsorted(truth["cutpoint"], latent)]}

    return by_formula(
        "y",
        "ordinal",
        {"y": tacit.Category(levels)},
        {"cutpoint": ("normal", 0, 1.5)},
        lambda rng: {"cutpoint": np.sort(rng.normal(0, 1.5, 3))},
        outcome,
    )


def zero_inflated(*, varied):
    priors = {"Intercept": ("normal", 1, 0.5), "zero_inflation": ("beta", 2, 3)}
    priors |= {"alpha": ("lognormal", 1, 0.5)} if varied else {}

    def prior(rng):
        found = {"Intercept": rng.normal(1, 0.5), "zero_inflation": rng.beta(2, 3)}
        return found | ({"alpha": np.exp(rng.normal(1, 0.5))} if varied else {})

    def outcome(rng, terms, truth):
        rate = np.exp(truth["Intercept"] + terms)
        if varied:
            rate = rate * rng.gamma(truth["alpha"], 1 / truth["alpha"], len(rate))
        return {"y": rng.poisson(rate) * (rng.random(len(rate)) >= truth["zero_inflation"])}

    family = "zero_inflated_negativebinomial" if varied else "zero_inflated_poisson"
    return by_formula("y", family, {"y": tacit.Count(200)}, priors, prior, outcome)


def gamma():
    def outcome(rng, terms, truth):
        mean = np.exp(truth["Intercept"] + terms)
        return {"y": rng.gamma(truth["alpha"], mean / truth["alpha"])}

    return by_formula(
        "y",
        "gamma",
        {"y": tacit.Number(0.01, 100)},
        {"Intercept": ("normal", 0, 0.7), "alpha": ("lognormal", 0.5, 0.7)},
        lambda rng: {"Intercept": rng.normal(0, 0.7), "alpha": np.exp(rng.normal(0.5, 0.7))},
        outcome,
    )


def beta():
    def outcome(rng, terms, truth):
        mean = 1 / (1 + np.exp(-truth["Intercept"] - terms))
        return {"y": rng.beta(truth["kappa"] * mean, truth["kappa"] * (1 - mean))}

    return by_formula(
        "y",
        "beta",
        {"y": tacit.Number(0, 1)},
        {"Intercept": ("normal", 0, 0.7), "kappa": ("lognormal", 2, 0.7)},
        lambda rng: {"Intercept": rng.normal(0, 0.7), "kappa": np.exp(rng.normal(2, 0.7))},
        outcome,
    )


def weibull(left, limit, **known):
    """Times of at most 10, with the end of follow-up drawn by ``limit``."""

    def outcome(rng, terms, truth):
        scale = np.exp(truth["Intercept"] + terms)
        time = scale * rng.weibull(truth["alpha"], len(terms))
        end = np.minimum(limit(rng, len(terms)), 10.0)
        return {"time": np.minimum(time, end), "event": (time <= end).astype(int), "end": end}

    return by_formula(
        left,
        "weibull",
        {"time": tacit.Number(0, 10), "event": tacit.Binary(), "end": tacit.Number(0, 10)},
        {"Intercept": ("normal", 1.5, 0.5), "alpha": ("lognormal", 0.3, 0.4)},
        lambda rng: {
            "Intercept": rng.normal(1.5, 0.5),
            "alpha": np.exp(rng.normal(0.3, 0.4)),
            **known,
        },
        outcome,
    )


def study_ends(_, size):
    """Everybody is followed until the end."""
    return np.full(size, 10.0)


def spread_entry(rng, size):
    """People enter at any time, and the study ends for all at once."""
    return rng.uniform(0, 10, size)


def late_entry(rng, size):
    """The same, but all have entered by half of the time."""
    return rng.uniform(5, 10, size)


def drop_out(rng, size):
    """People leave at a constant rate."""
    return rng.exponential(4.0, size)


CASES: dict[str, Callable[[], Case]] = {
    "logistic-3": lambda: logistic(3, 1.0, 1.0, 4.0),
    "logistic-10": lambda: logistic(10, 1.0, 1.0, 4.0),
    "scaled-10": lambda: logistic(10, 0.4, 2.5, 1.0),
    "poisson": lambda: counts(varied=False),
    "negative-binomial": lambda: counts(varied=True),
    "linear": lambda: linear(1.0),
    "linear-wide": lambda: linear(10.0),
    "student": lambda: linear(1.0, freedom=4.0),
    "categorical": categorical,
    "hierarchical-centred": lambda: hierarchical(centred=True),
    "hierarchical-noncentred": lambda: hierarchical(centred=False),
    "person": person,
    "mixture": mixture,
    "ordinal": ordinal,
    "zero-inflated": lambda: zero_inflated(varied=False),
    "zero-inflated-nb": lambda: zero_inflated(varied=True),
    "gamma": gamma,
    "beta": beta,
    "weibull": lambda: weibull("censored(time, event)", drop_out, drop_out=0.25),
    "weibull-entry": lambda: weibull("censored(time, event)", spread_entry),
    "weibull-late": lambda: weibull("censored(time, event)", late_entry),
    "weibull-end": lambda: weibull("censored(time, event)", study_ends),
    "weibull-known": lambda: weibull("censored(time, event, end)", drop_out),
}
