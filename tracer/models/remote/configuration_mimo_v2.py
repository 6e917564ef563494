"""The configuration of MiMo-V2.5, whose model type transformers 5.19 does not know."""

from __future__ import annotations

from typing import Any

from transformers import PreTrainedConfig
from vllm.transformers_utils.configs.mimo_v2_omni import Mimo_VLVisionConfig


class MiMoV2Config(PreTrainedConfig):
    """The language model's part at the top, vision and sound below it."""

    model_type = "mimo_v2"

    def __init__(
        self,
        vision_config: dict[str, Any] | None = None,
        audio_config: dict[str, Any] | None = None,
        **others: Any,
    ) -> None:
        """Make an object of the vision tower's part, which vLLM reads by attribute and with its own defaults."""
        self.vision_config = Mimo_VLVisionConfig(**(vision_config or {}))
        self.audio_config = audio_config
        super().__init__(**others)
