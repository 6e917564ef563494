import json
from pathlib import Path

import pytest

from vstate.schemas.errors import VstateError
from vstate.schemas.workload import Length, MediaItem, WorkloadAbort, WorkloadRequest, read_workload
from vstate.tracer.workloads.smoke import smoke

IMAGE = {"kind": "image", "name": "cat", "width": 64, "height": 32}
LINE = {
    "id": "a",
    "when": {"at_step": 0},
    "prompt": [{"name": "system", "length": {"blocks": 2}}],
    "output": {"tokens": 3},
}


def write(tmp_path, *lines):
    path = tmp_path / "workload.jsonl"
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines))
    return path


def test_lengths_are_in_blocks_and_tokens():
    assert Length(blocks=2.5, tokens=-3).resolve(128) == 317
    assert Length(tokens=-5).resolve(128) == 1


def test_a_line_without_kind_is_a_request_and_comments_are_skipped(tmp_path):
    abort = {"kind": "abort", "id": "a", "when": {"after": "a", "event": "first_token"}}
    lines = read_workload(write(tmp_path, "# a comment", "", LINE, abort))
    assert isinstance(lines[0], WorkloadRequest)
    assert isinstance(lines[1], WorkloadAbort)


@pytest.mark.parametrize("media", [(), ("image", "audio", "video")])
def test_smoke_survives_the_file_format(tmp_path, media):
    lines = smoke(media)
    assert read_workload(write(tmp_path, *(line.model_dump_json() for line in lines))) == lines


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (["{"], ":1: not a workload line"),
        ([{**LINE, "prompt": []}], "not a workload line"),
        ([{**LINE, "typo": 1}], "not a workload line"),
        ([{**LINE, "when": {}}], "give one of at_step, at_s and after"),
        ([{**LINE, "when": {"at_step": 1, "after": "b"}}], "give one of at_step, at_s and after"),
        ([LINE, LINE], "'a' stands twice"),
        ([{**LINE, "when": {"after": "nobody"}}], "unknown request 'nobody'"),
        ([LINE, {"kind": "abort", "id": "b", "when": {"at_step": 1}}], "unknown request 'b'"),
        ([], "holds no request"),
        ([{**LINE, "prompt": [{"media": {**IMAGE, "width": None}}]}], "kind image is width and height"),
        ([{**LINE, "prompt": [{"media": {**IMAGE, "frames": 2}}]}], "kind image is width and height"),
        ([{**LINE, "prompt": [{"media": {**IMAGE, "kind": "audio"}}]}], "kind audio is seconds"),
        ([{**LINE, "prompt": [{"media": {**IMAGE, "kind": "smell"}}]}], "not a workload line"),
        ([{**LINE, "prompt": [{"media": IMAGE, "length": {"tokens": 1}}]}], "not a workload line"),
        ([{**LINE, "prompt": [{"name": "system"}]}], "not a workload line"),
    ],
)
def test_bad_lines_are_one_line_errors(tmp_path, lines, told):
    with pytest.raises(VstateError) as error:
        read_workload(write(tmp_path, *lines))
    assert told in str(error.value)
    assert "\n" not in str(error.value)


def test_media_stand_between_text(tmp_path):
    (line,) = read_workload(write(tmp_path, {**LINE, "prompt": [{"media": IMAGE}, *LINE["prompt"], {"media": IMAGE}]}))
    first, text, second = line.prompt
    assert first == second
    assert first.media == MediaItem(kind="image", name="cat", width=64, height=32)
    assert text.name == "system"


def test_absent_file(tmp_path):
    with pytest.raises(VstateError, match="cannot read workload"):
        read_workload(tmp_path / "nothing.jsonl")


def test_the_example_in_the_documentation_is_a_workload(tmp_path):
    page = (Path(__file__).parents[3] / "docs" / "workload.md").read_text(encoding="utf-8")
    example = page.partition("```jsonl\n")[2].partition("```")[0]
    kinds = [line.kind for line in read_workload(write(tmp_path, *example.splitlines()))]
    assert kinds == ["request", "request", "abort", "request"]
