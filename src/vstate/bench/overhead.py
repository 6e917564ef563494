"""What tracing costs the scheduler: stock, stock again, and traced engines, taking turns.

Each engine core has a process of its own, as it has where it serves: in one process they
would share compiled code, whose inline caches an engine with hooks and one without spoil
for each other. The parent lets one of them step at a time, a few dozen steps a turn; each
round of three gives a ratio of traced to stock and one of stock to stock, which is the noise
of the method.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass

from vstate.bench.engine_turns import TurnSettings
from vstate.schemas.errors import VstateError
from vstate.tracer.engines.launch import this_machine

ENGINES = ("stock", "again", "traced")


@dataclass(frozen=True)
class OverheadRow:
    """One measured cell; ratios are time with over time without, above 1 is slower."""

    engine: str
    model: str
    running: int
    lengths: str
    tracing: bool
    admission: bool
    throughput_ratio: float
    p95_ratio: float
    p999_ratio: float
    longest_stall_ms: float
    aa_throughput_ratio: float
    aa_p95_ratio: float
    throughput_spread: tuple[float, float]
    aa_throughput_spread: tuple[float, float]
    pairs: int
    steps_per_turn: int
    stock_step_ms: float


class EngineProcess:
    """An engine in a process of its own that steps only when it is told to."""

    def __init__(self, settings: TurnSettings) -> None:
        """Start it; `ready` waits until its requests decode."""
        command = [sys.executable, "-m", "vstate.bench.engine_turns", json.dumps(settings.__dict__)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, encoding="utf-8"
        )

    def _answer(self) -> list[float]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise VstateError("a benchmark engine ended early; run vstate doctor, then try again")
        times: list[float] = json.loads(line)
        return times

    def ready(self) -> None:
        """Wait until the engine's requests decode."""
        self._answer()

    def turn(self) -> list[float]:
        """Let it make a turn; returns the seconds of each step."""
        assert self._process.stdin is not None
        self._process.stdin.write("turn\n")
        self._process.stdin.flush()
        return self._answer()

    def close(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def measure_overhead(running: int, pairs: int, steps: int, told: Callable[[str], None]) -> list[OverheadRow]:
    """Measure a dense model with ``running`` requests decoding, with mixed and with equal lengths.

    Args:
        running: Requests that decode together.
        pairs: Turns of each engine.
        steps: Steps of a turn.
        told: Called with what is being done.

    Raises:
        VstateError: An engine ended early.
    """
    rows = []
    for lengths in ("mixed", "equal"):
        told(f"{running} running, {lengths} lengths: starting three engines")
        rows.append(_measure(lengths, running, pairs, steps))
    return rows


def _measure(lengths: str, running: int, pairs: int, steps: int) -> OverheadRow:
    engines = [EngineProcess(TurnSettings(running, lengths, pairs, steps, traced=name == "traced")) for name in ENGINES]
    times: list[list[list[float]]] = [[] for _ in engines]
    try:
        for engine in engines:
            engine.ready()
        for turn in range(pairs):
            for offset in range(len(engines)):
                index = (turn + offset) % len(engines)
                times[index].append(engines[index].turn())
    finally:
        for engine in engines:
            engine.close()
    return _row(lengths, running, steps, *(_Turns.of(engine_times) for engine_times in times))


def _row(lengths: str, running: int, steps: int, stock: _Turns, again: _Turns, traced: _Turns) -> OverheadRow:
    ratios, noise = traced.over(stock), again.over(stock)
    return OverheadRow(
        engine="scheduler loop, stand-in worker",
        model="tiny/qwen3",
        running=running,
        lengths=lengths,
        tracing=True,
        admission=False,
        throughput_ratio=statistics.median(ratios),
        p95_ratio=traced.p95_over(stock),
        p999_ratio=_quantile(traced.all, 0.999) / _quantile(stock.all, 0.999),
        longest_stall_ms=max(traced.all) * 1e3,
        aa_throughput_ratio=statistics.median(noise),
        aa_p95_ratio=again.p95_over(stock),
        throughput_spread=_spread(ratios),
        aa_throughput_spread=_spread(noise),
        pairs=len(ratios),
        steps_per_turn=steps,
        stock_step_ms=statistics.median(stock.all) * 1e3,
    )


@dataclass(frozen=True)
class _Turns:
    """Step times of one engine: the sum and the 95th percentile of each turn, and all of them."""

    sums: list[float]
    p95: list[float]
    all: list[float]

    @classmethod
    def of(cls, times: list[list[float]]) -> _Turns:
        return cls(
            sums=[sum(turn) for turn in times],
            p95=[_quantile(turn, 0.95) for turn in times],
            all=[step for turn in times for step in turn],
        )

    def over(self, other: _Turns) -> list[float]:
        return [mine / theirs for mine, theirs in zip(self.sums, other.sums, strict=True)]

    def p95_over(self, other: _Turns) -> float:
        return statistics.median(mine / theirs for mine, theirs in zip(self.p95, other.p95, strict=True))


def _quantile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def _spread(ratios: list[float]) -> tuple[float, float]:
    quarters = statistics.quantiles(ratios, n=4)
    return quarters[0], quarters[2]


def machine_line() -> str:
    """One line on the machine, for tables of figures."""
    machine = this_machine()
    memory = machine.memory_bytes / 2**30
    return f"{machine.cpus} cores {machine.architecture}, {memory:.0f} GiB, Python {machine.python}"
