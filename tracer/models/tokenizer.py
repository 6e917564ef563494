"""The tokenizer of a tiny multimodal model: one word per token id, made up on the spot.

Processors of multimodal models ask a tokenizer for their special tokens and encode a few
words with it. Prompts are token ids, so that any words will do.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

COMMON_TOKENS = {0: "<pad>", 1: "<eos>", 2: "<bos>", 3: "<unk>"}


def write_tokenizer(folder: Path, vocabulary: int, special_tokens: dict[int, str], names: dict[str, str]) -> None:
    """Write the tokenizer's files into ``folder``.

    Args:
        folder: The model's folder.
        vocabulary: Token ids are below it.
        special_tokens: Tokens that are found in a text whatever stands around them.
        names: Attributes of the tokenizer that hold special tokens, such as ``image_token``.
    """
    special = COMMON_TOKENS | special_tokens
    words = {special.get(token, f"w{token}"): token for token in range(vocabulary)}
    tokenizer: dict[str, Any] = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_added_token(token, text) for token, text in sorted(special.items())],
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": words, "unk_token": COMMON_TOKENS[3]},
    }
    settings: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "pad_token": COMMON_TOKENS[0],
        "eos_token": COMMON_TOKENS[1],
        "bos_token": COMMON_TOKENS[2],
        "unk_token": COMMON_TOKENS[3],
        "extra_special_tokens": names,
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")


def _added_token(token: int, text: str) -> dict[str, Any]:
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {"id": token, "content": text, "special": True} | plain
