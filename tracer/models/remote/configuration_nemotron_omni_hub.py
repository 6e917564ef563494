"""The configuration of Nemotron Omni as it is published: the language model's part is called `llm_config`."""

from __future__ import annotations

from typing import Any

from vstate.tracer.models.remote.configuration_nemotron_omni import NemotronOmniConfig


class NemotronOmniHubConfig(NemotronOmniConfig):
    """Gives the language model's part the name by which vLLM reads it."""

    def __init__(self, llm_config: dict[str, Any] | None = None, **others: Any) -> None:
        """Take the parts; a configuration that was written back already has the other name."""
        super().__init__(**({"text_config": llm_config} | others))
