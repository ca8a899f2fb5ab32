"""Large batches are looked at in pieces, and rows on disk fetched by blocks: sums stay the same."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from pyarrow import parquet, table

import tacit
from tacit.data import store
from tacit.privacy import mechanisms
from tacit.privacy.clipping import Lattice, add_noise, partial_sums
from tacit.privacy.gate import Gate, run
from tacit.privacy.mechanisms import BarkerTests, sum_rows
from tacit.privacy.noise import Randomness
from tacit.privacy.rows import Rows


@pytest.mark.parametrize("noise_std", [0.0, 1.0])  # wide or not
@pytest.mark.parametrize("length", [64, 65, 1000, pytest.param(127, marks=pytest.mark.slow)])
def test_pieces_add_up_to_the_whole(monkeypatch, noise_std, length):
    monkeypatch.setattr(mechanisms, "_UNITS_PER_PIECE", 64)
    lattice = Lattice.fitting(noise_std, dimension=3, batch_bound=1000)
    assert lattice.wide == (noise_std == 0)
    generator = np.random.default_rng(length)
    units = generator.integers(-lattice.points, lattice.points, (length, 3)).astype(np.int32)
    present = generator.uniform(size=length) < 0.7
    noise = np.arange(6 if lattice.wide else 3, dtype=np.int32)
    grid = jnp.float32(1 / lattice.points)
    operands = jnp.array(units), jnp.array(present)
    parts = mechanisms._in_pieces(lambda *given: partial_sums(*given, lattice), operands)
    together = partial_sums(*operands, lattice)
    whole = add_noise(together, jnp.array(noise), grid, lattice)
    apart = add_noise(parts, jnp.array(noise), grid, lattice)
    np.testing.assert_array_equal(apart, whole)
    words = noise.view(np.int64) if lattice.wide else noise
    exact = (units[present].sum(axis=0, dtype=np.int64) + words) / lattice.points
    np.testing.assert_allclose(apart, exact, rtol=1e-6)


@pytest.mark.parametrize("length", [63, 64, 1000])
@pytest.mark.parametrize("people", [False, True])
def test_a_test_in_pieces_decides_by_the_sum_of_all_units(monkeypatch, length, people):
    monkeypatch.setattr(mechanisms, "_UNITS_PER_PIECE", 64)
    generator = np.random.default_rng(length)
    x = generator.integers(-64, 65, (length, 3)).astype(np.float32) / 2**10  # points of the lattice
    who = generator.integers(0, length // 2, length) if people else np.arange(length)
    rows = Rows.by_person({"x": x}, who, length) if people else Rows({"x": x})
    weights = np.array([1, -1, 2], np.float32)
    units = np.array([(x[who == each] @ weights).sum() for each in np.unique(who)])
    bound = 0.125
    total = np.clip(units, -bound, bound).sum()
    # What is clipped is held a little below the bound.
    near = bound * 2.0**-12 * len(units) + 1e-3
    shifts = np.float32([near - total, -near - total])
    tests = BarkerTests(num_steps=2, ratio_bound=bound)
    monkeypatch.setattr(BarkerTests, "noise", lambda *given: np.zeros((given[-1], 2), np.int32))

    def step(state, shift, release):
        return state, release.noisy_test(
            sum_rows(lambda given, row: row["x"] @ given), state, shift
        )

    gate = Gate(rows, tests, Randomness(0))
    _, accepted = run(gate, step, jnp.array(weights), lambda first, n: shifts[first : first + n])
    np.testing.assert_array_equal(accepted, [True, False])


def test_fetched_units_are_those_that_jax_would_take():
    generator = np.random.default_rng(0)
    values = {"x": generator.normal(size=(50, 2)), "k": generator.integers(0, 9, 50)}
    rows = Rows.by_person(values, generator.integers(0, 20, 50), 4)
    indices = generator.integers(0, rows._count, (3, 1, 7)).astype(np.int32)
    fields, present = rows._fetch(indices)
    all_fields, all_present = rows._device_fields()
    np.testing.assert_array_equal(present, all_present[indices])
    for name, units in fields.items():
        np.testing.assert_array_equal(units, all_fields[name][indices])
    assert rows.unit_bytes == 4 * 3 * 4
    nobody, _ = Rows({"x": np.zeros((0, 2))})._fetch(indices)
    assert nobody["x"].shape == (3, 1, 7, 1, 2)


def model(x, y=None):
    slope = numpyro.sample("slope", dist.Normal(0, 1))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=slope * x), obs=y)


@pytest.mark.slow
@pytest.mark.parametrize("unit", [{}, {"person": "who", "most_rows": 3}])
def test_a_fit_to_rows_on_disk_is_the_fit_to_rows_in_memory(tmp_path, monkeypatch, unit):
    generator = np.random.default_rng(1)
    x = generator.normal(size=2000)
    y = generator.uniform(size=2000) < 1 / (1 + np.exp(-2 * x))
    data = {"x": x, "y": y, "who": generator.integers(0, 900, 2000)}
    schema = tacit.Schema({"x": tacit.Number(-3, 3), "y": tacit.Binary()}, **unit)
    plan = tacit.plan(
        model,
        schema,
        budget=tacit.Budget(5, 1e-5),
        method=tacit.Variational(num_steps=200, sampling_rate=0.2),
    )
    here = tacit.fit(plan, data, seed=3)
    parquet.write_table(table(data), tmp_path / "data.parquet")
    monkeypatch.setattr(store, "_MAX_BYTES_IN_MEMORY", 1000)
    fetched = []
    fetch = Rows._fetch
    monkeypatch.setattr(Rows, "_fetch", lambda *given: fetched.append(1) or fetch(*given))
    there = tacit.fit(plan, tmp_path / "data.parquet", seed=3)
    assert fetched
    # The same rows and noise; what a program of another shape rounds otherwise is far below.
    np.testing.assert_allclose(there.draws["slope"], here.draws["slope"], atol=1e-3)
    assert abs(float(jnp.mean(here.draws["slope"]))) > 0.3
