"""The real engine under a version string of its own: traced if it fits, served if it does not."""

import os
import subprocess
import sys

import pytest

from vstate.schemas.manifests import PROCESS_FILE, ProcessManifest, read_manifest

pytestmark = pytest.mark.engine

VERSION = "99.0.0+fork"
SERVE = f"""
import pathlib, sys
from importlib import resources
import vllm
vllm.__version__ = "{VERSION}"
if sys.argv[2] == "renamed":
    from vllm.v1.core.block_pool import BlockPool
    insert = BlockPool._insert_block_hash
    BlockPool._insert_block_hash = lambda self, *values, **named: insert(self, *values, **named)
folder = pathlib.Path(sys.argv[1])
config = resources.files("vstate.tracer.models") / "tiny" / "qwen3.json"
(folder / "config.json").write_text(config.read_text())
from vllm import LLM, SamplingParams
llm = LLM(model=str(folder), load_format="dummy", enforce_eager=True, dtype="bfloat16", skip_tokenizer_init=True,
          max_model_len=512, max_num_batched_tokens=512)
prompt = {{"prompt_token_ids": list(range(10, 210))}}
(output,) = llm.generate([prompt], SamplingParams(max_tokens=3, ignore_eos=True, detokenize=False))
print("served", len(output.outputs[0].token_ids))
"""


def serve(tmp_path, insert):
    """Run one request on an engine that a trace was asked of, and return its lines about us and its manifests."""
    (tmp_path / "model").mkdir()
    environment = {
        "VSTATE_TRACE_DIR": str(tmp_path / "traces"),
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", SERVE, str(tmp_path / "model"), insert],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    told = [line for line in (done.stdout + done.stderr).splitlines() if "vstate: " in line]
    assert done.returncode == 0, done.stderr
    assert "served 3" in done.stdout
    return told, sorted((tmp_path / "traces").rglob(f"engine-*/{PROCESS_FILE}"))


def test_an_engine_that_fits_is_traced_whatever_it_calls_itself(tmp_path):
    told, (manifest,) = serve(tmp_path, "as it is")
    process = read_manifest(manifest, ProcessManifest)
    assert process.vllm_version == VERSION
    assert process.closing is not None
    assert process.closing.lost_rows == 0
    assert told == []


def test_an_engine_that_does_not_fit_is_refused_in_one_line_and_serves(tmp_path):
    told, manifests = serve(tmp_path, "renamed")
    assert manifests == []
    (line,) = told
    assert "tracing is off, this vLLM does not fit: block_pool.BlockPool._insert_block_hash" in line
    assert VERSION not in line
