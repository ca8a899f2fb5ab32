"""The distribution of rows behind noisy tables: of maximum entropy, with a posterior that knows the noise.

A row is in one cell of every column. Its distribution is P(x) proportional to exp(theta b(x)), where b are orthonormal
contrasts of the cells of the tables and of all their margins: of all distributions with the same tables, this one has the
largest entropy. The released answers are sums over rows of a(x), linear in b(x). By the central limit theorem their mean is n E[a]
and their covariance n Cov[a] + D, where D is that of the noise (Räisä, Jälkö, Kaski and Honkela 2023). Contrasts and a
constant are linearly independent, so theta is identified. The number of rows n is a parameter too: its noisy value is one of
the answers.

The log normaliser log Z is computed by eliminating one column after the other. Means and covariance of b are its first two
derivatives.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial, reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.nn import logsumexp
from numpy.typing import NDArray
from scipy import linalg

from tacit._typing import Floats
from tacit.errors import InvalidArgument
from tacit.inference.diagnostics import mixing_warnings
from tacit.inference.table_estimates import ReleasedTables
from tacit.inference.tables import SHOWN, Table, TableRelease, margins

# The standard deviation of the prior of a main effect. Between k columns it is less by k ** 1.5: log odds ratios have about 2.
_PRIOR_STD = 3.0
# The most cells of columns that are eliminated together, the most parameters, and the most products of all cells and parameters.
_MAX_CLIQUE, _MAX_PARAMETERS, _MAX_WORK = 2**16, 600, 2**23
# The search for the centre: the most steps, the length of a step in posterior standard deviations at which it ends, and the most that a
# step is shortened.
_MAX_SCORINGS, _CONVERGED, _SHORTEST = 100, 0.01, 1e-6
# The chain: steps of a segment, segments that find the scale of each direction, the least and the most that are kept; the mean
# length of a trajectory, in standard deviations, the most leaps of one, and the share of trajectories that should be accepted.
_SEGMENT, _WARMUP_SEGMENTS, _LEAST_SEGMENTS, _MAX_SEGMENTS = 250, 2, 4, 32
_LENGTH, _MAX_LEAPS, _TARGET = 2.5, 64, 0.8

_NOT_MIXED = (
    "The chain that draws the model of the tables did not mix, so intervals may be too narrow; declare complete columns, or "
    "ask for fewer or smaller tables."
)


class Bucket(NamedTuple):
    """A column that is eliminated, and the columns that its factors have, itself included."""

    name: str
    members: Table


@dataclass(frozen=True)
class LogLinear:
    """A log-linear model of the cells of columns. Everything in it is public.

    Args:
        names: The columns, in alphabetical order.
        sizes: How many cells each of them has.
        parts: The margins that have parameters, each with its columns in alphabetical order.
    """

    names: Table
    sizes: tuple[int, ...]
    parts: tuple[Table, ...]

    @cached_property
    def size(self) -> Mapping[str, int]:
        """How many cells a column has."""
        return dict(zip(self.names, self.sizes, strict=True))

    def shape(self, part: Table) -> tuple[int, ...]:
        """How many contrasts a margin has along each of its columns."""
        return tuple(self.size[name] - 1 for name in part)

    @cached_property
    def dimension(self) -> int:
        """How many parameters there are."""
        return sum(math.prod(self.shape(part)) for part in self.parts)

    @property
    def prior_std(self) -> Floats:
        """The prior standard deviations of the parameters."""
        own = [_PRIOR_STD / len(part) ** 1.5 for part in self.parts]
        return np.repeat(own, [math.prod(self.shape(part)) for part in self.parts])

    @cached_property
    def buckets(self) -> tuple[Bucket, ...]:
        """The order in which columns are eliminated: next the one whose factors have the fewest cells together."""
        cliques, left, found = {frozenset(part) for part in self.parts}, set(self.names), []
        while left:
            joined = {
                name: frozenset({name}).union(*(each for each in cliques if name in each))
                for name in left
            }
            name = min(left, key=lambda each: (self.cells(joined[each]), each))
            found.append(Bucket(name, tuple(sorted(joined[name]))))
            cliques = {each for each in cliques if name not in each} | {joined[name] - {name}}
            left.remove(name)
        return tuple(found)

    def cells(self, names: Iterable[str]) -> int:
        """How many cells columns have together."""
        return math.prod(self.size[name] for name in names)

    @property
    def largest(self) -> Table:
        """The columns with the most cells of those that are joined."""
        return max((each.members for each in self.buckets), key=self.cells)

    def check_size(self) -> None:
        """Raises if the model is too large to be computed. It depends on public facts alone."""
        cells = sum(self.cells(each.members) for each in self.buckets)
        advice = "pass fewer or smaller tables, or fewer bins"
        if self.cells(self.largest) > _MAX_CLIQUE:
            raise InvalidArgument(
                f"The tables join {', '.join(self.largest)}, which have {self.cells(self.largest):,} cells together, and "
                f"the model can join {_MAX_CLIQUE:,}; {advice}."
            )
        if self.dimension > _MAX_PARAMETERS or self.dimension * cells > _MAX_WORK:
            raise InvalidArgument(
                f"The model of these tables has {self.dimension:,} parameters and {cells:,} cells in its cliques, which is "
                f"too much to compute; {advice}."
            )

    def split(self, theta: Any) -> dict[Table, Any]:
        """A vector of parameters, or of their contrasts, by margin."""
        found, start = {}, 0
        for part in self.parts:
            shape = self.shape(part)
            found[part] = theta[start : start + math.prod(shape)].reshape(shape)
            start += math.prod(shape)
        return found

    def contrasts(self, name: str) -> Floats:
        """Orthonormal contrasts of the cells of a column: [cells, contrasts]."""
        return np.asarray(linalg.helmert(self.size[name]).T, np.float64)

    def eliminate(self, theta: jax.Array) -> tuple[jax.Array, list[jax.Array]]:
        """The log normaliser; and of each step, the logarithm of what is summed over, with an axis for each of its columns."""
        factors: list[tuple[Table, jax.Array]] = []
        for part, own in self.split(theta).items():
            factor = own
            for name in part:  # the first axis becomes the last
                factor = jnp.tensordot(factor, self.contrasts(name), axes=(0, 1))
            factors.append((part, factor))
        total, found = jnp.zeros(()), []
        for name, members in self.buckets:
            product = jnp.zeros([self.size[each] for each in members])
            for part, factor in factors:
                if name in part:
                    shape = [self.size[each] if each in part else 1 for each in members]
                    product = product + factor.reshape(shape)
            found.append(product)
            message = logsumexp(product, axis=members.index(name))
            factors = [each for each in factors if name not in each[0]]
            if message.ndim:
                factors.append((tuple(each for each in members if each != name), message))
            else:
                total = total + message
        return total, found

    def log_normaliser(self, theta: jax.Array) -> jax.Array:
        """Log Z, where cells have the weights exp(theta b)."""
        return self.eliminate(theta)[0]

    def sample(
        self, theta: Floats, rows: int, rng: np.random.Generator
    ) -> dict[str, NDArray[np.int64]]:
        """The cells of so many independent rows, by column."""
        with jax.enable_x64(True):
            weights = [np.asarray(each) for each in _buckets(self)(jnp.asarray(theta, jnp.float64))]
        found: dict[str, NDArray[np.int64]] = {}
        for (name, members), own in reversed(list(zip(self.buckets, weights, strict=True))):
            place = members.index(name)
            shares = np.exp(own - own.max(axis=place, keepdims=True))
            below = np.moveaxis(np.cumsum(shares, axis=place), place, -1)
            below = below[tuple(found[each] for each in members if each != name)]
            drawn = rng.random(rows) * below[..., -1]
            found[name] = (
                drawn[:, None] >= np.broadcast_to(below[..., :-1], (rows, own.shape[place] - 1))
            ).sum(axis=1)
        return found


class NoisyMoments(NamedTuple):
    """What was released about a log-linear model.

    The answers have the mean n (constant + matrix E[b]), and the number of rows the mean n; variances are those of the noise.
    ``prior_std`` are the prior standard deviations of the parameters.
    """

    answers: Floats
    variances: Floats
    constant: Floats
    matrix: Floats
    rows: float
    rows_variance: float
    prior_std: Floats


def released_moments(
    released: ReleasedTables, complete: Sequence[str] = ()
) -> tuple[LogLinear, NoisyMoments]:
    """The model of released tables, and what was released about it.

    Args:
        released: The release.
        complete: Columns that are known to have no missing cell.

    Returns:
        The model, of shown cells, and the moments.
    """
    release = released.release
    model = log_linear(release, complete)
    answers, variances, lines = [], [], []
    in_contrasts = {  # answers about a column, as sums of one and its contrasts
        name: np.linalg.solve(
            np.column_stack([np.ones(model.size[name]), model.contrasts(name)]),
            release.column(name).axes[SHOWN].added[: model.size[name]],
        )
        for name in model.names
    }
    for part in model.parts:
        shown = tuple(slice(len(release.column(name).axes[SHOWN].groups)) for name in part)
        answers.append(released.answers[part].values[shown].ravel())
        variances.append(released.answers[part].variances[shown].ravel())
        line = {}
        for inner in margins(part):
            factors = [
                in_contrasts[name][1:].T if name in inner else in_contrasts[name][:1].T
                for name in part
            ]
            line[inner] = reduce(np.kron, factors)
        lines.append(
            np.column_stack(
                [
                    line.get(each, np.zeros((len(answers[-1]), math.prod(model.shape(each)))))
                    for each in ((), *model.parts)
                ]
            )
        )
    stacked = np.vstack(lines)
    whole = released.answers[()]
    return model, NoisyMoments(
        np.concatenate(answers),
        np.concatenate(variances),
        stacked[:, 0],
        stacked[:, 1:],
        float(whole.values[0]),
        float(whole.variances[0]),
        model.prior_std,
    )


def log_linear(release: TableRelease, complete: Sequence[str] = ()) -> LogLinear:
    """The model of the shown cells of a release's tables; missing cells are cells, but in complete columns."""
    names = tuple(sorted(each.name for each in release.columns))
    sizes = tuple(len(release.column(name).labels) - (name in complete) for name in names)
    return LogLinear(names, sizes, tuple(part for part in release.parts if part))


class PosteriorDraws(NamedTuple):
    """Draws of the parameters of a log-linear model and of the number of rows, and what was wrong with the chain."""

    theta: Floats
    rows: Floats
    messages: tuple[str, ...]


def draw_posterior(
    model: LogLinear, moments: NoisyMoments, draws: int, seed: int = 0
) -> PosteriorDraws:
    """Draws of the posterior, by Hamiltonian Monte Carlo.

    Trajectories follow the density whose covariance of answers is fixed, because its gradient is many times cheaper, and end with a
    test by the density itself, so that draws are of the latter.

    Args:
        model: The model.
        moments: What was released.
        draws: How many draws, of a longer chain.
        seed: The seed of the chain.

    Returns:
        The draws.
    """
    with jax.enable_x64(True):
        given = jax.tree.map(lambda each: jnp.asarray(each, jnp.float64), moments)
        centre, root = _find_centre(model, given)
        start, segment = _programs(model)[1:]
        state = start(centre, root, given)

        def go_on(state: ChainState, number: int, rate: float) -> tuple[ChainState, Floats, Floats]:
            key = jax.random.fold_in(jax.random.key(seed), number)
            keys = jax.random.key_data(jax.random.split(key, _SEGMENT))
            state, (whitened, answers) = segment(state, given, keys, rate)
            return state, np.asarray(whitened), np.asarray(answers)

        for number in range(_WARMUP_SEGMENTS):
            state, found, _ = go_on(state, _MAX_SEGMENTS + number, 1.0)
            spread = np.maximum(found[_SEGMENT // 2 :].std(axis=0), 0.1)
            state = state._replace(root=state.root * spread, at=state.at / spread)
        state, _, _ = go_on(state, _MAX_SEGMENTS + _WARMUP_SEGMENTS, 1.0)
        parts: list[tuple[Floats, Floats]] = []
        messages: Sequence[str] = ()
        while not parts or (messages and len(parts) < _MAX_SEGMENTS):
            for _ in range(len(parts) or _LEAST_SEGMENTS):
                state, found, answers = go_on(state, len(parts), 0.0)
                parts.append((found @ np.asarray(state.root).T, answers))
            messages = mixing_warnings({"answers": np.concatenate([each for _, each in parts])})
    places = np.asarray(centre) + np.concatenate([each for each, _ in parts])
    kept = places[np.linspace(0, len(places) - 1, draws).round().astype(int)]
    return PosteriorDraws(kept[:, :-1], np.exp(kept[:, -1]), (_NOT_MIXED,) if messages else ())


def most_likely(model: LogLinear, moments: NoisyMoments) -> tuple[Floats, float]:
    """One model of the tables, of quasi-likelihood, and its number of rows: without what is not known of them."""
    with jax.enable_x64(True):
        given = jax.tree.map(lambda each: jnp.asarray(each, jnp.float64), moments)
        centre, _ = _find_centre(model, given)
    return centre[:-1], float(np.exp(centre[-1]))


@lru_cache(maxsize=8)
def _buckets(model: LogLinear) -> Any:
    return jax.jit(lambda theta: model.eliminate(theta)[1])


class Terms(NamedTuple):
    """Of a place: the mean and covariance of the answers, the latter by a triangular root, and how the mean changes."""

    mean: jax.Array
    root: jax.Array
    slope: jax.Array


def _terms(model: LogLinear, moments: NoisyMoments, place: jax.Array) -> Terms:
    theta, rows = place[:-1], jnp.exp(place[-1])
    mean = rows * (moments.constant + moments.matrix @ jax.grad(model.log_normaliser)(theta))
    half = rows * moments.matrix @ jax.hessian(model.log_normaliser)(theta)
    root = jnp.linalg.cholesky(half @ moments.matrix.T + jnp.diag(moments.variances))
    return Terms(mean, root, jnp.column_stack([half, mean]))


def _log_density(
    moments: NoisyMoments, place: jax.Array, mean: jax.Array, root: jax.Array
) -> jax.Array:
    """The log posterior density of the parameters and the logarithm of the number of rows."""
    theta, rows = place[:-1], jnp.exp(place[-1])
    off = jax.scipy.linalg.solve_triangular(root, moments.answers - mean, lower=True)
    return jnp.asarray(
        -off @ off / 2
        - jnp.log(jnp.diag(root)).sum()
        - (moments.rows - rows) ** 2 / (2 * moments.rows_variance)
        + place[-1]  # the prior of the number of rows is flat
        - ((theta / moments.prior_std) ** 2).sum() / 2
    )


class ChainState(NamedTuple):
    """A chain at ``centre + root @ at``, with the density and the answers expected there. ``fixed`` is what trajectories take as the answers' covariance."""

    centre: jax.Array
    root: jax.Array
    fixed: jax.Array
    at: jax.Array
    value: jax.Array
    mean: jax.Array
    log_size: jax.Array
    steps: jax.Array


@lru_cache(maxsize=8)
def _programs(model: LogLinear) -> tuple[Any, Any, Any]:
    """The scoring step and the chain of a model; cached, so that they compile once."""

    def cheap(moments: NoisyMoments, root: jax.Array, place: jax.Array) -> jax.Array:
        mean = moments.constant + moments.matrix @ jax.grad(model.log_normaliser)(place[:-1])
        return _log_density(moments, place, jnp.exp(place[-1]) * mean, root)

    def scoring(place: jax.Array, moments: NoisyMoments, root: jax.Array | None) -> Any:
        """The density for a fixed covariance, or that of the place, its gradient and expected curvature."""
        terms = _terms(model, moments, place)
        root = terms.root if root is None else root
        solve = jax.scipy.linalg.solve_triangular
        jacobian = solve(root, terms.slope, lower=True)
        off = solve(root, moments.answers - terms.mean, lower=True)
        rows = jnp.exp(place[-1])
        own = jnp.append(moments.prior_std**-2, rows**2 / moments.rows_variance)
        off_rows = (moments.rows - rows) * rows / moments.rows_variance
        pull = jnp.append(-place[:-1] / moments.prior_std**2, off_rows + 1.0)
        value = _log_density(moments, place, terms.mean, root)
        return value, jacobian.T @ off + pull, jacobian.T @ jacobian + jnp.diag(own), root

    def slope(state: ChainState, moments: NoisyMoments, at: jax.Array) -> jax.Array:
        found = jax.grad(lambda z: cheap(moments, state.fixed, state.centre + state.root @ z))(at)
        return jnp.asarray(found)

    def exact(
        state: ChainState, moments: NoisyMoments, at: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        place = state.centre + state.root @ at
        mean, root, _ = _terms(model, moments, place)
        return _log_density(moments, place, mean, root), mean

    def start(centre: jax.Array, root: jax.Array, moments: NoisyMoments) -> ChainState:
        mean, fixed, _ = _terms(model, moments, centre)
        value = _log_density(moments, centre, mean, fixed)
        return ChainState(
            centre, root, fixed, jnp.zeros_like(centre), value, mean, jnp.log(0.2), jnp.zeros(())
        )

    def step(moments: NoisyMoments, rate: jax.Array, state: ChainState, words: jax.Array) -> Any:
        keys = jax.random.split(jax.random.wrap_key_data(words), 3)
        momentum = jax.random.normal(keys[0], state.at.shape, state.at.dtype)
        size = jnp.exp(state.log_size)
        length = _LENGTH * jax.random.uniform(keys[1], minval=0.5, maxval=1.5)
        leaps = jnp.clip(jnp.ceil(length / size), 1, _MAX_LEAPS).astype(int)

        def leap(_: Any, now: Any) -> Any:
            place, speed, gradient = now
            speed = speed + size / 2 * gradient
            place = place + size * speed
            gradient = slope(state, moments, place)
            return place, speed + size / 2 * gradient, gradient

        begin = (state.at, momentum, slope(state, moments, state.at))
        there, speed, _ = jax.lax.fori_loop(0, leaps, leap, begin)
        then, answers = exact(state, moments, there)
        change = then - state.value + (momentum @ momentum - speed @ speed) / 2
        accepted = jnp.where(jnp.isnan(change), 0.0, jnp.exp(jnp.minimum(change, 0.0)))
        moves = jax.random.uniform(keys[2]) < accepted
        adapted = state.log_size + rate * (state.steps + 3.0) ** -0.6 * (accepted - _TARGET)
        state = state._replace(
            at=jnp.where(moves, there, state.at),
            value=jnp.where(moves, then, state.value),
            mean=jnp.where(moves, answers, state.mean),
            log_size=adapted,
            steps=state.steps + 1,
        )
        return state, (state.at, state.mean)

    def segment(state: ChainState, moments: NoisyMoments, keys: jax.Array, rate: jax.Array) -> Any:
        begin = state._replace(steps=jnp.zeros(()))
        return jax.lax.scan(partial(step, moments, rate), begin, keys)

    return jax.jit(scoring), jax.jit(start), jax.jit(segment)


def _find_centre(model: LogLinear, moments: NoisyMoments) -> tuple[Floats, Floats]:
    """The centre of the posterior by scoring with reweighted answers, and a root of its covariance."""
    scoring = _programs(model)[0]
    place = np.zeros(model.dimension + 1)
    rows, spread = float(moments.rows), math.sqrt(float(moments.rows_variance))
    place[-1] = math.log(max(rows, spread, 1.0))
    for _ in range(_MAX_SCORINGS):
        value, gradient, precision, root = scoring(place, moments, None)
        direction = np.linalg.solve(precision, gradient)
        slope, length = float(gradient @ direction), 1.0
        if slope < _CONVERGED**2:
            break
        while length > _SHORTEST:
            found = scoring(place + length * direction, moments, root)[0]
            if found > value + 1e-4 * length * slope:
                break
            length /= 2
        place = place + length * direction
    values, vectors = np.linalg.eigh(np.asarray(precision))
    return place, np.asarray(vectors / np.sqrt(np.maximum(values, 1e-12)))
