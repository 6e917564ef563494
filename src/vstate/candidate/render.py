"""What `vstate candidate verify` prints for a person."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from vstate.candidate.differences import Difference, Nearest
from vstate.candidate.report import BackendEvidence, Benchmark, Books, CorrectnessRun, Revision, Status, Verification
from vstate.candidate.revision import Commit
from vstate.candidate.weights import Weights
from vstate.schemas.vocabulary import GIB, MIB

SIDE_BY_SIDE_COLUMNS = 120
"""Width from which the four stand beside each other."""
SHOWN_DIGITS = 16
SHOWN_ROWS = 12
"""Rows of a list that are shown; JSON has all of them."""
SHOWN_CHARACTERS = 40
"""Length of a value that is shown."""
STYLES: dict[Status, str] = {"ok": "green", "failed": "red", "not run": "yellow"}


def render(found: Verification, width: int) -> Iterator[RenderableType]:
    """Show the four columns; one below the other where the terminal is narrow."""
    columns = {
        "revision": Text("\n").join(map(Text, revision_lines(found.revision))),
        "backend evidence": _column(found.backend, backend_lines(found.backend)),
        "correctness run": _column(found.correctness, book_lines(found.correctness.books)),
        "benchmark": _column(found.benchmark, []),
    }
    if width < SIDE_BY_SIDE_COLUMNS:
        yield Text(found.model, style="bold")
        for name, text in columns.items():
            yield Text(name, style="bold")
            yield Padding(text, (0, 0, 0, 2))
        return
    table = Table(title=Text(found.model), title_justify="left", expand=True)
    for name, ratio in zip(columns, (4, 4, 2, 2), strict=True):
        table.add_column(name, ratio=ratio, overflow="fold")
    table.add_row(*columns.values())
    yield table


def _column(part: BackendEvidence | CorrectnessRun | Benchmark, lines: list[str]) -> Text:
    more = [*lines, *([f"run: {part.run}"] if part.run else [])]
    first = part.sentence if part.sentence.startswith(part.status) else f"{part.status}: {part.sentence}"
    return Text("\n").join([Text(first, style=STYLES[part.status]), *map(Text, more)])


def revision_lines(revision: Revision) -> list[str]:
    """Say which model it is."""
    lines = [f"architecture: {', '.join(revision.architectures) or 'none named'}"]
    if revision.kind == "folder":
        lines.append(_commit(revision.commit))
    lines.append(f"configuration: sha256 {revision.configuration_digest[:SHOWN_DIGITS]}")
    lines += [f"{name}: sha256 {digest[:SHOWN_DIGITS]}" for name, digest in revision.files.items()]
    if revision.quantization:
        lines.append(f"quantization: {revision.quantization}")
    if revision.weights is not None:
        lines.append(_weights(revision.weights))
    if origin := revision.origin:
        lines.append(f"published parameters: {origin.published_parameters:,}")
        lines.append(f"sources: {', '.join(origin.sources)}")
        lines.append(f"assumed fields: {', '.join(origin.assumed) or 'none'}")
        lines += [f"not as the checkpoint: {mismatch}" for mismatch in origin.mismatches]
    if revision.kind == "tiny":
        lines.append("made up by vstate; its weights are random")
    if revision.kind == "folder":
        lines += _nearest(revision.nearest)
    return lines


def _commit(commit: Commit | None) -> str:
    if commit is None:
        return "commit: unknown; neither a hub cache's snapshot nor tracked by git"
    if commit.found == "hub cache":
        return f"commit: {commit.commit} ({commit.repository or 'hub cache'})"
    dirty = {True: "files differ from it", False: "clean", None: "git did not say whether files differ"}
    return f"commit: {commit.commit} (git; {dirty[commit.dirty]})"


def _weights(weights: Weights) -> str:
    missing = f"; missing: {_some(weights.missing)}" if weights.missing else ""
    here = f"{len(weights.files)} files, {_size(weights.total_bytes)}" if weights.files else "none"
    return f"weights: {here}{missing}"


def _nearest(nearest: Nearest | None) -> Iterator[str]:
    if nearest is None:
        yield "no full/ model has this architecture"
        return
    if not nearest.differences:
        yield f"equal to {nearest.model} in all {nearest.equal_fields} fields"
    else:
        yield f"as {nearest.model} in {nearest.equal_fields} fields; {len(nearest.differences)} differ:"
    for difference in nearest.differences[:SHOWN_ROWS]:
        yield f"  {_difference(difference)}"
    if (rest := len(nearest.differences) - SHOWN_ROWS) > 0:
        yield f"  and {rest} more; --json has all"
    if nearest.assumed_and_equal:
        yield f"assumed in {nearest.model} and the same here: {_some(nearest.assumed_and_equal)}"


def _difference(difference: Difference) -> str:
    here, there = _short(difference.here) or "absent", _short(difference.there) or "absent"
    return f"{difference.path}: {here} here, {there} there" + (
        f" ({difference.evidence})" if difference.evidence else ""
    )


def backend_lines(backend: BackendEvidence) -> list[str]:
    """Say what vLLM made of the model."""
    build = backend.build
    if build is None:
        return []
    deployment = f"{build.tensor_parallel_size} x {build.device}" if build.device else "none; the pool's size is given"
    lines = [
        f"vLLM {build.vllm}, platform {build.platform}, {build.architecture}",
        f"deployment (assumed): {deployment}",
    ]
    if build.settings_of:
        lines.append(f"engine arguments of {build.settings_of}")
    lines.append(f"backends: {', '.join(f'{count} {name}' for name, count in build.backends.items())}")
    for number, group in enumerate(build.groups):
        draft = ", draft" if group.draft else ""
        states = " + ".join(group.state_classes)
        lines.append(f"group {number}: {states}, {group.layers} layers, {group.block_tokens} tokens a block{draft}")
    lines += [
        f"pool: {_size(pool.total_bytes)}, {pool.blocks:,} blocks of {_size(pool.block_bytes)}" for pool in build.pools
    ]
    if build.weight_bytes is not None:
        lines.append(f"weights of a rank (built without memory): {_size(build.weight_bytes)}")
    if build.parameters:
        lines.append(f"parameters (published): {build.parameters:,}")
    if build.draft_layers:
        lines.append(f"draft layers: {build.draft_layers}")
    return lines + book_lines(backend.books)


def book_lines(books: Books | None) -> list[str]:
    """Say what reconcile found."""
    if books is None:
        return []
    return [f"reconcile: {books.verdict}, vstate under-counts {books.undercount_blocks} blocks", *books.findings]


def _some(names: tuple[str, ...]) -> str:
    more = len(names) - SHOWN_ROWS
    return ", ".join(names[:SHOWN_ROWS]) + (f" and {more} more" if more > 0 else "")


def _short(text: str) -> str:
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[: SHOWN_CHARACTERS - 3]}..."


def _size(count: int) -> str:
    """Bytes in the unit that a reader expects: GiB from one on, MiB from one on, else bytes."""
    if count >= GIB:
        return f"{count / GIB:.1f} GiB"
    return f"{count / MIB:.2f} MiB" if count >= MIB else f"{count:,} bytes"
