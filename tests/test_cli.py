"""`tacit budget` as a person or a script would call it."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import docs_tools
import pytest

from tacit.accounting import PLD, events
from tacit.cli.main import COMMANDS, main

RUN = ["--noise-multiplier", "2", "--sampling-rate", "0.005", "--steps", "2000"]


def call(capsys, *arguments):
    code = main(arguments)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_epsilon_json(capsys):
    code, out, _ = call(capsys, "budget", "epsilon", *RUN, "--delta", "1e-3", "--json")
    assert code == 0
    found = json.loads(out)["epsilon"]
    assert found["add-remove"] == pytest.approx(0.24778, rel=1e-3)
    assert found["replace"] == pytest.approx(0.52123, rel=1e-3)


@pytest.mark.parametrize("adjacency", ["add-remove", "replace"])
def test_noise_json_keeps_the_budget(capsys, adjacency):
    code, out, _ = call(
        capsys,
        *"budget noise --epsilon 1 --delta 1e-5 --sampling-rate 0.005 --steps 2000".split(),
        *("--adjacency", adjacency, "--json"),
    )
    assert code == 0
    found = json.loads(out)
    run = events.sampled_gaussian(found["noise_multiplier"], 0.005, 2000)
    assert PLD().epsilon(run, 1e-5, adjacency) <= 1
    assert found["epsilon"][adjacency] == pytest.approx(1, rel=1e-3)


def test_noise_says_what_it_means_for_a_person(capsys):
    code, out, _ = call(
        capsys, *"budget noise --epsilon 1 --delta 1e-5 --sampling-rate 0.005 --steps 2000".split()
    )
    assert code == 0
    for word in ("noise multiplier", "1.1048", "add-remove", "replace", "guess right", "73.2%"):
        assert word in out


def test_meaning_says_what_an_attacker_can_do(capsys):
    code, out, _ = call(capsys, *"budget meaning --epsilon 1 --delta 1e-6 --json".split())
    found = json.loads(out)
    assert code == 0
    assert found["any_run"]["best_guess"] == pytest.approx(0.7311, abs=1e-4)
    assert found["run"]["advantage"] < 0.25 * found["any_run"]["advantage"]
    code, out, _ = call(capsys, *"budget meaning --advantage 0.1".split())
    assert code == 0
    for words in ("true positives at 1% false positives", "10.0%", "55.0%", "epsilon 1.0668"):
        assert words in out
    code, out, _ = call(capsys, *"budget meaning --noise-multiplier 2".split())
    assert "this run" in out
    for wrong in ("", "--epsilon 1 --noise-multiplier 2", "--advantage 2"):
        code, _, err = call(capsys, *f"budget meaning {wrong}".split())
        assert code != 0
        assert err.startswith("Error: ")


def test_steps(capsys):
    code, out, _ = call(
        capsys,
        *"budget steps --epsilon 1 --delta 1e-5 --noise-multiplier 1 --sampling-rate 0.01".split(),
        "--json",
    )
    found = json.loads(out)
    assert code == 0
    assert found["epsilon"]["add-remove"] <= 1
    assert found["steps"] > 1


@pytest.mark.parametrize("name", ["pld", "rdp", "moments", "advanced", "basic"])
def test_every_accountant_can_be_chosen(capsys, name):
    arguments = "budget epsilon --noise-multiplier 20 --sampling-rate 0.02 --steps 1000".split()
    code, out, _ = call(capsys, *arguments, "--delta", "1e-3", "--accountant", name, "--json")
    assert code == 0
    assert json.loads(out)["accountant"] == name


def test_advanced_is_the_dp_advi_formula(capsys):
    arguments = "budget epsilon --noise-multiplier 20 --sampling-rate 0.02 --steps 1000".split()
    _, out, _ = call(capsys, *arguments, "--delta", "1e-3", "--accountant", "advanced", "--json")
    assert json.loads(out)["epsilon"]["replace"] == pytest.approx(1.5915, rel=1e-3)


def test_compare_prints_and_draws_all(capsys, tmp_path):
    picture = tmp_path / "curves.png"
    arguments = ["budget", "compare", *RUN, "--delta", "1e-3", "--plot", str(picture)]
    code, out, _ = call(capsys, *arguments)
    assert code == 0
    assert all(name in out for name in ("pld", "rdp", "moments", "advanced", "basic"))
    assert "not available" in out
    assert "below 1" in out  # and why
    assert picture.read_bytes().startswith(b"\x89PNG")
    code, out, _ = call(capsys, "budget", "compare", *RUN, "--delta", "1e-3", "--json")
    found = json.loads(out)
    assert found["epsilon"]["advanced"]["replace"] is None
    assert found["epsilon"]["pld"]["add-remove"] < found["epsilon"]["rdp"]["add-remove"]


def test_curve(capsys, tmp_path):
    picture = tmp_path / "curve.png"
    code, out, _ = call(capsys, "budget", "curve", *RUN, "--json", "--plot", str(picture))
    assert code == 0
    found = json.loads(out)
    assert len(found["delta"]) == len(found["epsilon"]["add-remove"])
    assert picture.exists()
    code, out, _ = call(capsys, "budget", "curve", *RUN)
    assert code == 0
    assert "1e-06" in out


WRONG = {
    "negative": ["epsilon", "--noise-multiplier", "-2", "--delta", "1e-3"],
    "zero noise": ["epsilon", "--noise-multiplier", "0", "--delta", "1e-3"],
    "NaN": ["epsilon", "--noise-multiplier", "nan", "--delta", "1e-3"],
    "infinite": ["epsilon", "--noise-multiplier", "inf", "--delta", "1e-3"],
    "delta of 1": ["epsilon", *RUN, "--delta", "1"],
    "delta above 1": ["curve", *RUN, "--delta", "3"],
    "delta NaN": ["compare", *RUN, "--delta", "nan"],
    "unknown accountant": ["epsilon", *RUN, "--delta", "1e-3", "--accountant", "magic"],
    "unknown adjacency": ["noise", "--epsilon", "1", "--delta", "1e-3", "--adjacency", "swap"],
    "rate above 1": [
        "epsilon",
        "--noise-multiplier",
        "1",
        "--delta",
        "1e-3",
        "--sampling-rate",
        "2",
    ],
    "no steps": ["epsilon", "--noise-multiplier", "1", "--delta", "1e-3", "--steps", "0"],
    "half a step": ["epsilon", "--noise-multiplier", "1", "--delta", "1e-3", "--steps", "2.5"],
    "text": ["epsilon", "--noise-multiplier", "much", "--delta", "1e-3"],
    "missing option": ["epsilon", "--delta", "1e-3"],
    "negative epsilon": ["noise", "--epsilon", "-1", "--delta", "1e-5"],
    "zero epsilon": ["noise", "--epsilon", "0", "--delta", "1e-5"],
    "pure epsilon": ["noise", "--epsilon", "1", "--delta", "0"],
    "no step fits": ["steps", "--epsilon", "0.01", "--delta", "1e-9", "--noise-multiplier", "0.1"],
    "theorem fails": ["epsilon", *RUN, "--delta", "1e-3", "--accountant", "advanced"],
    "unwritable plot": ["curve", *RUN, "--plot", "/nowhere/at/all.png"],
    "unknown command": ["spend"],
}


@pytest.mark.parametrize("arguments", WRONG.values(), ids=WRONG.keys())
def test_wrong_input_is_one_clear_sentence(capsys, arguments):
    code, out, err = call(capsys, "budget", *arguments)
    assert code == 2
    assert out == ""
    assert err.startswith("Error: ")
    assert err.count("\n") == 1


def test_help_and_version(capsys):
    code, out, _ = call(capsys, "--version")
    assert code == 0
    assert out.startswith("tacit ")
    code, out, _ = call(capsys, "budget", "noise", "--help")
    assert code == 0
    assert "--sampling-rate" in out
    code, _, err = call(capsys, "budget")
    assert code == 2
    assert "compare" in err


@pytest.mark.processes
def test_installed_command_works():
    arguments = [sys.executable, "-m", "tacit", "budget", "epsilon", *RUN, "--delta", "1e-3"]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True, env=os.environ)
    assert "0.2478" in done.stdout
    assert done.stderr == ""


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_help_lines_are_those_of_the_commands(command, capsys):
    code, out, _ = call(capsys, command.name, "--help")
    assert code == 0
    assert " ".join(out.split("\n\n")[1].split()) == command.line


def test_the_page_of_the_command_line_has_every_command():
    page = (Path(__file__).parents[1] / "docs" / "reference/command_line.md").read_text("utf-8")
    assert "print(command_line())" in page
    generated = docs_tools.command_line()
    headings = re.findall(r"^## tacit (\w+)$", generated, re.MULTILINE)
    assert headings == [each.name for each in COMMANDS]
    for option in ("- `--epsilon FLOAT`: ", "### tacit ledger new\n"):
        assert option in generated
    introduction = page.partition("## Order")[0].partition("**Rows")[2]
    for name in re.findall(r"`([a-z]+)(?: [a-z]+)?(?: --rows)?`", introduction):
        assert name in headings


def test_listing_commands_loads_none(capsys):
    code, out, _ = call(capsys, "--help")
    assert code == 0
    assert all(command.name in out for command in COMMANDS)
    assert "Did you mean 'ledger'?" in call(capsys, "leger")[2]
