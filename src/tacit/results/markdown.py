"""A report as Markdown, with tables in place of drawings."""

from collections.abc import Iterable, Sequence

from tacit._format import in_digits
from tacit.results.contents import Contents
from tacit.results.sites import LEARNS
from tacit.results.wording import LEAST, SITES, plain


def text(contents: Contents) -> str:
    """The whole text."""
    sections = (_top, _site, _posterior, _privacy, _learns, _budget, _repeat)
    blocks = [block for section in sections for block in section(contents) if block]
    return "\n\n".join(blocks) + "\n"


def _top(contents: Contents) -> list[str]:
    warnings = contents.posterior.warnings
    return [
        f"# {plain(contents.title)}",
        *(f"> **{plain(warning)}**" for warning in warnings),
        plain(contents.summary.trust),
        plain(contents.answer),
        _items((name, [said]) for name, said in contents.notes),
    ]


def _site(contents: Contents) -> list[str]:
    if contents.site is None:
        return []
    return [f"## What {plain(contents.site.name)} contributed", _items(contents.site.facts)]


def _learns(contents: Contents) -> list[str]:
    if not contents.learns:
        return []
    return ["## Who learns what", _table(LEARNS, contents.learns)]


def _posterior(contents: Contents) -> list[str]:
    summary = contents.summary
    table = _table(("parameter", *summary.columns()[1:]), summary.cells(), numbers=True)
    notes = [*contents.reading, *contents.left_out, *contents.method, *contents.course]
    about = f"**{plain(summary.spread)}.** {plain(contents.about_intervals)}"
    technical = _items((contents.technical,))
    return ["## Posterior", about, table, *map(plain, notes), technical, *_expected(contents)]


def _expected(contents: Contents) -> list[str]:
    if not contents.expected:
        return []
    header = ("half width of the 90% interval", "forecast", "result")
    return ["### What was expected", _table(header, contents.expected, numbers=True)]


def _privacy(contents: Contents) -> list[str]:
    statement, title = contents.statement, "## What it costs a person in the data"
    if statement.event is None:
        return [title, plain(statement.warning)]
    return [
        title,
        plain(statement.declared),
        plain(contents.epsilon_words),
        "Without a seed, the same run would have:" if statement.seeded else "",
        _items((name, [said]) for name, said in contents.costs),
        *([LEAST, _table(SITES, contents.sites, numbers=True)] if contents.sites else []),
        *_curves(contents),
        _facts(contents),
    ]


def _curves(contents: Contents) -> list[str]:
    if not contents.curves:
        return []
    return [
        "A run has no single epsilon: the guarantee of every line holds at once.",
        _table(*contents.statement.curve_table(), numbers=True),
    ]


def _facts(contents: Contents) -> str:
    return f"### What the guarantee is about\n\n{_items(contents.facts)}"


def _budget(contents: Contents) -> list[str]:
    spending = contents.spending
    if spending is None:
        return ["## Budget left", plain(contents.budget_words)]
    rows = [(name, in_digits(size)) for _, name, size in spending.parts]
    return [
        "## Budget left",
        plain(contents.budget_words),
        _table(("", "epsilon"), rows, numbers=True),
    ]


def _repeat(contents: Contents) -> list[str]:
    blocks = ["## How to repeat it", _table(("setting", "value"), contents.repeat)]
    if contents.schema is not None:
        header, lines, notes = contents.schema_table
        blocks += ["### Schema", _table(header, lines), *map(plain, notes)]
    return [
        *blocks,
        "### What was done to the data",
        f"```json\n{contents.event}\n```",
        "### The privacy statement",
        f"```json\n{contents.statement.to_json()}\n```",
    ]


def _items(items: Iterable[tuple[str, Sequence[str]]]) -> str:
    return "\n".join(f"- **{plain(name)}**: {plain('; '.join(said))}" for name, said in items)


def _table(header: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: bool = False) -> str:
    rule = ["---", *(["---:" if numbers else "---"] * (len(header) - 1))]
    lines = [[plain(cell) for cell in row] for row in (header, *rows)]
    lines.insert(1, rule)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
