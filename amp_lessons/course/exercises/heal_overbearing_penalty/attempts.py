"""Half-mended loops, and unusual right ones."""

from __future__ import annotations

import torch

from amp_lessons.course.exercises.attempt_table import Table

TABLE = Table("heal_overbearing_penalty")

FIRST = "torch.autograd.grad(scaler.scale(loss), tuple(model.parameters()), create_graph=True)"
DIVIDED = "            gradients = [gradient / scaler.get_scale() for gradient in gradients]\n"
NORM = "            norm = torch.stack([gradient.norm() for gradient in gradients]).norm()\n"
SECOND = "scaler.scale(loss + penalty * norm).backward()\n"
STEP = "            scaler.step(optimizer)\n"

wrong = TABLE.mutant
right = TABLE.variant

wrong(
    "penalty_made_smaller",
    "penalty_on_scaled_gradients",
    "times",
    (DIVIDED, ""),
    ("penalty * norm", "penalty * norm / 10"),
)
wrong(
    "divided_twice",
    "penalty_missing",
    "that of the loss alone",
    (NORM, NORM + "            norm = norm / scaler.get_scale()\n"),
)
wrong(
    "divided_by_the_first_scale",
    "wrong_update",
    "0.5 times that of the penalty",
    ("    history = []\n", "    history = []\n    scale = scaler.get_scale()\n"),
    ("gradient / scaler.get_scale()", "gradient / scale"),
)
wrong(
    "divided_by_a_constant",
    "penalty_missing",
    "that of the loss alone",
    ("gradient / scaler.get_scale()", "gradient / 65536.0"),
)
wrong(
    "without_a_graph",
    "penalty_missing",
    "that of the loss alone",
    (FIRST, FIRST.replace("create_graph", "retain_graph")),
)
wrong("graph_freed", "graph_used_twice", "first", (FIRST, FIRST.replace(", create_graph=True", "")))
wrong("as_a_number", "penalty_missing", "that of the loss alone", ("penalty * norm", "penalty * norm.item()"))
wrong("left_out", "penalty_missing", "that of the loss alone", ("loss + penalty * norm", "loss"))
wrong(
    "first_pass_unscaled",
    "loss_not_scaled",
    "torch.autograd.grad",
    (FIRST, FIRST.replace("scaler.scale(loss)", "loss")),
    (DIVIDED, ""),
)
wrong(
    "second_pass_unscaled",
    "scaled_loss_discarded",
    "unscaled loss",
    (SECOND, "(loss + penalty * norm).backward()\n"),
)
wrong(
    "unscaled_where_nothing_is",
    "unscale_without_gradients",
    "returns its gradients",
    (DIVIDED, "            scaler.unscale_(optimizer)\n"),
)
wrong("stepped_directly", "optimizer_step_direct", "directly", (STEP, "            optimizer.step()\n"))
SCALER = "torch.amp.GradScaler(device_type, enabled=dtype == torch.float16)"
wrong(
    "scaler_kept_from_call_to_call",
    "scaler_kept",
    "earlier call",
    ("device_type, dtype):", "device_type, dtype, scalers={}):"),
    (SCALER, f"scalers.setdefault(dtype, {SCALER})"),
)
wrong(
    "weights_without_biases",
    "wrong_update",
    "not plain SGD",
    (FIRST, FIRST.replace("tuple(model.parameters())", "[p for p in model.parameters() if p.dim() > 1]")),
)
wrong("norms_added_up", "wrong_update", "not plain SGD", (NORM, NORM.replace(").norm()\n", ").sum()\n")))
wrong("squared", "wrong_update", "not plain SGD", (NORM, NORM + "            norm = norm**2\n"))
wrong(
    "logged_with_the_penalty",
    "history_not_mean",
    "history",
    ("+= loss.item()", "+= (loss + penalty * norm).item()"),
)
wrong(
    "all_of_it_under_autocast",
    "backward_in_autocast",
    "backward",
    (SECOND, f"with torch.autocast(device_type, dtype=dtype):\n                {SECOND}"),
)

LEFT = "[parameter.grad for parameter in model.parameters()]"
FIRST_BY_BACKWARD = (
    f"            gradients = {FIRST}\n",
    f"            scaler.scale(loss).backward(create_graph=True)\n            gradients = {LEFT}\n",
)
ZERO = "            optimizer.zero_grad()\n"
wrong("first_pass_never_cleared", "wrong_update", "it is 2 times that of the loss plus", FIRST_BY_BACKWARD)
wrong(
    "another_pass_of_the_loss",
    "wrong_update",
    "times that of the loss plus",
    (
        f"            {SECOND}",
        f"            scaler.scale(loss).backward(retain_graph=True)\n            {SECOND}",
    ),
)
right("first_pass_cleared", FIRST_BY_BACKWARD, (f"            {SECOND}", f"{ZERO}            {SECOND}"))
right(
    "two_backward_passes",
    (
        SECOND,
        "scaler.scale(loss).backward(retain_graph=True)\n            scaler.scale(penalty * norm).backward()\n",
    ),
)
right("norm_divided", (DIVIDED, ""), (NORM, NORM + "            norm = norm / scaler.get_scale()\n"))
right("multiplied_by_the_inverse", ("gradient / scaler.get_scale()", "gradient * (1.0 / scaler.get_scale())"))
right(
    "norm_under_autocast", (NORM, "            with torch.autocast(device_type, dtype=dtype):\n    " + NORM)
)
right("scaler_always_enabled", (", enabled=dtype == torch.float16", ""))


@TABLE.correct()
def by_hand(model, loader, optimizer, loss_fn, epochs, *, penalty, device_type, dtype):
    scaler = torch.amp.GradScaler(device_type, enabled=dtype == torch.float16)
    history = []
    for _ in range(epochs):
        losses = []
        for x, y in loader:
            with torch.autocast(device_type, dtype=dtype):
                loss = loss_fn(model(x), y)
            found = torch.autograd.grad(scaler.scale(loss), model.parameters(), create_graph=True)
            squares = sum((each / scaler.get_scale()).square().sum() for each in found)
            optimizer.zero_grad()
            scaler.scale(loss + penalty * squares.sqrt()).backward()
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.item())
        history.append(sum(losses) / len(losses))
    return history
