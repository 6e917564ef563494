"""Runs `vstate` and scripts in forks of a process that has vLLM imported already.

Importing vLLM takes half of the time of a run of a tiny model. What is forked is a process with vLLM, torch and the
libraries of reconcile, and nothing of vstate; so commands, launchers and engines import vstate anew, with the
environment that they are given; an engine is forked from beside its launcher, for the same reason. What must be a
process of its own from the start (a server, a launcher that is killed) is started as one by its tests.

The zygote talks JSON lines over its standard input and output: a request, the child's pid, its exit code.
"""

from __future__ import annotations

import atexit
import faulthandler
import functools
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir

TESTS = Path(__file__).resolve().parent.parent
SECONDS = 280
"""Most that one command of a test may take."""
SEED = "0"
"""Of `PYTHONHASHSEED`, which no process can change once it runs; the seed that runs have by default."""
CRASHES = Path(gettempdir()) / f"vstate-crashes-{os.getuid()}.log"
"""Where forked processes leave a traceback."""
ENGINE_MODULES = "vstate.tracer.engines."
FIXED = {
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "PYTHONHASHSEED": SEED,
    "VLLM_NO_USAGE_STATS": "1",
}
"""Read while vLLM and its libraries are imported; the launcher sets the same."""


class Zygote:
    """A process with vLLM imported, for the tests of one worker of pytest."""

    def __init__(self):
        command = [sys.executable, "-m", "support.zygote"]
        path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
        environment = os.environ | FIXED | {"PYTHONPATH": path}
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment)
        self._lock = threading.Lock()

    def run(self, arguments, environment, timeout):
        """Run `python ARGUMENTS` in a fork, as `subprocess.run` would with captured output."""
        with TemporaryDirectory() as scratch, self._lock:
            out, err = Path(scratch) / "out", Path(scratch) / "err"
            request = {
                "arguments": [str(argument) for argument in arguments],
                "environment": environment,
                "folder": os.getcwd(),
                "out": str(out),
                "err": str(err),
            }
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            pid = int(self._process.stdout.readline())
            timer = threading.Timer(timeout, os.killpg, (pid, signal.SIGKILL))
            timer.start()
            code = int(self._process.stdout.readline())
            timer.cancel()
            if code == -signal.SIGKILL and not timer.is_alive():
                raise subprocess.TimeoutExpired(arguments, timeout, out.read_text(), err.read_text())
            return subprocess.CompletedProcess(arguments, code, out.read_text(), err.read_text())

    def close(self):
        self._process.stdin.close()
        self._process.wait(timeout=30)


@functools.cache
def zygote_of_this_process():
    """Make the zygote when it is first needed; it ends with this process."""
    made = Zygote()
    atexit.register(made.close)
    return made


def run_forked(arguments, environment):
    """Run `python ARGUMENTS` in a fork of a process that has vLLM imported already."""
    return zygote_of_this_process().run(arguments, environment, SECONDS)


def run_anew(arguments, environment):
    """Run `python ARGUMENTS` in a process that has imported nothing yet."""
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, env=environment, check=False, capture_output=True, text=True, timeout=SECONDS)


class NurseryEngine:
    """An engine's process for its launcher: what it needs of `subprocess.Popen`, forked by a nursery."""

    def __init__(self, nursery, command, *, stderr, env, **_):
        read, write = os.pipe()
        message = json.dumps({"arguments": command[1:], "environment": env}).encode()
        socket.send_fds(nursery, [len(message).to_bytes(4)], [write, stderr])
        nursery.sendall(message)
        os.close(write)
        self._nursery = nursery
        self.returncode = None
        self.pid = int.from_bytes(exactly(nursery, 4))
        self.stdout = os.fdopen(read, encoding="utf-8")

    def wait(self, timeout=None):
        if self.returncode is None:
            self._nursery.settimeout(timeout)
            try:
                self.returncode = int.from_bytes(exactly(self._nursery, 4), signed=True)
            except TimeoutError:
                raise subprocess.TimeoutExpired("engine", timeout) from None
        return self.returncode


def exactly(connection, count):
    data = b""
    while len(data) < count:
        if not (more := connection.recv(count - len(data))):
            raise EOFError("the other end of a nursery's connection is gone")
        data += more
    return data


def raise_engines(connection):
    """Fork each engine that is asked for, one after the other; where it was forked from, nothing of vstate is known."""
    while True:
        head, descriptors, *_ = socket.recv_fds(connection, 4, 2)
        if not head:
            os._exit(0)
        request = json.loads(exactly(connection, int.from_bytes(head)))
        pid = os.fork()
        if not pid:
            os.setsid()
            become(request["arguments"], request["environment"], *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        connection.sendall(pid.to_bytes(4))
        _, status = os.waitpid(pid, 0)
        connection.sendall(os.waitstatus_to_exitcode(status).to_bytes(4, signed=True))


def become(arguments, environment, out, err, nursery=None):
    """Be `python ARGUMENTS` from here on, and end with it."""
    code = 1
    try:
        os.environ.clear()
        os.environ.update(environment)
        null = os.open(os.devnull, os.O_RDONLY)
        for found, number in ((null, 0), (out, 1), (err, 2)):
            os.dup2(found, number)
        sys.stdin, sys.stdout, sys.stderr = (
            os.fdopen(number, mode, encoding="utf-8", closefd=False, buffering=1)
            for number, mode in ((0, "r"), (1, "w"), (2, "w"))
        )
        # Of a process that crashes in native code; what it says elsewhere goes with a run that never started.
        faulthandler.enable(CRASHES.open("a"))
        for folder in reversed(environment.get("PYTHONPATH", "").split(os.pathsep)):
            if folder:
                sys.path.insert(0, folder)
                if (site := Path(folder) / "sitecustomize.py").exists():
                    runpy.run_path(str(site))
        if nursery is not None:
            launches_are_forks(nursery)
        if arguments[0] == "-m":
            sys.argv = arguments[1:]
            runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = arguments
            sys.path.insert(0, str(Path(arguments[0]).parent))
            runpy.run_path(arguments[0], run_name="__main__")
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def launches_are_forks(nursery):
    """Let the launcher of `vstate trace run` fork its engine."""
    real = subprocess.Popen

    class Popen(real):
        def __new__(cls, command, *arguments, **options):
            engine = list(command[1:2]) == ["-m"] and str(command[2]).startswith(ENGINE_MODULES)
            if engine and options["env"].get("PYTHONHASHSEED") == SEED:
                return NurseryEngine(nursery, [str(part) for part in command], **options)
            return super().__new__(cls)

    subprocess.Popen = Popen


def serve():
    """Fork a child for each request, one after the other."""
    # Before all imports: some vLLMs log to standard output while they are imported.
    requests, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    import duckdb  # noqa: F401
    import polars  # noqa: F401
    import pyarrow.dataset  # noqa: F401
    import rich.progress  # noqa: F401
    import typer  # noqa: F401
    import vllm.v1.engine.llm_engine
    import vllm.v1.worker.cpu_worker  # noqa: F401

    assert threading.active_count() == 1, "a process with threads cannot be forked safely"
    for line in requests:
        request = json.loads(line)
        os.chdir(request["folder"])
        ours, theirs = socket.socketpair()
        if not (nursery := os.fork()):
            ours.close()
            raise_engines(theirs)
        theirs.close()
        pid = os.fork()
        if not pid:
            os.setsid()
            out, err = (os.open(request[name], os.O_WRONLY | os.O_CREAT, 0o600) for name in ("out", "err"))
            become(request["arguments"], request["environment"], out, err, ours)
        ours.close()
        answers.write(f"{pid}\n")
        answers.flush()
        _, status = os.waitpid(pid, 0)
        os.waitpid(nursery, 0)
        answers.write(f"{os.waitstatus_to_exitcode(status)}\n")
        answers.flush()


if __name__ == "__main__":
    serve()
