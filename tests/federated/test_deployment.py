"""A real SuperLink and three SuperNodes on 127.0.0.1, with TLS and keys of nodes."""

import sqlite3

import numpy as np
import pytest

pytest.importorskip("flwr")

from flower_processes import Deployment, make_app, wait_for
from sites_on_disk import NAMES, make_sites

from tacit.federated.deploy import load_study
from tacit.federated.method import run_in_process

pytestmark = pytest.mark.processes


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
    return run_in_process(study.method, study.target, rows, budgets, run=study.run, seed=study.seed)


def counted(path, table):
    connection = sqlite3.connect(path)
    try:
        return connection.execute(f"select count(*) from {table}").fetchone()[0]  # noqa: S608
    finally:
        connection.close()


class Fit:
    """A fit by nodes of its own."""

    def __init__(self, deployment, scheme, names, rounds):
        self.deployment, self.rounds = deployment, rounds
        folder = deployment.folder / f"{scheme} of {len(names)}"
        settings = {"seed": 7, "rounds": rounds}
        self.files = make_sites(folder / "sites", scheme, names, **settings)
        self.app = make_app(folder / "project", scheme, names, **settings)
        self.nodes = {name: f"{scheme}-{len(names)}-{name}" for name in names}
        self.result = folder / "result.npz"

    def begin(self):
        pinned = []
        for name, node in self.nodes.items():
            pinned.append(f"{name}={self.deployment.register(node)}")
            self.deployment.start_node(node, self.files[name])
        config = f"result='{self.result}' timeout=90.0 nodes='{' '.join(pinned)}'"
        self.deployment.flwr("run", self.app, "local", "--run-config", config)

    def check_result(self):
        wait_for(self.result.exists, self.deployment.log("link"))
        expected = in_this_process(self.files)
        with np.load(self.result) as found:
            assert np.array_equal(found["posterior"], expected.server.posterior)
            assert np.array_equal(found["trace"], expected.trace)
        for path in self.files.values():
            assert counted(path.parent / "site.db", "charges") == 1
            assert counted(path.parent / "site.db", "answers") == self.rounds
            assert (path.parent / "site.db").stat().st_mode & 0o077 == 0
        for node in self.nodes.values():  # they would answer the next run too
            self.deployment.kill(node)


def test_a_fit_by_real_nodes(deployment):
    fit = Fit(deployment, "statistics", NAMES[:2], rounds=1)
    fit.begin()
    fit.check_result()


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["statistics", "masked"])
def test_a_fit_by_real_nodes_one_of_which_dies_in_the_middle(deployment, scheme):
    fit = Fit(deployment, scheme, NAMES, rounds=2)
    node, west = fit.nodes["west"], fit.files["west"].parent
    (west / "hold").touch()
    fit.begin()
    # West has charged, has its key, and is in the middle of its answer.
    wait_for((west / "reached").exists, deployment.log("link"))
    deployment.kill(node)
    assert counted(west / "site.db", "answers") == 1
    assert not fit.result.exists()
    (west / "hold").unlink()
    deployment.restart_node(node, fit.files["west"])
    fit.check_result()


@pytest.mark.slow
def test_a_node_with_a_key_that_nobody_registered_is_refused(deployment):
    deployment.make_key("stranger")
    deployment.start_node("stranger", deployment.folder / "site.toml")
    process = deployment.running["stranger"]
    wait_for(lambda: process.poll() is not None, deployment.log("stranger"))
    assert process.returncode != 0
    assert "Exit Code: 305" in deployment.log("stranger").read_text()
    said = "No SuperNode found with the given public key"
    assert said in deployment.log("link").read_text()
