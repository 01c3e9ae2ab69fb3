"""The core of each lesson runs by itself, and each deeper section right after it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from amp_lessons.course.lessons import shipped
from tests.test_notebooks import NUMBERS

BY_ITSELF = Path(__file__).with_name("by_itself.py")


def failures(lesson):
    env = {**os.environ, "OMP_NUM_THREADS": "1", "TQDM_DISABLE": "1", "MPLBACKEND": "agg"}
    done = subprocess.run([sys.executable, BY_ITSELF, lesson], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.thorough
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("number", NUMBERS)
def test_a_core_needs_nothing_below_it_and_a_deeper_section_no_other_one(number):
    assert failures(shipped.numbered(shipped.originals(), number)) == []


@pytest.mark.thorough
def test_what_a_section_takes_from_another_one_is_found(tmp_path):
    deeper = new_markdown_cell("## Deeper: one"), new_markdown_cell("## Deeper: two")
    first = [
        deeper[0],
        new_code_cell("import torch\nfrom_core.append(1)\nhere = torch.ones(1)"),
        new_code_cell("here"),
    ]
    second = [deeper[1], new_code_cell("assert not from_core"), new_code_cell("here")]
    cells = [new_code_cell("from_core = []"), *first, *second]
    nbformat.write(new_notebook(cells=cells), tmp_path / "lesson.ipynb")
    ((section, cell, error),) = failures(tmp_path / "lesson.ipynb")
    assert (section, cell) == ("## Deeper: two", "here")
    assert "NameError" in error
    cells[0].source = "1 / 0"
    nbformat.write(new_notebook(cells=cells), tmp_path / "core.ipynb")
    assert failures(tmp_path / "core.ipynb")[0][:2] == ["core", "1 / 0"]
