"""A table of Markdown, for the pages that the tools write."""

from __future__ import annotations

from collections.abc import Iterable


def markdown_table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Format a table; its last line ends."""
    first = list(head)
    lines = [first, ["---"] * len(first), *map(list, rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"
