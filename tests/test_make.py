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


def check_prerequisites(tools, python="python3"):
    script = ROOT / "tools" / "check_prerequisites.sh"
    return subprocess.run(
        ["/bin/sh", str(script), python], env={"PATH": tools.path}, capture_output=True, text=True
    )


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


def test_quick_takes_what_is_named(checkout):
    commands = planned(checkout, "quick", "PYTEST_ARGS=-x")
    (line,) = [line for line in commands.splitlines() if "pytest" in line]
    paths = line.split('thorough" ')[1].split()
    assert paths.pop() == "-x"
    assert all((ROOT / path).exists() for path in paths)
    assert "tests" not in paths
    assert "--nbval" not in commands
    assert "ruff" not in commands


def test_lint_runs_the_linters_alone(checkout):
    commands = planned(checkout, "lint")
    assert "ruff check ." in commands
    assert "mypy" in commands
    assert "lint-imports" in commands
    assert "pytest" not in commands


def test_an_exercise_is_begun_by_its_id_and_lesson(checkout):
    command = planned(checkout, "exercise", "ID=my_exercise", "LESSON=03").splitlines()[-1]
    assert command == '.venv/bin/python -m tools.new_exercise "my_exercise" "03"'


def test_one_notebook_can_be_stored_alone(checkout):
    command = planned(checkout, "notebooks", "NOTEBOOKS=notebooks/03.ipynb").splitlines()[-1]
    assert command == ".venv/bin/python tools/store_notebooks.py notebooks/03.ipynb"


def test_a_gpu_is_recorded_by_the_machines_own_python_and_nothing_is_installed(checkout):
    assert planned(checkout, "gpu").strip() == 'python3 -m tools.gpu --out "docs/gpu"'
    command = planned(checkout, "gpu", "GPU_OUT=a b", "GPU_ARGS=--minutes 9", "PYTHON=python3.12").strip()
    assert command == 'python3.12 -m tools.gpu --out "a b" --minutes 9'


def test_help_names_every_target(checkout):
    help_text = run_make(checkout)
    for target in ("lab", "test", "test-all", "quick", "notebooks", "bench", "gpu", "clean"):
        assert f"make {target} " in help_text


def test_a_machine_with_all_tools_passes_in_silence(tools):
    for name in ("git", "python3", "apt-get"):
        tools(name)
    done = check_prerequisites(tools)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("installer", "cure"),
    [
        ("apt-get", "sudo apt-get install python3"),
        ("dnf", "sudo dnf install python3"),
        ("brew", "brew install python3"),
    ],
)
def test_a_missing_python_is_named_with_its_cure(tools, installer, cure):
    tools("git")
    tools(installer)
    done = check_prerequisites(tools)
    assert done.returncode == 1
    assert "python3 does not run" in done.stderr
    assert cure in done.stderr


def test_an_old_python_is_named(tools):
    tools("git")
    tools("python3", 'case "$1$2" in --version) echo Python 3.8.18;; *version_info*) exit 1;; esac')
    done = check_prerequisites(tools)
    assert done.returncode == 1
    assert "Python 3.8.18 is too old" in done.stderr
    assert "make lab PYTHON=" in done.stderr


@pytest.mark.parametrize("module", ["venv", "ensurepip"])
def test_a_python_without_venv_or_pip_is_named_with_its_cure(tools, module):
    tools("git")
    tools("apt-get")
    tools("python3.12", has_no(module))
    done = check_prerequisites(tools, "python3.12")
    assert done.returncode == 1
    assert module in done.stderr
    assert "sudo apt-get install python3.12-venv" in done.stderr


def test_a_missing_git_is_no_obstacle(tools):
    tools("python3")
    tools("apt-get")
    done = check_prerequisites(tools)
    assert done.returncode == 0
    assert "sudo apt-get install git" in done.stdout


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
