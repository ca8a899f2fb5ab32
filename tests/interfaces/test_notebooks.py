"""How plans and ledgers look in a notebook, and what a ledger's entry says of a fit."""

import subprocess
import sys
from html.parser import HTMLParser

import numpy as np
import pytest

import tacit
from tacit.accounting import events
from tacit.models.jax_model import Model, Parameter
from tacit.privacy.rows import Rows

EVIL = "<script>alert(1)</script>"
SCHEMA = tacit.Schema(
    {"x": tacit.Number(-1, 1), EVIL: tacit.Category(["a", "b"]), "y": tacit.Binary()}
)
BUDGET = tacit.Budget(1, 1e-5)


class Seen(HTMLParser):
    """Tags that are open at the end, and the text."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.text = [], []
        self.feed(page)
        assert not self.tags

    def handle_starttag(self, tag, attrs):
        assert tag not in {"script", "img", "link"}
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.tags.pop() == tag

    def handle_data(self, data):
        self.text.append(data)

    def __contains__(self, words):
        return words in " ".join(" ".join(self.text).split())


@pytest.fixture(scope="module")
def plan():
    return tacit.plan(tacit.glm("y ~ x", schema=SCHEMA), budget=BUDGET)


def test_a_plan_shows_what_it_does_and_costs(plan):
    seen = Seen(plan._repr_html_())
    for words in (
        *plan.method_lines(),
        "Cost: epsilon 1",
        "nothing charged",
        "guess right at most",
    ):
        assert words in seen
    assert EVIL in seen  # as text


def test_a_ledger_shows_its_charges_as_text(tmp_path):
    ledger = tacit.Ledger.new(tmp_path / "l.db", tacit.Budget(3, 1e-5))
    assert "No charges yet." in Seen(ledger._repr_html_())
    ledger.charge(events.gaussian(9.0), BUDGET, EVIL)
    seen = Seen(ledger._repr_html_())
    for words in ("l.db: epsilon 3", "left.", EVIL, "1e-5"):
        assert words in seen


def test_an_entry_names_the_formula_and_the_method(plan):
    assert plan.label() == "y ~ x (logistic regression), by private Fisher scoring"
    assert plan.label("two\nlines").endswith("; two lines")


def test_an_entry_names_the_parameters_of_other_models(tmp_path):
    model = Model(
        parameters={"level": Parameter(), "slope": Parameter()},
        log_prior=lambda p: -(p["level"] ** 2) - p["slope"] ** 2,
        log_likelihood=lambda p, row: -((row["y"] - p["level"] - p["slope"] * row["x"]) ** 2),
    )
    rows = Rows({"x": np.zeros(50, np.float32), "y": np.ones(50, np.float32)})
    ledger = tacit.Ledger.new(tmp_path / "l.db", tacit.Budget(3, 1e-4))
    method = tacit.Variational(num_steps=5)
    tacit.fit(model, rows, budget=BUDGET, method=method, ledger=ledger, label="approval 7")
    [charge] = ledger.charges
    assert charge.label == "model with level, slope, by variational inference; approval 7"


def test_the_text_of_a_table_is_not_shown_by_itself(monkeypatch, capsys):
    """In a notebook Rich displays what it prints, whatever file it prints to."""
    plain = str(SCHEMA.check({"x": [0.5], EVIL: ["a"], "y": [1]}))
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    in_notebook = str(SCHEMA.check({"x": [0.5], EVIL: ["a"], "y": [1]}))
    assert in_notebook == plain
    assert plain.index("NOT PRIVATE") < plain.index("outside bounds")
    assert capsys.readouterr().out == ""


def test_numpyro_brings_no_warning_of_widgets():
    """The module that stands for IPython has no widgets either."""
    code = (
        "import sys, types, warnings\n"
        "warnings.simplefilter('error')\n"
        "sys.modules['IPython'] = types.ModuleType('IPython')\n"
        "import tacit.models\n"
        "assert 'tqdm.auto' in sys.modules and 'numpyro' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
