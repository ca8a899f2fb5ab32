"""Reports: what they say, that names in them are only names, and how they look in a browser."""

import json
import os
import re
import shutil
import signal
import subprocess
import types
from html.parser import HTMLParser

import numpy as np
import pytest
import yaml

import tacit
from tacit import _html
from tacit.accounting import Budget, events
from tacit.errors import InvalidArgument, TacitError
from tacit.federated.agreement import BY_NOISE, NO_GUARANTEE
from tacit.inference.result import Intervals
from tacit.results import drawings
from tacit.results.contents import who_learns
from tacit.results.drawings import Bar
from tacit.results.posterior import FederatedPosterior, Posterior
from tacit.results.report import write_report
from tacit.results.statement import PrivacyStatement

EVENT = events.gaussian(5.0)
EVIL = """<script>alert("1")</script><img src=x onerror='a()'> [a](b) | `c` *d*"""
VOID = {"meta", "img", "br", "hr", "link", "input"}


def statement(**changes):
    fields = {
        "event": EVENT,
        "delta": 1e-6,
        "adjacency": "add-remove",
        "unit": "person",
        "public": ("the model and its prior", EVIL),
        "seeded": False,
        "assumptions": ("no number was computed from these data",),
        "budget_left": Budget(1.5, 8e-6),
    }
    return PrivacyStatement(**(fields | changes))


def posterior(draws=None, **changes):
    rng = np.random.default_rng(0)
    if draws is None:
        draws = {
            "Intercept": rng.normal(-1.1, 0.06, 500),
            f"C(ward)[{EVIL}]": rng.normal(0.3, 0.1, 500),
            "u": rng.normal(0, 1, (500, 3)),
        }
    return Posterior(**({"draws": draws, "privacy": statement()} | changes))


def written(tmp_path, post, **settings):
    write_report(post, tmp_path / "run", settings=settings or None)
    return types.SimpleNamespace(
        page=(tmp_path / "run/report.html").read_text(encoding="utf-8"),
        text=(tmp_path / "run/report.md").read_text(encoding="utf-8"),
        registry=(tmp_path / "run/registry.yaml").read_text(encoding="utf-8"),
    )


class Reader(HTMLParser):
    """Every element with its attributes, the text outside of style, and that tags close."""

    def __init__(self, page):
        super().__init__()
        self.open, self.found, self.messages, self.headings = [], [], [], []
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] != "style":
            self.messages.append(data)
        if self.open and self.open[-1] in ("h1", "h2"):
            self.headings.append(data)

    def all(self, tag):
        return [attributes for name, attributes in self.found if name == tag]


def table_of(page):
    """The cells of the first table."""
    body = re.search(r"<table.*?</table>", page, re.DOTALL).group()
    rows = re.findall(r"<tr>(.*?)</tr>", body, re.DOTALL)
    return [[re.sub("<.*?>", "", c) for c in re.findall(r"<t[hd].*?</t[hd]>", r)] for r in rows]


# What it says


def test_a_report_has_three_files_and_says_the_same_in_both_texts(tmp_path):
    post = posterior()
    post.report(tmp_path / "deep" / "run", settings={"formula": "y ~ x", "family": "poisson"})
    assert sorted(p.name for p in (tmp_path / "deep/run").iterdir()) == [
        *("registry.yaml", "report.html", "report.md")
    ]
    found = written(tmp_path, post, formula="y ~ x", family="poisson", command="tacit fit a.csv")
    for said in ("poisson", "tacit fit a.csv", "one person", "guess right at most", "epsilon"):
        assert said in found.page
        assert said in found.text
    assert "y ~ x" in found.page
    assert Reader(found.page).headings == [
        *(
            f"Posterior of Intercept, C(ward)[{EVIL}] and u",
            "Posterior",
            "What it costs a person in the data",
            "Remaining budget",
            "How to repeat it",
        )
    ]


def test_numbers_are_those_of_the_summary(tmp_path):
    post = posterior()
    found, summary = written(tmp_path, post), post.summary()
    header, *rows = table_of(found.page)
    assert header[1:] == ["mean", "sd", "5%", "95%"]
    assert [row[1:] for row in rows] == [line[1:] for line in summary.cells()]
    for row in rows:
        assert " | ".join(row[1:]) in found.text
    assert float(rows[0][1]) == pytest.approx(np.mean(post.draws["Intercept"]), abs=0.01)


def test_the_forest_draws_each_number_where_it_is(tmp_path):
    """Marks are read back from the page by its own ruler."""
    draws = {"a": np.linspace(-3, 1, 401), "b": np.linspace(2, 4, 401)}
    page = written(tmp_path, posterior(draws)).page
    ticks = re.findall(r'<text x="([\d.]+)%" y="14" text-anchor="middle">([-\d.]+)<', page)
    (x0, v0), (x1, v1) = [(float(x), float(v)) for x, v in (ticks[0], ticks[-1])]
    means = [float(x) for x in re.findall(r'class="mean" cx="([\d.]+)%"', page)]
    values = [v0 + (x - x0) * (v1 - v0) / (x1 - x0) for x in means]
    assert values == pytest.approx([-1, 3], abs=0.01)
    wide = re.findall(r'class="wide" x1="([\d.]+)%" x2="([\d.]+)%"', page)
    ends = [[v0 + (float(x) - x0) * (v1 - v0) / (x1 - x0) for x in pair] for pair in wide]
    assert np.allclose(ends, [[-2.8, 0.8], [2.1, 3.9]], atol=0.01)


def test_entries_go_by_their_labels_in_forest_and_table(tmp_path):
    draws = {"ward": np.random.default_rng(0).normal(size=(50, 2))}
    page = written(tmp_path, posterior(draws, labels={"ward": (("surgical", "other"),)})).page
    assert page.count("ward[surgical]") == page.count("ward[other]") >= 2
    assert "ward[0]" not in page


@pytest.mark.parametrize("values", [(3e12, 1e11), (-2e-9, 1e-10), (1e300, 1e299), (1000, 0.1)])
def test_axes_have_round_numbers_in_the_right_places(values):
    centre, spread = values
    bar = Bar("x", centre, *(centre + spread * np.array([-2, -1, 1, 2])))
    axis = drawings.axis_for_bars([bar])
    ticks = axis.ticks()
    assert 2 <= len(ticks) <= 7
    for share, label in ticks:
        assert -1e-9 <= share <= 1 + 1e-9
        assert share == pytest.approx(axis.share(float(label)), abs=1e-6)
    assert 0 < axis.share(bar.lower) < axis.share(bar.upper) < 1


def test_numbers_of_unlike_size_have_axes_of_their_own():
    large, small, zero = (Bar(n, v, v, v, v, v) for n, v in (("l", 1e6), ("s", 1.0), ("z", 0.0)))
    endless = Bar("e", np.inf, 0, 0, 0, np.inf)
    panels = drawings.forest_panels([small, endless, large, zero])
    assert [[bar.name for bar in panel.bars] for panel in panels] == [["l"], ["s"], ["z"]]
    for panel in panels:
        assert 0 <= panel.axis.share(panel.bars[0].mean) <= 1


def test_the_curve_passes_through_what_was_asked(tmp_path):
    post = posterior()
    page = written(tmp_path, post).page
    lines = re.findall(r'<polyline class="curve (\w+)" points="([^"]+)"', page)
    points = dict(re.findall(r'class="point (\w+)" cx="([\d.]+%" cy="[\d.]+)%"', page))
    assert [kind for kind, _ in lines] == ["asked", "other"]
    for kind, line in lines:
        x, y = np.array([pair.split(",") for pair in line.split()], float).T
        at = np.array(points[kind].replace('%" cy="', " ").split(), float)
        assert np.all(np.diff(y) >= 0)  # downwards: less epsilon for more delta
        assert np.interp(at[0], x, y) == pytest.approx(at[1], abs=0.5)


def test_the_budget_is_a_bar_of_what_is_known(tmp_path):
    spent = statement().epsilons["add-remove"]
    post = posterior(privacy=statement(budget_before=Budget(1.5 + spent, 9e-6)))
    page = written(tmp_path, post, ledger_total={"epsilon": 3, "delta": 1e-5}).page
    bar = re.search(r'<svg class="shares".*?</svg>', page, re.DOTALL).group()
    widths = dict(re.findall(r'class="(\w+)" x="[\d.]+%" y="0" width="([\d.]+)%"', bar))
    assert float(widths["left"]) == pytest.approx(50, abs=0.01)
    assert float(widths["run"]) == pytest.approx(100 * spent / 3, abs=0.01)
    assert sum(map(float, widths.values())) == pytest.approx(100, abs=0.01)
    assert "earlier runs" not in written(tmp_path, post).page
    assert "No ledger" in written(tmp_path, posterior(privacy=statement(budget_left=None))).page
    with pytest.raises(InvalidArgument, match="ledger_total"):
        written(tmp_path, post, ledger_total=3)


@pytest.mark.parametrize(
    ("intervals", "said"),
    [
        (Intervals.INCLUDED, "intervals account for the privacy noise"),
        (Intervals.LEFT_OUT, "intervals leave out the privacy noise"),
        (Intervals.SAMPLED, "to which no noise was added"),
        (Intervals.NO_NOISE, "without noise"),
        (Intervals.UNKNOWN, "may or may not account for the privacy noise"),
    ],
)
def test_it_says_whether_intervals_include_the_noise(tmp_path, intervals, said):
    found = written(tmp_path, posterior(intervals=intervals))
    for text in (found.page, found.text):
        assert text.count(said) == 1  # and is not said over and over
        left_out = text.count("noise not included")
        assert left_out > 0 if intervals == Intervals.LEFT_OUT else left_out == 0


def test_that_the_number_of_people_is_protected_is_said_at_the_top(tmp_path):
    said = "The number of people is protected"
    found = written(tmp_path, posterior())
    assert said in found.page[: found.page.index("<h2>")]
    assert said in found.text
    known = statement(public=("how many units there are, a unit being a person",))
    assert said not in written(tmp_path, posterior(privacy=known)).page


def test_a_level_that_nobody_has_does_not_rule_the_axis():
    learned = [Bar("a", 0.2, 0.1, 0.18, 0.22, 0.3, "coefficient", is_ratio=True)]
    absent = Bar("b", 0.1, -4, -1.6, 1.7, 4, "coefficient", is_ratio=True, is_unlearned=True)
    (panel,) = drawings.forest_panels([*learned, absent])
    alone = drawings.axis_for_bars(learned)
    assert panel.axis == alone
    assert panel.is_cut
    assert [alone.cut_share(end) for end in (-4, 4)] == [0, 1]
    # If nothing else is there, it is shown whole.
    assert not drawings.forest_panels([absent])[0].is_cut


@pytest.mark.parametrize(("low", "high"), [(-0.02, 0.03), (-0.5, 1.1), (-6, 7), (0.1, 0.2)])
def test_an_axis_of_ratios_has_round_numbers_in_the_right_places(low, high):
    axis = drawings.Axis(low, high, 1.0)
    ticks = axis.ratio_ticks()
    assert 2 <= len(ticks) <= 7
    for share, text in ticks:
        assert low + share * (high - low) == pytest.approx(np.log(float(text)), abs=1e-9)
        assert 0 <= share <= 1


def test_a_chain_shows_how_it_mixes(tmp_path):
    found = written(tmp_path, posterior(chain=True))
    assert table_of(found.page)[0][-2:] == ["ess", "r_hat"]
    assert "R-hat is at most" in found.page


@pytest.mark.parametrize(
    ("converged", "words"),
    [(True, "Converged."), (False, "DID NOT CONVERGE"), (None, "cannot tell")],
)
def test_it_says_whether_the_fit_converged(tmp_path, converged, words):
    fitted = posterior(
        trace={"mean": np.ones((80, 2))}, converged=converged, messages=("So it went.",)
    )
    found = written(tmp_path, fitted)
    for text in (found.page, found.text):
        assert words in text
        assert "So it went." in text
        assert "settled" not in text


def test_more_numbers_than_anyone_reads_are_cut_with_a_word(tmp_path):
    many = {"u": np.random.default_rng(0).normal(size=(100, 250))}
    page = written(tmp_path, posterior(many)).page
    assert page.count('class="mean"') == 60
    assert len(table_of(page)) == 201
    assert "first 200 of 250" in page


def test_the_schema_and_the_sites_are_shown(tmp_path):
    schema = tacit.Schema({"age": tacit.Number(18, 100)}, person="patient", most_rows=8)
    page = written(tmp_path, posterior(schema=schema)).page
    assert "18 to 100" in page
    assert "by column patient, with at most 8 rows" in page
    sites = {"north": statement(), EVIL: statement(event=events.gaussian(9.0))}
    post = posterior()
    united = FederatedPosterior(draws=post.draws, privacy=statement(), sites=sites)
    found = written(tmp_path, united)
    assert "north" in found.text
    assert "weakest guarantee" in found.page
    assert yaml.safe_load(found.registry)["deployment"]["deployment_model"]["model_name"] == (
        "Federated"
    )


# Privacy


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"event": None, "delta": 0.0}, "NOT PRIVATE"),
        ({"seeded": True}, "seeded: not private"),
        ({"delta": 0.0}, "NOT PRIVATE"),
    ],
)
def test_what_is_not_private_says_so_first(tmp_path, changes, said):
    found = written(tmp_path, posterior(privacy=statement(**changes)))
    assert '<p class="warning" role="alert">' + said in found.page
    assert found.page.index(said) < found.page.index("<h2>")
    assert found.text.index(said) < found.text.index("## ")
    assert found.registry.startswith(f"# {said}")
    fields = yaml.safe_load(found.registry)["deployment"]
    assert fields["privacy_loss"]["privacy_parameters"] == {"epsilon": None, "delta": None}
    assert fields["dp_variant"]["variant_name"] is None
    assert 'class="warning"' not in written(tmp_path, posterior()).page


def test_a_report_is_a_function_of_the_released_posterior(tmp_path):
    """From a file, which has neither model nor data, comes the same report to the letter."""
    post = posterior()
    post.save(tmp_path / "posterior.nc")
    again = Posterior.load(tmp_path / "posterior.nc")
    settings = {"formula": "y ~ x", "method": "Variational()"}
    assert vars(written(tmp_path, post, **settings)) == vars(written(tmp_path, again, **settings))


# Names are names


def test_nothing_comes_from_elsewhere_and_nothing_runs(tmp_path):
    found = written(tmp_path, posterior(), formula=EVIL, data=EVIL, **{EVIL: [EVIL]})
    reader = Reader(found.page)
    assert not {tag for tag, _ in reader.found} & {"script", "img", "iframe", "object", "link", "a"}
    for _, attributes in reader.found:
        assert not {"src", "href", "style", "srcset"} & attributes.keys()
        assert not any(name.startswith("on") for name in attributes)
    assert not re.search(r"://|url\(|@import|javascript:", found.page)
    assert "".join(reader.messages).count("<script>") >= 5  # shown, as the text that it is
    assert "default-src 'none'" in found.page


def test_markdown_shows_names_as_they_are(tmp_path):
    found = written(tmp_path, posterior(), formula=EVIL)
    prose = re.sub(r"```json.*?```", "", found.text, flags=re.DOTALL)
    assert "<script" not in prose
    assert "<img" not in prose
    assert re.search(r"[^\\]\[a[^\\]", prose) is None
    lines = [line for line in prose.splitlines() if line.startswith("| ")]
    columns = [len(re.findall(r"(?<!\\)\|", line)) for line in lines]
    assert set(columns) <= {3, 4, 6}  # a bar in a name makes no column
    json.loads(re.findall(r"```json\n(.*?)\n```", found.text, re.DOTALL)[-1])


def test_letters_that_no_file_can_hold(tmp_path):
    odd = "a\x00\x1b\ud800\u202e\r\nb"
    draws = {odd: np.random.default_rng(0).normal(size=50)}
    found = written(tmp_path, posterior(draws), **{odd: odd})
    for text in (found.page, re.sub(r"```json.*?```", "", found.text, flags=re.DOTALL)):
        assert not set(text) & set("\x00\x1b\r\u202e")
    assert _html.clean_text(odd) == "a\ufffd\ufffd\ufffd\ufffd b"
    Reader(found.page)
    for start in ("- a", "# a", "1. a", "2) a", "+ a", "---", "==="):
        assert "\\" in _html.escape_markdown(start)
    assert _html.escape_markdown("-1.25 (a) #b") == "-1.25 (a) #b"


def test_the_page_is_made_for_readers_of_all_kinds(tmp_path):
    reader = Reader(written(tmp_path, posterior()).page)
    assert all(cell.get("scope") in ("row", "col") for cell in reader.all("th"))
    for drawing in reader.all("svg"):
        nested = "viewbox" in drawing or drawing.get("class") == "area"
        assert nested or drawing.get("aria-label") or drawing.get("aria-hidden") == "true"
    assert {"name": "viewport", "content": "width=device-width, initial-scale=1"} in reader.all(
        "meta"
    )
    assert reader.all("html") == [{"lang": "en"}]
    assert len(reader.all("h1")) == len(reader.all("main")) == 1


# The registry and the folder


def test_the_registry_entry_has_the_fields_of_the_registry(tmp_path):
    said = statement(public=("the prior",))
    fields = yaml.safe_load(written(tmp_path, posterior(privacy=said)).registry)
    bare = said.to_registry()
    after, plain = (each["deployment"]["accounting"] for each in (fields, bare))
    more = after.pop("post_processing").removeprefix(plain.pop("post_processing"))
    assert "not known whether the intervals include" in more
    assert "cannot tell whether the fit converged" in more
    assert fields == bare
    assert list(fields) == ["url_slug", "status", "tier", "deployment"]
    assert list(fields["deployment"]) == [
        *("basic", "dp_variant", "privacy_loss", "deployment_model", "accounting"),
        *("implementation", "administrative"),
    ]
    loss = fields["deployment"]["privacy_loss"]
    assert loss["privacy_unit"] == "Person-level"
    assert loss["privacy_parameters"]["delta"] == 1e-6
    spent = said.epsilons["add-remove"]
    assert spent <= loss["privacy_parameters"]["epsilon"] <= spent * 1.0001
    assert fields["deployment"]["dp_variant"]["variant_name"] == "Approximate DP"
    pure = statement(event=events.laplace(1.0), delta=0.0).to_registry()
    assert pure["deployment"]["dp_variant"]["variant_name"] == "Pure DP"


def test_what_only_the_publisher_knows_is_to_be_filled_in(tmp_path):
    text = written(tmp_path, posterior()).registry
    empty = [line for line in text.splitlines() if ": null" in line]
    assert len(empty) >= 8
    assert all("  # " in line and "to fill in" not in line for line in empty)


def test_files_appear_whole_or_not_at_all(tmp_path):
    post = posterior()
    (tmp_path / "file").write_text("")
    with pytest.raises(TacitError, match="could not be written"):
        post.report(tmp_path / "file")
    (tmp_path / "run" / "report.md").mkdir(parents=True)
    with pytest.raises(TacitError, match="could not be written"):
        post.report(tmp_path / "run")
    assert not [p for p in (tmp_path / "run").iterdir() if p.name.startswith(".")]


# In a browser

PROBE = """<!DOCTYPE html><body style="margin:0">
<iframe id="page" src="{page}" style="border:0;width:360px;height:800px"></iframe>
<script>
addEventListener("load", () => {{
  const inside = document.getElementById("page").contentWindow;
  const all = inside.document.documentElement;
  const cut = [...inside.document.querySelectorAll("body *")].filter(
    (e) => !e.closest(".scroll, pre, svg") && e.getBoundingClientRect().right > 360.5);
  document.body.dataset.width = all.scrollWidth;
  document.body.dataset.cut = cut.map((e) => e.tagName + "." + e.className).join(" ");
  document.body.dataset.loaded = inside.performance.getEntriesByType("resource").length;
  document.body.dataset.drawn = [...inside.document.querySelectorAll("svg")].filter(
    (e) => e.getBoundingClientRect().width > 0).length;
}});
</script>"""
QUIET = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--hide-scrollbars", "--allow-file-access-from-files", "--enable-logging=stderr"),
    "--no-pdf-header-footer",
    "--host-resolver-rules=MAP * ~NOTFOUND",
]


@pytest.fixture(scope="module")
def browser():
    found = shutil.which("chromium") or shutil.which("google-chrome")
    if found is None:
        assert os.environ.get("TACIT_BROWSER") != "required", "CI must have Chromium"
        pytest.skip("Chromium is not installed")
    return found


def browse(browser, profile, *arguments):
    """Runs the browser to its end; what hangs is stopped, and nothing else."""
    command = [browser, *QUIET, f"--user-data-dir={profile}", *arguments]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            out, err = process.communicate(timeout=1800)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    assert process.returncode == 0, err
    assert "CONSOLE" not in err, err  # errors, and what the page's policy had to stop
    return out


@pytest.fixture
def difficult(tmp_path):
    """A page of long names, unlike sizes and hostile settings."""
    rng = np.random.default_rng(0)
    draws = {
        "unbroken_" * 20: rng.normal(-5, 1, 200),
        EVIL * 3: rng.normal(3e12, 1e11, 200),
        "u": rng.normal(size=(200, 60)),
    }
    schema = tacit.Schema({"column_" * 30: tacit.Number(0, 1)})
    post = posterior(draws, chain=True, schema=schema, privacy=statement(seeded=True))
    written(tmp_path, post, formula="y ~ " + "x" * 300, **{"k" * 90: "v" * 400})
    return tmp_path / "run" / "report.html"


@pytest.mark.processes
def test_the_page_fits_a_phone_and_asks_for_nothing(tmp_path, browser, difficult):
    probe = tmp_path / "probe.html"
    probe.write_text(PROBE.format(page=difficult.as_uri()), encoding="utf-8")
    dom = browse(browser, tmp_path / "profile", "--dump-dom", probe.as_uri())
    (measured,) = re.findall(r"<body[^>]*>", dom)
    assert 'data-width="360"' in measured
    assert 'data-cut=""' in measured
    assert 'data-loaded="0"' in measured
    assert int(re.search(r'data-drawn="(\d+)"', measured).group(1)) >= 60


@pytest.mark.processes
def test_the_page_prints(tmp_path, browser, difficult):
    target = tmp_path / "report.pdf"
    browse(browser, tmp_path / "profile", f"--print-to-pdf={target}", difficult.as_uri())
    content = target.read_bytes()
    assert 2 <= len(re.findall(rb"/Type\s*/Page\b", content)) <= 12
    for box in re.findall(rb"/MediaBox\s*\[([^]]*)\]", content):
        assert np.allclose(np.array(box.split(), float), [0, 0, 595, 842], atol=2)  # A4


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"assumptions": BY_NOISE["site"]}, "each has noise that protects people by itself"),
        ({"assumptions": BY_NOISE["split"]}, "single answers are masked"),
        ({"assumptions": BY_NOISE["server"]}, "the server is trusted"),
        ({"assumptions": (NO_GUARANTEE,)}, "without protection"),
        ({"event": None, "delta": 0.0}, "without protection"),
        ({}, "as the guarantee assumes"),
    ],
)
def test_what_the_server_learns_depends_on_who_adds_the_noise(changes, said):
    learnt = {name: server for name, server, *_ in who_learns(statement(**changes))}
    assert said in learnt["answers of a site in each round"]
    assert learnt["rows of a site"] == "nothing"
