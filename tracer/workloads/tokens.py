"""Turns the text segments of a workload into token ids."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

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
            starts = _mixed(ids + np.uint64(self._seed) * _SEEDS)
            drawn = _mixed((starts[:, None] + places * _STEP).reshape(-1)[:length])
        span = np.uint64(self._vocabulary - FIRST_TOKEN)
        tokens: list[int] = (drawn % span + np.uint64(FIRST_TOKEN)).astype(np.int64).tolist()
        return tokens


_STEP = np.uint64(0x9E3779B97F4A7C15)
_SEEDS = np.uint64(0xD1342543DE82EF95)


def _mixed(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return 64 bits each that depend on all bits of a value."""
    values = values + _STEP
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
