"""The server's state on disk, so that a server that died can continue.

Every fold is a line, written before anything that follows from it leaves the server. So a server with noise of
its own puts none on answers a second time: either the sum with its noise stands here, or nobody
has seen it. Two servers of one run cannot both write a line, and the second ends.
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


class FoldsFile:
    """The folds of one run in a file. ``about`` tells the run and its study from others."""

    def __init__(self, path: Path, about: str) -> None:
        self.path, self._about = path, about
        path.touch(mode=0o600, exist_ok=True)
        self._engine = engine_of(path)
        with self._engine.begin() as connection:
            _META.create_all(connection)

    def resume(self, server: Server) -> None:
        """Brings a new server to where the last one was; writes down the start if there was none."""
        with self._engine.begin() as connection:
            lines = connection.execute(sa.select(_FOLDS).order_by(_FOLDS.c.number)).all()
        if any(line.about != self._about for line in lines):
            raise TacitError(
                f"{self.path} is of another run, or the study was changed since; name another file "
                "as state, and give a changed study a new run."
            )
        if not lines:
            self.keep(server)
            return
        _restore(server, read(lines[-1].state))
        server.trace = [read(line.state)["posterior"] for line in lines[1:]]

    def keep(self, server: Server) -> None:
        """Writes a fold down."""
        values = {"number": len(server.trace), "about": self._about, "state": _state(server)}
        try:
            with self._engine.begin() as connection:
                connection.execute(sa.insert(_FOLDS).values(**values))
        except sa.exc.IntegrityError:
            raise TacitError(
                f"Another server of this run is at work, or was, and writes to {self.path}; this one "
                "ends."
            ) from None


def _state(server: Server) -> bytes:
    folded = [server.folded[name] for name in server.sites]
    shares = [f.share if len(f.share) else np.zeros(server.family.size) for f in folded]
    return written(
        round=np.int64(server.round),
        posterior=server.posterior,
        factors=np.stack([server.factors[name] for name in server.sites]),
        folded=np.array([each.round for each in folded], np.int64),
        shares=np.stack(shares),
        used=np.array([server.used[name] for name in server.sites], np.int64),
        mark=np.frombuffer(server.mark, np.uint8),
    )


def _restore(server: Server, held: dict[str, np.ndarray]) -> None:
    server.round, server.posterior = int(held["round"]), held["posterior"]
    server.mark = held["mark"].tobytes()
    for i, name in enumerate(server.sites):
        number = int(held["folded"][i])
        server.factors[name] = held["factors"][i]
        server.folded[name] = Folded(number, held["shares"][i]) if number else Folded()
        server.used[name] = int(held["used"][i])
