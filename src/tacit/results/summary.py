"""Draws of named parameters and their summary: a table in the units of the data.

`NamedDraws` has the statistics, `Summary` the table, and the sentences say what an interval includes and whether
the fit converged.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import chdtri

from tacit import _validate
from tacit._html import render_template
from tacit._typing import FloatArray
from tacit.errors import InvalidArgument
from tacit.inference import diagnostics
from tacit.inference.result import Intervals
from tacit.models.interpretation import IncrementSizes, Interpretation, ParameterMeaning

if TYPE_CHECKING:
    import pandas as pd


_INTERVAL_NOTES = {each: str(each) for each in Intervals} | {
    Intervals.UNKNOWN: "not known whether noise is included"
}
CONVERGENCE_SENTENCES = {
    True: "The fit converged.",
    False: "THE FIT DID NOT CONVERGE: these numbers may be far from the posterior.",
    None: "The method cannot tell whether the fit converged.",
}


_CONVERGENCE_WORDS = {
    True: "Converged. ",
    False: "",  # a warning above says it
    None: "The method cannot tell whether it converged. ",
}
_INTERVAL_CLAUSES = {
    Intervals.INCLUDED: "credible intervals account for the privacy noise",
    Intervals.LEFT_OUT: "credible intervals leave out the privacy noise, so they are too narrow",
    Intervals.SAMPLED: "credible intervals are those of the draws, to which no noise was added",
    Intervals.NO_NOISE: "credible intervals are those of a fit without noise",
    Intervals.UNKNOWN: "credible intervals may or may not account for the privacy noise",
}


def trust_sentence(level: float, intervals: Intervals, converged: bool | None) -> str:
    """Whether the fit converged, and what intervals include. If it did not, a warning says so instead.

    >>> trust_sentence(0.9, Intervals.INCLUDED, True)
    'Converged. 90% credible intervals account for the privacy noise.'
    """
    return f"{_CONVERGENCE_WORDS[converged]}{100 * level:.4g}% {_INTERVAL_CLAUSES[intervals]}."


# How probable a relation must be to be called clear, and possible; the share of the prior's standard deviation beyond
# which a coefficient is hardly known, and that beyond which nothing was learnt; and draws that a judgement needs.
_CLEAR_PROBABILITY, _POSSIBLE_PROBABILITY = 0.95, 0.9
_UNCERTAIN_RATIO, _UNLEARNED_RATIO, _MIN_DRAWS = 0.1, 0.8, 100
NOTHING = "Nothing was learned about"
# Names in a headline; the rest are "the others".
_MAX_NAMES = 5


def finding_sentence(
    draws: Mapping[str, FloatArray],
    interpretation: Interpretation,
    intervals: Intervals,
    many: str,
) -> str:
    """What a regression found, in one sentence: which predictors are related to the outcome, and for which there is too little data.

    A predictor is clearly related if the 95% region of all its coefficients excludes zero, and perhaps related if only
    their 90% region does, as the interval that is printed. It follows from draws, which were released, and has no
    further cost.

    Args:
        draws: The draws, in the units of the table.
        interpretation: What the parameters are.
        intervals: Whether the draws account for the privacy noise. If they do not, nothing is clear.
        many: What several units of privacy are called.

    Returns:
        The sentence, or nothing where there is nothing to judge by.
    """
    values = {
        name: draws[name].reshape(len(draws[name]), -1).astype(np.float64)
        for name, meaning in interpretation.parameters.items()
        if meaning.role == "coefficient" and name in draws
    }
    known = all(len(each) >= _MIN_DRAWS and np.isfinite(each).all() for each in values.values())
    if not values or not known or intervals in (Intervals.LEFT_OUT, Intervals.UNKNOWN):
        return ""
    outcome = interpretation.outcome
    ratios = {n: _share_of_prior(each, interpretation.parameters[n]) for n, each in values.items()}
    if min(ratios.values()) > _UNLEARNED_RATIO:
        return (
            f"{NOTHING} {outcome}: there are too few {many} for this budget, and intervals "
            "are nearly the prior's."
        )
    clear = [name for name, each in values.items() if _excludes_zero(each, _CLEAR_PROBABILITY)]
    possible = [
        name
        for name, each in values.items()
        if name not in clear and _excludes_zero(each, _POSSIBLE_PROBABILITY)
    ]
    others = [name for name in values if name not in {*clear, *possible}]
    few = [name for name in others if ratios[name] > _UNCERTAIN_RATIO]
    unclear = [name for name in others if name not in few]
    if len(few) == len(values):
        return f"Too few {many} to say how {outcome} depends on {_join_names(few)}."
    related = [
        f"{_join_names(names)} {'is' if len(names) == 1 else 'are'} {how} related to {outcome}"
        for names, how in ((clear, "clearly"), (possible, "perhaps"))
        if names
    ]
    if len(related) > 1:
        related = [f"{related[0]}, {_join_names(possible)} perhaps"]
    to = "of" if related else f"between {outcome} and"
    rest = "the others" if len(few) > _MAX_NAMES else _join_names(few)
    said = [
        *related,
        f"no clear relation {to} {_join_names(unclear)}" if unclear else "",
        f"too few {many} for {rest}" if few else "",
    ]
    return _capitalize("; ".join(filter(None, said))) + "."


def _excludes_zero(values: FloatArray, probability: float) -> bool:
    """Whether zero lies outside an elliptic region of the posterior, of a given probability."""
    size = values.shape[1]
    covariance = np.atleast_2d(np.cov(values.T))
    mean = values.mean(axis=0)
    distance = float(mean @ np.linalg.pinv(covariance, hermitian=True) @ mean)
    return distance > float(chdtri(size, 1 - probability))


def _share_of_prior(values: FloatArray, meaning: ParameterMeaning) -> float:
    """The standard deviation as a share of the prior's, for the coefficient that is known best; zero if that is not known."""
    prior = meaning.prior
    if prior is None or prior.low is None or prior.high is None:
        return 0.0
    wide = abs(meaning.factor({})) * (prior.high - prior.low) / (2 * 1.96)
    return float(values.std(axis=0).min()) / wide if wide else 0.0


def _join_names(names: Sequence[str]) -> str:
    shown = list(names[:_MAX_NAMES])
    if len(names) > len(shown):
        shown.append(f"{len(names) - len(shown)} more")
    return "".join(shown) if len(shown) <= 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def _capitalize(sentence: str) -> str:
    """With a capital, unless it begins with a name that is no plain word."""
    first = sentence.partition(" ")[0].rstrip(",;")
    return sentence[:1].upper() + sentence[1:] if first.isalpha() else sentence


def with_noise_note(name: str, intervals: Intervals) -> str:
    """The name of an interval, with a note on the privacy noise.

    >>> with_noise_note("90% interval", Intervals.LEFT_OUT)
    '90% interval (noise not included)'
    """
    return f"{name} ({_INTERVAL_NOTES[intervals]})"


_K = TypeVar("_K")


def as_draw_arrays(values: Mapping[str, ArrayLike]) -> dict[str, FloatArray]:
    """Float arrays that have the same number of draws, at least one."""
    return _equal_length_arrays("draws", values)


def as_step_arrays(values: Mapping[str, ArrayLike]) -> dict[str, FloatArray]:
    """Float arrays that have the same number of steps, at least one."""
    return _equal_length_arrays("steps of the trace", values)


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class NamedDraws:
    """Draws of named parameters.

    Attributes:
        draws: An array [draws, *shape] for each parameter.
        chains: The number of chains of equal length whose draws follow one another.
    """

    draws: Mapping[str, FloatArray]
    chains: int = 1

    def __post_init__(self) -> None:
        _validate.set_fields(self, draws=as_draw_arrays(self.draws))
        if not self.draws:
            raise InvalidArgument("A posterior needs draws of at least one parameter.")

    @property
    def num_draws(self) -> int:
        """The number of draws."""
        return len(next(iter(self.draws.values())))

    def mean(self) -> dict[str, FloatArray]:
        """Posterior means.

        Returns:
            An array for each parameter.
        """
        with np.errstate(all="ignore"):  # draws may be infinite
            return {n: np.mean(d, axis=0, dtype=np.float64) for n, d in self.draws.items()}

    def sd(self) -> dict[str, FloatArray]:
        """Posterior standard deviations.

        Returns:
            An array for each parameter.
        """
        with np.errstate(all="ignore"):
            return {n: np.std(d, axis=0, dtype=np.float64) for n, d in self.draws.items()}

    def quantiles(self, probabilities: Sequence[float]) -> dict[str, FloatArray]:
        """Posterior quantiles.

        Args:
            probabilities: Probabilities between 0 and 1.

        Returns:
            An array [probabilities, *shape] for each parameter.

        Raises:
            InvalidArgument: If a probability is out of range.
        """
        levels = np.asarray(probabilities, np.float64)
        if levels.ndim != 1 or not ((levels >= 0) & (levels <= 1)).all():
            raise InvalidArgument("Pass a list of probabilities between 0 and 1.")
        with np.errstate(all="ignore"):
            return {
                name: np.quantile(draws.astype(np.float64), levels, axis=0)
                for name, draws in self.draws.items()
            }

    def interval(self, level: float = 0.9) -> dict[str, FloatArray]:
        """Equal-tailed credible intervals.

        ``intervals`` says whether they account for the privacy noise.

        Args:
            level: The posterior probability of the interval, between 0 and 1.

        Returns:
            An array [2, *shape] for each parameter.

        Raises:
            InvalidArgument: If the level is out of range.
        """
        if not (0 < level < 1):
            raise InvalidArgument(f"level must be between 0 and 1; got {level!r}.")
        return self.quantiles([(1 - level) / 2, (1 + level) / 2])

    def effective_sizes(self) -> dict[str, FloatArray]:
        """Effective sample sizes.

        Returns:
            An array for each parameter.
        """
        return diagnostics.effective_sample_sizes(self.draws, self.chains)

    def r_hats(self) -> dict[str, FloatArray]:
        """R-hat of the chains, split in halves and by ranks, as ArviZ computes it.

        Returns:
            An array for each parameter; 1 means that all halves agree.
        """
        return diagnostics.r_hats(self.draws, self.chains)


def _equal_length_arrays(what: str, values: Mapping[str, ArrayLike]) -> dict[str, FloatArray]:
    """Float arrays that all have the same number of ``what``, at least one."""
    arrays = {name: np.asarray(value) for name, value in values.items()}
    for name, array in arrays.items():
        if array.dtype not in (np.float32, np.float64):
            arrays[name] = array.astype(np.float64)
    lengths = {array.shape[:1] for array in arrays.values()}
    if len(lengths) > 1 or lengths & {(), (0,)}:
        raise InvalidArgument(f"All arrays must have the same number of {what}, at least one.")
    return arrays


def equal_arrays(one: Mapping[_K, FloatArray], other: Mapping[_K, FloatArray]) -> bool:
    """Whether two mappings have the same names in the same order, and equal arrays."""
    return list(one) == list(other) and all(
        np.array_equal(value, other[name], equal_nan=True) for name, value in one.items()
    )


Labels = Mapping[str, Sequence[Sequence[str]]]
"""Names of the entries of array parameters, axis by axis."""

# Nobody reads a table of thousands of lines; `Summary.to_pandas` has them all.
_MAX_PRINTED_LINES = 100
# Columns of the interval.
_INTERVAL_COLUMNS = slice(3, 5)


class SummaryLine(NamedTuple):
    """Mean, standard deviation and interval of one number.

    For a chain, also its effective sample size and R-hat. If the model says how to read it: what
    one unit is, whether its exponential is a ratio, and the prior's central 95%.
    """

    name: str
    mean: float
    sd: float
    lower: float
    upper: float
    effective: float = math.nan
    r_hat: float = math.nan
    unit: str = ""
    is_ratio: bool = False
    prior: str = ""

    @property
    def label(self) -> str:
        """The name, with what one unit is."""
        return f"{self.name}, {self.unit}" if self.unit else self.name

    @property
    def short_label(self) -> str:
        """The name, with the increment of a number. What levels are compared with is the reference."""
        steps = [part for part in self.unit.split(", ") if part.startswith("per ")]
        return ", ".join([self.name, *steps])

    @property
    def ratio(self) -> tuple[float, float, float]:
        """The exponential of the mean and of the ends of the interval; NaN if it is no ratio."""
        if not self.is_ratio:
            return math.nan, math.nan, math.nan
        with np.errstate(over="ignore"):
            found = np.exp([self.mean, self.lower, self.upper])
        return float(found[0]), float(found[1]), float(found[2])


@dataclass(frozen=True, kw_only=True)
class Summary:
    """Mean, standard deviation and an equal-tailed interval of every parameter.

    For a chain also the effective sample size (``ess``) and R-hat. Print it; `details` has more.

    Attributes:
        lines: A line for each number.
        level: The posterior probability of the intervals.
        warnings: Printed before everything else.
        finding: What was found, in one sentence; empty if the model says nothing of its parameters.
        trust: Whether the fit converged, and what intervals include.
        notes: Printed after the table.
        more: What only `details` has: how to read the numbers, priors, and how the fit went.
        privacy: What the fit cost, and whether a ledger was charged; printed last.
        chain: Whether the draws are a Markov chain.
        intervals: Whether intervals and standard deviations account for the privacy noise.
        ratio: The name of the ratio that the exponential of a coefficient is, or None.
    """

    lines: tuple[SummaryLine, ...]
    level: float
    warnings: tuple[str, ...] = ()
    finding: str = ""
    trust: str = ""
    notes: tuple[str, ...] = ()
    more: tuple[str, ...] = ()
    privacy: str = ""
    chain: bool = False
    intervals: Intervals = Intervals.UNKNOWN
    ratio: str | None = None

    def __str__(self) -> str:
        table = _text_columns([self.header(), *self.printed_cells()])
        return "\n".join([*self.notes_above(), *table, *self.notes_below()])

    def details(self) -> str:
        """The whole summary as text: also what levels are compared with, priors, and how the fit went.

        Returns:
            The text.
        """
        header = [*self.header(), *(["95% of the prior"] if self._has_priors else [])]
        lines = self.lines[:_MAX_PRINTED_LINES]
        cells = [
            [line.label, *own[1:], *([line.prior] if self._has_priors else [])]
            for line, own in zip(lines, self.printed_cells(), strict=True)
        ]
        *below, privacy = [*self.notes_below(), ""] if not self.privacy else self.notes_below()
        text = [*self.notes_above(), *_text_columns([header, *cells]), *below, *self.more, privacy]
        return "\n".join(filter(None, text))

    def _repr_html_(self) -> str:
        return render_template("summary.html", summary=self)

    def to_pandas(self) -> "pd.DataFrame":
        """Converts to a data frame with a row for each line.

        Returns:
            The data frame. The names of interval columns say so if the noise is not included.
        """
        import pandas as pd

        header = self._columns()[1:]
        frame = pd.DataFrame([line[1 : len(header) + 1] for line in self.lines], columns=header)
        frame.index = pd.Index([line.name for line in self.lines], name="parameter", dtype=object)
        if self.ratio is not None:
            names = [self.ratio, *(f"{self.ratio} {end}" for end in header[2:4])]
            ratios = np.array([line.ratio for line in self.lines])
            frame[names] = ratios
        if any(line.unit for line in self.lines):
            frame["unit"] = [line.unit for line in self.lines]
        return frame

    def header(self) -> list[str]:
        """The names of the columns; that of the first, the parameters, is empty."""
        ratio = [] if self.ratio is None else [f"{self.ratio} [{100 * self.level:.4g}%]"]
        return [*self._columns(), *ratio]

    def _header(self) -> list[str]:
        tail = (1 - self.level) / 2
        ends = [f"{100 * tail:.4g}%", f"{100 * (1 - tail):.4g}%"]
        return ["", "mean", "sd", *ends, *(["ess", "r_hat"] if self.chain else [])]

    def _columns(self) -> list[str]:
        names = self._header()
        if self.intervals == Intervals.LEFT_OUT:
            names[_INTERVAL_COLUMNS] = [
                with_noise_note(name, self.intervals) for name in names[_INTERVAL_COLUMNS]
            ]
        return names

    @property
    def _has_priors(self) -> bool:
        return any(line.prior for line in self.lines)

    def cells(self) -> list[list[str]]:
        """Every line as text."""
        return [self._cells(line) for line in self.lines]

    def _cells(self, line: SummaryLine) -> list[str]:
        ratio = [] if self.ratio is None else [_ratio_text(line)]
        return [line.short_label, *_rounded_numbers(line)[: len(self._header()) - 1], *ratio]

    def printed_cells(self) -> list[list[str]]:
        """The lines that are printed, as text."""
        return self.cells()[:_MAX_PRINTED_LINES]

    def notes_above(self) -> list[str]:
        """What is printed above the table."""
        return [*self.warnings, *filter(None, (self.finding, self.trust))]

    def notes_below(self) -> list[str]:
        """What is printed below the table."""
        more = len(self.lines) - _MAX_PRINTED_LINES
        hidden = [f"... and {more} more; to_pandas() has them all"] if more > 0 else []
        return [*hidden, *self.notes, *filter(None, [self.privacy])]


def _text_columns(cells: Sequence[Sequence[str]]) -> list[str]:
    """A table as lines of text: names to the left, numbers to the right."""
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    return [
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip()
        for row in cells
    ]


def summary_lines(
    columns: Sequence[Mapping[str, FloatArray]],
    labels: Labels,
    interpretation: Interpretation | None,
    units: IncrementSizes,
) -> tuple[SummaryLine, ...]:
    """A line for every coordinate of every parameter.

    Args:
        columns: Mean, standard deviation and the ends of the interval of each parameter; for a chain also
            effective sample sizes and R-hat.
        labels: Names of the entries of array parameters.
        interpretation: How to read the parameters, for a model by formula.
        units: The units that are shown.

    Returns:
        The lines.
    """
    lines = []
    known = {} if interpretation is None else interpretation.parameters
    for name, means in columns[0].items():
        unit, is_ratio, prior = "", False, ""
        if name in known:
            unit, is_ratio = known[name].words(units), known[name].ratio
            prior = _prior_range(known[name], units)
        for label, where in coordinates(name, means.shape, labels.get(name)):
            mean, sd, lower, upper, *mixing = (float(each[name][where]) for each in columns)
            ess, r_hat = mixing or (math.nan, math.nan)
            lines.append(
                SummaryLine(label, mean, sd, lower, upper, ess, r_hat, unit, is_ratio, prior)
            )
    return tuple(lines)


def _prior_range(meaning: ParameterMeaning, units: IncrementSizes) -> str:
    """The central 95% of a parameter's prior, or its formula."""
    prior, factor = meaning.prior, meaning.factor(units)
    if prior is None:
        return ""
    if prior.low is None or prior.high is None:
        return prior.formula
    return f"{factor * prior.low:.3g} to {factor * prior.high:.3g}"


def coordinates(
    name: str, shape: tuple[int, ...], axes: Sequence[Sequence[str]] | None = None
) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The label and index of every coordinate of a parameter; ``axes`` names the entries.

    >>> [label for label, _ in coordinates("w", (2, 1))]
    ['w[0, 0]', 'w[1, 0]']
    >>> [label for label, _ in coordinates("ward", (2,), [["B", "other"]])]
    ['ward[B]', 'ward[other]']
    """
    for where in np.ndindex(shape):
        entries = where if axes is None else [axis[i] for axis, i in zip(axes, where, strict=True)]
        yield f"{name}[{', '.join(map(str, entries))}]" if shape else name, where


def _rounded_numbers(line: SummaryLine) -> list[str]:
    """Numbers rounded to two significant digits of the standard deviation."""
    values = line[1:5]
    mixing = [f"{line.effective:.0f}", f"{line.r_hat:.2f}"]
    plain = 0 < line.sd < 1e6 and all(abs(value) < 1e6 for value in values)
    decimals = 1 - math.floor(math.log10(line.sd)) if plain else math.inf
    if decimals > 6:
        return [*(f"{value:.4g}" for value in values), *mixing]
    return [*(f"{value:.{max(int(decimals), 0)}f}" for value in values), *mixing]


def _ratio_text(line: SummaryLine) -> str:
    """A ratio and its interval: three digits, or more where they would not tell its ends apart."""
    if not line.is_ratio:
        return ""
    width = line.upper - line.lower  # of the ratio, beside itself
    digits = 1 - math.floor(math.log10(width)) if 0 < width < math.inf else 3
    form = ".3g" if digits <= 3 else f"#.{min(digits, 9)}g"
    middle, low, high = (format(value, form) for value in line.ratio)
    return f"{middle} [{low}, {high}]"


def check_units(
    interpretation: Interpretation | None, units: IncrementSizes | None
) -> IncrementSizes:
    """The requested units, checked; raises if the model has no units, or not these."""
    if interpretation is not None:
        return interpretation.units(units)
    if units:
        raise InvalidArgument(
            "units are for models by formula; this posterior's model does not say what one unit is."
        )
    return {}


def draws_in_units(
    draws: Mapping[str, FloatArray], interpretation: Interpretation | None, units: IncrementSizes
) -> NamedDraws:
    """Draws in other units than the usual ones of the table."""
    known = {} if interpretation is None else interpretation.parameters
    factors = {n: known[n].factor(units) / known[n].factor({}) for n in draws if n in known}
    return NamedDraws(draws=_scale_draws(draws, factors))


def to_table_units(
    draws: Mapping[str, FloatArray], interpretation: Interpretation | None
) -> dict[str, FloatArray]:
    """Draws of a model's own parameters, in the units of the table. A posterior has these."""
    known = {} if interpretation is None else interpretation.parameters
    return _scale_draws(draws, {n: known[n].factor({}) for n in draws if n in known})


def to_model_units(
    draws: Mapping[str, FloatArray], interpretation: Interpretation | None
) -> dict[str, FloatArray]:
    """Draws in the units of the table, as the model's own parameters."""
    known = {} if interpretation is None else interpretation.parameters
    return _scale_draws(draws, {n: 1 / known[n].factor({}) for n in draws if n in known})


def _scale_draws(
    draws: Mapping[str, FloatArray], factors: Mapping[str, float]
) -> dict[str, FloatArray]:
    return {
        name: value if factors.get(name, 1.0) == 1 else np.asarray(value) * factors[name]
        for name, value in draws.items()
    }


def reference_note(interpretation: Interpretation | None) -> tuple[str, ...]:
    """Where the intercept is and what levels are compared with, and what else was declared."""
    if interpretation is None:
        return ()
    at = ", ".join(f"{each.column} {each.value}" for each in interpretation.reference)
    return (*((f"Reference: {at}.",) if at else ()), *interpretation.notes)


def interpretation_notes(interpretation: Interpretation | None) -> tuple[str, ...]:
    """How to read the numbers: their scale, and what parameters beside coefficients are."""
    if interpretation is None:
        return ()
    found = [f"Coefficients are changes of {interpretation.scale}."]
    if interpretation.ratio is not None:
        ratios = interpretation.ratio.replace("ratio", "ratios", 1)
        found[0] += f" Their exponentials are {ratios}, with intervals in brackets."
    found += [
        f"{name}: {each.note}." for name, each in interpretation.parameters.items() if each.note
    ]
    return tuple(found)


def prior_notes(interpretation: Interpretation | None) -> tuple[str, ...]:
    """The kinds of priors, in a sentence."""
    if interpretation is None:
        return ()
    kinds: dict[str, list[str]] = {}
    for name, each in interpretation.parameters.items():
        if each.prior is not None and each.prior.name:
            kinds.setdefault(each.prior.name, []).append(name)
    listed = "; ".join(f"{kind} for {', '.join(names)}" for kind, names in kinds.items())
    return (f"Priors: {listed}.",) if listed else ()
