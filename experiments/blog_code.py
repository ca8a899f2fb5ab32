"""The blog post's program in plain JAX, as it runs: data, private steps, and what its guide achieves.

Each row of a batch has its own draw of the weights. ``torch.nn.utils.clip_grad_norm_`` clips the
``.grad`` of the tensors that it is given; the post gives it a copy of a gradient, which has none,
so that nothing is clipped. What was meant clips means and deviations each to C.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax

STEPS, RATE, CLIP, DELTA, LEARNING = 500, 0.05, 5.0, 1e-3, 0.01
UNLIMITED = 1e30


def data():
    """Four features that are standardised by the whole table, and a bias; 70% of the rows train."""
    from sklearn.datasets import load_breast_cancer
    from sklearn.model_selection import train_test_split

    x, y = load_breast_cancer(return_X_y=True)
    x = ((x - x.mean(axis=0)) / x.std(axis=0))[:, :4]
    x = np.column_stack([np.ones(len(x)), x])
    return train_test_split(x, y, test_size=0.3, random_state=42)


def noise_of(epsilon):
    """Noise over C for one step at epsilon below 1 without sampling; the post takes it for all."""
    return float(np.sqrt(2 * np.log(1.25 / DELTA)) / epsilon)


def divergence(mean, log_scale, *, numbers=jnp):
    """From N(0, I), summed; with ``numbers=np`` outside of a compiled program."""
    return (numbers.exp(2 * log_scale) + mean**2 - 1 - 2 * log_scale).sum(-1) / 2


def row_loss(guide, x, y, normal):
    """What the post calls the loss of a row, by a draw: the whole divergence is in it."""
    mean, log_scale = guide
    logit = jnp.dot(x, mean + jnp.exp(log_scale) * normal)
    return divergence(mean, log_scale) - jax.nn.log_sigmoid((2 * y - 1) * logit)


def _limited(gradients, limit):
    norms = jnp.linalg.norm(gradients, axis=-1, keepdims=True)
    return gradients / jnp.maximum(1, norms / limit)


def private_runs(x, y, noises, limits, seeds, steps):
    """For each noise and limit the guides at all steps, and the longest gradient of one row at each.

    Means and log deviations are [seeds, steps, d]; the limit of a gradient's length is ``UNLIMITED`` as the
    program runs, and C as it was meant. The same seeds begin alike and have the same draws.
    """
    optimiser, dimension = optax.adam(LEARNING), x.shape[1]

    def step(noise, limit, state, key):
        guide, moments = state
        taken, draws, last = jax.random.split(key, 3)
        chosen = jax.random.bernoulli(taken, RATE, (len(y), 1))
        normals = jax.random.normal(draws, x.shape)
        found = jax.vmap(jax.grad(row_loss), (None, 0, 0, 0))(guide, x, y, normals)
        longest = jnp.linalg.norm(jnp.concatenate(found, -1) * chosen, axis=-1).max()
        kept = [_limited(each, limit) for each in found]
        added = noise * CLIP * jax.random.normal(last, (2, dimension))
        total = tuple((each * chosen).sum(0) + a for each, a in zip(kept, added, strict=True))
        moves, moments = optimiser.update(total, moments)
        guide = optax.apply_updates(guide, moves)
        return (guide, moments), (*guide, longest)

    def one(key, noise, limit):
        begin, key = jax.random.split(key)
        guide = tuple(jax.random.normal(begin, (2, dimension)))
        start, keys = (guide, optimiser.init(guide)), jax.random.split(key, steps)
        return jax.lax.scan(lambda state, key: step(noise, limit, state, key), start, keys)[1]

    keys = jax.random.split(jax.random.key(0), seeds)
    every = jax.jit(jax.vmap(jax.vmap(one, (0, None, None)), (None, 0, 0)))(
        keys, jnp.array(noises), jnp.array(limits)
    )
    return [tuple(np.asarray(each[i]) for each in every) for i in range(len(noises))]


def clear_runs(x, y, seeds, epochs):
    """The post's training without privacy: shuffled batches of 32, whole divergence in each.

    Means and log deviations after every epoch: [seeds, epochs, d].
    """
    optimiser, dimension, batch = optax.adam(LEARNING), x.shape[1], 32
    x, y = jnp.asarray(x), jnp.asarray(y)
    batches = len(y) // batch

    def loss(guide, places, normal):
        rows = jax.vmap(row_loss, (None, 0, 0, None))(guide, x[places], y[places], normal)
        return rows.sum() - (batch - 1) * divergence(*guide)

    def step(state, given):
        guide, moments = state
        gradient = jax.grad(loss)(guide, *given)
        moves, moments = optimiser.update(gradient, moments)
        return (optax.apply_updates(guide, moves), moments), None

    def epoch(state, given):
        state, _ = jax.lax.scan(step, state, given)
        return state, state[0]

    def one(start, orders, draws):
        guide = tuple(start)
        return jax.lax.scan(epoch, (guide, optimiser.init(guide)), (orders, draws))[1]

    # Orders by NumPy: shuffling takes long to compile.
    rng = np.random.default_rng(1)
    orders = rng.permuted(np.tile(np.arange(len(y)), (seeds, epochs, 1)), axis=-1)
    orders = orders[..., : batches * batch].reshape(seeds, epochs, batches, batch)
    draws = rng.normal(size=(seeds, epochs, batches, dimension)).astype(np.float32)
    starts = rng.normal(size=(seeds, 2, dimension)).astype(np.float32)
    return tuple(map(np.asarray, jax.jit(jax.vmap(one))(starts, orders, draws)))


_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(20)


def log_likelihood(mean, log_scale, x, y):
    """Expected under the guide, a row on average, by quadrature: shape of the guides without d."""
    signs = (2 * y - 1)[:, None] * x
    middle = mean @ signs.T
    spread = np.sqrt(np.exp(2 * log_scale) @ (x**2).T)
    total = 0.0
    for node, weight in zip(_NODES, _WEIGHTS / _WEIGHTS.sum(), strict=True):
        total = total - weight * np.logaddexp(0, -(middle + node * spread))
    return total.mean(axis=-1)


def accuracy(weights, x, y):
    """The share of rows on whose side the weights are."""
    return np.mean((weights @ x.T > 0) == y, axis=-1)
