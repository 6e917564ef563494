"""MiMo's encoder of sounds: embeddings of codes, a small Qwen2, a projection; every rank has it whole.

The tokenizer that makes the codes is a checkpoint of its own in the model's folder, of which a configuration says
nothing: its weights are not counted.

Sources: vLLM 0.32 ``model_executor/models/mimo_audio.py``; transformers ``models/qwen2/modeling_qwen2.py``.
"""

from __future__ import annotations

from vstate.inventory.adapters.media.encoder import linear
from vstate.inventory.adapters.reading import ConfigReader
from vstate.schemas.errors import VstateError

WORDS = 151936
"""Vocabulary of a ``Qwen2Config`` that states none; the model is built with its embedding and never uses it."""
FREQUENCY_BYTES = 4
FREQUENCY_TABLES = 2
"""A rotary embedding keeps its frequencies and a copy of them, in float32."""
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
    if layers == 2:  # noqa: PLR2004
        return linear(inputs, 4 * inputs, bias=False) + linear(4 * inputs, out, bias=False)
    raise VstateError(f"{audio.model}: {audio.place}projection_layers is {layers}; vLLM builds 1 or 2")
