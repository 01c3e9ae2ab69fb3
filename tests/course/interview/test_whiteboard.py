"""The whiteboard sheet: computed, on one page, and in 80 columns."""

from __future__ import annotations

import contextlib
import re

import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg

from amp_lessons import autocast, fp8, interview, measure, views
from amp_lessons.course.interview import whiteboard
from amp_lessons.course.views.pages.sheet import sheet_figure
from tests.raised import as_float, lowered


@pytest.fixture(scope="module")
def sheet():
    return interview.sheet()


DTYPES = {
    "fp32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "fp8_e4m3": torch.float8_e4m3fn,
    "fp8_e5m2": torch.float8_e5m2,
}


def power(text):
    return 2.0 ** int(lowered(text).removeprefix("2^"))


def test_formats_are_those_of_pytorch(sheet):
    rows = {row["format"]: row for row in sheet.tables[0].records}
    for row, info in ((rows[name], torch.finfo(dtype)) for name, dtype in DTYPES.items()):
        assert as_float(row["largest"]) == pytest.approx(info.max, rel=1e-4)
        assert (power(row["epsilon"]), power(row["smallest normal"])) == (info.eps, info.tiny)


@pytest.mark.parametrize("device", ["cuda", "cpu"])
@pytest.mark.parametrize("first", whiteboard.OPERATIONS)
def test_operations_in_one_row_have_one_answer(device, first):
    alike = {whiteboard.result_on(device, name) for name in (first, *whiteboard.OPERATIONS[first])}
    assert len(alike) == 1


ON_A_CPU = {
    "matmul": ("16 bits", lambda x: x.float() @ x.float()),
    "softmax": ("as its inputs", lambda x: x.softmax(-1)),
    "exp": ("as its inputs", lambda x: x.exp()),
    **{name: ({"cross_entropy": "fp32"}.get(name, "16 bits"), run) for name, run in whiteboard.RUN.items()},
}


@pytest.mark.parametrize(("name", "said", "run"), [(name, *each) for name, each in ON_A_CPU.items()])
def test_the_rules_are_those_that_run_on_this_cpu(sheet, name, said, run):
    rows = {row["result of"].partition(",")[0]: row for row in sheet.tables[1].records}
    assert rows[name]["on a CPU"] == said
    assert name not in whiteboard.RUN or rows[name]["on CUDA"] == said
    with torch.autocast("cpu", torch.bfloat16):
        dtype = run(torch.rand(4, 4).bfloat16()).dtype
    assert dtype == (torch.float32 if said == "fp32" else torch.bfloat16)


def test_notes_of_the_rules_hold_for_batch_norm_and_for_inputs_of_several_dtypes(sheet):
    norm, mixed = torch.nn.BatchNorm1d(4), [torch.ones(2, dtype=torch.bfloat16), torch.ones(2)]
    for rules in (contextlib.nullcontext(), autocast.cuda_rules()):
        with rules, torch.autocast("cpu", torch.bfloat16):
            norm(torch.rand(4, 4).bfloat16())
            assert {join(mixed).dtype for join in (torch.cat, torch.stack)} == {torch.float32}
    assert norm.running_mean.dtype == torch.float32
    assert "Inputs of several dtypes give the widest" in str(sheet)


def test_updates_are_lost_where_the_sheet_says(sheet):
    for row in sheet.tables[3].records:
        dtype = DTYPES[row["format"]]
        above, below = (power(row[f"1 {sign} u = 1 up to"]) for sign in "+-")
        one = torch.ones((), dtype=dtype)
        assert one + above == 1 != one + 2 * above
        assert one - below == 1 != one - 2 * below
        hundred, most = torch.tensor(100.0, dtype=dtype), float(row["100 + u = 100 up to"])
        assert hundred + most * 0.99 == 100 != hundred + most * 2.1
        counts = int(row["counts up to"].replace(",", ""))
        assert torch.tensor(float(counts), dtype=dtype) + 1 == counts
        assert torch.tensor(float(counts - 1), dtype=dtype) + 1 == counts


def test_weights_that_share_a_scale_in_squares_are_named(sheet):
    (said,) = (note for note in sheet.tables[6].notes if note.startswith("Weights: "))
    for row in sheet.tables[6].records:
        product = fp8.RECIPES[row["recipe"]].output
        first, weights = product.left.granularity, product.right.granularity
        assert (f"{weights} in {row['recipe']}" in said) == (weights != first)


def test_rates_are_those_of_the_data_sheets_and_rules_those_of_the_book(sheet):
    for row in sheet.tables[7].records:
        data = measure.GPUS[row["GPU"]]
        assert float(row["bf16"]) == pytest.approx(data.flop_per_s["bf16"] / 1e12, rel=1e-3)
        assert float(row["bf16 ridge"]) == pytest.approx(data.flop_per_s["bf16"] / data.bytes_per_s, rel=0.01)
    said = {row["what"]: row["example"] for row in sheet.tables[8].records}
    assert f"{6 * 7e9 * 1e12 / (256 * 989.4e12 * 0.4) / 86_400:.0f} days" in said["training"]
    assert f"{1 / (0.4 + 0.6 / 8):.2f} times" in said["Amdahl"]


def test_the_cycle_has_the_scalers_own_defaults_and_clips_between_unscaling_and_stepping(sheet):
    said, scaler = lowered(str(sheet.tables[2])), torch.amp.GradScaler("cpu")
    assert f"2^{int(scaler.get_scale()).bit_length() - 1} at first" in said
    assert f"after {scaler.get_growth_interval():,} in a row" in said
    assert said.index("scaler.unscale_") < said.index("clip_grad_norm_") < said.index("scaler.step")


def test_memory_adds_up(sheet):
    for row in sheet.tables[4].records:
        *parts, total = [int(row[name]) for name in list(row)[1:]]
        assert sum(parts) == total == 16
    (row,) = sheet.tables[5].records
    sharded = {"ddp": 0, "zero1": 12, "zero2": 14, "zero3": 16}  # bytes of sixteen of which an eighth is held
    assert all(float(row[name]) == 16 - nbytes * 7 / 8 for name, nbytes in sharded.items())
    assert "sends 1.75 times" in str(sheet.tables[5])


def test_it_fits_a_terminal_and_is_one_page_on_which_nothing_overlaps(sheet):
    assert max(map(len, str(sheet).splitlines())) <= 80
    pdf = views.sheet_pdf(sheet)
    assert pdf.startswith(b"%PDF-")
    assert pdf == views.sheet_pdf(sheet), "the same each time"
    assert re.findall(rb"/Count (\d+)", pdf) == [b"1"]
    figure = sheet_figure(sheet)
    renderer = FigureCanvasAgg(figure).get_renderer()
    boxes = [text.get_window_extent(renderer) for text in figure.texts]
    page = figure.bbox
    for i, box in enumerate(boxes):
        assert page.x0 <= box.x0 <= box.x1 <= page.x1
        assert page.y0 <= box.y0 <= box.y1 <= page.y1
        assert not any(box.overlaps(other) for other in boxes[:i]), figure.texts[i].get_text()
    html = views.sheet_page(sheet)
    assert html.count("<table>") == len(sheet.tables)
    assert "size: A4 landscape" in html
    assert "://" not in html
