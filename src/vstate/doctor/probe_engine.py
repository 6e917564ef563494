"""The engine of the probe: the installed vLLM's own scheduler over three groups, stepped without a model.

Scheduler, KV-cache manager, block pool and encoder cache are whatever the installed vLLM makes,
a fork's subclasses included. Only the groups are made here: full attention, a sliding window and
recurrent state in one pool, which together take every path on which a block can change hands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from vstate.tracer.models.tiny import COMMON_ARGUMENTS, build, tiny_model
from vstate.tracer.versions import takes

BLOCK_TOKENS = 64
"""Tokens of a block of the full and the recurrent group."""
MATCH_TOKENS = 32
"""Tokens of a block of the window's group, and between two places where a hit may end."""
WINDOW_TOKENS = 64
NUM_BLOCKS = 40
CHUNK_TOKENS = 256
MOST_RUNNING = 8
ENCODER_EMBEDS = 48
"""Room of the encoder cache, in embeddings."""
SAMPLED_TOKEN = 7
PAGE_BYTES = 4096


def probe_config(folder: Path) -> Any:
    """Return vLLM's configuration of the probe; ``folder`` takes the files of a tiny model."""
    from vllm import EngineArgs

    arguments = COMMON_ARGUMENTS | {
        "max_model_len": 1024,
        "max_num_batched_tokens": CHUNK_TOKENS,
        "max_num_seqs": MOST_RUNNING,
        "block_size": BLOCK_TOKENS,
        "enable_prefix_caching": True,
        "async_scheduling": False,
    }
    config = EngineArgs(model=str(build(tiny_model("qwen3"), folder)), **arguments).create_engine_config()
    config.cache_config.num_gpu_blocks = NUM_BLOCKS
    # What the configuration of a model with recurrent layers says; this one's groups have some.
    config.cache_config.mamba_cache_mode = "align"
    return config


def make_scheduler(config: Any) -> Any:
    """Make the scheduler that ``config`` names, with room in its encoder cache."""
    from vllm.utils.hashing import get_hash_fn_by_name
    from vllm.v1.core.kv_cache_utils import init_none_hash
    from vllm.v1.structured_output import StructuredOutputManager

    init_none_hash(get_hash_fn_by_name(config.cache_config.prefix_caching_hash_algo))
    cls = config.scheduler_config.get_scheduler_cls()
    named = {"hash_block_size": MATCH_TOKENS} if takes(cls, "hash_block_size") else {}
    scheduler = cls(
        vllm_config=config,
        kv_cache_config=_kv_cache_config(),
        structured_output_manager=StructuredOutputManager(config),
        block_size=BLOCK_TOKENS,
        **named,
    )
    # A model without media has an encoder cache without room.
    scheduler.encoder_cache_manager = type(scheduler.encoder_cache_manager)(cache_size=ENCODER_EMBEDS)
    scheduler.max_num_encoder_input_tokens = ENCODER_EMBEDS
    return scheduler


def _kv_cache_config() -> Any:
    import torch
    from vllm.v1.kv_cache_interface import (
        FullAttentionSpec,
        KVCacheConfig,
        KVCacheGroupSpec,
        KVCacheTensor,
        MambaSpec,
        SlidingWindowSpec,
    )

    heads = {"num_kv_heads": 1, "head_size": 16, "dtype": torch.bfloat16, "page_size_padded": PAGE_BYTES}
    specs = {
        "full": FullAttentionSpec(block_size=BLOCK_TOKENS, **heads),
        "window": SlidingWindowSpec(block_size=MATCH_TOKENS, sliding_window=WINDOW_TOKENS, **heads),
        "state": MambaSpec(
            block_size=BLOCK_TOKENS,
            shapes=((16, 16),),
            dtypes=(torch.float32,),
            page_size_padded=PAGE_BYTES,
            mamba_cache_mode="align",
        ),
    }
    size = PAGE_BYTES * NUM_BLOCKS
    strides = {"layer_stride": size, "block_stride": PAGE_BYTES} if takes(KVCacheTensor, "layer_stride") else {}
    layers = "layers" if takes(KVCacheTensor, "layers") else "shared_by"
    tensors = [KVCacheTensor(size=size, **{layers: [name]}, **strides) for name in specs]
    groups = [KVCacheGroupSpec(layer_names=[name], kv_cache_spec=spec) for name, spec in specs.items()]
    return KVCacheConfig(num_blocks=NUM_BLOCKS, kv_cache_tensors=tensors, kv_cache_groups=groups)


class ProbeEngine:
    """Puts requests through a scheduler, one boundary at a time.

    Attributes:
        scheduler: vLLM's scheduler.
        boundary: Compares the books; to be called after whatever changes them.
        copies: Copies on write that it has asked for so far.
        preempted: Requests that it has preempted so far.
    """

    def __init__(self, scheduler: Any, config: Any, boundary: Callable[[], None]) -> None:
        """Drive ``scheduler``, which was made for ``config``; ``boundary`` is called after each call of it."""
        from vllm.utils.hashing import get_hash_fn_by_name
        from vllm.v1.core.kv_cache_utils import get_request_block_hasher

        hash_function = get_hash_fn_by_name(config.cache_config.prefix_caching_hash_algo)
        self._block_hasher = get_request_block_hasher(MATCH_TOKENS, hash_function)
        self.scheduler = scheduler
        self.boundary = boundary
        self.copies = 0
        self.preempted = 0

    def add(
        self, request_id: str, prompt: Sequence[int], outputs: int, media: Sequence[tuple[str, int, int]] = ()
    ) -> None:
        """Give the scheduler a request; ``media`` is (identity, position, embeddings) of each item."""
        from vllm import SamplingParams
        from vllm.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange
        from vllm.v1.request import Request

        features = [
            MultiModalFeatureSpec(
                data=None,
                modality="image",
                identifier=identity,
                mm_position=PlaceholderRange(offset=position, length=embeds),
            )
            for identity, position, embeds in media
        ]
        parameters = SamplingParams(max_tokens=outputs, ignore_eos=True)
        request = Request(
            request_id=request_id,
            prompt_token_ids=list(prompt),
            sampling_params=parameters,
            pooling_params=None,
            mm_features=features or None,
            block_hasher=self._block_hasher,
        )
        self.scheduler.add_request(request)

    def schedule(self) -> Any:
        """Make one `schedule()` and return its output."""
        output = self.scheduler.schedule()
        self.copies += len(getattr(output, "kv_cache_block_copies", None) or ())
        self.preempted += len(output.preempted_req_ids or ())
        self.boundary()
        return output

    def complete(self, output: Any) -> None:
        """Answer a scheduled step as a worker does: one token for each request whose tokens are all computed."""
        from vllm.v1.outputs import ModelRunnerOutput

        request_ids = list(output.num_scheduled_tokens)
        # A request may have ended since; its worker answers all the same.
        requests = [self.scheduler.requests.get(request_id) for request_id in request_ids]
        tokens = [[] if r and r.num_computed_tokens < r.num_tokens else [SAMPLED_TOKEN] for r in requests]
        places = {request_id: place for place, request_id in enumerate(request_ids)}
        answer = ModelRunnerOutput(req_ids=request_ids, req_id_to_index=places, sampled_token_ids=tokens)
        self.scheduler.update_from_output(output, answer)
        self.boundary()

    def step(self) -> None:
        """Schedule a step and complete it."""
        self.complete(self.schedule())

    def abort(self, request_id: str) -> None:
        """End a request as a client does that goes away."""
        from vllm.v1.request import RequestStatus

        self.scheduler.finish_requests(request_id, RequestStatus.FINISHED_ABORTED)
        self.boundary()
