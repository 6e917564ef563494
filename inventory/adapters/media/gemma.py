"""Gemma 3 with SigLIP: images of one size, pooled to a fixed number of rows.

Pan and scan is off: vLLM hands the processor its class's own choice, whatever a file says.

Sources: vLLM 0.32 ``model_executor/models/gemma3_mm.py``, ``siglip.py``; transformers
``models/gemma3/processing_gemma3.py``, ``image_processing_gemma3.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from vstate.inventory.adapters.decoder import element_bytes
from vstate.inventory.adapters.media import files
from vstate.inventory.adapters.media.encoder import Encoder, encoder_share, encoder_weights, takes
from vstate.inventory.adapters.media.items import check_item
from vstate.inventory.adapters.media.siglip import siglip_elements
from vstate.inventory.adapters.plan import Expansion, MediaItem, MediaRules
from vstate.inventory.adapters.reading import ConfigReader
from vstate.inventory.adapters.registry import Context
from vstate.schemas.errors import VstateError
from vstate.schemas.workload import MediaKind

POSITION_BYTES = 8
"""Each position has its number in a buffer of 64-bit integers."""
CHANNELS = 3
MARKS = 4
"""Tokens around the rows: two blank lines, one before and one after, a start and an end."""
COUNT_BYTES = 8
"""An item says of how many pieces it is, in a 64-bit integer."""


def encoder(reader: ConfigReader, context: Context) -> Encoder:
    """Say what the encoder of a model with this configuration is.

    Raises:
        VstateError: A field is missing, or the heads cannot be shared by the ranks.
    """
    vision, width = reader.part("vision_config"), element_bytes(context)
    rules = _rules(reader, context)
    if not takes(context, *rules.kinds):
        return Encoder((), rules)
    positions = (vision.integer("image_size") // vision.integer("patch_size")) ** 2
    tower = siglip_elements(vision, encoder_share(context, reader.model), positions)
    hidden = vision.integer("hidden_size")
    projector = hidden * reader.part("text_config").integer("hidden_size") + hidden
    weights = encoder_weights(tower * width + positions * POSITION_BYTES, projector * width)
    return Encoder(weights, rules)


@dataclass(frozen=True)
class GemmaRules(MediaRules):
    """Every image becomes as many rows.

    Attributes:
        model: How errors name the model.
        rows: Rows of an image.
        pixels: Pixels that an image is brought to.
        value_bytes: Bytes of one value of a pixel on the host.
    """

    model: str
    rows: int
    pixels: int
    value_bytes: int
    kinds: tuple[MediaKind, ...] = ("image",)

    def expand(self, item: MediaItem) -> Expansion:
        """Return the rows of an image with the marks around them."""
        check_item(item, self.kinds, self.model)
        return Expansion(self.rows + MARKS, self.rows)

    def largest_rows(self, max_model_len: int) -> Mapping[MediaKind, int]:
        """Return the rows of an image."""
        return {"image": self.rows}

    def host_bytes(self, item: MediaItem) -> int:
        """Return the bytes of an image's pixels, and of how many pieces it is."""
        check_item(item, self.kinds, self.model)
        return CHANNELS * self.pixels * self.value_bytes + COUNT_BYTES


def _rules(reader: ConfigReader, context: Context) -> GemmaRules:
    rows = files.processor(context, reader.model).get("image_seq_length", 256)
    if (built := reader.get("mm_tokens_per_image", 256)) != rows:
        raise VstateError(f"{reader.model}: {files.PROCESSOR} asks for {rows} rows an image, the model makes {built}")
    images = files.image_processor(context, reader.model)
    pixels = 224 * 224
    if "size" in images:
        size = images.part("size")
        pixels = size.integer("height") * size.integer("width")
    return GemmaRules(reader.model, rows, pixels, element_bytes(context))
