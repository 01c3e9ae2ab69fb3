"""Which recipe in 8 bits is offered to whom: by the GPU, by the model's own products, as lesson 09 says."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional

from amp_lessons import advice, measure
from amp_lessons._base.text.words import fraction
from amp_lessons.fp8.choices import CHOICES, FIRST, choice_for, fits
from tests.measure.architectures import Made

LESSON = json.loads((Path(__file__).parents[2] / "notebooks/09_fp8_and_fp4.ipynb").read_text("utf-8"))
CELLS = {each.get("id"): "".join(each["source"]) for each in LESSON["cells"]}


def layers(width):
    def forward(self, x, y):
        return functional.cross_entropy(self.head(self.down(functional.gelu(self.up(x)))), y)

    up, down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
    return Made(forward, up=up, down=down, head=nn.Linear(width, 8))


def said(width, rows, gpu):
    batch = {"x": torch.randn(rows, width), "y": torch.randint(0, 8, (rows,))}
    found = advice.advise(layers(width), batch, gpu=gpu, seconds=30, steps=1)
    return " ".join(f"{each.text} {each.because}" for each in found.verdict if "FP8" in each.text)


@pytest.mark.few
@pytest.mark.parametrize(
    ("gpu", "recipe"),
    [
        ("H100 SXM", "FP8, or if its loss falls behind bf16's; or Transformer Engine's"),
        ("B200 SXM", "`MXFP8BlockScaling()` (sides in multiples of 32)"),
        ("MI300X", "`rowwise_with_gw_hp` where weights are not gathered in FP8"),
    ],
)
def test_large_products_are_offered_the_recipe_of_their_gpu(gpu, recipe):
    text = said(1040, 1024, gpu)
    assert text.startswith(f"Once it trains in bf16, try FP8 on the {gpu}: torchao's `tensorwise`")
    assert recipe in text


def test_what_is_saved_at_most_is_reckoned_from_the_model_s_own_products():
    """All products but the head's: forward, two gradients, and of the first layer one."""
    text = said(1040, 512, "H100 SXM")
    large, head = 1040 * 4160 * (2 + 3), 1040 * 8 * 3
    assert f"{fraction(large / (large + head))} of the FLOP" in text
    times = float(re.search(r"it is ([\d.]+) times as fast at most", text)[1])
    assert 1.2 < times < 2.0


def test_small_layers_are_offered_none_and_a_gpu_without_eight_bits_is_not_spoken_of():
    assert said(64, 256, "H100 SXM").startswith("FP8 has little to give this model")
    assert said(1024, 512, "A100 SXM 40 GB") == ""


def test_lesson_09_says_the_same_of_every_data_sheet_with_eight_bits():
    with_eight = {name for name, sheet in measure.GPUS.items() if "fp8_e4m3" in sheet.flop_per_s}
    assert with_eight == {gpu for each in CHOICES for gpu in each.gpus}
    rows = {row.split("|")[1].strip(): row for row in CELLS["choose"].splitlines() if row.startswith("| ")}
    for gpu, row in (
        ("L4", "Ada (8.9: L4, RTX 40)"),
        ("H100 SXM", "Hopper (9.0: H100, H200)"),
        ("B200 SXM", "B200, B300 (10.x)"),
        ("MI300X", "MI300X, MI350"),
    ):
        choice = choice_for(gpu)
        first, second = (each.strip() for each in rows[row].split("|")[2:4])
        assert first.startswith(f"`{FIRST}`")
        assert second == choice.second.rstrip(",")
        assert f"`{choice.transformer_engine}`" in rows[row] or not choice.transformer_engine


def test_the_filter_is_the_lesson_s_and_where_torchao_is_installed_its_own():
    found = {}
    exec(CELLS["choose-run"].partition("\n\n\n")[0], found)
    sides = (8, 1000, 1024, 1040, 1664, 2048, 2064, 4096, 4112, 8192)
    layers = [nn.Linear(i, o, bias=False, device="meta") for i in sides for o in sides]
    large = [fits(each.in_features, each.out_features) for each in layers]
    assert [found["large"](each, "") for each in layers] == large
    theirs = pytest.importorskip("torchao.float8", exc_type=ImportError)._auto_filter_for_recipe
    for recipe in ("tensorwise", "rowwise"):
        converts = theirs(recipe, filter_fqns=[])
        assert [found["large"](each, "", recipe == "rowwise") for each in layers] == [
            converts(each, "") for each in layers
        ]
