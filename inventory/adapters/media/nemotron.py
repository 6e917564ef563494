"""Nemotron Omni: images of any size or in tiles and videos of tubelets (C-RADIO), sounds (Parakeet).

Sources: vLLM 0.32 ``model_executor/models/nano_nemotron_vl.py``, ``transformers_utils/processors/nano_nemotron_vl.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from vstate.inventory.adapters.decoder import element_bytes
from vstate.inventory.adapters.media.encoder import (
    Encoder,
    encoder_share,
    encoder_weights,
    layer_norm,
    linear,
    takes,
)
from vstate.inventory.adapters.media.items import check_item
from vstate.inventory.adapters.media.nemotron_pixels import DynamicImages, Frames, TiledImages
from vstate.inventory.adapters.media.parakeet import Clips, parakeet_bytes, parakeet_projector_elements
from vstate.inventory.adapters.media.radio import radio_bytes
from vstate.inventory.adapters.media.resize import Size
from vstate.inventory.adapters.media.words import ASSUMED_WORDS, TextTokens, text_tokens
from vstate.inventory.adapters.plan import Expansion, MediaItem, MediaRules
from vstate.inventory.adapters.reading import ConfigReader
from vstate.inventory.adapters.registry import Context
from vstate.inventory.dtypes import dtype_bytes
from vstate.schemas.workload import MediaKind

MARKS = 2
"""Tokens around the rows of an image, of a tubelet and of a sound."""
NUMBER_BYTES = 8
"""Counts, and the places of frames, are 64-bit integers."""


def encoder(reader: ConfigReader, context: Context) -> Encoder:
    """Say what the encoder of a model with this configuration is.

    Raises:
        VstateError: A field is missing, or the backbone is unknown.
    """
    text = reader.part("text_config", "llm_config")
    width = _element_bytes(reader, text, context)
    rules = _rules(reader, text, context)
    if not takes(context, "image", "video", "audio"):
        return Encoder((), rules)
    tower = radio_bytes(reader.part("vision_config"), encoder_share(context, reader.model), width)
    projector = _projector_elements(reader, text)
    if "sound_config" in reader:
        sound = reader.part("sound_config")
        tower += parakeet_bytes(sound, width)
        projector += parakeet_projector_elements(sound, text.integer("hidden_size"))
    return Encoder(encoder_weights(tower, projector * width), rules)


def _element_bytes(reader: ConfigReader, text: ConfigReader, context: Context) -> int:
    """Return the bytes of an element of the towers: of the configuration's type, whatever the engine's is."""
    said = next((part.text("dtype", "torch_dtype") for part in (text, reader) if _states_type(part)), context.dtype)
    return dtype_bytes(said)


def _states_type(part: ConfigReader) -> bool:
    return "dtype" in part or "torch_dtype" in part


def _projector_elements(reader: ConfigReader, text: ConfigReader) -> int:
    """Return the elements of ``mlp1``, and of the norm before it that models with a native draft have."""
    vision = reader.integer("vit_hidden_size")
    inputs = vision * round(1 / reader.number("downsample_ratio")) ** 2
    inner = reader.integer("projector_hidden_size")
    elements = inputs + linear(inputs, inner, bias=False) + linear(inner, text.integer("hidden_size"), bias=False)
    return elements + (layer_norm(vision) if text.get("num_nextn_predict_layers", 0) else 0)


@dataclass(frozen=True)
class NemotronRules(MediaRules):
    """Images become rows of shuffled pixels, groups of frames a tubelet each, sounds a row for eight windows.

    Attributes:
        model: How errors name the model.
        images: How images are brought to a size.
        frames: How the frames of a video are.
        clips: How sounds are cut; None for a model that takes none.
        value_bytes: Bytes of one value on the host.
        kinds: Kinds of media that the model takes.
        text_tokens: Counts the tokens of what stands before each tubelet.
        assumed: What the rules rest on that no file says.
    """

    model: str
    images: DynamicImages | TiledImages
    frames: Frames
    clips: Clips | None
    value_bytes: int
    kinds: tuple[MediaKind, ...]
    text_tokens: TextTokens = text_tokens
    assumed: tuple[str, ...] = (ASSUMED_WORDS,)

    def expand(self, item: MediaItem) -> Expansion:
        """Return the rows of an item with its marks; all tokens of a video, its words too, are the encoder's rows."""
        check_item(item, self.kinds, self.model)
        if item.kind == "video":
            each = self.frames.rows(Size(item.width, item.height)) + MARKS
            tokens = sum(self.text_tokens(text) + each for text in self.frames.texts(item))
            return Expansion(tokens, tokens)
        rows = self._sounds.rows(item) if item.kind == "audio" else self.images.rows(Size(item.width, item.height))
        return Expansion(rows + MARKS, rows)

    def largest_rows(self, max_model_len: int) -> Mapping[MediaKind, int]:
        """Return the rows of the largest image; a video or a sound may be as long as the context."""
        rows: dict[MediaKind, int] = dict.fromkeys(self.kinds, max_model_len)
        rows["image"] = self.images.most_rows(max_model_len)
        return rows

    def host_bytes(self, item: MediaItem) -> int:
        """Return the bytes of an item's pixels or spectra, and of the numbers beside them."""
        check_item(item, self.kinds, self.model)
        size = Size(item.width, item.height)
        if item.kind == "audio":
            return self._sounds.host_bytes(item, self.value_bytes)
        if item.kind == "video":
            pixels = item.frames * self.frames.values(size)
            return pixels * self.value_bytes + (2 + item.frames) * NUMBER_BYTES
        return self.images.values(size) * self.value_bytes + self.images.counts * NUMBER_BYTES

    @property
    def _sounds(self) -> Clips:
        assert self.clips is not None, "a sound was refused where there are no clips"
        return self.clips


def _rules(reader: ConfigReader, text: ConfigReader, context: Context) -> NemotronRules:
    longest = context.settings.max_model_len or text.integer("max_position_embeddings")
    dynamic = "min_num_patches" in reader.part("vision_config").part("args")
    sound = "sound_config" in reader
    return NemotronRules(
        model=reader.model,
        images=DynamicImages.read(reader, longest) if dynamic else TiledImages.read(reader),
        frames=Frames.read(reader),
        clips=Clips.read(reader.part("sound_config")) if sound else None,
        value_bytes=element_bytes(context),
        kinds=("image", "video", "audio") if sound else ("image", "video"),
    )
