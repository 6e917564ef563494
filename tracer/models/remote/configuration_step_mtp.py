"""The configuration of Step-3.7 with its drafting layers, which stand behind the target's in the same lists."""

from __future__ import annotations

from typing import Any

from vstate.tracer.models.remote.configuration_step import Step37Config

DRAFTING_LAYER: dict[str, Any] = {
    "layer_types": "sliding_attention",
    "rope_theta": 10000.0,
    "partial_rotary_factors": 1.0,
    "swiglu_limits": 0.0,
    "swiglu_limits_shared": 0.0,
}
"""What the lists hold for a layer with a sliding window and a dense feed-forward."""


class Step37MtpConfig(Step37Config):
    """Lengthens the lists by the drafting layers: vLLM indexes past the target's, which its own class cuts them to."""

    def __init__(self, text_config: dict[str, Any] | None = None, **others: Any) -> None:
        """Make objects of the parts, then lengthen the lists of the language model's."""
        super().__init__(text_config=text_config, **others)
        text = self.text_config
        layers = text.num_hidden_layers + text.num_nextn_predict_layers
        for name, value in DRAFTING_LAYER.items():
            listed = getattr(text, name, None)
            if isinstance(listed, list):
                setattr(text, name, [*listed, *[value] * (layers - len(listed))])
