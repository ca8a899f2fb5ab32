"""Units meet in no admitted operation: one is changed, and all others contribute what they did.

Every operation on the list runs as it does in a release, a batch at a time under `vmap`, compiled.
One unit of the batch then becomes NaN, infinite, huge, tiny, zero, out of range, slow to
converge; first, last and between. JAX's own rules for batches decide what happens, so this is
also the test of a new version of JAX.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from jax.extend.core import primitives
from jax.extend.random import threefry_2x32

from tacit.errors import BoundaryError
from tacit.privacy import trace
from tacit.privacy.clipping import clip_to_lattice
from tacit.privacy.trace import all_equations, check_per_unit

WIDTH = 19  # two registers of eight numbers and a rest
PLACES = (9, 0, WIDTH - 1)
POINTS, MARGIN = 2**20, 128  # of the lattice, and what PROOFS.md, Lemma 1, leaves for last bits
BAD = {
    "f": [np.nan, np.inf, -np.inf, 3e38, 1e-45, 0.0, -1.0, 1e6, 1e-7, 0.999999],
    "i": [0, -1, 2**31 - 1, -(2**31), 7, 3, 1, 2, 59, 100],
    "b": [True, False] * 5,
}
MATRIX = np.random.default_rng(1).uniform(0.1, 0.9, (3, 3)).astype(np.float32) + 2 * np.eye(
    3, dtype=np.float32
)


class Group(NamedTuple):
    """Functions of the same operands, so that one program holds them all."""

    kinds: tuple
    functions: list


GROUPS = {}


def group(name, *kinds, **functions):
    """Operands are a letter and a shape: "f3x3" is a real matrix, "i" whole, "b5" yes or no."""
    GROUPS[name] = Group(kinds, list(functions.items()))


def named(names):
    return {name: getattr(lax, name) for name in names.split()}


group("one number", "f5", **named(
    "abs acos acosh asin asinh atan atanh bessel_i0e bessel_i1e cbrt ceil cos cosh digamma erf "
    "erf_inv erfc exp exp2 expm1 floor is_finite lgamma log log1p logistic neg round rsqrt sign "
    "sin sinh sqrt square tan tanh stop_gradient"),
    powers=lambda x: lax.integer_pow(x, 3),
    bits=lambda x: lax.bitcast_convert_type(x, jnp.int32),
    whole=lambda x: x.astype(jnp.int32),
    half=lambda x: x.astype(jnp.float16),
    rough=lambda x: lax.reduce_precision(x, 5, 3),
    added=jax.grad(lambda x: jnp.sum(jnp.sin(x) * x + x * x)),
    copied=lambda x: jnp.array(x, copy=True),
    relu=jax.nn.relu,
    softplus=jax.nn.softplus,
    jitted=jax.jit(jnp.sin),
    named=lambda x: checkpoint_name(x, "a"),
    again=jax.grad(jax.checkpoint(lambda x: jnp.sin(jnp.sin(x)).sum())),
    blank=lambda x: x + primitives.empty2_p.bind(
        dtype=x.dtype, memory_space=jax.typeof(x).memory_space),
    platform=lambda x: lax.platform_dependent(x, cpu=jnp.sin, default=jnp.cos),
)  # fmt: skip
group("two numbers", "f5", "f5", **named(
    "add atan2 div eq ge gt le lt max min mul ne nextafter pow rem sub"),
    joined=lambda x, y: jnp.concatenate([x, y]),
    stacked=lambda x, y: jnp.stack([x, y]),
    barrier=lambda x, y: lax.optimization_barrier((x, y)),
    conj=lambda x, y: jnp.conj(lax.complex(x, y)),
    real=lambda x, y: jnp.real(lax.complex(x, y) * 2),
    imag=lambda x, y: jnp.imag(lax.complex(x, y) * 2),
    clamp=lambda x, y: lax.clamp(x, y, x * y),
)  # fmt: skip
group("slow functions", "f", "f", **named("igamma igammac igamma_grad_a polygamma zeta"))
group("whole numbers", "i5", "i5", **named(
    "bitwise_and bitwise_or bitwise_xor shift_left shift_right_arithmetic shift_right_logical "
    "mulhi div rem"),
    power=lambda x, y: lax.pow(x.astype(jnp.float32), y),
    negated=lambda x, _: (lax.bitwise_not(x), lax.clz(x), lax.population_count(x)),
    xor=lambda x, _: lax.reduce_xor(x, (0,)),
)  # fmt: skip
group("yes or no", "b5", all=jnp.all, any=jnp.any)
group("a row of numbers", "f40", **named("cumlogsumexp cummax cummin cumprod cumsum"),
    backwards=lambda x: [f(x, reverse=True) for f in (lax.cumsum, lax.cumprod, lax.cummax)],
    extremes=lambda x: (jnp.max(x), jnp.min(x), lax.argmax(x, 0, jnp.int32), lax.argmin(x, 0, jnp.int32)),
    sums=lambda x: (jnp.sum(x), jnp.prod(x), x.reshape(4, 10).sum(axis=0)),
    any_reduction=lambda x: lax.reduce(x, jnp.float32(0), lambda a, b: a + b * a, (0,)),
    sorted=lambda x: (jnp.sort(x), jnp.argsort(x), lax.top_k(x, 3)),
    found=lambda x: [jnp.searchsorted(jnp.sort(x[5:]), x[:5], side=s) for s in ("left", "right")],
    between=lambda x: jnp.interp(x[:5], jnp.sort(x[5:15]), x[15:25]),
    shapes=lambda x: (
        x.reshape(4, 10).T * 1, x[::-1], lax.slice(x, (1,), (35,), (2,)), x[None].squeeze() * 1,
        jnp.tile(x, 2), lax.split(x, [10, 30]), jnp.unstack(x.reshape(4, 10)),
        jnp.broadcast_to(x, (3, 40)), lax.pad(x, x[0], [(1, -1, 1)]), x + jnp.arange(40),
    ),
    scan=lambda x: lax.scan(lambda c, v: (c * v + 1, c), 1.0, x),
    fft=lambda x: [f(x) for f in (jnp.fft.fft, jnp.fft.rfft, lambda x: jnp.fft.irfft(x + 0j))],
)  # fmt: skip


def pooled(combine, start):
    return lambda x: lax.reduce_window(x, start, combine, (3,), (1,), "SAME")


group("windows", "f8", "f8",
    sums=lambda x, _: (pooled(lax.add, 0.0)(x), pooled(lax.mul, 1.0)(x)),
    extremes=lambda x, _: (pooled(lax.max, -jnp.inf)(x), pooled(lax.min, jnp.inf)(x)),
    slope=lambda x, _: jax.grad(lambda x: pooled(lax.max, -jnp.inf)(x).sum())(x),
    forward=lambda x, y: jax.jvp(pooled(lax.max, -jnp.inf), (x,), (y,)),
)  # fmt: skip


@jax.custom_vjp
def own_slope(x):
    return x * jnp.sin(x)


own_slope.defvjp(lambda x: (own_slope(x), x), lambda x, g: (g * x,))


def until_small(x):
    def go(c):
        return jnp.logical_and(c[0] < 60, c[1] > 1e-3)

    return lax.while_loop(go, lambda c: (c[0] + 1, c[1] * x), (0, jnp.float32(1)))


group("loops", "f", "i",
    small=lambda x, _: until_small(x),
    counted=lambda x, i: lax.while_loop(
        lambda c: c[0] < i % 60, lambda c: (c[0] + 1, jnp.sin(c[1]) + x), (0, jnp.float32(1))),
    to=lambda x, i: lax.fori_loop(0, i % 50, lambda k, c: c * 1.5 + k * x, 1.0),
    nested=lambda x, i: lax.fori_loop(0, i % 5, lambda _, c: until_small(c)[1] + x, x),
    rule=lambda x, _: (own_slope(x), jax.grad(own_slope)(x)),
    branch=lambda x, i: lax.cond(i > 1, jnp.sin, jnp.cos, x),
    switch=lambda x, i: lax.switch(i, [jnp.sin, jnp.cos, until_small_value, jnp.log], x),
)  # fmt: skip


def until_small_value(x):
    return until_small(x)[1]


def key(i):
    return jax.random.key(i, impl="threefry2x32")


group("random numbers", "i", "f3",
    seed=lambda i, _: jax.random.uniform(key(i), (3,)),
    bits=lambda i, _: jax.random.bits(key(i), (3,)),
    split=lambda i, _: jax.random.normal(jax.random.split(key(i))[1]),
    fold=lambda i, _: jax.random.uniform(jax.random.fold_in(key(0), i)),
    choice=lambda i, a: jax.random.categorical(key(i), a),
)  # fmt: skip
group("gamma", "i", "f3",
    draws=lambda i, a: jax.random.gamma(key(i), a),
    slope=lambda i, a: jax.grad(lambda a: jax.random.gamma(key(i), a).sum())(a),
)  # fmt: skip
group(
    "blocks of bits",
    "i2",
    threefry=lambda i: threefry_2x32(i.astype(jnp.uint32), jnp.arange(4, dtype=jnp.uint32)),
)


def places(mode):
    """Reading and writing at places that a row decides, some of them outside."""
    writes = ("set", "add", "max", "min", "multiply", "subtract")
    own = {f"own {w}": lambda x, i, y, w=w: getattr(x.at[i], w)(y, mode=mode) for w in writes}
    into = {
        f"public {w}": lambda _, i, y, w=w: getattr(jnp.arange(8.0).at[i], w)(y, mode=mode)
        for w in writes
    }
    return own | into | {
        "get": lambda x, i, _: x.at[i].get(mode=mode),
        "public get": lambda _, i, __: jnp.arange(8.0).at[i].get(mode=mode),
        "promised": lambda x, i, y: x.at[i].set(y, mode=mode, unique_indices=True, indices_are_sorted=True),
        "promised sum": lambda x, i, y: x.at[i].add(y, mode=mode, unique_indices=True),
    }  # fmt: skip


for mode in ("promise_in_bounds", "clip", "fill"):
    group(f"places, {mode}", "f8", "i3", "f3", **places(mode))
group("slices", "f8", "f3", "i",
    read=lambda x, _, i: lax.dynamic_slice(x, (i,), (3,)),
    public=lambda _, __, i: lax.dynamic_slice(jnp.arange(8.0), (i,), (3,)),
    write=lambda x, y, i: lax.dynamic_update_slice(x, y, (i,)),
)  # fmt: skip
group("choices", "b", "f5", "f5", "b5",
    whole=lambda b, x, y, _: lax.select_n(b, x, y),
    each=lambda _, x, y, b: jnp.where(b, x, y),
)  # fmt: skip


def definite(x):
    return x @ x.T + 5 * jnp.eye(len(x))


def solve(a, b):
    return lax.linalg.triangular_solve(a, b, left_side=True, lower=True)


def factors(of):
    names = ("cholesky", "eigh", "lu", "qr")
    return {name: lambda x, name=name: getattr(lax.linalg, name)(of(x)) for name in names}


group(
    "matrices",
    "f3x3",
    **factors(lambda x: x),
    **{f"definite {n}": f for n, f in factors(definite).items()},
)
group("equations", "f3x3", "f3x2",
    own=solve,
    public_left=lambda _, b: solve(MATRIX, b),
    public_right=lambda a, _: solve(a, MATRIX),
    dense=lambda a, b: jnp.linalg.solve(definite(a), b),
    inverse=lambda a, _: jnp.linalg.inv(a),
    tridiagonal=lambda a, b: lax.linalg.tridiagonal_solve(a[0], a[1], a[2], b),
)  # fmt: skip
group("products", "f7x9", "f9x5",
    matrices=lambda x, y: x @ y,
    public_right=lambda x, _: x[:, :3] @ MATRIX,
    public_left=lambda x, _: MATRIX @ x[:3],
    vector=lambda x, _: MATRIX @ x[0, :3],
    inner=lambda x, y: x[0] @ y[:, 0],
    outer=lambda x, y: jnp.outer(x[0], y[:, 0]),
    slope=lambda x, y: jax.grad(lambda y: jnp.sum((x @ y) ** 2))(y),
)  # fmt: skip


def convolved(x, k, **options):
    return lax.conv_general_dilated(x, k, (1,), "SAME", **options)


group("convolutions", "f2x4x8", "f2x4x3",
    both=convolved,
    public_filter=lambda x, _: convolved(x[:1], np.ones((2, 4, 3), np.float32)),
    public_signal=lambda _, k: convolved(np.ones((1, 4, 8), np.float32), k),
    slope=lambda x, k: jax.grad(lambda k: jnp.sum(convolved(x, k) ** 2))(k),
    by_features=lambda x, k: convolved(x, k[:, :2], feature_group_count=2),
    by_batch=lambda x, k: convolved(x, k, batch_group_count=2),
)  # fmt: skip
# Where last bits may follow the batch; all else is compared to the bit.
PRODUCTS = {"products", "convolutions"}
# Thousands of turns for a batch with a unit that does not converge: one place will do.
SLOW = {"slow functions"}


def operands(kinds, rng):
    draw = {
        "f": lambda shape: rng.uniform(0.1, 0.9, shape).astype(np.float32),
        "i": lambda shape: rng.integers(0, 4, shape).astype(np.int32),
        "b": lambda shape: rng.uniform(size=shape) < 0.5,
    }
    shapes = [tuple(map(int, filter(None, kind[1:].split("x")))) for kind in kinds]
    return [draw[kind[0]]((WIDTH, *shape)) for kind, shape in zip(kinds, shapes, strict=True)]


def variants(units, places):
    """The batch as it is, and with one unit changed: in all operands or one, all numbers or one."""
    batches, where = [units], [None]
    sizes = (True, False) if any(each[0].size > 1 for each in units) else (True,)
    for place in places:
        for which in (None, *range(len(units))) if len(units) > 1 else (None,):
            for i in range(len(BAD["f"])):
                for whole in sizes:
                    batches.append([
                        changed(each, place, i, whole=whole) if which in (None, k) else each
                        for k, each in enumerate(units)
                    ])  # fmt: skip
                    where.append(place)
    return tuple(np.stack(each) for each in zip(*batches, strict=True)), where


def changed(values, place, i, *, whole):
    new = values.copy()
    part = new.reshape(WIDTH, -1)[place]
    part[: None if whole else 1] = BAD[values.dtype.kind][i]
    return new


def contributions(functions, units):
    """What every unit of every batch comes to, by each function; one program.

    Units are the first axis, as in noisy sums, and the last, as in tests.
    """

    def unit(*leaves):
        return [jax.tree.leaves(function(*leaves)) for function in functions]

    def both(batch):
        turned = lax.optimization_barrier([jnp.moveaxis(leaf, 0, -1) for leaf in batch])
        return jax.vmap(unit)(*batch), jax.vmap(unit, in_axes=-1)(*turned)

    found = jax.jit(partial(lax.map, both))(units)
    return [[np.asarray(each) for each in (*a, *b)] for a, b in zip(*found, strict=True)]


@jax.jit
def points_of(found):
    """Where contributions end on the lattice; one program for all of them."""
    on = jax.vmap(jax.vmap(lambda unit: clip_to_lattice(unit.ravel(), jnp.float32(1), POINTS)))
    return jax.tree.map(on, found)


def moved(found, where, *, exact):
    """Whether a batch has somebody who was not changed, and contributes something else."""
    for place, after in zip(where, found, strict=True):
        keep = np.arange(WIDTH) != place
        before, now = found[0][keep], after[keep]
        if exact and before.tobytes() != now.tobytes():
            return True
        if not exact and np.abs(before - now).max() > MARGIN:
            return True
    return False


def meeting(name):
    """Names of the functions of a group in which units meet."""
    kinds, functions = GROUPS[name]
    places = PLACES[:1] if name in SLOW else PLACES
    units, where = variants(operands(kinds, np.random.default_rng(0)), places)
    found = contributions([function for _, function in functions], units)
    if name in PRODUCTS:
        found = jax.tree.map(np.asarray, points_of(found))
    return [
        label
        for (label, _), leaves in zip(functions, found, strict=True)
        if any(moved(leaf, where, exact=name not in PRODUCTS) for leaf in leaves)
    ]


def operations(function, kinds):
    one = [each[0] for each in operands(kinds, np.random.default_rng(0))]
    return {e.primitive.name for e in all_equations(jax.make_jaxpr(function)(*one).jaxpr)}


# Their programs take longest to compile.
LONG = {"slow functions", "gamma"}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow if n in LONG else ()) for n in GROUPS]
)
def test_units_do_not_meet(name):
    assert meeting(name) == []


def test_every_admitted_operation_has_a_case():
    tried = set()
    for kinds, functions in GROUPS.values():
        for _, function in functions:
            tried |= operations(function, kinds)
    assert tried == trace.PER_UNIT_PRIMITIVES


# What is not on the list, and why ---------------------------------------------------------------


def beta(a, b, x):
    return lax.betainc(a, b, x)


def rbg(i):
    return jax.random.bits(jax.random.key(i, impl="rbg"), (3,))


@pytest.mark.parametrize(("function", "kinds"), [(beta, "fff"), (rbg, "i")], ids=["beta", "rbg"])
def test_units_meet_in_what_is_refused(function, kinds, monkeypatch):
    """The test would have noticed; and such a function never runs."""
    monkeypatch.setitem(GROUPS, "refused", Group(tuple(kinds), [("it", function)]))
    assert meeting("refused") == ["it"]
    one = [each[0] for each in operands(kinds, np.random.default_rng(0))]
    with pytest.raises(BoundaryError, match="acts on every unit by itself"):
        check_per_unit(jax.make_jaxpr(function)(*one).jaxpr)


def test_keys_other_than_threefrys_are_refused_wherever_they_come_from():
    def follows(key, row):
        return jax.random.uniform(jax.random.fold_in(key, row))

    for impl in ("rbg", "unsafe_rbg"):
        traced = jax.make_jaxpr(follows)(jax.random.key(0, impl=impl), 1)
        with pytest.raises(BoundaryError, match="acts on every unit by itself"):
            check_per_unit(traced.jaxpr)
    check_per_unit(jax.make_jaxpr(follows)(jax.random.key(0, impl="threefry2x32"), 1).jaxpr)


def test_an_operation_that_borrows_a_name_is_refused():
    add = jax.extend.core.Primitive("add")
    add.def_abstract_eval(lambda x: x)
    with pytest.raises(BoundaryError, match="add"):
        check_per_unit(jax.make_jaxpr(add.bind)(1.0).jaxpr)
