"""A result in plain words, for somebody who decides about data and knows no statistics.

It says what was asked, what leaves, what that means for one person, what is assumed and not
protected, and what was spent and is left.
"""

import math
import textwrap
from collections.abc import Iterable

from tacit._format import clean_text, format_number
from tacit.accounting import ADJACENCIES
from tacit.inference.result import Intervals
from tacit.results.contents import UNIT_SENTENCES, ReportContents

_WIDTH = 80
_NOISE_SENTENCES = {
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
_TRACE_SENTENCE = (
    "The saved file also has the noisy numbers of each step. They are counted in the same cost."
)
_GENERAL_KNOWLEDGE = (
    "The result may teach something about people in general, and so about somebody who is not in the "
    "data at all. No protection of data prevents that."
)


def explain_result(contents: ReportContents) -> str:
    """The text, in paragraphs under headings.

    Args:
        contents: The posterior, its settings and its schema.

    Returns:
        Plain text.
    """
    warnings = contents.posterior.warnings
    sections = {
        "What was asked": _question(contents),
        "What leaves": _released(contents),
        f"What it means for one {contents.statement.unit}": _guarantee(contents),
        "What is assumed": _bullets(
            (*filter(None, [contents.statement.declared]), *contents.statement.assumptions)
        ),
        "What is public, and so not protected": _bullets(contents.statement.public),
        "What is not protected either": [
            *_bullets(contents.statement.not_protected),
            _GENERAL_KNOWLEDGE,
        ],
        "What was spent, and what is left": _budget(contents),
    }
    blocks = [_wrap(warning) for warning in warnings]
    for title, texts in sections.items():
        if texts:
            blocks.append(f"{title.upper()}\n" + "\n".join(map(_wrap, texts)))
    return "\n\n".join(blocks)


def _wrap(text: str) -> str:
    indent = "  " if text.startswith("- ") else ""
    return textwrap.fill(clean_text(text), _WIDTH, subsequent_indent=indent, break_long_words=False)


def _bullets(texts: Iterable[str]) -> list[str]:
    return [f"- {text}" for text in texts]


def _question(contents: ReportContents) -> list[str]:
    data = contents.settings.get("data")
    schema = contents.schema
    names = "" if schema is None else ", ".join(schema.names)
    used = [f"Columns that may be used: {names}."] if names else []
    noted = [f"- {name}: {text}" for name, text in contents.notes]
    return [contents.title, *([f"Data: {data}."] if data else []), *used, *noted]


def _released(contents: ReportContents) -> list[str]:
    posterior = contents.posterior
    count = sum(math.prod(draws.shape[1:]) for draws in posterior.draws.values())
    what = "1 number that describes" if count == 1 else f"{count} numbers that together describe"
    interpretation = posterior.interpretation
    kind = "" if interpretation is None else f" They are the results of a {interpretation.kind}."
    return [
        (
            f"{what} the data as a whole, each with an interval.{kind} No row of the data leaves, and "
            "nothing else that was computed from rows."
        ),
        *([_TRACE_SENTENCE] if posterior.trace else []),
        _NOISE_SENTENCES[posterior.intervals],
        contents.statement.randomness_sentence,
        contents.summary.trust,
    ]


def _guarantee(contents: ReportContents) -> list[str]:
    said = contents.statement
    if not said.is_private:
        return ["There is no limit on what the result reveals about anyone. Do not release it."]
    factor = math.exp(min(said.epsilons[said.adjacency] or 0.0, 700.0))
    return [
        UNIT_SENTENCES.get(said.unit, f"One {said.unit}."),
        " ".join(filter(None, (said.meaning, said.attack))),
        (
            f"In other words: whatever somebody believes about one {said.unit}, and whatever else they "
            f"know, seeing the result changes the odds by a factor of at most about {factor:.3g} (except with "
            f"a probability of about {format_number(said.delta)})."
        ),
        *_sites(contents),
    ]


def _sites(contents: ReportContents) -> list[str]:
    if not contents.sites:
        return []
    names = ", ".join(str(site[0]) for site in contents.sites)
    return [
        (
            f"The data stayed at {len(contents.sites)} sites ({names}). This page describes the site "
            "with the weakest protection; the others protect at least as much."
        )
    ]


def _budget(contents: ReportContents) -> list[str]:
    said = contents.statement
    lines = [] if said.event is None else _bullets(said.epsilon_line(a) for a in ADJACENCIES)
    smaller = "A smaller epsilon means more protection." if lines else ""
    return [*lines, *([smaller] if smaller else []), contents.budget_sentence]
