"""HTML from the templates in ``templates/``, which escape every value."""

import re
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from tacit._format import clean, in_digits, printed


def render(name: str, **values: object) -> str:
    """Renders a template.

    Args:
        name: The file of the template.
        **values: What the template shows.

    Returns:
        The HTML.
    """
    return _environment().get_template(name).render(values)


@cache
def _environment() -> Environment:
    found = Environment(
        loader=PackageLoader("tacit"),
        autoescape=True,
        finalize=_cleaned,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= {
        "percent": _percent,
        "indented": _indented,
        "epsilon": printed,
        "digits": in_digits,
    }
    return found


def _cleaned(value: object) -> object:
    """Text without control characters; what is HTML already stays as it is."""
    return value if isinstance(value, Markup) else clean(value)


def _percent(share: float) -> str:
    return f"{100 * share:.3f}%"


def _indented(text: str) -> Markup:
    """Lines of code or of a text table, which keep their spaces."""
    return Markup("\n").join(map(_indented_line, text.splitlines()))


def _indented_line(line: str) -> Markup:
    parts = re.split("( +)", line)  # words, and the spaces between them
    return Markup("").join(part if part.isspace() else escape(clean(part)) for part in parts)
