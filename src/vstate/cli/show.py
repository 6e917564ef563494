"""What `vstate trace show` prints."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

from vstate.schemas.errors import VstateError
from vstate.schemas.manifests import (
    EVENTS_FOLDER,
    PROCESS_FILE,
    RUN_FILE,
    AnyProcessManifest,
    ProcessManifest,
    RunManifest,
    StateProcessManifest,
    read_manifest,
)
from vstate.schemas.streams import reading, stream_files
from vstate.schemas.tables import TABLES
from vstate.tracer.outcome import checked_batches, count_outcome

ENGINE_ROLE = "engine"


def process_folders(run: Path) -> list[Path]:
    """Folders of the run's processes.

    Raises:
        VstateError: The folder is absent, may not be read, or is no run.
    """
    events = run / EVENTS_FOLDER
    with reading(run):
        if not run.is_dir():
            raise VstateError(f"{run} is not a folder; give the folder that vstate trace run made")
        entries = sorted(events.iterdir()) if events.is_dir() else []
        folders = [entry for entry in entries if (entry / PROCESS_FILE).is_file()]
    if not folders:
        raise VstateError(f"{run} holds no trace; give the folder that vstate trace run made")
    return folders


def run_description(run: Path) -> dict[str, Any]:
    """Everything `trace show` knows about a run, as JSON types.

    Raises:
        VstateError: The folder may not be read, is no run, or holds what this version cannot read.
    """
    processes = []
    with reading(run):
        for folder in process_folders(run):
            manifest = _process_manifest(folder / PROCESS_FILE)
            rows = dict.fromkeys(TABLES, 0)
            for stream in stream_files(folder):
                rows[stream.table] += sum(batch.num_rows for batch in checked_batches(stream))
            processes.append({"folder": folder.name, "rows": rows} | manifest.model_dump(mode="json"))
        manifest_file = run / RUN_FILE
        launched = read_manifest(manifest_file, RunManifest).model_dump(mode="json") if manifest_file.exists() else None
        return {"run": launched, "processes": processes, "outcome": count_outcome(run)}


def _process_manifest(path: Path) -> AnyProcessManifest:
    role = read_manifest(path, AnyProcessManifest).role
    return read_manifest(path, ProcessManifest if role == ENGINE_ROLE else StateProcessManifest)


def table_rows(run: Path, table: str, limit: int) -> list[dict[str, Any]]:
    """First rows of a table, codes by their names.

    Raises:
        VstateError: There is no such table, or the folder may not be read, is no run, or holds what
            this version cannot read.
    """
    if table not in TABLES:
        raise VstateError(f"unknown table {table}; there are {', '.join(TABLES)}")
    codes = {column.name: column.codes for column in TABLES[table].columns if column.codes}
    rows: list[dict[str, Any]] = []
    with reading(run):
        for folder in process_folders(run):
            read_manifest(folder / PROCESS_FILE, AnyProcessManifest)
            streams = (stream for stream in stream_files(folder) if stream.table == table)
            for batch in chain.from_iterable(map(checked_batches, streams)):
                for row in batch.slice(0, limit - len(rows)).to_pylist():
                    rows.append({k: codes[k](v).name.lower() if k in codes else v for k, v in row.items()})
                if len(rows) >= limit:
                    return rows
    return rows


def print_run(description: dict[str, Any], console: Console) -> None:
    """Print a description for people."""
    launched = description["run"]
    if launched:
        state = "complete" if launched["outcome"] is not None else "not completed: killed, or still going"
        console.print(
            f"[bold]{launched['model']}[/] on engine {launched['engine']}, workload {launched['workload']}: {state}"
        )
    console.print("  ".join(f"{name.replace('_', ' ')} {count}" for name, count in description["outcome"].items()))
    for process in description["processes"]:
        _print_process(process, console)


def _print_process(process: dict[str, Any], console: Console) -> None:
    closing = process["closing"]
    lost = _losses(closing) if closing else "no closing counts: killed, or still going"
    what = process.get("scheduler_class", process["role"])
    console.print(f"\n[bold]{process['folder']}[/]: vLLM {process['vllm_version']}, {what}; {lost}")
    console.print("  ".join(f"{name} {count}" for name, count in process["rows"].items() if count))
    if process["role"] != ENGINE_ROLE:
        return
    for pool in process["pools"]:
        console.print(f"pool {pool['pool']}: {pool['num_blocks']} blocks of {pool['block_bytes']:,} bytes")
    table = RichTable("group", "component", "layers", "block tokens", "useful bytes a block", "charged bytes a block")
    for group in process["groups"]:
        for component in group["components"]:
            table.add_row(
                str(group["group"]),
                component["state_class"],
                str(len(component["layers"])),
                str(group["block_tokens"]),
                f"{component['useful_bytes_per_block']:,}",
                f"{component['charged_bytes_per_block']:,}",
            )
    console.print(table)


def _losses(closing: dict[str, Any]) -> str:
    lost = f"{closing['lost_rows']} rows lost"
    if closing["deleted_rows"]:
        lost += f", {closing['deleted_rows']} deleted to keep the disk limit"
    return lost + (f", writing ended early ({escape(closing['writer_error'])})" if closing["writer_error"] else "")
