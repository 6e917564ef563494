"""Turns the text segments of a workload into token ids."""

from __future__ import annotations

import zlib

import numpy as np

FIRST_TOKEN = 16
"""Lower ids are left out: models use them for special tokens."""


class TokenSource:
    """Gives each segment name its own tokens, the same ones whatever length is asked for."""

    def __init__(self, seed: int, vocabulary: int) -> None:
        """Draw token ids below ``vocabulary`` from ``seed``."""
        self._seed = seed
        self._vocabulary = vocabulary

    def segment(self, name: str, length: int) -> list[int]:
        """Return the first ``length`` tokens of the segment ``name``.

        One uniform draw makes one token, so a longer segment begins with the shorter one.
        """
        generator = np.random.default_rng([self._seed, zlib.crc32(name.encode())])
        span = self._vocabulary - FIRST_TOKEN
        tokens: list[int] = (generator.random(length) * span + FIRST_TOKEN).astype(np.int64).tolist()
        return tokens
