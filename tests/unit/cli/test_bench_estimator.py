"""`vstate bench estimator`: rows for engines of six groups, without vLLM."""

import json

import pytest

from support.command_line import in_this_process


@pytest.fixture
def command_line(capfd, monkeypatch):
    return in_this_process(capfd, monkeypatch)


def test_the_rows_as_json(command_line):
    result = command_line("bench", "estimator", "--turns", "2", "--json")
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert set(found) == {"machine", "rows"}
    assert [row["groups"] for row in found["rows"]] == [6] * len(found["rows"])
    for row in found["rows"]:
        # Ten thousand one after the other take longer than at once, on any machine.
        assert 0 < row["many_us"] < row["request_us"] * row["many"]


def test_the_rows_as_text(command_line):
    result = command_line("bench", "estimator", "--turns", "2")
    assert result.returncode == 0, result.stderr
    machine, unit, *rows = result.stdout.splitlines()
    assert machine.startswith("machine: ")
    assert unit == "microseconds of the processor, median and quartiles"
    assert len(rows) == 4
