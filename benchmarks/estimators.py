"""The scikit-learn estimators on scikit-learn's own tables: held-out error, and coverage.

    python benchmarks/estimators.py                       # 10 splits of each table; some minutes
    python benchmarks/estimators.py --method variational  # another method than the default

Each table is split at random into 70% training and 30% test rows. Bounds are the ranges of the
columns, and a table has few rows: this compares methods, and is no example of how to choose bounds.
"error" is the share of wrong classes, or the root mean square error over the standard deviation of
the target. "plain" is the same error of the model fitted without privacy. "cover" is the share of
coefficients whose 90% interval contains the mean that the model has without privacy on the same
rows; it is above 90% where noise is all that matters. "width" is the median width of these
intervals.
"""

import argparse
import time
import warnings
from dataclasses import dataclass

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.model_selection import train_test_split

import tacit
from tacit.api.sklearn import scale_to_bounds
from tacit.models.jax_model import (
    classification_model,
    regression_model,
    unscale_regression_draws,
)

DELTA = 1e-4
METHODS = {"default": None, "variational": tacit.Variational(), "scoring": tacit.Scoring()}


@dataclass(frozen=True)
class Line:
    """What one fit was worth."""

    error: float
    plain: float
    cover: float
    width: float
    converged: bool
    seconds: float


def breast_cancer(epsilon, method, size, seed):
    x, y = load_breast_cancer(return_X_y=True)
    bounds = x.min(axis=0), x.max(axis=0)
    train, test, target, truth = train_test_split(x, y, test_size=0.3, random_state=seed)
    model = tacit.PrivateBayesClassifier(
        classes=[0, 1], **_common(epsilon, method, size, seed, bounds)
    )
    kind = tacit.Binary()
    exact = _exact(
        classification_model(x.shape[1], 2, 2.5).unit_model,
        kind,
        scale_to_bounds(train, *bounds),
        target,
    )
    start = time.perf_counter()
    model.fit(train, target)
    seconds = time.perf_counter() - start
    score = exact["intercept"][:, None] + exact["coefficients"] @ scale_to_bounds(test, *bounds).T
    plain = np.mean((1 / (1 + np.exp(-score))).mean(axis=0).round() != truth)
    return Line(1 - model.score(test, truth), plain, *_compared(model, exact, bounds), seconds)


def diabetes(epsilon, method, size, seed):
    x, y = load_diabetes(return_X_y=True)
    bounds, limits = (x.min(axis=0), x.max(axis=0)), (25.0, 346.0)
    train, test, target, truth = train_test_split(x, y, test_size=0.3, random_state=seed)
    model = tacit.PrivateBayesRegressor(
        target_bounds=limits, **_common(epsilon, method, size, seed, bounds)
    )
    kind = tacit.Number(*limits, scaled=True)
    found = _exact(
        regression_model(x.shape[1], 1.0).unit_model, kind, scale_to_bounds(train, *bounds), target
    )
    exact = unscale_regression_draws(found)
    start = time.perf_counter()
    model.fit(train, target)
    seconds = time.perf_counter() - start
    score = exact["intercept"][:, None] + exact["coefficients"] @ scale_to_bounds(test, *bounds).T
    means = limits[0] + (score.mean(axis=0) + 1) / 2 * (limits[1] - limits[0])
    error = [np.sqrt(np.mean((m - truth) ** 2)) / y.std() for m in (model.predict(test), means)]
    wide = (limits[1] - limits[0]) / 2
    return Line(*error, *_compared(model, exact, bounds, wide), seconds)


def _common(epsilon, method, size, seed, bounds):
    return {
        "epsilon": epsilon,
        "delta": DELTA,
        "bounds": bounds,
        "preprocessing": "none",
        "method": METHODS[method],
        "size": size,
        "random_state": seed,
    }


def _exact(model, kind, features, target):
    """Draws without privacy, by the Laplace approximation."""
    columns = tacit.Number(-1, 1, shape=features.shape[1:])
    schema = tacit.Schema({"features": columns, "target": kind})
    table = {"features": features, "target": target}
    return tacit.fit_without_privacy(model, table, schema=schema).draws


def _compared(model, exact, bounds, wide=1.0):
    # An estimator's coefficients are per one of a feature; these are for features scaled to [-1, 1].
    units = (bounds[1] - bounds[0]) / 2 / wide
    low, high = (units * end for end in model.posterior_.interval(0.9)["coefficients"])
    centre = np.mean(exact["coefficients"], axis=0)
    inside = np.mean((low <= centre) & (centre <= high))
    return inside, np.median(high - low), model.converged_ is not False


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--method", choices=METHODS, default="default")
    parser.add_argument("--size", type=int, default=None)
    parser.add_argument("--splits", type=int, default=10)
    asked = parser.parse_args()
    print(f"epsilon {asked.epsilon:g}, delta {DELTA:g}, {asked.method}, size {asked.size}")
    print("table          error (sd)      plain   cover   width  converged  seconds")
    for table in (breast_cancer, diabetes):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            lines = [
                table(asked.epsilon, asked.method, asked.size, seed) for seed in range(asked.splits)
            ]
        mean = {n: np.mean([vars(each)[n] for each in lines]) for n in vars(lines[0])}
        spread = np.std([each.error for each in lines])
        print(
            f"{table.__name__:14s} {mean['error']:.3f} ({spread:.3f})  {mean['plain']:6.3f}  "
            f"{mean['cover']:5.0%}  {mean['width']:6.2f}  {mean['converged']:8.0%}  "
            f"{mean['seconds']:7.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
