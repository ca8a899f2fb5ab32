"""Sentences of a report, and escaping of names, labels and settings."""

import html
import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

from tacit.accounting import ADJACENCIES, Adjacency
from tacit.inference.base import Intervals

# Marks that reverse the direction of what follows: a name could rearrange the numbers after it.
_REVERSING = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
# Marks of Markdown wherever they stand, and those that count at the start of a line.
_MARKS = re.compile(r"([\\`*_\[\]|~$])")
_STARTS = re.compile(r"^(\d*)([-+#=:.)])(?=[\s#=:+-]|$)")


COMPARED: dict[Adjacency, str] = {
    "add-remove": "the same data with and without one {unit}",
    "replace": "the same data with one {unit} exchanged for any other",
}
SITES = ("site", "delta", *(f"epsilon, {a}" for a in ADJACENCIES), "unit")
LEAST = "Several sites took part. All else here is about the one that is promised the least."
UNITS = {
    "row": "One row. Someone with several rows is protected less: the costs of their rows add up.",
    "person": "One person, with all their rows.",
    "data set": "All that one site holds.",
}
ABOUT_INTERVALS = {
    Intervals.INCLUDED: "The intervals include the noise that protects people.",
    Intervals.LEFT_OUT: (
        "The intervals do not include the noise that protects people: they are too narrow. The noise "
        "has moved the centre, too: the fewer the people, the more."
    ),
    Intervals.SAMPLED: (
        "The intervals are those of the draws. What protects people is chance that the sampler needs "
        "anyway; no noise was added to the draws afterwards."
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


def beside(name: str, intervals: Intervals) -> str:
    """What is said of noise, beside the name of an interval.

    >>> beside("90% interval", Intervals.LEFT_OUT)
    '90% interval (noise not included)'
    """
    return f"{name} ({_BESIDE[intervals]})"


def clean(value: object) -> str:
    r"""One line of text without controls, which neither pages nor files can hold.

    >>> clean("a\n b\x00")
    'a b�'
    """
    return "".join(map(_harmless, " ".join(str(value).split())))


def escaped(value: object) -> str:
    """Text for HTML and SVG, in an element or a quoted attribute.

    >>> escaped('<script>"&')
    '&lt;script&gt;&quot;&amp;'
    """
    return html.escape(clean(value))


def plain(value: object) -> str:
    r"""Text for Markdown: no mark in it means anything, and no tag is one.

    >>> print(plain("a*b | <i>"))
    a\*b \| &lt;i&gt;
    """
    return _STARTS.sub(r"\1\\\2", _MARKS.sub(r"\\\1", html.escape(clean(value), quote=False)))


def spoken(value: Any) -> str:
    """A setting in words: lists by commas, mappings by their names."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {spoken(each)}" for name, each in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return ", ".join(map(spoken, value))
    return "none" if value is None else str(value)


def _harmless(letter: str) -> str:
    odd = letter in _REVERSING or unicodedata.category(letter) in ("Cc", "Cs")
    return "\ufffd" if odd else letter
