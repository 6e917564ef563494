"""What a true-size model is: a published configuration, how it drafts and what media it takes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from vstate.schemas.manifests import ModelOrigin
from vstate.tracer.models.evidence import Deployment, ModelEvidence, Parameters, leaves
from vstate.tracer.models.files import package_text
from vstate.tracer.models.model import Draft, Media


@dataclass(frozen=True)
class FullModel:
    """A model with the shapes of a published checkpoint, without its weights.

    Attributes:
        name: Name after `full/`.
        states: What state it keeps, for listings.
        arguments: Engine arguments on top of the common ones.
        draft: How it drafts, if it does.
        media: How it takes media, if it does.
        configuration_module: Module of `remote/` with the configuration class that vLLM
            loads with ``trust_remote_code``; empty for none.
    """

    name: str
    states: str
    arguments: dict[str, Any] = field(default_factory=dict)
    draft: Draft | None = None
    media: Media | None = None
    configuration_module: str = ""

    @property
    def config_text(self) -> str:
        """The configuration as the package holds it."""
        return package_text("full", f"{self.name}.json")

    @cached_property
    def config(self) -> dict[str, Any]:
        """The configuration, as values."""
        config: dict[str, Any] = json.loads(self.config_text)
        return config

    @property
    def text_config(self) -> dict[str, Any]:
        """The language model's part of the configuration."""
        for name in ("text_config", "llm_config"):
            if name in self.config:
                part: dict[str, Any] = self.config[name]
                return part
        return self.config

    @cached_property
    def evidence(self) -> ModelEvidence:
        """Where the configuration comes from."""
        return ModelEvidence.model_validate_json(package_text("full", f"{self.name}.evidence.json"))

    @property
    def parameters(self) -> Parameters:
        """The published number of parameters, with its source."""
        return self.evidence.parameters

    @property
    def deployment(self) -> Deployment:
        """The deployment that is assumed."""
        return self.evidence.deployment

    @cached_property
    def configuration_digest(self) -> str:
        """Digest of the configuration."""
        return configuration_digest(self.config)

    @property
    def origin(self) -> ModelOrigin:
        """What a run's manifest says of where the configuration comes from."""
        return ModelOrigin(
            configuration_digest=self.configuration_digest,
            sources=dict(self.evidence.sources),
            assumed=tuple(row.path for row in self.evidence.fields if row.status == "assumed"),
            mismatches=self.evidence.mismatches,
            published_parameters=self.parameters.published,
        )

    def fields(self) -> Iterator[str]:
        """Yield the path of each field of the configuration and of the processor's files."""
        yield from leaves(self.config)
        for name, value in (self.media.files if self.media else {}).items():
            yield from (f"{name}/{path}" for path in leaves(value))


def configuration_digest(config: dict[str, Any]) -> str:
    """Return SHA-256 of a configuration as JSON with sorted keys and no spaces, in hexadecimal digits."""
    canonical = json.dumps(config, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()
