"""What an engine is started with, as far as state depends on it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from vstate.schemas.errors import VstateError, one_line


class Drafting(BaseModel):
    """How drafts are made.

    Attributes:
        method: vLLM's name: ``mtp``, ``eagle``, ``eagle3``, ``draft_model`` or ``ngram``.
        tokens: Draft tokens per step.
        config: Configuration of a draft that is a model of its own; None for a head of the target's or no model.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    method: Literal["mtp", "eagle", "eagle3", "draft_model", "ngram"]
    tokens: int
    config: dict[str, Any] | None = None

    @property
    def reads_hidden_states(self) -> bool:
        """Whether it drafts from the target's hidden states (``SpeculativeConfig.use_eagle``)."""
        return self.method in ("mtp", "eagle", "eagle3")

    @property
    def writes_ahead(self) -> bool:
        """Whether it writes a cache past what is scheduled (``VllmConfig.num_lookahead_tokens``)."""
        return self.reads_hidden_states or self.method == "draft_model"


class ServingSettings(BaseModel):
    """Engine arguments under vLLM's names; None is what vLLM would choose by itself.

    Attributes:
        model: How the model is named.
        dtype: Element type of the model; ``auto`` takes the configuration's.
        gpu_memory_utilization: Share of a device's memory that vLLM may use.
        device_memory_bytes: Memory of one device; 0 where the pool's size is given otherwise.
        limit_mm_per_prompt: Items of each kind of media that a request may have; a tower without any is not built.
        mm_encoder_tp_mode: ``weights`` cuts encoders over ranks, ``data`` gives every rank a whole one where vLLM can.
        mm_device_do_normalize: Whether pixels stay bytes until they are on the device, where vLLM can.
        drafting: How drafts are made; None for not at all.
        processor: Contents of the processor's files by name, which say how media expand.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str = ""
    dtype: str = "auto"
    kv_cache_dtype: str = "auto"
    mamba_cache_dtype: str = "auto"
    mamba_ssm_cache_dtype: str = "auto"
    block_size: int | None = None
    max_model_len: int | None = None
    max_num_batched_tokens: int | None = None
    max_num_seqs: int | None = None
    tensor_parallel_size: int = 1
    enable_prefix_caching: bool = True
    enable_chunked_prefill: bool = True
    prefix_match_unit: int | None = None
    prefix_cache_retention_interval: int | None = 0
    async_scheduling: bool | None = None
    scheduler_reserve_full_isl: bool = True
    watermark: float = 0.0
    scheduling_policy: str = "fcfs"
    disable_hybrid_kv_cache_manager: bool = False
    num_gpu_blocks_override: int | None = None
    kv_cache_memory_bytes: int | None = None
    gpu_memory_utilization: float = 0.92
    device_memory_bytes: int = 0
    limit_mm_per_prompt: dict[str, int] | None = None
    mm_encoder_tp_mode: Literal["weights", "data"] = "weights"
    mm_device_do_normalize: bool = True
    drafting: Drafting | None = None
    processor: dict[str, Any] = {}

    @property
    def draft_tokens(self) -> int:
        """Draft tokens per step."""
        return self.drafting.tokens if self.drafting else 0

    @property
    def lookahead_tokens(self) -> int:
        """Slots past what is scheduled that a draft writes."""
        return self.draft_tokens if self.drafting and self.drafting.writes_ahead else 0

    @classmethod
    def from_arguments(cls, arguments: Mapping[str, Any], folder: Path | None = None) -> Self:
        """Take what matters here of vLLM's engine arguments; the others change no state.

        Args:
            arguments: Arguments of ``EngineArgs`` by name.
            folder: The model's folder, from which the processor's files are read.

        Raises:
            VstateError: An argument has a wrong type, or a draft's configuration cannot be read.
        """
        taken = {name: value for name, value in arguments.items() if name in cls.model_fields and value is not None}
        if name := arguments.get("served_model_name"):
            taken["model"] = name
        if speculative := arguments.get("speculative_config"):
            taken["drafting"] = _drafting(speculative)
        if folder is not None:
            taken["processor"] = processor_files(folder)
        try:
            return cls.model_validate(taken)
        except ValidationError as error:
            raise VstateError(f"engine arguments: {one_line(error)}") from error


PROCESSOR_FILES = ("preprocessor_config.json", "processor_config.json", "video_preprocessor_config.json")


def processor_files(folder: Path) -> dict[str, Any]:
    """Read the processor's files of a model's folder, those that are there."""
    return {name: read_json(folder / name) for name in PROCESSOR_FILES if (folder / name).exists()}


def read_json(path: Path) -> Any:
    """Read a JSON file.

    Raises:
        VstateError: It cannot be read or is not JSON.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise VstateError(f"cannot read {path}: {error.strerror}; give a model folder that holds it") from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise VstateError(f"{path} is not JSON; fetch the model's configuration again") from error


def _drafting(speculative: Mapping[str, Any]) -> Drafting:
    model = speculative.get("model")
    own = speculative.get("method") in ("draft_model", "eagle", "eagle3")
    config = read_json(Path(model) / "config.json") if own and model else None
    try:
        return Drafting(method=speculative["method"], tokens=speculative["num_speculative_tokens"], config=config)
    except KeyError as error:
        raise VstateError(
            f"speculative_config says no {error.args[0]}; say how many tokens and by which method"
        ) from None
    except ValidationError as error:
        raise VstateError(f"speculative_config: {one_line(error)}") from error
