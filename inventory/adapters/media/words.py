"""Counts the tokens of the short texts that processors write between the frames of a video."""

from __future__ import annotations

import re
from collections.abc import Callable

TextTokens = Callable[[str], int]
"""Counts the tokens of a text."""

PIECES = re.compile(r" ?[A-Za-z]+|[0-9]| ?[^\sA-Za-z0-9]+|\s+")

ASSUMED_WORDS = "texts between frames take a token per word, digit and mark, as the publishers' tokenizers split them"


def text_tokens(text: str) -> int:
    """Return the tokens of an English text where each word, digit and mark is one.

    Words take the space before them along. So the vocabularies of Qwen and Mistral (Tekken) split these texts.
    """
    return len(PIECES.findall(text))
