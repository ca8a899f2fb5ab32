"""How a fit and a step grow with columns, and a step beside a program that was written by hand for its model.

    python benchmarks/columns.py                       # 5, 20, 54 and 200 columns of 39,000 rows
    python benchmarks/columns.py --columns 54 --rows 39000
    python benchmarks/columns.py --floor               # the step beside the floor
    taskset -c 0 python benchmarks/columns.py --floor  # on one core

A fit is of a logistic regression by the default settings at epsilon 1, in a process that has nothing stored. ``cpu``
is its processor time without the imports, of which ``again`` is what a second fit with the same plan takes; ``memory`` is the most
that the process had. The floor draws outcomes and computes scores by formulas for this model, in plain JAX; it has the same pieces of
the rows, the same clips and numbers of each row, and rounds them to the same integers.
"""

import argparse
import os
import resource
import subprocess
import sys
import time

ROWS = 39_000


def simulated(columns, rows):
    """A table of a logistic regression, and its schema."""
    import numpy as np

    import tacit

    rng = np.random.default_rng(columns)
    x = rng.uniform(-1, 1, size=(rows, columns))
    beta = rng.normal(size=columns) / columns**0.5
    y = rng.uniform(size=rows) < 1 / (1 + np.exp(-2 * x @ beta))
    names = [f"x{i}" for i in range(columns)]
    schema = tacit.Schema({name: tacit.Number(-1, 1) for name in names} | {"y": tacit.Binary()})
    return tacit.glm(f"y ~ {' + '.join(names)}", schema=schema), dict(zip(names, x.T, strict=True)) | {"y": y}  # fmt: skip


def one_fit(columns, rows):
    """Prints the costs of a fit, in a process of its own."""
    import tacit
    import tacit.api.fit

    model, table = simulated(columns, rows)
    times = []
    for _ in range(2):
        began = time.process_time()
        post = tacit.fit(model, table, budget=tacit.Budget(1, 1e-6))
        times.append(time.process_time() - began)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    said = {True: "yes", False: "no", None: "-"}[post.converged]
    print(f"{columns:7} {times[0]:8.1f} {times[1]:8.2f} {memory:10.2f} {said:>10}", flush=True)


def step_and_floor(columns, rows, repeats=7):
    """Prints the processor time of a step, and of the floor."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    import tacit
    from tacit.api.rows import model_rows
    from tacit.inference.score_contributions import contribution_of_scores
    from tacit.inference.scoring import _dummy_query, scoring_step
    from tacit.privacy import gate as gates

    model, table = simulated(columns, rows)
    plan = tacit.plan(model, budget=tacit.Budget(1, 1e-6))
    gate = gates.open_gate(
        model_rows(plan.model, plan.schema, table), plan.mechanism, gates.Randomness(0)
    )
    runner, query = gates.PieceRunner(gate), _dummy_query(plan.model)
    step = scoring_step(plan.model, plan.method.num_outcomes)
    runner.compile(step, gates.check(step, query, np.float32(0), gate))

    size, outcomes = columns + 1, plan.method.num_outcomes
    width = gates._PIECE_WIDTH  # noqa: SLF001
    design = np.column_stack([np.ones(rows), *(table[f"x{i}"] for i in range(columns))])
    pad = -rows % width
    x = jnp.asarray(np.pad(design, [(0, pad), (0, 0)]), jnp.float32).reshape(-1, width, size)
    y = jnp.asarray(np.pad(table["y"], (0, pad)), jnp.float32).reshape(-1, width)
    points = plan.mechanism.lattice.points

    def unit(query, row, outcome, words):
        key = jax.random.wrap_key_data(words, impl="threefry2x32")
        mean = jax.nn.sigmoid(row @ query.theta)
        drawn = (jax.random.uniform(key, (outcomes,)) < mean).astype(jnp.float32)
        residuals = jnp.concatenate([outcome[None], drawn]) - mean
        vector = contribution_of_scores(query, residuals[:, None] * (query.to_metric @ row))
        vector = vector / jnp.maximum(1.0, jnp.linalg.norm(vector))
        return jnp.round(vector * points).astype(jnp.int32)

    @jax.jit
    def floor(query, rows, own, words):
        return jax.vmap(unit, in_axes=(None, 0, 0, 0))(query, rows, own, words).sum(axis=0)

    def by_hand():
        parts = []
        for rows_, own in zip(x, y, strict=True):
            words = np.frombuffer(os.urandom(8 * width), np.uint32).reshape(width, 2)
            parts.append(floor(query, rows_, own, words))
        return np.sum([np.asarray(each, np.int64) for each in parts], axis=0)

    given = np.zeros((1,), np.float32)
    found = {"step": [], "floor": []}
    for _ in range(repeats):
        for name, run in (("step", lambda: runner.run(0, 1, query, given)), ("floor", by_hand)):
            wall, cpu = time.perf_counter(), time.process_time()
            jax.block_until_ready(run())
            found[name].append((time.perf_counter() - wall, time.process_time() - cpu))
    best = {name: np.min(times[1:], axis=0) for name, times in found.items()}
    ratio = best["step"] / best["floor"]
    line = f"{columns:7} {best['step'][0]:9.3f} {best['floor'][0]:9.3f} {ratio[0]:6.2f} {ratio[1]:9.2f}"
    print(line, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--columns", type=int, nargs="+", default=[5, 20, 54, 200])
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--floor", action="store_true", help="the step beside the floor")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    measure = step_and_floor if given.floor else one_fit
    if given.one:
        measure(given.columns[0], given.rows)
        return
    if given.floor:
        print(
            f"{'columns':>7} {'step, s':>9} {'floor, s':>9} {'ratio':>6} {'cpu ratio':>9}",
            flush=True,
        )
    else:
        print(
            f"{'columns':>7} {'cpu, s':>8} {'again':>8} {'memory, GiB':>11} {'converged':>10}",
            flush=True,
        )
    env = os.environ | {"TACIT_CACHE_DIR": ""}
    for columns in given.columns:
        arguments = ["--columns", str(columns), "--rows", str(given.rows), "--one"]
        command = [sys.executable, __file__, *arguments, *(["--floor"] if given.floor else [])]
        subprocess.run(command, check=True, env=env)  # noqa: S603 (our own)


if __name__ == "__main__":
    main()
