"""A whole study on one ledger: explore, forecast, fit, check, compare and share.

The table is simulated, so that the script runs anywhere. Every number that it prints about the table has an interval that contains
the noise of privacy, and the ledger at the end has all that was spent.
"""

import tempfile
from pathlib import Path

import numpy as np

import tacit

# 8,000 visits of a clinic, one for each person. Yours would come from a file.
rng = np.random.default_rng(2)
n = 8000
table = {
    "age": rng.integers(20, 90, size=n),
    "dose": rng.uniform(0, 50, size=n).round(1),
    "ward": rng.choice(["medical", "surgical", "geriatric"], size=n, p=[0.5, 0.3, 0.2]),
}
logit = (
    -1 + (table["age"] - 55) / 30 - (table["dose"] - 25) / 40 + (table["ward"] == "geriatric") * 0.8
)
table["readmitted"] = rng.uniform(size=n) < 1 / (1 + np.exp(-logit))

# What is public about them.
schema = tacit.Schema(
    {
        "age": tacit.Number(18, 100, measured_in="years"),
        "dose": tacit.Number(0, 50, measured_in="mg"),
        "ward": tacit.Category(["medical", "surgical", "geriatric"]),
        "readmitted": tacit.Binary(),
    }
)
folder = Path(tempfile.mkdtemp())
ledger = tacit.Ledger.new(folder / "study.db", total=tacit.Budget(4, 1e-4), unit="row")

# 1. Explore: counts, means and quantiles, for a charge of 0.5.
look = tacit.explore(
    table,
    schema=schema,
    tables=["age", "dose", ("ward", "readmitted"), ("age", "readmitted"), ("dose", "readmitted")],
    epsilon=0.5,
    ledger=ledger,
)
print("1. Explore", look, sep="\n", end="\n\n")

# 2. Forecast what a fit will be worth, from what was released. This is free.
formula = "readmitted ~ age + dose + ward"
forecast = tacit.forecast(
    formula, schema, size=look.size, epsilon=[0.5, 1], scenario=look.scenario(), repeats=4
)
print("2. Forecast", forecast, sep="\n", end="\n\n")

# 3. Fit.
post = tacit.fit(formula, table, schema=schema, epsilon=1, ledger=ledger, progress=False)
risks = post.predictions(at={"age": [30, 80], "ward": ["medical", "geriatric"]})
print("3. Fit", post.summary(), risks.round(3), sep="\n", end="\n\n")

# 4. Check whether the model describes the data.
check = tacit.check(post, table, epsilon=0.5, ledger=ledger)
print("4. Check", check, sep="\n", end="\n\n")

# 5. Compare it with a simpler model, on people who were not fitted.
comparison = tacit.compare(
    {"full": formula, "age only": "readmitted ~ age"},
    table,
    schema=schema,
    epsilon=1,
    ledger=ledger,
    progress=False,
)
print("5. Compare", comparison, sep="\n", end="\n\n")

# 6. Share synthetic tables, made of what was released in step 1. This is free, and so is every analysis of them.
synthetic = look.synthesize(complete=True, sets=50)
print("6. Share", synthetic.fit("readmitted ~ ward"), sep="\n", end="\n\n")

print("Ledger")
for charge in ledger.charges:
    print(f"  epsilon {charge.epsilon:g}: {charge.label}")
print(f"  left: {ledger.left}")
