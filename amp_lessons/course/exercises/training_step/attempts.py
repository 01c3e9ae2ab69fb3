"""Wrong and right steps from nothing."""

from __future__ import annotations

import torch

from amp_lessons.course.exercises.attempt_table import Table

TABLE = Table("training_step")
wrong = TABLE.mutant
right = TABLE.variant

HALF = "weight.half().requires_grad_()"
UNSCALED = "gradient.float() / scale for gradient in gradients"
CHECK = "    if not all(gradient.isfinite().all() for gradient in unscaled):\n        return loss.item(), scale / 2\n"
MOVE = "        weight -= lr * gradient\n"
LAST = "    return loss.item(), scale\n"

wrong("in_fp32", "not_in_fp16", "float32", (HALF, "weight.clone().requires_grad_()"))
wrong(
    "not_scaled",
    "step_elsewhere",
    "below 2**-25",
    ("loss * scale", "loss"),
    (UNSCALED, "gradient.float() for gradient in gradients"),
)
wrong(
    "not_unscaled",
    "step_elsewhere",
    "1.02e+03 times",
    (UNSCALED, "gradient.float() for gradient in gradients"),
)
wrong(
    "unscaled_in_fp16",
    "step_elsewhere",
    "below 2**-25",
    (UNSCALED, "(gradient / scale).float() for gradient in gradients"),
)
wrong(
    "updated_in_fp16",
    "step_elsewhere",
    "ten-thousandth",
    (MOVE, "        weight.copy_(weight.half() - (lr * gradient).half())\n"),
)
wrong(
    "masters_rounded",
    "step_elsewhere",
    "ten-thousandth",
    (MOVE, "        weight.copy_((weight - lr * gradient).half())\n"),
)
wrong(
    "learning_rate_divided_by_the_scale",
    "step_elsewhere",
    "updates around 2**-24",
    (UNSCALED, "gradient for gradient in gradients"),
    (MOVE, "        weight -= (lr / scale) * gradient\n"),
)
wrong("never_checked", "overflow_applied", "1, 2, 3 of 3", (CHECK, ""))
wrong(
    "first_checked_only",
    "overflow_applied",
    "last weight",
    ("for gradient in unscaled)", "for gradient in unscaled[:1])"),
)
wrong(
    "nan_not_seen",
    "overflow_applied",
    "NaN",
    ("not all(gradient.isfinite().all()", "any(gradient.isinf().any()"),
)
wrong(
    "checked_one_by_one",
    "overflow_applied",
    "last weight",
    (CHECK, ""),
    (MOVE, "        if not gradient.isfinite().all():\n            return loss.item(), scale / 2\n" + MOVE),
)
wrong(
    "judged_by_a_norm_in_fp16",
    "scale_moved",
    "with a norm that does not",
    (
        CHECK,
        "    if not torch.cat([g.flatten() for g in gradients]).norm().isfinite():\n        return loss.item(), scale / 2\n",
    ),
)
wrong(
    "loss_taken_back_by_the_next_scale",
    "loss_scaled",
    "the loss returned is",
    ("return loss.item(), scale / 2", "return loss.item() * scale / (scale / 2), scale / 2"),
)
wrong("scale_never_lowered", "scale_not_halved", "half of", ("scale / 2", "scale"))
wrong("scale_doubled", "scale_moved", "finite", (LAST, "    return loss.item(), scale * 2\n"))
wrong(
    "scaled_loss_returned",
    "loss_scaled",
    "and the loss is",
    (LAST, "    return (loss * scale).item(), scale\n"),
)
wrong("upwards", "step_elsewhere", "a plain step", (MOVE, "        weight += lr * gradient\n"))
wrong(
    "list_replaced",
    "masters_replaced",
    "other tensors",
    (MOVE, "        pass\n"),
    (LAST, "    weights[:] = [w - lr * g for w, g in zip(weights, unscaled, strict=True)]\n" + LAST),
)
wrong("name_rebound", "step_elsewhere", "0 times as far", (MOVE, "        weight = weight - lr * gradient\n"))
wrong(
    "two_losses",
    "loss_calls",
    "2 times",
    ("    gradients =", "    loss = loss_fn(copies, batch)\n    gradients ="),
)
wrong("loss_alone", "wrong_return_type", "two floats", (LAST, "    return loss.item()\n"))
wrong("nothing_returned", "wrong_return_type", "None", (LAST, ""))

right("the_solution")
right("as_tensors", (LAST, "    return loss.detach(), torch.tensor(scale)\n"))
right(
    "by_backward",
    (
        "    gradients = torch.autograd.grad(loss * scale, copies)\n",
        "    (loss * scale).backward()\n    gradients = [copy.grad for copy in copies]\n",
    ),
)
right("checked_before_dividing", ("for gradient in unscaled)", "for gradient in gradients)"))


@TABLE.correct()
def by_an_optimizer(weights, loss_fn, batch, lr, scale):
    """With PyTorch's SGD on parameters that share the masters' memory."""
    masters = [torch.nn.Parameter(weight) for weight in weights]
    loss = loss_fn([master.half() for master in masters], batch)
    (loss * scale).backward()
    for master in masters:
        master.grad /= scale
    if all(master.grad.isfinite().all() for master in masters):
        torch.optim.SGD(masters, lr=lr).step()
        return loss.item(), scale
    return loss.item(), scale * 0.5
