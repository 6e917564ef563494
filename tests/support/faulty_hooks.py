"""Lets each part of the recording fail in turn, under a real scheduler that is watched from both sides of each hook.

Two steps are in flight and freed blocks wait for them, on a stand-in worker without a forward. Every
method that a hook replaces is replaced twice more: a spy below the hook sees what reaches vLLM, a spy above it
what the caller gave and got.

usage: python faulty_hooks.py MODEL SETTINGS ANSWER (the environment says where the trace goes)
"""

import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from inspect import signature
from pathlib import Path

from vllm import EngineArgs
from vllm.v1.engine.llm_engine import LLMEngine
from vllm.v1.executor import Executor

from support.recorded import wait_until
from vstate.tracer import (
    admission_hook,
    encoder_hooks,
    hooks,
    pool_hooks,
    recorder,
    request_hooks,
    snapshots,
    step_hooks,
    wrapping,
)
from vstate.tracer.engines.driver import drive
from vstate.tracer.engines.llm_port import LlmPort
from vstate.tracer.models.tiny import build, engine_arguments, tiny_model
from vstate.tracer.workloads.prompts import PromptSource
from vstate.tracer.workloads.smoke import smoke

TARGETS = {
    recorder.Recorder: (
        "blocks cache_insert row boundary snapshot_row entry new_request reason name hand_over repeat_names "
        "between_boundaries _begin_segment _drop"
    ),
    wrapping.HookContext: "pool_index keyed",
    pool_hooks: "holder_of resident_ids",
    request_hooks: "request_row resident_ids ids_by_pool parent_id monotonic_ns",
    request_hooks.RequestHooks: "_resident",
    step_hooks: "take_snapshot request_row monotonic_ns",
    step_hooks.StepHooks: "_record_schedule _record_admissions _record_chunks _step_row",
    admission_hook: "request_row",
    admission_hook.AdmissionHook: "_stock_estimate _group_hits _record _record_hits _record_estimates disarm",
    encoder_hooks: "monotonic_ns",
    encoder_hooks.EncoderHooks: "_item_row _row",
    snapshots: "_write_request_tables _write_deferred _write_hashes _write_encoder",
}
"""What a hook calls while it records, and may fail."""


class Fault:
    """Which target fails, and at which of its calls."""

    def __init__(self):
        self.target, self.every, self.kind = "", 1, RuntimeError
        self.calls = self.raised = 0

    def set(self, target, every=1, kind=RuntimeError):
        self.target, self.every, self.kind = target, every, kind
        self.calls = self.raised = 0

    def strike(self, target):
        if target == self.target:
            self.calls += 1
            if self.calls % self.every == 0:
                self.raised += 1
                raise self.kind("planted")


FAULT = Fault()
NOW_AND_THEN = ("Recorder.", "pool_hooks.", "request_hooks.", "StepHooks.")
CHUNK_NS = 20_000_000
"""Age of a chunk, and the pause between snapshots after losses: some of each in every round."""
SNAPSHOT_STEPS = 20
"""Steps after which a snapshot is wanted, so that each part of it has its turn to fail."""


def plant(owner, name):
    """Make a function of the tracer fail when its turn comes; return how it is called."""
    target = f"{getattr(owner, '__name__', owner).rpartition('.')[2]}.{name}"
    original = getattr(owner, name)

    def failing(*arguments, **keywords):
        FAULT.strike(target)
        return original(*arguments, **keywords)

    setattr(owner, name, failing)
    return target


class Spies:
    """The two spies around each hook."""

    def __init__(self):
        self.stack = []
        self.calls = Counter()
        self.wrong = []
        self.below = {}
        self.signatures = {}

    def put_below(self, owner, name):
        key = (id(owner), name)
        self.below[key] = getattr(owner, name)
        self.signatures[key] = signature(self.below[key])

        def below(*arguments, **keywords):
            result = self.below[key](*arguments, **keywords)
            open_calls = [call for call in self.stack if call["key"] == key]
            if open_calls:
                open_calls[-1]["seen"].append((arguments, keywords, result))
            else:
                self.wrong.append(f"{name} reached vLLM without a caller")
            return result

        setattr(owner, name, below)

    def put_above(self, owner, name):
        key, hook = (id(owner), name), getattr(owner, name)

        def above(*given, **keywords):
            # What can be read once only is read here, so that it can be compared.
            arguments = tuple(list(a) if isinstance(a, Iterator) else a for a in given)
            call = {"key": key, "seen": []}
            self.stack.append(call)
            self.calls[name] += 1
            try:
                result = hook(*arguments, **keywords)
            except Exception as error:
                self.wrong.append(f"{name} raised {error!r}")
                raise
            finally:
                self.stack.pop()
            if len(call["seen"]) != 1:
                self.wrong.append(f"{name} reached vLLM {len(call['seen'])} times")
                return result
            ((seen, seen_keywords, returned),) = call["seen"]
            # A hook may hand on by position what it was given by name.
            bind = self.signatures[key].bind
            if not same(bind(*arguments, **keywords).arguments, bind(*seen, **seen_keywords).arguments):
                self.wrong.append(f"{name} reached vLLM with other arguments")
            if returned is not result:
                self.wrong.append(f"{name} gave its caller another result")
            return result

        setattr(owner, name, above)


def same(one, other):
    """Whether two values are the same objects, or hold the same objects in the same places."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return one is other or (isinstance(one, (int, str, bytes)) and one == other)


def watch(spies):
    """Have the spies put in place when the hooks are."""
    install = hooks.EngineHooks.install

    def install_between(self):
        install(self)
        replaced = [(owner, name) for owner, name, *_ in self._context._replaced]
        self.uninstall()
        for owner, name in replaced:
            spies.put_below(owner, name)
        install(self)
        for owner, name in replaced:
            spies.put_above(owner, name)
        spies.context = self._context
        spies.replaced = replaced

    hooks.EngineHooks.install = install_between


def call_the_rest(scheduler, spies):
    """Call what the workload leads to in no engine of this kind, with nothing of vLLM behind it."""
    request = spies.last_request
    pool = spies.context.pools[0]
    block = pool.blocks[1]
    cases = {
        (id(scheduler), "_update_request_as_session"): (scheduler, (request, object())),
        (id(pool), "unpin_blocks"): (pool, ([block], print)),
        (id(pool), "move_block_hashes"): (pool, (block, pool.blocks[2])),
        (id(spies.context.managers[0]), "_apply_cow"): (
            spies.context.managers[0],
            (request.request_id, 0, block, pool.blocks[2]),
        ),
        (id(pool), "reset_prefix_cache"): (pool, ()),
    }
    # None of it happens, and the next snapshot says so.
    spies.context.recorder.lose()
    for key, (owner, arguments) in cases.items():
        if key not in spies.below:
            continue
        real, answer = spies.below[key], object()
        spies.below[key] = lambda *_, answer=answer, **__: answer
        try:
            if getattr(owner, key[1])(*arguments) is not answer:
                spies.wrong.append(f"{key[1]} did not pass its result on")
        finally:
            spies.below[key] = real
    spies.context.recorder.requests.pop(request.request_id, None)


class Watched:
    """An engine whose answers are kept, and whose tables are asked for again and again."""

    def __init__(self, engine, recorder):
        self._engine = engine
        self._recorder = recorder
        self._steps = 0
        self.answers = {}

    def __getattr__(self, name):
        return getattr(self._engine, name)

    def step(self):
        self._steps += 1
        if self._steps % SNAPSHOT_STEPS == 0:
            self._recorder.snapshot_wanted = True
        outputs = self._engine.step()
        for output in outputs:
            if output.finished:
                (only,) = output.outputs
                self.answers[output.request_id] = (len(only.token_ids), only.finish_reason, output.num_cached_tokens)
        return outputs


def main():
    model, settings = tiny_model(sys.argv[1]), json.loads(sys.argv[2])
    recorder.CHUNK_NS = CHUNK_NS
    targets = [plant(owner, name) for owner, names in TARGETS.items() for name in names.split()]
    spies = Spies()
    watch(spies)
    with tempfile.TemporaryDirectory() as scratch:
        folder = build(model, Path(scratch))
        settings = {
            "num_gpu_blocks_override": model.smoke_blocks,
            "worker_cls": "support.async_engine.AsyncStandInWorker",
        } | settings
        config = EngineArgs(model=str(folder), **engine_arguments(model, folder, settings)).create_engine_config()
        config.scheduler_config.async_scheduling = True
        engine = LLMEngine(vllm_config=config, executor_class=Executor.get_class(config), log_stats=False)
        core = engine.engine_core.engine_core
        scheduler = core.scheduler
        scheduler.defer_block_free = True
        assert model.media is not None
        placeholders, vocabulary = model.media.placeholders, model.media.text_vocabulary
        media = tuple(placeholders)
        longest = config.model_config.max_model_len
        free = scheduler._free_blocks

        def remember(request):
            spies.last_request = request
            return free(request)

        scheduler._free_blocks = remember

        def round_of(target="", every=1):
            watched = Watched(engine, spies.context.recorder)
            spies.calls.clear()
            spies.wrong.clear()
            FAULT.set(target, every)
            prompts = PromptSource(0, vocabulary, placeholders, config.cache_config.block_size)
            drive(LlmPort(watched, prompts, longest), smoke(media), told=lambda _: None)
            scheduler.encoder_cache_manager.reset()
            while not engine.reset_prefix_cache():
                engine.step()
            calls = dict(sorted(spies.calls.items()))
            call_the_rest(scheduler, spies)
            raised = FAULT.raised
            # What one round leaves unwritten must not cost the next one its snapshots.
            wait_until(lambda: not len(spies.context.recorder.queue), "an empty queue")
            FAULT.set("")
            spies.context._faults = 0
            spies.context.recorder.writer_alive = True
            return {
                "target": target,
                "raised": raised,
                "wrong": spies.wrong[:5],
                "calls": calls,
                "answers": watched.answers,
                "kept": len(spies.context.recorder.requests),
            }

        rounds = [round_of(), round_of()]
        rounds += [round_of(target) for target in targets]
        # Now and then: what is recorded between two faults must not be half of something.
        rounds += [round_of(target, every=7) for target in targets if target.startswith(NOW_AND_THEN)]
        rounds.append(round_of())
        interrupted = interrupt(engine, PromptSource(0, vocabulary, placeholders, 16), longest)
        hooked = sorted({name for _, name in spies.replaced})
        engine.engine_core.shutdown()
    answer = {"rounds": rounds, "hooked": hooked, "interrupted": interrupted}
    Path(sys.argv[3]).write_text(json.dumps(answer))
    # The engine is shut down; what native libraries do while an interpreter ends is not under test.
    sys.stdout.flush()
    os._exit(0)


def interrupt(engine, prompts, longest):
    """Interrupt the recording of an allocation, as a signal may; it must reach the caller."""
    FAULT.set("Recorder.blocks", 3, KeyboardInterrupt)
    try:
        drive(LlmPort(engine, prompts, longest), smoke(), told=lambda _: None)
    except KeyboardInterrupt:
        return True
    finally:
        FAULT.set("")
    return False


if __name__ == "__main__":
    main()
