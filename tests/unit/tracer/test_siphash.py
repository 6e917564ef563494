"""SipHash against the paper's vectors and against a scalar implementation."""

import random

import numpy as np
import pytest

from vstate.tracer.siphash import siphash

MASK = (1 << 64) - 1


def scalar_siphash(message: bytes, key: bytes) -> int:
    k0, k1 = (int.from_bytes(key[i : i + 8], "little") for i in (0, 8))
    v = [k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D, k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573]

    def rotate(x, b):
        return ((x << b) | (x >> (64 - b))) & MASK

    def rounds(n):
        for _ in range(n):
            v[0] = (v[0] + v[1]) & MASK
            v[2] = (v[2] + v[3]) & MASK
            v[1] = rotate(v[1], 13) ^ v[0]
            v[3] = rotate(v[3], 16) ^ v[2]
            v[0] = rotate(v[0], 32)
            v[2] = (v[2] + v[1]) & MASK
            v[0] = (v[0] + v[3]) & MASK
            v[1] = rotate(v[1], 17) ^ v[2]
            v[3] = rotate(v[3], 21) ^ v[0]
            v[2] = rotate(v[2], 32)

    padded = message + bytes(7 - len(message) % 8) + bytes([len(message) & 0xFF])
    for i in range(0, len(padded), 8):
        word = int.from_bytes(padded[i : i + 8], "little")
        v[3] ^= word
        rounds(2)
        v[0] ^= word
    v[2] ^= 0xFF
    rounds(4)
    return v[0] ^ v[1] ^ v[2] ^ v[3]


@pytest.mark.parametrize(("length", "digest"), [(0, "310e0edd47db6f72"), (8, "6224939a79f5f593")])
def test_vectors_of_the_reference_implementation(length, digest):
    message = np.frombuffer(bytes(range(length)), dtype=np.uint8).reshape(1, length)
    value = siphash(message, bytes(range(16))).view(np.uint64)[0].item()
    assert value.to_bytes(8, "little").hex() == digest


@pytest.mark.parametrize("count", [1, 2, 1000])
def test_equals_the_scalar_hash_on_block_hashes(count):
    generator = random.Random(count)
    key = generator.randbytes(16)
    messages = [generator.randbytes(32) for _ in range(count)]
    found = siphash(np.frombuffer(b"".join(messages), dtype=np.uint8).reshape(-1, 32), key)
    assert found.view(np.uint64).tolist() == [scalar_siphash(message, key) for message in messages]
