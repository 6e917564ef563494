"""Which lines are due, compared with a plain loop over all of them."""

from hypothesis import given
from hypothesis import strategies as st

from vstate.schemas.workload import parse_line
from vstate.tracer.engines.arrivals import Arrivals
from vstate.tracer.engines.driver import Ended, TooLongError, drive


def line(name, when, **more):
    import json

    prompt = [{"name": name, "length": {"tokens": 3}}]
    return parse_line(json.dumps({"id": name, "when": when, "prompt": prompt, "output": {"tokens": 2}} | more))


def abort(name, when):
    import json

    return parse_line(json.dumps({"kind": "abort", "id": name, "when": when}))


class PlainEngine:
    """Runs everything that it was given, one token a step, a second a step; says what it was told and when."""

    def __init__(self, lengths=None, longest=None):
        self.log = []
        self.left = {}
        self.now = 0.0
        self.steps = 0
        self.lengths = lengths or {}
        self.longest = longest

    def add(self, request):
        if self.longest is not None and len(request.id) > self.longest:
            raise TooLongError(request.id)
        self.log.append((self.steps, self.now, "add", request.id))
        self.left[request.id] = self.lengths.get(request.id, 2)

    def abort(self, request_id):
        self.log.append((self.steps, self.now, "abort", request_id))
        self.left.pop(request_id, None)

    def has_unfinished(self):
        return bool(self.left)

    def step(self):
        self.steps += 1
        self.now += 1.0
        ended = []
        for name in list(self.left):
            self.left[name] -= 1
            ended.append(Ended(name, self.left[name] == 0))
            if not self.left[name]:
                del self.left[name]
        return ended

    def seconds(self):
        return self.now

    def wait_until(self, seconds):
        self.now = max(self.now, seconds)


def run(lines, **options):
    engine = PlainEngine(**{name: options.pop(name) for name in ("lengths", "longest") if name in options})
    driven = drive(engine, lines, told=lambda _: None, **options)
    return engine.log, driven


def test_lines_that_are_due_together_come_in_the_order_of_the_file():
    lines = [
        line("c", {"after": "a"}),
        line("a", {"at_step": 0}),
        line("d", {"after": "a", "event": "finish"}),
        line("b", {"at_step": 0}),
    ]
    log, _ = run(lines)
    assert [name for _, _, _, name in log] == ["a", "b", "c", "d"]


def test_an_abort_of_what_has_ended_does_nothing():
    lines = [line("a", {"at_step": 0}), abort("a", {"after": "a"}), abort("a", {"at_step": 1})]
    log, _ = run(lines, lengths={"a": 9})
    assert [what for _, _, what, _ in log] == ["add", "abort"]


def test_think_time_is_counted_from_the_event():
    lines = [line("a", {"at_s": 4.0}), line("b", {"after": "a", "delay_s": 10.5})]
    log, _ = run(lines)
    assert [(now, name) for _, now, _, name in log] == [(4.0, "a"), (16.5, "b")]


def test_a_clock_that_nothing_moves_jumps_to_the_next_arrival():
    lines = [line("a", {"at_s": 100.0}), line("b", {"at_s": 100.25}), line("c", {"at_s": 5000.0})]
    log, _ = run(lines, in_order_of_time=True)
    assert [(now, name) for _, now, _, name in log] == [(100.0, "a"), (101.0, "b"), (5000.0, "c")]


def test_a_workload_in_order_of_time_is_read_as_it_goes():
    read = []

    def stream():
        for number in range(50):
            read.append(number)
            yield line(f"r{number}", {"at_s": float(10 * number)})

    arrivals = Arrivals(stream(), in_order_of_time=True)
    assert len(read) == 1
    assert [found.id for found in arrivals.due(0, 20.0)] == ["r0", "r1", "r2"]
    assert len(read) == 4


def test_an_abort_that_is_read_later_knows_that_its_request_has_ended():
    lines = [line("a", {"at_s": 0.0}), line("b", {"at_s": 1.0}), abort("a", {"at_s": 50.0}), abort("b", {"at_s": 60.0})]
    log, _ = run(lines, in_order_of_time=True, referenced=["a", "b"], lengths={"a": 2, "b": 100})
    assert [(what, name) for _, _, what, name in log] == [("add", "a"), ("add", "b"), ("abort", "b")]


def test_who_waits_for_a_request_that_is_left_out_does_not_wait_for_ever():
    lines = [line("far-too-long", {"at_step": 0}), line("b", {"after": "far-too-long"})]
    log, driven = run(lines, longest=4, skip_too_long=True)
    assert [name for _, _, _, name in log] == ["b"]
    assert (driven.requests, driven.skipped) == (1, 1)


names = [f"r{n}" for n in range(8)]


@st.composite
def workloads(draw):
    lines = []
    for number, name in enumerate(names):
        kinds = ["step", "time", "after"] if number else ["step", "time"]
        kind = draw(st.sampled_from(kinds))
        if kind == "step":
            when = {"at_step": draw(st.integers(0, 12))}
        elif kind == "time":
            when = {"at_s": float(draw(st.integers(0, 12)))}
        else:
            event = draw(st.sampled_from(["first_token", "finish"]))
            when = {"after": names[draw(st.integers(0, number - 1))], "event": event}
            when["delay_s"] = float(draw(st.integers(0, 3)))
        lines.append(line(name, when))
    order = draw(st.permutations(range(len(lines))))
    return [lines[place] for place in order], {name: draw(st.integers(1, 4)) for name in names}


def by_hand(lines, lengths):
    """The same by asking every line at every turn whether it is due."""
    waiting, log, happened, left, steps, turns, now = list(enumerate(lines)), [], {}, {}, 0, 0, 0.0

    def moment(when):
        if when.at_s is not None:
            return when.at_s
        seen = happened.get((when.after, when.event))
        return None if seen is None else seen + when.delay_s

    while waiting or left:
        ready = []
        for number, found in waiting:
            when = found.when
            at = moment(when)
            if (when.at_step is not None and turns >= when.at_step) or (at is not None and at <= now):
                ready.append((number, found))
        waiting = [entry for entry in waiting if entry not in ready]
        for _, found in ready:
            log.append((steps, now, "add", found.id))
            left[found.id] = lengths[found.id]
        if left:
            steps, now = steps + 1, now + 1.0
            for name in list(left):
                left[name] -= 1
                happened.setdefault((name, "first_token"), now)
                if not left[name]:
                    happened.setdefault((name, "finish"), now)
                    del left[name]
        elif not ready and not any(found.when.at_step is not None for _, found in waiting):
            now = max(now, min(at for _, found in waiting if (at := moment(found.when)) is not None))
        turns += 1
    return log


@given(workloads())
def test_the_same_as_asking_every_line_at_every_turn(case):
    lines, lengths = case
    assert run(lines, lengths=lengths)[0] == by_hand(lines, lengths)
