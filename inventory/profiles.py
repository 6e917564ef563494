"""What a platform decides about state: block sizes, alignments, types of recurrent states, steps in flight."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from vstate.inventory.adapters.plan import Kernel
from vstate.schemas.errors import VstateError
from vstate.schemas.vocabulary import Evidence


@dataclass(frozen=True)
class KernelBlocks:
    """Blocks that a kernel takes.

    Attributes:
        default: Tokens of a block where the user says nothing.
        multiple: A block is a multiple of this many tokens.
    """

    default: int
    multiple: int


@dataclass(frozen=True)
class PlatformProfile:
    """A platform, as far as state depends on it.

    Attributes:
        name: What vLLM resolved, with the instructions that a CPU's kernels are chosen by.
        blocks: Blocks by kernel.
        steps_in_flight: Steps that may run at once without pipeline parallelism.
        float_states: Whether recurrent states are float32 whatever is asked for, GatedDeltaNet's of 16 bits apart.
        batched_tokens: Tokens of a step of a server where the user says nothing.
        sequences: Requests that run at once where the user says nothing.
        evidence: ``booked`` where geometry was compared with the engine's, ``assumed`` where it was read from source.
    """

    name: str
    blocks: Mapping[Kernel, KernelBlocks]
    steps_in_flight: int = 1
    float_states: bool = False
    batched_tokens: int = 2048
    sequences: int = 128
    evidence: Evidence = Evidence.BOOKED
    sources: tuple[str, ...] = field(default=())


_CPU_PAGED = KernelBlocks(128, 32)
# The CPU's own latent kernel takes 16 tokens; the engine without a forward gives it what a Hopper GPU takes.
_SPARSE = KernelBlocks(64, 64)
_CPU_BLOCKS = {
    Kernel.ATTENTION: _CPU_PAGED,
    Kernel.UNEQUAL: KernelBlocks(128, 16),
    Kernel.LATENT: KernelBlocks(16, 16),
    Kernel.SPARSE_LATENT: _SPARSE,
    Kernel.INDEX: _SPARSE,
}
_HOPPER_BLOCKS = {
    Kernel.ATTENTION: KernelBlocks(16, 16),
    Kernel.UNEQUAL: KernelBlocks(16, 16),
    Kernel.LATENT: _SPARSE,
    Kernel.SPARSE_LATENT: _SPARSE,
    Kernel.INDEX: _SPARSE,
}

PROFILES = {
    profile.name: profile
    for profile in (
        PlatformProfile("cpu", _CPU_BLOCKS, sources=("vLLM 0.32 platforms/cpu.py",)),
        PlatformProfile("cpu-avx512_bf16", _CPU_BLOCKS, float_states=True, sources=("vLLM 0.32 platforms/cpu.py",)),
        PlatformProfile(
            "cpu-avx512_bf16-amx_tile",
            _CPU_BLOCKS | {Kernel.LATENT: _CPU_PAGED},
            float_states=True,
            sources=("vLLM 0.32 platforms/cpu.py",),
        ),
        PlatformProfile(
            "cuda-hopper",
            _HOPPER_BLOCKS,
            steps_in_flight=2,
            batched_tokens=8192,
            sequences=1024,
            evidence=Evidence.ASSUMED,
            sources=(
                "vLLM 0.32 v1/attention/backends/flash_attn.py, mla/flashmla_sparse.py, mla/indexer.py",
                "vLLM 0.32 engine/arg_utils.py, config/vllm.py (max_concurrent_batches)",
            ),
        ),
    )
}
"""Profiles by name. Those of CPUs are compared with the engine; that of a GPU was read from source and never run."""


def find_profile(name: str) -> PlatformProfile:
    """Return the profile called ``name``.

    Raises:
        VstateError: There is none.
    """
    if name not in PROFILES:
        raise VstateError(f"unknown platform profile {name!r}; known are {', '.join(PROFILES)}")
    return PROFILES[name]
