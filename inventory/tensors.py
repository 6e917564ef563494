"""Bytes of real tensors: what is allocated, aliases counted once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any


def tensors_in(value: Any) -> Iterator[Any]:
    """Yield the tensors in nested lists, tuples, dicts and objects that keep theirs in ``data``."""
    if hasattr(value, "untyped_storage"):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from tensors_in(part)
    elif isinstance(value, list | tuple | set):
        for part in value:
            yield from tensors_in(part)
    elif hasattr(value, "data") and not isinstance(value, str | bytes | memoryview):
        yield from tensors_in(value.data)


def storage_bytes(tensors: Iterable[Any]) -> int:
    """Bytes of the storages under ``tensors``, each counted once however many tensors lie in it.

    Tensors without memory (on the meta device) count nothing.
    """
    storages = {}
    for tensor in tensors:
        if not tensor.is_meta:
            storage = tensor.untyped_storage()
            storages[(str(tensor.device), storage.data_ptr())] = storage.nbytes()
    return sum(storages.values())


def view_bytes(tensors: Iterable[Any]) -> int:
    """Bytes of the elements that ``tensors`` show, a view that is given twice counted once."""
    views = {}
    for tensor in tensors:
        place = (str(tensor.device), tensor.data_ptr(), tuple(tensor.shape), tuple(tensor.stride()))
        views[place] = tensor.numel() * tensor.element_size()
    return sum(views.values())


def shape_bytes(tensors: Iterable[Any]) -> int:
    """Bytes by shape and type, the same tensor counted once; on the meta device too."""
    return sum({id(tensor): tensor.numel() * tensor.element_size() for tensor in tensors}.values())
