"""From a table to a report by the command line, as a person or a script would go."""

import csv
import json
import os
import re
import signal
import subprocess
import sys

import numpy as np
import pytest
import yaml

import tacit
from tacit.cli.main import main
from tacit.inference.result import Intervals
from tacit.results.posterior import FederatedPosterior

FIT = [
    *("fit", "visits.csv", "--schema", "visits.yaml", "--epsilon", "1", "--delta", "1e-6"),
    *("--formula", "readmitted ~ age + ward", "--set", "sampling_rate=1"),
    *("--set", "num_steps=12"),
]
# Where it does not matter how.
QUICK = [*FIT[:-2], "--method", "variational", "--set", "num_steps=5"]
NOTES = ["--note", "purpose=Who comes back?", "--note", "approval=2026-117"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The example's files, a ledger, and a run."""
    folder = tmp_path_factory.mktemp("visits")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["example"]) == 0
        ledger = "ledger new l.db --epsilon 3 --delta 1e-5 --unit person"
        assert main(ledger.split()) == 0
        assert main([*FIT, *NOTES, "--ledger", "l.db", "--out", "run"]) == 0
    return folder


@pytest.fixture(autouse=True)
def there(folder, monkeypatch):
    """Commands run where the files are."""
    monkeypatch.chdir(folder)


def call(capsys, *arguments):
    """Exit code and what was printed."""
    code = main(arguments)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_a_run_is_all_that_was_asked(folder):
    run = folder / "run"
    assert {path.name for path in run.iterdir()} == {
        *("posterior.nc", "settings.yaml", "schema.yaml"),
        *("report.html", "report.md", "registry.yaml"),
    }
    asked = yaml.safe_load((run / "settings.yaml").read_text())
    assert asked["formula"] == "readmitted ~ age + ward"
    assert asked["family"] == "bernoulli"
    assert asked["settings"] == {"num_steps": 12, "sampling_rate": 1}
    assert tacit.Schema.from_yaml(run / "schema.yaml") == tacit.Schema.from_yaml("visits.yaml")
    post = tacit.Posterior.load(run / "posterior.nc")
    assert post.privacy.unit == "person"
    assert post.privacy.is_private
    assert list(post.draws) == ["Intercept", "age", "ward"]


def test_clipping_is_told_before_the_charge(capsys, folder):
    before = (folder / "l.db").read_bytes()
    code, _, err = call(
        capsys,
        *(*QUICK, "--set", "clip=0.01", "--ledger", "l.db", "--out", "clipped"),
    )
    assert code == 2
    assert "Most rows are clipped" in err
    assert "pass --yes" in err
    assert not (folder / "clipped").exists()
    assert (folder / "l.db").read_bytes() == before


def test_the_ledger_shows_it(capsys):
    code, out, _ = call(capsys, "ledger", "show", "l.db", "--json")
    book = json.loads(out)
    assert code == 0
    assert book["total"]["epsilon"] == 3
    assert book["charges"][0]["epsilon"] == 1
    assert book["left"]["epsilon"] == 2
    shown = call(capsys, "ledger", "show", "l.db")[1]
    assert "Left: epsilon 2" in shown
    label = book["charges"][0]["label"]
    for said in (
        *("readmitted ~ age + ward (logistic regression), by private Fisher scoring; in run",),
        *("purpose: Who comes back?", "approval: 2026-117"),
    ):
        assert said in label
    assert " ".join(label.split()) in " ".join(shown.split())


def test_the_report_of_a_fresh_ledger_has_no_earlier_runs(folder):
    page = (folder / "run" / "report.html").read_text()
    parts = re.findall(r"</svg>(earlier runs|this run|left): ([^<]*)<", page)
    assert parts == [("earlier runs", "0"), ("this run", "1"), ("left", "2")]


def test_notes_are_kept_and_shown(folder):
    asked = yaml.safe_load((folder / "run" / "settings.yaml").read_text())
    assert asked["notes"] == {"purpose": "Who comes back?", "approval": "2026-117"}
    for name in ("report.html", "report.md"):
        text = (folder / "run" / name).read_text()
        assert "Who comes back?" in text
        assert "2026-117" in text


def test_a_run_is_explained_in_plain_words(capsys, folder):
    code, out, err = call(capsys, "explain", "run")
    assert (code, err) == (0, "")
    flat = " ".join(out.split())
    for said in (
        *("How does readmitted depend on age and ward?", "purpose: Who comes back?"),
        *("WHAT LEAVES", "No row of the data leaves", "WHAT IT MEANS FOR ONE PERSON"),
        *("One person, with all their rows.", "guess right at most", "WHAT IS ASSUMED"),
        *("WHAT IS PUBLIC, AND SO NOT PROTECTED", "bounds and levels of the schema"),
        *("running time", "epsilon 1 at delta 1e-6", "had epsilon 2"),
    ):
        assert said in flat, said
    assert max(map(len, out.splitlines())) <= 80
    for word in ("posterior", "AES", "unconstrained", "clip"):
        assert word not in out
    alone = " ".join(call(capsys, "explain", "run/posterior.nc")[1].split())
    assert "How does readmitted depend on age and ward?" in alone
    assert "had epsilon 2" in alone


def test_a_report_in_other_units_goes_where_it_is_asked_for(capsys, folder):
    code, out, _ = call(capsys, "report", "run", "--out", "other", "--unit", "age=5")
    assert (code, out) == (0, "Report: other/report.html\n")
    assert "per 5 years" in (folder / "other" / "report.html").read_text()
    assert "per 10 years" in (folder / "run" / "report.html").read_text()


def test_a_federated_result_has_a_report_and_an_explanation(capsys, folder):
    found = tacit.Posterior.load(folder / "run" / "posterior.nc")
    sites = {"north": found.privacy, "south": found.privacy}
    FederatedPosterior(
        draws=found.draws, privacy=found.privacy, labels=found.labels, sites=sites
    ).save(folder / "together.nc")
    assert call(capsys, "report", "together.nc", "--out", "together")[0] == 0
    page = (folder / "together" / "report.html").read_text()
    assert "north" in page
    assert "weakest guarantee" in page
    assert "2 sites (north, south)" in " ".join(call(capsys, "explain", "together.nc")[1].split())


def test_a_ledger_is_opened_once(capsys):
    code, _, err = call(capsys, *"ledger new l.db --epsilon 9 --unit row".split())
    assert code == 2
    assert "exists" in err


def test_a_dry_run_spends_nothing_and_writes_nothing(capsys, folder):
    before = sorted(path.name for path in folder.iterdir())
    code, out, err = call(capsys, *QUICK, "--ledger", "l.db", "--out", "dry", "--dry-run")
    assert (code, err) == (0, "")
    for words in (
        *("Plan: readmitted ~ age + ward", "(nothing read, nothing charged)"),
        *("Model      Bayesian logistic regression, 5 coefficients, Normal(0, 2.5) on scaled",),
        *("Data       one person = patient, at most 8 rows each; rows with a missing cell",),
        *("Privacy    epsilon 1 at delta 1e-6 per person; 2.", "Method     variational inference"),
        "Details: --verbose",
    ):
        assert words in out
    assert len(out.splitlines()) < 12
    whole = call(capsys, *QUICK, "--dry-run", "--verbose")[1]
    for words in ("per 41 years, half of 18 to 100", "epsilon 1 at delta 1e-6", "nothing charged"):
        assert words in whole
    assert "No ledger: nothing limits how often these data are used." in whole
    assert "has epsilon 2, delta 9e-6 (add-remove) left" in out
    assert sorted(path.name for path in folder.iterdir()) == before
    assert len(tacit.Ledger("l.db").charges) == 1


def test_a_dry_run_reads_the_header_only(capsys, folder):
    """Nothing that it prints could follow from a row."""
    (folder / "header.csv").write_text("patient,age,dose,ward,readmitted\n")
    with_rows = call(capsys, *QUICK, "--dry-run")[1]
    without = call(capsys, QUICK[0], "header.csv", *QUICK[2:], "--dry-run")[1]
    assert with_rows == without


def test_predictions_are_those_of_the_posterior(capsys, folder):
    code, out, err = call(capsys, "predict", "run", "new_patients.csv")
    assert (code, err) == (0, "")
    header, *lines = out.splitlines()
    # The columns of the new rows come first.
    given, *cells = (folder / "new_patients.csv").read_text().splitlines()
    assert header == f"{given},mean"
    assert [line.rpartition(",")[0] for line in lines] == cells
    post = tacit.Posterior.load(folder / "run" / "posterior.nc")
    age = (np.array([30, 80]) - 59) / 41
    effects = np.stack([np.zeros(len(post.draws["age"])), post.draws["ward"][:, 2]], axis=1)
    logit = post.draws["Intercept"][:, None] + np.outer(post.model_draws["age"], age) + effects
    means = (1 / (1 + np.exp(-logit))).mean(axis=0)
    assert [float(line.rpartition(",")[2]) for line in lines] == pytest.approx(means, abs=1e-4)


def test_a_row_without_a_value_has_no_prediction(capsys, folder):
    (folder / "gaps.csv").write_text("age,ward\n,medical\n40,\n50,surgical\n")
    assert call(capsys, "predict", "run", "gaps.csv", "--out", "p.csv")[0] == 0
    lines = (folder / "p.csv").read_text().splitlines()
    assert [line.endswith(",NA") for line in lines[1:]] == [True, True, False]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("predict nowhere new_patients.csv", "not a run"),
        ("predict . new_patients.csv", "not a run"),
        ("predict run nowhere.csv", "nowhere.csv"),
        ("predict run visits.yaml", "visits.yaml"),
        ("predict run header_only.csv", "no column"),
        ("report nowhere", "not a run"),
        ("report visits.csv", "not a posterior"),
        ("report run --unit age", "column=number"),
        ("report run --unit age=ten", "column=number"),
        ("report run --unit ward=2 --out other", "not a number here"),
        ("explain nowhere", "not a run"),
        (
            (
                "fit visits.csv --schema visits.yaml --epsilon 1 --delta 1e-6 "
                "--formula readmitted~age --note purpose"
            ),
            "name=text",
        ),
        ("schema check visits.csv", "'columns'"),
        ("schema check visits.yaml new_patients.csv", "no column"),
        ("schema draft nowhere.csv", "nowhere.csv"),
        ("schema draft visits.csv --out visits.yaml --no-input", "exists"),
        ("ledger show nowhere.db", "no ledger"),
        ("ledger new x.db --epsilon -1 --delta 1e-6 --unit row", "epsilon"),
        ("ledger new x.db --epsilon 1", "--unit row or --unit person"),
        ("ledger new x.db --epsilon 1 --schema visits.yaml --unit row", "leave --unit out"),
        ("predict rum new_patients.csv", "Did you mean run?"),
        ("predict run new_patient.csv", "Did you mean new_patients.csv?"),
        ("schema check vists.yaml", "Did you mean visits.yaml?"),
        ("ledger show ll.db", "Did you mean l.db?"),
        ("ledger new x.db --epsilon 1 --delta 1e-6 --unit ward", "unit"),
        ("ledger new x.db --epsilon 1 --unit row --rule max", "rule"),
        ("example .", "exists"),
        ("frobnicate", "frobnicate"),
    ],
)
def test_faults_of_other_commands(capsys, folder, arguments, said):
    (folder / "header_only.csv").write_text("weight\n70\n")
    code, out, err = call(capsys, *arguments.split())
    assert code == 2
    assert out == ""
    assert err.startswith("Error: ")
    assert said in err
    assert err.count("\n") == 1


def test_a_fit_without_a_ledger_says_so(capsys, folder):
    code, out, err = call(capsys, *QUICK, "--out", "free")
    assert (code, err) == (0, "")
    assert "no ledger, so nothing limits how often these data are used" in out
    assert "no ledger: nothing limits" in (folder / "free" / "report.md").read_text()


def test_a_fit_prints_what_people_ask_for(capsys, folder):
    """The model, the cost, what was found, and where to go on; the rest is for --verbose."""
    short = ["fit", "visits.csv", "-s", "visits.yaml", "-f", "readmitted ~ age + ward"]
    common = [*short, "--epsilon", "1", "--set", "num_steps=12", "--ledger", "p.db"]
    assert main("ledger new p.db --epsilon 3 --schema visits.yaml".split()) == 0
    assert tacit.Ledger("p.db").unit == "person"
    capsys.readouterr()
    code, out, err = call(capsys, *common, "--out", "plain")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[:4] == [
        "Model      logistic regression, 5 coefficients; one person = patient, at most 8 rows each",
        "Privacy    epsilon 1, delta 1e-6 per person; 2 of 3 left afterwards",
        "Age and ward are clearly related to readmitted.",
        "Converged. 90% credible intervals account for the privacy noise.",
    ]
    assert lines[4].endswith("odds ratio [90%]")
    assert lines[6].startswith("age, per 10 years ")
    assert "Reference: age 59 years, ward medical." in lines
    assert lines[-1] == (
        "Report: plain/report.html      Next: tacit predict plain new.csv · tacit explain plain"
    )
    assert len(lines) < 14
    # The settings of the run repeat it; what is typed comes first.
    code, out, _ = call(
        capsys, *"fit --config plain/settings.yaml --epsilon 0.5 --out again --verbose".split()
    )
    assert code == 0
    assert [charge.epsilon for charge in tacit.Ledger("p.db").charges] == [1, 0.5]
    for words in (
        "95% of the prior",
        "Priors: normal",
        "Its late rounds",
        "clips in each of its numbers",
    ):
        assert words in out
    asked, before = (
        yaml.safe_load((folder / name / "settings.yaml").read_text()) for name in ("again", "plain")
    )
    assert asked["budget"] == {**before["budget"], "epsilon": 0.5}
    assert {**asked, "budget": 0, "made": 0} == {**before, "budget": 0, "made": 0}


def test_a_study_is_in_a_file(capsys, folder):
    (folder / "study.yaml").write_text(
        "data: visits.csv\nschema: visits.yaml\nformula: readmitted ~ age\nepsilon: 1\n"
        "delta: 1e-7\nmethod: variational\nsettings: {num_steps: 5}\nout: studied\n"
        "notes: {purpose: A study of falls}\nscenario: {columns: {age: {mean: 60, sd: 10}}}\nsize: 6000\n"
    )
    command = ["fit", "--config", "study.yaml", "--dry-run"]
    assert "epsilon 1 at delta 1e-7" in call(capsys, *command)[1]
    code, out, _ = call(capsys, *command, "-f", "readmitted ~ ward", "--delta", "1e-8")
    assert code == 0
    assert "Plan: readmitted ~ ward" in out
    assert "delta 1e-8" in out
    assert call(capsys, "fit", "--epsilon", "1")[2].startswith("Error: Pass the data and --schema")


def test_a_ledger_asks_for_its_unit_if_somebody_is_there(capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("typer.confirm", lambda question, **_: "several rows" in question)
    code, out, _ = call(capsys, "ledger", "new", "asked.db", "--epsilon", "3")
    assert code == 0
    assert (
        out == "Created asked.db: epsilon 3, delta 1e-5 (add-remove) in total for every person.\n"
    )


def test_a_report_can_be_written_again(capsys, folder):
    page = folder / "run" / "report.html"
    before = page.read_text()
    page.unlink()
    assert call(capsys, "report", "run")[0] == 0
    assert page.read_text() == before


def test_a_schema_is_drafted_by_answers(capsys, folder, monkeypatch):
    answers = iter(
        ["number", "18", "100", "", "", "skip", "category", "medical, surgical", "other", "", ""]
    )
    (folder / "few.csv").write_text("age,dose,ward\n44.4444,2,zzz\n")
    monkeypatch.setattr("typer.prompt", lambda *_, **__: next(answers, ""))
    code, out, err = call(capsys, "schema", "draft", "few.csv", "--out", "few.yaml")
    assert (code, err) == (0, "")
    drafted = tacit.Schema.from_yaml("few.yaml")
    assert drafted["age"] == tacit.Number(18, 100)
    assert drafted["ward"].levels == ("medical", "surgical")
    assert "dose" not in drafted.names
    assert "44.4444" not in out + (folder / "few.yaml").read_text()
    assert call(capsys, "schema", "check", "few.yaml", "few.csv")[0] == 0


def test_a_draft_without_answers_has_places_to_fill_in(capsys, folder):
    code, _, _ = call(capsys, "schema", "draft", "visits.csv", "--no-input", "--out", "t.yaml")
    assert code == 0
    assert "age" in (folder / "t.yaml").read_text()
    code, _, err = call(capsys, "schema", "check", "t.yaml")
    assert code == 2
    assert "column 'patient'" in err


def test_scales_are_released_and_charged(capsys):
    assert main("ledger new s.db --epsilon 3 --delta 1e-5 --unit person".split()) == 0
    code, out, err = call(
        capsys,
        *"schema scale visits.csv --schema visits.yaml --column age --epsilon .5".split(),
        *"--delta 1e-6 --ledger s.db --out scaled.yaml".split(),
    )
    assert (code, err) == (0, "")
    assert "From the data: centre and spread of age" in out
    assert tacit.Schema.from_yaml("scaled.yaml")["age"].centre == pytest.approx(56, abs=12)
    assert tacit.Ledger("s.db").left.epsilon == pytest.approx(2.5)


@pytest.mark.processes
def test_words_are_completed_for_the_shell():
    words = {"_TACIT_COMPLETE": "complete_bash", "COMP_WORDS": "tacit led", "COMP_CWORD": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "tacit"],
        env={**os.environ, **words},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == ["ledger"]


# A process that was started in the background may be deaf to Ctrl-C, and its children with it.
# This one says when the first steps are done, and others follow.
INTERRUPTIBLE = """
import contextlib, signal, sys
from tacit.api import fit
from tacit.cli.main import main
from tacit.results.posterior import FederatedPosterior

@contextlib.contextmanager
def told(steps, shown):
    yield lambda done: print("steps are done", flush=True)

fit.progress_bar = told
sys.stderr.isatty = lambda: True
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.slow
@pytest.mark.processes
def test_an_interruption_says_what_was_spent(folder):
    command = [*QUICK[:-1], "num_steps=2000000", "--ledger", "l2.db", "--out", "long"]
    tacit.Ledger.new(folder / "l2.db", total=tacit.Budget(3, 1e-5), unit="person")
    program = [sys.executable, "-c", INTERRUPTIBLE, *command]
    with subprocess.Popen(
        program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout.readline() == "steps are done\n"
        running.send_signal(signal.SIGINT)
        said = running.communicate()[1]
    assert running.returncode == 130
    assert "counts as spent" in said
    assert "tacit resume long" in said
    assert "Traceback" not in said
    assert len(tacit.Ledger(folder / "l2.db").charges) == 1


def test_what_nobody_foresaw_is_told_without_its_words(capsys, monkeypatch):
    def broken(*_, **__):
        raise ValueError("could not convert string to float: 'zzz-cell'")

    monkeypatch.setattr(tacit, "fit", broken)
    code, out, err = call(capsys, *QUICK, "--out", "broken")
    assert code == 1
    assert "zzz" not in out + err
    assert "ValueError in test_fit_cli.py" in err


def full_disk(*_, **__):
    raise OSError(28, "No space left on device")


def test_a_posterior_that_was_paid_for_is_kept(capsys, folder, monkeypatch):
    tacit.Ledger.new(folder / "l3.db", total=tacit.Budget(3, 1e-5), unit="person")

    def fails(self, path):
        raise tacit.errors.TacitError("...") from OSError(28, "No space left on device")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tacit.Posterior, "save", fails)
        code, _, err = call(capsys, *QUICK, "--ledger", "l3.db", "--out", "full")
    assert code == 1
    assert "No space left" in err
    assert "tacit resume full" in err
    assert call(capsys, "resume", "full")[0] == 0
    assert len(tacit.Ledger(folder / "l3.db").charges) == 1
    assert (folder / "full" / "report.html").exists()


def test_a_posterior_outlives_its_report(capsys, folder, monkeypatch):
    monkeypatch.setattr("tacit.results.report.write_atomically", full_disk)
    code, out, err = call(capsys, *QUICK, "--out", "unreported")
    assert code == 1
    assert "Intercept" in out
    assert "tacit report unreported" in err
    monkeypatch.undo()
    monkeypatch.chdir(folder)
    assert call(capsys, "report", "unreported")[0] == 0
    assert (folder / "unreported" / "report.html").exists()


def test_a_fault_after_the_charge_does_not_look_like_one_before(capsys, folder, monkeypatch):
    def fails(*_, **__):
        raise tacit.errors.BoundaryError("No.")

    tacit.Ledger.new(folder / "l4.db", total=tacit.Budget(3, 1e-5), unit="person")
    monkeypatch.setattr("tacit.api.fit._posterior", fails)
    code, _, err = call(capsys, *QUICK, "--ledger", "l4.db", "--out", "failed")
    assert code == 1
    assert "was charged" in err
    assert len(tacit.Ledger("l4.db").charges) == 1


def test_a_run_that_never_began_leaves_no_folder(capsys, folder, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(tacit.Schema, "encode", interrupted)
    code, _, err = call(capsys, *QUICK, "--ledger", "l.db", "--out", "never")
    assert code == 130
    assert "ledger show" in err
    assert len(tacit.Ledger("l.db").charges) == 1  # that of the first run
    assert not (folder / "never").exists()


def test_scales_that_were_paid_for_are_printed_at_least(capsys, folder, monkeypatch):
    tacit.Ledger.new(folder / "s2.db", total=tacit.Budget(3, 1e-5), unit="person")
    monkeypatch.setattr(tacit.Schema, "to_yaml", full_disk)
    command = "schema scale visits.csv --schema visits.yaml --column age --epsilon 0.5 --delta 1e-6"
    code, out, err = call(capsys, *command.split(), "--ledger", "s2.db", "--out", "lost.yaml")
    assert code == 1
    assert "divided by" in out
    assert "No space left" in err
    assert not (folder / "lost.yaml").exists()


@pytest.mark.parametrize("command", ["draft visits.csv", "draft visits.csv --no-input"])
def test_where_a_schema_cannot_be_written_is_said_before_questions(capsys, monkeypatch, command):
    monkeypatch.setattr("tacit.cli.data._prompt", lambda _: pytest.fail("asked"))
    code, _, err = call(capsys, "schema", *command.split(), "--out", "nowhere/s.yaml")
    assert code == 2
    assert "existing folder" in err


def test_what_follows_from_a_seeded_fit_says_that_it_is_not_private(capsys):
    assert call(capsys, *QUICK, "--seed", "1", "--out", "seeded", "--quiet")[0] == 0
    for command in (["predict", "seeded", "new_patients.csv"], ["report", "seeded"]):
        code, _, err = call(capsys, *command)
        assert code == 0
        assert "not private" in err


def test_what_follows_from_a_fit_that_did_not_converge_says_so(capsys):
    code, out, _ = call(capsys, *QUICK, "--out", "short")
    assert code == 0
    assert out.splitlines()[2].startswith("THE FIT DID NOT CONVERGE")
    assert "\nConverged" not in out
    for command in (["predict", "short", "new_patients.csv"], ["report", "short"]):
        code, _, err = call(capsys, *command)
        assert code == 0
        assert "DID NOT CONVERGE" in err


def test_levels_have_no_interval():
    from tacit.cli.runs import write_predictions

    class Chances:
        def predict(self, _):
            return np.full((2, 3), 1 / 3)

    with pytest.raises(tacit.errors.InvalidArgument, match="--interval mean"):
        write_predictions(Chances(), {}, None, interval="outcome", levels=["a", "b", "c"])


@pytest.mark.parametrize(
    ("intervals", "ends"),
    [
        (Intervals.LEFT_OUT, ["5% (noise not included)", "95% (noise not included)"]),
        (Intervals.INCLUDED, ["5%", "95%"]),
    ],
)
def test_predicted_intervals_say_if_they_leave_out_the_noise(intervals, ends, capsys, monkeypatch):
    from tacit.cli import runs
    from tacit.results import predictive

    class Predicting:
        def __init__(self):
            self.intervals, self.schema = intervals, None

        def predict(self, _):
            return np.ones(2)

    monkeypatch.setattr(predictive, "predictive_quantiles", lambda *_, **__: {"y": np.ones((2, 2))})
    runs.write_predictions(Predicting(), {}, None, interval="outcome", levels=[])
    header, *lines = csv.reader(capsys.readouterr().out.splitlines())
    assert header == ["mean", *ends]
    assert lines == [["1", "1", "1"]] * 2


@pytest.mark.parametrize("typed", [["--interval"], ["--interval", "--out", "p.csv"]])
def test_an_interval_without_a_word_is_that_of_the_mean(typed, monkeypatch):
    from tacit.cli import main as command

    seen = []
    monkeypatch.setattr(command, "make_app", lambda _: lambda args, **__: seen.extend(args))
    assert command.main(["predict", "run", "new.csv", *typed]) == 0
    assert seen == ["predict", "run", "new.csv", "--interval=mean", *typed[1:]]
    seen.clear()
    command.main(["predict", "run", "new.csv", "--interval", "outcome"])
    assert seen[-2:] == ["--interval", "outcome"]


def test_help_is_plain(capsys):
    code, out, _ = call(capsys, "fit", "--help")
    assert code == 0
    assert "[default: 1e-6]" in out
    assert "\\" not in out
