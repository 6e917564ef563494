"""The plugin in processes that do not trace, and in those whose vLLM does not fit."""

import os
import subprocess
import sys


def run(code, **environment):
    clean = {k: v for k, v in os.environ.items() if not k.startswith("VSTATE_")}
    return subprocess.run(
        [sys.executable, "-c", code], env=clean | environment, capture_output=True, text=True, check=False
    )


def test_without_the_environment_it_imports_nothing_of_vllm():
    code = (
        "import sys; from vstate.tracer.plugin import register; register();"
        "heavy = {'vllm', 'torch', 'pyarrow'} & set(sys.modules); print(sorted(heavy))"
    )
    result = run(code)
    assert result.returncode == 0, result.stderr
    assert not {"vllm", "torch"} & set(eval(result.stdout))


def test_the_first_process_names_the_run_and_its_children_inherit_it(tmp_path):
    code = (
        "import os, subprocess, sys; from vstate.tracer.settings import trace_settings;"
        "mine = trace_settings();"
        "child = 'from vstate.tracer.settings import trace_settings as t; print(t().run, t().secret.hex())';"
        "out = subprocess.run([sys.executable, '-c', child], capture_output=True, text=True).stdout.split();"
        "print(out == [str(mine.run), mine.secret.hex()], mine.run.parent)"
    )
    result = run(code, VSTATE_TRACE_DIR=str(tmp_path))
    assert result.stdout.split() == ["True", str(tmp_path)], result.stderr
    assert list(tmp_path.iterdir()) == [], "naming a run must not create it"


def test_a_secret_that_is_none_is_one_log_line_and_never_an_error(tmp_path):
    code = "from vstate.tracer.plugin import register; register()"
    result = run(code, VSTATE_TRACE_DIR=str(tmp_path), VSTATE_TRACE_SECRET="not-hex")
    assert result.returncode == 0, result.stderr
    assert "tracing is off" in result.stderr


def test_two_starts_in_the_same_folder_are_two_runs(tmp_path):
    code = "from vstate.tracer.settings import trace_settings; print(trace_settings().run)"
    runs = {run(code, VSTATE_TRACE_DIR=str(tmp_path)).stdout for _ in range(2)}
    assert len(runs) == 2


def test_tracing_starts_on_off_or_not_at_all(tmp_path):
    code = "from vstate.tracer.settings import trace_settings; s = trace_settings(); print(s and s.on)"
    states = {
        "unset": run(code, VSTATE_TRACE_DIR=str(tmp_path)),
        "on": run(code, VSTATE_TRACE_DIR=str(tmp_path), VSTATE_TRACE="on"),
        "off": run(code, VSTATE_TRACE_DIR=str(tmp_path), VSTATE_TRACE="off"),
        "not asked for": run(code, VSTATE_TRACE="on"),
    }
    assert {name: result.stdout.strip() for name, result in states.items()} == {
        "unset": "True",
        "on": "True",
        "off": "False",
        "not asked for": "None",
    }


def test_a_state_that_is_none_is_one_log_line_and_never_an_error(tmp_path):
    code = "from vstate.tracer.plugin import register; register()"
    result = run(code, VSTATE_TRACE_DIR=str(tmp_path), VSTATE_TRACE="perhaps")
    assert result.returncode == 0, result.stderr
    assert "VSTATE_TRACE must be on or off" in result.stderr
