"""Privacy accounting: host side, numbers only, never a row.

The vocabulary: a `Budget` is what a person is promised; an event (`events`) is what a run
does; an accountant (`accountants`) says what an event costs; `calibrate` finds the least
noise that a budget allows; `convert` turns one kind of guarantee into another.

>>> from tacit.accounting import PLD, events
>>> run = events.sampled_gaussian(noise_multiplier=2, sampling_rate=0.005, num_steps=2000)
>>> {adjacency: round(e, 3) for adjacency, e in PLD().epsilons(run, delta=1e-3).items()}
{'add-remove': 0.248, 'replace': 0.521}
"""

from tacit.accounting import calibrate, convert, events
from tacit.accounting.accountants import (
    PLD,
    Accountant,
    Advanced,
    AnalyticGaussian,
    Basic,
    ClassicalGaussian,
    Curve,
    Moments,
    Renyi,
    accountant,
)
from tacit.accounting.budget import ADJACENCIES, Adjacency, Budget

__all__ = [
    "ADJACENCIES",
    "PLD",
    "Accountant",
    "Adjacency",
    "Advanced",
    "AnalyticGaussian",
    "Basic",
    "Budget",
    "ClassicalGaussian",
    "Curve",
    "Moments",
    "Renyi",
    "accountant",
    "calibrate",
    "convert",
    "events",
]
