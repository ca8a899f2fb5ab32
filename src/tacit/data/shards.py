"""How people are assigned to files: by a keyed hash of their identifiers, so that each is in one.

What ``tacit shard`` did is written into the header of each file that it made. Whoever reads a file
leaves out rows of people whom the hash assigns to another one. So each person counts in one file,
whatever the files hold, and no file needs to know of the others.
"""

import filecmp
import json
import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tacit.data.people import CODE_VERSION
from tacit.errors import InvalidArgument, MissingPackage

Words = NDArray[np.uint64]
HEADER_KEY: Final = b"tacit.shard"  # the entry in a file's header
_CODES_PER_PIECE: Final = 2**18


@dataclass(frozen=True, kw_only=True)
class ShardAssignment:
    """How the rows of one file were chosen.

    Attributes:
        person: The column that identifies people, or None if rows were assigned in turn.
        type: The type of that column, in Arrow's words.
        into: The number of files.
        index: The number of this file, from 0.
        key: The key of the hash, 16 bytes in hexadecimal digits. As private as the rows.
        form: How identifiers are coded before they are hashed (`tacit.data.people`).
    """

    person: str | None
    type: str
    into: int
    index: int
    key: str
    form: int

    @classmethod
    def new(cls, person: str | None, kind: str, into: int) -> "ShardAssignment":
        """An assignment by a new random key, for the first file."""
        return cls(
            person=person,
            type=kind,
            into=into,
            index=0,
            key=secrets.token_hex(16),
            form=CODE_VERSION,
        )

    def note(self) -> dict[bytes, bytes]:
        """The entry in a file's header."""
        return {HEADER_KEY: json.dumps(asdict(self)).encode()}

    @property
    def shared(self) -> tuple[str | None, str, int, str]:
        """What all files of an assignment have in common."""
        return self.person, self.type, self.into, self.key

    def files(self, codes: NDArray[np.bytes_]) -> NDArray[np.int64]:
        """The number of the file that each person is in."""
        found = np.empty(len(codes), np.int64)
        for start in range(0, len(codes), _CODES_PER_PIECE):
            piece = slice(start, start + _CODES_PER_PIECE)
            hashed = siphash(bytes.fromhex(self.key), codes[piece])
            found[piece] = hashed % np.uint64(self.into)
        return found

    def keep_own(self, codes: NDArray[np.bytes_]) -> NDArray[np.bytes_]:
        """The codes, where people of other files are nobody. [parts-people]"""
        kept = codes.copy()
        kept[self.files(codes) != self.index] = b""
        return kept


def check_distinct_files(paths: Sequence[Path]) -> None:
    """Raises if two paths lead to one file, or to copies of it, whose rows would count twice.

    A copy is a file of the same bytes. A table that was written twice in two ways is not noticed.
    """
    known: dict[object, Path] = {}
    for path in paths:
        try:
            found = path.stat()
        except OSError:  # whoever reads it says what is wrong; it may be another process
            found = None
        keys = [path.resolve(), *([] if found is None else [(found.st_dev, found.st_ino)])]
        for key in keys:
            if key in known:
                again = "again" if known[key] == path else f"also as {known[key]}"
                raise InvalidArgument(
                    f"{path} is named {again}, so that its rows would count twice; name each file once."
                )
            known[key] = path
    _check_no_copies([path for path in paths if path.is_file()])


def _check_no_copies(paths: Sequence[Path]) -> None:
    by_size: dict[int, list[Path]] = {}
    for path in paths:
        others = by_size.setdefault(path.stat().st_size, [])
        for other in others:
            with suppress(OSError):  # whoever reads it says what is wrong
                if filecmp.cmp(other, path, shallow=False):  # reads up to the first difference
                    raise InvalidArgument(
                        f"{path} is a copy of {other}, so that its rows would count twice; name one of them."
                    )
        others.append(path)


def read_shard_assignment(path: Path) -> ShardAssignment | None:
    """How the rows of a file were chosen, or None if ``tacit shard`` did not write it."""
    if path.suffix.lower() not in {".parquet", ".pq"}:
        return None
    try:
        from pyarrow import ArrowException, parquet  # an extra
    except ModuleNotFoundError:
        raise MissingPackage("pyarrow", f"Reading {path}") from None
    try:
        header = parquet.read_schema(path)
        noted = (header.metadata or {}).get(HEADER_KEY)
        if noted is None:
            return None
        assignment = ShardAssignment(**json.loads(noted))
        same = (
            assignment.person is None
            or str(header.field(assignment.person).type) == assignment.type
        )
        if same and assignment.form == CODE_VERSION:
            return assignment
    except (ArrowException, OSError, ValueError, TypeError, KeyError):
        pass
    raise InvalidArgument(
        f"The header of {path} is damaged, was changed, or was written by another version; write the "
        "files again with tacit shard."
    )


def siphash(key: bytes, texts: NDArray[np.bytes_]) -> Words:
    """SipHash-2-4 of each of some texts of one length, which are padded with zeros.

    Args:
        key: 16 bytes.
        texts: The texts.

    Returns:
        A word of 64 bits for each.
    """
    length = texts.dtype.itemsize
    padded = np.zeros((len(texts), length // 8 * 8 + 8), np.uint8)
    padded[:, :length] = np.ascontiguousarray(texts).view(np.uint8).reshape(len(texts), length)
    padded[:, -1] = length % 256
    first, second = np.frombuffer(key, "<u8").astype(np.uint64)
    begin = (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)
    mixed = [first, second, first, second]
    state = [np.full(len(texts), np.uint64(b) ^ m) for b, m in zip(begin, mixed, strict=True)]
    for word in padded.view("<u8").astype(np.uint64).T:
        state[3] = state[3] ^ word
        state = _sip_rounds(state, 2)
        state[0] = state[0] ^ word
    state[2] = state[2] ^ np.uint64(0xFF)
    a, b, c, d = _sip_rounds(state, 4)
    hashed: Words = a ^ b ^ c ^ d
    return hashed


def _sip_rounds(state: list[Words], count: int) -> list[Words]:
    a, b, c, d = state
    for _ in range(count):
        a, c = a + b, c + d
        b, d = _rotate(b, 13) ^ a, _rotate(d, 16) ^ c
        a = _rotate(a, 32)
        c, a = c + b, a + d
        b, d = _rotate(b, 17) ^ c, _rotate(d, 21) ^ a
        c = _rotate(c, 32)
    return [a, b, c, d]


def _rotate(words: Words, bits: int) -> Words:
    turned: Words = words << np.uint64(bits) | words >> np.uint64(64 - bits)
    return turned
