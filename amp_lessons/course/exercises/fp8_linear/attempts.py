"""Wrong and right linear functions in eight bits."""

from __future__ import annotations

import torch

from amp_lessons.course.exercises.attempt_table import Table

TABLE = Table("fp8_linear")
wrong = TABLE.mutant
right = TABLE.variant

SCALE = "amax.clamp(min=1e-30) / torch.finfo(dtype).max"
CAST = "return (tensor.float() / scale).to(dtype), scale"
WEIGHT = "b, scale_b = cast(weight, torch.float8_e4m3fn)"
FORWARD = "((a.float() @ b.float().t()) * scale_a * scale_b).to(x.dtype)"
GRADIENT = "g, scale_g = cast(gradient, torch.float8_e5m2)"
TO_X = "(g.float() @ b.float()) * scale_g * scale_b"
TO_WEIGHT = "(g.float().t() @ a.float()) * scale_g * scale_a"
APPLY = "return Product.apply(x, weight)"

wrong(
    "unscaled_output",
    "not_unscaled",
    "times the product of what was cast",
    (FORWARD, "(a.float() @ b.float().t()).to(x.dtype)"),
)
wrong(
    "one_scale_forgotten",
    "not_unscaled",
    "times the product of what was cast",
    (FORWARD, FORWARD.replace(" * scale_b", "")),
)
wrong(
    "divides_by_the_scales",
    "not_unscaled",
    "times the product of what was cast",
    (FORWARD, "(a.float() @ b.float().t() / scale_a / scale_b).to(x.dtype)"),
)
wrong("plain_casts", "range_unused", "a scale of 1", (SCALE, "torch.ones(())"))
wrong("unscaled_gradient_of_x", "not_unscaled", "gradient of x", (TO_X, "(g.float() @ b.float()) * scale_b"))
wrong(
    "unscaled_gradient_of_weight",
    "not_unscaled",
    "gradient of weight",
    (TO_WEIGHT, "g.float().t() @ a.float()"),
)
wrong(
    "scale_of_another_operand",
    "not_unscaled",
    "times the product of what was cast",
    (TO_WEIGHT, TO_WEIGHT.replace("scale_a", "ctx.saved_tensors[3]")),
)
wrong(
    "gradient_in_the_weights_format",
    "gradient_format",
    "E4M3",
    ("cast(gradient, torch.float8_e5m2)", "cast(gradient, torch.float8_e4m3fn)"),
)
wrong(
    "gradient_as_it_is",
    "gradient_not_cast",
    "not cast to 8 bits",
    (GRADIENT, "g, scale_g = gradient, torch.ones(())"),
)
wrong(
    "gradient_without_a_scale",
    "range_unused",
    "cast of gradient",
    (GRADIENT, "g, scale_g = gradient.to(torch.float8_e5m2), torch.ones(())"),
)
wrong(
    "only_one_product_has_the_cast_gradient",
    "wrong_product",
    "gradient of weight",
    (TO_WEIGHT, "(gradient.float().t() @ a.float()) * scale_a"),
)
wrong(
    "x_as_it_is_in_one_product",
    "wrong_product",
    "gradient of weight",
    ("ctx.save_for_backward(a, scale_a,", "ctx.save_for_backward(x, torch.ones(()),"),
)
wrong(
    "weight_as_it_is_in_one_product",
    "wrong_product",
    "gradient of x",
    ("b, scale_b)\n", "weight, torch.ones(()))\n"),
)
wrong("x_alone_is_cast", "operand_not_cast", "weight was", (WEIGHT, "b, scale_b = weight, torch.ones(())"))
wrong("weight_in_e5m2", "forward_format", "E5M2", (WEIGHT, "b, scale_b = cast(weight, torch.float8_e5m2)"))
wrong(
    "transposed_copy_quantised_twice",
    "quantised_twice",
    "second time",
    (
        TO_X,
        "(lambda again, scale: (g.float() @ again.float().t()) * scale_g * scale)(*cast((b.float() * "
        "scale_b).t(), torch.float8_e4m3fn))",
    ),
)
wrong(
    "x_cast_again_for_its_product",
    "quantised_twice",
    "second time",
    (TO_WEIGHT, "(g.float().t() @ cast(a, torch.float8_e4m3fn)[0].float()) * scale_g * scale_a"),
)
wrong(
    "output_in_8_bits",
    "unknown_cast",
    "(24, 16)",
    (FORWARD, FORWARD.replace(".to(x.dtype)", ".to(torch.float8_e4m3fn).to(x.dtype)")),
)
wrong(
    "amax_per_element",
    "unknown_cast",
    "one number",
    ("tensor.float().abs().max()", "tensor.float().abs()"),
    (FORWARD, "((a.float() * scale_a) @ (b.float() * scale_b).t()).to(x.dtype)"),
)
wrong(
    "row_by_row",
    "unknown_cast",
    "of shape (40,)",
    (
        "a, scale_a = cast(x, torch.float8_e4m3fn)",
        "rows = [cast(row, torch.float8_e4m3fn) for row in x]\n"
        "            a, scale_a = torch.stack([r[0] for r in rows]), torch.stack([r[1] for r in rows])[:, None]",
    ),
)
wrong(
    "weight_cast_once_and_kept_with_it",
    "operand_not_cast",
    "in this pass",
    (
        WEIGHT,
        "if not hasattr(weight, 'kept'):\n                weight.kept = cast(weight, torch.float8_e4m3fn)\n"
        "            b, scale_b = weight.kept",
    ),
)
wrong(
    "weight_cast_once_for_its_shape",
    "operand_not_cast",
    "in this pass",
    ("import torch\n", "import torch\n\nKEPT = {}\n"),
    (
        WEIGHT,
        "if weight.shape not in KEPT:\n"
        "                KEPT[weight.shape] = cast(weight, torch.float8_e4m3fn)\n"
        "            b, scale_b = KEPT[weight.shape]",
    ),
)
wrong("half_the_range_is_not_enough", "saturates", "lands at", (SCALE, f"{SCALE} / 4"))
wrong("a_range_of_one", "range_unused", "lands at 1", (SCALE, "amax.clamp(min=1e-30)"))
wrong("nan_at_zero", "zero_amax", "x of zeros", (".clamp(min=1e-30)", ""))
wrong(
    "overflow_hidden",
    "inf_hidden",
    "gradient with inf",
    ("(tensor.float() / scale)", "(tensor.float().nan_to_num(0, 0, 0) / scale)"),
    ("tensor.float().abs()", "tensor.float().nan_to_num(0, 0, 0).abs()"),
)
wrong(
    "multiplied_in_bf16",
    "wrong_product",
    "of its norm",
    (FORWARD, "((a.float() @ b.float().t()).bfloat16() * scale_a * scale_b).to(x.dtype)"),
)
wrong("bias_of_its_own", "wrong_product", "of its norm", (FORWARD, FORWARD + " + 1"))
wrong(
    "detached",
    "gradient_not_flowing",
    "no gradient",
    (APPLY, "return Product.apply(x.detach(), weight.detach())"),
)
wrong(
    "weight_detached",
    "gradient_not_flowing",
    "reaches weight",
    (APPLY, "return Product.apply(x, weight.detach())"),
)
wrong(
    "one_gradient_is_none",
    "gradient_not_flowing",
    "reaches x",
    ("return to_x, to_weight", "return None, to_weight"),
)
wrong("gradients_exchanged", "raised", "backward", ("return to_x, to_weight", "return to_weight, to_x"))
wrong("always_fp32", "wrong_return_type", "bfloat16", (".to(x.dtype)", ""))
wrong("not_transposed", "raised", "forward", ("b.float().t()", "b.float()"))
wrong("breaks_without_rows", "raised", "without rows", (" if tensor.numel() else torch.zeros(())", ""))
wrong("nothing_returned", "wrong_return_type", "None", (APPLY, "Product.apply(x, weight)"))


@TABLE.mistake("gradient_format", "autograd, which does so")
def left_to_autograd(x, weight):
    def cast(tensor):
        scale = tensor.detach().float().abs().max().clamp(min=1e-30) / 448
        return (tensor.float() / scale).to(torch.float8_e4m3fn).float() * scale

    return (cast(x) @ cast(weight).t()).to(x.dtype)


@TABLE.mistake("gradient_not_cast", "not cast to 8 bits")
def straight_through_alone(x, weight):
    def cast(tensor):
        wide = tensor.float()
        scale = wide.detach().abs().max().clamp(min=1e-30) / 448
        rounded = (wide.detach() / scale).to(torch.float8_e4m3fn).float() * scale
        return wide + (rounded - wide).detach()

    return (cast(x) @ cast(weight).t()).to(x.dtype)


@TABLE.mistake("operand_not_cast", "x was")
def a_plain_layer(x, weight):
    return torch.nn.functional.linear(x, weight)


right("the_solution")
right("powers_of_two", (SCALE, f"2.0 ** ({SCALE}).log2().ceil()"))
right(
    "clamped_before",
    (
        "(tensor.float() / scale)",
        "(tensor.float() / scale).clamp(-torch.finfo(dtype).max, torch.finfo(dtype).max)",
    ),
)
right("scales_first", (FORWARD, "((a.float() * scale_a) @ (b.float() * scale_b).t()).to(x.dtype)"))
right("multiplied_in_fp64", (FORWARD, "((a.double() @ b.double().t()) * scale_a * scale_b).to(x.dtype)"))
right("half_of_the_range", (SCALE, f"({SCALE}) * 2"))
right(
    "weight_cast_once_for_each_of_its_versions",
    (
        WEIGHT,
        "if getattr(weight, 'version', None) != weight._version:\n"
        "                weight.kept, weight.version = cast(weight, torch.float8_e4m3fn), weight._version\n"
        "            b, scale_b = weight.kept",
    ),
)
right(
    "cast_again_from_high_precision",
    ("ctx.save_for_backward(a, scale_a, b, scale_b)", "ctx.save_for_backward(x, weight)"),
    (
        "a, scale_a, b, scale_b = ctx.saved_tensors",
        "a, scale_a, b, scale_b = [each for t in ctx.saved_tensors for each in cast(t, torch.float8_e4m3fn)]",
    ),
)
right(
    "weight_transposed_before_its_cast",
    (WEIGHT, "b, scale_b = cast(weight.t(), torch.float8_e4m3fn)\n            b = b.t()"),
)


@TABLE.correct()
def by_a_hook(x, weight):
    """Straight through in forward, and the gradient cast by a hook on its way back."""

    def rounded(tensor, dtype):
        wide = torch.cat([tensor.flatten(), tensor.new_zeros(1)]).float()
        scale = wide.abs().max().clamp(min=1e-30) / torch.finfo(dtype).max
        return (tensor.float() / scale).to(dtype).float() * scale

    a, b = (
        each.float() + (rounded(each.detach(), torch.float8_e4m3fn) - each.detach().float())
        for each in (x, weight)
    )
    output = a @ b.t()
    output.register_hook(lambda gradient: rounded(gradient, torch.float8_e5m2))
    return output.to(x.dtype)


def scaled(tensor, dtype, amax=None):
    amax = tensor.float().abs().max() if amax is None and tensor.numel() else amax
    scale = (torch.zeros(()) if amax is None else amax).clamp(min=1e-30) / torch.finfo(dtype).max
    return (tensor.float() / scale).to(dtype), scale


@TABLE.mistake("unknown_cast", "no operand times one")
def a_scale_per_row(x, weight):
    class Output(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, weight):
            (a, scale_a), (b, scale_b) = (
                scaled(each, torch.float8_e4m3fn, each.float().abs().amax(1, keepdim=True))
                for each in (x, weight)
            )
            return (a.float() @ b.float().t() * scale_a * scale_b.t()).to(x.dtype)

        @staticmethod
        def backward(ctx, gradient):
            return None, None

    return Output.apply(x, weight)


@TABLE.correct()
def by_pytorchs_kernel(x, weight):
    """As a library does: torch._scaled_mm, which a CPU has too."""
    e4m3, e5m2 = torch.float8_e4m3fn, torch.float8_e5m2

    def product(left, right, dtype):
        (a, scale_a), (b, scale_b) = left, right
        return torch._scaled_mm(a, b, scale_a, scale_b, out_dtype=torch.float32).to(dtype)

    def turned(operand):
        return operand[0].t(), operand[1]

    def columns(operand):  # the kernel wants its second operand laid out along columns
        return operand[0].t().contiguous().t(), operand[1]

    class Kernel(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, weight):
            ctx.of_x, ctx.of_weight = scaled(x, e4m3), scaled(weight, e4m3)
            ctx.dtypes = x.dtype, weight.dtype
            return product(ctx.of_x, turned(ctx.of_weight), x.dtype)

        @staticmethod
        def backward(ctx, gradient):
            of_gradient = scaled(gradient, e5m2)
            to_weight = product(
                (of_gradient[0].t().contiguous(), of_gradient[1]), columns(ctx.of_x), ctx.dtypes[1]
            )
            return product(of_gradient, columns(ctx.of_weight), ctx.dtypes[0]), to_weight

    return Kernel.apply(x, weight)


@TABLE.correct()
def in_three_functions(x, weight):
    """As torchao does it: one function casts forward, one casts what comes back, autograd does the rest."""

    class Forward(torch.autograd.Function):
        @staticmethod
        def forward(ctx, tensor):
            ctx.dtype = tensor.dtype
            values, scale = scaled(tensor, torch.float8_e4m3fn)
            return values.float() * scale

        @staticmethod
        def backward(ctx, gradient):
            return gradient.to(ctx.dtype)

    class Backward(torch.autograd.Function):
        @staticmethod
        def forward(ctx, tensor, dtype):
            return tensor.to(dtype)

        @staticmethod
        def backward(ctx, gradient):
            values, scale = scaled(gradient, torch.float8_e5m2)
            return values.float() * scale, None

    return Backward.apply(Forward.apply(x) @ Forward.apply(weight).t(), x.dtype)
