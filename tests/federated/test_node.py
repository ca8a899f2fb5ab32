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

from tacit.federated.flower import supernode_command

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


def node_of(what):
    """Runs a node in a process of its own."""
    command = [sys.executable, "-c", SUPERNODE, what]
    run = f"from tacit.federated.flower import run_node; exit(run_node({command!r}))"
    return subprocess.Popen(
        [sys.executable, "-c", run], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


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
        assert select.select([ended], [], [], HANGS)[0]
    os.close(ended)


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
