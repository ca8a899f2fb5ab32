"""The public tables that the papers use: from a folder, or else by scikit-learn's loaders."""

import csv
from pathlib import Path

import numpy as np

# Of OpenML.
_NUMBERS = {"abalone": 183, "adult": 1590}


class NoData(Exception):
    """A table is neither in the folder nor to be had otherwise; the message says what to do."""


def abalone(folder: Path):
    """Eight attributes of 4,177 abalones, and whether they have ten rings or more."""
    rows = rows_of(folder, "abalone")
    sexes = np.array([[row["sex"] == s for s in "MFI"] for row in rows], float)
    names = [n for n in rows[0] if n not in {"sex", "rings"}]
    numbers = np.array([[float(row[n]) for n in names] for row in rows])
    # One number for sex, as the authors' scripts have it: male 1, female 0, infant -1.
    x = np.column_stack([sexes @ [1.0, 0.0, -1.0], numbers])
    return x, np.array([int(row["rings"]) >= 10 for row in rows])


def adult(folder: Path):
    """Fourteen attributes of 48,842 people, and whether they earn more than 50,000 dollars."""
    rows = rows_of(folder, "adult")
    names = [n for n in rows[0] if n not in {"income", "split"}]
    columns = []
    for name in names:
        values = [row[name] for row in rows]
        try:
            columns.append(np.array(values, float))
        except ValueError:  # categories by number, in alphabetical order
            columns.append(np.unique(values, return_inverse=True)[1].astype(float))
    return np.column_stack(columns), np.array([row["income"].startswith(">") for row in rows])


def standardised(x):
    """Mean 0 and deviation 1 by the whole table, as the papers do, and a column of ones.

    That is not private, and here only makes the comparison fair.
    """
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    return np.column_stack([x, np.ones(len(x))])


def split(size: int, seed: int):
    """Places of a random 80% for training, and of the rest."""
    order = np.random.default_rng(seed).permutation(size)
    cut = round(0.8 * size)
    return order[:cut], order[cut:]


def rows_of(folder: Path, name: str):
    """The rows of a table, by column.

    Raises:
        NoData: If it is not in the folder, and cannot be fetched.
    """
    path = folder / f"{name}.csv"
    if path.exists():
        with path.open(encoding="utf-8") as opened:
            return list(csv.DictReader(opened))
    return _fetched(path, name, _NUMBERS[name])


_RENAMED = {
    "Sex": "sex", "Length": "length", "Diameter": "diameter", "Height": "height",
    "Whole_weight": "whole_weight", "Shucked_weight": "shucked_weight",
    "Viscera_weight": "viscera_weight", "Shell_weight": "shell_weight",
    "Class_number_of_rings": "rings", "class": "income",
}  # fmt: skip


def _fetched(path: Path, name: str, number: int):
    from sklearn.datasets import fetch_openml

    try:
        table = fetch_openml(data_id=number, as_frame=True, parser="auto").frame
    except Exception as error:
        raise NoData(
            f"There is no {path}, and scikit-learn could not fetch {name} ({type(error).__name__}); "
            "name the folder that holds it with --data."
        ) from error
    table = table.rename(columns=_RENAMED)
    return table.astype(object).where(table.notna(), "?").to_dict("records")
