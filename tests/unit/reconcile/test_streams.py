"""Every input that is no run gives one line that says what to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from support.small import one_request
from support.traces import process_manifest, record_batch, write_process, write_run
from vstate.reconcile.job import reconcile_run
from vstate.reconcile.streams import find_run
from vstate.schemas.errors import VstateError
from vstate.schemas.streams import StreamFile, StreamReader, stream_file
from vstate.schemas.table import TABLE_KEY, VERSION_KEY
from vstate.schemas.tables import TABLES
from vstate.schemas.vocabulary import SCHEMA_VERSION

MANIFEST = process_manifest()
STEP_SCHEMA = TABLES["step"].schema()


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run", one_request(), MANIFEST)


def process_folder(run: Path) -> Path:
    (folder,) = (run / "events").iterdir()
    return folder


def refused(path: Path, *words: str) -> None:
    with pytest.raises(VstateError) as caught:
        reconcile_run(path)
    message = str(caught.value)
    assert "\n" not in message
    assert caught.value.exit_code == 2
    for word in words:
        assert word in message


def write_step_stream(path: Path, schema: pa.Schema) -> None:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, schema) as stream:
        stream.write_batch(record_batch([], schema))


def test_a_run_of_the_launcher_is_named_by_it(run: Path) -> None:
    found = find_run(run)
    assert (found.model, found.engine_kind) == ("tiny/launched", "scheduler")


def test_a_run_without_a_launcher_is_named_by_the_engine(tmp_path: Path) -> None:
    summary = reconcile_run(write_run(tmp_path, one_request(), MANIFEST, launched=False))
    assert (summary.model, summary.engine, summary.verdict) == ("tiny/model", "full", "clean")


def test_engines_are_numbered_as_they_started(tmp_path: Path) -> None:
    for started in (30, 4, 200):
        write_process(tmp_path, one_request(), process_manifest(started=started))
    write_process(tmp_path, one_request(), process_manifest(started=1, role="worker"))
    assert [e.manifest.clock.wall_ns for e in find_run(tmp_path).engines] == [4, 30, 200]


def test_missing_folder(tmp_path: Path) -> None:
    refused(tmp_path / "none", "none does not exist", "give the folder of a recorded run")


def test_file_instead_of_folder(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    refused(path, "is a file", "give the folder")


def test_empty_folder(tmp_path: Path) -> None:
    refused(tmp_path, "is empty", "no run was recorded there")


def test_foreign_folder(tmp_path: Path) -> None:
    (tmp_path / "photo.jpg").touch()
    refused(tmp_path, "has no events folder", "not a run that vstate recorded")


def test_folder_of_runs(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name / "events").mkdir(parents=True)
    refused(tmp_path, "holds 2 runs", str(tmp_path / "b"))


def test_run_without_processes(tmp_path: Path) -> None:
    (tmp_path / "events").mkdir()
    refused(tmp_path, "holds no engine process")


def test_process_without_streams(tmp_path: Path) -> None:
    refused(write_run(tmp_path, [], MANIFEST), "holds no event streams")


def test_process_without_manifest(run: Path) -> None:
    (process_folder(run) / "process.json").unlink()
    refused(run, "process.json does not exist", "is this a folder that vstate trace wrote?")


def test_manifest_of_another_version(run: Path) -> None:
    path = process_folder(run) / "process.json"
    path.write_text(path.read_text().replace(f'"schema_version": {SCHEMA_VERSION}', '"schema_version": 1'))
    (path.parent / "lunch-0001.arrows").touch()
    refused(run, f"has schema version 1, this vstate reads {SCHEMA_VERSION}", "use the vstate that wrote it")


def test_manifest_is_a_folder(run: Path) -> None:
    path = process_folder(run) / "process.json"
    path.unlink()
    path.mkdir()
    refused(run, "cannot read", "process.json")


def test_stream_of_another_version(run: Path) -> None:
    schema = STEP_SCHEMA.with_metadata({TABLE_KEY: b"step", VERSION_KEY: b"7"})
    write_step_stream(process_folder(run) / "step-0001.arrows", schema)
    refused(run, "step-0001.arrows has schema version 7", "use the vstate that wrote it")


@pytest.mark.parametrize("table", TABLES)
def test_stream_of_the_first_version_is_told_as_such(run: Path, table: str) -> None:
    schema = pa.schema([("seq", pa.int64())], {TABLE_KEY: table.encode(), VERSION_KEY: b"1"})
    write_step_stream(process_folder(run) / f"{table}-0001.arrows", schema)
    refused(run, f"has schema version 1, this vstate reads {SCHEMA_VERSION}", "use the vstate that wrote it")


@pytest.mark.parametrize("cut_bytes", [1, 4, 7, 8, 100])
def test_a_stream_without_its_end_is_a_truncated_one(run: Path, cut_bytes: int) -> None:
    """The last eight bytes end a stream; without them nothing tells whether a batch followed."""
    path = process_folder(run) / "block-0001.arrows"
    data = path.read_bytes()
    path.write_bytes(data[:-cut_bytes])
    reader = StreamReader(stream_file(path))
    rows = sum(batch.num_rows for batch in reader)
    assert reader.truncated
    assert (rows > 0) == (cut_bytes <= 8)
    path.write_bytes(data)
    whole = StreamReader(stream_file(path))
    assert sum(batch.num_rows for batch in whole) > 0
    assert not whole.truncated


def test_stream_of_another_table(run: Path) -> None:
    write_step_stream(process_folder(run) / "block-0001.arrows", STEP_SCHEMA)
    refused(run, "holds table step, not block", "was the file renamed?")


def test_stream_with_other_columns(run: Path) -> None:
    schema = pa.schema([("seq", pa.int64())], STEP_SCHEMA.metadata)
    write_step_stream(process_folder(run) / "step-0001.arrows", schema)
    refused(run, "does not have the columns of table step")


def test_stream_of_an_unknown_table(run: Path) -> None:
    (process_folder(run) / "lunch-0001.arrows").touch()
    refused(run, "lunch-0001.arrows names no table")


def test_stream_with_an_unknown_code(tmp_path: Path) -> None:
    rows = [row.changed(kind=9) if row.table == "step" else row for row in one_request()]
    refused(write_run(tmp_path, rows, MANIFEST), "table step has kind 9", "does not know")


@pytest.mark.parametrize("content", [b"PAR1 and more", b"\xff\xff\xff\xff\x04\x00\x00\x00 no schema"])
def test_file_that_is_no_stream(run: Path, content: bytes) -> None:
    (process_folder(run) / "step-0001.arrows").write_bytes(content)
    refused(run, "step-0001.arrows is not an Arrow stream")


def test_stream_damaged_in_the_middle(run: Path) -> None:
    path = process_folder(run) / "step-0001.arrows"
    data = bytearray(path.read_bytes())
    start = 8 + int.from_bytes(data[4:8], "little")
    data[start + 8 : start + 40] = b"\x55" * 32
    path.write_bytes(data)
    refused(run, "step-0001.arrows is damaged before byte", "copy the run again")


def test_unreadable_stream(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deny(monkeypatch, "open", lambda path: path.suffix == ".arrows")
    refused(run, "permission denied", "private to the user who recorded them")


def test_unreadable_folder(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deny(monkeypatch, "iterdir", lambda path: path.name == "events")
    refused(run, "cannot read", "events: permission denied")


def test_run_that_cannot_be_written(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deny(monkeypatch, "mkdir", lambda path: True)
    refused(run, "cannot write", "write permission", "copy the run to a folder of your own")


def test_stream_that_vanishes(run: Path) -> None:
    stream = StreamFile(run / "step-0001.arrows", "step", 1, 0)
    with pytest.raises(VstateError, match="vanished while it was read"):
        list(StreamReader(stream))


def deny(monkeypatch: pytest.MonkeyPatch, method: str, which: Callable[[Path], bool]) -> None:
    """Refuse a method on some paths; file modes do not stop the superuser."""
    allowed = getattr(Path, method)

    def guarded(path: Path, *args: Any, **kwargs: Any) -> Any:
        if which(path):
            raise PermissionError(13, "Permission denied", str(path))
        return allowed(path, *args, **kwargs)

    monkeypatch.setattr(Path, method, guarded)
