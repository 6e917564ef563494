"""`make setup`: when it has work to do, what it tells uv, and what it says when something fails."""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

FAKE_TORCH = """
declared = []

class library:
    class Library:
        def __init__(self, namespace, kind):
            assert namespace == "torchvision"
        def define(self, schema):
            declared.append(schema.partition("(")[0])

class ops:
    class torchvision:
        pass
    @staticmethod
    def load_library(path):
        if open(path).read() != "matches":
            raise OSError("undefined symbol")
"""


@pytest.fixture
def setup_env(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Load tools/setup_env.py, for a copy of what it reads of the repository."""
    spec = importlib.util.spec_from_file_location("setup_env", root / "tools" / "setup_env.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name in ("pyproject.toml", "src/vstate/__init__.py", "tools/setup_env.py"):
        (tmp_path / "clone" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(root / name, tmp_path / "clone" / name)
    monkeypatch.setattr(module, "ROOT", tmp_path / "clone")
    return module


def replace(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_fingerprint_follows_what_is_installed(setup_env: ModuleType) -> None:
    before = setup_env.fingerprint()
    assert setup_env.fingerprint() == before
    replace(setup_env.ROOT / "pyproject.toml", "[tool.ruff]", "[tool.ruff]\npreview = false")
    assert setup_env.fingerprint() == before

    replace(setup_env.ROOT / "pyproject.toml", '"rich>=', '"humanize", "rich>=')
    dependencies_changed = setup_env.fingerprint()
    replace(setup_env.ROOT / "tools" / "setup_env.py", '"""Makes', '"""Really makes')
    assert len({before, dependencies_changed, setup_env.fingerprint()}) == 3


def test_a_second_run_finds_nothing_to_do(
    setup_env: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    steps: list[str] = []

    def make_venv(environment: object) -> None:
        steps.append("make_venv")
        (tmp_path / "venv" / "bin").mkdir(parents=True, exist_ok=True)
        (tmp_path / "venv" / "bin" / "python").symlink_to("/bin/true")
        (tmp_path / "venv" / "bin" / "vstate").touch()

    monkeypatch.setattr(setup_env, "make_venv", make_venv)
    for name in ("install", "remove_unusable", "mend_torchvision"):
        monkeypatch.setattr(setup_env, name, lambda environment, name=name: steps.append(name))
    setup_env.set_up(setup_env.Environment(tmp_path / "venv"))
    assert steps == ["make_venv", "install", "remove_unusable", "mend_torchvision"]
    setup_env.set_up(setup_env.Environment(tmp_path / "venv"))
    assert len(steps) == 4
    assert capsys.readouterr().out.endswith("setup: venv is up to date\n")


def test_a_failed_run_leaves_no_stamp(setup_env: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = setup_env.Environment(tmp_path / "venv")
    environment.folder.mkdir()
    environment.stamp.write_text("an earlier state")
    monkeypatch.setattr(setup_env, "make_venv", lambda environment: None)

    def install(environment: object) -> None:
        raise setup_env.SetupError("no network")

    monkeypatch.setattr(setup_env, "install", install)
    with pytest.raises(setup_env.SetupError, match="no network"):
        setup_env.set_up(environment)
    assert list(environment.folder.iterdir()) == []


@pytest.mark.parametrize("lines", [5, 99])
def test_a_failed_command_shows_its_last_lines(
    setup_env: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], lines: int
) -> None:
    environment = setup_env.Environment(tmp_path / "venv")
    environment.start_over()
    environment.run([sys.executable, "-c", "print('went well')"], "unused")
    with pytest.raises(setup_env.SetupError, match="try again"):
        environment.run([sys.executable, "-c", f"for i in range({lines}): print('line', i)\nexit(3)"], "try again")
    shown = capsys.readouterr().err.splitlines()
    assert shown == [f"  | line {number}" for number in range(max(0, lines - setup_env.LAST_LINES), lines)]
    assert "went well" in environment.log.read_text()


def test_a_folder_that_is_no_environment_is_left_alone(setup_env: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "diary").touch()
    with pytest.raises(setup_env.SetupError, match="no virtual environment"):
        setup_env.make_venv(setup_env.Environment(tmp_path / "notes"))
    assert (tmp_path / "notes" / "diary").exists()


def test_uv_gets_the_settings_of_pip(setup_env: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, _ in setup_env.UV_NAMES.values():
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.delenv("UV_INDEX_STRATEGY", raising=False)
    listing = (
        ":env:.find-links='a b'\n:env:.timeout='9'\nglobal.extra-index-url='file:///x\\nfile:///y'\n"
        "global.find-links='never'\nglobal.index-url='file:///mirror'\ninstall.index-url='file:///nearer'\n"
    )
    environment = setup_env.Environment(tmp_path / "venv")
    monkeypatch.setattr(environment, "pip", lambda *arguments: [sys.executable, "-c", f"print({listing!r})"])
    expected = {
        "UV_DEFAULT_INDEX": "file:///nearer",
        "UV_FIND_LINKS": "a,b",
        "UV_INDEX": "file:///x file:///y",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
    }
    assert setup_env.uv_settings(environment) == expected
    monkeypatch.setenv("UV_FIND_LINKS", "mine")
    del expected["UV_FIND_LINKS"]
    assert setup_env.uv_settings(environment) == expected


@pytest.mark.parametrize(
    ("native_library", "declared"), [("matches", []), ("other build", ["nms", "qnms"]), (None, ["nms", "qnms"])]
)
def test_torchvision_operators_are_declared_where_its_library_does_not_load(
    root: Path, tmp_path: Path, native_library: str | None, declared: list[str]
) -> None:
    (tmp_path / "torch.py").write_text(FAKE_TORCH)
    (tmp_path / "torchvision").mkdir()
    (tmp_path / "torchvision" / "__init__.py").write_text("import torch\nseen = list(torch.declared)\n")
    if native_library is not None:
        (tmp_path / "torchvision" / "_C.so").write_text(native_library)
    code = (
        "import sys, torchvision_schemas; assert 'torch' not in sys.modules; "
        "import importlib.util; importlib.util.find_spec('torchvision'); assert 'torch' not in sys.modules; "
        "import torchvision; print(torchvision.seen)"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(root / "tools")])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip() == str(declared), done.stderr
