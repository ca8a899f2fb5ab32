"""Randomised response."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit import _validate
from tacit.errors import InvalidArgument
from tacit.privacy.noise import Floats, Integers, Randomness, bernoulli, uniform_integers


def randomised_response(
    answers: ArrayLike,
    noise: float,
    num_categories: int,
    randomness: Randomness | None = None,
) -> Integers:
    """Each answer as it is, or with probability ``noise`` drawn from all categories.

    Answers are whole numbers from 0 to ``num_categories`` - 1; what is outside becomes the
    nearest of them. To draw from all categories may give the answer itself: two coins, of which
    the first decides whether to tell the truth and the second what to say otherwise, are
    ``noise=0.5`` and two categories.

    Formal guarantees:
        Released: one category for every respondent: the answer with probability
            1 - noise + noise / num_categories, and any other with noise / num_categories. [response-draw]
        Neighbours: replace, as it is public who responded.
        Sensitivity under add-remove: none.
        Sensitivity under replace: `log(1 + num_categories * (1 - noise) / noise)`, in the log
            probability of a category.
        Event: `events.randomised_response`, once for every time that the same people are asked.
        Public inputs: ``noise``, ``num_categories`` and the number of respondents.
        Theorem: 6.
    """
    chance = _validate.rate("noise", noise)
    categories = _validate.count("num_categories", num_categories, least=2)
    truth = _categories("answers", answers, categories)
    source = randomness or Randomness()
    changed = bernoulli(source.child("coins"), chance, len(truth))
    drawn = uniform_integers(source.child("replacements"), categories, len(truth))
    return np.where(changed, drawn, truth)


def frequencies(released: ArrayLike, noise: float, num_categories: int) -> tuple[Floats, Floats]:
    """The share of each category among the true answers, and its standard error.

    Unbiased, so that a share may come out below zero or above one. Follows from what was
    released alone. The standard error is that of the noise and of what it hides together, for
    respondents who are a sample of many.
    """
    chance = _validate.rate("noise", noise)
    categories = _validate.count("num_categories", num_categories, least=2)
    if chance == 1:
        raise InvalidArgument(
            "With noise=1 the released answers carry no information about the true ones."
        )
    seen = _categories("released", released, categories)
    if not len(seen):
        raise InvalidArgument("released has no answers to count.")
    shares = np.bincount(seen, minlength=categories) / len(seen)
    errors = np.sqrt(shares * (1 - shares) / len(seen))
    return (shares - chance / categories) / (1 - chance), errors / (1 - chance)


def _categories(name: str, values: ArrayLike, categories: int) -> Integers:
    """Answers as categories: a fault of one of them must not show."""
    array: NDArray[Any] = np.asarray(values)
    if array.ndim != 1 or array.dtype.kind not in "iub":
        raise InvalidArgument(
            f"{name} must be a list of whole numbers, one for each respondent; its shape is "
            f"{array.shape} and its type {array.dtype}."
        )
    whole = array.astype(np.int8) if array.dtype.kind == "b" else array
    highest = min(categories - 1, int(np.iinfo(whole.dtype).max))
    inside: Integers = np.clip(whole, 0, highest).astype(np.int64)
    return inside
