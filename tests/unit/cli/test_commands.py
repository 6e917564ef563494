"""The command line with wrong input: one line, exit code 2, nothing half-written."""

import json
import subprocess
import sys

import pytest

from support.runs import vstate
from vstate.cli.main import main


@pytest.fixture
def command_line(capfd, monkeypatch):
    """Call the command in this process; `vstate` starts one for what changes an interpreter."""

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["vstate", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            main()
        output, errors = capfd.readouterr()
        return subprocess.CompletedProcess(arguments, stopped.value.code, output, errors)

    return call


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
    "command", [(), ("trace",), ("trace", "run"), ("trace", "show"), ("reconcile",), ("bench", "overhead"), ("doctor",)]
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
        ("full/step-3.7-flash", "needs the scheduler engine"),
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
        (("--engine", "warp"), "engine warp is not available"),
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
