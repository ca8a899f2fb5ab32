"""DP-SGLD at the settings of the paper on DP-MCMC (Fig. 3): runs of 6 million steps.

There are 10 runs, and the paper's 20 with ``--paper``. They go side by side in one program, in plain
JAX: the rows are made up, and a release for each step would take ten times as long.
`PublishedLangevin` takes the same steps by releases; `mcmc_chains` runs it with larger ones. A batch
is drawn with replacement, as large as its expected size. Gradients are not clipped: none reaches the paper's bound of 100 (.01 when tempered).
"""

import jax
import jax.numpy as jnp
import numpy as np

SIZE, BATCH, STEPS, RUNS, BURN_IN = 7e-5, 100, 6_000_000, 20, 100_000
# Every so many steps a place is kept.
EVERY = 200


@jax.jit
def _moved(theta, rows, normals, variances, counted):
    """Both kinds of chains some steps further: [kinds, runs, 2]. Rows are [steps, runs, batch]."""

    def step(theta, given):
        batch, normal = given
        one = batch - theta[..., :1]
        two = one - theta[..., 1:]
        share = jax.nn.sigmoid((one**2 - two**2) / 4)
        second = jnp.mean(share * two, axis=-1) / 2
        first = jnp.mean((1 - share) * one, axis=-1) / 2 + second
        slope = counted * jnp.stack([first, second], axis=-1) - theta * jnp.array([0.1, 1.0])
        return theta + SIZE * slope + jnp.sqrt(SIZE * variances)[:, None, None] * normal, None

    return jax.lax.scan(step, theta, (rows, normals))[0]


def langevin_chains(x, counted, steps=STEPS, runs=RUNS, variances=(1.0, 2.0), seed=0):
    """Chains whose noise has each of these variances, in units of the step: [kinds, runs, kept, 2].

    As published it is 1; the posterior needs 2. Both have the same batches.
    """
    rng, x = np.random.default_rng(seed), np.asarray(x, np.float32)
    shape = len(variances), runs, 2
    theta, kept = jnp.zeros(shape), np.empty((steps // EVERY, *shape), np.float32)
    for place in range(len(kept)):
        rows = np.take(x, rng.integers(0, len(x), (EVERY, runs, BATCH), dtype=np.int32))
        normals = rng.standard_normal((EVERY, *shape), dtype=np.float32)
        theta = _moved(theta, rows, normals, np.asarray(variances, np.float32), float(counted))
        kept[place] = theta
    return np.moveaxis(kept, 0, 2)
