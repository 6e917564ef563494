"""Processes with an engine in them: started, waited for, asked."""

import socket
import time
import urllib.request
from pathlib import Path

from support.zygote import run_forked
from vstate.tracer.models.tiny import build, tiny_model
from vstate.tracer.models.tokenizer import write_tokenizer

TESTS = Path(__file__).parents[1]
IN_PROCESS = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1"}


def succeeds(arguments, environment, run=run_forked):
    """Run `python ARGUMENTS`, which must end well, and show what it said where it does not."""
    done = run(arguments, environment)
    assert done.returncode == 0, f"{done.returncode}: {done.stdout[-3000:]}{done.stderr[-6000:]}"


def site(folder, *code):
    """Make a folder that has every Python process with it on its path execute ``code`` first."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text("".join(code))
    return folder


def model_to_serve(folder, name):
    """Build a tiny model with a tokenizer, as a server wants it."""
    folder.mkdir()
    build(tiny_model(name), folder)
    if not (folder / "tokenizer.json").exists():
        write_tokenizer(folder, 1024, {}, {})
    return folder


def serve_options(port):
    """Options of a server of a tiny model."""
    options = ["--load-format", "dummy", "--enforce-eager", "--dtype", "bfloat16", "--max-model-len", "1024"]
    return [*options, "--host", "127.0.0.1", "--port", str(port), "--served-model-name", "tiny"]


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def wait_until_up(process, port):
    deadline = time.monotonic() + 200
    while time.monotonic() < deadline:
        assert process.poll() is None, "the server ended before it was up"
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2)
            return
        except OSError:
            time.sleep(0.5)
    raise AssertionError("the server never came up")
