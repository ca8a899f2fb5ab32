"""Maximum likelihood in double precision, to compare fits with."""

import numpy as np
from scipy.optimize import minimize


def by_numbers(log_likelihood, start):
    """The maximum of a log-likelihood, and standard errors by its curvature, in double precision."""

    def loss(v):
        with np.errstate(all="ignore"):
            value = -np.sum(log_likelihood(v))
        return value if np.isfinite(value) else 1e10

    found = minimize(loss, start, method="BFGS", options={"gtol": 1e-4})
    size, step = len(found.x), 1e-4
    at = np.eye(size) * step
    hessian = [
        [
            (
                loss(found.x + a + b)
                - loss(found.x + a - b)
                - loss(found.x - a + b)
                + loss(found.x - a - b)
            )
            / (4 * step**2)
            for b in at
        ]
        for a in at
    ]
    return found.x, np.sqrt(np.diag(np.linalg.inv(hessian)))
