"""Trainings with a mistake, or something to remark on, and the cure, as it is advised, behind the line."""

# the codes of what is said come first in a title; what follows "# cure:" replaces its line
CURED = """
### always_overflows: what overflows in the forward pass kept in fp32
for step in range(12):
    inputs, targets = batch()
    optimizer.zero_grad()
    with half():
        outputs = model(inputs) * 1e6  # cure: outputs = model(inputs).float() * 1e6
    apply(F.cross_entropy(outputs.float() / 1e6, targets))
### skipped_too_often, scale_fell: a divisor clamped
for step in range(36):
    inputs, _ = batch()
    with half():
        outputs = model(inputs[:1].expand(6, 8) if step % 2 else inputs).float()
    low, high = outputs.amin(0), outputs.amax(0)
    span = high - low + 1e-8  # cure: span = (high - low).clamp(min=1e-2)
    loss = ((outputs - low) / span - torch.rand(6, 4)).square().mean()
    optimizer.zero_grad()
    apply(loss)
### pure_bfloat16, decay_rounded_away, gradients_summed_in_half: weights kept in fp32
model.bfloat16()  # cure:
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.01)
for step in range(8):
    inputs, targets = batch()
    with bf16():
        loss = F.cross_entropy(model(inputs), targets) / 2
    loss.backward()
    if step % 2:
        optimizer.step()
        optimizer.zero_grad()
### deprecated_api, device_not_here: the scaler of this device
scaler = torch.cuda.amp.GradScaler()  # cure: scaler = torch.amp.GradScaler("cpu")
for step in range(4):
    fp16_step()
### scaler_with_bfloat16: no scaler for bf16
scaler = torch.amp.GradScaler("cpu")  # cure: scaler = torch.amp.GradScaler("cpu", enabled=False)
for step in range(4):
    apply(loss_in(bf16))
### gradients_all_zero, scale_begins_low: the scaler's first scale
scaler = torch.amp.GradScaler("cpu", init_scale=1.0)  # cure: scaler = torch.amp.GradScaler("cpu")
for step in range(4):
    apply(loss_in(half) * 1e-8)
### metric_rounded, metric_stops: a metric summed in fp32
kept = torch.bfloat16  # cure: kept = torch.float32
total, hits = torch.zeros((), dtype=kept), torch.tensor(0.9, dtype=kept)
for step in range(300):
    total = total + hits
    if step < 4:
        fp16_step()
### no_gradients: an optimizer of what the loss reaches
head = nn.Linear(4, 4)
other = torch.optim.SGD(head.parameters(), lr=0.05)
for step in range(4):
    inputs, targets = batch()
    optimizer.zero_grad()
    other.zero_grad()
    with half():
        outputs = model(inputs)  # cure: outputs = head(model(inputs))
        loss = F.cross_entropy(outputs, targets)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.step(other)
    scaler.update()
### overflow_not_skipped: a step that the scaler may skip
for step in range(6):
    loss = loss_in(half, 1e6 if step == 3 else 1.0)
    loss.backward()  # cure: scaler.scale(loss).backward()
    optimizer.step()  # cure: scaler.step(optimizer); scaler.update()
### step_in_autocast: a step outside autocast
class Orthogonal(torch.optim.SGD):
    @torch.no_grad()
    def step(self):
        for p in model.parameters():
            if p.ndim == 2:
                p.grad = 1.5 * p.grad - 0.5 * p.grad @ p.grad.T @ p.grad
        super().step()


optimizer = Orthogonal(model.parameters(), lr=0.05)
for step in range(4):
    loss_in(bf16).backward()
    with bf16():  # cure: if True:
        optimizer.step()
### two_scalers: one scaler for all losses of an optimizer
other = torch.amp.GradScaler("cpu", init_scale=64.0)  # cure: other = scaler
for step in range(4):
    inputs, targets = batch()
    optimizer.zero_grad()
    with half():
        outputs = model(inputs).float()
    scaler.scale(F.cross_entropy(outputs, targets)).backward(retain_graph=True)
    other.scale(outputs.square().mean()).backward()
    scaler.step(optimizer)
    scaler.update()
"""
