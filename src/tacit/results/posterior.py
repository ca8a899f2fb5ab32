"""Posteriors: draws of named parameters, with their privacy statement."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

import tacit
from tacit import _validate, results
from tacit._html import render_template
from tacit._typing import FloatArray
from tacit.data.schema import Schema
from tacit.data.tables import TableLike
from tacit.errors import InvalidArgument
from tacit.inference.result import UNLEARNED, Intervals, MethodResult
from tacit.models.interpretation import GLMSpec, IncrementSizes, Interpretation
from tacit.results import effects
from tacit.results.statement import PrivacyStatement
from tacit.results.summary import (
    CONVERGENCE_SENTENCES,
    NOTHING,
    Labels,
    NamedDraws,
    Summary,
    as_draw_arrays,
    as_step_arrays,
    check_units,
    draws_in_units,
    equal_arrays,
    finding_sentence,
    interpretation_notes,
    prior_notes,
    reference_note,
    summary_lines,
    to_model_units,
    trust_sentence,
)

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr
    from matplotlib.figure import Figure

    from tacit.models.base import UnitModel
    from tacit.results.predictive import PredictionKind

_PathLike = str | os.PathLike[str]
# A standard deviation that is a smaller part of the outcome's range needs tighter bounds; one that
# is so close to where the fit began may not have moved.
_MIN_SPREAD_SHARE, _MAX_SHIFT_FROM_START = 1 / 40, 0.15


class PlanOfFit(Protocol):
    """What a plan tells about the posterior of its fit."""

    @property
    def model(self) -> "UnitModel":
        """The model."""

    @property
    def schema(self) -> Schema:
        """The schema."""


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Posterior(NamedDraws, MethodResult):
    """Draws from an approximate posterior, with a privacy statement.

    Everything in it was released under ``privacy`` or is public, so computing from it has no
    further privacy cost. It holds no reference to a row.

    Attributes:
        draws: An array [draws, *shape] for each parameter, in the units of the summary.
        intervals: Whether intervals and standard deviations account for the privacy noise.
        converged: Whether the fit converged by its method's own test, or None if the method cannot
            tell.
        messages: Sentences on how the fit went, most important first.
        fitted_by: Sentences on the method and its steps.
        privacy: The privacy statement.
        chain: Whether the draws are a Markov chain and therefore not independent.
        chains: The number of chains of equal length whose draws follow one another.
        sample_stats: Further values for each draw, such as whether a proposal was accepted.
        trace: Released values of every step of the fit.
        unconstrained_mean: Mean of the fitted Gaussian on the unconstrained scale, if there is one.
        unconstrained_covariance: Covariance of that Gaussian.
        model: The model, which `predict` needs.
        schema: The schema.
        labels: Names for the entries of array parameters, axis by axis.
        interpretation: How to read the parameters in the units of the table, for a model by formula.
        expected: Widths of 90% intervals by the plan's forecast, if it had one, by the names and in
            the units of the summary.
        sites: The statement of each site of a federated fit.
        answers: How many answers of each site a federated fit used, and how many it requested.
        recipe: What a model by formula was made from, if the posterior comes from a file.
    """

    privacy: PrivacyStatement
    model: "UnitModel | None" = None
    schema: Schema | None = None
    labels: Labels = field(default_factory=dict)
    interpretation: Interpretation | None = None
    expected: Mapping[str, float] = field(default_factory=dict)
    sites: Mapping[str, PrivacyStatement] = field(default_factory=dict)
    answers: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    recipe: GLMSpec | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _validate.set_fields(
            self,
            trace=as_step_arrays(self.trace),
            sample_stats=as_draw_arrays(self.sample_stats),
            converged=None if self.converged is None else bool(self.converged),
            intervals=Intervals(self.intervals),
        )

    @property
    def warnings(self) -> tuple[str, ...]:
        """Why the numbers must not be released or relied on. Every rendering begins with them."""
        private = self.privacy.warning
        failed = (CONVERGENCE_SENTENCES[False],) if self.converged is False else ()
        return (*(() if private is None else (private,)), *failed)

    def summary(self, level: float = 0.9, *, units: IncrementSizes | None = None) -> Summary:
        """A table of all parameters, to print or to show in a notebook.

        Coefficients of a model by formula are in the units of the table: for one unit of a column,
        or for a round number of the unit of measurement that the schema declares. Odds ratios and
        rate ratios are beside them. ``draws``, `mean`, `interval`, plots, files and trees have the
        same numbers. `model_draws` has the model's own parameters, for which a unit is half of a
        column's declared range.

        Args:
            level: The posterior probability of the intervals.
            units: Other units for some columns, by name: ``{"age": 10}`` for ten years.

        Returns:
            The summary.

        Raises:
            InvalidArgument: If the level is out of range, or units names something else than a
                number of the formula.
        """
        asked = check_units(self.interpretation, units)
        shown = draws_in_units(self.draws, self.interpretation, asked)
        mixing = (self.effective_sizes(), self.r_hats()) if self.chain else ()
        ends = shown.interval(level)
        lower, upper = ({name: each[end] for name, each in ends.items()} for end in (0, 1))
        columns = (shown.mean(), shown.sd(), lower, upper, *mixing)
        # Of a fit that converged, the first message says how it did.
        how = self.messages[:1] if self.converged else ()
        return Summary(
            lines=summary_lines(columns, self.labels, self.interpretation, asked),
            level=level,
            warnings=self.warnings,
            finding=self.finding,
            trust=trust_sentence(level, self.intervals, self.converged),
            notes=(
                *reference_note(self.interpretation),
                *(each for each in self.course if each not in (*how, self.finding)),
            ),
            more=(
                *interpretation_notes(self.interpretation),
                *prior_notes(self.interpretation),
                *how,
                *self.privacy.count_note,
            ),
            privacy=self.privacy.cost_sentence if self.privacy.is_private else "",
            chain=self.chain,
            intervals=self.intervals,
            ratio=None if self.interpretation is None else self.interpretation.ratio,
        )

    def in_units(self, units: IncrementSizes | None = None) -> NamedDraws:
        """Draws of all parameters in the units of the table, as `summary` shows them.

        Args:
            units: Other units for some columns, as for `summary`.

        Returns:
            The draws, with their statistics.
        """
        shown = draws_in_units(
            self.draws, self.interpretation, check_units(self.interpretation, units)
        )
        return replace(shown, chains=self.chains)

    @property
    def finding(self) -> str:
        """What was found, in one sentence, as far as the model says what its parameters are.

        Of other models, it says of which parameters little was learnt.
        """
        if self.converged is False:
            return ""
        if self.interpretation is None:
            return next((each for each in self.messages if each.startswith(UNLEARNED)), "")
        many = "people" if self.privacy.unit == "person" else "rows"
        return finding_sentence(self.draws, self.interpretation, self.intervals, many)

    @property
    def course(self) -> tuple[str, ...]:
        """Sentences on how the fit went, other than warnings, without what the finding says."""
        said = (UNLEARNED,) if self.finding.startswith(NOTHING) else ()
        messages = (each for each in self.messages if not each.startswith(said))
        return (*messages, *self._bounds_warnings())

    def _bounds_warnings(self) -> tuple[str, ...]:
        """Whether the declared bounds of the outcome suit what was learnt. From released values only."""
        interpretation = self.interpretation
        if interpretation is None or interpretation.bounds is None:
            return ()
        spread = next(
            (n for n, m in interpretation.parameters.items() if m.start is not None), None
        )
        if spread is None or spread not in self.draws:
            return ()
        low, high = interpretation.bounds
        start, found = interpretation.parameters[spread].start, float(np.mean(self.draws[spread]))
        range_ = f"the declared bounds of {interpretation.outcome}, {low:.4g} to {high:.4g}"
        if found < _MIN_SPREAD_SHARE * (high - low):
            text = (
                f"{spread} is {found:.3g}, a small part of {range_}. Bounds that are much wider than the "
                "outcomes cost precision: declare tighter ones if they are known without these data."
            )
            return (text,)
        if (
            start is not None
            and abs(found / start - 1) < _MAX_SHIFT_FROM_START
            and not self.converged
        ):
            text = (
                f"{spread} is {found:.3g}, about where the fit began ({start:.3g}, by {range_}), so it may "
                "never have moved. Declare tighter bounds if they are known without these data, or use "
                "tacit.Scoring()."
            )
            return (text,)
        return ()

    def to_datatree(self, public: TableLike | None = None, *, seed: int = 0) -> "xr.DataTree":
        """Converts to an `xarray.DataTree`, which ArviZ takes as it is.

        The groups are ``posterior`` and ``fit`` (the trace); a chain also has ``sample_stats`` and
        ``diagnostics`` (effective sizes and R-hat). ``constant_data`` has the public constants of a
        NumPyro or PyMC model. There is no ``observed_data``. If the installed ArviZ is older than
        version 1, which has no trees, the groups of the tree are datasets. See "ArviZ" in the documentation.

        Args:
            public: Rows that whoever gets the tree may see, such as simulated ones, with the columns
                that the outcome depends on. Draws of their outcomes become the group
                ``posterior_predictive``, and their encoded columns part of ``constant_data``.
            seed: Seed of these draws.

        Returns:
            The tree.

        Raises:
            InvalidArgument: If ``public`` is passed and the posterior has no model, or a column is
                missing.
        """
        return results.datatree.to_arviz_tree(self, public, seed)

    def save(self, path: _PathLike) -> None:
        """Writes a NetCDF file, which `load` and ``arviz.from_netcdf`` read.

        The schema and the formula of a model by formula are saved, so that `predict` works after
        `load`. A NumPyro or PyMC model is not saved. The file appears only when it is complete.

        Args:
            path: The file.
        """
        results.files.save_posterior(self, path)

    @classmethod
    def load(cls, path: _PathLike, *, plan: PlanOfFit | None = None) -> "Posterior":
        """Reads a posterior that `save` wrote.

        Args:
            path: The file.
            plan: The plan of the fit. It provides the model that `predict` needs; a model by
                formula is made again from the file without it.

        Returns:
            The posterior.

        Raises:
            InvalidArgument: If the file cannot be read, or the plan is for another model.
        """
        fields = results.files.load_fields(path)
        made = FederatedPosterior if "sites" in fields else cls
        if plan is None:
            return made(**fields)
        if tuple(fields["draws"]) != plan.model.names:
            raise InvalidArgument(
                f"The file has {', '.join(fields['draws'])}, but the plan's model has "
                f"{', '.join(plan.model.names)}; pass the plan that was fitted."
            )
        return made(**fields | {"model": plan.model, "schema": plan.schema})

    def predict(
        self, data: TableLike, *, kind: "PredictionKind" = "mean", seed: int = 0
    ) -> FloatArray | dict[str, FloatArray]:
        """Predicts outcomes of new rows from the posterior.

        Predictions have no further privacy cost. A prediction for a person's own row is computed
        from that row, and is as private as the row.

        Args:
            data: New rows, with the columns that the outcome depends on.
            kind: ``"mean"`` for the expected outcome of each row (a probability for a binary
                outcome); ``"draws"`` for draws of the outcome, [draws, rows]; ``"probit"`` for the
                probit approximation of a logistic regression. The spread of draws accounts for the
                privacy noise only if ``intervals`` says so.
            seed: Seed of the draws.

        Returns:
            An array, with NaN for rows that have a missing value; or a mapping of arrays for a
            model with several outcomes.

        Raises:
            InvalidArgument: If the posterior has no model, or the data lack a column.
        """
        from tacit.results import predictive  # it imports JAX

        return predictive.predict(self, data, kind, seed)

    def score(self, data: TableLike, **settings: Any) -> Any:
        """Scores, within a privacy budget, how well the posterior predicts rows that were kept: see `tacit.score`.

        Args:
            data: The rows.
            settings: A budget, a ledger and the other settings of `tacit.score`.

        Returns:
            The score, a `tacit.api.score.Score`.
        """
        return tacit.score(self, data, **settings)

    @property
    def model_draws(self) -> Mapping[str, FloatArray]:
        """Draws of the model's own parameters, for which a unit of a number is half of its range."""
        return to_model_units(self.draws, self.interpretation)

    def predictions(self, at: effects.At | None = None, *, level: float = 0.9) -> "pd.DataFrame":
        """Expected outcomes at declared values, with intervals. They have no further privacy cost.

        Means are those of the outcome: a probability if it is yes or no, the probability of each
        level if it has levels, a rate if it is a count.

        Args:
            at: Values of some columns, such as ``{"age": [30, 60], "ward": "all"}``. There is a row
                for each combination. ``"all"`` stands for all levels, or five numbers from bound to
                bound. Other columns are at the reference.
            level: The posterior probability of the intervals.

        Returns:
            A data frame with the values, ``mean``, and the ends of the interval.

        Raises:
            InvalidArgument: If the model is not by formula, or a value is not declared.
        """
        return effects.predictions(self, at, level)

    def comparisons(
        self,
        variable: str,
        at: effects.At | None = None,
        *,
        by: effects.Contrast = "difference",
        values: tuple[object, object] | None = None,
        level: float = 0.9,
    ) -> "pd.DataFrame":
        """How the expected outcome differs between two values of a column, with intervals.

        Args:
            variable: The column. Levels are compared with the reference; a number is raised from
                the reference by the unit that the summary shows.
            at: Values of other columns, as for `predictions`.
            by: ``"difference"``, or ``"ratio"``, such as a risk ratio.
            values: The two values to compare.
            level: The posterior probability of the intervals.

        Returns:
            A data frame with a row for each comparison.

        Raises:
            InvalidArgument: If the model is not by formula, or a value is not declared.
        """
        return effects.comparisons(self, variable, at, by, values, level)

    def slopes(
        self, variable: str, at: effects.At | None = None, *, level: float = 0.9
    ) -> "pd.DataFrame":
        """How fast the expected outcome changes with a number, per one of it, with intervals.

        Args:
            variable: The number.
            at: Values of any columns, as for `predictions`.
            level: The posterior probability of the intervals.

        Returns:
            A data frame with a row for each combination of values.

        Raises:
            InvalidArgument: If the model is not by formula, or the column is not a number.
        """
        return effects.slopes(self, variable, at, level)

    def survival(
        self,
        times: Sequence[float] | float | None = None,
        at: effects.At | None = None,
        *,
        rmst: float | None = None,
        level: float = 0.9,
    ) -> "pd.DataFrame":
        """Survival curves and restricted mean survival times at declared values, with intervals.

        They have no further privacy cost.

        Args:
            times: Times at which to compute the probability of no event until then. By default
                61 times up to the longest one, or none if ``rmst`` is passed.
            at: Values of some columns, as for `predictions`.
            rmst: A time until which to compute the restricted mean survival time: the mean time
                until the event, where later events count as this time.
            level: The posterior probability of the intervals.

        Returns:
            A data frame with the values, ``quantity`` (survival or restricted mean), ``time``,
            ``mean``, and the ends of the interval.

        Raises:
            InvalidArgument: If the outcome of the model is not a time, or a value is not declared.
        """
        return results.survival.survival(self, times, at, rmst, level)

    def probability(self, statement: str) -> float:
        """The posterior probability of a statement about parameters, such as ``"dose < 0"``.

        Args:
            statement: A comparison of calculations with the names of the summary, as in
                ``"ward[geriatric] > 2 * age"``. ``and``, ``or`` and ``not`` join several; ``exp``,
                ``log`` and ``abs`` are known.

        Returns:
            The share of draws for which it holds.

        Raises:
            InvalidArgument: If the statement cannot be read.
        """
        return effects.probability(self, statement)

    def plot_predictions(
        self,
        variable: str,
        *,
        by: str | None = None,
        at: effects.At | None = None,
        path: _PathLike | None = None,
    ) -> "Figure":
        """Plots the expected outcome over the declared values of a column, with 90% intervals.

        Args:
            variable: The column.
            by: A category with a curve for each level.
            at: Values of other columns, as for `predictions`.
            path: A file to save the figure to.

        Returns:
            The matplotlib figure.
        """
        return effects.plot_predictions(self, variable, by, at, path)

    def plot_survival(
        self,
        *,
        by: str | None = None,
        at: effects.At | None = None,
        times: Sequence[float] | None = None,
        path: _PathLike | None = None,
    ) -> "Figure":
        """Plots survival curves with 90% intervals.

        Args:
            by: A column with a curve for each level, or for each of the values in ``at``.
            at: Values of some columns, as for `predictions`. There is a curve for each combination.
            times: The times, as for `survival`.
            path: A file to save the figure to.

        Returns:
            The matplotlib figure.
        """
        return results.survival.plot_survival(self, times, by, at, path)

    def plot_forest(
        self,
        names: Sequence[str] | None = None,
        *,
        ratios: bool = False,
        path: _PathLike | None = None,
    ) -> "Figure":
        """Plots means and intervals of the parameters. Those that are nearly the prior's may be cut, with an arrow.

        Args:
            names: The parameters to plot; by default all.
            ratios: Whether to show odds ratios or rate ratios, on a logarithmic axis, of the
                parameters that have them.
            path: A file to save the figure to.

        Returns:
            The matplotlib figure.

        Raises:
            InvalidArgument: If a name is unknown, or there are no ratios.
        """
        return results.plots.plot_forest(self, names, path, ratios=ratios)

    def plot_dist(
        self, names: Sequence[str] | None = None, *, path: _PathLike | None = None
    ) -> "Figure":
        """Plots the marginal density of each parameter.

        Args:
            names: The parameters to plot; by default all.
            path: A file to save the figure to.

        Returns:
            The matplotlib figure.
        """
        return results.plots.plot_dist(self, names, path)

    def plot_trace(self, *, path: _PathLike | None = None) -> "Figure":
        """Plots the trace of the fit over its steps: where it was, in the units of the summary.

        What else was released, such as the logarithms of standard deviations of a guide, is on the model's own scale.

        Args:
            path: A file to save the figure to.

        Returns:
            The matplotlib figure.
        """
        return results.plots.plot_trace(self, path)

    def plot_privacy(self, *, path: _PathLike | None = None) -> "Figure":
        """Plots epsilon over delta, under both adjacencies.

        Args:
            path: A file to save the figure to.

        Returns:
            The matplotlib figure.
        """
        return results.plots.plot_privacy(self.privacy, path)

    def report(
        self,
        folder: _PathLike,
        *,
        settings: Mapping[str, object] | None = None,
        units: IncrementSizes | None = None,
    ) -> None:
        """Writes a report: ``report.html``, ``report.md`` and ``registry.yaml``.

        The HTML page is self-contained: it loads nothing from the network and runs no script. See
        "Reading results" in the documentation.

        Args:
            folder: The folder to write to.
            settings: Public facts to show, such as ``formula``, ``method`` or ``data``. Some have a
                further use; see `tacit.results.report.write_report`.
            units: Other units for some columns, as for `summary`.
        """
        results.report.write_report(self, folder, settings=settings, units=units)

    def __eq__(self, other: object) -> bool:
        """The same numbers and the same statement; the model does not count."""
        if not isinstance(other, Posterior):
            return NotImplemented
        return self._plain() == other._plain() and equal_arrays(self._arrays(), other._arrays())

    __hash__ = None  # type: ignore[assignment]  # arrays can change

    def _plain(self) -> tuple[object, ...]:
        course = self.converged, self.messages, self.intervals, dict(self.expected), self.fitted_by
        return *course, self.privacy, self.interpretation

    def _arrays(self) -> dict[tuple[str, str], FloatArray]:
        optional = {
            ("unconstrained", "mean"): self.unconstrained_mean,
            ("unconstrained", "covariance"): self.unconstrained_covariance,
        }
        return (
            {("draws", name): value for name, value in self.draws.items()}
            | {("trace", name): value for name, value in self.trace.items()}
            | {("sample_stats", name): value for name, value in self.sample_stats.items()}
            | {name: value for name, value in optional.items() if value is not None}
        )

    def __repr__(self) -> str:
        shapes = ", ".join(f"{name}{list(d.shape[1:]) or ''}" for name, d in self.draws.items())
        failed = "DID NOT CONVERGE; " if self.converged is False else ""
        return f"Posterior({failed}{self.privacy.headline}; {self.num_draws} draws of {shapes})"

    def _repr_html_(self) -> str:
        return render_template("posterior.html", summary=self.summary(), statement=self.privacy)


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class FederatedPosterior(Posterior):
    """A `Posterior` of a federated fit, with the privacy statement of each site in ``sites``.

    ``privacy`` is the weakest statement of all sites.
    """
