"""Starts an engine in this process and writes down what its inventory says, and what its tensors are.

usage: python live_inventory.py MODEL ANSWER (the environment says where the trace goes)
"""

import json
import os
import sys
import tempfile
from pathlib import Path

from vllm import EngineArgs
from vllm.v1.engine.llm_engine import LLMEngine

from vstate.inventory.state_inventory import StateInventory
from vstate.tracer.models.tiny import build, engine_arguments, tiny_model


def allocated_bytes(layers):
    """Bytes of all storages behind the layers' caches, each once: not by the code under test."""

    def flat(value):
        return [tensor for part in value for tensor in flat(part)] if isinstance(value, list | tuple) else [value]

    tensors = [tensor for layer in layers for tensor in flat(getattr(layer, "kv_cache", []))]
    storages = [tensor.untyped_storage() for tensor in tensors if hasattr(tensor, "untyped_storage")]
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())


def main() -> None:
    model = tiny_model(sys.argv[1])
    with tempfile.TemporaryDirectory() as scratch:
        folder = build(model, Path(scratch))
        arguments = engine_arguments(model, folder, {"num_gpu_blocks_override": model.smoke_blocks})
        engine = LLMEngine.from_engine_args(EngineArgs(model=str(folder), **arguments))
        inventory = StateInventory.from_engine(engine)
        real = allocated_bytes(engine.vllm_config.compilation_config.static_forward_context.values())
        engine.engine_core.shutdown()
    answer = {"inventory": inventory.model_dump_json(), "allocated_bytes": real}
    Path(sys.argv[2]).write_text(json.dumps(answer))
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
