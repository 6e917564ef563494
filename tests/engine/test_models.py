"""Every tiny model on the real engine: what each state class does reconciles clean."""

import json
from collections import Counter

import pytest

from support.fidelity import first_difference
from support.runs import CELLS, MODEL_CELLS, forked_vstate
from vstate.schemas.tables import TABLES
from vstate.schemas.tables.encoder import EncoderKind
from vstate.schemas.tables.memory import MemoryKind, MemoryPhase
from vstate.schemas.vocabulary import Owner, StateClass
from vstate.schemas.workload import WorkloadRequest
from vstate.tracer.models.tiny import TINY_MODELS, tiny_model
from vstate.tracer.workloads.smoke import smoke

MEDIA_CELLS = [cell for cell in MODEL_CELLS if tiny_model(cell.model.removeprefix("tiny/")).media]

SERVING = MemoryPhase.SERVING
ONE_AT_A_TIME = {"tiny/nemotron-h"}
"""A chunk can be no longer than a block and may not cross one: prompts wait for each other, nothing is preempted."""


def lines_of(cell):
    media = tiny_model(cell.model.removeprefix("tiny/")).media
    return smoke(tuple(media.placeholders) if media else ())


def test_every_model_has_a_cell():
    assert {cell.model.removeprefix("tiny/") for cell in CELLS + MODEL_CELLS} == set(TINY_MODELS)


@pytest.mark.parametrize("cell", MODEL_CELLS, ids=str)
def test_a_model_reconciles_clean(cell, run_of):
    run = run_of(cell)
    assert run.illegal == []
    assert run.summary["verdict"] == "clean"
    assert run.summary["gaps"] == []
    assert run.summary["dropped"] == 0

    estimates = run.estimates("vstate", "life")
    assert len(estimates) == len(run.process.groups)
    assert all(e["undercount_requests"] == 0 and e["unknown_requests"] == 0 for e in estimates)


@pytest.mark.parametrize("cell", MODEL_CELLS, ids=str)
def test_a_model_does_what_the_workload_aims_at(cell, run_of):
    run = run_of(cell)
    outcome = run.manifest["outcome"]
    requests = sum(isinstance(line, WorkloadRequest) for line in lines_of(cell))
    assert outcome["requests"] == requests
    assert outcome["finished"] + outcome["aborts"] == requests
    for name in ("aborts", "refusals"):
        assert outcome[name] > 0, name
    for name in ("preemptions", "resumes"):
        assert (outcome[name] > 0) == (cell.model not in ONE_AT_A_TIME), name
    if run.process.pools[0].caching:
        assert outcome["evictions"] > 0
        assert outcome["prefix_hits"] > 0


@pytest.mark.parametrize("cell", MODEL_CELLS, ids=str)
def test_the_scheduler_engine_does_the_same(run_of, without_a_forward, cell):
    """Every row of every table, in the same order, from the same workload and tokens."""
    other = without_a_forward(cell)
    assert first_difference(run_of(cell), other) is None
    assert other.illegal == []
    assert other.summary["verdict"] == "clean"


@pytest.mark.parametrize("cell", MEDIA_CELLS, ids=str)
def test_media_are_repeated_and_different_and_the_scheduler_sees_it(cell, run_of):
    kinds = tuple(tiny_model(cell.model.removeprefix("tiny/")).media.placeholders)
    asked = Counter(
        part.media
        for line in lines_of(cell)
        if isinstance(line, WorkloadRequest)
        for part in line.prompt
        if hasattr(part, "media")
    )
    assert {item.kind for item in asked} == set(kinds)
    run = run_of(cell)
    rows = run.rows("encoder")
    encoded = Counter(row["media"] for row in rows if row["kind"] == EncoderKind.ALLOCATE)
    hits = Counter(row["media"] for row in rows if row["kind"] == EncoderKind.HIT)
    assert set(hits) <= set(encoded)
    assert len(hits) > 0
    # Equal items have one identity, and different ones have different identities.
    assert len(encoded) == len(asked)
    assert all(row["entry_embeds"] > 0 for row in rows if row["kind"] == EncoderKind.ALLOCATE)


@pytest.mark.parametrize("cell", MODEL_CELLS, ids=str)
def test_planned_bytes_are_those_of_the_real_tensors(cell, run_of):
    run = run_of(cell)
    ((manifest, rows),) = run.holders("worker")
    assert manifest.closing is not None
    figures = {(row["component"], row["kind"]): row["component_bytes"] for row in rows if row["phase"] != SERVING}
    for index, component in enumerate(manifest.components):
        if component.state_class is not StateClass.ENCODER_OUTPUT:
            measured = figures[index, MemoryKind.MEASURED]
            assert measured == figures[index, MemoryKind.PLANNED] > 0, component.id
    shown = {c["component"]: c for c in run.summary["components"]}
    for pool in run.process.pools:
        parts = [c for g in run.process.groups if g.pool == pool.pool for c in g.components if g.group == 0]
        assert sum(shown[c.id]["observed_bytes"] for c in parts) == pool.total_bytes
    for group in run.process.groups:
        for component in group.components:
            in_worker = next(c for c in manifest.components if c.id == component.id)
            assert in_worker == component
            assert shown[component.id]["planned_bytes"] == shown[component.id]["observed_bytes"]
            assert shown[component.id]["evidence"] == "measured"
    drafted = tiny_model(cell.model.removeprefix("tiny/")).draft
    owners = {c.owner for c in manifest.components if c.state_class is StateClass.WEIGHTS}
    assert (Owner.DRAFT in owners) == bool(drafted and drafted.method != "ngram")


@pytest.mark.parametrize("cell", MEDIA_CELLS, ids=str)
def test_encoder_rows_in_the_worker_are_those_the_scheduler_booked(cell, run_of):
    run = run_of(cell)
    ((manifest, rows),) = run.holders("worker")
    output = next(c for c in manifest.components if c.state_class is StateClass.ENCODER_OUTPUT)
    assert any(c.state_class is StateClass.ENCODER for c in manifest.components)
    items = [row for row in rows if row["kind"] == MemoryKind.ITEM]
    assert items
    booked = {row["media"]: row["entry_embeds"] for row in run.rows("encoder") if row["kind"] == EncoderKind.ALLOCATE}
    assert {row["media"] for row in items} == set(booked)
    for row in items:
        assert row["entry_embeds"] == booked[row["media"]]
        assert row["component_bytes"] == row["entry_embeds"] * output.useful_bytes_per_unit
    # Entries can be slices of one batch's output, which stays whole until its last slice goes: no upper limit holds.
    grown = [row for row in rows if row["phase"] == SERVING and row["kind"] == MemoryKind.MEASURED]
    assert max(row["component_bytes"] for row in grown) >= max(row["component_bytes"] for row in items) > 0


def test_every_table_is_filled_on_the_real_engine(run_of):
    run = run_of(next(cell for cell in MEDIA_CELLS if cell.model == "tiny/qwen3.5-vl"))
    assert {name for name in TABLES if run.rows(name)} == set(TABLES)


def test_processed_media_on_the_host_are_measured_where_they_lie(run_of):
    run = run_of(next(cell for cell in MEDIA_CELLS if cell.model == "tiny/qwen3.5-vl"))
    ((_, rows),) = run.holders("receiver")
    measured = [row["component_bytes"] for row in rows if row["kind"] == MemoryKind.MEASURED]
    booked = [row["component_bytes"] for row in rows if row["kind"] == MemoryKind.BOOKED]
    items = {row["media"]: row["component_bytes"] for row in rows if row["kind"] == MemoryKind.ITEM}
    assert measured[-1] == sum(items.values()) > 0
    assert all(real <= said for real, said in zip(measured, booked, strict=True))
    (shown,) = [c for c in run.summary["components"] if c["state_class"] == StateClass.PROCESSOR_CACHE]
    assert shown["observed_bytes"] == max(measured)
    assert shown["planned_bytes"] == 4 << 30


@pytest.mark.parametrize("name", ["image-look-again", "image-other"])
def test_a_prefix_hit_needs_the_same_image(run_of, name):
    """`image-other` differs from `image-look` by its first image alone."""
    run = run_of(next(cell for cell in MEDIA_CELLS if cell.model == "tiny/gemma3-mm"))
    names = {row["key"]: row["value"] for row in run.rows("names") if row["kind"] == 1}
    hits = [row["hit_tokens"] for row in run.rows("request") if names.get(row["request_key"]) == name]
    assert (max(hits) > 0) == (name == "image-look-again")


@pytest.mark.parametrize(
    ("model", "state_class"),
    [
        ("gpt-oss", StateClass.SLIDING_KV),
        ("nemotron-h", StateClass.RECURRENT),
        ("nemotron-h", StateClass.CONV),
        ("lfm2-vl", StateClass.CONV),
        ("qwen3.5-vl", StateClass.RECURRENT),
    ],
)
def test_state_classes_of_a_model(run_of, model, state_class):
    run = run_of(next(cell for cell in MODEL_CELLS if cell.model == f"tiny/{model}"))
    assert state_class in {component.state_class for group in run.process.groups for component in group.components}


def test_a_native_draft_owns_its_state(run_of):
    run = run_of(next(cell for cell in MODEL_CELLS if cell.model == "tiny/mimo-v2-mtp"))
    assert Owner.DRAFT in {component.owner for group in run.process.groups for component in group.components}


def test_what_the_engine_cannot_run_is_told_in_one_line(tmp_path):
    options = ("--model", "tiny/qwen3.5-vl-mtp", "--set", "enable_prefix_caching=true")
    result = forked_vstate("trace", "run", "--out", tmp_path / "run", *options)
    assert result.returncode == 2
    (line,) = [line for line in result.stderr.splitlines() if line.strip()]
    assert "has no CPU kernel" in line
    assert not (tmp_path / "run").exists()


def test_media_that_a_model_does_not_take_are_told_in_one_line(tmp_path):
    sound = {"media": {"kind": "audio", "name": "bark", "seconds": 1}}
    line = {"id": "a", "when": {"at_step": 0}, "prompt": [sound], "output": {"tokens": 1}}
    workload = tmp_path / "workload.jsonl"
    workload.write_text(json.dumps(line))
    result = forked_vstate("trace", "run", "--model", "tiny/qwen3", "--workload", workload, "--out", tmp_path / "run")
    assert result.returncode == 2
    (told,) = [line for line in result.stderr.splitlines() if line.strip()]
    assert "takes no media" in told
