"""A researcher's models: a hierarchy in NumPyro with missing covariates, and a model of PyMC's documentation.

python examples/hierarchical.py
"""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pymc as pm

import tacit

# Eight hospitals, and a body mass index that is rarely measured where nobody is ill.
rng = np.random.default_rng(33)
hospital = rng.integers(0, 8, 6000)
age, bmi = rng.uniform(20, 90, 6000), rng.normal(27, 4, 6000)
logit = rng.normal(-0.5, 0.6, 8)[hospital] + 0.6 * (bmi - 27) / 4 + 0.7 * (age - 55) / 35
ill = rng.logistic(size=6000) < logit
gap = rng.uniform(size=6000) < np.where(ill, 0.1, 0.6)
patients = {
    "hospital": [f"H{number}" for number in hospital],
    "age": age,
    "bmi": np.where(gap, np.nan, bmi),
    "ill": np.where(ill, "yes", "no"),
}
schema = tacit.Schema(
    {
        "hospital": tacit.Category([f"H{number}" for number in range(8)]),
        "age": tacit.Number(20, 90, scaled=True),
        "bmi": tacit.Number(15, 50, missing="keep"),  # NaN, for the model to treat
        "ill": tacit.Binary(),
    }
)


def partial_pooling(hospital, age, bmi, ill=None):
    """Levels of hospitals are pooled; a missing index is integrated out, given those that are known."""
    level = numpyro.sample("level", dist.Normal(0, 2))
    spread = numpyro.sample("spread", dist.HalfNormal(1))
    slopes = numpyro.sample("slopes", dist.Normal(0, 1).expand([2]).to_event(1))
    mean = numpyro.sample("mean", dist.Normal(27, 3))
    sd = numpyro.sample("sd", dist.HalfNormal(6))
    with numpyro.plate("levels", 8):
        hospitals = numpyro.sample("hospitals", dist.Normal(level, spread))
    missing = jnp.isnan(bmi)
    known = jnp.where(missing, 27.0, bmi)
    with numpyro.plate("patients", age.shape[0]):
        with numpyro.handlers.mask(mask=~missing):
            numpyro.sample("measured", dist.Normal(mean, sd), obs=known)
        unknown = numpyro.sample("unknown", dist.Normal(0, 1))
        weight = (jnp.where(missing, mean + sd * unknown, known) - 27) / 4
        logit = hospitals[hospital] + slopes[0] * age + slopes[1] * weight
        numpyro.sample("ill", dist.Bernoulli(logits=logit), obs=ill)


model = tacit.models.NumPyro(
    partial_pooling,
    integrate=["unknown"],
    labels={"slopes": [["age", "bmi"]], "hospitals": [schema["hospital"].labels]},
)
plan = tacit.plan(model, schema, budget=tacit.Budget(3, 1e-6))
print(plan, end="\n\n")
post = tacit.fit(plan, patients)
print("Slopes were simulated as 0.7 and 0.6, the index as 27 ± 4:")
print(post.summary(), end="\n\n")

# The linear regression of PyMC's introduction. The lines that differ are marked.
x1, x2 = rng.standard_normal(3000), 0.2 * rng.standard_normal(3000)
y = 1 + x1 + 2.5 * x2 + rng.standard_normal(3000)

with pm.Model() as basic_model:
    X1, X2, Y = (pm.Data(name, np.zeros(1), dims="row") for name in ("X1", "X2", "Y"))  # new

    # Priors for unknown model parameters
    alpha = pm.Normal("alpha", mu=0, sigma=10)
    beta = pm.Normal("beta", mu=0, sigma=10, shape=2)
    sigma = pm.HalfNormal("sigma", sigma=1)

    # Expected value of outcome
    mu = alpha + beta[0] * X1 + beta[1] * X2

    # Likelihood (sampling distribution) of observations
    Y_obs = pm.Normal("Y_obs", mu=mu, sigma=sigma, observed=Y)  # Y was an array

bounds = {"X1": tacit.Number(-4, 4), "X2": tacit.Number(-1, 1), "Y": tacit.Number(-10, 10)}
post = tacit.fit(basic_model, {"X1": x1, "X2": x2, "Y": y}, schema=tacit.Schema(bounds), epsilon=1)
print("Simulated with alpha 1, beta 1 and 2.5, sigma 1:")
print(post.summary())
