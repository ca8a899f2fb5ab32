"""A report as one self-contained HTML page."""

from tacit._format import in_digits
from tacit._html import render
from tacit.results import drawings
from tacit.results.contents import Contents
from tacit.results.forest import HALF, LEVEL
from tacit.results.sites import LEARNS
from tacit.results.wording import LEAST, SITES


def page(contents: Contents) -> str:
    """The whole page."""
    panels = drawings.panels(contents.bars)
    parts = [] if contents.spending is None else drawings.shares(contents.spending.parts)
    return render(
        "page.html",
        contents=contents,
        level=LEVEL,
        half=HALF,
        panels=panels,
        not_drawn=len(contents.bars) - sum(len(each.bars) for each in panels),
        least=LEAST,
        learns_columns=LEARNS,
        site_columns=SITES,
        plot=drawings.plot_of(contents.curves, contents.marked) if contents.curves else None,
        parts=parts,
        spent="Epsilon: " + ", ".join(f"{each.name} {in_digits(each.size)}" for each in parts),
    )
