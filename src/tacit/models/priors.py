"""Priors of the parameters of a formula: checks of those that a user gives."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from numpyro import distributions as dist
from numpyro.distributions import constraints
from scipy import stats

from tacit import _validate
from tacit.errors import InvalidArgument
from tacit.models.formula import unlike

_NAMED: dict[str, tuple[Any, str]] = {
    "beta": (dist.Beta, "first shape, second shape"),
    "cauchy": (dist.Cauchy, "location, scale"),
    "exponential": (dist.Exponential, "rate"),
    "gamma": (dist.Gamma, "shape, rate"),
    "halfcauchy": (dist.HalfCauchy, "scale"),
    "halfnormal": (dist.HalfNormal, "scale"),
    "laplace": (dist.Laplace, "location, scale"),
    "lognormal": (dist.LogNormal, "location, scale"),
    "normal": (dist.Normal, "location, scale"),
    "studentt": (dist.StudentT, "degrees of freedom, location, scale"),
}
# The name of a prior in words, and the same distribution in SciPy, by the name of its class.
_WORDS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "Beta": ("beta", lambda p: stats.beta(p.concentration1, p.concentration0)),
    "Cauchy": ("Cauchy", lambda p: stats.cauchy(p.loc, p.scale)),
    "Exponential": ("exponential", lambda p: stats.expon(scale=1 / p.rate)),
    "Gamma": ("gamma", lambda p: stats.gamma(p.concentration, scale=1 / p.rate)),
    "HalfCauchy": ("half-Cauchy", lambda p: stats.halfcauchy(scale=p.scale)),
    "HalfNormal": ("half-normal", lambda p: stats.halfnorm(scale=p.scale)),
    "Laplace": ("Laplace", lambda p: stats.laplace(p.loc, p.scale)),
    "LogNormal": ("log-normal", lambda p: stats.lognorm(p.scale, scale=math.exp(p.loc))),
    "Normal": ("normal", lambda p: stats.norm(p.loc, p.scale)),
    "StudentT": ("Student's t", lambda p: stats.t(p.df, p.loc, p.scale)),
}
_POSITIVE = (constraints.positive, constraints.nonnegative)
# Where a prior may lie, in words, and supports that do.
_PLACES = (
    ("the positive numbers", _POSITIVE),
    ("the numbers between 0 and 1", (constraints.unit_interval,)),
    ("all real numbers", (constraints.real,)),
)


def completed(defaults: Mapping[str, Any], given: Mapping[str, Any] | None) -> dict[str, Any]:
    """The default priors, with those that the user gave instead."""
    if given is not None and not isinstance(given, Mapping):
        raise InvalidArgument('priors must be a mapping such as {"age": ("normal", 0, 1)}.')
    found = dict(defaults)
    for name, prior in (given or {}).items():
        if name not in defaults:
            raise unlike("priors names", name, defaults)
        found[name] = _checked(name, prior, defaults[name])
    return found


def _checked(name: str, prior: Any, default: Any) -> Any:
    made = _made(name, prior) if isinstance(prior, tuple | list) else prior
    if not isinstance(made, dist.Distribution) or made.batch_shape or made.event_shape:
        raise InvalidArgument(
            f'The prior of {name!r} must be a tuple such as ("normal", 0, 1), or a NumPyro '
            "distribution over a single number."
        )
    where, allowed = next(each for each in _PLACES if _among(default.support, each[1]))
    if not _among(made.support, allowed):
        raise InvalidArgument(f"The prior of {name!r} must be a distribution over {where}.")
    return _plain(made)


def _among(support: Any, supports: tuple[Any, ...]) -> bool:
    return any(support is each for each in supports)


def _plain(prior: Any) -> Any:
    """The same prior with Python numbers, because an array in a model could hold rows."""
    try:
        numbers = {name: float(value) for name, value in prior.get_args().items()}
        return type(prior)(**numbers)
    except (AttributeError, TypeError):
        return prior  # a transformed distribution, for example


def _made(name: str, prior: Any) -> Any:
    kind = prior[0] if prior else None
    if kind not in _NAMED:
        raise InvalidArgument(
            f"The prior of {name!r} must be one of {', '.join(_NAMED)}, with its numbers; got "
            f"{kind!r}."
        )
    make, wanted = _NAMED[kind]
    numbers = [_validate.finite(f"the prior of {name!r}", each) for each in prior[1:]]
    if len(numbers) != len(wanted.split(", ")):
        raise InvalidArgument(f"The {kind} prior of {name!r} needs {wanted}; got {prior[1:]!r}.")
    try:
        return make(*numbers, validate_args=True)
    except ValueError:
        raise InvalidArgument(
            f"The prior of {name!r} has a number out of range; a {kind} prior has {wanted}, and scales "
            "and rates must be positive."
        ) from None


def described(prior: dist.Distribution) -> str:
    """A prior as text.

    >>> described(dist.Normal(0, 2.5))
    'Normal(0, 2.5)'
    """
    try:
        numbers = [f"{float(value):.4g}" for value in prior.get_args().values()]
    except (AttributeError, TypeError):
        numbers = ["..."]
    return f"{type(prior).__name__}({', '.join(numbers)})"


def in_words(prior: dist.Distribution) -> tuple[str, float | None, float | None]:
    """The name of a prior, and the ends of its central 95%, if they are known.

    >>> in_words(dist.Normal(0, 1))
    ('normal', -1.96, 1.96)
    """
    kind = type(prior).__name__
    if kind not in _WORDS:
        return kind, None, None
    name, known = _WORDS[kind]
    low, high = (float(f"{end:.5g}") for end in known(prior).ppf([0.025, 0.975]))
    return name, low, high
