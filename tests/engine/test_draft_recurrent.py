"""Drafts on a recurrent model with prefix caching: what runs on a CPU once the state copies are stood in for."""

import json
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from support.drafting_engine import BLOCK
from support.engine_record import by_process, drafted
from support.processes import IN_PROCESS, TESTS, succeeds
from support.runs import make_run, vstate
from support.state_copies import TOLD, post_copy, pre_copy
from support.triton_bodies import Language, Launched
from support.zygote import run_anew
from vstate.tracer.models.tiny import COMMON_ARGUMENTS, build, tiny_model

BLOCKS, BLOCK_TOKENS, DRAFTS, REQUESTS, COLUMNS = 40, 8, 3, 5, 7
"""Of the states that the kernels' bodies copy."""


@pytest.fixture
def kernels(monkeypatch):
    """The module of the kernels, with their bodies run on the host or the stand-ins in their place."""
    from vllm.triton_utils import HAS_TRITON
    from vllm.triton_utils.dispatcher import KernelOverride
    from vllm.v1.worker import mamba_utils

    assert not HAS_TRITON, "with Triton the kernels are no plain functions"
    language = Language()
    monkeypatch.setattr(mamba_utils, "tl", language)
    monkeypatch.setattr(mamba_utils, "_TEMPORAL_TILES", 2)
    kernels = {}
    for name, stand_in in (("precopy_mamba_align_fused", pre_copy), ("postprocess_mamba_fused", post_copy)):
        body = getattr(mamba_utils, f"{name}_kernel")
        launched = Launched(body, language, COPY_BLOCK_SIZE=8)
        kernels[f"{name}_kernel"] = {"bodies": launched, "stand-ins": KernelOverride(body, stand_in)}

    def use(which, dim_first):
        monkeypatch.setattr(mamba_utils, "is_conv_state_dim_first", lambda: dim_first)
        for name, choice in kernels.items():
            monkeypatch.setattr(mamba_utils, name, choice[which])

    return SimpleNamespace(module=mamba_utils, use=use)


def states(generator, dim_first):
    """Convolution and recurrent state of two groups of two layers, in pages with padding between them."""
    import torch

    shapes = ((5, 3 + DRAFTS) if dim_first else (3 + DRAFTS, 5), (2, 3, 4))
    dtypes = (torch.bfloat16, torch.float32)
    pages, caches = [], {}
    for layer in ("0.a", "0.b", "1.a", "1.b"):
        page = torch.randint(0, 256, (BLOCKS, 256), dtype=torch.uint8, generator=generator)
        pages.append(page)
        start, views = 0, []
        for shape, dtype in zip(shapes, dtypes, strict=True):
            size = torch.tensor(shape).prod().item() * dtype.itemsize
            start = -(-start // dtype.itemsize) * dtype.itemsize
            flat = page.view(dtype) if start == 0 else page[:, start:].view(dtype)
            views.append(flat[:, : size // dtype.itemsize].unflatten(1, shape))
            start += size
        caches[layer] = SimpleNamespace(kv_cache=views)
    return shapes, dtypes, pages, caches


def context(module, generator, dim_first):
    """The engine's own context of the copies, over states of ours."""
    import torch
    from vllm.model_executor.layers.mamba.mamba_utils import get_conv_copy_spec, get_temporal_copy_spec
    from vllm.v1.kv_cache_interface import KVCacheConfig, KVCacheGroupSpec, MambaSpec
    from vllm.v1.utils import CpuGpuBuffer

    shapes, dtypes, pages, caches = states(generator, dim_first)
    spec = MambaSpec(
        block_size=BLOCK_TOKENS,
        shapes=shapes,
        dtypes=dtypes,
        mamba_cache_mode="align",
        num_speculative_blocks=DRAFTS,
    )
    groups = [KVCacheGroupSpec([f"{group}.a", f"{group}.b"], spec) for group in range(2)]
    config = KVCacheConfig(num_blocks=BLOCKS, kv_cache_tensors=[], kv_cache_groups=groups)
    functions = {spec.mamba_type: (get_conv_copy_spec, get_temporal_copy_spec)}
    device = torch.device("cpu")
    made = module.MambaSpecDecodeGPUContext.create(
        REQUESTS, config, functions, device, lambda *size, dtype: CpuGpuBuffer(*size, dtype=dtype, device=device)
    )
    # Requests share no block, as in a batch: what one writes no other reads.
    drawn = [torch.randperm(BLOCKS, generator=generator, dtype=torch.int32) for _ in groups]
    tables = [blocks[: REQUESTS * COLUMNS].reshape(REQUESTS, COLUMNS).contiguous() for blocks in drawn]
    made.initialize_from_forward_context(config, caches, functions, tables)
    return made, pages, tables


def copied(kernels, which, dim_first, seed):
    """The memory of all states, and the accepted counts, after both copies."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    kernels.use(which, dim_first)
    made, pages, tables = context(kernels.module, generator, dim_first)

    def drawn(low, high):
        return torch.randint(low, high, (REQUESTS,), dtype=torch.int32, generator=generator)

    before = [page.clone() for page in pages]
    made.run_fused_precopy(REQUESTS, drawn(0, 4), drawn(-1, 4), drawn(0, DRAFTS + 1), None)
    between = [page.clone() for page in pages]
    drafts = drawn(0, DRAFTS + 1)
    accepted = torch.minimum(drawn(1, DRAFTS + 2), drafts + 1)
    computed, scheduled = drawn(0, 2 * BLOCK_TOKENS), drafts + drawn(1, 4)
    sources = (computed + scheduled - 1) // BLOCK_TOKENS - (drawn(0, 4) == 0).int()
    made.run_fused_postprocess(REQUESTS, accepted, sources.clamp(min=0), scheduled, computed, drafts)
    after = [*pages, made.num_accepted_tokens_out]
    changed = (
        any(not a.equal(b) for a, b in zip(before, between, strict=True)),
        any(not a.equal(b) for a, b in zip(between, pages, strict=True)),
        not made.num_accepted_tokens_out.equal(accepted),
    )
    return after, changed


@pytest.mark.parametrize("dim_first", [False, True], ids=["tokens-first", "dimensions-first"])
def test_the_stand_ins_copy_what_the_kernels_bodies_copy(kernels, dim_first):
    seen = [False, False, False]
    for seed in range(6):
        expected, changed = copied(kernels, "bodies", dim_first, seed)
        found, _ = copied(kernels, "stand-ins", dim_first, seed)
        assert all(a.equal(b) for a, b in zip(expected, found, strict=True)), seed
        seen = [a or b for a, b in zip(seen, changed, strict=True)]
    assert seen == [True, True, True], "pre-copy, post-copy, accepted count: one never did anything"


INSTALL = "\nfrom support.state_copies import install\ninstall()\n"
DRAFTERS = {
    "native head": {"method": "mtp", "num_speculative_tokens": 2},
    "often right": {
        "method": "custom_class",
        "model": "support.known_drafts.RepeatedDrafts",
        "num_speculative_tokens": 2,
    },
}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return build(tiny_model("qwen3.5-mtp"), tmp_path_factory.mktemp("model"))


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_replay_equals_the_engines_books_with_drafts_and_prefix_hits(tmp_path, model, every_boundary, drafter):
    """The model is given as a folder: by its name, vstate refuses what vLLM has no kernel for."""
    checked = (Path(every_boundary["PYTHONPATH"]) / "sitecustomize.py").read_text()
    (tmp_path / "sitecustomize.py").write_text(checked + INSTALL)
    settings = COMMON_ARGUMENTS | tiny_model("qwen3.5-mtp").arguments
    settings |= {"enable_prefix_caching": True, "num_gpu_blocks_override": 36}
    settings |= {"speculative_config": DRAFTERS[drafter]}
    options = [word for name, value in settings.items() for word in ("--set", f"{name}={json.dumps(value)}")]
    path = f"{tmp_path}{os.pathsep}{TESTS}"
    run = make_run(tmp_path / "run", "--model", model, *options, command=vstate, PYTHONPATH=path)

    assert TOLD in (run.folder / "engine.log").read_text().splitlines()
    assert run.illegal == []
    assert run.summary["verdict"] == "clean"
    assert run.summary["gaps"] == []
    outcome = run.manifest["outcome"]
    for name in ("prefix_hits", "evictions", "preemptions", "resumes", "aborts"):
        assert outcome[name] > 0, name
    (steps,) = by_process(run.folder, "step").values()
    assert drafted(steps, run.rows("request"))
    assert "align" in {group.state_mode for group in run.process.groups}
    assert all(e["undercount_requests"] == 0 and e["unknown_requests"] == 0 for e in run.estimates("vstate", "life"))


@pytest.fixture(scope="module")
def answers(tmp_path_factory, model):
    """What requests on the model answer: without prefix caching, with it, and with a fault in the copies."""
    folder = tmp_path_factory.mktemp("answers")
    environment = os.environ | IN_PROCESS | {"PYTHONPATH": str(TESTS)}
    found = {}
    for words in ("", "caching", "caching fault"):
        output = folder / f"{words}.json"
        script = TESTS / "support" / "drafting_engine.py"
        # The stand-ins must be there before vLLM is imported.
        succeeds([script, model, folder / "known.json", output, *words.split()], environment, run_anew)
        found[words] = json.loads(output.read_text())
    return found


ROUNDING = 3
"""Requests of 16 whose tokens may differ: a state reached by decoding is rounded otherwise than one computed in
a chunk, and with random weights two tokens may be nearly as likely. The byte-exact test is the one of the copies."""


def tokens(run):
    return {name: answer["tokens"] for name, answer in run["answers"].items()}


def differing(one, other):
    one, other = tokens(one), tokens(other)
    assert one.keys() == other.keys()
    return sum(one[name] != other[name] for name in one)


def test_tokens_with_hits_and_drafts_are_those_without_prefix_caching(answers):
    stock, caching = answers[""], answers["caching"]
    assert len(set(map(tuple, tokens(stock).values()))) == len(stock["answers"])
    assert differing(caching, stock) <= ROUNDING
    assert all(answer["hit"] == 0 for answer in stock["answers"].values())
    following = [answer for name, answer in caching["answers"].items() if name.endswith("follows")]
    # The boundary that they hit was reached while the request before them decoded. vLLM does not keep each such state.
    hits = [answer for answer in following if answer["hit"] > 0]
    assert all(answer["hit"] == len(answer["prompt"]) // BLOCK * BLOCK for answer in hits)
    assert len(hits) > len(following) / 2
    accepted = sum(count - 1 for answer in caching["answers"].values() for count in answer["at_once"])
    assert 0 < accepted < caching["drafted"]
    assert set(caching["biases"]) >= {0, 1, 2}
    assert stock["biases"] == []


def test_the_tokens_depend_on_the_copies(answers):
    """What the test above rests on: where nothing is copied, most requests answer something else."""
    assert differing(answers["caching fault"], answers[""]) > 3 * ROUNDING
