"""HTML and Markdown from the templates in ``templates/``, which escape every value."""

import html
import re
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from tacit._format import clean_text, format_epsilon, format_number

# Special characters of Markdown, anywhere and at the start of a line.
_MARKDOWN_SPECIAL = re.compile(r"([\\`*_\[\]|~$])")
_MARKDOWN_LINE_START = re.compile(r"^(\d*)([-+#=:.)])(?=[\s#=:+-]|$)")


def render_template(name: str, **values: object) -> str:
    """Renders a template.

    Args:
        name: The file of the template.
        **values: What the template shows.

    Returns:
        The HTML or Markdown.
    """
    return _environment().get_template(name).render(values)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("tacit"),
        autoescape=True,
        finalize=_finalize,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "percent": _format_percent,
        "indented": _keep_spaces,
        "epsilon": format_epsilon,
        "digits": format_number,
        "markdown": escape_markdown,
    }
    return environment


def _finalize(value: object) -> object:
    """Text without control characters; what is HTML already stays as it is."""
    return value if isinstance(value, Markup) else clean_text(value)


def escape_markdown(value: object) -> Markup:
    r"""Text for Markdown, in which special characters and tags are escaped.

    >>> print(escape_markdown("a*b | <i>"))
    a\*b \| &lt;i&gt;
    """
    text = html.escape(clean_text(value), quote=False)
    return Markup(_MARKDOWN_LINE_START.sub(r"\1\\\2", _MARKDOWN_SPECIAL.sub(r"\\\1", text)))  # noqa: S704


def _format_percent(share: float) -> str:
    return f"{100 * share:.3f}%"


def _keep_spaces(text: str) -> Markup:
    """Lines of code or of a text table, which keep their spaces."""
    return Markup("\n").join(map(_keep_line_spaces, text.splitlines()))


def _keep_line_spaces(line: str) -> Markup:
    parts = re.split("( +)", line)  # words, and the spaces between them
    return Markup("").join(part if part.isspace() else escape(clean_text(part)) for part in parts)
