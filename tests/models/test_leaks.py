"""Models that would take rows past the boundary, or fit something else: each is refused by name."""

import argparse
import array
import contextvars
import ctypes
import dataclasses
import datetime as dt
import decimal
import enum
import fractions
import functools
import importlib
import io
import itertools
import json
import logging
import math
import mmap
import pathlib
import re
import sqlite3
import sys
import types
import uuid
import weakref
from collections import defaultdict, deque

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
from tacit.privacy.captured import check_captured

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
    "lag-1 dependence": (lagged, ["row before it"], "separate columns"),
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
        "constants that are functions": tacit.models.NumPyro(
            function=lambda x, how, y=None: plain(x, y, how()), constants={"how": lambda: HELD}
        ),
    }


@pytest.mark.parametrize("kind", more())
def test_other_ways_to_capture_rows_are_refused(kind):
    error = refusal(more()[kind])
    assert isinstance(error, BoundaryError)
    assert "constants" in str(error)


@dataclasses.dataclass
class Point:
    value: float
    after: object = None


class Hidden:
    """In slots whose names Python changes."""

    __slots__ = ("__held",)

    def __init__(self, held):
        self.__held = held

    def get(self):
        return self.__held


class Many:
    """A namespace that is a class."""


for _place, _value in enumerate(np.linspace(SENTINEL, 1, 40).tolist()):
    setattr(Many, f"a{_place}", _value)
CONTEXT = contextvars.ContextVar("CONTEXT")
CONTEXT.set(HELD)
# A module of somebody's own, which a function may import as it runs.
SOMEBODYS = types.ModuleType("somebodys_rows")
SOMEBODYS.HELD = HELD
sys.modules["somebodys_rows"] = SOMEBODYS


def linked(floats):
    """A chain of objects, each with one number."""
    first = None
    for each in floats:
        first = Point(each, first)
    return first


def further():
    """What hides numbers: each a value that a model might hold."""
    floats = np.linspace(SENTINEL, 1, 40).tolist()
    whole = int.from_bytes(HELD.tobytes(), "big")
    keyed = dict.fromkeys(floats)
    return {
        "iterator of a list": iter(floats),
        "generator": (each for each in floats),
        "map": map(float, floats),
        "zip": zip(floats, floats, strict=True),
        "cycle": itertools.cycle(floats),
        "keys": keyed.keys(),
        "keys of a dictionary": keyed,
        "items": dict(enumerate(floats)).items(),
        "namespace": types.SimpleNamespace(**{f"a{i}": v for i, v in enumerate(floats)}),
        "arguments of a command": argparse.Namespace(**{f"a{i}": v for i, v in enumerate(floats)}),
        "data class": dataclasses.make_dataclass("Wide", [f"a{i}" for i in range(40)])(*floats),
        "class": Many,
        "objects with a number each": [Point(each) for each in floats],
        "chain of objects": linked(floats),
        "arguments of a partial": functools.partial(print, *floats),
        "numeric texts": [str(each) for each in floats],
        "text of numbers": " ".join(map(str, floats)),
        "text of numbers and commas": json.dumps(floats),
        "text without end": HELD.tobytes().hex(),
        "big integer": whole,
        "fraction": fractions.Fraction(whole, 3),
        "decimal": decimal.Decimal(whole),
        "dates": [dt.date(2000, 1, 1 + i % 28) for i in range(40)],
        "identifiers": [uuid.UUID(int=i) for i in range(40)],
        "array of C": (ctypes.c_double * 40)(*floats),
        "pointer": ctypes.pointer(ctypes.c_double(SENTINEL)),
        "bytes in memory": io.BytesIO(HELD.tobytes()),
        "text in memory": io.StringIO("0.867"),
        "structured scalar": np.zeros(1, [("a", "f8", 40)])[0],
        "memory map": mmap.mmap(-1, 64),
        "weak reference": weakref.ref(SOMEBODYS),
        "weak proxy": weakref.proxy(SOMEBODYS),
        "weak dictionary": weakref.WeakValueDictionary({"a": SOMEBODYS}),
        "context variable": CONTEXT,
        "method of a list": floats.__getitem__,
        "method of a dictionary": dict(enumerate(floats)).get,
        "slots with changed names": Hidden(HELD),
        "error": ValueError(floats),
        "slice": slice(HELD),
        "module in a list": [SOMEBODYS],
        "subclass of a dictionary": type("Own", (dict,), {})(),
        "enumeration": enum.Enum("Levels", {f"a{i}": v for i, v in enumerate(floats)}),
        "default of a dictionary": defaultdict(lambda: floats),
        "indexer of a frame": pd.DataFrame({"a": HELD}).loc,
    }


@pytest.mark.parametrize("kind", further())
def test_what_hides_numbers_is_refused(kind):
    held = further()[kind]
    if kind == "subclass of a dictionary":
        held.rows = HELD
    message = refused_by_the_search(held)
    assert "constants" in message
    assert "0.867" not in message
    assert len(re.findall(r"[.?!](?:\s|$)", message)) == 2


def refused_by_the_search(held):
    def model(x):
        return x * len(str(held))

    with pytest.raises(BoundaryError) as caught:
        check_captured(model)
    return str(caught.value)


def by_globals(x):
    return x * globals()["HELD"][0]


def by_vars(x):
    return x * vars(SOMEBODYS)["HELD"][0]


def by_getattr(x):
    return x * getattr(SOMEBODYS, "HE" + "LD")[0]


def by_modules(x):
    return x * sys.modules[__name__].HELD[0]


def by_modules_taken(x):
    return x * MODULES[__name__].HELD[0]


MODULES = sys.modules


def by_import(x):
    import somebodys_rows

    return x * somebodys_rows.HELD[0]


def by_import_from(x):
    from somebodys_rows import HELD as ROWS

    return x * ROWS[0]


def by_import_by_name(x):
    return x * importlib.import_module("somebodys_rows").HELD[0]


def by_frames(x):
    return x * sys._getframe(1).f_globals["HELD"][0]


def by_eval(x):
    return x * eval("HELD")[0]  # noqa: S307


def by_load(x):
    return x * np.load("rows.npy")[0]


def by_jax_load(x):
    return x * jnp.load("rows.npy")[0]


def by_text(x):
    return x * np.loadtxt("rows.csv")[0]


def by_open(x):
    with open("rows.csv") as file:  # noqa: PTH123
        return x * float(file.readline())


def by_pandas(x):
    return x * pd.read_csv("rows.csv")["y"][0]


def by_polars(x):
    return x * pl.scan_csv("rows.csv").collect()["y"][0]


def by_path(x):
    return x * float(pathlib.Path("rows.csv").read_text())


def by_path_opened(x):
    with pathlib.Path("rows.csv").open() as file:
        return x * float(next(file))


def by_path_held(x):
    with FOLDER.open() as file:
        return x * float(next(file))


def by_database(x):
    return x * sqlite3.connect("rows.db").execute("select y from rows").fetchone()[0]


def by_helper(x):
    return by_load(x)


def by_function_of_a_function(x):
    return x * max([0], key=lambda _: np.load("rows.npy"))


def by_closure(x):
    return x * by_closure.__globals__["HELD"][0]


REACHING = [
    by_globals, by_vars, by_getattr, by_modules, by_modules_taken, by_import, by_import_from,
    by_import_by_name, by_frames, by_eval, by_load, by_jax_load, by_text, by_open, by_pandas,
    by_polars, by_path, by_path_opened, by_path_held, by_database, by_helper,
    by_function_of_a_function, by_closure,
]  # fmt: skip


@pytest.mark.parametrize("model", REACHING, ids=lambda each: each.__name__)
def test_code_that_reads_or_looks_around_is_refused(model):
    with pytest.raises(BoundaryError, match="constants"):
        check_captured(model)


def test_functions_that_read_are_refused_wherever_they_are_held():
    for held in (np.load, open, functools.partial(np.load, "rows.npy"), [pd.read_csv], eval):
        assert "could reach rows" in refused_by_the_search(held)


def test_an_ordinary_model_that_is_given_whole_is_refused_too():
    """By plan, not by the search alone."""
    iterator = iter(HELD.tolist())

    def model(x, y=None):
        plain(x, y, next(iterator))

    assert "an iterator" in str(refusal(model))


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


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


PRIORS = {"age": (0.0, 1.0), "dose": (0.0, 2.5), "ward": (0.0, 0.5)}
WARDS = tuple(f"ward {number}" for number in range(40))
LEVELS = {name: place for place, name in enumerate("abcdefgh")}
NOTE = "Normal(0, 1) priors; see section 3.2 of the protocol, version 1.4 of 12 May."
LAYERS = [8, 8, 1]
STARTED = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)


class Regression:
    """As people write models: a class with a few settings and methods."""

    scale: float = 2.5

    def __init__(self, degree=3, *, wide=False):
        self.degree, self.wide, self.names = degree, wide, list(WARDS)
        self.log = LOG
        self.path = FOLDER

    @property
    def powers(self):
        return range(1, self.degree + 1)

    def __call__(self, x, y=None):
        how = getattr(dist, "Normal")  # noqa: B009
        slope = numpyro.sample("slope", how(0.0, self.scale))
        centre = sum(slope * x**power for power in self.powers)
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("y", how(centre, PRIORS["age"][1]), obs=y)


def test_ordinary_models_are_fine():
    def shaped(x):
        import math as m

        from scipy.special import expit

        sizes = [width * 2 for width in LAYERS]
        kind = {"low": Level.LOW, "high": Level.HIGH}[("low", "high")[len(sizes) > 2]]
        pairs = zip(LEVELS, sizes, strict=False)
        total = sum(size for _, size in pairs) + len(WARDS) + len(NOTE) + STARTED.year
        return x * m.exp(-total) * expit(0.1) * kind + np.float32(2) + jnp.asarray(LAYERS).sum()

    half = functools.partial(jnp.multiply, 0.5)

    def step(x, *, rate=half):
        return jax.lax.scan(lambda held, _: (rate(held), None), x, None, length=3)[0]

    check_captured(shaped, step, jax.jit(shaped), Regression(), dist.Normal(0.0, 1.0), LAYERS)
    tacit.plan(Regression(), SCHEMA, budget=tacit.Budget(1, 1e-5))


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


def test_an_attribute_is_not_the_global_of_its_name():
    """In a notebook, columns of rows are called what attributes are called."""
    own = types.SimpleNamespace(HELD=0.5)

    def model(x, y=None):
        plain(x, y, own.HELD)

    check_captured(model)


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
