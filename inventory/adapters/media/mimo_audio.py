"""MiMo's encoder of sounds: embeddings of codes, a small Qwen2, a projection; every rank has it whole.

The tokenizer that makes the codes is a checkpoint of its own in the model's folder, of which a configuration says
nothing: its weights are not counted.

Sources: vLLM 0.32 ``model_executor/models/mimo_audio.py``, ``transformers_utils/processors/mimo_v2_omni.py``;
transformers ``models/qwen2/modeling_qwen2.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from vstate.inventory.adapters.media.encoder import linear
from vstate.inventory.adapters.media.items import samples
from vstate.inventory.adapters.plan import MediaItem
from vstate.inventory.adapters.reading import ConfigReader
from vstate.schemas.errors import VstateError

WORDS = 151936
"""Vocabulary of a ``Qwen2Config`` that states none; the model is built with its embedding and never uses it."""
FREQUENCY_BYTES = 4
FREQUENCY_TABLES = 2
"""A rotary embedding keeps its frequencies and a copy of them, in float32."""
DOUBLE_PROJECTION = 2
HOP, BINS, WINDOW = 240, 128, 960
KERNEL, STRIDE, POOLED, GROUPED = 3, 2, 2, 4
"""How windows of a spectrum become codes, and codes rows (``MiMoOmniProcessor``, whatever the configuration says)."""
LENGTH_BYTES = 8
SPEECH_WORDS = "1025-1025-129-129-129-129-129-129"


def audio_bytes(audio: ConfigReader, width: int) -> int:
    """Return the bytes of ``MimoAudioEncoder``, whose fields have defaults in vLLM (``MimoAudioEncoderConfig``).

    Args:
        audio: The encoder's configuration.
        width: Bytes of one element.

    Raises:
        VstateError: A field cannot be read.
    """
    hidden, heads = audio.get("input_local_dim", 1024), audio.get("input_local_attn_heads", 64)
    elements = WORDS * hidden + audio.get("input_local_layers", 6) * _layer_elements(audio, hidden)
    elements += hidden if audio.get("add_post_norm", False) else 0
    elements += sum(_speech_words(audio)) * hidden + _projection_elements(audio, hidden)
    frequencies = hidden // heads // 2
    return elements * width + FREQUENCY_TABLES * frequencies * FREQUENCY_BYTES


def _layer_elements(audio: ConfigReader, hidden: int) -> int:
    attention = 3 * linear(hidden, hidden) + linear(hidden, hidden, bias=False)
    return attention + 3 * hidden * audio.get("input_local_intermediate_size", 4096) + 2 * hidden


def _speech_words(audio: ConfigReader) -> list[int]:
    """Return the sizes of the vocabularies, one for each channel of codes; one number stands for all channels."""
    said, channels = audio.any("speech_vocab_size") or SPEECH_WORDS, audio.get("audio_channels", 8)
    parts = str(said).split("-")
    try:
        sizes = [int(part) for part in parts]
    except ValueError:
        raise VstateError(f"{audio.model}: {audio.place}speech_vocab_size is {said!r}, no sizes with dashes") from None
    return sizes[:channels] if len(sizes) > 1 else sizes * channels


def _projection_elements(audio: ConfigReader, hidden: int) -> int:
    inputs, out = hidden * audio.get("group_size", 4), audio.get("out_hidden_size", 4096)
    layers = audio.get("projection_layers", 1)
    if layers == 1:
        return linear(inputs, out, bias=False)
    if layers == DOUBLE_PROJECTION:
        return linear(inputs, 4 * inputs, bias=False) + linear(4 * inputs, out, bias=False)
    raise VstateError(f"{audio.model}: {audio.place}projection_layers is {layers}; vLLM builds 1 or 2")


@dataclass(frozen=True)
class Sounds:
    """Sounds at one rate, whose spectra are thinned out to codes.

    Attributes:
        rate: Samples per second.
    """

    rate: int

    @classmethod
    def read(cls, reader: ConfigReader, processor: ConfigReader) -> Self:
        """Read the rate: the processor's, else the encoder's, else the processor class's own."""
        rate = processor.get("audio_sampling_rate", 0)
        if not rate and "audio_config" in reader:
            audio = reader.part("audio_config")
            rate = audio.get("sampling_rate", 0) or audio.get("sample_rate", 0)
        return cls(rate or 24000)

    def rows(self, item: MediaItem) -> int:
        """Return the rows of a sound (``preprocess_audio``)."""
        codes = (self._windows(item) + 3 - KERNEL + 2 - KERNEL) // STRIDE + 1
        codes = -(-codes // POOLED)
        return -(-codes // GROUPED)

    def host_bytes(self, item: MediaItem, value_bytes: int) -> int:
        """Return the bytes of a sound's spectrum and of how many rows it becomes."""
        return self._windows(item) * BINS * value_bytes + LENGTH_BYTES

    def _windows(self, item: MediaItem) -> int:
        """Return the windows of a sound, whose ends are mirrored by half a window."""
        count = samples(item, self.rate)
        if count <= WINDOW // 2:
            raise VstateError(
                f"a sound of {item.seconds} s has no half a window of {WINDOW} samples; give a longer one"
            )
        return 1 + count // HOP
