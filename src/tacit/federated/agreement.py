"""The terms of a study: what the server and a site must agree on, and sentences about who is trusted.

All of it is public: settings in plain text, and a digest of the model. It travels with every message. A site
compares it with its own study before it does anything else, and the server does the same with every answer.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version

from tacit import __version__
from tacit.errors import Refused

# Sentences of the privacy statement: who is trusted.
ONLY_THE_SITE = (
    "nobody but the site itself is trusted: every message that leaves it is protected by itself, "
    "also from the server and from other sites"
)
SEVERAL_SITES = "a person whose data several sites hold pays the budget of each of them"
_SUM_ONLY = (
    "whoever adds up the sites' messages sees only their sum: single messages have too little noise to "
    "protect anyone, so they must be masked (secure aggregation)"
)
_HONEST = "at most {dishonest} of the sites reveal the noise that they added, or leave it out"
MAY_LEAVE = "up to {dropouts} of the sites may leave; the noise of the others is enough"
_SERVER = (
    "the server is trusted with the sites' changes, which it gets without noise, and with the "
    "noise; the connection to it is encrypted"
)
# By who adds the noise.
BY_NOISE = {
    "site": (ONLY_THE_SITE,),
    "split": (_SUM_ONLY, _HONEST),
    "server": (_SERVER,),
}
ZEROS = (
    "add-remove compares a site's change with zeros in its place; replace compares it with the change "
    "for other data, or for none"
)
NO_GUARANTEE = (
    "no guarantee: sites keep hidden noise in their own factors, and later rounds reveal it"
)

# How parts are called in sentences, in the order in which they are compared. A model by formula follows from the
# schema, so it is not named beside it.
_PART_NAMES = {
    "run": "run",
    "sites": "list of sites",
    "budget": "budget",
    "schema": "schema",
    "method": "method",
    "model": "model or prior",
    "question": "question",
    "tacit": "version of Tacit",
    "jax": "version of JAX",
}
# As many lines of a schema that differ are shown.
_MAX_SHOWN_LINES = 3


@dataclass(frozen=True)
class Agreement:
    """What is agreed on, part by part."""

    parts: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, **parts: str) -> "Agreement":
        """An agreement on these parts, and on the versions of libraries here."""
        return cls((*parts.items(), *_versions()))

    @property
    def text(self) -> str:
        """The agreement as it travels."""
        return json.dumps(dict(self.parts), sort_keys=True)

    @property
    def digest(self) -> str:
        """A short digest of all parts, to be compared by people."""
        return short_digest(self.text)

    def differences(self, other: Mapping[str, object]) -> Iterator[str]:
        """A phrase for every part of another agreement that differs from this one."""
        own = dict(self.parts)
        for part, called in _PART_NAMES.items():
            here, there = own.get(part, "none"), str(other.get(part, "none"))
            if here == there or (
                part == "model" and own.get("schema") != other.get("schema", "none")
            ):
                continue
            if part == "schema":
                here, there = _schema_differences(here, there)
            said = "" if part == "model" else f" ({_truncate(there)} instead of {_truncate(here)})"
            yield f"another {called}{said}"

    def check_same(self, text: object, mine: str, theirs: str) -> None:
        """Raises unless a text is this agreement.

        Args:
            text: What the other end sent.
            mine: What this end is called.
            theirs: What the other end is called.

        Raises:
            Refused: With a sentence that names what differs.
        """
        if text == self.text:
            return
        try:
            other = json.loads(str(text))
        except ValueError:
            other = None
        if not isinstance(other, dict):
            raise Refused(
                f"{theirs} does not say what it agreed to; it has another version of Tacit than {mine}."
            )
        found = ", ".join(self.differences(other)) or "other terms"
        raise Refused(f"{theirs} has {found} than {mine}. Nothing was charged for this message.")


def _schema_differences(here: str, there: str) -> tuple[str, str]:
    """What each of two schemas has, and the other has not: their first lines of that kind."""
    lines = [list(_lines_with_column(text)) for text in (here, there)]

    def beyond(mine: list[str], other: list[str]) -> str:
        found = [line for line in mine if line not in set(other)]
        return ", ".join(found[:_MAX_SHOWN_LINES]) or "none"

    return beyond(lines[0], lines[1]), beyond(lines[1], lines[0])


def _lines_with_column(text: str) -> Iterator[str]:
    """The lines of a schema, each beginning with the name of its column."""
    column = ""
    for line in text.splitlines():
        nested = line.startswith("    ")
        column = column if nested else line.strip()
        yield f"{column} {line.strip()}" if nested else column


def short_digest(text: str) -> str:
    """Sixteen hexadecimal digits that identify a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _truncate(text: str) -> str:
    return text if len(text) <= 120 else f"{text[:117]}..."


@cache
def _versions() -> tuple[tuple[str, str], ...]:
    return ("tacit", __version__), ("jax", version("jax"))
