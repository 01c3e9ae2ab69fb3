"""Recipes are data that can be read, changed, and are refused where they make no sense."""

from dataclasses import replace

import pytest

from amp_lessons import fp8
from amp_lessons.formats import FORMATS


def test_the_recipes_that_models_are_trained_with_are_there():
    names = "tensorwise delayed rowwise rowwise_with_gw_hp deepseek_v3 mxfp8 mxfp4 nvfp4"
    assert list(fp8.RECIPES) == names.split()
    for name, recipe in fp8.RECIPES.items():
        assert (recipe.name, recipe.bits) == (name, 4 if "fp4" in name else 8)
        assert any(known in recipe.source for known in ("torchao", "Transformer Engine", "arxiv.org", "OCP"))


def test_casts_say_themselves_in_words():
    nvfp4 = fp8.RECIPES["nvfp4"]
    assert str(nvfp4.output) == "e2m1 1 × 16 · e2m1 16 × 16"
    assert str(nvfp4.weight_gradient) == "e2m1 1 × 16 stochastic · e2m1 1 × 16, Hadamard 16"
    assert str(fp8.RECIPES["tensorwise"].input_gradient) == "e5m2 tensor · e4m3 tensor"
    assert str(fp8.Cast(block=(None, 4))) == "e4m3 all × 4"
    assert str(fp8.RECIPES["deepseek_v3"].accumulation) == "14 bits, to fp32 every 128"


def test_casts_of_one_role_are_changed_wherever_it_is_multiplied():
    changed = fp8.RECIPES["tensorwise"].with_casts("gradient", element=FORMATS["fp8_e4m3"])
    casts = {cast for product in changed.products.values() for cast in (product.left, product.right)}
    assert {cast.element.name for cast in casts} == {"fp8_e4m3"}
    unscaled = fp8.RECIPES["rowwise_with_gw_hp"].with_casts(rule="none")
    assert unscaled.weight_gradient is None
    assert unscaled.output is not None
    assert unscaled.output.left.rule == unscaled.output.right.rule == "none"
    weights = fp8.RECIPES["nvfp4"].with_casts("weight", block=(1, 16))
    assert weights.weight_gradient == fp8.RECIPES["nvfp4"].weight_gradient


def test_a_recipe_without_products_has_the_bits_of_fp32():
    assert fp8.Recipe("plain", "nobody", None, None, None).bits == 32


@pytest.mark.parametrize(
    ("field", "value", "error", "message"),
    [
        ("element", "fp8_e4m3", TypeError, "element is a number format"),
        ("block", 32, TypeError, "block is .rows, columns."),
        ("block", (1, 2, 3), ValueError, "block is .rows, columns."),
        ("block", (0, 32), ValueError, "each size of a block is a whole number of at least 1"),
        ("rule", "exakt", ValueError, "no rule 'exakt'; did you mean exact"),
        ("scale", FORMATS["e8m0"], ValueError, "its rule is not 'exact' but 'up'"),
    ],
)
def test_a_cast_that_cannot_be_is_refused(field, value, error, message):
    with pytest.raises(error, match=message):
        fp8.Cast(**{field: value})


def test_powers_of_two_do_not_go_with_scales_that_cannot_hold_them():
    for wrong in ({"scale": FORMATS["fp8_e4m3"]}, {"has_tensor_scale": True}):
        with pytest.raises(ValueError, match="needs scales in fp32 or e8m0, and none of the tensor beside"):
            fp8.Cast(rule="up", **wrong)


def test_a_recipe_that_cannot_be_is_refused():
    rowwise = fp8.RECIPES["rowwise"]
    with pytest.raises(ValueError, match="only one scale per tensor"):
        replace(rowwise, amax_history=16)
    with pytest.raises(TypeError, match=r"output is an fp8\.Product, or None"):
        replace(rowwise, output="mxfp8")
    with pytest.raises(TypeError, match=r"accumulation is an fp8\.Accumulation"):
        replace(rowwise, accumulation=14)
    with pytest.raises(TypeError, match=r"left is an fp8\.Cast"):
        fp8.Product("e4m3", fp8.Cast())
    with pytest.raises(ValueError, match="size is a power of two"):
        fp8.Product(fp8.Cast(), fp8.Cast(), hadamard=12)
    with pytest.raises(ValueError, match="no role 'grad'; did you mean gradient"):
        rowwise.with_casts("grad", rule="none")
