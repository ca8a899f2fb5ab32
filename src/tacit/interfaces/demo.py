"""The demonstration: a private logistic regression on scikit-learn's breast-cancer data.

569 women, three measurements of cell nuclei each, and whether the tumour was malignant.
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import numpyro
from numpy.typing import NDArray
from numpyro import distributions as dist

from tacit.accounting import Budget
from tacit.data.columns import Binary, Number
from tacit.data.schema import Schema
from tacit.errors import TacitError
from tacit.interfaces.fit import fit, fit_without_privacy
from tacit.interfaces.plan import Plan, plan
from tacit.results.posterior import Posterior

# Plausible ranges in the units of the data, from the definitions of the measurements and not from
# these rows.
BOUNDS = {"radius": (5, 30), "texture": (8, 42), "concave_points": (0.0, 0.22)}
_PLACES = {"radius": 0, "texture": 1, "concave_points": 7}  # among the columns of the data
SCHEMA = Schema(
    {name: Number(low, high, scaled=True) for name, (low, high) in BOUNDS.items()}
    | {"malignant": Binary()}
)
_TEST = 114  # every fifth woman is held out


def model(
    radius: jax.Array,
    texture: jax.Array,
    concave_points: jax.Array,
    malignant: jax.Array | None = None,
) -> None:
    """Logistic regression; each measurement runs from -1 to 1 within its bounds."""
    logit = numpyro.sample("intercept", dist.Normal(0, 3))
    logit += numpyro.sample("radius", dist.Normal(0, 3)) * radius
    logit += numpyro.sample("texture", dist.Normal(0, 3)) * texture
    logit += numpyro.sample("concave_points", dist.Normal(0, 3)) * concave_points
    with numpyro.plate("women", radius.shape[0]):
        numpyro.sample("malignant", dist.Bernoulli(logits=logit), obs=malignant)


def demo_plan(budget: Budget) -> Plan:
    """The plan of the demonstration. Reads no data."""
    return plan(model, SCHEMA, budget=budget)


def run(budget: Budget, tell: Callable[[str], None]) -> Posterior:
    """Fits with and without privacy, and prints both."""
    training, test = _tables()
    planned = demo_plan(budget)
    tell(
        f"Three measurements of cell nuclei, {len(BOUNDS) + 1} parameters, and whether the tumour was "
        "malignant;\nscikit-learn's breast-cancer data. Private Bayesian logistic regression:\n"
    )
    private = fit(planned, training)
    tell(f"{private.summary()}\n")
    open_book = fit_without_privacy(planned.model, training, schema=SCHEMA)
    tell("Accuracy on held-out women")
    tell(f"  private, epsilon {budget.epsilon:g}    {_accuracy(private, test):.1%}")
    tell(f"  not private           {_accuracy(open_book, test):.1%}")
    tell(
        "These accuracies are computed from rows without protection. Outside a demonstration, compute\n"
        "them on public data, or release them within the budget.\n"
    )
    tell("Privacy cost of the private fit")
    tell(str(private.privacy))
    return private


def _tables() -> tuple[dict[str, NDArray[Any]], dict[str, NDArray[Any]]]:
    try:
        from sklearn.datasets import load_breast_cancer
    except ImportError as error:
        raise TacitError(
            "The demonstration needs scikit-learn: pip install 'tacit[sklearn]'."
        ) from error
    data = load_breast_cancer()
    table = {name: data.data[:, place] for name, place in _PLACES.items()}
    table["malignant"] = 1 - data.target
    order = np.random.default_rng(0).permutation(len(data.target))
    held, kept = order[:_TEST], order[_TEST:]
    return {n: v[kept] for n, v in table.items()}, {n: v[held] for n, v in table.items()}


def _accuracy(posterior: Posterior, test: dict[str, NDArray[Any]]) -> float:
    chance = np.asarray(posterior.predict(test))
    return float(np.mean((chance > 0.5) == test["malignant"]))
