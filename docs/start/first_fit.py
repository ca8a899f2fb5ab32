# %% [markdown]
# # Your first private fit
#
# You will fit a logistic regression to a survey of 6,366 women, so that the result tells little about any one of them.
# [Install Tacit](install.md) with the extra `demo`, and run the cells in a notebook or a Python console, in an empty folder.

# %%
from statsmodels.datasets import fair

import tacit

women = fair.load_pandas().data
women["affair"] = (women.affairs > 0).astype(int)
print(women[["rate_marriage", "yrs_married", "religious", "affair"]].head(3))

# %% [markdown]
# **These data are public.** They were published in 1978 and come with statsmodels. This page may therefore print rows, and compare
# the private fit with the exact one. With data of your own, do neither where somebody else can see it.
#
# ## 1. Say what is public
#
# A usual fit learns more from the rows than coefficients: the range of each column, its mean, its levels. Each of these is a fact
# about people. The largest age in a table is somebody's age. Tacit therefore reads none of them. You declare them:

# %%
schema = tacit.Schema(
    {
        "rate_marriage": tacit.Number(1, 5),  # 1 very poor, 5 very good
        "yrs_married": tacit.Number(0, 23, measured_in="years"),
        "religious": tacit.Number(1, 4),  # 1 not, 4 strongly
        "affair": tacit.Binary(),
    }
)

# %% [markdown]
# These bounds are the answers that the questionnaire allows. Whoever filled it in, they would be the same. For your data, take bounds
# from the protocol, a code book or common knowledge, never from `women.describe()`. A value outside its bounds is moved to
# the nearest bound. [Bounds and levels](../guides/bounds.md) helps you choose.
#
# ## 2. Open a ledger
#
# Every result tells a little about the people in the data, and several results tell more than one. A ledger limits the total. You
# create it once for a data set, and all analyses of the data are charged to it.

# %%
ledger = tacit.Ledger.new("survey.db", total=tacit.Budget(3, 1e-5), unit="row")
print(ledger.left)

# %% [markdown]
# A row is one woman, so `unit="row"` protects a woman. If your people have several rows, name the column that identifies them:
# `tacit.Schema({...}, person="patient", most_rows=8)`, and `unit="person"`.
#
# ## 3. Fit

# %%
post = tacit.fit(
    "affair ~ rate_marriage + yrs_married + religious",
    women,
    schema=schema,
    epsilon=1,
    ledger=ledger,
)
print(post.summary())

# %% [markdown]
# Read it as any posterior: mean, standard deviation, 90% interval, odds ratio. Three things are new.
#
# - **The noise is in the intervals.** Noise was added before anything left the data, and the intervals are as wide as it requires.
# - **The numbers differ when you run it again**, and from those in the README. Two runs should agree within their intervals.
# - **The last line is the price**: what this fit cost, and what the ledger has left.
#
# ## 4. Compare with the exact fit
#
# Only because these data are public: the same model without privacy, beside the private one. With data of your own, leave this
# out. The exact fit protects nobody.

# %%
exact = tacit.fit_without_privacy(
    "affair ~ rate_marriage + yrs_married + religious", women, schema=schema
)
figure = tacit.results.plots.plot_comparison(
    {"not private": exact, "epsilon 1": post},
    "Log-odds of an affair: means, 50% and 90% intervals",
    units={"yrs_married": 10},
)

# %% [markdown]
# <!-- alt: Log-odds of an affair by the exact fit and by the private fit: means, 50% and 90% intervals -->
#
# How much wider will intervals be for your data? [A forecast](../guides/sample_size.md) says so before the fit, from simulated tables.
#
# ## 5. What epsilon 1 means for one woman
#
# Imagine somebody who knows the answers of all the other women, and wants to know whether one more took part. Before the
# result they can only toss a coin, and are right half of the time. After it:

# %%
for epsilon in (0.1, 1, 3):
    guess = tacit.Budget(epsilon, 1e-6).best_guess
    print(f"epsilon {epsilon}: right at most about {guess:.1%} of the time")

# %% [markdown]
# This holds whatever they know and however they compute. `delta` allows the bound to fail with a small probability: choose it well
# below one over the number of people. [Choosing epsilon and delta](../guides/epsilon.md) has more.
#
# ## 6. Use the result
#
# Whatever follows from the posterior alone costs nothing more: plots, effects, predictions.

# %%
new = {"rate_marriage": [5, 2], "yrs_married": [1, 16], "religious": [4, 1]}
print("chance of an affair:", post.predict(new).round(2))
print(post.comparisons("rate_marriage", values=(2, 5)))

# %% [markdown]
# ## 7. What remains
#
# The ledger started with epsilon 3. Each entry names the model, who fitted it and when.

# %%
for charge in ledger.charges:
    print(charge.label, "cost epsilon", charge.epsilon)
print("left:", ledger.left)

# %% [markdown]
# A fit that would cost more than is left is refused, before a row is used:

# %%
try:
    tacit.fit(
        "affair ~ rate_marriage",
        women,
        schema=schema,
        epsilon=2.5,
        ledger=ledger,
    )
except tacit.BudgetError as error:
    print(error)

# %% [markdown]
# Nothing was charged. `ledger = tacit.Ledger("survey.db")` opens the same ledger tomorrow; there is no second `new` for
# these data.
#
# ## Next
#
# - With a CSV file and a shell: [from your CSV to a report for the ethics board](csv_to_report.md).
# - For your model: [brms and Bambi](brms_bambi.md), [NumPyro and PyMC](numpyro_pymc.md), [scikit-learn](sklearn.md).
# - To understand why it works: [differential privacy in ten minutes for a Bayesian](../concepts/differential_privacy.md).
