"""A result in plain words, for somebody who decides about data and knows no statistics.

It says what was asked, what leaves, what that means for one person, what is assumed and not
protected, and what was spent and is left.
"""

import math
import textwrap
from collections.abc import Iterable

from tacit._format import clean, in_digits
from tacit.accounting import ADJACENCIES
from tacit.inference.base import Intervals
from tacit.results.contents import Contents
from tacit.results.wording import UNITS, random_numbers

_WIDTH = 80
_NOISE = {
    Intervals.INCLUDED: (
        "Random noise was added before anything left. The intervals allow for it: they are wider than "
        "they would be without it."
    ),
    Intervals.LEFT_OUT: (
        "Random noise was added before anything left. The intervals do not allow for it, so the numbers "
        "are less certain than they look."
    ),
    Intervals.SAMPLED: "The numbers are random draws, which is what protects people.",
    Intervals.NO_NOISE: "No noise was added.",
    Intervals.UNKNOWN: "Random noise was added before anything left.",
}
_STEPS = (
    "The saved file also has the noisy numbers of each step. They are counted in the same cost."
)
_GROUPS = (
    "The result may teach something about people in general, and so about somebody who is not in the "
    "data at all. No protection of data prevents that."
)


def explanation(contents: Contents) -> str:
    """The text, in paragraphs under headings.

    Args:
        contents: The posterior, its settings and its schema.

    Returns:
        Plain text.
    """
    warnings = contents.posterior.warnings
    sections = {
        "What was asked": _asked(contents),
        "What leaves": _leaves(contents),
        f"What it means for one {contents.statement.unit}": _person(contents),
        "What is assumed": _items(
            (*filter(None, [contents.statement.declared]), *contents.statement.assumptions)
        ),
        "What is public, and so not protected": _items(contents.statement.public),
        "What is not protected either": [*_items(contents.statement.not_protected), _GROUPS],
        "What was spent, and what is left": _spent(contents),
    }
    blocks = [_wrapped(warning) for warning in warnings]
    for title, texts in sections.items():
        if texts:
            blocks.append(f"{title.upper()}\n" + "\n".join(map(_wrapped, texts)))
    return "\n\n".join(blocks)


def _wrapped(text: str) -> str:
    indent = "  " if text.startswith("- ") else ""
    return textwrap.fill(clean(text), _WIDTH, subsequent_indent=indent, break_long_words=False)


def _items(texts: Iterable[str]) -> list[str]:
    return [f"- {text}" for text in texts]


def _asked(contents: Contents) -> list[str]:
    data = contents.settings.get("data")
    schema = contents.schema
    names = "" if schema is None else ", ".join(schema.names)
    used = [f"Columns that may be used: {names}."] if names else []
    noted = [f"- {name}: {text}" for name, text in contents.notes]
    return [contents.title, *([f"Data: {data}."] if data else []), *used, *noted]


def _leaves(contents: Contents) -> list[str]:
    posterior = contents.posterior
    count = sum(math.prod(draws.shape[1:]) for draws in posterior.draws.values())
    what = "1 number that describes" if count == 1 else f"{count} numbers that together describe"
    reading = posterior.reading
    kind = "" if reading is None else f" They are the results of a {reading.kind}."
    return [
        (
            f"{what} the data as a whole, each with an interval.{kind} No row of the data leaves, and "
            "nothing else that was computed from rows."
        ),
        *([_STEPS] if posterior.trace else []),
        _NOISE[posterior.intervals],
        random_numbers(contents.statement),
        contents.summary.trust,
    ]


def _person(contents: Contents) -> list[str]:
    said = contents.statement
    if not said.is_private:
        return ["There is no limit on what the result reveals about anyone. Do not release it."]
    factor = math.exp(min(said.epsilons[said.adjacency] or 0.0, 700.0))
    return [
        UNITS.get(said.unit, f"One {said.unit}."),
        str(said.meaning),
        (
            f"In other words: whatever somebody believes about one {said.unit}, and whatever else they "
            f"know, seeing the result changes the odds by a factor of at most about {factor:.3g} (except with "
            f"a probability of about {in_digits(said.delta)})."
        ),
        *_sites(contents),
    ]


def _sites(contents: Contents) -> list[str]:
    if not contents.sites:
        return []
    names = ", ".join(str(site[0]) for site in contents.sites)
    return [
        (
            f"The data stayed at {len(contents.sites)} sites ({names}). What is said here is about the site "
            "with the weakest protection; the others protect at least as much."
        )
    ]


def _spent(contents: Contents) -> list[str]:
    said = contents.statement
    lines = [] if said.event is None else _items(said.epsilon_line(a) for a in ADJACENCIES)
    smaller = "A smaller epsilon means more protection." if lines else ""
    return [*lines, *([smaller] if smaller else []), contents.budget_words]
