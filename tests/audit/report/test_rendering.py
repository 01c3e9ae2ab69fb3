"""The report as people read it."""

from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import asdict, replace

import pytest
import torch

from amp_lessons import audit
from amp_lessons.audit import Explanation, Finding, Report, Sighting, rules
from amp_lessons.audit.page import audit_page
from amp_lessons.audit.report.finding import entry_of
from amp_lessons.audit.seen import LayerSeen, PrecisionSeen
from amp_lessons.course.site import explain as site_explain
from tests.audit.report.samples import BF16, CLIPPED, layer_step, report
from tests.forms import forms
from tools import address

EXPLAINED = Explanation(True, "a < b", "the meaning of it", "the *cure*", "02", "dtype_mismatch", "C++")
FORMS = {
    "report.txt": str,
    "report.md": Report.as_markdown,
    "report.html": Report.as_html,
    "report.json": lambda each: each.as_json(indent=1),
}


@pytest.mark.parametrize("name", FORMS)
def test_a_report_in_each_form(name, golden):
    golden(name, str(FORMS[name](replace(report(), explanation=EXPLAINED))))


def test_a_report_of_ranks_in_each_form(golden):
    fewer = replace(report(), ended="", steps=report().steps[:2])
    half = replace(report().layers["body"], part="1/2")
    parts = [replace(report(), layers={"body": replace(half, part=f"{i}/2")}) for i in (1, 2)]
    together = audit.of_ranks([parts[0], replace(parts[1], steps=fewer.steps, first_nonfinite=None)])
    golden("ranks.txt", forms(together))
    golden("ranks.json", together.as_json(indent=1))


def test_a_page_without_pictures(golden, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    golden("page.html", audit_page(report()).partition("<main>")[2])


STEP = replace(report().steps[0], scale=1.0)
SLOW = Sighting(**asdict(rules.dtypes.no_autocast("the forward pass", "fp16")))
UNSURE = Sighting(**asdict(rules.steps.no_step()), likely="it never stepped")
UNKNOWN = Explanation(False, "no data", "It is not known.", "Run the same again.", "")
RAN = (
    PrecisionSeen(),
    PrecisionSeen(autocast_off=True),
    PrecisionSeen(("fp16",)),
    PrecisionSeen(("fp16",), autocast_off=True, scaler_off=True),
    PrecisionSeen(("bf16",)),
    PrecisionSeen(("bf16", "fp16"), scaler=True),
)
VARIANTS = {
    "of nothing": Report(findings=()),
    "of one clean step": Report(findings=(BF16,), steps=report().steps[:1]),
    "of an overflow that the scaler met": replace(
        report(), first_nonfinite=replace(report().first_nonfinite, recovered=True, phase="backward")
    ),
    "of an inf that a module was given": replace(
        report(), first_nonfinite=replace(report().first_nonfinite, module="input of head")
    ),
    "of many layers": replace(
        report(), layers={f"layer{i}": replace(report().layers["body"], name=f"layer{i}") for i in range(30)}
    ),
    "of a layer whose gradients are all 0": Report(
        findings=(),
        steps=report().steps[:1],
        layers={
            "dead": LayerSeen("dead", 3, {}, (replace(layer_step(0, torch.zeros(3)), zero_fraction=1.0),))
        },
    ),
    "of mistakes, of which the one that costs most is named first": Report(findings=(UNSURE, CLIPPED, SLOW)),
    "of an exception that nobody knows": replace(
        report(), ended="ValueError: no data", ended_at=None, explanation=UNKNOWN
    ),
    **{f"that {ran}": Report(findings=(), steps=(STEP,), precision=ran) for ran in RAN},
}


def test_other_reports_say_what_is_otherwise(golden):
    """Of each, the lines that the report above has not."""
    usual = set(str(report()).splitlines())
    told = []
    for name, each in VARIANTS.items():
        told += [f"--- {name}", *(line for line in str(each).splitlines() if line not in usual)]
    golden("variants.txt", "\n".join(told))


def test_no_line_is_longer_than_a_terminal_is_wide():
    """A path and a line of code stay in one piece, for they are copied."""
    long = {f"{'encoder.layers.' * 4}{i}.self_attention.output": report().layers["body"] for i in range(30)}
    named = {name: replace(layer, name=name) for name, layer in long.items()}
    text = str(replace(report(), layers=named))
    assert [line for line in text.splitlines() if len(line) > 80 and "at: " not in line] == []
    assert ".layers.0.self_attention.output" in text


def test_html_is_well_formed_and_nothing_in_it_is_markup_but_ours():
    hostile = replace(CLIPPED, message="<script>alert(1)</script>", code="a&b")
    html = replace(report(), findings=(hostile,), of="<b>.py").as_html()
    tree = ElementTree.fromstring(str(html).replace("<br>", "<br/>"))
    assert tree.tag == "section"
    assert {element.tag for element in tree.iter()}.isdisjoint({"script", "b"})
    assert all(element.get("scope") in ("col", "row") for element in tree.iter("th"))


def test_a_code_leads_to_its_place_on_the_site():
    (found,) = re.findall(r'<a href="([^"]+)"><code>clip_before_unscale</code></a>', report().as_html())
    page = site_explain.explain_page()
    assert found == f"{address.read().pages}{page.file}#code-clip_before_unscale"
    assert 'id="code-clip_before_unscale"' in page.body


def test_a_finding_of_a_check_keeps_its_own_heading():
    plain = Finding("closure", "failed", "a closure was given", "leave it out")
    seen = Sighting("closure", "failed", "a closure was given", "leave it out")
    assert list(entry_of(plain).lines()) == ["  ✗ closure: a closure was given", "    try: leave it out"]
    assert "    cure: leave it out" in entry_of(seen).lines()


def test_a_line_of_code_with_backticks_stays_one_piece():
    place = replace(CLIPPED.place, source="print(f'`{x}`')")
    assert "`print(f''{x}'')`" in entry_of(replace(CLIPPED, place=place)).as_markdown()


@pytest.mark.parametrize(("dtype", "may"), [(torch.float16, True), (torch.bfloat16, False)])
def test_zeros_are_called_an_underflow_only_in_a_format_that_underflows(dtype, may):
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with audit.watch(model) as seen:
        with torch.autocast("cpu", dtype):
            loss = model(torch.tensor([[1.0, 2.0, 0.0, 0.0]])).float().square().mean()
        loss.backward()
        optimizer.step()
    assert ("underflowed in the backward pass" in str(seen.report)) == may
