"""How far a run is: what the server tells, and what status shows at the server and at a site."""

import logging

import pytest

pytest.importorskip("flwr")

from fake_grid import FakeGrid, as_by_flower  # noqa: F401 (for every test)
from sites_on_disk import make_sites

from tacit.cli.main import main
from tacit.federated.deploy import load_study
from tacit.federated.flower_grid import serve
from tacit.federated.state import RunStatus, Update, read_run_status


def a_course(times, **settings):
    """A run of three sites whose rounds ended at some times."""
    sites = ("north", "south", "west")
    updates = [Update(i, at, sites) for i, at in enumerate(times, start=1)]
    known = {"num_rounds": 20, "groups": 1, "budget": "epsilon 1"} | settings
    return RunStatus(run="run-1", sites=sites, updates=updates, **known)


def words(text):
    """A text without the spaces of its tables."""
    return " ".join(text.split())


def test_the_server_says_in_one_line_who_answered_and_status_repeats_it(tmp_path, caplog, capsys):
    files, state = make_sites(tmp_path, rounds=3), tmp_path / "result.state"
    study = load_study(files["north"].parent / "study.py")

    def trouble(node, fields, count):
        return "lost" if node == 3 and fields.get("round") == 2 else None

    with caplog.at_level(logging.INFO, "tacit"):
        serve(FakeGrid(files, trouble), study, timeout=5.0, patience=30.0, state=state)
    lines = [each for each in caplog.messages if " of 3: " in each]
    assert lines[0] == "Round 1 of 3: all sites answered; time left not known yet."
    assert lines[1].startswith("Round 2 of 3: all sites but west answered; about ")
    assert lines[2] == "Round 3 of 3: all sites answered; the last round is done."
    course = read_run_status(state)
    assert [each.answered for each in course.updates][1] == ("north", "south")
    assert main(["federated", "status", str(state)]) == 0
    at_server = words(capsys.readouterr().out)
    assert lines[2] in at_server
    assert "west 2 3 epsilon 20" in at_server
    # A server that starts again goes on with the same lines.
    serve(FakeGrid(files), study, timeout=5.0, patience=30.0, state=state)
    assert read_run_status(state).updates == course.updates

    assert main(["federated", "status", str(files["west"])]) == 0
    at_site = words(capsys.readouterr().out)
    assert at_site.startswith(f"west ({files['west']}): ")
    assert (
        "study 2 5 3" in at_site
    )  # two answers of the five that were paid for, the last in round 3


def test_a_site_that_nobody_asked_has_spent_nothing(tmp_path, capsys):
    files = make_sites(tmp_path)
    assert main(["federated", "status", str(files["north"].parent)]) == 0
    said = capsys.readouterr().out
    assert "epsilon 20, delta 1e-5 (add-remove) left of epsilon 20" in said
    assert "No run has started yet." in said


@pytest.mark.parametrize(
    ("times", "settings", "left"),
    [
        ([], {}, None),
        ([60.0], {}, None),  # the first round is no measure of the others
        ([60.0, 64.0, 68.0, 72.0], {}, 16 * 4.0),
        (
            [1.0, 2.0, 3.0, 90_000.0, 90_001.0],
            {},
            15 * 1.0,
        ),  # with the server down for a day
        ([2.0, 4.0, 6.0], {"groups": 3}, (60 - 3) * 2.0),
        ([1.0, 2.0], {"num_rounds": 2}, 0.0),
    ],
)
def test_the_time_left_is_that_of_usual_rounds(times, settings, left):
    assert a_course(times, **settings).seconds_left == left


def test_many_missing_sites_are_counted_not_named():
    course = a_course([1.0])
    course.sites = tuple(f"site {i}" for i in range(300))
    assert course.line.startswith("Round 1 of 20: 3 of 300 sites answered; ")


@pytest.mark.parametrize("content", [None, b"", b"no database" * 100])
def test_a_file_that_is_no_state_is_one_sentence(tmp_path, capsys, content):
    file = tmp_path / "x.state"
    if content is not None:
        file.write_bytes(content)
    assert main(["federated", "status", str(file)]) == 2
    assert "is not the state of a server" in capsys.readouterr().err
    assert file.exists() == (content is not None)
