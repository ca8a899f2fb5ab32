"""A report as Markdown: what the page says, with tables in place of drawings."""

from collections.abc import Iterable, Sequence

from tacit._format import in_digits, printed
from tacit.accounting import ADJACENCIES
from tacit.results.contents import Contents
from tacit.results.statement import DECADES
from tacit.results.wording import LEAST, SITES, plain


def text(contents: Contents) -> str:
    """The whole text."""
    sections = (_top, _posterior, _privacy, _budget, _repeat)
    blocks = [block for section in sections for block in section(contents) if block]
    return "\n\n".join(blocks) + "\n"


def _top(contents: Contents) -> list[str]:
    warnings = contents.posterior.warnings
    return [
        f"# {plain(contents.title)}",
        plain(contents.answer),
        *(f"> **{plain(warning)}**" for warning in warnings),
    ]


def _posterior(contents: Contents) -> list[str]:
    summary = contents.summary
    table = _table(("parameter", *summary.columns()[1:]), summary.cells(), numbers=True)
    notes = [*contents.left_out, *contents.course]
    about = f"**{plain(summary.spread)}.** {plain(contents.about_intervals)}"
    return ["## Posterior", about, table, *map(plain, notes)]


def _privacy(contents: Contents) -> list[str]:
    statement, title = contents.statement, "## What it costs a person in the data"
    if statement.event is None:
        return [title, plain(statement.warning)]
    return [
        title,
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
    found = {a: dict(zip(*curve, strict=True)) for a, curve in contents.curves.items()}
    rows = [
        [f"{delta:g}", *(printed(found.get(a, {}).get(delta)) for a in ADJACENCIES)]
        for delta in DECADES
    ]
    header = ["delta", *(f"epsilon, {a}" for a in ADJACENCIES)]
    return [
        "A run has no single epsilon: it keeps the promise of every line at once.",
        _table(header, rows, numbers=True),
    ]


def _facts(contents: Contents) -> str:
    return f"### What the guarantee is about\n\n{_items(contents.facts)}"


def _budget(contents: Contents) -> list[str]:
    spending = contents.spending
    if spending is None:
        return ["## Budget left", plain(contents.budget_words)]
    known = [
        ("earlier runs", spending.earlier),
        ("this run", spending.run),
        ("left", spending.left.epsilon),
    ]
    rows = [(name, in_digits(size)) for name, size in known if size is not None]
    return [
        "## Budget left",
        plain(contents.budget_words),
        _table(("", "epsilon"), rows, numbers=True),
    ]


def _repeat(contents: Contents) -> list[str]:
    blocks = ["## To repeat it", _table(("setting", "value"), contents.repeat)]
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
