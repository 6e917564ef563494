"""`vstate workload`: what it writes, what it refuses, and that it leaves nothing half-written."""

import gzip
import json

import pytest

from support.command_line import in_this_process
from vstate.schemas.workload import read_workload
from vstate.tracer.workloads.importers import FORMATS
from vstate.tracer.workloads.importers.rows import ImportOptions, Tally

TRACE = "arrival_s,input_tokens,output_tokens\n0,374,44\n4.5,396,0\n5,0,1\n9,20,3\n"


@pytest.fixture
def command_line(capfd, monkeypatch):
    """Call the command in this process; returns exit code, output and errors."""
    run = in_this_process(capfd, monkeypatch, "workload")

    def call(*arguments):
        done = run(*arguments)
        return done.returncode, done.stdout, done.stderr

    return call


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "azure.csv"
    path.write_text(TRACE)
    return path


@pytest.mark.parametrize("name", ["out.jsonl", "out.jsonl.gz"])
def test_the_file_says_what_it_is_and_reads_back_as_the_requests(command_line, tmp_path, trace, name):
    output = tmp_path / name
    code, _, errors = command_line("import", "azure", trace, "-o", output, "--speed", "2")
    assert code == 0
    assert "wrote 3 requests" in errors
    assert "0 input tokens left out: 1" in errors
    assert "0 output tokens that ask for 1: 1" in errors
    assert read_workload(output) == list(FORMATS["azure"].read(trace, ImportOptions(speed=2.0), Tally()))
    content = output.read_bytes()
    text = (gzip.decompress(content) if name.endswith(".gz") else content).decode()
    comments = [line for line in text.splitlines() if line.startswith("# ")]
    assert comments[0] == "# made by: vstate workload import azure azure.csv --speed 2.0"
    assert comments[1:] == [f"# {line}" for line in FORMATS["azure"].HEADER]
    assert json.loads(text.splitlines()[len(comments)]) == {
        "id": "azure-1",
        "when": {"at_s": 0.0},
        "prompt": [{"name": "azure-1", "length": {"tokens": 374}}],
        "output": {"tokens": 44},
    }
    output.unlink()
    command_line("import", "azure", trace, "-o", output, "--speed", "2")
    assert output.read_bytes() == content, "one trace makes one file, byte for byte"


def test_choices_of_a_closed_loop_stand_in_the_file(command_line, tmp_path):
    row = {"session_id": "s", "input_tokens": 64, "output_tokens": 1, "prefix_block_ranges": [[0, 1]]}
    sessions = tmp_path / "sessions.jsonl"
    sessions.write_text(json.dumps(row) + "\n" + json.dumps(row) + "\n")
    output = tmp_path / "out.jsonl"
    options = ("--users", 3, "--loop", "--limit", 5)
    code, *_ = command_line("import", "claude-code", sessions, "-o", output, *options)
    assert code == 0
    first = output.read_text().splitlines()[0]
    assert first.endswith("sessions.jsonl --loop --limit 5 --speed 1.0 --max-think 60.0 --users 3")
    assert len(read_workload(output)) == 5


def test_every_format_says_what_is_measured():
    for name, importer in FORMATS.items():
        text = "\n".join(importer.HEADER)
        assert "source format:" in text, name
        assert "measured:" in text, name
        assert "the importer's choice:" in text, name
        assert all(hasattr(ImportOptions(), option) for option in importer.OPTIONS), name
    assert any(line.startswith("synthetic: arrivals") for line in FORMATS["lengths"].HEADER)


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("azur",), "azure, bailian"),
        (("azure", "--loop"), "--limit"),
        (("azure", "--speed", "0"), "--speed"),
        (("azure", "--speed", "nan"), "--speed"),
        (("azure", "--speed", "1e-320"), "--speed"),
        (("azure", "--users", "2"), "--users"),
        (("azure", "--rate", "2"), "--rate"),
        (("mooncake", "--max-think", "2"), "--max-think"),
        (("claude-code", "--seed", "2"), "--seed"),
        (("lengths",), "--rate"),
        (("lengths", "--rate", "-1"), "--rate"),
        (("mooncake",), "azure.csv:1: not JSON"),
    ],
)
def test_wrong_calls_are_one_line_and_write_nothing(command_line, tmp_path, trace, arguments, what):
    name, *options = arguments
    code, output, errors = command_line("import", name, trace, "-o", tmp_path / "out.jsonl", *options)
    assert (code, output) == (2, "")
    (line,) = errors.splitlines()
    assert line.startswith("error: ")
    assert what in line
    assert list(tmp_path.iterdir()) == [trace]


@pytest.mark.parametrize("name", ["out.jsonl", "out.jsonl.gz"])
def test_a_fault_in_the_middle_leaves_no_file(command_line, tmp_path, trace, name):
    trace.write_text(TRACE + "10,20,3\n" * 5_000 + "broken\n")
    code, _, errors = command_line("import", "azure", trace, "-o", tmp_path / name)
    assert code == 2
    assert "azure.csv:5006: 1 columns" in errors
    assert list(tmp_path.iterdir()) == [trace]


def test_a_file_that_exists_is_kept(command_line, tmp_path, trace):
    output = tmp_path / "out.jsonl"
    output.write_text("mine")
    code, _, errors = command_line("import", "azure", trace, "-o", output)
    assert code == 2
    assert "exists" in errors
    assert output.read_text() == "mine"


def test_a_file_that_another_import_writes_is_left_to_it(command_line, tmp_path, trace):
    partial = tmp_path / "out.jsonl.partial"
    partial.write_text("half")
    code, _, errors = command_line("import", "azure", trace, "-o", tmp_path / "out.jsonl")
    assert code == 2
    assert "out.jsonl.partial exists" in errors
    assert partial.read_text() == "half"
    assert not (tmp_path / "out.jsonl").exists()


def test_an_absent_folder_is_named(command_line, tmp_path, trace):
    code, _, errors = command_line("import", "azure", trace, "-o", tmp_path / "absent" / "out.jsonl")
    assert code == 2
    assert "no folder" in errors


def test_show(command_line, tmp_path, trace):
    output = tmp_path / "out.jsonl"
    command_line("import", "azure", trace, "-o", output)
    code, text, _ = command_line("show", output)
    assert code == 0
    assert "requests        3 (3 lines)" in text
    assert "p50 374, p95 396, p99 396, max 396, mean 263.3, total 790" in text
    assert "9.0 s, 0.333 a second" in text
    code, text, _ = command_line("show", output, "--json")
    summary = json.loads(text)
    assert (summary["requests"], summary["input_tokens"]["total"], summary["dispersion"]) == (3, 790, None)
    assert (summary["reusable_share"], summary["closed_loop_share"]) == (0.0, 0.0)


def test_show_counts_aborts_and_refuses_what_is_no_workload(command_line, tmp_path):
    path = tmp_path / "workload.jsonl"
    line = {"id": "a", "when": {"at_step": 0}, "prompt": [{"name": "s", "length": {"blocks": 2}}], "output": {}}
    abort = {"kind": "abort", "id": "a", "when": {"at_step": 3}}
    path.write_text(json.dumps(line) + "\n" + json.dumps(abort) + "\n")
    code, text, _ = command_line("show", path, "--block-tokens", 16)
    assert code == 0
    assert "1 (2 lines, 1 of them aborts)" in text
    assert "total 32" in text
    path.write_text(json.dumps(abort))
    code, _, errors = command_line("show", path)
    assert code == 2
    assert "holds no request" in errors
