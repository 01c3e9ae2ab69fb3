"""Half-mended loops, and unusual right ones."""

from __future__ import annotations

import copy

import torch

from amp_lessons.course.exercises import shelf
from amp_lessons.course.exercises.attempt_table import Table

TABLE = Table("heal_frozen_weights")
wrong = TABLE.mutant
right = TABLE.variant

STUB = shelf.find("heal_frozen_weights").stub
TO_BF16 = "    model.to(torch.bfloat16)\n"
SGD = "    optimizer = torch.optim.SGD(model.parameters(), lr=lr)\n"
STEP = "            optimizer.step()\n"


def changed_stub(*changes):
    source = STUB
    for old, new in changes:
        assert source.count(old) == 1, old
        source = source.replace(old, new)
    return TABLE.defined(source)


def broken(name, code, word, *changes):
    TABLE.mistake(code, word)(_named(changed_stub(*changes), name))


def mended(name, *changes):
    TABLE.correct()(_named(changed_stub(*changes), name))


def _named(function, name):
    function.__name__ = name
    return function


broken("a_larger_learning_rate", "moved_too_far", "times as far", ("lr=lr", "lr=lr * 50"))
broken("half_a_larger_learning_rate", "updates_rounded_away", "rounded away", ("lr=lr", "lr=lr * 1.2"))
broken(
    "everything_in_fp32",
    "products_in_another_dtype",
    "ran in fp32",
    (TO_BF16, ""),
    ("inputs.to(torch.bfloat16)", "inputs"),
)
broken(
    "steps_in_fp32_kept_in_bf16",
    "updates_rounded_away",
    "1.weight",
    (
        STEP,
        "            with torch.no_grad():\n                for p in model.parameters():\n                  "
        "  p.copy_(p.float() - lr * p.grad.float())\n",
    ),
)
broken(
    "masters_made_anew_each_step",
    "updates_rounded_away",
    "1.weight",
    (
        STEP,
        "            masters = [p.detach().float() for p in model.parameters()]\n"
        "            for master, p in zip(masters, model.parameters()):\n"
        "                master -= lr * p.grad.float()\n"
        "                p.data.copy_(master)\n",
    ),
)
broken(
    "layer_norm_alone_in_fp32",
    "updates_rounded_away",
    "numbers are",
    (
        TO_BF16,
        TO_BF16 + "    model[1].float()\n    model[1].register_forward_hook(lambda m, i, o: o.bfloat16())\n"
        "    model[1].register_forward_pre_hook(lambda m, i: (i[0].float(),))\n",
    ),
)
broken(
    "gradients_in_fp32_only",
    "updates_rounded_away",
    "1.weight",
    ("loss_fn(outputs.float()", "loss_fn(outputs.double().float()"),
)
broken("momentum_to_gather_them", "moved_too_far", "times as far", ("lr=lr", "lr=lr, momentum=0.9"))
broken(
    "adam_instead",
    "moved_too_far",
    "times as far",
    ("SGD(model.parameters(), lr=lr)", "Adam(model.parameters(), lr=lr)"),
)

wrong(
    "autocast_in_fp16",
    "products_in_another_dtype",
    "ran in fp16",
    ("dtype=torch.bfloat16", "dtype=torch.float16"),
)
wrong("autocast_over_bf16_weights", "updates_rounded_away", "1.weight", (SGD, TO_BF16 + SGD))
wrong(
    "a_copy_is_trained",
    "trained_elsewhere",
    "whatever was trained is lost",
    (SGD, "    import copy\n\n    model = copy.deepcopy(model)\n" + SGD),
)
wrong("losses_not_divided", "losses_wrong", "in fp32", ("total / len(loader)", "total"))
wrong("losses_as_tensors", "wrong_return_type", "list", ("total += loss.item()", "total += loss.detach()"))
wrong(
    "one_step_per_epoch",
    "batches_without_step",
    "only 3 sets",
    (STEP, ""),
    ("        history", STEP[4:] + "        history"),
)
wrong("epochs_halved", "batches_without_step", "only 40 sets", ("range(epochs)", "range(epochs // 2)"))


STEP_EVERY_SECOND = (
    ("            optimizer.zero_grad()\n", ""),
    (
        STEP,
        "            if i % 2:\n                optimizer.step()\n                optimizer.zero_grad()\n",
    ),
    ("            optimizer.zero_grad()\n", ""),
    ("for inputs, targets in loader", "for i, (inputs, targets) in enumerate(loader)"),
)
wrong("every_second_batch_with_their_sum", "batches_without_step", "only 60 sets", *STEP_EVERY_SECOND)
wrong(
    "their_mean_at_twice_the_rate",
    "batches_without_step",
    "only 60 sets",
    *STEP_EVERY_SECOND,
    ("lr=lr", "lr=2 * lr"),
    ("loss.backward()", "(loss / 2).backward()"),
)
wrong("a_little_weight_decay", "moved_too_far", "times as far", ("lr=lr", "lr=lr, weight_decay=0.01"))
wrong("much_weight_decay", "moved_too_far", "times as far", ("lr=lr", "lr=lr, weight_decay=0.1"))
wrong(
    "gradients_clipped",
    "moved_too_little",
    "of the way",
    (STEP, "            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)\n" + STEP),
)
wrong(
    "autocast_left_on",
    "leaves_state_behind",
    "autocast",
    ("    history = []\n", "    torch.set_autocast_enabled('cpu', True)\n    history = []\n"),
)


def with_masters(name, code, word, masters, *, anew_in_epochs=False):
    """Train a model in bf16 whose masters are made by ``masters``, and once more in each epoch."""

    def train(model, loader, loss_fn, epochs, lr):
        model.to(torch.bfloat16)
        kept = masters(model)
        history = []
        for _ in range(epochs):
            kept = masters(model) if anew_in_epochs else kept
            total = 0.0
            for inputs, targets in loader:
                loss = loss_fn(model(inputs.to(torch.bfloat16)).float(), targets)
                gradients = torch.autograd.grad(loss, list(model.parameters()))
                with torch.no_grad():
                    for master, gradient, p in zip(kept, gradients, model.parameters(), strict=True):
                        master -= lr * gradient.to(master.dtype)
                        p.copy_(master)
                total += loss.item()
            history.append(total / len(loader))
        return history

    TABLE.mistake(code, word)(_named(train, name))


def in_dtype(dtype):
    return lambda model: [p.detach().to(dtype).clone() for p in model.parameters()]


with_masters(
    "masters_made_anew_each_epoch",
    "kept_for_an_epoch",
    "1.weight came",
    in_dtype(torch.float32),
    anew_in_epochs=True,
)
with_masters("masters_in_fp16", "updates_rounded_away", "next 16-bit", in_dtype(torch.float16))


@TABLE.mistake("moved_too_far", "times as far")
def masters_kept_from_call_to_call(model, loader, loss_fn, epochs, lr, masters={}):
    model.to(torch.bfloat16)
    history = []
    for _ in range(epochs):
        total = 0.0
        for inputs, targets in loader:
            loss = loss_fn(model(inputs.to(torch.bfloat16)).float(), targets)
            gradients = torch.autograd.grad(loss, list(model.parameters()))
            with torch.no_grad():
                for (name, p), gradient in zip(model.named_parameters(), gradients, strict=True):
                    master = masters.setdefault(name, p.detach().float().clone())
                    master -= lr * gradient.float()
                    p.copy_(master)
            total += loss.item()
        history.append(total / len(loader))
    return history


@TABLE.mistake("trained_elsewhere", "whatever was trained is lost")
def masters_never_copied_back(model, loader, loss_fn, epochs, lr):
    masters = [p.detach().clone() for p in model.parameters()]
    model.to(torch.bfloat16)
    history = []
    for _ in range(epochs):
        total = 0.0
        for inputs, targets in loader:
            loss = loss_fn(model(inputs.to(torch.bfloat16)).float(), targets)
            gradients = torch.autograd.grad(loss, list(model.parameters()))
            for master, gradient in zip(masters, gradients, strict=True):
                master -= lr * gradient.float()
            total += loss.item()
        history.append(total / len(loader))
    return history


wrong(
    "parameters_replaced_by_others",
    "weights_spoilt",
    "is missing",
    ("    return history", "    model[1] = torch.nn.Identity()\n    return history"),
)

right("the_solution")
right(
    "loss_outside_on_fp32_outputs",
    (
        "                outputs = model(inputs)\n                loss = loss_fn(outputs, targets)\n",
        "                outputs = model(inputs)\n            loss = loss_fn(outputs.float(), targets)\n",
    ),
)
right("bf16_weights_at_the_end", ("    return history", TO_BF16 + "    return history"))


@TABLE.correct()
def fp32_masters(model, loader, loss_fn, epochs, lr):
    masters = [p.detach().clone() for p in model.parameters()]
    optimizer = torch.optim.SGD(masters, lr=lr)
    model.to(torch.bfloat16)
    history = []
    for _ in range(epochs):
        total = 0.0
        for inputs, targets in loader:
            loss = loss_fn(model(inputs.bfloat16()).float(), targets)
            gradients = torch.autograd.grad(loss, list(model.parameters()))
            for master, gradient in zip(masters, gradients, strict=True):
                master.grad = gradient.float()
            optimizer.step()
            with torch.no_grad():
                torch._foreach_copy_(list(model.parameters()), masters)
            total += loss.item()
        history.append(total / len(loader))
    return history


@TABLE.correct()
def bf16_copy_of_an_fp32_model(model, loader, loss_fn, epochs, lr):
    working = copy.deepcopy(model).bfloat16()
    history = []
    for _ in range(epochs):
        losses = []
        for inputs, targets in loader:
            working.load_state_dict(model.state_dict())
            working.zero_grad()
            loss = loss_fn(working(inputs.bfloat16()).float(), targets)
            loss.backward()
            with torch.no_grad():
                for master, weight in zip(model.parameters(), working.parameters(), strict=True):
                    master -= lr * weight.grad
            losses.append(float(loss))
        history.append(sum(losses) / len(losses))
    return history


KAHAN = """            with torch.no_grad():
                for p in model.parameters():
                    lost = left.get(p, torch.zeros_like(p))
                    step = lost - lr * p.grad
                    new = p + step
                    left[p] = step - (new - p)
                    p.copy_(new)
"""
mended("kahan_summation_all_in_bf16", ("    history = []\n", "    history, left = [], {}\n"), (STEP, KAHAN))
STOCHASTIC = """            for p in model.parameters():
                exact = p.detach().float() - lr * p.grad.float()
                noise = torch.randint_like(exact, 1 << 16, dtype=torch.int32)
                p.data.copy_(((exact.view(torch.int32) + noise) & -65536).view(torch.float32))
"""
mended("stochastic_rounding", (STEP, STOCHASTIC))


@TABLE.correct()
def parametrized_by_functional_call(model, loader, loss_fn, epochs, lr):
    weights = {name: p.detach().clone() for name, p in model.named_parameters()}
    history = []
    for _ in range(epochs):
        losses = []
        for inputs, targets in loader:
            working = {name: w.bfloat16().requires_grad_() for name, w in weights.items()}
            outputs = torch.func.functional_call(model, working, (inputs.bfloat16(),))
            loss = loss_fn(outputs.float(), targets)
            for name, gradient in zip(
                weights, torch.autograd.grad(loss, list(working.values())), strict=True
            ):
                weights[name] -= lr * gradient.float()
            losses.append(loss.item())
        history.append(sum(losses) / len(losses))
    model.load_state_dict(weights)
    return history


broken(
    "rounded_before_each_batch",
    "moved_too_little",
    "came 1%",
    (TO_BF16, ""),
    ("optimizer.zero_grad()\n", "optimizer.zero_grad()\n            model.to(torch.bfloat16)\n"),
    ("loss.backward()\n", "loss.backward()\n            model.float()\n"),
)
broken(
    "kahan_with_the_wrong_sign",
    "moved_too_little",
    "came -",
    ("    history = []\n", "    history, left = [], {}\n"),
    (STEP, KAHAN.replace("step - (new - p)", "(new - p) - step")),
)
