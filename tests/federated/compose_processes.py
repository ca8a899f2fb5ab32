"""The compose files of a study brought up as processes, in namespaces of Linux instead of containers.

    unshare --user --map-root-user --net --mount --pid --fork --kill-child --mount-proc \\
        python tests/federated/compose_processes.py STUDY trial

``trial`` does what the first lines of the study's compose.yaml say: it creates the ledgers, brings up the server and all
sites, runs the study, and stops everything. ``sites`` brings up the server without sites, and each site by the
compose.yaml of its own folder. Nothing of the files is rewritten: paths, ports and names are what they are in
containers. A service has a root of its own with the programs of this machine, the installed wheel of software/, its
volumes and its secrets, and no capabilities. Names of other services are known where they share a network, each at an
address of its own on a loopback interface that nobody else sees; a service without a network has an interface of its
own. The Dockerfile's folders, variables and the installation of the wheel are taken from it. What differs from
containers: the base image and its packages, the number of the user, and services on one network reach each other's
ports whoever published them.

Ends with 1 and a sentence if a service ends that should not, is not healthy in time, does not stop when it is told to,
or the files name what is not there.
"""

# ruff: noqa: T201, S108 (it prints what it does; folders of a container's root)

import argparse
import fcntl
import itertools
import os
import re
import shlex
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

KNOWN = {
    *("image", "build", "init", "restart", "cap_drop", "security_opt", "networks", "network_mode"),
    *("command", "volumes", "secrets", "healthcheck", "depends_on", "ports", "profiles"),
}
# Name of the server's machine, at which sites reach published ports.
SERVER = "study.example.org"
NUMBERS = itertools.count(1)
STOP_SECONDS = 10  # Docker kills a service that has not ended by then
LO_UP = (
    "import fcntl,socket,struct;"
    "fcntl.ioctl(socket.socket(socket.AF_INET,socket.SOCK_DGRAM),0x8914,struct.pack('16sh',b'lo',1))"
)


class Wrong(Exception):
    """What is wrong with a file, or with what came up."""


class Image:
    """What a Dockerfile makes, as far as a process needs it."""

    def __init__(self, context, folder):
        text = re.sub(r"\\\n", " ", (context / "Dockerfile").read_text("utf-8"))
        lines = [line.partition(" ")[::2] for line in text.splitlines() if line[:1].isalpha()]
        self.environment = dict(
            pair.split("=", 1) for word, rest in lines if word == "ENV" for pair in rest.split()
        )
        runs = [rest for word, rest in lines if word == "RUN"]
        made = [re.search(r"install --owner tacit --directory (.*)$", run) for run in runs]
        self.folders = [path for each in made if each for path in each[1].split()]
        self.site = folder / "site-packages"
        self._copied = dict(rest.split() for word, rest in lines if word == "COPY")
        for run in runs:
            if run.startswith("pip install"):
                self._install(context, shlex.split(run)[2:])
        if not (self.site / "bin" / "tacit").is_file():
            raise Wrong(f"{context}/Dockerfile installs no tacit")

    def _install(self, context, words):
        """Installs the wheel, and sees to it that what it requires is here in the versions of the constraints."""
        allowed = (context / ".dockerignore").read_text("utf-8").splitlines()
        for source, target in self._copied.items():
            if f"!{source}" not in allowed or not (context / source).is_dir():
                raise Wrong(f"{context}/{source} does not go into the image")
            words = [
                word.replace(f"/{target.strip('/')}/", f"{context}/{source}/") for word in words
            ]
        words = [word for word in words if word != "--no-cache-dir"]
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index"]
        wheel = re.sub(r"\[.*\]$", "", words[-1])
        subprocess.run([*pip, "--dry-run", *words], check=True)
        subprocess.run([*pip, "--no-deps", "--target", self.site, wheel], check=True)


class Machine:
    """One machine with its compose file.

    Args:
        folder: The folder of the file.
        scratch: For roots and volumes.
        images: Images that were made, by their names.
        variables: Variables of the environment.
        hosts: Addresses of other machines, by name.
    """

    def __init__(self, folder, scratch, images, variables=None, hosts=None):
        self.folder, self.scratch = folder.resolve(), scratch / folder.name
        self.scratch.mkdir()
        self.hosts, self.running, self.failed = hosts or {}, {}, []
        loaded = yaml.safe_load((folder / "compose.yaml").read_text("utf-8"))
        given = (folder / ".env").read_text("utf-8") if (folder / ".env").is_file() else ""
        settings = dict(line.split("=", 1) for line in given.splitlines())
        self.file = interpolate(loaded, settings | (variables or {}))
        self.services = self.file["services"]
        for name, service in self.services.items():
            if unknown := service.keys() - KNOWN:
                raise Wrong(f"{name} has unknown settings: {', '.join(sorted(unknown))}")
            for other in service.get("depends_on", {}):
                if other not in self.services:
                    raise Wrong(f"{name} depends on {other}, which is no service")
            context = self.folder / service["build"]["context"]
            if service["image"] not in images:
                place = scratch / f"image-{service['image']}"
                images[service["image"]] = Image(context, place)
        self.images = images
        # All of 127.x.y.z is loopback. 127.0.0.1 is the service itself, as in a container.
        self.addresses = {name: f"127.0.1.{next(NUMBERS)}" for name in self.services}

    def networks(self, name):
        """Networks of a service."""
        service = self.services[name]
        if "network_mode" in service:
            if service["network_mode"] != "none" or "networks" in service:
                raise Wrong(f"the network of {name}")
            return set()
        found = set(service.get("networks", ["default"]))
        if missing := found - {"default"} - set(self.file.get("networks") or ()):
            raise Wrong(f"{name} is on {', '.join(missing)}, which is no network")
        return found

    def published(self):
        """Addresses of this machine's published ports: the service that has them."""
        found = {}
        for name, service in self.services.items():
            for port in service.get("ports", ()):
                outer, inner = port.split(":")
                if outer != inner:
                    raise Wrong("ports are not translated here")
                found[SERVER] = self.addresses[name]
        return found

    def command(self, name, words, kind="run"):
        """The command that runs words in a new instance of a service."""
        service, root = self.services[name], self.scratch / name / "root"
        image = self.images[service["image"]]
        (root / "home" / "tacit").mkdir(parents=True, exist_ok=True)
        for path in ("/tmp", *image.folders):
            (root / path[1:]).mkdir(parents=True, exist_ok=True)
        lines = ["set -eu"]
        if not self.networks(name):
            lines.append(f"{shlex.quote(sys.executable)} -c {shlex.quote(LO_UP)}")
        own = [
            *map(self._volume, service["volumes"]),
            *map(self._secret, service.get("secrets", ())),
        ]
        mounts = [*programs(root), (str(image.site), "/image"), (self._hosts(name), "/etc/hosts")]
        for source, target, *mode in [*mounts, *sorted(own, key=lambda mount: mount[1].count("/"))]:
            lines += mounting(source, root / target[1:], mode)
        environment = {
            **image.environment,
            "HOME": "/home/tacit",
            "PYTHONPATH": "/image",
            "PATH": f"/image/bin:{Path(sys.executable).parent}:/usr/bin:/bin",
        }
        settings = [f"{key}={value}" for key, value in environment.items()]
        capabilities = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"]
        run = ["chroot", str(root), *capabilities, "env", "-i", *settings, *map(str, words)]
        lines.append(f"exec {shlex.join(run)}")
        script = self.scratch / name / f"{kind}.sh"
        script.write_text("\n".join(lines) + "\n", "utf-8")
        apart = [] if self.networks(name) else ["--net"]
        return ["unshare", "--mount", "--propagation=private", *apart, "/bin/sh", str(script)]

    def _hosts(self, name):
        """A file of the names that a service knows: services on its networks, and other machines."""
        known = {"localhost": "127.0.0.1", **(self.hosts if self.networks(name) else {})}
        for other in self.services:
            if self.networks(name) & self.networks(other):
                known[other] = self.addresses[other]
        path = self.scratch / name / "hosts"
        path.write_text("".join(f"{where} {each}\n" for each, where in known.items()))
        return str(path)

    def _volume(self, text):
        """Source, target and mode of a volume."""
        source, target, *mode = text.split(":")
        if mode not in ([], ["ro"]) or not target.startswith("/"):
            raise Wrong(f"the volume {text}")
        if source.startswith("."):
            path = self.folder / source
            if not path.exists():
                raise Wrong(f"{path} does not exist")
            return (str(path.resolve()), target, *mode)
        if source not in (self.file.get("volumes") or {}):
            raise Wrong(f"{source} is no volume")
        path = self.scratch / "volumes" / source
        if (
            not path.exists()
        ):  # a new volume begins with what the image has there, and else belongs to root
            path.mkdir(parents=True)
            folders = [each for image in self.images.values() for each in image.folders]
            for each in folders:
                if each.startswith(f"{target}/"):
                    (path / each[len(target) + 1 :]).mkdir(exist_ok=True)
            path.chmod(0o755 if target in folders else 0o555)
        return (str(path), target, *mode)

    def _secret(self, given):
        """Source, target and mode of a secret."""
        path = self.folder / self.file["secrets"][given["source"]]["file"]
        if not path.is_file():
            raise Wrong(f"{path} does not exist")
        return str(path), given["target"], "ro"

    def start(self, name):
        """Starts a service once what it depends on is there."""
        if name in self.running:
            return
        service = self.services[name]
        for other, how in service.get("depends_on", {}).items():
            self.start(other)
            self.wait_for(other, how["condition"])
        print(f"starts {self.folder.name}/{name}", flush=True)
        with self.log(name).open("ab") as log:
            self.running[name] = subprocess.Popen(
                self.command(name, service["command"]), stdout=log, stderr=subprocess.STDOUT
            )

    def log(self, name):
        """What a service says."""
        (self.scratch / name).mkdir(exist_ok=True)
        return self.scratch / name / "log"

    def wait_for(self, name, condition):
        """Waits until a service is healthy, or has done its work."""
        process = self.running[name]
        if condition == "service_completed_successfully":
            while process.poll() is None:
                self.look()
                time.sleep(0.2)
            if process.returncode:
                raise self.wrong(name, f"ended with {process.returncode}")
            return
        if condition != "service_healthy" or "healthcheck" not in self.services[name]:
            raise Wrong(f"{name} cannot be {condition}")
        health = self.services[name]["healthcheck"]
        kind, *words = health["test"]
        if kind != "CMD":
            raise Wrong(f"the health check of {name}")
        tries = health.get("retries", 3)
        end = time.monotonic() + SLOW * (
            seconds(health["start_period"]) + tries * seconds(health["interval"])
        )
        command = self.command(name, words, "health")
        while (
            found := subprocess.run(command, capture_output=True, text=True, check=False)
        ).returncode:
            self.look()
            if time.monotonic() > end:
                raise self.wrong(name, f"is not healthy: {found.stderr.strip()[-300:]}")
            time.sleep(0.5)

    def look(self):
        """Raises if a service has ended that is to stay."""
        for name, process in self.running.items():
            stays = self.services[name]["restart"] == "unless-stopped"
            if process.poll() is not None and (stays or process.returncode):
                raise self.wrong(name, f"ended with {process.returncode}")

    def wrong(self, name, what):
        """What is wrong with a service, with the end of what it said."""
        said = self.log(name).read_text("utf-8", "replace")[-1500:]
        return Wrong(f"{self.folder.name}/{name} {what}\n{said}")

    def up(self, *profiles):
        """As `docker compose --profile ... up --detach`."""
        for name in self.services:
            if set(self.services[name].get("profiles", profiles)) & set(profiles) or (
                "profiles" not in self.services[name]
            ):
                self.start(name)

    def run(self, name, others=()):
        """As `docker compose run --rm`; the other machines are watched meanwhile."""
        self.start(name)
        process = self.running[name]
        while process.poll() is None:
            for machine in (self, *others):
                machine.look()
            time.sleep(0.5)
        if process.returncode:
            raise self.wrong(name, f"ended with {process.returncode}")
        return self.log(name).read_text("utf-8", "replace")

    def down(self):
        """As `docker compose down`: what depends on others ends before them."""
        self.look()
        for name in reversed(self.running):
            process = self.running[name]
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(SLOW * STOP_SECONDS)
                except subprocess.TimeoutExpired:
                    raise self.wrong(name, "does not stop") from None
                print(f"stopped {self.folder.name}/{name}", flush=True)
        self.running.clear()


def programs(root):
    """Folders of this machine's programs, for the root of a service."""
    python = {str(Path(sys.executable).parents[1]), sys.base_prefix}
    found = [(each, each) for each in ("/usr", "/etc", "/proc", "/dev", *python)]
    for name in ("bin", "lib", "lib64", "sbin"):
        there = Path("/", name)
        if not there.is_symlink():
            found += [(str(there), str(there))] if there.is_dir() else []
        elif not (root / name).is_symlink():
            (root / name).symlink_to(there.readlink())
    return found


def mounting(source, place, mode):
    """Lines of a shell that show a file or folder at another place."""
    here, there = shlex.quote(source), shlex.quote(str(place))
    if place.name != "hosts":  # /etc is this machine's
        above = shlex.quote(str(place.parent))
        file = f"mkdir -p {above}; [ -e {there} ] || : > {there}"
        yield f"mkdir -p {there}" if Path(source).is_dir() else file
    yield f"mount --rbind {here} {there}"
    if mode == ["ro"]:
        yield f"mount -o remount,bind,ro {there}"


def interpolate(value, variables):
    """Values of a compose file, with those of variables."""
    if isinstance(value, dict):
        return {key: interpolate(each, variables) for key, each in value.items()}
    if isinstance(value, list):
        return [interpolate(each, variables) for each in value]
    if not isinstance(value, str):
        return value

    def replaced(found):
        if found[0] == "$$":
            return "$"
        name, how, text = found.groups()
        if name in variables:
            return variables[name]
        if how != ":-":
            raise Wrong(f"{name} is not set: {text}")
        return text

    return re.sub(r"\$\$|\$\{(\w+)(?:(:-|:\?)([^}]*))?\}", replaced, value)


def seconds(text):
    """Seconds of a duration such as 5s."""
    return float(text.removesuffix("s"))


def trial(study, scratch):
    """The server and all sites by one file."""
    machine = Machine(study, scratch, {})
    machine.run("open")
    machine.up("sites")
    print(machine.run("study"), flush=True)
    machine.down()


def sites(study, scratch):
    """The server by its file, and each site by its own."""
    images = {}
    server = Machine(study, scratch, images)
    server.up()
    machines = []
    for home in sorted((study / "sites").iterdir()):
        variables = {"TACIT_SERVER": f"{SERVER}:8443"}
        machines.append(Machine(home, scratch, images, variables, server.published()))
        machines[-1].run("open")
        machines[-1].up()
    print(machines[0].run("check"), flush=True)
    print(server.run("study", machines), flush=True)
    for machine in (*machines, server):
        machine.down()


def main():
    """Brings up a study; its exit code."""
    global SLOW  # noqa: PLW0603 (a setting of the whole script)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("study", type=Path)
    parser.add_argument("how", choices=["trial", "sites"])
    parser.add_argument("--slow", type=float, default=1.0, help="factor of times that are waited")
    given = parser.parse_args()
    SLOW = given.slow
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as loopback:
        fcntl.ioctl(loopback, 0x8914, struct.pack("16sh", b"lo", 1))  # SIOCSIFFLAGS, IFF_UP
    with tempfile.TemporaryDirectory(prefix="up-") as scratch:
        try:
            {"trial": trial, "sites": sites}[given.how](given.study.resolve(), Path(scratch))
        except Wrong as wrong:
            print(f"Wrong: {wrong}", flush=True)
            # What is left ends with this process, the first of its namespace.
            os._exit(1)
    return 0


SLOW = 1.0

if __name__ == "__main__":
    sys.exit(main())
