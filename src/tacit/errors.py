"""The exceptions that Tacit raises on purpose.

Every message says what was expected, what was found and what to do. No message contains a value
computed from a row, but for the noisy count of `TooFewUnits`, which is a release and charged as one.
"""

import math
from collections.abc import Sequence
from traceback import extract_tb
from typing import Final

DISTRIBUTION: Final = "tacit-bayes"
"""The name to install; the package index has another author's library under the name of the import."""
PACKAGE_EXTRAS: Final = {
    "arviz": "plots",
    "dp_accounting": "dp-accounting",
    "flwr": "federated",
    "matplotlib": "plots",
    "openpyxl": "tables",
    "psycopg": "postgres",
    "pyarrow": "parquet",
    "pymc": "pymc",
    "pyreadstat": "tables",
    "pytensor": "pymc",
    "sklearn": "sklearn",
    "statsmodels": "demo",
}
"""The extra of this distribution that installs each optional package, by the name of its import."""


class TacitError(Exception):
    """Base class of all errors that Tacit raises on purpose."""


class InvalidArgument(TacitError, ValueError):
    """An argument is invalid."""


class MissingPackage(TacitError, ImportError):
    """An optional package is not installed.

    Args:
        package: The name of its import, one of `PACKAGE_EXTRAS`.
        purpose: What needs it, as the start of the message.
    """

    def __init__(self, package: str, purpose: str = "This") -> None:
        super().__init__(
            f"{purpose} needs the package {package}, which is not installed: "
            f"pip install '{DISTRIBUTION}[{PACKAGE_EXTRAS[package]}]'.",
            name=package,
        )


class Refused(InvalidArgument):
    """A site refuses a request of the server, in a message that the server may read.

    The message contains only what the study and the request say: no path and no remaining budget.
    """


class BudgetError(TacitError):
    """A privacy budget cannot be met, or must not be spent as requested."""


class Overspent(BudgetError):
    """A ledger has less left than requested. Nothing was charged."""


class LedgerError(TacitError):
    """A ledger cannot be used: missing, locked, full, read-only, out of reach, changed or outdated."""


class Unsaved(TacitError):
    """A run was charged but could not be saved. The message says where the result is."""


class TooFewUnits(TacitError):
    """A fit stopped after its noisy count of units, which shows too few of them. Only the count was spent.

    Args:
        message: What was found, what was spent, and what to do.
        count: The noisy count.
        sd: The standard deviation of its noise.
        epsilon: The epsilon that was spent; None where nothing was charged.
        delta: The delta that was spent.

    Attributes:
        posteriors: Of several fits that were charged together, those of the others.
    """

    def __init__(
        self,
        message: str,
        count: float = math.nan,
        sd: float = math.nan,
        epsilon: float | None = None,
        delta: float | None = None,
    ) -> None:
        super().__init__(message)
        self.count, self.sd, self.epsilon, self.delta = count, sd, epsilon, delta
        self.posteriors: Sequence[object] = ()


class LostProcess(TacitError):
    """A process of a run over several processes ended before the others."""


class UnsupportedEvent(TacitError):
    """No proved bound is known for this event, accountant and adjacency."""


class TheoremDoesNotHold(UnsupportedEvent):
    """The parameters do not meet a condition of the accountant's theorem."""


class BoundaryError(TacitError):
    """A step tries to take rows past the gate, or uses the gate in a forbidden way."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during a run. The message says what was charged."""


def os_error_reason(error: BaseException | None) -> str | None:
    """The operating system's description of an error, or None for any other error."""
    return error.strerror if isinstance(error, OSError) else None


def error_location(error: BaseException) -> str:
    """The type of an error and where it was raised; all that may be shown of an unexpected error.

    Examples:
        >>> try:
        ...     int("a cell's value")
        ... except ValueError as error:
        ...     error_location(error).startswith("ValueError in ")
        True
    """
    last = extract_tb(error.__traceback__)[-1]
    file = last.filename.rpartition("/")[2]
    return f"{type(error).__name__} in {file}, line {last.lineno}"


class ForecastWarning(UserWarning):
    """A plan that is not worth its budget, by public numbers alone. Issued before a charge."""
