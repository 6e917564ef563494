"""What a run of the real engine showed, read from the run itself: a line of the record behind docs/matrix.md."""

import itertools
import json
import re
from importlib import resources
from pathlib import Path

import pytest

from vstate.schemas.manifests import PROCESS_FILE
from vstate.schemas.tables.encoder import EncoderKind
from vstate.schemas.tables.names import NameKind
from vstate.schemas.tables.snapshot import SnapshotKind
from vstate.schemas.tables.step import StepKind
from vstate.tracer.models.tiny import TINY_MODELS
from vstate.tracer.outcome import stream_rows

OUTCOMES = ("prefix_hits", "preemptions", "evictions", "aborts")
MEDIA_KINDS = ("image", "video", "audio")
FORWARDING = ("full", "serve")
CPU_FLAGS = ("avx2", "avx512f", "avx512_bf16", "amx_bf16")
"""Flags by which vLLM chooses its CPU kernels."""


def described(run, parameters):
    """Say what a run showed, as JSON types.

    Args:
        run: A run that was reconciled.
        parameters: Those of the test; one called ``model`` names what a run without a launcher ran.
    """
    launched = manifest_of(run)
    steps, snapshots = by_process(run.folder, "step"), by_process(run.folder, "snapshot")
    return {
        "run": str(run.folder),
        "vllm": engines_of(run)[0]["vllm_version"],
        "model": model_of(run, launched, parameters),
        "forward": forward_of(launched),
        "stand_ins": stand_ins(run.folder),
        "clean": is_clean(run),
        "every_boundary": all(compared_everywhere(steps[name], snapshots.get(name, [])) for name in steps),
        "features": sorted(features_of(run, launched, steps)),
    }


def manifest_of(run):
    """The launcher's manifest, or nothing for an engine that no launcher started."""
    path = run.folder / "run.json"
    return json.loads(path.read_text()) if path.exists() else {}


def engines_of(run):
    manifests = [json.loads(path.read_text()) for path in run.folder.glob(f"events/*/{PROCESS_FILE}")]
    return [manifest for manifest in manifests if manifest["role"] == "engine"]


def by_process(folder, table):
    """Rows of a table in the order in which they were recorded, by process."""
    written = sorted({path.parent for path in folder.glob(f"events/*/{table}-*.arrows")})
    return {process.name: sorted(stream_rows(process, table), key=lambda row: row["seq"]) for process in written}


def model_of(run, launched, parameters):
    """``tiny/NAME`` where the model is one of ours, else its architecture and how it drafts."""
    named = launched.get("model", "")
    if named.partition("/")[0] in ("tiny", "full"):
        return named
    (settings, *_) = [engine["settings"] for engine in engines_of(run)]
    built = Path(settings["model"]) / "config.json"
    drafts = (launched.get("settings", {}).get("speculative_config") or {}).get("method")
    if built.exists():
        for model in TINY_MODELS.values():
            same = built.read_text() == config_text(model)
            if same and (model.draft.method if model.draft else None) == drafts:
                return f"tiny/{model.name}"
    given = str(parameters.get("model", "")).removeprefix("tiny/")
    return f"tiny/{given}" if given in TINY_MODELS else f"{settings['architecture']} ({drafts or 'no drafts'})"


def config_text(model):
    return (resources.files("vstate.tracer.models") / "tiny" / model.config).read_text()


def forward_of(launched):
    """``real`` only where the launcher's own manifest says so: tests start stand-in workers without one."""
    stands_in = "worker_cls" in launched.get("settings", {})
    return "real" if launched.get("engine") in FORWARDING and not stands_in else "scheduler"


def stand_ins(folder):
    """What took the place of a kernel of vLLM, as the engine's log tells it."""
    log = folder / "engine.log"
    found = re.findall(r"^stand-in kernels: (.+)$", log.read_text(), re.MULTILINE) if log.exists() else []
    return sorted(set(found))


def is_clean(run):
    summary = run.summary
    return summary["verdict"] == "clean" and not (run.illegal or summary["gaps"] or summary["dropped"])


def compared_everywhere(steps, snapshots):
    """Whether each boundary is followed by a whole snapshot of the engine's tables before the next."""
    ends = [row["seq"] for row in snapshots if row["kind"] == SnapshotKind.END]
    boundaries = [row["seq"] for row in steps]
    following = itertools.pairwise([*boundaries, float("inf")])
    return bool(boundaries) and all(any(a < end < b for end in ends) for a, b in following)


def features_of(run, launched, steps):
    """Names of the features that the trace shows, or that the run's own settings and processes tell."""
    outcome, settings = run.summary["outcome"], launched.get("settings", {})
    engines = engines_of(run)
    seen = {name for name in OUTCOMES if outcome[name]}
    if outcome["copy_on_write"]:
        seen.add("partial_hits")
    if outcome["preemptions"] and any(engine["settings"]["policy"] == "priority" for engine in engines):
        seen.add("priority")
    if any(drafted(rows, run.rows("request")) for rows in steps.values()):
        seen.add("drafts")
    if any(in_flight(rows) for rows in steps.values()):
        seen.add("steps_in_flight")
    seen |= {f"media:{kind}" for kind in media_kinds(run)}
    if settings.get("kv_transfer_config"):
        seen.add("connector")
    if settings.get("engine_core") == "own process":
        seen.add("own_process")
    if launched.get("engine") == "serve":
        seen.add("server")
    # The engine without a forward takes one rank's share and has no other ranks.
    if settings.get("tensor_parallel_size", 1) > 1 and launched.get("engine") != "scheduler":
        seen.add("tensor_parallel")
    if len({engine["data_parallel_rank"] for engine in engines}) > 1:
        seen.add("data_parallel")
    return seen


def drafted(steps, requests):
    """Whether a step without any prompt scheduled more tokens than requests: the rest are drafts."""
    prompts = {row["step"] for row in requests if row["scheduled_tokens"] >= 0}
    scheduled = [row for row in steps if row["kind"] == StepKind.SCHEDULED and row["step"] not in prompts]
    return any(row["scheduled_tokens"] > row["running"] for row in scheduled)


def in_flight(steps):
    """Whether a step was scheduled while another had not been processed."""
    kinds = [row["kind"] for row in steps]
    return any(a == b == StepKind.SCHEDULED for a, b in itertools.pairwise(kinds))


def media_kinds(run):
    """Kinds of the media that the scheduler booked, by the names that our workloads give their requests."""
    names = {row["key"]: row["value"] for row in run.rows("names") if row["kind"] == NameKind.EXTERNAL}
    booked = {row["request_key"] for row in run.rows("encoder") if row["kind"] == EncoderKind.ALLOCATE}
    asked = {names.get(key, "") for key in booked}
    return {kind for kind in MEDIA_KINDS if any(name.startswith(f"{kind}-") for name in asked)}


def cpu_flags():
    """Those of `CPU_FLAGS` that this CPU has, where Linux tells."""
    path = Path("/proc/cpuinfo")
    there = set(path.read_text().split()) if path.exists() else set()
    return [flag for flag in CPU_FLAGS if flag in there]


class Recorder:
    """A pytest plugin that writes which runs the tests used, what each showed, and which tests passed.

    A run travels with the reports of the tests that used it, so that it arrives where tests are spread over processes.
    """

    def __init__(self, path):
        self.path, self.item = path, None
        self.described, self.runs = {}, {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item):
        self.item = item
        return (yield)

    def used(self, run):
        """Note that the test under way uses a run."""
        parameters = getattr(getattr(self.item, "callspec", None), "params", {})
        if run.folder not in self.described:
            self.described[run.folder] = described(run, parameters)
        noted = ("run", self.described[run.folder])
        if noted not in self.item.user_properties:
            self.item.user_properties.append(noted)

    def pytest_runtest_logreport(self, report):
        """Note how a test ended: one that failed before or after its call has failed."""
        if report.when != "call" and not report.failed:
            return
        for name, value in report.user_properties:
            if name == "run":
                tests = self.runs.setdefault(value["run"], value | {"tests": {}})["tests"]
                tests[report.nodeid] = "failed" if report.failed else tests.get(report.nodeid, report.outcome)

    def pytest_sessionfinish(self, session):
        if not hasattr(session.config, "workerinput"):
            self.path.write_text(json.dumps({"cpu_flags": cpu_flags(), "runs": self.lines()}, indent=1) + "\n")

    def lines(self):
        """Runs without the places of this machine, in an order that repeats."""
        runs = [{name: value for name, value in run.items() if name != "run"} for run in self.runs.values()]
        runs = [run | {"tests": dict(sorted(run["tests"].items()))} for run in runs]
        return sorted(runs, key=lambda run: (run["model"], *run["tests"]))
