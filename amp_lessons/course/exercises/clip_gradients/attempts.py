"""Wrong and right loops that clip."""

from __future__ import annotations

import torch

from amp_lessons.course.exercises.attempt_table import Table

TABLE = Table("clip_gradients")

UNSCALE = "            scaler.unscale_(optimizer)\n"
CLIP = "            torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)\n"
STEP = "            scaler.step(optimizer)\n"
BACKWARD = "            scaler.scale(loss).backward()\n"
UPDATE = "            scaler.update()\n"
ZERO = "            optimizer.zero_grad()\n"
GRADS = "[p.grad for p in model.parameters()]"

wrong = TABLE.mutant
right = TABLE.variant

wrong(
    "clip_before_unscale", "clip_before_unscale", "before scaler.unscale_", (UNSCALE + CLIP, CLIP + UNSCALE)
)
wrong(
    "weights_alone",
    "clipped_piecewise",
    "all parameters together",
    (CLIP, CLIP.replace("model.parameters()", "[p for p in model.parameters() if p.ndim > 1]")),
)
wrong("never_unscaled", "clip_before_unscale", "still multiplied", (UNSCALE, ""))
wrong("clip_after_step", "clip_after_step", "after the step", (UNSCALE + CLIP + STEP, STEP + CLIP))
wrong("clip_after_update", "clip_after_step", "after the step", (UNSCALE + CLIP, ""), (UPDATE, UPDATE + CLIP))
wrong(
    "clip_before_backward",
    "not_clipped",
    "one of norm 0",
    (UNSCALE + CLIP, ""),
    (BACKWARD, CLIP + BACKWARD),
    (ZERO, ""),
    (UPDATE, UPDATE + ZERO),
)
wrong(
    "clip_before_forward",
    "not_clipped",
    "one of norm 0",
    (CLIP, ""),
    (ZERO, ZERO + CLIP),
)
wrong(
    "unscale_before_backward",
    "unscale_without_gradients",
    "backward, which puts them there",
    (BACKWARD + UNSCALE, UNSCALE + BACKWARD),
)
wrong(
    "clipped_where_the_loss_is_large",
    "not_clipped",
    "not called for this update",
    (CLIP, "            if loss > max_norm:\n    " + CLIP),
)
wrong(
    "clipped_again_to_half",
    "wrong_clipping",
    ", then one of norm",
    (CLIP, CLIP + CLIP.replace("max_norm)", "max_norm / 2)")),
)
wrong(
    "values_clipped_beside",
    "clipped_piecewise",
    "all parameters together",
    (CLIP, CLIP.replace("clip_grad_norm_", "clip_grad_value_") + CLIP),
)
wrong("not_clipped", "not_clipped", "not called for this update", (CLIP, ""))
wrong(
    "norm_measured_only",
    "not_clipped",
    "not called for this update",
    (CLIP, CLIP.replace("clip_grad_norm_(model.parameters(), max_norm)", f"get_total_norm({GRADS})")),
)
wrong(
    "clipped_in_fp16_only",
    "not_clipped",
    "seen when dtype is torch.bfloat16",
    (CLIP, "            if dtype == torch.float16:\n    " + CLIP),
)
wrong(
    "clipped_where_the_scaler_is_enabled",
    "not_clipped",
    "seen when dtype is torch.bfloat16",
    (UNSCALE + CLIP, f"            if scaler.is_enabled():\n    {UNSCALE}    {CLIP}"),
)
wrong(
    "clips_to_one", "wrong_clipping", "with norm 1, where max_norm=", (CLIP, CLIP.replace("max_norm", "1.0"))
)
wrong(
    "clips_values",
    "clipped_piecewise",
    "direction",
    (CLIP, CLIP.replace("clip_grad_norm_", "clip_grad_value_").replace("max_norm", "max_norm / 10")),
)
wrong(
    "clips_values_at_max_norm",
    "not_clipped",
    "not called for this update",
    (CLIP, CLIP.replace("clip_grad_norm_", "clip_grad_value_")),
)
wrong(
    "clips_each_parameter",
    "clipped_piecewise",
    "all parameters together",
    (
        CLIP,
        "            for p in model.parameters():\n                torch.nn.utils.clip_grad_norm_(p, max_norm / 2)\n",
    ),
)
wrong(
    "clips_the_head_only",
    "not_clipped",
    "called to clip one of norm",
    (CLIP, CLIP.replace("model.", "model.head.")),
)
wrong(
    "largest_value_norm",
    "wrong_clipping",
    "max_norm",
    (CLIP, CLIP.replace("max_norm)", "max_norm, norm_type=1.0)")),
)
wrong(
    "always_normalised",
    "wrong_clipping",
    "was applied with norm",
    (
        CLIP,
        f"            norm = torch.nn.utils.get_total_norm({GRADS})\n            for p in model.parameters():\n                p.grad *= max_norm / norm\n",
    ),
)
wrong("unscale_twice", "unscale_twice", "twice", (UNSCALE, UNSCALE + UNSCALE))
wrong("step_bypasses_scaler", "step_bypasses_scaler", "directly", (STEP, "            optimizer.step()\n"))
wrong(
    "raises_on_overflow",
    "clip_raises_on_overflow",
    "error_if_nonfinite",
    (CLIP, CLIP.replace("max_norm)", "max_norm, error_if_nonfinite=True)")),
)
wrong(
    "skips_without_update",
    "no_update",
    "after an overflow",
    (
        CLIP,
        CLIP.replace("            torch", "            norm = torch")
        + "            if not norm.isfinite():\n                continue\n",
    ),
)
wrong(
    "divides_by_scale_by_hand_too",
    "unscaled_twice",
    "twice",
    (
        UNSCALE,
        UNSCALE + "            for p in model.parameters():\n                p.grad /= scaler.get_scale()\n",
    ),
)
wrong(
    "no_autocast", "no_autocast", "autocast", ("with torch.autocast(device_type, dtype=dtype):", "if True:")
)
wrong("no_zero_grad", "no_zero_grad", "zero", (ZERO, ""))
wrong("without_max_norm", "signature", "max_norm", ("max_norm, device_type", "device_type"))
wrong(
    "logs_the_scaled_loss",
    "history_scaled",
    "scaled loss",
    ("total += loss.item()", "total += scaler.scale(loss).item()"),
)

wrong("loss_clamped", "loss_cut_off", "zero", ("scale(loss)", "scale(loss.clamp(max=0.0))"))
wrong(
    "weights_clamped",
    "weights_changed",
    "other than the optimizer",
    (CLIP, CLIP + "            for p in model.parameters():\n                p.data.clamp_(-0.5, 0.5)\n"),
)
wrong(
    "largest_value_clipped",
    "not_clipped",
    "called to clip one of norm",
    ("max_norm)\n", "max_norm, norm_type=float('inf'))\n"),
)

BY_HAND = "            for p in model.parameters():\n                p.grad /= scaler.get_scale()\n"
OVER_SCALE = CLIP.replace("max_norm)", "max_norm / scaler.get_scale())")

wrong(
    "norms_logged",
    "history_not_mean",
    "instead of",
    (CLIP, CLIP.replace("torch", "norm = torch", 1)),
    ("loss.item()", "norm.item()"),
)
wrong("threshold_divided", "wrong_clipping", "called to clip one of norm", (CLIP, OVER_SCALE))
wrong("threshold_divided_instead", "clip_before_unscale", "still multiplied", (UNSCALE + CLIP, OVER_SCALE))
wrong("unscaled_by_hand", "unscaled_twice", "twice", (UNSCALE, BY_HAND))
wrong(
    "unscaled_and_stepped_by_hand",
    "step_bypasses_scaler",
    "optimizer.step() was called directly",
    (UNSCALE, BY_HAND),
    (STEP, "            optimizer.step()\n"),
)
wrong(
    "generator_used_up",
    "not_clipped",
    "one of norm 0",
    ("    history = []\n", "    history, parameters = [], model.parameters()\n"),
    (CLIP, CLIP.replace("model.parameters()", "parameters")),
)
wrong(
    "loss_multiplied",
    "wrong_clipping",
    "called to clip one of norm",
    ("scale(loss)", "scale(loss * max_norm)"),
)
wrong(
    "threshold_scaled_after_unscale",
    "not_clipped",
    "called to clip one of norm",
    (CLIP, CLIP.replace("max_norm)", "max_norm * scaler.get_scale())")),
)

right("the_solution")
right("without_foreach", (CLIP, CLIP.replace("max_norm)", "max_norm, foreach=False)")))
right(
    "two_calls",
    (
        CLIP,
        f"            norm = torch.nn.utils.get_total_norm({GRADS})\n            torch.nn.utils.clip_grads_with_norm_(model.parameters(), max_norm, norm)\n",
    ),
)
right(
    "threshold_scaled_instead", (UNSCALE + CLIP, CLIP.replace("max_norm)", "max_norm * scaler.get_scale())"))
)
SMALL_SCALE = ("GradScaler(device_type, ", "GradScaler(device_type, init_scale=2.0**6, ")
SCALED = CLIP.replace("max_norm)", "max_norm * scaler.get_scale())")
right("small_threshold_scaled_instead", (UNSCALE + CLIP, SCALED), SMALL_SCALE)
wrong(
    "half_the_threshold_scaled",
    "wrong_clipping",
    "called to clip one of norm",
    (UNSCALE + CLIP, SCALED.replace("max_norm *", "max_norm / 2 *")),
    SMALL_SCALE,
)
wrong(
    "a_thousandth_of_the_threshold_scaled",
    "wrong_clipping",
    "called to clip one of norm",
    (UNSCALE + CLIP, SCALED.replace("max_norm *", "max_norm / 1000 *")),
)
right(
    "optimizer_groups",
    (
        CLIP,
        "            for group in optimizer.param_groups:\n    "
        + CLIP.replace("model.parameters()", 'group["params"]'),
    ),
)
right("scaler_always_enabled", (", enabled=dtype == torch.float16", ""), notes=("scaler_with_bfloat16",))


@TABLE.correct()
def clips_by_hand(model, loader, optimizer, loss_fn, epochs, *, max_norm, device_type, dtype):
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
            norm = torch.cat([p.grad.flatten() for p in model.parameters()]).norm()
            if norm > max_norm:
                for p in model.parameters():
                    p.grad.mul_(max_norm / norm)
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.item())
        history.append(sum(losses) / len(losses))
    return history
