"""Posteriors: draws of named parameters, with their privacy statement."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.data.schema import Schema
from tacit.errors import InvalidArgument
from tacit.inference import mixing
from tacit.inference.base import Intervals
from tacit.models.base import AnyModel
from tacit.results import files, html, plots, predictive, report
from tacit.results.statement import PrivacyStatement
from tacit.results.summary import Labels, Summary, summary_lines
from tacit.results.wording import CONVERGED

if TYPE_CHECKING:
    import xarray as xr

Array = NDArray[np.floating]
_PathLike = str | os.PathLike[str]


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Posterior:
    """Draws from an approximate posterior, with a privacy statement.

    Everything in it was released under ``privacy`` or is public, so computing from it has no
    further privacy cost. It holds no reference to a row.

    Attributes:
        draws: An array [draws, *shape] for each parameter.
        unconstrained_mean: Mean of the fitted Gaussian on the unconstrained scale, if there is one.
        unconstrained_covariance: Covariance of that Gaussian.
        trace: Released values of every step of the fit.
        chain: Whether the draws are a Markov chain and therefore not independent.
        sample_stats: Further values for each draw, such as whether a proposal was accepted.
        privacy: The privacy statement.
        model: The model, which `predict` needs.
        schema: The schema.
        labels: Names for the entries of array parameters, axis by axis.
        converged: Whether the fit converged by its method's own test, or None if the method cannot
            tell.
        said: Sentences on how the fit went, most important first.
        intervals: Whether intervals and standard deviations account for the privacy noise.
        sites: The statement of each site of a federated fit.
    """

    draws: Mapping[str, Array]
    unconstrained_mean: Array | None = None
    unconstrained_covariance: Array | None = None
    trace: Mapping[str, Array] = field(default_factory=dict)
    chain: bool = False
    sample_stats: Mapping[str, Array] = field(default_factory=dict)
    privacy: PrivacyStatement
    model: AnyModel | None = None
    schema: Schema | None = None
    labels: Labels = field(default_factory=dict)
    converged: bool | None = None
    said: tuple[str, ...] = ()
    intervals: Intervals = Intervals.UNKNOWN
    sites: Mapping[str, PrivacyStatement] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "draws", _alike("draws", self.draws))
        object.__setattr__(self, "trace", _alike("steps of the trace", self.trace))
        object.__setattr__(self, "sample_stats", _alike("draws", self.sample_stats))
        object.__setattr__(self, "intervals", Intervals(self.intervals))
        if self.converged is not None:
            object.__setattr__(self, "converged", bool(self.converged))
        if not self.draws:
            raise InvalidArgument("A posterior needs draws of at least one parameter.")

    @property
    def warnings(self) -> tuple[str, ...]:
        """Why the numbers must not be released or relied on. Every rendering begins with them."""
        private = self.privacy.warning
        failed = (CONVERGED[False],) if self.converged is False else ()
        return (*(() if private is None else (private,)), *failed)

    @property
    def num_draws(self) -> int:
        """The number of draws."""
        return len(next(iter(self.draws.values())))

    def mean(self) -> dict[str, Array]:
        """Posterior means.

        Returns:
            An array for each parameter.
        """
        with np.errstate(all="ignore"):  # draws may be infinite
            return {n: np.mean(d, axis=0, dtype=np.float64) for n, d in self.draws.items()}

    def sd(self) -> dict[str, Array]:
        """Posterior standard deviations.

        Returns:
            An array for each parameter.
        """
        with np.errstate(all="ignore"):
            return {n: np.std(d, axis=0, dtype=np.float64) for n, d in self.draws.items()}

    def quantiles(self, probabilities: Sequence[float]) -> dict[str, Array]:
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

    def interval(self, level: float = 0.9) -> dict[str, Array]:
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

    def summary(self, level: float = 0.9) -> Summary:
        """A table of all parameters, to print or to show in a notebook.

        Args:
            level: The posterior probability of the intervals.

        Returns:
            The summary.
        """
        return Summary(
            lines=summary_lines(
                self.mean(), self.sd(), self.interval(level), *self._mixing, labels=self.labels
            ),
            level=level,
            warnings=self.warnings,
            notes=self._notes(),
            chain=self.chain,
            intervals=self.intervals,
        )

    def effective_sizes(self) -> dict[str, Array]:
        """Effective sample sizes.

        Returns:
            An array for each parameter.
        """
        return mixing.effective_sizes(self.draws)

    def r_hats(self) -> dict[str, Array]:
        """Split R-hat of the chain.

        Returns:
            An array for each parameter; 1 means that the two halves of the chain agree.
        """
        return mixing.r_hats(self.draws)

    @property
    def _mixing(self) -> tuple[dict[str, Array], ...]:
        return (self.effective_sizes(), self.r_hats()) if self.chain else ()

    def _notes(self) -> tuple[str, ...]:
        cost = (self.privacy.headline,) if self.privacy.is_private else ()
        # A file may be older than `said`.
        found = mixing.bad_mixing(self.draws) if self.chain else ()
        good = (CONVERGED[True],) if self.converged else ()
        return (*good, *self.said, *(each for each in found if each not in self.said), *cost)

    def to_datatree(self) -> "xr.DataTree":
        """Converts to an `xarray.DataTree` for ArviZ.

        The groups are ``posterior`` and ``fit`` (the trace); a chain also has ``sample_stats`` and
        ``diagnostics`` (effective sizes and R-hat). There is no ``observed_data``. ArviZ 1 takes
        the tree as it is; for ArviZ 0.23 pass it through ``az.from_datatree``.

        Returns:
            The tree.
        """
        return files.to_datatree(self)

    def save(self, path: _PathLike) -> None:
        """Writes a NetCDF file, which `load` and ``arviz.from_netcdf`` read.

        The model is not saved. The file appears only when it is complete.

        Args:
            path: The file.
        """
        files.save(self, path)

    @classmethod
    def load(cls, path: _PathLike, *, plan: Any = None) -> "Posterior":
        """Reads a posterior that `save` wrote.

        Args:
            path: The file.
            plan: The plan of the fit. It provides the model and schema that `predict` needs.

        Returns:
            The posterior.

        Raises:
            InvalidArgument: If the file cannot be read, or the plan is for another model.
        """
        fields = files.load(path)
        if "sites" in fields:
            from tacit.results.federated import FederatedPosterior  # which is one of these

            made: type[Posterior] = FederatedPosterior
        else:
            made = cls
        if plan is None:
            return made(**fields)
        if tuple(fields["draws"]) != plan.model.names:
            raise InvalidArgument(
                f"The file has {', '.join(fields['draws'])}, but the plan's model has "
                f"{', '.join(plan.model.names)}; pass the plan that was fitted."
            )
        return made(**fields, model=plan.model, schema=plan.schema)

    def predict(
        self, data: Any, *, kind: predictive.Kind = "mean", seed: int = 0
    ) -> Array | dict[str, Array]:
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
        return predictive.predict(self, data, kind, seed)

    def plot_forest(
        self, names: Sequence[str] | None = None, *, path: _PathLike | None = None
    ) -> Any:
        """Plots means and intervals of the parameters.

        Args:
            names: The parameters to plot; by default all.
            path: A file to save the figure to.

        Returns:
            The matplotlib figure.
        """
        return plots.forest(self, names, path)

    def plot_dist(
        self, names: Sequence[str] | None = None, *, path: _PathLike | None = None
    ) -> Any:
        """Plots the marginal density of each parameter.

        Args:
            names: The parameters to plot; by default all.
            path: A file to save the figure to.

        Returns:
            The matplotlib figure.
        """
        return plots.dist(self, names, path)

    def plot_trace(self, *, path: _PathLike | None = None) -> Any:
        """Plots the trace of the fit over its steps.

        Args:
            path: A file to save the figure to.

        Returns:
            The matplotlib figure.
        """
        return plots.trace(self, path)

    def plot_privacy(self, *, path: _PathLike | None = None) -> Any:
        """Plots epsilon over delta, under both adjacencies.

        Args:
            path: A file to save the figure to.

        Returns:
            The matplotlib figure.
        """
        return plots.privacy(self.privacy, path)

    def report(self, folder: _PathLike, *, settings: Mapping[str, Any] | None = None) -> None:
        """Writes a report: ``report.html``, ``report.md`` and ``registry.yaml``.

        The HTML page is self-contained: it loads nothing from the network and runs no script. See
        docs/report.md.

        Args:
            folder: The folder to write to.
            settings: Public facts to show, such as ``formula``, ``method`` or ``data``. Some have a
                further use; see `tacit.results.report.write_report`.
        """
        report.write_report(self, folder, settings=settings)

    def __eq__(self, other: object) -> bool:
        """The same numbers and the same statement; the model does not count."""
        if not isinstance(other, Posterior):
            return NotImplemented
        return self._plain() == other._plain() and _same(self._arrays(), other._arrays())

    __hash__ = None  # type: ignore[assignment]  # arrays can change

    def _plain(self) -> tuple[Any, ...]:
        return self.converged, self.said, self.intervals, self.privacy

    def _arrays(self) -> dict[tuple[str, str], Array]:
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
        statement = html.folded("Privacy statement", self.privacy._repr_html_())
        return html.box(self.summary()._repr_html_(), statement)


def _alike(what: str, values: Mapping[str, ArrayLike]) -> dict[str, Array]:
    """Float arrays that all have the same number of ``what``, at least one."""
    arrays = {name: _float(value) for name, value in values.items()}
    lengths = {array.shape[:1] for array in arrays.values()}
    if len(lengths) > 1 or lengths & {(), (0,)}:
        raise InvalidArgument(f"All arrays must have the same number of {what}, at least one.")
    return arrays


def _float(value: ArrayLike) -> Array:
    array = np.asarray(value)
    return array if array.dtype in (np.float32, np.float64) else array.astype(np.float64)


def _same(one: Mapping[Any, Array], other: Mapping[Any, Array]) -> bool:
    return list(one) == list(other) and all(
        np.array_equal(value, other[name], equal_nan=True) for name, value in one.items()
    )
