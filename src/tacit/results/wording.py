"""Sentences of a report, and escaping of names, labels and settings."""

import html
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tacit._format import clean
from tacit.accounting import ADJACENCIES, Adjacency
from tacit.inference.base import Intervals

if TYPE_CHECKING:
    from tacit.results.statement import PrivacyStatement

# Special characters of Markdown, anywhere and at the start of a line.
_MARKS = re.compile(r"([\\`*_\[\]|~$])")
_STARTS = re.compile(r"^(\d*)([-+#=:.)])(?=[\s#=:+-]|$)")


COMPARED: dict[Adjacency, str] = {
    "add-remove": "the same data with and without one {unit}",
    "replace": "the same data with one {unit} exchanged for any other",
}
SITES = ("site", "delta", *(f"epsilon, {a}" for a in ADJACENCIES), "unit", "answers used")
LEAST = (
    "Several sites took part. The rest of this report is about the site with the weakest guarantee."
)
UNITS = {
    "row": "One row. A person with several rows is protected less: the costs of their rows add up.",
    "person": "One person, with all their rows.",
    "data set": "Everything that one site holds.",
}
ABOUT_INTERVALS = {
    Intervals.INCLUDED: "The intervals include the noise that protects people.",
    Intervals.LEFT_OUT: (
        "The intervals do not include the noise that protects people, so they are too narrow. The noise "
        "also moves their centres; the fewer the people, the more."
    ),
    Intervals.SAMPLED: (
        "The intervals are those of the draws. People are protected by the randomness of the sampler "
        "itself; no noise was added to the draws."
    ),
    Intervals.NO_NOISE: "The fit was made without noise.",
    Intervals.UNKNOWN: "It is not known whether the intervals include the noise that protects people.",
}
_BESIDE = {each: str(each) for each in Intervals} | {
    Intervals.UNKNOWN: "not known whether noise is included"
}
CONVERGED = {
    True: "The fit converged.",
    False: "THE FIT DID NOT CONVERGE: these numbers may be far from the posterior.",
    None: "The method cannot tell whether the fit converged.",
}


_TRUST = {
    True: "the fit converged",
    False: "the fit did not converge, so these numbers may be far from the posterior",
    None: "the method cannot tell whether the fit converged",
}
_CONTAIN = {
    Intervals.INCLUDED: "intervals include the noise that protects people",
    Intervals.LEFT_OUT: (
        "intervals do not include the noise that protects people, so they are too narrow"
    ),
    Intervals.SAMPLED: "intervals are those of the draws, to which no noise was added",
    Intervals.NO_NOISE: "intervals are those of a fit without noise",
    Intervals.UNKNOWN: "intervals may or may not include the noise that protects people",
}


def trust(level: float, intervals: Intervals, converged: bool | None) -> str:
    """What intervals include, and whether the fit can be trusted, in one sentence.

    >>> trust(0.9, Intervals.INCLUDED, True)
    'The 90% intervals include the noise that protects people, and the fit converged.'
    """
    return f"The {100 * level:.4g}% {_CONTAIN[intervals]}, and {_TRUST[converged]}."


def random_numbers(statement: "PrivacyStatement") -> str:
    """Where the random numbers of a run came from, in words."""
    if statement.event is None:
        return "No noise was added."
    if statement.seeded:
        return "Random numbers came from a seed. Whoever knows it can repeat them and remove the noise."
    return (
        "Random numbers came from the operating system of the computer that ran the fit. Nobody can "
        "predict or repeat them."
    )


def beside(name: str, intervals: Intervals) -> str:
    """The name of an interval, with a note on the privacy noise.

    >>> beside("90% interval", Intervals.LEFT_OUT)
    '90% interval (noise not included)'
    """
    return f"{name} ({_BESIDE[intervals]})"


def plain(value: object) -> str:
    r"""Text for Markdown, in which special characters and tags are escaped.

    >>> print(plain("a*b | <i>"))
    a\*b \| &lt;i&gt;
    """
    return _STARTS.sub(r"\1\\\2", _MARKS.sub(r"\\\1", html.escape(clean(value), quote=False)))


def spoken(value: object) -> str:
    """A setting in words: lists with commas, mappings with their names."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {spoken(each)}" for name, each in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return ", ".join(map(spoken, value))
    return "none" if value is None else str(value)
