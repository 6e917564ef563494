"""`run.json` and `process.json`: what a run was, and what each process of it was."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from vstate.schemas.component import StateComponent
from vstate.schemas.errors import VstateError, one_line
from vstate.schemas.vocabulary import SCHEMA_VERSION

RUN_FILE = "run.json"
PROCESS_FILE = "process.json"
EVENTS_FOLDER = "events"
PRIVATE_FILE_MODE = 0o600
PRIVATE_FOLDER_MODE = 0o700


class Manifest(BaseModel):
    """A manifest: strict about types, quiet about fields of later versions."""

    model_config = ConfigDict(extra="ignore")


ManifestT = TypeVar("ManifestT", bound=Manifest)


class ClockAnchor(Manifest):
    """One moment on both clocks, so that monotonic times can be shown as wall times."""

    boot_id: str
    monotonic_ns: int
    wall_ns: int


class AnchorState(Manifest):
    """One hooked attribute of vLLM as it was found."""

    name: str
    fits: bool
    found: str = ""
    wrapped_by: str = ""


class PoolManifest(Manifest):
    """A block pool."""

    pool: int
    num_blocks: int
    block_bytes: int
    total_bytes: int
    hash_block_tokens: int
    caching: bool


class GroupManifest(Manifest):
    """A KV-cache group: the layers that share one block table.

    Attributes:
        group: Index of the group.
        pool: Index of its pool.
        spec_kind: Kind of vLLM's spec, as vLLM names it.
        manager: Name of the manager class that serves it.
        layers: Names of its layers.
        block_tokens: Tokens of one block of its table.
        window_tokens: Sliding window; 0 for none.
        retained_tokens: Tokens kept below the window for multi-module drafts.
        state_mode: ``none`` or ``align`` for groups that hold whole states, else empty.
        speculative_blocks: State slots kept for draft tokens.
        checkpoint_blocks: State slots kept for an internal prefill checkpoint.
        checkpoint_alignment_tokens: Distances from a chunk's start at which such a checkpoint can be taken; 0 where
            that is not told, which counts as anywhere.
        attention_chunk_tokens: Tokens of one chunk of chunked local attention; 0 for none.
        decode_window_tokens: Tokens of the window that is kept beside a whole prompt (R-SWA); 0 for none.
        encoder_tokens: Most encoder tokens of a request, where the blocks hold those and not its own; else 0.
        fixed_blocks: Blocks that each request holds whatever its length, as of a ring; 0 where lengths matter.
        admission_cap_blocks: The engine's own cap per request; 0 for none.
        draft: Whether the coordinator treats it as a draft group.
        prefix_cacheable: Whether its blocks take part in prefix caching.
        partial_hits: Whether a hit may end inside one of its blocks.
        hash_block_tokens: Tokens of one block hash, at which such a hit ends; 0 where that is not told.
        components: What state the group holds, padding included.
    """

    group: int
    pool: int
    spec_kind: str
    manager: str
    layers: tuple[str, ...]
    block_tokens: int
    window_tokens: int = 0
    retained_tokens: int = 0
    state_mode: str = ""
    speculative_blocks: int = 0
    checkpoint_blocks: int = 0
    checkpoint_alignment_tokens: int = 0
    attention_chunk_tokens: int = 0
    decode_window_tokens: int = 0
    encoder_tokens: int = 0
    fixed_blocks: int = 0
    admission_cap_blocks: int = 0
    draft: bool = False
    prefix_cacheable: bool = True
    partial_hits: bool = False
    hash_block_tokens: int = 0
    components: tuple[StateComponent, ...] = ()


class EngineSettings(Manifest):
    """The settings of the engine that its accounting depends on."""

    model: str
    architecture: str
    dtype: str
    cache_dtype: str
    max_model_len_tokens: int
    max_batched_tokens: int
    max_in_flight_tokens: int
    lookahead_tokens: int
    max_num_seqs: int
    scheduler_block_tokens: int
    prefix_caching: bool
    chunked_prefill: bool
    reserve_full_prompt: bool
    watermark_blocks: int
    async_scheduling: bool
    policy: str
    retention_interval_tokens: int | None = None
    draft_tokens: int = 0


class ClosingCounts(Manifest):
    """What a process wrote, told by the process when it ended.

    Attributes:
        rows: Rows written per table, those included that were deleted later.
        segments: Segments begun.
        lost_chunks: Chunks that were not written, or not whole.
        lost_rows: Rows that were not written, or whose streams vanished.
        deleted_rows: Rows in segments that were deleted to keep the disk limit.
        writer_error: Why writing ended before its time; empty where it did not.
    """

    rows: dict[str, int]
    segments: int
    lost_chunks: int
    lost_rows: int
    deleted_rows: int = 0
    writer_error: str = ""


class AnyProcessManifest(Manifest):
    """What `process.json` says of any process of a run.

    Attributes:
        role: ``engine`` (an engine core: scheduler and pools), ``worker`` (where the tensors are), or
            ``frontend`` (where requests are processed).
        engine_id: Id of this process' trace; two engines in one process have two.
        closing: None for a process that was killed or is still going.
    """

    schema_version: int = SCHEMA_VERSION
    vstate_version: str
    vllm_version: str
    role: str
    engine_id: str
    data_parallel_rank: int = 0
    pipeline_parallel_rank: int = 0
    tensor_parallel_rank: int = 0
    pid: int
    clock: ClockAnchor
    closing: ClosingCounts | None = None


class ProcessManifest(AnyProcessManifest):
    """`process.json` of an engine core.

    Attributes:
        scheduler_class: Class of the scheduler.
        platform: Platform that vLLM resolved; geometry depends on it.
        backends: Attention backend of each layer, where the model lives in this process.
        anchors: What was hooked, as it was found.
        settings: Settings that accounting depends on.
        pools: The block pools.
        groups: The KV-cache groups.
    """

    scheduler_class: str
    platform: str = ""
    backends: dict[str, str] = Field(default_factory=dict)
    anchors: tuple[AnchorState, ...]
    settings: EngineSettings
    pools: tuple[PoolManifest, ...]
    groups: tuple[GroupManifest, ...]


class StateProcessManifest(AnyProcessManifest):
    """`process.json` of a worker or a front end.

    Attributes:
        components: What state lies in this process; the table `memory` refers to them by index.
    """

    components: tuple[StateComponent, ...] = ()


class Machine(Manifest):
    """The machine a run was made on, as far as it matters to a reader."""

    cpus: int
    memory_bytes: int
    architecture: str
    python: str


class ModelOrigin(Manifest):
    """Where the configuration of a true-size model comes from.

    Attributes:
        configuration_digest: SHA-256 of the configuration, canonical JSON.
        sources: Where its values stand, by a short name.
        assumed: Fields for which there is no source.
        mismatches: What the model here, or vLLM's build of it, does otherwise than the checkpoint.
        published_parameters: Parameters that the publisher says it has.
    """

    configuration_digest: str
    sources: dict[str, str] = Field(default_factory=dict)
    assumed: tuple[str, ...] = ()
    mismatches: tuple[str, ...] = ()
    published_parameters: int = 0


class Modelled(Manifest):
    """What a run without a forward made up, and from what.

    Attributes:
        device: Device whose memory and speed are taken; empty where the pool's size was given.
        step_time: Source of the step-time model, and whether it is assumed or fitted.
        seconds: What the virtual clock showed at the end; None before it.
        media: How media were processed.
        tokens: Where tokens and accepted drafts come from.
        costs: What a step costs one rank (`vstate.tracer.engines.step_costs.StepCosts`).
    """

    device: str
    step_time: str
    seconds: float | None = None
    media: str = ""
    tokens: str = ""
    costs: dict[str, Any] = Field(default_factory=dict)


class RunManifest(Manifest):
    """`run.json`: written by the launcher at the start, and completed by it at the end.

    Attributes:
        outcome: Counts of what happened, from the trace itself; None for a run that was
            killed or is still going.
        skipped_requests: Requests of the workload that were left out because they do not fit.
        origin: Where a true-size configuration comes from; None for other models.
        modelled: What an engine without a forward made up; None for a real one.
    """

    schema_version: int = SCHEMA_VERSION
    vstate_version: str
    created_wall_ns: int
    engine: str
    model: str
    workload: str
    seed: int
    settings: dict[str, Any] = Field(default_factory=dict)
    machine: Machine
    outcome: dict[str, int] | None = None
    skipped_requests: int = 0
    origin: ModelOrigin | None = None
    modelled: Modelled | None = None


def write_manifest(path: Path, manifest: Manifest) -> None:
    """Write a manifest so that a reader sees the old one or the new one, never half."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, PRIVATE_FILE_MODE)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(manifest.model_dump_json(indent=2) + "\n")
        partial.replace(path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise


def read_manifest(path: Path, kind: type[ManifestT]) -> ManifestT:
    """Read a manifest of a known schema version.

    Raises:
        VstateError: It is absent, not JSON, of another version, or not of this shape.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise VstateError(f"{path} does not exist; is this a folder that vstate trace wrote?") from error
    except OSError as error:
        raise VstateError(f"cannot read {path}: {error.strerror}; give this user read permission") from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise VstateError(f"{path} is not JSON; it was not written by vstate or is damaged") from error
    version = data.get("schema_version") if isinstance(data, dict) else None
    if version != SCHEMA_VERSION:
        raise VstateError(
            f"{path} has schema version {version}, this vstate reads {SCHEMA_VERSION}; use the vstate that wrote it"
        )
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        raise VstateError(f"{path} is not a {kind.__name__}: {one_line(error)}") from error
