"""A site's node: the command of its SuperNode, and that it ends with it."""

import importlib
import os
import select
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from flower_processes import HANGS, free_port

from tacit.federated.flower import supernode_command

pytestmark = pytest.mark.processes

flower_supernode = importlib.import_module("flwr.supernode.cli.flower_supernode")

# It has no message for anybody, and ends with an exit code of its own when it was asked three times.
SUPERNODE = """
import os
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer


class Empty(BaseHTTPRequestHandler):
    def do_POST(self):
        assert self.path == "/v1/runtime/acquire-task", self.path
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-type", "application/x-protobuf")
        self.send_header("content-length", "0")
        self.end_headers()


server = HTTPServer(("127.0.0.1", int(sys.argv[1])), Empty)
for _ in range(3):
    server.handle_request()
print(os.getpid(), flush=True)
while sys.argv[2] == "stay":
    server.handle_request()
sys.exit(7)
"""


def node_of(supernode, port):
    """Runs a node in a process of its own: in this one JAX has threads, and a fork is an error."""
    run = f"from tacit.federated.flower import run_node; exit(run_node({supernode!r}, {port}))"
    return subprocess.Popen([sys.executable, "-c", run], stdout=subprocess.PIPE, text=True)


def test_a_node_fetches_messages_until_its_supernode_ends_and_passes_on_its_exit_code():
    port = free_port()
    with node_of([sys.executable, "-c", SUPERNODE, str(port), "end"], port) as node:
        assert node.wait() == 7


@pytest.mark.skipif(sys.platform != "linux", reason="other kernels do not end children")
def test_a_supernode_ends_with_its_node_also_if_that_is_killed():
    port = free_port()
    with node_of([sys.executable, "-c", SUPERNODE, str(port), "stay"], port) as node:
        number = int(node.stdout.readline())  # the SuperNode has been asked
        ended = os.pidfd_open(number)
        node.kill()
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
    assert (read.superlink, read.port, read.isolation) == ("example.org:8000", 9095, "process")
    config = flower_supernode.parse_config_args([read.node_config])
    assert config == {"guard": str(Path("a socket").absolute())}
