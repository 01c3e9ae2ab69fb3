"""Wrong and right GAN steps."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from amp_lessons.course.exercises.attempt_table import Table

TABLE = Table("two_optimizers")

AUTOCAST = "    with torch.autocast(device_type, dtype=dtype):\n"
STEP_D = "    scaler.step(opt_d)\n"
STEP_G = "    scaler.step(opt_g)\n"
UPDATE = "    scaler.update()\n"
ZERO_D = "    opt_d.zero_grad()\n"
ZERO_G = "    opt_g.zero_grad()\n"
BACK_D = "    scaler.scale(d_loss).backward()\n"
BACK_G = "    scaler.scale(g_loss).backward()\n"
RETURN = "    return d_loss.item(), g_loss.item()\n"
FAKE = AUTOCAST + "        fake = generator(noise)\n"
JUDGED = AUTOCAST + "        judged = discriminator(fake)\n"

wrong = TABLE.mutant
right = TABLE.variant

wrong("no_update", "no_update", "scaler.update()", (UPDATE, ""))
wrong("direct_step_d", "optimizer_step_direct", "72 times too large", (STEP_D, "    opt_d.step()\n"))
wrong("direct_step_g", "optimizer_step_direct", "72 times too large", (STEP_G, "    opt_g.step()\n"))
wrong(
    "d_loss_not_scaled",
    "loss_not_scaled",
    "not multiplied by scaler.scale",
    (BACK_D, "    d_loss.backward()\n"),
)
wrong("g_loss_not_scaled", "loss_not_scaled", "no scaler has seen it", (BACK_G, "    g_loss.backward()\n"))
wrong(
    "g_never_scaled",
    "step_bypasses_scaler",
    "generator",
    (BACK_G, "    g_loss.backward()\n"),
    (STEP_G, "    opt_g.step()\n"),
)
wrong(
    "d_never_scaled",
    "step_bypasses_scaler",
    "discriminator",
    (BACK_D, "    d_loss.backward()\n"),
    (STEP_D, "    opt_d.step()\n"),
)
wrong(
    "g_steps_past_the_scaler",
    "step_bypasses_scaler",
    "generator",
    (STEP_G, "    scaler.unscale_(opt_g)\n    opt_g.step()\n"),
)
wrong(
    "g_checked_by_hand_but_not_scaled",
    "loss_not_scaled",
    "no scaler has seen it",
    (BACK_G, "    g_loss.backward()\n"),
    (STEP_G, "    if all(p.grad.isfinite().all() for p in generator.parameters()):\n        opt_g.step()\n"),
)
wrong("d_not_stepped", "no_step", "no step followed", (STEP_D, ""))
wrong("g_not_stepped", "no_step", "no step followed", (STEP_G, ""))
wrong("d_never_zeroed", "no_zero_grad", "an earlier step", (ZERO_D, ""))
wrong("g_never_zeroed", "no_zero_grad", "an earlier step", (ZERO_G, ""))
wrong(
    "d_zeroed_after_its_step",
    "update_every_batch",
    "for which another optimizer has stepped",
    (ZERO_D, ""),
    (STEP_D, STEP_D + ZERO_D),
)
wrong("d_zeroed_before_step", "gradients_cleared", "none left", (STEP_D, ZERO_D + STEP_D))
wrong("fake_not_detached", "graph_used_twice", "the graph of the first", ("fake.detach()", "fake"))
wrong(
    "fake_not_detached_but_retained",
    "no_detach",
    "not detached",
    ("fake.detach()", "fake"),
    (BACK_D, BACK_D.replace("()\n", "(retain_graph=True)\n")),
    (ZERO_G, ""),
    (ZERO_D, ZERO_D + ZERO_G),
)
wrong(
    "generator_detached",
    "no_gradients",
    "PyTorch noticed in",
    ("judged = discriminator(fake)", "judged = discriminator(fake.detach())"),
)
wrong(
    "d_stepped_after_g_backward",
    "discriminator_polluted",
    "generator's loss",
    (STEP_D, ""),
    (BACK_G, BACK_G + STEP_D),
)
wrong(
    "labels_swapped_d",
    "other_labels",
    "labels 1 and 0 exchanged",
    ("ones_like(on_real)", "zeros_like(on_real)"),
    ("zeros_like(on_fake)", "ones_like(on_fake)"),
)
wrong(
    "labels_swapped_g",
    "other_labels",
    "labels 1 and 0 exchanged",
    ("ones_like(judged)", "zeros_like(judged)"),
)
wrong(
    "real_only",
    "wrong_update",
    "times as long",
    (
        "        d_loss = d_loss + F.binary_cross_entropy_with_logits(on_fake, torch.zeros_like(on_fake))\n",
        "",
    ),
)
wrong(
    "no_autocast_g", "no_autocast", "outside autocast", (JUDGED, JUDGED.replace(AUTOCAST, "    if True:\n"))
)
wrong("no_autocast_noise", "no_autocast", "generator", (FAKE, "    fake = generator(noise)\n" + AUTOCAST))
wrong(
    "always_bfloat16",
    "wrong_autocast_dtype",
    "bf16",
    (FAKE, FAKE.replace("dtype=dtype", "dtype=torch.bfloat16")),
)
wrong("backward_inside", "backward_in_autocast", "backward", (BACK_D, "    " + BACK_D))
wrong("losses_exchanged", "wrong_losses", "instead of", (RETURN, "    return g_loss.item(), d_loss.item()\n"))
wrong(
    "returns_tensors",
    "wrong_return_type",
    "two floats were expected",
    (RETURN, "    return d_loss, g_loss\n"),
)
wrong("returns_nothing", "wrong_return_type", "None", (RETURN, ""))
wrong(
    "returns_scaled",
    "wrong_losses",
    "instead of",
    (RETURN, "    return scaler.scale(d_loss).item(), g_loss.item()\n"),
)
wrong("update_first", "update_before_step", "checked for inf", (BACK_D, BACK_D + UPDATE))
wrong(
    "unscaled_then_direct",
    "step_bypasses_scaler",
    "all the same",
    (STEP_D, "    scaler.unscale_(opt_d)\n    opt_d.step()\n"),
)
wrong(
    "nan_to_num",
    "overflow_hidden",
    "overflowed",
    (
        STEP_D,
        "    for p in discriminator.parameters():\n        p.grad.nan_to_num_(1.0, 1.0, -1.0)\n" + STEP_D,
    ),
)
wrong("other_signature", "signature", "device_type", ("*, device_type, dtype", "device='cpu'"))
wrong("raises", "raised", "NameError", (STEP_D, "    scaler.step(optimizer_d)\n"))


@TABLE.mistake("raised", "unsafe to autocast")
def sigmoid_and_bce(generator, discriminator, opt_g, opt_d, scaler, real, noise, *, device_type, dtype):
    bce = nn.BCELoss()
    opt_d.zero_grad()
    with torch.autocast(device_type, dtype=dtype):
        on_real = discriminator(real).sigmoid()
        loss = bce(on_real, torch.ones_like(on_real))
    scaler.scale(loss).backward()
    return 0.0, 0.0


@TABLE.mistake("update_between_steps", "between a backward pass and the step on its gradients")
def update_between_steps(generator, discriminator, opt_g, opt_d, scaler, real, noise, *, device_type, dtype):
    def bce(logits, label):
        return F.binary_cross_entropy_with_logits(logits, torch.full_like(logits, label))

    with torch.autocast(device_type, dtype=dtype):
        fake = generator(noise)
        g_loss = bce(discriminator(fake), 1.0)
        d_loss = bce(discriminator(real), 1.0) + bce(discriminator(fake.detach()), 0.0)
    opt_g.zero_grad()
    scaler.scale(g_loss).backward()
    opt_d.zero_grad()
    scaler.scale(d_loss).backward()
    scaler.step(opt_d)
    scaler.update()
    scaler.step(opt_g)
    scaler.update()
    return d_loss.item(), g_loss.item()


@TABLE.mistake("backward_in_autocast", "inside the autocast context")
def one_autocast_for_both(generator, discriminator, opt_g, opt_d, scaler, real, noise, *, device_type, dtype):
    with torch.autocast(device_type, dtype=dtype):
        return TABLE.changed()(
            generator, discriminator, opt_g, opt_d, scaler, real, noise, device_type=device_type, dtype=dtype
        )


HALVED = ("        d_loss = d_loss + ", "        d_loss = 0.5 * d_loss + 0.5 * ")
SIGMOID = (
    ("discriminator(real), discriminator(fake.detach())",
     "discriminator(real).sigmoid(), discriminator(fake.detach()).sigmoid()"),
    ("judged = discriminator(fake)", "judged = discriminator(fake).sigmoid()"),
)  # fmt: skip


def without_nan(network: str, step: str) -> tuple[str, str]:
    return (
        step,
        f"    for p in {network}.parameters():\n        p.grad.nan_to_num_(0.0, 0.0, 0.0)\n" + step,
    )


wrong("discriminator_loss_halved", "wrong_update", "it is 0.4997 times that", HALVED)
wrong(
    "loss_doubled",
    "wrong_update",
    "it is 2 times that",
    ("scale(g_loss)", "scale(2 * g_loss)"),
)
wrong(
    "sums_over_the_batch",
    "wrong_update",
    "it is 10 times that",
    ("torch.ones_like(judged))", "torch.ones_like(judged), reduction='sum')"),
)
wrong("loss_outside_d", "loss_outside_autocast", "on fp16 outputs",
      ("        d_loss = F", "    d_loss = F"), ("        d_loss = d_loss", "    d_loss = d_loss"))  # fmt: skip
wrong("loss_outside_g", "loss_outside_autocast", "on fp16 outputs", ("        g_loss =", "    g_loss ="))
wrong("loss_cast", "loss_in_half", "was cast to fp16", ("scale(d_loss)", "scale(d_loss.half())"))
wrong("sigmoid_d", "wrong_update", "discriminator's update", SIGMOID[0])
wrong("sigmoid_g", "wrong_update", "generator's update", SIGMOID[1])
wrong(
    "smoothed_real_labels",
    "wrong_update",
    "times as long",
    ("torch.ones_like(on_real)", "torch.full_like(on_real, 0.9)"),
)
wrong(
    "smoothed_fake_labels",
    "wrong_update",
    "times as long",
    ("torch.zeros_like(on_fake)", "torch.full_like(on_fake, 0.1)"),
)
wrong("nan_to_num_in_the_generator", "overflow_hidden", "generator", without_nan("generator", STEP_G))
wrong("nan_to_num_to_zero", "overflow_hidden", "discriminator", without_nan("discriminator", STEP_D))
wrong("d_stepped_twice", "double_step", "was called twice", (STEP_D, STEP_D + STEP_D))
wrong("nothing_at_all", "wrong_update", "it is 0 times that", (FAKE, "    return 0.0, 0.0\n" + FAKE))


BY_HAND = (
    "    scaler.unscale_(opt_g)\n    for p in generator.parameters():\n        p.grad /= scaler.get_scale()\n"
)
CLIP = "    scaler.unscale_(opt_d)\n    nn.utils.clip_grad_norm_(discriminator.parameters(), 0.1)\n"
wrong("unscaled_twice", "unscaled_twice", "divided by the loss scale twice", (STEP_G, BY_HAND + STEP_G))
wrong(
    "clipped",
    "wrong_update",
    "times that",
    (STEP_D, CLIP.replace("nn.", "torch.nn.") + STEP_D),
)
wrong("weights_clamped", "wrong_update", "times as long", (STEP_D, STEP_D +
      "    for p in discriminator.parameters():\n        p.data.clamp_(-0.1, 0.1)\n"))  # fmt: skip
wrong(
    "saturating_loss",
    "wrong_update",
    "times as long",
    ("ones_like(judged)", "zeros_like(judged)"),
    ("scale(g_loss)", "scale(-g_loss)"),
)
wrong(
    "wasserstein",
    "wrong_update",
    "times as long",
    ("F.binary_cross_entropy_with_logits(on_real, torch.ones_like(on_real))", "-on_real.mean()"),
)
wrong(
    "own_noise", "wrong_update", "times as long", ("generator(noise)", "generator(torch.randn_like(noise))")
)
wrong(
    "terms_weighted",
    "wrong_update",
    "times as long",
    ("        d_loss = d_loss + ", "        d_loss = d_loss + 0.5 * "),
)
wrong(
    "left_in_evaluation_mode",
    "evaluation_mode",
    "discriminator",
    (ZERO_G, ZERO_G + "    discriminator.eval()\n"),
)
wrong(
    "left_frozen",
    "parameters_frozen",
    "discriminator",
    (ZERO_G, ZERO_G + "    discriminator.requires_grad_(False)\n"),
)
wrong(
    "steps_unless_nan",
    "scale_never_lowered",
    "overflowed at scale",
    (STEP_D, "    if torch.isfinite(d_loss):\n    " + STEP_D),
)


@TABLE.mistake("wrong_update", "times as long")
def discriminator_trained_twice(
    generator, discriminator, opt_g, opt_d, scaler, real, noise, *, device_type, dtype
):
    for _ in range(2):
        opt_d.zero_grad()
        with torch.autocast(device_type, dtype=dtype):
            fake = generator(noise)
            on_real, on_fake = discriminator(real), discriminator(fake.detach())
            d_loss = F.binary_cross_entropy_with_logits(on_real, torch.ones_like(on_real))
            d_loss = d_loss + F.binary_cross_entropy_with_logits(on_fake, torch.zeros_like(on_fake))
        scaler.scale(d_loss).backward()
        scaler.step(opt_d)
        scaler.update()
    opt_g.zero_grad()
    with torch.autocast(device_type, dtype=dtype):
        judged = discriminator(fake)
        g_loss = F.binary_cross_entropy_with_logits(judged, torch.ones_like(judged))
    scaler.scale(g_loss).backward()
    scaler.step(opt_g)
    scaler.update()
    return d_loss.item(), g_loss.item()


right("the_solution")
right(
    "returns_early_at_nan",
    (BACK_D, f"    if not torch.isfinite(d_loss):\n        return d_loss.item(), float('nan')\n{BACK_D}"),
    notes=("batch_left_out",),
)
right("real_images_cast_by_hand", ("discriminator(real)", "discriminator(real.half())"))
right(
    "discriminator_set_up_for_the_generator",
    (ZERO_D, ZERO_D + "    discriminator.train()\n"),
    (ZERO_G, ZERO_G + "    discriminator.eval().requires_grad_(False)\n"),
    (UPDATE, UPDATE + "    discriminator.requires_grad_(True)\n"),
)
right("losses_outside_on_floats", ("        g_loss =", "    judged = judged.float()\n    g_loss ="))
right("sequential_updates", (STEP_D, STEP_D + UPDATE))
right(
    "two_backwards",
    (
        BACK_D,
        "    scaler.scale(d_loss * 0.25).backward(retain_graph=True)\n    scaler.scale(d_loss * 0.75).backward()\n",
    ),
)
right("zero_at_the_end", (ZERO_D, ""), (ZERO_G, ""), (UPDATE, UPDATE + ZERO_D + ZERO_G))


@TABLE.correct()
def both_backwards_before_both_steps(
    generator, discriminator, opt_g, opt_d, scaler, real, noise, *, device_type, dtype
):
    def bce(logits, label):
        return F.binary_cross_entropy_with_logits(logits, torch.full_like(logits, label))

    for p in discriminator.parameters():
        p.requires_grad_(False)
    opt_g.zero_grad(), opt_d.zero_grad()
    with torch.autocast(device_type, dtype=dtype):
        fake = generator(noise)
        g_loss = bce(discriminator(fake), 1.0)
    scaler.scale(g_loss).backward()
    for p in discriminator.parameters():
        p.requires_grad_(True)
    with torch.autocast(device_type, dtype=dtype):
        d_loss = bce(discriminator(real), 1.0) + bce(discriminator(fake.detach()), 0.0)
    scaler.scale(d_loss).backward()
    scaler.step(opt_g)
    scaler.step(opt_d)
    scaler.update()
    return d_loss.item(), g_loss.item()


@TABLE.correct()
def fake_made_twice(generator, discriminator, opt_g, opt_d, scaler, real, noise, *, device_type, dtype):
    criterion = nn.BCEWithLogitsLoss()
    with torch.autocast(device_type, dtype=dtype):
        with torch.no_grad():
            fake = generator(noise)
        logits = discriminator(torch.cat([real, fake]))
        labels = torch.cat([torch.ones(len(real), 1), torch.zeros(len(fake), 1)]).to(logits.device)
        d_loss = 2 * criterion(logits, labels)
    opt_d.zero_grad(set_to_none=True)
    scaler.scale(d_loss).backward()
    scaler.unscale_(opt_d)
    scaler.step(opt_d)
    with torch.autocast(device_type, dtype=dtype):
        g_loss = criterion(discriminator(generator(noise)), torch.ones(len(noise), 1, device=noise.device))
    opt_g.zero_grad(set_to_none=True)
    scaler.scale(g_loss).backward()
    scaler.step(opt_g)
    scaler.update()
    return float(d_loss), float(g_loss)


wrong(
    "a_scaler_for_each",
    "another_scaler",
    "passed in",
    (
        BACK_G,
        "    other = torch.amp.GradScaler(device_type, enabled=scaler.is_enabled())\n    other.scale(g_loss).backward()\n",
    ),
    (STEP_G, "    other.step(opt_g)\n    other.update()\n"),
)
wrong(
    "steps_exchanged",
    "no_gradients",
    "PyTorch noticed in",
    (STEP_D, STEP_G),
)


@TABLE.correct()
def generator_first(generator, discriminator, opt_g, opt_d, scaler, real, noise, *, device_type, dtype):
    def bce(logits, label):
        return F.binary_cross_entropy_with_logits(logits, torch.full_like(logits, label))

    opt_g.zero_grad()
    with torch.autocast(device_type, dtype=dtype):
        fake = generator(noise)
        g_loss = bce(discriminator(fake), 1.0)
    scaler.scale(g_loss).backward()
    scaler.step(opt_g)

    opt_d.zero_grad()
    with torch.autocast(device_type, dtype=dtype):
        d_loss = bce(discriminator(real), 1.0) + bce(discriminator(fake.detach()), 0.0)
    scaler.scale(d_loss).backward()
    scaler.step(opt_d)
    scaler.update()
    return d_loss.item(), g_loss.item()


@TABLE.correct()
def generator_first_and_its_new_images(
    generator, discriminator, opt_g, opt_d, scaler, real, noise, *, device_type, dtype
):
    def turn(optimizer, loss):
        optimizer.zero_grad(set_to_none=True)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        return float(loss.detach())

    bce = F.binary_cross_entropy_with_logits
    with torch.autocast(device_type=device_type, dtype=dtype):
        logits = discriminator(generator(noise))
        g_loss = bce(logits, torch.ones_like(logits))
    g_loss = turn(opt_g, g_loss)
    with torch.autocast(device_type=device_type, dtype=dtype):
        with torch.no_grad():
            fake = generator(noise)
        on_real, on_fake = discriminator(real), discriminator(fake)
        d_loss = bce(on_real, torch.ones_like(on_real)) + bce(on_fake, torch.zeros_like(on_fake))
    return turn(opt_d, d_loss), g_loss
