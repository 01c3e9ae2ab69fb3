"""Trainings that are right, of kinds that were accused, or could be, with what is to be said of each."""

RIGHT = {
    "compiled code that enters autocast": (
        """
@torch.compile(backend="aot_eager")
def loss_of(inputs, targets):
    with half():
        return F.cross_entropy(model(inputs), targets)

for step in range(4):
    optimizer.zero_grad()
    scaler.scale(loss_of(*batch())).backward()
    scaler.step(optimizer)
    scaler.update()
""",
        "scaler on",
    ),
    "a warm-up from next to nothing": (
        """
model.bfloat16()
optimizer = torch.optim.SGD(model.parameters(), 0.5)
schedule = torch.optim.lr_scheduler.OneCycleLR(
    optimizer, 0.5, total_steps=30, div_factor=1e16, cycle_momentum=False
)
for step in range(25):
    inputs, targets = batch()
    loss = F.cross_entropy(model(inputs.bfloat16()).float(), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
""",
        "no autocast, weights in bf16",
    ),
    "a warm-up by hand": (
        """
model.bfloat16()
optimizer = torch.optim.SGD(model.parameters(), 0.5)
for step in range(25):
    optimizer.param_groups[0]["lr"] = 0.5 * min(1.0, step / 10 + 1e-12)
    inputs, targets = batch()
    loss = F.cross_entropy(model(inputs.bfloat16()).float(), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
""",
        "no autocast, weights in bf16",
    ),
    "nanochat's casts by hand, with a scaler": (
        """
class Cast(nn.Linear):
    def forward(self, x):
        return F.linear(x, self.weight.to(x.dtype))

embedding, body, head = nn.Embedding(10, 8), Cast(8, 8, bias=False), Cast(8, 10, bias=False)
optimizer = torch.optim.AdamW([*embedding.parameters(), *body.parameters(), *head.parameters()], 1e-3)
for step in range(12):
    tokens = torch.randint(0, 10, (4, 6))
    hidden = embedding(tokens).half()
    hidden = hidden + body(F.rms_norm(hidden, (8,)))
    loss = F.cross_entropy(head(hidden).float().flatten(0, 1), tokens.flatten())
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
""",
        "fp16 by hand, no autocast, weights in fp32, scaler on",
    ),
    "one block in fp16 by hand, none of whose gradients vanish": (
        """
body, block, head = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 4)
optimizer = torch.optim.SGD([*body.parameters(), *block.parameters(), *head.parameters()], 0.1)
for step in range(12):
    inputs, targets = batch()
    hidden = body(inputs).type(torch.float16)
    hidden = torch.addmm(block.bias.half(), hidden, block.weight.half().t())
    loss = F.cross_entropy(head(hidden.to(torch.float32)), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
""",
        "fp16 by hand, no autocast, weights in fp32, no scaler",
    ),
    "an island by autocast in fp32": (
        """
for step in range(4):
    inputs, targets = batch()
    optimizer.zero_grad()
    with bf16():
        scores = model(inputs)
        with torch.autocast("cpu", enabled=False):
            loss = -scores.float().log_softmax(-1)[range(6), targets].mean()
    loss.backward()
    optimizer.step()
""",
        "bf16 autocast",
    ),
    "checkpoints in fp32": (
        """
from torch.utils.checkpoint import checkpoint
for step in range(4):
    inputs, targets = batch()
    loss = F.cross_entropy(model[2](checkpoint(model[:2], inputs, use_reentrant=False)), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
""",
        "What ran: no autocast, weights in fp32.",
    ),
    "checkpoints that are reentrant": (
        """
from torch.utils.checkpoint import checkpoint_sequential
for step in range(4):
    inputs, targets = batch()
    outputs = checkpoint_sequential(model, 2, inputs.requires_grad_(), use_reentrant=True)
    loss = F.cross_entropy(outputs, targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
""",
        "What ran: no autocast, weights in fp32.",
    ),
    "a search for the scale that is long": (
        """
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**30)
for step in range(40):
    fp16_step(*batch())
""",
        "fp16 autocast, weights in fp32, scaler on",
    ),
    "three batches that overflow, and a scale that grows": (
        """
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**14, growth_interval=2)
for step in range(40):
    fp16_step(*batch(1e7 if step in (3, 20, 30) else 1))
""",
        "fp16 autocast, weights in fp32, scaler on",
    ),
    "weights that were NaN, and put back": (
        """
for step in range(12):
    kept = copy.deepcopy(model.state_dict())
    inputs, targets = batch()
    loss = F.cross_entropy(model(inputs), targets) * (math.nan if step == 5 else 1)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if not all(weight.isfinite().all() for weight in model.parameters()):
        model.load_state_dict(kept)
""",
        "no autocast, weights in fp32",
    ),
    "weights that hold -inf from the beginning": (
        """
bias = nn.Parameter(torch.tensor([0.0, 0.0, 0.0, -math.inf]))
optimizer = torch.optim.SGD([*model.parameters(), bias], 0.1)
for step in range(4):
    inputs, _ = batch()
    loss = F.cross_entropy(model(inputs) + bias, torch.randint(0, 3, (6,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
""",
        "no autocast, weights in fp32",
    ),
    "an optimizer of PyTorch's that steps inside autocast": (
        """
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
for step in range(4):
    inputs, targets = batch()
    with bf16():
        loss = F.cross_entropy(model(inputs), targets)
    optimizer.zero_grad()
    loss.backward()
    with bf16():
        optimizer.step()
""",
        "bf16 autocast",
    ),
    "an optimizer that casts its own products": (
        """
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
    inputs, targets = batch()
    with bf16():
        loss = F.cross_entropy(model(inputs), targets)
    optimizer.zero_grad()
    loss.backward()
    with bf16():
        optimizer.step()
""",
        "bf16 autocast",
    ),
    "look-ahead weights, half of the way": (
        """
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**20)
slow = [weight.detach().clone() for weight in model.parameters()]
for step in range(20):
    fp16_step(*batch())
    if step % 5 == 4:
        with torch.no_grad():
            for mean, weight in zip(slow, model.parameters()):
                mean.lerp_(weight, 0.5)
                weight.copy_(mean)
""",
        "fp16 autocast, weights in fp32, scaler on",
    ),
    "momentum and decay by hand": (
        """
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**20)
momenta = [torch.zeros_like(weight) for weight in model.parameters()]
for step in range(20):
    inputs, targets = batch()
    optimizer.zero_grad()
    with half():
        loss = F.cross_entropy(model(inputs), targets)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    for momentum, weight in zip(momenta, model.parameters()):
        momentum.mul_(0.9).add_(weight.grad, alpha=0.1).add_(weight.detach(), alpha=1e-4)
    scaler.step(optimizer)
    scaler.update()
""",
        "fp16 autocast, weights in fp32, scaler on",
    ),
    "whole numbers that a product casts": (
        """
for step in range(4):
    counts = torch.randint(0, 5000, (6, 8)).float()
    with bf16():
        scores = counts @ torch.eye(8)
        loss = F.cross_entropy(model(scores / 5000), torch.randint(0, 4, (6,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
""",
        "bf16 autocast",
    ),
    "an exception that has nothing to do with an overflow": (
        """
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**20)
for step in range(3):
    inputs, targets = batch()
    optimizer.zero_grad()
    with half():
        loss = F.cross_entropy(model(inputs), targets)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    if step == 2:
        raise ValueError("the disk is full")
""",
        "fp16 autocast",
    ),
    "a penalty of scaled gradients, added to the scaled loss": (
        """
model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
for step in range(4):
    inputs, targets = batch()
    optimizer.zero_grad()
    with half():
        loss = F.cross_entropy(model(inputs), targets)
    scaled = scaler.scale(loss)
    gradients = torch.autograd.grad(scaled, list(model.parameters()), create_graph=True)
    penalty = torch.stack([each.norm() for each in gradients]).norm()
    (scaled + 0.01 * penalty).backward()
    scaler.step(optimizer)
    scaler.update()
""",
        "scaler on",
    ),
    "a penalty on the gradients of a softmax": (
        """
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
""",
        "bf16 autocast",
    ),
    "gradients added up by hand, an overflow among them": (
        """
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
for window in range(4):
    total = [torch.zeros_like(each) for each in model.parameters()]
    for micro in range(3):
        inputs, targets = batch(1e7 if (window, micro) == (1, 1) else 1.0)
        optimizer.zero_grad()
        with half():
            loss = F.cross_entropy(model(inputs), targets) / 3
        scaler.scale(loss).backward()
        for kept, each in zip(total, model.parameters()):
            kept.add_(each.grad)
    for kept, each in zip(total, model.parameters()):
        each.grad = kept
    scaler.step(optimizer)
    scaler.update()
""",
        "fp16 autocast, weights in fp32, scaler on",
    ),
    "slow weights that go half of the way, time after time": (
        """
slow = copy.deepcopy(model).requires_grad_(False)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24)
for step in range(20):
    fp16_step(*batch())
    with torch.no_grad():
        for kept, weight in zip(slow.parameters(), model.parameters()):
            kept.mul_(0.5).add_(weight, alpha=0.5)
            weight.copy_(kept)
""",
        "scaler on",
    ),
    "gradients of embeddings, handed on by a product": (
        """
scaler = torch.amp.GradScaler("cpu", init_scale=4096.0)
def embedded(inputs):
    with half():
        return F.normalize(model(inputs).float(), dim=-1)

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
""",
        "fp16 autocast, weights in fp32, scaler on",
    ),
    "a gradient handed on by hand": (
        """
body, head = nn.Linear(8, 16), nn.Linear(16, 4)
optimizer = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.05)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
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
""",
        "fp16 autocast, weights in fp32, scaler on",
    ),
    "masters in fp32, cast by hand, beside an embedding in bf16": (
        """
class Cast(nn.Linear):
    def forward(self, x):
        return F.linear(x, self.weight.to(x.dtype))

embedding, head = nn.Embedding(10, 8).bfloat16(), Cast(8, 10, bias=False)
optimizer = torch.optim.AdamW([*embedding.parameters(), *head.parameters()], 1e-2)
for step in range(12):
    tokens = torch.randint(0, 10, (4, 6))
    loss = F.cross_entropy(head(F.rms_norm(embedding(tokens), (8,))).float().flatten(0, 1), tokens.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
""",
        "What ran: bf16 by hand, no autocast, weights in",
    ),
    "optimizers that step within the backward pass, one a weight": (
        """
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
""",
        "What ran: bf16 autocast, weights in fp32.",
    ),
    "Muon, whose step casts its products itself": (
        """
matrices = torch.optim.Muon([p for p in model.parameters() if p.ndim == 2], lr=0.01)
others = torch.optim.AdamW([p for p in model.parameters() if p.ndim != 2], lr=0.01)
for step in range(6):
    inputs, targets = batch()
    matrices.zero_grad()
    others.zero_grad()
    with bf16():
        loss = F.cross_entropy(model(inputs), targets)
    loss.backward()
    with bf16():
        matrices.step()
    others.step()
""",
        "bf16 autocast, weights in fp32",
    ),
    "the best weights put back, and the scaler as it was": (
        """
kept = io.BytesIO()
for step in range(3):
    fp16_step(*batch())
torch.save({"optimizer": optimizer.state_dict(), "scaler": scaler.state_dict()}, kept)
for step in range(6):
    if step == 2:
        kept.seek(0)
        optimizer.load_state_dict(torch.load(kept)["optimizer"])
    fp16_step(*batch())
""",
        "scaler on",
    ),
    "masters in fp32, kept by hand": (
        """
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
""",
        "What ran: bf16 by hand, no autocast, weights in fp32.",
    ),
    "casts of few numbers that are no angles, and of angles that fit": (
        """
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
""",
        "bf16 autocast",
    ),
    "a model in 16 bits with an attention of its own, under autocast that a flag switches off": (
        """
live = torch.nn.Linear(8, 8).bfloat16()
optimizer = torch.optim.SGD(live.parameters(), 0.1)
for step in range(4):
    with torch.autocast("cpu", torch.bfloat16, enabled=False):
        inputs = torch.randn(4, 6, 8).bfloat16()
        scores = live(inputs) @ inputs.transpose(-1, -2)
        loss = (scores.softmax(-1) @ inputs).float().square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
""",
        "What ran: autocast asked for, and switched off, weights in bf16.",
    ),
    **{
        f"clipped value by value while scaled, {how}": (
            f"""
scaler = torch.amp.GradScaler("cpu", init_scale={scale})
for step in range(4):
    inputs, targets = batch()
    optimizer.zero_grad()
    with half():
        loss = F.cross_entropy(model(inputs), targets)
    scaler.scale(loss).backward()
    nn.utils.clip_grad_value_(model.parameters(), {limit}, foreach=(None, False)[step % 2])
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
""",
            "scaler on",
        )
        for how, scale, limit in (
            ("at a scale of one", "1.0", "0.1"),
            ("by a threshold times the scale", "65536.0", "0.1 * scaler.get_scale()"),
        )
    },
    "a penalty once the gradients are unscaled": (
        """
for step in range(4):
    inputs, targets = batch()
    optimizer.zero_grad()
    with half():
        loss = F.cross_entropy(model(inputs), targets)
    penalty = 1e-3 * sum(weight.square().sum() for weight in model.parameters())
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    penalty.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
""",
        "scaler on",
    ),
    "a penalty multiplied by the scale, with its weight": (
        """
for step in range(4):
    inputs, targets = batch()
    weight_of_penalty = 1e-3 * scaler.get_scale()
    optimizer.zero_grad()
    with half():
        loss = F.cross_entropy(model(inputs), targets)
    scaler.scale(loss).backward()
    (weight_of_penalty * sum(weight.square().sum() for weight in model.parameters())).backward()
    scaler.step(optimizer)
    scaler.update()
""",
        "scaler on",
    ),
    "a penalty multiplied by what the scaler makes of 1": (
        """
for step in range(4):
    inputs, targets = batch()
    optimizer.zero_grad()
    with half():
        loss = F.cross_entropy(model(inputs), targets)
    penalty = 1e-3 * sum(weight.square().sum() for weight in model.parameters())
    scaler.scale(loss).backward()
    (penalty * scaler.scale(torch.ones(()))).backward()
    scaler.step(optimizer)
    scaler.update()
""",
        "scaler on",
    ),
    "a penalty multiplied by a scale that stays": (
        """
scaler = torch.amp.GradScaler("cpu", init_scale=256.0, growth_interval=10**6)
for step in range(4):
    inputs, targets = batch()
    optimizer.zero_grad()
    with half():
        loss = F.cross_entropy(model(inputs), targets)
    penalty = 1e-3 * sum(weight.square().sum() for weight in model.parameters())
    (256.0 * penalty).backward()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
""",
        "scaler on",
    ),
    "gradients of a penalty that are multiplied by the scale themselves": (
        """
for step in range(4):
    inputs, targets = batch()
    optimizer.zero_grad()
    with half():
        loss = F.cross_entropy(model(inputs), targets)
    penalty = 1e-3 * sum(weight.square().sum() for weight in model.parameters())
    penalty.backward()
    for weight in model.parameters():
        weight.grad *= 1024.0
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
""",
        "scaler on",
    ),
    "an unscaled loss of another network, that reaches this one in passing": (
        """
other = nn.Linear(4, 1)
its_own = torch.optim.SGD(other.parameters(), lr=0.05)
for step in range(4):
    inputs, targets = batch()
    outputs = model(inputs)
    its_own.zero_grad()
    other(outputs).square().mean().backward()
    its_own.step()
    optimizer.zero_grad()
    with half():
        loss = F.cross_entropy(model(inputs), targets)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
""",
        "scaler on",
    ),
    "two scaled losses in a sum, one of them with a weight": (
        """
for step in range(4):
    inputs, targets = batch()
    optimizer.zero_grad()
    with half():
        loss = F.cross_entropy(model(inputs), targets)
    penalty = 1e-3 * sum(weight.square().sum() for weight in model.parameters())
    (scaler.scale(loss) + 0.5 * scaler.scale(penalty)).backward()
    scaler.step(optimizer)
    scaler.update()
""",
        "scaler on",
    ),
    "an unscaled loss of a second network, in one sum with a scaled one": (
        """
second = nn.Linear(8, 4)
other = torch.optim.SGD(second.parameters(), 0.1)
for step in range(4):
    inputs, targets = batch()
    optimizer.zero_grad()
    other.zero_grad()
    with half():
        loss = F.cross_entropy(model(inputs), targets)
    (F.cross_entropy(second(inputs), targets) + scaler.scale(loss)).backward()
    scaler.step(optimizer)
    other.step()
    scaler.update()
""",
        "scaler on",
    ),
    "an unscaled loss of a second network, backward beside a scaled one": (
        """
second = nn.Linear(8, 4)
other = torch.optim.SGD(second.parameters(), 0.1)
for step in range(4):
    inputs, targets = batch()
    optimizer.zero_grad()
    other.zero_grad()
    with half():
        loss = F.cross_entropy(model(inputs), targets)
    torch.autograd.backward([F.cross_entropy(second(inputs), targets), scaler.scale(loss)])
    scaler.step(optimizer)
    other.step()
    scaler.update()
""",
        "scaler on",
    ),
    "a penalty multiplied by the scale, in a sum": (
        """
for step in range(4):
    inputs, targets = batch()
    optimizer.zero_grad()
    with half():
        loss = F.cross_entropy(model(inputs), targets)
    penalty = 1e-3 * sum(weight.square().sum() for weight in model.parameters())
    torch.add(scaler.scale(loss), penalty, alpha=1024.0).backward()
    scaler.step(optimizer)
    scaler.update()
""",
        "scaler on",
    ),
}
