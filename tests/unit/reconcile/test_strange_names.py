"""Ids come from clients: they may be as long as they like, and hold what steers a terminal."""

from collections.abc import Callable
from io import StringIO

import pytest
from rich.console import Console

from support.small import one_request
from support.traces import process_manifest
from vstate.reconcile.table import printable, render_summary
from vstate.schemas.summary import Summary

LONG = "a" * 10_000


@pytest.mark.parametrize(
    ("request_id", "shown"),
    [
        ("two\nlines", r"request two\nlines ended in step"),
        ("\x1b[2J\r\x00gone", r"request \x1b[2J\r\x00gone ended in step"),
        ("right\u202eleft\u2028", r"request right\u202eleft\u2028 ended in step"),
        ("[bold]no markup[/]", "request [bold]no markup[/] ended in step"),
        (f"{LONG}-end", f"request {'a' * 80}...{'a' * 16}-end ended in step"),
        ("größe 大", "request größe 大 ended in step"),
    ],
    ids=["newline", "escape", "direction", "markup", "long", "plain"],
)
def test_a_finding_names_a_request_on_one_line(summarise: Callable[..., Summary], request_id: str, shown: str) -> None:
    rows = one_request(kept=(3,))
    named = [row.changed(value=request_id) if row.table == "names" else row for row in rows]
    summary = summarise(named, process_manifest())
    out = StringIO()
    Console(file=out, width=10_000, force_terminal=False).print(render_summary(summary))
    told = [line for line in out.getvalue().splitlines() if "I3" in line]
    assert len(told) == 1
    assert shown in told[0]
    assert all(character.isprintable() or character == "\n" for character in out.getvalue())


def test_what_is_plain_stays_as_it_is() -> None:
    assert printable("chatcmpl-1234 größe") == "chatcmpl-1234 größe"
