"""A site's node: the command of its SuperNode, and that it ends with it."""

import importlib
import os
import select
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from flower_processes import HANGS

from tacit.cli.main import main
from tacit.federated.node import flower_environment, supernode_command

pytestmark = pytest.mark.processes

flower_supernode = importlib.import_module("flwr.supernode.cli.flower_supernode")

# Says who it is, and ends with an exit code of its own or stays.
SUPERNODE = """
import os
import sys
import time

print(os.getpid(), flush=True)
while sys.argv[1] == "stay":
    time.sleep(1)
sys.exit(7)
"""

# Starts the program for a message as a SuperNode does, with an option that Flower does not know.
MESSAGE = """
import os
import subprocess

print(os.environ["PATH"].split(os.pathsep)[0], flush=True)
print(subprocess.run(["flwr-clientapp", "--token", "t", "--no-such-option"]).returncode, flush=True)
"""


# A node that is told to end while it imports something that swallows exceptions.
SWALLOWING = """
import os
import signal
import time

from tacit.federated import node


class Entry:
    def load(self):
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(60)
        except KeyboardInterrupt:
            return print


node.entry_points = lambda **_: [Entry()]
"""


def node_of(what, supernode=SUPERNODE, before="", **environment):
    """Runs a node in a process of its own."""
    command = [sys.executable, "-c", supernode, what]
    run = f"{before}\nfrom tacit.federated.node import run_node; exit(run_node({command!r}))"
    return subprocess.Popen(
        [sys.executable, "-c", run],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )


@pytest.mark.skipif(sys.platform != "linux", reason="nodes fork on Linux only")
def test_the_program_for_a_message_is_forked_and_flowers_own_where_that_is_impossible(tmp_path):
    with node_of("", MESSAGE) as node:
        printed, said = node.communicate()
    folder, code = printed.split()
    assert not Path(folder).exists()
    assert code == "0"  # the program handed its arguments over
    assert "flwr-clientapp: error: unrecognized arguments: --no-such-option" in said
    long = tmp_path / ("a" * 120)  # in it there can be no socket
    long.mkdir()
    with node_of("", MESSAGE, TMPDIR=str(long)) as node:
        printed, said = node.communicate()
    assert printed.split() == [str(Path(sys.executable).parent), "2"]
    assert "unrecognized arguments: --no-such-option" in said


def test_a_node_says_that_flower_is_not_installed(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("tacit.federated.node.find_program", lambda _: None)
    (tmp_path / "file").touch()
    given = ("--root-certificates", str(tmp_path / "file"), "--key", str(tmp_path / "file"))
    assert main(["federated", "node", "socket", "--superlink", "127.0.0.1:1", *given]) == 2
    assert "tacit federated node" in capsys.readouterr().err


def test_a_node_ends_with_its_supernode_passes_on_its_exit_code_and_says_what_it_may_be():
    with node_of("end") as node:
        _, said = node.communicate()
        assert node.returncode == 7
        assert "it is not registered" in said


@pytest.mark.skipif(sys.platform != "linux", reason="other kernels do not end children")
@pytest.mark.parametrize("how", ["kill", "terminate"])
def test_a_supernode_ends_with_its_node(how):
    with node_of("stay") as node:
        number = int(node.stdout.readline())
        ended = os.pidfd_open(number)
        getattr(node, how)()
        try:
            assert select.select([ended], [], [], HANGS)[0]
            node.wait(HANGS)
        finally:
            os.close(ended)
            node.kill()


@pytest.mark.skipif(sys.platform != "linux", reason="nodes import for forks on Linux only")
def test_a_node_that_is_told_to_end_while_it_imports_ends():
    with node_of("stay", before=SWALLOWING) as node:
        try:
            assert node.wait(HANGS) != 7
        finally:
            node.kill()


def test_nodes_tell_nobody_that_they_run_unless_asked_to(monkeypatch):
    monkeypatch.delenv("FLWR_TELEMETRY_ENABLED", raising=False)
    assert flower_environment()["FLWR_TELEMETRY_ENABLED"] == "0"
    monkeypatch.setenv("FLWR_TELEMETRY_ENABLED", "1")
    assert flower_environment()["FLWR_TELEMETRY_ENABLED"] == "1"
    show = "import os, sys; sys.exit(os.environ['FLWR_TELEMETRY_ENABLED'] != '0')"
    run = f"{show.partition(';')[0]}; from tacit.federated.node import run_node; "
    run += f"sys.exit(run_node([sys.executable, '-c', {show!r}]) or int(os.environ['FLWR_TELEMETRY_ENABLED']))"
    monkeypatch.delenv("FLWR_TELEMETRY_ENABLED")
    assert subprocess.run([sys.executable, "-c", run], check=False).returncode == 0


def test_flower_understands_the_command_of_a_supernode():
    program, *arguments = supernode_command(
        Path("a socket"),
        superlink="example.org:8000",
        root_certificates=Path("ca.crt"),
        key=Path("north"),
        port=9095,
    )
    assert program == "flower-supernode"
    read = flower_supernode._parse_args_run_supernode().parse_args(arguments)
    assert (read.superlink, read.port, read.isolation) == ("example.org:8000", 9095, "subprocess")
    config = flower_supernode.parse_config_args([read.node_config])
    assert config == {"guard": str(Path("a socket").absolute())}
