"""Turns the text segments of a workload into token ids."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np

from vstate.tracer.workloads.splitmix import STEP, mixed_all

FIRST_TOKEN = 16
"""Lower ids are left out: models use them for special tokens."""
_SEEDS = np.uint64(0xD1342543DE82EF95)


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

    def hashed(self, ranges: Sequence[tuple[int, int]], block_tokens: int, length: int) -> list[int]:
        """Return the first ``length`` tokens of blocks of which only the ids are known.

        A token depends on seed, block id and its place in the block only: it is a draw of SplitMix64 (Steele, Lea,
        Flood 2014) for the counter that the three make, so that all of a prompt are drawn at once.

        Args:
            ranges: Runs of consecutive ids, as (first, count).
            block_tokens: Tokens of a block.
            length: Tokens wanted; at most as many as the blocks have.
        """
        ids = np.concatenate([np.arange(first, first + count, dtype=np.uint64) for first, count in ranges])
        places = np.arange(block_tokens, dtype=np.uint64)
        with np.errstate(over="ignore"):
            starts = mixed_all(ids + np.uint64(self._seed) * _SEEDS)
            drawn = mixed_all((starts[:, None] + places * np.uint64(STEP)).reshape(-1)[:length])
        span = np.uint64(self._vocabulary - FIRST_TOKEN)
        tokens: list[int] = (drawn % span + np.uint64(FIRST_TOKEN)).astype(np.int64).tolist()
        return tokens
