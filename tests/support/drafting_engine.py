"""Runs requests one after the other on a recurrent model with drafts, and writes what came out.

usage: python drafting_engine.py MODEL-FOLDER KNOWN OUTPUT [caching] [fault]

KNOWN is a file of whole sequences to draft from; where it does not exist, it is made first from a pass
without drafts. With `fault`, the stand-ins copy nothing.
"""

import itertools
import json
import os
import random
import sys
from pathlib import Path

from support import known_drafts, state_copies

BLOCK = 256
DRAFTS = 3
WEIGHTS = 0.3
"""Half the width of the weights' distribution: with vLLM's own 0.001 the output does not depend on the state."""

SHORTS = range(2, 10)


def start(folder, caching):
    import vllm.model_executor.model_loader.dummy_loader as loader
    from vllm import EngineArgs
    from vllm.v1.engine.llm_engine import LLMEngine

    from vstate.tracer.models.text import DELTA_STATE
    from vstate.tracer.models.tiny import COMMON_ARGUMENTS

    # One seed for all would make the output layer the embedding, and every output its own input.
    plain, seeds = loader.initialize_single_dummy_weight, itertools.count(1)
    loader.initialize_single_dummy_weight = lambda tensor: plain(tensor, -WEIGHTS, WEIGHTS, next(seeds))
    drafts = {"method": "custom_class", "model": "support.known_drafts.KnownDrafts", "num_speculative_tokens": DRAFTS}
    arguments = (
        COMMON_ARGUMENTS
        | DELTA_STATE
        | {
            "max_model_len": 4096,
            # Chunks end at the same tokens with and without prefix caching, so that both compute the same.
            "max_num_batched_tokens": BLOCK,
            "enable_prefix_caching": caching,
            # Else only states at the ends of prompts are kept, and none that was reached while decoding.
            "prefix_cache_retention_interval": BLOCK if caching else 0,
            "num_gpu_blocks_override": 90,
            "speculative_config": drafts,
        }
    )
    engine = LLMEngine.from_engine_args(EngineArgs(model=folder, seed=0, **arguments))
    if caching:
        assert engine.vllm_config.cache_config.block_size == BLOCK
    return engine


def answer(engine, name, prompt, output):
    """One request on an idle engine: its tokens, how many came at once, and how many were hits."""
    from vllm import SamplingParams

    (rendered,) = engine.renderer.render_cmpl([{"prompt_token_ids": prompt}])
    parameters = SamplingParams(max_tokens=output, ignore_eos=True, temperature=0.0, detokenize=False)
    engine.add_request(name, rendered, parameters)
    lengths, tokens, cached = [0], [], 0
    while engine.has_unfinished_requests():
        for made in engine.step():
            tokens, cached = list(made.outputs[0].token_ids), made.num_cached_tokens
            lengths.append(len(tokens))
    return {
        "prompt": prompt,
        "tokens": tokens,
        "at_once": [b - a for a, b in itertools.pairwise(lengths)],
        "hit": cached,
    }


def answers(engine, label):
    """Requests that cross a block boundary while they decode, each followed by one that continues its answer."""
    draw, made = random.Random(1), {}

    def tokens(count):
        return [draw.randrange(1024) for _ in range(count)]

    for short in SHORTS:
        prompt = tokens((1 + short % 2) * BLOCK - short)
        first = made[f"{short}"] = answer(engine, f"{label}-{short}", prompt, 18)
        prompt = prompt + first["tokens"][:14] + tokens(5)
        made[f"{short}-follows"] = answer(engine, f"{label}-{short}-follows", prompt, 6)
    return made


def main():
    folder, known, output, *words = sys.argv[1:]
    biases = []
    copy = state_copies.copy_state

    def noted(layout, state, row, source, target, bias, dim_first):
        biases.append(bias)
        if "fault" not in words:
            copy(layout, state, row, source, target, bias, dim_first)

    state_copies.copy_state = noted
    state_copies.install()
    engine = start(folder, "caching" in words)
    if not Path(known).exists():
        found = answers(engine, "plain").values()
        Path(known).write_text(json.dumps([one["prompt"] + one["tokens"] for one in found]))
    known_drafts.KNOWN.extend(json.loads(Path(known).read_text()))
    found = answers(engine, "drafted")
    drafted = known_drafts.KnownDrafts.drafted
    Path(output).write_text(json.dumps({"answers": found, "drafted": drafted, "biases": sorted(set(biases))}))
    engine.engine_core.shutdown()
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
