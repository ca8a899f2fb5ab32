"""Sites that fail, lie or die, and servers that die: what one does is not everybody's end."""

import shutil
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("flwr")

from fake_grid import FakeGrid, as_by_flower  # noqa: F401 (for every test)
from flwr.app import ConfigRecord, Message, RecordDict
from sites_on_disk import NAMES, copy_study, make_sites

from tacit import Budget, Ledger
from tacit.accounting import events
from tacit.errors import InvalidArgument, TacitError
from tacit.federated import flower_grid
from tacit.federated.deploy import OpenSite, load_study
from tacit.federated.flower import parse_nodes
from tacit.federated.flower_grid import FlowerTransport, serve
from tacit.federated.method import run_in_process
from tacit.federated.settings import SiteSettings
from tacit.federated.state import ServerStateFile


def study_of(files):
    return load_study(files["north"].parent / "study.py")


def served(files, grid, **settings):
    server = serve(grid, study_of(files), timeout=0.3, patience=1.0, **settings)
    return server.posterior, np.array(server.trace)


def in_this_process(files):
    study = study_of(files)
    rows = {name: study.read(path.parent / "data.csv") for name, path in files.items()}
    budgets = dict.fromkeys(rows, study.budget)
    return run_in_process(study.method, study.target, rows, budgets, run=study.run, seed=study.seed)


@pytest.mark.parametrize("scheme", ["statistics", pytest.param("masked", marks=pytest.mark.slow)])
def test_a_site_that_fails_in_one_round_is_asked_in_the_next(tmp_path, scheme, caplog):
    files = make_sites(tmp_path, scheme, seed=3)
    data, aside, asked = tmp_path / "south" / "data.csv", tmp_path / "aside", []

    def trouble(node, fields, _):
        if node == 2 and fields["kind"] == "task":
            asked.append(fields["round"])
            if len(asked) == 2:
                data.rename(aside)
            if len(asked) == 3:
                aside.rename(data)

    posterior, _ = served(files, FakeGrid(files, trouble))
    assert "south refuses: The site failed" in caplog.text
    # Where only the sum counts, the same round is asked again.
    assert asked == ([1, 2, 2, 3] if scheme == "masked" else [1, 2, 3])
    undisturbed = in_this_process(files).server.posterior
    assert np.array_equal(posterior, undisturbed) == (scheme == "masked")
    client = OpenSite(SiteSettings.from_file(files["south"]))._client
    assert client._journal.latest("study").round == 3


def test_a_run_that_every_site_refuses_ends_and_says_why(tmp_path):
    files = make_sites(tmp_path)
    copy_study(tmp_path / "north", "statistics", NAMES, run="another", rounds=5)
    with pytest.raises(TacitError, match=r"3 consecutive rounds.*another run .*than south"):
        served({**files, "north": files["north"]}, FakeGrid({n: files[n] for n in NAMES[1:]}))


@pytest.mark.parametrize("fault", ["other terms", "invalid settings"])
def test_nobody_waits_for_a_site_that_refuses(tmp_path, fault, caplog):
    files = make_sites(tmp_path, seed=3)
    study = study_of(files)
    if fault == "other terms":
        copy_study(
            tmp_path / "west", "statistics", NAMES, seed=3, bounds=[[-6, 6], [-6, 6], [-9, 9]]
        )
    else:
        files["west"].write_text("name = 3")
    server = serve(FakeGrid(files), study, timeout=60.0, patience=900.0)
    assert server.used == {"north": 3, "south": 3, "west": 0}
    assert flower_grid.time.monotonic() < 60  # by the server's clock
    said = "another schema" if fault == "other terms" else "settings are invalid"
    assert said in caplog.text


@pytest.mark.parametrize("fault", ["no rows", "no budget", "no keys"])
def test_nobody_pays_for_a_masked_round_in_which_a_site_could_not_answer(tmp_path, fault):
    files = make_sites(tmp_path, "masked")
    west = tmp_path / "west"
    if fault == "no rows":
        (west / "data.csv").unlink()
    elif fault == "no keys":
        (west / "identity").unlink()
    else:
        spent = events.sampled_gaussian(10.0, 1.0, 1)
        Ledger(west / "site.db").charge(spent, Budget(1, 1e-6), label="another study")
    with pytest.raises(TacitError, match="Sites refused: west: The site"):
        served(files, FakeGrid(files))
    for name in ("north", "south"):
        assert not Ledger(tmp_path / name / "site.db").charges


def test_the_log_says_of_which_site_there_is_no_node(tmp_path, caplog):
    files = make_sites(tmp_path, seed=3, rounds=1)
    west = files.pop("west")
    with caplog.at_level("INFO", "tacit"):
        served({**files}, FakeGrid(files))
    assert west.exists()
    assert caplog.text.count("No node of west is connected") == 1


def test_a_hostile_run_with_the_study_s_name_gets_what_was_charged_and_ends_the_honest_one(
    tmp_path,
):
    files = make_sites(tmp_path)
    study, hostile = study_of(files), FakeGrid(files)
    transport = FlowerTransport(
        hostile, NAMES, agreement=study.agreement, timeout=0.3, patience=1.0
    )
    answers = study.method.num_rounds + study.method.spare_answers
    server, heard = study.server(), []
    for number in range(1, answers + 4):
        tasks = {
            name: replace(task, posterior=task.posterior * (1 + number), round=number)
            for name, task in server.tasks(NAMES).items()
        }
        heard.append(len(transport.exchange(tasks)))
    assert heard == [3] * answers + [0] * 3
    with pytest.raises(TacitError, match=r"3 consecutive rounds.*already been asked round"):
        served(files, FakeGrid(files))
    for path in files.values():
        (charge,) = Ledger(path.parent / "site.db").charges
        assert charge.epsilon <= study.budget.epsilon


class Spoiling(FakeGrid):
    """A node whose answers in the second round are spoiled on the way."""

    def __init__(self, files, spoil):
        super().__init__(files)
        self.spoil = spoil

    def call(self, message):
        reply = super().call(message)
        said = dict(reply.content.config_records["tacit"])
        fields = message.content.config_records["tacit"]
        if message.metadata.dst_node_id == 1 and fields.get("round") == 2:
            said = self.spoil(said)
            reply = Message(RecordDict({"tacit": ConfigRecord(said)}), reply_to=message)
        return reply


SPOILED = {
    "too short": lambda said: {**said, "change": said["change"][:-8]},
    "cut in a number": lambda said: {**said, "change": said["change"][:-3]},
    "not a number": lambda said: {**said, "change": np.full(5, np.nan).tobytes()},
    "another type": lambda said: {**said, "type": "<f4"},
    "another grid": lambda said: {**said, "grid": 0.5},
    "no answer": lambda _: {"nothing": 1},
}


@pytest.mark.slow
def test_a_reply_that_is_none_is_an_answer_that_did_not_come(tmp_path):
    left = make_sites(tmp_path / "left", seed=3, rounds=2)
    lost = FakeGrid(left, lambda node, f, _: "lost" if (node, f.get("round")) == (1, 2) else None)
    expected = served(left, lost)[1]
    for name, spoil in SPOILED.items():
        files = make_sites(tmp_path / name, seed=3, rounds=2)
        assert np.array_equal(served(files, Spoiling(files, spoil))[1], expected), name


def with_impostor(files, folder):
    """The sites' files, and one more node whose settings say that it is north."""
    shutil.copytree(files["north"].parent, folder / "impostor")
    (folder / "impostor" / "data.csv").write_text("1,1,100\n" * 30)
    return {**files, "impostor": folder / "impostor" / "site.toml"}


def test_two_nodes_that_claim_one_name_at_once_are_both_refused(tmp_path, caplog):
    files = make_sites(tmp_path, seed=3, rounds=1)
    grid = FakeGrid(with_impostor(files, tmp_path))
    served(files, grid)
    assert caplog.text.count("claims to be north") >= 2
    answered = {f["round"] for f, r in grid.replies if f["kind"] == "task"}
    assert answered == {1}
    assert len([f for f, _ in grid.replies if f["kind"] == "task"]) == 2  # south and west


def test_a_node_that_is_named_beforehand_has_its_name(tmp_path):
    files = make_sites(tmp_path, seed=3)
    expected = in_this_process(files).server.posterior
    grid = FakeGrid(with_impostor(files, tmp_path))
    posterior, _ = served(files, grid, nodes=parse_nodes("north=1"))
    assert np.array_equal(posterior, expected)


def test_a_name_stays_with_its_node(tmp_path):
    """North goes away after a round, and another node says that it is north."""
    files = make_sites(tmp_path, seed=3, rounds=2)
    grid = FakeGrid(with_impostor(files, tmp_path))
    grid.present = [1, 2, 3]
    grid.get_node_ids = lambda: grid.present

    def trouble(node, fields, _):
        if fields.get("round") == 2:
            grid.present = [2, 3, 4]
        return "lost" if node == 1 and fields.get("round") == 2 else None

    grid.trouble = trouble
    transport = FlowerTransport(
        grid,
        NAMES,
        agreement=study_of(files).agreement,
        timeout=0.3,
        patience=2.5,
    )
    server = study_of(files).server()
    for number in (1, 2):
        tasks = server.tasks(NAMES)
        replies = transport.exchange(tasks)
        server.apply_replies(tasks, replies)
        assert ("north" in replies) == (number == 1)


@pytest.mark.parametrize("text", ["north", "north=", "=3", "north=x"])
def test_nodes_are_named_as_said(text):
    with pytest.raises(InvalidArgument, match="north=123"):
        parse_nodes(text)


class Dies(Exception):
    pass


@pytest.mark.parametrize(
    "scheme",
    [
        pytest.param("statistics", marks=pytest.mark.slow),
        pytest.param("masked", marks=pytest.mark.slow),
        "server",
    ],
)
def test_a_server_that_dies_goes_on_where_it_was(tmp_path, scheme):
    files = make_sites(tmp_path, scheme, rounds=4)
    state = tmp_path / "folds"

    def dies(node, fields, _):
        if fields.get("round") == 3 and fields["kind"] == "task" and node == 2:
            raise Dies

    with pytest.raises(Dies):
        served(files, FakeGrid(files, dies), state=state)
    server = study_of(files).server()
    ServerStateFile(state, f"study: {study_of(files).about}").resume(server)
    before, grid = server.trace, FakeGrid(files)
    posterior, trace = served(files, grid, state=state)
    assert len(before) == 2
    assert np.array_equal(trace[:2], before)
    assert {f["round"] for f, _ in grid.replies if f["kind"] == "task"} == {3, 4}
    for path in files.values():
        assert len(Ledger(path.parent / "site.db").charges) == 1
    if scheme != "server":  # without the file sites repeat all, to the same end
        assert np.array_equal(served(files, FakeGrid(files))[0], posterior)
    # It is done: nobody is asked again.
    idle = FakeGrid(files, dies)
    assert np.array_equal(served(files, idle, state=state)[0], posterior)
    assert idle.count == 0


def test_two_servers_of_one_run_do_not_both_go_on(tmp_path):
    files = make_sites(tmp_path, "server", rounds=2)
    state, asked = tmp_path / "folds", []

    def second(node, fields, _):
        if fields["kind"] == "task" and not asked:
            asked.append(node)
            served(files, FakeGrid(files), state=state)

    with pytest.raises(TacitError, match="Another server"):
        served(files, FakeGrid(files, second), state=state)


def test_a_file_of_another_study_is_refused(tmp_path):
    files, state = make_sites(tmp_path, rounds=2), tmp_path / "folds"
    served(files, FakeGrid(files), state=state)
    copy_study(tmp_path / "north", "statistics", NAMES, rounds=3)
    with pytest.raises(TacitError, match="another run, or the study has changed"):
        served(files, FakeGrid(files), state=state)


def test_a_repeated_task_reads_no_data_and_another_study_is_refused(tmp_path):
    files = make_sites(tmp_path)
    settings = SiteSettings.from_file(files["north"])
    task = study_of(files).server().tasks(NAMES)["north"]
    first = OpenSite(settings).answer(task)
    settings.data.unlink()
    assert np.array_equal(OpenSite(settings).answer(task).change, first.change)
    copy_study(tmp_path / "north", "statistics", NAMES, noise_sd=0.25)
    with pytest.raises(InvalidArgument, match="'study' began under other terms"):
        OpenSite(settings).answer(task)


def test_a_fault_of_the_table_is_found_before_the_charge(tmp_path):
    files = make_sites(tmp_path)
    settings = SiteSettings.from_file(files["north"])
    task = study_of(files).server().tasks(NAMES)["north"]
    settings.data.unlink()
    with pytest.raises(FileNotFoundError):
        OpenSite(settings).answer(task)
    assert not Ledger(settings.ledger).charges


@pytest.mark.parametrize("spoil", [lambda _: b"no database at all" * 99, lambda held: held[:3000]])
def test_a_damaged_state_of_the_server_is_one_sentence(tmp_path, spoil):
    files = make_sites(tmp_path)
    state = tmp_path / "state"
    server = study_of(files).server()
    ServerStateFile(state, "about").resume(server)
    state.write_bytes(spoil(state.read_bytes()))
    with pytest.raises(TacitError, match=r"state of the server, is damaged .* nothing is charged"):
        ServerStateFile(state, "about").resume(server)
