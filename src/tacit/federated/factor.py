"""Factors: q is the prior times one factor for each site, and stays a distribution.

A site's factor may be no distribution by itself, its precision negative. What must be one is q,
and every cavity: q without one site's factor, from which that site starts. If a change would end
that, the largest share of it is taken that does not.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from tacit.federated.natural import Family, Vector


def cavity(posterior: Vector, factor: Vector) -> Vector:
    """The posterior without one site."""
    return posterior - factor


def shared_factor(posterior: Vector, prior: Vector, sites: int) -> Vector:
    """What each site would have if all had contributed alike: a function of public numbers."""
    return (posterior - prior) / sites


def largest_share(
    family: Family,
    posterior: Vector,
    change: Vector,
    cavities: Mapping[str, Vector],
    own: Mapping[str, Vector],
    damping: float,
) -> Vector:
    """The largest share of a change, at most ``damping``, that keeps q and all cavities proper.

    A share for each number: where coordinates are independent, one that must be held back does
    not hold the others.

    A site's own part of the change, in ``own``, goes into its factor and leaves its cavity as it
    was. The proper vectors of a family are a convex set that holds q and the cavities, so that
    every smaller share keeps them proper as well.
    """
    steps: list[tuple[Vector, Vector]] = [(posterior, change)]
    steps += [(each, change - own.get(name, 0.0)) for name, each in cavities.items()]
    shares = [family.largest_step(eta, damping * step) for eta, step in steps]
    return damping * np.asarray(np.min(np.stack(shares), axis=0), np.float64)


def total(changes: Sequence[Vector]) -> Vector:
    """The sum of changes, in the order given."""
    return np.asarray(np.sum(np.stack(changes), axis=0), np.float64)
