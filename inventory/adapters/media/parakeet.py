"""The Parakeet encoder of sounds and its projector; every rank has both whole.

Sources: vLLM 0.32 ``model_executor/models/parakeet.py``, ``transformers_utils/configs/parakeet.py``; transformers
``models/parakeet/modeling_parakeet.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log2
from typing import Self

from vstate.inventory.adapters.media.encoder import layer_norm, linear
from vstate.inventory.adapters.media.items import samples
from vstate.inventory.adapters.plan import MediaItem
from vstate.inventory.adapters.reading import ConfigReader

COUNTER_BYTES = 8
"""A batch norm counts its batches in one 64-bit integer."""
NORMS = 5
"""Layer norms of a block: before each of its four parts, and at its end."""
BATCH_NORM = 4
"""Vectors of a batch norm: scale, shift, running mean and variance."""
CLIP_SECONDS, TAIL_SECONDS = 30, 0.1
"""Longest clip, and shortest, to which silence is added (``ExtractorConfig``)."""
NUMBER_BYTES = 8


def parakeet_bytes(sound: ConfigReader, width: int) -> int:
    """Return the bytes of the encoder (``ParakeetEncoder``), whose attention vLLM builds without biases.

    Args:
        sound: The encoder's configuration.
        width: Bytes of one element.

    Raises:
        VstateError: A field is missing.
    """
    hidden, layers = sound.integer("hidden_size"), sound.integer("num_hidden_layers")
    frequencies = hidden // 2
    elements = _subsampling_elements(sound, hidden) + frequencies + layers * _block_elements(sound, hidden)
    return elements * width + layers * COUNTER_BYTES


def parakeet_projector_elements(sound: ConfigReader, out: int) -> int:
    """Return the elements of ``ParakeetProjection``, which hands rows of ``out`` elements on."""
    hidden, inner = sound.integer("hidden_size"), sound.integer("projection_hidden_size")
    bias = sound.get("projection_bias", False)
    return hidden + linear(hidden, inner, bias=bias) + linear(inner, out, bias=bias)


def _subsampling_elements(sound: ConfigReader, hidden: int) -> int:
    """Return the elements of the strided convolutions: one over the spectrum, then pairs per channel and across."""
    channels, kernel = sound.get("subsampling_conv_channels", 256), sound.get("subsampling_conv_kernel_size", 3)
    steps = int(log2(sound.get("subsampling_factor", 8)))
    bins = sound.get("num_mel_bins", 80) // sound.get("subsampling_conv_stride", 2) ** steps
    per_channel = linear(kernel * kernel, channels)
    return per_channel + (steps - 1) * (per_channel + linear(channels, channels)) + linear(channels * bins, hidden)


def _block_elements(sound: ConfigReader, hidden: int) -> int:
    """Return the elements of a block: feed-forward, attention by relative positions, convolution, feed-forward."""
    feed_forward = 2 * hidden * sound.integer("intermediate_size")
    size = hidden // sound.integer("num_attention_heads") * sound.integer("num_attention_heads")
    attention = 5 * hidden * size + 2 * size
    bias = sound.get("convolution_bias", True)
    convolution = linear(hidden, 2 * hidden, bias=bias) + linear(hidden, hidden, bias=bias)
    convolution += linear(sound.get("conv_kernel_size", 9), hidden, bias=bias) + BATCH_NORM * hidden
    return 2 * feed_forward + attention + convolution + NORMS * layer_norm(hidden)


@dataclass(frozen=True)
class Clips:
    """Sounds cut into clips, whose spectra are thinned out (``ParakeetExtractor``).

    Attributes:
        rate: Samples per second.
        hop: Samples from one window of the spectrum to the next.
        bins: Values of a window.
        steps: Convolutions that thin windows out.
        kernel: Windows that each of them looks at.
        stride: How many times it thins them out.
    """

    rate: int
    hop: int
    bins: int
    steps: int
    kernel: int
    stride: int

    @classmethod
    def read(cls, sound: ConfigReader) -> Self:
        """Read how sounds are cut.

        Raises:
            VstateError: A field is missing.
        """
        return cls(
            rate=sound.integer("sampling_rate"),
            hop=sound.get("hop_length", 160),
            bins=sound.integer("num_mel_bins"),
            steps=int(log2(sound.integer("subsampling_factor"))),
            kernel=sound.integer("subsampling_conv_kernel_size"),
            stride=sound.integer("subsampling_conv_stride"),
        )

    def rows(self, item: MediaItem) -> int:
        """Return the rows of a sound."""
        return max(1, sum(self._thinned(size // self.hop) for size in self._sizes(item)))

    def host_bytes(self, item: MediaItem, value_bytes: int) -> int:
        """Return the bytes of a sound's spectra, each clip's padded to the longest, of what is padding, of a count."""
        sizes = self._sizes(item)
        windows = len(sizes) * (1 + max(sizes) // self.hop)
        return windows * (self.bins * value_bytes + 1) + NUMBER_BYTES

    def _sizes(self, item: MediaItem) -> list[int]:
        """Return the samples of each clip."""
        longest, shortest = round(CLIP_SECONDS * self.rate), round(TAIL_SECONDS * self.rate)
        whole, rest = divmod(max(samples(item, self.rate), shortest), longest)
        return [longest] * whole + ([max(rest, shortest)] if rest else [])

    def _thinned(self, windows: int) -> int:
        for _ in range(self.steps):
            windows = (windows + (self.kernel - 1) // 2 * 2 - self.kernel) // self.stride + 1
        return windows
