"""gpt-oss: sliding and full attention in turns, attention sinks, experts with biases.

Source: vLLM 0.32 ``model_executor/models/gpt_oss.py``. Quantized experts (mxfp4) are counted as the configuration's
element type: vLLM takes the quantization out of shapes only where the checkpoint's own kernels are there.
"""

from __future__ import annotations

from dataclasses import replace

from vstate.inventory.adapters.decoder import Attention, element_bytes, embedding_bytes, rotary_bytes
from vstate.inventory.adapters.experts import FLOAT_BYTES, Experts
from vstate.inventory.adapters.plan import ModelPlan, Weights
from vstate.inventory.adapters.reading import ConfigReader
from vstate.inventory.adapters.registry import Adapter, Context
from vstate.inventory.adapters.weights import Share
from vstate.schemas.errors import VstateError
from vstate.schemas.vocabulary import Owner


def plan(reader: ConfigReader, context: Context) -> ModelPlan:
    """Say what the model keeps: every second layer, the first among them, slides.

    Raises:
        VstateError: Weights are quantized, or there are more ranks than key-value heads.
    """
    if "quantization_config" in reader:
        raise VstateError(f"{reader.model}: quantized weights are not counted; take quantization_config out")
    attention = Attention.read(reader)
    sliding = replace(attention, window_tokens=reader.integer("sliding_window"))
    hidden, count = reader.integer("hidden_size"), reader.integer("num_hidden_layers")
    share, width = Share(context.ranks, reader.model), element_bytes(context)
    # Unlike other models', its key-value heads are not repeated where there are fewer than ranks.
    share.of(attention.kv_heads, "key-value heads")
    experts = Experts(reader.integer("num_local_experts"), hidden, reader.integer("intermediate_size"), biased=True)
    layer = attention.weight_bytes(hidden, share, width, bias=True, out_bias=True)
    layer += (share.of(attention.heads, "attention heads") + 2 * hidden + experts.count) * width
    layer += experts.bytes(share, width) + experts.router_bytes(width)
    tied = reader.get("tie_word_embeddings", False)
    total = count * layer + hidden * width + embedding_bytes(reader, hidden, share, width, tied=tied)
    rope = reader.part("rope_parameters", "rope_scaling")
    # Its table is float32, and as long as the context that the scaling stretches to (`YaRNScalingRotaryEmbedding`).
    stretched = int(rope.integer("original_max_position_embeddings") * rope.number("factor"))
    total += rotary_bytes(stretched, attention.key_size, FLOAT_BYTES)
    return ModelPlan(
        layers=tuple(
            (attention if index % 2 else sliding).layer(f"model.layers.{index}.attn.attn", context)
            for index in range(count)
        ),
        weights=(Weights(Owner.TARGET, "", total),),
        max_positions=reader.integer("max_position_embeddings"),
        hidden_size=hidden,
        block_heads=share.kv_heads(attention.kv_heads),
        block_head_size=attention.key_size,
    )


ADAPTER = Adapter("gpt_oss", 1, ("GptOssForCausalLM",), plan)
