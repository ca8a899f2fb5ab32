"""Randomness that protects rows: cryptographic bits, and exact draws from them.

The noise of a release is round(scale x Z) for a standard normal Z, as an integer, with the
probabilities of the *real* Z: double precision decides which integer is nearest
only where its error cannot matter, and 400-bit arithmetic elsewhere (PROOFS.md, Lemma 3).

Formal guarantees:
    `rounded_normals`, `rounded_laplaces` (Lemmas 3 and 5): integers with the probabilities of round(scale x Z), Z a real normal or Laplace
        number, up to 2^-127 a draw.
    `standard_normals`, `standard_logistics` [noise-real]: within 2^-43 of a real draw, for tests, whose proofs take that into account.
    `geometric_gaps`, `bernoulli`, `uniform_integers`: exact.
    All up to an adversary's advantage against AES-256 in counter mode. With a seed nothing is claimed.
"""

import hashlib
import os
import threading
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Final

import mpmath
import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray
from scipy.special import ndtri

from tacit.errors import BoundaryError

Words = NDArray[np.uint64]
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_SIGN_BIT: Final = np.uint64(1) << np.uint64(63)
_NEEDS_MORE_BITS: Final = np.uint64(1) << np.uint64(53)
# Relative error that a double-precision evaluation is trusted to stay within: SciPy states
# 7.2e-16 for ndtri and a logarithm is within 2.3e-16, some four hundred times less.
_FLOAT_ERROR: Final = 2.0**-42
# Draws at a time: what several passes leave in a core's cache.
_DRAWS_PER_PIECE: Final = 2**14
_ZERO_BYTES: Final = memoryview(bytes(8 * _DRAWS_PER_PIECE))
# mpmath's precision belongs to the process: one thread at a time.
MPMATH_LOCK: Final = threading.Lock()


class Randomness:
    """A stream of AES-256 in counter mode, keyed by the operating system, or by a seed.

    A seed makes a run repeatable, and anyone who knows it can subtract the noise: results
    that used one are not private, and say so.
    """

    def __init__(self, seed: int | None = None, *, _key: bytes | None = None) -> None:
        self.seeded = seed is not None
        if _key is None:
            label = f"tacit:{seed}".encode()
            _key = os.urandom(32) if seed is None else hashlib.sha256(label).digest()
        self._key, self._children, self._process = _key, 0, os.getpid()
        self.skip_to(0)

    @classmethod
    def from_key(cls, key: bytes, *, seeded: bool = False) -> "Randomness":
        """The stream of a secret key of 32 bytes, to draw again what was drawn before.

        For one message that is sent again because it was lost: the same key for two messages
        is the same noise twice. ``seeded`` says that the key follows from a seed.
        """
        if len(key) != 32:
            raise BoundaryError("A key must have 32 bytes.")
        source = cls(_key=key)
        source.seeded = seeded
        return source

    def child(self, label: str) -> "Randomness":
        """An independent stream for one purpose; every call gives another."""
        self._refuse_forked()
        self._children += 1
        material = self._key + f"{self._children}:{label}".encode()
        child = Randomness(_key=hashlib.sha256(material).digest())
        child.seeded = self.seeded
        return child

    def named(self, label: str) -> "Randomness":
        """The independent stream of a label, the same again for the same label.

        Whoever asks must never use a label for two purposes.
        """
        self._refuse_forked()
        material = self._key + f"named:{label}".encode()
        return Randomness.from_key(hashlib.sha256(material).digest(), seeded=self.seeded)

    def skip_to(self, drawn: int) -> None:
        """Moves to the position after the first ``drawn`` words of the stream."""
        block, rest = divmod(8 * drawn, 16)  # of AES, which the counter counts
        counter = modes.CTR(block.to_bytes(16, "big"))
        self._stream = Cipher(algorithms.AES256(self._key), counter).encryptor()
        self._stream.update(bytes(rest))
        self.drawn = drawn  # words so far

    def words(self, count: int) -> Words:
        """Uniform 64-bit words."""
        self._refuse_forked()
        self.drawn += count
        if count <= _DRAWS_PER_PIECE:
            return np.frombuffer(self._stream.update(_ZERO_BYTES[: 8 * count]), dtype=np.uint64)
        words = np.empty(count, np.uint64)  # and no more memory than that, however many they are
        for start in range(0, count, _DRAWS_PER_PIECE):
            piece = words[start : start + _DRAWS_PER_PIECE]
            piece[:] = np.frombuffer(
                self._stream.update(_ZERO_BYTES[: piece.nbytes]), dtype=np.uint64
            )
        return words

    def _refuse_forked(self) -> None:
        if os.getpid() != self._process:
            raise BoundaryError(
                "This randomness was made before the process forked: both copies would draw the "
                "same noise. Open the gate in the process that runs it."
            )

    def __repr__(self) -> str:
        return "Randomness(seeded: not private)" if self.seeded else "Randomness()"


class Uniforms:
    """Uniform numbers in (0, 1): in double precision by their leading 63 bits.

    And by 128 where those leave fewer than 53 significant ones, so that small numbers
    have full relative precision.
    """

    def __init__(self, words: Words, bits: Randomness) -> None:
        self._words, self._bits = words, bits
        # Without the last bit, as signed integers turn into floats much faster.
        self.values: Floats = (words >> np.uint64(1)).view(np.int64).astype(np.float64)
        self.values *= 2.0**-63
        small = np.flatnonzero(words < _NEEDS_MORE_BITS).tolist()
        self._further = dict(zip(small, bits.words(len(small)).tolist(), strict=True))
        self._exact: dict[int, mpmath.mpf] = {}
        for i, word in self._further.items():
            self.values[i] = (int(words[i]) * 2**64 + word + 0.5) * 2.0**-128

    def exact(self, i: int) -> mpmath.mpf:
        """The same number with 256 bits more, all but certainly enough to decide.

        The same again when asked again. To be called with the precision set high.
        """
        if i not in self._exact:
            self._exact[i] = self._extended(i)
        return self._exact[i]

    def _extended(self, i: int) -> mpmath.mpf:
        numerator, size = int(self._words[i]), 64
        further = [self._further[i]] if i in self._further else []
        for word in further + self._bits.words(4).tolist():
            numerator, size = (numerator << 64) | word, size + 64
        return mpmath.ldexp(mpmath.mpf(2 * numerator + 1), -size - 1)


def _in_pieces(draw: Callable[[int], Floats], count: int) -> Integers:
    """Many draws, a piece at a time."""
    drawn = np.empty(count, np.int64)
    for start in range(0, count, _DRAWS_PER_PIECE):
        piece = drawn[start : start + _DRAWS_PER_PIECE]
        piece[:] = draw(len(piece))
    return drawn


def rounded_normals(bits: Randomness, scale: float, count: int) -> Integers:
    """Integers distributed as round(scale Z), Z standard normal. [noise-round]"""
    return _in_pieces(partial(_round_draws, bits, scale, ndtri, _normal_tail), count)


def rounded_laplaces(bits: Randomness, scale: float, count: int) -> Integers:
    """Integers distributed as round(scale L), L standard Laplace. [noise-laplace]"""
    return _in_pieces(partial(_round_draws, bits, scale, _laplace_quantile, _laplace_tail), count)


def _round_draws(
    bits: Randomness,
    scale: float,
    quantile: Callable[[Floats], Floats],
    tail: Callable[[mpmath.mpf], mpmath.mpf],
    count: int,
) -> Floats:
    """Rounded draws of a symmetric law, by its quantiles below 1/2 and its exact upper tail."""
    words = bits.words(count)
    # The top bit is the sign; the rest is a number in (0, 1/2), the tail on that side.
    half = Uniforms(words & ~_SIGN_BIT, bits)
    value = quantile(half.values)
    value *= -scale
    whole = np.rint(value)
    doubt = _FLOAT_ERROR * (1 + scale + float(value.max(initial=0)))
    value -= whole
    for i in np.flatnonzero(np.abs(value) >= 0.5 - doubt).tolist():
        edge = float(np.floor(whole[i] + value[i])) + 0.5
        with MPMATH_LOCK, mpmath.workprec(400):
            beyond = tail(edge / mpmath.mpf(scale))
            whole[i] = edge + 0.5 if half.exact(i) < beyond else edge - 0.5
    return _apply_sign(whole, words)


def _normal_tail(edge: mpmath.mpf) -> mpmath.mpf:
    return mpmath.erfc(edge / mpmath.sqrt(2)) / 2


def _laplace_quantile(half: Floats) -> Floats:
    found: Floats = np.log(2 * half)
    return found


def _laplace_tail(edge: mpmath.mpf) -> mpmath.mpf:
    return mpmath.exp(-edge) / 2


def standard_normals(bits: Randomness, count: int) -> Floats:
    """Standard normal numbers in double precision, tails too. [noise-real]"""
    words = bits.words(count)
    return _apply_sign(-ndtri(Uniforms(words & ~_SIGN_BIT, bits).values), words)


def standard_logistics(bits: Randomness, count: int) -> Floats:
    """Standard logistic numbers in double precision, tails too. [noise-real]"""
    words = bits.words(count)
    half = Uniforms(words & ~_SIGN_BIT, bits).values
    return _apply_sign(np.log1p(-half) - np.log(half), words)


def _apply_sign(size: Floats, words: Words) -> Floats:
    """The top bit of a word is the sign."""
    signed: Floats = np.copysign(size, (~words).view(np.float64), out=size)
    return signed


def uniform_integers(bits: Randomness, below: int, count: int) -> Integers:
    """Uniform integers below a bound, exactly: words that would favour some are drawn anew."""
    words = bits.words(count)
    last = np.uint64(2**64 - 2**64 % below - 1)
    if words.max(initial=0) > last:
        words = words.copy()
        while (unfair := np.flatnonzero(words > last)).size:
            words[unfair] = bits.words(len(unfair))
    return (words % np.uint64(below)).view(np.int64)


def bernoulli(bits: Randomness, chance: float | Fraction, count: int) -> NDArray[np.bool_]:
    """True with exactly this chance, a binary fraction, each independently. [noise-coin]

    A uniform number is below the chance if its first 64 bits are, or, where they are the
    same, if what follows is below the rest of the chance.
    """
    first, rest = divmod(Fraction(chance) * 2**64, 1)
    words = bits.words(count)
    heads = np.zeros(count, np.bool_)
    if first:
        heads = words <= np.uint64(first - 1)
    if rest:
        for i in np.flatnonzero(words == np.uint64(first)).tolist():
            heads[i] = bernoulli(bits, rest, 1)[0]
    return heads


def geometric_gaps(bits: Randomness, rate: float, count: int) -> Integers:
    """How many to skip before the next one taken, each taken with probability `rate`.

    floor(log U / log(1 - rate)) of a real uniform U. [sample-gaps]
    """
    return _in_pieces(partial(_geometric_gaps, bits, rate), count)


def _geometric_gaps(bits: Randomness, rate: float, count: int) -> Floats:
    uniform = Uniforms(bits.words(count), bits)
    per_skip = -float(np.log1p(-rate))
    value = np.log(uniform.values)
    value /= -per_skip
    whole = np.floor(value)
    # Near one, a uniform is known to 2^-53, and so is its logarithm.
    doubt = _FLOAT_ERROR * (float(value.max(initial=0)) + 1 / per_skip)
    value -= whole
    value -= 0.5
    for i in np.flatnonzero(np.abs(value, out=value) >= 0.5 - doubt).tolist():
        with MPMATH_LOCK, mpmath.workprec(400):
            exact = mpmath.log(uniform.exact(i)) / mpmath.log(1 - mpmath.mpf(rate))
            whole[i] = int(mpmath.floor(exact))
    # A gap longer than any data set means that no further unit is sampled.
    return np.minimum(whole, 2.0**61, out=whole)
