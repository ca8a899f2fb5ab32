"""Tempered likelihoods: the data count as fewer units, by public numbers."""

from tacit import _validate
from tacit.errors import InvalidArgument


def tempering(size: int | None, tempered_size: float | None) -> float:
    """The factor that the log-likelihood is multiplied by; 1 without a tempered size.

    Args:
        size: A public number of units.
        tempered_size: The number of units that the data count as.

    Returns:
        ``tempered_size / size``, or 1.

    Raises:
        InvalidArgument: If the sizes are wrong.
    """
    if size is not None:
        _validate.count("size", size)
    if tempered_size is None:
        return 1.0
    if size is None:
        raise InvalidArgument("tempered_size needs size=, the public number of units.")
    if _validate.positive("tempered_size", tempered_size) > size:
        raise InvalidArgument(f"tempered_size must be at most size, {size}; got {tempered_size}.")
    return tempered_size / size


def coarsened_size(size: int, coarsening: float) -> float:
    """The tempered size N0 = N beta / (N + beta) of the coarsened posterior.

    The coarsened posterior conditions only on the data being within an exponentially distributed
    distance, of rate beta, of the observed data (Miller and Dunson 2019).

    Args:
        size: The public number of units, N.
        coarsening: The rate, beta.

    Returns:
        The tempered size, for ``tempered_size=``.

    Examples:
        >>> coarsened_size(1000, 1000.0)
        500.0
    """
    units, beta = _validate.count("size", size), _validate.positive("coarsening", coarsening)
    return units * beta / (units + beta)
