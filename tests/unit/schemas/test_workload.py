import gzip
import json
import random
from pathlib import Path

import pytest

from vstate.schemas.errors import VstateError
from vstate.schemas.workload import (
    HashedBlocks,
    Length,
    MediaItem,
    WorkloadAbort,
    WorkloadRequest,
    iter_workload,
    read_workload,
    scan_workload,
)
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


BLOCKS = {"block_ranges": [[7, 2], [3, 1]], "block_tokens": 16, "tokens": 40}


def at(name, **when):
    return {**LINE, "id": name, "when": when}


def abort(name, **when):
    return {"kind": "abort", "id": name, "when": when}


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
        ([at("a", at_step=1, at_s=1.0)], "give one of at_step, at_s and after"),
        ([at("a", at_s=-0.5)], "when.at_s"),
        (['{"id": "a", "when": {"at_s": Infinity}, "prompt": [], "output": {}}'], "when.at_s"),
        ([at("a", at_step=1, delay_s=2.0)], "delay_s goes with after only"),
        ([LINE, at("b", after="a", delay_s=-1.0)], "when.delay_s"),
        ([at("a", at_s=1.0, event="first_token")], "event goes with after only"),
        (["", LINE, LINE], ":3: request id 'a' stands twice"),
        ([LINE, "# no line", at("b", after="nobody")], ":3: request 'b' refers to unknown request 'nobody'"),
        ([LINE, abort("b", at_step=1)], ":2: abort 'b' refers to unknown request 'b'"),
        ([], "holds no request"),
        ([{**LINE, "prompt": [{**BLOCKS, "tokens": 32}]}], "32 tokens do not end in the last of blocks that hold 48"),
        ([{**LINE, "prompt": [{**BLOCKS, "tokens": 49}]}], "49 tokens do not end in the last of blocks that hold 48"),
        ([{**LINE, "prompt": [{**BLOCKS, "block_ranges": []}]}], "not a workload line"),
        ([{**LINE, "prompt": [{**BLOCKS, "block_ranges": [[-1, 3]]}]}], "not a workload line"),
        ([{**LINE, "prompt": [{**BLOCKS, "block_ranges": [[2**63, 3]]}]}], "not a workload line"),
        ([{**LINE, "prompt": [{**BLOCKS, "block_ranges": [[1, 0], [1, 3]]}]}], "not a workload line"),
        ([{**LINE, "prompt": [{"media": {**IMAGE, "width": None}}]}], "kind image is width and height"),
        ([{**LINE, "prompt": [{"media": {**IMAGE, "frames": 2}}]}], "kind image is width and height"),
        ([{**LINE, "prompt": [{"media": {**IMAGE, "kind": "audio"}}]}], "kind audio is seconds"),
        ([{**LINE, "prompt": [{"media": {**IMAGE, "kind": "smell"}}]}], "not a workload line"),
        ([{**LINE, "prompt": [{"media": IMAGE, "length": {"tokens": 1}}]}], "not a workload line"),
        ([{**LINE, "prompt": [{"name": "system"}]}], "not a workload line"),
    ],
)
def test_bad_lines_are_one_line_errors(tmp_path, lines, told):
    """The same one, whether a workload is read whole or passed over once."""
    for reading in (read_workload, scan_workload):
        with pytest.raises(VstateError) as error:
            reading(write(tmp_path, *lines))
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


def test_hashed_blocks_are_a_part_of_a_prompt(tmp_path):
    (line,) = read_workload(write(tmp_path, {**LINE, "prompt": [BLOCKS, *LINE["prompt"], {**BLOCKS, "tokens": 33}]}))
    assert line.prompt[0] == HashedBlocks(block_ranges=((7, 2), (3, 1)), block_tokens=16, tokens=40)
    assert line.prompt[2].tokens == 33
    assert WorkloadRequest.model_validate_json(line.model_dump_json()) == line


def test_a_compressed_workload_is_read_as_it_is(tmp_path):
    plain = write(tmp_path, "# a comment", LINE, at("b", after="a", delay_s=2.5))
    packed = tmp_path / "workload.jsonl.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert read_workload(packed) == read_workload(plain)
    assert scan_workload(packed) == scan_workload(plain)
    packed.write_bytes(packed.read_bytes()[:-20])
    with pytest.raises(VstateError, match="cannot read workload"):
        read_workload(packed)


def test_a_workload_is_read_line_by_line(tmp_path):
    lines = iter_workload(write(tmp_path, LINE, at("b", at_step=1), "broken"))
    assert [next(lines).id, next(lines).id] == ["a", "b"]
    with pytest.raises(VstateError, match=":3: not a workload line"):
        next(lines)


@pytest.mark.parametrize(
    ("lines", "in_order"),
    [
        ([at("a", at_s=0.0), at("b", at_s=0.0), at("c", at_s=3.5)], True),
        ([at("a", at_s=0.0), at("b", at_s=4.0), abort("a", at_s=4.0)], True),
        ([at("a", at_s=1.0), at("b", at_s=0.0)], False),
        ([at("a", at_s=1.0), abort("a", at_s=0.5)], False),
        ([at("a", at_s=0.0), at("b", at_step=0)], False),
        ([at("a", at_s=0.0), at("b", after="a")], False),
    ],
)
def test_a_scan_says_whether_a_workload_can_be_driven_as_it_is_read(tmp_path, lines, in_order):
    assert scan_workload(write(tmp_path, *lines)).in_order_of_time is in_order


@pytest.mark.parametrize("seed", range(3))
def test_a_scan_names_the_requests_that_others_refer_to(tmp_path, seed):
    """Also those that stand behind the line that refers to them."""
    generator = random.Random(seed)
    names = [f"r{number}" for number in range(30)]
    chosen = [generator.choice(names) for _ in range(12)]
    lines = [at(name, at_step=0) for name in names]
    lines += [at(f"w{number}", after=name) for number, name in enumerate(chosen[:6])]
    lines += [abort(name, at_step=9) for name in chosen[6:]]
    generator.shuffle(lines)
    found = scan_workload(write(tmp_path, *lines))
    assert found.referenced == set(chosen)
    assert found.requests == 36
