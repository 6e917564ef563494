"""What is run of a model, what is said of the rest, and what counts as failed; engines are made up."""

import json

import pytest
from rich.console import Console

from support.small import summary_of
from support.traces import group_manifest, process_manifest, run_manifest, write_run
from vstate.candidate.render import render
from vstate.candidate.subject import Question
from vstate.candidate.verify import Tools, verify
from vstate.schemas.errors import VstateError
from vstate.schemas.summary import EstimateSummary, Finding
from vstate.tracer.engines.job import EngineMessage
from vstate.tracer.models.full_models import full_model

LFM = full_model("lfm2.5-8b-a1b")
CLEAN = summary_of(engine="scheduler", steps=1, requests=2, events=1, outcome={"finished": 2})


def estimate(source, undercount):
    counts = dict.fromkeys((name for name in EstimateSummary.model_fields if name not in ("source", "scope")), 0)
    return EstimateSummary(source=source, scope="life", **counts | {"undercount_blocks": undercount})


def finding(severity):
    return Finding(
        rule="I2", title="t", severity=severity, evidence="booked", count=1, sentence="it is off", action="a"
    )


class World:
    """Engines and judges that do what a test says, and remember what was asked of them."""

    def __init__(self, *, gpu=False, fails=(), summaries=None):
        self.requests = {}
        self._gpu, self._fails, self._summaries = gpu, fails, summaries or {}
        self.tools = Tools(run=self._run, reconcile=self._reconcile, gpu_here=lambda: self._gpu)

    def _run(self, request, told):
        column = request.out.name
        self.requests[column] = request
        if column in self._fails:
            raise VstateError("ValueError: vLLM would not")
        request.out.parent.mkdir(exist_ok=True)
        groups = (group_manifest(0), group_manifest(1, block_tokens=8, draft=True))
        process = process_manifest(groups=groups).model_copy(update={"backends": {"a": "X", "b": "Y", "c": "X"}})
        write_run(request.out, [], process)
        for ended in range(3):
            told(EngineMessage(kind="running", ended=ended, requests=2))
        return run_manifest().model_copy(update={"outcome": {"finished": 2}, "settings": dict(request.settings)})

    def _reconcile(self, run):
        return self._summaries.get(run.name, CLEAN)


def looked(world, model, out=None, **asked):
    return verify(Question(str(model), **asked), out, lambda column, message: None, world.tools)


def statuses(found):
    return found.backend.status, found.correctness.status, found.benchmark.status


@pytest.fixture
def checkpoint(tmp_path):
    """A folder with a true-size model's configuration and weights of one byte."""
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LFM.config))
    (folder / "tokenizer.json").write_text("{}")
    (folder / "model-00001-of-00001.safetensors").write_bytes(b"w")
    return folder


def test_a_tiny_model_runs_all_but_the_benchmark():
    world = World()
    found = looked(world, "tiny/qwen3")
    assert statuses(found) == ("ok", "ok", "not run")
    assert [(name, request.engine) for name, request in world.requests.items()] == [
        ("backend", "scheduler"),
        ("correctness", "full"),
    ]
    assert "speed says nothing" in found.benchmark.sentence


def test_a_true_size_model_has_no_weights_to_run():
    found = looked(World(gpu=True), "full/lfm2.5-8b-a1b")
    assert statuses(found) == ("ok", "not run", "not run")
    assert "without weights" in found.correctness.sentence
    assert found.revision.origin.published_parameters == LFM.parameters.published


def test_a_folder_with_weights_and_a_gpu_runs_everything(checkpoint):
    world = World(gpu=True)
    found = looked(world, checkpoint)
    assert statuses(found) == ("ok", "ok", "ok")
    assert found.benchmark.requests_per_second > 0
    for column in ("correctness", "benchmark"):
        assert world.requests[column].engine == "full"
        assert world.requests[column].settings == {}, "real weights are loaded"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (None, "no GPU here"),
        ("model-00001-of-00001.safetensors", "no weights in"),
        ("config of another", "model-00002-of-00002.safetensors is missing"),
    ],
)
def test_what_is_missing_is_said_in_one_sentence(checkpoint, name, words):
    weights = checkpoint / "model-00001-of-00001.safetensors"
    if name == weights.name:
        weights.unlink()
    elif name:
        weights.rename(checkpoint / "model-00001-of-00002.safetensors")
    world = World(gpu=name is not None)
    found = looked(world, checkpoint)
    assert statuses(found) == ("ok", "not run", "not run")
    assert list(world.requests) == ["backend"]
    for part in (found.correctness, found.benchmark):
        assert part.sentence.startswith("not run: ")
        assert words in part.sentence
        assert "it takes" in part.sentence
        assert "\n" not in part.sentence


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"estimates": [estimate("vstate", 0), estimate("vstate", 3)]}, "under-counted 3 blocks"),
        ({"findings": [finding("illegal")], "verdict": "findings"}, "I2: it is off"),
        ({"verdict": "incomplete"}, "calls the run incomplete"),
        ({"outcome": {"finished": 0}}, "no request ran to its end"),
    ],
)
@pytest.mark.parametrize("column", ["backend", "correctness"])
def test_a_run_whose_books_are_not_clean_has_failed(column, change, words):
    found = looked(World(summaries={column: CLEAN.model_copy(update=change)}), "tiny/qwen3")
    assert not found.clean
    assert getattr(found, column).status == "failed"
    assert words in getattr(found, column).sentence


def test_what_others_under_count_and_what_informs_is_no_failure():
    summary = CLEAN.model_copy(
        update={"estimates": [estimate("stock", 5), estimate("naive", 7)], "findings": [finding("info")]}
    )
    assert looked(World(summaries={"backend": summary}), "tiny/qwen3").clean


@pytest.mark.parametrize("column", ["backend", "correctness", "benchmark"])
def test_what_vllm_refuses_is_one_line_of_its_column(checkpoint, column):
    found = looked(World(gpu=True, fails=(column,)), checkpoint)
    part = getattr(found, column)
    assert (part.status, part.sentence, part.run) == ("failed", "failed: ValueError: vLLM would not", "")
    assert not found.clean


def test_what_failed_is_not_timed(checkpoint):
    found = looked(World(gpu=True, fails=("correctness",)), checkpoint)
    assert found.benchmark.status == "not run"
    assert "the correctness run failed" in found.benchmark.sentence


def test_code_of_a_folder_runs_only_where_that_is_said(checkpoint):
    (checkpoint / "config.json").write_text(json.dumps(LFM.config | {"auto_map": {"AutoConfig": "x.X"}}))
    world = World(fails=("backend",))
    found = looked(world, checkpoint)
    assert "--trust-remote-code" in found.backend.sentence
    assert "trust_remote_code" not in world.requests["backend"].settings
    found = looked(world, checkpoint, trust_remote_code=True)
    assert "--trust-remote-code" not in found.backend.sentence
    assert world.requests["backend"].settings["trust_remote_code"] is True


def test_a_folder_like_one_that_trusts_code_does_not_trust_its_own(tmp_path):
    (tmp_path / "config.json").write_text(full_model("nemotron-3-nano-omni").config_text)
    world = World()
    found = looked(world, tmp_path)
    settings = world.requests["backend"].settings
    assert found.backend.build.settings_of == "full/nemotron-3-nano-omni"
    assert settings["mamba_ssm_cache_dtype"] == "bfloat16"
    assert "trust_remote_code" not in settings


def test_device_and_ranks_reach_the_engine(checkpoint):
    world = World(gpu=True)
    looked(world, checkpoint, device="h200", tensor_parallel_size=2)
    assert world.requests["backend"].scheduler.device == "h200"
    assert world.requests["backend"].scheduler.tensor_parallel_size == 2
    assert world.requests["correctness"].settings == {"tensor_parallel_size": 2}
    looked(world, checkpoint)
    assert world.requests["backend"].scheduler.device == "h100"
    looked(world, "full/lfm2.5-8b-a1b")
    assert world.requests["backend"].scheduler.device == "", "a true-size model has a deployment of its own"


def test_what_vllm_built_is_read_from_the_run():
    build = looked(World(), "tiny/qwen3").backend.build
    assert build.backends == {"X": 2, "Y": 1}
    assert [(group.block_tokens, group.draft) for group in build.groups] == [(4, False), (8, True)]
    (pool,) = build.pools
    assert pool.total_bytes == pool.blocks * pool.block_bytes


def test_runs_are_kept_where_that_is_asked_for(tmp_path):
    found = looked(World(), "tiny/qwen3", tmp_path / "out")
    assert found.backend.run == str(tmp_path / "out" / "backend")
    assert (tmp_path / "out" / "correctness").is_dir()


@pytest.mark.parametrize("clean", [True, False])
def test_of_runs_in_a_scratch_folder_only_failed_ones_are_kept(tmp_path, monkeypatch, clean):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    bad = {} if clean else {"backend": CLEAN.model_copy(update={"verdict": "incomplete"})}
    found = looked(World(summaries=bad), "tiny/qwen3")
    assert bool(found.backend.run) is not clean
    assert (not any(tmp_path.iterdir())) is clean


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ({"model": "full/none"}, "unknown model"),
        ({"model": "tiny/none"}, "unknown model"),
        ({"model": "no/such"}, "does not exist"),
        ({"model": "tiny/qwen3", "workload": "none.jsonl"}, "unknown workload"),
        ({"model": "tiny/qwen3", "device": "abacus"}, "unknown device"),
    ],
)
def test_wrong_input_runs_nothing(question, words):
    world = World()
    with pytest.raises(VstateError, match=words):
        looked(world, **question)
    assert not world.requests


def test_an_existing_folder_is_not_written_into(tmp_path):
    with pytest.raises(VstateError, match="exists already"):
        looked(World(), "tiny/qwen3", tmp_path)


def test_json_has_a_stable_order_of_keys(checkpoint):
    one = looked(World(), checkpoint).model_dump_json()
    assert one == looked(World(), checkpoint).model_dump_json()
    shown = json.loads(one)
    assert list(shown) == ["model", "revision", "backend", "correctness", "benchmark"]
    for name in list(shown)[2:]:
        assert list(shown[name])[:2] == ["status", "sentence"]


@pytest.mark.parametrize("width", [80, 160])
def test_a_person_reads_all_four(checkpoint, width):
    (checkpoint / "config.json").write_text(json.dumps(LFM.config | {"num_experts_per_tok": 3}))
    console = Console(width=width)
    with console.capture() as captured:
        for part in render(looked(World(), checkpoint), width):
            console.print(part)
    text = captured.get()
    words = " ".join(text.replace("│", " ").split())
    assert max(map(len, text.splitlines())) <= width
    for name in ("revision", "backend evidence", "correctness run", "benchmark"):
        assert name in words
    assert ("┃" in text) is (width == 160)
    assert "num_experts_per_tok: 3 here, 4 there" in words
