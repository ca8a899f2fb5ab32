"""Scoring and comparing: how well posteriors predict rows that were not fitted.

`score` is one charged release on rows that were kept. `compare` splits the people of one table by secret coins, fits every
model to the one part, and scores all of them on the other.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from tacit import _validate
from tacit._format import (
    clean_text,
    format_count,
    format_epsilon,
    format_number,
    is_watched,
    text_table,
)
from tacit._typing import ArrayTree, Floats
from tacit.accounting import Budget, calibrate, events
from tacit.accounting.accountants import cost
from tacit.accounting.budget import choose_budget
from tacit.accounting.events import ComposedDpEvent, DpEvent, GaussianDpEvent, SelfComposedDpEvent
from tacit.accounting.ledger import Ledger
from tacit.api.check import own_model, posterior_digest, posterior_normal
from tacit.api.fit import interrupted, run_plan
from tacit.api.plan import ASSUMPTIONS, Plan, check_ledger, fit_assumptions, plan
from tacit.api.release import SiteStatements, release_plan, site_dicts, sites_sentences
from tacit.api.rows import encode_rows, example_rows, model_columns, simulated_units
from tacit.data.schema import Schema
from tacit.data.tables import TableLike
from tacit.errors import BudgetError, InvalidArgument
from tacit.inference.held_out import (
    HeldOutScore,
    Measure,
    ScoreRange,
    ScoreRelease,
    ScoreSums,
    gaussian_draws,
    log_density,
)
from tacit.inference.method import Method
from tacit.inference.registry import choose_method
from tacit.inference.scoring import Scoring
from tacit.inference.statistics import Statistics
from tacit.models.base import Row, UnitModel
from tacit.models.front_ends import SchemaLike, adapt_model, resolve_model
from tacit.privacy.gate import Gate, open_gate
from tacit.privacy.mechanisms import BarkerTests, NoisySums
from tacit.privacy.noise import Randomness
from tacit.privacy.rows import Rows
from tacit.results.posterior import Posterior
from tacit.results.statement import UNIT_PLURALS, PrivacyStatement

if TYPE_CHECKING:
    import pandas as pd

# How far beyond the log densities of simulated rows the range goes, in parts of theirs, and beyond other numbers.
_BEYOND, _STRETCH = 0.25, 1.25
_LEVEL = 0.9
_MOST_MODELS = 20
_PUBLIC = (
    "the posterior that is scored",
    "the range of log densities",
    "column names, types and shapes",
    "bounds and levels of the schema",
)
_ASSUMPTION = "the rows were not used for the posterior, and no number in the schema or the range was computed from them"
_COMPARE_PUBLIC = (
    "the models and their priors",
    "column names, types and shapes",
    "every setting of the methods",
    "bounds and levels of the schema",
)


def score(
    post: Posterior,
    data: TableLike,
    *,
    low: float | None = None,
    high: float | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    budget: Budget | None = None,
    ledger: Ledger | None = None,
    seed: int | None = None,
    label: str | None = None,
) -> "Score":
    """Scores within a privacy budget how well a posterior predicts rows that were kept: log density, and accuracy or R2.

    One noisy sum gives all of them, with intervals that contain its noise and the choice of rows. For rows that were fitted
    the score is too good. `compare` splits a table itself.

    Args:
        post: The posterior. Its model, draws and schema are public.
        data: The rows, as for `tacit.fit`; they should not have been used for the posterior.
        low: Log densities below this count as this. By default a little below those of simulated rows.
        high: Log densities above this count as this.
        epsilon: What the score may cost.
        delta: The delta of the budget; by default 1e-6.
        budget: The budget, instead of ``epsilon`` and ``delta``.
        ledger: The ledger of the data, charged before the release.
        seed: Makes the score reproducible. It is then not private, and its statement says so.
        label: A public note for the ledger's entry.

    Returns:
        The score. Print it.

    Raises:
        InvalidArgument: If the posterior cannot be scored, or an argument or the table's header is wrong. Nothing is charged.
        BudgetError: If the budget cannot be met, does not suit the ledger, or exceeds what the ledger has left. Nothing is
            charged.
        LedgerError: If the ledger cannot be used.
    """
    asked = plan_score(post, low=low, high=high, epsilon=epsilon, delta=delta, budget=budget)
    return release_plan(asked, data, ledger=ledger, seed=seed, label=label)


@dataclass(frozen=True, kw_only=True, eq=False)
class ScorePlan:
    """What a score will ask and cost, before data are read. Print it.

    Attributes:
        title: What is scored.
        schema: The schema.
        names: The columns that are read.
        release: What is computed from the rows.
        budget: The budget that was requested.
        mechanism: What the gate will execute. The ledger is charged for exactly this.
        posterior: A digest of the posterior, by which sites know that they score the same.
        asked_range: The range that was requested, without what was left open.
    """

    title: str
    schema: Schema
    names: tuple[str, ...]
    release: ScoreRelease
    budget: Budget
    mechanism: NoisySums
    posterior: str
    asked_range: tuple[float | None, float | None] = (None, None)

    public: ClassVar[tuple[str, ...]] = _PUBLIC
    assumption: ClassVar[str] = _ASSUMPTION

    @cached_property
    def cost(self) -> Budget:
        """What is charged."""
        return cost(self.mechanism.event, self.budget)

    def label(self, note: str | None = None) -> str:
        """What a ledger's entry says of the score, and a note."""
        said = f"score of {self.title}"
        return clean_text(said if note is None else f"{said}; {note}")

    @property
    def identity(self) -> str:
        """All that the question depends on beside the schema, as text."""
        return f"{self.posterior} {self.asked_range!r}"

    def rows(self, data: TableLike) -> Rows:
        """The rows of a table, as the release reads them."""
        return encode_rows(self.schema, self.names, data)

    def example(self) -> Rows:
        """A simulated row of the same shape."""
        return example_rows(self.schema, self.names)

    def found(
        self,
        released: Floats,
        noise_std: float,
        privacy: PrivacyStatement,
        sites: SiteStatements | None = None,
    ) -> "Score":
        """What follows from the noisy sum, with noise of this standard deviation in every number."""
        sums = self.release.found(released, noise_std)
        return Score(title=self.title, sums=sums, privacy=privacy, sites=sites or {})

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain data."""
        return {
            "model": self.title,
            "range": [self.release.range.low, self.release.range.high],
            "measure": self.release.measure,
            "unit": self.schema.unit,
            "epsilon": self.cost.epsilon,
            "delta": self.cost.delta,
            "adjacency": self.cost.adjacency,
        }

    def __str__(self) -> str:
        at = (
            f"epsilon {format_epsilon(self.cost.epsilon)} at delta {format_number(self.cost.delta)}"
        )
        own = self.release.range
        least = self.mechanism.noise_std
        wide = max(own.high - self.release.middle, self.release.middle - own.low)
        more = "" if self.release.measure is None else f", and {measure_name(self.release.measure)}"
        lines = [
            f"Score of {self.title}: log density, within {own.low:.3g} and {own.high:.3g}{more}.",
            f"The noise adds a standard deviation of {least * wide:.3g} to the sum of log densities over all rows or people.",
            f"Cost: {at}, {self.cost.adjacency}.",
            self.cost.explain(),
            f"Unit of privacy: one {self.schema.unit}. No data has been read and nothing charged.",
        ]
        return "\n".join(lines)


def plan_score(
    post: Posterior,
    *,
    low: float | None = None,
    high: float | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    budget: Budget | None = None,
) -> ScorePlan:
    """Plans a score; see `score` for the arguments. Reads no data and charges nothing."""
    if not isinstance(post, Posterior):
        raise InvalidArgument("score needs a posterior, as tacit.fit returns it.")
    chosen = choose_budget(budget, epsilon, delta)
    model, schema = own_model(post, "scored")
    release = build_score_release(
        [posterior_normal(post, model)], [model], schema, low=low, high=high
    )
    return ScorePlan(
        title=model.describe(),
        schema=schema,
        names=model_columns(model, schema),
        release=release,
        budget=chosen,
        mechanism=release.calibrate(chosen),
        posterior=posterior_digest(post),
        asked_range=(low, high),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Score:
    """A released score. Print it.

    Attributes:
        title: The model.
        sums: What was released.
        privacy: The privacy statement; of several sites, that of the one that spent most.
        sites: Of several sites, the privacy statement of each by its name; None for a site that did not answer.
    """

    title: str
    sums: ScoreSums
    privacy: PrivacyStatement
    sites: SiteStatements = field(default_factory=dict)

    @staticmethod
    def plan(post: Posterior, **settings: Any) -> ScorePlan:
        """What a score will ask and cost: as `tacit.score`, without data.

        Args:
            post: The posterior.
            settings: ``low``, ``high`` and a budget, as for `tacit.score`.

        Returns:
            The plan. Print it.
        """
        return plan_score(post, **settings)

    @cached_property
    def log_density(self) -> HeldOutScore:
        """The mean log density per row."""
        return self.sums.log_density()

    @cached_property
    def accuracy(self) -> HeldOutScore | None:
        """The share of rows whose likeliest level is right; None if the outcome has no levels."""
        return self.sums.point() if self.sums.release.measure == "accuracy" else None

    @cached_property
    def r2(self) -> HeldOutScore | None:
        """One less the mean squared error over the variance of the outcome; None if the outcome is no number."""
        return self.sums.point() if self.sums.release.measure == "r2" else None

    def _named(self) -> list[tuple[str, HeldOutScore]]:
        both = [("log density", self.log_density), ("accuracy", self.accuracy), ("R2", self.r2)]
        return [(name, each) for name, each in both if each is not None]

    def to_dict(self) -> dict[str, Any]:
        """The score as plain data."""
        return {
            "model": self.title,
            **{name: score_dict(each) for name, each in self._named()},
            "units": self.sums.count,
            "range": [self.sums.release.range.low, self.sums.release.range.high],
            "privacy": self.privacy.to_dict(),
            **({"sites": site_dicts(self.sites)} if self.sites else {}),
        }

    def to_json(self) -> str:
        """The same as JSON."""
        return json.dumps(self.to_dict(), indent=1, allow_nan=False, ensure_ascii=False)

    def __repr__(self) -> str:
        return f"Score({self.privacy.headline}; print it)"

    def __str__(self) -> str:
        own = self.sums.release.range
        warning = () if self.privacy.warning is None else (self.privacy.warning,)
        lines = [[name, score_text(each)] for name, each in self._named()]
        many = UNIT_PLURALS[self.privacy.unit]
        parts = [
            *warning,
            f"Score of {self.title}, with 90% intervals that contain noise and sampling",
            text_table(lines, "lr"),
            f"{format_count(self.sums.count, self.sums.noise)} {many}. Log densities are per row, and within {own.low:.3g} and {own.high:.3g}.",
            *sites_sentences(self.sites),
            self.privacy.cost_sentence if self.privacy.is_private else "",
        ]
        return "\n".join(parts).rstrip()


def score_text(found: HeldOutScore) -> str:
    """A score with its interval."""
    if found.mean is None:
        return "too few for the noise"
    low, high = found.interval(_LEVEL)
    return f"{found.mean:.3f} ({low:.3f} to {high:.3f})"


def score_dict(found: HeldOutScore) -> dict[str, float | None]:
    """A score as plain data."""
    low, high = (None, None) if found.mean is None else found.interval(_LEVEL)
    return {"mean": found.mean, "lower": low, "upper": high}


def measure_name(measure: Measure) -> str:
    """What a measure is called."""
    return "R2" if measure == "r2" else measure


def build_score_release(
    normals: Sequence[tuple[Floats, Floats]],
    models: Sequence[UnitModel],
    schema: Schema,
    *,
    low: float | None = None,
    high: float | None = None,
) -> ScoreRelease:
    """What a release of scores asks, as means and covariances of the posteriors and simulated rows say. Public."""
    vectors = tuple(gaussian_draws(*each) for each in normals)
    centres = tuple(mean for mean, _ in normals)
    names = tuple(dict.fromkeys(name for model in models for name in model_columns(model, schema)))
    units = simulated_units(schema, names)
    found = _simulated_scores(tuple(models))(
        tuple(np.asarray(each, np.float32) for each in vectors),
        tuple(np.asarray(each, np.float32) for each in centres),
        dict(units.fields),
        units.present,
        tuple(model.constants for model in models),
    )
    logs, value, likely, predicted = (np.asarray(each, np.float64) for each in found)
    first = logs[0][np.isfinite(logs[0])]
    if not len(first):  # such a model is no better anywhere else
        first = np.array([-5.0, 0.0])
    wide = max(float(np.ptp(first)), 1e-3)
    own = ScoreRange(
        low=float(first.min()) - _BEYOND * wide if low is None else low,
        high=float(first.max()) + _BEYOND * wide / 5 if high is None else high,
    )
    middle = min(max(float(np.median(first)), own.low), own.high)
    differences = np.abs(logs[1:] - logs[:1])
    differences = np.where(np.isfinite(differences), differences, 0.0)
    spans = tuple(max(float(_STRETCH * each.max()), 1e-3) for each in differences)
    measure: Measure | None = None
    outcome = 0.0, 1.0, 1.0
    present = np.broadcast_to(units.present, value.shape[1:])
    seen = value[:, present]
    if np.isfinite(seen).all() and len({np.isnan(each).all() for each in likely[:, present]}) == 1:
        measure = "r2" if np.isnan(likely[:, present]).all() else "accuracy"
    if measure == "r2":
        least, most = np.quantile(seen, [0.001, 0.999])
        errors = np.nan_to_num(np.abs(value - predicted)[:, present])
        reach = max(float(most - least) / 2, 1e-6)
        largest = min(max(float(np.quantile(errors, 0.999)) * _STRETCH, 1e-6), 2 * reach)
        outcome = float(least + most) / 2, reach, largest
    return ScoreRelease(
        models=tuple(models),
        vectors=vectors,
        range=own,
        middle=middle,
        spans=spans,
        measure=measure,
        centres=centres if measure is not None else (),
        outcome=outcome,
    )


@lru_cache(maxsize=8)
def _simulated_scores(models: tuple[UnitModel, ...]) -> Callable[..., Any]:
    """A program of log densities of simulated units under each model, of outcomes drawn by each; and of what is predicted."""

    @jax.jit
    def every(
        vectors: tuple[jax.Array, ...],
        centres: tuple[jax.Array, ...],
        rows: Row,
        present: jax.Array,
        constants: tuple[ArrayTree, ...],
    ) -> tuple[jax.Array, ...]:
        def one(key: jax.Array, rows: Row, present: jax.Array) -> tuple[jax.Array, ...]:
            logs, placed = [], []
            for k, model in enumerate(models):
                drawn = None
                if model.simulate is not None:
                    which = jax.random.randint(key, (), 0, len(vectors[k]))
                    drawn = model.simulate(key, vectors[k][which], rows, present, constants[k])
                logs.append(
                    jnp.stack(
                        [
                            log_density(other)(vectors[m], rows, present, constants[m], drawn)
                            for m, other in enumerate(models)
                        ]
                    )
                )
                blank = jnp.full(len(present), jnp.nan)
                if model.place is None:
                    placed.append(jnp.stack([blank, blank, blank]))
                    continue
                at = jax.vmap(
                    lambda row, own, place=model.place, k=k: place(
                        centres[k], row, constants[k], own
                    )
                )(dict(rows), drawn)
                placed.append(jnp.stack([at.value, at.likely, at.predicted]))
            return jnp.stack(logs, axis=1), *jnp.stack(placed, axis=1)

        keys = jax.random.split(jax.random.key(0), len(present))
        logs, *others = jax.vmap(one)(keys, rows, present)
        # Units and whose outcomes they have become one axis.
        logs = jnp.moveaxis(logs, 1, 0).reshape(len(models), -1)
        return logs, *(jnp.moveaxis(each, 1, 0) for each in others)

    return every


def compare(
    models: Sequence[object] | Mapping[str, object],
    data: TableLike,
    *,
    schema: SchemaLike | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    budget: Budget | None = None,
    train: float = 0.7,
    ledger: Ledger | None = None,
    seed: int | None = None,
    label: str | None = None,
    progress: bool | None = None,
) -> "Comparison":
    """Compares models within a privacy budget by how well they predict people who were not fitted.

    Every row, or every person with all rows, goes to one of two parts by a secret coin. All models are fitted to the first part, and
    scored on the second in one release. As nobody is in both parts, the score costs nothing beyond the fits with the default method: it
    has as much noise as all fits together. With other methods, fits and score add up; the score then gets a fifth of epsilon.

    Columns are those of ``arviz.compare``. Differences are paired: their standard deviations are those of differences of the same
    people. To choose settings of a method, such as steps or clips, compare nothing: `tacit.tune` searches on simulated
    tables, and is free.

    Args:
        models: Two or more models: formulas, models as for `tacit.fit`, or plans, whose methods and sizes are kept and whose budgets are
            replaced by a share of this one. A mapping gives them names.
        data: The data, as for `tacit.fit`.
        schema: The public facts about the columns, unless the models have them.
        epsilon: What the whole comparison may cost.
        delta: The delta of the budget; by default 1e-6.
        budget: The budget, instead of ``epsilon`` and ``delta``.
        train: The probability of being in the part that is fitted.
        ledger: The ledger of the data, charged in full before the first fit.
        seed: Makes the comparison reproducible. It is then not private, and its statement says so.
        label: A public note for the ledger's entry.
        progress: Whether to show progress bars of the fits.

    Returns:
        The comparison: print it, or see `Comparison.frame`. Its posteriors are of the fitted part.

    Raises:
        InvalidArgument: If a model, an argument or the table's header is wrong. Nothing is charged.
        BudgetError: If the budget cannot be met, does not suit the ledger, or exceeds what the ledger has left. Nothing is
            charged.
        LedgerError: If the ledger cannot be used.
    """
    asked = plan_compare(
        models, schema=schema, epsilon=epsilon, delta=delta, budget=budget, train=train
    )
    if seed is not None:
        _validate.count("seed", seed, least=0)
    rows = encode_rows(asked.schema, asked.names, data)
    if ledger is not None:
        check_ledger(ledger, [asked.budget], [rows])
    source = Randomness(seed)
    parts = rows.split(source.child("split"), asked.train)  # [split-coins]
    sources = [source.child(f"fit {k}") for k in range(len(asked.plans))]
    gates = [
        open_gate(parts[0], each.mechanism, own)
        for each, own in zip(asked.plans, sources, strict=True)
    ]
    for gate in (*gates, Gate(parts[1], gates[0].mechanism, source)):
        gate.check_size()
    # The score is checked with other numbers in the place of the posteriors, before anything is charged.
    adapted = [each.model for each in asked.plans]
    blank = [(np.zeros(model.dimension), np.eye(model.dimension) / 100) for model in adapted]
    trial = build_score_release(blank, adapted, asked.schema)
    trial.check(Gate(parts[1], trial.mechanism(asked.score_noise), source))
    statement = PrivacyStatement(
        event=asked.event,
        delta=asked.budget.delta,
        adjacency=asked.budget.adjacency,
        unit=rows.unit,
        public=_COMPARE_PUBLIC,
        assumptions=(
            *fit_assumptions(asked.schema, ASSUMPTIONS),
            *dict.fromkeys(a for each in asked.plans for a in each.method.assumptions),
        ),
        seeded=seed is not None,
        asked=asked.budget.epsilon,
    )
    if ledger is not None:
        receipt = ledger.charge(asked.event, asked.budget, label=asked.label(label))
        statement = replace(statement, budget_before=receipt.before, budget_left=receipt.left)
    shown = is_watched() if progress is None else progress
    posteriors = []
    try:
        for each, gate, own in zip(asked.plans, gates, sources, strict=True):
            posteriors.append(run_plan(each, gate, own, statement, progress=shown))
        normals = [
            posterior_normal(post, model) for post, model in zip(posteriors, adapted, strict=True)
        ]
        release = build_score_release(normals, adapted, asked.schema)
        mechanism = release.mechanism(asked.score_noise)
        released = release.run(Gate(parts[1], mechanism, source.child("score")))
    except KeyboardInterrupt as error:
        raise interrupted([statement]) from error
    return Comparison(
        posteriors=dict(zip(asked.titles, posteriors, strict=True)),
        sums=release.found(released, mechanism.noise_std),
        train=asked.train,
        privacy=statement,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class ComparePlan:
    """What a comparison will do and cost, before data are read. Print it.

    Attributes:
        titles: The names of the models.
        plans: Their fits.
        schema: The schema.
        names: The columns that are read.
        budget: The budget that was requested.
        score_noise: The noise of the score, in clips.
        event: What is charged.
        is_parallel: Whether the score costs nothing beyond the fits.
        train: The probability of being in the part that is fitted.
    """

    titles: tuple[str, ...]
    plans: tuple[Plan, ...]
    schema: Schema
    names: tuple[str, ...]
    budget: Budget
    score_noise: float
    event: DpEvent
    is_parallel: bool
    train: float

    @cached_property
    def cost(self) -> Budget:
        """What is charged."""
        return cost(self.event, self.budget)

    def label(self, note: str | None = None) -> str:
        """What a ledger's entry says of the comparison, and a note."""
        said = f"comparison of {' and '.join(self.titles)}"
        return clean_text(said if note is None else f"{said}; {note}")

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain data."""
        return {
            "models": list(self.titles),
            "train": self.train,
            "score_in_parallel": self.is_parallel,
            "fits": [
                {"epsilon": each.cost.epsilon, "delta": each.cost.delta} for each in self.plans
            ],
            "unit": self.schema.unit,
            "epsilon": self.cost.epsilon,
            "delta": self.cost.delta,
            "adjacency": self.cost.adjacency,
        }

    def __str__(self) -> str:
        at = (
            f"epsilon {format_epsilon(self.cost.epsilon)} at delta {format_number(self.cost.delta)}"
        )
        fits = ", ".join(format_epsilon(each.cost.epsilon) for each in self.plans)
        many = UNIT_PLURALS[self.schema.unit]
        how = (
            "nothing more, as nobody is in both parts"
            if self.is_parallel
            else "its own share, which is added"
        )
        lines = [
            f"Comparison of {' and '.join(self.titles)}.",
            f"A random {self.train:.0%} of the {many} are fitted, each model by itself at epsilon {fits}; the others are scored once.",
            f"The score costs {how}.",
            f"Cost: {at}, {self.cost.adjacency}, for everything together.",
            self.cost.explain(),
            f"Unit of privacy: one {self.schema.unit}. No data has been read and nothing charged.",
        ]
        return "\n".join(lines)


# What the score gets of epsilon if it adds to the fits.
_SCORE_SHARE = 0.2


def plan_compare(
    models: Sequence[object] | Mapping[str, object],
    *,
    schema: SchemaLike | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    budget: Budget | None = None,
    train: float = 0.7,
) -> ComparePlan:
    """Plans a comparison; see `compare` for the arguments. Reads no data and charges nothing."""
    if isinstance(models, str) or not isinstance(models, Sequence | Mapping):
        raise InvalidArgument('Pass a list of models, such as ["y ~ age", "y ~ age + ward"].')
    named = models if isinstance(models, Mapping) else dict(enumerate(models))
    if not 2 <= len(named) <= _MOST_MODELS:
        raise InvalidArgument(f"compare takes from 2 to {_MOST_MODELS} models; got {len(named)}.")
    share = _validate.rate("train", train)
    if share == 1:
        raise InvalidArgument("train must be below 1: some rows must remain to be scored.")
    chosen = choose_budget(budget, epsilon, delta)
    given = [_model_and_method(each, schema) for each in named.values()]
    declared = given[0][1]
    if any(each.to_text() != declared.to_text() for _, each, _, _ in given):
        raise InvalidArgument("All models must have the same schema.")
    outcomes = {
        tuple(sorted(set(model_columns(m, s)) - set(m.predictors) - {s.person}))
        for m, s, _, _ in given
    }
    if len(outcomes) > 1:
        raise InvalidArgument(
            "All models must have the same outcome, or their densities cannot be compared."
        )
    plans, score_noise, parallel = _share_budget(given, chosen)
    for each in plans:
        counted = isinstance(each.method, Statistics) and each.method.size is not None
        if counted or not isinstance(each.mechanism, NoisySums | BarkerTests):
            raise InvalidArgument(
                f"compare cannot use tacit.{type(each.method).__name__} as it is set: it draws only once, or takes the number "
                "of units as public, and how many are fitted here is secret."
            )
    event = events.compose(*(each.mechanism.event for each in plans))
    if not parallel:
        event = events.compose(event, events.gaussian(score_noise))
    titles = [
        each if isinstance(each, str) else _title(plan_.model)
        for each, plan_ in zip(named, plans, strict=True)
    ]
    if len(set(titles)) < len(titles):
        titles = [f"{title} ({place})" for place, title in enumerate(titles)]
    names = tuple(dict.fromkeys(n for each in plans for n in model_columns(each.model, declared)))
    return ComparePlan(
        titles=tuple(titles),
        plans=plans,
        schema=declared,
        names=names,
        budget=chosen,
        score_noise=score_noise,
        event=event,
        is_parallel=parallel,
        train=share,
    )


def _title(model: UnitModel) -> str:
    """The formula, or the model in words."""
    known = model.interpretation
    return model.describe() if known is None else known.formula


_Given = tuple[UnitModel, Schema, Method, int | None]


def _model_and_method(given: object, schema: SchemaLike | None) -> _Given:
    """A model in the form of inference, its schema, the method, and the declared size."""
    method: Method | None = None
    size: int | None = None
    if isinstance(given, Plan):
        if given.schema is None:
            raise InvalidArgument("compare needs plans with a schema.")
        model, declared, method, size = given.model, given.schema, given.method, given.size
    else:
        resolved, found = resolve_model(given, schema)
        if found is None:
            raise InvalidArgument(
                "Pass schema=tacit.Schema(...): the public facts about the columns."
            )
        declared = found
        model = adapt_model(resolved, declared)
    chosen = choose_method(model, method)
    if isinstance(
        chosen, Scoring
    ):  # what is charged is then what is done, however few units there are
        chosen = replace(chosen, check_count=False)
    if model.predict is None:
        raise InvalidArgument(
            "compare needs models by formula, NumPyro or PyMC models, or conjugate models."
        )
    return model, declared, chosen, size


def _share_budget(given: Sequence[_Given], budget: Budget) -> tuple[tuple[Plan, ...], float, bool]:
    """The plans of the fits, the noise of the score in clips, and whether the score costs nothing beyond the fits."""
    total = calibrate.noise_multiplier(budget, num_steps=1)
    each = total * math.sqrt(len(given))

    def plans_at(multiplier: float) -> tuple[Plan, ...]:
        own = cost(events.gaussian(multiplier), budget)
        share = Budget(own.epsilon, budget.delta, budget.adjacency)
        return tuple(
            plan(m, s, budget=share, method=method, size=size, forecast=False)
            for m, s, method, size in given
        )

    multiplier = each
    for _ in range(20):
        plans = plans_at(multiplier)
        noise = gaussian_noise(events.compose(*(p.mechanism.event for p in plans)))
        if noise is None:
            break
        with suppress(BudgetError):  # by rounding, a little too much
            cost(events.compose(*(p.mechanism.event for p in plans)), budget)
            return plans, noise, True
        multiplier *= 1.001
    # Fits that are no Gaussian sums: their guarantees and that of the score add up.
    own = Budget(
        (1 - _SCORE_SHARE) * budget.epsilon / len(given),
        budget.delta / (len(given) + 1),
        budget.adjacency,
    )
    plans = tuple(
        plan(m, s, budget=own, method=method, size=size, forecast=False)
        for m, s, method, size in given
    )
    last = Budget(_SCORE_SHARE * budget.epsilon, own.delta, budget.adjacency)
    noise = calibrate.noise_multiplier(last, num_steps=1)
    cost(events.compose(*(p.mechanism.event for p in plans), events.gaussian(noise)), budget)
    return plans, noise, False


def gaussian_noise(event: DpEvent) -> float | None:
    """The noise multiplier of the one Gaussian sum that is the same as these together; None if they are not Gaussian sums. [compare-parallel]"""
    precision = _gaussian_precision(event)
    return None if precision is None or precision == 0 else 1 / math.sqrt(precision)


def _gaussian_precision(event: DpEvent) -> float | None:
    if isinstance(event, GaussianDpEvent):
        return 1 / event.noise_multiplier**2
    if isinstance(event, SelfComposedDpEvent):
        inner = _gaussian_precision(event.event)
        return None if inner is None else event.count * inner
    if isinstance(event, ComposedDpEvent):
        parts = [_gaussian_precision(each) for each in event.events]
        return None if None in parts else sum(each for each in parts if each is not None)
    return None


@dataclass(frozen=True, kw_only=True, eq=False)
class Comparison:
    """Models by how well they predict people who were not fitted, the best first. Print it.

    Attributes:
        posteriors: The posterior of each model, fitted to the first part, by its name.
        sums: What was released of the second part.
        train: The probability of being in the first part.
        privacy: The privacy statement of everything together.
    """

    posteriors: Mapping[str, Posterior]
    sums: ScoreSums
    train: float
    privacy: PrivacyStatement

    @staticmethod
    def plan(models: Sequence[object] | Mapping[str, object], **settings: Any) -> ComparePlan:
        """What a comparison will do and cost: as `tacit.compare`, without data.

        Args:
            models: The models.
            settings: ``schema``, ``train`` and a budget, as for `tacit.compare`.

        Returns:
            The plan. Print it.
        """
        return plan_compare(models, **settings)

    @cached_property
    def order(self) -> tuple[int, ...]:
        """The places of the models, the best first."""
        means = [self.sums.difference(k, 0).mean or 0.0 for k in range(len(self.posteriors))]
        return tuple(int(k) for k in np.argsort(-np.array(means), kind="stable"))

    def frame(self) -> "pd.DataFrame":
        """A data frame with the columns of ``arviz.compare`` that have a meaning here, and more.

        ``elpd`` is the sum of log densities over the scored rows or people, for a person per row. ``se`` and ``dse`` are standard
        deviations by noise and sampling. ``warning`` says that a fit did not converge or that units were too few for the noise. There is no ``p`` or ``weight``: nothing here
        estimates a number of parameters, or stacks models.
        """
        import pandas as pd

        return pd.DataFrame(self._lines()).set_index("model")

    def _lines(self) -> list[dict[str, Any]]:
        names, found = list(self.posteriors), []
        best = self.order[0]
        count = max(self.sums.count, 0.0)
        for rank, place in enumerate(self.order):
            own, less = self.sums.log_density(place), self.sums.difference(best, place)
            few = own.mean is None
            low, high = less.interval(_LEVEL)
            line: dict[str, Any] = {
                "model": names[place],
                "rank": rank,
                "elpd": math.nan if own.mean is None else count * own.mean,
                "elpd_diff": math.nan if less.mean is None else count * less.mean,
                "se": math.nan if few else count * own.sd,
                "dse": math.nan if few else count * less.sd,
                "warning": few or self.posteriors[names[place]].converged is False,
                "scale": "log",
                "diff_5%": math.nan if few else count * low,
                "diff_95%": math.nan if few else count * high,
            }
            if self.sums.release.measure is not None:
                point = self.sums.point(place)
                ends = point.interval(_LEVEL)
                word = self.sums.release.measure
                line |= {
                    word: math.nan if point.mean is None else point.mean,
                    f"{word}_5%": math.nan if point.mean is None else ends[0],
                    f"{word}_95%": math.nan if point.mean is None else ends[1],
                }
            found.append(line)
        return found

    @property
    def finding(self) -> str:
        """Which model predicts best, in a sentence, or that they cannot be distinguished."""
        if not self.sums.is_enough:
            return "There are too few held-out rows for the noise of this budget to tell anything."
        names = list(self.posteriors)
        best, second = self.order[:2]
        less = self.sums.difference(best, second)
        low, high = less.interval(_LEVEL)
        if low > 0:
            return f"{names[best]} predicts best: by {less.mean:.3g} per row over {names[second]} (90% interval {low:.3g} to {high:.3g})."
        return (
            f"{names[best]} and {names[second]} cannot be distinguished: their log densities differ by {less.mean:.3g} per row "
            f"(90% interval {low:.3g} to {high:.3g})."
        )

    def to_dict(self) -> dict[str, Any]:
        """The comparison as plain data."""
        plain = [
            {n: None if isinstance(v, float) and math.isnan(v) else v for n, v in line.items()}
            for line in self._lines()
        ]
        return {
            "finding": self.finding,
            "models": plain,
            "train": self.train,
            "units": self.sums.count,
            "privacy": self.privacy.to_dict(),
        }

    def to_json(self) -> str:
        """The same as JSON."""
        return json.dumps(self.to_dict(), indent=1, allow_nan=False, ensure_ascii=False)

    def __repr__(self) -> str:
        return f"Comparison({self.privacy.headline}; print it)"

    def __str__(self) -> str:
        warning = () if self.privacy.warning is None else (self.privacy.warning,)
        lines = self._lines()
        header = [n for n in lines[0] if n != "scale"]
        table = [header, *([_cell(line[n]) for n in header] for line in lines)]
        who = "people who" if self.privacy.unit == "person" else "rows that"
        parts = [
            *warning,
            self.finding,
            "",
            text_table(table, "l" + "r" * (len(header) - 1)),
            "",
            f"Scored on {format_count(self.sums.count, self.sums.noise)} {who} were not fitted. se and dse contain noise and sampling.",
            self.privacy.cost_sentence if self.privacy.is_private else "",
        ]
        return "\n".join(parts).rstrip()


def _cell(value: object) -> str:
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, float):
        return "-" if math.isnan(value) else f"{value:.3f}" if abs(value) < 10 else f"{value:,.1f}"
    return str(value)
