"""A model is converted in place: what becomes of which layer, and what stays as it is."""

import copy
from dataclasses import replace

import pytest
import torch
from torch import nn

from amp_lessons import fp8
from amp_lessons.course.material import charlm, models


class WithHead(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 16))
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        return self.head(self.body(x))


def test_linear_layers_are_converted_and_the_report_says_what_was_kept_and_why():
    model = fp8.convert(WithHead(), "mxfp8")
    assert model.conversion.converted == ("body.0", "body.3")
    assert model.conversion.kept == {"body.1": "no nn.Linear", "head": "keep names 'head'"}
    assert type(model.body[0]) is type(model.body[3]) is fp8.ScaledLinear
    assert type(model.head) is nn.Linear
    assert model.conversion.recipe is model.body[0].recipe is fp8.RECIPES["mxfp8"]


def test_the_report_shows_itself():
    conversion = fp8.convert(WithHead(), "nvfp4").conversion
    assert "nvfp4: 2 of 4 layers converted" in str(conversion)
    shown = conversion._repr_mimebundle_()
    assert set(shown) == {"text/plain", "text/markdown", "text/html"}
    assert "<code>head</code>" in shown["text/html"]
    head = next(line for line in str(conversion).splitlines() if line.startswith("`head`"))
    assert head.split()[1:4] == ["Linear", "51", "kept"]


def test_parameters_names_and_hooks_stay():
    model = WithHead()
    names, objects = list(model.state_dict()), list(model.parameters())
    calls = []
    model.body[0].register_forward_hook(lambda *_: calls.append(1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = model.body[0].weight.detach().clone()
    assert fp8.convert(model, "rowwise") is model
    assert list(model.state_dict()) == names
    assert all(a is b for a, b in zip(model.parameters(), objects, strict=True))
    model(torch.randn(4, 8)).sum().backward()
    optimizer.step()
    assert calls == [1]
    assert not torch.equal(model.body[0].weight, before)


def test_the_delayed_recipe_adds_what_belongs_into_a_checkpoint():
    model = fp8.convert(WithHead(), "delayed")
    model(torch.randn(4, 8)).sum().backward()
    other = fp8.convert(WithHead(), "delayed")
    other.load_state_dict(model.state_dict())
    x = torch.randn(4, 8)
    assert torch.equal(model.eval()(x), other.eval()(x))
    assert {"body.0.history.amax", "body.0.history.in_force"} <= set(model.state_dict())
    assert "recipe=delayed" in repr(model)


def test_a_model_that_is_a_layer_and_a_layer_used_twice():
    alone = nn.Linear(4, 4)
    assert fp8.convert(alone, "mxfp8") is alone
    assert alone.conversion.converted == ("",)
    assert "(the model)" in str(alone.conversion)
    shared = nn.Linear(4, 4)
    twice = fp8.convert(nn.Sequential(shared, nn.ReLU(), shared))
    assert twice[0] is twice[2]
    assert twice.conversion.converted == ("0",)


def test_converting_again_changes_the_recipe_and_forgets():
    model = fp8.convert(WithHead(), "delayed")
    model(torch.randn(4, 8))
    fp8.convert(model, "tensorwise", engine="emulated")
    assert model.body[0].history is None
    assert (model.body[0].recipe.name, model.body[0].engine) == ("tensorwise", "emulated")
    assert not any("history" in name for name in model.state_dict())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_masters_of_16_bits_become_fp32_and_stay_the_same_parameters(dtype):
    model = WithHead().to(dtype)
    weight = model.body[0].weight
    values = weight.detach().clone()
    fp8.convert(model)
    assert model.body[0].weight is weight
    assert (weight.dtype, model.head.weight.dtype) == (torch.float32, dtype)
    assert torch.equal(weight, values.float())
    reasons = {layer.name: layer.reason for layer in model.conversion.layers}
    assert reasons["body.0"] == "nn.Linear; its weights became fp32 masters"
    output = model(torch.randn(4, 8, dtype=dtype))
    assert output.dtype == dtype
    output.sum().backward()
    assert weight.grad.dtype == torch.float32


def test_what_cannot_be_converted_is_kept():
    model = nn.ModuleDict({"attention": nn.MultiheadAttention(8, 2), "wide": nn.Linear(4, 4).double()})
    kept = fp8.convert(model).conversion.kept
    assert kept["attention.out_proj"].startswith("a class of its own")
    assert kept["attention"] == "no nn.Linear"
    assert kept["wide"] == "its weights are torch.float64"


@pytest.mark.parametrize(
    ("keep", "converted"),
    [
        ((), ("body.0", "body.3", "head")),
        (("body",), ("head",)),
        (["body.3"], ("body.0", "head")),
        (("3", "head"), ("body.0",)),
        (iter(["body.0", "head"]), ("body.3",)),
    ],
)
def test_keep_names_layers_by_path_or_by_part_of_it(keep, converted):
    assert fp8.convert(WithHead(), keep=keep).conversion.converted == converted


def test_a_name_is_not_a_part_of_a_word():
    with pytest.raises(ValueError, match="keep names no layer: there is no 'bod'; did you mean body"):
        fp8.convert(WithHead(), keep=("bod",))


def test_the_usual_head_need_not_be_there():
    assert fp8.convert(models.digits_classifier(8)).conversion.kept == {}


def test_nothing_is_converted_where_an_argument_is_wrong():
    model = WithHead()
    for wrong in ({"recipe": "fp8"}, {"keep": ("tail",)}, {"keep": "head"}, {"engine": "fast"}):
        with pytest.raises((TypeError, ValueError), match=r"no recipe|keep |no engine"):
            fp8.convert(model, **wrong)
    assert type(model.body[0]) is nn.Linear
    assert not hasattr(model, "conversion")


def test_a_recording_says_which_layer_made_which_product_by_which_engine_and_what_was_lost():
    model = fp8.convert(charlm.CharacterModel(20), fp8.RECIPES["tensorwise"].with_casts(rule="none"))
    indices = torch.randint(20, (2, 8))
    with fp8.record() as made:
        charlm.next_character_loss(model(indices), indices).mul(2.0**-10).backward()
    model(indices)
    assert len(made) == 3 * 4
    assert {each.layer for each in made} == {"query_key_value", "attention_out", "mlp.0", "mlp.2"}
    assert [each.product for each in made[:4]] == ["output"] * 4
    assert {each.engine.name for each in made} == {"emulated"}
    to_weight = next(each for each in made if each.product == "weight_gradient")
    gradient, activations = to_weight.casts
    assert (gradient.role, gradient.format) == ("gradient", "fp8_e5m2")
    assert (activations.role, activations.format) == ("input", "fp8_e4m3")
    assert gradient.elements == gradient.bytes_of_values > gradient.underflowed > gradient.elements / 2
    assert gradient.bytes_of_scales == 0


def test_two_recordings_do_not_see_more_than_what_happens_inside():
    x, weight = torch.ones(2, 2), torch.ones(2, 2)
    with fp8.record() as outer:
        with fp8.record() as inner:
            fp8.linear(x, weight)
        fp8.linear(x, weight, layer="later")
    assert [each.layer for each in inner] == [""]
    assert [each.layer for each in outer] == ["", "later"]
    with fp8.record() as made:
        fp8.linear(x, weight, recipe=replace(fp8.RECIPES["mxfp8"], output=None))
    assert (made[0].engine.name, made[0].casts) == ("none", ())


def test_a_converted_model_can_be_copied():
    model = fp8.convert(WithHead(), "nvfp4")
    twin = copy.deepcopy(model)
    x = torch.randn(4, 8)
    assert torch.equal(model(x), twin(x))
    assert twin.conversion == model.conversion


@pytest.mark.parametrize("name", fp8.RECIPES)
def test_a_model_without_data_is_converted_and_trained(name):
    with torch.device("meta"):
        model, x = fp8.convert(WithHead(), name), torch.empty(4, 8)
    output = model(x)
    assert (output.shape, output.dtype, output.device.type) == ((4, 3), torch.float32, "meta")
    output.sum().backward()
    assert all(p.grad is not None and p.grad.shape == p.shape for p in model.parameters())
