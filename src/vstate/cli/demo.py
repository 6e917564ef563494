"""`vstate demo`: reconcile a recorded run that comes with vstate, and say what it shows."""

from __future__ import annotations

import importlib.util
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vstate.cli.reconcile import FailOn, reconcile
from vstate.schemas.errors import MissingExtraError
from vstate.schemas.manifests import PRIVATE_FILE_MODE, PRIVATE_FOLDER_MODE
from vstate.schemas.vocabulary import ATTENTION_CLASSES, StateClass
from vstate.tracer.engines.folder import make_run_folder

if TYPE_CHECKING:
    from vstate.schemas.summary import EstimateSummary, Summary

SAMPLE_FOLDER = "sample"


def demo(
    out: Annotated[
        Path | None, typer.Option(help="Keep the run in this folder; must not exist. Default: nothing is kept.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON on standard output.")] = False,
) -> None:
    """Reconcile a recorded run that comes with vstate; needs no vLLM."""
    if importlib.util.find_spec("duckdb") is None:
        raise MissingExtraError("duckdb", "analyze")
    with _folder(out) as run:
        copy_sample(run)
        # The command itself, so that it prints what a reader's own run would.
        reconcile(run, FailOn.NEVER, as_json)
        if not as_json:
            for sentence in explain(_summary_of(run)):
                typer.echo(f"- {sentence}")
            if out is not None:
                typer.echo(f"\nvstate trace show {out} shows the run itself, vstate reconcile {out} all of this again")


@contextmanager
def _folder(out: Path | None) -> Iterator[Path]:
    if out is not None:
        yield out
        return
    with tempfile.TemporaryDirectory(prefix="vstate-demo-") as scratch:
        yield Path(scratch) / "run"


def sample() -> Traversable:
    """Return the folder of the sample run inside the package."""
    return resources.files("vstate") / SAMPLE_FOLDER


def copy_sample(run: Path) -> None:
    """Copy the sample run into a new folder that its owner alone may read, like any run.

    Raises:
        VstateError: The folder exists already or cannot be made.
    """
    make_run_folder(run)
    _copy(sample(), run)


def _copy(source: Traversable, target: Path) -> None:
    for entry in source.iterdir():
        copy = target / entry.name
        if entry.is_dir():
            copy.mkdir(mode=PRIVATE_FOLDER_MODE)
            _copy(entry, copy)
        else:
            descriptor = os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE_MODE)
            with os.fdopen(descriptor, "wb") as file:
                file.write(entry.read_bytes())


def _summary_of(run: Path) -> Summary:
    from vstate.reconcile.cache import RECONCILE_FOLDER
    from vstate.reconcile.job import SUMMARY_FILE
    from vstate.schemas.summary import Summary

    return Summary.model_validate_json((run / RECONCILE_FOLDER / SUMMARY_FILE).read_text(encoding="utf-8"))


def explain(summary: Summary) -> list[str]:
    """Say in a few sentences what a summary shows; each figure comes from it."""
    return [*_books(summary), *_naive(summary), *_gate(summary), *_bytes(summary), *_cache(summary)]


def _books(summary: Summary) -> list[str]:
    replayed = f"{summary.events} events of {summary.requests} requests were replayed over {summary.steps} steps"
    if summary.verdict == "clean":
        return [f"{replayed}, and the result is the engine's own books at each of them."]
    return [f"{replayed}; the verdict is {summary.verdict}."]


def _naive(summary: Summary) -> list[str]:
    """What an estimate of KV per token leaves out."""
    attention = {c.group for c in summary.components if c.state_class in ATTENTION_CLASSES}
    life = [e for e in summary.estimates if (e.source, e.scope) == ("naive", "life")]
    held = sum(e.observed_peak_blocks for e in life)
    if not held:
        return []
    others = [e for e in life if e.group not in attention]
    blocks = sum(e.observed_peak_blocks for e in others)
    said = sum(e.estimated_blocks for e in others)
    return [
        f"Groups without attention held {blocks} of {held} blocks ({blocks / held:.0%}); "
        f"an estimate of KV per token says {said} for them."
    ]


def _gate(summary: Summary) -> list[str]:
    gate = [e for e in summary.estimates if (e.source, e.scope) == ("stock", "prefill")]
    bound = [e for e in summary.estimates if (e.source, e.scope) == ("vstate", "life")]
    if not gate or not bound:
        return []
    return [
        f"vLLM's gate counted {_under(gate)} too few for the prefills; the bound of vstate was {_under(bound)} short "
        f"over the whole lives, and {sum(e.overcount_blocks for e in bound)} more than was held."
    ]


def _under(estimates: Iterable[EstimateSummary]) -> str:
    return f"{sum(e.undercount_blocks for e in estimates)} blocks"


def _bytes(summary: Summary) -> list[str]:
    from vstate.reconcile.table import readable_bytes

    pooled = [component for component in summary.components if component.group >= 0]
    charged = sum(component.charged_bytes for component in pooled)
    if not charged:
        return []
    useful = sum(component.useful_bytes for component in pooled)
    padding = sum(component.charged_bytes for component in pooled if component.state_class == StateClass.PADDING)
    return [
        f"When requests released their blocks, {readable_bytes(useful)} of {readable_bytes(charged)} charged "
        f"({useful / charged:.0%}) held state of tokens; {readable_bytes(padding)} were padding."
    ]


def _cache(summary: Summary) -> list[str]:
    outcome = summary.outcome
    return [
        f"The prefix cache gave {outcome.get('prefix_hit_tokens', 0)} tokens in {outcome.get('prefix_hits', 0)} hits "
        f"and lost {outcome.get('evictions', 0)} blocks to evictions; "
        f"{outcome.get('preemptions', 0)} requests were preempted, {outcome.get('aborts', 0)} aborted."
    ]
