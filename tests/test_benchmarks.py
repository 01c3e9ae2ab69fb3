from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import __main__ as runner


@pytest.fixture
def ran(monkeypatch):
    """Record which benchmarks are run; those in ``failing`` fail."""
    names, failing = [], {"import_time"}
    monkeypatch.setattr(runner, "run", lambda name: names.append(name) or int(name in failing))
    return names


def test_every_file_is_a_benchmark(ran, capsys):
    assert runner.main([]) == 1
    files = {path.stem for path in Path(runner.__file__).parent.glob("*.py")} - {"__init__", "__main__"}
    assert ran == sorted(files)
    assert capsys.readouterr().err == "benchmark import_time failed\n"


def test_one_can_be_named(ran):
    assert runner.main(["import_time"]) == 1
    assert ran == ["import_time"]


def test_an_unknown_name_is_answered_with_those_there_are(ran, capsys):
    assert runner.main(["nonsense"]) == 2
    assert ran == []
    assert "import_time" in capsys.readouterr().err


def test_a_failure_inside_a_benchmark_is_a_failure():
    assert runner.run("no_such_file") != 0
