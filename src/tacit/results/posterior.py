"""A fitted posterior: draws of named parameters, and what they cost."""

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
    """Draws from an approximate posterior, with its privacy statement.

    ``draws`` has an array [draws, *shape] for each of the model's parameters.
    ``unconstrained_mean`` and ``unconstrained_covariance`` are the Gaussian that was fitted,
    if it was one. ``trace`` has every step of the fit: released values, free to look at.
    Draws of a ``chain`` follow one
    another, and are not independent; ``sample_stats`` has more about each, such as whether the
    proposal was accepted. ``labels`` has names for the entries of arrays, axis by axis.

    ``converged`` is whether the fit converged, by its method's own test; None if the method
    cannot tell. ``said`` are sentences about how it went, the most important first. ``intervals``
    is what intervals and standard deviations say about the noise that protects people. ``sites``
    has the statement of each site of a federated fit.

    Everything here was released under ``privacy`` or is public, and whatever is computed
    from it costs nothing more. No reference to a row survives in here.
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
        """Why the numbers must not be released, or relied on. Every rendering begins with them."""
        private = self.privacy.warning
        failed = (CONVERGED[False],) if self.converged is False else ()
        return (*(() if private is None else (private,)), *failed)

    @property
    def num_draws(self) -> int:
        """How many draws there are."""
        return len(next(iter(self.draws.values())))

    def mean(self) -> dict[str, Array]:
        """Posterior means."""
        with np.errstate(all="ignore"):  # draws may be infinite
            return {n: np.mean(d, axis=0, dtype=np.float64) for n, d in self.draws.items()}

    def sd(self) -> dict[str, Array]:
        """Posterior standard deviations."""
        with np.errstate(all="ignore"):
            return {n: np.std(d, axis=0, dtype=np.float64) for n, d in self.draws.items()}

    def quantiles(self, probabilities: Sequence[float]) -> dict[str, Array]:
        """Arrays [probabilities, *shape] of posterior quantiles."""
        levels = np.asarray(probabilities, np.float64)
        if levels.ndim != 1 or not ((levels >= 0) & (levels <= 1)).all():
            raise InvalidArgument("Pass a list of probabilities between 0 and 1.")
        with np.errstate(all="ignore"):
            return {
                name: np.quantile(draws.astype(np.float64), levels, axis=0)
                for name, draws in self.draws.items()
            }

    def interval(self, level: float = 0.9) -> dict[str, Array]:
        """Arrays [2, *shape]: the ends of the interval that leaves out as much on either side.

        Whether the noise that protects people is in them is in ``intervals``.
        """
        if not (0 < level < 1):
            raise InvalidArgument(f"level must be between 0 and 1; got {level!r}.")
        return self.quantiles([(1 - level) / 2, (1 + level) / 2])

    def summary(self, level: float = 0.9) -> Summary:
        """A table of all parameters, to print or to show in a notebook."""
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
        """How many independent draws a chain's would be worth, for each number."""
        return mixing.effective_sizes(self.draws)

    def r_hats(self) -> dict[str, Array]:
        """How far apart the two halves of a chain are, for each number: 1 if not at all."""
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
        """What ArviZ reads: a tree with the groups ``posterior`` and ``fit`` (the trace).

        A chain has ``sample_stats`` and ``diagnostics`` (effective sizes and R-hat) too: all
        of it follows from the released chain.

        ArviZ 1 takes the tree as it is; for ArviZ 0.23 pass it through ``az.from_datatree``.
        There is no ``observed_data``: the data stay where they are.
        """
        return files.to_datatree(self)

    def save(self, path: _PathLike) -> None:
        """Writes a NetCDF file, which `load` and ``arviz.from_netcdf`` read.

        The model is not saved. The file appears when it is complete, or not at all.
        """
        files.save(self, path)

    @classmethod
    def load(cls, path: _PathLike, *, plan: Any = None) -> "Posterior":
        """The posterior that `save` wrote; with its plan it has a model, and can predict."""
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
        """What the model says of new rows, averaged over the posterior.

        ``data`` needs the columns that the outcome depends on. ``"mean"`` is the expected
        outcome of each row: a probability if it is a yes or no. ``"draws"`` has draws of the
        outcome itself, [draws, rows]. ``"probit"`` is the thesis' approximation for logistic
        regression, a formula in the mean and variance of the logit. A row with a missing
        value that is to be left out gets NaN. With several outcomes, a mapping of arrays.
        The spread of ``"draws"`` includes the noise that protects people only if ``intervals``
        says so.

        Predictions cost nothing more; but what is predicted for somebody's own row is
        computed from that row, and is as private as the row is.
        """
        return predictive.predict(self, data, kind, seed)

    def plot_forest(
        self, names: Sequence[str] | None = None, *, path: _PathLike | None = None
    ) -> Any:
        """Means and intervals one below the other. Returns the figure."""
        return plots.forest(self, names, path)

    def plot_dist(
        self, names: Sequence[str] | None = None, *, path: _PathLike | None = None
    ) -> Any:
        """The density of each parameter. Returns the figure."""
        return plots.dist(self, names, path)

    def plot_trace(self, *, path: _PathLike | None = None) -> Any:
        """The course of the fit, step by step. Returns the figure."""
        return plots.trace(self, path)

    def plot_privacy(self, *, path: _PathLike | None = None) -> Any:
        """Epsilon at every delta, under both adjacencies. Returns the figure."""
        return plots.privacy(self.privacy, path)

    def report(self, folder: _PathLike, *, settings: Mapping[str, Any] | None = None) -> None:
        """Writes a report into a folder: ``report.html``, ``report.md`` and ``registry.yaml``.

        The page stands by itself: it asks nothing of the network and runs no script. It says what
        was fitted, the posterior, what it cost and what is left, and ``settings``, public facts
        such as ``formula``, ``method`` or ``data``, in the words they are given. Some have a
        use beyond that: see `tacit.results.report.write_report`.
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
