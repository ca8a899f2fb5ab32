"""The models of `calibration.py`: parameters from the prior, rows from the model, what is scored."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
from numpyro import distributions as dist

import tacit

GROUPS = 8
RARE = (-4.2, 0.4, 0.5)  # about two outcomes in a hundred
ALWAYS = 10**9


def rows_in(table):
    return len(next(iter(table.values())))


def events_in(table):
    return max(int(table["y"].sum()), 1)


@dataclass(frozen=True)
class Case:
    """A model with its schema, a way to draw parameters and a table, and what is scored.

    ``score`` makes one vector of parameters, on the scale on which errors are measured, and such
    that names of like parts do not matter. Below ``nuts_below`` rows the posterior is far from
    normal, and the exact one is by NUTS. It is that of ``reference(size)``, if this is given: a
    model that has the same posterior, and is easier for so many rows. ``informative`` counts what
    the ideal error is for: rows, people or events.
    """

    model: Any
    schema: tacit.Schema
    draw: Callable[[np.random.Generator, int], tuple[dict[str, Any], dict[str, Any]]]
    score: Callable[[Mapping[str, Any]], Any]
    nuts_below: int = 0
    reference: Callable[[int], Any] | None = None
    informative: Callable[[Mapping[str, Any]], int] = rows_in


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


def happens(rng, logits):
    """Outcomes of a logistic regression."""
    return (rng.random(len(logits)) < 1 / (1 + np.exp(-logits))).astype(int)


def logistic(count, spread, sd, bound):
    """Coefficients without an intercept, on columns of standard deviation ``spread``."""

    def model(x, y=None):
        b = numpyro.sample("b", dist.Normal(0, sd).expand([count]).to_event(1))
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("y", dist.Bernoulli(logits=x @ b), obs=y)

    def draw(rng, size):
        b = rng.normal(0, sd, count)
        x = np.clip(spread * rng.normal(size=(size, count)), -bound, bound)
        return {"b": b}, {"x": x, "y": happens(rng, x @ b)}

    columns = {"x": tacit.Number(-bound, bound, shape=(count,)), "y": tacit.Binary()}
    return Case(model, tacit.Schema(columns), draw, plain("b"))


def with_intercept(count, prior, truth=None, *, rho=0.0):
    """Logistic regression; each pair of columns has correlation ``rho``.

    ``prior`` and ``truth``, by default the same, are the intercept's mean and standard deviation,
    and the coefficients' standard deviation. If few outcomes are 1, these are what counts.
    """

    def model(x, y=None):
        a = numpyro.sample("a", dist.Normal(prior[0], prior[1]))
        b = numpyro.sample("b", dist.Normal(0, prior[2]).expand([count]).to_event(1))
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("y", dist.Bernoulli(logits=a + x @ b), obs=y)

    def draw(rng, size):
        centre, spread, sd = truth or prior
        a, b = rng.normal(centre, spread), rng.normal(0, sd, count)
        shared, own = rng.normal(size=(size, 1)), rng.normal(size=(size, count))
        x = np.clip(np.sqrt(rho) * shared + np.sqrt(1 - rho) * own, -4, 4)
        return {"a": a, "b": b}, {"x": x, "y": happens(rng, a + x @ b)}

    columns = {"x": tacit.Number(-4, 4, shape=(count,)), "y": tacit.Binary()}
    case = Case(model, tacit.Schema(columns), draw, plain("a", "b"))
    rare = RARE in {prior, truth}
    return replace(case, nuts_below=3000, informative=events_in) if rare else case


def counts(*, varied, wrong=False):
    """Poisson regression, or with ``varied`` counts that vary more; the model is ``wrong`` if they do all the same."""

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
        if varied or wrong:
            truth["size"] = np.exp(rng.normal(0 if wrong else 1, 0.5))
            rate = rate * rng.gamma(truth["size"], 1 / truth["size"], size)
        return truth, {"x": x, "y": rng.poisson(rate)}

    columns = {"x": tacit.Number(-4, 4, shape=(2,)), "y": tacit.Count(200)}
    score = plain("a", "b", "-size") if varied else plain("a", "b")
    return Case(model, tacit.Schema(columns), draw, score)


def linear(wide=1.0, *, vague=1.0, freedom=None, outliers=0.0):
    """A line with unknown spread in the schema's own units; Student's t if ``freedom`` is given.

    The truth and its prior are the same whatever ``wide`` is: only the bounds are that much wider,
    so that encoded columns are that much narrower. ``vague`` makes the prior wider, and not the
    truth. A share of ``outliers`` is ten times as far from the line. Scored in the columns' own units.
    """
    in_x, in_y = 4.0 * wide, 20.0 * wide

    def model(x, y=None):
        a = numpyro.sample("a", dist.Normal(0, vague / in_y))
        b = numpyro.sample("b", dist.Normal(0, vague * in_x / in_y).expand([3]).to_event(1))
        about = dist.LogNormal(np.log(vague / in_y), 0.5 if vague == 1 else 1.5)
        sigma = numpyro.sample("sigma", about)
        mean = a + x @ b
        fn = dist.Normal(mean, sigma) if freedom is None else dist.StudentT(freedom, mean, sigma)
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("y", fn, obs=y)

    def draw(rng, size):
        a, b, sigma = rng.normal(), rng.normal(size=3), np.exp(rng.normal(0, 0.5))
        x = features(rng, size, 3)
        noise = rng.normal(size=size) if freedom is None else rng.standard_t(freedom, size)
        noise = np.where(rng.random(size) < outliers, 10, 1) * noise
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


def names_of(kind, count):
    return [f"{kind}{i}" for i in range(count)]


def named(kind, index):
    """A column of a category by the numbers of its levels."""
    return np.array(names_of(kind, index.max() + 1))[index]


def group_levels(count, mu, tau, *, centred):
    with numpyro.plate("groups", count):
        if centred:
            return numpyro.sample("level", dist.Normal(mu, tau))
        raw = numpyro.sample("raw", dist.Normal(0, 1))
        return numpyro.deterministic("level", mu + tau * raw)


def hierarchical(*, centred):
    def form(centred):
        def model(group, y=None):
            mu = numpyro.sample("mu", dist.Normal(0, 1))
            tau = numpyro.sample("tau", dist.HalfNormal(1))
            level = group_levels(GROUPS, mu, tau, centred=centred)
            with numpyro.plate("rows", group.shape[0]):
                numpyro.sample("y", dist.Normal(level[group], 1), obs=y)

        return model

    def draw(rng, size):
        level = rng.normal() + abs(rng.normal()) * rng.normal(size=GROUPS)
        group = rng.integers(0, GROUPS, size)
        table = {"group": named("g", group), "y": level[group] + rng.normal(size=size)}
        return {"level": level}, table

    schema = tacit.Schema(
        {"group": tacit.Category(names_of("g", GROUPS)), "y": tacit.Number(-12, 12)}
    )
    return Case(form(centred), schema, draw, plain("level"), ALWAYS, lambda _: form(True))


def random_intercepts(*, centred, count=30):
    """Groups of unequal size with an intercept each, and two slopes."""

    def form(centred):
        def model(group, x, y=None):
            mu = numpyro.sample("mu", dist.Normal(0, 1))
            tau = numpyro.sample("tau", dist.LogNormal(np.log(0.7), 0.5))
            level = group_levels(count, mu, tau, centred=centred)
            b = numpyro.sample("b", dist.Normal(0, 1).expand([2]).to_event(1))
            with numpyro.plate("rows", x.shape[0]):
                numpyro.sample("y", dist.Bernoulli(logits=level[group] + x @ b), obs=y)

        return model

    def draw(rng, size):
        truth = {
            "mu": rng.normal(),
            "tau": 0.7 * np.exp(rng.normal(0, 0.5)),
            "b": rng.normal(size=2),
        }
        truth["level"] = truth["mu"] + truth["tau"] * rng.normal(size=count)
        group = rng.choice(count, size, p=rng.dirichlet(np.full(count, 3.0)))
        x = features(rng, size, 2)
        y = happens(rng, truth["level"][group] + x @ truth["b"])
        return truth, {"group": named("g", group), "x": x, "y": y}

    columns = {
        "group": tacit.Category(names_of("g", count)),
        "x": tacit.Number(-4, 4, shape=(2,)),
        "y": tacit.Binary(),
    }
    score, few = plain("mu", "-tau", "level", "b"), 3000
    return Case(form(centred), tacit.Schema(columns), draw, score, few, lambda n: form(n >= few))


def crossed():
    """Schools with levels and slopes, crossed with regions: their means are told apart by the prior alone."""

    def model(school, region, x, y=None):
        mu = numpyro.sample("mu", dist.Normal(0, 1))
        tau = numpyro.sample("tau", dist.LogNormal(np.log(0.7), 0.3))
        level = group_levels(GROUPS, mu, tau, centred=True)
        slope = numpyro.sample("slope", dist.Normal(1, 1).expand([GROUPS]).to_event(1))
        effect = numpyro.sample("effect", dist.Normal(0, 0.5).expand([3]).to_event(1))
        sigma = numpyro.sample("sigma", dist.LogNormal(-0.5, 0.7))
        mean = level[school] + effect[region] + slope[school] * x
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("y", dist.Normal(mean, sigma), obs=y)

    def draw(rng, size):
        truth = {"mu": rng.normal(), "tau": 0.7 * np.exp(rng.normal(0, 0.3))}
        truth["level"] = truth["mu"] + truth["tau"] * rng.normal(size=GROUPS)
        truth |= {"slope": rng.normal(1, 1, GROUPS), "effect": rng.normal(0, 0.5, 3)}
        truth["sigma"] = np.exp(rng.normal(-0.5, 0.7))
        school, region = rng.integers(0, GROUPS, size), rng.integers(0, 3, size)
        x = rng.uniform(-1, 1, size)
        mean = truth["level"][school] + truth["effect"][region] + truth["slope"][school] * x
        y = mean + truth["sigma"] * rng.normal(size=size)
        return truth, {"school": named("s", school), "region": named("r", region), "x": x, "y": y}

    columns = {
        "school": tacit.Category(names_of("s", GROUPS)),
        "region": tacit.Category(names_of("r", 3)),
        "x": tacit.Number(-1, 1),
        "y": tacit.Number(-12, 12),
    }
    score = plain("mu", "-tau", "level", "slope", "effect", "-sigma")
    return Case(model, tacit.Schema(columns), draw, score)


def redundant():
    """An intercept beside dummies for all levels of two categories: two directions have the prior alone."""

    def model(ward, arm, x, y=None):
        a = numpyro.sample("a", dist.Normal(0, 1))
        b = numpyro.sample("b", dist.Normal(0, 1))
        of_ward = numpyro.sample("of_ward", dist.Normal(0, 1).expand([6]).to_event(1))
        of_arm = numpyro.sample("of_arm", dist.Normal(0, 1).expand([4]).to_event(1))
        logits = a + of_ward[ward] + of_arm[arm] + b * x
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("y", dist.Bernoulli(logits=logits), obs=y)

    def draw(rng, size):
        truth = {"a": rng.normal(), "b": rng.normal()}
        truth |= {"of_ward": rng.normal(size=6), "of_arm": rng.normal(size=4)}
        ward, arm, x = rng.integers(0, 6, size), rng.integers(0, 4, size), rng.uniform(-1, 1, size)
        logits = truth["a"] + truth["of_ward"][ward] + truth["of_arm"][arm] + truth["b"] * x
        table = {
            "ward": named("w", ward),
            "arm": named("a", arm),
            "x": x,
            "y": happens(rng, logits),
        }
        return truth, table

    columns = {
        "ward": tacit.Category(names_of("w", 6)),
        "arm": tacit.Category(names_of("a", 4)),
        "x": tacit.Number(-1, 1),
        "y": tacit.Binary(),
    }
    return Case(model, tacit.Schema(columns), draw, plain("a", "b", "of_ward", "of_arm"))


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
        y = happens(rng, level[patient] + truth["b"] * u)
        return truth, {"u": u, "patient": patient, "y": y}

    columns = {"u": tacit.Number(-1, 1), "y": tacit.Binary()}
    schema = tacit.Schema(columns, person="patient", most_rows=5)
    score, people = plain("a", "b", "-tau"), lambda table: int(table["patient"].max()) + 1
    return Case(model, schema, draw, score, informative=people)


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
        ALWAYS,
    )


def by_formula(formula, family, columns, priors, draw, link=None):
    """A model by formula; what ``draw`` knows the truth of is scored."""
    schema = tacit.Schema(columns)
    model = tacit.glm(formula, family=family, link=link, schema=schema, priors=priors)
    known, _ = draw(np.random.default_rng(0), 5)
    signs = {name: f"-{name}" for name in ("alpha", "kappa", "drop_out", "sigma")}
    names = [signs.get(name, name) for name in model.function.order if name in known]
    return Case(model, schema, draw, plain(*names))


def by_family(left, family, columns, priors, draw_prior, draw_outcome, right="", link=None):
    """A family of `tacit.glm` with two predictors, and priors under which tables are not extreme.

    ``draw_prior`` draws parameters beside the two coefficients; ``draw_outcome`` columns of the
    outcome, by the sum of the coefficients' terms and the other parameters. Drop-out is not scored
    where follow-up does not end at a constant rate.
    """

    def draw(rng, size):
        truth = {"u": rng.normal(0, 0.7), "v": rng.normal(0, 0.7), **draw_prior(rng)}
        u, v = rng.uniform(-1, 1, (2, size))
        terms = truth["u"] * u + truth["v"] * v
        return truth, {"u": u, "v": v, **draw_outcome(rng, terms, truth)}

    columns = {"u": tacit.Number(-1, 1), "v": tacit.Number(-1, 1), **columns}
    priors = {"u": ("normal", 0, 0.7), "v": ("normal", 0, 0.7), **priors}
    return by_formula(f"{left} ~ u + v{right}", family, columns, priors, draw, link)


def probit():
    def outcome(rng, terms, truth):
        return {"y": (truth["Intercept"] + terms + rng.normal(size=len(terms)) > 0).astype(int)}

    return by_family(
        "y",
        "bernoulli",
        {"y": tacit.Binary()},
        {"Intercept": ("normal", 0, 0.7)},
        lambda rng: {"Intercept": rng.normal(0, 0.7)},
        outcome,
        link="probit",
    )


def interactions():
    """A product, a polynomial and a category."""

    def draw(rng, size):
        truth = {name: rng.normal() for name in ("Intercept", "a", "b", "a:b")}
        truth |= {"poly(c, 2)": rng.normal(size=2), "g": rng.normal(size=2)}
        (a, b, c), g = rng.uniform(-1, 1, (3, size)), rng.integers(0, 3, size)
        logits = truth["Intercept"] + truth["a"] * a + truth["b"] * b + truth["a:b"] * a * b
        logits = logits + np.column_stack([c, (3 * c**2 - 1) / 2]) @ truth["poly(c, 2)"]
        logits = logits + np.append(0, truth["g"])[g]
        return truth, {"a": a, "b": b, "c": c, "g": named("g", g), "y": happens(rng, logits)}

    columns = {name: tacit.Number(-1, 1) for name in "abc"}
    columns |= {"g": tacit.Category(names_of("g", 3)), "y": tacit.Binary()}
    priors = dict.fromkeys(("Intercept", "a", "b", "a:b", "poly(c, 2)", "g"), ("normal", 0, 1))
    return by_formula("y ~ a*b + poly(c, 2) + g", "bernoulli", columns, priors, draw)


def rare_columns():
    """Four binary columns of which one value in a hundred is 1, beside two numbers."""
    flags = names_of("f", 4)
    # Numbers are standardised by their bounds, so that a coefficient is for four units.
    sds = {"Intercept": 1.0, "u": 4.0, "v": 4.0, **dict.fromkeys(flags, 1.0)}

    def draw(rng, size):
        truth = {name: rng.normal(0, sd) for name, sd in sds.items()}
        table = dict(zip("uv", features(rng, size, 2).T, strict=True))
        table |= {flag: (rng.random(size) < 0.01).astype(int) for flag in flags}
        scale = {"u": 4, "v": 4}
        terms = sum(truth[name] * table[name] / scale.get(name, 1) for name in table)
        return truth, {**table, "y": happens(rng, truth["Intercept"] + terms)}

    columns = {name: tacit.Number(-4, 4) for name in "uv"}
    columns |= {name: tacit.Binary() for name in (*flags, "y")}
    priors = {name: ("normal", 0, sd) for name, sd in sds.items()}
    return by_formula(f"y ~ u + v + {' + '.join(flags)}", "bernoulli", columns, priors, draw)


def exposed():
    """Counts by how long each row was watched."""

    def outcome(rng, terms, truth):
        time = rng.uniform(0.2, 5, len(terms))
        return {"time": time, "y": rng.poisson(time * np.exp(truth["Intercept"] + terms))}

    return by_family(
        "y",
        "poisson",
        {"time": tacit.Number(0.2, 5), "y": tacit.Count(200)},
        {"Intercept": ("normal", 0, 0.5)},
        lambda rng: {"Intercept": rng.normal(0, 0.5)},
        outcome,
        right=" + offset(log(time))",
    )


def ordinal():
    levels = ["poor", "fair", "good", "best"]

    def outcome(rng, terms, truth):
        latent = terms + rng.logistic(size=len(terms))
        return {"y": np.array(levels)[np.searchsorted(truth["cutpoint"], latent)]}

    return by_family(
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
    return by_family("y", family, {"y": tacit.Count(200)}, priors, prior, outcome)


def gamma():
    def outcome(rng, terms, truth):
        mean = np.exp(truth["Intercept"] + terms)
        return {"y": rng.gamma(truth["alpha"], mean / truth["alpha"])}

    return by_family(
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

    return by_family(
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

    return by_family(
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


def visits(_, lower, upper):
    """Times that are known to lie between two visits, a year apart; follow-up ends at one of them."""
    before, last = np.floor(lower), np.floor(upper)
    gone = before + 1 > last
    return {
        "time": np.where(gone, np.maximum(last, 1e-3), before),
        "upper": np.where(gone, 0.0, before + 1),
        "status": np.where(gone, "right", "interval"),
    }


TIME_COLUMNS = {
    "time": tacit.Number(0, 10),
    "upper": tacit.Number(0, 10),
    "event": tacit.Binary(),
    "status": tacit.Category(["none", "right", "interval"]),
    "detected": tacit.Category(["none", "left"]),
}


def times(family, left, limit, see=None):
    """Times of at most 10 of another family, seen as ``see`` says of the times and the ends of follow-up."""
    priors = {
        "weibull_ph": {"Intercept": ("normal", 0.5, 0.5), "alpha": ("lognormal", 0.3, 0.4)},
        "lognormal": {"Intercept": ("normal", 1.2, 0.5), "sigma": ("lognormal", -0.3, 0.5)},
        "piecewise_exponential": {"log_hazard": ("normal", -1.8, 0.5)},
    }[family]

    def prior(rng):
        if family == "piecewise_exponential":
            return {"log_hazard": rng.normal(-1.8, 0.5, 4)}
        if family == "lognormal":
            return {"Intercept": rng.normal(1.2, 0.5), "sigma": np.exp(rng.normal(-0.3, 0.5))}
        return {"Intercept": rng.normal(0.5, 0.5), "alpha": np.exp(rng.normal(0.3, 0.4))}

    def outcome(rng, terms, truth):
        size = len(terms)
        wanted = rng.exponential(size=size)
        if family == "lognormal":
            time = np.exp(truth["Intercept"] + terms + truth["sigma"] * rng.normal(size=size))
        elif family == "weibull_ph":
            time = 10 * (wanted / np.exp(truth["Intercept"] + terms)) ** (1 / truth["alpha"])
        else:
            hazard = np.exp(truth["log_hazard"] + terms[:, None])
            passed = np.cumsum(2.5 * hazard, axis=1)
            at = np.minimum((passed < wanted[:, None]).sum(axis=1), 3)
            before = np.where(at > 0, passed[np.arange(size), at - 1], 0.0)
            time = 2.5 * at + (wanted - before) / hazard[np.arange(size), at]
        end = np.minimum(limit(rng, size), 10.0)
        if see is not None:
            return see(rng, time, end)
        return {"time": np.minimum(time, end), "event": (time <= end).astype(int)}

    columns = {name: kind for name, kind in TIME_COLUMNS.items() if name in left}
    if see is detection:  # no measurement is cut off
        columns["time"] = tacit.Number(0, 200)
    return by_family(left, family, columns, priors, prior, outcome)


def detection(_, time, __):
    """Numbers below 2 are only known to be below."""
    return {
        "time": np.maximum(time, 2.0),
        "detected": np.where(time < 2, "left", "none"),
    }


def weighted():
    """Weights as those of a survey, which say nothing about the outcome."""

    def outcome(rng, terms, truth):
        weight = np.clip(rng.gamma(4, 1 / 4, len(terms)), 0, 4)
        return {"w": weight, "y": happens(rng, truth["Intercept"] + terms)}

    return by_family(
        "weighted(y, w)",
        "bernoulli",
        {"w": tacit.Number(0, 4), "y": tacit.Binary()},
        {"Intercept": ("normal", 0, 1)},
        lambda rng: {"Intercept": rng.normal()},
        outcome,
    )


def missing(family):
    """A predictor of which three in ten values are missing, and which depends on the other one."""

    def draw(rng, size):
        truth = {"Intercept": rng.normal(), "u": rng.normal(), "v": rng.normal()}
        v = rng.uniform(-1, 1, size)
        u = rng.normal(0.3 * v, 0.35)
        eta = truth["Intercept"] + truth["u"] * u + truth["v"] * v
        if family == "gaussian":
            truth["sigma"] = np.exp(rng.normal(-0.7, 0.3))
            y = eta + truth["sigma"] * rng.normal(size=size)
        else:
            y = happens(rng, eta)
        return truth, {"u": np.where(rng.random(size) < 0.3, np.nan, u), "v": v, "y": y}

    outcome = tacit.Number(-5, 5) if family == "gaussian" else tacit.Binary()
    columns = {"u": tacit.Number(-1.5, 1.5), "v": tacit.Number(-1, 1), "y": outcome}
    priors = {"Intercept": ("normal", 0, 1), "u": ("normal", 0, 1.5), "v": ("normal", 0, 1)}
    if family == "gaussian":
        priors["sigma"] = ("lognormal", -0.7, 0.3)
    case = by_formula("y ~ mi(u, 0.3 * v, 0.35) + v", family, columns, priors, draw)

    def scaled(rng, size):  # the coefficient of u is for half of its range
        truth, table = draw(rng, size)
        return {**truth, "u": 1.5 * truth["u"]}, table

    return replace(case, draw=scaled)


# Models that are wrong about their tables.
WRONG: dict[str, Callable[[], Case]] = {
    "outliers": lambda: linear(outliers=0.05),
    "overdispersed": lambda: counts(varied=False, wrong=True),
}
CASES: dict[str, Callable[[], Case]] = {
    "logistic-3": lambda: logistic(3, 1.0, 1.0, 4.0),
    "logistic-10": lambda: logistic(10, 1.0, 1.0, 4.0),
    "scaled-10": lambda: logistic(10, 0.4, 2.5, 1.0),
    "correlated-20": lambda: with_intercept(20, (0.0, 1.0, 0.5), rho=0.7),
    "rare": lambda: with_intercept(4, RARE),
    "rare-wide": lambda: with_intercept(4, (0.0, 2.5, 1.0), RARE),
    "rare-columns": rare_columns,
    "interactions": interactions,
    "redundant": redundant,
    "poisson": lambda: counts(varied=False),
    "offset": exposed,
    "negative-binomial": lambda: counts(varied=True),
    "linear": linear,
    "linear-wide": lambda: linear(10.0),
    "linear-vague": lambda: linear(10.0, vague=10.0),
    "student": lambda: linear(freedom=4.0),
    "categorical": categorical,
    "crossed": crossed,
    "hierarchical-centred": lambda: hierarchical(centred=True),
    "hierarchical-noncentred": lambda: hierarchical(centred=False),
    "intercepts-centred": lambda: random_intercepts(centred=True),
    "intercepts-noncentred": lambda: random_intercepts(centred=False),
    "site-effects": lambda: random_intercepts(centred=True, count=10),
    "person": person,
    "mixture": mixture,
    "ordinal": ordinal,
    "zero-inflated": lambda: zero_inflated(varied=False),
    "zero-inflated-nb": lambda: zero_inflated(varied=True),
    "probit": probit,
    "gamma": gamma,
    "beta": beta,
    "weibull": lambda: weibull("censored(time, event)", drop_out, drop_out=0.25),
    "weibull-entry": lambda: weibull("censored(time, event)", spread_entry),
    "weibull-late": lambda: weibull("censored(time, event)", late_entry),
    "weibull-end": lambda: weibull("censored(time, event)", study_ends),
    "weibull-known": lambda: weibull("censored(time, event, end)", drop_out),
    "weibull-ph": lambda: times("weibull_ph", "censored(time, event)", drop_out),
    "weibull-ph-entry": lambda: times("weibull_ph", "censored(time, event)", spread_entry),
    "weibull-ph-visits": lambda: times(
        "weibull_ph", "censored(time, upper, status, 1)", late_entry, visits
    ),
    "weibull-ph-intervals": lambda: times(
        "weibull_ph", "censored(time, upper, status)", late_entry, visits
    ),
    "piecewise": lambda: times("piecewise_exponential", "censored(time, event)", drop_out),
    "lognormal": lambda: times("lognormal", "censored(time, event)", drop_out),
    "lognormal-detected": lambda: times(
        "lognormal", "censored(time, detected, 2)", study_ends, detection
    ),
    "weighted": weighted,
    "missing": lambda: missing("bernoulli"),
    "missing-linear": lambda: missing("gaussian"),
    **WRONG,
}
