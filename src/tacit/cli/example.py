"""Simulated hospital visits to try Tacit on: a table, its schema and new patients."""

import csv
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray

from tacit.data.columns import Binary, Category, Number
from tacit.data.schema import Schema
from tacit.errors import InvalidArgument

NUM_VISITS, NUM_PATIENTS = 20_000, 6_000
WARDS = ("medical", "surgical", "geriatric", "palliative")
SCHEMA = Schema(
    {
        "age": Number(18, 100, measured_in="years"),
        "dose": Number(0, 50, measured_in="mg"),
        "ward": Category(["medical", "surgical", "geriatric"], other="other"),
        "readmitted": Binary(),
    },
    person="patient",
    most_rows=8,
)


def example(
    folder: Annotated[Path, typer.Argument(help="Folder to write to.")] = Path(),
) -> None:
    """Write a simulated table of hospital visits, with its schema, to try Tacit on."""
    for path in write_example(folder):
        typer.echo(f"Wrote {path}.")


def write_example(folder: Path) -> list[Path]:
    """Writes ``visits.csv``, its schema ``visits.yaml``, and ``new_patients.csv``."""
    paths = [folder / name for name in ("visits.csv", "visits.yaml", "new_patients.csv")]
    for path in paths:
        if path.exists():
            raise InvalidArgument(f"{path} already exists; pass another folder.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _write_csv(paths[0], simulate_visits())
        SCHEMA.to_yaml(paths[1])
        _write_csv(paths[2], {"age": [30, 80], "dose": [40, 10], "ward": ["medical", "hospice"]})
    except OSError as error:
        raise InvalidArgument(f"{folder} cannot be written: {error.strerror}.") from None
    return paths


def simulate_visits() -> dict[str, NDArray[np.generic]]:
    """Simulated visits, the same every time. They are not data about real people."""
    rng = np.random.default_rng(0)
    patient = rng.integers(0, NUM_PATIENTS, NUM_VISITS)
    age = rng.integers(18, 95, NUM_PATIENTS)[patient]
    dose = rng.uniform(0, 50, NUM_VISITS).round(1)
    ward = rng.choice(WARDS, NUM_VISITS, p=[0.4, 0.3, 0.25, 0.05])
    logit = -1 + (age - 59) / 41 - (dose - 25) / 25 + (ward == "geriatric")
    readmitted = np.where(rng.uniform(size=NUM_VISITS) < 1 / (1 + np.exp(-logit)), 1, 0)
    return {"patient": patient, "age": age, "dose": dose, "ward": ward, "readmitted": readmitted}


def _write_csv(path: Path, columns: Mapping[str, Iterable[object]]) -> None:
    lines = zip(*columns.values(), strict=True)
    with path.open("w", encoding="utf-8", newline="") as opened:
        writer = csv.writer(opened, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(lines)
