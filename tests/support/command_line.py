"""Calls the command `vstate` in the test's own process."""

import subprocess
import sys

import pytest

from vstate.cli.main import main


def in_this_process(capfd, monkeypatch, *words):
    """Return what calls `vstate WORDS ARGUMENTS` and gives the finished call, as `subprocess.run` would."""

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["vstate", *words, *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            main()
        output, errors = capfd.readouterr()
        return subprocess.CompletedProcess(arguments, stopped.value.code, output, errors)

    return call
