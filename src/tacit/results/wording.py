"""Text that came from elsewhere (names, labels, settings), made harmless in a page."""

import html
import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

# Marks that reverse the direction of what follows: a name could rearrange the numbers after it.
_REVERSING = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_MARKS = re.compile(r"([\\`*_{}\[\]()#+.!|~$-])")


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
    return _MARKS.sub(r"\\\1", html.escape(clean(value), quote=False))


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
