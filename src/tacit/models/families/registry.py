"""All families, by name. A new family is a module's constant and one line here."""

from tacit.models.families.base import Family
from tacit.models.families.binary import BERNOULLI, BINOMIAL
from tacit.models.families.counts import (
    NEGATIVE_BINOMIAL,
    POISSON,
    ZERO_INFLATED_NEGATIVE_BINOMIAL,
    ZERO_INFLATED_POISSON,
)
from tacit.models.families.levels import CATEGORICAL, ORDINAL
from tacit.models.families.numbers import BETA, GAMMA, GAUSSIAN
from tacit.models.families.survival import WEIBULL

FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        BERNOULLI,
        BINOMIAL,
        GAUSSIAN,
        POISSON,
        NEGATIVE_BINOMIAL,
        ZERO_INFLATED_POISSON,
        ZERO_INFLATED_NEGATIVE_BINOMIAL,
        GAMMA,
        BETA,
        WEIBULL,
        CATEGORICAL,
        ORDINAL,
    )
}
