"""Trainings that public threads asked about, and others of their kinds, with the line to mend marked."""

# by the kind: what is wrong, whose code stands before a comma, and the script
WRONG = {
    "weights_broken, a root at 0 in bf16": """
model = nn.Linear(8, 4)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(9):
    inputs, _ = batch()
    with bf16():
        outputs = model(inputs)
    wanted = outputs.detach().float() if step == 4 else torch.randn(6, 4)
    loss = (outputs.float() - wanted).square().sum(-1).sqrt().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # mend
""",
    "weights_broken, a logarithm of 0 in fp32": """
for step in range(14):
    inputs, _ = batch()
    chances = model(inputs).softmax(-1) * (0.0 if step == 6 else 1.0)
    loss = -chances[:, 0].log().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # mend
""",
    "weights_broken, with a scaler, by the update itself": """
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(7):
    optimizer.param_groups[0]["lr"] = 3e38 if step == 3 else 0.05
    inputs, targets = batch()
    optimizer.zero_grad()
    with half():
        loss = F.cross_entropy(model(inputs), targets) * 20
    scaler.scale(loss).backward()
    scaler.step(optimizer)  # mend
    scaler.update()
""",
    # --- steps skipped again and again
    "stops_at_overflow, raised at a first step": """
scaler = torch.amp.GradScaler("cpu")
for step in range(20):
    inputs, targets = batch(1000)
    optimizer.zero_grad()
    with half():
        loss = F.cross_entropy(model(inputs), targets)
    scaler.scale(loss).backward()
    for parameter in model.parameters():
        if not torch.isfinite(parameter.grad).all():
            raise RuntimeError("Non-finite gradient detected")  # mend
    scaler.step(optimizer)
    scaler.update()
""",
    "stops_at_overflow, asserted after unscale_": """
for step in range(20):
    inputs, targets = batch(1e5 if step == 7 else 1)
    optimizer.zero_grad()
    with half():
        loss = F.cross_entropy(model(inputs / 10), targets)
    scaler.scale(loss * (3e5 if step == 7 else 1)).backward()
    scaler.unscale_(optimizer)
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    assert torch.isfinite(norm), norm  # mend
    scaler.step(optimizer)
    scaler.update()
""",
    "positions_rounded, by @": """
frequencies = 1 / 100 ** (torch.arange(4).float() / 4)
for step in range(3):
    with bf16():
        phase = torch.arange(600).float()[:, None] @ frequencies[None]  # mend
        loss = model(torch.cat((phase.sin(), phase.cos()), 1).float()).float().square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
""",
    "positions_rounded, by matmul": """
frequencies = 1 / 100 ** (torch.arange(4).float() / 4)
for step in range(3):
    with bf16():
        phase = torch.arange(700.0)[:, None].matmul(frequencies[None])  # mend
        loss = model(torch.cat((phase.sin(), phase.cos()), 1).float()).float().square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
""",
    "positions_rounded, by bmm in fp16": """
frequencies = 1 / 100 ** (torch.arange(4).float() / 4)
for step in range(3):
    with half():
        phase = torch.bmm(torch.arange(4096.0)[None, :, None], frequencies[None, None])[0]  # mend
        loss = model(torch.cat((phase.sin(), phase.cos()), 1).float()).float().square().mean()
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
""",
    # --- the optimizer's step inside autocast
    "step_in_autocast, a product": """
class Muon(torch.optim.Optimizer):
    def __init__(self, parameters):
        super().__init__(parameters, {})

    @torch.no_grad()
    def step(self):
        for parameter in self.param_groups[0]["params"]:
            update = parameter.grad / (parameter.grad.norm() + 1e-7)
            if parameter.ndim == 2:
                update = 1.5 * update - 0.5 * (update @ update.T @ update)
            parameter.add_(update.to(parameter.dtype), alpha=-0.01)

optimizer = Muon(model.parameters())
for step in range(3):
    inputs, targets = batch()
    with bf16():
        loss = F.cross_entropy(model(inputs), targets)
    optimizer.zero_grad()
    loss.backward()
    with bf16():
        optimizer.step()  # mend
""",
    "step_in_autocast, an outer product of einsum": """
class Shampoo(torch.optim.Optimizer):
    def __init__(self, parameters):
        super().__init__(parameters, dict(lr=0.01))

    def step(self, closure=None):
        with torch.no_grad():
            for parameter in self.param_groups[0]["params"]:
                if parameter.ndim == 2:
                    left = torch.einsum("ij,kj->ik", parameter.grad, parameter.grad).float()
                    parameter -= 0.01 * parameter.grad / (left.trace() + 1)

optimizer = Shampoo(model.parameters())
for step in range(3):
    inputs, targets = batch()
    with bf16():
        loss = F.cross_entropy(model(inputs), targets)
    optimizer.zero_grad()
    loss.backward()
    with bf16():
        optimizer.step()  # mend
""",
    # --- what is left out, and two scalers
    "no_update, in the first iteration": """
for step in range(20):
    inputs, targets = batch(300)
    with half():
        loss = F.cross_entropy(model(inputs), targets)
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)  # mend
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    if norm < 1:
        scaler.step(optimizer)
        scaler.update()
""",
    "no_update, in the first iteration, cleared by the model": """
for step in range(20):
    inputs, targets = batch(300)
    model.zero_grad()
    with half():
        loss = F.cross_entropy(model(inputs), targets)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)  # mend
    if nn.utils.clip_grad_norm_(model.parameters(), 1.0) > 1:
        continue
    scaler.step(optimizer)
    scaler.update()
""",
    "two_scalers": """
one, two = torch.amp.GradScaler("cpu"), torch.amp.GradScaler("cpu", init_scale=2.0**10)
for step in range(4):
    inputs, targets = batch()
    with half():
        outputs = model(inputs)
    optimizer.zero_grad()
    one.scale(F.cross_entropy(outputs.float(), targets)).backward(retain_graph=True)
    two.scale(outputs.float().square().mean()).backward()  # mend
    one.step(optimizer)
    one.update()
""",
    "two_scalers, both of which step": """
other = torch.optim.SGD(model[0].parameters(), lr=0.01)
one, two = torch.amp.GradScaler("cpu", init_scale=2.0**4), torch.amp.GradScaler("cpu", init_scale=2.0**10)
for step in range(4):
    inputs, targets = batch()
    optimizer.zero_grad()
    with half():
        first, second = F.cross_entropy(model(inputs), targets), model[0](inputs).float().square().mean()
    one.scale(first).backward()
    two.scale(second).backward()  # mend
    one.step(optimizer)
    one.update()
""",
    "optimizer_step_direct, of a second network whose loss is scaled in the same sum": """
second = nn.Linear(8, 4)
other = torch.optim.SGD(second.parameters(), 0.1)
for step in range(4):
    inputs, targets = batch()
    optimizer.zero_grad()
    other.zero_grad()
    with half():
        loss, of_second = F.cross_entropy(model(inputs), targets), F.cross_entropy(second(inputs), targets)
    (scaler.scale(loss) + 0.5 * scaler.scale(of_second)).backward()
    scaler.step(optimizer)
    other.step()  # mend
    scaler.update()
""",
    "part_not_scaled, a penalty after the loss": """
for step in range(4):
    inputs, targets = batch()
    optimizer.zero_grad()
    with half():
        loss = F.cross_entropy(model(inputs), targets)
    scaler.scale(loss).backward()
    penalty = 1e-3 * sum(weight.square().sum() for weight in model.parameters())
    penalty.backward()  # mend
    scaler.step(optimizer)
    scaler.update()
""",
    "part_not_scaled, a penalty on outputs before it, in windows": """
for step in range(8):
    inputs, targets = batch()
    with half():
        outputs = model(inputs).float()
        loss = F.cross_entropy(outputs, targets)
    (outputs.square().mean() / 100).backward(retain_graph=True)  # mend
    scaler.scale(loss).backward()
    if step % 2:
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
""",
    "part_not_scaled, in a sum": """
for step in range(4):
    inputs, targets = batch()
    optimizer.zero_grad()
    with half():
        loss = F.cross_entropy(model(inputs), targets)
    penalty = sum(weight.square().sum() for weight in model.parameters())
    (scaler.scale(loss) + 1e-3 * penalty).backward()  # mend
    scaler.step(optimizer)
    scaler.update()
""",
    # --- fp16 by hand, and a part of a loss outside autocast
    "loss_not_scaled, by hand in a function": """
first, last = nn.Linear(8, 16), nn.Linear(16, 4)
optimizer = torch.optim.Adam([*first.parameters(), *last.parameters()], 1e-4)
for step in range(11):
    inputs, targets = batch()
    hidden = F.linear(inputs.half(), first.weight.half(), first.bias.half()).relu()
    loss = F.cross_entropy(last(hidden.float()), targets) * 1e-7
    optimizer.zero_grad()
    loss.backward()  # mend
    optimizer.step()
""",
    "loss_not_scaled, by hand in a layer's class": """
class Half(nn.Linear):
    def forward(self, x):
        return F.linear(x, self.weight.to(x.dtype), self.bias.to(x.dtype))

model = nn.Sequential(Half(8, 16), nn.ReLU(), Half(16, 4))
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
for step in range(3):
    inputs, targets = batch()
    loss = F.cross_entropy(model(inputs.to(torch.float16)).float(), targets) * 1e-8
    optimizer.zero_grad()
    loss.backward()  # mend
    optimizer.step()
""",
    "loss_not_scaled, one block by hand": """
body, block, head = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 4)
optimizer = torch.optim.SGD([*body.parameters(), *block.parameters(), *head.parameters()], 0.1)
for step in range(12):
    inputs, targets = batch()
    hidden = body(inputs).type(torch.float16)
    hidden = torch.addmm(block.bias.half(), hidden, block.weight.half().t())
    loss = F.cross_entropy(head(hidden.to(torch.float32)), targets) / 2**25
    optimizer.zero_grad()
    loss.backward()  # mend
    optimizer.step()
""",
    "loss_outside_autocast, log_softmax before ctc_loss": """
for step in range(5):
    inputs = torch.randn(20, 6, 8)
    optimizer.zero_grad()
    with half():
        scores = model(inputs)
    chances = scores.log_softmax(-1)  # mend
    lengths = torch.full((6,), 20), torch.full((6,), 3)
    loss = F.ctc_loss(chances.float(), torch.randint(1, 4, (6, 3)), *lengths)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
""",
    "loss_outside_autocast, F.log_softmax in bf16": """
for step in range(5):
    inputs, targets = batch()
    optimizer.zero_grad()
    with bf16():
        scores = model(inputs)
    loss = -F.log_softmax(scores, dim=-1).float()[range(6), targets].mean()  # mend
    loss.backward()
    optimizer.step()
""",
    "loss_outside_autocast, logsumexp": """
for step in range(5):
    inputs, targets = batch()
    optimizer.zero_grad()
    with half():
        scores = model(inputs)
    total = torch.logsumexp(scores, -1)  # mend
    loss = (total.float() - scores.float()[range(6), targets]).mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
""",
    # --- a cause that another mistake has, too
    "graph_used_twice, a state that is carried over": """
state = torch.zeros(6, 16)
for step in range(3):
    inputs, targets = batch()
    with bf16():
        state = model[0](inputs) + state
        loss = F.cross_entropy(model[2](state.tanh()).float(), targets)
    optimizer.zero_grad()
    loss.backward()  # mend
    optimizer.step()
""",
    "backward_twice, of one loss": """
for step in range(3):
    inputs, targets = batch()
    with bf16():
        loss = F.cross_entropy(model(inputs).float(), targets)
    optimizer.zero_grad()
    loss.backward()
    loss.backward()  # mend
    optimizer.step()
""",
    "loss_in_half, terms that autocast leaves in bf16, added up behind it": """
for step in range(3):
    inputs, targets = batch()
    with bf16():
        outputs = model(inputs)
        near, small = outputs.mean(), (outputs * outputs).mean()  # mend
    optimizer.zero_grad()
    (near + small).backward()
    optimizer.step()
""",
    "scale_never_lowered, an overflow that the loop clears": """
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
for step in range(8):
    inputs, targets = batch(1e7 if step == 3 else 1.0)
    optimizer.zero_grad()  # mend
    with half():
        loss = F.cross_entropy(model(inputs), targets)
    scaler.scale(loss).backward()
    if not loss.isfinite():
        continue
    scaler.step(optimizer)
    scaler.update()
""",
    "average_on_skipped_step, with YOLO's ramp": """
average = copy.deepcopy(model).requires_grad_(False)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24)
for step in range(20):
    fp16_step(*batch())
    decay, new = 0.9999 * (1 - math.exp(-(step + 1) / 2000)), model.state_dict()
    for name, kept in average.state_dict().items():
        kept *= decay
        kept += (1 - decay) * new[name].detach()  # mend
""",
    "average_on_skipped_step, with a ramp, by lerp_": """
average = copy.deepcopy(model).requires_grad_(False)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24)
for step in range(20):
    fp16_step(*batch())
    for kept, weight in zip(average.parameters(), model.parameters()):
        kept.lerp_(weight.detach(), 1 - min(0.999, (1 + step) / (10 + step)))  # mend
""",
    "average_stuck, in bf16, by diffusers' sub_": """
average = copy.deepcopy(model).bfloat16().requires_grad_(False)
for step in range(14):
    inputs, targets = batch()
    optimizer.zero_grad()
    with bf16():
        loss = F.cross_entropy(model(inputs).float(), targets)
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for kept, weight in zip(average.parameters(), model.parameters()):
            kept.sub_((1 - 0.999) * (kept - weight.bfloat16()))  # mend
""",
    "scaled_loss_discarded, beside one that was scaled": """
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
for step in range(4):
    inputs, targets = batch()
    optimizer.zero_grad()
    with half():
        loss = F.cross_entropy(model(inputs), targets)
    scaler.scale(loss)
    loss.backward()  # mend
    optimizer.step()
""",
    "positions_rounded, few of them, by a product": """
inv_freq = 1 / 10000 ** (torch.arange(0, 8, 2).float() / 8)
for step in range(3):
    inputs, targets = batch()
    optimizer.zero_grad()
    with bf16():
        positions = 65536 + torch.arange(16).expand(2, -1)
        angles = inv_freq[None, :, None].expand(2, -1, 1) @ positions[:, None, :].float()  # mend
        loss = F.cross_entropy(model(inputs + angles.cos().mean()), targets)
    loss.backward()
    optimizer.step()
""",
    "positions_rounded, with the dtype of a buffer": """
inv_freq = (1 / 10000 ** (torch.arange(0, 8, 2).float() / 8)).bfloat16()
for step in range(3):
    inputs, targets = batch()
    positions = torch.arange(600).type_as(inv_freq)  # mend
    loss = F.cross_entropy(model(inputs + torch.outer(positions, inv_freq).cos().float().mean()), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
""",
    "positions_rounded, of a step in time between whole ones": """
frequencies = 10000 ** -torch.arange(4, dtype=torch.float64).div(4)
for step in range(3):
    inputs, targets = batch()
    time = torch.rand(6).mul(400).add(600).to(torch.bfloat16)  # mend
    angles = torch.outer(time.double(), frequencies)
    loss = F.cross_entropy(model(inputs + torch.cat((angles.cos(), angles.sin()), 1).float()), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
""",
    "eps_vanishes, below one": """
for step in range(3):
    inputs, targets = batch()
    with bf16():
        chances = model(inputs).sigmoid()
        loss = -torch.log1p(-chances.clamp(max=1 - 1e-6)).mean()  # mend
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
""",
    "scaler_recreated, for a training that goes on": """
kept = io.BytesIO()
for step in range(3):
    fp16_step(*batch())
torch.save({"optimizer": optimizer.state_dict(), "scaler": scaler.state_dict()}, kept)
kept.seek(0)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
optimizer.load_state_dict(torch.load(kept)["optimizer"])
scaler = torch.amp.GradScaler("cpu")  # mend
for step in range(3):
    fp16_step(*batch())
""",
}
