"""The command as somebody types it, one line after another."""

from __future__ import annotations

import re
import shlex

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
