"""A real SuperLink and three SuperNodes on 127.0.0.1, with TLS and keys of nodes."""

import sqlite3

import numpy as np
import pytest

pytest.importorskip("flwr")

from flower_processes import Deployment, make_app, wait_for
from sites_on_disk import NAMES, make_sites

from tacit.federated.deploy import load_study
from tacit.federated.engine import in_process

pytestmark = pytest.mark.processes

ROUNDS = 2


@pytest.fixture(scope="module")
def deployment(tmp_path_factory):
    made = Deployment(tmp_path_factory.mktemp("deployment"))
    try:
        made.start_link()
        yield made
    finally:
        made.stop()


def in_this_process(files):
    study = load_study(files["north"].parent / "study.py")
    rows = {name: study.read(path.parent / "data.csv") for name, path in files.items()}
    budgets = dict.fromkeys(rows, study.budget)
    return in_process(study.method, study.target, rows, budgets, run=study.run, seed=study.seed)


def counted(path, table):
    connection = sqlite3.connect(path)
    try:
        return connection.execute(f"select count(*) from {table}").fetchone()[0]  # noqa: S608
    finally:
        connection.close()


@pytest.mark.parametrize("scheme", ["statistics", pytest.param("masked", marks=pytest.mark.slow)])
def test_a_fit_by_real_nodes_one_of_which_dies_in_the_middle(deployment, scheme):
    folder = deployment.folder / scheme
    files = make_sites(folder / "sites", scheme, seed=7, rounds=ROUNDS)
    app = make_app(folder / "project", scheme, NAMES, seed=7, rounds=ROUNDS)
    nodes = {name: f"{scheme}-{name}" for name in NAMES}
    west, result = files["west"].parent, folder / "result.npz"
    (west / "hold").touch()
    for name in NAMES:
        deployment.register(nodes[name])
        deployment.start_node(nodes[name], files[name])
    deployment.flwr("run", app, "local", "--run-config", f"result='{result}' timeout=90.0")
    # West has charged, has its key, and is in the middle of its answer.
    wait_for((west / "reached").exists, deployment.log("link"))
    deployment.kill(nodes["west"])
    assert counted(west / "site.db", "answers") == 1
    assert not result.exists()
    (west / "hold").unlink()
    deployment.restart_node(nodes["west"], files["west"])
    wait_for(result.exists, deployment.log("link"))
    expected = in_this_process(files)
    with np.load(result) as found:
        assert np.array_equal(found["posterior"], expected.server.posterior)
        assert np.array_equal(found["trace"], expected.trace)
    for path in files.values():
        assert counted(path.parent / "site.db", "charges") == 1
        assert counted(path.parent / "site.db", "answers") == ROUNDS
        assert (path.parent / "site.db").stat().st_mode & 0o077 == 0
    for node in nodes.values():  # they would answer the next run too
        deployment.kill(node)


def test_a_node_with_a_key_that_nobody_registered_is_refused(deployment):
    deployment.make_key("stranger")
    deployment.start_node("stranger", deployment.folder / "site.toml")
    process = deployment.running["stranger"]
    wait_for(lambda: process.poll() is not None, deployment.log("stranger"))
    assert process.returncode != 0
    assert "Exit Code: 305" in deployment.log("stranger").read_text()
    said = "No SuperNode found with the given public key"
    assert said in deployment.log("link").read_text()
