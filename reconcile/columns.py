"""How the rows of a stream look in the cache: named engines, named codes, one row per block."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vstate.schemas.streams import code_indices
from vstate.schemas.table import BLOCKS, Column, Table
from vstate.schemas.tables.block import BLOCK

ENGINE_FIELD = pa.field("engine", pa.int32(), nullable=False)
POSITION_FIELD = pa.field("position", pa.int32(), nullable=False)
BLOCK_FIELD = pa.field("block", pa.int32(), nullable=True)
NAME_TYPE = pa.dictionary(pa.int8(), pa.string())


def cached_schema(table: Table) -> pa.Schema:
    """Return the schema of a table in the cache.

    `engine` comes first; codes are lower-case names. The table `block` has `position` (index in
    the call, from 0) and `block` (null for a call that names none) instead of the list of blocks.
    """
    fields = [ENGINE_FIELD]
    for column in table.columns:
        if table is BLOCK and column is BLOCKS:
            fields += [POSITION_FIELD, BLOCK_FIELD]
        else:
            fields.append(_cached_field(column))
    return pa.schema(fields, metadata=table.schema().metadata)


def cached_batch(table: Table, batch: pa.RecordBatch, engine: int) -> pa.RecordBatch:
    """Turn a batch of a stream into a batch of the cache.

    Raises:
        VstateError: A code has no name in this schema version.
    """
    arrays = {
        column.name: _names(table, column.name, column.codes, batch.column(column.name))
        if column.codes is not None
        else batch.column(column.name)
        for column in table.columns
    }
    rows = batch.num_rows
    if table is BLOCK:
        lists = arrays.pop(BLOCKS.name)
        calls, positions, blocks = _exploded(lists)
        arrays = {name: array.take(calls) for name, array in arrays.items()}
        arrays |= {POSITION_FIELD.name: positions, BLOCK_FIELD.name: blocks}
        rows = len(calls)
    arrays[ENGINE_FIELD.name] = pa.array(np.full(rows, engine, np.int32))
    schema = cached_schema(table)
    return pa.record_batch([arrays[field.name] for field in schema], schema=schema)


def _cached_field(column: Column) -> pa.Field:
    field = column.field()
    return field if column.codes is None else field.with_type(NAME_TYPE).remove_metadata()


def _names(table: Table, column: str, codes: type[IntEnum], values: pa.Array) -> pa.Array:
    indices = code_indices(table.name, column, codes, values)
    names = pa.array([code.name.lower() for code in codes])
    return pa.DictionaryArray.from_arrays(indices.cast(pa.int8()), names)


def _exploded(lists: pa.ListArray) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Return for each block its call and its position; a call without blocks keeps one row."""
    lengths = pc.list_value_length(lists).to_numpy(zero_copy_only=False)
    rows_per_call = np.maximum(lengths, 1)
    first_rows = np.cumsum(rows_per_call) - rows_per_call
    calls = np.repeat(np.arange(len(lengths)), rows_per_call)
    positions = np.arange(len(calls)) - first_rows[calls]
    empty = lengths[calls] == 0
    blocks = np.zeros(len(calls), np.int32)
    blocks[~empty] = lists.flatten().to_numpy(zero_copy_only=False)
    return pa.array(calls), pa.array(positions.astype(np.int32)), pa.array(blocks, mask=empty)
