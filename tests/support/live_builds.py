"""A process that builds models on the meta device for tests, each case once."""

import json
import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
SECONDS = 240


class LiveShapes:
    """A process with vLLM imported that builds what it is asked for; equal cases are built once."""

    def __init__(self, log):
        path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
        self._log = log
        self._process = subprocess.Popen(
            [sys.executable, "-m", "support.live_shapes", "-"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log.open("w"),
            text=True,
            env=os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        )
        self._known = {}

    def build(self, case):
        """Build a case, and fail with vLLM's own words where it cannot be built."""
        key = json.dumps(case, sort_keys=True)
        if key not in self._known:
            self._process.stdin.write(key + "\n")
            self._process.stdin.flush()
            self._known[key] = json.loads(self._process.stdout.readline())
        answer = self._known[key]
        assert "error" not in answer, f"{case} cannot be built: {answer['error']}\n{self._log.read_text()[-2000:]}"
        return answer

    def close(self):
        """End the process."""
        self._process.stdin.close()
        self._process.wait(timeout=SECONDS)
