"""Secure aggregation: masks that hide each site's whole numbers and cancel in their sum.

For every round each site makes a key pair for this once (X25519), signs the public half together
with the run, the round and the attempt (Ed25519), and hands it to the server, which passes all of
them on. Two sites then share a secret that the server does not know; of every pair one adds the
stream of a cipher (ChaCha20) keyed by it, the other subtracts it, modulo 2^64. What the server gets
from a site is uniform, and the sum is exact (federated/PROOFS.md, Theorem F6).

A site trusts its own `Roster` and nothing else: who takes part, the keys they sign with, and how
many answer together. A key that no member signed for this very attempt, a member missing or one
more than pinned, and the site refuses. There is no recovery from a member that leaves: the sum is
noise then, the server drops the round, and another attempt has keys of its own.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from tacit import _validate
from tacit.errors import InvalidArgument, Refused
from tacit.federated.maskkeys import MaskKeys, MemoryMaskKeys
from tacit.federated.transport import Answers, Reply, Task

Whole = NDArray[np.int64]


@dataclass(frozen=True)
class Session:
    """What one set of masks is for: an attempt at a round of a run."""

    run: str
    round: int
    attempt: int = 1

    def text(self) -> bytes:
        """What is signed and what names a secret; lengths keep fields apart."""
        numbers = str(self.round).encode(), str(self.attempt).encode()
        return _joined(b"session", self.run.encode(), *numbers)


@dataclass(frozen=True)
class Offer:
    """A site's public key for one session, signed."""

    site: str
    key: bytes
    signature: bytes = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class Roster:
    """Who takes part, as a site pins it: names, and the public keys that they sign with.

    ``together`` is how many answer in one round, all of them unless given.
    """

    members: Mapping[str, bytes]
    together: int | None = None

    def __post_init__(self) -> None:
        number = _validate.count("the number of members", len(self.members), least=2)
        _validate.count("together", self.size, least=2)
        keys = set(self.members.values())
        if self.size > number or len(keys) < number or {len(key) for key in keys} != {32}:
            raise InvalidArgument(
                "A roster names each member with an Ed25519 key of its own, 32 bytes, and at "
                "least as many members as answer together."
            )

    @property
    def size(self) -> int:
        """How many answer in one round."""
        return len(self.members) if self.together is None else self.together


class Masker:
    """A site's masks: its name, the key it signs with, its roster, and what it remembers."""

    def __init__(
        self,
        name: str,
        identity: Ed25519PrivateKey,
        roster: Roster,
        keys: MaskKeys | None = None,
    ) -> None:
        if roster.members.get(name) != identity.public_key().public_bytes_raw():
            raise InvalidArgument(f"The roster does not name {name} with the key it signs with.")
        self.name, self.roster = name, roster
        self._identity, self._keys = identity, MemoryMaskKeys() if keys is None else keys

    def offer(self, session: Session) -> Offer:
        """The key of this site for a session; the same if asked again before it is used."""
        made = X25519PrivateKey.generate().private_bytes_raw()
        secret = self._keys.kept(session.text(), made)
        if secret is None:
            raise Refused(
                f"{self.name} has used its key for round {session.round}, attempt "
                f"{session.attempt}; another attempt needs a number of its own."
            )
        key = X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()
        signed = self._identity.sign(_signed(session, self.name, key))
        return Offer(self.name, key, signed)

    def mask(self, session: Session, offers: Sequence[Offer], values: Whole, about: bytes) -> Whole:
        """Whole numbers with this site's masks; ``about`` is the digest of what they answer.

        The key is used once, and forgotten in the same transaction that keeps what was masked:
        the same question again gets the same bytes, and any other is refused. [mask-once]
        """
        keys = self._accepted(session, offers)
        self._refuse_other_members(session, keys)
        digest = _digest(session, keys, about, len(values))
        done = self._keys.masked(session.text(), digest)
        if done is None:
            secret = self._keys.secret(session.text())
            if secret is None or self._public(secret) != keys[self.name]:
                raise Refused(
                    f"{self.name} offered no such key for round {session.round}, attempt "
                    f"{session.attempt}, or has used it; start another attempt."
                )
            masked = values.astype(np.int64).view(np.uint64) + self._total(
                secret, keys, digest, len(values)
            )
            done = self._keys.spend(session.text(), digest, masked.tobytes())
        return np.frombuffer(done, np.int64).copy()

    def _refuse_other_members(self, session: Session, keys: Mapping[str, bytes]) -> None:
        """One answer goes into the sum of one set of sites: two sums would share its noise."""
        label = _joined(b"members", session.run.encode(), str(session.round).encode())
        members = hashlib.sha256(_joined(*(name.encode() for name in keys))).digest()
        if self._keys.kept(label, members) != members:
            raise Refused(
                f"{self.name} has answered round {session.round} together with other sites; a new "
                "group needs a new round."
            )

    def _total(
        self, secret: bytes, keys: Mapping[str, bytes], digest: bytes, count: int
    ) -> NDArray[np.uint64]:
        """The sum of this site's masks, one for each other member, modulo 2^64."""
        own, total = X25519PrivateKey.from_private_bytes(secret), np.zeros(count, np.uint64)
        for name, key in keys.items():
            if name != self.name:
                stream = _stream(_shared(own, name, key), digest, count)
                total = total + stream if self.name < name else total - stream
        return total

    def _accepted(self, session: Session, offers: Sequence[Offer]) -> dict[str, bytes]:
        """The keys of this round's members, each signed for this session."""
        names = [offer.site for offer in offers]
        if len(names) != self.roster.size or len(set(names)) != len(names):
            raise Refused(
                f"{self.name} pinned {self.roster.size} sites to a round and was told of "
                f"{len(names)}: with fewer shares of noise nobody is protected."
            )
        if self.name not in names or not set(names) <= set(self.roster.members):
            raise Refused(f"{self.name} was told of sites that its roster does not name.")
        for offer in offers:
            self._check(session, offer)
        if len({offer.key for offer in offers}) != len(offers):
            raise Refused("Two sites offered the same key.")
        return {offer.site: offer.key for offer in sorted(offers, key=lambda each: each.site)}

    def _check(self, session: Session, offer: Offer) -> None:
        signer = Ed25519PublicKey.from_public_bytes(self.roster.members[offer.site])
        try:
            signer.verify(offer.signature, _signed(session, offer.site, offer.key))
        except InvalidSignature:
            raise Refused(
                f"The key of {offer.site} is not signed by it for round {session.round}, attempt "
                f"{session.attempt} of this run: it is forged, or from another round."
            ) from None

    @staticmethod
    def _public(secret: bytes) -> bytes:
        return X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()


class MaskedSite:
    """A client whose answers leave masked."""

    def __init__(self, client: Answers, masker: Masker) -> None:
        if client.name != masker.name:
            raise InvalidArgument("A client and its masks have one name.")
        self.name, self._client, self._masker = client.name, client, masker

    def offer(self, session: Session) -> Offer:
        """The key of this site for a session."""
        return self._masker.offer(session)

    def answer(self, task: Task, attempt: int, offers: Sequence[Offer]) -> Reply:
        """The reply with masks; nothing is computed or charged before the keys are accepted."""
        session = Session(task.run, task.round, attempt)
        self._masker._accepted(session, offers)  # noqa: SLF001 (two halves of one thing)
        reply = self._client.answer(task)
        if reply.grid is None or reply.change.dtype.kind != "i":
            raise InvalidArgument('Masks need whole numbers: use a scheme with noise="split".')
        about = hashlib.sha256(task.posterior.tobytes()).digest()
        masked = self._masker.mask(session, offers, reply.change, about)
        return Reply(
            site=reply.site, run=reply.run, round=reply.round, change=masked, grid=reply.grid
        )


class MaskedInProcess:
    """Masking sites in this very process: for study and tests."""

    refused: ClassVar[Mapping[str, str]] = {}

    def __init__(self, sites: Sequence[MaskedSite]) -> None:
        self._sites = {site.name: site for site in sites}

    @property
    def sites(self) -> tuple[str, ...]:
        """The sites' names, in the order given."""
        return tuple(self._sites)

    def exchange(self, tasks: Mapping[str, Task]) -> dict[str, Reply]:
        """First all keys, then all replies."""
        offers = [
            self._sites[name].offer(Session(task.run, task.round)) for name, task in tasks.items()
        ]
        return {name: self._sites[name].answer(task, 1, offers) for name, task in tasks.items()}


def _shared(own: X25519PrivateKey, name: str, key: bytes) -> bytes:
    """What this site and another know and nobody else does."""
    try:
        return own.exchange(X25519PublicKey.from_public_bytes(key))
    except ValueError:
        raise Refused(f"{name} offered what is no key.") from None


def _stream(shared: bytes, digest: bytes, count: int) -> NDArray[np.uint64]:
    """A mask from a pair's secret, for one session only. [mask-stream]"""
    derived = HKDF(hashes.SHA256(), 32, salt=None, info=b"tacit mask" + digest).derive(shared)
    cipher = Cipher(algorithms.ChaCha20(derived, bytes(16)), mode=None).encryptor()
    return np.frombuffer(cipher.update(bytes(8 * count)), np.uint64)


def _digest(session: Session, keys: Mapping[str, bytes], about: bytes, count: int) -> bytes:
    """What the members must agree in for their masks to cancel."""
    parts = [part for name, key in keys.items() for part in (name.encode(), key)]
    return hashlib.sha256(_joined(session.text(), about, str(count).encode(), *parts)).digest()


def _signed(session: Session, site: str, key: bytes) -> bytes:
    return _joined(b"tacit mask key", session.text(), site.encode(), key)


def _joined(*parts: bytes) -> bytes:
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)
