"""Secure aggregation: masks that hide each site's whole numbers and cancel in their sum.

For every round, each site makes a new key pair (X25519), signs the public half together with the run, the
round and the attempt (Ed25519), and sends it to the server, which passes all of them on. Every two sites then
share a secret that the server does not know. One of them adds a cipher stream (ChaCha20) keyed by the secret,
and the other subtracts it, modulo 2^64. What the server gets from a site is uniform, and the sum is exact
(federated/PROOFS.md, Theorem F6).

A site trusts only its own `Roster`: who takes part, the keys they sign with, and how many answer together. It
refuses a key that no member signed for this attempt, and any other number of members. If a member leaves after
the keys were passed on, the sum is noise. Another attempt uses new keys and the same members. Other members need a
new round, because an answer goes into the sum of one group only (Theorem F8).

One process may offer a key and end, and another process use it for masking. So the secret is stored (`MaskKeys`),
and the masked numbers replace it in one transaction. Vectors travel as plain bytes of a fixed type: masks act on
these bytes, and a compressed file from a stranger could unpack to any size.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import sqlalchemy as sa
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from tacit import _validate
from tacit.accounting import ledger_chain
from tacit.accounting.ledger import Ledger
from tacit.errors import InvalidArgument, Refused
from tacit.federated.protocol import AnsweringSite, Offer, Reply, Session, Task, length_prefixed

_MASK_TABLES = sa.MetaData()
_KEYS_TABLE = sa.Table(
    "mask_keys",
    _MASK_TABLES,
    sa.Column("session", sa.LargeBinary, primary_key=True),
    sa.Column("secret", sa.LargeBinary),
    sa.Column("digest", sa.LargeBinary),
    sa.Column("masked", sa.LargeBinary),
)


class MaskKeys(Protocol):
    """Stores the secrets of a site's sessions."""

    def get_or_store(self, session: bytes, secret: bytes) -> bytes | None:
        """The secret of a session: the given one if there was none, or None if it was used."""
        ...

    def bind_group(self, answer: bytes, group: bytes) -> bytes:
        """The group of sites of an answer: the given one if there was none."""
        ...

    def secret(self, session: bytes) -> bytes | None:
        """The secret of a session, or None if it was used or does not exist."""
        ...

    def masked(self, session: bytes, digest: bytes) -> bytes | None:
        """The masked numbers of a session for this question, or None."""
        ...

    def spend(self, session: bytes, digest: bytes, masked: bytes) -> bytes:
        """Replaces the secret by the masked numbers and returns them.

        If the secret was used for the same question before, returns the first masked numbers; for
        another question it is refused.
        """
        ...


class MemoryMaskKeys:
    """Secrets in memory, which end with the process."""

    def __init__(self) -> None:
        self._secrets: dict[bytes, bytes] = {}
        self._groups: dict[bytes, bytes] = {}
        self._masked: dict[bytes, tuple[bytes, bytes]] = {}

    def get_or_store(self, session: bytes, secret: bytes) -> bytes | None:
        """The secret of a session: the given one if there was none, or None if it was used."""
        if session in self._masked:
            return None
        return self._secrets.setdefault(session, secret)

    def bind_group(self, answer: bytes, group: bytes) -> bytes:
        """The group of sites of an answer: the given one if there was none."""
        return self._groups.setdefault(answer, group)

    def secret(self, session: bytes) -> bytes | None:
        """The secret of a session, or None if it was used or does not exist."""
        return self._secrets.get(session)

    def masked(self, session: bytes, digest: bytes) -> bytes | None:
        """The masked numbers of a session for this question, or None."""
        asked, masked = self._masked.get(session, (None, None))
        return masked if asked == digest else None

    def spend(self, session: bytes, digest: bytes, masked: bytes) -> bytes:
        """Replaces the secret by the masked numbers."""
        if self._secrets.pop(session, None) is None:
            raise _key_used()
        self._masked[session] = digest, masked
        return masked


class LedgerMaskKeys:
    """Secrets in the file of a site's ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        with ledger.transaction() as connection:
            _MASK_TABLES.create_all(connection)

    def get_or_store(self, session: bytes, secret: bytes) -> bytes | None:
        """The secret of a session: the given one if there was none, or None if it was used."""
        with self._ledger.transaction() as connection:
            row = connection.execute(_select_session(session)).first()
            if row is None:
                values = {"session": session, "secret": secret}
                connection.execute(sa.insert(_KEYS_TABLE).values(**values))
                return secret
            return None if row.secret is None else bytes(row.secret)

    def bind_group(self, answer: bytes, group: bytes) -> bytes:
        """The group of sites of an answer: the given one if there was none.

        It is a line of the ledger's chain, so that a copy of the ledger without it is refused.
        """
        with self._ledger.transaction() as connection:
            row = connection.execute(_select_session(answer)).first()
            if row is not None:
                return bytes(row.secret or b"")
            connection.execute(sa.insert(_KEYS_TABLE).values(session=answer, secret=group))
            ledger_chain.append_link(connection, "group", (answer, group))
            return group

    def secret(self, session: bytes) -> bytes | None:
        """The secret of a session, or None if it was used or does not exist."""
        with self._ledger.transaction() as connection:
            row = connection.execute(_select_session(session)).first()
            return None if row is None else row.secret

    def masked(self, session: bytes, digest: bytes) -> bytes | None:
        """The masked numbers of a session for this question, or None."""
        with self._ledger.transaction() as connection:
            row = connection.execute(_select_session(session)).first()
            return None if row is None or row.digest != digest else row.masked

    def spend(self, session: bytes, digest: bytes, masked: bytes) -> bytes:
        """Replaces the secret by the masked numbers and returns them.

        If the secret was used for the same question before, returns the first masked numbers; for
        another question it is refused.
        """
        unused = sa.and_(_KEYS_TABLE.c.session == session, _KEYS_TABLE.c.secret.is_not(None))
        change = sa.update(_KEYS_TABLE).where(unused)
        with self._ledger.transaction() as connection:
            done = connection.execute(change.values(secret=None, digest=digest, masked=masked))
            if done.rowcount == 1:
                return masked
            row = connection.execute(_select_session(session)).first()
        if row is None or row.digest != digest or row.masked is None:
            raise _key_used()
        return bytes(row.masked)  # another process was faster, with the same question


def _select_session(
    session: bytes,
) -> sa.Select[tuple[bytes, bytes | None, bytes | None, bytes | None]]:
    return sa.select(_KEYS_TABLE).where(_KEYS_TABLE.c.session == session)


def _key_used() -> Refused:
    return Refused("The key of this attempt has been used; start another attempt.")


Int64Vector = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Roster:
    """Who takes part, as fixed by a site.

    Args:
        members: Public keys that members sign with, by name.
        together: The number of members that answer in one round; by default all.
        dropouts: How many of these may be missing from a round.
    """

    members: Mapping[str, bytes]
    together: int | None = None
    dropouts: int = 0

    def __post_init__(self) -> None:
        number = _validate.count("the number of members", len(self.members), least=2)
        _validate.count("dropouts", self.dropouts, least=0)
        _validate.count("the number of members in a round", self.least, least=2)
        keys = set(self.members.values())
        if self.size > number or len(keys) < number or {len(key) for key in keys} != {32}:
            raise InvalidArgument(
                "A roster needs a different Ed25519 key of 32 bytes for each member, and at least as "
                "many members as answer together."
            )

    @property
    def size(self) -> int:
        """The number of members that answer in one round."""
        return len(self.members) if self.together is None else self.together

    @property
    def least(self) -> int:
        """The least number of members in one round."""
        return self.size - self.dropouts


class Masker:
    """The masks of a site.

    Args:
        name: The name of the site.
        identity: The key that it signs with.
        roster: Who takes part.
        keys: Stores secrets between messages; by default in this process.
        terms: What all members must have in common, as bytes. It is signed with every key, so that a
            member with other terms, and so with another share of the noise, is refused by the others,
            whatever the server says.
    """

    def __init__(
        self,
        name: str,
        identity: Ed25519PrivateKey,
        roster: Roster,
        keys: MaskKeys | None = None,
        terms: bytes = b"",
    ) -> None:
        if roster.members.get(name) != identity.public_key().public_bytes_raw():
            raise InvalidArgument(f"The roster has another key, or none, for {name}.")
        self.name, self.roster, self._terms = name, roster, terms
        self._identity, self._keys = identity, MemoryMaskKeys() if keys is None else keys

    def offer(self, session: Session) -> Offer:
        """The key of this site for a session. It stays the same until it is used."""
        new = X25519PrivateKey.generate().private_bytes_raw()
        secret = self._keys.get_or_store(session.text(), new)
        if secret is None:
            raise Refused(
                f"{self.name} has used its key for round {session.round}, attempt "
                f"{session.attempt}; another attempt needs another number."
            )
        key = _public_key(secret)
        signed = self._identity.sign(_signed_bytes(session, self.name, key, self._terms))
        return Offer(self.name, key, signed)

    def mask(
        self, session: Session, offers: Sequence[Offer], values: Int64Vector, about: bytes
    ) -> Int64Vector:
        """Adds this site's masks to whole numbers.

        A key is used once, and deleted in the transaction that stores the masked numbers. A
        repeated question gets the same bytes, and another question is refused. [mask-once]

        Args:
            session: The attempt.
            offers: The keys of all members of the round.
            values: The whole numbers.
            about: A digest of the task that they answer.

        Returns:
            The masked numbers.
        """
        keys = self.check_offers(session, offers)
        self._check_members(session, keys)
        digest = _session_digest(session, keys, about, len(values))
        done = self._keys.masked(session.text(), digest)
        if done is None:
            secret = self._keys.secret(session.text())
            if secret is None or _public_key(secret) != keys[self.name]:
                raise Refused(
                    f"{self.name} offered no such key for round {session.round}, attempt "
                    f"{session.attempt}, or has used it; start another attempt."
                )
            masked = values.astype(np.int64).view(np.uint64) + self._total(
                secret, keys, digest, len(values)
            )
            done = self._keys.spend(session.text(), digest, masked.tobytes())
        return np.frombuffer(done, np.int64).copy()

    def _check_members(self, session: Session, keys: Mapping[str, bytes]) -> None:
        """Refuses a second set of sites for one answer: two sums would share its noise. [one-group]"""
        label = length_prefixed(b"members", session.run.encode(), str(session.round).encode())
        members = hashlib.sha256(length_prefixed(*(name.encode() for name in keys))).digest()
        if self._keys.bind_group(label, members) != members:
            raise Refused(
                f"{self.name} has answered round {session.round} with a different group of sites; a new "
                "group needs a new round."
            )

    def _total(
        self, secret: bytes, keys: Mapping[str, bytes], digest: bytes, count: int
    ) -> NDArray[np.uint64]:
        """The sum of this site's masks, one for each other member, modulo 2^64."""
        own, total = X25519PrivateKey.from_private_bytes(secret), np.zeros(count, np.uint64)
        for name, key in keys.items():
            if name != self.name:
                stream = _mask_stream(_shared_secret(own, name, key), digest, count)
                total = total + stream if self.name < name else total - stream
        return total

    def check_offers(self, session: Session, offers: Sequence[Offer]) -> dict[str, bytes]:
        """The keys of this round's members, each signed for this session."""
        names = [offer.site for offer in offers]
        least, most = self.roster.least, self.roster.size
        if not least <= len(names) <= most or len(set(names)) != len(names):
            number = f"{most}" if least == most else f"{least} to {most}"
            raise Refused(
                f"{self.name} expects {number} sites in a round, but there are {len(names)}; with fewer "
                "shares of noise nobody is protected."
            )
        if self.name not in names or not set(names) <= set(self.roster.members):
            raise Refused(f"The round has sites that are not in the roster of {self.name}.")
        for offer in offers:
            self._check_signature(session, offer)
        if len({offer.key for offer in offers}) != len(offers):
            raise Refused("Two sites offered the same key.")
        return {offer.site: offer.key for offer in sorted(offers, key=lambda each: each.site)}

    def _check_signature(self, session: Session, offer: Offer) -> None:
        signer = Ed25519PublicKey.from_public_bytes(self.roster.members[offer.site])
        try:
            signer.verify(
                offer.signature, _signed_bytes(session, offer.site, offer.key, self._terms)
            )
        except InvalidSignature:
            raise Refused(
                f"The key of {offer.site} has no valid signature for round {session.round}, attempt "
                f"{session.attempt} of this run: it is forged, or from another round or another study."
            ) from None


class MaskedSite:
    """A client whose answers are masked."""

    def __init__(self, client: AnsweringSite, masker: Masker) -> None:
        if client.name != masker.name:
            raise InvalidArgument("A client and its masks must have the same name.")
        self.name, self._client, self._masker = client.name, client, masker

    def offer(self, session: Session) -> Offer:
        """The key of this site for a session."""
        return self._masker.offer(session)

    def answer(self, task: Task, attempt: int, offers: Sequence[Offer]) -> Reply:
        """The masked reply. Keys are checked before anything is computed or charged."""
        session = Session(task.run, task.round, attempt)
        self._masker.check_offers(session, offers)
        reply = self._client.answer(task)
        if reply.grid is None or reply.change.dtype.kind != "i":
            raise InvalidArgument('Masks need whole numbers: use a scheme with noise="split".')
        about = hashlib.sha256(task.posterior.tobytes()).digest()
        masked = self._masker.mask(session, offers, reply.change.astype(np.int64), about)
        return Reply(
            site=reply.site, run=reply.run, round=reply.round, change=masked, grid=reply.grid
        )


def _public_key(secret: bytes) -> bytes:
    return X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()


def _shared_secret(own: X25519PrivateKey, name: str, key: bytes) -> bytes:
    """The secret that this site shares with another."""
    try:
        return own.exchange(X25519PublicKey.from_public_bytes(key))
    except ValueError:
        raise Refused(f"{name} offered an invalid key.") from None


def _mask_stream(shared: bytes, digest: bytes, count: int) -> NDArray[np.uint64]:
    """A mask from the secret of two sites, for one session. [mask-stream]"""
    derived = HKDF(hashes.SHA256(), 32, salt=None, info=b"tacit mask" + digest).derive(shared)
    cipher = Cipher(algorithms.ChaCha20(derived, bytes(16)), mode=None).encryptor()
    return np.frombuffer(cipher.update(bytes(8 * count)), np.uint64)


def _session_digest(session: Session, keys: Mapping[str, bytes], about: bytes, count: int) -> bytes:
    """A digest of what members must agree on for their masks to cancel."""
    parts = [part for name, key in keys.items() for part in (name.encode(), key)]
    return hashlib.sha256(
        length_prefixed(session.text(), about, str(count).encode(), *parts)
    ).digest()


def _signed_bytes(session: Session, site: str, key: bytes, terms: bytes) -> bytes:
    return length_prefixed(b"tacit mask key", session.text(), site.encode(), key, terms)
