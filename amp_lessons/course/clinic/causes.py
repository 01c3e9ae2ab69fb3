"""Where the questions about symptoms end: causes, cures, and a cell that shows whether it is so.

The cells speak of names that a script has in some spelling: ``torch``, ``device``, ``model``, ``batch``
(inputs and targets), ``loss_fn``, ``optimizer``, ``dtype``, which is autocast's, and ``train()``, which
makes some steps; only where the way to an end speaks of a scaler, they speak of ``scaler``.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass


@dataclass(frozen=True)
class End:
    """One end: what is wrong, what to do about it, the lesson that explains it, and a cell to run."""

    cause: str
    cure: str
    lesson: str
    code: str

    def __str__(self) -> str:
        """Return cause and cure in lines of 100 characters, and the cell."""
        said = (textwrap.fill(each, 100) for each in (self.cause, f"Cure: {self.cure}"))
        return "\n".join((*said, "", self.code))


_WATCH = """from amp_lessons import audit

with audit.watch(model, every=1) as seen:
    train()
"""

# --- ends: what is inf or NaN
IN_FP32_TOO = End(
    "It is not mixed precision: data, labels or the model itself make the NaN.",
    "If weights or buffers are NaN, go back to the last finite ones. Look for a label out of range, a mean "
    "over nothing, log or sqrt of zero, too high a learning rate.",
    "03",
    "inputs, targets = batch\n"
    "print('inputs finite:', inputs.isfinite().all().item(), ' targets:', targets.unique().tolist())\n"
    "print('loss without autocast:', loss_fn(model(inputs), targets).item())",
)
ONE_BATCH = End(
    "That batch makes it, in any precision: every label is ignored, a row is all padding, or an input is not "
    "finite.",
    "Leave such inputs out. If a batch can have no label that counts, add up the losses and divide by the "
    "number of labels that do, at least one. With F.cross_entropy its gradients are zero; with a masked mean "
    "by hand, class weights that add up to zero or a chunked F.linear_cross_entropy they are NaN, and only a "
    "scaler skips such a step.",
    "07",
    "import torch.nn.functional as F\n\n"
    "logits = torch.zeros(4, 3, requires_grad=True)\n"
    "F.cross_entropy(logits, torch.full((4,), -100)).backward()  # every label is ignored: the loss is NaN\n"
    "print('its gradients are all zero:', (logits.grad == 0).all().item())\n"
    "print('inputs of your batch finite:', batch[0].isfinite().all().item())\n"
    "print('labels that count in it:', (batch[1] != -100).sum().item())",
)
FORWARD = End(
    "Something in the forward pass does not fit into fp16: a mask of -10⁹, an eps that is zero, a number "
    "above 65,504.",
    "Compute that line in fp32, or all of it in bf16. No knob of the scaler helps: inf is inf at any scale.",
    "03",
    _WATCH + "print(seen.first_nonfinite)",
)
ROUNDED = End(
    "The digits, as a rule: a line takes the log, the root or the reciprocal of a number that rounding has "
    "made zero or negative, such as 1 - p for a p near one. It is rarely the range, which is almost that of "
    "fp32. (It is in two cases: fp32's lowest number, as a mask, is -inf in bf16; and an LSTM on CUDA runs "
    "in fp16.)",
    "Compute that line in fp32, or write it so that nothing cancels: log_softmax, the loss that takes "
    "logits, var instead of a difference of means.",
    "06",
    _WATCH
    + "print(seen.first_nonfinite)\n"
    + "print('log(1 - 0.999) in bf16:', (1 - torch.tensor(0.999).bfloat16()).log().item())\n"
    + "print('lowest fp32 in bf16:', torch.tensor(torch.finfo(torch.float32).min).bfloat16().item())",
)
UNGUARDED = End(
    "One batch made a gradient inf or NaN, and it reached the weights: no scaler skipped the step. (Its loss "
    "may be a number: the slope of a root is infinite at zero. So may later ones, if the weights that broke "
    "are rarely used.)",
    "Go on from the last finite weights and look at that batch, in fp32 as well. "
    "clip_grad_norm_(..., error_if_nonfinite=True) stops before such a step. (Weights all finite? Then that "
    "step was not made, or inf was clipped to a number: go back, and take the other answer.)",
    "06",
    "print('weights that are finite:', all(p.isfinite().all().item() for p in model.parameters()))\n"
    + _WATCH
    + "print(seen.first_nonfinite)",
)
PAST_SCALER = End(
    "A gradient overflowed, as happens now and then, and its step was made instead of skipped.",
    "Let scaler.step(optimizer) make the step, and no other line: it skips where a gradient is inf or NaN.",
    "04",
    "print('weights that are finite:', all(p.isfinite().all().item() for p in model.parameters()))\n"
    + _WATCH
    + "print([(finding.code, str(finding.message)) for finding in seen.report.findings])",
)
FP16_ADAM = End(
    "The weights are fp16, and Adam computes in their dtype: its eps of 10⁻⁸ is zero there, and so are the "
    "squares of small gradients. It divides by zero, and a step on finite gradients makes inf or NaN. (Fused "
    "it stays finite, but its mean square still becomes zero, and steps several times too long.)",
    "Keep fp32 weights, with autocast and a scaler. (A scaler refuses the gradients of fp16 weights, unless "
    "a fused optimizer unscales them.) If weights must have 16 bits, let it be bf16.",
    "07",
    "print({p.dtype for p in model.parameters()})\n"
    "p = torch.nn.Parameter(torch.ones(1).half())\n"
    "p.grad = torch.full_like(p, 1e-5)\n"
    "torch.optim.Adam([p]).step()\n"
    "print('a weight of 1 after one step of Adam on a gradient of 0.00001:', p.item())",
)
TOO_LARGE = End(
    "A step made weights that fp16 cannot hold: nan_to_num turned an inf gradient into 3·10³⁸ before the "
    "scaler looked, or the learning rate is too high.",
    "Remove what replaces inf, and go on from the last weights below 65,504. If they grow again, "
    "in fp32 too, lower the learning rate.",
    "04",
    "print('largest weight:', max(p.abs().max().item() for p in model.parameters()))\n"
    + _WATCH
    + "print([(finding.code, str(finding.message)) for finding in seen.report.findings])",
)
HIDDEN = End(
    "The overflow is hidden from the scaler: clipping by value or nan_to_num turned inf into a number before "
    "the scaler looked, so the step was made.",
    "Call scaler.unscale_(optimizer) first, which looks for inf. Then clip. Remove what replaces inf.",
    "04",
    _WATCH + "for step in seen.steps:\n    print(step.index, step.scale, step.happened, step.loss)",
)
EVERYDAY = End(
    "Nothing is wrong. The scale was too high for one batch: the step was skipped, the scale halved.",
    "Leave it. Only do not let a schedule or an average advance in a step that was skipped.",
    "03",
    _WATCH
    + "skipped = [step.index for step in seen.steps if not step.happened]\n"
    + "print(f'{len(skipped)} of {len(seen.steps)} steps skipped: {skipped}')",
)

# --- ends: what the scale does
FOUND = End(
    "Nothing is wrong, as a rule: 65,536 was too high for your loss, and the scaler has found what fits. (Or "
    "the loss is itself fp16: backward begins with the scale, and 65,536 does not fit. Compute it inside "
    "autocast.)",
    "In a short run begin lower: init_scale, at the scale where it settled.",
    "03",
    "print('scale now:', scaler.get_scale())\n" + _WATCH + "print([step.scale for step in seen.steps])",
)
ALWAYS = End(
    "The loss is finite and a gradient is not, at any scale: a root, a log or a norm written by hand at "
    "zero, where its slope is infinite. A torch.where around it hides the value and not the slope: zero "
    "times inf.",
    "Make safe what goes in: an eps inside the root, or a torch.where before the function as well as "
    "after it. A lower init_scale cures nothing.",
    "03",
    "p = torch.zeros(1, requires_grad=True)\n"
    "torch.where(p > 0, p.log(), 0).sum().backward()\n"
    "print('the loss is 0, and its gradient', p.grad.item())\n" + _WATCH + "print(seen.first_nonfinite)",
)
ANEW = End(
    "The scaler is made anew, or loses its state: in each epoch, or with each restart from a checkpoint.",
    "Make one scaler for the whole training, and put scaler.state_dict() into the checkpoint.",
    "04",
    _WATCH + "print([finding.code for finding in seen.report.findings])\nprint(scaler.state_dict())",
)
BF16_SCALER = End(
    "A scaler in bf16 meets no overflow for a long time, so it doubles its scale every 2,000 steps. A "
    "power of two changes no digit. All that it does is to skip, in silence, steps whose gradients are "
    "inf or NaN.",
    "Switch it off: GradScaler(enabled=dtype == torch.float16). Look yourself whether the gradients' norm is "
    "finite.",
    "03",
    "print('autocast would use', torch.get_autocast_dtype(device.type), ' scaler on:', scaler.is_enabled())\n"
    + _WATCH
    + "print([finding.code for finding in seen.report.findings])",
)
GROWS = End(
    "Nothing is wrong so far: your gradients are small, and the scale goes up until one batch overflows.",
    "Leave it: above the ceiling one step is skipped, and it goes on from half.",
    "03",
    _WATCH
    + "for name, layer in seen.layers.items():\n"
    + "    print(name, layer.census and f'{layer.census.underflow_fraction:.1%} of the gradients vanish')",
)

# --- ends: nothing is learned
HALF_WEIGHTS = End(
    "The weights are 16-bit, and steps smaller than half their spacing are rounded away. Somebody cast them, "
    "or they loaded so: transformers 5 keeps the dtype of the file, and TrainingArguments(bf16=True) leaves "
    "it, also in shards that from_pretrained makes. (Not under DeepSpeed: the module prints bf16, and the "
    "optimizer holds fp32 masters, unless you asked for bf16 ones.)",
    "Load with dtype=torch.float32, and leave out half() and bfloat16(): autocast, or FSDP2's param_dtype, "
    "casts what an operation needs. Or use stochastic rounding.",
    "07",
    "print({p.dtype for p in model.parameters()}, getattr(model, 'config', 'made here'))\n"
    + _WATCH
    + "print({name: layer.lost_update_fraction for name, layer in seen.layers.items()})",
)
HALF_STATE = End(
    "The optimizer's state is 16-bit, as it is for 16-bit weights. (Not under DeepSpeed, unless you asked "
    "for it.) At β₂ = 0.999 Adam's mean square takes a thousandth of each square, which bf16 rounds away "
    "from a quarter to a half of the square on, from a fifth to a third if Adam is fused, as Trainer's is: "
    "it cannot rise, and steps stay too long.",
    "Keep fp32 weights, and with them fp32 state, under autocast; or β₂ = 0.95, at which bf16 follows.",
    "07",
    "print({p.dtype for p in model.parameters()})\n"
    "for dtype in (torch.float32, torch.bfloat16):\n"
    "    square = torch.full((1,), 0.01, dtype=dtype)\n"
    "    for _ in range(5000):\n"
    "        square.mul_(0.999).add_(0.001 * 0.13**2)\n"
    "    print(dtype, f'5,000 gradients of 0.13: the mean square is {square.item():.4f} of 0.0169')",
)
UNDERFLOW = End(
    "The gradients vanish in fp16: the loss is not multiplied by a scale, or backward was called on the loss "
    "and not on the product.",
    "Call scaler.scale(loss).backward(), scaler.step(optimizer), scaler.update(). Or take bf16.",
    "03",
    _WATCH
    + "for name, layer in seen.layers.items():\n"
    + "    print(name, f'{layer.history[-1].zero_fraction:.0%} of the gradients are zero')",
)
CLIPPED = End(
    "scaler.step divides gradients that are too small already: they were clipped while they were scaled, or "
    "what scaler.scale returned was not used. With SGD the steps become tiny. Adam takes g / (g + eps) of a "
    "step, where g is about 1.5·10⁻⁵ over the root of the number of weights: nearly all in a toy, an eighth "
    "at 10⁸ weights.",
    "Call scaler.unscale_(optimizer) before clipping, and backward on what scaler.scale returned.",
    "06",
    _WATCH
    + "print([finding.code for finding in seen.report.findings])\n"
    + "print([step.gradient_norm for step in seen.steps])",
)
NOT_STEPPED = End(
    "It is not the precision: bf16 has the exponents of fp32, so gradients do not vanish, and fp32 weights "
    "take small steps. (An LSTM on CUDA is another matter: autocast runs it in fp16; keep it in fp32.)",
    "Look whether the optimizer was given these parameters, whether they have gradients, and what the "
    "rate is.",
    "04",
    "train()\n"
    "given = {id(p) for group in optimizer.param_groups for p in group['params']}\n"
    "for name, p in model.named_parameters():\n"
    "    print(name, 'in the optimizer:', id(p) in given, ' has a gradient:', p.grad is not None)\n"
    "print([group['lr'] for group in optimizer.param_groups])",
)
STALE = End(
    "One autocast context lasts for many steps: its 16-bit copies of the weights are those of the first.",
    "Enter autocast in each iteration, around forward and loss only.",
    "02",
    _WATCH + "print([finding.code for finding in seen.report.findings])",
)
NOT_AMP = End(
    "Mixed precision is not the first suspect: the weights move, and in a direction that does not help.",
    "Run the same script in fp32, from the same weights. Is it as flat? Then look at rate, data and labels.",
    "04",
    "inputs, targets = batch\n"
    "for each in (None, torch.bfloat16, torch.float16):\n"
    "    with torch.autocast(device.type, each, enabled=each is not None):\n"
    "        print(each, loss_fn(model(inputs), targets).item())",
)

# --- ends: it rises, though nothing is NaN
TOO_FAST = End(
    "It is hardly the precision: the learning rate is too high, the warm-up too short, or Adam, after a "
    "quiet time, makes a step of up to three times the learning rate from one large gradient, and its "
    "momentum goes on: some 25 times in all.",
    "A lower rate or a longer warm-up; clip by the norm of the true gradients; β₂ = 0.95, which forgets "
    "sooner. Look at the batch before the jump.",
    "06",
    "p = torch.nn.Parameter(torch.zeros(1))\n"
    "adam = torch.optim.Adam([p], lr=1.0)\n"
    "for step in range(1101):  # one gradient after a thousand zeros, and a hundred zeros after it\n"
    "    p.grad = torch.full((1,), float(step == 1000))\n    adam.step()\n"
    "    if step in (1000, 1100):\n"
    "        print(f'after step {step + 1}: {-p.item():.1f} times the learning rate')",
)
TOO_COARSE = End(
    "Numbers in 16 bits are too coarse somewhere: logits of the attention or of the head that have grown, a "
    "difference of near equals, a long sum written by hand.",
    "Find the module whose gradient is furthest off, and compute that line in fp32; for logits a z-loss, or "
    "norms of queries and keys. (Run the cell without fully_shard: its policy casts on both sides.)",
    "06",
    "had = {}\n"
    "for each in (None, dtype):\n"
    "    model.zero_grad()\n"
    "    with torch.autocast(device.type, each, enabled=each is not None):\n"
    "        loss_fn(model(batch[0]), batch[1]).backward()\n"
    "    had[each] = {n: p.grad.float() for n, p in model.named_parameters() if p.grad is not None}\n"
    "off = [(((had[dtype][n] - g).norm() / g.norm()).item(), n) for n, g in had[None].items() if g.any()]\n"
    "print('furthest off:', *sorted(off, reverse=True)[:3])",
)

# --- ends: on several GPUs
PARTED = End(
    "The ranks train models of their own: a step was made on gradients that were not reduced, one rank "
    "skipped and another did not, or their scalers began with different scales.",
    "Reduce before anything looks at the gradients; load the scaler on every rank; where you reduce or "
    "shard by hand, or shard experts over fewer ranks, all-reduce the flag of inf as well.",
    "08",
    "import torch.distributed as dist\n"
    "rank = dist.get_rank() if dist.is_initialized() else 0\n"
    "mine = [p.to_local() if hasattr(p, 'to_local') else p for p in model.parameters()]\n"
    "before = [p.detach().clone() for p in mine]\n"
    "train()\n"
    "scale = scaler.get_scale() if 'scaler' in globals() else None\n"
    "print('rank', rank, 'has moved:', not all(map(torch.equal, mine, before)), 'scale:', scale)\n"
    "print('checksum of what it holds:', sum(p.detach().double().sum().item() for p in mine))",
)
WEIGHED = End(
    "A mean is no mean: ranks with unequal numbers of images or tokens count as equals, a sum was not "
    "divided, or it was divided twice.",
    "Multiply a rank's mean loss by its count, times the ranks, over the count of all ranks. Test with plain "
    "SGD: Adam and clipping hide a constant factor. Gradients that are as many times too long as there are "
    "ranks were not divided, as many times too short twice; a ratio near one is that of unequal counts.",
    "08",
    "import torch.distributed as dist\n\n"
    "counts = [(batch[1] != -100).sum().item()]\n"
    "if dist.is_initialized():\n"
    "    mine, counts = counts[0], [None] * dist.get_world_size()\n"
    "    dist.all_gather_object(counts, mine)\n"
    "print('targets that count, by rank:', counts)",
)
REDUCED = End(
    "If two ranks are right and many are not: gradients are added up over the ranks in 16 bits, or the "
    "larger batch needs another learning rate.",
    "Reduce in fp32: MixedPrecisionPolicy(reduce_dtype=torch.float32), no 16-bit communication hook "
    '(DeepSpeed: communication_data_type "fp32"; accelerate: its plugin\'s mixed_precision_policy). Then '
    "compare with one GPU at the same global batch, by accumulation.",
    "08",
    "from amp_lessons import parallel\n\n"
    "gradients = parallel.rank_gradients(512, noise=0.1)\n"
    "for each in (torch.float32, torch.bfloat16):\n"
    "    found = parallel.reduction(gradients, each, 'ring')\n"
    "    print(each, f'512 ranks in a ring: the mean is {found.relative_error:.1%} off')",
)

# --- ends: in FP8
FP8_UNSCALED = End(
    "Something is in 8 bits that must not be, or has no scale: weights or moments stored in FP8, a cast as "
    "it is, or the head and the first layers, which lose most.",
    "fp32 masters and optimizer; a scale for each tensor, row or block; leave the head in bf16, and see "
    "whether it is then as in bf16.",
    "09",
    "loss_fn(model(batch[0]), batch[1]).backward()\n"
    "for name, p in model.named_parameters():\n"
    "    grad = torch.zeros(1) if p.grad is None else p.grad.float()\n"
    "    for scale in (1, grad.abs().max().item() / 448 or 1):\n"
    "        zero = ((grad / scale).to(torch.float8_e4m3fn).float() == 0) & (grad != 0)\n"
    "        print(f'{name}: {zero.float().mean():.0%} become zero in E4M3, divided by {scale:.1e}')",
)
FP8_OUTLIERS = End(
    "Outliers have grown: one scale per tensor, or one from earlier steps, clips them or loses what is small "
    "beside them.",
    "Current scales instead of delayed ones; then a scale per row or block, with more layers in bf16. "
    "Evaluate the same weights in bf16: if that is good, the casts hurt now; if it is as bad, go on in bf16 "
    "from weights of before. Only if that gets as bad too, it is not FP8.",
    "09",
    "def look(module, inputs, output):\n"
    "    sizes = inputs[0].detach().flatten(0, -2).abs().amax(0)\n"
    "    print(f'{module}: the largest channel is {sizes.max() / sizes.median():.0f} times the median')\n"
    "layers = [m for m in model.modules() if type(m).__name__.endswith('Linear')]\n"
    "hooks = [m.register_forward_hook(look) for m in layers]\n"
    "model(batch[0])\n"
    "for hook in hooks:\n    hook.remove()",
)
FP8_SMALL = End(
    "The products are too small to pay for their casts, the casts are not fused, or a side is no multiple of "
    "16, which torchao's kernels refuse (MXFP8 asks for 32).",
    "Compile the model, or take Transformer Engine's fused modules; leave out small layers, and those "
    "whose sides do not fit. Lesson 09 says which recipe for which GPU.",
    "09",
    "inputs = batch[0]\n"
    "rows = (inputs[..., 0] if inputs.is_floating_point() else inputs).numel()  # tokens, of token ids\n"
    "print(rows, 'rows: no multiple of 16' if rows % 16 else 'rows')\n"
    "for name, layer in model.named_modules():\n"
    "    if type(layer).__name__.endswith('Linear'):\n"
    "        sides = tuple(layer.weight.shape)\n"
    "        odd = any(n % 16 for n in sides)\n"
    "        print(name, sides, 'no multiple of 16' if odd else 'small' * (min(sides) < 1024))",
)

# --- ends: slow, or full
CPU = End(
    "Most CPUs have no arithmetic for fp16, and some none for bf16: a product may take many times as long.",
    "Measure both dtypes; on a CPU use bf16 or fp32.",
    "05",
    "from amp_lessons import measure\n\n"
    "for each in (torch.float32, torch.bfloat16, torch.float16):\n"
    "    a = torch.randn(256, 256, dtype=each)\n"
    "    print(each, f'{measure.time_step(lambda: a @ a, device=torch.device(\"cpu\")).median_ms:.3f} ms')",
)
SMALL = End(
    "The GPU waits: for the data loader, or for Python, because the model or the batch is so small that "
    "casts cost more than products save.",
    "More workers for the loader; larger batches, torch.compile, fused=True; read loss and scale now and "
    "then, not in each step. Wait for the GPU before you read the clock.",
    "05",
    "from amp_lessons import measure\n\n"
    "timing = measure.time_step(train, device=device)\nprint(f'{timing.median_ms:.2f} ms')",
)
FP32_PART = End(
    "Most of the time goes where autocast changes nothing: operations on the fp32 list, what waits for "
    "memory, or products on a GPU too old for them.",
    "Look which operations ran in which dtype, and what fraction of the time products take.",
    "02",
    "from amp_lessons import autocast\n\nprint(autocast.record(model, batch[0], dtype=dtype))",
)
GRAPHS = End(
    "If what the cell prints grows, something keeps graphs or outputs alive: losses of a validation without "
    "no_grad (a backward pass would have freed their activations), outputs in a list, retain_graph=True. If "
    "it does not, it was the longest batch, or free memory lies in fragments.",
    "Validate under torch.no_grad(); keep loss.item(), and outputs on the CPU. Else try the longest batch "
    "first, and set PYTORCH_ALLOC_CONF=expandable_segments:True.",
    "05",
    "used = []\n"
    "look = lambda *_: used.append(torch.cuda.memory_allocated())\n"
    "hook = optimizer.register_step_post_hook(look)\n"
    "train()\n"
    "hook.remove()\n"
    "print('bytes allocated after each step:', used)",
)
NOT_HALVED = End(
    "Autocast shrinks activations, at best to half. Weights, gradients and the optimizer's state it leaves "
    "as they are, fp32 as a rule, and 16-bit copies of fp32 weights come on top.",
    "Smaller batches with accumulation, or checkpointing of activations; look what the step needs.",
    "05",
    "from amp_lessons import measure\n\n"
    "for each in (None, dtype):\n"
    "    print(each, measure.saved_activation_bytes(model, batch[0], dtype=each, device_type=device.type))",
)

# --- ends: the loss falls, and yet
AVERAGE = End(
    "The moving average is kept in 16 bits: in bf16 a thousandth of a weight is less than half its spacing, "
    "in fp16 a five-thousandth.",
    "Keep the average in fp32, and cast a copy of it where it is used.",
    "01",
    "mean, weight = torch.ones(()).bfloat16(), 2.0\n"
    "print('after one update:', (0.999 * mean + 0.001 * weight).item())",
)
RESTART = End(
    "The checkpoint holds less than the training had: 16-bit copies of fp32 weights, or nothing of the "
    "optimizer or of the schedule.",
    "Save the fp32 weights, optimizer.state_dict() and the schedule's, and load all of them.",
    "04",
    "train()\n"
    "print('weights to save:', {p.dtype for p in model.parameters()})\n"
    "print('parameters with a state to save:', len(optimizer.state_dict()['state']))",
)
LONG = End(
    "Positions or time steps are counted in 16 bits: above 256 in bf16, above 2,048 in fp16, neighbours "
    "share one number. Or their frequencies are a buffer, and model.bfloat16() or half() has rounded it.",
    "Count in integers or fp32, also inside autocast; compute rounded frequencies anew, as no cast brings "
    "them back; cast what is computed from them.",
    "01",
    "for each in (torch.bfloat16, torch.float16):\n"
    "    print(each, torch.arange(4096).to(each).unique().numel(), 'of 4096 positions are left')",
)
METRIC = End(
    "The number is wrong, not the model: it is added up in 16 bits, where large sums stop growing.",
    "Add up Python numbers, or float() first.",
    "01",
    "for each in (torch.bfloat16, torch.float16):\n"
    "    total = torch.zeros((), dtype=each)\n"
    "    for _ in range(4096):\n        total += 1\n"
    "    print(each, total.item())",
)
STATISTICS = End(
    "A buffer holds inf or NaN, such as the running mean of a BatchNorm: the forward pass of some batch "
    "wrote it there, in fp16 as a rule after an overflow. Skipping the step of that batch does not undo it.",
    "Put the buffers back after such a batch, and compute in fp32 what overflows in front of them. "
    "What is lost can be estimated anew: reset_running_stats(), then some batches in train(), no gradients.",
    "06",
    "broken = [name for name, buffer in model.named_buffers() if not buffer.isfinite().all()]\n"
    "print('buffers with inf or NaN (a mask may have it on purpose):', broken)\n"
    + _WATCH
    + "print([finding.code for finding in seen.report.findings])",
)
AUDIT = End(
    "It may be any of the silent mistakes: look at the whole training.",
    "Watch some steps, read the findings, and look which layers lose gradients or updates.",
    "06",
    _WATCH
    + "for finding in seen.report.findings:\n    print(finding.code, finding.message)\n"
    + "print({name: layer.lost_update_fraction for name, layer in seen.layers.items()})",
)
