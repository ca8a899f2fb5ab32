"""A report as one self-contained HTML page.

No script, no font, no picture from elsewhere; drawings are SVG in the page. The page's own policy
forbids the rest, so that a name that got in unescaped could do nothing either.
"""

from collections.abc import Iterable, Sequence
from importlib.resources import files

from tacit._format import in_digits
from tacit.results import drawings
from tacit.results.contents import HALF, LEVEL, Contents, Spending
from tacit.results.drawings import Bar
from tacit.results.wording import LEAST, SITES, escaped

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def page(contents: Contents) -> str:
    """The whole page."""
    style = files("tacit.results").joinpath("page.css").read_text(encoding="utf-8")
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f"<title>{escaped(contents.title)}</title><style>\n{style}</style>"
    )
    sections = (_top, _posterior, _privacy, _budget, _repeat)
    body = "\n".join(section(contents) for section in sections)
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>{head}</head>\n'
        f"<body>\n<main>\n{body}\n</main>\n{_footer(contents)}\n</body>\n</html>\n"
    )


def _top(contents: Contents) -> str:
    banner = "\n".join(
        f'<p class="warning" role="alert">{escaped(warning)}</p>'
        for warning in contents.posterior.warnings
    )
    long = ' class="long"' if len(contents.title) > 90 else ""
    title = f"<h1{long}>{escaped(contents.title)}</h1>"
    return f'{title}\n<p class="answer">{escaped(contents.answer)}</p>\n{banner}'


def _posterior(contents: Contents) -> str:
    summary = contents.summary
    header = ("parameter", *summary.header()[1:])
    table = _table(header, summary.cells(), f"Mean, {summary.spread}", "numbers")
    notes = [contents.about_intervals, *contents.left_out]
    course = "".join(_paragraph(note) for note in contents.course)
    return (
        f"<h2>Posterior</h2>\n{_forest(contents)}\n{table}\n"
        f"{''.join(map(_paragraph, notes))}\n{_headed('How the fit went', course)}"
    )


def _forest(contents: Contents) -> str:
    """Rows of a name and a strip, so that names of any length fit any screen."""
    bars, half, whole = contents.bars, contents.interval(HALF), contents.interval(LEVEL)
    groups = drawings.panels(bars)
    drawn = "".join(_panel(group, whole) for group in groups)
    unlike = "" if len(groups) < 2 else " Numbers of unlike size have axes of their own."
    missing = len(bars) - sum(map(len, groups))
    hidden = f" {missing} without finite intervals cannot be drawn." if missing else ""
    return (
        f'<figure aria-label="Forest plot">{drawn}<figcaption>Circle: mean. Thick line: '
        f"{half}. Thin line: {whole}.{unlike}{hidden}</figcaption></figure>"
    )


def _panel(bars: Sequence[Bar], interval: str) -> str:
    axis = drawings.scale(bars)
    ruler = f'<div class="row"><span></span>{drawings.ruler(axis)}</div>'
    rows = "".join(
        f'<div class="row"><span class="name">{escaped(bar.name)}</span>'
        f"{drawings.strip(bar, axis, _read_out(bar, interval))}</div>"
        for bar in bars
    )
    many = len(bars) > 30  # more than fit below something else on a sheet of paper
    kinds = "panel" if many else "panel whole"
    if max(len(bar.name) for bar in bars) <= 11:  # beside the strip on a phone, too
        kinds += " short"
    return f'<div class="{kinds}">{ruler if many else ""}{rows}{ruler}</div>'


def _read_out(bar: Bar, interval: str) -> str:
    return f"{bar.name}: mean {bar.mean:.4g}, {interval} {bar.lower:.4g} to {bar.upper:.4g}"


def _privacy(contents: Contents) -> str:
    statement = contents.statement
    parts = ["<h2>What it costs a person in the data</h2>"]
    if statement.event is None:
        return parts[0] + _paragraph(str(statement.warning))
    parts.append(_paragraph(contents.epsilon_words))
    if statement.seeded:
        parts.append(_paragraph("Without a seed, the same run would have:"))
    cards = "".join(f"<div>{_pair(name, [said])}</div>" for name, said in contents.costs)
    parts.append(f'<dl class="costs">{cards}</dl>')
    if contents.sites:
        table = _table(SITES, contents.sites, "What it cost at each site", "numbers")
        parts.append(_paragraph(LEAST) + table)
    parts += [_curves(contents), _facts(contents)]
    return "\n".join(parts)


def _facts(contents: Contents) -> str:
    return f"<h3>What the guarantee is about</h3>{_list(contents.facts)}"


def _curves(contents: Contents) -> str:
    if not contents.curves:
        return ""
    asked = contents.statement.adjacency
    names = {name: name + (" (asked for)" if name == asked else "") for name in contents.curves}
    legend = "".join(
        f"<li>{drawings.swatch('asked' if name == asked else 'other')}{escaped(said)}</li>"
        for name, said in names.items()
    )
    drawn = drawings.curves(contents.curves, contents.marked, asked)
    return (
        f'<figure class="whole"><ul class="legend">{legend}</ul>{drawn}<figcaption>'
        "A run has no single epsilon: it keeps the promise of every point of a curve at once. "
        f"Marked: delta {in_digits(contents.statement.delta)}.</figcaption></figure>"
    )


def _budget(contents: Contents) -> str:
    spending = contents.spending
    drawn = "" if spending is None else _spent(spending)
    return f"<h2>Budget left</h2>{_paragraph(contents.budget_words)}{drawn}"


def _spent(spending: Spending) -> str:
    known = [
        ("earlier", "earlier runs", spending.earlier),
        ("run", "this run", spending.run),
        ("left", "left", spending.left.epsilon),
    ]
    parts = [(kind, name, size) for kind, name, size in known if size is not None]
    said = ", ".join(f"{name} {in_digits(size)}" for _, name, size in parts)
    legend = "".join(
        f"<li>{drawings.swatch(kind)}{name}: {in_digits(size)}</li>" for kind, name, size in parts
    )
    bar = drawings.shares([(kind, size) for kind, _, size in parts], f"Epsilon: {said}")
    return (
        f'<figure class="whole">{bar}<ul class="legend">{legend}</ul>'
        "<figcaption>In epsilon.</figcaption></figure>"
    )


def _repeat(contents: Contents) -> str:
    rows = "".join(
        f'<tr><th scope="row">{escaped(name)}</th><td>{escaped(said)}</td></tr>'
        for name, said in contents.repeat
    )
    parts = [
        "<h2>To repeat it</h2>",
        f'<table class="words"><tbody>{rows}</tbody></table>',
    ]
    if contents.schema is not None:
        header, lines, notes = contents.schema_table
        table = _table(header, lines, "What is public about each column", "schema")
        parts += ["<h3>Schema</h3>", table, *map(_paragraph, notes)]
    parts += [
        _folded("What was done to the data (event)", contents.event),
        _folded("The privacy statement as JSON", contents.statement.to_json()),
        '<p class="print quiet">The event and the statement as JSON are in the page on screen.</p>',
    ]
    return "\n".join(parts)


def _footer(contents: Contents) -> str:
    version = contents.statement.versions.get("tacit", "")
    free = (
        ""
        if not contents.statement.is_private
        else (
            " Everything here was released within the budget or is public: to look at it costs nothing more."
        )
    )
    return f"<footer><p>Made with Tacit {escaped(version)}.{free}</p></footer>"


def _headed(title: str, inside: str) -> str:
    return f"<h3>{title}</h3>{inside}" if inside else ""


def _paragraph(text: str) -> str:
    return f"<p>{escaped(text)}</p>"


def _list(items: Iterable[tuple[str, Sequence[str]]]) -> str:
    return f"<dl>{''.join(_pair(name, said) for name, said in items)}</dl>"


def _pair(name: str, said: Sequence[str]) -> str:
    return f"<dt>{escaped(name)}</dt><dd>{_said(said)}</dd>"


def _said(said: Sequence[str]) -> str:
    if len(said) == 1:
        return escaped(said[0])
    return f"<ul>{''.join(f'<li>{escaped(each)}</li>' for each in said)}</ul>"


def _folded(title: str, code: str) -> str:
    lines = "\n".join(escaped_line for escaped_line in map(_indented, code.splitlines()))
    return f"<details><summary>{title}</summary><pre>{lines}</pre></details>"


def _indented(line: str) -> str:
    text = line.lstrip(" ")
    return " " * (len(line) - len(text)) + escaped(text)


def _table(header: Sequence[str], rows: Iterable[Sequence[str]], caption: str, kind: str) -> str:
    """In a box of its own that scrolls, if it must, by finger or by key."""
    head = "".join(f'<th scope="col">{escaped(name)}</th>' for name in header)
    body = "\n".join(
        f'<tr><th scope="row">{escaped(row[0])}</th>'
        f"{''.join(f'<td>{escaped(cell)}</td>' for cell in row[1:])}</tr>"
        for row in rows
    )
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escaped(caption)}">'
        f'<table class="{kind}"><caption>{escaped(caption)}</caption><thead><tr>{head}</tr></thead>'
        f"<tbody>\n{body}\n</tbody></table></div>"
    )
