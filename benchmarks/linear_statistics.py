"""Coverage and error of linear regressions by one noisy sum, beside the default method.

    python benchmarks/linear_statistics.py                    # some minutes
    python benchmarks/linear_statistics.py --repeats 5 --methods statistics
    python benchmarks/linear_statistics.py --polynomial          # logistic and Poisson regression, seconds

Predictors are uniform on [-1, 1], coefficients are normal with standard deviation .7, the outcome has a standard
deviation between .4 and 1.2 given its mean, and is declared to be within -5 and 5. Every table is fitted at epsilon 1.
"cover 90" is the share of 90% intervals of coefficients that hold the truth; "error" and "exact" are root mean
square errors of the posterior means and of least squares on the rows. "draws" and "r_hat" are those of the worst
number of the worst table. "seconds" is the median time of a fit that is compiled already.
"""

import argparse
import time

import numpy as np

import tacit

BUDGET = tacit.Budget(1, 1e-5)
METHODS = {"statistics": tacit.Statistics, "default": tacit.Scoring}
HEADER = ["rows", "coefficients", "method", "tables", "cover 90", "error", "exact", "draws", "r_hat", "seconds"]  # fmt: skip


def tables(count, size, repeats, seed):
    """Tables with the truth of each."""
    for i in range(repeats):
        rng = np.random.default_rng([seed, count, size, i])
        x, weights = rng.uniform(-1, 1, (size, count)), 0.7 * rng.standard_normal(count + 1)
        noise = rng.uniform(0.4, 1.2) * rng.standard_normal(size)
        y = np.clip(weights[0] + x @ weights[1:] + noise, -5, 5)
        yield {**{f"x{j}": x[:, j] for j in range(count)}, "y": y}, weights


def cell(name, count, size, repeats, seed):
    """One line of the table."""
    columns = {f"x{j}": tacit.Number(-1, 1) for j in range(count)} | {"y": tacit.Number(-5, 5)}
    model = tacit.glm(f"y ~ {' + '.join(list(columns)[:-1])}", schema=tacit.Schema(columns))
    plan = tacit.plan(model, budget=BUDGET, method=METHODS[name]())
    held, errors, exact, mixing, seconds = [], [], [], [], []
    for i, (table, truth) in enumerate(tables(count, size, repeats, seed)):
        began = time.perf_counter()
        post = tacit.fit(plan, table, seed=i)
        seconds.append(time.perf_counter() - began)
        found = np.stack([v for n, v in post.draws.items() if n != "sigma"], axis=1)
        low, high = np.quantile(found, [0.05, 0.95], axis=0)
        held.append((low <= truth) & (truth <= high))
        errors.append(found.mean(axis=0) - truth)
        x = np.column_stack([np.ones(size), *(table[n] for n in table if n != "y")])
        exact.append(np.linalg.lstsq(x, table["y"], rcond=None)[0] - truth)
        if post.chain:
            sizes, ratios = post.effective_sizes().values(), post.r_hats().values()
            mixing.append((min(map(np.min, sizes)), max(map(np.max, ratios))))
    worst = [f"{min(m[0] for m in mixing):.0f}", f"{max(m[1] for m in mixing):.3f}"] if mixing else ["-", "-"]  # fmt: skip
    root = [f"{np.sqrt(np.mean(np.square(each))):.4f}" for each in (errors, exact)]
    return [f"{size:,}", str(count), name, str(len(held)), f"{np.mean(held):.2f}", *root, *worst, f"{np.median(seconds):.1f}"]  # fmt: skip


def logistic(rng, predictor):
    """Outcomes -1 or 1, whose log-likelihood is a function of y times the predictor."""
    return 2 * (rng.random(len(predictor)) < 1 / (1 + np.exp(-predictor))) - 1


def counts(rng, predictor):
    """Counts up to 20, as a schema would bound them."""
    return np.minimum(rng.poisson(np.exp(predictor)), 20)


def nearest(function, within):
    """The quadratic that is nearest to a function at Chebyshev's points: second, first and no order."""
    at = within * np.cos(np.pi * (np.arange(400) + 0.5) / 400)
    return np.polyfit(at, function(at), 2)


def polynomial(family, size, count, repeats=20):
    """Coverage and error of a regression by polynomial statistics, without noise and at epsilon 1.

    The likelihood of the predictor is replaced by a quadratic (Huggins et al. 2017, Kulkarni et al. 2021), so that
    the sums of x x' and x y suffice: of the logistic one on [-4, 4], and of Poisson's y t - exp(t) on [-2, 2]. Counts are divided by their bound before noise is added. The covariance includes the noise to first order.
    """
    poisson = family is counts
    if poisson:
        second, first, _ = -nearest(np.exp, 2.0)
        slope, most = 1.0, 20.0
    else:
        second, slope, _ = nearest(lambda t: -np.log1p(np.exp(-t)), 4.0)
        first, most = 0.0, 1.0
    scale = 3.73 * np.sqrt((count + 1) * (count + 2) / 2)  # the noise of that many products
    held, errors = {0.0: [], scale: []}, {0.0: [], scale: []}
    for i in range(repeats):
        rng = np.random.default_rng([78 if poisson else 77, size, count, i])
        x = np.column_stack([np.ones(size), rng.uniform(-1, 1, (size, count - 1))])
        truth = rng.normal(size=count) * (0.3 if poisson else 1.0)
        y = family(rng, x @ truth)
        for noise in (0.0, scale):
            square = np.triu(rng.standard_normal((count, count)))
            products = x.T @ x + noise * (square + np.triu(square, 1).T)
            bend = -2 * second * products + np.eye(count) / 2.5**2
            told = x.T @ y + noise * most * rng.standard_normal(count)
            mean = np.linalg.solve(bend, slope * told + first * products[:, 0])
            extra = noise**2 * ((slope * most) ** 2 + first**2 + 4 * second**2 * (mean @ mean))
            inverse = np.linalg.inv(bend)
            spread = np.sqrt(np.diag(inverse @ (bend + extra * np.eye(count)) @ inverse))
            held[noise].append(np.abs(mean - truth) < 1.645 * spread)
            errors[noise].append(mean - truth)
    for noise, each in held.items():
        line = [family.__name__, f"{size:,}", str(count), "1" if noise else "no noise"]
        line += [f"{np.mean(each):.2f}", f"{np.sqrt(np.mean(np.square(errors[noise]))):.3f}"]
        print(f"| {' | '.join(line)} |", flush=True)


def main(given=None):
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--counts", nargs="+", type=int, default=[5, 10])
    parser.add_argument("--sizes", nargs="+", type=int, default=[2000, 20_000])
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--seed", type=int, default=12)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--polynomial", action="store_true", help="logistic and Poisson instead")
    chosen = parser.parse_args(given)
    if chosen.polynomial:
        print(
            "| outcome | rows | coefficients | epsilon | cover 90 | error |\n|---|---|---|---|---|---|"
        )
        for family in (logistic, counts):
            for size, count in ((2000, 5), (20_000, 5), (20_000, 10)):
                polynomial(family, size, count, chosen.repeats)
        return
    print(f"| {' | '.join(HEADER)} |\n|{'---|' * len(HEADER)}", flush=True)
    for count in chosen.counts:
        for size in chosen.sizes:
            for name in chosen.methods:
                line = cell(name, count, size, chosen.repeats, chosen.seed)
                print(f"| {' | '.join(line)} |", flush=True)


if __name__ == "__main__":
    main()
