"""Compiled programs in the user's cache folder: which there are, and what they are good for."""

import os
import pickle
import stat
import subprocess
import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from faults.planting import forget
from numpyro import distributions as dist

import tacit
from tacit import _compile
from tacit.privacy import trace
from tacit.privacy.gate import check, open_gate
from tacit.privacy.mechanisms import NoisySums
from tacit.privacy.noise import Randomness

SCHEMA = tacit.Schema({"x": tacit.Number(-1, 1), "y": tacit.Binary()})


def table(rows):
    rng = np.random.default_rng(rows)
    x = rng.uniform(-1, 1, size=rows)
    return {"x": x, "y": rng.uniform(size=rows) < 1 / (1 + np.exp(-2 * x))}


def fit(rows=900, formula="y ~ x", **settings):
    """A fit by a process that has nothing in memory."""
    forget()
    _compile._code_digest.cache_clear()
    model = tacit.glm(formula, schema=SCHEMA, **settings)
    return tacit.fit(model, table(rows), budget=tacit.Budget(2, 1e-6), seed=1)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TACIT_CACHE_DIR", str(tmp_path / "programs"))
    return tmp_path / "programs"


def names(folder):
    return {each.name for each in folder.iterdir()}


def test_a_second_process_traces_no_step_and_finds_the_same(folder, monkeypatch):
    first = fit()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    kept = names(folder)

    def not_again(*_):
        raise AssertionError("a step is traced")

    with monkeypatch.context() as patched:
        patched.setattr(trace, "_walked_trace", not_again)
        second = fit()
        fit(rows=5_000)  # another number of rows has no program of its own
    assert names(folder) == kept
    for name, draws in first.draws.items():
        assert np.array_equal(draws, second.draws[name])
    # Whatever the functions follow from makes other programs.
    fit(priors={"x": ("normal", 0, 0.1)})
    narrower = names(folder)
    assert narrower > kept
    fit(formula="y ~ 0 + x")
    assert names(folder) > narrower


def test_what_a_terminal_stored_serves_a_process_without_one(folder, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr("jax._src.pretty_printer.CAN_USE_COLOR", True)
        in_terminal = fit()
    programs = [each for each in folder.iterdir() if each.read_bytes().startswith(pickle.PROTO)]
    assert len(names(folder)) > len(programs) > 0
    for each in programs:
        each.unlink()  # they are compiled again, if their traces are those that were checked
    piped = fit()
    for name, draws in in_terminal.draws.items():
        assert np.array_equal(draws, piped.draws[name])


def test_programs_are_loaded_where_there_are_several_devices(folder):
    # PyMC's samplers in JAX ask for 100 devices of the processor.
    code = "import jax; from privacy.test_stored import fit; print(jax.device_count(), fit().draws['x'].sum())"
    env = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=3"}
    tests = Path(__file__).parents[1]
    found = [
        subprocess.run(
            [sys.executable, "-c", code], env=env, cwd=tests, check=True, capture_output=True
        ).stdout
        for _ in range(2)
    ]
    assert names(folder)
    assert found[0] == found[1]
    assert found[0].startswith(b"3 ")


@pytest.mark.slow
def test_files_that_cannot_be_read_are_made_again(folder):
    first = fit()
    for each in folder.iterdir():
        each.write_bytes(b"no program")
    second = fit()
    assert np.array_equal(first.draws["x"], second.draws["x"])
    assert all(each.read_bytes() != b"no program" for each in folder.iterdir())


@pytest.mark.slow
def test_other_code_makes_other_programs(folder, monkeypatch):
    fit()
    kept = names(folder)
    monkeypatch.setattr(_compile, "_code_digest", lambda: "changed")
    forget()
    model = tacit.glm("y ~ x", schema=SCHEMA)
    tacit.fit(model, table(900), budget=tacit.Budget(2, 1e-6), seed=1)
    assert len(names(folder) - kept) >= len(kept) - 1  # all but what its own text determines


@pytest.mark.parametrize("named", [True, False])
def test_a_folder_that_others_may_read_is_not_used(tmp_path, monkeypatch, named):
    folder = tmp_path / "tacit" / "programs"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("TACIT_CACHE_DIR", raising=False)
    if named:
        monkeypatch.setenv("TACIT_CACHE_DIR", str(folder))
    assert _compile.program_folder() == folder
    folder.mkdir(parents=True, mode=0o755)
    folder.chmod(0o755)
    assert _compile.program_folder() is None


def test_priors_that_their_numbers_do_not_tell_apart_have_no_stored_program(folder):
    def shifted(by):
        base, transform = dist.Normal(0, 0.05), dist.transforms.AffineTransform(by, 1.0)
        return dist.TransformedDistribution(base, transform)

    far = [fit(priors={"x": shifted(by)}).draws["x"].mean() for by in (0.0, 3.0)]
    assert abs(far[0]) < 1 < far[1]


def test_files_that_were_not_stored_here_stay(folder, monkeypatch):
    monkeypatch.setattr(_compile, "_MAX_STORED", 1)
    folder.mkdir(mode=0o700)
    (folder / "ledger.db").write_text("mine")
    fit()
    assert (folder / "ledger.db").read_text() == "mine"
    assert len(names(folder)) == 2


def test_a_model_that_is_refused_leaves_nothing_in_the_folder(folder):
    secret = np.random.default_rng(0).normal(size=5000).astype(np.float32)
    model = tacit.Model(
        parameters={"w": tacit.models.Parameter(())},
        log_prior=lambda p: -0.5 * p["w"] ** 2 - jnp.sum(jnp.asarray(secret)),
        log_likelihood=lambda p, row: -0.5 * (row["y"] - p["w"]) ** 2,
    )
    with pytest.raises(tacit.TacitError):
        tacit.fit(model, tacit.Rows({"y": secret}), budget=tacit.Budget(1, 1e-6))
    assert not folder.exists() or not names(folder)


def test_what_a_step_returns_is_part_of_its_fingerprint():
    mechanism = NoisySums(
        sampling_rate=1.0, num_steps=1, clip=1.0, noise_multiplier=1.0, dimension=2
    )
    gate = open_gate(tacit.Rows({"y": np.ones(3, np.float32)}), mechanism, Randomness(0))

    def contribution(state, row, present):
        return jnp.full(2, present.sum() * 0.1)

    def one(state, _, release):
        return state, release.noisy_sum(contribution, state)

    def other(state, _, release):
        return release.noisy_sum(contribution, state), state

    start, given = jnp.zeros(2), np.float32(0)
    assert check(one, start, given, gate) != check(other, start, given, gate)


def test_an_empty_table_leaves_the_same_files(tmp_path, monkeypatch):
    kept = []
    for rows in (0, 700):
        monkeypatch.setenv("TACIT_CACHE_DIR", str(tmp_path / str(rows)))
        forget()
        model, method = tacit.glm("y ~ x", schema=SCHEMA), tacit.Scoring(check_count=False)
        tacit.fit(model, table(rows), budget=tacit.Budget(2, 1e-6), method=method, seed=1)
        kept.append(names(tmp_path / str(rows)))
    assert kept[0] == kept[1]
