"""Finds the adapter of an architecture: those here, then those that others registered under `vstate.adapters`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pkgutil import iter_modules
from typing import Any

from vstate.inventory.adapters.plan import ModelPlan
from vstate.inventory.adapters.reading import ConfigReader
from vstate.inventory.dtypes import dtype_bytes
from vstate.inventory.profiles import PlatformProfile
from vstate.inventory.serving import ServingSettings
from vstate.schemas.errors import VstateError

ENTRY_POINTS = "vstate.adapters"
FAMILIES = ("dense",)
"""Modules of this package, each with an `ADAPTER`; a family is one file."""


@dataclass(frozen=True)
class Context:
    """What an adapter is told beside the configuration.

    Attributes:
        settings: What the engine is started with.
        profile: Where it runs.
        dtype: Element type of the model.
    """

    settings: ServingSettings
    profile: PlatformProfile
    dtype: str

    @property
    def without_draft(self) -> Context:
        """The same for a model that nothing drafts for."""
        return replace(self, settings=self.settings.model_copy(update={"drafting": None}))

    @property
    def ranks(self) -> int:
        """Tensor-parallel ranks that share the model."""
        return self.settings.tensor_parallel_size


@dataclass(frozen=True)
class Adapter:
    """What one family of models keeps.

    Attributes:
        name: Name of the family.
        version: Raised with each change of a formula; corrections are bound to it.
        architectures: Names in a configuration's ``architectures`` that it answers for.
        make: Makes the plan of one rank, a native draft's layers behind the target's where the settings ask for one.
    """

    name: str
    version: int
    architectures: tuple[str, ...]
    make: Callable[[ConfigReader, Context], ModelPlan]

    @staticmethod
    def architecture(config: Mapping[str, Any]) -> str:
        """Return the architecture that a configuration names first.

        Raises:
            VstateError: It names none.
        """
        names = config.get("architectures")
        if not isinstance(names, list | tuple) or not names or not isinstance(names[0], str):
            raise VstateError("the configuration names no architectures; give a model's config.json")
        return names[0]

    def plan(self, config: Mapping[str, Any], settings: ServingSettings, profile: PlatformProfile) -> ModelPlan:
        """Say what a model keeps on one rank.

        Raises:
            VstateError: A field is missing, or a layer's type is unknown.
        """
        from vstate.inventory.adapters.drafts import with_draft

        context = Context(settings, profile, model_dtype(config, settings))
        plan = self.make(ConfigReader(config, self.architecture(config)), context)
        return with_draft(plan, self.architecture(config), config, context)


def find_adapter(config: Mapping[str, Any]) -> Adapter:
    """Return the adapter of a configuration; one that somebody registered wins over one here.

    Raises:
        VstateError: There is none for its architecture.
    """
    architecture = Adapter.architecture(config)
    known = adapters()
    if architecture not in known:
        raise VstateError(
            f"no adapter knows the architecture {architecture}; register one under the entry point group {ENTRY_POINTS}"
        )
    return known[architecture]


@cache
def adapters() -> dict[str, Adapter]:
    """Return all adapters by architecture.

    Raises:
        VstateError: A registered adapter cannot be loaded.
    """
    from vstate.inventory.adapters import families

    modules = iter_modules(families.__path__, f"{families.__name__}.")
    found = [import_module(module.name).ADAPTER for module in modules]
    for point in entry_points(group=ENTRY_POINTS):
        try:
            adapter = point.load()
        except Exception as error:
            raise VstateError(f"the adapter {point.name} ({point.value}) cannot be loaded: {error}") from error
        if not isinstance(adapter, Adapter):
            raise VstateError(f"{point.name} ({point.value}) is no vstate Adapter; have the entry point name one")
        found.append(adapter)
    return {architecture: adapter for adapter in found for architecture in adapter.architectures}


def model_dtype(config: Mapping[str, Any], settings: ServingSettings) -> str:
    """Return the element type of the model: what is asked for, else what the configuration says.

    ``auto`` takes float32 for bfloat16, as vLLM does (``_get_and_verify_dtype``).

    Raises:
        VstateError: The type is unknown, or not said.
    """
    asked = settings.dtype
    if asked == "auto":
        text: Mapping[str, Any] = next((config[name] for name in ("text_config", "llm_config") if name in config), {})
        asked = config.get("dtype") or config.get("torch_dtype") or text.get("dtype") or text.get("torch_dtype") or ""
        if not asked:
            raise VstateError("the configuration says no dtype; give one")
        asked = "bfloat16" if asked == "float32" else asked
    asked = {"half": "float16", "float": "float32"}.get(asked, asked)
    dtype_bytes(asked)
    return asked
