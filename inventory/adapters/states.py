"""Element types and tails of whole states, which several families have alike."""

from __future__ import annotations

from vstate.inventory.adapters.plan import StatePart
from vstate.inventory.adapters.registry import Context
from vstate.inventory.dtypes import cache_dtype
from vstate.schemas.vocabulary import StateClass

AUTO = "auto"
SMALL_STATES = ("float16", "bfloat16")


def tail_dtype(context: Context) -> str:
    """Return the element type of a convolution's tail (``MambaStateDtypeCalculator``)."""
    return cache_dtype(context.settings.mamba_cache_dtype, context.dtype)


def recurrent_dtype(context: Context, said: str, *, delta_net: bool = False) -> str:
    """Return the element type of a recurrent state.

    Args:
        context: What the engine is started with.
        said: What the configuration or the model's own rule says; ``auto`` for nothing, which is the tail's type.
        delta_net: Whether it is a GatedDeltaNet, whose small states a CPU with bfloat16 instructions takes
            (``CpuPlatform.check_and_update_config``).
    """
    asked = context.settings.mamba_ssm_cache_dtype
    asked = said if asked == AUTO else asked
    if context.profile.float_states and not (delta_net and asked in SMALL_STATES):
        return "float32"
    return tail_dtype(context) if asked == AUTO else asked


def tail(context: Context, kernel: int, channels: int) -> StatePart:
    """Return the inputs that a causal convolution still needs, those of drafts beside them."""
    columns = kernel - 1 + context.settings.draft_tokens
    return StatePart(StateClass.CONV, (columns, channels), tail_dtype(context))
