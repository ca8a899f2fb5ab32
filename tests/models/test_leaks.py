"""Models that would take rows past the boundary, or fit something else: each is refused by name."""

import array
import dataclasses
import datetime as dt
import enum
import functools
import logging
import math
import pathlib
import re
import sys
import types
from collections import deque

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import polars as pl
import pytest
from numpyro import handlers
from scipy import special

import tacit
from tacit.errors import BoundaryError, InvalidArgument, TacitError

SCHEMA = tacit.Schema({"x": tacit.Number(-1, 1), "y": tacit.Number(-5, 5)})
# A value that stands for somebody's: it must appear in no message.
SENTINEL = 0.8675309
HELD = np.full(40, SENTINEL)


def refusal(model, schema=SCHEMA):
    """The error of planning a model, which must be one of ours."""
    with pytest.raises(TacitError) as caught:
        tacit.plan(model, schema, budget=tacit.Budget(1, 1e-5))
    return caught.value


def chain(error):
    """All texts of an error and of what it came from."""
    seen = []
    while error is not None and error not in seen:
        seen.append(error)
        error = error.__cause__ or error.__context__
    return [str(each) for each in seen]


# The twelve kinds: what the message must name, and what it must say to do.


def data_dependent_prior(x, y=None):
    slope = numpyro.sample("slope", dist.Normal(x.mean(), 1.0))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Normal(slope * x, 1.0), obs=y)


def data_dependent_support(x, y=None):
    ceiling = numpyro.sample("ceiling", dist.Uniform(0.0, 6.0 + y.max()))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Normal(ceiling * x, 1.0), obs=y)


def local_latent(x, y=None):
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
    with numpyro.plate("rows", x.shape[0]):
        shift = numpyro.sample("shift", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(slope * x + shift, 1.0), obs=y)


def observed_outside(x, y=None):
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
    numpyro.sample("total", dist.Normal(slope, 1.0), obs=y.sum())
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Normal(slope * x, 1.0), obs=y)


def batch_normalised(x, y=None):
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
    standard = (x - x.mean()) / (x.std() + 0.1)
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Normal(slope * standard, 1.0), obs=y)


def lagged(x, y=None):
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
    before = jnp.concatenate([jnp.zeros(1), y[:-1]])
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Normal(slope * before + x, 1.0), obs=y)


def coupled_to_one_row(x, y=None):
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Normal(slope * (x - x[0]), 1.0), obs=y)


def plain(x, y=None, shift=0.0):
    """Qualifies; what goes wrong below is how it is given."""
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Normal(slope * x + float(np.mean(shift)), 1.0), obs=y)


def holding_an_array(x, y=None, held=HELD):
    plain(x, y, held)


def closed_over():
    inside = HELD.copy()

    def model(x, y=None):
        plain(x, y, inside)

    return model


def of_a_global(x, y=None):
    plain(x, y, HELD)


def branching(x, y=None):
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
    with numpyro.plate("rows", x.shape[0]):
        scale = 1.0 if y[0] > 0 else 2.0
        numpyro.sample("y", dist.Normal(slope * x, scale), obs=y)


TWELVE = {
    "data-dependent prior": (data_dependent_prior, ["'slope'", "depends on x"], "bounds"),
    "data-dependent support": (data_dependent_support, ["'ceiling'", "depends on y"], "bounds"),
    "local latent": (local_latent, ["'shift'"], "integrate=['shift']"),
    "observation outside the plate": (
        observed_outside,
        ["'total'", "observes y"],
        "into the plate",
    ),
    "batch normalisation": (batch_normalised, ["all other rows"], "standardise by declared"),
    "lag-1 dependence": (lagged, ["row before it"], "columns of its own"),
    "one-row coupling": (coupled_to_one_row, ["one and the same row"], "declared constant"),
    "captured array": (holding_an_array, ["holding_an_array", "default", "held"], "constants"),
    "closure": (closed_over(), ["model", "closure", "inside"], "constants"),
    "global": (of_a_global, ["of_a_global", "global", "HELD"], "constants"),
    "partial": (functools.partial(plain, shift=HELD), ["partial", "shift"], "constants"),
    "Python branch on data": (branching, ["in Python"], "jnp.where"),
}


@pytest.mark.parametrize("kind", TWELVE)
def test_the_twelve_kinds_are_refused_each_by_name(kind):
    model, named, remedy = TWELVE[kind]
    error = refusal(model)
    message = str(error)
    for words in (*named, remedy):
        assert words in message
    assert isinstance(error, BoundaryError if remedy == "constants" else InvalidArgument)


def test_their_messages_differ_and_are_short():
    messages = [str(refusal(model)) for model, _, _ in TWELVE.values()]
    assert len(set(messages)) == len(messages)
    # With the names left out, too: a closure is not told as a global is.
    names = r"holding_an_array|of_a_global|held|inside|HELD|shift|model|plain"
    assert len({re.sub(names, "", each) for each in messages}) == len(messages)
    for message in messages:
        assert len(re.findall(r"[.?!](?:\s|$)", message)) <= 2, message
        assert message.endswith(".")


def test_no_value_is_in_a_message():
    for model, _, _ in [*TWELVE.values(), *((each, (), "") for each in more().values())]:
        for text in chain(refusal(model)):
            assert "0.867" not in text


class Holder:
    def __init__(self):
        self.held = HELD

    def model(self, x, y=None):
        plain(x, y, self.held)


class OfAClass:
    held = HELD

    @classmethod
    def model(cls, x, y=None):
        plain(x, y, cls.held)

    @staticmethod
    def unbound(x, y=None):
        plain(x, y, OfAClass.held)


class Called:
    def __call__(self, x, y=None):
        plain(x, y, HELD)


class Slots:
    __slots__ = ("held",)

    def __init__(self):
        self.held = HELD


def with_attribute(x, y=None):
    plain(x, y, with_attribute.held)


with_attribute.held = HELD


def calling(x, y=None):
    helper(x, y)


def helper(x, y, *, held=HELD):
    plain(x, y, held)


def of_a_module():
    module = types.ModuleType("somebodys_data")
    module.HELD = HELD

    def model(x, y=None):
        plain(x, y, module.HELD)

    return model


def decorated(function):
    rows = HELD.copy()

    @functools.wraps(function)
    def model(x, y=None):
        function(x, y, rows)

    return model


def capturing(value, use=list):
    def model(x, y=None):
        plain(x, y, use(value))

    return model


def more():
    """Beyond the twelve: other ways for an array of rows to come along."""
    floats, frame = HELD.tolist(), pd.DataFrame({"y": HELD})
    slots = Slots()
    return {
        "keyword default of a helper": calling,
        "attribute of an object": Holder().model,
        "attribute of a class": OfAClass.model,
        "static method of a class": OfAClass.unbound,
        "an object that is called": Called(),
        "slots": lambda x, y=None: plain(x, y, slots.held),
        "attribute of a function": with_attribute,
        "global of another module": of_a_module(),
        "list of floats": capturing(floats),
        "list of short lists": capturing([floats[:3] for _ in range(10)]),
        "dictionary of floats": capturing(dict(enumerate(floats)).values()),
        "dictionary of floats, whole": capturing(dict(enumerate(floats)), lambda d: [*d.values()]),
        "set of floats": capturing(set(np.linspace(SENTINEL, 1, 40).tolist())),
        "deque": capturing(deque(floats)),
        "array of the standard library": capturing(array.array("d", floats)),
        "bytes": capturing(HELD.tobytes(), np.frombuffer),
        "jax array": capturing(jnp.asarray(HELD)),
        "pandas frame": capturing(frame, lambda held: held["y"].to_numpy()),
        "pandas series": capturing(frame["y"]),
        "polars series": capturing(pl.Series(floats)),
        "jitted": jax.jit(closed_over()),
        "decorator": decorated(plain),
        "lambda inside": lambda x, y=None: plain(x, y, max([0], key=lambda i: HELD[i])),
        "handler around": handlers.scale(closed_over(), scale=1.0),
        "handler that holds": handlers.substitute(plain, data={"slope": HELD}),
        "handler with a function": handlers.block(
            plain, hide_fn=lambda site: site["name"] == HELD[0]
        ),
        "partial of a partial": functools.partial(functools.partial(plain, None), None, HELD),
        "constants that are functions": tacit.NumPyro(
            function=lambda x, how, y=None: plain(x, y, how()), constants={"how": lambda: HELD}
        ),
    }


@pytest.mark.parametrize("kind", more())
def test_other_ways_to_capture_rows_are_refused(kind):
    error = refusal(more()[kind])
    assert isinstance(error, BoundaryError)
    assert "constants" in str(error)


def test_a_default_is_found_whatever_was_searched_before():
    """What was seen is remembered by what it is, not by an address that is used again."""

    def first(x, *, a=1, b=2):
        return x

    def second(x, *, a=1, held=HELD):
        return x

    def model(x, y=None):
        plain(second(first(x)), y)

    for _ in range(20):
        assert "held" in str(refusal(model))


LOG = logging.getLogger(__name__)
FOLDER, PATTERN = pathlib.Path("somewhere"), re.compile("a+")


class Link(enum.Enum):
    LOGIT = 1
    PROBIT = 2


@dataclasses.dataclass(frozen=True)
class Settings:
    scale: float = 1.0
    link: Link = Link.LOGIT
    shape: tuple[int, ...] = (3, 2)

    @property
    def half(self):
        return self.scale / 2


def test_ordinary_things_around_a_model_are_fine():
    own, generator = Settings(), np.random.default_rng(0)

    @functools.lru_cache
    def constant(k):
        return math.lgamma(k) + special.gammaln(k)

    def model(x, y=None):
        LOG.debug("on %s, %s, %s", FOLDER, PATTERN.pattern, dt.date(2020, 1, 1))
        assert own.link is Link.LOGIT
        assert isinstance(generator, np.random.Generator)
        plain(x, y, own.half * constant(2) + np.pi)

    tacit.plan(model, SCHEMA, budget=tacit.Budget(1, 1e-5))


def test_a_model_of_this_file_that_captures_nothing_is_fine():
    assert "HELD" in vars(sys.modules[__name__])
    scales = {"narrow": 0.5, "wide": 2.0}

    def model(x, y=None):
        plain(x, y, scales["narrow"])

    tacit.plan(model, SCHEMA, budget=tacit.Budget(1, 1e-5))


OTHER_MEETINGS = {
    "sorted": jnp.sort,
    "ranked": lambda v: jnp.argsort(jnp.argsort(v)) * 1.0,
    "shuffled": lambda v: v[::-1],
    "least": lambda v: v - v.min(),
    "normalised to sum one": lambda v: v / jnp.sum(jnp.abs(v)),
    "count of rows": lambda v: v / v.shape[0],
    "place of the row": lambda v: v * jnp.arange(v.shape[0]),
    "later row": lambda v: jnp.concatenate([v[1:], jnp.zeros(1)]),
}


@pytest.mark.parametrize("how", OTHER_MEETINGS)
def test_rows_meet_in_other_ways(how):
    meet = OTHER_MEETINGS[how]

    def model(x, y=None):
        slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
        centre = slope * meet(x)
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("y", dist.Normal(centre, 1.0), obs=y)

    assert "row" in str(refusal(model))


def prior_by_count(x, y=None):
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0 / x.shape[0]))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Normal(slope * x, 1.0), obs=y)


def size_by_count(x, y=None):
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0).expand([x.shape[0]]).to_event(1))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Normal(slope[0] * x, 1.0), obs=y)


def free_parameter(x, y=None):
    slope = numpyro.param("slope", jnp.zeros(()))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Normal(slope * x, 1.0), obs=y)


def factor_outside(x, y=None):
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
    numpyro.factor("penalty", -slope * y.sum())
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Normal(slope * x, 1.0), obs=y)


def numpy_on_rows(x, y=None):
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Normal(slope * np.asarray(x), 1.0), obs=y)


def printing(x, y=None):
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
    jax.debug.print("{}", x)
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Normal(slope * x, 1.0), obs=y)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (prior_by_count, "number of rows"),
        (size_by_count, "number of rows"),
        (free_parameter, "'slope'"),
        (factor_outside, "'penalty'"),
        (numpy_on_rows, "jax.numpy"),
        (printing, "prints"),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_further_leaks(model, words):
    message = str(refusal(model))
    assert words in message
