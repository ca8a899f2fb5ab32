"""A SuperLink and SuperNodes on this machine for tests: real processes, TLS, and keys of nodes."""

import contextlib
import datetime as dt
import ipaddress
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from sites_on_disk import copy_study

from tacit.cli import project

BIN = Path(sys.executable).parent
HANGS = 600  # seconds after which nobody believes in an event any more, however slow the machine


class Deployment:
    """Starts processes, and ends them by their own ids."""

    def __init__(self, folder):
        self.folder, self.running = folder, {}
        self.environment = {
            **os.environ,
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "FLWR_HOME": str(folder / "flower"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "JAX_PLATFORMS": "cpu",
        }
        (folder / "flower").mkdir()
        self.address = f"127.0.0.1:{free_port()}"
        certify(folder)
        (folder / "flower" / "config.toml").write_text(
            f'[superlink]\ndefault = "local"\n\n[superlink.local]\naddress = "{self.address}"\n'
            f'root-certificates = "{folder / "ca.crt"}"\n'
        )

    def start(self, name, *command, largest=None):
        """A process in a group of its own, so that what it starts ends with it.

        ``largest`` is the number of bytes that a file of it may have, as on a full disk.
        """
        with (self.folder / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                [BIN / command[0], *map(str, command[1:])],
                env=self.environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        if largest is not None:  # before it has loaded what it needs; Python ignores the signal
            limits = largest, largest
            resource.prlimit(self.running[name].pid, resource.RLIMIT_FSIZE, limits)

    def kill(self, name):
        """As a machine that loses power."""
        process = self.running.pop(name)
        for each in (process.pid, *started_by(process.pid)):  # some are in groups of their own
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        process.wait()

    def stop(self):
        for name in list(self.running):
            self.kill(name)

    def start_link(self):
        port = self.address.rpartition(":")[2]
        self.start(
            *("link", "flower-superlink", "--port", port, "--enable-supernode-auth"),
            *("--database", self.folder / "link.db"),
            *("--ssl-ca-certfile", self.folder / "ca.crt"),
            *("--ssl-certfile", self.folder / "server.crt"),
            *("--ssl-keyfile", self.folder / "server.key"),
            "--disable-runtime-dependency-installation",
        )
        wait_for(lambda: reachable(int(port)), self.log("link"))

    def start_node(self, name, place, kind="site"):
        """A node that has the rows itself, or Tacit's, whose messages go to a guard."""
        server = ("--superlink", self.address, "--root-certificates", self.folder / "ca.crt")
        key, port = self.folder / f"{name}.key", ("--port", free_port())
        if kind == "guard":
            self.start(name, "tacit", "federated", "node", place, *server, *port, "--key", key)
            return
        self.start(
            *(name, "flower-supernode", *server, *port, "--auth-supernode-private-key", key),
            *("--node-config", f"{kind}='{place}'"),
        )

    def restart_node(self, name, place, kind="site"):
        """As a service manager does: a node that lost power is let in again after a minute."""
        end = time.monotonic() + HANGS
        while time.monotonic() < end:
            before = self.log(name).read_text().count("SuperNode ID")
            self.start_node(name, place, kind)
            node = self.running[name]
            wait_for(
                lambda node=node, before=before: (
                    node.poll() is not None
                    or self.log(name).read_text().count("SuperNode ID") > before
                ),
                self.log(name),
            )
            if node.poll() is None:
                return
            self.kill(name)
            time.sleep(3)  # Flower tells nobody when it lets a node in again
        raise AssertionError(self.log(name).read_text()[-3000:])

    def make_key(self, name):
        """A node's key, as ``ssh-keygen -t ecdsa -b 384`` makes it."""
        key = ec.generate_private_key(ec.SECP384R1())
        pem = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.OpenSSH,
            serialization.NoEncryption(),
        )
        public = key.public_key().public_bytes(
            serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
        )
        (self.folder / f"{name}.key").write_bytes(pem)
        (self.folder / f"{name}.pub").write_bytes(public)

    def register(self, name):
        self.make_key(name)
        said = self.flwr(
            "supernode", "register", self.folder / f"{name}.pub", "local", "--format", "json"
        )
        return json.loads(said)["node-id"]

    def flwr(self, *command):
        done = subprocess.run(
            [BIN / "flwr", *map(str, command)],
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=HANGS,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def log(self, name):
        return self.folder / f"{name}.log"


def make_app(folder, scheme, names, **settings):
    """The app that Flower runs, with the study of the tests in it."""
    project.write_project(folder, names, "run-1")
    copy_study(folder / "app" / "study_app", scheme, names, **settings)
    return folder / "app"


def started_by(parent):
    """The processes that a process has started, and those that these have."""
    children = {}
    for each in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            above = int((each / "stat").read_text().rsplit(")", 1)[1].split()[1])
            children.setdefault(above, []).append(int(each.name))
    found = [parent]
    for each in found:
        found.extend(children.get(each, ()))
    return found[1:]


def certify(folder):
    """An authority, and the server's certificate for 127.0.0.1."""
    authority, key = (
        ec.generate_private_key(ec.SECP256R1()),
        ec.generate_private_key(ec.SECP256R1()),
    )
    root = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tests")])
    own = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    place = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    signs = x509.BasicConstraints(ca=True, path_length=None)
    made = (
        ("ca.crt", root, authority.public_key(), signs),
        ("server.crt", own, key.public_key(), place),
    )
    now = dt.datetime.now(dt.UTC)
    for name, subject, public, extension in made:
        certificate = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(root)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(hours=1))
            .not_valid_after(now + dt.timedelta(days=1))
            .add_extension(extension, critical=name == "ca.crt")
            .sign(authority, hashes.SHA256())
        )
        (folder / name).write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (folder / "server.key").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def reachable(port):
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def wait_for(condition, log):
    end = time.monotonic() + HANGS
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"It took too long. {log.read_text()[-3000:]}")
        time.sleep(0.2)
