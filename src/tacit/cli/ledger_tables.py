"""The charges of a ledger as a table of text."""

import textwrap
from collections.abc import Sequence

from tacit._format import clean_text, format_epsilon, format_number
from tacit.accounting.ledger_chain import Charge

# Letters in a line of what a charge was for.
_LABEL_WIDTH = 72


def charges_table(charges: Sequence[Charge]) -> tuple[list[str], str, list[list[str]]]:
    """The titles, the sides and the rows of a table of charges.

    Columns that are empty for all charges, such as those of earlier versions, are left out. Labels are
    written by others, so that control characters are taken out of them.

    Args:
        charges: The charges.

    Returns:
        The arguments ``header``, ``sides`` and ``rows`` of a text table.
    """
    columns = [
        ("when", "l", [each.time[:19] for each in charges]),
        ("who", "l", [clean_text(each.analyst) for each in charges]),
        ("run", "l", [clean_text(each.run) for each in charges]),
        ("epsilon", "r", [format_epsilon(each.epsilon) for each in charges]),
        ("delta", "r", [format_number(each.delta) for each in charges]),
        ("what", "l", [_wrap(each.label) for each in charges]),
    ]
    used = [column for column in columns if any(column[2]) or column[0] == "what"]
    titles, sides, cells = zip(*used, strict=True)
    return list(titles), "".join(sides), [list(row) for row in zip(*cells, strict=True)]


def _wrap(label: str) -> str:
    """A label in lines that fit beside the numbers."""
    return textwrap.fill(clean_text(label), _LABEL_WIDTH, break_long_words=False)
