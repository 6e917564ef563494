"""`vstate inventory`: every piece of state of a model or a run, and what one request takes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vstate.cli.doctor import parse_size
from vstate.cli.trace import parse_settings
from vstate.schemas.errors import VstateError
from vstate.schemas.manifests import RUN_FILE

if TYPE_CHECKING:
    from vstate.footprint.report import InventoryReport


def inventory(
    model: Annotated[
        str, typer.Argument(help="tiny/NAME, full/NAME, a model folder, a model id in the local cache, or a run.")
    ],
    length: Annotated[list[int] | None, typer.Option(min=1, help="Prompt length to show; may be repeated.")] = None,
    context: Annotated[int | None, typer.Option(min=1, help="Longest request, in tokens.")] = None,
    block_size: Annotated[int | None, typer.Option(min=1, help="Tokens of a block.")] = None,
    dtype: Annotated[str | None, typer.Option(help="Element type of the model.")] = None,
    kv_cache_dtype: Annotated[str | None, typer.Option(help="Element type of keys and values, as in fp8.")] = None,
    state_dtype: Annotated[str | None, typer.Option(help="Element type of recurrent states.")] = None,
    tensor_parallel: Annotated[int | None, typer.Option(min=1, help="Ranks that share the model.")] = None,
    prefix_caching: Annotated[
        bool | None, typer.Option("--prefix-caching/--no-prefix-caching", help="Whether prefixes are cached.")
    ] = None,
    max_num_seqs: Annotated[int | None, typer.Option(min=1, help="Requests that may run at once.")] = None,
    spec: Annotated[
        str, typer.Option(help="How to draft: mtp:N, ngram:N, draft:MODEL:N, eagle3:MODEL:N or none.")
    ] = "",
    memory: Annotated[str, typer.Option(help="Memory for state on one rank, as in 16GiB.")] = "",
    device: Annotated[str, typer.Option(help="Device whose memory is taken: h100, h200, b200.")] = "",
    profile: Annotated[str, typer.Option(help="Platform: cpu, cpu-avx512_bf16, cuda-hopper.")] = "",
    setting: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Any other engine argument of vLLM.")
    ] = None,
    layers: Annotated[bool, typer.Option("--layers", help="Also every layer, padding layers too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List every piece of state that a model keeps, and what one request takes of the pool.

    Worked out from the configuration: neither vLLM nor a GPU nor weights are
    needed. Where a GPU's geometry is meant it was read from vLLM's source and
    never compared with one; the first line says so.

    Of a run, the inventory is the engine's own.

    Exit codes: 0 max_num_seqs requests fit, 1 they do not, 2 wrong input.
    """
    chosen: dict[str, Any] = {
        "max_model_len": context,
        "block_size": block_size,
        "dtype": dtype,
        "kv_cache_dtype": kv_cache_dtype,
        "mamba_ssm_cache_dtype": state_dtype,
        "tensor_parallel_size": tensor_parallel,
        "enable_prefix_caching": prefix_caching,
        "max_num_seqs": max_num_seqs,
    }
    settings = {name: value for name, value in chosen.items() if value is not None} | _known(
        parse_settings(setting or [])
    )
    lengths = tuple(length or ())
    if (Path(model) / RUN_FILE).exists():
        if settings or spec or memory or device or profile:
            raise VstateError(f"{model} is a run, whose engine is what it was; leave options of a model away")
        report = _of_run(Path(model), lengths, layers)
    else:
        from vstate.footprint.subject import Question

        asked = Question(model, settings, spec, profile, device, parse_size(memory) if memory else 0)
        report = _of_model(asked, lengths, layers)
    if as_json:
        typer.echo(json.dumps(report.as_json(), indent=2))
    else:
        from rich.console import Console

        from vstate.footprint.render import render

        console = Console(highlight=False)
        for part in render(report):
            console.print(part)
    if not report.fits:
        raise typer.Exit(1)


def _known(settings: dict[str, Any]) -> dict[str, Any]:
    """Refuse an engine argument that changes nothing here, so that a misspelt one is not taken for one that does."""
    from vstate.inventory.serving import ServingSettings

    for name in settings:
        if name not in ServingSettings.model_fields:
            raise VstateError(
                f"--set {name}: no state depends on it; known are {', '.join(ServingSettings.model_fields)}"
            )
    return settings


def _of_model(question: Any, lengths: tuple[int, ...], layers: bool) -> InventoryReport:
    from vstate.footprint.report import Origin, make_report
    from vstate.footprint.subject import find_subject
    from vstate.inventory.state_inventory import StateInventory

    subject = find_subject(question)
    found = StateInventory.from_config(subject.config, subject.settings, subject.profile)
    found = found.model_copy(update={"assumed": subject.assumed + found.assumed})
    bare = subject.without_draft
    origin = Origin(
        model=subject.model,
        source="configuration",
        profile=subject.profile.name,
        evidence="compared with the engine's" if subject.profile.evidence == "booked" else "assumed, never run",
        tensor_parallel_size=subject.settings.tensor_parallel_size,
    )
    without = StateInventory.from_config(bare.config, bare.settings, bare.profile) if bare else None
    return make_report(found, origin, lengths, layers=layers, without_draft=without)


def _of_run(run: Path, lengths: tuple[int, ...], layers: bool) -> InventoryReport:
    from vstate.footprint.report import Origin, make_report
    from vstate.inventory.state_inventory import StateInventory
    from vstate.schemas.manifests import RunManifest, read_manifest

    manifest = read_manifest(run / RUN_FILE, RunManifest)
    origin = Origin(
        model=manifest.model,
        source="run",
        profile="the engine's own platform",
        evidence="booked",
        tensor_parallel_size=int(manifest.settings.get("tensor_parallel_size", 1)),
    )
    return make_report(StateInventory.from_run(run), origin, lengths, layers=layers)
