"""Makes the run that `vstate demo` shows: traced on the real engine here, without what names this machine.

usage: python tools/sample_run.py

It needs vLLM and takes a minute. Run it when the trace schema has changed; what the sample must be is
a test (tests/unit/cli/test_demo.py).
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa

SAMPLE = Path(__file__).resolve().parent.parent / "src" / "vstate" / "sample"
MODEL = "tiny/qwen3.5-vl"
"""Recurrent and convolution state, attention and media in one model."""
MOST_BYTES = 200_000


def without_this_machine(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return a process manifest without the machine's boot id and the scratch folder of the model."""
    settings = manifest.get("settings", {})
    if "model" in settings:
        settings["model"] = MODEL
    manifest["clock"]["boot_id"] = ""
    return manifest


def copy_run(run: Path, sample: Path) -> None:
    """Copy what readers of a run need; folders are named so that the next sample has the same files."""
    shutil.copy(run / "run.json", sample / "run.json")
    for number, process in enumerate(sorted((run / "events").iterdir()), 1):
        manifest = json.loads((process / "process.json").read_text())
        ranks = (manifest[f"{kind}_parallel_rank"] for kind in ("data", "pipeline", "tensor"))
        places = "-".join(f"{name}{rank}" for name, rank in zip(("dp", "pp", "tp"), ranks, strict=True))
        folder = sample / "events" / f"{manifest['role']}-{places}-1-{number}"
        folder.mkdir(parents=True)
        text = json.dumps(without_this_machine(manifest), indent=2)
        (folder / "process.json").write_text(text + "\n")
        for stream in process.glob("*.arrows"):
            write_whole(stream, folder / stream.name)
    for path in sample.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)


def write_whole(stream: Path, copy: Path) -> None:
    """Copy a stream as one batch: a slow machine writes many small ones, and each has a head of its own."""
    with pa.ipc.open_stream(stream.read_bytes()) as source:
        table = source.read_all()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.OSFile(str(copy), "wb") as sink, pa.ipc.new_stream(sink, table.schema, options=options) as target:
        target.write_table(table.combine_chunks())


def main() -> None:
    """Make the run and put it in the place of the old one."""
    vstate = (sys.executable, "-m", "vstate.cli.main")
    with tempfile.TemporaryDirectory() as scratch:
        run, sample = Path(scratch) / "run", Path(scratch) / "sample"
        sample.mkdir()
        subprocess.run([*vstate, "trace", "run", "--model", MODEL, "--out", str(run)], check=True)
        copy_run(run, sample)
        size = sum(path.stat().st_size for path in sample.rglob("*") if path.is_file())
        if size > MOST_BYTES:
            sys.exit(f"the sample has {size} bytes, more than {MOST_BYTES}; the old one was kept")
        subprocess.run([*vstate, "reconcile", str(run), "--fail-on", "undercount"], check=True)
        shutil.rmtree(SAMPLE, ignore_errors=True)
        shutil.copytree(sample, SAMPLE)
    print(f"{SAMPLE}: {size} bytes")


if __name__ == "__main__":
    main()
