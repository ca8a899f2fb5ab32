"""Conjugate models, whose posterior depends on the rows only through a sum.

A conjugate model defines a statistic of one row: a vector within public bounds. The sum over all rows is sufficient
for the parameters, so one noisy sum is enough for a fit. The prior and the posterior belong to one exponential family,
and every row adds to its natural parameters; federated fits use this form. Like every model, conjugate models also
have a log-likelihood of each row.

Examples:
    >>> from tacit import conjugate
    >>> conjugate.LinearRegression("weight", ("height",), noise_sd=5.0).statistic_size
    5
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import ClassVar, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln, xlogy
from jax.typing import ArrayLike
from numpy.typing import NDArray

from tacit import _validate
from tacit.data.columns import Number
from tacit.data.schema import Schema
from tacit.errors import InvalidArgument
from tacit.models.base import (
    Labels,
    Parameters,
    Prediction,
    Row,
    UnitModel,
)
from tacit.models.exponential_families import (
    Dirichlet,
    ExponentialFamily,
    FullGaussian,
    Gamma,
    NormalInverseGamma,
    Vector,
    packed_indices,
)
from tacit.models.jax_model import Interval, Model, Parameter, Positive, Simplex

Bounds = tuple[float, float]
Constants = Mapping[str, jax.Array | NDArray[np.float32]]


@dataclass(frozen=True, kw_only=True)
class Conjugate(ABC):
    """A model with a sufficient statistic of bounded length.

    Args:
        bounds: ``(low, high)`` for each column. Bounds are public: take them from knowledge of the
            field, never from the data. Leave them out if a schema declares them. Values outside the
            bounds are moved to the nearest bound.
    """

    bounds: tuple[Bounds, ...] | None = None

    kinds: ClassVar[tuple[str, ...]] = ("number", "count", "binary")
    declared_public: ClassVar[tuple[str, ...]] = ("bounds", "constants")

    def __post_init__(self) -> None:
        if self.bounds is None:
            return
        if len(self.bounds) != len(self.columns):
            raise InvalidArgument(
                f"bounds needs (low, high) for each of {', '.join(self.columns)}; "
                f"got {len(self.bounds)} pairs."
            )
        checked = tuple(
            _check_bounds(*pair) for pair in zip(self.columns, self.bounds, strict=True)
        )
        object.__setattr__(self, "bounds", checked)

    @property
    @abstractmethod
    def columns(self) -> tuple[str, ...]:
        """The columns of the model."""

    @property
    def predictors(self) -> Sequence[str]:
        """The columns that the outcome depends on."""
        return ()

    @property
    @abstractmethod
    def parameters(self) -> Mapping[str, Parameter]:
        """Shapes and supports of the parameters."""

    @abstractmethod
    def log_prior(self, params: Parameters, constants: Constants) -> jax.Array:
        """Log prior density."""

    @abstractmethod
    def log_likelihood(self, params: Parameters, row: Row, constants: Constants) -> jax.Array:
        """Log-likelihood of one row."""

    @abstractmethod
    def predict(
        self, key: jax.Array, params: Parameters, row: Row, constants: Constants | None = None
    ) -> dict[str, Prediction]:
        """A prediction of the outcome of a new row, given parameters."""

    @property
    @abstractmethod
    def statistic_size(self) -> int:
        """Length of a row's statistic."""

    @abstractmethod
    def statistic(self, row: Row, constants: Constants) -> jax.Array:
        """The statistic of a row: numbers from -1 to 1."""

    @abstractmethod
    def statistic_norm_bound(self, order: int) -> float:
        """A public bound on the 1-norm or the 2-norm of a row's statistic."""

    @property
    @abstractmethod
    def family(self) -> ExponentialFamily:
        """The exponential family of the prior and the posterior."""

    @property
    @abstractmethod
    def natural_prior(self) -> Vector:
        """Natural parameters of the prior."""

    @abstractmethod
    def natural_statistic(self, row: Row, constants: Constants) -> jax.Array:
        """The vector that a row adds to the natural parameters, in the columns' units."""

    @abstractmethod
    def from_draws(self, drawn: Vector) -> dict[str, Vector]:
        """Parameters by name, from draws [draws, numbers] of the family."""

    def with_bounds_of(self, schema: Schema) -> Self:
        """A copy with the bounds that a schema declares, unless the model has its own."""
        kinds = dict(schema.items)
        for name in self.columns:
            if name not in kinds or kinds[name].shape or kinds[name].kind not in self.kinds:
                raise InvalidArgument(
                    f"{type(self).__name__} needs column {name!r} to have one value in each row, of "
                    f"kind {' or '.join(self.kinds)}."
                )
            column = kinds[name]
            if isinstance(column, Number) and column.has_gaps:
                raise InvalidArgument(
                    f"Column {name!r} is declared with missing='keep', which {type(self).__name__} cannot use; "
                    "declare 'drop', or a number that replaces missing values."
                )
        return self._with_encoded_bounds(tuple(kinds[name].ends for name in self.columns))

    def _with_encoded_bounds(self, bounds: tuple[Bounds, ...]) -> Self:
        return self if self.bounds is not None else replace(self, bounds=bounds)

    def _known_bounds(self) -> tuple[Bounds, ...]:
        if self.bounds is None:
            raise InvalidArgument(
                f"{type(self).__name__} needs public bounds: pass bounds=((low, high), ...) with a "
                "pair for each of its columns, or a schema that declares them."
            )
        return self.bounds

    @cached_property
    def constants(self) -> Constants:
        """Public inputs of the compiled program: the bounds."""
        low, high = zip(*self._known_bounds(), strict=True)
        return {"low": np.asarray(low, np.float32), "high": np.asarray(high, np.float32)}

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the parameters."""
        return tuple(self.parameters)

    @property
    def labels(self) -> Labels:
        """Names for the entries of array parameters; none, unless a model has them."""
        return {}

    @property
    def user_functions(self) -> tuple[object, ...]:
        """What the boundary searches for arrays of rows."""
        return (self.log_likelihood,)

    @property
    def unit_model(self) -> UnitModel:
        """The model as inference takes it; the same for equal models, which share compiled programs."""
        return _unit_model(self)

    def simulate(
        self, key: jax.Array, params: Parameters, row: Row, constants: Constants
    ) -> dict[str, jax.Array]:
        """A draw of the outcome of a row, by column."""
        found = self.predict(key, params, row, constants)
        return {name: each.draw for name, each in found.items() if each.draw is not None}


@lru_cache(maxsize=256)
def _unit_model(model: Conjugate) -> UnitModel:
    plain = Model(
        parameters=model.parameters,
        log_prior=model.log_prior,
        log_likelihood=model.log_likelihood,
        constants=model.constants,
        simulate=model.simulate,
    )
    return replace(
        plain.unit_model,
        columns=model.columns,
        predict=model.predict,
        predictors=tuple(model.predictors),
        dummy_row=dict.fromkeys(model.columns, np.float32(0)),
        labels=model.labels,
        user_functions=model.user_functions,
        source=model,
    )


@dataclass(frozen=True)
class OneColumn(Conjugate):
    """A model of one column, without predictors."""

    column: str

    @property
    def columns(self) -> tuple[str, ...]:
        """The column of the outcome."""
        return (self.column,)

    @abstractmethod
    def predict_outcome(self, key: jax.Array, params: Parameters) -> Prediction:
        """A prediction of the outcome, given parameters."""

    def predict(
        self,
        key: jax.Array,
        params: Parameters,
        row: Row,  # noqa: ARG002
        constants: Constants | None = None,  # noqa: ARG002
    ) -> dict[str, Prediction]:
        """A prediction of the outcome, the same for every row."""
        return {self.column: self.predict_outcome(key, params)}


def _check_bounds(column: str, pair: Iterable[float]) -> Bounds:
    """A checked pair of bounds."""
    try:
        low, high = pair
    except (TypeError, ValueError):
        raise InvalidArgument(f"The bounds of {column!r} must be a pair (low, high).") from None
    low = _validate.finite(f"the low bound of {column!r}", low)
    high = _validate.finite(f"the high bound of {column!r}", high)
    if low >= high:
        raise InvalidArgument(
            f"The low bound of {column!r} must be below the high bound; got {low:g} and {high:g}."
        )
    return low, high


def log_normal_density(value: ArrayLike, mean: ArrayLike, variance: ArrayLike) -> jax.Array:
    """Log density of a normal distribution."""
    value, mean, variance = map(jnp.asarray, (value, mean, variance))
    return -0.5 * ((value - mean) ** 2 / variance + jnp.log(2 * jnp.pi * variance))


Directions = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, kw_only=True)
class CountModel(Conjugate):
    """A model whose sums are whole numbers, with parameters that integrate out in closed form.

    ``totals`` are whole numbers, such as the number of rows and the sum of counts. The sum of
    statistics is a linear function of them.
    """

    @abstractmethod
    def statistic_from_totals(self, totals: jax.Array) -> jax.Array:
        """The sum of statistics for given totals."""

    @abstractmethod
    def nearest_totals(self, released: jax.Array, size: float | None) -> jax.Array:
        """Possible totals near a released sum; ``size`` is the number of rows if it is known."""

    @abstractmethod
    def log_marginal_likelihood(self, totals: jax.Array) -> jax.Array:
        """Log probability of the totals under the prior, with a flat prior on the number of rows."""

    @abstractmethod
    def directions(self, *, size_known: bool) -> Directions:
        """Directions in which totals can change; a known number of rows is fixed."""

    @abstractmethod
    def sample_posterior(self, key: jax.Array, totals: jax.Array) -> Parameters:
        """A draw from the posterior given the true totals."""


@dataclass(frozen=True)
class Poisson(OneColumn, CountModel):
    """Counts, with a gamma prior on their ``rate``.

    Args:
        column: The column of counts.
        shape: Shape of the prior.
        inverse_scale: Inverse scale of the prior. The prior mean is ``shape / inverse_scale``.
        bounds: ``((0, high),)``, where the highest count is public; or leave it to a schema.
    """

    _: KW_ONLY
    kinds: ClassVar[tuple[str, ...]] = ("count",)
    shape: float = 1.0
    inverse_scale: float = 1.0

    def __post_init__(self) -> None:
        _validate.positive("shape", self.shape)
        _validate.positive("inverse_scale", self.inverse_scale)
        super().__post_init__()
        if self.bounds is not None and not (self.bounds[0][0] >= 0 and self._highest % 1 == 0):
            raise InvalidArgument(
                "The bounds of a Poisson count must be whole numbers of at least 0."
            )

    @property
    def _highest(self) -> float:
        return self._known_bounds()[0][1]

    @property
    def parameters(self) -> Mapping[str, Parameter]:
        """One rate."""
        return {"rate": Parameter((), Positive())}

    def log_prior(self, params: Parameters, constants: Constants) -> jax.Array:  # noqa: ARG002
        """Log density of the gamma prior, up to a constant."""
        rate = params["rate"]
        return xlogy(self.shape - 1, rate) - self.inverse_scale * rate

    def log_likelihood(self, params: Parameters, row: Row, constants: Constants) -> jax.Array:
        """Log probability of a count."""
        count = jnp.clip(row[self.column], constants["low"][0], constants["high"][0])
        return xlogy(count, params["rate"]) - params["rate"] - gammaln(count + 1.0)

    @property
    def statistic_size(self) -> int:
        """Two: the count, and its distance from the highest count."""
        return 2

    def statistic(self, row: Row, constants: Constants) -> jax.Array:
        """(1 - u, u), where u is the count divided by the highest count."""
        high = constants["high"][0]
        share = jnp.clip(row[self.column], constants["low"][0], high) / high
        return jnp.stack([1 - share, share])

    def statistic_norm_bound(self, order: int) -> float:  # noqa: ARG002
        """One: the entries are not negative and add up to one."""
        return 1.0

    @property
    def family(self) -> Gamma:
        """Gamma distributions of the rate."""
        return Gamma()

    @property
    def natural_prior(self) -> Vector:
        """Shape and inverse scale."""
        return np.array([self.shape, self.inverse_scale], np.float64)

    def natural_statistic(self, row: Row, constants: Constants) -> jax.Array:
        """The count, and one for the row."""
        count = jnp.clip(row[self.column], constants["low"][0], constants["high"][0])
        return jnp.stack([count * 1.0, jnp.ones_like(count * 1.0)])

    def from_draws(self, drawn: Vector) -> dict[str, Vector]:
        """The rate."""
        return {"rate": drawn[:, 0]}

    def statistic_from_totals(self, totals: jax.Array) -> jax.Array:
        """The sum of statistics for (rows, sum of counts)."""
        share = totals[1] / self._highest
        return jnp.stack([totals[0] - share, share])

    def nearest_totals(self, released: jax.Array, size: float | None) -> jax.Array:
        """(rows, sum of counts), where no count is above the highest."""
        rows = jnp.rint(jnp.maximum(released.sum(), 0.0)) if size is None else jnp.asarray(size)
        total = jnp.rint(released[1] * self._highest)
        return jnp.stack([rows * 1.0, jnp.clip(total, 0.0, rows * self._highest)])

    def log_marginal_likelihood(self, totals: jax.Array) -> jax.Array:
        """Log probability of a negative binomial, given the number of rows."""
        rows, total = jnp.maximum(totals, 0.0)
        value = gammaln(total + self.shape) - gammaln(total + 1) + xlogy(total, rows)
        value -= (total + self.shape) * jnp.log(self.inverse_scale + rows)
        possible = (totals >= 0).all() & (total <= rows * self._highest)
        return jnp.where(possible, value, -jnp.inf)

    def directions(self, *, size_known: bool) -> Directions:
        """The number of rows, and the sum of counts."""
        return ((0, 1),) if size_known else ((1, 0), (0, 1))

    def sample_posterior(self, key: jax.Array, totals: jax.Array) -> Parameters:
        """A draw from the gamma posterior."""
        drawn = jax.random.gamma(key, self.shape + totals[1], dtype=totals.dtype)
        return {"rate": drawn / (self.inverse_scale + totals[0])}

    def predict_outcome(self, key: jax.Array, params: Parameters) -> Prediction:
        """A count."""
        rate = params["rate"]
        return Prediction(jax.random.poisson(key, rate), rate, None)


@dataclass(frozen=True)
class _LevelCounts(OneColumn, CountModel):
    """Models in which every row has one level; the totals are the numbers of rows of each level."""

    @property
    @abstractmethod
    def _prior(self) -> tuple[float, ...]:
        """The concentration of the Dirichlet prior for each level."""

    @property
    def constants(self) -> Constants:
        """Public inputs of the compiled program: the prior."""
        return {"concentration": np.asarray(self._prior, np.float32)}

    @property
    def statistic_size(self) -> int:
        """The number of levels."""
        return len(self._prior)

    def statistic_norm_bound(self, order: int) -> float:  # noqa: ARG002
        """One: the statistic of a row is a one and zeros."""
        return 1.0

    @property
    def family(self) -> Dirichlet:
        """Dirichlet distributions of the levels' probabilities."""
        return Dirichlet(len(self._prior))

    @property
    def natural_prior(self) -> Vector:
        """The concentrations."""
        return np.asarray(self._prior, np.float64)

    def natural_statistic(self, row: Row, constants: Constants) -> jax.Array:
        """A one for the row's level."""
        return self.statistic(row, constants)

    def statistic_from_totals(self, totals: jax.Array) -> jax.Array:
        """The totals themselves."""
        return totals

    def nearest_totals(self, released: jax.Array, size: float | None) -> jax.Array:
        """The released sums, rounded and not negative.

        A known size is divided in proportion; the largest level gets the remainder.
        """
        found = jnp.rint(jnp.maximum(released, 0.0))
        if size is None:
            return found
        share = (found + 1e-9) / (found + 1e-9).sum()
        whole = jnp.floor(share * size)
        return whole.at[jnp.argmax(share)].add(size - whole.sum())

    def log_marginal_likelihood(self, totals: jax.Array) -> jax.Array:
        """Log probability of a Dirichlet-multinomial, given the number of rows."""
        prior = jnp.asarray(self._prior)
        rows, cells = totals.sum(), jnp.maximum(totals, 0.0)
        value = (gammaln(cells + prior) - gammaln(cells + 1)).sum()
        value += gammaln(jnp.maximum(rows, 0) + 1) - gammaln(jnp.maximum(rows, 0) + prior.sum())
        return jnp.where((totals >= 0).all(), value, -jnp.inf)

    def directions(self, *, size_known: bool) -> Directions:
        """The number of rows of one level; for a known size, rows that move between levels."""
        levels = range(len(self._prior))
        single = tuple(tuple(int(i == j) for j in levels) for i in levels)
        moved = tuple(
            tuple(b - a for a, b in zip(one, other, strict=True)) for one, other in pairwise(single)
        )
        return moved if size_known else single

    def shares(self, key: jax.Array, totals: jax.Array) -> jax.Array:
        """A draw of the levels' probabilities."""
        return jax.random.dirichlet(key, totals + jnp.asarray(self._prior))


@dataclass(frozen=True)
class Bernoulli(_LevelCounts):
    """A binary outcome, with a beta prior on the ``probability`` of a one.

    Args:
        column: The binary column.
        successes: First parameter of the prior.
        failures: Second parameter of the prior. With 1 and 1 the prior is uniform.
    """

    _: KW_ONLY
    kinds: ClassVar[tuple[str, ...]] = ("binary",)
    successes: float = 1.0
    failures: float = 1.0

    def __post_init__(self) -> None:
        _validate.positive("successes", self.successes)
        _validate.positive("failures", self.failures)
        if self.bounds is not None:
            raise InvalidArgument("A binary column has no bounds; leave bounds out.")

    def _with_encoded_bounds(self, bounds: tuple[Bounds, ...]) -> "Bernoulli":  # noqa: ARG002
        return self

    @property
    def _prior(self) -> tuple[float, ...]:
        return self.failures, self.successes

    @property
    def parameters(self) -> Mapping[str, Parameter]:
        """One probability."""
        return {"probability": Parameter((), Interval())}

    def log_prior(self, params: Parameters, constants: Constants) -> jax.Array:
        """Log density of the beta prior, up to a constant."""
        no, yes = constants["concentration"] - 1
        p = params["probability"]
        return xlogy(yes, p) + xlogy(no, 1 - p)

    def log_likelihood(self, params: Parameters, row: Row, constants: Constants) -> jax.Array:  # noqa: ARG002
        """Log probability of the outcome."""
        p = params["probability"]
        return jnp.where(row[self.column] > 0.5, jnp.log(p), jnp.log1p(-p))

    def statistic(self, row: Row, constants: Constants) -> jax.Array:  # noqa: ARG002
        """(1, 0) for a zero and (0, 1) for a one."""
        yes = jnp.where(row[self.column] > 0.5, 1.0, 0.0)
        return jnp.stack([1 - yes, yes])

    def sample_posterior(self, key: jax.Array, totals: jax.Array) -> Parameters:
        """A draw from the beta posterior."""
        return {"probability": self.shares(key, totals)[1]}

    def from_draws(self, drawn: Vector) -> dict[str, Vector]:
        """The probability of a one."""
        return {"probability": drawn[:, 1]}

    def predict_outcome(self, key: jax.Array, params: Parameters) -> Prediction:
        """A zero or a one."""
        p = params["probability"]
        draw = jax.random.bernoulli(key, p).astype(jnp.int32)
        return Prediction(draw, p, jnp.log(p) - jnp.log1p(-p))


@dataclass(frozen=True)
class Categorical(_LevelCounts):
    """A categorical outcome, with a Dirichlet prior on the ``probabilities`` of its levels.

    Args:
        column: The categorical column.
        levels: The number of levels; or leave it to a schema.
        concentration: Concentration of the prior, the same for every level.
    """

    _: KW_ONLY
    kinds: ClassVar[tuple[str, ...]] = ("category", "binary")
    levels: int | None = None
    concentration: float = 1.0

    def __post_init__(self) -> None:
        _validate.positive("concentration", self.concentration)
        if self.levels is not None:
            _validate.count("levels", self.levels, least=2)
        if self.bounds is not None:
            raise InvalidArgument("A categorical column has no bounds; leave bounds out.")

    def _with_encoded_bounds(self, bounds: tuple[Bounds, ...]) -> "Categorical":
        found = int(bounds[0][1]) + 1
        if self.levels not in (None, found):
            raise InvalidArgument(
                f"Categorical has levels={self.levels}, but the schema declares {found} for "
                f"{self.column!r}."
            )
        return replace(self, levels=found)

    @property
    def _prior(self) -> tuple[float, ...]:
        if self.levels is None:
            raise InvalidArgument("Categorical needs levels=, or a schema that declares them.")
        return (self.concentration,) * self.levels

    @property
    def parameters(self) -> Mapping[str, Parameter]:
        """A probability for each level."""
        return {"probabilities": Parameter((len(self._prior),), Simplex())}

    def log_prior(self, params: Parameters, constants: Constants) -> jax.Array:
        """Log density of the Dirichlet prior, up to a constant."""
        return xlogy(constants["concentration"] - 1, params["probabilities"]).sum()

    def log_likelihood(self, params: Parameters, row: Row, constants: Constants) -> jax.Array:
        """Log probability of the level."""
        return xlogy(self.statistic(row, constants), params["probabilities"]).sum()

    def statistic(self, row: Row, constants: Constants) -> jax.Array:
        """A one for the row's level; an unknown code counts as the nearest level."""
        size = len(constants["concentration"])
        code = jnp.clip(row[self.column], 0, size - 1).astype(jnp.int32)
        return jax.nn.one_hot(code, size)

    def sample_posterior(self, key: jax.Array, totals: jax.Array) -> Parameters:
        """A draw from the Dirichlet posterior."""
        return {"probabilities": self.shares(key, totals)}

    def from_draws(self, drawn: Vector) -> dict[str, Vector]:
        """The probabilities of the levels."""
        return {"probabilities": drawn}

    def predict_outcome(self, key: jax.Array, params: Parameters) -> Prediction:
        """A level, and the probabilities of all levels."""
        p = params["probabilities"]
        return Prediction(jax.random.categorical(key, jnp.log(p)), p, None)


class LinearPrior(NamedTuple):
    """The prior of intercept and coefficients, for columns scaled to [-1, 1].

    They are normal with ``mean`` and covariance ``variance`` times the inverse of ``precision``. The
    variance is known, or inverse gamma with ``shape`` and ``scale``.
    """

    mean: Vector
    precision: Vector
    shape: float
    scale: float
    variance: float | None


@dataclass(frozen=True, kw_only=True)
class Linear(Conjugate):
    """A normal outcome that is linear in the predictors, if there are any."""

    variance_shape: float = 2.0
    variance_scale: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        _validate.positive("variance_shape", self.variance_shape)
        _validate.positive("variance_scale", self.variance_scale)

    @property
    @abstractmethod
    def known_variance(self) -> float | None:
        """The variance of the outcome around its mean, if it is known."""

    @abstractmethod
    def _coefficient_prior(self) -> tuple[Vector, Vector]:
        """Mean and precision of intercept and coefficients, in the columns' units.

        The precision is relative to one over the variance, unless the variance is known.
        """

    @abstractmethod
    def named(self, weights: Vector, variance: Vector) -> dict[str, Vector]:
        """Parameters by name, from weights [..., intercept and coefficients] and a variance."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Predictors, then the outcome."""
        return (*self.predictors, self._outcome)

    @property
    @abstractmethod
    def _outcome(self) -> str: ...

    @property
    def products(self) -> tuple[tuple[int, int], ...]:
        """The released products of entries of v. The first sums to the number of rows."""
        size = len(self.columns) + 1
        pairs = [(i, j) for i in range(size) for j in range(i, size)]
        # With a known variance the square of the outcome is not needed.
        return tuple(pairs if self.known_variance is None else pairs[:-1])

    @property
    def statistic_size(self) -> int:
        """The number of products."""
        return len(self.products)

    def statistic(self, row: Row, constants: Constants) -> jax.Array:
        """The products."""
        low, high = constants["low"], constants["high"]
        values = [
            (value - low[i]) / (high[i] - low[i]) * 2 - 1
            for i, value in enumerate(self._clip_columns(row, constants))
        ]
        entries = [jnp.ones(()), *values]
        return jnp.stack([entries[i] * entries[j] for i, j in self.products])

    def statistic_norm_bound(self, order: int) -> float:
        """A bound for products that lie between -1 and 1."""
        return float(len(self.products) ** (1 / order))

    @property
    def family(self) -> FullGaussian | NormalInverseGamma:
        """Normal distributions of intercept and coefficients, with the variance if it is unknown."""
        size = len(self.predictors) + 1
        return NormalInverseGamma(size) if self.known_variance is None else FullGaussian(size)

    @property
    def natural_prior(self) -> Vector:
        """The prior in the columns' units."""
        (mean, precision), family = self._coefficient_prior(), self.family
        if isinstance(family, FullGaussian):
            return family.join(precision, precision @ mean)
        return family.from_prior(mean, precision, self.variance_shape, self.variance_scale)

    def natural_statistic(self, row: Row, constants: Constants) -> jax.Array:
        """Products of intercept, predictors and outcome."""
        v = jnp.stack([jnp.ones(()), *self._clip_columns(row, constants)])
        known = self.known_variance
        entries = v if known is None else v[:-1]
        rows, columns, scale = packed_indices(len(entries))
        products = entries[rows] * entries[columns] * jnp.asarray(scale, v.dtype)
        if known is None:
            return jnp.append(products, 0.5)
        return jnp.concatenate([products, entries * v[-1]]) / known

    def from_draws(self, drawn: Vector) -> dict[str, Vector]:
        """Intercept and coefficients, and the variance if it is unknown."""
        size = len(self.predictors) + 1
        return self.named(drawn[:, :size], drawn[:, -1])

    def _clip_columns(self, row: Row, constants: Constants) -> list[jax.Array]:
        """The values of the columns, moved into their bounds."""
        low, high = constants["low"], constants["high"]
        return [
            jnp.clip(jnp.asarray(row[name]) * 1.0, low[i], high[i])
            for i, name in enumerate(self.columns)
        ]

    def _scaling(self) -> tuple[Vector, Vector, float]:
        """Matrix, shift and unit: weights in the columns' units are matrix @ scaled weights + shift."""
        bounds = np.asarray(self._known_bounds(), np.float64)
        middle, half = bounds.mean(axis=1), np.diff(bounds, axis=1)[:, 0] / 2
        matrix = np.diag(half[-1] / np.append(1.0, half[:-1]))
        matrix[0, 1:] = -np.diag(matrix)[1:] * middle[:-1]
        shift = np.zeros(len(matrix))
        shift[0] = middle[-1]
        return matrix, shift, float(half[-1])

    def scaled_prior(self) -> LinearPrior:
        """The prior for scaled columns."""
        matrix, shift, unit = self._scaling()
        mean, precision = self._coefficient_prior()
        known = self.known_variance
        per_variance = unit**2 if known is None else unit**2 / known
        return LinearPrior(
            mean=np.asarray(np.linalg.solve(matrix, mean - shift), np.float64),
            precision=matrix.T @ precision @ matrix / per_variance,
            shape=self.variance_shape,
            scale=self.variance_scale / unit**2,
            variance=None if known is None else known / unit**2,
        )

    def to_column_units(self, weights: Vector, variance: Vector) -> dict[str, Vector]:
        """Parameters in the columns' units, from draws of scaled weights and variances."""
        matrix, shift, unit = self._scaling()
        return self.named(weights @ matrix.T + shift, variance * unit**2)


def _log_inverse_gamma(value: jax.Array, shape: float, scale: float) -> jax.Array:
    """Log density of an inverse gamma distribution, up to a constant."""
    return -(shape + 1) * jnp.log(value) - scale / value


@dataclass(frozen=True)
class Normal(OneColumn, Linear):
    """A normal column, with a normal-inverse-gamma prior on its ``mean`` and ``variance``.

    Args:
        column: The numeric column.
        mean: Prior mean of the mean.
        mean_rows: Number of rows that the prior of the mean is worth: given the variance, the mean
            has prior variance ``variance / mean_rows``.
        variance_shape: Shape of the inverse gamma prior of the variance.
        variance_scale: Scale of the inverse gamma prior of the variance.
        bounds: ``((low, high),)``; or leave it to a schema.
    """

    _: KW_ONLY
    mean: float = 0.0
    mean_rows: float = 1.0

    kinds: ClassVar[tuple[str, ...]] = ("number", "count")

    def __post_init__(self) -> None:
        super().__post_init__()
        _validate.finite("mean", self.mean)
        _validate.positive("mean_rows", self.mean_rows)

    @property
    def _outcome(self) -> str:
        return self.column

    @property
    def known_variance(self) -> None:
        """The variance is never known."""
        return

    @property
    def parameters(self) -> Mapping[str, Parameter]:
        """Mean and variance."""
        return {"mean": Parameter(), "variance": Parameter((), Positive())}

    def _coefficient_prior(self) -> tuple[Vector, Vector]:
        return np.array([self.mean]), np.array([[self.mean_rows]])

    def named(self, weights: Vector, variance: Vector) -> dict[str, Vector]:
        """Mean and variance."""
        return {"mean": weights[..., 0], "variance": variance}

    def log_prior(self, params: Parameters, constants: Constants) -> jax.Array:  # noqa: ARG002
        """Log density of the normal-inverse-gamma prior, up to a constant."""
        variance = params["variance"]
        density = _log_inverse_gamma(variance, self.variance_shape, self.variance_scale)
        return density + log_normal_density(params["mean"], self.mean, variance / self.mean_rows)

    def log_likelihood(self, params: Parameters, row: Row, constants: Constants) -> jax.Array:
        """Log density of the value."""
        (value,) = self._clip_columns(row, constants)
        return log_normal_density(value, params["mean"], params["variance"])

    def predict_outcome(self, key: jax.Array, params: Parameters) -> Prediction:
        """A value."""
        return _predict_normal(key, params["mean"], params["variance"])


@dataclass(frozen=True)
class LinearRegression(Linear):
    """A numeric outcome that is linear in ``predictors``, with normal errors.

    Parameters are the ``intercept``, the ``coefficients``, and the ``variance`` of the errors unless
    ``noise_sd`` is given.

    Args:
        outcome: The column of the outcome.
        predictors: The columns of the predictors.
        noise_sd: Standard deviation of the errors, if it is known.
        intercept_sd: Prior standard deviation of the intercept, around zero. With an unknown
            variance it is in units of the errors' standard deviation, as conjugate priors are.
        coefficient_sd: Prior standard deviation of the coefficients, in the same units.
        variance_shape: Shape of the inverse gamma prior of an unknown variance.
        variance_scale: Scale of the inverse gamma prior of an unknown variance.
        bounds: ``(low, high)`` for each predictor, then for the outcome; or leave it to a schema.
    """

    outcome: str
    predictors: Sequence[str] = ()
    _: KW_ONLY
    noise_sd: float | None = None
    intercept_sd: float = 1.0
    coefficient_sd: float = 1.0

    def __post_init__(self) -> None:
        if isinstance(self.predictors, str) or not self.predictors:
            raise InvalidArgument("predictors must be a list of one or more columns.")
        object.__setattr__(self, "predictors", tuple(self.predictors))  # a list has no hash
        if len(set(self.columns)) < len(self.columns):
            raise InvalidArgument("The outcome and the predictors must be different columns.")
        super().__post_init__()
        _validate.positive("intercept_sd", self.intercept_sd)
        _validate.positive("coefficient_sd", self.coefficient_sd)
        if self.noise_sd is not None:
            _validate.positive("noise_sd", self.noise_sd)

    @property
    def _outcome(self) -> str:
        return self.outcome

    @property
    def known_variance(self) -> float | None:
        """The variance of the errors, if it was given."""
        return None if self.noise_sd is None else self.noise_sd**2

    @property
    def parameters(self) -> Mapping[str, Parameter]:
        """Intercept, coefficients, and the variance if it is unknown."""
        free = {"intercept": Parameter(), "coefficients": Parameter((len(self.predictors),))}
        if self.known_variance is None:
            free["variance"] = Parameter((), Positive())
        return free

    def _coefficient_prior(self) -> tuple[Vector, Vector]:
        sds = np.array([self.intercept_sd] + [self.coefficient_sd] * len(self.predictors))
        return np.zeros(len(sds)), np.diag(sds**-2.0)

    @property
    def labels(self) -> Labels:
        """Coefficients are named after their columns."""
        return {"coefficients": (tuple(self.predictors),)}

    def named(self, weights: Vector, variance: Vector) -> dict[str, Vector]:
        """Intercept, coefficients, and the variance if it is unknown."""
        found = {"intercept": weights[..., 0], "coefficients": weights[..., 1:]}
        return found if self.known_variance is not None else {**found, "variance": variance}

    def _variance(self, params: Parameters) -> jax.Array:
        """The variance of the errors, a parameter or known."""
        known = self.known_variance
        return params["variance"] if known is None else jnp.asarray(known)

    def log_prior(self, params: Parameters, constants: Constants) -> jax.Array:  # noqa: ARG002
        """Log density of the normal or normal-inverse-gamma prior, up to a constant."""
        variance, density = jnp.ones(()), jnp.zeros(())
        if self.known_variance is None:
            variance = params["variance"]
            density += _log_inverse_gamma(variance, self.variance_shape, self.variance_scale)
        density += log_normal_density(params["intercept"], 0.0, variance * self.intercept_sd**2)
        slopes = params["coefficients"]
        return density + log_normal_density(slopes, 0.0, variance * self.coefficient_sd**2).sum()

    def _mean(self, params: Parameters, row: Row, constants: Constants) -> jax.Array:
        """The mean of the outcome."""
        low, high = constants["low"], constants["high"]
        clamped = [jnp.clip(row[n], low[i], high[i]) for i, n in enumerate(self.predictors)]
        return params["intercept"] + jnp.dot(jnp.stack(clamped), params["coefficients"])

    def log_likelihood(self, params: Parameters, row: Row, constants: Constants) -> jax.Array:
        """Log density of the outcome."""
        value = self._clip_columns(row, constants)[-1]
        return log_normal_density(value, self._mean(params, row, constants), self._variance(params))

    def predict(
        self, key: jax.Array, params: Parameters, row: Row, constants: Constants | None = None
    ) -> dict[str, Prediction]:
        """A prediction of the outcome for these predictors."""
        mean = self._mean(params, row, self.constants if constants is None else constants)
        return {self.outcome: _predict_normal(key, mean, self._variance(params))}


def _predict_normal(key: jax.Array, mean: jax.Array, variance: jax.Array) -> Prediction:
    """A prediction of a normal outcome."""
    draw = mean + jnp.sqrt(variance) * jax.random.normal(key)
    return Prediction(draw, jnp.asarray(mean), None)


__all__ = ["Bernoulli", "Categorical", "Conjugate", "LinearRegression", "Normal", "Poisson"]
