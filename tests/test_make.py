"""The Makefile and what it does before anything is installed."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="needs make")


@pytest.fixture
def checkout(tmp_path):
    """What make needs of the repository, without an environment."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


@pytest.fixture
def tools(tmp_path):
    """A folder to use as PATH, holding only the programs that a test puts there."""
    folder = tmp_path / "bin"
    folder.mkdir()

    def add(name, script="exit 0"):
        program = folder / name
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)

    add.path = str(folder)
    return add


def run_make(checkout, *arguments, **environment):
    # Without the flags and variables that a make which runs these tests hands to a make below it.
    env = {"PATH": os.environ["PATH"], **environment}
    done = subprocess.run(["make", *arguments], cwd=checkout, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def planned(checkout, *arguments):
    """The commands that make would run."""
    return run_make(checkout, "-n", *arguments)


def has_no(module):
    """A Python without that module."""
    return f'case "$2" in *{module}*) exit 1;; esac'


def test_lab_makes_the_environment_and_opens_the_course(checkout):
    commands = planned(checkout, "lab", "LAB_ARGS=--no-browser").splitlines()
    (installing,) = [command for command in commands if "pip install" in command]
    assert commands[0].endswith("check_prerequisites.sh python3")
    assert commands.index("python3 -m venv .venv") < commands.index(installing)
    assert "--constraint constraints.txt" in installing
    assert "--editable '.[lab,models,pretrained]'" in installing
    assert commands[-1] == ".venv/bin/amp-lessons lab --no-browser"


def test_the_cpu_wheels_can_be_asked_for(checkout):
    assert "index-url" not in planned(checkout, "lab")
    index = "https://download.pytorch.org/whl/cpu"
    assert f"--extra-index-url {index}" in planned(checkout, "lab", f"TORCH_INDEX={index}")


def test_nothing_is_installed_twice(checkout):
    stamps = [checkout / ".venv" / name for name in ("bin/pip", "installed-lab", "installed-test")]
    stamps[0].parent.mkdir(parents=True)
    for stamp in stamps:
        stamp.touch()
    assert "pip install" not in planned(checkout, "lab")
    assert "pip install" not in planned(checkout, "test")
    newer = stamps[1].stat().st_mtime + 10
    os.utime(checkout / "constraints.txt", (newer, newer))
    assert "pip install" in planned(checkout, "lab")


@pytest.mark.parametrize(("target", "marked"), [("test", True), ("test-all", False)])
def test_test_runs_everything_strictly_but_what_is_left_to_test_all(checkout, target, marked):
    notebook = checkout / "notebooks" / "00_start_here.ipynb"
    notebook.parent.mkdir()
    notebook.touch()
    commands = planned(checkout, target)
    extras = "'.[lab,models,pretrained,classroom,test]'"
    for step in ("ruff check .", "ruff format --check .", "lint-imports", extras):
        assert step in commands
    pytest_line = commands.splitlines()[-1]
    assert " --nbval " in pytest_line
    assert "lax" not in pytest_line
    assert ('-m "not thorough"' in pytest_line) is marked
    assert pytest_line.strip().endswith("notebooks/00_start_here.ipynb tests")


def test_lint_runs_the_linters_alone(checkout):
    commands = planned(checkout, "lint")
    assert all(each in commands for each in ("ruff check .", "mypy", "lint-imports"))
    assert "pytest" not in commands


def test_quick_takes_what_is_named(checkout):
    commands = planned(checkout, "quick", "PYTEST_ARGS=-x")
    (line,) = [line for line in commands.splitlines() if "pytest" in line]
    paths = line.split('thorough" ')[1].split()
    assert paths.pop() == "-x"
    assert all((ROOT / path).exists() for path in paths)
    assert "tests" not in paths
    assert "--nbval" not in commands
    assert "ruff" not in commands


@pytest.mark.parametrize(
    ("arguments", "last"),
    [
        (("exercise", "ID=mine", "LESSON=03"), '.venv/bin/python -m tools.new_exercise "mine" "03"'),
        (("notebooks", "NOTEBOOKS=a.ipynb"), ".venv/bin/python tools/store_notebooks.py a.ipynb"),
        (("gpu",), 'python3 -m tools.gpu --out "docs/gpu"'),
        (
            ("gpu", "GPU_OUT=a b", "GPU_ARGS=--minutes 9", "PYTHON=py"),
            'py -m tools.gpu --out "a b" --minutes 9',
        ),
    ],
)
def test_what_is_asked_for_is_handed_on(checkout, arguments, last):
    commands = planned(checkout, *arguments).splitlines()
    assert commands[-1].strip() == last
    assert arguments[0] != "gpu" or len(commands) == 1, "nothing is installed on a machine to be recorded"


def test_help_names_every_target(checkout):
    help_text = run_make(checkout)
    for target in ("lab", "test", "test-all", "quick", "notebooks", "bench", "gpu", "clean"):
        assert f"make {target} " in help_text


OLD = 'case "$1$2" in --version) echo Python 3.8.18;; *version_info*) exit 1;; esac'
RUNS = "exit 0"
ALL = {"git": RUNS, "apt-get": RUNS}


@pytest.mark.parametrize(
    ("there", "returncode", "said"),
    [
        ({**ALL, "python3": RUNS}, 0, []),
        ({"apt-get": RUNS, "python3": RUNS}, 0, ["sudo apt-get install git"]),  # which is no obstacle
        ({"git": RUNS, "apt-get": RUNS}, 1, ["python3 does not run", "sudo apt-get install python3"]),
        ({"git": RUNS, "dnf": RUNS}, 1, ["python3 does not run", "sudo dnf install python3"]),
        ({"git": RUNS, "brew": RUNS}, 1, ["python3 does not run", "brew install python3"]),
        ({"git": RUNS, "python3": OLD}, 1, ["Python 3.8.18 is too old", "make lab PYTHON="]),
        ({**ALL, "python3": has_no("venv")}, 1, ["venv", "sudo apt-get install python3-venv"]),
        ({**ALL, "python3": has_no("ensurepip")}, 1, ["ensurepip", "sudo apt-get install python3-venv"]),
    ],
)
def test_what_is_missing_is_named_with_its_cure(tools, there, returncode, said):
    for name, script in there.items():
        tools(name, script)
    command = ["/bin/sh", str(ROOT / "tools" / "check_prerequisites.sh"), "python3"]
    done = subprocess.run(command, env={"PATH": tools.path}, capture_output=True, text=True)
    assert done.returncode == returncode
    told = done.stderr if returncode else done.stdout
    assert all(each in told for each in said)
    assert said or (done.stdout, done.stderr) == ("", "")


def run_ci(checkout, tools):
    """Run .ci/run with only those tools; return what it says, with how apt-get and make were called."""
    (checkout / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", checkout / ".ci")
    tools("dirname", f'exec {shutil.which("dirname")} "$@"')
    tools("id", "echo 0")
    tools("apt-get", 'echo "apt-get $@"')
    tools("make", 'echo "make $@, browser required: $AMP_LESSONS_REQUIRE_BROWSER"')
    command = [shutil.which("bash"), str(checkout / ".ci" / "run")]
    done = subprocess.run(command, env={"PATH": tools.path}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_ci_installs_what_a_bare_machine_lacks(checkout, tools):
    tools("python3", has_no("ensurepip"))
    assert run_ci(checkout, tools) == [
        "apt-get update",
        "apt-get install -y --no-install-recommends git chromium fonts-dejavu-core bubblewrap python3-venv",
        "make test, browser required: 1",
    ]


def test_ci_installs_nothing_that_is_there(checkout, tools):
    for name in ("python3", "git", "chromium", "bwrap"):
        tools(name)
    assert run_ci(checkout, tools) == ["make test, browser required: 1"]
