"""Settings of the process change neither what a unit may contribute nor what is said."""

import os
import subprocess
import sys
from contextlib import ExitStack

import jax
import numpy as np
import pytest

from tacit.privacy.gate import compilation_cache_in, silenced_jax

FAST = (
    "--xla_cpu_enable_fast_math=true --xla_cpu_fast_math_honor_nans=false "
    "--xla_cpu_fast_math_honor_infs=false --xla_cpu_fast_math_honor_division=false"
)
NORMS = """
import jax, jax.numpy as jnp, numpy as np
from tacit.privacy.clipping import clip_to_lattice, clip_to_lattice_l1
for size in (8, 3000):
    rows = np.random.default_rng(0).normal(size=(64, size)).astype(np.float32)
    rows[:16], rows[16:24], rows[24:32, 0] = np.nan, np.inf, np.nan
    for place, order in ((clip_to_lattice, 2), (clip_to_lattice_l1, 1)):
        on = jax.jit(jax.vmap(lambda row: place(row, jnp.float32(1), 2**20)))
        whole = np.abs(np.asarray(on(rows)).astype(object))
        assert max((whole**order).sum(axis=1)) <= 2 ** (20 * order), (size, order)
        assert min((whole[32:] ** order).sum(axis=1)) > 0
"""
FIT = """
import jax.numpy as jnp, numpy as np
from tacit.privacy.gate import Gate, run
from tacit.privacy.mechanisms import NoisySums, sum_rows
from tacit.privacy.rows import Rows
mechanism = NoisySums(sampling_rate=1.0, num_steps=2, clip=1.0, noise_multiplier=1.0, dimension=3)
rows = np.ones((9377, 3), np.float32)
rows[5] = np.nan
def step(state, _, release):
    return state, release.noisy_sum(sum_rows(lambda _, row: row["x"]), ())
out = run(Gate(Rows({"x": rows}), mechanism), step, jnp.zeros(3), lambda _, n: np.zeros(n))
assert np.isfinite(out[1]).all()
"""
TALKING = """
import logging
logging.basicConfig(level=logging.DEBUG)
import jax
logging.getLogger("jax._src.interpreters.pxla").setLevel(logging.DEBUG)
"""
HEARD = """
before = logging.getLogger("jax").level, logging.getLogger("jax._src.interpreters.pxla").level
assert before == (logging.NOTSET, logging.DEBUG)
jax.jit(lambda x: x + 1)(np.ones(4711))
"""


STORED = """
import os, jax
folder = os.environ["JAX_COMPILATION_CACHE_DIR"]
stored = lambda: sorted(os.listdir(folder)) if os.path.isdir(folder) else []
jax.jit(lambda x: x * 3)(np.ones(5))
before = stored()
assert before
def other(state, _, release):
    return state, release.noisy_sum(sum_rows(lambda _, row: row["x"] * 2), ())
run(Gate(Rows({"x": rows}), mechanism), other, np.zeros(3), lambda _, n: np.zeros(n))
assert stored() == before, set(stored()) - set(before)
jax.jit(lambda x: x * 5)(np.ones(7))
assert set(stored()) > set(before)
"""


def said(program, **settings):
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | settings,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_fast_math_does_not_lengthen_a_unit():
    said(NORMS, XLA_FLAGS=FAST)


COMPILED = {
    "JAX_LOG_COMPILES": "1",
    "JAX_EXPLAIN_CACHE_MISSES": "1",
    "JAX_DEBUG_NANS": "1",
    "JAX_DEBUG_INFS": "1",
    "JAX_TRANSFER_GUARD": "log_explicit",
}


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"JAX_DISABLE_JIT": "1"}, id="JAX_DISABLE_JIT"),
        *(pytest.param({k: v}, id=k, marks=pytest.mark.slow) for k, v in COMPILED.items()),
    ],
)
def test_no_setting_tells_of_rows(settings):
    """Neither how many there are, nor that one of them has a cell that is not a number."""
    assert "9377" not in said(FIT, **settings)


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(COMPILED, id="all of a compiled program"),
        pytest.param({}, id="none", marks=pytest.mark.slow),
    ],
)
def test_loggers_say_nothing_of_rows(settings):
    """JAX logs shapes of what it compiles where somebody listens; afterwards it may again."""
    heard = said(TALKING + FIT + HEARD, **settings)
    assert "9377" not in heard
    assert "4711" in heard


def test_programs_of_a_gate_are_not_stored(tmp_path):
    """JAX's persistent cache has files with the shapes of rows; those of other programs stay."""
    stored = {"JAX_COMPILATION_CACHE_DIR": str(tmp_path)}
    said(FIT + STORED, **stored, JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS="0")


def test_nowhere_holds_while_anybody_says_so(tmp_path):
    """A gate in one thread, and whoever stores programs in another."""

    def folder():
        return jax.config.jax_compilation_cache_dir

    with ExitStack() as gate, ExitStack() as other:
        assert folder() is None
        other.enter_context(compilation_cache_in(tmp_path / "one"))
        gate.enter_context(silenced_jax())
        assert folder() is None
        later = other.enter_context(ExitStack())
        later.enter_context(compilation_cache_in(tmp_path / "two"))
        assert folder() is None
        gate.close()
        assert folder() == str(tmp_path / "two")
        later.close()
        assert folder() == str(tmp_path / "one")
    assert folder() is None


def test_programs_of_a_gate_are_not_written_down(tmp_path):
    """A setting of JAX writes every program into a folder before it is compiled, with the shapes of rows."""
    before = jax.config.values["jax_dump_ir_to"]
    jax.config.update("jax_dump_ir_to", str(tmp_path))
    try:
        with silenced_jax():
            jax.jit(lambda x: x + 1)(np.zeros(4242))
        assert not [*tmp_path.iterdir()]
        jax.jit(lambda x: x + 1)(np.zeros(4243))
        assert any("4243" in path.read_text() for path in tmp_path.iterdir())
    finally:
        jax.config.update("jax_dump_ir_to", before)
