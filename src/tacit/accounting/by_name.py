"""Accountants by their names."""

from tacit import _validate
from tacit.accounting.accountants import PLD, Renyi
from tacit.accounting.base import Accountant
from tacit.accounting.published import (
    Advanced,
    AnalyticGaussian,
    Basic,
    ClassicalGaussian,
    Moments,
)

ACCOUNTANTS: dict[str, type[Accountant]] = {
    each.name: each
    for each in (PLD, Renyi, Moments, Advanced, Basic, ClassicalGaussian, AnalyticGaussian)
}


def accountant(name: str) -> Accountant:
    """The accountant of this name, with its default settings."""
    return ACCOUNTANTS[_validate.choice("accountant", name, ACCOUNTANTS)]()
