"""Every tiny model on the real engine: what each state class does reconciles clean."""

import json
from collections import Counter

import pytest

from support.runs import CELLS, MODEL_CELLS, vstate
from vstate.schemas.tables.encoder import EncoderKind
from vstate.schemas.vocabulary import Owner, StateClass
from vstate.schemas.workload import WorkloadRequest
from vstate.tracer.models.tiny import TINY_MODELS, tiny_model
from vstate.tracer.workloads.smoke import smoke

MEDIA_CELLS = [cell for cell in MODEL_CELLS if tiny_model(cell.model.removeprefix("tiny/")).media]

ONE_AT_A_TIME = {"tiny/nemotron-h"}
"""A chunk can be no longer than a block and may not cross one: prompts wait for each other, nothing is preempted."""


def lines_of(cell):
    media = tiny_model(cell.model.removeprefix("tiny/")).media
    return smoke(tuple(media.placeholders) if media else ())


def test_every_model_has_a_cell():
    assert {cell.model.removeprefix("tiny/") for cell in CELLS + MODEL_CELLS} == set(TINY_MODELS)


@pytest.mark.parametrize("cell", MODEL_CELLS, ids=str)
def test_a_model_reconciles_clean_and_does_what_the_workload_aims_at(cell, run_of):
    run = run_of(cell)
    assert run.illegal == []
    assert run.summary["verdict"] == "clean"
    assert run.summary["gaps"] == []
    assert run.summary["dropped"] == 0

    estimates = run.estimates("vstate", "life")
    assert len(estimates) == len(run.process.groups)
    assert all(e["undercount_requests"] == 0 and e["unknown_requests"] == 0 for e in estimates)

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
    result = vstate("trace", "run", "--out", tmp_path / "run", *options)
    assert result.returncode == 2
    (line,) = [line for line in result.stderr.splitlines() if line.strip()]
    assert "has no CPU kernel" in line
    assert not (tmp_path / "run").exists()


def test_media_that_a_model_does_not_take_are_told_in_one_line(tmp_path):
    sound = {"media": {"kind": "audio", "name": "bark", "seconds": 1}}
    line = {"id": "a", "when": {"at_step": 0}, "prompt": [sound], "output": {"tokens": 1}}
    workload = tmp_path / "workload.jsonl"
    workload.write_text(json.dumps(line))
    result = vstate("trace", "run", "--model", "tiny/qwen3", "--workload", workload, "--out", tmp_path / "run")
    assert result.returncode == 2
    (told,) = [line for line in result.stderr.splitlines() if line.strip()]
    assert "takes no media" in told
