"""The cache: what it holds, and that only what is new is read."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from support.small import SmallTrace, one_request
from support.traces import process_manifest, write_process, write_run
from vstate.reconcile.cache import CACHE_FILE, Cache, update_cache
from vstate.reconcile.job import reconcile_run
from vstate.reconcile.streams import find_run
from vstate.schemas.errors import VstateError
from vstate.schemas.tables.block import BlockKind

MANIFEST = process_manifest()


def cached(path: Path) -> Cache:
    return update_cache(find_run(path))


def stamps(cache: Cache) -> dict[str, tuple[int, int]]:
    files = [*cache.folder.glob("*/*.parquet"), cache.folder / CACHE_FILE]
    stats = {file.relative_to(cache.folder).as_posix(): file.stat() for file in files}
    return {name: (stat.st_ino, stat.st_mtime_ns) for name, stat in stats.items()}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run", one_request(), MANIFEST)


def test_calls_become_rows_of_blocks(tmp_path: Path) -> None:
    trace = SmallTrace()
    trace.begins()
    trace.allocates(3, [7, 9])
    trace.calls(BlockKind.RESET, [], key=-1, group=-1)
    trace.calls(BlockKind.CACHE_INSERT, [9], key=3, block_hash=-5, position_tokens=8)
    trace.schedules()
    cache = cached(write_run(tmp_path, trace.rows, MANIFEST))
    (part,) = cache.files("block")
    rows = pq.read_table(part).to_pylist()
    names = ("engine", "kind", "request_key", "position", "block", "block_hash", "position_tokens")
    assert [tuple(row[name] for name in names) for row in rows] == [
        (0, "alloc", 3, 0, 7, 0, -1),
        (0, "alloc", 3, 1, 9, 0, -1),
        (0, "reset", -1, 0, None, 0, -1),
        (0, "cache_insert", 3, 0, 9, -5, 8),
    ]
    assert rows[0]["seq"] == rows[1]["seq"]
    (steps,) = cache.files("step")
    (step,) = pq.read_table(steps).to_pylist()
    assert (step["kind"], step["free_blocks"]) == ("scheduled", [13])
    assert cache.rows == len(trace.rows)


def test_files_are_private(run: Path) -> None:
    cache = cached(run)
    for path in (cache.folder.parent, *cache.folder.parent.rglob("*")):
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path


def test_nothing_is_rewritten_when_nothing_has_changed(run: Path) -> None:
    before = stamps(cached(run))
    assert stamps(cached(run)) == before


def test_only_grown_and_new_streams_are_read(run: Path, tmp_path: Path) -> None:
    before = stamps(cached(run))
    trace = one_request()
    more = [row.changed(seq=row.seq + 100) for row in trace if row.table == "step"]
    write_process(run, [*trace, *more], MANIFEST)
    after = stamps(cached(run))
    changed = {name.split("/")[0] for name in after if after[name] != before.get(name)}
    assert changed == {"step", CACHE_FILE}
    assert cached(run).rows == len(trace) + len(more)


def test_parts_of_deleted_streams_go(run: Path) -> None:
    cached(run)
    (names,) = (run / "events").glob("*/names-0001.arrows")
    names.unlink()
    cache = cached(run)
    assert cache.files("names") == []
    assert not list((cache.folder / "names").iterdir())


@pytest.mark.parametrize("damage", ["no json", "version", "part"])
def test_a_damaged_cache_is_made_again(run: Path, damage: str) -> None:
    cache = cached(run)
    manifest = cache.folder / CACHE_FILE
    whole = manifest.read_text()
    (part,) = cache.files("step")
    content = part.read_bytes()
    if damage == "no json":
        manifest.write_text("{")
    elif damage == "version":
        manifest.write_text(whole.replace('"cache_version": 1', '"cache_version": 0'))
    else:
        part.unlink()
    assert cached(run).files("step") == [part]
    assert part.read_bytes() == content
    assert manifest.read_text() == whole


def test_engines_that_change_places_are_read_again(tmp_path: Path) -> None:
    write_process(tmp_path, one_request(), process_manifest(started=5))
    cached(tmp_path)
    write_process(tmp_path, one_request(), process_manifest(started=9))
    assert [part.engine for part in cached(tmp_path).manifest.parts if part.table == "step"] == [
        0,
        1,
    ]
    write_process(tmp_path, one_request([4, 5]), process_manifest(started=2))
    cache = cached(tmp_path)
    (first, *_) = cache.files("block")
    assert {row["block"] for row in pq.read_table(first).to_pylist()} == {4, 5}


def test_a_failed_reading_leaves_no_half_part(run: Path) -> None:
    (steps,) = (run / "events").glob("*/step-0001.arrows")
    steps.write_bytes(b"nonsense")
    with pytest.raises(Exception, match="not an Arrow stream"):
        cached(run)
    assert not list((run / "reconcile" / "cache" / "step").iterdir())


def test_a_damaged_part_is_told(run: Path) -> None:
    (part,) = cached(run).files("step")
    part.write_bytes(part.read_bytes()[:50])
    with pytest.raises(VstateError, match="cannot replay .* to have it made again"):
        reconcile_run(run)
