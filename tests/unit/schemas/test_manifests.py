import stat

import pytest

from vstate.schemas.errors import VstateError
from vstate.schemas.manifests import Machine, RunManifest, read_manifest, write_manifest
from vstate.schemas.vocabulary import SCHEMA_VERSION


@pytest.fixture
def manifest():
    machine = Machine(cpus=2, memory_bytes=1, architecture="x86_64", python="3.11.7")
    return RunManifest(
        vstate_version="0", created_wall_ns=1, engine="full", model="tiny/x", workload="smoke", seed=0, machine=machine
    )


def test_round_trip_keeps_everything_and_is_private(tmp_path, manifest):
    path = tmp_path / "run.json"
    write_manifest(path, manifest)
    assert read_manifest(path, RunManifest) == manifest
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [p.name for p in tmp_path.iterdir()] == ["run.json"], "a partial file was left behind"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "is not JSON"),
        ("[]", "schema version None"),
        ('{"schema_version": 99}', "schema version 99"),
        (f'{{"schema_version": {SCHEMA_VERSION}}}', "vstate_version"),
    ],
)
def test_bad_manifest_is_one_line_that_names_the_file(tmp_path, text, told):
    path = tmp_path / "run.json"
    path.write_text(text)
    with pytest.raises(VstateError) as error:
        read_manifest(path, RunManifest)
    assert told in str(error.value)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_absent_manifest_says_so(tmp_path):
    with pytest.raises(VstateError, match="does not exist"):
        read_manifest(tmp_path / "run.json", RunManifest)
