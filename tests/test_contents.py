"""What a file of tests rests on is found wherever it is named, and no more than that."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.contents import Contents

ROOT = Path(__file__).parents[1]
REPOSITORY = {
    "amp_lessons/__init__.py": "",
    "amp_lessons/scaling/__init__.py": "import lazy_loader",
    "amp_lessons/scaling/__init__.pyi": "from .census import census\nfrom . import probe",
    "amp_lessons/scaling/census.py": "from amp_lessons import rounding\n",
    "amp_lessons/scaling/probe.py": "",
    "amp_lessons/rounding.py": "",
    "amp_lessons/views/slider.py": "STYLE = 'x'",
    "amp_lessons/views/slider.js": "",
    "amp_lessons/views/fonts/serif.ttf": "",
    "amp_lessons/commands/cli.py": "COMMANDS = ['amp_lessons.commands.audit', 'amp_lessons.commands.lab']",
    "amp_lessons/commands/audit.py": "from amp_lessons.scaling import probe",
    "amp_lessons/commands/lab.py": "",
    "amp_lessons/shelf/shelf.py": 'import_module(f"{__package__}.{name}")',
    "amp_lessons/shelf/first/card.md": "",
    "classroom/room/__init__.py": "",
    "classroom/room/__main__.py": "from amp_lessons import rounding",
    "notebooks/01_a.ipynb": json.dumps(
        {"cells": [{"cell_type": "code", "source": ["from amp_lessons.scaling import probe\n", "%timeit 1"]}]}
    ),
    "notebooks/02_b.ipynb": json.dumps({"cells": []}),
    "docs/glossary.md": "",
    "docs/hub.md": "",
    "deploy/Dockerfile": "",
    "tests/conftest.py": "from classroom.room import there",
    "tests/help.py": "from amp_lessons import rounding",
    "tests/browser/conftest.py": "",
}
CENSUS = {"amp_lessons/scaling/census.py", "amp_lessons/rounding.py"}
SLIDER = {f"amp_lessons/views/{name}" for name in ("slider.py", "slider.js", "fonts/serif.ttf")}
PROBE = {"amp_lessons/scaling/probe.py"}


@pytest.fixture
def rests_on(tmp_path):
    """Return what some tests rest on, of the repository's files that are no ``__init__.py``."""

    def of(code, file="tests/test_it.py"):
        for path, text in {**REPOSITORY, file: code}.items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(text)
        found = Contents(tmp_path, [*REPOSITORY, file]).of(file)
        return {each for each in found if "__init__" not in each} - {file}

    return of


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("from amp_lessons.scaling.census import census", CENSUS),
        ("from amp_lessons.scaling import census", CENSUS),
        ("from amp_lessons import scaling\nscaling.census(1)", CENSUS),
        ("import amp_lessons.scaling\namp_lessons.scaling.probe.it()", PROBE),
        (
            "import amp_lessons.scaling as s\nfrom amp_lessons import scaling as t\ns.probe, t.census",
            PROBE | CENSUS,
        ),
        ("from amp_lessons import scaling\nscaling.__name__", set()),
        ("def test():\n    from tests import help", {"tests/help.py", "amp_lessons/rounding.py"}),
        ("import numpy", set()),
        ('"""As amp_lessons.scaling.probe does."""', set()),
    ],
)
def test_of_a_package_that_loads_names_when_they_are_used_those_that_are(rests_on, code, expected):
    assert rests_on(code) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("from amp_lessons import scaling, rounding\nprint(scaling.census)", CENSUS),
        ("amp_lessons.scaling.probe.seen", PROBE),
        ("amp_lessons.rounding", {"amp_lessons/rounding.py"}),
        ("classroom.room", {"classroom/room/__main__.py", "amp_lessons/rounding.py"}),
        ("amp_lessons.views.", SLIDER),
        ("a sentence about scaling", set()),
    ],
)
def test_code_for_another_process(rests_on, text, expected):
    assert rests_on(f"run({text!r})") == expected


@pytest.mark.parametrize(
    "call", ["['python', '-m', 'amp_lessons', 'audit', 'x.py']", "run('amp-lessons', 'audit')"]
)
def test_of_the_commands_the_one_that_is_called(rests_on, call):
    assert rests_on(call) == {"amp_lessons/commands/audit.py", *PROBE}
    assert rests_on("say('audit')") == set()


def test_whoever_calls_the_command_in_this_process_rests_on_it_and_the_one_called(rests_on):
    called = {"amp_lessons/commands/cli.py", "amp_lessons/commands/lab.py"}
    assert rests_on("from amp_lessons.commands import cli\ncli.main(['lab'])") == called


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("ROOT / 'docs' / 'glossary.md'", {"docs/glossary.md"}),
        ("read('docs/hub.md')", {"docs/hub.md"}),
        (
            "(ROOT / 'docs').glob('*.md')",
            {"docs/glossary.md", "docs/hub.md", "amp_lessons/shelf/first/card.md"},
        ),
        ("ROOT / 'Dockerfile'", {"deploy/Dockerfile"}),
        (
            "pytestmark = pytest.mark.rests_on('docs/', 'deploy/')",
            {"docs/glossary.md", "docs/hub.md", "deploy/Dockerfile"},
        ),
        ("f'docs/{name}'", set()),
        (
            "from amp_lessons.views import slider",
            SLIDER,
        ),
        (
            "from amp_lessons.shelf import shelf",
            {"amp_lessons/shelf/shelf.py", "amp_lessons/shelf/first/card.md"},
        ),
    ],
)
def test_what_is_read(rests_on, code, expected):
    assert rests_on(code) == expected


def test_a_notebook_that_is_named_brings_what_its_cells_import_and_one_of_many_does_not(rests_on):
    assert rests_on("NOTEBOOK = 'notebooks/01_a.ipynb'") == {"notebooks/01_a.ipynb", *PROBE}
    both = {"notebooks/01_a.ipynb", "notebooks/02_b.ipynb"}
    assert rests_on("ROOT.glob('notebooks/*.ipynb')") == both


def test_fixtures_belong_to_it_and_in_a_browser_only_what_is_drawn(tmp_path, rests_on):
    code = "from amp_lessons import rounding\nfrom amp_lessons.views import slider"
    rests_on(code, "tests/browser/test_it.py")
    found = Contents(tmp_path, [*REPOSITORY, "tests/browser/test_it.py"]).of_tests("tests/browser/test_it.py")
    assert {"tests/conftest.py", "tests/browser/conftest.py", "classroom/room/__init__.py"} < found
    assert "amp_lessons/views/slider.js" in found
    assert "amp_lessons/rounding.py" not in found


def test_of_this_repository():
    files = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    contents = Contents(ROOT, files.stdout.splitlines())
    lesson = contents.of_tests("tests/browser/test_lesson03.py")
    assert {"notebooks/03_loss_scaling.ipynb", "amp_lessons/views/widgets/loss_scale.py"} < lesson
    assert not {"notebooks/05_speed_and_memory.ipynb", "amp_lessons/views/widgets/race.py"} & lesson
    command = contents.of_tests("tests/commands/test_audit_try.py")
    assert {"amp_lessons/audit/watch.py", "amp_lessons/audit/recorder/later.py"} < command
    assert "amp_lessons/views/widgets/loss_scale.py" not in command
