"""The page about a ledger: what it says, and that nothing in it runs."""

import math
import re
from html.parser import HTMLParser

import pandas as pd
import pytest

from tacit.accounting import Budget, events
from tacit.accounting import ledger as writing
from tacit.accounting.ledger import Ledger, read_history
from tacit.cli.main import main
from tacit.errors import TacitError
from tacit.results.ledger_page import ledger_html, spenders, spending_chart, write_ledger_page

EVENT = events.gaussian(10.0)
EVIL = "<script>alert(1)</script>\x1b[31m"


class Text(HTMLParser):
    """The text of a page, and its tags."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.words = [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)

    def handle_data(self, data):
        self.words.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())


@pytest.fixture(scope="module")
def ledger(tmp_path_factory):
    """Four charges of two people over some months."""
    folder = tmp_path_factory.mktemp("ledger")
    found = Ledger.new(folder / "registry.db", Budget(3, 1e-5), unit="person")
    with pytest.MonkeyPatch.context() as patch:
        for month, name in enumerate(("anna", "bert", "anna", "anna"), 1):
            patch.setattr(
                writing, "utc_now", lambda month=month: f"2026-0{month}-05T10:00:00+00:00"
            )
            patch.setattr(writing, "user_name", lambda name=name: name)
            run = found.for_run(f"study {month}", folder / "runs")
            run.charge(EVENT, Budget(0.5, 1e-7 * month), f"ill ~ x{month}" if month < 4 else EVIL)
    return found


def test_it_says_what_is_left_and_who_spent_what(ledger):
    page = Text(ledger_html(ledger))
    assert ledger.left.amounts in page.text
    charges = ledger.charges
    for name, number in (("anna", 3), ("bert", 1)):
        own = [each for each in charges if each.analyst == name]
        (line,) = [each for each in spenders(charges) if each.name == name]
        assert line.runs == len(own) == number
        assert math.isclose(line.epsilon, sum(each.epsilon for each in own))
        assert math.isclose(line.delta, sum(each.delta for each in own))
    assert [each.name for each in spenders(charges)] == ["anna", "bert"]
    for word in ("anna", "bert", "study 3", "ill ~ x2", "2026-03-05 10:00", "runs"):
        assert word in page.text


def test_what_others_wrote_does_not_run(ledger):
    page = ledger_html(ledger)
    assert "<script" not in page
    assert "\x1b" not in page
    assert "default-src 'none'" in page
    assert not {"script", "iframe", "img", "link", "object"} & set(Text(page).tags)


def test_the_terminal_gets_no_control_characters(ledger, capsys):
    assert main(["ledger", "show", str(ledger.path)]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert re.search(r"2026-02-05T10:00:00 +bert +study 2 +0\.\d+ +2e-7 +ill ~ x2", out)


def test_the_curve_ends_at_what_was_spent(ledger):
    past = read_history(ledger)
    chart = spending_chart(past, "2026-06-05T10:00:00+00:00")
    (line,) = [each for each in chart.lines if each.name == "spent"]
    corners = [tuple(map(float, each.split(","))) for each in chart.path(line).split()]
    across, down = zip(*corners, strict=True)
    assert list(across) == sorted(across)
    assert list(down) == sorted(down, reverse=True)
    assert (across[0], down[0], across[-1]) == (0, 100, 100)
    spent = math.fsum(each.epsilon for each in past.charges)
    assert math.isclose((1 - down[-1] / 100) * chart.y.high, spent, rel_tol=1e-3)
    assert math.isclose(past.spent[-1], spent)
    assert {each.strip("0123456789-") for _, each in chart.x.ticks} == {""}
    assert all(0 <= share <= 1 for share, _ in chart.x.ticks)


@pytest.mark.parametrize("span", ["1s", "50s", "40min", "9h", "3D", "40D", "400D", "4000D"])
def test_every_span_of_time_has_marks(ledger, span):
    end = pd.Timestamp("2026-04-05T10:00:00+00:00") + pd.Timedelta(span)
    past = read_history(ledger)
    late = type(past)(
        first_total=past.first_total,
        total=past.total,
        left=past.left,
        charges=past.charges[-1:],
        raises=[],
        spent=past.spent[-1:],
    )
    ticks = spending_chart(late, end.isoformat()).x.ticks
    assert 1 <= len(ticks) <= 4
    assert len({text for _, text in ticks}) == len(ticks)


def test_divergences_and_empty_ledgers_have_a_page(tmp_path):
    ledger = Ledger.new(tmp_path / "r.db", Budget(3, 1e-5), rule="renyi")
    assert "No charges yet." in Text(ledger_html(ledger)).text
    ledger.charge_all([(EVENT, Budget(0.5, 1e-7))] * 3)
    assert "cost less than the sum of their epsilons" in Text(ledger_html(ledger)).text
    assert math.isclose(read_history(ledger).spent[-1], 3 - ledger.left.epsilon)


def test_it_is_written_whole_or_not(ledger, tmp_path, capsys):
    target = tmp_path / "page.html"
    assert main(["ledger", "page", str(ledger.path), "--out", str(target)]) == 0
    assert target.read_text().rstrip().endswith("</html>")
    with pytest.raises(TacitError, match="cannot be written"):
        write_ledger_page(ledger, tmp_path / "nowhere" / "page.html")
