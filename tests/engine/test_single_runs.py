"""Runs that stand for themselves: repeats, a connector, a control without tracing, segments, real tensors."""

import json
import os

import pytest

from support.processes import IN_PROCESS, TESTS, succeeds
from support.runs import forked_vstate, make_run
from vstate.inventory.state_inventory import StateInventory
from vstate.schemas.tables.names import NameKind
from vstate.schemas.vocabulary import StateClass


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
import vstate.tracer.engines.llm_port as llm_port
class Recording(llm_port.LlmPort):
    def __init__(self, engine, *arguments):
        super().__init__(engine, *arguments)
        step, outputs = engine.step, {}
        def recorded():
            made = step()
            outputs.update({o.request_id: list(o.outputs[0].token_ids) for o in made})
            pathlib.Path(os.environ["OUTPUTS"]).write_text(json.dumps(outputs))
            return made
        engine.step = recorded
llm_port.LlmPort = Recording
if os.environ["TRACED"] == "0":
    import vstate.tracer.plugin as plugin
    plugin.register = lambda: None
"""


@pytest.mark.parametrize("model", ["tiny/qwen3", "tiny/lfm2-moe"])
def test_tracing_changes_no_token(tmp_path, model):
    (tmp_path / "sitecustomize.py").write_text(OUTPUTS)
    outputs = {}
    for traced in ("1", "0"):
        file = tmp_path / f"{traced}.json"
        environment = {"PYTHONPATH": str(tmp_path), "OUTPUTS": str(file), "TRACED": traced}
        made = forked_vstate("trace", "run", "--model", model, "--out", tmp_path / traced, **environment)
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


def test_the_inventory_of_a_live_engine_is_that_of_its_run_and_of_its_tensors(tmp_path):
    environment = os.environ | IN_PROCESS | {"VSTATE_TRACE_RUN": str(tmp_path / "run"), "PYTHONPATH": str(TESTS)}
    command = [TESTS / "support" / "live_inventory.py", "qwen3.5-vl", tmp_path / "answer.json"]
    succeeds(command, environment)
    answer = json.loads((tmp_path / "answer.json").read_text())
    live = StateInventory.model_validate_json(answer["inventory"])
    recorded = StateInventory.from_run(tmp_path / "run")
    assert (live.pools, live.groups, live.settings) == (recorded.pools, recorded.groups, recorded.settings)
    assert {c.id: c for c in live.outside} == {c.id: c for c in recorded.outside}
    classes = {component.state_class for component in live.components}
    assert classes >= {StateClass.CONV, StateClass.RECURRENT, StateClass.FULL_KV, StateClass.WEIGHTS}
    assert classes >= {StateClass.ENCODER, StateClass.ENCODER_OUTPUT}
    (pool,) = live.pools
    assert answer["allocated_bytes"] == pool.total_bytes
    for group in live.groups:
        rows = [row for row in live.layers() if row.group == group.group]
        assert sum(row.block_bytes for row in rows) == pool.block_bytes
        assert {row.layer for row in rows if row.state_class is not StateClass.PADDING} == set(group.layers)
