"""SipHash-2-4 over many messages of one length at once.

Block hashes are made of prompt tokens, so a trace must not hold them as they are: they
go through a keyed hash whose key is never written. SipHash is such a hash, and numpy
does a whole chunk without holding the interpreter lock.

Source: Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]

_INITIAL = (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)


def _rotate(word: Words, bits: int) -> Words:
    return (word << np.uint64(bits)) | (word >> np.uint64(64 - bits))


def _round(v0: Words, v1: Words, v2: Words, v3: Words) -> tuple[Words, Words, Words, Words]:
    v0 = v0 + v1
    v1 = _rotate(v1, 13) ^ v0
    v0 = _rotate(v0, 32)
    v2 = v2 + v3
    v3 = _rotate(v3, 16) ^ v2
    v0 = v0 + v3
    v3 = _rotate(v3, 21) ^ v0
    v2 = v2 + v1
    v1 = _rotate(v1, 17) ^ v2
    v2 = _rotate(v2, 32)
    return v0, v1, v2, v3


def siphash(messages: NDArray[np.uint8], key: bytes) -> NDArray[np.int64]:
    """Hash each row of ``messages`` with a 16-byte ``key``.

    Args:
        messages: Shape (count, length); length a multiple of 8.
        key: The secret, 16 bytes.

    Returns:
        Shape (count,), the 64 bits of each hash as a signed number.
    """
    count, length = messages.shape
    key_low, key_high = np.frombuffer(key, dtype="<u8")
    state = [np.full(count, np.uint64(word)) for word in _INITIAL]
    v0, v1, v2, v3 = (word ^ part for word, part in zip(state, (key_low, key_high) * 2, strict=True))
    words = np.ascontiguousarray(messages).view("<u8").reshape(count, length // 8)
    last = np.full(count, np.uint64((length & 0xFF) << 56))
    for word in (*words.T, last):
        v3 = v3 ^ word
        v0, v1, v2, v3 = _round(*_round(v0, v1, v2, v3))
        v0 = v0 ^ word
    v2 = v2 ^ np.uint64(0xFF)
    for _ in range(4):
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    hashes: NDArray[np.int64] = (v0 ^ v1 ^ v2 ^ v3).view(np.int64)
    return hashes
