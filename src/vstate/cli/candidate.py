"""`vstate candidate`: what is known about running a checkpoint here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vstate.schemas.errors import MissingExtraError, require_vllm
from vstate.tracer.engines.job import EngineMessage

candidate_app = typer.Typer(help="Say what is known about running a checkpoint here.", no_args_is_help=True)


@candidate_app.callback()
def candidates() -> None:
    """Say what is known about running a checkpoint here."""


@candidate_app.command("verify")
def verify(
    model: Annotated[str, typer.Argument(help="A checkpoint's folder, full/NAME or tiny/NAME.")],
    out: Annotated[
        Path | None, typer.Option(help="Keep the runs in this folder, which must not exist. Default: only failed ones.")
    ] = None,
    workload: Annotated[str, typer.Option(help="smoke, or a JSONL file.")] = "smoke",
    device: Annotated[
        str,
        typer.Option(help="Device whose memory is assumed (h100, h200, b200). Default: full/NAME's own, else h100."),
    ] = "",
    tensor_parallel: Annotated[
        int, typer.Option(min=0, help="Ranks that share the model; 0 for full/NAME's own, else 1.")
    ] = 0,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Let code run that the folder brings.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say what is known about running a model here, and run what can be run.

    Revision: commit and digests of the files, and what the configuration says
    otherwise than the nearest full/ model. config.json and the tokenizer are
    enough for it.

    Backend evidence: vLLM's engine core runs the workload with the model on
    the meta device, without weights; its books are reconciled.

    Correctness run: the same with a real forward, where the weights are there
    and a GPU is; a tiny/ model runs on the CPU. Its books are checked, its
    answers are not.

    Benchmark: that run timed, with a GPU only.

    Exit codes: 0 all that could be run is clean, 1 something that was run
    failed or was under-counted, 2 wrong input.
    """
    require_vllm()
    try:
        import duckdb  # noqa: F401
    except ModuleNotFoundError as error:
        raise MissingExtraError("duckdb", "analyze") from error
    from rich.console import Console

    from vstate.candidate.render import render
    from vstate.candidate.subject import Question
    from vstate.candidate.verify import verify as verify_candidate

    question = Question(
        model=model,
        workload=workload,
        device=device,
        tensor_parallel_size=tensor_parallel,
        trust_remote_code=trust_remote_code,
    )
    progress = Console(stderr=True)
    with progress.status(f"{model}: looking") as status:

        def told(column: str, message: EngineMessage) -> None:
            done = f"{message.ended} of {message.requests} requests" if message.requests else "starting vLLM"
            status.update(f"{model}: {column}: {done}")

        found = verify_candidate(question, out, told)
    if as_json:
        typer.echo(found.model_dump_json(indent=2))
    else:
        console = Console(highlight=False)
        for part in render(found, console.width):
            console.print(part)
    if not found.clean:
        raise typer.Exit(1)
