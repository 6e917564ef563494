"""Importers of traces whose requests arrive by the clock, in every layout they are published in."""

import gzip
import json

import pytest

from vstate.schemas.errors import VstateError
from vstate.schemas.workload import HashedBlocks
from vstate.tracer.workloads.importers import azure, bailian, lengths, mooncake, servegen
from vstate.tracer.workloads.importers.rows import ImportOptions, Tally


def file(tmp_path, name, *lines):
    path = tmp_path / name
    text = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
    if name.endswith(".gz"):
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)
    return path


def imported(module, path, tally=None, **options):
    return list(module.read(path, ImportOptions(**options), tally or Tally()))


def times(requests):
    return [request.when.at_s for request in requests]


def input_tokens(request):
    return sum(part.tokens if isinstance(part, HashedBlocks) else part.length.tokens for part in request.prompt)


def sizes(requests):
    return [(input_tokens(request), request.output.tokens) for request in requests]


def block_ids(request):
    parts = [part for part in request.prompt if isinstance(part, HashedBlocks)]
    return [first + i for part in parts for first, count in part.block_ranges for i in range(count)]


AZURE = ("arrival_s,input_tokens,output_tokens", "0,374,44", "4.5,396,109")
AZURE_2023 = (
    "TIMESTAMP,ContextTokens,GeneratedTokens",
    "2023-11-16 23:59:58.6805900,374,44",
    "2023-11-17 00:00:03.1805900,396,109",
)
AZURE_2024 = (
    "TIMESTAMP,ContextTokens,GeneratedTokens",
    "2024-05-10 00:00:00.009930+00:00,374,44",
    "2024-05-10 00:00:04.509930+00:00,396,109",
)


@pytest.mark.parametrize("lines", [AZURE, AZURE_2023, AZURE_2024])
@pytest.mark.parametrize("name", ["trace.csv", "trace.csv.gz"])
def test_azure(tmp_path, lines, name):
    requests = imported(azure, file(tmp_path, name, *lines))
    assert times(requests) == [0.0, 4.5]
    assert sizes(requests) == [(374, 44), (396, 109)]
    names = [part.name for request in requests for part in request.prompt]
    assert len(set(names)) == 2, "prompts of unknown content must not begin alike"


MOONCAKE = (
    {"arrival_s": 0.0, "input_tokens": 1300, "output_tokens": 50, "prefix_block_ids": [0, 1, 2]},
    {"arrival_s": 3.0, "input_tokens": 1024, "output_tokens": 4, "prefix_block_ids": [0, 9]},
)
MOONCAKE_ORIGINAL = (
    {"timestamp": 0, "input_length": 1300, "output_length": 50, "hash_ids": [0, 1, 2]},
    {"timestamp": 3000, "input_length": 1024, "output_length": 4, "hash_ids": [0, 9]},
)


@pytest.mark.parametrize("lines", [MOONCAKE, MOONCAKE_ORIGINAL])
def test_mooncake(tmp_path, lines):
    requests = imported(mooncake, file(tmp_path, "trace.jsonl", *lines))
    assert times(requests) == [0.0, 3.0]
    assert sizes(requests) == [(1300, 50), (1024, 4)]
    assert [block_ids(request) for request in requests] == [[0, 1, 2], [0, 9]]
    (first,) = requests[0].prompt
    assert (first.block_ranges, first.block_tokens) == (((0, 3),), 512)


def test_tokens_behind_the_known_blocks_are_the_requests_own(tmp_path):
    line = {"arrival_s": 0, "input_tokens": 1300, "output_tokens": 1, "prefix_block_ids": [4, 5]}
    path = file(tmp_path, "trace.jsonl", line, line)
    first, second = imported(mooncake, path)
    assert first.prompt[0] == second.prompt[0]
    assert first.prompt[1].length.tokens == second.prompt[1].length.tokens == 1300 - 1024
    assert first.prompt[1].name != second.prompt[1].name


def test_bailian(tmp_path):
    line = {"parent_chat_id": -1, "type": "text", "turn": 1, "output_length": 5}
    lines = (
        line | {"chat_id": 55, "timestamp": 1.5, "input_length": 33, "hash_ids": [7, 8, 12]},
        line | {"chat_id": 159, "parent_chat_id": 55, "timestamp": 61.114, "input_length": 48, "hash_ids": [7, 8, 9]},
    )
    requests = imported(bailian, file(tmp_path, "trace.jsonl", *lines))
    assert [request.id for request in requests] == ["chat-55", "chat-159"]
    assert times(requests) == [1.5, 61.114]
    assert [block_ids(request) for request in requests] == [[7, 8, 12], [7, 8, 9]]
    assert sizes(requests) == [(33, 5), (48, 5)]
    assert requests[0].prompt[0].block_tokens == 16


@pytest.mark.long
@pytest.mark.parametrize("columns", ["input_tokens,output_tokens", ",num_prefill_tokens,num_decode_tokens"])
def test_lengths_arrive_as_a_poisson_process_of_the_rate(tmp_path, columns):
    row = "7,9" if columns.startswith("input") else "0,7,9"
    path = file(tmp_path, "lengths.csv", columns, *[row] * 4000)
    requests = imported(lengths, path, rate=5.0, seed=3)
    assert sizes(requests)[:2] == [(7, 9)] * 2
    moments = times(requests)
    gaps = [later - earlier for earlier, later in zip(moments, moments[1:], strict=False)]
    mean = sum(gaps) / len(gaps)
    deviation = (sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5
    assert mean == pytest.approx(1 / 5.0, rel=0.1)
    assert deviation == pytest.approx(mean, rel=0.1), "gaps of a Poisson process deviate by their mean"
    assert times(imported(lengths, path, rate=5.0, seed=3)) == moments
    assert times(imported(lengths, path, rate=5.0, seed=4)) != moments


def test_lengths_skip_a_blank_column_of_arrivals_and_need_a_rate(tmp_path):
    path = file(tmp_path, "lengths.csv", "arrival_s,input_tokens,output_tokens", ",3772,54")
    assert sizes(imported(lengths, path, rate=1.0)) == [(3772, 54)]
    with pytest.raises(VstateError, match="--rate"):
        imported(lengths, path)


@pytest.mark.parametrize(
    ("module", "lines", "line", "what"),
    [
        (azure, [*AZURE, "5.0,3"], 4, "columns"),
        (azure, [*AZURE, "5.0,x,3"], 4, "input_tokens"),
        (azure, [*AZURE, "5.0,1.5,3"], 4, "input_tokens"),
        (azure, [*AZURE, "nan,1,3"], 4, "arrival_s"),
        (azure, [*AZURE, "-1,1,3"], 4, "arrival_s"),
        (azure, [*AZURE, ",1,3"], 4, "arrival_s"),
        (azure, [*AZURE_2023, "yesterday,1,3"], 4, "TIMESTAMP"),
        (azure, [*AZURE_2023, "2023-11-15 00:00:00.0000000,1,3"], 4, "TIMESTAMP"),
        (azure, ["a,b,c", "1,2,3"], 2, "no input_tokens"),
        (mooncake, [*MOONCAKE, "{"], 3, "JSON"),
        (mooncake, [*MOONCAKE, "", "[]"], 4, "object"),
        (mooncake, [{**MOONCAKE[0], "prefix_block_ids": [0, -1, 2]}], 1, "prefix_block_ids"),
        (mooncake, [{**MOONCAKE[0], "prefix_block_ids": None}], 1, "prefix_block_ids"),
        (mooncake, [{**MOONCAKE[0], "prefix_block_ids": [0, 1, 2, 3]}], 1, "4 blocks"),
        (mooncake, [{**MOONCAKE[0], "output_tokens": True}], 1, "output_tokens"),
        (mooncake, [{**MOONCAKE[0], "prefix_block_ids": [0, 1, 2**63]}], 1, "prefix_block_ids holds .*2\\^63"),
        (bailian, [{"chat_id": [1]}], 1, ""),
        (lengths, ["input_tokens,output_tokens", "4,5", "4,-5"], 3, "output_tokens"),
        (servegen, [{"request_id": 0, "input_length": 5, "output_length": "x"}], 1, "output_length"),
    ],
)
def test_a_malformed_line_is_named(tmp_path, module, lines, line, what):
    path = file(tmp_path, "trace", *lines)
    with pytest.raises(VstateError, match=rf"{path}:{line}: .*{what}"):
        imported(module, path, **({"rate": 1.0} if module is lengths else {}))


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(VstateError, match="cannot read"):
        imported(azure, tmp_path / "absent.csv")
    (tmp_path / "plain.csv.gz").write_text("arrival_s,input_tokens,output_tokens\n")
    with pytest.raises(VstateError, match="cannot read"):
        imported(azure, tmp_path / "plain.csv.gz")
    torn = file(tmp_path, "torn.csv.gz", AZURE[0], *AZURE[1:] * 400)
    for content in (torn.read_bytes()[:-30], torn.read_bytes()[:40] + b"\xff" * 60):
        torn.write_bytes(content)
        with pytest.raises(VstateError, match="cannot read"):
            imported(azure, torn)
    with pytest.raises(VstateError, match="empty"):
        imported(azure, file(tmp_path, "empty.csv"))
    for module in (azure, mooncake):
        with pytest.raises(VstateError, match="no request"):
            imported(module, file(tmp_path, "header.csv", *([AZURE[0]] if module is azure else [])), loop=True)


def test_rows_without_input_are_left_out_and_without_output_ask_for_one(tmp_path):
    tally = Tally()
    path = file(tmp_path, "trace.csv", AZURE[0], "0,0,5", "1,4,0", "2,5,6", "3,0,0")
    assert sizes(imported(azure, path, tally)) == [(4, 1), (5, 6)]
    assert (tally.without_input, tally.without_output) == (2, 1)


def test_limit_and_speed(tmp_path):
    path = file(tmp_path, "trace.csv", *AZURE, "9,1,1")
    assert times(imported(azure, path, limit=2)) == [0.0, 4.5]
    assert times(imported(azure, path, speed=3.0)) == [0.0, 1.5, 3.0]
    with pytest.raises(VstateError):
        imported(azure, file(tmp_path, "late.csv", *AZURE, "broken"))
    assert len(imported(azure, tmp_path / "late.csv", limit=2)) == 2, "what is behind the limit is not read"


def test_a_repeated_file_goes_on_one_mean_gap_after_its_end_and_reuses_nothing(tmp_path):
    path = file(tmp_path, "trace.jsonl", *MOONCAKE)
    requests = imported(mooncake, path, loop=True, limit=5)
    assert times(requests) == [0.0, 3.0, 6.0, 9.0, 12.0]
    assert len({request.id for request in requests}) == 5
    assert [request.id.removeprefix(requests[0].id) for request in requests[::2]] == ["", "-2", "-3"]
    rounds = [set(block_ids(a)) | set(block_ids(b)) for a, b in zip(requests[::2], requests[1::2], strict=False)]
    assert not rounds[0] & rounds[1]
    assert [block - min(rounds[1]) for block in sorted(rounds[1])] == [0, 1, 2, 9]
    assert len(set(block_ids(requests[2])) & set(block_ids(requests[3]))) == 1, "a round shares inside as the first did"


def test_block_ids_too_large_for_a_range_per_round_are_refused(tmp_path):
    path = file(tmp_path, "trace.jsonl", {**MOONCAKE[1], "prefix_block_ids": [0, 2**40]})
    assert len(imported(mooncake, path)) == 1
    with pytest.raises(VstateError, match="--loop"):
        imported(mooncake, path, loop=True, limit=3)


def test_a_batch_of_servegen_arrives_at_once(tmp_path):
    lines = (
        {"request_id": 0, "type": "text", "input_length": 61, "output_length": 2370, "duration": 14000},
        {"request_id": 1, "type": "multimodal", "input_length": 54, "output_length": 2031, "duration": 11630},
    )
    requests = imported(servegen, file(tmp_path, "trace_d.jsonl", *lines))
    assert times(requests) == [0.0, 0.0]
    assert sizes(requests) == [(61, 2370), (54, 2031)]
    content = {"request_id": 0, "type": "text", "input_length": 20, "hash_ids": [4, 5], "img_ids": []}
    with pytest.raises(VstateError, match="trace_a.jsonl:1: .*output_length"):
        imported(servegen, file(tmp_path, "trace_a.jsonl", content))


@pytest.mark.parametrize("name", ["requests.csv", "requests.csv.gz"])
def test_requests_that_servegen_made_arrive_at_its_times(tmp_path, name):
    path = file(tmp_path, name, "request_id,timestamp,input_tokens,output_tokens", "0,0.5,10,20", "1,1.2,15,25")
    requests = imported(servegen, path)
    assert [request.id for request in requests] == ["servegen-0", "servegen-1"]
    assert times(requests) == [0.5, 1.2]
    assert sizes(requests) == [(10, 20), (15, 25)]
