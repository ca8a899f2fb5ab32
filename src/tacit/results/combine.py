"""Combining the results of an analysis of several synthetic tables.

Each table is a draw from a posterior and then from its model, so that estimates vary between tables by both. The variance of an
estimate is T = (1 + 1/m) b - u, where b is the variance between m tables and u the mean variance within them; degrees of
freedom are (m - 1) (1 - u / ((1 + 1/m) b))^2 (Raghunathan, Reiter and Rubin 2003; for noisy tables, Räisä et al. 2023).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtrit

from tacit import _validate
from tacit._format import text_table
from tacit._typing import Floats
from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Combined:
    """Estimates from all synthetic tables together.

    Attributes:
        names: A name for each estimate.
        estimate: The means over the tables.
        sd: Their standard errors, which contain the privacy noise.
        df: The degrees of freedom of their t distributions; infinite where the variance was replaced.
        lower: The lower ends of the intervals.
        upper: The upper ends.
        level: The probability of the intervals.
        sets: How many tables there were.
        replaced: Where T was not positive, so that the variance within the tables was used in its place.
    """

    names: tuple[str, ...]
    estimate: Floats
    sd: Floats
    df: Floats
    lower: Floats
    upper: Floats
    level: float
    sets: int
    replaced: tuple[bool, ...]

    def frame(self) -> "pd.DataFrame":
        """The estimates as a data frame."""
        import pandas as pd

        columns = {each: getattr(self, each) for each in ("estimate", "sd", "df", "lower", "upper")}
        return pd.DataFrame(columns, index=pd.Index(self.names))

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data. Infinite degrees of freedom are None."""
        lines = self.frame().reset_index(names="name").to_dict("records")
        for line in lines:
            line["df"] = line["df"] if np.isfinite(line["df"]) else None
        return {"level": self.level, "sets": self.sets, "estimates": lines}

    def __str__(self) -> str:
        rows = [
            [name, *(f"{each:.4g}" for each in numbers)]
            for name, *numbers in zip(
                self.names, self.estimate, self.sd, self.lower, self.upper, strict=True
            )
        ]
        low, high = ((1 + side * self.level) / 2 for side in (-1, 1))
        header = ["", "estimate", "sd", f"{100 * low:.3g}%", f"{100 * high:.3g}%"]
        said = [f"From {self.sets} synthetic tables. Intervals contain the privacy noise."]
        if any(self.replaced):
            which = ", ".join(n for n, each in zip(self.names, self.replaced, strict=True) if each)
            said.append(
                f"Of {which}, tables vary less than expected, so that the variance within them is used; take more sets."
            )
        return "\n".join([text_table(rows, "lrrrr", header), "", *said])

    def __repr__(self) -> str:
        return f"Combined({len(self.names)} estimates from {self.sets} synthetic tables)"


def combine(
    estimates: ArrayLike,
    variances: ArrayLike,
    *,
    names: Sequence[str] | None = None,
    level: float = 0.9,
    size_ratio: float = 1.0,
) -> Combined:
    """Combines the estimates from synthetic tables, each with its variance there.

    Args:
        estimates: The estimates: one for each table, or an array [tables, estimates].
        variances: Their squared standard errors, as an analysis of each table by itself computes them.
        names: Names of the estimates.
        level: The probability of the intervals.
        size_ratio: How many times as many rows as the data a synthetic table has. It matters only where T is not positive: then
            the variance is ``size_ratio`` times the mean variance within tables.

    Returns:
        Estimates, standard errors, degrees of freedom and intervals.

    Raises:
        InvalidArgument: If there are fewer than two tables, or numbers are missing.

    Examples:
        >>> found = combine([1.0, 1.4, 1.2, 0.8], [0.01, 0.01, 0.01, 0.01], names=["dose"])
        >>> found.estimate.round(2), found.sd.round(3)
        (array([1.1]), array([0.271]))
    """
    _validate.probability("level", level)
    _validate.positive("size_ratio", size_ratio)
    try:
        found = [np.asarray(each, np.float64) for each in (estimates, variances)]
    except (TypeError, ValueError):
        raise InvalidArgument("estimates and variances must be numbers.") from None
    if found[0].ndim not in (1, 2) or found[0].shape != found[1].shape or len(found[0]) < 2:
        raise InvalidArgument(
            "estimates and variances must have a line for each of two or more tables, and the same shape."
        )
    values, within = (each.reshape(len(each), -1) for each in found)
    if not np.isfinite(values).all() or not np.isfinite(within).all() or (within < 0).any():
        raise InvalidArgument("estimates must be finite, and variances finite and not negative.")
    labels = tuple(map(str, names or (f"estimate {i + 1}" for i in range(values.shape[1]))))
    if len(labels) != values.shape[1]:
        raise InvalidArgument(f"names must have {values.shape[1]} entries.")
    sets = len(values)
    between = (1 + 1 / sets) * values.var(axis=0, ddof=1)
    inside = within.mean(axis=0)
    total = between - inside
    replaced = total <= 0
    variance = np.where(replaced, size_ratio * inside, total)
    with np.errstate(divide="ignore", invalid="ignore"):
        df = np.where(replaced, np.inf, (sets - 1) * (1 - inside / between) ** 2)
    # scipy's quantile of a t distribution is NaN for infinite degrees of freedom.
    half = stdtrit(np.minimum(df, 1e12), (1 + level) / 2) * np.sqrt(variance)
    mean = values.mean(axis=0)
    return Combined(
        names=labels,
        estimate=mean,
        sd=np.sqrt(variance),
        df=df,
        lower=mean - half,
        upper=mean + half,
        level=level,
        sets=sets,
        replaced=tuple(map(bool, replaced)),
    )
