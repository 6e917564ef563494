"""The inventory of an engine: every piece of state it keeps, with its size and its rules."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from pydantic import BaseModel, ConfigDict

from vstate.inventory.profiles import PlatformProfile
from vstate.inventory.serving import ServingSettings
from vstate.schemas.component import StateComponent
from vstate.schemas.errors import MissingExtraError, VstateError
from vstate.schemas.manifests import (
    EVENTS_FOLDER,
    PROCESS_FILE,
    AnyProcessManifest,
    EngineSettings,
    GroupManifest,
    PoolManifest,
    ProcessManifest,
    StateProcessManifest,
    read_manifest,
)
from vstate.schemas.vocabulary import Owner, StateClass

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

PADDING_LAYER = "(no layer)"
"""Shown in place of a name where a group has fewer layers than the largest one, and its blocks cost as much."""


class LayerRow(BaseModel):
    """One kind of state of one layer, in one block of its group.

    Attributes:
        component: Id of the component it belongs to.
        layer: Name of the layer; `PADDING_LAYER` for what a block costs beyond its layers.
        block_bytes: Bytes of one block that this layer's state takes, unpadded; for padding, what is lost.
    """

    model_config = ConfigDict(frozen=True)

    component: str
    layer: str
    group: int
    pool: int
    owner: Owner
    state_class: StateClass
    dtype: str
    block_bytes: int


class StateInventory(BaseModel):
    """What state an engine keeps.

    Attributes:
        settings: The settings that its accounting depends on.
        pools: Its block pools.
        groups: Its KV-cache groups, with the components in them.
        outside: Components that lie in no pool: weights, encoder, encoder cache, processed media.
        assumed: What the figures rest on that nobody said; empty for an engine that was there.
    """

    model_config = ConfigDict(frozen=True)

    settings: EngineSettings
    pools: tuple[PoolManifest, ...]
    groups: tuple[GroupManifest, ...]
    outside: tuple[StateComponent, ...] = ()
    assumed: tuple[str, ...] = ()

    @property
    def components(self) -> tuple[StateComponent, ...]:
        """All components, those of the pools first."""
        return tuple(c for group in self.groups for c in group.components) + self.outside

    def find(self, state_class: StateClass | None = None, owner: Owner | None = None) -> tuple[StateComponent, ...]:
        """Return the components of a class, of an owner, or of both."""
        return tuple(
            component
            for component in self.components
            if state_class in (None, component.state_class) and owner in (None, component.owner)
        )

    def to_arrow(self) -> pa.Table:
        """Return the components as an Arrow table, a row each; lists are lists of the same length as ``layers``."""
        import pyarrow as pa

        from vstate.inventory.component_schema import COMPONENT_SCHEMA

        rows = [component.model_dump(mode="json") for component in self.components]
        return pa.Table.from_pylist(rows, schema=COMPONENT_SCHEMA)

    def to_frame(self) -> pl.DataFrame:
        """Return the components as a Polars frame, a row each.

        Raises:
            MissingExtraError: Polars is not installed.
        """
        try:
            import polars as pl
        except ModuleNotFoundError as error:
            raise MissingExtraError("polars", "analyze") from error
        frame = pl.from_arrow(self.to_arrow())
        assert isinstance(frame, pl.DataFrame)
        return frame

    def layers(self) -> list[LayerRow]:
        """Expand the pools' components by layer, padding layers too.

        The rows of a group add up to what a block of its pool costs.
        """
        return [row for group in self.groups for component in group.components for row in _layer_rows(component)]

    @classmethod
    def from_config(cls, config: Mapping[str, Any], settings: ServingSettings, profile: PlatformProfile) -> Self:
        """Work the inventory out from a configuration, without an engine and without vLLM.

        Args:
            config: The model's configuration, as its ``config.json`` has it.
            settings: What the engine would be started with.
            profile: Where it would run; geometry depends on it.

        Raises:
            VstateError: The architecture, a layer's type or a field is unknown or missing, or the model does not fit.
        """
        from vstate.inventory.from_config import work_out

        found = work_out(config, settings, profile)
        return cls(
            settings=found.settings,
            pools=found.pools,
            groups=found.groups,
            outside=found.outside,
            assumed=found.assumed,
        )

    @classmethod
    def from_engine(cls, engine: Any) -> Self:
        """Read the inventory of a live engine.

        Args:
            engine: vLLM's ``LLM``, ``LLMEngine`` or ``EngineCore``, with the engine core in this process.

        Raises:
            VstateError: The engine core lives in another process.
        """
        from vstate.inventory.from_vllm import engine_settings, group_manifests, pool_manifests
        from vstate.inventory.worker_state import worker_components

        core = _engine_core(engine)
        scheduler = core.scheduler
        config = scheduler.vllm_config
        layers = dict(config.compilation_config.static_forward_context)
        runner = getattr(_driver_worker(core), "model_runner", None)
        held = worker_components(config, runner, runner.kv_cache_config) if runner is not None else []
        return cls(
            settings=engine_settings(config, scheduler),
            pools=pool_manifests(scheduler),
            groups=group_manifests(scheduler, layers),
            outside=tuple(entry.component for entry in held if entry.component.group < 0),
        )

    @classmethod
    def from_run(cls, run: Path) -> Self:
        """Read the inventory of the first engine of a recorded run, and of the workers and front ends beside it.

        Raises:
            VstateError: ``run`` is no readable run, or no engine recorded anything in it.
        """
        engines: list[ProcessManifest] = []
        outside: dict[str, StateComponent] = {}
        for path in sorted(run.glob(f"{EVENTS_FOLDER}/*/{PROCESS_FILE}")):
            if read_manifest(path, AnyProcessManifest).role == "engine":
                engines.append(read_manifest(path, ProcessManifest))
            else:
                holder = read_manifest(path, StateProcessManifest)
                outside |= {component.id: component for component in holder.components if component.group < 0}
        if not engines:
            raise VstateError(f"{run} holds no engine process; give the folder of a recorded run")
        first = min(engines, key=lambda manifest: manifest.clock.wall_ns)
        return cls(settings=first.settings, pools=first.pools, groups=first.groups, outside=tuple(outside.values()))


def _layer_rows(component: StateComponent) -> list[LayerRow]:
    def row(layer: str, block_bytes: int) -> LayerRow:
        return LayerRow(
            component=component.id,
            layer=layer,
            group=component.group,
            pool=component.pool,
            owner=component.owner,
            state_class=component.state_class,
            dtype=component.dtype,
            block_bytes=block_bytes,
        )

    named = zip(component.layers, component.layer_block_bytes, strict=True)
    rows = [row(layer, block_bytes) for layer, block_bytes in named if block_bytes]
    rest = component.charged_bytes_per_block - sum(component.layer_block_bytes)
    return rows + ([row(PADDING_LAYER, rest)] if rest else [])


def _engine_core(engine: Any) -> Any:
    """Find the engine core behind the objects a caller may hold."""
    for name in ("llm_engine", "engine_core", "engine_core"):
        engine = getattr(engine, name, engine)
    if not hasattr(engine, "scheduler"):
        raise VstateError(
            "the engine core lives in another process; set VLLM_ENABLE_V1_MULTIPROCESSING=0, "
            "or trace it and use StateInventory.from_run"
        )
    return engine


def _driver_worker(core: Any) -> Any:
    """Return the worker of this process; None where the workers have processes of their own."""
    wrapper = getattr(core.model_executor, "driver_worker", None)
    return getattr(wrapper, "worker", None)
