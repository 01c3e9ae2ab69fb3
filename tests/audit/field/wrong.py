"""Trainings that public threads asked about, and others of their kinds, with the line to mend marked."""

# in each title the code of what is wrong comes first
WRONG = """
### weights_broken, with a scaler, by the update itself
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(7):
    optimizer.param_groups[0]["lr"] = 3e38 if step == 3 else 0.05
    scaler.scale(loss_in(half) * 20).backward()
    scaler.step(optimizer)  # mend
    scaler.update()
### positions_rounded, by @
frequencies = 1 / 100 ** (torch.arange(4).float() / 4)
for step in range(3):
    with bf16():
        phase = torch.arange(600).float()[:, None] @ frequencies[None]  # mend
        loss = model(torch.cat((phase.sin(), phase.cos()), 1).float()).float().square().mean()
    step_on(loss)
### positions_rounded, by bmm in fp16
frequencies = 1 / 100 ** (torch.arange(4).float() / 4)
for step in range(3):
    with half():
        phase = torch.bmm(torch.arange(4096.0)[None, :, None], frequencies[None, None])[0]  # mend
        loss = model(torch.cat((phase.sin(), phase.cos()), 1).float()).float().square().mean()
    optimizer.zero_grad()
    apply(loss)
### step_in_autocast, a product
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
    loss_in(bf16).backward()
    with bf16():
        optimizer.step()  # mend
### no_update, in the first iteration
for step in range(20):
    scaler.scale(loss_in(half, 300)).backward()
    scaler.unscale_(optimizer)  # mend
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    if norm < 1:
        scaler.step(optimizer)
        scaler.update()
### two_scalers
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
### optimizer_step_direct
for step in range(8):
    scaler.scale(loss_in(half)).backward()
    optimizer.step()  # mend
    scaler.update()
### optimizer_step_direct, of a second network whose loss is scaled in the same sum
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
### part_not_scaled, a penalty after the loss
for step in range(4):
    scaler.scale(loss_in(half)).backward()
    decay().backward()  # mend
    scaler.step(optimizer)
    scaler.update()
### part_not_scaled, a penalty on outputs before it, in windows
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
### part_not_scaled, in a sum
for step in range(4):
    loss = loss_in(half)
    (scaler.scale(loss) + decay()).backward()  # mend
    scaler.step(optimizer)
    scaler.update()
### loss_not_scaled, by hand in a function
first, last = nn.Linear(8, 16), nn.Linear(16, 4)
optimizer = torch.optim.Adam([*first.parameters(), *last.parameters()], 1e-4)
for step in range(11):
    inputs, targets = batch()
    hidden = F.linear(inputs.half(), first.weight.half(), first.bias.half()).relu()
    loss = F.cross_entropy(last(hidden.float()), targets) * 1e-7
    optimizer.zero_grad()
    loss.backward()  # mend
    optimizer.step()
### loss_not_scaled, one block by hand
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
### loss_outside_autocast, by a module
criterion = nn.CrossEntropyLoss()
for step in range(8):
    outputs, targets = outputs_in(half)
    loss = criterion(outputs, targets)  # mend
    apply(loss)
### loss_outside_autocast, in a wrapper
scale_and_step = NativeScaler()
for step in range(8):
    outputs, targets = outputs_in(half)
    loss = (outputs - F.one_hot(targets, 4)).square().mean()  # mend
    scale_and_step(loss, optimizer)
### loss_outside_autocast, log_softmax before ctc_loss
for step in range(5):
    inputs = torch.randn(20, 6, 8)
    optimizer.zero_grad()
    with half():
        scores = model(inputs)
    chances = scores.log_softmax(-1)  # mend
    lengths = torch.full((6,), 20), torch.full((6,), 3)
    apply(F.ctc_loss(chances.float(), torch.randint(1, 4, (6, 3)), *lengths))
### loss_outside_autocast, F.log_softmax in bf16
for step in range(5):
    scores, targets = outputs_in(bf16)
    loss = -F.log_softmax(scores, dim=-1).float()[range(6), targets].mean()  # mend
    loss.backward()
    optimizer.step()
### graph_used_twice, a state that is carried over
state = torch.zeros(6, 16)
for step in range(3):
    inputs, targets = batch()
    with bf16():
        state = model[0](inputs) + state
        loss = F.cross_entropy(model[2](state.tanh()).float(), targets)
    optimizer.zero_grad()
    loss.backward()  # mend
    optimizer.step()
### backward_twice, of one loss
for step in range(3):
    loss = loss_in(bf16)
    loss.backward()
    loss.backward()  # mend
    optimizer.step()
### loss_in_half, terms that autocast leaves in bf16, added up behind it
for step in range(3):
    inputs, targets = batch()
    with bf16():
        outputs = model(inputs)
        near, small = outputs.mean(), (outputs * outputs).mean()  # mend
    optimizer.zero_grad()
    (near + small).backward()
    optimizer.step()
### scale_never_lowered, an overflow that the loop clears
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
### scale_never_lowered, that of the first batch, after passes that warm up
for step in range(3):
    scaler.scale(loss_in(half, 1e7 if step == 1 else 1.0)).backward()
    optimizer.zero_grad()
for step in range(8):
    loss = loss_in(half, 1e7 if step == 0 else 1.0)
    scaler.scale(loss).backward()
    if not loss.isfinite():
        optimizer.zero_grad()  # mend
        continue
    scaler.step(optimizer)
    scaler.update()
### scale_never_lowered, after passes that warm up by the same function
def go(factor):
    inputs, targets = batch(factor)
    with half():
        loss = F.cross_entropy(model(inputs), targets)
    scaler.scale(loss).backward()
    return loss.isfinite()

for step in range(3):
    go(1e7 if step == 1 else 1.0)
    optimizer.zero_grad()
for step in range(8):
    if not go(1e7 if step == 3 else 1.0):
        optimizer.zero_grad()  # mend
        continue
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
### scale_never_lowered, of the first of two losses
for step in range(8):
    optimizer.zero_grad()  # mend
    inputs, targets = batch(1e7 if step == 3 else 1.0)
    with half():
        loss, second = F.cross_entropy(model(inputs), targets), model(batch()[0]).square().mean()
    scaler.scale(loss).backward()
    if not loss.isfinite():
        continue
    scaler.scale(second).backward()
    scaler.step(optimizer)
    scaler.update()
### average_on_skipped_step, with YOLO's ramp
average = copy.deepcopy(model).requires_grad_(False)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24)
for step in range(20):
    fp16_step()
    decay, new = 0.9999 * (1 - math.exp(-(step + 1) / 2000)), model.state_dict()
    for name, kept in average.state_dict().items():
        kept *= decay
        kept += (1 - decay) * new[name].detach()  # mend
### average_stuck, in bf16, by diffusers' sub_
average = copy.deepcopy(model).bfloat16().requires_grad_(False)
for step in range(14):
    loss_in(bf16).backward()
    optimizer.step()
    with torch.no_grad():
        for kept, weight in zip(average.parameters(), model.parameters()):
            kept.sub_((1 - 0.999) * (kept - weight.bfloat16()))  # mend
### scaled_loss_discarded, beside one that was scaled
for step in range(4):
    loss = loss_in(half)
    scaler.scale(loss)
    loss.backward()  # mend
    optimizer.step()
### positions_rounded, few of them, by a product
inv_freq = 1 / 10000 ** (torch.arange(0, 8, 2).float() / 8)
for step in range(3):
    inputs, targets = batch()
    with bf16():
        positions = 65536 + torch.arange(16).expand(2, -1)
        angles = inv_freq[None, :, None].expand(2, -1, 1) @ positions[:, None, :].float()  # mend
        loss = F.cross_entropy(model(inputs + angles.cos().mean()), targets)
    step_on(loss)
### positions_rounded, with the dtype of a buffer
inv_freq = (1 / 10000 ** (torch.arange(0, 8, 2).float() / 8)).bfloat16()
for step in range(3):
    inputs, targets = batch()
    positions = torch.arange(600).type_as(inv_freq)  # mend
    loss = F.cross_entropy(model(inputs + torch.outer(positions, inv_freq).cos().float().mean()), targets)
    step_on(loss)
### positions_rounded, of a step in time between whole ones
frequencies = 10000 ** -torch.arange(4, dtype=torch.float64).div(4)
for step in range(3):
    inputs, targets = batch()
    time = torch.rand(6).mul(400).add(600).to(torch.bfloat16)  # mend
    angles = torch.outer(time.double(), frequencies)
    loss = F.cross_entropy(model(inputs + torch.cat((angles.cos(), angles.sin()), 1).float()), targets)
    step_on(loss)
### eps_vanishes, below one
for step in range(3):
    inputs, targets = batch()
    with bf16():
        chances = model(inputs).sigmoid()
        loss = -torch.log1p(-chances.clamp(max=1 - 1e-6)).mean()  # mend
    step_on(loss)
### scaler_recreated, for a training that goes on
kept = io.BytesIO()
for step in range(3):
    fp16_step()
torch.save({"optimizer": optimizer.state_dict(), "scaler": scaler.state_dict()}, kept)
kept.seek(0)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
optimizer.load_state_dict(torch.load(kept)["optimizer"])
scaler = torch.amp.GradScaler("cpu")  # mend
for step in range(3):
    fp16_step()
### scaler_recreated, in a wrapper
for epoch in range(2):
    scale_and_step = NativeScaler()  # mend
    for step in range(8):
        scale_and_step(loss_in(half), optimizer)
### half_parameters, without a scaler
model = model.half()  # mend
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(8):
    inputs, targets = batch()
    optimizer.zero_grad()
    F.cross_entropy(model(inputs.half()).float(), targets).backward()
    optimizer.step()
### updates_rounded_away, at a rate that fp32 would bear
model = model.bfloat16()  # mend
optimizer = torch.optim.SGD(model.parameters(), 1e-4)
for step in range(3):
    inputs, targets = batch()
    step_on(F.cross_entropy(model(inputs.bfloat16()).float(), targets))
### overflow_hidden, anew
for step in range(8):
    scaler.scale(loss_in(half, 1e6 if step == 2 else 1.0)).backward()
    for parameter in model.parameters():
        parameter.grad = torch.nan_to_num(parameter.grad)  # mend
    scaler.step(optimizer)
    scaler.update()
### gradients_cleared, without a scaler
for step in range(8):
    loss_in(bf16).backward()
    optimizer.zero_grad()  # mend
    optimizer.step()
### no_zero_grad, in a wrapper
scale_and_step = NativeScaler()
for step in range(8):
    if step % 4 == 0:
        optimizer.zero_grad()
    inputs, targets = batch()
    with half():
        loss = F.cross_entropy(model(inputs), targets) / 4
    scale_and_step(loss, optimizer)  # mend
### unscaled_twice, before clipping
for step in range(2):
    scaler.scale(loss_in(half)).backward()
    for parameter in model.parameters():
        parameter.grad /= scaler.get_scale()  # mend
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
### unscaled_twice, by a factor, once the scaler has
for step in range(2):
    scaler.scale(loss_in(half)).backward()
    scaler.unscale_(optimizer)
    for parameter in model.parameters():
        parameter.grad.detach().mul_(1.0 / scaler.get_scale())  # mend
    scaler.step(optimizer)
    scaler.update()
### unscaled_twice, all at once
for step in range(2):
    scaler.scale(loss_in(half)).backward()
    torch._foreach_div_([parameter.grad for parameter in model.parameters()], scaler.get_scale())  # mend
    scaler.step(optimizer)
    scaler.update()
### always_overflows, a product
def weights_of(scores):
    scores = scores + hidden.to(scores.dtype) * -1e9  # mend
    return scores.softmax(-1)

for step in range(12):
    apply(attention_loss(weights_of))
### always_overflows, a product on its own
def weights_of(scores):
    bias = (hidden > 0).half().mul(-1e9)  # mend
    scores = scores + bias
    return scores.softmax(-1)

for step in range(12):
    apply(attention_loss(weights_of))
### always_overflows, a cast
def weights_of(scores):
    bias = hidden * -3e38
    scores = scores + bias.half()  # mend
    return scores.softmax(-1)

for step in range(12):
    apply(attention_loss(weights_of))
### always_overflows, a choice
def weights_of(scores):
    scores = torch.where(hidden > 0, -1e9, scores)  # mend
    return scores.softmax(-1)

for step in range(12):
    apply(attention_loss(weights_of))
### always_overflows, rows of which nothing is open
def weights_of(scores):
    scores = scores.masked_fill(hidden > 0, float("-inf"))
    return scores.softmax(-1)  # mend

for step in range(12):
    apply(attention_loss(weights_of))
### always_overflows, between layers
for step in range(12):
    inputs, targets = batch()
    optimizer.zero_grad()
    with half():
        hidden = model[0](inputs) * 1e4
        energy = hidden.square().sum()  # mend
        loss = F.cross_entropy(model[2](hidden).float(), targets) + energy.float()
    apply(loss)
### always_overflows, in a layer
nn.init.constant_(model[2].weight, 1.0)
for step in range(12):
    inputs, targets = batch()
    optimizer.zero_grad()
    with half():
        hidden = model[0](inputs).clamp(0.9, 1.0) * 6e4
        outputs = model[2](hidden)  # mend
    apply(F.cross_entropy(outputs.float(), targets))
### always_overflows, in the backward pass
for step in range(40):
    unused = torch.log(torch.zeros(3))
    loss = loss_in(half) * 1e38
    scaler.scale(loss * 1e-38 + (loss - loss.detach())).backward()
    scaler.step(optimizer)  # mend
    scaler.update()
"""
