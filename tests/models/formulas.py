"""A schema, made-up rows of it and models by formula, for the tests of formulas."""

import numpy as np

import tacit

SCHEMA = tacit.Schema(
    {
        "age": tacit.Number(20, 80),
        "dose": tacit.Number(1, 5, scaled=True),
        "visits": tacit.Count(10),
        "sex": tacit.Binary(yes="f", no="m"),
        "ward": tacit.Category(["a", "b", "c"], other="other"),
        "site": tacit.Category(["x", "y"]),
        "only": tacit.Category(["one"]),
        "curve": tacit.Number(0, 1, shape=(4,)),
        "education-num": tacit.Number(1, 16),
        "yes": tacit.Binary(),
        "money": tacit.Number(100, 900),
        "scaled": tacit.Number(100, 900, scaled=True),
        "waiting": tacit.Number(0.1, 60),
        "count": tacit.Count(30),
        "below": tacit.Count(30, low=-5),
        "trials": tacit.Count(12),
    }
)


def table(count, seed=0):
    """Made-up rows, in their own units, that reach both bounds of every number."""
    rng = np.random.default_rng(seed)
    found = {
        "age": rng.uniform(20, 80, count),
        "dose": rng.uniform(1, 5, count),
        "visits": rng.integers(0, 11, count),
        "sex": rng.choice(["f", "m"], count),
        "ward": rng.choice(["a", "b", "c", "other"], count),
        "site": rng.choice(["x", "y"], count),
        "education-num": rng.uniform(1, 16, count),
    }
    for name, ends in {"age": (20, 80), "dose": (1, 5), "visits": (0, 10)}.items():
        found[name][:2] = ends
    return found


def glm(formula, family="gaussian", **settings):
    return tacit.glm(formula, family=family, schema=SCHEMA, **settings)
