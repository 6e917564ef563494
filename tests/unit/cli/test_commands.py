"""The command line with wrong input: one line, exit code 2, nothing half-written."""

import dataclasses
import json
from pathlib import Path

import pyarrow as pa
import pytest

from support.command_line import in_this_process
from support.runs import vstate
from support.small import one_request
from support.traces import cut_bytes, process_manifest, stream, write_run, write_streams
from vstate.schemas.table import TABLE_KEY, VERSION_KEY
from vstate.schemas.vocabulary import SCHEMA_VERSION


@pytest.fixture
def command_line(capfd, monkeypatch):
    """Call the command in this process; `vstate` starts one for what changes an interpreter."""
    return in_this_process(capfd, monkeypatch)


def one_line(result):
    assert result.returncode == 2, (result.stdout, result.stderr)
    (line,) = [line for line in result.stderr.splitlines() if line.strip()]
    assert line.startswith("error: ")
    assert "Traceback" not in result.stdout + result.stderr
    return line


def without(tmp_path, module):
    """A folder that makes ``module`` look as if it were not installed."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys, importlib.abc, importlib.util\n"
        "class Absent(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path, target=None):\n"
        f"        if name.partition('.')[0] == {module!r}:\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Absent())\n"
        "find = importlib.util.find_spec\n"
        f"importlib.util.find_spec = lambda name, package=None: None if name == {module!r} else find(name, package)\n"
    )
    return str(tmp_path)


@pytest.mark.parametrize(
    "command",
    [(), ("trace",), ("trace", "run"), ("trace", "show"), ("reconcile",), ("bench", "overhead"), ("doctor",)]
    + [("bench", "estimator")]
    + [("bench", "scheduler"), ("trace", "fit"), ("candidate", "verify"), ("workload", "import"), ("workload", "show")],
)
def test_help_of_each_command(command_line, command):
    result = command_line(*command, "--help")
    assert result.returncode == 0
    assert "Usage" in result.stdout


def test_no_command_shows_the_help(command_line):
    result = command_line()
    assert "Usage" in result.stdout + result.stderr


@pytest.mark.parametrize(
    "arguments",
    [("nothing",), ("trace", "run"), ("trace", "run", "--nothing"), ("trace", "run", "--model", "m", "--seed", "x")],
)
def test_wrong_usage_is_told_without_a_traceback(command_line, arguments):
    result = command_line(*arguments)
    assert result.returncode == 2
    assert "Usage" in result.stderr
    assert "Traceback" not in result.stderr


def test_version(command_line):
    assert command_line("--version").stdout.strip()


@pytest.mark.parametrize(
    ("model", "told"),
    [
        ("tiny/nothing", "unknown model tiny/nothing"),
        ("full/qwen3.6-27b", "run it with --engine scheduler"),
        ("nothing", "unknown model nothing"),
        ("./nothing", "unknown model ./nothing"),
    ],
)
def test_unknown_models(command_line, tmp_path, model, told):
    line = one_line(command_line("trace", "run", "--model", model, "--out", tmp_path / "run"))
    assert told in line
    assert not (tmp_path / "run").exists()


def test_a_folder_that_is_no_model(command_line, tmp_path):
    line = one_line(command_line("trace", "run", "--model", tmp_path, "--out", tmp_path / "run"))
    assert "holds no config.json" in line


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--workload", "nothing"), "unknown workload nothing"),
        (("--device", "h100"), "are for --engine scheduler"),
        (("--engine", "scheduler", "--device", "abacus"), "unknown device abacus; there are h100"),
        (("--engine", "scheduler", "--acceptance", "1,2"), "is no list of chances"),
        (("--engine", "scheduler", "--engine-core", "own-process"), "runs in process"),
        (("--spec", "guess:2"), "is none of mtp:N"),
        (("--spec", "draft:2"), "is none of mtp:N"),
        (("--set", "max_num_seqs"), "is not key=value"),
    ],
)
def test_wrong_options(command_line, tmp_path, options, told):
    line = one_line(command_line("trace", "run", "--model", "tiny/qwen3", "--out", tmp_path / "run", *options))
    assert told in line
    assert not (tmp_path / "run").exists()


def test_a_broken_workload_names_file_and_line(command_line, tmp_path):
    workload = tmp_path / "w.jsonl"
    workload.write_text('# comment\n{"id": 1}\n')
    out = tmp_path / "run"
    line = one_line(command_line("trace", "run", "--model", "tiny/qwen3", "--workload", workload, "--out", out))
    assert f"{workload}:2:" in line
    assert not out.exists()


def test_an_existing_out_is_left_alone(command_line, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine").write_text("precious")
    line = one_line(command_line("trace", "run", "--model", "tiny/qwen3", "--out", tmp_path / "run"))
    assert "exists already" in line
    assert (tmp_path / "run" / "mine").read_text() == "precious"


def test_an_out_that_cannot_be_made(command_line, tmp_path):
    (tmp_path / "file").write_text("")
    line = one_line(command_line("trace", "run", "--model", "tiny/qwen3", "--out", tmp_path / "file" / "run"))
    assert "cannot make" in line
    assert "choose another --out" in line


@pytest.mark.parametrize("command", [("trace", "run", "--model", "tiny/qwen3"), ("doctor",), ("bench", "overhead")])
def test_without_vllm(tmp_path, command):
    line = one_line(vstate(*command, PYTHONPATH=without(tmp_path, "vllm")))
    assert "vLLM is not installed" in line
    assert "pip install 'vstate[cpu]'" in line


def test_without_the_analyze_extra(tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    line = one_line(vstate("reconcile", run, PYTHONPATH=without(tmp_path, "duckdb")))
    assert "pip install 'vstate[analyze]'" in line


@pytest.mark.parametrize("command", [("trace", "show"), ("reconcile",)])
class TestFoldersThatAreNoRun:
    def test_missing(self, command_line, tmp_path, command):
        assert str(tmp_path / "nothing") in one_line(command_line(*command, tmp_path / "nothing"))

    def test_empty(self, command_line, tmp_path, command):
        one_line(command_line(*command, tmp_path))
        assert list(tmp_path.iterdir()) == []

    def test_foreign(self, command_line, tmp_path, command):
        (tmp_path / "photo.jpg").write_text("")
        one_line(command_line(*command, tmp_path))
        assert [p.name for p in tmp_path.iterdir()] == ["photo.jpg"]

    def test_other_schema_version(self, command_line, tmp_path, command):
        folder = tmp_path / "events" / "engine-dp0-pp0-tp0-1-1"
        folder.mkdir(parents=True)
        (folder / "process.json").write_text(json.dumps({"schema_version": 99}))
        assert "schema version 99" in one_line(command_line(*command, tmp_path))


def test_an_unknown_table(command_line, tmp_path):
    assert "unknown table nothing" in one_line(command_line("trace", "show", tmp_path, "--table", "nothing"))


def trace_with(tmp_path, name, content):
    """A run of one request, of which one stream holds something else."""
    run = write_run(tmp_path / "run", one_request(), process_manifest())
    stream(run, name).write_bytes(content)
    return run


CURRENT = str(SCHEMA_VERSION).encode()


def foreign_stream(table, version=CURRENT):
    sink = pa.BufferOutputStream()
    schema = pa.schema([("lunch", pa.int64())], {TABLE_KEY: table, VERSION_KEY: version})
    with pa.ipc.new_stream(sink, schema) as written:
        written.write_batch(pa.record_batch([pa.array([1])], schema=schema))
    return sink.getvalue().to_pybytes()


READERS = (("trace", "show"), ("trace", "show", "--table", "request"), ("reconcile",))


@pytest.mark.parametrize("command", READERS, ids=" ".join)
class TestStreamsThatCannotBeRead:
    def test_foreign_columns(self, command_line, tmp_path, command):
        run = trace_with(tmp_path, "request-0001.arrows", foreign_stream(b"request"))
        assert "does not have the columns of table request" in one_line(command_line(*command, run))

    def test_an_older_schema_version(self, command_line, tmp_path, command):
        run = trace_with(tmp_path, "request-0001.arrows", foreign_stream(b"request", b"1"))
        assert f"has schema version 1, this vstate reads {SCHEMA_VERSION}" in one_line(command_line(*command, run))

    def test_garbage(self, command_line, tmp_path, command):
        run = trace_with(tmp_path, "request-0001.arrows", b"lunch " * 50)
        assert "request-0001.arrows is not an Arrow stream" in one_line(command_line(*command, run))

    def test_an_unknown_code(self, command_line, tmp_path, command):
        rows = [row.changed(kind=99) if row.table == "request" else row for row in one_request()]
        run = write_run(tmp_path / "run", rows, process_manifest())
        assert "table request has kind 99, which this vstate does not know" in one_line(command_line(*command, run))

    def test_an_unknown_table(self, command_line, tmp_path, command):
        run = trace_with(tmp_path, "lunch-0001.arrows", b"")
        assert "lunch-0001.arrows names no table" in one_line(command_line(*command, run))

    @pytest.mark.parametrize("method", ["stat", "iterdir"])
    def test_a_folder_without_permission(self, command_line, tmp_path, command, method, monkeypatch):
        run = write_run(tmp_path / "run", one_request(), process_manifest())
        allowed = getattr(Path, method)

        def guarded(path, **options):
            if run in (path, *path.parents):
                raise PermissionError(13, "Permission denied", str(path))
            return allowed(path, **options)

        monkeypatch.setattr(Path, method, guarded)
        line = one_line(command_line(*command, run))
        assert line.startswith(f"error: cannot read {run}")
        assert "permission denied" in line


def test_a_truncated_stream_is_shown_to_its_last_whole_batch(command_line, tmp_path):
    rows = one_request()
    more = [dataclasses.replace(row, chunk=1).changed(seq=row.seq + 100) for row in rows]
    run = write_run(tmp_path / "run", rows, process_manifest(), closed=False)
    process = stream(run, "process.json").parent
    write_streams(process, [*rows, *more])
    expected = sum(row.table == "request" for row in rows)
    cut_bytes(process / "request-0001.arrows", 100)
    shown = command_line("trace", "show", run, "--table", "request")
    assert shown.returncode == 0
    assert len(shown.stdout.splitlines()) == expected
    described = json.loads(command_line("trace", "show", run, "--json").stdout)
    assert described["processes"][0]["rows"]["request"] == expected
    assert described["outcome"]["requests"] == 1
    for emptied in (60, 0):
        (process / "request-0001.arrows").write_bytes((process / "request-0001.arrows").read_bytes()[:emptied])
        assert command_line("trace", "show", run, "--table", "request").stdout == ""
