"""A PostgreSQL server for tests: on 127.0.0.1, at a free port, stopped by its own id."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "60",
    "logging_collector": "off",
    "shared_buffers": "16MB",
    # Processes are killed in tests, and not machines: what was written is with the system.
    "fsync": "off",
}
PASSWORD = "s3cret/of@tests"  # noqa: S105


class Server:
    """A server on this machine."""

    def __init__(self, binaries, folder, port, owner):
        self.binaries, self.folder, self.port, self.owner = binaries, folder, port, owner
        self.process = None

    def start(self):
        options = [word for name, value in SETTINGS.items() for word in ("-c", f"{name}={value}")]
        command = [str(self.binaries / "postgres"), "-D", str(self.folder), "-p", str(self.port)]
        log = (self.folder.parent / "log").open("ab")
        with log:
            self.process = subprocess.Popen(
                [*command, *options],
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd=self.folder.parent,
                **as_user(self.owner),
            )
        self.settle()

    def settle(self):
        """Waits until the server answers."""
        import psycopg

        for _ in range(600):
            if self.process.poll() is not None:
                break
            try:
                return self.run("SELECT 1")
            except psycopg.OperationalError:
                time.sleep(0.05)
        raise RuntimeError((self.folder.parent / "log").read_text())

    def stop(self, how=signal.SIGINT):
        """SIGINT: at once, in order; SIGQUIT: as in a crash."""
        self.process.send_signal(how)
        self.process.wait(timeout=120)

    def run(self, *statements, database="postgres"):
        """Runs statements as the server's administrator."""
        import psycopg

        with psycopg.connect(admin(self, database), autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement)

    def url(self, database, user="steward", password=None):
        """The address of a database; the password is that of `ROLES`."""
        return f"postgresql://{user}:{password or f'{user}-word'}@127.0.0.1:{self.port}/{database}"


def binaries():
    """Folders with the programs of a server, those of the wheel first."""
    spec = find_spec("pgserver")
    if spec is not None and spec.origin is not None:
        yield Path(spec.origin).parent / "pginstall" / "bin"
    yield from sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    if (found := shutil.which("initdb")) is not None:
        yield Path(found).resolve().parent


def as_user(name):
    """Options that run a program as another user: PostgreSQL does not run as root."""
    if name is None:
        return {}
    import pwd

    found = pwd.getpwnam(name)
    return {"user": found.pw_uid, "group": found.pw_gid, "extra_groups": []}


def unprivileged():
    """A user for the server, or None for the present one."""
    if sys.platform == "win32" or os.getuid() != 0:
        return None
    import pwd

    names = {each.pw_name for each in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


def initialised(folder, owner):
    """The programs that could create a cluster in ``folder``; None if there are none that work."""
    (folder / "password").write_text(PASSWORD)
    if owner is not None:
        for path in (folder, folder / "password"):
            shutil.chown(path, owner)
    for each in filter(Path.is_dir, binaries()):
        command = [str(each / "initdb"), "-D", str(folder / "data"), "-U", "admin", "-A"]
        command += ["scram-sha-256", f"--pwfile={folder / 'password'}", "-E", "UTF8", "--locale=C"]
        command += ["--no-sync"]
        try:
            done = subprocess.run(
                command, check=False, capture_output=True, cwd=folder, **as_user(owner)
            )
        except OSError:
            continue
        if done.returncode == 0:
            return each
        shutil.rmtree(folder / "data", ignore_errors=True)
    return None


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def running():
    """A server with the roles of a team; None if this machine has no PostgreSQL."""
    owner = unprivileged()
    with tempfile.TemporaryDirectory(prefix="tacit-postgres-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        programs = initialised(folder, owner)
        if programs is None:
            yield None
            return
        server = Server(programs, folder / "data", free_port(), owner)
        try:
            server.start()
            server.run(*ROLES)
            yield server
        finally:
            if server.process is not None and server.process.poll() is None:
                server.stop()


ROLES = (
    "CREATE ROLE steward LOGIN CREATEDB PASSWORD 'steward-word'",
    "CREATE ROLE team",
    "CREATE ROLE anna LOGIN PASSWORD 'anna-word' IN ROLE team",
    "CREATE ROLE bert LOGIN PASSWORD 'bert-word' IN ROLE team",
    "CREATE ROLE stranger LOGIN PASSWORD 'stranger-word'",
)


def admin(server, database="postgres"):
    from psycopg.conninfo import make_conninfo

    where = {"host": "127.0.0.1", "port": server.port, "dbname": database}
    return make_conninfo(user="admin", password=PASSWORD, **where)
