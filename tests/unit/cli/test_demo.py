"""`vstate demo` and the run it shows."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from support.runs import vstate
from vstate.cli.demo import copy_sample, explain, sample
from vstate.cli.main import main
from vstate.reconcile.job import reconcile_run
from vstate.schemas.summary import Summary
from vstate.schemas.tables import TABLES
from vstate.schemas.vocabulary import SCHEMA_VERSION, StateClass

pytestmark = pytest.mark.long

REBUILD = "the sample is of another schema: make it again with python tools/sample_run.py"
ENGINE_FORBIDDEN = """
import sys, importlib.abc

class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in ("vllm", "torch"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo") / "run"
    copy_sample(folder)
    return folder


@pytest.fixture(scope="module")
def summary(run):
    return reconcile_run(run)


def manifests():
    return [path for path in Path(str(sample())).rglob("*.json")]


def test_the_sample_is_of_the_current_schema():
    versions = {str(path): json.loads(path.read_text())["schema_version"] for path in manifests()}
    assert len(versions) >= 2
    assert set(versions.values()) == {SCHEMA_VERSION}, REBUILD
    for path in Path(str(sample())).rglob("*.arrows"):
        with pa.ipc.open_stream(path.read_bytes()) as stream:
            assert stream.schema.equals(TABLES[path.name.partition("-")[0]].schema(), check_metadata=True), REBUILD


def test_the_sample_is_clean_and_has_something_to_show(summary):
    assert summary.verdict == "clean"
    assert {finding.severity for finding in summary.findings} <= {"info"}
    assert summary.gaps == []
    for name in ("preemptions", "resumes", "evictions", "prefix_hits", "aborts", "refusals"):
        assert summary.outcome[name] > 0, name
    classes = {component.state_class for component in summary.components}
    assert {StateClass.RECURRENT, StateClass.CONV, StateClass.FULL_KV} <= classes
    assert all(e.undercount_requests == 0 for e in summary.estimates if e.source == "vstate")
    naive = [e for e in summary.estimates if e.source == "naive"]
    assert any(e.estimated_blocks == 0 < e.observed_peak_blocks for e in naive)


def test_the_sample_has_media(run):
    (path,) = run.glob("events/engine-*/encoder-0001.arrows")
    with pa.ipc.open_stream(path.read_bytes()) as stream:
        assert stream.read_all().num_rows > 0


def test_the_sample_is_small_and_names_no_machine():
    files = [path for path in Path(str(sample())).rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 200_000
    texts = {path.name: path.read_text() for path in manifests()}
    for path in Path(str(sample())).rglob("names-*.arrows"):
        with pa.ipc.open_stream(path.read_bytes()) as stream:
            texts[path.name] = "\n".join(stream.read_all()["value"].to_pylist())
    assert "first" in texts["names-0001.arrows"]
    for name, text in texts.items():
        assert re.findall(r"(?<![\w.])/\w[\w./-]+", text) == [], name
        assert not re.search(r'"boot_id": "[^"]', text), name


def test_the_demo_runs_without_vllm_and_leaves_nothing(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(ENGINE_FORBIDDEN)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    shown = vstate("demo", PYTHONPATH=str(tmp_path), TMPDIR=str(scratch), COLUMNS="200")
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.startswith("clean  tiny/qwen3.5-vl")
    assert 3 <= sum(line.startswith("- ") for line in shown.stdout.splitlines()) <= 5
    assert list(scratch.iterdir()) == []


def called(capfd, monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["vstate", *map(str, arguments)])
    with pytest.raises(SystemExit) as stopped:
        main()
    output, errors = capfd.readouterr()
    return subprocess.CompletedProcess(arguments, stopped.value.code, output, errors)


def test_it_prints_what_reconcile_prints_of_the_kept_run(capfd, monkeypatch, tmp_path):
    out = tmp_path / "kept"
    shown = called(capfd, monkeypatch, "demo", "--out", out)
    again = called(capfd, monkeypatch, "reconcile", out)
    assert (shown.returncode, again.returncode) == (0, 0)
    assert len(again.stdout) > 500
    assert shown.stdout.startswith(again.stdout)
    assert (out.stat().st_mode & 0o077, (out / "run.json").stat().st_mode & 0o077) == (0, 0)


def test_json_is_the_summary(capfd, monkeypatch, tmp_path, summary):
    shown = called(capfd, monkeypatch, "demo", "--json")
    assert shown.returncode == 0
    assert Summary.model_validate_json(shown.stdout) == summary


def test_a_folder_that_exists_is_left_alone(capfd, monkeypatch, tmp_path):
    shown = called(capfd, monkeypatch, "demo", "--out", tmp_path)
    assert shown.returncode == 2
    assert "exists already" in shown.stderr
    assert list(tmp_path.iterdir()) == []


def test_without_the_analyze_extra_nothing_is_made(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.util\n"
        "find = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, package=None: None if name == 'duckdb' else find(name, package)\n"
    )
    shown = vstate("demo", "--out", tmp_path / "run", PYTHONPATH=str(tmp_path))
    assert shown.returncode == 2
    assert shown.stderr.strip() == "error: duckdb is not installed; install it with: pip install 'vstate[analyze]'"
    assert not (tmp_path / "run").exists()


def figures(sentences):
    return [int(number) for sentence in sentences for number in re.findall(r"\b\d+\b", sentence)]


def test_the_sentences_take_their_figures_from_the_summary(summary):
    changed = summary.model_copy(
        update={
            "events": 987_654,
            "outcome": summary.outcome | {"prefix_hits": 71, "prefix_hit_tokens": 72, "evictions": 73, "aborts": 75},
            "estimates": [
                e.model_copy(update={"undercount_blocks": 1_000, "overcount_blocks": 2_000}) for e in summary.estimates
            ],
            "components": [c.model_copy(update={"useful_bytes": 0}) for c in summary.components],
        }
    )
    before, after = explain(summary), explain(changed)
    assert len(before) == len(after)
    assert {987_654, 71, 72, 73, 75} <= set(figures(after))
    groups = len({c.group for c in summary.components if c.group >= 0})
    assert {1_000 * groups, 2_000 * groups} <= set(figures(after))
    assert any("0 B of" in sentence for sentence in after)


def test_a_run_that_is_not_clean_is_not_called_clean(summary):
    (first, *_) = explain(summary.model_copy(update={"verdict": "incomplete"}))
    assert "own books" not in first
    assert "incomplete" in first
