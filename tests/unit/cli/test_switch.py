"""`vstate trace on` and `off`, against engines that answer, are slow, fail, or are not there."""

import threading
import time

import pytest

from support.command_line import in_this_process
from vstate.tracer.control import AnswerFile, SwitchState, read_control

NAME = "engine-dp0-7-1"


@pytest.fixture
def command_line(capfd, monkeypatch):
    return in_this_process(capfd, monkeypatch, "trace")


@pytest.fixture
def engine(tmp_path):
    """An engine of the run DIR/run that is off; its file."""
    answer = AnswerFile(tmp_path / "run", NAME)
    answer.write(SwitchState.OFF, "")
    yield answer
    answer.remove()


def turning(run, answer, state):
    """Answer as an engine does, once the control file is there."""

    def wait():
        deadline = time.monotonic() + 60
        while read_control(run) is None and time.monotonic() < deadline:
            time.sleep(0.005)
        answer.write(state, "engine-dp0-pp0-tp0-7-2")

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


@pytest.mark.parametrize("where", ["run", "."], ids=["a run", "a folder of runs"])
def test_an_engine_is_switched_on(command_line, engine, tmp_path, where):
    thread = turning(tmp_path / "run", engine, SwitchState.ON)
    result = command_line("on", tmp_path / where, "--wait", 60)
    thread.join()
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == f"{tmp_path}/run: {NAME}: on, events/engine-dp0-pp0-tp0-7-2\n"
    assert (tmp_path / "run" / "control").read_text() == "on\n"


def test_an_engine_that_is_not_asked_says_so(command_line, engine, tmp_path):
    result = command_line("on", tmp_path / "run", "--wait", 0)
    assert result.returncode == 0
    assert result.stdout.endswith(": still off, on from its next step on\n")


def test_what_is_off_already_stays_off(command_line, engine, tmp_path):
    result = command_line("off", tmp_path)
    assert (result.returncode, result.stdout) == (0, f"{tmp_path}/run: {NAME}: off\n")


def test_an_engine_that_cannot_is_an_error(command_line, engine, tmp_path):
    thread = turning(tmp_path / "run", engine, SwitchState.FAILED)
    result = command_line("on", tmp_path, "--wait", 60)
    thread.join()
    assert result.returncode == 2
    assert result.stdout == f"{tmp_path}/run: {NAME}: failed\n"
    assert result.stderr.startswith("error: an engine could not be switched on; ")


@pytest.mark.parametrize("command", ["on", "off"])
@pytest.mark.parametrize(("there", "told"), [(True, "no engine of"), (False, "cannot read")])
def test_without_an_engine_it_is_one_line(command_line, tmp_path, command, there, told):
    where = tmp_path if there else tmp_path / "nothing"
    result = command_line(command, where)
    assert result.returncode == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"error: {told} {where}")
    assert list(tmp_path.iterdir()) == [], "nothing may be written where no engine is"


def test_the_files_of_engines_that_ended_count_for_nothing(command_line, tmp_path):
    (tmp_path / "switch").mkdir()
    (tmp_path / "switch" / NAME).write_text('{"state": "on", "folder": ""}')
    assert command_line("off", tmp_path).returncode == 2
    assert not (tmp_path / "control").exists()
