"""Synthetic tables: what `tacit.synthesize` returns. Writing, analysing and describing them is free."""

import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tacit._html import render_template
from tacit._typing import Floats
from tacit.api.look import HTML_FILE, JSON_FILE, Look, _count_axis
from tacit.data.columns import Count, Date, Number
from tacit.data.schema import Schema
from tacit.errors import InvalidArgument
from tacit.inference.tables import MISSING_LABEL
from tacit.models.front_ends import SchemaLike
from tacit.results.combine import Combined, combine
from tacit.results.drawings import Bar
from tacit.results.report import write_files
from tacit.results.statement import PrivacyStatement

if TYPE_CHECKING:
    import pandas as pd

    from tacit.api.synthesize import SynthesisPlan

SYNTHETIC_HTML, SYNTHETIC_JSON = "synthetic.html", "synthetic.json"
_LEVEL = 0.9
_HOW_TO_ANALYSE = (
    "Analyse each table as if it were the data, and combine: an estimate is the mean over the tables, and its variance "
    "T = (1 + 1/m) b - u, where b is the variance of the m estimates and u the mean of their own variances. Intervals from one table alone, or "
    "from all rows in one table, are too narrow."
)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Synthetic:
    """Synthetic tables. Everything that is computed from them is free.

    ``syn.tables[0]`` is a data frame like any other. What one table says is too certain: `fit` and `apply` combine what
    is found in all of them, with errors that contain the noise.

    Attributes:
        schema: The schema of the synthetic tables. A row is one unit of the data: a row, or a person.
        tables: The tables, as data frames.
        cells: The cell of every row by column, [tables, rows], in the order of the released tables.
        look: What was released.
        complete: Columns without missing cells, by declaration.
        parameters: How many parameters the model of the released tables has.
        messages: Sentences on the chain that drew from the posterior, if it did not mix.
        noise_aware: Whether tables differ by what the noise hides. Otherwise, intervals are too narrow.
    """

    schema: Schema
    tables: "tuple[pd.DataFrame, ...]"
    cells: Mapping[str, NDArray[np.int64]]
    look: Look
    complete: tuple[str, ...]
    parameters: int
    messages: tuple[str, ...]
    noise_aware: bool = True

    @staticmethod
    def plan(schema: SchemaLike, **settings: Any) -> "SynthesisPlan":
        """What will be released and what it costs. Reads no data and charges nothing.

        Args:
            schema: The schema of the data, or the path of its file.
            **settings: As for `tacit.synthesize`.

        Returns:
            The plan. Print it.
        """
        from tacit.api.synthesize import plan_synthesis

        return plan_synthesis(schema, **settings)

    @property
    def privacy(self) -> PrivacyStatement:
        """The privacy statement."""
        return self.look.privacy

    @property
    def rows(self) -> int:
        """How many rows a table has."""
        return len(self.tables[0])

    def fit(self, formula: str, *, family: str | None = None, level: float = _LEVEL) -> Combined:
        """Fits a regression to each table without privacy, by the mode of its posterior, and combines the coefficients.

        Within a bin, the numbers of synthetic rows have nothing to do with other columns. So a predictor that is a number enters as the mean of its bin,
        which keeps its coefficient from being pulled towards zero.

        Args:
            formula: The formula, of columns of the tables.
            family: The distribution of the outcome, as for `tacit.glm`.
            level: The probability of the intervals.

        Returns:
            The coefficients, in the units of the table.

        Raises:
            InvalidArgument: If the formula is wrong, or a table has no mode.
        """
        from tacit.api.fit import fit_without_privacy
        from tacit.models.front_ends import adapt_model
        from tacit.models.glm import glm

        binned = [
            name
            for name in adapt_model(
                glm(formula, family=family, schema=self.schema), self.schema
            ).predictors
            if isinstance(self.schema[name], Number | Count | Date)
        ]
        schema = self.schema.with_columns(
            {
                name: Number(kind.low, kind.high, measured_in=kind.measured_in)
                for name in binned
                if isinstance(kind := self.schema[name], Count)
            }
        )
        # Adapted once, so that all fits share a compiled program.
        model = adapt_model(glm(formula, family=family, schema=schema), schema)

        def coefficients(place: int) -> dict[str, tuple[float, float]]:
            table = self.tables[place]
            means = {  # each value as the mean of those in its bin
                name: table[name].groupby(self.cells[name][place]).transform("mean")
                for name in binned
            }
            found = fit_without_privacy(model, table.assign(**means), schema=schema)
            if not found.converged:
                raise InvalidArgument(
                    f"{formula!r} has no mode in one of the synthetic tables; choose a simpler formula, or larger tables."
                )
            return {line.label: (line.mean, line.sd**2) for line in found.summary(level).lines}

        return self._combine([coefficients(i) for i in range(len(self.tables))], None, level)

    def apply(
        self,
        analysis: "Callable[[pd.DataFrame], Any]",
        *,
        names: Sequence[str] | None = None,
        level: float = _LEVEL,
    ) -> Combined:
        """Runs an analysis on each table and combines what it finds.

        Args:
            analysis: A function of a data frame. It returns an estimate and its variance, the squared standard error; or
                two arrays of them; or a mapping from names to such pairs.
            names: Names of the estimates, if the function does not return them.
            level: The probability of the intervals.

        Returns:
            The combined estimates.

        Raises:
            InvalidArgument: If the function returns something else.
        """
        return self._combine([analysis(table) for table in self.tables], names, level)

    def _combine(self, found: Sequence[Any], names: Sequence[str] | None, level: float) -> Combined:
        if all(isinstance(each, Mapping) for each in found):
            if any(set(each) != set(found[0]) for each in found):
                raise InvalidArgument("The analysis must return the same names for every table.")
            names = list(found[0])
            found = [tuple(zip(*(each[name] for name in names), strict=True)) for each in found]
        try:
            estimates, variances = zip(*found, strict=True)
        except (TypeError, ValueError):
            raise InvalidArgument(
                "The analysis must return an estimate and its variance, or a mapping from names to such pairs."
            ) from None
        ratio = self.rows / self.look.size
        return combine(estimates, variances, names=names, level=level, size_ratio=ratio)

    def write(self, folder: str | os.PathLike[str]) -> None:
        """Writes the tables as ``table_001.csv`` and so on, and their schema as ``schema.yaml``, into a folder.

        Args:
            folder: The folder, which is created if necessary.

        Raises:
            TacitError: If a file cannot be written.
        """
        digits = max(3, len(str(len(self.tables))))
        files = {
            f"table_{place:0{digits}d}.csv": table.to_csv(index=False)
            for place, table in enumerate(self.tables, 1)
        }
        write_files(Path(folder), {"schema.yaml": self.schema.to_text(), **files})

    def report(self, folder: str | os.PathLike[str]) -> None:
        """Writes pages and JSON files on these tables and on the look that they follow from, into a folder.

        ``Look.load(folder).synthesize()`` makes the tables again.

        Args:
            folder: The folder, which is created if necessary.

        Raises:
            TacitError: If a file cannot be written.
        """
        files = {
            JSON_FILE: self.look.to_json(),
            HTML_FILE: self.look.to_html(),
            SYNTHETIC_JSON: self.to_json(),
            SYNTHETIC_HTML: self.to_html(),
        }
        write_files(Path(folder), files)

    def counts(self, table: Sequence[str]) -> Floats:
        """The counts of cells in each synthetic table, in the order of the lines of ``look[table]``: [tables, cells].

        They are in rows of the data: where synthetic tables have another number of rows, counts are scaled.
        """
        sizes = [len(self.look.release.column(name).labels) for name in table]
        cells = np.ravel_multi_index([self.cells[name] for name in table], sizes)
        found = np.array([np.bincount(each, minlength=math.prod(sizes)) for each in cells])
        return found * (self.look.size / self.rows)

    def to_dict(self) -> dict[str, Any]:
        """What these tables are, as plain data; the tables themselves are in `tables`."""
        return {
            "sets": len(self.tables),
            "rows": self.rows,
            "columns": list(self.schema.names),
            "kept": [list(each) for each in self.look.tables],
            "complete": list(self.complete),
            "parameters": self.parameters,
            "noise_aware": self.noise_aware,
            "messages": list(self.messages),
            "unit": self.look.schema.unit,
            "schema": self.schema.to_text(),
            "privacy": self.privacy.to_dict(curve=False),
        }

    def to_json(self) -> str:
        """The same as JSON."""
        return json.dumps(self.to_dict(), indent=1, allow_nan=False, ensure_ascii=False)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What to know before anything else."""
        ignored = () if self.noise_aware else (
            "These tables ignore the noise: intervals from them are too narrow.",
        )  # fmt: skip
        seeded = () if self.privacy.warning is None else (self.privacy.warning,)
        return (*seeded, *ignored, *self.messages)

    @property
    def facts(self) -> tuple[str, ...]:
        """What the tables are, and what they keep, in sentences."""
        unit = self.look.schema.unit
        row = "" if unit == "row" else (
            " A row is a person: one of the rows of each, chosen at random. How rows of a person are related is lost."
        )  # fmt: skip
        numbers = [each.name for each in self.look.release.columns if each.is_number]
        within = (
            f" Inside a bin, {', '.join(numbers)} {'is' if len(numbers) == 1 else 'are'} unrelated to other columns."
            if numbers
            else ""
        )
        kept = (
            f"They keep these tables: {self.look.described_tables}. Columns that are together in none of them are related "
            f"through others only.{within}"
        )
        made = f"{len(self.tables)} synthetic tables of {self.rows:,} rows.{row}"
        return made, kept, _HOW_TO_ANALYSE

    def to_html(self) -> str:
        """The page: one file without scripts, which loads nothing."""
        panels = []
        for table in self.look.tables:
            frame, counts = self.look[table], self.counts(table)
            bars: list[tuple[str, Bar]] = []
            before = None
            for line, mean in zip(
                frame.itertuples(index=False, name=None), counts.mean(axis=0), strict=True
            ):
                labels, (lower, upper) = line[: len(table)], line[len(table) + 1 : len(table) + 3]
                if any(
                    n in self.complete and v == MISSING_LABEL
                    for n, v in zip(table, labels, strict=True)
                ):
                    continue
                above = "" if len(table) == 1 or labels[0] == before else f"{table[0]}: {labels[0]}"
                before = labels[0]
                name = ", ".join(map(str, labels[min(1, len(table) - 1) :]))
                bars.append((above, Bar(name, float(mean), lower, lower, upper, upper)))
            panels.append((" by ".join(table), bars, _count_axis([bar for _, bar in bars])))
        return render_template(
            "synthetic.html",
            title=f"Synthetic tables of {', '.join(self.schema.names)}",
            warnings=self.warnings,
            facts=self.facts,
            counted=self.look.counted,
            panels=panels,
            statement=self.privacy,
        )

    def __str__(self) -> str:
        own = self.privacy
        cost = own.cost_sentence if own.is_private else own.headline
        return "\n".join([*self.warnings, *self.facts, cost])

    def __repr__(self) -> str:
        return (
            f"Synthetic({len(self.tables)} tables of {self.rows:,} rows: {self.privacy.headline})"
        )
