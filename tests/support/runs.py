"""Runs of the real vLLM engine, each made once per test session."""

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from support.zygote import CRASHES, run_anew, run_forked
from vstate.schemas.manifests import PROCESS_FILE, ProcessManifest, StateProcessManifest, read_manifest
from vstate.tracer.outcome import stream_rows

VSTATE = (sys.executable, "-m", "vstate.cli.main")

USED = []
"""Called with each run that a test reconciles: the record of what was run (`engine_record.py`)."""


@dataclass(frozen=True)
class Cell:
    """A model and the settings it runs with."""

    model: str
    options: tuple[str, ...] = ()

    def __str__(self):
        return "-".join((self.model.removeprefix("tiny/"), *(o for o in self.options if not o.startswith("--"))))


CELLS = (
    Cell("tiny/qwen3"),
    Cell("tiny/gemma3"),
    Cell("tiny/lfm2-moe"),
    Cell("tiny/qwen3-next"),
    Cell("tiny/qwen3-next", ("--set", "prefix_match_unit=128", "--set", "num_gpu_blocks_override=32")),
    Cell("tiny/qwen3", ("--set", "scheduling_policy=priority")),
    Cell("tiny/qwen3", ("--set", "enable_prefix_caching=false")),
)

MODEL_CELLS = tuple(
    Cell(f"tiny/{name}")
    for name in (
        "gpt-oss",
        "mimo-v2",
        "mimo-v2-mtp",
        "nemotron-h",
        "nemotron-h-nocache",
        "qwen3-draft",
        "qwen3-eagle3",
        "qwen3-ngram",
        "qwen3.5-mtp",
        "qwen3.5-vl",
        "qwen3.5-vl-mtp",
        "lfm2-vl",
        "gemma3-mm",
        "mimo-omni",
        "nemotron-omni",
        "step-3.7",
    )
)
"""One cell for each tiny model that is in no cell of `CELLS`."""


def vstate(*arguments, **environment):
    """Run the command and return the finished process."""
    return run_anew([*VSTATE[1:], *arguments], os.environ | environment)


def forked_vstate(*arguments, **environment):
    """Run the command in a fork of a process that has vLLM imported already."""
    return run_forked([*VSTATE[1:], *arguments], os.environ | environment)


@dataclass(frozen=True)
class Run:
    """A finished run and what reconcile says of it."""

    folder: Path
    summary: dict

    @property
    def manifest(self):
        return json.loads((self.folder / "run.json").read_text())

    @property
    def process(self) -> ProcessManifest:
        (path,) = self.folder.glob(f"events/engine-*/{PROCESS_FILE}")
        return read_manifest(path, ProcessManifest)

    @property
    def illegal(self):
        return [finding for finding in self.summary["findings"] if finding["severity"] != "info"]

    def holders(self, role):
        """Manifest and `memory` rows of each worker (or other holder of state) of the run."""
        found = []
        for path in sorted(self.folder.glob(f"events/{role}-*/{PROCESS_FILE}")):
            found.append((read_manifest(path, StateProcessManifest), [*stream_rows(path.parent, "memory")]))
        return found

    def rows(self, table):
        return [row for process in sorted(self.folder.glob("events/*")) for row in stream_rows(process, table)]

    def estimates(self, source, scope):
        return [e for e in self.summary["estimates"] if (e["source"], e["scope"]) == (source, scope)]


def make_run(folder, *options, command=forked_vstate, **environment):
    """Trace the workload `smoke` and reconcile it."""
    made = command("trace", "run", "--out", folder, *options, **environment)
    assert made.returncode == 0, f"{made.stderr}\ncrashes of this machine so far, if any: {CRASHES}"
    return reconciled(folder)


def reconciled(folder):
    """Reconcile a run that exists."""
    result = forked_vstate("reconcile", folder, "--json", "--fail-on", "never")
    assert result.returncode == 0, result.stderr
    run = Run(folder, json.loads(result.stdout))
    for used in USED:
        used(run)
    return run
