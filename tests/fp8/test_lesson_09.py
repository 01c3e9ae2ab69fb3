"""What lesson 09 says beside its cells: libraries run where they are installed, verdicts follow a rule."""

from __future__ import annotations

import importlib.util
import json
import sys
from contextlib import contextmanager
from types import ModuleType
from typing import ClassVar

import pytest
import torch

from amp_lessons import exercises, formats
from amp_lessons.course.quizzes import question
from amp_lessons.fp8 import FP32, RECIPES, Cast, convert, place, quantize
from tests.notebook_rules import source
from tests.test_packaging import ROOT

CELLS = {
    cell["id"]: source(cell)
    for cell in json.loads((ROOT / "notebooks" / "09_fp8_and_fp4.ipynb").read_text("utf-8"))["cells"]
}
SETTING = ("format-model", "format-train", "layer-cast")


@pytest.fixture
def names():
    """What cells of the lesson find when they run: its imports, its model and its training loop."""
    found = {"importlib": importlib}
    imports = [line for line in CELLS["surprise"].splitlines() if line.startswith(("import", "from"))]
    exec("\n".join(imports), found)
    found["device"] = found["devices"].default_device()
    return run(found, *SETTING)


def run(found, *ids):
    for each in ids:
        exec(CELLS[each], found)
    return found


def test_ours_trains_and_says_which_sides_kernels_refuse(names, capsys):
    run(names, "libraries-ours")
    assert "{'head': (" in capsys.readouterr().out


def assert_trains_as_ours(said):
    ours, theirs = (float(line.split()[-1]) for line in said.splitlines() if "mean loss" in line)
    assert theirs == pytest.approx(ours, rel=0.01)


def test_torchaos_cell_trains_as_ours_does(names, capsys):
    pytest.importorskip("torchao", exc_type=ImportError)
    run(names, "libraries-ours", "libraries-torchao")
    assert_trains_as_ours(capsys.readouterr().out)


def test_torchtitans_cell_trains_as_ours_does(names, capsys):
    pytest.importorskip("torchao", exc_type=ImportError)
    pytest.importorskip("torchtitan.components.quantization", exc_type=ImportError)
    run(names, "libraries-ours", "libraries-kernel", "libraries-layers", "libraries-titan-run")
    assert_trains_as_ours(capsys.readouterr().out)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU")
def test_transformer_engines_cell_trains_as_ours_does(names, capsys):
    pytest.importorskip("transformer_engine", exc_type=ImportError)
    run(names, "libraries-ours", "libraries-kernel", "libraries-layers")
    if not names["has_kernel"]:
        pytest.skip("a GPU without FP8")
    run(names, "libraries-te")
    assert_trains_as_ours(capsys.readouterr().out)


class EnginesLinear(torch.nn.Linear):
    """Stands for Transformer Engine's layer: its signature, an entry more in its state, and its condition."""

    inside: ClassVar[list[str]] = []
    calls: ClassVar[int] = 0

    def get_extra_state(self):
        return torch.zeros(0)

    def set_extra_state(self, state):
        pass

    def forward(self, x):
        assert EnginesLinear.inside == ["Float8CurrentScaling"]
        assert all(side % 16 == 0 for side in (x[..., 0].numel(), *self.weight.shape))
        EnginesLinear.calls += 1
        return super().forward(x)


def test_transformer_engines_cell_gives_each_layer_its_weights_and_the_recipe(names, capsys, monkeypatch):
    @contextmanager
    def autocast(*, enabled, recipe):
        EnginesLinear.inside.append(type(recipe).__name__)
        yield
        EnginesLinear.inside.pop()

    stand_ins = {name: ModuleType(name) for name in ("", ".pytorch", ".common", ".common.recipe")}
    for name, module in stand_ins.items():
        monkeypatch.setitem(sys.modules, f"transformer_engine{name}", module)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name == "transformer_engine")
    stand_ins[""].pytorch = stand_ins[".pytorch"]
    stand_ins[".pytorch"].Linear, stand_ins[".pytorch"].autocast = EnginesLinear, autocast
    stand_ins[".common.recipe"].Float8CurrentScaling = type("Float8CurrentScaling", (), {})
    run(names, "libraries-ours", "libraries-kernel", "libraries-layers")
    run({**names, "has_kernel": True}, "libraries-te")
    assert_trains_as_ours(capsys.readouterr().out)
    assert EnginesLinear.calls == 20 * 4  # steps and layers


def test_a_library_that_is_not_there_is_said_to_be_missing(names, capsys, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    run(names, *(f"libraries-{each}" for each in ("ours", "torchao", "kernel", "layers", "te", "titan-run")))
    assert capsys.readouterr().out.count("not installed here") == 3


@pytest.mark.parametrize(
    ("excess", "interval", "verdict"),
    [
        ([0.001, -0.002], (1.2, 1.3), "adopt"),
        ([0.01], (1.1, 1.1), "adopt"),
        ([0.001, 0.02], (1.2, 1.3), "inconclusive"),
        ([0.001], (1.05, 1.3), "inconclusive"),
        ([0.001], (0.9, 1.09), "reject"),
        ([0.02, 0.03], (1.2, 1.3), "reject"),
        ([float("nan")], (1.2, 1.3), "reject"),
    ],
)
def test_the_verdict_follows_the_rule(names, excess, interval, verdict):
    run(names, "verdict-rule", "verdict-decide")
    assert names["decide"](names["rule"], excess, *interval) == verdict


def test_the_table_of_names_knows_every_recipe_it_can():
    missing = {name for name in RECIPES if f'`"{name}"`' not in CELLS["libraries"]}
    assert missing == {"mxfp4"}  # which no library of the table trains with


@pytest.mark.parametrize(
    ("inputs", "outputs", "name", "converted", "row_wise"),
    [
        (4096, 14336, "mlp", True, True),
        (4096, 50272, "output", True, True),
        (4096, 50272, "lm_head", False, False),
        (4096, 50257, "output", False, False),
        (4096, 8, "router", False, False),
        (4096, 1024, "wk", False, False),  # Llama3-8B's: row-wise, torchao pull request 2410 found them slow
        (1664, 1664, "nanochat d26's attention", True, False),
        (6656, 1664, "and its products down", True, False),
        (1664, 6656, "and up", True, True),
    ],
)
def test_the_filter_leaves_out_the_head_small_layers_and_sides_that_kernels_refuse(
    inputs, outputs, name, converted, row_wise
):
    found = {"torch": torch}
    exec(CELLS["choose-run"].partition("\n\n\n")[0], found)
    layer = torch.nn.Linear(inputs, outputs, bias=False, device="meta")
    assert (found["large"](layer, name), found["large"](layer, name, row_wise=True)) == (converted, row_wise)


def test_which_recipe_leaves_the_smallest_error_untrained_does_not_tell_it_of_trained_models(names):
    """Of other batches as well; which is best of trained models depends on their seed."""
    run(names, "format-fp32")
    names["inputs"], names["targets"] = names["batches"][0]
    run(names, "choose-error")
    trained = {0: names["model"], 1: names["new_model"](1)}
    names["train"](trained[1])
    for seed, batch in ((0, 0), (0, 5), (0, 299), (1, 0), (1, 5), (1, 299)):
        names["model"] = trained[seed]
        names["inputs"], names["targets"] = names["batches"][batch]
        tensorwise, rowwise, in_bf16 = (
            list(names["gradient_errors"](lambda model, name=name: convert(model, name, keep=())))
            for name in ("tensorwise", "rowwise", "rowwise_with_gw_hp")
        )
        assert tensorwise[0] > 1.2 * in_bf16[0]
        assert rowwise[0] > in_bf16[0]
        assert (tensorwise[1] < 0.9 * in_bf16[1]) == (seed == 0)
        assert (tensorwise[1] > 1.2 * in_bf16[1]) == (seed == 1)
    assert "trained, our order turns with the seed" in CELLS["choose"]


def test_products_cost_alike_untrained_and_trained_more_the_output_most(names):
    run(names, "format-fp32")
    names["inputs"], names["targets"] = names["batches"][0]
    run(names, "choose-error", "layer-products", "layer-module")
    change, products = names["with_float8"], ("output", "input_gradient", "weight_gradient")
    untrained, trained = zip(
        *(names["gradient_errors"](lambda model, one=(one,): change(model, one)) for one in products),
        strict=True,
    )
    together = list(names["gradient_errors"](change))
    assert all(0.01 < each < 0.025 for each in untrained)
    assert all(later > first for first, later in zip(untrained, trained, strict=True))
    assert trained[0] == max(trained)
    assert together[0] < sum(untrained)
    assert together[1] < sum(trained)
    assert (
        "one or two per cent of the gradient's norm; trained, more, the output's most" in CELLS["switch-why"]
    )


def test_an_outlier_is_no_reason_for_scales_per_row():
    """In E4M3, at real width: neither one element nor a channel, which lies in every row."""
    x = torch.randn(256, 4096, generator=torch.Generator().manual_seed(0))
    for row, times in ((5, 1000), (slice(None), 20)):
        others = torch.ones_like(x, dtype=torch.bool)
        others[row, 7] = False
        grown = torch.where(others, x, times * x.abs().max())
        by_tensor, by_row = (
            formats.relative_error(quantize(grown, cast).dequantize()[others], grown[others])
            for cast in (Cast(), RECIPES["rowwise"].output.left)
        )
        assert by_tensor == pytest.approx(by_row, rel=0.03)


def test_beside_an_outlier_the_norm_hides_that_most_of_a_tensor_with_heavy_tails_becomes_zero():
    torch.manual_seed(0)
    tensor = torch.exp(2 * torch.randn(256, 256)) * torch.randn(256, 256).sign()
    tensor[64, 64] = 1024 * tensor.abs().max()
    placed = place(tensor, Cast())
    assert placed.relative_error(without=(64, 64)) < 0.25
    assert placed.count("underflowed") / placed.at_stake > 0.5
    assert "of a tensor that spans more, most" in CELLS["outlier-why"]


def test_pushes_survive_without_a_scale_only_in_batches_as_small_as_the_lesson_s(names):
    kept = {}
    for batches in (1, 2):
        inputs, targets = (torch.cat(each) for each in zip(*names["batches"][:batches], strict=True))
        logits = names["new_model"]()(inputs)
        logits.retain_grad()
        names["charlm"].next_character_loss(logits, targets).backward()
        kept[inputs.numel()] = int((logits.grad.to(torch.float8_e4m3fn).float() != 0).sum())
    assert kept == {512: 512, 1024: 0}
    assert "512 tokens" in question("fp8.unscaled").text
    assert "From 1,024 tokens a batch on" in CELLS["fails-why"]


def test_the_first_cell_counts_the_exercises():
    found = [each for each in exercises.catalog() if each.lesson == "09"]
    assert len(found) == 1 + 2
    assert "for the core, one exercise included" in CELLS["objective"]
    assert "folded, with two exercises" in CELLS["objective"]


def test_the_table_of_recipes_says_of_formats_scales_and_sums_what_is_computed():
    """It leaves out one, which differs from another in a product alone."""
    rows, above = {}, [""] * 4
    for line in CELLS["map"].splitlines():
        if line.startswith("| `"):
            said = [each.strip() for each in line.split("|")[1:-1]]
            above = [old if new == "the same" else new for old, new in zip(above, said, strict=True)]
            rows[said[0].strip("`")] = above
    assert set(RECIPES) - set(rows) == {"rowwise_with_gw_hp"}
    for name, (_, element, shared, scale) in rows.items():
        recipe = RECIPES[name]
        assert recipe.output is not None
        assert recipe.input_gradient is not None
        cast, gradient = recipe.output.left, recipe.input_gradient.left
        assert ("E2M1" in element) == (recipe.bits == 4)
        assert ("E5M2" in element) == (gradient.element.name == "fp8_e5m2")
        assert cast.granularity in shared.replace("the tensor", "tensor").replace("a row", "row")
        assert ("from earlier steps" in scale) == (recipe.amax_history > 0)
        assert ("power of two" in scale or "E8M0" in scale) == (cast.rule == "up")
        assert ("E8M0" in scale) == (cast.scale.name == "e8m0")
        assert ("for the tensor" in scale) == cast.has_tensor_scale
        assert (recipe.accumulation == FP32) == ("every 128" not in element)


def test_the_second_tasks_largest_gradient_is_2_to_the_minus_21_of_the_firsts(names):
    digits = names["data"].digits()
    pictures, labels = names["data"].batches(digits.train, batch_size=64)[0]
    outputs = torch.zeros(64, 74, requires_grad=True)  # what an untrained layer gives is not far from zero
    named, drawn = outputs.split([10, 64], dim=1)
    cross_entropy, mse = torch.nn.functional.cross_entropy, torch.nn.functional.mse_loss
    (cross_entropy(named, labels) + 1e-5 * mse(drawn, pictures)).backward()
    first, second = (each.abs().max().log2() for each in outputs.grad.split([10, 64], dim=1))
    assert round((second - first).item()) == -21
