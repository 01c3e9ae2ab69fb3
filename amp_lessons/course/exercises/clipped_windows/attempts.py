"""Wrong and right loops with windows and clipping: every bug that a review may have, and some that raise."""

from __future__ import annotations

import torch

from amp_lessons.course.exercises.attempt_table import Table
from amp_lessons.course.exercises.clipped_windows.bugs import BUGS

TABLE = Table("clipped_windows")
wrong = TABLE.mutant
right = TABLE.variant

# a word of the message that each bug of a review gets when it is alone
_WORDS = {
    "fixed_dtype": "bf16 although",
    "scaler_of_an_epoch": "new GradScaler",
    "scaler_off": "switched off in fp16",
    "model_outside": "outside autocast",
    "loss_rounded": "cast to fp16",
    "loss_outside": "outside autocast",
    "backward_inside": "inside the autocast context",
    "not_divided": "3 times too large",
    "graph_kept": "whole graph",
    "logged_divided": "divided by accumulation_steps",
    "sum_logged": "the sum of the batch losses",
    "total_never_reset": "not reset",
    "rest_left": "left over",
    "counted_from_zero": "within a window",
    "not_unscaled": "clips what is far below",
    "clipped_first": "before scaler.unscale_",
    "clipped_by_value": "was not called",
    "direct_step": "called directly",
    "unscaled_every_batch": "within a window",
    "never_cleared": "set to zero",
    "cleared_every_batch": "what it held before is lost",
    "cleared_before_the_step": "none left",
}
for bug in BUGS:
    wrong(bug.id, bug.codes[0], _WORDS[bug.id], *bug.changes)

UPDATE = "                scaler.update()\n"
STEP = "                scaler.step(optimizer)\n"
HISTORY = "    history = []\n"

wrong("never_updated", "no_update", "scaler.update()", (UPDATE, ""))
wrong("updated_before_the_step", "no_update", "scaler.update()", (STEP + UPDATE, UPDATE + STEP))
CLIP = "                torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)\n"
wrong(
    "shorter_window_not_clipped",
    "not_clipped",
    "was not called for this update",
    (CLIP, f"                if (i + 1) % accumulation_steps == 0:\n    {CLIP}"),
)
LOSS = "            scaler.scale(loss / accumulation_steps).backward()\n"
LOGGED = "            total += loss.item()\n"
SKIP = "            if not torch.isfinite(loss):\n                continue\n"
wrong(  # the gradients that wait for it get into the next window, but for an epoch's last
    "continue_over_the_step_of_a_window",
    "steps_too_rarely",
    "followed only",
    ("        total = 0.0\n", "        total = 0.0\n        optimizer.zero_grad()\n"),
    (LOSS + LOGGED, SKIP + LOSS + LOGGED),
)
wrong(
    "small_scale",
    "scale_too_small",
    "the loss scale 16 is too small",
    ("GradScaler(device_type, ", "GradScaler(device_type, init_scale=16.0, "),
)
wrong("half_model", "half_parameters", "16-bit", (HISTORY, f"{HISTORY}    model = model.to(dtype)\n"))
wrong(
    "never_scaled",
    "loss_not_scaled",
    "not multiplied by scaler.scale(loss)",
    ("scaler.scale(loss / accumulation_steps)", "(loss / accumulation_steps)"),
)
wrong("nothing_returned", "wrong_return_type", "None", ("    return history\n", ""))
wrong("raises", "raised", "ZeroDivisionError", (HISTORY, "    history = [1 / 0]\n"))
wrong("without_max_norm", "signature", "max_norm", (" max_norm,", ""), ("max_norm)", "1.0)"))

right("the_solution")
right("scaler_always_enabled", (", enabled=dtype == torch.float16", ""), notes=("scaler_with_bfloat16",))
right(
    "counted_from_one",
    ("enumerate(loader)", "enumerate(loader, 1)"),
    ("(i + 1) % accumulation_steps == 0 or i + 1 ==", "i % accumulation_steps == 0 or i =="),
)


@TABLE.correct()
def clipped_by_hand(
    model, loader, optimizer, loss_fn, epochs, *, accumulation_steps, max_norm, device_type, dtype
):
    """The norm of the unscaled gradients by hand, for who wants to log it."""
    scaler = torch.amp.GradScaler(device_type, enabled=dtype == torch.float16)
    history = []
    for _ in range(epochs):
        losses = []
        for x, y in loader:
            with torch.autocast(device_type, dtype=dtype):
                loss = loss_fn(model(x), y)
            scaler.scale(loss / accumulation_steps).backward()
            losses.append(loss.item())
            if len(losses) % accumulation_steps and len(losses) < len(loader):
                continue
            scaler.unscale_(optimizer)
            norm = torch.stack([p.grad.norm() for p in model.parameters()]).norm()
            for p in model.parameters():
                p.grad.mul_((max_norm / (norm + 1e-6)).clamp(max=1.0))
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
        history.append(sum(losses) / len(losses))
    return history


@TABLE.correct("own_scaling")
def sums_of_its_own(
    model, loader, optimizer, loss_fn, epochs, *, accumulation_steps, max_norm, device_type, dtype
):
    """Nothing lies in ``.grad`` before the step, the scale is its own, a short window has its own number."""
    parameters, batches = list(model.parameters()), list(loader)
    scale, history = 65536.0 if dtype == torch.float16 else 1.0, []
    for _ in range(epochs):
        losses = []
        for at in range(0, len(batches), accumulation_steps):
            window = batches[at : at + accumulation_steps]
            sums = [torch.zeros_like(p) for p in parameters]
            for x, y in window:
                with torch.autocast(device_type, dtype=dtype):
                    loss = loss_fn(model(x), y)
                begin = torch.full_like(loss, scale / len(window))
                for total, gradient in zip(sums, torch.autograd.grad(loss, parameters, begin), strict=True):
                    total.add_(gradient, alpha=1 / scale)
                losses.append(loss.item())
            norm = torch.cat([total.flatten() for total in sums]).norm()
            if not norm.isfinite():
                scale /= 2
                continue
            for parameter, total in zip(parameters, sums, strict=True):
                parameter.grad = total * (max_norm / norm).clamp(max=1.0)
            optimizer.step()
        history.append(sum(losses) / len(losses))
    return history
