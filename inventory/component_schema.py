"""The Arrow form of an inventory."""

from __future__ import annotations

import pyarrow as pa

from vstate.schemas.table import UNIT_BY_SUFFIX, UNIT_KEY

BYTES = {UNIT_KEY: UNIT_BY_SUFFIX["_bytes"].encode()}
TOKENS = {UNIT_KEY: UNIT_BY_SUFFIX["_tokens"].encode()}


def _bytes(name: str) -> pa.Field:
    return pa.field(name, pa.int64(), nullable=False, metadata=BYTES)


def _text(name: str) -> pa.Field:
    return pa.field(name, pa.string(), nullable=False)


COMPONENT_SCHEMA = pa.schema(
    [
        _text("id"),
        _text("state_class"),
        _text("owner"),
        pa.field("pool", pa.int32(), nullable=False),
        pa.field("group", pa.int32(), nullable=False),
        pa.field("layers", pa.list_(pa.string()), nullable=False),
        _text("dtype"),
        _text("unit"),
        _bytes("useful_bytes_per_unit"),
        _bytes("useful_bytes_per_block"),
        _bytes("charged_bytes_per_block"),
        pa.field("layer_block_bytes", pa.list_(pa.int64()), nullable=False, metadata=BYTES),
        _bytes("engine_bytes"),
        _text("lifetime"),
        _text("mutability"),
        _text("eviction"),
        _text("shareable"),
        pa.field("boundary_tokens", pa.int64(), nullable=False, metadata=TOKENS),
        pa.field("requires", pa.list_(pa.string()), nullable=False),
        _text("evidence"),
    ]
)
"""A row per `StateComponent`, its fields by name."""
