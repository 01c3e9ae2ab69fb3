"""The linear layer in few bits: its three products, spelt out with casts by NumPy and ml_dtypes."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from amp_lessons import fp8
from amp_lessons.formats import relative_error
from tests.fp8.references import CONTENTS, dequantized, filled

ALL = list(fp8.RECIPES)
ONE, ONES = torch.ones(()), torch.ones(3, 11, 37)


def deterministic(name):
    """Return the recipe with nothing random and an fp32 sum, which the reference cannot do."""
    return replace(fp8.RECIPES[name].with_casts(stochastic=False), accumulation=fp8.FP32, amax_history=0)


def expected_product(product, left, right):
    if product is None:
        return left @ right.t()
    if product.hadamard:
        left, right = (fp8.random_hadamard(each, product.hadamard) for each in (left, right))
    return dequantized(left.contiguous(), product.left) @ dequantized(right.contiguous(), product.right).t()


def expected(recipe, x, weight, gradient):
    rows, back = x.reshape(-1, x.shape[-1]), gradient.reshape(-1, gradient.shape[-1])
    return (
        expected_product(recipe.output, rows, weight).reshape(gradient.shape),
        expected_product(recipe.input_gradient, back, weight.t()).reshape(x.shape),
        expected_product(recipe.weight_gradient, back.t(), rows.t()),
    )


def case(inputs=50, outputs=37, batch=(3, 11)):
    generator = torch.Generator().manual_seed(0)
    x, weight, bias = (
        torch.randn(*shape, generator=generator)
        for shape in ((*batch, inputs), (outputs, inputs), (outputs,))
    )
    gradient = 1e-4 * torch.randn(*batch, outputs, generator=generator)
    return x, weight, bias, gradient


def run(x, weight, bias, gradient, recipe, **how):
    leaves = [each if each is None else each.detach().clone().requires_grad_() for each in (x, weight, bias)]
    output = fp8.linear(*leaves, recipe, **how)
    output.backward(gradient.to(output.dtype))
    return (output.detach(), *(each.grad for each in leaves if each is not None))


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(
    "sizes", [(50, 37, (3, 11)), (1, 1, (1,)), (128, 256, (32,)), (130, 7, (2, 2, 2))], ids=str
)
def test_all_three_products_are_what_the_recipe_says(name, sizes):
    x, weight, bias, gradient = case(*sizes)
    recipe = deterministic(name)
    output, to_x, to_weight, to_bias = run(x, weight, bias, gradient, recipe)
    right_output, right_to_x, right_to_weight = expected(recipe, x, weight, gradient)
    close = {"rtol": 1e-5, "atol": 1e-5}
    torch.testing.assert_close(output, right_output + bias, **close)
    torch.testing.assert_close(to_x * 1e4, right_to_x * 1e4, **close)
    torch.testing.assert_close(to_weight * 1e4, right_to_weight * 1e4, **close)
    torch.testing.assert_close(to_bias, gradient.reshape(-1, gradient.shape[-1]).sum(0))


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("sizes", [(50, 37, (33,)), (1, 1, (1,))], ids=str)
def test_all_three_products_whatever_is_in_the_operands(name, content, sizes):
    _, weight, _, gradient = case(*sizes)
    x, recipe = filled(content, gradient.shape[0], weight.shape[1]), deterministic(name)
    made = run(x, weight, None, gradient, recipe)
    for found, right in zip(made, expected(recipe, x, weight, gradient), strict=True):
        finite = right.isfinite()
        assert torch.equal(found.isfinite(), finite)
        largest = right[finite].abs().max() if finite.any() else torch.zeros(())
        assert ((found - right)[finite].abs() <= 1e-5 * largest).all()


@pytest.mark.parametrize("name", ALL)
def test_it_is_near_the_plain_layer(name):
    x, weight, bias, gradient = case(256, 128, (256,))
    recipe = fp8.RECIPES[name]
    history = fp8.AmaxHistory(4)
    run(x, weight, bias, gradient, recipe, history=history)  # a history has seen nothing before
    made = run(x, weight, bias, gradient, recipe, history=history)
    plain = F.linear(x, weight, bias), gradient @ weight, gradient.t() @ x, gradient.sum(0)
    for found, right in zip(made, plain, strict=True):
        assert (found - right).norm() / right.norm() < (0.06 if recipe.bits == 8 else 0.25)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ALL)
def test_activations_of_16_bits_meet_fp32_masters(name, dtype):
    x, weight, bias, gradient = case()
    x, gradient, recipe = x.to(dtype), gradient.to(dtype), deterministic(name)
    output, to_x, to_weight, to_bias = run(x, weight, bias, gradient, recipe)
    assert (output.dtype, to_x.dtype, to_weight.dtype, to_bias.dtype) == (dtype, dtype, *[torch.float32] * 2)
    right_output, right_to_x, right_to_weight = expected(recipe, x.float(), weight, gradient.float())
    step = torch.finfo(dtype).eps
    assert relative_error(output, right_output.to(dtype) + bias.to(dtype)) < step / 4
    torch.testing.assert_close(to_x.float(), right_to_x, rtol=step, atol=1e-6)
    if recipe.weight_gradient:
        torch.testing.assert_close(to_weight, right_to_weight, rtol=1e-5, atol=1e-8)
    torch.testing.assert_close(to_bias, gradient.float().reshape(-1, len(bias)).sum(0))


def test_under_autocast_the_result_has_its_dtype_and_sums_stay_fp32():
    x, weight, bias, _ = case()
    with torch.autocast("cpu", torch.bfloat16):
        inside = fp8.linear(x, weight, bias)
    assert torch.equal(inside, fp8.linear(x.bfloat16(), weight, bias))


def test_strides_do_not_matter():
    x, weight, bias, gradient = case()
    across, turned, back = (each.mT.contiguous().mT for each in (x, weight, gradient))
    plain = run(x, weight, bias, gradient, "mxfp8")
    for found, right in zip(run(across, turned, bias, back, "mxfp8"), plain, strict=True):
        torch.testing.assert_close(found, right)
    expanded, full = (run(x, weight, None, each, "mxfp8") for each in (ONE.expand(3, 11, 37), ONES))
    assert all(map(torch.equal, expanded, full))


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("sizes", [(5, 3, (0,)), (5, 3, (2, 0)), (0, 3, (4,)), (5, 0, (4,))], ids=str)
def test_no_elements(name, sizes):
    x, weight, bias, gradient = case(*sizes)
    output, to_x, to_weight, to_bias = run(
        x, weight, bias, gradient, fp8.RECIPES[name], history=fp8.AmaxHistory(2)
    )
    assert torch.equal(output, F.linear(x, weight, bias))
    assert not any(each.any() for each in (to_x, to_weight))
    assert (to_x.shape, to_weight.shape, to_bias.shape) == (x.shape, weight.shape, bias.shape)


@pytest.mark.parametrize("name", [name for name in ALL if name != "delayed"])
@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
def test_poison_of_a_gradient_reaches_the_weights_so_that_a_scaler_sees_it(name, poison):
    x, weight, bias, gradient = case()
    gradient[0, 0, 0] = poison
    _, _, to_weight, _ = run(x, weight, bias, gradient, name)
    assert not to_weight[0].isfinite().any()


def test_what_needs_no_gradient_gets_no_product():
    x, weight, bias, _ = case()
    with fp8.record() as made:
        weight.requires_grad_()
        fp8.linear(x, weight, bias).sum().backward()
        bias.requires_grad_()
        fp8.linear(x, weight.detach(), bias).sum().backward()
    assert [each.product for each in made] == ["output", "weight_gradient", "output"]


def test_a_second_pass_over_a_kept_graph_casts_its_own_gradient():
    x, weight, *_ = case()
    x.requires_grad_()
    output = fp8.linear(x, weight)
    (first,) = torch.autograd.grad(output, x, torch.ones_like(output), retain_graph=True)
    (second,) = torch.autograd.grad(output, x, 3 * torch.ones_like(output))
    torch.testing.assert_close(second, 3 * first)


def test_gradients_of_gradients_are_refused_by_pytorch():
    x, weight, *_ = case()
    x.requires_grad_()
    (once,) = torch.autograd.grad(fp8.linear(x, weight).square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        once.sum().backward()


def test_a_weight_changed_before_backward_is_noticed():
    x, weight, *_ = case()
    weight.requires_grad_()
    output = fp8.linear(x, weight).sum()
    with torch.no_grad():
        weight.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        output.backward()


def test_stochastic_gradients_are_repeatable_and_right_on_average():
    x, weight, _, gradient = case(48, 32, (64,))

    def to_x(seed):
        return run(x, weight, None, gradient, "nvfp4", generator=torch.Generator().manual_seed(seed))[1]

    assert torch.equal(to_x(0), to_x(0))
    mean = torch.stack([to_x(seed) for seed in range(60)]).mean(0)
    recipe = fp8.RECIPES["nvfp4"]
    weights = dequantized(weight.t().contiguous(), recipe.input_gradient.right)
    right = gradient @ weights.t()
    one, average = ((each - right).norm() / right.norm() for each in (to_x(0), mean))
    assert average < one / 4


@pytest.mark.parametrize("name", ["tensorwise", "rowwise"])
def test_the_kernel_of_the_cpu_gives_the_same_bits(name):
    for emulated, kernel in zip(
        run(*case(), name, engine="emulated"), run(*case(), name, engine="device"), strict=True
    ):
        assert torch.equal(emulated, kernel)


def test_a_recipe_with_few_bits_to_add_up_in_differs_from_fp32():
    x, weight, _, _ = case(512, 8, (4,))
    recipe = fp8.RECIPES["tensorwise"]
    few = fp8.linear(x.abs(), weight.abs(), None, replace(recipe, accumulation=fp8.Accumulation(8)))
    plain = fp8.linear(x.abs(), weight.abs(), None, recipe)
    assert ((few - plain) / plain).mean() < -0.05


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU")
@pytest.mark.parametrize("name", ["tensorwise", "rowwise", "mxfp8", "deepseek_v3"])
def test_a_gpu_trains_what_the_emulation_does(name):
    tensors = [each.to("cuda") for each in case()]
    tensors[0] = tensors[0].bfloat16()
    for made, emulated in zip(run(*tensors, name), run(*tensors, name, engine="emulated"), strict=True):
        assert relative_error(made, emulated) < 2**-7


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"x": torch.ones(2, 3).long()}, TypeError, r"x is a tensor of fp32.*not of torch\.int64"),
        ({"weight": torch.ones(3)}, ValueError, r"x is \(..., inputs\) and weight \(outputs, inputs\)"),
        ({"x": torch.ones(2, 4)}, ValueError, r"not \(2, 4\) and \(5, 3\)"),
        ({"x": torch.tensor(1.0)}, ValueError, r"not \(\) and \(5, 3\)"),
        ({"bias": torch.ones(3)}, ValueError, r"bias has the shape \(5,\), one per output, not \(3,\)"),
        ({"recipe": "mxfp9"}, ValueError, "no recipe 'mxfp9'; did you mean mxfp"),
        ({"recipe": "delayed"}, ValueError, r"give history=fp8\.AmaxHistory\(1024\)"),
        ({"engine": "cuda"}, ValueError, "no engine 'cuda'"),
    ],
)
def test_bad_arguments_are_answered_in_words(changes, error, message):
    with pytest.raises(error, match=message):
        fp8.linear(**{"x": torch.ones(2, 3), "weight": torch.ones(5, 3), **changes})
