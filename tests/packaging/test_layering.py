"""The rules between layers (docs/architecture.md): who may import whom, and who may know vLLM."""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

# Layer: the layers it may import. A layer may always import itself and `vstate` for its version.
ALLOWED = {
    "schemas": set[str](),
    "inventory": {"schemas"},
    "tracer": {"schemas", "inventory"},
    "admission": {"schemas", "inventory", "tracer"},
    "reconcile": {"schemas", "inventory"},
    "dashboards": {"schemas", "inventory", "reconcile"},
    "bench": {"schemas", "inventory", "tracer", "admission", "reconcile", "dashboards"},
    "doctor": {"schemas", "inventory", "tracer", "admission", "reconcile"},
    "candidate": {"schemas", "inventory", "tracer", "reconcile"},
    "footprint": {"schemas", "inventory", "tracer"},
    "cli": {
        "schemas",
        "inventory",
        "tracer",
        "admission",
        "reconcile",
        "dashboards",
        "bench",
        "doctor",
        "candidate",
        "footprint",
    },
}
TOP_FOLDERS = ("schemas", "inventory", "tracer", "admission", "reconcile", "dashboards")

# Modules that may import vLLM, and those below them. Elsewhere not even a late import is allowed.
KNOW_VLLM = (
    "vstate.inventory.from_vllm",
    "vstate.tracer",
    "vstate.admission",
    "vstate.bench",
    "vstate.doctor",
)
WITHOUT_TORCH = ("vstate.schemas", "vstate.reconcile", "vstate.dashboards")
HEAVY = ("vllm", "torch", "polars", "duckdb", "streamlit")


def within(module: str, *packages: str) -> bool:
    """Say whether a module is one of the packages or inside one."""
    return any(module == package or module.startswith(package + ".") for package in packages)


def module_name(path: Path) -> str:
    """Return the import name of a file, whose path is relative to the repository's root."""
    parts = list(path.with_suffix("").parts)
    if parts[-1] == "__init__":
        parts.pop()
    return ".".join(parts[1:] if parts[0] == "src" else ["vstate", *parts])


def imports(module: str, is_package: bool, source: str) -> Iterator[tuple[int, str]]:
    """Yield line and full name of each import in a module: late, relative and dynamic ones too.

    `from vstate import tracer` yields `vstate.tracer`; `from vstate.tracer import hooks` yields
    both `vstate.tracer` and `vstate.tracer.hooks`, of which the second may be no module.
    """
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                for alias in names:
                    yield node.lineno, alias.name
            case ast.ImportFrom(module=base, names=names, level=level):
                start = module.split(".")
                if level:
                    # One dot is the package itself: in a plain module, that is one name up.
                    start = start[: len(start) - level + is_package]
                    base = ".".join([*start, base] if base else start)
                assert base is not None
                yield node.lineno, base
                for alias in names:
                    yield node.lineno, f"{base}.{alias.name}"
            case ast.Call(
                func=ast.Name(id="import_module" | "__import__") | ast.Attribute(attr="import_module"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                yield node.lineno, name


def violation(module: str, imported: str) -> str | None:
    """Say which rule an import breaks, if any."""
    layer = module.split(".")[1] if "." in module else None
    if within(imported, *TOP_FOLDERS):
        return f"bare import of {imported}"
    if within(imported, "vllm") and not within(module, *KNOW_VLLM):
        return f"{imported}: vLLM is known elsewhere only"
    if within(imported, "torch") and within(module, *WITHOUT_TORCH):
        return f"{imported}: this layer works without torch"
    if not within(imported, "vstate"):
        return None
    target = imported.split(".")[1] if "." in imported else None
    if target in ALLOWED and target != layer and target not in ALLOWED.get(layer or "", ()):
        return f"{imported}: {layer or 'vstate'} may not import {target}"
    return None


def violations(module: str, is_package: bool, source: str) -> list[str]:
    """Return the broken rules of one module, one line each."""
    found = {
        (line, broken)
        for line, imported in imports(module, is_package, source)
        if (broken := violation(module, imported)) is not None
    }
    return [f"{module}:{line}: {broken}" for line, broken in sorted(found)]


def run_python(code: str, root: Path) -> subprocess.CompletedProcess[str]:
    """Run a line of Python at the repository's root, as somebody in a clone would."""
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root / "src")},
        capture_output=True,
        text=True,
        check=False,
    )


def test_imports_go_downwards_and_vllm_stays_in_its_places(
    root: Path, tracked_files: Callable[..., list[Path]]
) -> None:
    files = tracked_files("src/*.py", *(f"{folder}/*.py" for folder in TOP_FOLDERS))
    checked = {module_name(path): path for path in files}
    for folder in TOP_FOLDERS:
        assert f"vstate.{folder}" in checked
    broken = [
        line
        for module, path in checked.items()
        for line in violations(module, path.name == "__init__.py", (root / path).read_text())
    ]
    assert not broken, "\n".join(broken)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("vstate.schemas.table", "import vstate.inventory"),
        ("vstate.schemas.table", "from vstate import tracer"),
        ("vstate.schemas.table", "from .. import reconcile"),
        ("vstate.schemas.table", "from ..tracer.hooks import Hook"),
        ("vstate.schemas.table", "from vllm import LLM"),
        ("vstate.inventory.estimator", "def f():\n    import vstate.admission.gate"),
        ("vstate.inventory.estimator", "def f():\n    import vllm.v1.core"),
        ("vstate.inventory.from_vllm_too", "import vllm"),
        (
            "vstate.tracer.hooks",
            "import importlib\nimportlib.import_module('vstate.admission.gate')",
        ),
        ("vstate.tracer.hooks", "from vstate.reconcile import load"),
        ("vstate.tracer.hooks", "import vstate.cli.main"),
        ("vstate.admission.gate", "from vstate import schemas, dashboards"),
        ("vstate.reconcile.load", "from vstate.tracer.recorder import Recorder"),
        ("vstate.reconcile.load", "def f():\n    import torch.nn"),
        ("vstate.reconcile.load", "if TYPE_CHECKING:\n    from vllm.v1 import request"),
        ("vstate.dashboards.pages", "import torch"),
        ("vstate.dashboards.pages", "from vstate.cli import console"),
        ("vstate.bench.overhead", "import vstate.cli.bench"),
        ("vstate.cli.report", "import vllm"),
        ("vstate.cli.main", "import schemas"),
        ("vstate.cli.main", "from reconcile.load import load"),
        ("vstate", "from vstate.schemas import table"),
    ],
)
def test_a_planted_violation_is_found(module: str, source: str) -> None:
    assert violations(module, module == "vstate", source)


@pytest.mark.parametrize(
    ("module", "is_package", "source"),
    [
        ("vstate.schemas", True, "from .table import Table\nfrom . import errors"),
        (
            "vstate.schemas.tables.block",
            False,
            "from ..table import Table\nfrom vstate import __version__",
        ),
        (
            "vstate.inventory.from_vllm",
            False,
            "def f():\n    from vllm.v1 import kv_cache_interface",
        ),
        ("vstate.tracer.engines.worker", False, "def f():\n    import vllm, torch"),
        ("vstate.admission.gate", False, "from vstate.tracer.hooks import Hook\nimport vllm"),
        ("vstate.dashboards.pages", False, "import vstate.reconcile.load as load"),
        ("vstate.cli.doctor", False, "from vstate.bench import overhead\nfrom vstate.doctor import plan"),
        ("vstate.doctor.fit_run", False, "from vstate.tracer import anchors\nimport vllm"),
        ("vstate.reconcile.schemas", False, "import torchlike\nimport duckdb"),
    ],
)
def test_an_allowed_import_is_left_alone(module: str, is_package: bool, source: str) -> None:
    assert violations(module, is_package, source) == []


def test_importing_vstate_imports_nothing_heavy(root: Path) -> None:
    done = run_python(f"import sys, vstate; print([m for m in {HEAVY} if m in sys.modules])", root)
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.parametrize("folder", TOP_FOLDERS)
def test_a_folder_is_no_package_of_its_own(folder: str, root: Path) -> None:
    bare = run_python(f"import {folder}", root)
    assert bare.returncode != 0
    last_line = bare.stderr.strip().splitlines()[-1]
    assert last_line.startswith("ImportError: ")
    assert f"vstate.{folder}" in last_line

    proper = run_python(f"import vstate.{folder}", root)
    assert proper.returncode == 0, proper.stderr


def needles() -> re.Pattern[bytes]:
    """Return what no tracked file may hold, put together here so that this file passes as well."""
    folders = ["wo" + "rk/", "fa" + "rm/", "opt/" + "wheels", "opt/" + "pypi"]
    hosts = [
        "pypi." + "org",
        "pytho" + "nhosted.org",
        "download." + "pytorch.org",
        "registry." + "npmjs.org",
        "conda." + "anaconda.org",
        "deb." + "debian.org",
    ]
    paths = r"(?<![\w.-])/(?:" + "|".join(folders) + r")"
    return re.compile(f"{paths}|{'|'.join(map(re.escape, hosts))}".encode())


def test_no_file_names_this_machine_or_a_registry(root: Path, tracked_files: Callable[..., list[Path]]) -> None:
    pattern = needles()
    found = []
    for path in tracked_files():
        content = (root / path).read_bytes()
        if b"\0" in content:
            continue
        found += [
            f"{path}:{number}: {line.decode(errors='replace').strip()}"
            for number, line in enumerate(content.splitlines(), 1)
            if pattern.search(line)
        ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "line",
    [
        "/wo" + "rk/main",
        "x=/fa" + "rm/y",
        "file:///opt/" + "pypi-more",
        "https://PY".lower() + "pi.org/",
    ],
)
def test_a_planted_path_or_host_is_found(line: str) -> None:
    assert needles().search(line.encode())


@pytest.mark.parametrize("line", ["docs/work/notes.md", "a/farm/b", "/workload/x", "a framework/tool"])
def test_an_ordinary_path_is_left_alone(line: str) -> None:
    assert not needles().search(line.encode())
