"""Factors: the posterior q is the prior times one factor for each site, and stays a distribution.

A factor need not be a distribution by itself: its precision may be negative. But q must be one, and so must
every cavity, which is q without the factor of one site. If a change would make one of them improper, only
the largest possible share of the change is applied.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from tacit.models.natural import ExponentialFamily, Vector


def cavity(posterior: Vector, factor: Vector) -> Vector:
    """The posterior without the factor of one site."""
    return posterior - factor


def shared_factor(posterior: Vector, prior: Vector, sites: int) -> Vector:
    """The factor of each site if all contributed equally; it depends on public numbers only."""
    return (posterior - prior) / sites


def largest_share(
    family: ExponentialFamily,
    posterior: Vector,
    change: Vector,
    cavities: Mapping[str, Vector],
    own: Mapping[str, Vector],
    damping: float,
) -> Vector:
    """The largest share of a change, at most ``damping``, that keeps q and all cavities proper.

    There is a share for each entry, so that independent coordinates do not hold each other back. The proper
    vectors of a family are a convex set, so every smaller share keeps them proper as well.

    Args:
        family: The family of the posterior.
        posterior: Natural parameters of q.
        change: The change of q.
        cavities: The cavity of each site, by name.
        own: The part of the change that goes into the factor of a site, by name. It does not change the
            cavity of that site.
        damping: The largest share.

    Returns:
        The share of each entry.
    """
    steps: list[tuple[Vector, Vector]] = [(posterior, change)]
    steps += [(each, change - own.get(name, 0.0)) for name, each in cavities.items()]
    shares = [family.largest_step(eta, damping * step) for eta, step in steps]
    return damping * np.asarray(np.min(np.stack(shares), axis=0), np.float64)


def total(changes: Sequence[Vector]) -> Vector:
    """The sum of changes, in the order given."""
    return np.asarray(np.sum(np.stack(changes), axis=0), np.float64)
