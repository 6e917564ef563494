"""Sessions become a closed loop: each request waits for the one before it of the same user."""

import json
import math

import pytest

from vstate.schemas.errors import VstateError
from vstate.schemas.workload import HashedBlocks
from vstate.tracer.workloads.importers import claude_code
from vstate.tracer.workloads.importers.rows import ImportOptions, Tally


def row(session, tokens=130, think=None, first=0, agent="main"):
    values = {"session_id": session, "agent": agent, "arrival_s": 0.0, "input_tokens": tokens, "output_tokens": 7}
    blocks = [[first, tokens // 64]] if tokens >= 64 else []
    return values | {"prefix_block_ranges": blocks} | ({} if think is None else {"think_time_s": think})


def normalized(tmp_path, *rows):
    path = tmp_path / "sessions.jsonl"
    path.write_text("".join(json.dumps(values) + "\n" for values in rows))
    return path


def imported(path, **options):
    return list(claude_code.read(path, ImportOptions(**options), Tally()))


def waits(requests):
    return {request.id: (request.when.after, request.when.at_s, request.when.delay_s) for request in requests}


def test_full_blocks_are_shared_and_the_tail_is_the_requests_own(tmp_path):
    first, second = imported(normalized(tmp_path, row("a"), row("a", 200, 2.0)))
    assert first.prompt[0] == HashedBlocks(block_ranges=((0, 2),), block_tokens=64, tokens=128)
    assert second.prompt[0].block_ranges == ((0, 3),)
    assert (first.prompt[1].length.tokens, second.prompt[1].length.tokens) == (2, 8)
    assert first.prompt[1].name != second.prompt[1].name


def test_sessions_are_dealt_to_users_who_run_them_one_after_the_other(tmp_path):
    rows = [row("a"), row("a", think=3.0), row("b"), row("c", think=90.0), row("d", think=5.0), row("d")]
    path = normalized(tmp_path, *rows)
    assert waits(imported(path, users=2)) == {
        "a/1": (None, 0.0, 0.0),
        "a/2": ("a/1", None, 3.0),
        "b/1": (None, 0.0, 0.0),
        "c/1": ("a/2", None, 60.0),
        "d/1": ("b/1", None, 5.0),
        "d/2": ("d/1", None, 0.0),
    }
    assert [request.when.at_s for request in imported(path, users=9)].count(0.0) == 4


def test_think_times_are_capped_and_then_divided_by_the_speed(tmp_path):
    path = normalized(tmp_path, row("a"), row("a", think=90.0))
    assert imported(path, max_think_s=math.inf)[1].when.delay_s == 90.0
    assert imported(path, max_think_s=20.0)[1].when.delay_s == 20.0
    assert imported(path, speed=4.0)[1].when.delay_s == 15.0


def test_a_repeated_file_continues_each_users_chain_with_other_blocks(tmp_path):
    requests = imported(normalized(tmp_path, row("a"), row("b", first=5)), loop=True, limit=4, users=2)
    assert [(request.id, request.when.after) for request in requests] == [
        ("a/1", None),
        ("b/1", None),
        ("a/1-2", "a/1"),
        ("b/1-2", "b/1"),
    ]
    assert [request.prompt[0].block_ranges[0][0] % 2**40 for request in requests] == [0, 5, 0, 5]
    assert len({request.prompt[0].block_ranges for request in requests}) == 4


def test_a_row_left_out_is_not_waited_for(tmp_path):
    assert waits(imported(normalized(tmp_path, row("a", 0), row("a", think=1.0), row("a")))) == {
        "a/2": (None, 0.0, 0.0),
        "a/3": ("a/2", None, 0.0),
    }


def test_a_session_that_goes_on_behind_another_one_is_refused(tmp_path):
    with pytest.raises(VstateError, match=r"sessions.jsonl:3: session a"):
        imported(normalized(tmp_path, row("a"), row("b"), row("a")))


def original(name, requests, **more):
    return (
        {"id": name, "models": ["m"], "block_size": 64, "tool_tokens": 1, "system_tokens": 1}
        | more
        | {"requests": requests}
    )


def call(tokens, ids, **more):
    return {"t": 0.0, "type": "s", "model": "m", "in": tokens, "out": 3, "hash_ids": ids, "stop": ""} | more


def test_an_original_session_with_a_sub_agent(tmp_path):
    agent = {"t": 1.0, "type": "subagent", "agent_id": "x", "requests": [call(70, [9])], "models": ["m"]}
    path = tmp_path / "trace_0001.json"
    path.write_text(json.dumps(original("one", [call(130, [1, 2]), agent, call(140, [1, 2], think_time=2.5)])))
    requests = imported(path)
    assert waits(requests) == {
        "one/1": (None, 0.0, 0.0),
        "one/2": ("one/1", None, 0.0),
        "one/3": ("one/2", None, 2.5),
    }
    assert [request.prompt[0].block_ranges for request in requests] == [((1, 2),), ((9, 1),), ((1, 2),)]
    assert [request.prompt[1].length.tokens for request in requests] == [2, 6, 12]


@pytest.mark.parametrize(("scope", "shared"), [({}, False), ({"hash_id_scope": "global"}, True)])
def test_a_folder_of_original_sessions_shares_blocks_only_where_their_ids_are_global(tmp_path, scope, shared):
    for name in ("trace_2", "trace_1"):
        (tmp_path / f"{name}.json").write_text(json.dumps(original(name, [call(128, [1, 2])], **scope)))
    first, second = imported(tmp_path, users=2)
    assert [first.id, second.id] == ["trace_1/1", "trace_2/1"]
    assert (first.prompt == second.prompt) is shared
    if scope:
        (tmp_path / "trace_3.json").write_text(json.dumps(original("trace_3", [call(64, [2**28])], **scope)))
        assert imported(tmp_path)[2].prompt[0].block_ranges == ((2**28, 1),)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("{", "not JSON"),
        ("[]", "not a session"),
        (json.dumps(original("a", [call(128, [1, 2]), call(-1, [1])])), "request 2: in is -1"),
        (json.dumps(original("a", [call(64, [1, 2])])), "request 1: 2 blocks"),
        (json.dumps(original("a", ["x"])), "request 1: no in"),
        (json.dumps(original("a", [], block_size=0)), "block_size"),
        (json.dumps(original("a", [])), "no request"),
        (json.dumps(original("a", [call(64, [2**28])])), "request 1: hash_ids"),
    ],
)
def test_a_malformed_session_is_named(tmp_path, text, what):
    path = tmp_path / "trace.json"
    path.write_text(text)
    with pytest.raises(VstateError, match=what):
        imported(path)
