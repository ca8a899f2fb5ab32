"""The compose files of a new study, brought up as they are, lead to a posterior; what is wrong in them is found."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from flower_processes import HANGS

import tacit
from tacit.cli.main import main
from tacit.federated.deploy import load_study

NAMESPACES = [
    *("unshare", "--user", "--map-root-user", "--net", "--mount"),
    *("--pid", "--fork", "--kill-child", "--mount-proc"),
]
ROUNDS = 4


def has_namespaces():
    """Whether this system lets its user make namespaces."""
    if not all(map(shutil.which, ("unshare", "setpriv", "chroot"))):
        return False
    return subprocess.run([*NAMESPACES, "true"], capture_output=True, check=False).returncode == 0


pytestmark = [
    pytest.mark.slow,
    pytest.mark.processes,
    pytest.mark.skipif(not has_namespaces(), reason="needs namespaces of Linux"),
]


@pytest.fixture
def study(tmp_path, monkeypatch):
    """A new study of two sites with few rounds, and its keys."""
    monkeypatch.chdir(tmp_path)
    image = f"python:3.12-slim@sha256:{64 * '0'}"
    new = ["federated", "new", "study", "--base-image", image]
    assert main([*new, "--site", "a", "--site", "b"]) == 0
    folder = tmp_path / "study"
    monkeypatch.chdir(folder)
    assert main(["federated", "keys", "--address", "study.example.org"]) == 0
    for path in (folder / "app" / "study_app" / "study.py", *folder.glob("sites/*/study.py")):
        method = f"    method=tacit.federated.PooledScoring(num_rounds={ROUNDS}),\n)\n"
        path.write_text(path.read_text("utf-8").removesuffix(")\n") + method, "utf-8")
        assert load_study(path).method.num_rounds == ROUNDS
    return folder


def bring_up(study, how):
    """Exit code and output of the script."""
    script = Path(__file__).with_name("compose_processes.py")
    done = subprocess.run(
        [*NAMESPACES, sys.executable, str(script), str(study), how, "--slow", "10"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=HANGS,
    )
    return done.returncode, done.stdout


def give_keys(study):
    """What each site puts into its own folder."""
    for name in "ab":
        keys = study / "sites" / name / "keys"
        keys.mkdir()
        shutil.copy(study / "keys" / "ca.crt", keys)
        shutil.copy(study / "keys" / name, keys / "node.key")


@pytest.mark.parametrize("how", ["trial", "sites"])
def test_containers_lead_to_a_posterior_and_stop(study, how):
    give_keys(study)
    code, said = bring_up(study, how)
    assert code == 0, said
    assert f"Round {ROUNDS} of {ROUNDS}: all sites answered" in said
    post = tacit.Posterior.load(study / "result" / "posterior.nc")
    assert post.answers == dict.fromkeys("ab", (ROUNDS, ROUNDS))
    assert post.privacy.epsilons["add-remove"] <= 1
    for name in "ab":
        assert len(tacit.Ledger(study / "sites" / name / "budget.db").charges) == 1
    where = ("study",) * 2 if how == "trial" else ("a", "b")
    suffixes = ("-a", "-b") if how == "trial" else ("", "")
    kept = {"study/superlink", "study/proxy"} | {
        f"{place}/{kind}{suffix}"
        for place, suffix in zip(where, suffixes, strict=True)
        for kind in ("guard", "node")
    }
    assert {line.partition(" ")[2] for line in said.splitlines() if line[:8] == "stopped "} == kept


@pytest.mark.parametrize(
    ("how", "file", "before", "after", "found"),
    [
        ("trial", "compose/config.toml", "superlink:8000", "link:8000", "register ended with"),
        ("trial", "compose.yaml", "target: /keys/server.key", "target: /keys/key", "ended with"),
        ("trial", "compose.yaml", "- ./sites/a:/site", "- ./sites/a:/data", "guard-a ended with"),
        ("trial", "compose.yaml", "file: ./keys/a", "file: ./keys/c", "does not exist"),
        ("trial", "compose.yaml", "--nodes=/result/nodes", "--nodes=/state/nodes", "study ended"),
        ("trial", "Dockerfile", "/state/flower /sockets", "/state/flower", "guard-a ended with"),
        ("sites", "sites/a/compose.yaml", "=/keys/ca.crt", "=/keys/server.crt", "node ended with"),
        ("sites", "compose.yaml", "    ports:", "    x-ports:", "unknown settings"),
        ("trial", ".env", "BASE_IMAGE", "IMAGE", "BASE_IMAGE is not set"),
    ],
)
def test_what_is_wrong_in_a_compose_file_is_found(study, how, file, before, after, found):
    give_keys(study)
    path = study / file
    text = path.read_text("utf-8")
    assert before in text
    path.write_text(text.replace(before, after), "utf-8")
    code, said = bring_up(study, how)
    assert code == 1, said
    assert found in said.partition("Wrong: ")[2]
    assert not (study / "result" / "posterior.nc").exists()
