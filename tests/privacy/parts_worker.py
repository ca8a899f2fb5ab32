"""One of several processes that release sums of parts; prints what left, as hexadecimal digits."""

import sys

import jax
import jax.numpy as jnp
import numpy as np

from tacit.privacy.distributed import PartitionedRows, Processes
from tacit.privacy.gate import open_gate, run
from tacit.privacy.mechanisms import NoisySums
from tacit.privacy.noise import Randomness
from tacit.privacy.rows import Rows

NUMBER = 5
WAYS = {"batches": (0.3, 1.0), "everyone": (1.0, 1.0), "wide": (0.3, 0.0)}


def rows(number):
    """The rows of a part, which have another length in each."""
    generator = np.random.default_rng(number)
    return Rows({"x": generator.normal(size=(40 + 7 * number, 3)).astype(np.float32)})


def step(state, given, release):
    """Looks where earlier releases lead, so that a wrong sum would spread."""

    def unit(arguments, fields, present, secret):
        shaken = (secret[0] % 7).astype(jnp.float32)
        return jnp.tanh(fields["x"][0] - arguments) * present[0] + shaken / 100

    out = release.noisy_sum(unit, state)
    return 0.9 * state + out / 100 + given, out


def mechanism(way):
    rate, noise = WAYS[way]
    return NoisySums(
        sampling_rate=rate,
        num_steps=25,
        clip=2.0,
        noise_multiplier=noise,
        dimension=3,
        secrets=True,
    )


def released(processes, way, held=None, seed=4):
    """What leaves of all steps; this process holds every so-manyth part."""
    held = range(processes.rank, NUMBER, processes.size) if held is None else held
    parts = PartitionedRows({number: rows(number) for number in held}, NUMBER, processes)
    gate = open_gate(parts, mechanism(way), Randomness(seed))
    inputs = np.linspace(0, 0.01, 25, dtype=np.float32)
    _, out = run(gate, step, jnp.zeros(3), lambda first, count: inputs[first : first + count])
    return np.asarray(out)


if __name__ == "__main__":
    rank, size, port = map(int, sys.argv[1:])
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"127.0.0.1:{port}", size, rank)
    group = Processes()
    added = group.add(np.asarray([2**62 + 3, -5], np.int64)).tolist()
    told = group.broadcast(b"from the first" if rank == 0 else b"another").decode()
    left = released(group, "batches").tobytes().hex()
    sys.stdout.write(f"{added}\n{told}\n{left}\n")
