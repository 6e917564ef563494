"""What `vstate candidate verify --json` prints."""

from __future__ import annotations

from typing import Literal

from vstate.candidate.differences import Nearest
from vstate.candidate.revision import Commit, Record
from vstate.candidate.weights import Weights
from vstate.schemas.manifests import ModelOrigin

Status = Literal["ok", "failed", "not run"]


class Revision(Record):
    """Which model it is.

    Attributes:
        kind: Whether it is a checkpoint's folder, a published configuration, or a model made up by vstate.
        architectures: Model classes that the configuration names.
        configuration_digest: SHA-256 of the configuration as JSON with sorted keys and no spaces.
        commit: Commit of a folder; None where nothing tells it.
        quantization: Method that ``quantization_config`` names; empty for none.
        files: SHA-256 of tokenizer, processor, index and code in a folder.
        weights: Weights in a folder; None for what is no folder.
        origin: Where a ``full/`` configuration comes from.
        nearest: What a folder's configuration says otherwise than the nearest ``full/`` model.
    """

    kind: Literal["folder", "full", "tiny"]
    architectures: tuple[str, ...]
    configuration_digest: str
    commit: Commit | None = None
    quantization: str = ""
    files: dict[str, str] = {}
    weights: Weights | None = None
    origin: ModelOrigin | None = None
    nearest: Nearest | None = None


class Books(Record):
    """What reconcile says of a run.

    Attributes:
        verdict: Reconcile's own.
        finished: Requests that ran to their end.
        undercount_blocks: Blocks by which vstate's bound was too low, summed over requests and groups.
        findings: Findings that are not merely informative.
    """

    verdict: str
    finished: int
    undercount_blocks: int
    findings: tuple[str, ...]

    @property
    def fault(self) -> str:
        """What is wrong in one clause; empty where nothing is."""
        if self.undercount_blocks:
            return f"vstate under-counted {self.undercount_blocks} blocks"
        if self.findings:
            return self.findings[0]
        if self.verdict != "clean":
            return f"reconcile calls the run {self.verdict}"
        return "" if self.finished else "no request ran to its end"


class Group(Record):
    """A KV-cache group of the run.

    Attributes:
        state_classes: What state it keeps, padding left out.
        spec_kind: Kind of vLLM's spec.
        layers: Number of its layers.
        block_tokens: Tokens of one of its blocks.
        draft: Whether it is the draft's.
    """

    state_classes: tuple[str, ...]
    spec_kind: str
    layers: int
    block_tokens: int
    draft: bool


class Pool(Record):
    """A block pool of the run."""

    blocks: int
    block_bytes: int
    total_bytes: int


class Build(Record):
    """What vLLM made of the model, as the run recorded it.

    Attributes:
        vllm: Version.
        platform: Platform that vLLM resolved; geometry depends on it.
        architecture: Model class that vLLM chose.
        device: Device whose memory is assumed; empty where the pool's size is given.
        tensor_parallel_size: Ranks that are assumed to share the model.
        settings_of: Model whose engine arguments were taken; empty for none but common ones.
        backends: Number of layers by attention backend.
        groups: KV-cache groups.
        draft_layers: Layers of the draft that keep state.
        pools: Block pools of one rank.
        weight_bytes: Weights of one rank, less than a block too many; None where the pool was not sized by them.
        parameters: Parameters that the publisher says it has; None where that is not known.
    """

    vllm: str
    platform: str
    architecture: str
    device: str
    tensor_parallel_size: int
    settings_of: str
    backends: dict[str, int]
    groups: tuple[Group, ...]
    draft_layers: int
    pools: tuple[Pool, ...]
    weight_bytes: int | None
    parameters: int | None


class BackendEvidence(Record):
    """A run of vLLM's engine core with the model on the meta device: no weights and no forward.

    Attributes:
        status: ``failed`` where vLLM refused or the books are not clean.
        sentence: The same for a person.
        build: What vLLM made of it; None where it refused.
        books: What reconcile says; None where there is no run.
        run: Folder of the run; empty where it is not kept.
    """

    status: Status
    sentence: str
    build: Build | None = None
    books: Books | None = None
    run: str = ""


class CorrectnessRun(Record):
    """A run with a real forward, whose books are checked; its answers are not.

    Attributes:
        status: Whether it was run, and how it ended.
        sentence: The same for a person: if not run, why and what it takes.
        books: What reconcile says; None where there is no run.
        run: Folder of the run; empty where it is not kept.
    """

    status: Status
    sentence: str
    books: Books | None = None
    run: str = ""


class Benchmark(Record):
    """A timed run with a real forward.

    Attributes:
        status: Whether it was run, and how it ended.
        sentence: The same for a person: if not run, why and what it takes.
        requests_per_second: Requests over the wall time from the first to the last, tracing on.
        run: Folder of the run; empty where it is not kept.
    """

    status: Status
    sentence: str
    requests_per_second: float | None = None
    run: str = ""


class Verification(Record):
    """All that is known about running a model here."""

    model: str
    revision: Revision
    backend: BackendEvidence
    correctness: CorrectnessRun
    benchmark: Benchmark

    @property
    def clean(self) -> bool:
        """Whether nothing that was run failed."""
        return "failed" not in (self.backend.status, self.correctness.status, self.benchmark.status)

    def without_runs(self) -> Verification:
        """Return the same without the folders of runs, which are gone."""
        gone = {
            name: part.model_copy(update={"run": ""})
            for name, part in (
                ("backend", self.backend),
                ("correctness", self.correctness),
                ("benchmark", self.benchmark),
            )
        }
        return self.model_copy(update=gone)
