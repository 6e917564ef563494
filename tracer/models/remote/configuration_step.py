"""The configuration of a small Step-3.7: transformers' own drops `width` and `attention_other_setting`."""

from __future__ import annotations

from typing import Any

from transformers import PreTrainedConfig
from vllm.transformers_utils.configs.step3p5 import Step3p5Config


class Step37Config(PreTrainedConfig):
    """Text and vision in one."""

    model_type = "step3p7"

    def __init__(
        self,
        text_config: dict[str, Any] | None = None,
        vision_config: dict[str, Any] | None = None,
        **others: Any,
    ) -> None:
        """Make objects of the parts, which vLLM reads by attribute."""
        self.text_config = Step3p5Config(**(text_config or {}))
        self.vision_config = PreTrainedConfig(**(vision_config or {}))
        super().__init__(**others)

    def get_text_config(self, *_: Any, **__: Any) -> PreTrainedConfig:
        """Return the language model's part."""
        return self.text_config
