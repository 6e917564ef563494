"""Element types by the names that configurations and vLLM use, and their bytes."""

from __future__ import annotations

from vstate.schemas.errors import VstateError

DTYPE_BYTES = {
    "float64": 8,
    "int64": 8,
    "float32": 4,
    "int32": 4,
    "bfloat16": 2,
    "float16": 2,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "uint8": 1,
    "int8": 1,
}
"""Bytes of one element."""
CACHE_DTYPES = {
    "fp8": "uint8",
    "fp8_e4m3": "uint8",
    "fp8_e5m2": "uint8",
    "bfloat16": "bfloat16",
    "float16": "float16",
    "half": "float16",
    "float32": "float32",
    "float": "float32",
}
"""Element types of a cache by what ``kv_cache_dtype`` may be (``STR_DTYPE_TO_TORCH_DTYPE``, vLLM 0.32)."""


def dtype_bytes(dtype: str) -> int:
    """Return the bytes of one element.

    Raises:
        VstateError: The type is unknown.
    """
    if dtype not in DTYPE_BYTES:
        raise VstateError(f"unknown element type {dtype!r}; known are {', '.join(DTYPE_BYTES)}")
    return DTYPE_BYTES[dtype]


def cache_dtype(asked: str, model_dtype: str) -> str:
    """Return the element type of a cache that is asked for as ``asked``, ``auto`` being the model's own.

    Raises:
        VstateError: A packed or unknown type, whose pages are no plain elements.
    """
    if asked == "auto":
        return model_dtype
    if asked not in CACHE_DTYPES:
        raise VstateError(f"cache type {asked!r} is not known here; give auto, {', '.join(CACHE_DTYPES)}")
    return CACHE_DTYPES[asked]
