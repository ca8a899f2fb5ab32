"""Tables of several sites with files of their own, asked by Flower's messages: no process, no network."""

import json

import numpy as np
import pytest

pytest.importorskip("flwr")

from fake_grid import FakeGrid, as_by_flower  # noqa: F401 (for every test)
from sites_on_disk import NAMES, make_sites
from test_sums import DATA, POOLED

import tacit
from tacit.api.federated import forecast_study
from tacit.cli.federated_tools import run_checks
from tacit.cli.main import main
from tacit.errors import InvalidArgument, TacitError
from tacit.federated.deploy import load_study
from tacit.federated.flower_grid import serve
from tacit.federated.method import run_in_process

STUDY = """
import tacit

SCHEMA = tacit.Schema({"age": tacit.Number(0, 100), "ill": tacit.Binary()})
study = tacit.federated_study(
    tacit.Look.plan(SCHEMA, tables=["age", ("ill", "age")], epsilon=1),
    sites=("north", "south", "west"),
    run="look-1",
    method=tacit.federated.NoisySum(noise="NOISE"),
    seed=3,
)
"""


def sites(folder, noise, **changed):
    files = make_sites(folder)
    for name, file in files.items():
        text = STUDY.replace("NOISE", noise)
        (file.parent / "study.py").write_text(text.replace(*changed.get(name, ("", ""))))
        DATA[name].to_csv(file.parent / "data.csv", index=False)
    return files


def served(files, grid=None, site="north"):
    study = load_study(files[site].parent / "study.py")
    return study, serve(grid or FakeGrid(files), study, timeout=5.0, patience=30.0)


@pytest.mark.parametrize("noise", ["site", "split"])
def test_a_look_at_sites_on_a_network_is_that_of_one_process(tmp_path, noise):
    files = sites(tmp_path, noise)
    grid = FakeGrid(files)
    study, server = served(files, grid)
    rows = {name: study.read(path.parent / "data.csv") for name, path in files.items()}
    budgets = dict.fromkeys(rows, study.budget)
    here = run_in_process(study.method, study.target, rows, budgets, run="look-1", seed=3)
    assert np.array_equal(server.total, here.server.total)
    study.finish(server, tmp_path / "look.nc")
    look = tacit.Look.load(tmp_path / "look.json")
    assert abs(look.total.value - len(POOLED)) < 60
    assert list(look.sites) == list(NAMES)
    assert "each site's own ledger" in look.privacy.book
    for path in files.values():
        (charge,) = tacit.Ledger(path.parent / "site.db").charges
        assert charge.label.startswith("federated run look-1: tables of age")
    sent = [
        np.frombuffer(reply["change"], reply["type"])
        for fields, reply in grid.replies
        if fields["kind"] == "task"
    ]
    assert len(sent) == 3
    if noise == "split":  # nobody sees the answer of a site
        assert np.abs(np.concatenate(sent).astype(float)).max() > 2.0**60
        assert np.array_equal(np.sum(sent, axis=0) * server.grid, server.total)


@pytest.mark.parametrize("noise", ["site", "split"])
def test_a_site_that_was_told_of_other_tables_answers_nothing(tmp_path, noise, caplog):
    files = sites(tmp_path, noise, west=('("ill", "age")', '"ill"'))
    if noise == "site":
        assert served(files)[1].members == {"north", "south"}
    else:  # and nothing is learnt from the others
        with pytest.raises(TacitError, match="another question"):
            served(files)
    assert "another question (tables of age; ill by age, " in caplog.text
    assert not tacit.Ledger(files["west"].parent / "site.db").charges


def test_a_site_without_budget_is_left_out_and_named(tmp_path):
    files = sites(tmp_path, "site")
    ledger = tacit.Ledger(files["west"].parent / "site.db")
    schema = tacit.Schema({"ill": tacit.Binary()})
    tacit.explore(DATA["west"], schema=schema, epsilon=19.5, delta=5e-6, ledger=ledger)
    study, server = served(files)
    study.finish(server, tmp_path / "look")
    look = tacit.Look.load(tmp_path / "look.json")
    assert look.sites["west"] is None
    assert len(ledger.charges) == 1
    assert "Without the rows of west" in str(look)
    assert json.loads((tmp_path / "look.json").read_text())["sites"]["west"] is None


def test_the_commands_of_a_study_show_the_question(tmp_path, capsys):
    files = sites(tmp_path, "split")
    lines = {name: (said, fine) for name, said, fine in run_checks(files["north"])}
    assert lines["question"][0].startswith("tables of age; ill by age, ")
    assert all(fine for _, fine in lines.values())
    assert not tacit.Ledger(files["north"].parent / "site.db").charges
    assert main(["federated", "check", str(files["north"])]) == 0
    assert "tables of age; ill by age" in capsys.readouterr().out
    study = load_study(files["north"].parent / "study.py")
    with pytest.raises(InvalidArgument, match="forecasts for PooledScoring"):
        forecast_study(study, 1000)
