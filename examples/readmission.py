"""Five minutes: a registry of hospital visits, simulated, from schema to prediction.

python examples/readmission.py
"""

import numpy as np
import numpyro
import numpyro.distributions as dist

import tacit

# Visits to a hospital by 6,000 patients. Yours would come from a data frame.
rng = np.random.default_rng(0)
patient = rng.integers(0, 6000, size=20_000)
visits = {
    "patient": patient,
    "age": rng.integers(18, 95, size=6000)[patient],
    "dose": rng.uniform(0, 50, size=20_000),
    "ward": rng.choice(["medical", "surgical", "geriatric"], size=20_000),
}
logit = (
    -1 + (visits["age"] - 59) / 41 - (visits["dose"] - 25) / 25 + (visits["ward"] == "geriatric")
)
visits["readmitted"] = rng.uniform(size=20_000) < 1 / (1 + np.exp(-logit))

# What is public: bounds and levels from the protocol, and at most 8 visits of a patient count.
schema = tacit.Schema(
    {
        "age": tacit.Number(18, 100, scaled=True),  # runs from -1 to 1 in the model
        "dose": tacit.Number(0, 50, scaled=True),
        "ward": tacit.Category(["medical", "surgical"], other="other"),
        "readmitted": tacit.Binary(),
    },
    person="patient",
    most_rows=8,
)


def model(age, dose, ward, readmitted=None):  # argument names are columns
    b = numpyro.sample("b", dist.Normal(0, 1).expand([2]).to_event(1))
    with numpyro.plate("wards", 3):
        u = numpyro.sample("u", dist.Normal(0, 1))
    with numpyro.plate("visits", age.shape[0]):
        logit = b[0] * age + b[1] * dose + u[ward]
        numpyro.sample("readmitted", dist.Bernoulli(logits=logit), obs=readmitted)


plan = tacit.plan(model, schema, budget=tacit.Budget(1, 1e-6))  # no data yet
print(plan, end="\n\n")

ledger = tacit.Ledger.new("registry.db", total=tacit.Budget(3, 1e-5), unit="person")
post = tacit.fit(plan, visits, ledger=ledger)
print(post.summary(), end="\n\n")
print(post.privacy, end="\n\n")

new = {"age": [30, 80], "dose": [40, 10], "ward": ["medical", "palliative"]}
print("chance of readmission:", post.predict(new).round(2))
post.save("readmission.nc")  # arviz.from_netcdf reads it
