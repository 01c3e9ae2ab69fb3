"""Advice as people read it, made by hand: each kind of claim, tables, and what was not found out."""

from __future__ import annotations

import torch

from amp_lessons._base.render import Section
from amp_lessons._base.text.tables import Table
from amp_lessons.advice import Advice
from amp_lessons.advice.advice import Claim
from amp_lessons.advice.page import advice_page
from tests.forms import forms

TABLE = Table(
    ("module", "kept for backward, fp32"), [("a.b" * 40, "1 MiB"), ("c", "2 MiB")], notes=["n" * 90]
)
ADVICE = Advice(
    of="Model",
    gpu="T4",
    dtype=torch.float16,
    verdict=(
        Claim(
            "answer", "On the T4, train in autocast with fp16.", "products take 2e-3 ms, `a < b`.", "computed"
        ),
        Claim("watch", "Expect *nothing* of `autocast`.", "which it leaves alone; " * 6, "measured"),
        Claim("mend", "The loss became nan.", "its first loss was finite", "measured"),
    ),
    sections=(
        Section("Ledger <what>", ("[computed] One pass: `here`.",), table=TABLE),
        Section("By module", table=TABLE),
    ),
    not_done=("the memory was not found out, for want of time",),
)


def test_advice_in_each_form(golden):
    golden("advice.txt", forms(ADVICE))


def test_its_page(golden):
    page = advice_page(ADVICE)
    golden("page.html", page[page.index("<main>") :])
