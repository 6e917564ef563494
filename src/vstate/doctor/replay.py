"""Replay of recorded events by a plain loop: few rows, no database, so that an engine host needs no extra.

`vstate reconcile` does the same in SQL for runs of any length (`reconcile/sql`); this is for the
few hundred rows of the probe.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from vstate.doctor.books import Books
from vstate.schemas.streams import stream_files
from vstate.schemas.tables.block import REFERENCE_DELTA, BlockKind
from vstate.schemas.tables.encoder import EncoderKind
from vstate.schemas.tables.names import NameKind
from vstate.tracer.outcome import checked_batches

REPLAYED_TABLES = ("names", "block", "encoder")

Event = tuple[str, dict[str, Any]]


def recorded_events(process: Path) -> list[Event]:
    """Read what a process recorded, in the order in which it happened.

    Raises:
        VstateError: A stream is not what it should be.
    """
    rows = [
        (stream.table, row)
        for stream in stream_files(process)
        if stream.table in REPLAYED_TABLES
        for batch in checked_batches(stream)
        for row in batch.to_pylist()
    ]
    return sorted(rows, key=lambda event: event[1]["seq"])


class Replay:
    """Applies events to books that begin empty, or that were corrected since."""

    def __init__(self, events: Iterable[Event], num_blocks: tuple[int, ...]) -> None:
        """Replay ``events`` over pools of ``num_blocks`` blocks, of which one each is the null block."""
        self._events: Iterator[Event] = iter(events)
        self._next = next(self._events, None)
        self._num_blocks = num_blocks
        self._names: dict[int, str] = {}
        self._references: Counter[tuple[int, int]] = Counter()
        self._hashes: dict[tuple[int, int, int], frozenset[int]] = {}
        self._held: Counter[tuple[str, int, int]] = Counter()
        self._entries: dict[int, tuple[int, set[tuple[str, int]]]] = {}

    def until(self, seq: int) -> Books:
        """Replay up to and with the event numbered ``seq`` and return the books there."""
        while self._next is not None and self._next[1]["seq"] <= seq:
            table, row = self._next
            {"names": self._name, "block": self._block, "encoder": self._encoder}[table](row)
            self._next = next(self._events, None)
        busy = Counter(pool for (pool, _), count in self._references.items() if count)
        return Books(
            references=Counter({place: count for place, count in self._references.items() if count}),
            hashes=dict(self._hashes),
            held=Counter({place: count for place, count in self._held.items() if count}),
            encoder=Counter(
                (embeds, tuple(sorted({request for request, _ in users}))) for embeds, users in self._entries.values()
            ),
            free_blocks=tuple(blocks - 1 - busy[pool] for pool, blocks in enumerate(self._num_blocks)),
        )

    def correct(self, books: Books) -> None:
        """Go on from the engine's ``books`` of blocks, so that one difference is told once."""
        self._references = Counter(books.references)
        self._hashes = dict(books.hashes)
        self._held = Counter(books.held)

    def _name(self, row: dict[str, Any]) -> None:
        if row["kind"] == NameKind.REQUEST:
            self._names[row["key"]] = row["value"]

    def _block(self, row: dict[str, Any]) -> None:
        kind, pool, group = BlockKind(row["kind"]), row["pool"], row["group"]
        delta = REFERENCE_DELTA.get(kind, 0)
        request = self._names.get(row["request_key"]) if row["request_key"] >= 0 else None
        if kind is BlockKind.RESET:
            self._hashes = {place: found for place, found in self._hashes.items() if place[0] != pool}
        for block in row["blocks"]:
            self._references[pool, block] += delta
            if request is not None and delta:
                self._held[request, group, block] += delta
            if kind is BlockKind.CACHE_INSERT:
                place = (pool, group, block)
                self._hashes[place] = self._hashes.get(place, frozenset()) | {row["block_hash"]}
            elif kind in (BlockKind.EVICT, BlockKind.CACHE_REMOVE):
                gone = [place for place in self._hashes if place[0] == pool and place[2] == block]
                for place in gone:
                    del self._hashes[place]

    def _encoder(self, row: dict[str, Any]) -> None:
        kind, media = EncoderKind(row["kind"]), row["media"]
        use = (self._names.get(row["request_key"], ""), row["item"])
        if kind is EncoderKind.RESET:
            self._entries.clear()
        elif kind is EncoderKind.ALLOCATE:
            self._entries.setdefault(media, (row["entry_embeds"], set()))[1].add(use)
        elif media in self._entries and kind is EncoderKind.HIT:
            self._entries[media][1].add(use)
        elif media in self._entries and kind is EncoderKind.RELEASE:
            self._entries[media][1].discard(use)
        elif kind is EncoderKind.EVICT:
            self._entries.pop(media, None)
