"""Writes the corrections that ship: tables by linear programming, and the paper's mixture of normals.

python scripts/make_correction.py
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.scipy.stats import norm

from tacit.inference.barker import Correction, best_point_masses

_SOURCE = Path(__file__).resolve().parent.parent / "src/tacit"
TABLE_FILE = _SOURCE / "inference/barker_tables.json"
MIXTURE_FILE = _SOURCE / "papers/barker_mixture.json"
TABLES = (0.5, 1.0, 1.5, 2.0, 2.5)
MIXTURES = (2.0,)


def table(variance: float) -> dict[str, list[float]]:
    """The point masses with the least error of the distribution function."""
    weights, centres = best_point_masses(variance)
    return {"weights": _rounded(weights, 12), "centres": _rounded(centres, 6)}


def mixture(variance: float, components: int = 50, steps: int = 10_000) -> dict[str, list[float]]:
    """The paper's correction: mirrored normals, fitted to the log-density of the logistic.

    By Adam, on the 2-norm of the difference at 1000 points of [-10, 10].
    """
    with jax.enable_x64(True):
        points = jnp.linspace(-10.0, 10.0, 1000)
        target = jax.scipy.stats.logistic.logpdf(points)

        def loss(parameters: Any) -> jax.Array:
            logits, centres, log_spreads = parameters
            scales = jnp.sqrt(jnp.exp(2 * log_spreads) + variance)
            density = jnp.logaddexp(
                norm.logpdf(points[:, None], centres, scales),
                norm.logpdf(points[:, None], -centres, scales),
            ) - jnp.log(2.0)
            fitted = jax.scipy.special.logsumexp(density + jax.nn.log_softmax(logits), axis=1)
            return jnp.linalg.norm(fitted - target)

        keys = jax.random.split(jax.random.key(0), 3)
        start = (
            jax.random.uniform(keys[0], (components,)),
            0.1 * jax.random.normal(keys[1], (components,)),
            0.1 * jax.random.normal(keys[2], (components,)),
        )
        logits, centres, log_spreads = _minimised(loss, start, steps)
        return {
            "weights": _rounded(jax.nn.softmax(logits), 9),
            "centres": _rounded(jnp.abs(centres), 6),
            "spreads": _rounded(jnp.exp(log_spreads), 6),
        }


def _minimised(loss: Callable[[Any], jax.Array], start: Any, steps: int) -> Any:
    """Where Adam ends."""
    optimiser = optax.adam(1e-2)

    def step(carry: Any, _: None) -> tuple[Any, None]:
        parameters, state = carry
        updates, state = optimiser.update(jax.grad(loss)(parameters), state)
        return (optax.apply_updates(parameters, updates), state), None

    run = jax.jit(lambda carry: jax.lax.scan(step, carry, length=steps)[0])
    return run((start, optimiser.init(start)))[0]


def _rounded(values: Any, digits: int) -> list[float]:
    return [round(float(value), digits) for value in values]


def written(content: dict[str, dict[str, list[float]]]) -> str:
    """JSON with a line for every list."""
    entries = []
    for variance, parts in content.items():
        lists = ",\n".join(f'    "{name}": {json.dumps(v)}' for name, v in parts.items())
        entries.append(f'  "{variance}": {{\n{lists}\n  }}')
    return "{\n" + ",\n".join(entries) + "\n}\n"


def main() -> None:
    """Makes everything, writes it and says how good it is."""
    content = {
        TABLE_FILE: {f"{variance:g}": table(variance) for variance in TABLES},
        MIXTURE_FILE: {f"{variance:g}": mixture(variance) for variance in MIXTURES},
    }
    for path, tables in content.items():
        path.write_text(written(tables), encoding="utf-8")
        for variance, parts in tables.items():
            arrays = {name: np.array(values) for name, values in parts.items()}
            made = Correction.mirrored(float(variance), **arrays)
            print(
                f"{path.stem} for {variance}: {len(made.weights)} parts, error {made.error:.2e}, "
                f"variance {made.variance:.6f}"
            )


if __name__ == "__main__":
    main()
