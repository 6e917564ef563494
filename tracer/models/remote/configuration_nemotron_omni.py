"""The configuration of a small Nemotron Omni: transformers' own lacks what vLLM 0.32 reads."""

from __future__ import annotations

from typing import Any

from transformers import NemotronHConfig, PreTrainedConfig


class NemotronOmniConfig(PreTrainedConfig):
    """Text, vision (RADIO) and sound (Parakeet) in one."""

    model_type = "NemotronH_Nano_Omni_Reasoning_V3"

    def __init__(
        self,
        text_config: dict[str, Any] | None = None,
        vision_config: dict[str, Any] | None = None,
        sound_config: dict[str, Any] | None = None,
        **others: Any,
    ) -> None:
        """Make objects of the parts, which vLLM reads by attribute."""
        self.text_config = NemotronHConfig(**(text_config or {}))
        self.vision_config = PreTrainedConfig(**(vision_config or {}))
        self.sound_config = PreTrainedConfig(**(sound_config or {}))
        super().__init__(**others)

    def get_text_config(self, *_: Any, **__: Any) -> PreTrainedConfig:
        """Return the language model's part."""
        return self.text_config
