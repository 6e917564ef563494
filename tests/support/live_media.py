"""Runs the real processors of models that take media, and writes down what they make of items of many sizes.

usage: python live_media.py ANSWER < CASES, where CASES is a JSON object of {name: MediaCase} and ANSWER is a file

A MediaCase has ``model``, ``settings`` and ``config`` as a case of live_shapes has, and ``files`` (files of the
processor that are written anew, or taken away where the value is null), ``placeholders`` (token ids of one item by
kind), ``rate`` (samples per second of its sounds), and ``items`` (see `item_of`).
"""

import json
import os
import sys
import tempfile
from pathlib import Path

import numpy as np

from support.live_shapes import change
from vstate.inventory.adapters.plan import MediaItem
from vstate.inventory.tensors import tensors_in, view_bytes
from vstate.tracer.engines.request import RunRequest
from vstate.tracer.engines.resolve import resolve_model


def item_of(text):
    """Read an item: ``image:WIDTHxHEIGHT``, ``video:WIDTHxHEIGHTxFRAMES@RATE`` or ``audio:SECONDS``."""
    kind, _, size = text.partition(":")
    if kind == "audio":
        return MediaItem(kind, seconds=float(size))
    size, _, rate = size.partition("@")
    width, height, *frames = map(int, size.split("x"))
    return MediaItem(kind, width, height, *frames, frames_per_second=float(rate or 2))


def media_folder(case, scratch):
    """Write the folder of a case and return what its engine would be given."""
    request = RunRequest(
        model=case["model"],
        workload="none",
        out=scratch,
        seed=0,
        settings={"num_gpu_blocks_override": 65536} | case.get("settings", {}),
        own_process=False,
        engine="scheduler",
    )
    resolved = resolve_model(request, scratch)
    folder = Path(resolved.location)
    change(folder / "config.json", case.get("config", {}))
    for name, value in case.get("files", {}).items():
        (folder / name).unlink(missing_ok=True)
        if value is not None:
            (folder / name).write_text(json.dumps(value), encoding="utf-8")
    return resolved


def content(item, rate):
    """Return an item as vLLM takes it; nothing is in it."""
    if item.kind == "audio":
        return np.zeros(max(1, round(item.seconds * rate)), np.float32), rate
    shape = (item.height, item.width, 3)
    if item.kind == "image":
        from PIL import Image

        return Image.fromarray(np.zeros(shape, np.uint8))
    metadata = {
        "fps": item.frames_per_second,
        "duration": item.frames / item.frames_per_second,
        "total_num_frames": item.frames,
        "frames_indices": list(range(item.frames)),
        "video_backend": "opencv",
        "do_sample_frames": False,
    }
    return np.zeros((item.frames, *shape), np.uint8), metadata


class Spectrum:
    """What torchaudio's ``MelSpectrogram`` makes of a waveform, by shape: windows of ``torch.stft``."""

    def __init__(self, n_fft, hop_length, win_length, n_mels, center, **_):
        self._stft = {"n_fft": n_fft, "hop_length": hop_length, "win_length": win_length, "center": center}
        self._mels = n_mels

    def __call__(self, waveform):
        import torch

        window = torch.ones(self._stft["win_length"])
        windows = torch.stft(waveform, window=window, return_complex=True, **self._stft).shape[-1]
        return torch.zeros(waveform.shape[0], self._mels, windows)


class Words:
    """A tokenizer for which a run without spaces is one word: the local ones of some models leave words out."""

    def encode(self, text, **_):
        return [3] * len(text.split())


def count_words_between_frames(qwen3_vl):
    """Have the moments between frames of Qwen's videos encoded by `Words`."""
    processor = qwen3_vl.Qwen3VLMultiModalProcessor
    stated = processor.get_video_repl
    processor.get_video_repl = staticmethod(lambda **given: stated(**given | {"tokenizer": Words()}))


def processed(processor, case, text):
    """Process an item that is alone in its request."""
    from vllm.multimodal.processing import ProcessorInputs, TimingContext

    item = item_of(text)
    kind = item.kind
    try:
        items = processor.info.parse_mm_data({kind: [content(item, case.get("rate", 0))]})
        inputs = ProcessorInputs([*case["placeholders"][kind]], items)
        done = processor.apply(inputs, TimingContext(enabled=False))
    except Exception as error:  # an item that is refused is an answer
        return {"error": f"{type(error).__name__}: {error}"[-500:]}
    (place,) = done["mm_placeholders"][kind]
    (data,) = done["mm_kwargs"][kind]
    return {
        "tokens": place.length,
        "rows": place.get_num_embeds(),
        "bytes": view_bytes(tensors_in(data)),
        "rows_of_shapes": rows_of_shapes(processor, data),
    }


def rows_of_shapes(processor, data):
    """Return the rows that the encoder makes of the tiles that an item has, where an item says their shapes."""
    if "spatial_shapes" not in data:
        return None
    square = processor.info.get_image_processor().downsample_factor ** 2
    return int(data["spatial_shapes"].data.prod(-1).sum()) // square


def answer(case):
    """Process the items of a case."""
    from vllm import EngineArgs
    from vllm.multimodal import MULTIMODAL_REGISTRY
    from vllm.multimodal.encoder_budget import get_mm_max_toks_per_item

    with tempfile.TemporaryDirectory() as scratch:
        resolved = media_folder(case, Path(scratch))
        config = EngineArgs(model=resolved.location, **resolved.arguments).create_engine_config()
        processor = MULTIMODAL_REGISTRY.create_processor(config.model_config)
        active = [kind for kind in processor.info.supported_mm_limits if processor.info.allowed_mm_limits.get(kind, 0)]
        return {
            "largest": dict(get_mm_max_toks_per_item(processor, dict.fromkeys(active, 1), None)),
            "items": {text: processed(processor, case, text) for text in case["items"]},
        }


def main():
    os.environ |= {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_LEVEL": "ERROR"}
    os.dup2(2, 1)
    from vllm.model_executor.models import qwen3_vl
    from vllm.transformers_utils.processors import mimo_v2_omni

    mimo_v2_omni._MelSpectrogram = Spectrum
    count_words_between_frames(qwen3_vl)
    cases = json.load(sys.stdin)
    found = {name: answer(case) for name, case in cases.items()}
    Path(sys.argv[1]).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
