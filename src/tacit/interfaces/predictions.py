"""Predictions as a CSV file, one line per new row."""

import csv
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TextIO

import numpy as np

from tacit.data.columns import Category
from tacit.data.tables import TableLike
from tacit.errors import InvalidArgument
from tacit.inference.base import Intervals
from tacit.results.posterior import Posterior
from tacit.results.predictive import ends, needed, predictions
from tacit.results.wording import beside


def write_predictions(
    posterior: Posterior,
    data: TableLike,
    out: Path | None,
    *,
    interval: bool,
    levels: Sequence[str],
) -> None:
    """Writes the mean of each row's outcome, or the probability of each level.

    Rows with a missing value get NA. With ``interval``, the ends of an interval are added; their
    column names say so if the interval does not account for the privacy noise.
    """
    found = posterior.predict(data)
    if isinstance(found, dict):
        raise InvalidArgument(
            f"The model has several outcomes ({', '.join(found)}); predict with Posterior.predict in "
            "Python."
        )
    mean = np.asarray(found)
    if mean.ndim > 1 and not levels:
        levels = _levels(posterior, data, mean.shape[1])
    if interval and mean.ndim > 1:
        raise InvalidArgument(
            "An interval needs a numeric outcome. This outcome has levels, and its predictions are "
            "probabilities; leave --interval out."
        )
    columns = {"mean": mean} if mean.ndim == 1 else dict(zip(levels, mean.T, strict=True))
    if interval:
        names = [_named(name, posterior.intervals) for name in ("5%", "95%")]
        (both,) = ends(posterior, data, [0.05, 0.95]).values()
        columns |= dict(zip(names, both, strict=True))
    lines = zip(*([_cell(value) for value in values] for values in columns.values()), strict=True)
    if out is None:
        _write(sys.stdout, list(columns), lines)
        return
    try:
        with out.open("w", encoding="utf-8", newline="") as opened:
            _write(opened, list(columns), lines)
    except OSError as error:
        raise InvalidArgument(f"{out} cannot be written: {error.strerror}.") from None


def _levels(posterior: Posterior, data: TableLike, count: int) -> list[str]:
    """Names of the levels of a model in a file: those of the schema's column, or numbers."""
    (outcome,) = predictions(posterior, data, "mean", 0)
    _, schema = needed(posterior)
    kind = schema[outcome] if outcome in schema.names else None
    if isinstance(kind, Category) and kind.size == count:
        return [str(each) for each in (*kind.levels, *filter(None, [kind.other]))]
    return [str(place) for place in range(count)]


def _named(name: str, intervals: Intervals) -> str:
    return beside(name, intervals) if intervals == Intervals.LEFT_OUT else name


def _cell(value: float) -> str:
    return "NA" if np.isnan(value) else f"{value:.6g}"


def _write(opened: TextIO, header: Sequence[str], lines: Iterable[Sequence[str]]) -> None:
    writer = csv.writer(opened, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(lines)
