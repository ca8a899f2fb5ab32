"""One amount for a run: in the plan, the book, the statement, the report, the registry and on screen."""

import json
import re

import numpy as np
import pytest
import yaml

import tacit
from tacit.accounting import events
from tacit.accounting.accountants import cost
from tacit.accounting.ledger import Ledger
from tacit.api.audit import Audit
from tacit.cli.main import main
from tacit.privacy.rows import Rows
from tacit.results.report import write_report

FIT = [
    *("fit", "visits.csv", "--schema", "visits.yaml", "--formula", "readmitted ~ age", "--quiet"),
    *("--epsilon", "1", "--delta", "1e-6", "--ledger", "l.db"),
]
# The second method's own noise is more than the budget asks for.
METHODS = {
    "variational": "--method variational --set num_steps=5 --set sampling_rate=1".split(),
    "langevin": [
        "--method",
        "langevin",
        *"--set num_steps=40 --set size=1000 --set clip=1.4".split(),
    ],
}


@pytest.fixture
def there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["example"]) == 0
    lines = (tmp_path / "visits.csv").read_text().splitlines()[:1000]
    (tmp_path / "visits.csv").write_text("\n".join([*lines, ""]))
    assert main("ledger new l.db --epsilon 100 --delta 1e-5 --unit person".split()) == 0
    return tmp_path


def shown(capsys, *command):
    capsys.readouterr()
    assert main(command) == 0
    return capsys.readouterr().out


def in_report(folder):
    """The lines of the report's table on the budget."""
    table = (folder / "report.md").read_text().split("## Remaining budget")[1].split("##")[0]
    return dict(re.findall(r"\| *(earlier runs|this run|left) *\| *([\d.e-]+) *\|", table))


@pytest.mark.parametrize(
    "method", ["variational", pytest.param("langevin", marks=pytest.mark.slow)]
)
def test_everything_that_is_printed_agrees(there, capsys, method):
    asked = [*FIT, *METHODS[method]]
    plan = shown(capsys, *asked, "--dry-run", "--verbose")
    (planned,) = re.findall(r"Cost: epsilon ([\d.]+) at delta 1e-6, add-remove", plan)
    assert (planned == "1") == (method == "variational")
    left = f"{100 - float(planned):.10g}"
    for number, earlier in (("one", "0"), ("two", planned)):
        assert main([*asked, "--out", number]) == 0
        post = tacit.Posterior.load(there / number / "posterior.nc")
        stated = json.loads(post.privacy.to_json())["epsilon"]["add-remove"]
        booked = json.loads(shown(capsys, "ledger", "show", "l.db", "--json"))["charges"][-1]
        registry = yaml.safe_load((there / number / "registry.yaml").read_text())
        loss = registry["deployment"]["privacy_loss"]
        assert (
            stated == booked["epsilon"] == loss["privacy_parameters"]["epsilon"] == float(planned)
        )
        assert f"epsilon {planned} at delta 1e-6 under add-remove" in str(post.privacy)
        found = in_report(there / number)
        assert (found["earlier runs"], found["this run"]) == (earlier, planned)
        assert f"{float(found['left']) + float(earlier) + float(planned):.10g}" == "100"
    book = shown(capsys, "ledger", "show", "l.db")
    assert f"Left: epsilon {100 - 2 * float(planned):.10g}, " in book
    assert len(re.findall(rf" {re.escape(planned)} +1e-6", book)) == 2
    assert f"epsilon {left}, delta 9e-6" in (there / "one" / "report.md").read_text()


def test_a_run_that_costs_less_says_what_was_asked(there, capsys):
    plan = shown(capsys, *FIT, *METHODS["langevin"], "--dry-run", "--verbose")
    assert "add-remove (at most 1 was requested)" in plan
    assert "add-remove (requested)" in shown(
        capsys, *FIT, *METHODS["variational"], "--dry-run", "--verbose"
    )


def quick(ledger, budget):
    model = tacit.Model(
        parameters={"m": tacit.models.Parameter()},
        log_prior=lambda p: -(p["m"] ** 2),
        log_likelihood=lambda p, row: -((row["y"] - p["m"]) ** 2),
    )
    method = tacit.Variational(num_steps=3)
    return tacit.fit(model, Rows({"y": np.zeros(5)}), budget=budget, method=method, ledger=ledger)


def test_the_first_run_of_a_book_of_divergences_has_none_before_it(tmp_path):
    total = tacit.Budget(3, 1e-6)
    ledger = Ledger.new(tmp_path / "l.db", total=total, rule="renyi")
    post = quick(ledger, tacit.Budget(0.5, 1e-7))
    assert post.privacy.budget_before == total
    assert post.privacy.budget_left == ledger.left
    write_report(post, tmp_path / "run", settings={"ledger_total": total})
    found = in_report(tmp_path / "run")
    assert found["earlier runs"] == "0"
    assert float(found["this run"]) + float(found["left"]) == pytest.approx(3)


def test_thirds_of_a_budget_fit_into_it(tmp_path):
    ledger = Ledger.new(tmp_path / "l.db", total=tacit.Budget(1, 1e-6))
    third = tacit.Budget(1 / 3, 1e-6 / 3)
    for _ in range(3):
        post = quick(ledger, third)
        assert post.privacy.epsilons["add-remove"] == ledger.charges[-1].epsilon <= 1 / 3
    with pytest.raises(tacit.errors.Overspent):
        quick(ledger, tacit.Budget(0.001, 1e-9))


def test_deltas_have_the_same_digits_everywhere(tmp_path):
    third = tacit.Budget(1, 1e-6 / 3)
    post = quick(None, third)
    write_report(post, tmp_path, settings={})
    texts = [path.read_text() for path in tmp_path.iterdir() if path.suffix != ".svg"]
    for text in (*texts, str(post.privacy), post.privacy._repr_html_()):
        assert "3.333333333" in text
        assert "3.33333e" not in text
    found = Audit(
        claim=0.52772,
        lower_bound=0.1,
        confidence=0.95,
        delta=third.delta,
        adjacency="add-remove",
        unit="row",
        runs=10,
        right=1,
        guesses=2,
        highest=1.0,
        watched="",
        canary="",
    )
    assert "Claim: epsilon 0.52772 at delta 3.333333333e-7," in str(found)


def test_tenths_leave_nothing_but_zero(tmp_path):
    """In binary fractions a rest of 1e-17 or so would stay, or ten tenths would not fit."""
    ledger = Ledger.new(tmp_path / "l.db", total=tacit.Budget(1, 1e-6))
    event, tenth = events.laplace(10.0), tacit.Budget(0.1, 1e-7)
    assert cost(event, tenth) == tenth
    left = [ledger.charge(event, tenth).left.epsilon for _ in range(10)]
    assert left == [0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.0]
    assert ledger.left == tacit.Budget(0, 0)


def test_a_run_that_costs_less_is_charged_less(tmp_path):
    ledger = Ledger.new(tmp_path / "l.db", total=tacit.Budget(1, 1e-6))
    left = ledger.charge(events.laplace(4.0), tacit.Budget(1, 1e-7)).left
    assert [charge.epsilon for charge in ledger.charges] == [0.25]
    assert left == ledger.left == tacit.Budget(0.75, 9e-7)


def test_a_file_cannot_claim_less_than_its_event_costs(tmp_path):
    """What was asked for only rounds: it is no bound by itself."""
    text = quick(None, tacit.Budget(1, 1e-6)).privacy.to_json()
    said = json.loads(text)
    assert said["asked"] == 1
    claimed = tacit.PrivacyStatement.from_json(json.dumps(said | {"asked": 0.5}))
    assert claimed.epsilons["add-remove"] == 1
