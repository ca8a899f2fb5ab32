"""Checking a fitted model against the rows: private posterior predictive checks, for one charge.

`check` has the steps of a fit. What is computed follows from the posterior and the schema, which are public; the ledger is
charged before anything is computed from rows.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from tacit import _validate
from tacit._format import clean_text, format_epsilon, format_number, text_table
from tacit._precision import in_32_bits
from tacit._typing import ArrayTree, Floats
from tacit.accounting import Budget
from tacit.accounting.accountants import cost
from tacit.accounting.budget import choose_budget
from tacit.accounting.ledger import Ledger
from tacit.api.model_check import ModelCheck, least_effects
from tacit.api.release import SiteStatements, release_plan
from tacit.api.rows import encode_rows, example_rows, model_columns, simulated_units
from tacit.data.columns import Kind
from tacit.data.schema import Schema
from tacit.data.tables import TableLike
from tacit.errors import InvalidArgument
from tacit.inference.model_checks import BinnedColumn, CheckRelease, CheckSums, FamilySums
from tacit.inference.score_contributions import score_function
from tacit.models.base import Row, UnitModel
from tacit.privacy.checkpoint import combined_digest, density_digest
from tacit.privacy.mechanisms import NoisySums
from tacit.privacy.rows import Rows
from tacit.results.posterior import Posterior
from tacit.results.predictive import predictive_model
from tacit.results.statement import UNIT_PLURALS, PrivacyStatement

Bins = Mapping[str, int | Sequence[float]]
# How many bins numbers and predictions have, how many levels have bins of their own, and in how many wider bins columns
# are crossed.
_NUMBER_BINS, _PREDICTION_BINS, _MOST_LEVELS, _CROSSED_BINS = 5, 8, 8, 3
# How many columns are checked if none are named, and how many of the columns are crossed with each other.
_DEFAULT_COLUMNS, _CROSSED_COLUMNS = 5, 3
# The size that an example is for, if none is declared.
_EXAMPLE_SIZE = 1000
# Of simulated units, this share has scores shorter than what counts as one.
_REACH_SHARE = 0.99
# Draws that the mean and covariance of a posterior are taken from, if it is not normal.
_NUM_DRAWS = 200
_PUBLIC = (
    "the posterior that is checked",
    "the columns that it is checked by, and their bins",
    "column names, types and shapes",
    "bounds and levels of the schema",
)
_ASSUMPTION = "no number in the schema or the bins was computed from these data, nor in the posterior but by releases"


@in_32_bits
def check(
    post: Posterior,
    data: TableLike,
    *,
    by: Sequence[str] | None = None,
    bins: Bins | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    budget: Budget | None = None,
    ledger: Ledger | None = None,
    seed: int | None = None,
    label: str | None = None,
) -> ModelCheck:
    """Checks within a privacy budget whether a fitted model describes the data: a private posterior predictive check.

    One noisy sum has the distribution of outcomes within what the model predicts for them, dispersion, tails, and
    residuals by the prediction, by columns, and by pairs of columns. Tests and bands contain the noise, the choice of rows
    and the uncertainty of the posterior. The result names what does not fit: overdispersion, outliers, a wrong link, curvature, a
    missing predictor or a missing interaction.

    The data are usually those that were fitted. The posterior must be of a model by formula, or of a NumPyro model with one
    outcome whose distribution function is known.

    Args:
        post: The posterior. Its model, draws and schema are public.
        data: The data, as for `tacit.fit`.
        by: Columns to check by, in the model or not; the first three are also crossed with each other. By default the first five
            predictors. More columns mean more noise in each.
        bins: The bins of numbers: how many, or the edges between them, as in ``{"age": [40, 65]}``. By default five of equal
            width. They are public: do not take them from the data.
        epsilon: What the check may cost.
        delta: The delta of the budget; by default 1e-6.
        budget: The budget, instead of ``epsilon`` and ``delta``.
        ledger: The ledger of the data, charged before the release.
        seed: Makes the check reproducible. It is then not private, and its statement says so.
        label: A public note for the ledger's entry.

    Returns:
        The check: print it, or see `ModelCheck.tests`, `ModelCheck.plot` and `ModelCheck.report`.

    Raises:
        InvalidArgument: If the posterior cannot be checked, or an argument or the table's header is wrong. Nothing is
            charged.
        BudgetError: If the budget cannot be met, does not suit the ledger, or exceeds what the ledger has left. Nothing is
            charged.
        LedgerError: If the ledger cannot be used.
    """
    plan = plan_check(post, by=by, bins=bins, epsilon=epsilon, delta=delta, budget=budget)
    return release_plan(plan, data, ledger=ledger, seed=seed, label=label)


@dataclass(frozen=True, kw_only=True, eq=False)
class CheckPlan:
    """What a check will ask and cost, before data are read. Print it.

    Attributes:
        title: What is checked.
        schema: The schema.
        names: The columns that are read.
        predictors: The columns that the outcome depends on in the model.
        is_number: For each column that is checked by, whether it is a number.
        release: What is computed from the rows.
        budget: The budget that was requested.
        mechanism: What the gate will execute. The ledger is charged for exactly this.
        posterior: A digest of the posterior, by which sites know that they check the same.
        size: The declared number of units, or None.
    """

    title: str
    schema: Schema
    names: tuple[str, ...]
    predictors: tuple[str, ...]
    is_number: Mapping[str, bool]
    release: CheckRelease
    budget: Budget
    mechanism: NoisySums
    posterior: str
    size: int | None = None

    public: ClassVar[tuple[str, ...]] = _PUBLIC
    assumption: ClassVar[str] = _ASSUMPTION

    @cached_property
    def cost(self) -> Budget:
        """What is charged."""
        return cost(self.mechanism.event, self.budget)

    @cached_property
    def effects(self) -> tuple[tuple[str, str], ...]:
        """For each test, how strong a misfit must be to be found four times in five, for the declared size or a thousand."""
        size = float(self.size or _EXAMPLE_SIZE)
        parts = {}
        for family in self.release.families:
            cells = max(family.cells, 1)
            # The variance of a uniform residual, of the second Legendre polynomial, and of being in a tail.
            each = {"dispersion": 0.2, "tails": 0.01}.get(family.kind, 1 / 3)
            parts[family] = FamilySums(
                np.zeros(family.size),
                np.zeros((family.size, self.release.num_scores)),
                np.full(family.cells, each * size / cells),
                np.full(family.cells * family.counted, size / cells),
            )
        blank = CheckSums(
            self.release, size, size, np.zeros((0, 0)), parts, self.mechanism.noise_std
        )
        return least_effects(blank)

    def label(self, note: str | None = None) -> str:
        """What a ledger's entry says of the check, and a note."""
        said = f"check of {self.title} by {', '.join(each.name for each in self.release.columns) or 'nothing'}"
        return clean_text(said if note is None else f"{said}; {note}")

    @property
    def identity(self) -> str:
        """All that the question depends on beside the schema, as text."""
        likelihood = likelihood_digest(self.release.model, self.example())
        return f"{likelihood} {self.posterior} {self.release.columns!r} {self.release.pairs!r}"

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
    ) -> ModelCheck:
        """What follows from the noisy sum, with noise of this standard deviation in every number."""
        return ModelCheck(
            title=self.title,
            sums=self.release.found(released, noise_std),
            predictors=self.predictors,
            is_number=self.is_number,
            privacy=privacy,
            sites=sites or {},
        )

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain data."""
        return {
            "model": self.title,
            "by": [each.name for each in self.release.columns],
            "pairs": [list(each) for each in self.release.pairs],
            "unit": self.schema.unit,
            "epsilon": self.cost.epsilon,
            "delta": self.cost.delta,
            "adjacency": self.cost.adjacency,
            "size": self.size,
            "least_effects": dict(self.effects),
        }

    def __repr__(self) -> str:
        return f"CheckPlan(epsilon {format_epsilon(self.cost.epsilon)}; print it for details)"

    def __str__(self) -> str:
        many = UNIT_PLURALS[self.schema.unit]
        at = (
            f"epsilon {format_epsilon(self.cost.epsilon)} at delta {format_number(self.cost.delta)}"
        )
        example = (
            ""
            if self.size
            else f"; {many} are not counted before the release, so pass size= for another number"
        )
        parts = [
            f"Check of {self.title}. A misfit is found four times in five if it is at least:",
            text_table([list(each) for each in self.effects], "ll"),
            f"For {self.size or _EXAMPLE_SIZE:,} {many}{example}.",
            f"Cost: {at}, {self.cost.adjacency}, for all questions together.",
            self.cost.explain(),
            f"Unit of privacy: one {self.schema.unit}. No data has been read and nothing charged.",
        ]
        return "\n".join(parts)


@in_32_bits
def plan_check(
    post: Posterior,
    *,
    by: Sequence[str] | None = None,
    bins: Bins | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    budget: Budget | None = None,
    size: int | None = None,
) -> CheckPlan:
    """Plans a check; see `check` for the arguments, and `ModelCheck.plan`. Reads no data and charges nothing."""
    if not isinstance(post, Posterior):
        raise InvalidArgument("check needs a posterior, as tacit.fit returns it.")
    chosen = choose_budget(budget, epsilon, delta)
    if size is not None:
        _validate.count("size", size)
    model, schema = own_model(post, "checked")
    if model.place is None:
        raise InvalidArgument(
            "A check needs a posterior of a model by formula or of a NumPyro model: of others the distribution functions "
            "of outcomes are not known."
        )
    own = tuple(name for name in model_columns(model, schema) if name != schema.person)
    predictors = tuple(name for name in model.predictors if name != schema.person)
    outcomes = set(own) - set(predictors)
    columns = _check_columns(schema, predictors, outcomes, by, bins)
    release = _build_release(post, model, schema, columns)
    return CheckPlan(
        title=model.describe(),
        schema=schema,
        names=tuple(
            dict.fromkeys((*model_columns(model, schema), *(each.name for each in columns)))
        ),
        predictors=predictors,
        is_number={each.name: bool(each.edges) for each in columns},
        release=release,
        budget=chosen,
        mechanism=release.calibrate(chosen),
        posterior=posterior_digest(post),
        size=size,
    )


def _check_columns(
    schema: Schema,
    predictors: Sequence[str],
    outcomes: set[str],
    by: Sequence[str] | None,
    bins: Bins | None,
) -> tuple[BinnedColumn, ...]:
    """The columns in bins."""
    if isinstance(by, str):
        raise InvalidArgument(f'by must be a list of columns, such as ["{by}"].')
    if bins is not None and not isinstance(bins, Mapping):
        raise InvalidArgument('bins must be a mapping such as {"age": [40, 65]}.')
    if by is None:
        names = [n for n in predictors if not schema[n].shape][:_DEFAULT_COLUMNS]
    else:
        names = list(dict.fromkeys(by))
    for name in names:
        kind = schema[name]  # raises if there is no such column
        if name in outcomes:
            raise InvalidArgument(
                f"by has {name!r}, which is the outcome; name predictors or other columns."
            )
        if kind.shape:
            raise InvalidArgument(
                f"by has {name!r}, which holds arrays; name columns of one value in each row."
            )
    for name in bins or {}:
        if name not in names:
            raise InvalidArgument(f"bins has {name!r}, which is not a column that is checked by.")
    return tuple(_binned(name, schema[name], (bins or {}).get(name)) for name in names)


def _binned(name: str, kind: Kind, bins: object) -> BinnedColumn:
    """A column in bins."""
    if kind.labels:
        if bins is not None:
            raise InvalidArgument(f"Column {name!r} has levels, so it takes no bins.")
        places = tuple(min(code, _MOST_LEVELS - 1) for code in range(len(kind.labels)))
        labels = [kind.labels[code] for code in range(min(len(places), _MOST_LEVELS))]
        if len(places) > _MOST_LEVELS:
            labels[-1] = "other levels"
        return BinnedColumn(name, tuple(labels), (), places, _groups(len(labels)))
    whole = kind.dtype == np.int32
    inner = _inner_edges(name, kind, bins, whole=whole)
    ends = [kind.low, *inner, kind.high]
    if whole:
        firsts, lasts = ends[:-1], [*(each - 1 for each in ends[1:-1]), ends[-1]]
        labels = [
            f"{a:g}" if a == b else f"{a:g} to {b:g}" for a, b in zip(firsts, lasts, strict=True)
        ]
    else:
        labels = [f"{a:.6g} to {b:.6g}" for a, b in pairwise(ends)]
    low, high = kind.ends
    encoded = tuple(
        low + (each - kind.low) / (kind.high - kind.low) * (high - low) for each in inner
    )
    return BinnedColumn(name, tuple(labels), encoded, (), _groups(len(labels)))


def _inner_edges(name: str, kind: Kind, bins: object, *, whole: bool) -> list[float]:
    """The edges between a number's bins."""
    asked = _NUMBER_BINS if bins is None else bins
    found: Floats | None = None
    if isinstance(asked, int) and not isinstance(asked, bool) and 2 <= asked <= 50:
        found = np.linspace(kind.low, kind.high + whole, asked + 1)[1:-1]
        found = np.unique(np.ceil(found)) if whole else found
    elif isinstance(asked, Sequence | np.ndarray) and not isinstance(asked, str):
        try:
            found = np.array([float(each) for each in asked])
        except (TypeError, ValueError):
            found = None
    if (
        found is None
        or not 1 <= len(found) < 50
        or not ((np.diff([kind.low, *found, kind.high + whole]) > 0).all())
    ):
        raise InvalidArgument(
            f"bins of {name!r} must be their number, from 2 to 50, or increasing edges between {kind.low:g} and "
            f"{kind.high:g}; got {bins!r}."
        )
    return [float(each) for each in found]


def _groups(size: int) -> tuple[int, ...]:
    """For each of some bins, the wider bin in which it is crossed with other columns: the widest in the middle is narrow."""
    if size <= _CROSSED_BINS:
        return tuple(range(size))
    side = (size - 1) // 2
    return tuple(0 if k < side else 2 if k >= size - side else 1 for k in range(size))


def _build_release(
    post: Posterior,
    model: UnitModel,
    schema: Schema,
    columns: tuple[BinnedColumn, ...],
) -> CheckRelease:
    """What is computed, which follows from the posterior and simulated rows. Public."""
    theta, covariance = posterior_normal(post, model)
    values, vectors = np.linalg.eigh(covariance)
    root = (vectors * np.sqrt(np.maximum(values, 0.0))).T
    lengths, below, until, predicted, likely = _on_simulated_rows(model, schema, theta, root)
    usable = np.isfinite(below) & np.isfinite(until) & np.isfinite(predicted)
    if not usable.any():
        raise InvalidArgument(
            "On simulated rows within the bounds the model predicts nothing finite, so it cannot be checked."
        )
    below, until, predicted = below[usable], until[usable], predicted[usable]
    shares = np.linspace(0, 1, _PREDICTION_BINS + 1)[1:-1]
    edges = np.unique(np.quantile(predicted, shares).astype(np.float32))
    edges = edges[(edges > predicted.min()) & (edges < predicted.max())]
    texts = [f"{each:.3g}" for each in edges]
    labels = (
        [f"below {texts[0]}", *(f"{a} to {b}" for a, b in pairwise(texts)), f"above {texts[-1]}"]
        if texts
        else ["all"]
    )
    finite = lengths[np.isfinite(lengths)]
    reach = float(np.quantile(finite, _REACH_SHARE)) if len(finite) else 1.0
    reach = max(reach, 1e-6)
    crossed = [each.name for each in columns[:_CROSSED_COLUMNS]]
    pairs = tuple((a, b) for k, a in enumerate(crossed) for b in crossed[k + 1 :])
    return CheckRelease(
        model=model,
        theta=theta,
        to_score=root / reach,
        reach=reach,
        columns=columns,
        pairs=pairs,
        prediction=BinnedColumn("prediction", tuple(labels), tuple(map(float, edges))),
        has_shape=bool(((below > 1e-6) & (until < 1 - 1e-6)).any()),
        has_tails=bool(np.isnan(likely).all()),
    )


def own_model(post: Posterior, done: str) -> tuple[UnitModel, Schema]:
    """The model and the schema of a posterior that is to be checked or scored; raises if it has none."""
    held = post.model
    if post.schema is None or (held is not None and held.predict is None):
        raise InvalidArgument(
            f"Posteriors of models without a schema, or of a tacit.Model, cannot be {done}."
        )
    return predictive_model(post)


def posterior_digest(post: Posterior) -> str:
    """A digest of a posterior's draws: the same of a file on every machine."""
    named = sorted(post.model_draws.items())
    texts = [f"{name} {np.shape(each)}".encode() for name, each in named]
    numbers = [np.ascontiguousarray(each, np.float64).tobytes() for _, each in named]
    return combined_digest(*texts, *numbers)


def likelihood_digest(model: UnitModel, example: Rows) -> str:
    """A digest of a model without its prior, which a file of a posterior does not have."""
    vector = jnp.zeros(model.dimension)
    return density_digest(model.log_likelihood, vector, *example.dummy_unit(), model.constants)


def posterior_normal(post: Posterior, model: UnitModel) -> tuple[Floats, Floats]:
    """Mean and covariance of the posterior on the unconstrained scale."""
    centre, spread = post.unconstrained_mean, post.unconstrained_covariance
    if centre is None or spread is None or len(centre) != model.dimension:
        count = min(post.num_draws, _NUM_DRAWS)
        chosen = np.linspace(0, post.num_draws - 1, count).astype(int)
        held = {name: np.asarray(post.model_draws[name])[chosen] for name in model.parameters}
        vectors = np.array(
            [
                model.unconstrain({name: each[i] for name, each in held.items()})
                for i in range(count)
            ],
            np.float64,
        )
        centre, spread = vectors.mean(axis=0), np.atleast_2d(np.cov(vectors.T))
    mean, covariance = np.asarray(centre, np.float64), np.asarray(spread, np.float64)
    if not (np.isfinite(mean).all() and np.isfinite(covariance).all()):
        raise InvalidArgument(
            "The posterior has no finite mean and covariance, so it cannot be checked."
        )
    return mean, covariance


def _on_simulated_rows(
    model: UnitModel, schema: Schema, theta: Floats, root: Floats
) -> list[Floats]:
    """Of simulated rows with outcomes that the model draws: lengths of scores, places of outcomes, predictions, likely levels."""
    units = simulated_units(schema, model_columns(model, schema))
    found = _simulated_places(model)(
        np.asarray(theta, np.float32),
        np.asarray(root, np.float32),
        dict(units.fields),
        units.present,
        model.constants,
    )
    lengths, *others = (np.asarray(each, np.float64) for each in found)
    return [lengths, *(each[np.asarray(units.present)] for each in others)]


@lru_cache(maxsize=16)
def _simulated_places(model: UnitModel) -> Callable[..., Any]:
    """A program of vector, root, rows, presence and constants for `_on_simulated_rows`."""
    place, simulate, score = model.place, model.simulate, score_function(model)
    assert place is not None

    @jax.jit
    def every(
        theta: jax.Array, root: jax.Array, rows: Row, present: jax.Array, constants: ArrayTree
    ) -> tuple[jax.Array, ...]:
        def one(key: jax.Array, rows: Row, present: jax.Array) -> tuple[jax.Array, ...]:
            drawn = None if simulate is None else simulate(key, theta, rows, present, constants)
            length = jnp.linalg.norm(root @ score(theta, drawn, rows, present, constants))
            placed = jax.vmap(lambda row, own: place(theta, row, constants, own))(rows, drawn)
            return length, placed.below, placed.until, placed.predicted, placed.likely

        return jax.vmap(one)(jax.random.split(jax.random.key(0), len(present)), rows, present)

    return every
