"""Likelihoods that count for fewer units than there are, by declared public numbers."""

from tacit import _validate
from tacit.errors import InvalidArgument


def tempering(size: int | None, tempered_size: float | None) -> float:
    """What the log-likelihood is multiplied by: one, unless a tempered size is declared.

    ``size`` is a declared, public number of units, and never counted.
    """
    if size is not None:
        _validate.count("size", size)
    if tempered_size is None:
        return 1.0
    if size is None:
        raise InvalidArgument(
            "tempered_size needs size=, a public number of units that it is a part of."
        )
    if _validate.positive("tempered_size", tempered_size) > size:
        raise InvalidArgument(f"tempered_size is at most size, {size}; got {tempered_size}.")
    return tempered_size / size


def coarsened_size(size: int, coarsening: float) -> float:
    """The tempered size N0 = N beta / (N + beta) of the coarsened posterior.

    That is the posterior given only that the data are near what was seen, to within an
    exponentially distributed distance of rate beta = ``coarsening`` (Miller and Dunson 2019).

    >>> coarsened_size(1000, 1000.0)
    500.0
    """
    units, beta = _validate.count("size", size), _validate.positive("coarsening", coarsening)
    return units * beta / (units + beta)
