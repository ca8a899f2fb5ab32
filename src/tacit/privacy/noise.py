"""Randomness that protects rows: cryptographic bits, and exact draws from them.

The noise of a release is round(scale x Z) for a standard normal Z, as an integer, with the
probabilities of the *real* Z: floating point only ever decides which integer is nearest
when it is sure, and high-precision arithmetic decides otherwise (PROOFS.md, Lemma 3).
"""

import hashlib
import os
from typing import Final

import mpmath
import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray
from scipy.special import ndtri

Words = NDArray[np.uint64]
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_TOP: Final = np.uint64(1) << np.uint64(63)
_FEW_BITS: Final = np.uint64(1) << np.uint64(53)
# Relative error that a double-precision evaluation is trusted to stay within: SciPy states
# 7.2e-16 for ndtri and a logarithm is within 2.3e-16, some four hundred times less.
_TRUST: Final = 2.0**-42


class Randomness:
    """A stream of AES-256 in counter mode, keyed by the operating system, or by a seed.

    A seed makes a run repeatable, and anyone who knows it can subtract the noise: results
    that used one are not private, and say so.
    """

    def __init__(self, seed: int | None = None, *, key: bytes | None = None) -> None:
        self.seeded = seed is not None
        if key is None:
            label = f"tacit:{seed}".encode()
            key = os.urandom(32) if seed is None else hashlib.sha256(label).digest()
        self._key = key
        self._stream = Cipher(algorithms.AES256(key), modes.CTR(bytes(16))).encryptor()

    def child(self, label: str) -> "Randomness":
        """An independent stream for one purpose."""
        child = Randomness(key=hashlib.sha256(self._key + label.encode()).digest())
        child.seeded = self.seeded
        return child

    def words(self, count: int) -> Words:
        """Uniform 64-bit words."""
        return np.frombuffer(self._stream.update(bytes(8 * count)), dtype=np.uint64)

    def __repr__(self) -> str:
        return "Randomness(seeded: not private)" if self.seeded else "Randomness()"


class _Halves:
    """Uniform numbers in (0, 1/2) and a fair bit each: a uniform number, seen from its nearer end.

    A number has 63 bits after the bit, or 127 where 63 would leave fewer than 53 significant
    ones, so that the tails have full relative precision.
    """

    def __init__(self, bits: Randomness, count: int) -> None:
        words = bits.words(count)
        self.upper = words >= _TOP
        self._bits, self._words = bits, words & ~_TOP
        small = np.flatnonzero(self._words < _FEW_BITS).tolist()
        self._further = dict(zip(small, bits.words(len(small)).tolist(), strict=True))
        self.values: Floats = (self._words.astype(np.float64) + 0.5) * 2.0**-64
        for i, word in self._further.items():
            self.values[i] = (int(self._words[i]) * 2**64 + word + 0.5) * 2.0**-128

    def exact(self, i: int) -> mpmath.mpf:
        """The same number with 256 bits more, all but certainly enough to decide."""
        numerator, size = int(self._words[i]), 64
        further = [self._further[i]] if i in self._further else []
        for word in further + self._bits.words(4).tolist():
            numerator, size = (numerator << 64) | word, size + 64
        return mpmath.ldexp(mpmath.mpf(2 * numerator + 1), -size - 1)


def rounded_normals(bits: Randomness, scale: float, count: int) -> Integers:
    """Integers distributed as round(scale Z), Z standard normal. [noise-round]"""
    halves = _Halves(bits, count)
    value = -scale * ndtri(halves.values)
    whole = np.rint(value)
    doubt = np.abs(np.abs(value - whole) - 0.5) <= _TRUST * (1 + scale + value)
    for i in np.flatnonzero(doubt).tolist():
        with mpmath.workprec(400):
            deviate = -mpmath.sqrt(2) * mpmath.erfinv(2 * halves.exact(i) - 1)
            whole[i] = int(mpmath.floor(scale * deviate + mpmath.mpf("0.5")))
    signed: Integers = np.where(halves.upper, whole, -whole).astype(np.int64)
    return signed


def geometric_gaps(bits: Randomness, rate: float, count: int) -> Integers:
    """How many to skip before the next one taken, each taken with probability `rate`.

    floor(log U / log(1 - rate)) of a real uniform U. [sample-gaps]
    """
    halves = _Halves(bits, count)
    log_uniform = np.where(halves.upper, np.log1p(-halves.values), np.log(halves.values))
    value = log_uniform / np.log1p(-rate)
    whole = np.floor(value)
    doubt = np.minimum(value - whole, whole + 1 - value) <= _TRUST * value
    for i in np.flatnonzero(doubt).tolist():
        with mpmath.workprec(400):
            uniform = 1 - halves.exact(i) if halves.upper[i] else halves.exact(i)
            whole[i] = int(mpmath.floor(mpmath.log(uniform) / mpmath.log(1 - mpmath.mpf(rate))))
    # A gap longer than any data set means: nobody else.
    gaps: Integers = np.minimum(whole, 2.0**61).astype(np.int64)
    return gaps
