"""The switch: which thread does what, and what an engine that is not traced has on it."""

import functools
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from vstate.schemas.errors import VstateError
from vstate.tracer import switch as switch_module
from vstate.tracer.anchors import WRAPPER_MARK
from vstate.tracer.control import AnswerFile, SwitchState, live_answers, read_control, write_control
from vstate.tracer.engines import serve
from vstate.tracer.live_requests import enter_live_requests
from vstate.tracer.recorder import ChunkQueue, Recorder
from vstate.tracer.settings import TraceSettings
from vstate.tracer.switch import Switch
from vstate.tracer.wrapping import HookContext


class Scheduler:
    """What the switch touches of vLLM's scheduler."""

    def __init__(self):
        self.vllm_config = SimpleNamespace(parallel_config=SimpleNamespace(data_parallel_index=0))

    def has_requests(self):
        return "asked"


class Session:
    """Notes which thread did what."""

    made: list["Session"] = []
    fault = ""

    def __init__(self, scheduler, settings, anchors):
        if Session.fault == "prepare":
            raise OSError("planted")
        self.done = [("prepare", threading.current_thread().name)]
        self.folder = settings.run / "events" / f"engine-{len(Session.made)}"
        self.recorder = SimpleNamespace(writer_alive=True)
        Session.made.append(self)

    def _note(self, what):
        if Session.fault == what:
            raise RuntimeError("planted")
        self.done.append((what, threading.current_thread().name))

    def begin(self):
        self._note("begin")

    def end(self):
        self._note("end")

    def close(self):
        self._note("close")

    @property
    def steps(self):
        return [what for what, _ in self.done]


@pytest.fixture(autouse=True)
def sessions(monkeypatch):
    Session.made, Session.fault = [], ""
    monkeypatch.setattr(switch_module, "EngineSession", Session)
    monkeypatch.setattr(switch_module, "POLL_SECONDS", 0.005)
    monkeypatch.setattr(switch_module, "TURN_SECONDS", 0.005)
    return Session.made


@pytest.fixture
def engine(tmp_path):
    """Make switches and end them."""
    made = []

    def make(on=True, scheduler=None):
        woken = []
        settings = TraceSettings(tmp_path / "run", bytes(16), 0, on=on)
        switch = Switch(scheduler or Scheduler(), settings, (), lambda: woken.append(1))
        made.append(switch)
        switch.start()
        return SimpleNamespace(switch=switch, scheduler=switch._scheduler, run=settings.run, woken=woken)

    yield make
    Session.fault = ""
    for switch in made:
        switch.close()


def until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.002)


def armed(scheduler):
    return hasattr(scheduler.has_requests, WRAPPER_MARK)


def turn(engine, wanted):
    """Tell the engine, wait until its thread is asked, and let it take its next step."""
    write_control(engine.run, wanted)
    until(lambda: armed(engine.scheduler))
    assert engine.scheduler.has_requests() == "asked"


def answer(engine):
    (found,) = live_answers(engine.run)
    return found.state


def test_tracing_begins_before_the_first_request_on_the_engines_thread(engine, sessions):
    started = engine()
    main = threading.current_thread().name
    assert sessions[0].done == [("prepare", main), ("begin", main)]
    assert answer(started) is SwitchState.ON
    assert not armed(started.scheduler)


def test_an_engine_that_starts_off_has_nothing_on_it(engine, sessions):
    started = engine(on=False)
    assert sessions == []
    assert answer(started) is SwitchState.OFF
    assert not armed(started.scheduler)


def test_the_control_file_is_above_the_environment(engine, sessions, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "control").write_text("off\n")
    engine(on=True)
    assert sessions == []


def test_engine_and_watcher_each_do_their_part(engine, sessions):
    started, main = engine(), threading.current_thread().name
    turn(started, SwitchState.OFF)
    assert sessions[0].done[-1] == ("end", main)
    assert not armed(started.scheduler), "the one-shot must take itself away"
    until(lambda: answer(started) is SwitchState.OFF)
    assert sessions[0].done[-1] == ("close", "vstate-switch")
    turn(started, SwitchState.ON)
    until(lambda: answer(started) is SwitchState.ON)
    assert sessions[1].done == [("prepare", "vstate-switch"), ("begin", main)]
    assert len(started.woken) == 2
    assert live_answers(started.run)[0].folder == "engine-1"


def test_nothing_turns_until_the_engine_takes_a_step(engine, sessions):
    started = engine()
    write_control(started.run, SwitchState.OFF)
    until(lambda: armed(started.scheduler))
    assert sessions[0].steps == ["prepare", "begin"]
    assert answer(started) is SwitchState.ON


def test_a_change_of_mind_before_the_next_step_leaves_nothing(engine, sessions):
    started = engine(on=False)
    write_control(started.run, SwitchState.ON)
    until(lambda: armed(started.scheduler))
    write_control(started.run, SwitchState.OFF)
    until(lambda: not started.switch._wanted)
    started.scheduler.has_requests()
    until(lambda: sessions[0].steps == ["prepare", "close"])
    assert answer(started) is SwitchState.OFF


@pytest.mark.parametrize("fault", ["prepare", "begin"])
def test_what_cannot_be_switched_on_is_told_once_and_tried_again_after_off(engine, sessions, caplog, fault):
    started = engine(on=False)
    Session.fault = fault
    write_control(started.run, SwitchState.ON)
    if fault == "begin":
        until(lambda: armed(started.scheduler))
        assert started.scheduler.has_requests() == "asked"
    until(lambda: answer(started) is SwitchState.FAILED)
    tries = len(sessions)
    time.sleep(0.05)
    assert len(sessions) == tries
    assert sum("planted" in record.getMessage() for record in caplog.records) <= 1
    Session.fault = ""
    write_control(started.run, SwitchState.OFF)
    until(lambda: answer(started) is SwitchState.OFF)
    turn(started, SwitchState.ON)
    assert sessions[-1].steps == ["prepare", "begin"]


def test_a_writer_that_died_is_told(engine, sessions):
    started = engine()
    sessions[0].recorder.writer_alive = False
    until(lambda: answer(started) is SwitchState.FAILED)


def test_a_control_file_that_says_nothing_changes_nothing(engine, sessions):
    started = engine()
    (started.run / "control").write_text("perhaps")
    with pytest.raises(ValueError, match="must hold on or off"):
        read_control(started.run)
    until(lambda: "perhaps" in started.switch._told)
    assert answer(started) is SwitchState.ON
    turn(started, SwitchState.OFF)


def test_the_end_of_the_engine_closes_what_is_open(engine, sessions):
    started = engine()
    started.switch.close()
    assert sessions[0].steps[-1] == "close"
    assert live_answers(started.run) == []
    assert list((started.run / "switch").iterdir()) == []


def test_a_step_after_the_end_turns_nothing(engine, sessions):
    started = engine(on=False)
    write_control(started.run, SwitchState.ON)
    until(lambda: armed(started.scheduler))
    started.switch.close()
    started.scheduler.has_requests()
    assert sessions[0].steps == ["prepare", "close"]


def test_somebody_elses_wrapper_is_there_again_afterwards(engine):
    scheduler = Scheduler()
    scheduler.has_requests = foreign = lambda: "asked"
    started = engine(scheduler=scheduler)
    turn(started, SwitchState.OFF)
    assert scheduler.has_requests is foreign


def test_somebody_elses_wrapper_around_the_one_shot_stays(engine, sessions):
    started = engine()
    write_control(started.run, SwitchState.OFF)
    until(lambda: armed(started.scheduler))
    ours = started.scheduler.has_requests
    started.scheduler.has_requests = theirs = functools.partial(ours)
    assert started.scheduler.has_requests() == "asked"
    assert sessions[0].steps[2] == "end"
    assert started.scheduler.has_requests is theirs
    assert theirs() == "asked"


def test_a_killed_engine_is_not_alive(tmp_path):
    code = (
        "import os, sys; from pathlib import Path; from vstate.tracer.control import *;"
        "AnswerFile(Path(sys.argv[1]), 'engine-dp0-1-1').write(SwitchState.ON, 'f'); os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    assert (tmp_path / "switch" / "engine-dp0-1-1").exists()
    assert live_answers(tmp_path) == []


def test_files_are_private(tmp_path):
    file = AnswerFile(tmp_path / "run", "engine-x")
    write_control(tmp_path / "run", SwitchState.ON)
    for path in (tmp_path / "run" / "control", tmp_path / "run" / "switch" / "engine-x"):
        assert path.stat().st_mode & 0o777 == 0o600
    for path in (tmp_path / "run", tmp_path / "run" / "switch"):
        assert path.stat().st_mode & 0o777 == 0o700
    file.remove()


@pytest.mark.parametrize("engine_was_up", [True, False])
def test_a_server_that_was_never_switched_on_leaves_no_run(tmp_path, monkeypatch, engine_was_up):
    out = tmp_path / "run"

    def ended(command, folder, max_disk_bytes):
        if engine_was_up:
            AnswerFile(folder, "engine-x").remove()
            # What a worker measures says nothing without an engine.
            (folder / "events" / "worker-x").mkdir(parents=True)
            (folder / "events" / "worker-x" / "memory-0001.arrows").touch()
        return 0

    monkeypatch.setattr(serve, "_run", ended)
    monkeypatch.setattr(serve, "require_vllm", lambda: None)
    if engine_was_up:
        assert serve.serve(out, ["model"]) == 0
    else:
        with pytest.raises(VstateError, match="before its engine started"):
            serve.serve(out, ["model"])
    assert not out.exists()


def request(number, status, preemptions=0):
    return SimpleNamespace(
        request_id=f"r{number}",
        status=SimpleNamespace(name=status),
        num_preemptions=preemptions,
        vstate_external_id=f"client-{number}",
    )


def test_requests_that_have_lived_before_are_told_from_those_that_only_wait():
    """By attempt, on which `unknown_requests.sql` decides; a resumed one must get its real number."""
    requests = [
        request(0, "WAITING"),
        request(1, "RUNNING"),
        request(2, "PREEMPTED", preemptions=2),
        request(3, "RUNNING", preemptions=1),
        request(4, "WAITING_FOR_REMOTE_KVS"),
    ]
    recorder = Recorder(ChunkQueue(), pools=1)
    context = SimpleNamespace(
        recorder=recorder,
        scheduler=SimpleNamespace(requests={r.request_id: r for r in requests}),
        managers=[SimpleNamespace(req_to_blocks={"r1": [1], "r4": [2]})],
    )
    enter_live_requests(context)
    entries = list(recorder.requests.values())
    assert [entry.attempt for entry in entries] == [0, 1, 2, 2, 1]
    assert [entry.preempted for entry in entries] == [False, False, True, False, False]
    assert [entry.external for entry in entries] == [f"client-{number}" for number in range(5)]


def test_taking_hooks_away_leaves_somebody_elses_wrapper():
    class Owner:
        def first(self):
            return "first"

        def second(self):
            return "second"

    owner = Owner()
    pool = SimpleNamespace(block_pool=object())
    coordinator = SimpleNamespace(single_type_managers=[pool])
    manager = SimpleNamespace(coordinator=coordinator, block_pool=pool.block_pool)
    context = HookContext(SimpleNamespace(kv_cache_manager=manager), Recorder(ChunkQueue(), pools=1), bytes(16))
    for name in ("first", "second"):
        original = getattr(owner, name)
        context.replace(owner, name, lambda original=original: original())
    ours = owner.second
    owner.second = theirs = functools.partial(ours)
    context.undo()
    assert owner.first.__func__ is Owner.first
    assert owner.second is theirs
    assert theirs() == "second"
