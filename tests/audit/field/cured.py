"""Trainings with a mistake, or something to remark on, and what is changed in them to cure it."""

from typing import NamedTuple


class Cured(NamedTuple):
    """A script, the codes of what is said of it, and what is replaced by what in it, as they advise."""

    codes: set[str]
    script: str
    edits: tuple[tuple[str, str], ...]


CURED = {
    "what overflows in the forward pass kept in fp32": Cured(
        {"always_overflows"},
        """
for step in range(12):
    inputs, targets = batch()
    optimizer.zero_grad()
    with half():
        outputs = model(inputs) * 1e6
    loss = F.cross_entropy(outputs.float() / 1e6, targets)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
""",
        (("model(inputs) * 1e6", "model(inputs).float() * 1e6"),),
    ),
    "a divisor clamped": Cured(
        {"skipped_too_often", "scale_fell"},
        """
for step in range(36):
    inputs, _ = batch()
    with half():
        outputs = model(inputs[:1].expand(6, 8) if step % 2 else inputs).float()
    low, high = outputs.amin(0), outputs.amax(0)
    loss = ((outputs - low) / (high - low + 1e-8) - torch.rand(6, 4)).square().mean()
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
""",
        (("(high - low + 1e-8)", "(high - low).clamp(min=1e-2)"),),
    ),
    "weights kept in fp32": Cured(
        {"pure_bfloat16", "decay_rounded_away", "gradients_summed_in_half"},
        """
model.bfloat16()
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.01)
for step in range(8):
    inputs, targets = batch()
    with bf16():
        loss = F.cross_entropy(model(inputs), targets) / 2
    loss.backward()
    if step % 2:
        optimizer.step()
        optimizer.zero_grad()
""",
        (("model.bfloat16()\n", ""),),
    ),
    "the scaler of this device": Cured(
        {"deprecated_api", "device_not_here"},
        """
scaler = torch.cuda.amp.GradScaler()
for step in range(4):
    fp16_step(*batch())
""",
        (("torch.cuda.amp.GradScaler()", 'torch.amp.GradScaler("cpu")'),),
    ),
    "no scaler for bf16": Cured(
        {"scaler_with_bfloat16"},
        """
scaler = torch.amp.GradScaler("cpu")
half = bf16
for step in range(4):
    fp16_step(*batch())
""",
        (('GradScaler("cpu")', 'GradScaler("cpu", enabled=False)'),),
    ),
    "the scaler's first scale": Cured(
        {"gradients_all_zero", "scale_begins_low"},
        """
scaler = torch.amp.GradScaler("cpu", init_scale=1.0)
for step in range(4):
    inputs, targets = batch()
    optimizer.zero_grad()
    with half():
        loss = F.cross_entropy(model(inputs), targets) * 1e-8
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
""",
        ((", init_scale=1.0", ""),),
    ),
    "a metric summed in fp32": Cured(
        {"metric_rounded", "metric_stops"},
        """
kept = torch.bfloat16
total, hits = torch.zeros((), dtype=kept), torch.tensor(0.9, dtype=kept)
for step in range(300):
    total = total + hits
    if step < 4:
        fp16_step(*batch())
""",
        (("torch.bfloat16", "torch.float32"),),
    ),
    "an optimizer of what the loss reaches": Cured(
        {"no_gradients"},
        """
head = nn.Linear(4, 4)
other = torch.optim.SGD(head.parameters(), lr=0.05)
for step in range(4):
    inputs, targets = batch()
    optimizer.zero_grad()
    other.zero_grad()
    with half():
        loss = F.cross_entropy(model(inputs), targets)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.step(other)
    scaler.update()
""",
        (("model(inputs)", "head(model(inputs))"),),
    ),
    "a step that the scaler may skip": Cured(
        {"overflow_not_skipped"},
        """
for step in range(6):
    inputs, targets = batch(1e6 if step == 3 else 1.0)
    optimizer.zero_grad()
    with half():
        loss = F.cross_entropy(model(inputs), targets)
    loss.backward()
    optimizer.step()
""",
        (
            ("    loss.backward()\n", "    scaler.scale(loss).backward()\n"),
            ("    optimizer.step()\n", "    scaler.step(optimizer)\n    scaler.update()\n"),
        ),
    ),
    "a step outside autocast": Cured(
        {"step_in_autocast"},
        """
class Orthogonal(torch.optim.SGD):
    @torch.no_grad()
    def step(self):
        for p in model.parameters():
            if p.ndim == 2:
                p.grad = 1.5 * p.grad - 0.5 * p.grad @ p.grad.T @ p.grad
        super().step()


optimizer = Orthogonal(model.parameters(), lr=0.05)
for step in range(4):
    inputs, targets = batch()
    optimizer.zero_grad()
    with bf16():
        loss = F.cross_entropy(model(inputs), targets)
    loss.backward()
    with bf16():
        optimizer.step()
""",
        (("    with bf16():\n        optimizer.step()\n", "    optimizer.step()\n"),),
    ),
    "one scaler for all losses of an optimizer": Cured(
        {"two_scalers"},
        """
other = torch.amp.GradScaler("cpu", init_scale=64.0)
for step in range(4):
    inputs, targets = batch()
    optimizer.zero_grad()
    with half():
        outputs = model(inputs).float()
    scaler.scale(F.cross_entropy(outputs, targets)).backward(retain_graph=True)
    other.scale(outputs.square().mean()).backward()
    scaler.step(optimizer)
    scaler.update()
""",
        (("other.scale(", "scaler.scale("),),
    ),
}
