from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from amp_lessons.cli import cli


def test_every_command_is_listed_with_its_help_and_explains_itself(session):
    printed = session("--help")
    for name, summary in cli.COMMANDS:
        assert f"  {name:11}{summary}" in printed
        said = session(f"{name} --help")
        assert f"usage: amp-lessons {name}" in said
        assert said.endswith("=> 0")


@pytest.mark.parametrize(("words", "frames"), [("--frames kept", "kept"), ("--still", None)])
def test_a_site_says_which_page_to_open(words, frames, tmp_path, monkeypatch, session):
    asked = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        "amp_lessons.course.site.build.build", lambda *given: asked.append(given) or ["index.html", "03.html"]
    )
    said = session(f"site pages {words}")
    assert [str(each) if each else None for each in asked[0]] == ["pages", frames]
    assert f"2 pages: open {Path('pages') / 'index.html'} in a browser. No server is needed.\n=> 0" in said


@pytest.mark.parametrize("words", ["", "interview"])
def test_without_a_word_it_helps(words, session):
    said = session(words)
    assert said.startswith(f"$ amp-lessons {words}\nusage: amp-lessons")
    assert said.endswith("=> 0")


def test_a_device_is_written_to_and_never_replaced(tmp_path, session):
    pipe = tmp_path / "pipe"
    pipe.symlink_to(os.devnull)
    assert session(f"progress --csv {pipe}").endswith("\nwrote HERE/pipe\n=> 0")
    assert pipe.is_symlink()
    assert Path(os.devnull).is_char_device()


def test_what_stands_behind_two_dashes_is_left_to_the_command_that_takes_it(monkeypatch):
    seen = []
    monkeypatch.setattr("amp_lessons.cli.audit.run", lambda args: seen.append(vars(args)) or 0)
    assert cli.main(["audit", "train.py", "--steps", "5", "--", "--steps", "9", "--", "lab"]) == 0
    assert (seen[0]["script"], seen[0]["steps"]) == ("train.py", 5)
    assert seen[0]["after_dashes"] == ["--steps", "9", "--", "lab"]


def test_two_dashes_mean_to_other_commands_what_they_always_did(monkeypatch, capsys):
    seen = []
    monkeypatch.setattr("amp_lessons.cli.lab.run", lambda args: seen.append(str(args.folder)) or 0)
    assert cli.main(["lab", "--", "--folder"]) == 0
    assert seen == ["--folder"]
    with pytest.raises(SystemExit):
        cli.main(["doctor", "--", "nonsense"])
    assert "it does not know nonsense" in capsys.readouterr().err


def test_help_does_not_wait_for_pytorch():
    code = """
import sys
from amp_lessons.cli import cli
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


# With few lines only the last flush fails, with many the writing itself.
PRINTS = """
import sys
from amp_lessons import progress
from amp_lessons.cli import cli
progress.Learner.as_csv = lambda self: "line\\n" * {lines}
sys.exit(cli.main(["progress", "--csv", "-"]))
"""
HELPS = "from amp_lessons.cli import cli; cli.main(['--help'])"


@pytest.mark.skipif(os.name == "nt", reason="pipes end otherwise there")
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("code", [PRINTS.format(lines=1), PRINTS.format(lines=100_000), HELPS])
def test_a_reader_that_has_gone_ends_it_quietly(code, unbuffered):
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "wb") as gone:
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment, stdout=gone, stderr=subprocess.PIPE
        )
    assert done.stderr == b""
    assert code is HELPS or done.returncode == 141


def test_what_a_terminal_cannot_show_does_not_stop_a_command(monkeypatch):
    terminal = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setattr("amp_lessons.course.progress.Learner.as_csv", lambda self: "5 ms ± 1%")
    assert cli.main(["progress", "--csv", "-"]) == 0
    assert terminal.buffer.getvalue() == b"5 ms ? 1%"


INTERRUPTED = """
import signal, sys
from amp_lessons.cli import cli
def interrupt(*_, **__):
    signal.raise_signal(signal.SIGINT)
{arrange}
sys.exit(cli.main(["progress", "--reset"]))
"""


@pytest.mark.few
@pytest.mark.parametrize(
    "arrange", ["import builtins; builtins.input = interrupt", "cli.importlib.import_module = interrupt"]
)
def test_an_interruption_at_a_question_or_an_import_ends_without_a_traceback(arrange):
    code = INTERRUPTED.format(arrange=arrange)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, "\n")


@pytest.mark.thorough
@pytest.mark.skipif(os.name == "nt", reason="signals end a process otherwise there")
def test_a_second_interruption_ends_it_at_once_and_without_a_traceback():
    code = INTERRUPTED.format(
        arrange="import atexit, builtins; atexit.register(interrupt); builtins.input = interrupt"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "\n")


def test_the_version_is_that_of_the_package_or_its_place_where_it_is_not_installed(monkeypatch, session):
    def unknown(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", {"amp-lessons": "1.2.3"}.__getitem__)
    assert session("--version") == "$ amp-lessons --version\namp-lessons 1.2.3\n=> 0"
    monkeypatch.setattr(metadata, "version", unknown)
    assert "\namp-lessons (not installed;" in session("--version")
