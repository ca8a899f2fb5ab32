"""The cost of a private step beside its peers, in one run: CPU microseconds and ratios.

    python benchmarks/dpvi.py            # about two minutes, more with Opacus and jax_privacy
    python benchmarks/dpvi.py --growth   # also time per step at 1e4 to 1e7 rows

Bayesian logistic regression, 40,000 rows, 100 features, mean-field, sampling rate 0.005, clip 5,
noise multiplier 1, Adam 0.01. CPU time of the whole process, compilation excluded, randomness
from the cryptographic generator included. Peers that are not installed are skipped with a note.
The floor is NumPyro's `SVI.update` in a scan over given batches of the mean size: it is not private.
"""

import argparse
import time

import jax
import jax.numpy as jnp
import numpy as np

from tacit.inference.variational import Variational, fit_guide
from tacit.models.jax_model import Model, Parameter
from tacit.privacy.gate import Gate
from tacit.privacy.rows import Rows

ROWS, FEATURES, RATE, STEPS = 40_000, 100, 0.005, 2_000
BATCH = round(ROWS * RATE)


def data(rows=ROWS, features=FEATURES):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, features)).astype(np.float32)
    return x, (rng.uniform(size=rows) < 0.5).astype(np.int32)


def logistic(features):
    return Model(
        parameters={"w": Parameter((features,))},
        log_prior=lambda p: -0.5 * jnp.sum(p["w"] ** 2),
        log_likelihood=lambda p, row: jax.nn.log_sigmoid(
            (2 * row["y"] - 1) * jnp.dot(row["x"], p["w"])
        ),
    ).unit_model


def per_step(function, steps, repeats=5):
    """CPU microseconds per step: the least of a few runs, after one to compile."""
    function()
    best = float("inf")
    for _ in range(repeats):
        start = time.process_time()
        function()
        best = min(best, time.process_time() - start)
    return 1e6 * best / steps


def ours(x, y, rate=RATE, steps=5 * STEPS):
    rows, model = Rows({"x": x, "y": y}), logistic(x.shape[1])
    method = Variational(sampling_rate=rate, num_steps=steps, clip=5.0, learning_rate=0.01)
    plan = method.mechanism(model, 1.0)
    return per_step(lambda: fit_guide(method, model, Gate(rows, plan), jax.random.key(0)), steps)


def numpyro_parts(*, subsample):
    import numpyro
    from numpyro import distributions as dist
    from numpyro.infer import SVI, Trace_ELBO
    from numpyro.infer.autoguide import AutoDiagonalNormal

    def model(x, y):
        w = numpyro.sample("w", dist.Normal(0, 1).expand([FEATURES]).to_event(1))
        with numpyro.plate("rows", ROWS, subsample_size=BATCH) as chosen:
            picked = (x[chosen], y[chosen]) if subsample else (x, y)
            numpyro.sample("y", dist.Bernoulli(logits=picked[0] @ w), obs=picked[1])

    return SVI(model, AutoDiagonalNormal(model), numpyro.optim.Adam(0.01), Trace_ELBO())


def numpyro_scan(x, y):
    svi = numpyro_parts(subsample=False)
    batches = np.random.default_rng(1).integers(0, ROWS, size=(5 * STEPS, BATCH))
    state = svi.init(jax.random.key(0), x[:BATCH], y[:BATCH])

    @jax.jit
    def go(state, x, y, batches):
        return jax.lax.scan(lambda s, i: svi.update(s, x[i], y[i]), state, batches)

    inputs = jnp.asarray(x), jnp.asarray(y), jnp.asarray(batches)
    return per_step(lambda: jax.block_until_ready(go(state, *inputs)), 5 * STEPS)


def numpyro_run(x, y):
    svi = numpyro_parts(subsample=True)
    return per_step(
        lambda: svi.run(
            jax.random.key(0), STEPS, jnp.asarray(x), jnp.asarray(y), progress_bar=False
        ),
        STEPS,
        repeats=1,
    )


def opacus_engine(x, y):
    """Opacus' PrivacyEngine with its Poisson sampler, on the maximum a posteriori point."""
    import torch
    from opacus import PrivacyEngine

    rows = torch.utils.data.TensorDataset(torch.from_numpy(x), torch.from_numpy(y).float())
    net = torch.nn.Linear(FEATURES, 1, bias=False)
    loader = torch.utils.data.DataLoader(rows, batch_size=BATCH)
    net, optimiser, loader = PrivacyEngine().make_private(
        module=net,
        optimizer=torch.optim.Adam(net.parameters(), lr=0.01),
        data_loader=loader,
        noise_multiplier=1.0,
        max_grad_norm=5.0,
    )
    loss = torch.nn.BCEWithLogitsLoss(reduction="sum")

    def epoch():
        for features, labels in loader:
            optimiser.zero_grad()
            loss(net(features)[:, 0], labels).backward()
            optimiser.step()

    return per_step(epoch, len(loader), repeats=1)


def jax_privacy_scan(x, y):
    """jax_privacy's clipped gradient and noise inside a scan over given batches."""
    import optax
    from jax_privacy import clipping, noise_addition

    def loss(w, features, label):
        return -jax.nn.log_sigmoid((2 * label - 1) * (features @ w)).sum()

    gradient = clipping.clipped_grad(loss, l2_clip_norm=5.0, batch_argnums=(1, 2))
    noise = noise_addition.gaussian_privatizer(stddev=5.0, prng_key=jax.random.key(0))
    optimiser = optax.adam(0.01)
    batches = np.random.default_rng(1).integers(0, ROWS, size=(STEPS, BATCH))
    start = jnp.zeros(FEATURES)

    @jax.jit
    def go(x, y, batches):
        def body(carry, i):
            w, memory, seen = carry
            noisy, seen = noise.update(gradient(w, x[i], y[i]), seen)
            updates, memory = optimiser.update(noisy, memory, w)
            return (optax.apply_updates(w, updates), memory, seen), None

        carry = start, optimiser.init(start), noise.init(start)
        return jax.lax.scan(body, carry, batches)

    inputs = jnp.asarray(x), jnp.asarray(y), jnp.asarray(batches)
    return per_step(lambda: jax.block_until_ready(go(*inputs)), STEPS)


def growth():
    print("\nrows       us/step   ratio   (10 features, 200 rows a batch)")
    first = None
    for rows in (10**4, 10**5, 10**6, 10**7):
        found = ours(*data(rows, 10), rate=200 / rows, steps=4_000)
        first = first or found
        print(f"{rows:<10d} {found:7.1f} {found / first:7.2f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--growth", action="store_true", help="also time against rows")
    options = parser.parse_args()
    x, y = data()
    floor = None
    print(f"{'program':44} {'us/step':>9} {'over floor':>10}")
    for name, program in {
        "NumPyro SVI.update in a scan (not private)": numpyro_scan,
        "Tacit, aligned gradients": ours,
        "NumPyro svi.run, subsampling plate (not private)": numpyro_run,
        "jax_privacy in a scan, batches given": jax_privacy_scan,
        "Opacus engine": opacus_engine,
    }.items():
        try:
            found = program(x, y)
        except ImportError as missing:
            print(f"{name:44} skipped: {missing.name} is not installed")
            continue
        floor = floor or found
        print(f"{name:44} {found:9.1f} {found / floor:9.2f}x", flush=True)
    if options.growth:
        growth()


if __name__ == "__main__":
    main()
