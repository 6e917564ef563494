"""Runs that stand for themselves: repeats, a connector, a control without tracing, segments, real tensors."""

import json

import pytest

from support.runs import make_run, vstate
from vstate.schemas.tables.names import NameKind


def canonical(run):
    """Events without what differs by nature: times, random id suffixes and keyed hashes."""
    names = {row["key"]: row["value"] for row in run.rows("names") if row["kind"] == NameKind.EXTERNAL}
    return [
        (row["step"], row["kind"], row["group"], names.get(row["request_key"], row["request_key"]), row["blocks"])
        for row in run.rows("block")
    ]


def test_the_same_run_repeats_event_by_event(tmp_path):
    first = make_run(tmp_path / "first", "--model", "tiny/qwen3")
    second = make_run(tmp_path / "again", "--model", "tiny/qwen3")
    assert canonical(first) == canonical(second)
    one, two = ({r["block_hash"] for r in run.rows("block")} - {0} for run in (first, second))
    assert not one & two, "hashes of two runs must not be comparable: each has its own secret"


def test_a_connector_that_loads_and_saves_blocks(tmp_path, every_boundary):
    config = {
        "kv_connector": "ExampleConnector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {"shared_storage_path": str(tmp_path / "storage")},
    }
    setting = f"kv_transfer_config={json.dumps(config)}"
    run = make_run(tmp_path / "run", "--model", "tiny/qwen3", "--set", setting, **every_boundary)
    assert any((tmp_path / "storage").iterdir())
    assert run.illegal == []
    assert run.summary["verdict"] == "clean"


OUTPUTS = """
import json, os, pathlib
import vstate.tracer.engines.driver as driver
drive = driver.drive
def recording(engine, *arguments):
    step, outputs = engine.step, {}
    def recorded():
        made = step()
        outputs.update({o.request_id: list(o.outputs[0].token_ids) for o in made})
        return made
    engine.step = recorded
    result = drive(engine, *arguments)
    pathlib.Path(os.environ["OUTPUTS"]).write_text(json.dumps(outputs))
    return result
driver.drive = recording
if os.environ["TRACED"] == "0":
    import vstate.tracer.plugin as plugin
    plugin.register = lambda: None
"""


@pytest.mark.parametrize("model", ["tiny/qwen3", "tiny/qwen3-next"])
def test_tracing_changes_no_token(tmp_path, model):
    (tmp_path / "sitecustomize.py").write_text(OUTPUTS)
    outputs = {}
    for traced in ("1", "0"):
        file = tmp_path / f"{traced}.json"
        environment = {"PYTHONPATH": str(tmp_path), "OUTPUTS": str(file), "TRACED": traced}
        made = vstate("trace", "run", "--model", model, "--out", tmp_path / traced, **environment)
        assert (made.returncode == 0) == (traced == "1"), made.stderr
        outputs[traced] = json.loads(file.read_text())
    assert len(outputs["1"]) > 20
    assert sum(map(len, outputs["1"].values())) > 150
    assert outputs["1"] == outputs["0"]


def test_a_rotated_run_is_checked_against_the_engines_books_whole(tmp_path):
    """Each segment begins with the engine's own tables; replay up to there must equal them."""
    code = (
        "import vstate.tracer.writer as w; w.SEGMENT_BYTES = 4000\nimport vstate.tracer.recorder as r; r.CHUNK_NS = 0\n"
    )
    (tmp_path / "sitecustomize.py").write_text(code)
    run = make_run(tmp_path / "run", "--model", "tiny/gemma3", PYTHONPATH=str(tmp_path))
    segments = sorted(run.folder.glob("events/*/snapshot-*.arrows"))
    assert len(segments) > 3
    assert run.illegal == []
    assert run.summary["verdict"] == "clean"
    assert canonical(run)


def test_the_pool_is_as_large_as_the_real_tensors(tmp_path):
    """Planned bytes of the pool against the unique storages behind all layers' caches."""
    probe = (
        "from vllm.v1.worker import gpu_model_runner as m\n"
        "import json, os, pathlib\n"
        "original = m.GPUModelRunner.initialize_kv_cache\n"
        "def initialize(self, *a, **k):\n"
        "    result = original(self, *a, **k)\n"
        "    flat = lambda x: [t for y in x for t in flat(y)] if isinstance(x, (list, tuple)) else [x]\n"
        "    tensors = [t for c in self.compilation_config.static_forward_context.values()\n"
        "               for t in flat(getattr(c, 'kv_cache', [])) if hasattr(t, 'untyped_storage')]\n"
        "    sizes = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}\n"
        "    pathlib.Path(os.environ['PROBE']).write_text(json.dumps(sum(sizes.values())))\n"
        "    return result\n"
        "m.GPUModelRunner.initialize_kv_cache = initialize\n"
    )
    plugin = tmp_path / "probe_module.py"
    plugin.write_text(probe)
    (tmp_path / "sitecustomize.py").write_text(
        "import sys, importlib.abc, importlib.util\n"
        "class Hook(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == 'vllm.v1.worker.cpu_worker':\n"
        "            sys.meta_path.remove(self)\n"
        "            import probe_module\n"
        "sys.meta_path.insert(0, Hook())\n"
    )
    measured = {}
    for name in ("gemma3", "qwen3-next"):
        probe_file = tmp_path / f"{name}.bytes"
        run = make_run(tmp_path / name, "--model", f"tiny/{name}", PYTHONPATH=str(tmp_path), PROBE=str(probe_file))
        measured[name] = (int(probe_file.read_text()), run.process.pools[0].total_bytes)
    assert all(real == planned > 0 for real, planned in measured.values()), measured
