"""Compiled programs in the user's cache folder: which there are, and what they are good for."""

import stat

import numpy as np
import pytest
from faults.planting import forget

import tacit
from tacit import _compile
from tacit.privacy import trace

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
