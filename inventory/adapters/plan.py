"""What an adapter says of a model: its layers with their state, its weights, its media. One rank's share of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import prod

from vstate.inventory.dtypes import dtype_bytes
from vstate.schemas.vocabulary import Owner, StateClass
from vstate.schemas.workload import MediaKind


class Kernel(StrEnum):
    """Which kind of kernel reads a cache; blocks are aligned to what it takes (`PlatformProfile`)."""

    ATTENTION = "attention"
    UNEQUAL = "unequal"
    LATENT = "latent"
    SPARSE_LATENT = "sparse_latent"
    INDEX = "index"


@dataclass(frozen=True)
class AttentionLayer:
    """A layer that keeps something of every token.

    Attributes:
        name: The layer's name in vLLM.
        state_class: ``full_kv``, ``sliding_kv``, ``latent_kv``, ``sparse_index`` or ``cross_kv``.
        heads: Key-value heads of one rank; 1 for a latent.
        key_size: Elements of a key, or of the latent with its rotary part.
        value_size: Elements of a value; 0 where there is none of its own.
        dtype: Element type.
        owner: Whose layer it is.
        window_tokens: Sliding window; 0 for none.
        chunk_tokens: Chunk of chunked local attention; 0 for none.
        kernel: What reads it.
    """

    name: str
    state_class: StateClass
    heads: int
    key_size: int
    value_size: int
    dtype: str
    owner: Owner = Owner.TARGET
    window_tokens: int = 0
    chunk_tokens: int = 0
    kernel: Kernel = Kernel.ATTENTION

    @property
    def token_bytes(self) -> int:
        """Bytes of one token: keys and values of all heads."""
        return self.heads * (self.key_size + self.value_size) * dtype_bytes(self.dtype)


@dataclass(frozen=True)
class StatePart:
    """One tensor of a layer's whole state, as (shape, element type)."""

    state_class: StateClass
    shape: tuple[int, ...]
    dtype: str

    @property
    def bytes(self) -> int:
        """Bytes of the tensor."""
        return prod(self.shape) * dtype_bytes(self.dtype)


@dataclass(frozen=True)
class StateLayer:
    """A layer that keeps one whole state of a request, never anything per token.

    Attributes:
        name: The layer's name in vLLM.
        parts: Its tensors, convolution tails first.
        owner: Whose layer it is.
        checkpoint_blocks: States that a prefill may export from inside a chunk.
    """

    name: str
    parts: tuple[StatePart, ...]
    owner: Owner = Owner.TARGET
    checkpoint_blocks: int = 0

    @property
    def state_bytes(self) -> int:
        """Bytes of one state, all its parts."""
        return sum(part.bytes for part in self.parts)


Layer = AttentionLayer | StateLayer


@dataclass(frozen=True)
class Weights:
    """Weights of one part of the deployment, in bytes: parameters and buffers as they are built, before loading.

    Attributes:
        owner: Whose they are.
        part: Empty, or ``tower`` or ``projector`` of an encoder.
        bytes: Bytes on one rank.
        shared_bytes: Bytes that a draft is built with and gives up for the target's own when weights are loaded.
    """

    owner: Owner
    part: str
    bytes: int
    shared_bytes: int = 0


@dataclass(frozen=True)
class RotaryTable:
    """A table of cosines and sines. Layers and drafts that ask for the same parameters get the same one (``get_rope``).

    Attributes:
        head: Size of a head.
        rotary: Elements of it that are turned.
        positions: Rows.
        parameters: Angle and scaling, as text.
        bytes: Bytes of the table.
    """

    head: int
    rotary: int
    positions: int
    parameters: str
    bytes: int


@dataclass(frozen=True)
class MediaItem:
    """One item of media as a processor would see it.

    Attributes:
        kind: Its kind.
        width: Of an image or a frame, in pixels.
        height: Of an image or a frame, in pixels.
        frames: Frames of a video, as a loader hands them on.
        seconds: Length of a sound.
        frames_per_second: Rate at which those frames follow each other; processors write moments between frames.
    """

    kind: MediaKind
    width: int = 0
    height: int = 0
    frames: int = 0
    seconds: float = 0.0
    frames_per_second: float = 2.0


@dataclass(frozen=True)
class Expansion:
    """What one item becomes in the place of its placeholder (``PlaceholderRange``).

    Attributes:
        tokens: Tokens of the prompt.
        rows: Those of them that are rows of an encoder's output, which the encoder cache counts.
    """

    tokens: int
    rows: int


class MediaRules:
    """How the items of a model's media expand. A family subclasses it.

    Attributes:
        kinds: Kinds of media that the model takes.
        assumed: What the rules rest on that neither configuration nor processor files say.
    """

    kinds: tuple[MediaKind, ...] = ()
    assumed: tuple[str, ...] = ()

    def expand(self, item: MediaItem) -> Expansion:
        """Return what one item becomes that is alone in its request.

        Raises:
            VstateError: The model takes no such item.
        """
        raise NotImplementedError

    def largest_rows(self, max_model_len: int) -> Mapping[MediaKind, int]:
        """Return per kind what vLLM takes for the most rows of one item; the encoder cache is at least that large."""
        raise NotImplementedError

    def host_bytes(self, item: MediaItem) -> int:
        """Return the bytes of an item's tensors where processed media are kept on the host; ``modelled``.

        The cache that keeps them books a little more: what Python takes for numbers and lists beside the tensors.

        Raises:
            VstateError: The model takes no such item.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class ModelPlan:
    """What an adapter says of a model on one rank.

    Attributes:
        layers: Layers that keep state, in the order in which vLLM registers them; a draft's come last.
        weights: Weights by part.
        max_positions: Longest context that the configuration states.
        hidden_size: Width of one row that an encoder hands to the language model.
        block_heads: Key-value heads by which a hybrid's block is sized (``ModelConfig.get_num_kv_heads``).
        block_head_size: Size of a head by which a hybrid's block is sized (``ModelConfig.get_head_size``).
        media: How media expand; None for a model without.
        draft_modules: Modules of a native draft, each of which reads one token further ahead.
        rotary_tables: Tables of angles that a draft may find and share.
        architecture: What vLLM serves it as, where that is not what the configuration says first.
        assumed: What the plan rests on that the configuration does not say.
    """

    layers: tuple[Layer, ...]
    weights: tuple[Weights, ...]
    max_positions: int
    hidden_size: int
    block_heads: int
    block_head_size: int
    media: MediaRules | None = None
    draft_modules: int = 0
    rotary_tables: tuple[RotaryTable, ...] = ()
    architecture: str = ""
    assumed: tuple[str, ...] = field(default=())

    @property
    def state_layers(self) -> tuple[StateLayer, ...]:
        """Layers that keep whole states."""
        return tuple(layer for layer in self.layers if isinstance(layer, StateLayer))

    @property
    def attention_layers(self) -> tuple[AttentionLayer, ...]:
        """Layers that keep something of every token."""
        return tuple(layer for layer in self.layers if isinstance(layer, AttentionLayer))
