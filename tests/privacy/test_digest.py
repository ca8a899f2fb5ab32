"""Digests of functions: constants and rules for derivatives count wherever they are, addresses nowhere."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tacit.privacy.checkpoint import density_digest, trace_digest

TABLE = np.arange(3.0, dtype=np.float32)
AT = jnp.ones(3)


def plain(x, table):
    return (x * jnp.asarray(table)).sum()


def in_jit(x, table):
    return jax.jit(jax.jit(lambda x: plain(x, table)))(x)


def in_branch(x, table):
    return jax.lax.cond(x[0] > 0, lambda x: plain(x, table), lambda x: x.sum(), x)


def in_loop(x, table):
    return jax.lax.while_loop(lambda held: held[0] < 3, lambda held: held + table, x).sum()


def in_scan(x, table):
    return jax.lax.scan(lambda total, _: (total + table, None), x, None, length=3)[0].sum()


def in_jvp_rule(x, table):
    of = jax.custom_jvp(lambda x: x.sum())
    of.defjvp(lambda at, along: (of(*at), (along[0] * table).sum()))
    return of(x)


def in_vjp_rule(x, table):
    of = jax.custom_vjp(lambda x: x.sum())
    of.defvjp(lambda x: (of(x), None), lambda _, change: (change * table,))
    return of(x)


def in_rule_of_a_rule(x, table):
    inner = jax.custom_jvp(lambda along: along.sum())
    inner.defjvp(lambda at, along: (inner(*at), (along[0] * table).sum()))
    of = jax.custom_jvp(lambda x: (x**2).sum())
    of.defjvp(lambda at, along: (of(*at), inner(2 * at[0] * along[0])))
    return of(x)


PLACES = [
    plain,
    in_jit,
    in_branch,
    in_loop,
    in_scan,
    in_jvp_rule,
    in_vjp_rule,
    in_rule_of_a_rule,
]


def of(place, table):
    return density_digest(lambda x: place(x, table), AT)


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)
def test_an_array_counts_wherever_it_is(place):
    """Traces of the two have the same text: the array is in none of it."""
    other = TABLE + np.float32([0, 0, 1e-6])
    assert of(place, TABLE) == of(place, TABLE.copy())
    assert of(place, TABLE) != of(place, other)


def test_two_functions_of_one_text_differ_by_arrays_alone():
    """So it is the arrays that tell them apart, and not the text."""
    texts = [str(jax.make_jaxpr(lambda x, t=t: in_jit(x, t))(AT).jaxpr) for t in (TABLE, -TABLE)]
    assert texts[0] == texts[1]
    assert trace_digest(lambda x: in_jit(x, TABLE), AT) != trace_digest(
        lambda x: in_jit(x, -TABLE), AT
    )


AGAIN = """
import sys
sys.path.insert(0, sys.argv[1])
from test_digest import PLACES, TABLE, of
print([of(place, TABLE) for place in PLACES])
"""


@pytest.mark.processes
def test_another_process_has_the_same_digests():
    command = [sys.executable, "-c", AGAIN, str(__file__).rpartition("/")[0]]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == repr([of(place, TABLE) for place in PLACES])


def test_a_process_in_a_terminal_has_the_same_digests(monkeypatch):
    expected = [of(place, TABLE) for place in PLACES]
    monkeypatch.setattr("jax._src.pretty_printer.CAN_USE_COLOR", True)
    assert "\x1b[" in str(jax.make_jaxpr(lambda x: plain(x, TABLE))(AT).jaxpr)
    assert [of(place, TABLE) for place in PLACES] == expected
