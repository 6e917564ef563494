"""Tokens and accepted drafts of a model that is not run: drawn from a seed, request and position."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

from vstate.tracer.workloads.splitmix import MASK, STEP, mixed
from vstate.tracer.workloads.tokens import FIRST_TOKEN


class SeededModel:
    """What a model of ``vocabulary`` tokens says, and how many drafts it accepts."""

    def __init__(self, seed: int, vocabulary: int, acceptance: Sequence[float]) -> None:
        """Draw everything from ``seed``.

        Args:
            seed: Of all draws.
            vocabulary: Tokens are below it.
            acceptance: For each draft position the chance that it is accepted if all before it were.
        """
        self._seed = seed
        self._span = vocabulary - FIRST_TOKEN
        self._acceptance = tuple(acceptance)

    def start(self, request_id: str) -> int:
        """Return what the draws of a request start from."""
        return mixed(self._seed << 32 ^ zlib.crc32(request_id.encode()))

    def tokens(self, start: int, position: int, count: int) -> list[int]:
        """Return ``count`` tokens of a request from a position of its output on."""
        return [
            FIRST_TOKEN + (((start + place * STEP) & MASK) >> 32) % self._span
            for place in range(position, position + count)
        ]

    def accepted(self, start: int, position: int, drafted: int) -> int:
        """Say how many of the drafts for the tokens from ``position`` on are accepted, one after the other."""
        for place in range(drafted):
            rate = self._acceptance[min(place, len(self._acceptance) - 1)]
            if mixed(start ^ mixed(position + place)) >= rate * (1 << 64):
                return place
        return drafted
