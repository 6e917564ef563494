"""True-size models, each built on the meta device once per test session."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "shapes_of.py"
QUIET = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
}

MEDIA = {
    "step-3.7-flash": ["image:1024x1024", "image:1920x1080", "image:3024x3024"],
    "mimo-v2.5": ["image:1024x1024", "image:1920x1080", "image:4096x4096"],
    "nemotron-3-nano-omni": ["image:1024x1024", "image:1920x1080", "image:4096x4096", "audio:2"],
    "qwen3.6-35b-a3b": ["image:1024x1024", "image:1920x1080", "image:4096x4096"],
    "qwen3.6-27b": ["image:1024x1024", "image:64x64"],
}
"""Items that are processed beside the build, of models that take media."""


def pytest_collection_modifyitems(items):
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.engine)


def run_script(name, folder, *options):
    command = [sys.executable, str(SCRIPT), name, str(folder), *options]
    return subprocess.run(command, env=os.environ | QUIET, capture_output=True, text=True, check=False)


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    """Give what was built of a model; it is built when it is first asked for."""
    made = {}

    def build(name):
        if name not in made:
            done = run_script(name, tmp_path_factory.mktemp(name), *MEDIA.get(name, ()))
            assert done.returncode == 0, done.stderr[-3000:]
            made[name] = json.loads(done.stdout.splitlines()[-1])
        return made[name]

    return build


@pytest.fixture
def unpatched(tmp_path):
    """Build a model without the patches and give what the process wrote, which fails."""

    def build(name):
        done = run_script(name, tmp_path, "--unpatched")
        assert done.returncode != 0, f"{name} is built without patches"
        return done.stderr

    return build
