"""From a table to a report by the command line, timed in fresh processes: Adult with eight predictors.

    python benchmarks/command_line.py --data ../shared/data

Fits ``tacit fit`` at epsilon 1 to the training rows of Adult, predicts the test rows by ``tacit
predict``, and prints seconds and accuracy, beside the same model without privacy and a
prediction of "no" for everyone. Bounds and levels are those of the census questionnaire.
"""

import argparse
import csv
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import tacit

FORMULA = "income ~ age + education_num + hours + capital_gain + capital_loss + sex + marital + occupation"
RENAMED = {
    "education-num": "education_num",
    "hours-per-week": "hours",
    "capital-gain": "capital_gain",
    "capital-loss": "capital_loss",
    "marital-status": "marital",
}
SCHEMA = tacit.Schema(
    {
        "age": tacit.Number(17, 90),
        "education_num": tacit.Number(1, 16),
        "hours": tacit.Number(1, 99),
        "capital_gain": tacit.Number(0, 20_000),
        "capital_loss": tacit.Number(0, 3_000),
        "sex": tacit.Binary(yes="Male", no="Female"),
        "marital": tacit.Category(
            ["Never-married", "Married-civ-spouse", "Divorced", "Separated", "Widowed"],
            other="other",
        ),
        "occupation": tacit.Category(
            [
                *("Adm-clerical", "Craft-repair", "Exec-managerial", "Farming-fishing"),
                *("Handlers-cleaners", "Machine-op-inspct", "Other-service", "Prof-specialty"),
                *("Protective-serv", "Sales", "Tech-support", "Transport-moving"),
            ],
            other="other",
            missing="other",
        ),
        "income": tacit.Binary(yes=">50K", no="<=50K"),
    }
)


def prepared(source, folder):
    """Training and test rows as files of their own, with names that a formula can have."""
    with (source / "adult.csv").open(encoding="utf-8") as opened:
        rows = [{RENAMED.get(k, k): v for k, v in row.items()} for row in csv.DictReader(opened)]
    for part in ("train", "test"):
        with (folder / f"{part}.csv").open("w", encoding="utf-8", newline="") as opened:
            writer = csv.DictWriter(opened, SCHEMA.names, extrasaction="ignore")
            writer.writeheader()
            writer.writerows(row for row in rows if row["split"] == part)
    SCHEMA.to_yaml(folder / "adult.yaml")


def called(folder, *arguments):
    """Seconds that a command takes in a process of its own."""
    began = time.monotonic()
    command = [sys.executable, "-m", "tacit", *arguments]
    subprocess.run(command, cwd=folder, check=True)  # noqa: S603 (our own)
    return time.monotonic() - began


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    options = parser.parse_args()
    if not (options.data / "adult.csv").exists():
        parser.error(f"there is no adult.csv in {options.data}; name the folder with --data")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepared(options.data, folder)
        called(folder, *["ledger", "new", "adult.db", "--epsilon", "1", "--delta", "1e-6"])
        fitted = called(
            folder,
            *[
                "fit",
                "train.csv",
                "--schema",
                "adult.yaml",
                "--epsilon",
                "1",
                "--delta",
                "1e-6",
                "--ledger",
                "adult.db",
            ],
            *("--formula", FORMULA, "--out", "run", "--quiet"),
        )
        predicted = called(folder, "predict", "run", "test.csv", "--out", "predicted.csv")
        found = np.loadtxt(folder / "predicted.csv", skiprows=1) > 0.5
        truth = SCHEMA.encode(folder / "test.csv", ["income"]).columns["income"] == 1
        model = tacit.glm(FORMULA, schema=SCHEMA)
        clear = tacit.fit_without_privacy(model, folder / "train.csv")
        without = clear.predict(folder / "test.csv") > 0.5
    print(f"{'':32} {'seconds':>8} {'test accuracy':>14}")
    print(f"{'tacit fit, epsilon 1':32} {fitted:8.1f} {np.mean(found == truth):14.4f}")
    print(f"{'tacit predict':32} {predicted:8.1f}")
    print(f"{'the same model without privacy':32} {'':8} {np.mean(without == truth):14.4f}")
    print(f"{'no for everyone':32} {'':8} {np.mean(~truth):14.4f}")


if __name__ == "__main__":
    main()
