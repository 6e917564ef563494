"""Encoders worked out from the configuration of a case of media, and what vLLM made of the same case."""

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from support.encoders import encoder_of
from support.live_media import item_of, media_folder
from vstate.inventory.serving import ServingSettings
from vstate.schemas.errors import VstateError

TESTS = Path(__file__).resolve().parent.parent


def run_processors(cases, answer):
    """Run the processors of all cases in a process of its own, which writes the file ``answer``."""
    path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    done = subprocess.run(
        [sys.executable, "-m", "support.live_media", str(answer)],
        input=json.dumps(cases),
        env=os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(answer.read_text(encoding="utf-8"))


def words(text):
    """Count tokens as the made-up tokenizer of the local models does: a run without spaces is one unknown word."""
    return len(text.split())


def static_encoder(case):
    """Return the encoder of a case; texts are counted as the local tokenizer splits them."""
    with tempfile.TemporaryDirectory() as scratch:
        resolved = media_folder(case, Path(scratch))
        folder = Path(resolved.location)
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        settings = ServingSettings.from_arguments(resolved.arguments, folder)
    encoder = encoder_of(case["model"], config, settings)
    if hasattr(encoder.rules, "text_tokens"):
        encoder = replace(encoder, rules=replace(encoder.rules, text_tokens=words))
    return encoder, settings


def static_item(rules, text):
    """Return what the rules say of an item, in the form of an answer of live_media."""
    item = item_of(text)
    try:
        expansion = rules.expand(item)
        return {"tokens": expansion.tokens, "rows": expansion.rows, "bytes": rules.host_bytes(item)}
    except VstateError as error:
        return {"error": str(error)}


def differing_items(case, answer):
    """Return the items of which the rules say another thing than the processor; that both refuse is no difference.

    The processor refuses no image whose tiles vLLM counts and does not cut: the rules must.
    """
    rules = static_encoder(case)[0].rules
    found = {}
    for text, live in answer["items"].items():
        static = static_item(rules, text)
        uncut = live.pop("rows_of_shapes", None) not in (None, live.get("rows"))
        if "error" in static and ("error" in live or uncut):
            continue
        if static != live or uncut:
            found[text] = (static, live)
    return found
