"""Sharing: synthetic tables from noisy tables, for one charge.

`synthesize` makes the release of `tacit.explore`, with the same charge. All else is computed from what was released:
`tacit.inference.maximum_entropy` has the distribution of rows behind it, and this module draws tables from draws of its posterior.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from tacit import _validate
from tacit._precision import in_32_bits
from tacit._typing import Floats
from tacit.accounting import Budget
from tacit.accounting.ledger import Ledger
from tacit.api.explore import LookPlan, explore, plan_look, read_schema
from tacit.api.look import Look
from tacit.api.synthetic import Synthetic
from tacit.data.columns import Binary, Date, Kind, Number
from tacit.data.schema import Schema
from tacit.data.tables import TableLike
from tacit.errors import InvalidArgument
from tacit.inference.maximum_entropy import (
    LogLinear,
    draw_posterior,
    log_linear,
    most_likely,
    released_moments,
)
from tacit.inference.table_estimates import ReleasedTables
from tacit.inference.tables import FINEST, SHOWN, CountedColumn, TableRelease
from tacit.models.front_ends import SchemaLike

Complete = bool | Sequence[str]
_MAX_SETS = 1000
# The prior standard deviation of the share of a bin's values that are in its lower half.
_HALF_STD = 0.15


@in_32_bits
def synthesize(
    data: TableLike,
    *,
    schema: SchemaLike,
    tables: Iterable[str | Sequence[str]] | None = None,
    by: str | None = None,
    bins: Mapping[str, int | Sequence[float]] | None = None,
    complete: Complete = False,
    sets: int = 50,
    size: int | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    budget: Budget | None = None,
    ledger: Ledger | None = None,
    seed: int | None = None,
    label: str | None = None,
) -> Synthetic:
    """Makes synthetic tables within a privacy budget, to share and to analyse, with errors that contain the noise.

    What is released is what `tacit.explore` releases, for the same charge. Each synthetic table is drawn from another draw of the
    posterior of their distribution, so that tables differ by what the noise hides; `Synthetic.fit` and `Synthetic.apply`
    combine what is found in them. The distribution is the one of largest entropy with the tables that are named: columns that share no table are
    related only through others, and relations among three columns need a table of the three.

    With a person column, a synthetic row is a person: one of the rows of each, chosen at random. How rows of a person
    are related is lost.

    Args:
        data: A data frame, a mapping of arrays or the path of a file; see `Schema.encode`.
        schema: The public facts about the columns, or the path of a schema file.
        tables: The tables to keep, as for `tacit.explore`. By default all pairs of columns, or with ``by`` the pairs with that column.
            Name tables that hold together what an analysis is about.
        by: A column that every table is crossed with, such as the outcome.
        bins: The bins of columns of numbers, as for `tacit.explore`.
        complete: Columns that are known to have no missing cell, or True for all: a public fact, which makes the model smaller.
        sets: How many synthetic tables.
        size: How many rows each of them has; by default about as many as the data have rows or people, which is released.
        epsilon: What the release may cost.
        delta: The delta of the budget; by default 1e-6.
        budget: The budget, instead of ``epsilon`` and ``delta``.
        ledger: The ledger of the data, charged before the release.
        seed: Makes the release reproducible. It is then not private, and its statement says so.
        label: A public note for the ledger's entry.

    Returns:
        The synthetic tables, with their privacy statement in ``privacy``. ``look`` has what was released, and makes more tables free
        of charge. Drawing can take minutes: to keep the release if it is interrupted, call `tacit.explore`, and then
        ``look.synthesize()``, which together do the same.

    Raises:
        InvalidArgument: If an argument, the schema or the table's header is wrong, or the tables join too many columns. Nothing is charged.
        BudgetError: If the budget cannot be met, does not suit the ledger, or exceeds what the ledger has left. Nothing is charged.
        LedgerError: If the ledger cannot be used.
    """
    plan = plan_synthesis(
        schema, tables=tables, by=by, bins=bins, complete=complete, sets=sets, size=size,
        epsilon=epsilon, delta=delta, budget=budget,
    )  # fmt: skip
    look = plan.release(data, ledger=ledger, seed=seed, label=label)
    return draw_tables(look, complete=complete, sets=sets, size=size)


@dataclass(frozen=True, kw_only=True, eq=False)
class SynthesisPlan:
    """What making synthetic tables will release and cost, before data are read. Print it.

    Attributes:
        look: The release.
        model: The model of what it says.
        sets: How many tables will be drawn.
    """

    look: LookPlan
    model: LogLinear
    sets: int

    def release(
        self,
        data: TableLike,
        *,
        ledger: Ledger | None = None,
        seed: int | None = None,
        label: str | None = None,
    ) -> Look:
        """Makes the release: that of `tacit.explore`, which charges the ledger for it."""
        release = self.look.release
        return explore(
            data,
            schema=self.look.schema,
            tables=self.look.tables,
            bins={each.name: each.inner_edges for each in release.columns if each.is_number},
            budget=self.look.budget,
            ledger=ledger,
            seed=seed,
            label=label,
        )

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain data."""
        return {
            **self.look.to_dict(),
            "sets": self.sets,
            "parameters": self.model.dimension,
            "largest_clique": list(self.model.largest),
        }

    def __str__(self) -> str:
        cells = self.model.cells(self.model.largest)
        return (
            f"{self.look}\nSynthetic tables: {self.sets}, from a model with {self.model.dimension} parameters; it joins at most "
            f"{', '.join(self.model.largest)} ({cells:,} cells). Drawing tables has no further cost."
        )


@in_32_bits
def plan_synthesis(
    schema: SchemaLike,
    *,
    tables: Iterable[str | Sequence[str]] | None = None,
    by: str | None = None,
    complete: Complete = False,
    sets: int = 50,
    size: int | None = None,
    **settings: Any,
) -> SynthesisPlan:
    """Plans synthetic tables; see `synthesize` for the arguments, and `Synthetic.plan`. Reads no data and charges nothing."""
    schema = read_schema(schema)
    by_default = tables is None and by is None and len(schema.names) > 1
    asked = list(combinations(schema.names, 2)) if by_default else tables
    look = plan_look(schema, tables=asked, by=by, size=size, **settings)
    try:
        model = _check_drawing(look.release, complete, sets, size)
    except InvalidArgument as error:
        if not by_default:
            raise
        raise InvalidArgument(
            f"All pairs of columns, the default, are too much for one model. {error} by= takes the pairs with one column."
        ) from None
    return SynthesisPlan(look=look, model=model, sets=sets)


def _check_drawing(
    release: TableRelease, complete: Complete, sets: int, size: int | None
) -> LogLinear:
    """The model of a release's tables; raises if no tables can be drawn from it."""
    _validate.count("sets", sets, least=2, most=_MAX_SETS)
    if size is not None:
        _validate.count("size", size)
    if release.count_rows:
        raise InvalidArgument(
            "Synthetic rows are people, so they need a look that counts people: rows of a person are not independent."
        )
    model = log_linear(release, _complete_columns(release, complete))
    model.check_size()
    return model


def _complete_columns(release: TableRelease, complete: Complete) -> tuple[str, ...]:
    known = tuple(each.name for each in release.columns)
    if isinstance(complete, bool):
        return known if complete else ()
    if isinstance(complete, str) or not set(complete) <= set(known):
        raise InvalidArgument(
            f"complete must be True, or a list of columns of the tables; got {complete!r}."
        )
    return tuple(complete)


@in_32_bits
def draw_tables(
    look: Look,
    *,
    complete: Complete = False,
    sets: int = 50,
    size: int | None = None,
    noise_aware: bool = True,
    seed: int = 0,
) -> Synthetic:
    """Draws synthetic tables from a look; see `Look.synthesize`.

    Without ``noise_aware``, all tables are of the most likely model, as if there were no noise. That is for comparison: what is
    found in them has intervals that are too narrow.
    """
    _check_drawing(look.release, complete, sets, size)
    known = _complete_columns(look.release, complete)
    model, moments = released_moments(look.estimates, known)
    rows = look.size if size is None else size
    messages: tuple[str, ...] = ()
    if noise_aware:
        drawn = draw_posterior(model, moments, sets, seed)
        thetas, totals, messages = drawn.theta, drawn.rows, drawn.messages
    else:
        theta, total = most_likely(model, moments)
        thetas, totals = np.tile(theta, (sets, 1)), np.full(sets, total)
    rng = np.random.default_rng(seed)
    sampled = [model.sample(theta, rows, rng) for theta in thetas]
    cells = {name: np.array([each[name] for each in sampled]) for name in model.names}
    values: list[dict[str, Any]] = [{} for _ in range(sets)]
    for name in (each.name for each in look.release.columns):
        column = look.release.column(name)
        drawn_values = _values(look.estimates, column, cells[name], totals / rows, rng)
        for own, one, places in zip(values, drawn_values, cells[name], strict=True):
            own[name] = _cells(column, one, places == len(column.labels) - 1)
    kinds = {each.name: _synthetic_kind(each.kind) for each in look.release.columns}
    import pandas as pd

    return Synthetic(
        schema=Schema(kinds),
        tables=tuple(pd.DataFrame(each) for each in values),
        cells=cells,
        look=look,
        complete=known,
        parameters=model.dimension,
        messages=messages,
        noise_aware=noise_aware,
    )


def _synthetic_kind(kind: Kind) -> Kind:
    """The kind of a synthetic column: its cells are written in the usual way."""
    if isinstance(kind, Number):
        return replace(kind, decimal=".")
    return replace(kind, format=None) if isinstance(kind, Date) else kind


def _values(
    released: ReleasedTables,
    column: CountedColumn,
    cells: NDArray[np.int64],
    scale: Floats,
    rng: np.random.Generator,
) -> NDArray[Any]:
    """Values of the cells of all tables: codes of levels; of numbers, drawn from the finer bins of each bin."""
    if not column.is_number:
        return cells
    size = len(column.labels)
    counts = np.array([np.bincount(each, minlength=size)[:-1] for each in cells])
    masses = finer_masses(released, column, counts * scale[:, None], rng)
    ends = np.searchsorted(column.edges[FINEST], column.edges[SHOWN])
    found = np.empty(cells.shape)
    for own, mass, places in zip(found, masses, cells, strict=True):
        below = np.concatenate([[0.0], np.cumsum(mass)])
        begin, end = (ends[np.minimum(places + i, size - 1)] for i in (0, 1))
        level = below[begin] + rng.random(len(places)) * (below[end] - below[begin])
        bin_ = np.clip(
            np.searchsorted(below, level, side="right") - 1, begin, np.maximum(end - 1, begin)
        )
        bin_ = np.minimum(bin_, len(mass) - 1)
        edges = np.array(column.edges[FINEST])
        low, high = edges[bin_], edges[bin_ + 1]
        own[:] = low + rng.random(len(places)) * (high - low)
    if column.is_whole:
        return np.clip(np.rint(found), column.kind.low, column.kind.high)
    decimals = max(0, 5 - int(np.floor(np.log10(column.kind.high - column.kind.low))))
    return np.clip(np.round(found, decimals), column.kind.low, column.kind.high)


def finer_masses(
    released: ReleasedTables, column: CountedColumn, counts: Floats, rng: np.random.Generator
) -> Floats:
    """Draws of the numbers of rows in the finest bins, given those in the bins that are shown: [tables, finest bins].

    At each node of the tree, the share of its lower half has a normal posterior, cut off at zero and one. It follows from the released
    difference of the halves, and from a prior around the share of an even spread.
    """
    edges = np.array(column.edges[FINEST])
    ends = np.searchsorted(edges, column.edges[SHOWN])
    mass = {
        (int(begin), int(end)): counts[:, place].astype(np.float64)
        for place, (begin, end) in enumerate(pairwise(ends))
    }
    values, variances = released.answers[(column.name,)]
    for place, (level, _, begin, middle, end) in enumerate(column.tree, 1):
        if level == SHOWN:
            continue
        whole = np.maximum(mass.pop((begin, end)), 1e-9)
        even = (edges[middle] - edges[begin]) / (edges[end] - edges[begin])
        told = 4 * whole**2 / (variances[place] + whole)
        precision = _HALF_STD**-2 + told
        centre = (_HALF_STD**-2 * even + told * (0.5 + values[place] / (2 * whole))) / precision
        spread = precision**-0.5
        low, high = ndtr(-centre / spread), ndtr((1 - centre) / spread)
        drawn = centre + spread * ndtri(low + rng.random(len(whole)) * (high - low))
        share = np.clip(np.nan_to_num(drawn, nan=even, posinf=1.0, neginf=0.0), 0.0, 1.0)
        mass[begin, middle], mass[middle, end] = whole * share, whole * (1 - share)
    return np.column_stack([mass[i, i + 1] for i in range(len(edges) - 1)])


def _cells(column: CountedColumn, values: NDArray[Any], missing: NDArray[np.bool_]) -> "Any":
    """One column of a synthetic table, as pandas has it."""
    import pandas as pd

    kind = column.kind
    if isinstance(kind, Date):
        dates = kind.to_moments(values).astype("M8[D]").astype("M8[s]")
        return pd.Series(dates).mask(missing)
    if kind.labels and not (isinstance(kind, Binary) and kind.yes is None):
        return pd.Categorical.from_codes(np.where(missing, -1, values), list(kind.labels))
    if column.is_number and not column.is_whole:
        return np.where(missing, np.nan, values)
    whole = pd.Series(np.where(missing, 0, values).astype(np.int64))
    return whole.astype("Int64").mask(missing) if missing.any() else whole
