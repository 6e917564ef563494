"""What is shipped: the archives hold each package file of the repository once, and work alone."""

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import pytest

LINKED = ("schemas", "inventory", "tracer", "admission", "reconcile", "dashboards")

# vLLM loads their classes by name, and those are subclasses of its own; all else imports vLLM late.
PART_OF_THE_ENGINE = {
    "vstate.doctor.plan_worker",
    "vstate.tracer.engines.meta_model",
    "vstate.tracer.engines.scheduler_worker",
    "vstate.tracer.engines.stand_in",
    "vstate.tracer.models.remote.configuration_mimo_v2",
    "vstate.tracer.models.remote.configuration_nemotron_omni",
    "vstate.tracer.models.remote.configuration_nemotron_omni_hub",
    "vstate.tracer.models.remote.configuration_step",
    "vstate.tracer.models.remote.configuration_step_mtp",
    "vstate.tracer.models.step",
}

# Runs inside the clean environment, where the engine is forbidden.
IMPORT_EVERYTHING = """
import importlib, pkgutil, sys, traceback

class EngineNeeded(ModuleNotFoundError):
    pass

class NoEngine:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("vllm", "torch", "torchvision", "transformers"):
            raise EngineNeeded(f"{name} is imported at module level", name=name)

def report(name):
    traceback.print_exc(file=sys.stdout)
    print("NEEDS-ENGINE" if isinstance(sys.exception(), EngineNeeded) else "FAILED", name)

sys.meta_path.insert(0, NoEngine())
import vstate

print("FROM", vstate.__file__)
for module in pkgutil.walk_packages(vstate.__path__, "vstate.", onerror=report):
    try:
        if not module.name.endswith(".__main__"):
            importlib.import_module(module.name)
            print("IMPORTED", module.name)
    except Exception:
        report(module.name)
"""


@dataclass(frozen=True)
class Archives:
    """The three archives that are built from one state of the repository."""

    sdist: Path
    wheel_of_sdist: Path
    wheel_of_tree: Path


def run(command: list[str], cwd: Path) -> str:
    """Return what a command prints, and fail the test with all of it if the command fails."""
    done = subprocess.run(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}"
    return done.stdout


@pytest.fixture(scope="module")
def package_files(tracked_files: Callable[..., list[Path]]) -> Counter[str]:
    """Return the files that a wheel must hold under `vstate/`, each once."""
    linked = [f"vstate/{path}" for path in tracked_files(*LINKED)]
    own = [str(path.relative_to("src")) for path in tracked_files("src/vstate")]
    return Counter(linked + own)


def wheel_files(wheel: Path) -> Counter[str]:
    """Return the wheel's files without its metadata, counted."""
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if not name.endswith("/")]
    return Counter(name for name in names if ".dist-info" not in PurePosixPath(name).parts[0])


@pytest.fixture(scope="module")
def archives(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Archives:
    """Build the sdist, a wheel from what it unpacks to, and a wheel from the tree."""
    folder = tmp_path_factory.mktemp("archives")
    build = [sys.executable, "-m", "build", "--no-isolation"]

    run([*build, "--sdist", "--outdir", str(folder / "sdist"), str(root)], folder)
    (sdist,) = (folder / "sdist").glob("*.tar.gz")
    shutil.unpack_archive(sdist, folder / "unpacked")
    (unpacked,) = (folder / "unpacked").iterdir()

    run([*build, "--wheel", "--outdir", str(folder / "of-sdist"), str(unpacked)], folder)
    run([*build, "--wheel", "--outdir", str(folder / "of-tree"), str(root)], folder)
    (wheel_of_sdist,) = (folder / "of-sdist").glob("*.whl")
    (wheel_of_tree,) = (folder / "of-tree").glob("*.whl")
    return Archives(sdist, wheel_of_sdist, wheel_of_tree)


@pytest.fixture(scope="module")
def installed(archives: Archives, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel alone in a new environment that sees the dependencies of this one."""
    folder = tmp_path_factory.mktemp("installed") / "venv"
    run([sys.executable, "-m", "venv", "--without-pip", str(folder)], folder.parent)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", f"--python={python}", "install", "--no-deps", "--no-index"]
    run([*pip, str(archives.wheel_of_sdist)], folder.parent)

    # A `.pth` file inside a folder that a `.pth` file adds is not read, so the editable vstate of
    # this environment stays out of sight.
    printed = run([str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], folder.parent)
    there, here = Path(printed.strip()), Path(sysconfig.get_path("purelib"))
    (there / "dependencies.pth").write_text(f"{here}\n")
    for mended in here.glob("torchvision_schemas.pth"):
        shutil.copy(mended, there / "mended.pth")  # read after the one above, which its module needs
    return folder


def test_every_link_leads_to_its_package(root: Path) -> None:
    for name in LINKED:
        link = root / "src" / "vstate" / name
        assert link.is_symlink(), f"{link} is no link"
        assert os.readlink(link) == f"../../{name}"
        assert (root / name / "__init__.py").is_file(), f"{name}/ is no package"


@pytest.mark.parametrize("which", ["wheel_of_sdist", "wheel_of_tree"])
def test_wheel_holds_each_package_file_once(archives: Archives, package_files: Counter[str], which: str) -> None:
    for name in LINKED:
        assert f"vstate/{name}/__init__.py" in package_files
    assert wheel_files(getattr(archives, which)) == package_files


def test_sdist_holds_sources_tests_and_docs(
    archives: Archives, package_files: Counter[str], tracked_files: Callable[..., list[Path]]
) -> None:
    with tarfile.open(archives.sdist) as archive:
        members = [member.name.partition("/")[2] for member in archive if member.isfile()]
    expected = Counter(f"src/{name}" for name in package_files)
    expected.update(str(path) for path in tracked_files("tests", "docs", "tools", ".ci"))
    shipped = Counter(members)
    assert {name: shipped[name] for name in expected} == dict(expected)
    for name in ("LICENSE", "Makefile", "PKG-INFO", "README.md", "pyproject.toml"):
        assert shipped[name] == 1, name


def test_every_module_imports_without_the_engine(installed: Path, package_files: Counter[str]) -> None:
    printed = run([str(installed / "bin" / "python"), "-c", IMPORT_EVERYTHING], installed)
    seen: dict[str, set[str]] = {"FROM": set(), "IMPORTED": set(), "NEEDS-ENGINE": set(), "FAILED": set()}
    for line in printed.splitlines():
        word, _, rest = line.partition(" ")
        seen.get(word, set()).add(rest)
    (origin,) = seen["FROM"]
    assert Path(origin).is_relative_to(installed)

    modules = {
        name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for name in package_files
        if name.endswith(".py") and not name.endswith("/__main__.py")
    }
    assert not seen["FAILED"], printed
    assert seen["NEEDS-ENGINE"] == PART_OF_THE_ENGINE, printed
    assert seen["IMPORTED"] == modules - PART_OF_THE_ENGINE - {"vstate"}


@pytest.mark.engine
def test_parts_of_the_engine_import_with_it(installed: Path) -> None:
    imports = "; ".join(f"import {module}" for module in sorted(PART_OF_THE_ENGINE))
    run([str(installed / "bin" / "python"), "-c", imports], installed)


def test_command_starts_from_the_wheel(installed: Path) -> None:
    printed = run([str(installed / "bin" / "vstate"), "--help"], installed)
    assert "Usage" in printed
