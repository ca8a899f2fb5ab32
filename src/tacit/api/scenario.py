"""A scenario: what a user expects of data that have not been read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import yaml
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from tacit import _validate
from tacit._files import nearest_file
from tacit._typing import Floats
from tacit.data.columns import Binary, Category, Count, Date, Kind, Number
from tacit.data.schema import Schema
from tacit.errors import InvalidArgument

ColumnDistribution = float | Mapping[str, float] | Mapping[float, float]
_FIELDS = ("columns", "correlations", "effects", "outcome", "spread", "rows_per_person")
# A description lists so many values of a number at most.
_MAX_LISTED_VALUES = 6


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """What is expected of the data: how columns are distributed, and how large effects are.

    Write it from what is known without the data: a protocol, a published table, an earlier study.
    Everything in it is public. Without a scenario, columns are uniform within their bounds, levels
    are equally frequent, and parameters are drawn from the prior.

    Args:
        columns: The distribution of a column, by its name. For a number or a count,
            ``{"mean": 60, "sd": 12}`` (normal, moved to the bounds beyond them),
            ``{"low": 40, "high": 80}`` (uniform), or the share of each value, ``{0: 0.9, 5000: 0.1}``.
            For a binary column, the probability of yes. For a category, the share of each level.
        correlations: Correlations of pairs of columns: ``{"age": {"years_married": 0.9}}``. They are
            those of the normal variables behind the columns, so they are only roughly those of
            columns with few values. Other pairs are independent. Correlated predictors are harder
            to distinguish, so strong correlations matter.
        effects: True values of parameters, by the names and in the units that a summary has:
            ``{"age": 0.3}`` per year or per ten years, as it says, ``{"ward[B]": 0.5}``. The others
            are drawn from the prior.
        outcome: The expected mean of the outcome, or the probability of yes. The intercept of a
            formula is set by it. For Poisson counts also ``{"mean": 2.9, "sd": 4.5}``: counts often
            vary more than a Poisson distribution allows, and intervals are then wider.
        spread: Draws from the prior are moved towards its mean: 1 leaves them, 0 puts them there.
            A weak prior allows effects that nobody expects; 0.3 is then closer to what is.
        rows_per_person: The number of rows of each person, for schemas with people. By default the
            largest number that the schema allows.

    Examples:
        >>> Scenario(columns={"age": {"mean": 60, "sd": 12}}, effects={"age": 0.3}).spread
        1.0
    """

    columns: Mapping[str, ColumnDistribution] = field(default_factory=dict)
    correlations: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    effects: Mapping[str, float] = field(default_factory=dict)
    outcome: float | Mapping[str, float] | None = None
    spread: float = 1.0
    rows_per_person: int | None = None

    def __post_init__(self) -> None:
        _validate.non_negative("spread", self.spread)
        if self.rows_per_person is not None:
            _validate.count("rows_per_person", self.rows_per_person)
        _check_outcome(self.outcome)
        for name, value in self.effects.items():
            if not _is_number(value):
                raise InvalidArgument(f"effects[{name!r}] must be a number.")

    @classmethod
    def from_yaml(cls, path: str | Path) -> "Scenario":
        """Reads a scenario from a file that has any of the arguments, such as ``columns`` and ``effects``.

        Args:
            path: The file.

        Returns:
            The scenario.

        Raises:
            InvalidArgument: If the file cannot be read or has something else in it.
        """
        try:
            found = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            near = "" if Path(path).exists() else nearest_file(Path(path))
            raise InvalidArgument(
                f"The scenario {path} cannot be read: {error.strerror}.{near}"
            ) from None
        except (UnicodeDecodeError, yaml.YAMLError, RecursionError):
            raise InvalidArgument(f"{path} is not a readable YAML file.") from None
        if not isinstance(found, dict) or not set(found) <= set(_FIELDS):
            raise InvalidArgument(f"A scenario file has {', '.join(_FIELDS)}, and nothing else.")
        for part in ("columns", "correlations", "effects"):
            if not isinstance(found.get(part, {}), dict):
                raise InvalidArgument(
                    f"{part} of a scenario must be a list of 'name: value' lines."
                )
        return cls(**found)

    def check_fits(self, schema: Schema, names: Sequence[str]) -> None:
        """Raises if the scenario does not fit a schema.

        Args:
            schema: The schema.
            names: The columns that the model reads.
        """
        for name in {
            *self.columns,
            *(name for pair in self._correlation_pairs for name in pair[:2]),
        }:
            if name not in names:
                raise InvalidArgument(
                    f"The scenario describes {name!r}, which is not a column of the model; these are "
                    f"{', '.join(names)}."
                )
        if self.rows_per_person is not None and schema.most_rows is None:
            raise InvalidArgument("rows_per_person is for schemas that name a person column.")
        if self.rows_per_person is not None and self.rows_per_person > (schema.most_rows or 0):
            raise InvalidArgument(
                f"rows_per_person is at most the schema's most_rows, {schema.most_rows}."
            )
        self.draw_table(schema, names, 2, np.random.default_rng(0))

    def draw_table(
        self, schema: Schema, names: Sequence[str], count: int, rng: np.random.Generator
    ) -> dict[str, NDArray[np.generic]]:
        """A simulated table in the units of the schema.

        Args:
            schema: The schema.
            names: The columns to simulate.
            count: The number of rows.
            rng: The random numbers.

        Returns:
            The columns, as a user would pass them to `Schema.encode`.
        """
        normals = self._draw_normals(list(names), count, rng)
        return {
            name: _draw_column(name, schema[name], self.columns.get(name), normals[name], rng)
            for name in names
        }

    @property
    def outcome_mean(self) -> float | None:
        """The expected mean of the outcome."""
        return self.outcome["mean"] if isinstance(self.outcome, Mapping) else self.outcome

    @property
    def outcome_sd(self) -> float | None:
        """The expected standard deviation of the outcome over all rows."""
        return self.outcome["sd"] if isinstance(self.outcome, Mapping) else None

    @property
    def _correlation_pairs(self) -> list[tuple[str, str, float]]:
        found = []
        for first, others in self.correlations.items():
            if not isinstance(others, Mapping):
                raise InvalidArgument(
                    f"The scenario's correlations of {first!r} must be by the names of other columns."
                )
            for second, value in others.items():
                if not _is_number(value) or not -1 < value < 1 or first == second:
                    raise InvalidArgument(
                        f"The scenario's correlation of {first!r} and {second!r} must be between -1 and 1."
                    )
                found.append((first, second, float(value)))
        return found

    def _draw_normals(
        self, names: list[str], count: int, rng: np.random.Generator
    ) -> dict[str, Floats]:
        """Standard normal variables for each column, with the scenario's correlations."""
        matrix = np.eye(len(names))
        for first, second, value in self._correlation_pairs:
            i, j = names.index(first), names.index(second)
            matrix[i, j] = matrix[j, i] = value
        if np.linalg.eigvalsh(matrix)[0] <= 0:
            raise InvalidArgument("The scenario's correlations cannot all hold at once.")
        drawn = rng.normal(size=(count, len(names))) @ np.linalg.cholesky(matrix).T
        return {name: drawn[:, i] for i, name in enumerate(names)}

    def facts(self) -> dict[str, object]:
        """The scenario as plain values, as a file has it."""
        return {
            "columns": {
                n: dict(v) if isinstance(v, Mapping) else v for n, v in self.columns.items()
            },
            "correlations": {name: dict(others) for name, others in self.correlations.items()},
            "effects": dict(self.effects),
            "outcome": dict(self.outcome) if isinstance(self.outcome, Mapping) else self.outcome,
            "spread": self.spread,
            "rows_per_person": self.rows_per_person,
        }

    def describe(self, schema: Schema) -> list[str]:
        """The assumptions in sentences.

        Args:
            schema: The schema of the data.

        Returns:
            The sentences.
        """
        lines = []
        if schema.most_rows is not None:
            lines.append(f"Each person has {self.rows_per_person or schema.most_rows} rows.")
        if self.columns:
            lines.append(f"As described: {'; '.join(map(_describe_column, self.columns.items()))}.")
        elsewhere = "Other columns" if self.columns else "Columns"
        lines.append(f"{elsewhere} are uniform within their bounds, with equally frequent levels.")
        if self.correlations:
            pairs = (
                f"{first} and {second} {value:g}"
                for first, second, value in self._correlation_pairs
            )
            lines.append(f"Correlations: {', '.join(pairs)}; other columns are independent.")
        if self.effects:
            said = ", ".join(f"{name} = {value:g}" for name, value in self.effects.items())
            lines.append(f"True values: {said}.")
        if self.outcome_mean is not None:
            varies = "" if self.outcome_sd is None else f", its deviation {self.outcome_sd:g}"
            lines.append(f"The mean of the outcome is {self.outcome_mean:g}{varies}.")
        drawn = "Other parameters" if self.effects else "True parameters"
        scaled = {1.0: "", 0.0: " with spread 0, so they are at its mean"}
        how = scaled.get(self.spread, f", their deviation from its mean times {self.spread:g}")
        return [*lines, f"{drawn} are drawn from the prior{how}."]


def _check_outcome(outcome: object) -> None:
    if outcome is None or _is_number(outcome):
        return
    parts = outcome if isinstance(outcome, Mapping) else {}
    if set(parts) != {"mean", "sd"} or not all(map(_is_number, parts.values())) or parts["sd"] <= 0:
        raise InvalidArgument(
            "outcome of a scenario must be a number, the expected mean, or mean and sd of counts."
        )


def _describe_column(described: tuple[str, ColumnDistribution]) -> str:
    name, expected = described
    if not isinstance(expected, Mapping):
        return f"{name} is yes with probability {expected:g}"
    if len(expected) > _MAX_LISTED_VALUES and all(map(_is_number, expected)):
        low, high = (float(end(expected)) for end in (min, max))
        return f"{name} ({len(expected)} values from {low:.4g} to {high:.4g})"
    return f"{name} ({', '.join(f'{key} {value:g}' for key, value in expected.items())})"


def _draw_column(
    name: str,
    column: Kind,
    expected: ColumnDistribution | None,
    normals: Floats,
    rng: np.random.Generator,
) -> NDArray[np.generic]:
    """Values of one column: increasing functions of standard normals, which carry the correlations (a Gaussian copula)."""
    if isinstance(column, Binary):
        chance = 0.5 if expected is None else expected
        if isinstance(chance, Mapping) or not _is_number(chance) or not 0 <= chance <= 1:
            raise InvalidArgument(f"The scenario's {name!r} must be the probability of yes.")
        yes = normals > ndtri(1 - chance)
        return yes if column.yes is None else np.where(yes, str(column.yes), str(column.no))
    if isinstance(column, Category):
        levels = [str(each) for each in (*column.levels, column.other) if each is not None]
        even = dict.fromkeys(levels, 1 / len(levels))
        return _draw_by_shares(
            name, even if expected is None else expected, np.array(levels), normals
        )
    if isinstance(column, Number) and column.shape:
        normals = rng.normal(size=(len(normals), *column.shape))
    found = _draw_numbers(name, column, expected, normals)
    found = np.rint(found) if isinstance(column, Count) else found
    inside = np.asarray(np.clip(found, column.low, column.high))
    return column.to_moments(inside) if isinstance(column, Date) else inside


def _draw_numbers(
    name: str, column: Number | Count | Date, expected: ColumnDistribution | None, normals: Floats
) -> NDArray[np.generic]:
    given = {} if expected is None else expected
    if isinstance(given, Mapping) and all(map(_is_number, given.values())):
        known: dict[object, float] = dict(given.items())
        if set(known) == {"mean", "sd"}:
            return np.asarray(known["mean"] + known["sd"] * normals)
        if set(known) <= {"low", "high"}:
            low, high = known.get("low", column.low), known.get("high", column.high)
            return np.asarray(low + (high - low) * ndtr(normals))
        if all(map(_is_number, known)):
            values = np.sort(np.array(list(known), float))
            return _draw_by_shares(name, given, values, normals)
    raise InvalidArgument(
        f"The scenario's {name!r} must be mean and sd, low and high, or the share of each value."
    )


def _draw_by_shares(
    name: str, expected: ColumnDistribution, values: NDArray[np.generic], normals: Floats
) -> NDArray[np.generic]:
    """Values with the expected shares, in increasing order of the normals."""
    ends = np.cumsum(_level_probabilities(name, expected, list(values)))[:-1]
    return np.asarray(values[np.searchsorted(ends, ndtr(normals))])


def _level_probabilities(
    name: str, expected: ColumnDistribution, values: Sequence[object]
) -> Floats:
    """Probabilities in the order of ``values``; those not named are zero."""
    if not isinstance(expected, Mapping):
        raise InvalidArgument(f"The scenario's {name!r} must be the share of each level.")
    known = {_level_key(key): share for key, share in expected.items()}
    if strangers := set(known) - set(map(_level_key, values)):
        raise InvalidArgument(f"The scenario's {name!r} has no level {min(strangers)!r}.")
    shares = np.array([known.get(_level_key(value), 0.0) for value in values], float)
    if (shares < 0).any() or abs(shares.sum() - 1) > 0.02:
        raise InvalidArgument(f"The scenario's shares of {name!r} must add up to 1.")
    return np.asarray(shares / shares.sum())


def _level_key(value: object) -> str:
    """A level or value, so that 3, 3.0 and "3" are the same."""
    return f"{value:g}" if isinstance(value, int | float) else str(value)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and np.isfinite(value)
