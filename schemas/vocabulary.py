"""The closed vocabularies of vstate: what state is, who owns it, how it lives."""

from __future__ import annotations

from enum import IntEnum, StrEnum

SCHEMA_VERSION = 3
MIB = 1 << 20
GIB = 1 << 30
"""Version of every stream, manifest and summary. A reader refuses another one."""


class StateClass(StrEnum):
    """What a piece of state is. It comes from the layer, never from a spec's kind."""

    FULL_KV = "full_kv"
    SLIDING_KV = "sliding_kv"
    LATENT_KV = "latent_kv"
    RECURRENT = "recurrent"
    CONV = "conv"
    SPARSE_INDEX = "sparse_index"
    CROSS_KV = "cross_kv"
    ENCODER_OUTPUT = "encoder_output"
    PROCESSOR_CACHE = "processor_cache"
    ENCODER = "encoder"
    WEIGHTS = "weights"
    WORKSPACE = "workspace"
    PADDING = "padding"


ATTENTION_CLASSES = frozenset({StateClass.FULL_KV, StateClass.SLIDING_KV, StateClass.LATENT_KV, StateClass.CROSS_KV})
"""Classes that grow with tokens and that a "KV per token" estimate knows about."""

STATE_SLOT_CLASSES = frozenset({StateClass.RECURRENT, StateClass.CONV})
"""Classes that hold one whole state per slot and never grow with tokens."""


class Owner(StrEnum):
    """Which part of the deployment keeps the state."""

    TARGET = "target"
    DRAFT = "draft"
    ENCODER = "encoder"
    FRONTEND = "frontend"


class Unit(StrEnum):
    """What one unit of a component is."""

    TOKEN = "token"
    BLOCK = "block"
    REQUEST = "request"
    ITEM = "item"
    EMBED = "embed"
    ENGINE = "engine"


class Lifetime(StrEnum):
    """How long a unit of state lives."""

    ENGINE = "engine"
    REQUEST = "request"
    WINDOW = "window"
    ITEM = "item"
    CACHE = "cache"


class Mutability(StrEnum):
    """How a unit of state may be written."""

    APPEND_ONLY = "append_only"
    IN_PLACE = "in_place"
    IMMUTABLE = "immutable"


class Eviction(StrEnum):
    """When a unit of state may be dropped."""

    LRU = "lru"
    WINDOW = "window"
    UNTIL_CONSUMED = "until_consumed"
    WITH_DEPENDENTS = "with_dependents"
    NEVER = "never"


class Shareable(StrEnum):
    """Whether two requests with the same prefix may use one copy."""

    ALWAYS = "always"
    AT_BOUNDARY = "at_boundary"
    NEVER = "never"


class Evidence(StrEnum):
    """What stands behind a figure. Reports never drop this label."""

    MEASURED = "measured"
    BOOKED = "booked"
    MODELLED = "modelled"
    ASSUMED = "assumed"


class Holder(IntEnum):
    """Who holds a reference to a block when it is not a live request.

    A ``request_key`` of zero or more names a request. These negative values share
    its column.
    """

    NOT_APPLICABLE = -1
    UNKNOWN = -2
    COPY_ON_WRITE = -3
    DEFERRED_FREE = -4
    PINNED = -5


NOT_APPLICABLE = int(Holder.NOT_APPLICABLE)
"""The value of an integer cell that says nothing in this row."""
