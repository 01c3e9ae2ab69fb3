from __future__ import annotations

import subprocess
import sys

import pytest

from amp_lessons import cli


def test_every_command_is_listed_with_its_help(capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main(["--help"])
    assert stopped.value.code == 0
    printed = capsys.readouterr().out
    for name, _, summary in cli.COMMANDS:
        assert name in printed
        assert summary.split()[0] in printed


@pytest.mark.parametrize("name", [command[0] for command in cli.COMMANDS])
def test_every_command_explains_itself(name, capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main([name, "--help"])
    assert stopped.value.code == 0
    assert f"amp-lessons {name}" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [[], ["nonsense"], ["doctor", "--nonsense"]])
def test_what_it_does_not_know_is_refused(arguments, capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main(arguments)
    assert stopped.value.code == 2
    assert "usage: amp-lessons" in capsys.readouterr().err


def test_a_command_that_passes_options_on_gets_them(monkeypatch):
    seen = []
    monkeypatch.setattr("amp_lessons.lab.run", lambda args: seen.append(args.passed_on) or 0)
    assert cli.main(["lab", "--no-browser", "--port=8899"]) == 0
    assert cli.main(["lab"]) == 0
    assert seen == [["--no-browser", "--port=8899"], []]


def test_help_does_not_wait_for_pytorch():
    code = """
import sys
from amp_lessons import cli
try:
    cli.main(["--help"])
finally:
    assert "torch" not in sys.modules
"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


def test_the_module_runs_as_the_command_does():
    done = subprocess.run([sys.executable, "-m", "amp_lessons", "--help"], capture_output=True, text=True)
    assert done.returncode == 0
    assert done.stdout.startswith("usage: amp-lessons")
