from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import __main__ as runner
from benchmarks import import_time, promise


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


def test_one_can_be_named_and_an_unknown_name_is_answered_with_those_there_are(ran, capsys):
    assert runner.main(["import_time"]) == 1
    assert runner.main(["nonsense"]) == 2
    assert ran == ["import_time"]
    assert "import_time" in capsys.readouterr().err.splitlines()[-1]


def test_a_failure_inside_a_benchmark_is_a_failure():
    assert runner.run("no_such_file") != 0


def test_a_promise_is_put_into_words_kept_or_not():
    assert promise(50, 61.04, "ms") == "promised 50 ms, took 61 ms: not kept"
    assert promise(3.0, 1.234, "s") == "promised 3 s, took 1.23 s: kept"


def test_a_time_that_is_not_kept_ends_nothing(monkeypatch, capsys):
    monkeypatch.setattr(import_time, "import_ms", lambda module: 61.0 if "exercises" in module else 1.0)
    import_time.main()
    lines = capsys.readouterr().out.splitlines()
    assert sum("not kept" in line for line in lines) == 1
    assert any("amp_lessons.course.exercises" in line and "took 61 ms" in line for line in lines)
    assert len(lines) == 1 + len(import_time.modules())
