"""Writes docs/matrix.md: which model was shown with which feature of the engine, and how.

usage: python tools/matrix.py RECORD [PAGE]

The record comes from the tests on the real engine (`pytest tests/engine --matrix-record RECORD`): a line
for each run, with what its own trace shows, and the outcome of each test that used it. A run counts when
reconcile found it clean, which is that its replay equals the engine's books, and when no test that used
it failed. Nothing is entered by hand but the reasons why something cannot run.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from vstate.tracer.models.model import TinyModel
from vstate.tracer.models.tiny import TINY_MODELS

# As a script, this file has only its own folder on the path; for mypy it is in the package `tools`.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools.markdown_table import markdown_table  # noqa: E402

PAGE = Path(__file__).resolve().parent.parent / "docs" / "matrix.md"
Run = dict[str, Any]

FEATURES = {
    "prefix_hits": "prefix hit",
    "partial_hits": "hit inside a block",
    "preemptions": "preempted",
    "evictions": "evicted",
    "aborts": "aborted",
    "priority": "priority",
    "drafts": "drafts",
    "media": "media",
    "connector": "connector",
    "steps_in_flight": "two steps in flight",
    "own_process": "core in its own process",
    "tensor_parallel": "tensor parallel",
    "data_parallel": "data parallel",
    "server": "server",
}
"""Names in the record and heads of the columns."""
CACHING = ("prefix_hits", "partial_hits", "evictions")
FORWARD, SCHEDULER, NOT_SHOWN, NO_SUCH_STATE = "forward", "scheduler", "·", "–"
STATE_OF = {"drafts": "draft", "media": "media"}
"""Features that only a model with the attribute has."""
CPU_KERNELS = {
    "avx512f": "AVX-512",
    "avx512_bf16": "AVX-512 BF16",
    "amx_bf16": "AMX BF16",
}
"""Flags by which vLLM's GatedDeltaNet and convolution choose native kernels; else they run in torch."""


class Limit(NamedTuple):
    """Why features cannot run with a real forward here; without ``models`` it holds for all."""

    models: tuple[str, ...]
    features: tuple[str, ...]
    reason: str


LIMITS = (
    Limit(
        (),
        ("steps_in_flight",),
        "vLLM's CPU platform switches asynchronous scheduling off in each configuration (`vllm/platforms/cpu.py`)",
    ),
    Limit(
        ("nemotron-h",),
        ("preemptions",),
        "a chunk is no longer than a block and crosses none, because vLLM 0.32's CPU kernel for Mamba2 returns too few "
        "states per chunk: prompts wait for each other and none is preempted",
    ),
)


def limits() -> tuple[Limit, ...]:
    """Return all limits: those above, and what the models' own declarations say of prefix caching."""
    refused: dict[str, list[str]] = {}
    for model in TINY_MODELS.values():
        for setting, value, why in model.refused:
            assert (setting, value) == ("enable_prefix_caching", True), f"{setting} stands for no column"
            refused.setdefault(why, []).append(model.name)
        if not model.refused and model.arguments.get("enable_prefix_caching") is False:
            refused.setdefault("the model's own settings switch prefix caching off", []).append(model.name)
    return LIMITS + tuple(Limit(tuple(names), CACHING, why) for why, names in refused.items())


def notes(reasons: Sequence[Limit], feature: str, model: str = "") -> list[str]:
    """Return the marks of the reasons that hold for a model, or without one for all models."""
    held = [limit.models == () if not model else model in limit.models for limit in reasons]
    return [
        f"[{number}]"
        for number, (limit, holds) in enumerate(zip(reasons, held, strict=True), 1)
        if holds and feature in limit.features
    ]


def counts(run: Run) -> bool:
    """Say whether a run shows something: clean, and used by passed tests only."""
    return run["clean"] and bool(run["tests"]) and all(outcome == "passed" for outcome in run["tests"].values())


def shown(runs: Iterable[Run], model: str, feature: str) -> str:
    """Return how a feature was shown with a model: the most real way, marked where a kernel was stood in for."""
    ways = {
        (run["forward"], bool(run["stand_ins"]))
        for run in runs
        if counts(run) and run["model"] == model and feature in {name.partition(":")[0] for name in run["features"]}
    }
    for way, stood_in, cell in (
        ("real", False, FORWARD),
        ("real", True, f"{FORWARD}*"),
        ("scheduler", False, SCHEDULER),
        ("scheduler", True, SCHEDULER),
    ):
        if (way, stood_in) in ways:
            return cell
    return NOT_SHOWN


def row(runs: Sequence[Run], name: str, model: TinyModel | None, reasons: Sequence[Limit]) -> list[str]:
    """Return the cells of a model.

    Raises:
        ValueError: A feature was shown that is declared to be impossible: the declaration is out of date.
    """
    cells = [f"`{name}`", replay(runs, name)]
    for feature in FEATURES:
        how = shown(runs, name, feature)
        marks = notes(reasons, feature, name.removeprefix("tiny/"))
        if how == FORWARD and (marks or notes(reasons, feature)):
            raise ValueError(f"{name} was run with {feature}, which is declared to be impossible; mend tools/matrix.py")
        if how == NOT_SHOWN and model and feature in STATE_OF and not getattr(model, STATE_OF[feature]):
            how = NO_SUCH_STATE
        if feature == "media" and how not in (NOT_SHOWN, NO_SUCH_STATE):
            how += f" ({', '.join(media(runs, name))})"
        cells.append(" ".join([how, *marks]))
    return cells


def replay(runs: Iterable[Run], model: str) -> str:
    """Return what a model's replay was compared with, in the run where that was most."""
    mine = [run for run in runs if run["model"] == model and counts(run)]
    if not mine:
        return NOT_SHOWN
    return "tables at every boundary" if any(run["every_boundary"] for run in mine) else "counts at every boundary"


def media(runs: Iterable[Run], model: str) -> list[str]:
    """Return the kinds of media that a model was shown with."""
    names = {name for run in runs if counts(run) and run["model"] == model for name in run["features"]}
    return sorted(name.removeprefix("media:") for name in names if name.startswith("media:"))


def page(record: dict[str, Any]) -> str:
    """Return the page for a record.

    Raises:
        ValueError: The record names a feature that has no column, or shows what is declared to be impossible.
    """
    runs: list[Run] = record["runs"]
    unknown = {name.partition(":")[0] for run in runs for name in run["features"]} - FEATURES.keys()
    if unknown:
        raise ValueError(f"the record has features without a column: {', '.join(sorted(unknown))}")
    reasons = limits()
    names = [f"tiny/{name}" for name in TINY_MODELS]
    names += sorted({run["model"] for run in runs} - set(names))
    heads = [" ".join([head, *notes(reasons, feature)]) for feature, head in FEATURES.items()]
    cells = [row(runs, name, TINY_MODELS.get(name.removeprefix("tiny/")), reasons) for name in names]
    files = [f"`{model.config}`" + (f", `{draft}`" if (draft := draft_config(model)) else "") for model in models()]
    states = [(f"`tiny/{m.name}`", m.states, file) for m, file in zip(models(), files, strict=True)]
    return "\n".join(
        [
            "# What was shown with which model",
            "",
            *legend(record),
            "",
            *markdown_table(["model", "replay equals", *heads], cells).splitlines(),
            "",
            "## Why not",
            "",
            *(f"{number}. {limit.reason}." for number, limit in enumerate(reasons, 1)),
            "",
            "## The models",
            "",
            *markdown_table(["model", "state", "configuration"], states).splitlines(),
            "",
        ]
    )


def legend(record: dict[str, Any]) -> list[str]:
    """Return what the page is made from, and what its cells mean."""
    runs: list[Run] = record["runs"]
    versions = ", ".join(sorted({run["vllm"] for run in runs})) or "of no version"
    stood_in = sorted({text for run in runs if counts(run) for text in run["stand_ins"]})
    left_out = sum(not counts(run) for run in runs)
    return [
        "Made by `make matrix` from the runs of the tests on the real engine; nothing in the table is written by hand.",
        "A cell is what a run's own trace shows, where its replay equals the engine's books and no test of it failed.",
        "",
        f"Runs: {len(runs)}, of which {left_out} count for nothing here, because they are made to lose events or to",
        f"differ, or because a test that used them failed. vLLM {versions}, CPU {kernels(record)}.",
        "",
        f"- `{FORWARD}`: with a real forward",
        f"- `{SCHEDULER}`: with the real scheduler and pools, and a worker without a forward",
        f"- `{NOT_SHOWN}`: not shown, which does not say that it fails; `{NO_SUCH_STATE}`: the model has no such state",
        "- `[n]`: cannot run with a real forward here, for the reason below; at the head of a column, with any model",
        *(f"- `{FORWARD}*`: with stand-ins for kernels that vLLM lacks on a CPU ({text})" for text in stood_in),
    ]


def models() -> tuple[TinyModel, ...]:
    """Return the tiny models in the order of the page."""
    return tuple(TINY_MODELS.values())


def draft_config(model: TinyModel) -> str:
    """Return the configuration file of a draft of its own, else nothing."""
    return model.draft.config if model.draft and model.draft.config else ""


def kernels(record: dict[str, Any]) -> str:
    """Say which of the CPU's features that vLLM chooses kernels by were there."""
    there = [name for flag, name in CPU_KERNELS.items() if flag in record["cpu_flags"]]
    absent = [name for flag, name in CPU_KERNELS.items() if flag not in record["cpu_flags"]]
    said = (f"with {', '.join(there)}" if there else "", f"without {', '.join(absent)}" if absent else "")
    return " and ".join(part for part in said if part)


def main() -> None:
    """Write the page."""
    record = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    target = Path(sys.argv[2]) if len(sys.argv) > 2 else PAGE  # noqa: PLR2004
    try:
        target.write_text(page(record), encoding="utf-8")
    except ValueError as error:
        sys.exit(f"error: {error}")
    print(target)


if __name__ == "__main__":
    main()
