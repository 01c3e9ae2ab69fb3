"""The page of a recording, and that the pages in ``docs/gpu`` are those of their recordings."""

from __future__ import annotations

import re
from dataclasses import replace

from tests.gpu_recording.pretended import SETUP
from tools.gpu.command import OWN_FOLDER
from tools.gpu.found import Agreement, Figure
from tools.gpu.page import page
from tools.gpu.recording import Part, Recording, StepRecord, read

LABEL = "recorded on Pretended 1, 2026-11-22, torch 2.11.0+cu130"
WHY = "what kernels allocate is not predicted"


def part(name: str, status: str = "done", day: int = 22, **rest) -> Part:
    return Part(name, status, f"2026-11-{day}T10:00:00+00:00", "abc", 2.0, **rest)


PEAKS = StepRecord(
    "peaks",
    ("fits", "does not", "later"),
    (
        part("fits", agreements=(Agreement("GPT-2 fp16", 2**30, 2**30 + 2**20, WHY, 0.1, "bytes"),)),
        part("does not", agreements=(Agreement("GPT-2 fp32", 2**30, 2**31, WHY, 0.1, "bytes"),)),
    ),
)
PRODUCTS = StepRecord(
    "products",
    ("bf16",),
    (part("bf16", figures=(Figure("best rate", 7.9e14, "FLOP/s"), Figure("n", 12345))),),
)
TESTS = StepRecord(
    "tests", ("a",), (part("a", "failed", message="signal 9 | died"), part("b", "not possible"))
)
NOTEBOOKS = StepRecord("notebooks", ("n",), (part("n", lines=("[measured] 3 ms", "```")),))
RECORDING = Recording(SETUP, {step.name: step for step in (PEAKS, PRODUCTS, TESTS, NOTEBOOKS)})
PAGE = page(RECORDING, "source.json")


def section(text: str, heading: str) -> str:
    return text.split(f"\n## {heading}\n")[1].split("\n## ")[0]


def test_what_did_not_agree_comes_first():
    headings = re.findall(r"^## (.+)$", PAGE, re.MULTILINE)
    assert headings == [
        "What did not agree",
        "What could not be measured",
        "What agreed",
        "Figures",
        "Text",
    ]
    wrong, right = section(PAGE, "What did not agree"), section(PAGE, "What agreed")
    assert "| GPT-2 fp32 | 1.00 GiB | 2.00 GiB | 0.500 | 10% |" in wrong
    assert "GPT-2 fp16" not in wrong
    assert "| GPT-2 fp16 | 1.00 GiB | 1.00 GiB | 0.999 | 10% |" in right
    assert f"Tolerance 10%: {WHY}." in wrong
    assert right.count(WHY) == 1


def test_every_table_says_on_what_when_and_with_which_pytorch():
    tables = re.findall(r"(.*)\n\n\|", PAGE)
    assert len(tables) == 4
    assert all(LABEL in caption for caption in tables)


def test_dates_are_those_of_what_is_shown():
    later = replace(PRODUCTS, parts=(part("bf16", day=24, figures=(Figure("n", 1),)),))
    text = page(RECORDING.with_step(later), "source.json")
    assert "**products: recorded on Pretended 1, 2026-11-24, torch 2.11.0+cu130**" in text
    assert "**recorded on Pretended 1, 2026-11-22 to 2026-11-24, torch 2.11.0+cu130**" in text


def test_the_head_says_all_that_is_known_of_the_setup():
    head = PAGE.split("\n## ")[0]
    for words in (
        "# Pretended 1, torch 2.11.0+cu130",
        "[source.json](source.json)",
        "compute capability 9.0",
    ):
        assert words in head
    for words in ("driver 1.2", "CUDA 13.0", "Python 3.12.3", "commit abc", "threads 16"):
        assert words in head
    assert "| peaks | disagreed | 2 of 3 | 1 of 2 | 4 s |" in head


def test_figures_are_shown_in_their_units():
    figures = section(PAGE, "Figures")
    assert "| bf16 | best rate | 790 TFLOP/s |" in figures
    assert "| bf16 | n | 12,345 |" in figures


def test_what_could_not_be_measured_is_said_with_its_reason():
    troubles = section(PAGE, "What could not be measured")
    assert "- tests: a: failed: signal 9 | died" in troubles
    assert "- tests: b: not possible" in troubles
    assert "- peaks: left for another call: later" in troubles


def test_text_cannot_break_out_of_its_block():
    assert "```text\n[measured] 3 ms\n'''\n```" in section(PAGE, "Text")


def test_an_empty_recording_has_a_page():
    text = page(Recording(SETUP).with_all(["peaks"]), "source.json")
    assert "no results yet" in text
    assert "| peaks | cut short | 0 of 0 | 0 of 0 | 0 s |" in text
    assert "- peaks: left for another call: all of it" in text


def test_the_pages_of_the_course_are_made_from_their_recordings():
    found = {path.with_suffix(".md"): path for path in OWN_FOLDER.glob("*.json")}
    assert set(OWN_FOLDER.glob("*.md")) == set(found)
    for path, source in found.items():
        assert path.read_text("utf-8") == page(read(source), source.name), path
