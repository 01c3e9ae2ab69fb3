"""Half-mended loops, and unusual right ones."""

from __future__ import annotations

import torch

from amp_lessons.course.exercises.attempt_table import Table

TABLE = Table("heal_standstill")

UNSCALE = "            scaler.unscale_(optimizer)\n"
CLIP = "            torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)\n"
STEP = "            scaler.step(optimizer)\n"
UPDATE = "            scaler.update()\n"
BY_HAND = "            for p in model.parameters():\n                p.grad /= scaler.get_scale()\n"

wrong = TABLE.mutant
right = TABLE.variant

wrong(
    "unscaled_after_clipping",
    "clip_before_unscale",
    "before scaler.unscale_",
    (UNSCALE + CLIP, CLIP + UNSCALE),
)
wrong("clipping_taken_out", "not_clipped", "was not called", (UNSCALE + CLIP, ""))
wrong("clipped_after_the_step", "clip_after_step", "after the step", (UNSCALE + CLIP + STEP, STEP + CLIP))
wrong(
    "clipped_after_the_step_unscaled",
    "unscale_after_step",
    "after scaler.step",
    (UNSCALE + CLIP + STEP, STEP + UNSCALE + CLIP),
)
wrong("divided_by_hand", "unscaled_twice", "twice", (UNSCALE, BY_HAND))
wrong(
    "divided_and_stepped_by_hand",
    "step_bypasses_scaler",
    "directly",
    (UNSCALE, BY_HAND),
    (
        STEP + UPDATE,
        "            optimizer.step()\n            if scaler.is_enabled():\n                scaler.update(scaler.get_scale())\n",
    ),
)
wrong(
    "unscaled_and_stepped_directly",
    "step_bypasses_scaler",
    "directly",
    (STEP, "            optimizer.step()\n"),
)
wrong(
    "threshold_times_the_first_scale",
    "not_clipped",
    "was called to clip one",
    (UNSCALE + CLIP, CLIP.replace("max_norm)", "max_norm * 2.0**16)")),
)
wrong(
    "each_by_itself",
    "not_clipped",
    "then one of norm",
    (
        CLIP,
        CLIP.replace(
            "            torch", "            for p in model.parameters():\n                torch"
        ).replace("model.parameters(), max", "[p], max"),
    ),
)
wrong(
    "by_another_norm",
    "not_clipped",
    "by another norm than the 2-norm",
    (CLIP, CLIP.replace("max_norm)", "max_norm, norm_type=float('inf'))")),
)
wrong(
    "in_the_first_call_alone",
    "not_clipped",
    "was not called",
    ("device_type, dtype):", "device_type, dtype, done=[]):"),
    (CLIP, "            if not done:\n    " + CLIP + "                done.append(True)\n"),
)
wrong(
    "by_a_norm_kept_from_call_to_call",
    "gradients_changed",
    "gradients",
    ("device_type, dtype):", "device_type, dtype, norms=[]):"),
    (
        CLIP,
        "            parameters = list(model.parameters())\n"
        "            norms.append(torch.nn.utils.get_total_norm([p.grad for p in parameters]))\n"
        "            torch.nn.utils.clip_grads_with_norm_(parameters, max_norm, max(norms))\n",
    ),
)
wrong("unscaled_twice", "unscale_twice", "twice", (UNSCALE, UNSCALE * 2))
wrong(
    "threshold_divided",
    "clip_before_unscale",
    "clips what is far below",
    (UNSCALE + CLIP, CLIP.replace("max_norm)", "max_norm / scaler.get_scale())")),
)
wrong(
    "clips_values_instead",
    "not_clipped",
    "was not called",
    (CLIP, CLIP.replace("norm_(", "value_(", 1)),
)
wrong(
    "scaler_switched_off",
    "loss_not_scaled",
    "enabled=False",
    ("enabled=dtype == torch.float16", "enabled=False"),
)
wrong(
    "threshold_raised",
    "wrong_clipping",
    "was called to clip one",
    (UNSCALE + CLIP, CLIP.replace("max_norm)", "max_norm * 1000)")),
)

right(
    "threshold_scaled_instead", (UNSCALE + CLIP, CLIP.replace("max_norm)", "max_norm * scaler.get_scale())"))
)
right(
    "clips_what_the_optimizer_steps",
    (CLIP, CLIP.replace("model.parameters()", "optimizer.param_groups[0]['params']")),
)
right("scaler_always_enabled", (", enabled=dtype == torch.float16", ""), notes=("scaler_with_bfloat16",))


@TABLE.correct()
def one_factor_for_all(model, loader, optimizer, loss_fn, epochs, *, max_norm, device_type, dtype):
    scaler = torch.amp.GradScaler(device_type, enabled=dtype == torch.float16)
    history = []
    for _ in range(epochs):
        losses = []
        for x, y in loader:
            with torch.autocast(device_type, dtype=dtype):
                loss = loss_fn(model(x), y)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            gradients = [p.grad for p in model.parameters()]
            norm = torch.stack([g.norm() for g in gradients]).norm()
            torch._foreach_mul_(gradients, (max_norm / (norm + 1e-6)).clamp(max=1.0))
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.item())
        history.append(sum(losses) / len(losses))
    return history
