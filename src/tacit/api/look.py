"""A look at a table: counts, shares, means and quantiles that were released, as data frames, text, plots, JSON and a page."""

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.special import ndtri

from tacit import _validate
from tacit._format import text_table
from tacit._html import render_template
from tacit._typing import Floats
from tacit.api.release import SiteStatements, site_dicts, sites_sentences
from tacit.api.scenario import ColumnDistribution, Scenario
from tacit.data.columns import Binary
from tacit.data.schema import Schema
from tacit.errors import InvalidArgument, TacitError
from tacit.inference.table_estimates import Intervals, ReleasedTables
from tacit.inference.tables import (
    MISSING_LABEL,
    PARTS,
    CountedColumn,
    Table,
    TableRelease,
    sorted_table,
)
from tacit.results.drawings import COLOURS, Axis, Bar, axis_for_bars
from tacit.results.report import write_files
from tacit.results.statement import UNIT_PLURALS, PrivacyStatement

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from tacit.api.explore import LookPlan
    from tacit.api.synthetic import Synthetic
    from tacit.models.front_ends import SchemaLike

QUARTILES = (0.25, 0.5, 0.75)
HTML_FILE, JSON_FILE = "look.html", "look.json"
# A scenario describes a number by this many equally likely values.
_SCENARIO_VALUES = 20
_MAX_CORRELATION = 0.9


class Estimate(NamedTuple):
    """A released number and the ends of its 90% interval, which contains the noise.

    >>> print(Estimate(56.123, 55.18, 57.04))
    56.1 (55.2 to 57.0)
    """

    value: float
    lower: float
    upper: float

    def __str__(self) -> str:
        width = self.upper - self.lower
        decimals = min(max(1 - math.floor(math.log10(width)), 0), 6) if width > 0 else 1
        value, lower, upper = (f"{each:,.{decimals}f}" for each in self)
        return f"{value} ({lower} to {upper})"

    def as_count(self) -> str:
        """A count, without decimals."""
        return f"{self.value:,.0f} ({self.lower:,.0f} to {self.upper:,.0f})"

    def as_percent(self) -> str:
        """A share, in percent."""
        decimals = 0 if self.upper - self.lower > 0.02 else 1
        value, lower, upper = (f"{100 * each:.{decimals}f}" for each in self)
        return f"{value}% ({lower} to {upper}%)"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Look:
    """What `tacit.explore` released. Everything that is computed from it is free.

    ``look["ward"]`` and ``look["ward", "readmitted"]`` are data frames of counts and shares, with 90% intervals. Intervals are
    about these rows: they contain the privacy noise, and not how other samples of people would differ.

    Attributes:
        schema: The schema of the data.
        tables: The tables that were requested.
        by: The column that tables were grouped by, or None.
        estimates: What was released, and how numbers are computed from it.
        privacy: The privacy statement; of several sites, that of the one that spent most.
        sites: Of several sites, the privacy statement of each by its name; None for a site that did not answer, whose rows are
            not in the look. Empty for one table.
    """

    schema: Schema
    tables: tuple[Table, ...]
    by: str | None
    estimates: ReleasedTables
    privacy: PrivacyStatement
    sites: SiteStatements = field(default_factory=dict)

    @staticmethod
    def plan(schema: "SchemaLike", **settings: Any) -> "LookPlan":
        """How wide intervals will be. Reads no data and charges nothing.

        Args:
            schema: The schema of the data, or the path of its file.
            **settings: ``tables``, ``by``, ``bins``, ``count`` and a budget as for `tacit.explore`; and ``size``, about how many
                rows or people there are, a public number.

        Returns:
            The plan. Print it.
        """
        from tacit.api.explore import plan_look

        return plan_look(schema, **settings)

    @property
    def release(self) -> TableRelease:
        """The release that was requested."""
        return self.estimates.release

    @property
    def counted(self) -> str:
        """What a count counts: ``"rows"`` or ``"people"``."""
        by_row = self.schema.person is None or self.release.count_rows
        return UNIT_PLURALS["row" if by_row else "person"]

    @property
    def total(self) -> Estimate:
        """How many rows there are, or people."""
        return _estimate(self.estimates.total, 0)

    @property
    def rows_per_person(self) -> Estimate:
        """The mean number of rows of a person, of those that count.

        Raises:
            InvalidArgument: If rows are units.
        """
        if self.release.rows_per_unit == 1:
            raise InvalidArgument("Every unit has one row.")
        return _estimate(self.estimates.rows_per_person, 0)

    @property
    def size(self) -> int:
        """How many units there are, for ``size=`` of `tacit.forecast` and `tacit.fit`."""
        whole, _ = self.estimates.answers[()]
        is_second = self.release.count_rows and self.release.rows_per_unit > 1
        return max(1, round(float(whole[1] if is_second else whole[0])))

    def __getitem__(self, names: str | Table) -> "pd.DataFrame":
        """The table of one or more columns: counts and shares of all cells, with the ends of 90% intervals."""
        import pandas as pd

        table = self._check_table((names,) if isinstance(names, str) else tuple(names))
        labels = [self.release.column(name).labels for name in table]
        cells = list(product(*labels))
        found = {name: [cell[i] for cell in cells] for i, name in enumerate(table)}
        numbers: dict[str, Floats] = {}
        for kind, own in (("count", self._counts(table)), ("share", self._shares(table))):
            prefix = "" if kind == "count" else "share_"
            numbers |= dict(
                zip((kind, f"{prefix}lower", f"{prefix}upper"), map(np.ravel, own), strict=True)
            )
        return pd.DataFrame({**found, **numbers})

    def mean(self, name: str, by: str | Sequence[str] | None = None) -> Any:
        """The mean of a number or a count, or the share of yes in a binary column, of values that are not missing.

        Args:
            name: The column.
            by: A column, or several, to group by; a table of them with ``name`` must have been requested.

        Returns:
            An `Estimate`, or with ``by`` a data frame of value, lower and upper.
        """
        groups = self._check_groups(name, by)
        column = self.release.column(name)
        if not column.is_number and not isinstance(column.kind, Binary):
            raise InvalidArgument(f"{name!r} has levels, so it has no mean; see look[{name!r}].")
        find = self.estimates.means if column.is_number else self.estimates.proportions
        found = find(name, sorted_table(groups))
        return self._frame(found, groups) if groups else _estimate(found, ())

    def quantiles(
        self,
        name: str,
        probabilities: Sequence[float] = QUARTILES,
        by: str | Sequence[str] | None = None,
    ) -> "pd.DataFrame":
        """Quantiles of a number or a count, of values that are not missing.

        Args:
            name: The column.
            probabilities: The probabilities, between 0 and 1.
            by: A column, or several, to group by, as for `mean`.

        Returns:
            A data frame of quantile, value, lower and upper.
        """
        groups, shares = self._check_groups(name, by), [float(each) for each in probabilities]
        if not self.release.column(name).is_number:
            raise InvalidArgument(
                f"{name!r} has levels, so it has no quantiles; see look[{name!r}]."
            )
        if not shares or not all(0 < each < 1 for each in shares):
            raise InvalidArgument("probabilities must be numbers between 0 and 1.")
        found = self.estimates.quantiles(name, shares, sorted_table(groups))
        return self._frame(found, groups, {"quantile": shares})

    def survival(
        self,
        time: str,
        event: str,
        by: str | Sequence[str] | None = None,
        times: Sequence[float] | None = None,
    ) -> "pd.DataFrame":
        """The Kaplan-Meier curve of a time: the share for which the event had not happened yet.

        A table of the time with the event (and with what it is grouped by) must be among the released ones, as in
        ``tables=[("months", "died")]``. At a time that is a number, events at exactly that time are not counted yet, so times in whole
        units should be a `tacit.Count`: at a count they are. Where too few are left at risk for the noise, there is no estimate, and the interval
        reaches from zero to where the curve was last. Within bins, whose edges are those of `quantiles`, it is not known who was censored
        before an event, and intervals have room for it; each contains the noise, and not how other people would differ.

        Args:
            time: The time to the event, or to the end of observation: a number or a count.
            event: A binary column: whether the event happened then.
            by: A column, or several, to group by.
            times: The times; by default the edges of bins.

        Returns:
            A data frame of time, value, lower and upper, after the columns of the groups.
        """
        groups = self._check_groups(time, (event, *(() if by is None else _names(by))))[1:]
        column = self.release.column(time)
        if not column.is_number or not isinstance(self.release.column(event).kind, Binary):
            raise InvalidArgument(
                "survival needs a time, which is a number or a count, and a binary event."
            )
        found = self.estimates.survival(time, event, groups)
        edges = np.array(column.edges[PARTS])
        if column.is_whole:  # halfway between two values, after the lower one
            edges = np.floor(edges)
        if times is None:
            begin = 1 if column.is_whole else 0
            found = Intervals(*(each[..., begin:] for each in found))
            return self._frame(found, groups, {"time": edges[begin:].tolist()})
        low, high = column.kind.low, column.kind.high
        try:
            chosen = np.array([float(each) for each in times])
        except (TypeError, ValueError):
            chosen = np.array([math.nan])
        if not np.all((chosen >= low) & (chosen <= high)):
            raise InvalidArgument(
                f"times must be numbers between {low:g} and {high:g}, the bounds of {time!r}."
            )
        places = (
            np.floor(chosen) if column.is_whole else chosen
        )  # nothing happens between two counts
        before = np.searchsorted(edges, places, side="right") - 1
        after = np.searchsorted(edges, places, side="left")
        share = np.where(
            after > before,
            (places - edges[before]) / np.maximum(edges[after] - edges[before], 1e-300),
            0.0,
        )
        values = (1 - share) * found.estimates[..., before] + share * found.estimates[..., after]
        found = Intervals(values, found.lower[..., after], found.upper[..., before])
        return self._frame(found, groups, {"time": chosen.tolist()})

    def table_one(self, by: str | None = None) -> "pd.DataFrame":
        """A "Table 1": every column described, for all and for each group, with 90% intervals in brackets.

        Args:
            by: The column to group by; by default that of `tacit.explore`. Columns that no table has together with it are left out.

        Returns:
            A data frame of text, with a column for all and one for each group.
        """
        import pandas as pd

        by = self.by if by is None else by
        if by is not None:
            self._check_table((by,))
        names = [each.name for each in self.release.columns if each.name != by]
        if by is not None:
            names = [name for name in names if sorted_table((name, by)) in self.release.parts]
            if not names:
                raise InvalidArgument(
                    f"No table has {by!r} together with another column; pass by={by!r} to explore."
                )
        lines: dict[tuple[str, str], list[str]] = {(self.counted, ""): [self.total.as_count()]}
        if by is not None:
            counts = self._counts((by,))
            lines[self.counted, ""] += [
                _estimate(counts, i).as_count() for i in range(len(counts.estimates))
            ]
        for name in names:
            lines |= self._described(name, by)
        titles = (
            ["all"]
            if by is None
            else ["all", *(f"{by}: {each}" for each in self.release.column(by).labels)]
        )
        index = pd.MultiIndex.from_tuples(list(lines), names=["column", ""])
        return pd.DataFrame(list(lines.values()), index=index, columns=titles)

    def _described(self, name: str, by: str | None) -> dict[tuple[str, str], list[str]]:
        """The lines of a "Table 1" about one column."""
        column, lines = self.release.column(name), {}
        groups: list[Table] = [()] if by is None else [(), (by,)]
        if column.is_number:
            title = (
                name if column.kind.measured_in is None else f"{name} ({column.kind.measured_in})"
            )
            means = [
                self.estimates.means(name, each) for each in groups if self._has_means(name, each)
            ]
            medians = [
                self.estimates.quantiles(name, [0.5], each)
                for each in groups
                if self._has_means(name, each)
            ]
            if len(means) == len(groups):
                lines[title, "mean"] = [str(e) for each in means for e in _all_estimates(each)]
                lines[title, "median"] = [str(e) for each in medians for e in _all_estimates(each)]
        else:
            title = name
        shares = [self._shares((name,)), *([] if by is None else [self._shares((name, by), (by,))])]
        shown = range(len(column.labels)) if not lines else [len(column.labels) - 1]
        for cell in shown:
            own = [Intervals(*(np.ravel(end[cell]) for end in each)) for each in shares]
            lines[title, column.labels[cell]] = [
                e.as_percent() for each in own for e in _all_estimates(each)
            ]
        return lines

    def scenario(self) -> Scenario:
        """What was released, as a scenario for `tacit.forecast` and `tacit.plan`.

        Numbers are described by twenty equally likely values, levels by their shares, and pairs of ordered columns
        whose table was requested by a correlation, if its interval excludes zero. It is all released, so it costs nothing more.
        """
        columns = {each.name: self._distribution(each) for each in self.release.columns}
        people = self.release.rows_per_unit > 1
        rows = max(1, round(self.rows_per_person.value)) if people else None
        return Scenario(columns=columns, correlations=self._correlations(), rows_per_person=rows)

    def synthesize(
        self,
        *,
        complete: bool | Sequence[str] = False,
        sets: int = 50,
        size: int | None = None,
        seed: int = 0,
    ) -> "Synthetic":
        """Draws synthetic tables from what was released. It costs nothing more.

        Args:
            complete: Columns that are known to have no missing cell, or True for all: a public fact.
            sets: How many tables.
            size: How many rows each of them has; by default the released number of rows or people.
            seed: The seed of the draws: the same tables for the same seed.

        Returns:
            The synthetic tables; see `tacit.synthesize`.

        Raises:
            InvalidArgument: If an argument is wrong, the tables join too many columns, or the look counts rows of people.
        """
        from tacit.api.synthesize import draw_tables

        return draw_tables(self, complete=complete, sets=sets, size=size, seed=seed)

    def _distribution(self, column: CountedColumn) -> ColumnDistribution:
        if column.is_number:
            middles = (np.arange(_SCENARIO_VALUES) + 0.5) / _SCENARIO_VALUES
            values = self.estimates.quantiles(column.name, middles.tolist()).estimates
            found: dict[float, float] = {}
            for value in values.tolist():
                key = float(f"{value:.5g}")
                found[key] = found.get(key, 0.0) + 1 / _SCENARIO_VALUES
            return {key: round(share, 6) for key, share in found.items()}
        counts = self._counts((column.name,)).estimates[:-1]
        shares = (
            counts / counts.sum() if counts.sum() > 0 else np.full(len(counts), 1 / len(counts))
        )
        if isinstance(column.kind, Binary):
            return round(float(shares[1]), 4)
        return dict(zip(column.kind.labels, shares.round(6).tolist(), strict=True))

    def _correlations(self) -> dict[str, dict[str, float]]:
        """Correlations of the normal variables behind pairs of ordered columns."""
        found: dict[str, dict[str, float]] = {}
        ordered = {
            c.name for c in self.release.columns if c.is_number or isinstance(c.kind, Binary)
        }
        pairs = [part for part in self.release.parts if len(part) == 2 and set(part) <= ordered]
        names = sorted({name for pair in pairs for name in pair})
        matrix = np.eye(len(names))
        for pair in pairs:
            scores = {name: _normal_scores(self._counts((name,)).estimates[:-1]) for name in pair}
            # Of two normal variables, scores of bins have this share of the correlation.
            share = math.prod(float(own @ (each**2)) for each, own in scores.values())
            if share <= 0:
                continue
            product_ = _estimate(
                self.estimates.score_product({n: s for n, (s, _) in scores.items()}), 0
            )
            if product_.lower <= 0 <= product_.upper:
                continue
            value = float(np.clip(product_.value / share, -_MAX_CORRELATION, _MAX_CORRELATION))
            i, j = names.index(pair[0]), names.index(pair[1])
            matrix[i, j] = matrix[j, i] = value
        while (
            np.linalg.eigvalsh(matrix).min(initial=1.0) < 0.01
        ):  # noise may make them contradict each other
            matrix = 0.95 * matrix + 0.05 * np.eye(len(names))
        for first, second in pairs:
            value = matrix[names.index(first), names.index(second)]
            if value:
                found.setdefault(first, {})[second] = round(float(value), 3)
        return found

    def plot(self, path: str | os.PathLike[str] | None = None) -> "Figure":
        """Bar charts of all tables, with 90% intervals. Needs matplotlib (the ``plots`` extra).

        Args:
            path: A file to save the figure to, PNG, PDF or SVG.

        Returns:
            The matplotlib figure.
        """
        from tacit.results.plots import add_caption, load_pyplot, saving_figure

        with saving_figure(path) as keep:
            heights = [len(self[table]) for table in self.tables]
            figure, axes = load_pyplot().subplots(
                len(self.tables),
                figsize=(7.2, 0.9 + 0.28 * sum(each + 2 for each in heights)),
                squeeze=False,
                layout="constrained",
                height_ratios=[each + 2 for each in heights],
            )
            for one, table in zip(axes[:, 0], self.tables, strict=True):
                _draw_counts(one, table, self._bars(table))
            above = () if self.privacy.warning is None else (self.privacy.warning,)
            add_caption(figure, above, f"{self.counted}, with 90% intervals that contain the noise")
            return keep(figure)

    def report(self, folder: str | os.PathLike[str]) -> None:
        """Writes ``look.html``, a page of charts and tables, and ``look.json``, which `load` reads, into a folder.

        Args:
            folder: The folder, which is created if necessary.

        Raises:
            TacitError: If a file cannot be written.
        """
        write_files(Path(folder), {JSON_FILE: self.to_json(), HTML_FILE: self.to_html()})

    def to_html(self) -> str:
        """The page: one file without scripts, which loads nothing."""
        panels = []
        for table in self.tables:
            bars = self._bars(table)
            panels.append((" by ".join(table), bars, _count_axis([bar for _, bar in bars])))
        one = self.table_one()
        rows = [
            [(name, more), *(cell.split(" ", 1) for cell in cells)]
            for (name, more), cells in zip(one.index, one.to_numpy().tolist(), strict=True)
        ]
        return render_template(
            "look.html",
            look=self,
            title=f"A look at {', '.join(each.name for each in self.release.columns)}",
            panels=panels,
            header=["", *one.columns],
            rows=rows,
            quantiles=self._quantile_rows(),
            statement=self.privacy,
            sites=sites_sentences(self.sites),
        )

    def to_json(self) -> str:
        """Everything as JSON: numbers with intervals, the privacy statement, and what `load` needs."""
        return json.dumps(self.to_dict(), indent=1, allow_nan=False, ensure_ascii=False)

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data."""
        release = self.release
        numbers = [each.name for each in release.columns if each.is_number]
        means = {n: self.mean(n)._asdict() for n in numbers}
        return {
            "counted": self.counted,
            "interval": self.estimates.level,
            "total": self.total._asdict(),
            "rows_per_person": self.rows_per_person._asdict()
            if release.rows_per_unit > 1
            else None,
            "tables": [
                {"columns": list(table), "cells": self[table].to_dict("records")}
                for table in self.tables
            ],
            "means": means,
            "quantiles": {n: self.quantiles(n).to_dict("records") for n in numbers},
            "privacy": self.privacy.to_dict(curve=False),
            **({"sites": site_dicts(self.sites)} if self.sites else {}),
            "release": {
                "schema": self.schema.to_text(),
                "tables": [list(table) for table in self.tables],
                "by": self.by,
                "count": self.counted,
                "bins": {each.name: each.inner_edges for each in release.columns if each.is_number},
                "noise_std": self.estimates.noise_std,
                "answers": self.estimates.released.tolist(),
            },
        }

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Look":
        """Reads a look from its JSON file, or from the folder of its report.

        Args:
            path: The file or the folder.

        Returns:
            The look.

        Raises:
            InvalidArgument: If the file cannot be read, or is not that of a look.
        """
        from tacit.api.explore import build_release

        file = Path(path) / JSON_FILE if Path(path).is_dir() else Path(path)
        try:
            found = json.loads(file.read_text(encoding="utf-8"))
            asked = found["release"]
            schema = Schema.from_text(str(asked["schema"]))
            tables = tuple(tuple(map(str, each)) for each in asked["tables"])
            release = build_release(schema, tables, asked["bins"], asked["count"])
            released = np.array(asked["answers"], np.float64)
            if released.shape != (release.dimension,):
                raise InvalidArgument(
                    f"{file} has another number of answers than its tables ask for."
                )
            noise = _validate.positive("noise_std", asked["noise_std"])
            return cls(
                schema=schema,
                tables=tables,
                by=asked["by"],
                estimates=ReleasedTables(release, released, noise),
                privacy=PrivacyStatement.from_json(json.dumps(found["privacy"])),
                sites={
                    name: None if own is None else PrivacyStatement.from_json(json.dumps(own))
                    for name, own in found.get("sites", {}).items()
                },
            )
        except (
            OSError,
            UnicodeDecodeError,
            AttributeError,
            KeyError,
            TypeError,
            ValueError,
        ) as error:
            if isinstance(error, TacitError):
                raise
            raise InvalidArgument(f"{file} is not the file of a look that Tacit wrote.") from None

    def __str__(self) -> str:
        parts = [f"{self.counted}: {self.total.as_count()}"]
        if self.release.rows_per_unit > 1:
            parts.append(f"rows per person: {self.rows_per_person}")
        for table in self.tables:
            frame = self[table]
            header = [*table, "count", "90% interval", "share"]
            lines = [
                [
                    *map(str, line[: len(table)]),
                    *_count_cells(Estimate(*line[len(table) : len(table) + 3])),
                    f"{line[len(table) + 3]:.1%}",
                ]
                for line in frame.itertuples(index=False, name=None)
            ]
            parts.append(text_table(lines, "l" * len(table) + "rrr", header))
        if rows := self._quantile_rows():
            parts.append(text_table(rows, "lrrrr", ["", "mean", "25%", "median", "75%"]))
        own = self.privacy
        parts += sites_sentences(self.sites)
        parts.append(own.cost_sentence if own.is_private else own.headline)
        return "\n\n".join(parts)

    def __repr__(self) -> str:
        return (
            f"Look({'; '.join(', '.join(each) for each in self.tables)}: {self.privacy.headline})"
        )

    def _repr_html_(self) -> str:
        warned = "" if self.privacy.warning is None else self.privacy.warning
        return f"{warned}{self.table_one().to_html()}"

    def _quantile_rows(self) -> list[list[str]]:
        """The mean and the quartiles of every number, as text."""
        found = []
        for column in self.release.columns:
            if column.is_number:
                quartiles = _all_estimates(self.estimates.quantiles(column.name, QUARTILES))
                found.append([column.name, str(self.mean(column.name)), *map(str, quartiles)])
        return found

    def _check_table(self, names: Table) -> Table:
        known = {each.name for each in self.release.columns}
        for name in names:
            if name not in known:
                raise InvalidArgument(
                    f"{name!r} was not requested; the columns of this look are {', '.join(sorted(known))}."
                )
        if sorted_table(names) not in self.release.parts:
            raise InvalidArgument(
                f"No table of {', '.join(names)} was requested; the requested tables are {self.described_tables}."
            )
        return names

    @property
    def described_tables(self) -> str:
        """The tables in words."""
        return "; ".join(" by ".join(each) for each in self.tables)

    def _check_groups(self, name: str, by: str | Sequence[str] | None) -> Table:
        groups = () if by is None else _names(by)
        self._check_table((name, *groups))
        if not self._has_means(name, groups):
            raise InvalidArgument(
                f"A table of {', '.join((name, *groups))} has bins of two columns, so it has no means of groups; ask for "
                f"a table of {name} and columns with levels."
            )
        return groups

    def _has_means(self, name: str, groups: Table) -> bool:
        """Whether parts of bins were requested in these groups."""
        asked = dict(self.release.asked(sorted_table((name, *groups))))
        return not self.release.column(name).is_number or asked[name] >= PARTS

    def _counts(self, table: Table) -> Intervals:
        """Counts with axes in the order of a table."""
        return _reordered(self.estimates.counts(sorted_table(table)), table)

    def _shares(self, table: Table, within: Table = ()) -> Intervals:
        return _reordered(self.estimates.shares(sorted_table(table), within), table)

    def _frame(
        self, found: Intervals, groups: Table, last: Mapping[str, Sequence[float]] | None = None
    ) -> "pd.DataFrame":
        """Estimates as a data frame: a line for each combination of groups, and of what the last axis is."""
        import pandas as pd

        own = _reordered(found, groups)
        axes: dict[str, Sequence[object]] = {n: self.release.column(n).labels for n in groups}
        axes |= last or {}
        lines = list(product(*axes.values()))
        ends = zip(("value", "lower", "upper"), map(np.ravel, own), strict=True)
        return pd.DataFrame(
            {**{n: [line[i] for line in lines] for i, n in enumerate(axes)}, **dict(ends)}
        )

    def _bars(self, table: Table) -> list[tuple[str, Bar]]:
        """A bar for each cell of a table, and what to write above it: the level of the first column, if it is a new one."""
        found, before = [], None
        for line in self[table].itertuples(index=False, name=None):
            *labels, count, lower, upper = line[: len(table) + 3]
            above = "" if len(table) == 1 or labels[0] == before else f"{table[0]}: {labels[0]}"
            before = labels[0]
            name = ", ".join(map(str, labels[min(1, len(table) - 1) :]))
            found.append((above, Bar(name, count, lower, lower, upper, upper)))
        return found


def _names(by: str | Sequence[str]) -> Table:
    """Names of columns, of which there may be one."""
    return (by,) if isinstance(by, str) else tuple(by)


def _estimate(found: Intervals, place: int | tuple[()]) -> Estimate:
    return Estimate(*(float(np.asarray(each)[place]) for each in found))


def _all_estimates(found: Intervals) -> list[Estimate]:
    return [Estimate(*map(float, each)) for each in zip(*map(np.ravel, found), strict=True)]


def _reordered(found: Intervals, table: Table) -> Intervals:
    """The same with the axes of columns in the order of a table; they come in alphabetical order, before any other axis."""
    order = [sorted_table(table).index(name) for name in table]
    more = range(len(order), np.ndim(found.estimates))
    return Intervals(*(np.transpose(each, [*order, *more]) for each in found))


def _count_cells(count: Estimate) -> tuple[str, str]:
    return f"{count.value:,.0f}", f"{count.lower:,.0f} to {count.upper:,.0f}"


def _normal_scores(counts: Floats) -> tuple[Floats, Floats]:
    """The means of a standard normal variable in bins with these counts, and the shares of the bins."""
    shares = counts / max(float(counts.sum()), 1e-9)
    inner = ndtri(np.clip(np.cumsum(shares)[:-1], 1e-12, 1 - 1e-12))
    density = np.concatenate([[0.0], np.exp(-(inner**2) / 2) / math.sqrt(2 * math.pi), [0.0]])
    return -np.diff(density) / np.maximum(shares, 1e-9), shares


def _count_axis(bars: Sequence[Bar]) -> Axis:
    """An axis for bars that begin at zero."""
    return axis_for_bars([*bars, Bar("", 0.0, 0.0, 0.0, 0.0, 0.0)])


def _draw_counts(axes: "Axes", table: Table, bars: Sequence[tuple[str, Bar]]) -> None:
    """Horizontal bars from the top, with intervals."""
    names, colours, colour = [], [], -1
    for above, bar in bars:
        colour += bool(above) or colour < 0
        names.append(f"{above}, {bar.name}" if above else bar.name)
        colours.append(COLOURS[colour % len(COLOURS)])
    counts = np.array([bar.mean for _, bar in bars])
    ends = np.abs(np.array([(bar.lower, bar.upper) for _, bar in bars]).T - counts)
    places = np.arange(len(bars))
    axes.barh(places, counts, color=colours, alpha=0.55, height=0.75)
    axes.errorbar(counts, places, xerr=ends, fmt="none", ecolor="0.15", elinewidth=1.2, capsize=2)
    axes.set_yticks(places, [each.replace("$", r"\$") for each in names], fontsize=8)
    axes.set_ylim(len(bars) - 0.4, -0.6)
    axes.set_xlim(left=0)
    axes.set_title(
        " by ".join(table).replace("$", r"\$"), fontsize=9, loc="left", fontweight="bold"
    )
    axes.tick_params(axis="y", length=0)
    axes.tick_params(axis="x", labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)


__all__ = ["MISSING_LABEL", "Estimate", "Look"]
