"""Simulated forks of vLLM and wrappers of others, tried one after the other in one process.

Importing vLLM takes longer than all of them together. Each case patches vLLM, looks at it as doctor and
the plugin do, and takes the patch away. Prints one JSON object: what was found, by case.

usage: python forks.py FOLDER
"""

import functools
import json
import logging
import os
import sys
import types
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest import mock

import vllm
import vllm.v1.core.encoder_cache_manager as encoder_module
import vllm.v1.core.kv_cache_coordinator as coordinator_module
import vllm.v1.core.sched.scheduler as scheduler_module
import vllm.v1.core.single_type_kv_cache_manager as manager_module
from vllm.config.scheduler import SchedulerConfig
from vllm.plugins import load_general_plugins
from vllm.v1.core.block_pool import BlockPool
from vllm.v1.engine.core import EngineCore

from vstate.doctor.fit import FitRequest
from vstate.doctor.fit_run import fit
from vstate.doctor.probe import ProbeRequest
from vstate.doctor.probe_engine import ProbeEngine, make_scheduler, probe_config
from vstate.doctor.probe_run import probe
from vstate.tracer.hooks import EngineHooks
from vstate.tracer.plugin import register
from vstate.tracer.recorder import ChunkQueue, Recorder
from vstate.tracer.wrapping import LOGGER

VERSION = "99.0.0+fork"


class FittingPool(BlockPool):
    """A fork's pool that overrides what it likes and keeps to the names."""

    def touch(self, blocks):
        super().touch(blocks)


class OtherPool(BlockPool):
    """A fork's pool whose method takes another parameter."""

    def free_blocks(self, blocks, urgent=False):
        super().free_blocks(blocks)


class ReleasingPool(BlockPool):
    """A fork's pool that lowers references and fills the free queue on a way of its own."""

    def release(self, blocks):
        for block in blocks:
            block.ref_cnt -= 1
            if block.ref_cnt == 0 and not block.is_null:
                self.free_block_queue.append(block)


class ReservingPool(BlockPool):
    """A fork's pool that takes a block for itself when it first caches something."""

    reserved = None

    def cache_full_blocks(self, request, *args, **kwargs):
        super().cache_full_blocks(request, *args, **kwargs)
        if self.reserved is None:
            self.reserved = self.free_block_queue.popleft()
            self.reserved.ref_cnt += 1


class ForgettingPool(BlockPool):
    """A fork's pool that drops hashes on a way of its own."""

    def _maybe_evict_cached_block(self, block):
        found = block.block_hash is not None
        if found:
            others = self.cached_block_hashes_by_block.pop(block.block_id, set())
            for key in {block.block_hash, *others}:
                self.cached_block_hash_to_block.pop(key, block.block_id)
            block.reset_hash()
        return found


class MiscountingPool(BlockPool):
    """A fork's pool whose free counter drifts away from its list."""

    def reset_prefix_cache(self):
        self.free_block_queue.num_free_blocks -= 1
        return super().reset_prefix_cache()


class KeepingEncoderCache(encoder_module.EncoderCacheManager):
    """A fork's encoder cache that makes room on a way of its own."""

    def can_allocate(self, request, input_id, *budgets):
        while self.freeable:
            identity, embeds = self.freeable.popitem(last=False)
            del self.cached[identity]
            getattr(self, "num_embeds_by_hash", {}).pop(identity, None)
            self.num_free_slots += embeds
        return super().can_allocate(request, input_id, *budgets)


class ForkScheduler(scheduler_module.Scheduler):
    """A fork's scheduler."""


def release_instead_of_free(manager, request_id):
    manager.block_pool.release(reversed(manager.pop_blocks_for_free(request_id)))


def fail_instead_of_free(manager, request_id):
    raise RuntimeError(f"planted for {request_id}")


class OtherLibrary:
    """Wraps methods as other plugins do; its functions say that they come from a module of its own."""

    def __init__(self):
        module = types.ModuleType("other_library")
        source = (
            "import functools\n"
            "calls = []\n"
            "def wrap(method):\n"
            "    @functools.wraps(method)\n"
            "    def wrapper(*args, **kwargs):\n"
            "        calls.append(method.__name__)\n"
            "        return method(*args, **kwargs)\n"
            "    return wrapper\n"
        )
        exec(source, module.__dict__)
        self.wrap, self.calls = module.wrap, module.calls

    def wraps_each_new_pool(self):
        initialize = BlockPool.__init__

        @functools.wraps(initialize)
        def initialize_and_wrap(pool, *args, **kwargs):
            initialize(pool, *args, **kwargs)
            pool.get_new_blocks = self.wrap(pool.get_new_blocks)

        return mock.patch.object(BlockPool, "__init__", initialize_and_wrap)


class Told(logging.Handler):
    """Keeps what vstate says."""

    def __init__(self):
        super().__init__()
        self.lines = []

    def emit(self, record):
        self.lines.append(record.getMessage())


@contextmanager
def without_touch():
    touch = BlockPool.touch
    BlockPool.touch_all = touch
    del BlockPool.touch
    try:
        yield
    finally:
        BlockPool.touch = touch
        del BlockPool.touch_all


def looked_at(*patches):
    """What doctor finds, and what the plugin says and leaves of vLLM when it is switched on."""
    with ExitStack() as patched:
        for patch in patches:
            patched.enter_context(patch)
        before = (SchedulerConfig.get_scheduler_cls, EngineCore.preprocess_add_request, EngineCore.shutdown)
        told = Told()
        LOGGER.addHandler(told)
        register()
        LOGGER.removeHandler(told)
        untouched = before == (
            SchedulerConfig.get_scheduler_cls,
            EngineCore.preprocess_add_request,
            EngineCore.shutdown,
        )
        SchedulerConfig.get_scheduler_cls, EngineCore.preprocess_add_request, EngineCore.shutdown = before
        return {"fit": fit(FitRequest()).model_dump(mode="json"), "log": told.lines, "untouched": untouched}


def probed(*patches):
    """What the probe finds."""
    with ExitStack() as patched:
        for patch in patches:
            patched.enter_context(patch)
        report = probe(ProbeRequest())
    return report.model_dump(mode="json", exclude={"fit"}) | {"faults": report.faults}


def pool(cls):
    return mock.patch.object(coordinator_module, "BlockPool", cls)


def wrapped_by_others():
    """A wrapper on the class and one on each object are both chained to."""
    library = OtherLibrary()
    on_class = mock.patch.object(BlockPool, "free_blocks", library.wrap(BlockPool.free_blocks))
    return probed(on_class, library.wraps_each_new_pool()) | {"calls": sorted(set(library.calls))}


def undone(folder):
    """Hooks that cannot all be put in place leave the objects as they were, with the wrappers of others."""
    library = OtherLibrary()
    config = probe_config(folder)
    scheduler = make_scheduler(config)
    owned = scheduler.kv_cache_manager.block_pool
    owned.touch = theirs = library.wrap(owned.touch)
    recorder = Recorder(ChunkQueue(), pools=1)
    recorder.boundary = mock.Mock(side_effect=RuntimeError("planted"))
    try:
        EngineHooks(scheduler, recorder, bytes(16)).install()
    except RuntimeError as error:
        raised = str(error)
    engine = ProbeEngine(scheduler, config, lambda: None)
    for name in ("first", "second"):
        engine.add(name, range(200), outputs=2)
        engine.step()
    return {
        "raised": raised,
        "theirs": owned.touch is theirs,
        "ours": sorted({*vars(scheduler), *vars(owned)} & {"schedule", "free_blocks", "get_new_blocks", "add_request"}),
        "calls": library.calls,
    }


def main() -> None:
    os.environ.update(HF_HUB_OFFLINE="1", VLLM_NO_USAGE_STATS="1", VLLM_ENABLE_V1_MULTIPROCESSING="0")
    folder = Path(sys.argv[1])
    load_general_plugins()  # once, while nothing asks for a trace
    os.environ["VSTATE_TRACE_RUN"] = str(folder / "run")
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    found = {
        "another version": looked_at(mock.patch.object(vllm, "__version__", VERSION)),
        "renamed method": looked_at(without_touch()),
        "changed signature": looked_at(mock.patch.object(BlockPool, "free_blocks", OtherPool.free_blocks)),
        "fitting pool": looked_at(pool(FittingPool)),
        "other pool": looked_at(pool(OtherPool)),
        "scheduler": looked_at(mock.patch.object(scheduler_module, "Scheduler", ForkScheduler)),
        "wrapper": looked_at(mock.patch.object(BlockPool, "free_blocks", OtherLibrary().wrap(BlockPool.free_blocks))),
    }
    del os.environ["VSTATE_TRACE_RUN"]
    manager = manager_module.SingleTypeKVCacheManager
    found |= {
        "stock books": probed(),
        "fitting books": probed(pool(FittingPool)),
        "releases": probed(pool(ReleasingPool), mock.patch.object(manager, "free", release_instead_of_free)),
        "reserves": probed(pool(ReservingPool)),
        "forgets": probed(pool(ForgettingPool)),
        "miscounts": probed(pool(MiscountingPool)),
        "fails": probed(mock.patch.object(manager, "free", fail_instead_of_free)),
        "keeps room": probed(mock.patch.object(scheduler_module, "EncoderCacheManager", KeepingEncoderCache)),
        "wrapped books": wrapped_by_others(),
        "undone": undone(folder),
    }
    answers.write(json.dumps(found))
    answers.close()
    os._exit(0)


if __name__ == "__main__":
    main()
