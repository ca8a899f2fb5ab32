"""The server's state on disk, so that a server that died can continue.

Every update of the posterior is a line, written before anything that depends on it leaves the server. A server
that adds noise therefore adds it only once: either the noisy sum is in the file, or nobody has seen it. If two
servers run at once, only one can write a line, and the other stops.
"""

from pathlib import Path

import numpy as np
import sqlalchemy as sa

from tacit.accounting.store import engine_of
from tacit.errors import TacitError
from tacit.federated.arrays import read, written
from tacit.federated.server import Folded, Server

_META = sa.MetaData()
_FOLDS = sa.Table(
    "folds",
    _META,
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("about", sa.String, nullable=False),
    sa.Column("state", sa.LargeBinary, nullable=False),
)
# The arrays of a state, in this order: kinds of numbers and dimensions.
_KINDS = {
    "round": ("i", 0),
    "posterior": ("f", 1),
    "factors": ("f", 2),
    "folded": ("i", 1),
    "shares": ("f", 2),
    "used": ("i", 1),
    "mark": ("u", 1),
}


class FoldsFile:
    """The updates of one run in a file. ``about`` identifies the run and its study."""

    def __init__(self, path: Path, about: str) -> None:
        self.path, self._about = path, about
        path.touch(mode=0o600, exist_ok=True)
        self._engine = engine_of(path)
        with self._engine.begin() as connection:
            _META.create_all(connection)

    def resume(self, server: Server) -> None:
        """Restores the last state of the server, or saves the first one."""
        with self._engine.begin() as connection:
            lines = connection.execute(sa.select(_FOLDS).order_by(_FOLDS.c.number)).all()
        if any(line.about != self._about for line in lines):
            raise TacitError(
                f"{self.path} belongs to another run, or the study has changed. Choose another file as "
                "state, and a new name for the run of a changed study."
            )
        if not lines:
            self.keep(server)
            return
        held = [read(line.state, **_KINDS) for line in lines]
        _restore(server, held[-1])
        server.trace = [each["posterior"] for each in held[1:]]

    def keep(self, server: Server) -> None:
        """Saves an update."""
        values = {"number": len(server.trace), "about": self._about, "state": _state(server)}
        try:
            with self._engine.begin() as connection:
                connection.execute(sa.insert(_FOLDS).values(**values))
        except sa.exc.IntegrityError:
            raise TacitError(
                f"Another server of this run has written to {self.path}; this server stops."
            ) from None


def _state(server: Server) -> bytes:
    folded = [server.folded[name] for name in server.sites]
    shares = [f.share if len(f.share) else np.zeros(server.family.size) for f in folded]
    return written(
        np.int64(server.round),
        server.posterior,
        np.stack([server.factors[name] for name in server.sites]),
        np.array([each.round for each in folded], np.int64),
        np.stack(shares),
        np.array([server.used[name] for name in server.sites], np.int64),
        np.frombuffer(server.mark, np.uint8),
    )


def _restore(server: Server, held: dict[str, np.ndarray]) -> None:
    if held["factors"].shape != (len(server.sites), server.family.size):
        raise TacitError("The stored state is of other sites, or of another model.")
    server.round, server.posterior = int(held["round"]), held["posterior"]
    server.mark = held["mark"].tobytes()
    for i, name in enumerate(server.sites):
        number = int(held["folded"][i])
        server.factors[name] = held["factors"][i]
        server.folded[name] = Folded(number, held["shares"][i]) if number else Folded()
        server.used[name] = int(held["used"][i])
