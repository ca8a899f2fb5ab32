"""Families of outcomes: what a row's outcome is distributed like, given the linear predictor.

Everything here is on a public scale. Each family says where an intercept is centred, how far
apart coefficients may plausibly be, and in which unit the fit takes its steps, by the declared
bounds of the outcome.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from formulae.terms.call_resolver import LazyCall
from jax.scipy.special import log_ndtr
from numpyro import distributions as dist

from tacit.errors import InvalidArgument
from tacit.models.expressions import Columns, Facts, KnownColumns, facts_of, number, own
from tacit.models.formula import Parts, callee_of, name_of, parts_of, text_of

# Beyond this many times the outcome's bounds an expected outcome makes no sense, and its
# exponential could overflow.
_LOG_ROOM = 5.0
# The least standard deviation, in halves of the outcome's range: below it gradients explode.
_LEAST_SPREAD = 1e-3


class Outcome(NamedTuple):
    """What is observed of a row."""

    name: str
    columns: frozenset[str]
    facts: Facts
    read: Callable[[Columns], jax.Array]
    trials: Callable[[Columns], jax.Array] | None = None
    most_trials: float = 1.0
    levels: tuple[str, ...] = ()  # of a category with coefficients of their own
    described: str = ""


class Scales(NamedTuple):
    """Public scales of a linear predictor: its middle, its spread and the steps of a fit."""

    middle: float
    spread: float
    unit: float


@dataclass(frozen=True, kw_only=True)
class Family:
    """A distribution of outcomes. ``links`` has the prior sd of coefficients for each link."""

    name: str
    kinds: tuple[str, ...]
    wants: str
    links: Mapping[str, float]
    scales: Callable[[Outcome], Scales]
    distribution: Callable[[Outcome, str, jax.Array, Any, Columns], Any]
    extra: str | None = None  # a further parameter, above zero

    @property
    def link(self) -> str:
        """The one by default."""
        return next(iter(self.links))

    def extra_prior(self, scales: Scales) -> Any:
        """Of the further parameter."""
        if self.extra == "sigma":
            return dist.HalfNormal(scales.spread / 2)
        return dist.LogNormal(1.0, 1.5)

    def extra_start(self, scales: Scales) -> float:
        """Where a fit begins with it."""
        return scales.spread / 4 if self.extra == "sigma" else 1.0


def _logits(link: str, eta: jax.Array) -> jax.Array:
    """The log-odds that a link function's value means."""
    if link == "probit":
        return jnp.asarray(log_ndtr(eta) - log_ndtr(-eta))
    if link == "cloglog":  # beyond the limits the outcome is certain either way
        return jnp.log(jnp.expm1(jnp.exp(jnp.clip(eta, -30.0, 4.0))))
    return eta


def _bounded(outcome: Outcome, eta: jax.Array) -> jax.Array:
    """The exponential of a linear predictor, kept where it is finite."""
    most = math.log(outcome.facts.high) + _LOG_ROOM
    return jnp.exp(jnp.clip(eta, -2 * _LOG_ROOM - most, most))


def _bernoulli(_: Outcome, link: str, eta: jax.Array, __: Any, ___: Columns) -> Any:
    return dist.Bernoulli(logits=_logits(link, eta))


def _binomial(outcome: Outcome, link: str, eta: jax.Array, _: Any, columns: Columns) -> Any:
    assert outcome.trials is not None
    return dist.Binomial(outcome.trials(columns), logits=_logits(link, eta))


def _gaussian(outcome: Outcome, _: str, eta: jax.Array, sigma: Any, __: Columns) -> Any:
    return dist.Normal(eta, jnp.maximum(sigma, _LEAST_SPREAD * outcome.facts.half))


def _poisson(outcome: Outcome, _: str, eta: jax.Array, __: Any, ___: Columns) -> Any:
    return dist.Poisson(_bounded(outcome, eta))


def _negative_binomial(outcome: Outcome, _: str, eta: jax.Array, alpha: Any, __: Columns) -> Any:
    return dist.NegativeBinomial2(_bounded(outcome, eta), alpha)


def _gamma(outcome: Outcome, _: str, eta: jax.Array, alpha: Any, __: Columns) -> Any:
    return dist.Gamma(alpha, alpha / _bounded(outcome, eta))


def _categorical(_: Outcome, __: str, eta: jax.Array, ___: Any, ____: Columns) -> Any:
    reference = jnp.zeros((*eta.shape[:-1], 1), eta.dtype)
    return dist.Categorical(logits=jnp.concatenate([reference, eta], axis=-1))


# Units are such that a row's gradient is rarely longer than the usual clip: clipping biases,
# spreads above all. A larger unit would need less noise, a smaller one is clipped less.
def _gamma_scales(outcome: Outcome) -> Scales:
    middle = (math.log(outcome.facts.low) + math.log(outcome.facts.high)) / 2
    return Scales(middle, 1.0, 0.4)


def _count_scales(outcome: Outcome) -> Scales:
    # Counts are mostly far below their bound: the middle is one on a logarithmic scale.
    middle = (math.log1p(outcome.facts.low) + math.log1p(outcome.facts.high)) / 2
    return Scales(middle, 1.0, math.exp(-middle / 2))


def _plain_scales(outcome: Outcome) -> Scales:
    return Scales(0.0, 1.0, 1.0 / math.sqrt(max(outcome.most_trials / 8, 1.0)))


def _gaussian_scales(outcome: Outcome) -> Scales:
    return Scales(outcome.facts.middle, outcome.facts.half, outcome.facts.half / 10)


_YES_OR_NO = {"logit": 2.5, "probit": 1.5, "cloglog": 2.0}
FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        Family(
            name="bernoulli",
            kinds=("binary",),
            wants="a Binary column, or one level of a Category as in y['level']",
            links=_YES_OR_NO,
            scales=_plain_scales,
            distribution=_bernoulli,
        ),
        Family(
            name="binomial",
            kinds=("count",),
            wants="p(successes, trials) of two Count columns",
            links=_YES_OR_NO,
            scales=_plain_scales,
            distribution=_binomial,
        ),
        Family(
            name="gaussian",
            kinds=("number", "count"),
            wants="a Number or a Count",
            links={"identity": 1.0},
            scales=_gaussian_scales,
            distribution=_gaussian,
            extra="sigma",
        ),
        Family(
            name="poisson",
            kinds=("count",),
            wants="a Count from 0 or more",
            links={"log": 2.0},
            scales=_count_scales,
            distribution=_poisson,
        ),
        Family(
            name="negativebinomial",
            kinds=("count",),
            wants="a Count from 0 or more",
            links={"log": 2.0},
            scales=_count_scales,
            distribution=_negative_binomial,
            extra="alpha",
        ),
        Family(
            name="gamma",
            kinds=("number",),
            wants="a Number whose lower bound is above zero",
            links={"log": 2.0},
            scales=_gamma_scales,
            distribution=_gamma,
            extra="alpha",
        ),
        Family(
            name="categorical",
            kinds=("category",),
            wants="a Category of two or more levels",
            links={"softmax": 2.5},
            scales=_plain_scales,
            distribution=_categorical,
        ),
    )
}


_USUAL = {
    "binary": "bernoulli",
    "number": "gaussian",
    "count": "poisson",
    "category": "categorical",
}


def usual_family(formula: str, known: KnownColumns) -> str:
    """The family that fits the kind of the outcome best, for who names none."""
    parts = parts_of(formula)
    name = name_of(parts.response)
    if name is None:  # another calculation is refused with what to do about it
        return "binomial" if _is_proportion(parts.response) else "gaussian"
    return "bernoulli" if parts.level is not None else _USUAL[facts_of(name, known).kind]


def _is_proportion(node: Any) -> bool:
    return callee_of(node) in {"p", "prop", "proportion"}


def outcome_of(parts: Parts, family: Family, known: KnownColumns) -> Outcome:
    """What the part before ~ means for a family; refuses what does not fit it."""
    node = parts.response
    if family.name == "binomial":
        return _proportion(node, family, known)
    name = name_of(node)
    if name is None:
        raise InvalidArgument(
            f"The outcome {text_of(node)!r} must be a column itself, not a calculation; put what "
            "was calculated into a column of the data, with bounds of its own."
        )
    facts = facts_of(name, known)
    if parts.level is not None:
        return _one_level(name, facts, parts.level, family)
    if facts.kind not in family.kinds:
        raise _misfit(name, facts, family)
    if family.name in {"poisson", "negativebinomial"} and facts.low < 0:
        raise _misfit(name, facts, family)
    if family.name == "gamma" and facts.low <= 0:
        raise InvalidArgument(
            f"The gamma family needs an outcome above zero, and {name!r} may be {facts.low:g}; "
            "declare a lower bound above zero that outcomes below it are moved to, or use the "
            "gaussian family."
        )
    if facts.kind in {"binary", "category"}:
        if len(facts.levels) < 2:
            raise _misfit(name, facts, family)
        first, *rest = facts.levels
        said = f"{name} is {first} by reference" if len(rest) > 1 else f"{name} is {rest[0]}"
        levels = tuple(rest) if family.name == "categorical" else ()
        return Outcome(
            name, frozenset([name]), facts, lambda c: c[name], levels=levels, described=said
        )
    read = own(name, facts) if facts.kind == "number" or family.name == "gaussian" else None
    said = f"{name}, {facts.low:.4g} to {facts.high:.4g}"
    return Outcome(name, frozenset([name]), facts, read or (lambda c: c[name]), described=said)


def _misfit(name: str, facts: Facts, family: Family) -> InvalidArgument:
    hint = (
        f"; say which level counts, as in {name}['{facts.levels[0]}']"
        if (family.name == "bernoulli" and facts.kind == "category")
        else ""
    )
    return InvalidArgument(
        f"The {family.name} family needs {family.wants}; {name!r} is declared as a {facts.kind}"
        f"{'' if facts.levels else f' from {facts.low:g} to {facts.high:g}'}{hint}."
    )


def _one_level(name: str, facts: Facts, level: str, family: Family) -> Outcome:
    if family.name != "bernoulli":
        raise InvalidArgument(
            f"{name}['{level}'] is a yes or no, which is for the bernoulli family; here it is "
            f"{family.name}."
        )
    if level not in facts.levels:
        levels = ", ".join(facts.levels) or "none"
        raise InvalidArgument(f"{name!r} has no level {level!r}; its levels are {levels}.")
    code = facts.levels.index(level)
    return Outcome(
        name,
        frozenset([name]),
        facts,
        lambda c: (c[name] == code).astype(jnp.int32),
        described=f"{name} is {level}",
    )


def _proportion(node: Any, family: Family, known: KnownColumns) -> Outcome:
    names = list(node.args) if isinstance(node, LazyCall) and not node.kwargs else []
    if not _is_proportion(node) or len(names) != 2:
        raise InvalidArgument(
            f"The binomial family needs {family.wants}, as in p(cured, treated) ~ dose; got "
            f"{text_of(node)!r}."
        )
    name = name_of(names[0])
    if name is None or facts_of(name, known).kind != "count" or known[name].low < 0:
        raise InvalidArgument(f"The successes in {text_of(node)!r} must be a Count from 0 or more.")
    total = name_of(names[1])
    trials: Callable[[Columns], jax.Array]
    if total is None:
        most = number(names[1])
        if most != int(most) or most < 1:
            raise InvalidArgument(f"The trials in {text_of(node)!r} must be a whole number.")
        fixed = int(most)
        columns, trials = frozenset([name]), lambda c: jnp.full_like(c[name], fixed)
    else:
        if facts_of(total, known).kind != "count" or known[total].low < 0:
            raise InvalidArgument(f"The trials in {text_of(node)!r} must be a Count.")
        columns, trials, most = frozenset([name, total]), lambda c: c[total], known[total].high
    # More successes than trials is a fault in a cell, and is moved to the nearest that can be.
    return Outcome(
        name,
        columns,
        known[name],
        lambda c: jnp.minimum(c[name], trials(c)),
        trials=trials,
        most_trials=most,
        described=f"{text_of(names[0])} of {text_of(names[1])} trials",
    )
