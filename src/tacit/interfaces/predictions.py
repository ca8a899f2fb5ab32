"""Predictions as a CSV file, one line per new row."""

import csv
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from tacit.data.columns import Category
from tacit.data.tables import TableLike
from tacit.errors import InvalidArgument
from tacit.inference.base import Intervals
from tacit.results.posterior import Posterior
from tacit.results.predictive import predictions
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
    found = predictions(posterior, data, "mean", 0)
    if len(found) > 1:
        raise InvalidArgument(
            f"The model has several outcomes ({', '.join(found)}); predict with Posterior.predict in "
            "Python."
        )
    [(outcome, mean)] = found.items()
    if interval and mean.ndim > 1:
        raise InvalidArgument(
            "An interval needs a numeric outcome. This outcome has levels, and its predictions are "
            "probabilities; leave --interval out."
        )
    columns = {"mean": mean} if mean.ndim == 1 else _by_level(posterior, outcome, levels, mean)
    if interval:
        draws = np.asarray(posterior.predict(data, kind="draws"))
        names = [_named(name, posterior.intervals) for name in ("5%", "95%")]
        columns |= dict(zip(names, np.quantile(draws, [0.05, 0.95], axis=0), strict=True))
    lines = zip(*([_cell(value) for value in values] for values in columns.values()), strict=True)
    if out is None:
        _write(sys.stdout, list(columns), lines)
        return
    try:
        with out.open("w", encoding="utf-8", newline="") as opened:
            _write(opened, list(columns), lines)
    except OSError as error:
        raise InvalidArgument(f"{out} cannot be written: {error.strerror}.") from None


def _by_level(
    posterior: Posterior, outcome: str, levels: Sequence[str], mean: NDArray[Any]
) -> dict[str, NDArray[Any]]:
    """Probabilities by the names of the levels; of a model in a file, those of the schema's column."""
    schema = posterior.schema
    if not levels and schema is not None and outcome in schema.names:
        kind = schema[outcome]
        if isinstance(kind, Category):
            levels = [str(each) for each in (*kind.levels, *filter(None, [kind.other]))]
    if len(levels) != mean.shape[1]:
        levels = [str(place) for place in range(mean.shape[1])]
    return dict(zip(levels, mean.T, strict=True))


def _named(name: str, intervals: Intervals) -> str:
    return beside(name, intervals) if intervals == Intervals.LEFT_OUT else name


def _cell(value: float) -> str:
    return "NA" if np.isnan(value) else f"{value:.6g}"


def _write(opened: TextIO, header: Sequence[str], lines: Iterable[Sequence[str]]) -> None:
    writer = csv.writer(opened, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(lines)
