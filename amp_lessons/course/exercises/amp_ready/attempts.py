"""Lists of islands by good and by bad reasons."""

from __future__ import annotations

import copy

import torch
from torch import nn

from amp_lessons.autocast import find_islands
from amp_lessons.course.exercises.attempt_table import Table
from amp_lessons.course.exercises.shelf import find

TABLE = Table("amp_ready")
wrong = TABLE.mutant
right = TABLE.variant
RETURN = "    return [name for name in wrong if not any(inside(other, name) for other in wrong)]"


def solved(model, batch):
    """Return what is right, for attempts that go wrong elsewhere."""
    return find(TABLE.exercise_id).solution(model, batch)


wrong("parents_too", "parent_named", "only", (RETURN, "    return list(wrong)"))
wrong("a_dict", "wrong_return_type", "list of names", (RETURN, "    return dict.fromkeys(wrong)"))
wrong("modules_instead", "wrong_return_type", "list of names", (RETURN, "    return list(model.modules())"))
wrong("returns_nothing", "wrong_return_type", "None", (RETURN, ""))
wrong(
    "a_prefix_that_is_not_there",
    "no_such_module",
    "model.",
    (RETURN, '    return ["model." + name for name in wrong]'),
)
wrong(
    "judged_row_by_row",
    "healthy_named",
    "one row is tiny",
    (
        "not (output - right).norm() <= 0.05 * right.norm()",
        "not ((output - right).norm(dim=-1) <= 0.05 * right.norm(dim=-1)).all()",
    ),
)
wrong(
    "only_looks_for_inf",
    "island_missed",
    "zeros",
    ("not (output - right).norm() <= 0.05 * right.norm()", "not output.isfinite().all()"),
)
wrong(
    "larger_is_false_for_nan",
    "island_missed",
    "returns NaN in fp16",
    ("not (output - right).norm() <= 0.05", "(output - right).norm() > 0.05"),
)
wrong(
    "nan_counts_as_nothing",
    "island_missed",
    "returns NaN in fp16",
    (
        "not (output - right).norm() <= 0.05 * right.norm()",
        "(output - right).norm() > 0.05 * right.norm() and output.isfinite().all()",
    ),
)
wrong(
    "leaves_alone",
    "island_missed",
    "multiplies what its layers",
    (
        "in model.named_modules():",
        "in [each for each in model.named_modules() if not list(each[1].children())]:",
    ),
)
wrong(
    "without_the_model_itself",
    "island_missed",
    "the model itself",
    ("in model.named_modules():", "in list(model.named_modules())[1:]:"),
)
wrong(
    "keeps_no_copies",
    "island_missed",
    "divides its input in place",
    ("inputs[0].clone()", "inputs[0]"),
    ("model(batch)", "model(batch.clone())"),
)
wrong("too_strict", "healthy_named", "within 5 % in norm", ("0.05 * right", "1e-7 * right"))
wrong(
    "hooks_stay",
    "model_left_changed",
    "_forward_pre_hooks is not as it was",
    ("            handle.remove()", "            pass"),
    ("name, module, x in calls:", "name, module, x in list(calls):"),
)
wrong(
    "batch_halved",
    "model_left_changed",
    "batch is not as it was",
    ("        model(batch)\n", "        model(batch.mul_(0.5))\n"),
)
wrong(
    "leaves_training_mode",
    "model_left_changed",
    ".training is not as it was",
    ("    calls, handles, wrong", "    model.train()\n    calls, handles, wrong"),
)
wrong(
    "casts_the_model",
    "model_left_changed",
    ".weight is not as it was",
    (RETURN, "    model.half().float()\n" + RETURN),
)
wrong(
    "replaces_forward",
    "model_left_changed",
    "model.forward is not as it was",
    (RETURN, "    model.forward = model.forward\n" + RETURN),
)
wrong(
    "leaves_gradients",
    "model_left_changed",
    ".grad is not as it was",
    (RETURN, "    model(batch).float().mean().backward()\n" + RETURN),
)
wrong(
    "keeps_the_first_call",
    "island_missed",
    "twice",
    (
        "        for name, module, x in calls:",
        "        for name, module, x in {c[0]: c for c in calls[::-1]}.values():",
    ),
)
wrong(
    "keeps_the_last_call",
    "island_missed",
    "twice",
    (
        "        for name, module, x in calls:",
        "        for name, module, x in {c[0]: c for c in calls}.values():",
    ),
)
wrong(
    "halves_the_modules",
    "healthy_named",
    "right under autocast",
    (
        "                output = module(x.half()).float()",
        "                output = module\n            output = copy.deepcopy(module).half()(x.half()).float()",
    ),
    ("import torch", "import copy\n\nimport torch"),
)
wrong(
    "freezes_the_model",
    "model_left_changed",
    ".requires_grad is not as it was",
    (RETURN, "    model.requires_grad_(False)\n" + RETURN),
)
wrong(
    "asks_for_the_batchs_gradient",
    "model_left_changed",
    "batch.requires_grad is not as it was",
    (RETURN, "    batch.requires_grad_()\n" + RETURN),
)
wrong(
    "changes_an_epsilon",
    "model_left_changed",
    ".eps is not as it was",
    (RETURN, "    [setattr(m, 'eps', 1e-3) for m in model.modules() if hasattr(m, 'eps')]\n" + RETURN),
)
wrong(
    "leaves_a_hook_on_everything",
    "model_left_changed",
    "the global hook of torch.nn.modules.module",
    (
        RETURN,
        "    torch.nn.modules.module.register_module_forward_hook(lambda *call: None)\n" + RETURN,
    ),
)
wrong(
    "leaves_a_hook_on_a_weight",
    "model_left_changed",
    "._backward_hooks is not as it was",
    (RETURN, "    next(model.parameters()).register_hook(lambda gradient: gradient)\n" + RETURN),
)
wrong(
    "a_prefix_is_no_part",
    "island_missed",
    "but 'mixer.1'",
    ('other.startswith(name and f"{name}.")', "other.startswith(name)"),
)
wrong(
    "direct_children_only",
    "parent_named",
    "only",
    (
        RETURN,
        RETURN.replace("inside(other, name)", "other.rpartition('.')[0] == name and other != name"),
    ),
)
wrong(
    "given_in_fp32",
    "island_missed",
    "returns zeros",
    ("module(x.half()).float()", "module(x.clone()).float()"),
)
wrong(
    "one_row",
    "island_missed",
    "neither the first nor the last",
    (
        "not (output - right).norm() <= 0.05 * right.norm()",
        "not (output[0] - right[0]).norm() <= 0.05 * right[0].norm()",
    ),
)
wrong(
    "the_largest_error_of_the_norm",
    "island_missed",
    "each of its numbers by a little",
    ("(output - right).norm() <=", "(output - right).abs().max() <="),
)
wrong(
    "the_largest_error_of_the_largest",
    "healthy_named",
    "one number of a row",
    (
        "not (output - right).norm() <= 0.05 * right.norm()",
        "not (output - right).abs().max() <= 0.05 * right.abs().max()",
    ),
)
for name, over_calls in (
    ("mean_error_of_all_calls", "sum(e / r for e, r in pairs) / len(pairs)"),
    ("one_error_over_all_calls", "sum(e**2 for e, _ in pairs) ** 0.5 / sum(r**2 for _, r in pairs) ** 0.5"),
):
    wrong(
        name,
        "island_missed",
        "one of its three calls",
        ("calls, handles, wrong = [], [], set()", "calls, handles, errors = [], [], {}"),
        (
            "            if not (output - right).norm() <= 0.05 * right.norm():\n                wrong.add(name)\n",
            "            errors.setdefault(name, []).append(((output - right).norm(), right.norm()))\n"
            f"        wrong = {{name for name, pairs in errors.items() if not {over_calls} <= 0.05}}\n",
        ),
    )


@TABLE.mistake("healthy_named", "works in place")
def kept_without_copies(model, batch):
    """Of a linear layer before nn.ReLU(inplace=True) what is kept is the ReLU's output."""
    return judged_by(model, batch, lambda tensor: tensor)


@TABLE.mistake("healthy_named", "its own input")
def only_outputs_copied(model, batch):
    return judged_by(model, batch, torch.clone)


def judged_by(model, batch, keep):
    """Judge modules by a forward hook's inputs, and its output as ``keep`` returns it."""
    calls, handles, wrong = [], [], set()
    for name, module in model.named_modules():
        handles.append(
            module.register_forward_hook(
                lambda m, args, out, n=name: calls.append((n, m, args[0], keep(out)))
            )
        )
    with torch.no_grad():
        model(batch)
        for handle in handles:
            handle.remove()
        for name, module, x, right in calls:
            with torch.autocast(batch.device.type, dtype=torch.float16):
                output = module(x.half()).float()
            if not (output - right).norm() <= 0.05 * right.norm():
                wrong.add(name)
    return [n for n in wrong if not any(o != n and o.startswith(n and n + ".") for o in wrong)]


@TABLE.mistake("healthy_named", "right under autocast")
def everything(model, batch):
    return [name for name, _ in model.named_modules()]


@TABLE.mistake("healthy_named", "right under autocast")
def every_leaf_and_parent_but_the_model(model, batch):
    return [name for name, _ in model.named_modules() if name]


@TABLE.mistake("island_missed", "you named nothing")
def nothing(model, batch):
    return []


@TABLE.mistake("healthy_named", "right under autocast")
def all_norms(model, batch):
    return [
        name for name, module in model.named_modules() if isinstance(module, (nn.LayerNorm, nn.BatchNorm1d))
    ]


@TABLE.mistake("no_such_module", "normalise")
def names_of_another_model(model, batch):
    return ["normalise", "head.normalise"]


@TABLE.mistake("healthy_named", "within 5 %")
def by_weights(model, batch):
    return [
        name
        for name, module in model.named_modules()
        if not list(module.children()) and any(p.abs().max() > 500 for p in module.parameters())
    ]


@TABLE.mistake("healthy_named", "on the inputs of the fp32 pass")
def whole_run_under_autocast(model, batch):
    seen, handles = [], []
    for name, module in model.named_modules():
        if not list(module.children()):
            handles.append(module.register_forward_hook(lambda m, i, o, n=name: seen.append((n, o))))
    model(batch)
    expected, seen[:] = list(seen), []
    with torch.autocast("cpu", dtype=torch.float16):
        model(batch)
    for handle in handles:
        handle.remove()
    return [
        n
        for (n, low), (_, ref) in zip(seen, expected, strict=True)
        if not (low - ref).norm() <= 0.05 * ref.norm()
    ]


@TABLE.mistake("raised", "RuntimeError")
def fp32_inputs_in_half_modules(model, batch):
    copy.deepcopy(model).half()(batch)
    return []


@TABLE.mistake("healthy_named", "right under autocast")
def by_largest_activation(model, batch):
    """The largest numbers need not be those that overflow."""
    seen, handles = {}, []
    for name, module in model.named_modules():
        if not list(module.children()):
            handles.append(
                module.register_forward_hook(lambda m, i, o, n=name: seen.update({n: o.abs().max()}))
            )
    model(batch)
    for handle in handles:
        handle.remove()
    return [max(seen, key=seen.get)]


right("the_solution")
right("as_a_tuple", (RETURN, RETURN.replace("[", "tuple(", 1).rstrip("]") + ")"))
right("as_a_set", (RETURN, RETURN.replace("[", "{", 1)[:-1] + "}"))
right(
    "by_isclose",
    (
        "not (output - right).norm() <= 0.05 * right.norm()",
        "not ((output - right).norm() / right.norm()).lt(0.05)",
    ),
)


@TABLE.correct()
def by_a_hook_on_everything(model, batch):
    """A hook that all modules share, taken off again."""
    names, calls = {module: name for name, module in model.named_modules()}, []
    handle = nn.modules.module.register_module_forward_pre_hook(
        lambda module, inputs: calls.append((module, copy.deepcopy(inputs)))
    )
    try:
        with torch.no_grad():
            model(batch)
    finally:
        handle.remove()
    wrong = set()
    for module, (x,) in calls:
        with torch.no_grad():
            right = module(x.clone())
        with torch.inference_mode(), torch.autocast(batch.device.type, torch.float16, cache_enabled=False):
            output = torch.func.functional_call(module, dict(module.named_parameters()), x.half())
        if not (output.double() - right).norm() <= 0.05 * right.norm():
            wrong.add(names[module])
    return sorted(n for n in wrong if not any(o.startswith(f"{n}." if n else "") for o in wrong - {n}))


@TABLE.correct()
def judged_in_the_hook(model, batch):
    wrong, busy, handles = set(), [], []

    def judge(name):
        def hook(module, inputs):
            if busy:
                return
            busy.append(name)
            right = module(inputs[0].clone())
            with torch.autocast(right.device.type, dtype=torch.float16):
                error = (module(*(x.half() for x in inputs)).float() - right).norm()
            busy.clear()
            if not error <= 0.05 * right.norm():
                wrong.add(name)

        return hook

    try:
        for name, module in model.named_modules():
            handles.append(module.register_forward_pre_hook(judge(name)))
        with torch.no_grad():
            model(batch)
    finally:
        for handle in handles:
            handle.remove()
    return [n for n in wrong if not any(other.startswith(n and n + ".") for other in wrong - {n})]


@TABLE.correct()
def by_the_course(model, batch):
    return list(find_islands(model, batch, device_type=batch.device.type, tolerance=0.05).names)


@TABLE.correct()
def forward_replaced_for_a_while(model, batch):
    calls, originals = [], {}

    def watched(name, module, forward):
        def run(x):
            given, output = x.clone(), forward(x)
            calls.append((name, forward, given, output.clone()))
            return output

        return run

    for name, module in model.named_modules():
        originals[module] = module.forward
        module.forward = watched(name, module, module.forward)
    with torch.no_grad():
        model(batch)
    for module in originals:
        del module.forward
    wrong = set()
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.float16):
        for name, forward, x, output in calls:
            if not (forward(x.half()).float() - output).norm() <= 0.05 * output.norm():
                wrong.add(name)
    return sorted(n for n in wrong if not any(o.startswith(n and n + ".") for o in wrong - {n}))


@TABLE.correct()
def on_a_copy_by_forward_hooks_module(model, batch):
    twin = copy.deepcopy(model)
    calls = []
    for name, module in twin.named_modules():
        for switch in ("inplace",) if hasattr(module, "inplace") else ():
            setattr(module, switch, False)
        module.register_forward_hook(lambda m, args, out, n=name: calls.append((n, m, args[0], out)))
    with torch.no_grad():
        twin(batch)
        kept, wrong = list(calls), set()
        for name, module, x, out in kept:
            with torch.autocast("cpu", dtype=torch.float16):
                low = module.forward(x.half())
            if not (low.float() - out).norm() <= 0.05 * out.norm():
                wrong.add(name)
    return [n for n in wrong if not any(w != n and w.startswith(n + "." if n else "") for w in wrong)]


@TABLE.correct()
def bisecting(model, batch):
    """Go down from the model: only into what is wrong is it worth looking."""
    calls, handles = {}, []
    for name, module in model.named_modules():
        handles.append(
            module.register_forward_hook(lambda m, args, out, n=name: calls[n][-1].append(out.clone()))
        )
        handles.append(
            module.register_forward_pre_hook(
                lambda m, args, n=name: calls.setdefault(n, []).append([m, args[0].clone()])
            )
        )
    with torch.no_grad():
        model(batch)
    for handle in handles:
        handle.remove()

    @torch.no_grad()
    def bad(name):
        with torch.autocast("cpu", dtype=torch.float16):
            return any(
                not (m(x.half()).float() - o).norm() <= 0.05 * o.norm() for m, x, o in calls.get(name, [])
            )

    def search(name, module):
        inner = [(f"{name}.{child}" if name else child, part) for child, part in module.named_children()]
        below = [found for path, part in inner for found in search(path, part)]
        return below or ([name] if bad(name) else [])

    return search("", model)
