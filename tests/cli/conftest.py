"""The command as somebody types it, one line after another."""

from __future__ import annotations

import io
import re
import shlex
import sys

import pytest

from amp_lessons.cli import cli


@pytest.fixture
def session(capsys, tmp_path):
    """Call commands, and return what a terminal would show of them, and each one's exit status."""

    def told(*commands):
        return "\n\n".join(map(one, commands)).replace(str(tmp_path), "HERE")

    def one(command):
        try:
            status = cli.main(shlex.split(command))
        except SystemExit as stopped:
            status = stopped.code
        printed = capsys.readouterr()
        # How argparse words its usage, and quotes choices, hangs on the version of Python.
        said = re.sub(r"(?s)^usage: .*?\n(?=amp-lessons)", "", printed.err)
        said = re.sub(r"\(choose from .*\)", lambda choices: choices[0].replace("'", ""), said)
        return f"$ amp-lessons {command}\n{printed.out}{said}=> {status}"

    return told


class _Typed(io.StringIO):
    """Lines as somebody types them; one that is a function is called first, and is none."""

    def __init__(self, lines):
        super().__init__()
        self._waiting = list(lines)

    def readline(self, size=-1):
        while self._waiting and callable(self._waiting[0]):
            self._waiting.pop(0)()
        return f"{self._waiting.pop(0)}\n" if self._waiting else ""


@pytest.fixture
def answer(monkeypatch, capsys):
    """Interview somebody who types these lines; return what is printed until it ends well."""

    def call(*words, lines=()):
        monkeypatch.setattr(sys, "stdin", _Typed(lines))
        assert cli.main(["interview", *words]) == 0
        return capsys.readouterr().out

    return call
