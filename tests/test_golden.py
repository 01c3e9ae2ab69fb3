"""Golden files are held by a test, and alike on every machine."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

FILES = sorted(path for path in Path(__file__).parent.rglob("golden/*") if path.is_file())


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.parent.name}/{file.name}")
def test_a_golden_file_is_asked_for_and_names_no_machine(file):
    tests = "".join(path.read_text("utf-8") for path in file.parent.parent.glob("test_*.py"))
    assert f'"{file.name}"' in tests or f'"{file.stem}"' in tests, "no test holds it: delete it"
    assert not re.search(r"/(home|root|tmp|work|usr)/", file.read_text("utf-8"))
