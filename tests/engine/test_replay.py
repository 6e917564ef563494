"""Replay of the trace against the real engine's own books."""

import bisect
import json
import shutil

import pyarrow as pa
import pytest

from support.runs import CELLS, make_run, reconciled, vstate
from support.traces import renumber_streams
from vstate.schemas.tables.block import BlockKind
from vstate.schemas.tables.request import RequestKind
from vstate.schemas.tables.snapshot import SnapshotKind
from vstate.schemas.tables.step import StepKind
from vstate.schemas.vocabulary import ATTENTION_CLASSES
from vstate.tracer.outcome import stream_batches

PARTIAL = CELLS[4]


def illegal(summary):
    return [finding for finding in summary["findings"] if finding["severity"] != "info"]


def rows(run, table):
    files = sorted(run.folder.glob(f"events/*/{table}-*.arrows"))
    return [row for path in files for batch in stream_batches(path) for row in batch.to_pylist()]


def test_replay_equals_the_engines_books_at_every_step(run):
    assert illegal(run.summary) == []
    assert run.summary["verdict"] == "clean"
    assert run.summary["gaps"] == []
    assert run.summary["dropped"] == 0
    assert run.summary["steps"] == sum(row["kind"] == StepKind.SCHEDULED for row in rows(run, "step"))
    assert run.summary["steps"] > 50


def test_the_engines_tables_were_taken_at_every_boundary(run):
    """What the test above rests on: each boundary's row is followed by a whole snapshot."""
    boundaries = [row["seq"] for row in rows(run, "step")]
    ends = [row["seq"] for row in rows(run, "snapshot") if row["kind"] == SnapshotKind.END]
    following = [bisect.bisect_right(ends, seq) for seq in boundaries]
    assert all(place < len(ends) for place in following)
    assert len(set(following)) == len(boundaries), "two boundaries share a snapshot"
    held = [row for row in rows(run, "snapshot") if row["kind"] == SnapshotKind.HOLDER]
    assert len(held) > len(boundaries)


def test_a_connector_that_loads_and_saves_blocks(tmp_path, every_boundary):
    config = {
        "kv_connector": "ExampleConnector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {"shared_storage_path": str(tmp_path / "storage")},
    }
    setting = f"kv_transfer_config={json.dumps(config)}"
    run = make_run(tmp_path / "run", "--model", "tiny/qwen3", "--set", setting, **every_boundary)
    assert any((tmp_path / "storage").iterdir())
    assert illegal(run.summary) == []
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


def test_every_alloc_and_free_names_its_request_and_group(run):
    for row in rows(run, "block"):
        if row["kind"] in (BlockKind.ALLOC, BlockKind.TOUCH):
            assert row["request_key"] >= 0, row
            assert row["group"] >= 0, row
        if row["kind"] == BlockKind.FREE:
            assert row["request_key"] != -2, f"free by an unknown holder: {row}"


def test_vstate_undercounts_nowhere(run):
    estimates = run.estimates("vstate", "life")
    assert estimates
    assert all(e["undercount_requests"] == 0 and e["unknown_requests"] == 0 for e in estimates)
    assert all(e["requests"] >= 22 for e in estimates)


def test_naive_undercounts_every_group_that_is_not_attention(run):
    groups = {group.group: group for group in run.process.groups}
    for estimate in run.estimates("naive", "life"):
        classes = {component.state_class for component in groups[estimate["group"]].components}
        if not classes & ATTENTION_CLASSES:
            assert estimate["undercount_requests"] == estimate["requests"]
            assert estimate["undercount_blocks"] == estimate["observed_peak_blocks"] > 0


def test_everything_the_workload_aims_at_happened(run):
    outcome = run.manifest["outcome"]
    caching = run.manifest["settings"].get("enable_prefix_caching", True)
    for name in ("evictions", "prefix_hits") if caching else ():
        assert outcome[name] > 0, name
    for name in ("preemptions", "resumes", "aborts", "refusals"):
        assert outcome[name] > 0, name
    assert outcome["requests"] == 25
    assert outcome["finished"] + outcome["aborts"] == 25


def test_two_counts_of_the_outcome_agree(run):
    """`run.json` counts with pyarrow over the streams, reconcile in SQL over its cache."""
    assert run.summary["outcome"] == run.manifest["outcome"]


def test_copy_on_write_is_seen_where_hits_end_inside_a_block(run_of):
    assert run_of(PARTIAL).manifest["outcome"]["copy_on_write"] > 0
    assert run_of(CELLS[3]).manifest["outcome"]["copy_on_write"] == 0


def test_external_ids_are_the_clients(run):
    external = {row["value"] for row in rows(run, "names") if row["kind"] == 1}
    assert {"first", "again", "grow-0", "gives-up-waiting", "pair-b"} <= external


def canonical(run):
    """Events without what differs by nature: times, random id suffixes and keyed hashes."""
    names = {row["key"]: row["value"] for row in rows(run, "names") if row["kind"] == 1}
    return [
        (row["step"], row["kind"], row["group"], names.get(row["request_key"], row["request_key"]), row["blocks"])
        for row in rows(run, "block")
    ]


def test_the_same_run_repeats_event_by_event(run_of, tmp_path):
    first = run_of(CELLS[0])
    second = make_run(tmp_path / "again", "--model", CELLS[0].model)
    assert canonical(first) == canonical(second)
    one, two = ({r["block_hash"] for r in rows(run, "block")} - {0} for run in (first, second))
    assert not one & two, "hashes of two runs must not be comparable: each has its own secret"


def rewrite(path, keep):
    """Write a stream again with the rows that ``keep`` returns."""
    with pa.OSFile(str(path)) as file:
        table = pa.ipc.open_stream(file).read_all()
    kept = pa.Table.from_pylist(keep(table.to_pylist()), schema=table.schema)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(kept)


@pytest.mark.parametrize(
    ("cell", "kind"),
    [
        (CELLS[0], BlockKind.ALLOC),
        (CELLS[0], BlockKind.FREE),
        (CELLS[0], BlockKind.TOUCH),
        (CELLS[0], BlockKind.EVICT),
        (CELLS[0], BlockKind.CACHE_INSERT),
        (PARTIAL, BlockKind.PIN),
        (PARTIAL, BlockKind.UNPIN),
        (PARTIAL, BlockKind.CACHE_REMOVE),
    ],
    ids=lambda value: value.name.lower() if isinstance(value, BlockKind) else str(value),
)
def test_one_dropped_event_of_a_real_run_is_caught(run_of, tmp_path, cell, kind):
    folder = tmp_path / "run"
    shutil.copytree(run_of(cell).folder, folder, ignore=shutil.ignore_patterns("reconcile"))
    (path,) = folder.glob("events/*/block-0001.arrows")

    def without_the_middle_one(events):
        places = [number for number, event in enumerate(events) if event["kind"] == kind]
        if kind == BlockKind.CACHE_REMOVE:
            # A hash that comes back to the same block in the same step leaves nothing to notice.
            places = [n for n in places if any(event["kind"] == BlockKind.MOVE for event in events[n : n + 4])]
        assert places, f"no {kind.name} in the run"
        del events[places[len(places) // 2]]
        return events

    rewrite(path, without_the_middle_one)
    # Else the missing number alone would tell, and not the books.
    renumber_streams(path.parent)
    assert illegal(reconciled(folder).summary)


def test_a_rotated_run_is_checked_against_the_engines_books_whole(tmp_path):
    """Each segment begins with the engine's own tables; replay up to there must equal them."""
    code = (
        "import vstate.tracer.writer as w; w.SEGMENT_BYTES = 4000\nimport vstate.tracer.recorder as r; r.CHUNK_NS = 0\n"
    )
    (tmp_path / "sitecustomize.py").write_text(code)
    run = make_run(tmp_path / "run", "--model", "tiny/gemma3", PYTHONPATH=str(tmp_path))
    segments = sorted(run.folder.glob("events/*/snapshot-*.arrows"))
    assert len(segments) > 3
    assert illegal(run.summary) == []
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


def test_prefix_rows_agree_with_admissions_and_name_who_vetoed(run_of):
    """On the convolution hybrid: attention keys outlive the state, so the state's groups veto."""
    run = run_of(CELLS[2])
    admissions = {
        (row["request_key"], row["attempt"]): row["hit_tokens"]
        for row in rows(run, "request")
        if row["kind"] in (RequestKind.ADMIT, RequestKind.RESUME)
    }
    prefix = rows(run, "prefix")
    assert all(admissions[row["request_key"], row["attempt"]] == row["hit_tokens"] for row in prefix)
    hits = {place: hit for place, hit in admissions.items() if hit > 0}
    assert hits.keys() <= {(row["request_key"], row["attempt"]) for row in prefix}
    vetoes = [row for row in prefix if row["group_hit_tokens"] < row["longest_hit_tokens"]]
    classes = {g.group: {c.state_class for c in g.components} for g in run.process.groups}
    assert vetoes
    assert all("conv" in classes[row["group"]] for row in vetoes)
