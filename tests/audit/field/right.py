"""Trainings that are right, of kinds that were accused, or could be."""

# behind a bar stands what is said to have run
RIGHT = """
### a warm-up from next to nothing | no autocast, weights in bf16
model.bfloat16()
optimizer = torch.optim.SGD(model.parameters(), 0.5)
schedules = torch.optim.lr_scheduler
cycle = schedules.OneCycleLR(optimizer, 0.5, total_steps=30, div_factor=1e16, cycle_momentum=False)
for step in range(25):
    inputs, targets = batch()
    step_on(F.cross_entropy(model(inputs.bfloat16()).float(), targets))
    cycle.step()
### a warm-up by hand | no autocast, weights in bf16
model.bfloat16()
optimizer = torch.optim.SGD(model.parameters(), 0.5)
for step in range(25):
    optimizer.param_groups[0]["lr"] = 0.5 * min(1.0, step / 10 + 1e-12)
    inputs, targets = batch()
    loss = F.cross_entropy(model(inputs.bfloat16()).float(), targets)
    step_on(loss)
### nanochat's casts by hand, with a scaler | fp16 by hand, no autocast, weights in fp32, scaler on
class Cast(nn.Linear):
    def forward(self, x):
        return F.linear(x, self.weight.to(x.dtype))

embedding, body, head = nn.Embedding(10, 8), Cast(8, 8, bias=False), Cast(8, 10, bias=False)
optimizer = torch.optim.AdamW([*embedding.parameters(), *body.parameters(), *head.parameters()], 1e-3)
for step in range(12):
    tokens = torch.randint(0, 10, (4, 6))
    hidden = embedding(tokens).half()
    hidden = hidden + body(F.rms_norm(hidden, (8,)))
    optimizer.zero_grad()
    apply(F.cross_entropy(head(hidden).float().flatten(0, 1), tokens.flatten()))
### fp16 by hand in one block, no gradient vanishes | fp16 by hand, no autocast, weights in fp32, no scaler
body, block, head = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 4)
optimizer = torch.optim.SGD([*body.parameters(), *block.parameters(), *head.parameters()], 0.1)
for step in range(12):
    inputs, targets = batch()
    hidden = body(inputs).type(torch.float16)
    hidden = torch.addmm(block.bias.half(), hidden, block.weight.half().t())
    loss = F.cross_entropy(head(hidden.to(torch.float32)), targets)
    step_on(loss)
### an island by autocast in fp32 | bf16 autocast
for step in range(4):
    inputs, targets = batch()
    with bf16():
        scores = model(inputs)
        with torch.autocast("cpu", enabled=False):
            loss = -scores.float().log_softmax(-1)[range(6), targets].mean()
    step_on(loss)
### three batches that overflow, and a scale that grows | fp16 autocast, weights in fp32, scaler on
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**14, growth_interval=2)
for step in range(40):
    fp16_step(1e7 if step in (3, 20, 30) else 1)
### weights that were NaN, and put back | no autocast, weights in fp32
for step in range(12):
    kept = copy.deepcopy(model.state_dict())
    inputs, targets = batch()
    loss = F.cross_entropy(model(inputs), targets) * (math.nan if step == 5 else 1)
    step_on(loss)
    if not all(weight.isfinite().all() for weight in model.parameters()):
        model.load_state_dict(kept)
### weights that hold -inf from the beginning | no autocast, weights in fp32
bias = nn.Parameter(torch.tensor([0.0, 0.0, 0.0, -math.inf]))
optimizer = torch.optim.SGD([*model.parameters(), bias], 0.1)
for step in range(4):
    loss = F.cross_entropy(model(batch()[0]) + bias, torch.randint(0, 3, (6,)))
    step_on(loss)
### an optimizer that casts its own products | bf16 autocast
class Muon(torch.optim.Optimizer):
    def __init__(self, parameters):
        super().__init__(parameters, {})

    @torch.no_grad()
    def step(self):
        for parameter in self.param_groups[0]["params"]:
            update = parameter.grad
            if parameter.ndim == 2:
                short = (update / (update.norm() + 1e-7)).bfloat16()
                update = (1.5 * short - 0.5 * (short @ short.T @ short)).float()
            parameter.add_(update, alpha=-0.01)

optimizer = Muon(model.parameters())
for step in range(4):
    loss_in(bf16).backward()
    with bf16():
        optimizer.step()
### Muon and AdamW of PyTorch, which step inside autocast | bf16 autocast, weights in fp32
matrices = torch.optim.Muon([p for p in model.parameters() if p.ndim == 2], lr=0.01)
others = torch.optim.AdamW([p for p in model.parameters() if p.ndim != 2], lr=0.01)
for step in range(6):
    loss_in(bf16).backward()
    with bf16():
        matrices.step()
        others.step()
### look-ahead weights, half of the way | fp16 autocast, weights in fp32, scaler on
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**20)
slow = [weight.detach().clone() for weight in model.parameters()]
for step in range(20):
    fp16_step()
    if step % 5 == 4:
        with torch.no_grad():
            for mean, weight in zip(slow, model.parameters()):
                mean.lerp_(weight, 0.5)
                weight.copy_(mean)
### momentum and decay by hand | fp16 autocast, weights in fp32, scaler on
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**20)
momenta = [torch.zeros_like(weight) for weight in model.parameters()]
for step in range(20):
    scaler.scale(loss_in(half)).backward()
    scaler.unscale_(optimizer)
    for momentum, weight in zip(momenta, model.parameters()):
        momentum.mul_(0.9).add_(weight.grad, alpha=0.1).add_(weight.detach(), alpha=1e-4)
    scaler.step(optimizer)
    scaler.update()
### whole numbers that a product casts | bf16 autocast
for step in range(4):
    counts = torch.randint(0, 5000, (6, 8)).float()
    with bf16():
        scores = counts @ torch.eye(8)
        loss = F.cross_entropy(model(scores / 5000), torch.randint(0, 4, (6,)))
    step_on(loss)
### an exception that has nothing to do with an overflow | fp16 autocast
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**20)
for step in range(3):
    fp16_step()
    if step == 2:
        raise ValueError("the disk is full")
### a penalty of scaled gradients, added to the scaled loss | scaler on
model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(4):
    scaled = scaler.scale(loss_in(half))
    gradients = torch.autograd.grad(scaled, list(model.parameters()), create_graph=True)
    penalty = torch.stack([each.norm() for each in gradients]).norm()
    (scaled + 0.01 * penalty).backward()
    scaler.step(optimizer)
    scaler.update()
### a penalty on gradients that backward has left | bf16 autocast, weights in fp32
model = nn.Linear(8, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(4):
    inputs, _ = batch()
    optimizer.zero_grad()
    with bf16():
        loss = model(inputs).softmax(-1).float().square().mean()
    loss.backward(create_graph=True)
    norm = torch.stack([each.grad.norm() for each in model.parameters()]).norm()
    step_on(loss + 0.01 * norm)
### a penalty on the gradients of a softmax | bf16 autocast
first, last = nn.Linear(8, 16), nn.Linear(16, 4)
optimizer = torch.optim.SGD([*first.parameters(), *last.parameters()], lr=0.05)
for step in range(4):
    inputs, targets = batch()
    inputs.requires_grad_()
    optimizer.zero_grad()
    with bf16():
        outputs = last(first(inputs).softmax(-1)).float()
        loss = F.cross_entropy(outputs, targets)
    (slope,) = torch.autograd.grad(outputs.sum(), inputs, create_graph=True)
    (loss + (slope.norm(dim=1) - 1).square().mean()).backward()
    optimizer.step()
### gradients added up by hand, an overflow among them | fp16 autocast, weights in fp32, scaler on
for window in range(4):
    total = [torch.zeros_like(each) for each in model.parameters()]
    for micro in range(3):
        scaler.scale(loss_in(half, 1e7 if (window, micro) == (1, 1) else 1.0) / 3).backward()
        for kept, each in zip(total, model.parameters()):
            kept.add_(each.grad)
    for kept, each in zip(total, model.parameters()):
        each.grad = kept
    scaler.step(optimizer)
    scaler.update()
### passes that warm up, in every epoch | fp16 autocast, weights in fp32, scaler on
for epoch in range(2):
    for step in range(3):
        scaler.scale(loss_in(half, 1e7 if step == 1 else 1.0)).backward()
        optimizer.zero_grad()
    for step in range(6):
        fp16_step(1e7 if step == 3 else 1.0)
### passes that warm up, all of which overflow | fp16 autocast, weights in fp32, scaler on
for step in range(3):
    scaler.scale(loss_in(half, 1e7)).backward()
    optimizer.zero_grad()
for step in range(6):
    fp16_step()
### passes that warm up by the same function | fp16 autocast, weights in fp32, scaler on
def go(factor=1.0):
    scaler.scale(loss_in(half, factor)).backward()

for step in range(3):
    go(1e7 if step == 1 else 1.0)
for step in range(6):
    go()
    scaler.step(optimizer)
    scaler.update()
### slow weights that go half of the way, time after time | scaler on
slow = copy.deepcopy(model).requires_grad_(False)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24)
for step in range(20):
    fp16_step()
    with torch.no_grad():
        for kept, weight in zip(slow.parameters(), model.parameters()):
            kept.mul_(0.5).add_(weight, alpha=0.5)
            weight.copy_(kept)
### gradients of embeddings, handed on by a product | fp16 autocast, weights in fp32, scaler on
def embedded(inputs):
    with half():
        return F.normalize(model(inputs).float(), dim=-1)

scaler = torch.amp.GradScaler("cpu", init_scale=4096.0)
for step in range(4):
    chunks = torch.randn(16, 8).split(4)
    with torch.no_grad():
        cache = torch.cat([embedded(each) for each in chunks])
    cache.requires_grad_()
    loss = F.cross_entropy(cache @ cache.T / 0.1, torch.arange(16))
    (gradient,) = torch.autograd.grad(scaler.scale(loss), cache)
    optimizer.zero_grad()
    for each, its in zip(chunks, gradient.split(4)):
        (embedded(each) * its).sum().backward()
    scaler.step(optimizer)
    scaler.update()
### a gradient handed on by hand | fp16 autocast, weights in fp32, scaler on
body, head = nn.Linear(8, 16), nn.Linear(16, 4)
optimizer = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.05)
for step in range(4):
    inputs, targets = batch()
    optimizer.zero_grad()
    with half():
        hidden = body(inputs)
    cut = hidden.detach().requires_grad_()
    for part, its in zip(cut.split(3), targets.split(3)):
        with half():
            outputs = head(part)
        scaler.scale(F.cross_entropy(outputs.float(), its) / 2).backward()
    hidden.backward(cut.grad)
    scaler.step(optimizer)
    scaler.update()
### masters in fp32, cast by hand, beside an embedding in bf16 | bf16 by hand, no autocast, weights in
class Cast(nn.Linear):
    def forward(self, x):
        return F.linear(x, self.weight.to(x.dtype))

embedding, head = nn.Embedding(10, 8).bfloat16(), Cast(8, 10, bias=False)
optimizer = torch.optim.AdamW([*embedding.parameters(), *head.parameters()], 1e-2)
for step in range(12):
    tokens = torch.randint(0, 10, (4, 6))
    loss = F.cross_entropy(head(F.rms_norm(embedding(tokens), (8,))).float().flatten(0, 1), tokens.flatten())
    step_on(loss)
### optimizers that step within the backward pass, one a weight | bf16 autocast, weights in fp32.
optimizers = {weight: torch.optim.Adam([weight], 1e-3) for weight in model.parameters()}

def step_at_once(weight):
    optimizers[weight].step()
    optimizers[weight].zero_grad()

for weight in model.parameters():
    weight.register_post_accumulate_grad_hook(step_at_once)
for step in range(6):
    inputs, targets = batch()
    with bf16():
        loss = F.cross_entropy(model(inputs), targets)
    loss.backward()
### the best weights put back, and the scaler as it was | scaler on
kept = io.BytesIO()
for step in range(3):
    fp16_step()
torch.save({"optimizer": optimizer.state_dict(), "scaler": scaler.state_dict()}, kept)
for step in range(6):
    if step == 2:
        kept.seek(0)
        optimizer.load_state_dict(torch.load(kept)["optimizer"])
    fp16_step()
### masters in fp32, kept by hand | bf16 by hand, no autocast, weights in fp32.
live = copy.deepcopy(model).bfloat16()
for step in range(12):
    inputs, targets = batch()
    live.zero_grad()
    F.cross_entropy(live(inputs.bfloat16()).float(), targets).backward()
    for master, weight in zip(model.parameters(), live.parameters()):
        master.grad = weight.grad.float()
    optimizer.step()
    with torch.no_grad():
        for master, weight in zip(model.parameters(), live.parameters()):
            weight.copy_(master)
### casts of few numbers that are no angles, and of angles that fit | bf16 autocast
for step in range(4):
    inputs, targets = batch()
    weights = torch.rand(6).mul(900).to(torch.bfloat16)
    time = torch.tensor([256, 512, 640]).to(torch.bfloat16)
    angles = torch.outer(time.float(), torch.rand(8)).cos().mean()
    optimizer.zero_grad()
    with bf16():
        loss = (F.cross_entropy(model(inputs + angles), targets, reduction="none") * weights.float()).mean()
    (loss / 900).backward()
    optimizer.step()
### a model in 16 bits, a flag off | autocast asked for, and switched off, weights in bf16.
live = torch.nn.Linear(8, 8).bfloat16()
optimizer = torch.optim.SGD(live.parameters(), 0.1)
for step in range(4):
    with torch.autocast("cpu", torch.bfloat16, enabled=False):
        inputs = torch.randn(4, 6, 8).bfloat16()
        scores = live(inputs) @ inputs.transpose(-1, -2)
        loss = (scores.softmax(-1) @ inputs).float().square().mean()
    step_on(loss)
### clipped value by value while scaled, at a scale of one | scaler on
scaler = torch.amp.GradScaler("cpu", init_scale=1.0)
for step in range(4):
    scaler.scale(loss_in(half)).backward()
    nn.utils.clip_grad_value_(model.parameters(), 0.1, foreach=(None, False)[step % 2])
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
### clipped value by value while scaled, by a threshold times the scale | scaler on
scaler = torch.amp.GradScaler("cpu", init_scale=65536.0)
for step in range(4):
    scaler.scale(loss_in(half)).backward()
    nn.utils.clip_grad_value_(model.parameters(), 0.1 * scaler.get_scale(), foreach=(None, False)[step % 2])
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
### a penalty once the gradients are unscaled | scaler on
for step in range(4):
    scaler.scale(loss_in(half)).backward()
    scaler.unscale_(optimizer)
    decay().backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
### a penalty multiplied by the scale, with its weight | scaler on
for step in range(4):
    weight_of_penalty = 1e-3 * scaler.get_scale()
    scaler.scale(loss_in(half)).backward()
    (weight_of_penalty * sum(weight.square().sum() for weight in model.parameters())).backward()
    scaler.step(optimizer)
    scaler.update()
### a penalty multiplied by what the scaler makes of 1 | scaler on
for step in range(4):
    scaler.scale(loss_in(half)).backward()
    (decay() * scaler.scale(torch.ones(()))).backward()
    scaler.step(optimizer)
    scaler.update()
### a penalty multiplied by a scale that stays | scaler on
scaler = torch.amp.GradScaler("cpu", init_scale=256.0, growth_interval=10**6)
for step in range(4):
    loss = loss_in(half)
    (256.0 * decay()).backward()
    apply(loss)
### gradients of a penalty that are multiplied by the scale themselves | scaler on
for step in range(4):
    loss = loss_in(half)
    decay().backward()
    for weight in model.parameters():
        weight.grad *= 1024.0
    apply(loss)
### an unscaled loss of another network, that reaches this one in passing | scaler on
other = nn.Linear(4, 1)
its_own = torch.optim.SGD(other.parameters(), lr=0.05)
for step in range(4):
    its_own.zero_grad()
    other(model(batch()[0])).square().mean().backward()
    its_own.step()
    fp16_step()
### two scaled losses in a sum, one of them with a weight | scaler on
for step in range(4):
    loss = loss_in(half)
    (scaler.scale(loss) + 0.5 * scaler.scale(decay())).backward()
    scaler.step(optimizer)
    scaler.update()
### an unscaled loss of a second network, in one sum with a scaled one | scaler on
second = nn.Linear(8, 4)
other = torch.optim.SGD(second.parameters(), 0.1)
for step in range(4):
    other.zero_grad()
    scaled, of_second = scaler.scale(loss_in(half)), F.cross_entropy(second(batch()[0]), batch()[1])
    (of_second + scaled).backward()
    scaler.step(optimizer)
    other.step()
    scaler.update()
### an unscaled loss of a second network, backward beside a scaled one | scaler on
second = nn.Linear(8, 4)
other = torch.optim.SGD(second.parameters(), 0.1)
for step in range(4):
    other.zero_grad()
    scaled, of_second = scaler.scale(loss_in(half)), F.cross_entropy(second(batch()[0]), batch()[1])
    torch.autograd.backward([of_second, scaled])
    scaler.step(optimizer)
    other.step()
    scaler.update()
### a penalty multiplied by the scale, in a sum | scaler on
for step in range(4):
    torch.add(scaler.scale(loss_in(half)), decay(), alpha=1024.0).backward()
    scaler.step(optimizer)
    scaler.update()
### gradients that are changed once the scaler has divided them | scaler on
scaler = torch.amp.GradScaler("cpu")
for step in range(8):
    scaler.scale(loss_in(half, 1e6 if step == 2 else 1.0)).backward()
    scaler.unscale_(optimizer)
    for weight in model.parameters():
        weight.grad.nan_to_num_(0.0, 0.0, 0.0) if step < 4 else weight.grad.div_(2.0)
    scaler.step(optimizer)
    scaler.update()
### the weights cast for evaluation only | fp16 autocast, weights in fp32, scaler on
for step in range(4):
    fp16_step()
with torch.no_grad():
    copy.deepcopy(model).half()(batch()[0].half())
### a scaler in a wrapper | scaler on
scale_and_step = NativeScaler()
for step in range(8):
    scale_and_step(loss_in(half, 1e6 if step == 2 else 1.0), optimizer)
"""
