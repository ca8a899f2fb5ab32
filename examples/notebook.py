"""A data scientist's notebook: a frame, one call, ArviZ, effects, and an estimator of scikit-learn.

Its cells begin with # %%, as Jupytext and VS Code read them. Or run python examples/notebook.py.
"""

# %%
import arviz as az
import numpy as np
import pandas as pd

import tacit

rng = np.random.default_rng(33)
visits = pd.DataFrame(
    {
        "age": rng.integers(18, 95, 8000),
        "dose": rng.uniform(0, 50, 8000).round(1),
        "ward": rng.choice(["medical", "surgical", "geriatric"], 8000),
    }
)
logit = -1 + 0.025 * (visits.age - 59) - 0.04 * (visits.dose - 25) + (visits.ward == "geriatric")
visits["readmitted"] = np.where(rng.logistic(size=8000) < logit, "yes", "no")

# %% What has to be declared? The draft uses names and types, and no value.
print(tacit.Schema.draft(visits))

# %%
schema = tacit.Schema(
    {
        "age": tacit.Number(18, 100, measured_in="years"),
        "dose": tacit.Number(0, 50, measured_in="mg"),
        "ward": tacit.Category(["medical", "surgical", "geriatric"]),
        "readmitted": tacit.Binary(),
    }
)
print(schema.check(visits))

# %% One call. Without a ledger, nothing limits how often these data are used; the result says so.
post = tacit.fit("readmitted ~ age + dose + ward", visits, schema=schema, epsilon=1)
print(post.summary())

# %% ArviZ shows the same parameters in the same units, as do draws, plots and files.
tree = post.to_datatree()
print(az.summary(tree, kind="stats"))
print(f"mean of the draws of age: {post.draws['age'].mean():.3f}")
post.plot_forest(path="forest.png")
post.plot_trace(path="trace.png")
post.save("readmission.nc")
loaded = tacit.Posterior.load("readmission.nc")
print(loaded.summary().to_pandas()[["mean", "sd"]])

# %% Effects on the scale of the outcome, which cost nothing.
print(post.predictions({"age": [30, 60, 90], "ward": ["medical", "geriatric"]}))
print(post.comparisons("ward"))
print(post.slopes("age"))
print(f"P(dose < 0) = {post.probability('dose < 0'):.3f}")
loaded.plot_predictions("age", by="ward", path="predictions.png")

# %% The same as an estimator of scikit-learn.
features = visits[["age", "dose"]]
model = tacit.PrivateBayesClassifier(
    epsilon=1, bounds=([18, 0], [100, 50]), classes=["no", "yes"], preprocessing="none"
)
model.fit(features, visits.readmitted)
coefficients = pd.DataFrame({"coefficient": model.coef_[0]}, index=model.feature_names_in_)
print(coefficients, f"intercept {model.intercept_[0]:.3f}", sep="\n")
print(model.posterior_.summary())

# %% Another method by its name. Its summary says that its intervals leave out the noise.
quick = tacit.fit(
    "readmitted ~ age + dose + ward", visits, schema=schema, epsilon=1, method="variational"
)
print(quick.summary())
