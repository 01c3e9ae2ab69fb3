"""Wrong and right islands."""

from __future__ import annotations

import contextlib

import torch

from amp_lessons.course.exercises.attempt_table import Table

TABLE = Table("fp32_island")
wrong = TABLE.mutant
right = TABLE.variant

ISLAND = "    with torch.autocast(x.device.type, enabled=False):\n        hidden = self.normalise(hidden.float())\n"

wrong("no_island", "no_island", "65504", (ISLAND, "    hidden = self.normalise(hidden)\n"))
wrong(
    "cast_only",
    "autocast_still_on",
    "but autocast was still on: it casts fp32 back to fp16",
    (ISLAND, "    hidden = self.normalise(hidden.float())\n"),
)
wrong("switched_off_only", "input_not_cast", "its input is fp16", ("hidden.float()", "hidden"))
wrong(
    "autocast_in_float32",
    "input_not_cast",
    "autocast was off in the island",
    (ISLAND, ISLAND.replace("enabled=False", "dtype=torch.float32").replace("hidden.float()", "hidden")),
)
wrong(
    "autocast_in_float64_by_position",
    "input_not_cast",
    "its input is fp16",
    (ISLAND, ISLAND.replace("enabled=False", "torch.float64").replace("hidden.float()", "hidden")),
)
wrong(
    "off_with_a_dtype",
    "input_not_cast",
    "autocast was off in the island, but",
    ("enabled=False", "dtype=torch.float32, enabled=False"),
    ("hidden.float()", "hidden"),
)
wrong(
    "everything_in_the_island",
    "island_too_large",
    "takes away",
    (
        "    hidden = self.body(x)\n",
        "    with torch.autocast(x.device.type, enabled=False):\n        hidden = self.body(x)\n",
    ),
)
wrong(
    "head_in_the_island",
    "island_too_large",
    "head",
    ("    return self.head(hidden)\n", "        return self.head(hidden)\n"),
)
wrong(
    "cast_back_inside",
    "raised",
    "must have the same dtype",
    (
        "hidden.float())\n    return self.head(hidden)",
        "hidden.float()).half()\n        return self.head(hidden)",
    ),
)
wrong("detached", "gradient_cut", "100% off: is the graph cut", ("hidden.float()", "hidden.detach().float()"))
wrong("under_no_grad", "gradient_cut", "cut", ("enabled=False):", "enabled=False), torch.no_grad():"))
wrong("normalise_left_out", "wrong_value", "off", ("self.normalise(hidden.float())", "hidden.float()"))
wrong(
    "head_left_out",
    "wrong_value",
    "the output is",
    ("    return self.head(hidden)\n", "    return hidden[:, :4]\n"),
)
wrong("returns_nothing", "wrong_return_type", "None", ("    return self.head(hidden)\n", ""))
wrong(
    "returns_hidden", "wrong_return_type", "shape", ("    return self.head(hidden)\n", "    return hidden\n")
)
wrong("one_argument", "signature", "positional", ("forward(self, x)", "forward(x)"))
wrong("raises", "raised", "AttributeError", ("self.normalise", "self.normalize"))
wrong(
    "clamped_instead",
    "no_island",
    "easily exceeds 65504",
    (ISLAND, "    hidden = self.normalise(hidden.clamp(-100, 100))\n"),
)
wrong("changes_its_input", "inputs_changed", "in place", ("self.body(x)", "self.body(x.mul_(0.5))"))

wrong(
    "half_after_the_island",
    "raised",
    "must have the same dtype",
    ("self.head(hidden)", "self.head(hidden.half())"),
)
wrong(
    "half_input",
    "raised",
    "must have the same dtype",
    ("self.body(x)", "self.body(x.half())"),
)
wrong("nothing_for_body", "raised", "linear", ("self.body(x)", "self.body(None)"))
wrong(
    "float64_into_head",
    "raised",
    "must have the same dtype",
    ("hidden.float()", "hidden.double()"),
)
wrong(
    "float64_without_an_island",
    "autocast_still_on",
    "in fp64, but autocast was still on",
    (ISLAND, "    hidden = self.normalise(hidden.double()).float()\n"),
)
wrong(
    "another_autocast",
    "autocast_still_on",
    "for the matrix product",
    ("enabled=False", "dtype=torch.bfloat16"),
)
wrong(
    "cast_to_the_other_half",
    "input_not_cast",
    "its input is b",
    ("hidden.float()", "hidden.bfloat16()"),
)
wrong(
    "an_island_in_float16_only",
    "no_island",
    "8 significant bits",
    ("enabled=False", "enabled=hidden.dtype == torch.bfloat16"),
    ("hidden.float()", "hidden.float() if hidden.dtype == torch.float16 else hidden"),
)
wrong(
    "its_own_autocast",
    "wrong_value",
    "without autocast the output is",
    (
        "    hidden = self.body(x)\n",
        "    with torch.autocast(x.device.type, torch.float16):\n        hidden = self.body(x)\n",
    ),
    (
        "    return self.head(hidden)\n",
        "    with torch.autocast(x.device.type, torch.float16):\n        return self.head(hidden)\n",
    ),
)
for word in ("off", "on"):
    wrong(
        f"autocast_left_{word}",
        "autocast_left",
        f"after forward autocast is {word}",
        (
            "    return self.head(hidden)\n",
            f"    hidden = self.head(hidden)\n    torch.set_autocast_enabled(x.device.type, {word == 'on'})\n    return hidden\n",
        ),
    )

right("the_solution")
right("input_by_name", ("self.body(x)", "self.body(input=x)"))
right(
    "cast_outside",
    (
        ISLAND,
        "    hidden = hidden.to(torch.float32)\n    with torch.amp.autocast(device_type=x.device.type, enabled=False):\n        hidden = self.normalise(hidden)\n",
    ),
)
right("cast_for_an_autocast_that_is_off", ("enabled=False", "dtype=torch.float32"))
right("cpu_named", ("torch.autocast(x.device.type,", "torch.autocast('cpu',"))
right("old_spelling", ("torch.autocast(x.device.type, ", "torch.cpu.amp.autocast("))
right(
    "the_device_there_is",
    ("torch.autocast(x.device.type,", "torch.autocast('cuda' if torch.cuda.is_available() else 'cpu',"),
)
right(
    "a_device_in_a_condition",
    ("    with torch", "    fused = x.device.type != 'cpu'\n    with torch"),
)
right("cuda_named", ("torch.autocast(x.device.type,", "torch.autocast('cuda',"), notes=("hard_coded_device",))


@TABLE.correct()
def decorated(self, x):
    @torch.autocast(x.device.type, enabled=False)
    def island(hidden):
        return self.normalise(hidden.float())

    return self.head(island(self.body(x)))


@TABLE.correct()
def stacked(self, x):
    hidden = self.body(x)
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.autocast(x.device.type, enabled=False))
        hidden = self.normalise(hidden.type(torch.float))
    return self.head(hidden)


@TABLE.correct()
def written_out(self, x):
    hidden = self.body(x).float()
    return self.head(hidden / hidden.norm(dim=-1, keepdim=True).float())


right(
    "float64_island",
    ("hidden.float()", "hidden.double()"),
    ("self.head(hidden)", "self.head(hidden.float())"),
    notes=("wider_than_needed",),
)


def changes_layers(name, word, call):
    wrong(
        name,
        "layers_changed",
        word,
        ("    hidden = self.body(x)\n", f"    {call}\n    hidden = self.body(x)\n"),
    )


changes_layers("head_made_half", "forward changed self.head itself", "self.head.half()")
changes_layers("body_made_half", "forward changed self.body itself", "self.body.to(torch.float16)")
changes_layers("all_made_double", "forward changed self.body itself", "self.double()")
changes_layers("head_there_and_back", "forward changed self.head itself", "self.head.half().float()")
BOTH = "torch.autocast('cpu', enabled=False), torch.autocast('cuda', enabled=False)"
right("switched_off_for_both_devices", ("torch.autocast(x.device.type, enabled=False)", BOTH))
changes_layers(
    "another_head",
    "forward changed self.head itself",
    "import torch; self.head = torch.nn.Linear(32, 4)",
)
