"""An unfinished run on disk: its keys, how far it is, and what it is bound to.

The folder is for its owner only. ``keys`` is written once, before anything is charged, and
overwritten when the run is finished. ``state`` is exchanged as a whole, and sealed by one of the
keys. PROOFS.md says why a run that goes on is the run that was charged. [kept-run]
"""

import hmac
import json
import os
import secrets
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tacit.accounting.store import sync_folder
from tacit.data.store import reserve
from tacit.errors import InvalidArgument, TacitError
from tacit.privacy.noise import Randomness
from tacit.privacy.private_files import (
    DRAFT,
    locked,
    make_private,
    overwrite,
    remove,
    write_whole,
)
from tacit.privacy.rows import Rows

_FOLDER, _KEYS, _STATE, _LOCK = "unfinished", "keys", "state", "lock"
# Seconds between two writes: at least so many, and so many times what a write takes.
_SECONDS, _TIMES = 2.0, 100.0
_NONCE: Final = 12


class Standing(NamedTuple):
    """How far a gate is: a digest of its question, and its steps, streams, states and outputs."""

    question: str
    steps: int
    drawn: tuple[int, ...]
    arrays: bytes


class Unfinished:
    """A run that was begun and is not finished, in the folder ``unfinished`` of its own folder.

    Make it with `begin` or `open`. One process at a time may hold it.

    Attributes:
        folder: The folder of the run.
        name: A random name, which the charge of the run carries.
        notes: What the owner needs to go on, such as the path of the data.
    """

    def __init__(self, folder: Path, held: Mapping[str, Any], lock: int) -> None:
        self.folder, self._held, self._lock = folder, held, lock
        self.name: str = held["name"]
        self.notes: Mapping[str, str] = held["notes"]
        self._seal = AESGCM(bytes.fromhex(held["seal"]))
        self._standings = self._read()
        self._next = time.monotonic() + _SECONDS

    @classmethod
    def begin(
        cls,
        folder: Path,
        randomness: Randomness,
        rows: Rows,
        bound: Mapping[str, str],
        notes: Mapping[str, str],
        room: int,
    ) -> "Unfinished":
        """Writes the keys of a run, before anything is charged.

        Args:
            folder: The folder of the run, made if necessary.
            randomness: What protects the rows. Nothing may have been drawn from it.
            rows: The private rows.
            bound: What must be the same when the run goes on: digests or public words, by what is
                said if they differ, such as "another model".
            notes: What the owner needs to go on.
            room: About how many bytes the run will need.

        Returns:
            The run.

        Raises:
            InvalidArgument: If the folder cannot be written, or has too little room.
        """
        key, seal, mac = randomness._key, secrets.token_bytes(32), secrets.token_bytes(32)
        held = {
            "note": "Secret keys of an unfinished run of Tacit. Whoever reads them can undo its noise.",
            "name": secrets.token_hex(8),
            "key": key.hex(),
            "seeded": randomness.seeded,
            "seal": seal.hex(),
            "mac": mac.hex(),
            "rows": rows._keyed_digest(mac).hex(),
            "bound": dict(bound),
            "notes": dict(notes),
        }
        place = folder / _FOLDER
        try:
            make_private(place)
            return cls(folder, held, _begun(folder, json.dumps(held, indent=1).encode(), room))
        except OSError as error:
            with suppress(OSError):
                remove(place)
            raise InvalidArgument(
                f"The run cannot be kept in {folder}: {error.strerror}. Nothing was charged."
            ) from None

    @classmethod
    def open(cls, folder: Path) -> "Unfinished":
        """Opens a run to go on with it; raises if there is none, or another process has it."""
        place = folder / _FOLDER
        if not is_unfinished(folder):
            raise InvalidArgument(f"{folder} holds no unfinished run.")
        lock = locked(place / _LOCK)
        try:
            held = json.loads((place / _KEYS).read_bytes())
            for each in place.glob(f"{DRAFT}*"):
                each.unlink()
            return cls(folder, held, lock)
        except (OSError, ValueError, KeyError, TypeError):
            os.close(lock)
            raise _damaged(place / _KEYS) from None
        except BaseException:
            os.close(lock)
            raise

    def randomness(self) -> Randomness:
        """The randomness that protects the rows, as it was at the beginning."""
        return Randomness.from_key(bytes.fromhex(self._held["key"]), seeded=self._held["seeded"])

    @property
    def started(self) -> bool:
        """Whether anything was computed from rows and stored. A question is stored before that."""
        return any(held.steps for held in self._standings.values())

    @property
    def has_question(self) -> bool:
        """Whether what is asked of the rows is stored; before that, nothing can have been charged."""
        return bool(self._standings)

    def renew(self, randomness: Randomness) -> None:
        """Exchanges the keys and the name of a run without a question. [kept-renewed]

        Until its question is stored a run is not bound to all that it may ask, and a copy of the
        folder could ask something else with the same noise.
        """
        held = {**self._held, "name": secrets.token_hex(8), "key": randomness._key.hex()}
        try:
            write_whole(self.place / _KEYS, json.dumps(held, indent=1).encode())
        except OSError as error:
            raise InvalidArgument(
                f"The run cannot be kept in {self.folder}: {error.strerror}. Nothing was charged."
            ) from None
        self._held, self.name = held, held["name"]

    @property
    def place(self) -> Path:
        """The folder that only the owner can enter, where a result waits until it may leave."""
        return self.folder / _FOLDER

    def refuse_other(self, rows: Rows, bound: Mapping[str, str]) -> None:
        """Raises if the rows or anything else differs from what the run was begun with."""
        before, mac = self._held["bound"], bytes.fromhex(self._held["mac"])
        for name in {**before, **bound}:
            held, now = before.get(name), bound.get(name)
            if held != now:
                raise self._other(f"{name} ({held}, now {now})" if _is_number(held) else name)
        if not hmac.compare_digest(rows._keyed_digest(mac).hex(), self._held["rows"]):
            raise self._other("other data")

    def _other(self, what: str) -> InvalidArgument:
        return InvalidArgument(
            f"The run in {self.folder} was begun with {what}. It can go on only as it was begun, because "
            "its noise must never answer another question. Begin a new run in another folder."
        )

    def standing(self, gate: str, question: str) -> Standing | None:
        """How far a gate was when it was last stored, or None; raises if it asks something else."""
        found = self._standings.get(gate)
        if found is not None and found.question != question:
            raise self._other("another model, method or version of a library")
        return found

    @property
    def due(self) -> bool:
        """Whether it is time to store."""
        return time.monotonic() >= self._next

    def store(self, gate: str, standing: Standing, *, last: bool) -> None:
        """Stores how far a gate is, on disk before this returns.

        If it cannot be written, the last one is still there, and the run goes on. Only the ``last``
        one of a gate has to be written, as nothing may leave before it is stored.
        """
        begun = time.monotonic()
        self._standings[gate] = standing
        try:
            write_whole(self.folder / _FOLDER / _STATE, self._sealed())
        except OSError as error:
            if last:
                raise TacitError(
                    f"What the run found cannot be written to {self.folder} ({error.strerror})."
                ) from None
        now = time.monotonic()
        self._next = now + max(_SECONDS, _TIMES * (now - begun))

    def _sealed(self) -> bytes:
        """All standings as bytes: a line about each, and their arrays."""
        facts = [
            [gate, held.question, held.steps, list(held.drawn), len(held.arrays)]
            for gate, held in self._standings.items()
        ]
        arrays = b"".join(held.arrays for held in self._standings.values())
        nonce = os.urandom(_NONCE)
        plain = json.dumps(facts).encode() + b"\n" + arrays
        return nonce + self._seal.encrypt(nonce, plain, self.name.encode())

    def _read(self) -> dict[str, Standing]:
        path = self.folder / _FOLDER / _STATE
        try:
            sealed = path.read_bytes()
            plain = self._seal.decrypt(sealed[:_NONCE], sealed[_NONCE:], self.name.encode())
        except FileNotFoundError:
            return {}
        except (InvalidTag, ValueError, OSError):
            raise _damaged(path) from None
        line, _, rest = plain.partition(b"\n")
        found = {}
        for gate, question, steps, drawn, size in json.loads(line):
            found[gate] = Standing(question, steps, tuple(drawn), rest[:size])
            rest = rest[size:]
        return found

    def close(self) -> None:
        """Lets another process have the run."""
        if self._lock >= 0:
            os.close(self._lock)
        self._lock = -1

    def destroy(self) -> None:
        """Overwrites and removes the keys, and then all else, once the result is on disk."""
        overwrite(self.folder / _FOLDER / _KEYS)
        self.close()
        destroy(self.folder)


def _begun(folder: Path, keys: bytes, room: int) -> int:
    """Writes the keys of a new run where there is room for it; the handle of its lock."""
    place = folder / _FOLDER
    lock = locked(place / _LOCK)
    try:
        for each in {*place.iterdir()} - {place / _LOCK, place / _KEYS}:  # of one that never began
            each.unlink()
        with tempfile.TemporaryFile(dir=place) as file:
            reserve(file, room)
        _refuse_begun(folder)
        write_whole(place / _KEYS, keys)
        for each in (folder, folder.absolute().parent):
            sync_folder(each)
    except BaseException:
        os.close(lock)
        raise
    return lock


def _refuse_begun(folder: Path) -> None:
    if is_unfinished(folder):
        raise InvalidArgument(f"Another process has just begun a run in {folder}.")


def is_unfinished(folder: Path) -> bool:
    """Whether a folder has the keys of a run."""
    try:
        with (folder / _FOLDER / _KEYS).open("rb") as keys:
            return keys.read(1) == b"{"
    except OSError:
        return False


def notes_of(folder: Path) -> tuple[str, Mapping[str, str]]:
    """The name of an unfinished run and its notes, without opening it."""
    try:
        held = json.loads((folder / _FOLDER / _KEYS).read_bytes())
        return held["name"], held["notes"]
    except (OSError, ValueError, KeyError, TypeError):
        raise _damaged(folder / _FOLDER / _KEYS) from None


def destroy(folder: Path) -> None:
    """Overwrites and removes the keys of a run, if there are any, and what was stored."""
    overwrite(folder / _FOLDER / _KEYS)
    remove(folder / _FOLDER)


def _is_number(said: str | None) -> bool:
    """Whether what a run is bound to may be shown: a plain number, and not a digest."""
    return said is not None and said.isdecimal()


def _damaged(path: Path) -> TacitError:
    return TacitError(f"{path} is damaged, or belongs to another run; restore it to go on.")
