"""Models of arrays, for scikit-learn's estimators: their draws come from their densities."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from single_rows import row_log_likelihood, simulate_row

from tacit.models.jax_model import classification_model, regression_model

DRAWS = 20_000
ROW = {"features": jnp.array([0.3, -0.8], jnp.float32)}


def outcomes(model, vector, target):
    keys = jax.random.split(jax.random.key(0), DRAWS)
    row = {**ROW, "target": target}
    drawn = jax.jit(jax.vmap(lambda key: simulate_row(model, key, vector, row)["target"]))(keys)
    return np.asarray(drawn)


@pytest.mark.parametrize("classes", [2, 4])
def test_classes_are_drawn_with_their_probabilities(classes):
    model = classification_model(2, classes, 2.5).unit_model
    vector = jax.random.normal(jax.random.key(1), (model.dimension,))
    found = outcomes(model, vector, jnp.int32(0))
    density = [
        row_log_likelihood(model, vector, {**ROW, "target": jnp.int32(c)}) for c in range(classes)
    ]
    expected = np.exp(np.asarray(density, np.float64))
    assert expected.sum() == pytest.approx(1, abs=1e-5)
    counts = np.bincount(found, minlength=classes)
    assert stats.chisquare(counts, DRAWS * expected / expected.sum()).pvalue > 1e-6


def test_targets_are_normal_around_the_linear_predictor():
    model = regression_model(2, 1.0).unit_model
    params = {"intercept": 1.0, "coefficients": np.array([0.5, -2.0]), "root": 4.0}
    found = outcomes(model, model.unconstrain(params), jnp.float32(0))
    # In units of the errors' standard deviation, which is 1 / root.
    centre = (1.0 + 0.5 * 0.3 + 2.0 * 0.8) / 4
    assert stats.kstest(found, stats.norm(centre, 0.25).cdf).pvalue > 1e-6
