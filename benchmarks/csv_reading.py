"""How fast a CSV file is encoded, beside ``pandas.read_csv`` of the same file.

    python benchmarks/csv_reading.py --rows 1000000

Makes a file of ten columns in a temporary folder: people, four numbers, two categories, two counts and a
binary. Reads it by turns with pandas and with Tacit, a few times each, and prints the least seconds of
the processor and of the clock, and how many times as long Tacit took. Tacit's are those of the whole
way from the file to encoded rows. The file is made twice: with each person's rows one after the other, and
with all rows in a random order, in which nearly every row of a block names another person.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

import tacit

WARDS, REGIONS = ["medical", "surgical", "icu"], ["north", "south", "east", "west"]
NUMBERS = [f"x{i}" for i in range(4)]
SCHEMA = tacit.Schema(
    {
        **{name: tacit.Number(0, 100) for name in NUMBERS},
        "ward": tacit.Category(WARDS, other="other"),
        "region": tacit.Category(REGIONS),
        "visits": tacit.Count(30),
        "tests": tacit.Count(60),
        "died": tacit.Binary(),
    },
    person="patient",
    most_rows=8,
)


def table(rows):
    generator = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "patient": 1_000_000 + np.arange(rows) // 4,
            **{name: generator.normal(50, 10, rows).round(3) for name in NUMBERS},
            "ward": np.array([*WARDS, "day"])[generator.integers(0, 4, rows)],
            "region": np.array(REGIONS)[generator.integers(0, 4, rows)],
            "visits": generator.poisson(3, rows),
            "tests": generator.poisson(8, rows),
            "died": generator.integers(0, 2, rows),
        }
    )


def seconds(read, path):
    clock, processor = time.perf_counter(), time.process_time()
    read(path)
    return time.process_time() - processor, time.perf_counter() - clock


def compare(path, repeats):
    readers = {"pandas.read_csv": pd.read_csv, "tacit": SCHEMA.encode}
    found = {name: [] for name in readers}
    for _ in range(repeats):  # by turns, so that a busy machine slows both alike
        for name, read in readers.items():
            found[name].append(seconds(read, path))
    least = {name: np.min(each, axis=0) for name, each in found.items()}
    for name, (processor, clock) in least.items():
        print(f"  {name:16} {processor:6.2f} s of the processor, {clock:6.2f} s", flush=True)
    ratio = least["tacit"] / least["pandas.read_csv"]
    print(f"  ratio            {ratio[0]:6.2f}                     {ratio[1]:6.2f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    asked = parser.parse_args()
    made = table(asked.rows)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.csv"
        orders = {
            "each person's rows together": made,
            "a random order": made.sample(frac=1, random_state=0),
        }
        for name, rows in orders.items():
            rows.to_csv(path, index=False)
            print(f"{asked.rows:,} rows in {name}, {path.stat().st_size / 1e6:.0f} MB:", flush=True)
            compare(path, asked.repeats)


if __name__ == "__main__":
    main()
