"""Peak memory of a fit to a Parquet file that is larger than the memory it may take.

Makes a file of made-up rows in a temporary folder, in a process of its own, and fits a logistic
regression to it in another, with the default settings at epsilon 1:

    python benchmarks/memory.py --rows 10000000

Peak resident memory is what Linux says of the process (VmHWM), mapped pages included.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

NAMES = [f"x{i}" for i in range(9)]


def make(path, rows, chunk=500_000):
    import numpy as np
    import pyarrow as pa
    from pyarrow import parquet

    generator = np.random.default_rng(0)
    slopes = np.linspace(-1, 1, len(NAMES))
    kinds = [(name, pa.float32()) for name in NAMES] + [("y", pa.int8())]
    with parquet.ParquetWriter(path, pa.schema(kinds)) as writer:
        for start in range(0, rows, chunk):
            size = min(chunk, rows - start)
            x = generator.normal(size=(size, len(NAMES))).astype(np.float32)
            y = generator.uniform(size=size) < 1 / (1 + np.exp(0.3 - x @ slopes))
            columns = {name: x[:, i] for i, name in enumerate(NAMES)} | {"y": y.astype(np.int8)}
            writer.write_table(pa.table(columns, schema=pa.schema(kinds)))


def fit(path):
    import numpyro
    import numpyro.distributions as dist

    import tacit

    def model(x0, x1, x2, x3, x4, x5, x6, x7, x8, y=None):
        slopes = numpyro.sample("slopes", dist.Normal(0, 1).expand([9]).to_event(1))
        logit = numpyro.sample("intercept", dist.Normal(0, 1))
        with numpyro.plate("rows", x0.shape[0]):
            for i, x in enumerate([x0, x1, x2, x3, x4, x5, x6, x7, x8]):
                logit = logit + slopes[i] * x
            numpyro.sample("y", dist.Bernoulli(logits=logit), obs=y)

    columns = {name: tacit.Number(-4, 4) for name in NAMES} | {"y": tacit.Binary()}
    began = time.perf_counter()
    post = tacit.fit(model, path, schema=tacit.Schema(columns), budget=tacit.Budget(1, 1e-9))
    seconds = time.perf_counter() - began
    print(post.summary())
    print(f"{seconds:.0f} s, peak resident memory {peak() / 1e6:.0f} MB")


def peak():
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("This system does not say how much memory a process took.")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--make", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--fit", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.make:
        make(asked.make, asked.rows)
    elif asked.fit:
        fit(asked.fit)
    else:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "rows.parquet"
            again = [sys.executable, __file__, "--rows", str(asked.rows)]
            subprocess.run([*again, "--make", path], check=True)  # noqa: S603
            size = path.stat().st_size / 1e6
            print(f"{asked.rows:,} rows, 10 columns, a file of {size:.0f} MB", flush=True)
            subprocess.run([*again, "--fit", path], check=True)  # noqa: S603


if __name__ == "__main__":
    main()
