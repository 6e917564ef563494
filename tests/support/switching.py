"""Drives an engine whose tracing is switched before given steps, and looks at what is on it."""

import json
import os
import time
from pathlib import Path

from vstate.tracer import switch as switch_module
from vstate.tracer.anchors import WRAPPER_MARK
from vstate.tracer.control import SwitchState, write_control
from vstate.tracer.settings import TRACE_RUN

switch_module.POLL_SECONDS = 0.01


def hooked(scheduler):
    """Names of the methods with a wrapper of vstate, on all objects of a scheduler that hooks are put on."""
    manager = scheduler.kv_cache_manager
    singles = manager.coordinator.single_type_managers
    pools = {id(single.block_pool): single.block_pool for single in singles}.values()
    objects = (scheduler, manager, manager.coordinator, *singles, *pools, scheduler.encoder_cache_manager)
    names = [(thing, name) for thing in objects for name in dir(thing) if not name.startswith("__")]
    return sorted(f"{type(t).__name__}.{n}" for t, n in names if hasattr(getattr(t, n, None), WRAPPER_MARK))


class SwitchedEngine:
    """An `LLMEngine` of which the driver sees nothing else.

    Attributes:
        turns: State to switch to, by the number of the step before which it is still to happen; given as JSON.
        tokens: Sampled tokens of each request that ended.
        hooks: After each step, whether tracing is on and which methods have a wrapper.
        folders: Process folders written so far, in their order.
    """

    def __init__(self, engine, turns):
        self._engine = engine
        self._scheduler = engine.engine_core.engine_core.scheduler
        self._steps = 0
        self.turns = {int(step): state for step, state in json.loads(turns).items()}
        self.tokens = {}
        self.hooks = []
        self.folders = []
        self._note()

    def __getattr__(self, name):
        return getattr(self._engine, name)

    def _note(self):
        session = self._scheduler.vstate_switch.session
        if session is not None and session.folder.name not in self.folders:
            self.folders.append(session.folder.name)
        return session is not None

    def step(self):
        self._steps += 1
        if turn := self.turns.pop(self._steps, None):
            write_control(Path(os.environ[TRACE_RUN]), SwitchState(turn))
            deadline = time.monotonic() + 60
            while not hasattr(self._scheduler.has_requests, WRAPPER_MARK):
                assert time.monotonic() < deadline, "the switch never asked for the engine's thread"
                time.sleep(0.001)
        outputs = self._engine.step()
        self.hooks.append((self._note(), hooked(self._scheduler)))
        for output in outputs:
            if output.finished:
                self.tokens[output.request_id] = list(output.outputs[0].token_ids)
        return outputs
